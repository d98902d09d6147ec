/* What layers take: a call of the UNet at the job's size, in floats and in int8, each step by its own time. */
#include <math.h>
#include <string.h>

#include "models/quantize/turns.h"

static int find_layer(const struct tern_recipe *r, const char *name)
{
    for (int i = 0; name && i < r->count; i++)
        if (!strcmp(r->layer[i].name, name))
            return i;
    return -1;
}

/* Elements of layers' weights, by layer, that a value is or, on devices whose kernels pack nothing, is made of when weights are bound:
 * int8 of them, several that are joined. Returns those of all. */
static double find_weights(const struct tern_recipe *r, const struct tern_graph *g, int value, double *elements)
{
    const struct tern_value *v = value >= 0 ? &g->values[value] : NULL;
    const int layer = v && v->kind == TERN_VALUE_WEIGHT ? find_layer(r, v->name) : -1;
    const struct tern_node *n = v && v->kind == TERN_VALUE_RESULT && tern_graph_is_fixed(g, value) ? &g->nodes[v->node] : NULL;
    double all = layer >= 0 ? (double)tern_meta_numel(&v->meta) : 0;
    if (layer >= 0)
        elements[layer] += all;
    for (int k = 0; n && k < (n->desc.op == TERN_OP_cat ? n->desc.n_in : 1); k++)
        all += find_weights(r, g, n->in[k], elements);
    return all;
}

/* The layers of a step: what each has of its time, by layer. False: it is of none. */
static bool find_shares(const struct tern_recipe *r, const struct tern_plan *plan, const struct tern_step *s, double *share)
{
    const int attention = s->desc->op == TERN_OP_sdpa ? find_layer(r, TERN_RECIPE_ATTENTION_NAME) : -1;
    memset(share, 0, (size_t)r->count * sizeof(*share));
    if (attention >= 0)
        share[attention] = 1;
    const double all = attention >= 0 ? 1 : find_weights(r, plan->graph, plan->graph->nodes[s->node].in[1], share);
    for (int i = 0; all > 0 && i < r->count; i++)
        share[i] /= all;
    return all > 0;
}

/* Attention that may be int8 is where that makes a difference to the device. */
static bool is_int8(const struct tern_plan *plan, const struct tern_step *s)
{
    struct tern_op_desc floats = *s->desc;
    switch (s->desc->op) {
    case TERN_OP_quantized_conv2d:
    case TERN_OP_quantized_linear:
    case TERN_OP_quantized_linear_geglu:
        return true;
    case TERN_OP_sdpa:
        floats.attrs.sdpa.int8 = 0;
        return s->desc->attrs.sdpa.int8 && s->kernel != tern_kernel_choose(plan->ctx, plan->device, &floats);
    default:
        return false;
    }
}

/* Adds the steps of a plan to the times of their layers: times[layer][int8]. *total: of all steps. NULL `seconds`: density alone. */
static void attribute(struct tern_quantize_run *run, const struct tern_plan *plan, bool int8, const double *seconds, double (*times)[2],
                      bool *able, double *total)
{
    struct tern_recipe *r = run->recipe;
    double *share = tern_calloc(run->ctx, (size_t)r->count + 1, sizeof(*share));
    for (int i = 0; share && i < plan->n_steps; i++) {
        const struct tern_step *s = &plan->steps[i];
        *total += seconds ? seconds[i] : 0;
        if (!find_shares(r, plan, s, share))
            continue;
        const bool bytes = int8 && is_int8(plan, s);
        const double density = int8 ? 0 : tern_desc_flops(s->desc) / tern_desc_bytes(s->desc);
        for (int k = 0; k < r->count; k++) {
            if (share[k] <= 0)
                continue;
            times[k][int8] += seconds ? share[k] * seconds[i] : 0;
            able[k] |= bytes;
            r->layer[k].density = fmax(r->layer[k].density, density);
        }
    }
    tern_free(run->ctx, share);
}

/* Without "pre": norms in front of convolutions would count as theirs in one of the plans. */
static void measure(struct tern_quantize_run *run, bool times_too, double (*times)[2], bool *able, double total[2])
{
    struct tern_side sides[2] = {{NULL}, {NULL}};
    for (int i = 0; i < 2 && !tern_failed(run->ctx); i++)
        tern_side_open(run, i ? "*" : NULL, "pre", times_too, &sides[i]);
    if (times_too && !tern_failed(run->ctx))
        tern_sides_profile(run->ctx, sides);
    for (int i = 0; i < 2; i++) {
        if (!tern_failed(run->ctx))
            attribute(run, sides[i].plan, i, times_too ? sides[i].seconds : NULL, times, able, &total[i]);
        tern_side_close(run, &sides[i]);
    }
}

/* The times of an earlier run, of all layers; all zero where one is missing. */
static bool recall(struct tern_quantize_run *run, double (*times)[2], double total[2])
{
    const struct tern_recipe *r = run->recipe;
    bool known = times && tern_state_times(&run->state, "", total);
    for (int i = 0; known && i < r->count; i++)
        known = tern_state_times(&run->state, r->layer[i].name, times[i]);
    for (int i = 0; times && !known && i < r->count; i++)
        times[i][0] = times[i][1] = 0;
    if (!known)
        total[0] = total[1] = 0;
    return known;
}

enum tern_status tern_quantize_measure(struct tern_quantize_run *run, bool *able)
{
    struct tern_recipe *r = run->recipe;
    double(*times)[2] = tern_calloc(run->ctx, (size_t)r->count + 1, sizeof(*times)), total[2] = {0};
    const bool known = recall(run, times, total);
    if (times)
        measure(run, !known, times, able, total);
    for (int i = 0; times && i < r->count && !tern_failed(run->ctx); i++) {
        if (!known)
            tern_state_put_times(&run->state, r->layer[i].name, times[i]);
        r->layer[i].seconds = times[i][0];
        r->layer[i].saved = able[i] ? times[i][0] - times[i][1] : 0;
    }
    tern_free(run->ctx, times);
    r->facts.seconds = total[0];
    if (tern_failed(run->ctx) || known)
        return tern_error_status(run->ctx);
    tern_state_put_times(&run->state, "", total);
    return tern_state_save(&run->state);
}

enum tern_status tern_quantize_time(struct tern_quantize_run *run)
{
    struct tern_recipe_facts *f = &run->recipe->facts;
    char key[TERN_KEY_TEXT];
    double seconds[2] = {0};
    struct tern_side sides[2] = {{NULL}, {NULL}};
    struct tern_key k = {{3, 0}};
    char *words = tern_recipe_words(run->recipe);
    if (!words)
        return tern_error_status(run->ctx);
    tern_key_add_text(&k, words);
    tern_key_text(tern_key_finish(k), key);
    const bool known = tern_state_times(&run->state, key, seconds) && seconds[0] > 0 && seconds[1] > 0;
    for (int i = 0; !known && i < 2 && !tern_failed(run->ctx); i++)
        tern_side_open(run, i ? words : NULL, NULL, true, &sides[i]);
    if (!known && !tern_failed(run->ctx))
        tern_sides_time(run->ctx, sides);
    for (int i = 0; !known && i < 2; i++) {
        seconds[i] = sides[i].call;
        tern_side_close(run, &sides[i]);
    }
    tern_free(run->ctx, words);
    if (tern_failed(run->ctx))
        return tern_error_status(run->ctx);
    f->call_seconds = seconds[0];
    f->call_int8_seconds = seconds[1];
    if (known)
        return TERN_OK;
    tern_state_put_times(&run->state, key, seconds);
    return tern_state_save(&run->state);
}

/* What layers take: a call of the UNet at the job's size, in floats and in int8, each step by its own time. */
#include <math.h>
#include <string.h>

#include "models/quantize/analysis.h"

/* Of so many runs the shortest time of each step counts: more when they are short. */
#define LEAST_RUNS 3
#define MOST_RUNS 50
#define SECONDS 1.0

/* One of the two plans. */
struct side {
    struct tern_plan *plan;
    struct tern_binding *binding; /* NULL: it is not run */
    tern_tensor *in[TERN_GRAPH_MAX_IO];
    double *seconds; /* by step: the least so far; 0: none */
    int step;
};

static void tell(void *user, const struct tern_step_profile *s)
{
    struct side *p = user;
    double *least = &p->seconds[p->step++];
    *least = *least > 0 && *least < s->seconds ? *least : s->seconds;
}

/* Values of moderate size; which ones does not change the time. */
static tern_tensor *make_input(struct tern_context *ctx, const struct tern_graph_input *in)
{
    int64_t n = 1;
    for (int i = 0; i < in->ndim; i++)
        n *= in->shape[i];
    float *values = tern_alloc(ctx, (size_t)n * sizeof(*values));
    tern_tensor *t = values ? tern_tensor_create(ctx, in->dtype, in->ndim, in->shape, NULL) : NULL;
    for (int64_t k = 0; values && k < n; k++)
        values[k] = (float)(k % 17 - 8) / 8;
    if (t)
        tern_tensor_write(t, TERN_F32, values, (size_t)n * sizeof(*values));
    tern_free(ctx, values);
    return t;
}

/* Inputs, and a run: weights are read then, memory is there. */
static void warm_up(struct side *p)
{
    const struct tern_graph *g = p->plan->graph;
    tern_tensor *out[TERN_GRAPH_MAX_IO] = {NULL};
    for (int i = 0; i < g->n_inputs; i++) {
        const struct tern_value *v = &g->values[g->inputs[i]];
        struct tern_graph_input declared = {.name = v->name, .dtype = v->meta.dtype, .ndim = v->meta.ndim};
        memcpy(declared.shape, v->meta.shape, sizeof(declared.shape));
        p->in[i] = make_input(p->plan->ctx, &declared);
    }
    if (!tern_failed(p->plan->ctx))
        tern_plan_run(p->binding, p->in, out);
}

/* In turns: what else the machine does hits both. */
static void run_both(struct tern_context *ctx, struct side sides[2])
{
    tern_scope_begin(ctx);
    warm_up(&sides[0]);
    if (!tern_failed(ctx))
        warm_up(&sides[1]);
    const double start = tern_now();
    for (int i = 0; i < 2 * MOST_RUNS && (i < 2 * LEAST_RUNS || tern_now() - start < 2 * SECONDS) && !tern_failed(ctx); i++) {
        struct side *p = &sides[i % 2];
        tern_tensor *out[TERN_GRAPH_MAX_IO] = {NULL};
        p->step = 0;
        tern_scope_begin(ctx);
        tern_plan_profile(p->binding, p->in, out, tell, p);
        tern_scope_end(ctx, NULL);
    }
    tern_scope_end(ctx, NULL);
}

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
static bool is_int8(struct tern_context *ctx, const struct tern_step *s)
{
    struct tern_op_desc floats = *s->desc;
    switch (s->desc->op) {
    case TERN_OP_quantized_conv2d:
    case TERN_OP_quantized_linear:
    case TERN_OP_quantized_linear_geglu:
        return true;
    case TERN_OP_sdpa:
        floats.attrs.sdpa.int8 = 0;
        return s->desc->attrs.sdpa.int8 && s->kernel != tern_kernel_choose(ctx, ctx->device, &floats);
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
        const bool bytes = int8 && is_int8(run->ctx, s);
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

/* Norms in front of convolutions would count as theirs in one of the plans. */
static void open_side(struct tern_quantize_run *run, bool int8, bool times_too, struct side *p)
{
    const struct tern_weights *weights = tern_pipeline_module_weights(run->p, "unet");
    p->plan = tern_plan_compile(run->large.graph, &(struct tern_plan_params){.quantize = int8 ? "*" : NULL, .without = "pre"});
    p->seconds = p->plan ? tern_calloc(run->ctx, (size_t)p->plan->n_steps + 1, sizeof(double)) : NULL;
    p->binding = p->seconds && weights && times_too ? tern_plan_bind(p->plan, weights) : NULL;
}

static void measure(struct tern_quantize_run *run, bool times_too, double (*times)[2], bool *able, double total[2])
{
    struct side sides[2] = {{NULL}, {NULL}};
    for (int i = 0; i < 2 && !tern_failed(run->ctx); i++)
        open_side(run, i, times_too, &sides[i]);
    if (times_too && !tern_failed(run->ctx))
        run_both(run->ctx, sides);
    for (int i = 0; i < 2; i++) {
        if (!tern_failed(run->ctx))
            attribute(run, sides[i].plan, i, times_too ? sides[i].seconds : NULL, times, able, &total[i]);
        tern_free(run->ctx, sides[i].seconds);
        tern_binding_unref(&sides[i].binding);
        tern_plan_unref(&sides[i].plan);
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

/* Trials: how much the latents change when some layers are int8. Groups first; where they lose much, halves. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/quantize/analysis.h"

#define FAR_BELOW 0.25 /* of its threshold: a group of that error needs no look at its layers */
#define SLOWER 0.05    /* more of its time than that is not the measurement's */

double tern_quantize_threshold(const struct tern_quantize_run *run, const struct tern_unit *u)
{
    const bool conv = run->recipe->layer[run->order[u->first]].kind[0] == 'c';
    return conv ? run->params.conv_mse_threshold : run->params.linear_mse_threshold;
}

/* ---- groups */

/* Characters of a name that tell the block: "down_blocks.1", "mid_block", "conv_in". */
static size_t block_of(const char *name)
{
    const size_t first = strcspn(name, ".");
    const size_t number = name[first] ? strspn(name + first + 1, "0123456789") : 0;
    return number ? first + 1 + number : first;
}

static bool together(const struct tern_recipe_layer *a, const struct tern_recipe_layer *b)
{
    const size_t n = block_of(a->name);
    return a->kind == b->kind && n == block_of(b->name) && !memcmp(a->name, b->name, n);
}

static bool is_asked_for(const struct tern_quantize_run *run, const struct tern_recipe_layer *l)
{
    return tern_recipe_is_attention(l) ? run->params.quantize_attention
           : l->kind[0] == 'c'         ? run->params.quantize_conv
                                       : run->params.quantize_linear;
}

/* Why a layer is not even tried; NULL: it is. */
static const char *refusal(const struct tern_quantize_run *run, const struct tern_recipe_layer *l, bool able, char text[TERN_RECIPE_REASON])
{
    if (!is_asked_for(run, l))
        snprintf(text, TERN_RECIPE_REASON, "stays: no %s layer is asked for", l->kind);
    else if (!able)
        snprintf(text, TERN_RECIPE_REASON, "stays: the device has no int8 kernel for it");
    else if (l->density < run->params.compute_density_threshold)
        snprintf(text, TERN_RECIPE_REASON, "stays: density %.4g is below %.4g", l->density, run->params.compute_density_threshold);
    else if (l->saved < -SLOWER * l->seconds && !run->params.quantize_slower)
        snprintf(text, TERN_RECIPE_REASON, "stays: it takes %.3g times as long in int8", (l->seconds - l->saved) / l->seconds);
    else
        return NULL;
    return text;
}

const struct tern_recipe_layer *tern_quantize_densest(const struct tern_quantize_run *run)
{
    const struct tern_recipe_layer *found = NULL;
    for (int i = 0; i < run->recipe->count; i++) {
        const struct tern_recipe_layer *l = &run->recipe->layer[i];
        if (is_asked_for(run, l) && (!found || l->density > found->density))
            found = l;
    }
    return found ? found : run->recipe->layer;
}

static enum tern_status add_unit(struct tern_quantize_run *run, int first, int n)
{
    if (!tern_grow(run->ctx, (void **)&run->unit, run->units, &run->capacity, sizeof(*run->unit)))
        return tern_error_status(run->ctx);
    struct tern_unit u = {.first = first, .n = n};
    for (int i = 0; i < n; i++)
        u.saved += run->recipe->layer[run->order[first + i]].saved;
    run->unit[run->units++] = u;
    return TERN_OK;
}

/* Layers of one group stand together in `order`, in the order of the network. */
enum tern_status tern_quantize_group(struct tern_quantize_run *run, const bool *able)
{
    struct tern_recipe *r = run->recipe;
    char text[TERN_RECIPE_REASON];
    bool *open = tern_calloc(run->ctx, (size_t)r->count, sizeof(*open));
    run->order = tern_calloc(run->ctx, (size_t)r->count, sizeof(*run->order));
    for (int i = 0; open && run->order && i < r->count && !tern_failed(run->ctx); i++) {
        const char *why = refusal(run, &r->layer[i], able[i], text);
        open[i] = !why;
        if (why)
            tern_recipe_decide(r, i, why);
    }
    for (int i = 0; i < r->count && !tern_failed(run->ctx); i++) {
        const int first = run->candidates;
        if (!open[i])
            continue;
        for (int k = i; k < r->count; k++)
            if (open[k] && together(&r->layer[i], &r->layer[k])) {
                run->order[run->candidates++] = k;
                open[k] = false;
            }
        add_unit(run, first, run->candidates - first);
    }
    tern_free(run->ctx, open);
    return tern_error_status(run->ctx);
}

/* ---- errors */

static double error_of(const struct tern_quantize_run *run, const float *latents)
{
    const int64_t n = run->small.values * run->params.n_prompts;
    double sum = 0;
    for (int64_t k = 0; k < n; k++) {
        const double d = (double)latents[k] - run->plain[k];
        sum += d * d;
    }
    const double error = sum / (double)n / run->variance;
    return error < TERN_WORST_ERROR ? error : TERN_WORST_ERROR; /* also of NaN */
}

/* The layers that the recipe says are int8 now. */
enum tern_status tern_quantize_try(struct tern_quantize_run *run, double *error)
{
    char key[TERN_KEY_TEXT];
    struct tern_key k = {{1, 0}};
    char *words = tern_recipe_words(run->recipe);
    if (!words)
        return tern_error_status(run->ctx);
    tern_key_add_text(&k, words);
    tern_key_text(tern_key_finish(k), key);
    const bool known = tern_state_get(&run->state, key, 0, TERN_WORST_ERROR, error);
    if (!known && tern_calibration_run(&run->small, words, run->latents, NULL) == TERN_OK) {
        *error = error_of(run, run->latents);
        tern_state_put(&run->state, key, *error);
    }
    tern_free(run->ctx, words);
    run->recipe->facts.trials++;
    if (!tern_failed(run->ctx))
        tern_quantize_tell(run, 1, 0);
    return tern_error_status(run->ctx);
}

static enum tern_status try_unit(struct tern_quantize_run *run, struct tern_unit *u)
{
    struct tern_recipe_layer *layer = run->recipe->layer;
    for (int i = 0; i < run->recipe->count; i++)
        layer[i].int8 = false;
    for (int i = 0; i < u->n; i++)
        layer[run->order[u->first + i]].int8 = true;
    if (tern_quantize_try(run, &u->error))
        return tern_error_status(run->ctx);
    for (int i = 0; i < u->n; i++) {
        layer[run->order[u->first + i]].error = u->error;
        layer[run->order[u->first + i]].measured_with = u->n;
    }
    u->fits = u->error <= tern_quantize_threshold(run, u);
    return TERN_OK;
}

enum tern_status tern_quantize_split(struct tern_quantize_run *run, int unit)
{
    struct tern_unit *u = &run->unit[unit];
    const int n = u->n / 2, first = u->first + n, rest = u->n - n;
    if (add_unit(run, first, rest))
        return tern_error_status(run->ctx);
    u = &run->unit[unit]; /* the list may have moved */
    u->n = n;
    u->saved -= run->unit[run->units - 1].saved;
    tern_quantize_tell(run, 0, 2);
    return try_unit(run, u) ? tern_error_status(run->ctx) : try_unit(run, &run->unit[run->units - 1]);
}

enum tern_status tern_quantize_search(struct tern_quantize_run *run)
{
    tern_quantize_tell(run, 0, run->units);
    for (int i = 0, known = run->units; i < known; i++)
        if (try_unit(run, &run->unit[i]))
            return tern_error_status(run->ctx);
    for (int i = 0; i < run->units; i++)
        while (run->unit[i].n > 1 && run->unit[i].error > FAR_BELOW * tern_quantize_threshold(run, &run->unit[i]))
            if (tern_quantize_split(run, i))
                return tern_error_status(run->ctx);
    return TERN_OK;
}

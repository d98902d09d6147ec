/* Factors of norms (SmoothQuant): the largest values of each channel behind them in calls of the UNet without int8, on the plain latents
 * with the noise of each step, and the largest weights that read them. */
#include <math.h>
#include <string.h>
#include <tern/ops.h>
#include <tern/random.h>

#include "graph/passes/passes.h"
#include "models/quantize/analysis.h"

#define ROUND 40   /* norms that one call tells of */
#define LEAST 1e-5 /* smaller values count as this */

/* A norm that may be divided. */
struct place {
    int node, value; /* of the traced graph: the norm, what is divided */
    int dim;         /* of that: its channels */
    int64_t channels;
    double *most, *weight; /* by channel */
};

struct smoothing {
    struct tern_quantize_run *run;
    struct tern_calibration *c;
    struct place *place;
    int places;
};

static enum tern_status find_places(struct smoothing *s)
{
    const struct tern_graph *g = s->c->graph;
    struct tern_context *ctx = s->run->ctx;
    s->place = tern_calloc(ctx, (size_t)g->n_nodes + 1, sizeof(*s->place));
    for (int i = 0; s->place && i < g->n_nodes && !tern_failed(ctx); i++) {
        bool silu;
        const int value = tern_smooth_place(g, i, &silu);
        if (value < 0)
            continue;
        struct place *p = &s->place[s->places++];
        *p = (struct place){
            .node = i, .value = value, .dim = tern_smooth_channels(g, i), .channels = g->values[g->nodes[i].in[1]].meta.shape[0]};
        p->most = tern_calloc(ctx, (size_t)p->channels, sizeof(*p->most));
        p->weight = tern_calloc(ctx, (size_t)p->channels, sizeof(*p->weight));
    }
    return tern_error_status(ctx);
}

static void larger(double *most, double value)
{
    const double v = fabs(value);
    *most = v > *most ? v : *most; /* NaN does not count */
}

/* Values of a tensor as f32, the channel being dimension `dim`: the largest of each. */
static enum tern_status measure(struct tern_context *ctx, const tern_tensor *t, int dim, double *most)
{
    const int64_t *shape = tern_tensor_shape(t), n = tern_tensor_numel(t);
    int64_t inner = 1;
    for (int d = dim + 1; d < tern_tensor_ndim(t); d++)
        inner *= shape[d];
    float *values = tern_alloc(ctx, (size_t)n * sizeof(*values));
    if (values && tern_tensor_read(t, TERN_F32, values, (size_t)n * sizeof(*values)) == TERN_OK)
        for (int64_t k = 0; k < n; k++)
            larger(&most[k / inner % shape[dim]], values[k]);
    tern_free(ctx, values);
    return tern_error_status(ctx);
}

/* ---- weights */

static enum tern_status measure_weights(struct smoothing *s)
{
    const struct tern_graph *g = s->c->graph;
    const struct tern_weights *weights = tern_pipeline_module_weights(s->run->p, "unet");
    for (int i = 0; weights && i < s->places; i++)
        for (int k = 0; k < g->n_nodes && !tern_failed(s->run->ctx); k++) {
            const struct tern_node *n = &g->nodes[k];
            const bool reads = !n->dead && n->desc.n_in > 1 && n->in[0] == s->place[i].value;
            const tern_tensor *w = reads ? tern_weights_get(weights, g->values[n->in[1]].name) : NULL;
            if (w)
                measure(s->run->ctx, w, 1, s->place[i].weight);
        }
    return tern_error_status(s->run->ctx);
}

/* ---- calls of the UNet */

/* The plain plan with what some norms give as outputs behind its own. */
static struct tern_plan *make_plan(const struct smoothing *s, int first, int n)
{
    struct tern_graph *g = tern_graph_copy(s->c->graph);
    for (int i = 0; g && i < n; i++)
        g->outputs[g->n_outputs++] = s->place[first + i].value;
    struct tern_plan *plan = g ? tern_plan_compile(g, NULL) : NULL;
    tern_graph_destroy(&g);
    return plan;
}

/* The latents in the UNet's dtype, and what it is told behind them, once for each of its rows that is not shared. */
static tern_tensor *sample_of(const struct tern_job *j, int call, const float *latents)
{
    const int64_t rows = j->branches / j->share, shape[] = {rows, j->p->unet_config.in_channels, j->lh, j->lw};
    const int64_t row = shape[1] * shape[2] * shape[3];
    float *values = tern_alloc(j->p->ctx, (size_t)(rows * row) * sizeof(*values));
    tern_tensor *t = values ? tern_tensor_create(j->p->ctx, tern_pipeline_dtype(j->p, "unet"), 4, shape, NULL) : NULL;
    for (int64_t b = 0; values && b < rows; b++) {
        tern_scheduler_scale_input(j->scheduler, call, latents, values + b * row, j->picture);
        tern_job_fill_told(j, (int)b, 0, values + b * row + j->picture);
    }
    if (t)
        tern_tensor_write(t, TERN_F32, values, (size_t)(rows * row) * sizeof(*values));
    tern_free(j->p->ctx, values);
    return t;
}

/* One call: latents with the noise of that step. */
static enum tern_status tell_call(struct smoothing *s, struct tern_job *j, struct tern_binding *b, int call, const float *clean, int first,
                                  int n)
{
    struct tern_context *ctx = j->p->ctx;
    const double t = tern_scheduler_timestep(j->scheduler, call);
    const struct tern_unet *unet = tern_pipeline_unet(j->p);
    struct tern_unet_conditions c = {NULL, NULL};
    tern_tensor *out[ROUND + 1] = {NULL};
    tern_generator_randn(&j->generator[0], j->noise, j->picture);
    tern_scheduler_add_noise(j->scheduler, call, clean, j->noise, j->latents, j->picture);
    tern_scope_begin(ctx);
    if (unet && tern_unet_conditions(unet, &t, 1, j->params.cfg, j->pooled, j->time_ids, &c) == TERN_OK) {
        tern_tensor *in[] = {sample_of(j, call, j->latents), c.time, tern_cast(j->context, tern_pipeline_dtype(j->p, "unet")), c.added};
        if (!tern_failed(ctx) && tern_plan_run(b, in, out) == TERN_OK)
            for (int i = 0; i < n && !tern_failed(ctx); i++)
                measure(ctx, out[1 + i], s->place[first + i].dim, s->place[first + i].most);
    }
    tern_scope_end(ctx, NULL);
    return tern_error_status(ctx);
}

/* All steps of one prompt. */
static enum tern_status tell_prompt(struct smoothing *s, int prompt, struct tern_binding *b, int first, int n)
{
    struct tern_job j;
    if (tern_calibration_job(s->c, prompt, &j) == TERN_OK) {
        for (int call = j.begin; call < tern_job_calls(&j) && !tern_failed(s->run->ctx) && !tern_check_cancel(s->run->ctx); call++)
            tell_call(s, &j, b, call, s->run->plain + prompt * s->c->values, first, n);
    }
    tern_job_destroy(&j);
    return tern_error_status(s->run->ctx);
}

static enum tern_status tell_round(struct smoothing *s, int first, int n)
{
    struct tern_plan *plan = make_plan(s, first, n);
    const struct tern_weights *weights = plan ? tern_pipeline_module_weights(s->run->p, "unet") : NULL;
    struct tern_binding *b = weights ? tern_plan_bind(plan, weights) : NULL;
    for (int i = 0; b && i < s->c->params->n_prompts && !tern_failed(s->run->ctx); i++)
        tell_prompt(s, i, b, first, n);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    return tern_error_status(s->run->ctx);
}

/* ---- factors */

/* Their middle is 1: what all have in common changes nothing. Of channels without values it is not taken: these need no room for any, and
 * the others would come near the largest factor there is. */
static enum tern_status decide(const struct smoothing *s, const struct place *p)
{
    struct tern_context *ctx = s->run->ctx;
    const struct tern_graph *g = s->c->graph;
    const double a = s->run->params.smooth_quant;
    double least = INFINITY, most = -INFINITY;
    char *letters = tern_calloc(ctx, (size_t)p->channels + 1, 1);
    for (int64_t k = 0; letters && k < p->channels; k++) {
        const double power = a * log2(fmax(p->most[k], LEAST)) - (1 - a) * log2(fmax(p->weight[k], LEAST));
        const bool silent = p->most[k] <= LEAST;
        p->most[k] = isfinite(power) ? power : 0;
        least = silent ? least : fmin(least, p->most[k]);
        most = silent ? most : fmax(most, p->most[k]);
    }
    const double middle = least <= most ? (least + most) / 2 : 0;
    for (int64_t k = 0; letters && k < p->channels; k++)
        letters[k] = tern_quantize_factor_letter(p->most[k] - middle);
    if (letters)
        tern_recipe_smooth(s->run->recipe, g->values[g->nodes[p->node].in[1]].name, letters);
    tern_free(ctx, letters);
    return tern_error_status(ctx);
}

enum tern_status tern_quantize_smooth(struct tern_quantize_run *run)
{
    struct smoothing s = {.run = run, .c = &run->small};
    if (find_places(&s) == TERN_OK && measure_weights(&s) == TERN_OK)
        for (int i = 0; i < s.places && !tern_failed(run->ctx); i += ROUND)
            tell_round(&s, i, s.places - i < ROUND ? s.places - i : ROUND);
    for (int i = 0; i < s.places; i++) {
        if (!tern_failed(run->ctx))
            decide(&s, &s.place[i]);
        tern_free(run->ctx, s.place[i].most);
        tern_free(run->ctx, s.place[i].weight);
    }
    tern_free(run->ctx, s.place);
    if (!tern_failed(run->ctx))
        tern_quantize_tell(run, 1, 0);
    return tern_error_status(run->ctx);
}

/* Running two plans of the UNet in turns. */
#include "models/quantize/turns.h"

#include <string.h>

/* Of so many runs the shortest time counts: more when they are short. */
#define LEAST_RUNS 3
#define MOST_RUNS 50
#define SECONDS 1.0

void tern_side_open(struct tern_quantize_run *run, const char *words, const char *without, bool runs, struct tern_side *side)
{
    const struct tern_weights *weights = tern_pipeline_module_weights(run->p, "unet");
    *side = (struct tern_side){NULL};
    side->plan = tern_plan_compile(run->large.graph, &(struct tern_plan_params){.quantize = words, .without = without});
    side->seconds = side->plan ? tern_calloc(run->ctx, (size_t)side->plan->n_steps + 1, sizeof(double)) : NULL;
    side->binding = side->seconds && weights && runs ? tern_plan_bind(side->plan, weights) : NULL;
}

void tern_side_close(struct tern_quantize_run *run, struct tern_side *side)
{
    tern_free(run->ctx, side->seconds);
    tern_binding_unref(&side->binding);
    tern_plan_unref(&side->plan);
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
static void warm_up(struct tern_side *p)
{
    const struct tern_graph *g = p->plan->graph;
    for (int i = 0; i < g->n_inputs; i++) {
        const struct tern_value *v = &g->values[g->inputs[i]];
        struct tern_graph_input declared = {.name = v->name, .dtype = v->meta.dtype, .ndim = v->meta.ndim};
        memcpy(declared.shape, v->meta.shape, sizeof(declared.shape));
        p->in[i] = make_input(p->plan->ctx, &declared);
    }
    if (!tern_failed(p->plan->ctx))
        tern_plan_run(p->binding, p->in, p->out);
}

static void tell(void *user, const struct tern_step_profile *s)
{
    struct tern_side *p = user;
    double *least = &p->seconds[p->step++];
    *least = *least > 0 && *least < s->seconds ? *least : s->seconds;
}

static void profile(struct tern_side *p)
{
    p->step = 0;
    tern_plan_profile(p->binding, p->in, p->out, tell, p);
}

/* Until the result can be read, which is when a device has made it. */
static void call(struct tern_side *p)
{
    struct tern_context *ctx = p->plan->ctx;
    const size_t size = (size_t)tern_meta_numel(&p->plan->graph->values[p->plan->graph->outputs[0]].meta) * sizeof(float);
    float *values = tern_alloc(ctx, size);
    const double start = tern_now();
    if (values && tern_plan_run(p->binding, p->in, p->out) == TERN_OK && tern_tensor_read(p->out[0], TERN_F32, values, size) == TERN_OK) {
        const double seconds = tern_now() - start;
        p->call = p->call > 0 && p->call < seconds ? p->call : seconds;
    }
    tern_free(ctx, values);
}

static void run_both(struct tern_context *ctx, struct tern_side sides[2], void (*once)(struct tern_side *))
{
    tern_scope_begin(ctx);
    warm_up(&sides[0]);
    if (!tern_failed(ctx))
        warm_up(&sides[1]);
    const double start = tern_now();
    for (int i = 0; i < 2 * MOST_RUNS && (i < 2 * LEAST_RUNS || tern_now() - start < 2 * SECONDS) && !tern_failed(ctx); i++) {
        tern_scope_begin(ctx);
        once(&sides[i % 2]);
        tern_scope_end(ctx, NULL);
    }
    tern_scope_end(ctx, NULL);
}

void tern_sides_profile(struct tern_context *ctx, struct tern_side sides[2]) { run_both(ctx, sides, profile); }
void tern_sides_time(struct tern_context *ctx, struct tern_side sides[2]) { run_both(ctx, sides, call); }

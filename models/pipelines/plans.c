/* The plans of a pipeline's components: made once for each size, bound to the weights that the component has now. */
#include <string.h>
#include <tern/quantize.h>

#include "core/context.h"
#include "graph/plan.h"
#include "models/pipelines/pipeline.h"

/* Of the component's module; NULL when it is not in memory. */
static struct tern_weights *weights_of(const struct tern_pipeline *p, const char *component)
{
    if (!strcmp(component, "text_encoder_2"))
        return p->text_2 ? p->text_2->weights : NULL;
    if (component[0] == 't')
        return p->text ? p->text->weights : NULL;
    if (component[0] == 'u')
        return p->unet ? p->unet->weights : NULL;
    if (component[0] == 'p')
        return p->preview ? p->preview->weights : NULL;
    return p->vae ? p->vae->weights : NULL;
}

static void unbind(struct tern_planned *e)
{
    tern_binding_unref(&e->binding);
    tern_weights_unref(&e->weights);
}

static void forget(struct tern_planned *e)
{
    unbind(e);
    tern_plan_unref(&e->plan);
    memset(e, 0, sizeof(*e));
}

static bool is(const struct tern_planned *e, const struct tern_stage *s)
{
    const struct tern_stage *t = &e->stage;
    return e->plan && !strcmp(t->component, s->component) && t->size.batch == s->size.batch && t->size.width == s->size.width &&
           t->size.height == s->size.height && t->resident == s->resident && t->arena == s->arena &&
           t->algorithm_bytes == s->algorithm_bytes && t->tokens == s->tokens && t->vectors == s->vectors && t->part == s->part &&
           t->branch == s->branch && t->share == s->share && t->known == s->known && t->early == s->early;
}

const char *tern_pipeline_layer_words(const struct tern_pipeline *p, const char *component)
{
    if (!p || !component)
        return NULL;
    if (!strcmp(component, "unet"))
        return p->quantize;
    return component[0] == 't' ? p->text_encoder_quantize : NULL;
}

/* An empty place, or that of the plan that was not used for the longest time. */
static struct tern_planned *place(struct tern_pipeline *p)
{
    struct tern_planned *oldest = &p->planned[0];
    for (int i = 0; i < TERN_MAX_PLANNED; i++) {
        if (!p->planned[i].plan)
            return &p->planned[i];
        if (p->planned[i].used < oldest->used)
            oldest = &p->planned[i];
    }
    forget(oldest);
    return oldest;
}

/* The graph, compiled. `making`: the most memory that this takes beside the plan, be it compiled or read from disk: then the traced graph
 * is there, too, and what reading takes. A budget that is enough today is so when the plan is on disk. */
static struct tern_plan *make(struct tern_pipeline *p, const struct tern_stage *stage, size_t *making)
{
    struct tern_context *ctx = p->ctx;
    const size_t peak = tern_memory_peak(ctx);
    tern_memory_reset_peak(ctx);
    struct tern_graph *g = tern_pipeline_stage_graph(p, stage);
    const size_t traced = g ? tern_graph_bytes(g) : 0;
    const struct tern_plan_params params = {.resident = stage->resident,
                                            .arena = stage->arena,
                                            .algorithm_bytes = stage->algorithm_bytes,
                                            .quantize = tern_pipeline_layer_words(p, stage->component)};
    struct tern_plan *plan = g ? tern_plan_cached_owned(&g, &params) : NULL;
    tern_memory_trim_devices(ctx); /* what is kept for reuse is not the plan's */
    *making = tern_memory_peak(ctx) - tern_memory_used(ctx);
    *making = *making > traced + traced / 8 ? *making : traced + traced / 8;
    tern_memory_raise_peak(ctx, peak);
    return plan;
}

bool tern_pipeline_has_plan(const struct tern_pipeline *p, const struct tern_stage *stage)
{
    for (int i = 0; i < TERN_MAX_PLANNED; i++)
        if (is(&p->planned[i], stage))
            return true;
    return false;
}

static struct tern_planned *get(struct tern_pipeline *p, const struct tern_stage *stage)
{
    struct tern_planned *e = NULL;
    for (int i = 0; i < TERN_MAX_PLANNED && !e; i++)
        if (is(&p->planned[i], stage))
            e = &p->planned[i];
    if (!e) {
        size_t making;
        p->half_made++;
        struct tern_plan *plan = make(p, stage, &making);
        p->half_made--;
        if (!plan)
            return NULL;
        e = place(p);
        *e = (struct tern_planned){.stage = *stage, .plan = plan};
        p->making = making > p->making ? making : p->making;
    }
    e->used = ++p->planned_clock;
    return e;
}

struct tern_plan *tern_pipeline_plan(struct tern_pipeline *p, const struct tern_stage *stage)
{
    struct tern_planned *e = tern_failed(p->ctx) ? NULL : get(p, stage);
    return e ? e->plan : NULL;
}

/* What a shallow UNet needs is kept by this one. */
static struct tern_stage keeping(struct tern_stage shallow)
{
    shallow.part = TERN_UNET_KEEPS;
    return shallow;
}

/* Of a plan to the weights, at the plan's place, if it is there still: while weights are prepared a callback's own job may have taken it
 * away, or bound it, too. */
static struct tern_binding *bind(struct tern_pipeline *p, struct tern_plan *plan, struct tern_weights *weights, struct tern_binding *beside)
{
    struct tern_binding *binding = tern_plan_bind_beside(plan, weights, beside);
    p->making = 0; /* a job runs: what its check has made is there, also what was not taken */
    for (int i = 0; i < TERN_MAX_PLANNED; i++) {
        struct tern_planned *e = &p->planned[i];
        if (e->plan != plan)
            continue;
        unbind(e);
        e->binding = tern_binding_ref(binding);
        e->weights = binding ? tern_weights_ref(weights) : NULL;
    }
    return binding;
}

struct tern_binding *tern_pipeline_binding(struct tern_pipeline *p, const struct tern_stage *stage)
{
    const struct tern_stage other = keeping(*stage);
    struct tern_binding *beside = stage->part == TERN_UNET_SHALLOW ? tern_pipeline_binding(p, &other) : NULL, *binding = NULL;
    struct tern_weights *weights = tern_weights_ref(tern_pipeline_module_weights(p, stage->component));
    struct tern_planned *e = weights ? get(p, stage) : NULL;
    struct tern_plan *plan = e ? tern_plan_ref(e->plan) : NULL;
    if (e && e->binding && e->weights == weights)
        binding = tern_binding_ref(e->binding);
    else if (e) {
        unbind(e);
        p->used |= tern_module_of(stage->component);
        binding = bind(p, plan, weights, beside);
    }
    tern_weights_unref(&weights);
    tern_plan_unref(&plan);
    tern_binding_unref(&beside);
    tern_pages_trim(&p->ctx->pages, 0); /* what the stage before has left and this one does not need */
    if (tern_failed(p->ctx))
        tern_binding_unref(&binding);
    return binding;
}

size_t tern_pipeline_bind_bytes(struct tern_pipeline *p, const struct tern_stage *stage, const struct tern_stage *beside)
{
    const struct tern_plan *other = beside ? tern_pipeline_plan(p, beside) : NULL;
    struct tern_planned *e = tern_failed(p->ctx) ? NULL : get(p, stage);
    const struct tern_weights *weights = weights_of(p, stage->component);
    if (!e || (e->binding && e->weights == weights) || e->plan == other)
        return 0;
    return tern_plan_bind_bytes_beside(e->plan, other, weights, stage->part == TERN_UNET_SHALLOW);
}

void tern_pipeline_unbind(struct tern_pipeline *p, const struct tern_weights *weights)
{
    for (int i = 0; i < TERN_MAX_PLANNED; i++)
        if (p->planned[i].weights == weights)
            unbind(&p->planned[i]);
}

void tern_pipeline_rebind(struct tern_pipeline *p, const struct tern_weights *former, struct tern_weights *weights)
{
    for (int i = 0; i < TERN_MAX_PLANNED; i++) {
        struct tern_planned *e = &p->planned[i];
        if (e->weights != former)
            continue;
        const bool keeps = e->binding && !e->binding->beside && !e->plan->device->caps.host_memory && !tern_pipeline_budget(p);
        struct tern_binding *b = keeps && !tern_failed(p->ctx) ? tern_plan_bind_anew(e->plan, weights, e->binding) : NULL;
        unbind(e);
        e->binding = b;
        e->weights = b ? tern_weights_ref(weights) : NULL;
        if (keeps && !b) /* who binds it next will say why */
            tern_error_clear_own(p->ctx);
    }
}

void tern_pipeline_drop_plan(struct tern_pipeline *p, const struct tern_stage *stage)
{
    for (int i = 0; i < TERN_MAX_PLANNED; i++)
        if (is(&p->planned[i], stage))
            forget(&p->planned[i]);
}

void tern_pipeline_put_plan(struct tern_pipeline *p, const struct tern_stage *stage, struct tern_plan *plan)
{
    tern_pipeline_drop_plan(p, stage);
    *place(p) = (struct tern_planned){.stage = *stage, .plan = tern_plan_ref(plan), .used = ++p->planned_clock};
}

void tern_pipeline_drop_plans(struct tern_pipeline *p)
{
    for (int i = 0; i < TERN_MAX_PLANNED; i++)
        forget(&p->planned[i]);
    p->n_found = p->next_found = 0;
    p->making = 0;
}

/* What one run tells, with its component and its place in the job. */
struct told {
    const struct tern_job *job;
    const char *component;
    double before;
};

static void tell(void *user, const struct tern_step_profile *step)
{
    const struct told *t = user;
    struct tern_step_profile s = *step;
    s.start += t->before;
    struct tern_context *ctx = t->job->p->ctx;
    struct tern_device *former = tern_device_go(ctx, ctx->own); /* what the callback computes is none of the component */
    const struct tern_scope_stack scopes = tern_scopes_aside(ctx);
    t->job->params.on_kernel(t->component, &s, t->job->params.on_kernel_user);
    tern_device_go(ctx, former);
    tern_scopes_back(t->job->p->ctx, &scopes, "on_kernel");
}

enum tern_status tern_job_run_plan(const struct tern_job *j, const char *component, struct tern_binding *b, tern_tensor *const *in,
                                   tern_tensor **out)
{
    struct told t = {j, component, tern_now() - j->start};
    if (tern_failed(j->p->ctx))
        return tern_error_status(j->p->ctx);
    return j->params.on_kernel ? tern_plan_profile(b, in, out, tell, &t) : tern_plan_run(b, in, out);
}

void tern_job_end_runs(struct tern_binding **binding)
{
    struct tern_plan *plan = *binding ? tern_binding_plan(*binding) : NULL;
    if (plan) {
        tern_plan_trim(plan);
        tern_memory_trim_devices(plan->ctx); /* else the next stage takes what is a little too large, and more than was predicted */
    }
    tern_binding_unref(binding);
}

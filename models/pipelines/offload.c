/* What stays in memory between the stages of a job and what does not: as asked for, or as the budget asks. */
#include <stdio.h>
#include <string.h>

#include "graph/plan.h"
#include "models/pipelines/hoist.h"

const char *tern_offload_name(enum tern_offload offload)
{
    static const char *const names[] = {"auto", "none", "sequential", "stream"};
    return names[offload];
}

size_t tern_pipeline_budget(const struct tern_pipeline *p)
{
    const size_t all = p->ctx->params.budget, own = p->params.budget;
    if (p->supposed)
        return p->supposed;
    return own && (!all || own < all) ? own : all;
}

/* Whether it is the library that decides how all components live. */
static bool is_free(const struct tern_pipeline *p)
{
    const struct tern_offload_components *c = &p->params.offload_components;
    return !p->params.offload && !c->text_encoder && !c->text_encoder_2 && !c->unet && !c->vae;
}

enum tern_status tern_pipeline_over_budget(const struct tern_pipeline *p, size_t least, size_t budget)
{
    return tern_fail(p->ctx, TERN_E_BUDGET,
                     "memory budget: this picture needs at least %.1f MiB (%zu bytes), the budget is %.1f MiB; a smaller size or count%s "
                     "would help",
                     (double)least / (1 << 20), least, (double)budget / (1 << 20), is_free(p) ? "" : ", or offload as the budget asks,");
}

static enum tern_status refuse(struct tern_job *j, size_t least)
{
    struct tern_context *ctx = j->p->ctx;
    size_t budget = tern_pipeline_budget(j->p);
    const struct tern_device *d = ctx->own;
    if (j->budget != budget)
        return tern_fail(
            ctx, TERN_E_NO_MEMORY,
            "device %s: this picture needs at least %.2f GiB (%zu bytes), its share of the device's memory and of the host's is "
            "%zu and %zu bytes; a smaller size or count%s would help",
            d->name, (double)least / (1 << 30), least, d->caps.memory, d->caps.host_share,
            is_free(j->p) ? "" : ", or offload as the memory asks,");
    return tern_pipeline_over_budget(j->p, least, budget);
}

enum tern_offload tern_pipeline_offload(const struct tern_pipeline *p, const char *component)
{
    const struct tern_offload_components *c = &p->params.offload_components;
    switch (component[0]) {
    case 't':
        return strcmp(component, "text_encoder") ? c->text_encoder_2 : c->text_encoder;
    case 'u':
    case 'p': /* previews come and go with sampling */
        return c->unet;
    default:
        return c->vae;
    }
}

bool tern_job_leaves(const struct tern_job *j, const char *component)
{
    if (j->p->held & tern_module_of(component))
        return false;
    const enum tern_offload own = tern_pipeline_offload(j->p, component);
    if (own != TERN_OFFLOAD_AUTO)
        return own != TERN_OFFLOAD_NONE;
    return component[0] == 't' ? !j->p->params.keep_text_encoder : j->sequential;
}

/* Bytes that a device with memory of its own has for us, with what it may take of the host's; 0: no limit. */
static size_t room_of(const struct tern_device *d)
{
    size_t sum;
    return !d->caps.memory || __builtin_add_overflow(d->caps.memory, d->caps.host_share, &sum) ? 0 : sum;
}

/* Whether a device with so much room has less than the job takes there: components that compute elsewhere need none of it. (What earlier
 * calls have left in memory counts wherever it lies.) */
static enum tern_status is_over_room(struct tern_job *j, size_t room, const struct tern_job_peak *all, bool *over)
{
    struct tern_job_peak peak = *all;
    j->by_device = j->p->on_cpu != 0;
    enum tern_status st = j->by_device && all->most > room ? tern_job_predict_peak(j, &peak) : TERN_OK;
    j->by_device = false;
    *over = peak.most > room;
    return st;
}

/* Whether a device has less memory of its own than the UNet takes there. Its weights could lie in the host's memory, too, but kernels read
 * them over the bus once for each tile of rows, at every step: when they stream they are copied once. */
static bool is_crowded(const struct tern_job *j)
{
    const size_t memory = tern_pipeline_device(j->p, "unet")->caps.memory;
    bool crowded = false;
    for (const struct tern_job *pass = memory && !j->resident && is_free(j->p) ? j : NULL; pass; pass = pass->hires) {
        const struct tern_stage stage = tern_job_stage(pass, "unet");
        const struct tern_plan *plan = tern_pipeline_plan(j->p, &stage);
        crowded =
            crowded || (plan && tern_plan_bind_bytes(plan, NULL) + tern_plan_facts(plan).arena + tern_plan_facts(plan).outputs > memory);
    }
    return crowded;
}

/* Within the device's own memory, where that is possible; else all is as it was. */
static enum tern_status choose_uncrowded(struct tern_job *j, struct tern_job_peak *peak)
{
    const size_t budget = j->budget;
    j->budget = j->p->ctx->own->caps.memory;
    enum tern_status st = tern_job_choose_way(j, peak);
    if (st || peak->most <= j->budget)
        return st;
    j->budget = budget;
    return tern_job_choose_way(j, peak);
}

/* What goes in every way is not there any more while they are tried. */
static void put_out_first(struct tern_job *j)
{
    const struct tern_pipeline_params *q = &j->p->params;
    j->sequential = q->offload == TERN_OFFLOAD_AUTO ? q->single_use : q->offload != TERN_OFFLOAD_NONE;
    tern_job_put_out(j, j->left);
    j->left &= tern_pipeline_modules(j->p);
}

/* Plans of ways that are not taken lie in memory while they are tried, which may be more than the job itself takes. */
static void count_choice(struct tern_job *j, size_t peak, size_t reached)
{
    const size_t counts = !j->budget || reached <= j->budget ? reached : 0, all[] = {peak, counts, j->p->reached};
    for (int i = 0; i < 3; i++)
        j->predicted = all[i] > j->predicted ? all[i] : j->predicted;
}

/* The budget does not hold while plans are tried: what is too small for the plans of its refusal would not be told the least. */
enum tern_status tern_job_choose_offload(struct tern_job *j, size_t *bytes)
{
    struct tern_job_peak peak;
    struct tern_context *ctx = j->p->ctx;
    size_t budget = tern_pipeline_budget(j->p), room = room_of(ctx->own);
    bool over = false;
    j->budget = budget;
    j->least = SIZE_MAX;
    j->left = j->p->used & ~(unsigned)(TERN_MODULE_TEXT | TERN_MODULE_TEXT_2); /* their stage is the first anyway */
    put_out_first(j);
    const bool outer = tern_budget_lift(ctx, true);
    const size_t former = tern_memory_peak(ctx);
    j->p->half_made++;
    tern_memory_reset_peak(ctx);
    enum tern_status st = tern_job_choose_way(j, &peak);
    if (!st && room && (!budget || room < budget))
        st = is_over_room(j, room, &peak, &over);
    if (!st && over) {
        j->budget = room;
        st = tern_job_choose_way(j, &peak);
    }
    if (!st && is_crowded(j))
        st = choose_uncrowded(j, &peak);
    st = st ? st : tern_error_status(ctx);
    j->p->half_made--;
    tern_budget_lift(ctx, outer);
    const size_t reached = tern_memory_peak(ctx);
    tern_memory_raise_peak(ctx, former);
    if (st)
        return st;
    const bool fits = !j->budget || peak.most <= j->budget;
    count_choice(j, peak.most, reached);
    if (fits && j->budget)
        tern_job_remember(j);
    if (!fits) { /* the plans themselves may take more than the budget */
        tern_pipeline_drop_plans(j->p);
        tern_plan_cache_drop(ctx);
    }
    if (bytes)
        *bytes = fits ? j->predicted : j->least;
    return bytes || fits ? TERN_OK : refuse(j, j->least);
}

void tern_choice_tell(struct tern_context *ctx, tern_choice_callback *on_choice, void *user, const char *what, const char *value,
                      const char *why)
{
    const struct tern_choice choice = {what, value, why};
    if (!on_choice)
        return;
    const struct tern_scope_stack scopes = tern_scopes_aside(ctx);
    on_choice(&choice, user);
    tern_scopes_back(ctx, &scopes, "on_choice");
}

static void tell(const struct tern_job *j, const char *what, const char *value, const char *why)
{
    tern_choice_tell(j->p->ctx, j->params.on_choice, j->params.on_choice_user, what, value, why);
}

enum tern_offload tern_job_offload(const struct tern_job *j)
{
    return j->resident ? TERN_OFFLOAD_STREAM : j->sequential ? TERN_OFFLOAD_SEQUENTIAL : TERN_OFFLOAD_NONE;
}

void tern_job_tell_offload(const struct tern_job *j)
{
    char why[160];
    if (!tern_pipeline_budget(j->p))
        return;
    snprintf(why, sizeof(why), "at most %.1f MiB of %.1f; %s%s", (double)j->predicted / (1 << 20), (double)j->budget / (1 << 20),
             j->resident     ? "weights of the UNet come layer by layer"
             : j->sequential ? "each component leaves after its stage"
                             : "weights stay in memory",
             j->streams_text ? ", those of text encoders, too" : "");
    tell(j, "offload", tern_offload_name(tern_job_offload(j)), why);
    if (j->arena)
        tell(j, "tiling", "vae", "the VAE works in bands of rows, as the budget asks");
}

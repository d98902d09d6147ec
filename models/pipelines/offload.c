/* What stays in memory between the stages of a job and what does not: as asked for, or as the budget asks. */
#include "graph/plan.h"
#include "models/pipelines/pipeline.h"

/* Kept free when the budget decides how many weights stay: code and stacks of the process, and the pages of a mapped weight
 * while it is read. */
#define RESERVE ((size_t)112 << 20)

const char *tern_offload_name(enum tern_offload offload)
{
    static const char *const names[] = {"auto", "none", "sequential", "stream"};
    return names[offload];
}

size_t tern_pipeline_budget(const struct tern_pipeline *p)
{
    const size_t all = p->ctx->params.budget, own = p->params.budget;
    return own && (!all || own < all) ? own : all;
}

static enum tern_status refuse(struct tern_job *j, size_t least)
{
    struct tern_context *ctx = j->p->ctx;
    size_t budget = tern_pipeline_budget(j->p);
    const struct tern_device *d = ctx->device;
    if (j->budget != budget)
        return tern_fail(
            ctx, TERN_E_NO_MEMORY,
            "device %s: this picture needs at least %.2f GiB (%zu bytes), its share of the device's memory and of the host's is "
            "%zu and %zu bytes; a smaller size or count%s would help",
            d->name, (double)least / (1 << 30), least, d->caps.memory, d->caps.host_share,
            j->p->params.offload == TERN_OFFLOAD_AUTO ? "" : ", or offload as the memory asks,");
    return tern_fail(ctx, TERN_E_BUDGET,
                     "memory budget: this picture needs at least %.2f GiB (%zu bytes), the budget is %.2f GiB; a smaller size or count%s "
                     "would help",
                     (double)least / (1 << 30), least, (double)budget / (1 << 30),
                     j->p->params.offload == TERN_OFFLOAD_AUTO ? "" : ", or offload as the budget asks,");
}

/* A way to live with little memory; the limits are those of the job. */
struct way {
    bool sequential;
    size_t unet_algorithm, vae_algorithm, resident, arena;
};

/* The plans of the way that was tried before go: another limit is another plan. */
static void go(struct tern_job *j, const struct way *way)
{
    static const char *const components[] = {"unet", "vae_decoder", "vae_encoder"};
    const struct tern_stage shallow = tern_job_shallow_stage(j);
    for (int i = 0; i < 3; i++) {
        const struct tern_stage stage = tern_job_stage(j, components[i]);
        bool other = i ? j->arena != way->arena || j->vae_algorithm != way->vae_algorithm
                       : j->resident != way->resident || j->unet_algorithm != way->unet_algorithm;
        if (other)
            tern_pipeline_drop_plan(j->p, &stage);
        if (other && stage.part == TERN_UNET_KEEPS)
            tern_pipeline_drop_plan(j->p, &shallow);
    }
    j->sequential = way->sequential;
    j->unet_algorithm = way->unet_algorithm;
    j->vae_algorithm = way->vae_algorithm;
    j->resident = way->resident;
    j->arena = way->arena;
}

/* Predicts the peak of a way. */
static enum tern_status try_way(struct tern_job *j, const struct way *way, struct tern_job_peak *peak)
{
    for (struct tern_job *pass = j; pass; pass = pass->hires)
        go(pass, way);
    return tern_job_predict_peak(j, peak);
}

/* A way that keeps to the budget, with a limit of one stage (`limit` points into the way, `stage` into the peak) that may be larger.
 * `part` of the room that is left is added to `from`. Plans have arenas and tables of their own, so what a first guess leaves is tried
 * again; when that is too much, too, all stays as it was. */
static enum tern_status use_room(struct tern_job *j, struct way *way, size_t *limit, size_t from, double part, struct tern_job_peak *peak,
                                 const size_t *stage)
{
    size_t budget = j->budget, keep = budget > RESERVE ? budget - RESERVE : 0, old = *limit;
    size_t room = keep > *stage ? (size_t)((double)(keep - *stage) * part) : 0;
    for (int i = 0; i < 2 && room > 1; i++) {
        *limit = from + room;
        if (try_way(j, way, peak) || *stage <= keep)
            return tern_error_status(j->p->ctx);
        size_t over = *stage - keep;
        room = room > over ? room - over : 0;
    }
    if (*limit == old)
        return TERN_OK;
    *limit = old;
    return try_way(j, way, peak);
}

static enum tern_status stream(struct tern_job *j, struct way *way, struct tern_job_peak *peak)
{
    way->resident = 1;
    if (try_way(j, way, peak) || peak->sample > j->budget)
        return tern_error_status(j->p->ctx);
    return use_room(j, way, &way->resident, 0, 1, peak, &peak->sample);
}

/* Half of the room goes to faster kernels, the rest to larger bands. */
static enum tern_status tile(struct tern_job *j, struct way *way, struct tern_job_peak *peak)
{
    way->arena = 1;
    if (try_way(j, way, peak) || peak->vae > j->budget || use_room(j, way, &way->vae_algorithm, 0, 0.5, peak, &peak->vae))
        return tern_error_status(j->p->ctx);
    const struct tern_stage stage = tern_job_stage(tern_job_last(j), "vae_decoder");
    const struct tern_plan *plan = tern_pipeline_plan(j->p, &stage);
    return plan ? use_room(j, way, &way->arena, tern_plan_facts(plan).arena, 1, peak, &peak->vae) : tern_error_status(j->p->ctx);
}

/* The first way that keeps to the budget: fewer prepared copies, each component leaves after its stage, the UNet is streamed, the VAE
 * tiled. The two stages do not live at once: each takes what it needs. What room is left goes to faster kernels. */
static enum tern_status choose(struct tern_job *j, struct tern_job_peak *peak)
{
    static const struct way ways[] = {{false, 0, 0, 0, 0}, {false, 1, 1, 0, 0}, {true, 0, 0, 0, 0}, {true, 1, 1, 0, 0}, {true, 1, 1, 1, 0}};
    static const struct {
        int first, last;
    } of[] = {
        [TERN_OFFLOAD_AUTO] = {0, 3}, [TERN_OFFLOAD_NONE] = {0, 1}, [TERN_OFFLOAD_SEQUENTIAL] = {2, 3}, [TERN_OFFLOAD_STREAM] = {4, 4}};
    const struct tern_pipeline_params *q = &j->p->params;
    size_t budget = j->budget;
    int i = q->offload == TERN_OFFLOAD_AUTO && q->single_use ? of[TERN_OFFLOAD_SEQUENTIAL].first : of[q->offload].first;
    while (!try_way(j, &ways[i], peak) && budget && peak->most > budget && i < of[q->offload].last)
        i++;
    struct way way = ways[i];
    if (tern_failed(j->p->ctx) || !budget || !way.unet_algorithm)
        return tern_error_status(j->p->ctx);
    bool streams = way.resident || (q->offload == TERN_OFFLOAD_AUTO && peak->sample > budget);
    bool tiles = peak->vae > budget;
    enum tern_status st = streams ? stream(j, &way, peak) : TERN_OK;
    st = st || !tiles ? st : tile(j, &way, peak);
    if (st || !way.sequential)
        return st;
    st = streams ? TERN_OK : use_room(j, &way, &way.unet_algorithm, 0, 1, peak, &peak->sample);
    return st || tiles ? st : use_room(j, &way, &way.vae_algorithm, 0, 1, peak, &peak->vae);
}

/* Bytes that a device with memory of its own has for us, with what it may take of the host's; 0: no limit. */
static size_t room_of(const struct tern_device *d)
{
    size_t sum;
    return !d->caps.memory || __builtin_add_overflow(d->caps.memory, d->caps.host_share, &sum) ? 0 : sum;
}

/* The budget does not hold while plans are tried: what is too small for the plans of its refusal would not be told the least. */
enum tern_status tern_job_choose_offload(struct tern_job *j, size_t *bytes)
{
    struct tern_job_peak peak;
    struct tern_context *ctx = j->p->ctx;
    size_t given = ctx->params.budget, budget = tern_pipeline_budget(j->p), room = room_of(ctx->device);
    j->budget = budget;
    ctx->params.budget = 0;
    enum tern_status st = choose(j, &peak);
    if (!st && room && peak.most > room && (!budget || room < budget)) {
        j->budget = room;
        st = choose(j, &peak);
    }
    ctx->params.budget = given;
    if (st)
        return st;
    bool fits = !j->budget || peak.most <= j->budget;
    if (!fits) { /* the plans themselves may take more than the budget */
        tern_pipeline_drop_plans(j->p);
        tern_plan_cache_drop(ctx);
    }
    if (bytes)
        *bytes = peak.most;
    return bytes || fits ? TERN_OK : refuse(j, peak.most);
}

/* Ways to live with little memory, one after the other, until one keeps to the budget. */
#include <string.h>

#include "graph/plan.h"
#include "models/pipelines/hoist.h"

/* Kept free when the budget decides how many weights stay: code and stacks of the process, and the pages of a mapped weight
 * while it is read. */
#define RESERVE ((size_t)112 << 20)
/* Plans of all ways together would be a part of it that counts. */
#define SMALL_BUDGET ((size_t)64 << 20)

/* Whether the plan of a component would be another one. */
static bool differs(const struct tern_job *j, const struct tern_way *way, const char *component)
{
    switch (component[0]) {
    case 'u':
        return j->resident != way->resident || j->unet_algorithm != way->unet_algorithm;
    case 't':
        return j->streams_text != way->streams_text && tern_pipeline_offload(j->p, component) == TERN_OFFLOAD_AUTO;
    default:
        return j->arena != way->arena || j->vae_algorithm != way->vae_algorithm;
    }
}

/* The plans of the way that was tried before go: another limit is another plan. */
static void go(struct tern_job *j, const struct tern_way *way)
{
    static const char *const components[] = {"unet", "vae_decoder", "vae_encoder", "text_encoder", "text_encoder_2"};
    const struct tern_stage shallow = tern_job_shallow_stage(j);
    for (int i = 0; i < 5; i++) {
        const struct tern_stage stage = tern_job_stage(j, components[i]);
        bool other = differs(j, way, components[i]);
        if (other)
            tern_pipeline_drop_plan(j->p, &stage);
        if (other && stage.part == TERN_UNET_KEEPS)
            tern_pipeline_drop_plan(j->p, &shallow);
        if (other && components[i][0] == 'u')
            tern_job_drop_early(j, ~0u);
    }
    j->sequential = way->sequential;
    j->unet_algorithm = way->unet_algorithm;
    j->vae_algorithm = way->vae_algorithm;
    j->resident = way->resident;
    j->arena = way->arena;
    j->streams_text = way->streams_text;
}

/* Predicts the peak of a way, without what earlier calls have left in memory and this way has not. What should save memory may take more:
 * with small weights, plans that stream them are larger than they. */
static enum tern_status try_way(struct tern_job *j, const struct tern_way *way, struct tern_job_peak *peak)
{
    for (struct tern_job *pass = j; pass; pass = pass->hires)
        go(pass, way);
    if (j->forgets)
        tern_plan_cache_drop(j->p->ctx);
    tern_job_put_out(j, j->left);
    j->left &= tern_pipeline_modules(j->p);
    const enum tern_status st = tern_job_predict_peak(j, peak);
    if (!st && peak->most < j->least)
        j->least = peak->most;
    return st;
}

/* Room in whole steps: a job finds a little less of it than the one before left, and with the very same limits it finds that one's plans. */
static size_t in_steps(size_t room, size_t budget)
{
    const size_t step = budget / 64;
    return step && room > step ? room / step * step : room;
}

/* A way that keeps to the budget, with a limit of one stage (`limit` points into the way, `stage` into the peak) that may be larger.
 * `part` of the room that is left is added to `from`. Plans have arenas and tables of their own, so what a first guess leaves is tried
 * again; when that is too much, too, all stays as it was. */
static enum tern_status use_room(struct tern_job *j, struct tern_way *way, size_t *limit, size_t from, double part,
                                 struct tern_job_peak *peak, const size_t *stage)
{
    size_t budget = j->budget, keep = budget > RESERVE ? budget - RESERVE : 0, old = *limit;
    size_t room = keep > *stage ? (size_t)((double)(keep - *stage) * part) : 0;
    for (int i = 0; i < 2 && room > 1; i++) {
        room = in_steps(room, budget);
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

/* Prepared forms of weights that stream take memory one at a time: fast kernels cost their scratch alone, and gain more than weights that
 * are kept. frugal: without them. */
static enum tern_status stream(struct tern_job *j, struct tern_way *way, bool frugal, struct tern_job_peak *peak)
{
    way->resident = 1;
    way->unet_algorithm = frugal;
    if (!try_way(j, way, peak) && peak->sample > j->budget && !frugal) {
        way->unet_algorithm = 1;
        try_way(j, way, peak);
    }
    if (tern_failed(j->p->ctx) || peak->sample > j->budget)
        return tern_error_status(j->p->ctx);
    return use_room(j, way, &way->resident, 0, 1, peak, &peak->sample);
}

/* Half of the room goes to faster kernels, the rest to larger bands. */
static enum tern_status tile(struct tern_job *j, struct tern_way *way, struct tern_job_peak *peak)
{
    way->arena = 1;
    way->vae_algorithm = 1;
    if (try_way(j, way, peak) || peak->vae > j->budget || use_room(j, way, &way->vae_algorithm, 0, 0.5, peak, &peak->vae))
        return tern_error_status(j->p->ctx);
    const struct tern_stage stage = tern_job_stage(tern_job_last(j), "vae_decoder");
    const struct tern_plan *plan = tern_pipeline_plan(j->p, &stage);
    return plan ? use_room(j, way, &way->arena, tern_plan_facts(plan).arena, 1, peak, &peak->vae) : tern_error_status(j->p->ctx);
}

bool tern_job_streams_unet(const struct tern_job *j, const struct tern_job_peak *peak)
{
    const enum tern_offload own = j->p->params.offload_components.unet, all = j->p->params.offload, way = own ? own : all;
    return way == TERN_OFFLOAD_STREAM || (way == TERN_OFFLOAD_AUTO && j->budget && peak->sample > j->budget);
}

static struct tern_way with(const struct tern_way *way, bool streams, bool frugal)
{
    struct tern_way w = *way;
    w.resident = streams;
    w.unet_algorithm = streams && frugal ? 1 : w.unet_algorithm;
    return w;
}

/* Whether another way may help: where components leave it is none of the texts' stage, but theirs to be streamed. */
static bool is_over(const struct tern_way *way, bool frugal, const struct tern_job_peak *peak, size_t budget)
{
    return way->sequential && !frugal ? peak->sample > budget || peak->vae > budget : peak->most > budget;
}

/* The first way that keeps to the budget: fewer prepared copies, each component leaves after its stage; then text encoders and the UNet are
 * streamed, the VAE tiled. The stages do not live at once: each takes what it needs. What room is left goes to faster kernels.
 * frugal: what streams has none of them, and no way is passed by. */
static enum tern_status choose(struct tern_job *j, bool frugal, struct tern_job_peak *peak)
{
    static const struct tern_way ways[] = {
        {.unet_algorithm = 0}, {false, 1, 1, 0, 0, false}, {true, 0, 0, 0, 0, false}, {true, 1, 1, 0, 0, false}};
    static const struct {
        int first, last;
    } of[] = {
        [TERN_OFFLOAD_AUTO] = {0, 3}, [TERN_OFFLOAD_NONE] = {0, 1}, [TERN_OFFLOAD_SEQUENTIAL] = {2, 3}, [TERN_OFFLOAD_STREAM] = {2, 3}};
    const struct tern_pipeline_params *q = &j->p->params;
    size_t budget = j->budget;
    int i = q->offload == TERN_OFFLOAD_AUTO && q->single_use ? of[TERN_OFFLOAD_SEQUENTIAL].first : of[q->offload].first;
    const bool asked = tern_job_streams_unet(j, &(struct tern_job_peak){0});
    struct tern_way way = with(&ways[i], asked, frugal);
    while (!try_way(j, &way, peak) && budget && is_over(&way, frugal, peak, budget) && i < of[q->offload].last)
        way = with(&ways[++i], asked, frugal);
    if (!tern_failed(j->p->ctx) && budget && peak->encode > budget && q->offload != TERN_OFFLOAD_NONE) {
        way.streams_text = true;
        try_way(j, &way, peak);
    }
    if (tern_failed(j->p->ctx) || !budget || (!way.unet_algorithm && !asked && !is_over(&way, frugal, peak, budget)))
        return tern_error_status(j->p->ctx);
    bool streams = tern_job_streams_unet(j, peak);
    enum tern_status st = streams ? stream(j, &way, frugal, peak) : TERN_OK;
    const bool tiles = peak->vae > budget; /* beside the plans that streaming has made */
    st = st || !tiles ? st : tile(j, &way, peak);
    const bool may_stream = tern_pipeline_offload(j->p, "unet") == TERN_OFFLOAD_AUTO && j->p->params.offload == TERN_OFFLOAD_AUTO;
    /* beside those that bands have made; or bands beside the plans of the UNet, which may be smaller where it streams */
    if (!st && !streams && (tern_job_streams_unet(j, peak) || (may_stream && peak->vae > budget))) {
        streams = true;
        st = stream(j, &way, frugal, peak);
    }
    if (st || !way.sequential)
        return st;
    st = streams || !way.unet_algorithm ? TERN_OK : use_room(j, &way, &way.unet_algorithm, 0, 1, peak, &peak->sample);
    return st || tiles || !way.vae_algorithm ? st : use_room(j, &way, &way.vae_algorithm, 0, 1, peak, &peak->vae);
}

static enum tern_status choose_fast_or_frugal(struct tern_job *j, struct tern_job_peak *peak)
{
    enum tern_status st = choose(j, false, peak);
    return !st && j->budget && peak->most > j->budget ? choose(j, true, peak) : st;
}

/* A UNet that streams keeps no weights that could go. Under a small budget plans that compute what is not worth it go at once. */
static enum tern_status choose_known(struct tern_job *j)
{
    const bool streams = tern_job_streams_unet(j, &(struct tern_job_peak){0});
    for (struct tern_job *pass = j; pass && !streams; pass = pass->hires) {
        if (tern_job_choose_known(pass))
            return tern_error_status(j->p->ctx);
        if (j->forgets)
            tern_job_drop_early(pass, ~pass->known);
    }
    return TERN_OK;
}

/* What a check has found for such a job, while it keeps to the budget; else it is looked for. A copy: another job may take its place. */
static enum tern_status find(struct tern_job *j, struct tern_job_peak *peak)
{
    const struct tern_found *there = j->budget ? tern_job_found(j) : NULL;
    if (there) {
        const struct tern_found found = *there;
        j->known = found.known[0] & tern_job_may_know(j);
        if (j->hires)
            j->hires->known = found.known[1] & tern_job_may_know(j->hires);
        j->predicted = found.told;
        if (try_way(j, &found.way, peak) || peak->most <= j->budget)
            return tern_error_status(j->p->ctx);
    }
    for (struct tern_job *pass = there ? j : NULL; pass; pass = pass->hires)
        go(pass, &(struct tern_way){.sequential = false});
    j->predicted = 0;
    return choose_known(j) ? tern_error_status(j->p->ctx) : choose_fast_or_frugal(j, peak);
}

/* Plans of ways that were tried before wait in memory for the next job that lives so, and count. Under a small budget they go, and under
 * any where no way keeps to it beside them: all are tried once more without. What is then the least depends on the job alone, and with that
 * as its budget it does keep to it. */
enum tern_status tern_job_choose_way(struct tern_job *j, struct tern_job_peak *peak)
{
    j->forgets = j->budget && j->budget < SMALL_BUDGET;
    enum tern_status st = find(j, peak);
    if (!st && !j->forgets && j->budget && peak->most > j->budget) {
        tern_pipeline_drop_plans(j->p);
        j->least = SIZE_MAX;
        j->forgets = true;
        st = choose_fast_or_frugal(j, peak);
    }
    j->forgets = false;
    return st;
}

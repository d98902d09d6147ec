/* What stays in memory between the stages of a job and what does not: as asked for, or as the budget asks. */
#include "models/pipelines/pipeline.h"

/* Kept free when the budget decides how many weights stay: code and stacks of the process, and the pages of a mapped weight
 * while it is read. */
#define RESERVE ((size_t)112 << 20)

static enum tern_status refuse(struct tern_job *j, size_t least)
{
    struct tern_context *ctx = j->p->ctx;
    size_t budget = ctx->params.budget;
    return tern_fail(ctx, TERN_E_BUDGET,
                     "memory budget: this picture needs at least %.2f GiB (%zu bytes), the budget is %.2f GiB; a smaller size or count%s "
                     "would help",
                     (double)least / (1 << 30), least, (double)budget / (1 << 30),
                     j->p->params.offload == TERN_OFFLOAD_AUTO ? "" : ", or offload as the budget asks,");
}

/* Another plan of the UNet instead of the one that was tried. */
static enum tern_status try_resident(struct tern_job *j, size_t resident, struct tern_job_peak *peak)
{
    const struct tern_graph_size size = tern_job_size(j, j->params.count * (j->guided ? 2 : 1));
    if (resident != j->resident)
        tern_pipeline_drop_plan(j->p, "unet", &size, j->resident);
    j->resident = resident;
    return tern_job_predict_peak(j, peak);
}

/* As many of the UNet's prepared weights as fit beside the rest. Another limit is another plan with an arena of its own, so
 * what the first guess leaves is tried again. */
static enum tern_status fill_budget(struct tern_job *j, struct tern_job_peak *peak)
{
    size_t budget = j->p->ctx->params.budget, none = peak->sample;
    size_t room = budget > none + RESERVE ? budget - none - RESERVE : 0;
    if (room < 2)
        return TERN_OK;
    struct tern_job_peak with;
    if (try_resident(j, room, &with))
        return tern_error_status(j->p->ctx);
    if (with.sample > budget - RESERVE) {
        size_t over = with.sample - (budget - RESERVE);
        return try_resident(j, room > over + 1 ? room - over : 1, peak);
    }
    *peak = with;
    return TERN_OK;
}

/* The first of: everything stays, each component leaves after its stage, the UNet is streamed. */
static enum tern_status choose(struct tern_job *j, struct tern_job_peak *peak)
{
    enum tern_offload wanted = j->p->params.offload;
    size_t budget = j->p->ctx->params.budget;
    j->sequential = wanted == TERN_OFFLOAD_SEQUENTIAL || wanted == TERN_OFFLOAD_STREAM;
    j->resident = wanted == TERN_OFFLOAD_STREAM;
    if (tern_job_predict_peak(j, peak))
        return tern_error_status(j->p->ctx);
    if (!budget || peak->most <= budget || wanted != TERN_OFFLOAD_AUTO)
        return TERN_OK;
    j->sequential = true;
    if (tern_job_predict_peak(j, peak) || peak->most <= budget)
        return tern_error_status(j->p->ctx);
    if (try_resident(j, 1, peak) || peak->most > budget)
        return tern_error_status(j->p->ctx);
    return fill_budget(j, peak);
}

enum tern_status tern_job_choose_offload(struct tern_job *j, size_t *bytes)
{
    struct tern_job_peak peak;
    size_t budget = j->p->ctx->params.budget;
    if (choose(j, &peak))
        return tern_error_status(j->p->ctx);
    if (bytes)
        *bytes = peak.most;
    return bytes || !budget || peak.most <= budget ? TERN_OK : refuse(j, peak.most);
}

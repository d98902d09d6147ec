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

/* A way to live with little memory. */
struct way {
    bool sequential, plain;
    size_t resident;
};

/* Predicts the peak of a way. The plans of the one that was tried before go: another limit is another plan. */
static enum tern_status try_way(struct tern_job *j, struct way way, struct tern_job_peak *peak)
{
    static const char *const components[] = {"text_encoder", "unet", "vae_decoder", "vae_encoder"};
    for (int i = 0; i < 4; i++) {
        const struct tern_stage stage = tern_job_stage(j, components[i]);
        if (j->plain != way.plain || (stage.resident && j->resident != way.resident))
            tern_pipeline_drop_plan(j->p, &stage);
    }
    j->sequential = way.sequential;
    j->plain = way.plain;
    j->resident = way.resident;
    return tern_job_predict_peak(j, peak);
}

/* As many of the UNet's prepared weights as fit beside the rest. Their plan has an arena of its own, so what the first guess leaves
 * is tried again. */
static enum tern_status fill_budget(struct tern_job *j, struct tern_job_peak *peak)
{
    size_t budget = j->p->ctx->params.budget, none = peak->sample;
    size_t room = budget > none + RESERVE ? budget - none - RESERVE : 0;
    if (room < 2 || try_way(j, (struct way){true, true, room}, peak) || peak->sample <= budget - RESERVE)
        return tern_error_status(j->p->ctx);
    size_t over = peak->sample - (budget - RESERVE);
    return try_way(j, (struct way){true, true, room > over + 1 ? room - over : 1}, peak);
}

/* The first way that keeps to the budget: fewer prepared copies, each component leaves after its stage, the UNet is streamed. */
static enum tern_status choose(struct tern_job *j, struct tern_job_peak *peak)
{
    static const struct way ways[] = {{false, false, 0}, {false, true, 0}, {true, false, 0}, {true, true, 0}, {true, true, 1}};
    static const struct {
        int first, last;
    } of[] = {
        [TERN_OFFLOAD_AUTO] = {0, 4}, [TERN_OFFLOAD_NONE] = {0, 1}, [TERN_OFFLOAD_SEQUENTIAL] = {2, 3}, [TERN_OFFLOAD_STREAM] = {4, 4}};
    const struct tern_pipeline_params *q = &j->p->params;
    size_t budget = j->p->ctx->params.budget;
    int i = q->offload == TERN_OFFLOAD_AUTO && q->single_use ? of[TERN_OFFLOAD_SEQUENTIAL].first : of[q->offload].first;
    while (!try_way(j, ways[i], peak) && budget && peak->most > budget && i < of[q->offload].last)
        i++;
    if (tern_failed(j->p->ctx) || !budget || peak->most > budget || i < 4)
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

/* The jobs that a set of layers is tried with. */
#include <string.h>

#include "graph/plan.h"
#include "models/pipelines/cache_auto.h"
#include "models/quantize/analysis.h"

static struct tern_txt2img_params job_of(const struct tern_calibration *c, int i)
{
    struct tern_txt2img_params q = c->job;
    q.prompt = c->params->prompts[i];
    q.seed = c->params->seed + (uint64_t)i;
    return q;
}

/* Texts say the same at every size; what SDXL is told beside them does not. */
static void take_texts(struct tern_job *j, const struct tern_calibration *from, int i)
{
    j->context = tern_tensor_ref(from->texts[i].context);
    j->pooled = tern_tensor_ref(from->texts[i].pooled);
    j->time_ids = j->p->xl ? tern_job_time_ids(j) : NULL;
}

/* The states of its texts, and what all jobs have in common. */
static void encode(struct tern_calibration *c, const struct tern_calibration *from, int i)
{
    const struct tern_txt2img_params q = job_of(c, i);
    struct tern_job j;
    if (tern_job_prepare(&j, c->p, &q) == TERN_OK && j.conditions)
        tern_fail(c->p->ctx, TERN_E_UNSUPPORTED, "quantize: expected a pipeline without textual inversions");
    if (!tern_failed(c->p->ctx) && from)
        take_texts(&j, from, i);
    else if (!tern_failed(c->p->ctx))
        tern_job_encode_prompt(&j);
    if (!tern_failed(c->p->ctx)) {
        c->texts[i].context = tern_tensor_ref(j.context);
        c->texts[i].pooled = tern_tensor_ref(j.pooled);
        c->texts[i].time_ids = tern_tensor_ref(j.time_ids);
        c->values = j.picture;
        c->stage = tern_job_stage(&j, "unet");
    }
    tern_job_destroy(&j);
}

/* To a model for inpainting a picture that is hidden as a whole is what text alone is to others. */
static void paint_all_anew(struct tern_calibration *c)
{
    enum { SIDE = 8 };
    uint8_t white[SIDE * SIDE * 3];
    memset(white, 255, sizeof(white));
    c->job.init_image = c->hidden = tern_image_create(c->p->ctx, SIDE, SIDE, NULL);
    c->job.mask_image = c->mask = tern_image_create(c->p->ctx, SIDE, SIDE, white);
}

enum tern_status tern_calibration_open(struct tern_calibration *c, struct tern_pipeline *p, const struct tern_quantize_params *params,
                                       int width, int height, const struct tern_calibration *from)
{
    *c = (struct tern_calibration){.p = p, .params = params};
    c->job = tern_txt2img_params(.negative_prompt = params->negative_prompt, .width = width, .height = height, .steps = params->steps,
                                 .cfg = params->cfg, .sampler = params->sampler, .schedule = params->schedule, .count = 1,
                                 .init_image = params->init_image);
    if (tern_pipeline_inpaints(p))
        paint_all_anew(c);
    c->texts = tern_calloc(p->ctx, (size_t)params->n_prompts, sizeof(*c->texts));
    for (int i = 0; i < params->n_prompts && !tern_failed(p->ctx); i++)
        encode(c, from, i);
    if (!tern_failed(p->ctx))
        c->graph = tern_pipeline_stage_graph(p, &c->stage);
    return tern_error_status(p->ctx);
}

size_t tern_calibration_memory(struct tern_calibration *c)
{
    const struct tern_weights *weights = tern_pipeline_module_weights(c->p, "unet");
    struct tern_plan *plan = weights ? tern_plan_compile(c->graph, &(struct tern_plan_params){.quantize = "*"}) : NULL;
    const struct tern_txt2img_params q = job_of(c, 0);
    size_t floats = 0, bytes = plan ? tern_plan_bind_bytes(plan, weights) + tern_plan_facts(plan).arena : 0;
    tern_plan_unref(&plan);
    c->p->supposed = SIZE_MAX / 2; /* nothing is streamed or tiled */
    if (!tern_failed(c->p->ctx))
        tern_pipeline_check(c->p, &q, &floats);
    c->p->supposed = 0;
    return floats + bytes;
}

void tern_calibration_close(struct tern_calibration *c)
{
    if (!c->p)
        return;
    for (int i = 0; c->texts && i < c->params->n_prompts; i++) {
        tern_tensor_unref(&c->texts[i].context);
        tern_tensor_unref(&c->texts[i].pooled);
        tern_tensor_unref(&c->texts[i].time_ids);
    }
    tern_free(c->p->ctx, c->texts);
    tern_image_destroy(&c->hidden);
    tern_image_destroy(&c->mask);
    tern_graph_destroy(&c->graph);
    memset(c, 0, sizeof(*c));
}

enum tern_status tern_calibration_job(const struct tern_calibration *c, int i, struct tern_job *j)
{
    const struct tern_txt2img_params q = job_of(c, i);
    if (tern_job_prepare(j, c->p, &q))
        return tern_error_status(c->p->ctx);
    j->context = tern_tensor_ref(c->texts[i].context);
    j->pooled = tern_tensor_ref(c->texts[i].pooled);
    j->time_ids = tern_tensor_ref(c->texts[i].time_ids);
    return tern_job_start_latents(j);
}

static void sample(struct tern_calibration *c, int i, float *latents, struct tern_image **picture)
{
    struct tern_job j;
    if (tern_calibration_job(c, i, &j) == TERN_OK && tern_job_sample(&j) == TERN_OK) {
        memcpy(latents, j.latents, (size_t)c->values * sizeof(*latents));
        if (picture)
            tern_job_decode(&j, picture);
    }
    tern_job_destroy(&j);
}

enum tern_status tern_calibration_run(struct tern_calibration *c, const char *words, float *latents, struct tern_image **pictures)
{
    struct tern_context *ctx = c->p->ctx;
    struct tern_plan *plan = tern_plan_compile(c->graph, &(struct tern_plan_params){.quantize = words});
    if (plan)
        tern_pipeline_put_plan(c->p, &c->stage, plan);
    for (int i = 0; i < c->params->n_prompts && !tern_failed(ctx); i++)
        sample(c, i, latents + i * c->values, pictures ? &pictures[i] : NULL);
    tern_pipeline_drop_plan(c->p, &c->stage);
    tern_plan_unref(&plan);
    return tern_error_status(ctx);
}

/* How much memory a job will need, before it runs: the job is rehearsed on a shadow of the device, stage by stage, with
 * the same ops and arrays. Each function below counts what the stage of the same name takes. */
#include <tern/ops.h>

#include "models/pipelines/pipeline.h"
#include "models/pipelines/shadow.h"
#include "models/schedulers/scheduler.h"

static tern_tensor *empty(struct tern_context *ctx, int ndim, const int64_t *shape)
{
    struct tern_meta m = tern_meta_make(TERN_F32, ndim, shape);
    return tern_tensor_empty(ctx, &m);
}

static int64_t rows(const struct tern_job *j) { return j->params.count * (j->guided ? 2 : 1); }
static size_t pixels(const struct tern_job *j) { return (size_t)j->params.width * (size_t)j->params.height; }

/* One batch of all texts; its result stays. The encoder's packed weights go with it unless it is kept, and what LoRAs made
 * of its weights. */
static void encode_prompt(struct tern_job *j, struct tern_shadow *s)
{
    struct tern_context *ctx = j->p->ctx;
    struct tern_text_output out;
    int64_t length = tern_tokenizer_max_length(j->p->tokenizer);
    size_t packed = tern_shadow_packed(s);
    const struct tern_text_encoder *m = j->p->text;
    int64_t *ids = tern_calloc(ctx, (size_t)(2 * length), sizeof(*ids));
    if (!ids)
        return;
    tern_scope_begin(ctx);
    tern_text_encode(m, ids, NULL, j->guided ? 2 : 1, length, &out);
    tern_scope_end(ctx, NULL);
    tern_free(ctx, ids);
    if (!j->p->params.keep_text_encoder) {
        tern_shadow_forget(s, packed);
        tern_shadow_release(s, tern_part_derived_bytes(&j->p->text_part));
    }
    tern_shadow_hold(s, (size_t)(rows(j) * length * m->hidden) * sizeof(float));
}

static void encode_picture(struct tern_job *j, struct tern_shadow *s)
{
    struct tern_context *ctx = j->p->ctx;
    tern_tensor *mean, *logvar;
    const int64_t shape[] = {1, 3, j->params.height, j->params.width};
    /* the resized picture, and twice its values: as they are, and with the mask */
    size_t around = (j->params.mask_image ? 2 : 1) * (3 + 3 * sizeof(float)) * pixels(j) + 3 * (size_t)j->picture * sizeof(float);
    tern_shadow_hold(s, around);
    tern_scope_begin(ctx);
    tern_vae_encode(j->p->vae, empty(ctx, 4, shape), &mean, &logvar);
    tern_scope_end(ctx, NULL);
    tern_shadow_release(s, around);
}

static void start_latents(struct tern_job *j, struct tern_shadow *s)
{
    size_t latents = (size_t)(j->params.count * j->picture) * sizeof(float);
    tern_shadow_hold(s, 2 * latents + (size_t)j->params.count * sizeof(struct tern_generator)); /* latents, noise */
    if (!j->params.init_image)
        return;
    tern_shadow_hold(s, (j->params.mask_image ? 2 : 1) * latents + (size_t)(j->lh * j->lw) * sizeof(float));
    encode_picture(j, s);
}

/* All steps are alike. */
static void sample(struct tern_job *j, struct tern_shadow *s)
{
    struct tern_context *ctx = j->p->ctx;
    const struct tern_unet_config *u = &j->p->unet_config;
    enum tern_dtype dtype = j->p->params.dtype;
    const double t = 1;
    const int64_t n = rows(j), x_shape[] = {n, u->in_channels, j->lh, j->lw};
    const int64_t c_shape[] = {n, tern_tokenizer_max_length(j->p->tokenizer), u->context[0]};
    size_t values = (size_t)(n * u->in_channels * j->lh * j->lw + n * j->picture + j->params.count * j->picture);
    tern_shadow_hold(s, TERN_SCHEDULER_MAX_ROWS * (size_t)(j->params.count * j->picture) * sizeof(float));
    tern_shadow_hold(s, values * sizeof(float));
    tern_scope_begin(ctx);
    tern_tensor *c = empty(ctx, 3, c_shape);
    struct tern_unet_conditions time;
    tern_unet_conditions(j->p->unet, &t, 1, NULL, NULL, &time);
    tern_unet_forward(j->p->unet, tern_cast(empty(ctx, 4, x_shape), dtype), &time, tern_cast(c, dtype));
    tern_scope_end(ctx, NULL);
    tern_shadow_release(s, values * sizeof(float));
}

static void decode(struct tern_job *j, struct tern_shadow *s)
{
    struct tern_context *ctx = j->p->ctx;
    const int64_t shape[] = {1, j->channels, j->lh, j->lw};
    tern_shadow_hold(s, (size_t)j->params.count * (3 * pixels(j) + 4096)); /* the pictures and their texts */
    tern_shadow_hold(s, (3 * sizeof(float) + 3) * pixels(j));
    tern_scope_begin(ctx);
    tern_tensor *z = tern_div(empty(ctx, 4, shape), tern_tensor_scalar(ctx, TERN_F32, 1));
    tern_vae_decode(j->p->vae, tern_cast(z, j->p->params.dtype));
    tern_scope_end(ctx, NULL);
}

enum tern_status tern_job_predict_peak(struct tern_job *j, size_t *bytes)
{
    struct tern_context *ctx = j->p->ctx;
    /* the modules hold real tensors, so they are made before the shadow falls */
    bool there = tern_pipeline_text(j->p) && tern_pipeline_unet(j->p) && tern_pipeline_vae(j->p);
    struct tern_shadow *s = there ? tern_shadow_begin(ctx) : NULL;
    if (s) {
        encode_prompt(j, s);
        start_latents(j, s);
        sample(j, s);
        decode(j, s);
    }
    *bytes = tern_shadow_end(&s);
    return tern_error_status(ctx);
}

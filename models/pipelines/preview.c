/* Pictures while a job samples: what the model takes the latents to become, by a small decoder or a linear map. */
#include <math.h>
#include <string.h>

#include "models/pipelines/pipeline.h"
#include "models/schedulers/scheduler.h"

/* Red, green and blue of each of four latents, about -1..1: ComfyUI's latent_formats.py, found there by regression. */
static const float sd_factors[4][3] = {
    {0.3512f, 0.2297f, 0.3227f}, {0.3250f, 0.4974f, 0.2350f}, {-0.2829f, 0.1762f, 0.2721f}, {-0.2120f, -0.2616f, -0.7177f}};
static const float xl_factors[4][3] = {
    {0.3920f, 0.4054f, 0.4549f}, {-0.2634f, -0.0196f, 0.0653f}, {0.0568f, 0.1687f, -0.0755f}, {-0.3112f, -0.2359f, -0.2076f}};

/* A pixel for each of the latents. */
static struct tern_image *map(const struct tern_job *j, const float *latents)
{
    struct tern_context *ctx = j->p->ctx;
    const float(*factors)[3] = j->p->xl ? xl_factors : sd_factors;
    int64_t n = j->lh * j->lw;
    float *x = tern_calloc(ctx, (size_t)(3 * n), sizeof(*x));
    uint8_t *rgb = x ? tern_alloc(ctx, (size_t)(3 * n)) : NULL;
    for (int z = 0; x && z < 4; z++)
        for (int c = 0; c < 3; c++)
            for (int64_t k = 0; k < n; k++)
                x[c * n + k] += latents[z * n + k] * factors[z][c];
    if (rgb)
        tern_to_bytes(x, n, rgb);
    struct tern_image *image = rgb ? tern_image_create(ctx, (int)j->lw, (int)j->lh, rgb) : NULL;
    tern_free(ctx, x);
    tern_free(ctx, rgb);
    return image;
}

enum tern_status tern_job_check_preview(const struct tern_job *j)
{
    const struct tern_txt2img_params *q = &j->params;
    if (q->preview_every < 0)
        return tern_fail(j->p->ctx, TERN_E_INVALID, "preview_every: expected 1 or more steps, found %d", q->preview_every);
    if (q->on_preview && !j->p->preview_alone && j->channels != 4)
        return tern_fail(j->p->ctx, TERN_E_UNSUPPORTED,
                         "preview: %lld latent channels; colours are known of 4 only; a TAESD for previews would help",
                         (long long)j->channels);
    return TERN_OK;
}

static void show(const struct tern_job *j, int step, int steps, const float *latents)
{
    struct tern_decoder d = {0};
    if (j->p->preview_alone)
        d = tern_decoder_begin(j, "preview_decoder");
    for (int i = 0; i < j->params.count && !tern_failed(j->p->ctx); i++) {
        const float *z = latents + i * j->picture;
        struct tern_image *image = j->p->preview_alone ? tern_decoder_run(j, &d, z) : map(j, z);
        const struct tern_scope_stack scopes = tern_scopes_aside(j->p->ctx);
        if (image)
            j->params.on_preview(step, steps, i, image, j->params.on_preview_user);
        tern_scopes_back(j->p->ctx, &scopes, "on_preview");
        tern_image_destroy(&image);
    }
    if (j->p->preview_alone)
        tern_decoder_end(j, &d);
}

enum tern_status tern_job_preview(const struct tern_job *j, int call, const float *output)
{
    struct tern_context *ctx = j->p->ctx;
    int step = call + 1 - j->begin, steps = tern_job_expected_calls(j) - j->begin, every = j->params.preview_every;
    if (!j->params.on_preview || (every > 1 && step % every))
        return TERN_OK;
    int64_t n = j->params.count * j->picture;
    float *clean = tern_alloc(ctx, (size_t)n * sizeof(*clean));
    if (clean) {
        tern_scheduler_predict_clean(j->scheduler, call, output, j->latents, clean, n);
        show(j, step, steps, clean);
    }
    tern_free(ctx, clean);
    return tern_error_status(ctx);
}

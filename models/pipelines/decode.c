/* From latents to pictures: by a VAE, one picture at a time, so that memory does not grow with their count. */
#include <math.h>
#include <string.h>
#include <tern/ops.h>

#include "models/pipelines/pipeline.h"

/* (3, H, W) about -1..1 -> RGB bytes: round half even of 255 clamp(x / 2 + 1 / 2) */
void tern_to_bytes(const float *x, int64_t n, uint8_t *rgb)
{
    for (int64_t k = 0; k < n; k++)
        for (int c = 0; c < 3; c++) {
            float v = x[c * n + k] / 2 + 0.5f;
            v = v > 0 ? v < 1 ? v : 1 : 0; /* NaN becomes black */
            rgb[3 * k + c] = (uint8_t)rintf(v * 255);
        }
}

struct tern_decoder tern_decoder_begin(const struct tern_job *j, const char *component)
{
    struct tern_pipeline *p = j->p;
    const size_t n = 3 * (size_t)j->params.width * (size_t)j->params.height;
    const struct tern_stage stage = tern_job_stage(j, component);
    bool preview = component[0] == 'p';
    return (struct tern_decoder){.component = component,
                                 .config = preview ? &p->preview_config : &p->vae_config,
                                 .dtype = preview ? tern_pipeline_preview_dtype(p) : tern_pipeline_vae_dtype(p),
                                 .binding = tern_pipeline_binding(p, &stage),
                                 .pixels = tern_alloc(p->ctx, n * sizeof(float)),
                                 .rgb = tern_alloc(p->ctx, n)};
}

struct tern_image *tern_decoder_run(const struct tern_job *j, const struct tern_decoder *d, const float *latents)
{
    struct tern_context *ctx = j->p->ctx;
    int64_t n = (int64_t)j->params.width * j->params.height;
    if (tern_failed(ctx))
        return NULL;
    struct tern_device *former = tern_pipeline_go(j->p, d->component);
    tern_scope_begin(ctx);
    tern_tensor *z = tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){1, j->channels, j->lh, j->lw}, latents);
    z = tern_div(z, tern_tensor_scalar(ctx, TERN_F32, d->config->scaling_factor));
    tern_tensor *in[] = {tern_cast(z, d->dtype)}, *out[] = {NULL};
    if (tern_job_run_plan(j, d->component, d->binding, in, out) == TERN_OK &&
        tern_tensor_read(out[0], TERN_F32, d->pixels, (size_t)(3 * n) * sizeof(float)) == TERN_OK)
        tern_to_bytes(d->pixels, n, d->rgb);
    tern_scope_end(ctx, NULL);
    tern_device_go(ctx, former);
    return tern_failed(ctx) ? NULL : tern_image_create(ctx, j->params.width, j->params.height, d->rgb);
}

void tern_decoder_end(const struct tern_job *j, struct tern_decoder *d)
{
    tern_job_end_runs(&d->binding);
    tern_free(j->p->ctx, d->pixels);
    tern_free(j->p->ctx, d->rgb);
}

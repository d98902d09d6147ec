/* The latents that sampling starts from: noise, or a picture with noise on it. The order of the random draws is that of
 * diffusers' pipelines: encoding of the picture, noise, encoding of the masked picture. Each picture of a batch has a
 * generator of its own, so that it is the picture that its seed gives alone. */
#include <math.h>
#include <string.h>

#include "models/images/image.h"
#include "models/pipelines/pipeline.h"
#include "models/schedulers/scheduler.h"

enum tern_status tern_job_encode_picture(const struct tern_job *j, const float *pixels, float *mean, float *logvar)
{
    struct tern_pipeline *p = j->p;
    struct tern_context *ctx = p->ctx;
    const struct tern_stage stage = tern_job_stage(j, "vae_encoder");
    struct tern_binding *vae = tern_pipeline_binding(p, &stage);
    const size_t bytes = (size_t)j->picture * sizeof(float);
    struct tern_device *former = tern_pipeline_go(p, "vae");
    tern_scope_begin(ctx);
    if (vae) {
        tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){1, 3, j->params.height, j->params.width}, pixels);
        tern_tensor *in[] = {tern_cast(x, tern_pipeline_vae_dtype(p))}, *result[] = {NULL, NULL};
        if (tern_job_run_plan(j, "vae_encoder", vae, in, result) == TERN_OK &&
            tern_tensor_read(result[0], TERN_F32, mean, bytes) == TERN_OK && result[1])
            tern_tensor_read(result[1], TERN_F32, logvar, bytes);
    }
    tern_scope_end(ctx, NULL);
    tern_device_go(ctx, former);
    tern_job_end_runs(&vae);
    return tern_error_status(ctx);
}

/* Pixels -> mean and logvar of their encoding, which is the same for all pictures of a batch. NULL with the error recorded; without pixels
 * with that of who made none. Free with tern_free. */
static float *encoding(const struct tern_job *j, const float *pixels)
{
    float *m = pixels && !tern_failed(j->p->ctx) ? tern_alloc(j->p->ctx, 2 * (size_t)j->picture * sizeof(float)) : NULL;
    if (m && tern_job_encode_picture(j, pixels, m, m + j->picture) != TERN_OK) {
        tern_free(j->p->ctx, m);
        return NULL;
    }
    return m;
}

/* mean + exp(logvar / 2) * noise, scaled (TAESD: the encoding, no noise). `out` holds one picture's latents. */
static void draw_encoding(struct tern_job *j, int i, const float *encoding, float *out)
{
    const struct tern_vae_config *c = &j->p->vae_config;
    const float *m = encoding, *v = encoding + j->picture;
    if (!c->tiny)
        tern_generator_randn(&j->generator[i], out, j->picture);
    for (int64_t k = 0; k < j->picture; k++)
        out[k] = (float)c->scaling_factor * (m[k] + (c->tiny ? 0 : expf(0.5f * v[k]) * out[k]));
}

/* The picture at the job's size, a new one. It may be of another context, whose memory and error are none of the job's. */
static struct tern_image *resized(const struct tern_job *j, const struct tern_image *image)
{
    const struct tern_image here = {.ctx = j->p->ctx, .width = image->width, .height = image->height, .rgb = image->rgb};
    return tern_image_resize(&here, j->params.width, j->params.height);
}

float *tern_job_pixels(const struct tern_job *j, const struct tern_image *image)
{
    int64_t n = (int64_t)j->params.width * j->params.height;
    struct tern_image *own = resized(j, image);
    float *out = own ? tern_alloc(j->p->ctx, (size_t)(3 * n) * sizeof(float)) : NULL;
    const uint8_t *rgb = own ? tern_image_data(own) : NULL;
    for (int64_t k = 0; out && k < n; k++)
        for (int c = 0; c < 3; c++)
            out[c * n + k] = 2 * ((float)rgb[3 * k + c] / 255.0f) - 1;
    tern_image_destroy(&own);
    return out;
}

/* Grey value as Pillow's convert("L"), then 0 or 1. */
static bool is_masked(const uint8_t *rgb) { return (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16 >= 128; }

/* Nearest pixel of the full-size mask for each latent pixel; blanks the masked pixels of the picture (NULL: there is none). */
static enum tern_status read_mask(struct tern_job *j, float *pixels)
{
    struct tern_context *ctx = j->p->ctx;
    struct tern_image *image = resized(j, j->params.mask_image);
    int64_t w = j->params.width, n = w * j->params.height;
    int scale = tern_pipeline_scale(j->p);
    j->mask = tern_calloc(ctx, (size_t)(j->lh * j->lw), sizeof(*j->mask));
    if (image && j->mask) {
        const uint8_t *rgb = tern_image_data(image);
        for (int64_t k = 0; k < j->lh * j->lw; k++)
            j->mask[k] = is_masked(rgb + 3 * (k / j->lw * scale * w + k % j->lw * scale));
        for (int64_t k = 0; pixels && k < n; k++)
            if (is_masked(rgb + 3 * k))
                pixels[k] = pixels[n + k] = pixels[2 * n + k] = 0;
    }
    tern_image_destroy(&image);
    return tern_error_status(ctx);
}

/* Whether the job goes on with a picture that another model has begun: then init_latents are its latents and no noise. */
static bool goes_on(const struct tern_job *j) { return j->params.denoising_start > 0; }

enum tern_status tern_job_read_latents(const struct tern_job *j, float *to)
{
    struct tern_context *ctx = j->p->ctx;
    const tern_tensor *t = j->params.init_latents;
    const enum tern_status st = tern_tensor_read(t, TERN_F32, to, (size_t)(j->params.count * j->picture) * sizeof(float));
    if (st && !tern_failed(ctx)) /* they are of another context, which has the error */
        return tern_fail(ctx, st, "latents: %s", tern_error(t->ctx));
    return tern_error_status(ctx);
}

/* Unit noise of every picture, drawn or given. */
static enum tern_status draw_noise(struct tern_job *j, int i)
{
    if (!j->params.init_latents || goes_on(j))
        tern_generator_randn(&j->generator[i], j->noise + i * j->picture, j->picture);
    return tern_error_status(j->p->ctx);
}

/* Generators of the pictures' seeds, or of those plus a number. */
static void seed_generators(struct tern_job *j, int64_t delta)
{
    for (int i = 0; i < j->params.count; i++)
        tern_generator_seed(&j->generator[i], j->params.generator, j->params.seed + (uint64_t)i + (uint64_t)delta);
}

static enum tern_status start_from_picture(struct tern_job *j)
{
    struct tern_context *ctx = j->p->ctx;
    bool inpaint = j->params.mask_image != NULL, nine = tern_pipeline_inpaints(j->p);
    bool pure = inpaint && j->params.strength == 1 && !goes_on(j); /* diffusers: inpainting at full strength starts from noise alone */
    size_t bytes = (size_t)(j->params.count * j->picture) * sizeof(float);
    float *pixels = tern_job_pixels(j, j->params.init_image);
    float *masked = pixels && nine ? tern_alloc(ctx, (size_t)(3 * j->params.width) * (size_t)j->params.height * sizeof(float)) : NULL;
    j->image_latents = tern_alloc(ctx, bytes);
    j->masked_latents = nine ? tern_alloc(ctx, bytes) : NULL;
    if (masked)
        memcpy(masked, pixels, (size_t)(3 * j->params.width) * (size_t)j->params.height * sizeof(float));
    if (inpaint && pixels && !tern_failed(ctx))
        read_mask(j, masked);
    const bool draws = !nine || !(pure || goes_on(j));
    const bool passes = inpaint && !nine && !goes_on(j); /* diffusers encodes the masked picture for every UNet, but not beside latents */
    float *plain = draws ? encoding(j, pixels) : NULL, *blank = nine ? encoding(j, masked) : NULL;
    for (int i = 0; i < j->params.count && !tern_failed(ctx); i++) {
        int64_t at = i * j->picture;
        if (draws)
            draw_encoding(j, i, plain, j->image_latents + at);
        draw_noise(j, i);
        if (nine)
            draw_encoding(j, i, blank, j->masked_latents + at);
        else if (passes && !j->p->vae_config.tiny)
            tern_generator_randn(&j->generator[i], j->latents + at, j->picture); /* what that draws, for nobody */
    }
    tern_free(ctx, blank);
    tern_free(ctx, plain);
    int64_t n = j->params.count * j->picture;
    float sigma = (float)tern_scheduler_init_noise_sigma(j->scheduler);
    if (!tern_failed(ctx) && goes_on(j))
        tern_job_read_latents(j, j->latents);
    else if (!tern_failed(ctx) && pure)
        for (int64_t k = 0; k < n; k++)
            j->latents[k] = j->noise[k] * sigma;
    else if (!tern_failed(ctx))
        tern_scheduler_add_noise(j->scheduler, j->begin, j->image_latents, j->noise, j->latents, n);
    tern_free(ctx, masked);
    tern_free(ctx, pixels);
    return tern_error_status(ctx);
}

enum tern_status tern_job_start_from_noise(struct tern_job *j)
{
    /* what another model has begun has its noise already */
    float sigma = goes_on(j) ? 1 : (float)tern_scheduler_init_noise_sigma(j->scheduler);
    for (int i = 0; i < j->params.count && !goes_on(j); i++)
        draw_noise(j, i);
    for (int64_t k = 0; k < j->params.count * j->picture; k++)
        j->latents[k] = j->noise[k] * sigma;
    return tern_error_status(j->p->ctx);
}

/* The latents of the first pass in another size, with noise on them. */
static enum tern_status start_from_first(struct tern_job *j)
{
    const int64_t n = j->params.count * j->picture;
    for (int i = 0; i < j->params.count; i++)
        draw_noise(j, i);
    if (tern_job_upscale(j) == TERN_OK)
        tern_scheduler_add_noise(j->scheduler, j->begin, j->latents, j->noise, j->latents, n);
    return tern_error_status(j->p->ctx);
}

/* Noise that the first of two models has drawn: to start from, of a picture that it has encoded, and in its steps. */
static void pass_over(struct tern_job *j, int draws)
{
    for (int k = 0; k < draws; k++)
        for (int i = 0; i < j->params.count; i++)
            tern_generator_randn(&j->generator[i], j->noise + i * j->picture, j->picture);
}

enum tern_status tern_job_start_latents(struct tern_job *j)
{
    struct tern_context *ctx = j->p->ctx;
    int64_t n = j->params.count * j->picture;
    const bool on = goes_on(j) && !j->params.init_image; /* with a picture diffusers' pipelines draw anew what they keep */
    j->generator = tern_calloc(ctx, (size_t)j->params.count, sizeof(*j->generator));
    j->latents = tern_alloc(ctx, (size_t)n * sizeof(float));
    j->noise = tern_alloc(ctx, (size_t)n * sizeof(float));
    if (tern_failed(ctx))
        return tern_error_status(ctx);
    seed_generators(j, 0);
    if (j->params.init_latents && tern_job_read_latents(j, j->noise))
        return tern_error_status(ctx);
    enum tern_status status = tern_pipeline_edits(j->p) ? tern_job_start_edit(j)
                              : j->params.init_image    ? start_from_picture(j)
                              : j->first                ? start_from_first(j)
                                                        : tern_job_start_from_noise(j);
    if (on) /* a strength of 1 is of a picture, since without one it is 0.8; below 1 the steps that were left out are more than enough */
        pass_over(j, 1 + (j->params.strength == 1));
    if (j->params.ensd)
        seed_generators(j, j->params.ensd);
    if (on)
        pass_over(j, tern_scheduler_draws_before(j->scheduler));
    return status;
}

/* The whole job: check, encode, sample, decode. */
#include "models/pipelines/cache_auto.h"

struct tern_images {
    struct tern_context *ctx;
    int count;
    struct tern_image **image;
    tern_tensor *latents;
};

int tern_images_count(const struct tern_images *images) { return images ? images->count : 0; }
struct tern_image *tern_images_at(const struct tern_images *images, int i)
{
    return images && i >= 0 && i < images->count ? images->image[i] : NULL;
}
tern_tensor *tern_images_latents(const struct tern_images *images) { return images ? images->latents : NULL; }

void tern_images_destroy(struct tern_images **images)
{
    struct tern_images *x = images ? *images : NULL;
    if (!x)
        return;
    *images = NULL;
    struct tern_context *ctx = x->ctx;
    for (int i = 0; x->image && i < x->count; i++)
        tern_image_destroy(&x->image[i]);
    tern_tensor_unref(&x->latents);
    tern_free(ctx, x->image);
    tern_free(ctx, x);
    tern_context_unref(ctx);
}

/* Moves the pictures behind those that are there. */
static void take_images(struct tern_images *to, struct tern_images *from)
{
    for (int i = 0; i < from->count; i++) {
        to->image[to->count++] = from->image[i];
        from->image[i] = NULL;
    }
}

/* Latents of the one behind those of the other. */
static tern_tensor *join_latents(const tern_tensor *a, const tern_tensor *b)
{
    struct tern_context *ctx = a->ctx;
    const int64_t n = tern_tensor_numel(a), m = tern_tensor_numel(b), *s = tern_tensor_shape(a);
    float *values = tern_alloc(ctx, (size_t)(n + m) * sizeof(*values));
    tern_tensor *out = NULL;
    if (values && tern_tensor_read(a, TERN_F32, values, (size_t)n * sizeof(*values)) == TERN_OK &&
        tern_tensor_read(b, TERN_F32, values + n, (size_t)m * sizeof(*values)) == TERN_OK)
        out = tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){s[0] + tern_tensor_shape(b)[0], s[1], s[2], s[3]}, values);
    tern_free(ctx, values);
    return out;
}

struct tern_images *tern_images_join(struct tern_images **first, struct tern_images **rest)
{
    struct tern_images *out = NULL;
    if (*first && *rest && (out = tern_calloc((*first)->ctx, 1, sizeof(*out)))) {
        struct tern_context *ctx = out->ctx = (*first)->ctx;
        tern_context_ref(ctx);
        out->image = tern_calloc(ctx, (size_t)((*first)->count + (*rest)->count), sizeof(*out->image));
        out->latents = out->image ? join_latents((*first)->latents, (*rest)->latents) : NULL;
        if (out->latents) {
            take_images(out, *first);
            take_images(out, *rest);
        } else
            tern_images_destroy(&out);
    }
    tern_images_destroy(first);
    tern_images_destroy(rest);
    return out;
}

enum tern_status tern_job_decode(struct tern_job *j, struct tern_image **images)
{
    struct tern_context *ctx = j->p->ctx;
    const struct tern_job *last = tern_job_last(j);
    double start = tern_now();
    struct tern_decoder d = tern_decoder_begin(last, "vae_decoder");
    tern_report(ctx, "decode", 0, j->params.count, 0);
    for (int i = 0; i < j->params.count && !tern_failed(ctx); i++) {
        images[i] = tern_decoder_run(last, &d, last->latents + i * last->picture);
        char *text = images[i] ? tern_job_infotext(j, i) : NULL;
        if (text)
            tern_image_set_text(images[i], "parameters", text);
        tern_free(ctx, text);
        if (!tern_failed(ctx))
            tern_report(ctx, "decode", i + 1, j->params.count, tern_now() - start);
    }
    tern_decoder_end(last, &d);
    return tern_error_status(ctx);
}

/* From the latents that it starts from to those that it ends with. */
static enum tern_status run_pass(struct tern_job *j)
{
    if (tern_job_start_latents(j))
        return tern_error_status(j->p->ctx);
    tern_job_put_out(j, TERN_MODULE_VAE);
    if (tern_job_sample(j) == TERN_OK)
        tern_job_put_out(j, TERN_MODULE_UNET | TERN_MODULE_PREVIEW);
    return tern_error_status(j->p->ctx);
}

/* The text encoder leaves with its stage unless it is to be kept; the others when memory is short. */
static enum tern_status run_stages(struct tern_job *j, struct tern_image **images)
{
    struct tern_pipeline *p = j->p;
    for (struct tern_job *pass = j; pass; pass = pass->hires)
        if (tern_job_encode_prompt(pass) || tern_job_tell_cut_texts(pass))
            return tern_error_status(p->ctx);
    if (run_pass(j) || (j->hires && run_pass(j->hires)))
        return tern_error_status(p->ctx);
    return tern_job_decode(j, images);
}

static struct tern_images *run(struct tern_job *j)
{
    struct tern_context *ctx = j->p->ctx;
    const struct tern_job *last = tern_job_last(j);
    struct tern_images *out = tern_calloc(ctx, 1, sizeof(*out));
    if (!out)
        return NULL;
    tern_context_ref(ctx);
    out->ctx = ctx;
    out->count = j->params.count;
    out->image = tern_calloc(ctx, (size_t)out->count, sizeof(*out->image));
    if (out->image && run_stages(j, out->image) == TERN_OK)
        out->latents = tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){out->count, j->channels, last->lh, last->lw}, last->latents);
    tern_job_put_out(j, TERN_MODULES); /* the last stage's, and those of a stage that failed or was cancelled */
    if (tern_failed(ctx))
        tern_images_destroy(&out);
    return out;
}

static enum tern_status at_work(const struct tern_pipeline *p, const char *from)
{
    return tern_fail(p->ctx, TERN_E_INVALID,
                     "the pipeline is at work: expected another call of it from a callback of a job's parameters, found one from %s", from);
}

enum tern_status tern_pipeline_may_load(const struct tern_pipeline *p)
{
    if (p->calls && tern_is_asked(p->ctx))
        return at_work(p, "the callback that is asked whether to cancel");
    return p->half_made ? at_work(p, "a callback while a module or a plan is made") : TERN_OK;
}

enum tern_status tern_pipeline_may_begin(const struct tern_pipeline *p)
{
    return p->trying ? at_work(p, "one of tern_pipeline_quantize") : tern_pipeline_may_load(p);
}

/* What a call found, for its end. */
struct call {
    unsigned held;
    struct tern_device *device;
    struct tern_scope_stack scopes;
};

/* A callback of another call may come here: what modules that one has found stay, since it uses them. */
static struct call begin(struct tern_pipeline *p)
{
    const struct call outer = {p->held, tern_device_go(p->ctx, p->ctx->own), tern_scopes_leave(p->ctx)};
    p->held = p->calls++ ? tern_pipeline_modules(p) : 0;
    return outer;
}

static void end(struct tern_pipeline *p, const struct call *outer)
{
    if (--p->calls) /* the other call's memory was predicted without what came for this one */
        tern_pipeline_put_out(p, ~p->held);
    p->held = outer->held;
    tern_device_go(p->ctx, outer->device);
    tern_scopes_return(p->ctx, &outer->scopes);
    tern_pages_trim(&p->ctx->pages, 0); /* an application that waits for its next job holds no more than it has to */
}

struct tern_images *tern_pipeline_paint(struct tern_pipeline *p, const struct tern_txt2img_params *params)
{
    struct tern_job j;
    struct tern_images *out = NULL;
    struct tern_device_peak peak;
    if (params && params->cache_quality != 0)
        return tern_cache_generate(p, params);
    if (params && params->on_kernel) /* before the job's time begins; prepare finds its error */
        tern_device_peak(p->ctx, &peak);
    if (params && params->on_kernel && p->on_cpu)
        tern_device_measure(p->ctx->host, &peak);
    if (tern_job_prepare(&j, p, params) == TERN_OK && tern_job_check_begun(&j) == TERN_OK && tern_job_choose_offload(&j, NULL) == TERN_OK) {
        tern_job_tell_offload(&j);
        out = tern_failed(p->ctx) ? NULL : run(&j);
    }
    tern_job_destroy(&j);
    return out;
}

struct tern_images *tern_generate(struct tern_pipeline *p, const struct tern_txt2img_params *params)
{
    if (!p || tern_pipeline_may_begin(p))
        return NULL;
    const struct call outer = begin(p);
    struct tern_images *out = tern_pipeline_paint(p, params);
    end(p, &outer);
    if (!p->calls) /* the next job may find other memory */
        tern_pipeline_forget_found(p);
    return out;
}

struct tern_image *tern_txt2img(struct tern_pipeline *p, const struct tern_txt2img_params *params)
{
    struct tern_txt2img_params one = params ? *params : (struct tern_txt2img_params){0};
    one.count = 1;
    struct tern_images *images = tern_generate(p, &one);
    if (!images)
        return NULL;
    struct tern_image *image = images->image[0];
    images->image[0] = NULL;
    tern_images_destroy(&images);
    return image;
}

enum tern_status tern_pipeline_check(struct tern_pipeline *p, const struct tern_txt2img_params *params, size_t *peak_bytes)
{
    struct tern_job j;
    if (params && params->cache_quality != 0)
        return tern_cache_check(p, params, peak_bytes);
    enum tern_status st = tern_job_prepare(&j, p, params);
    if (!st)
        st = tern_job_choose_offload(&j, peak_bytes);
    tern_job_destroy(&j);
    return st;
}

enum tern_status tern_generate_check(struct tern_pipeline *p, const struct tern_txt2img_params *params, size_t *peak_bytes)
{
    if (peak_bytes)
        *peak_bytes = 0;
    if (!p)
        return TERN_E_INVALID;
    if (tern_pipeline_may_begin(p))
        return tern_error_status(p->ctx);
    const struct call outer = begin(p);
    const enum tern_status st = tern_pipeline_check(p, params, peak_bytes);
    end(p, &outer);
    return st;
}

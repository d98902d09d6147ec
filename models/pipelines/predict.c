/* The UNet's part of a step. Pictures that are made together go through it in groups: on a processor a large batch saves nothing, but its
 * tensors leave the cache that those of a small one stay in (docs/kernels/where-time-goes.md). */
#include <string.h>
#include <tern/ops.h>

#include "models/pipelines/hoist.h"

/* Tensors of the UNet's first level that are used at about the same time: operand, result, skip and scratch. */
#define LIVE 4

int tern_job_group(const struct tern_job *j)
{
    const size_t cache = tern_pipeline_device(j->p, "unet")->caps.cache, value = tern_dtype_size(tern_pipeline_dtype(j->p, "unet")),
                 one = LIVE * (size_t)(j->branches * j->p->unet_config.channels[0] * j->lh * j->lw) * value;
    int group = j->params.count;
    if (j->resident) /* weights are prepared anew for every run */
        return group;
    while (cache && group > 1 && (j->params.count % group || (size_t)group * one > cache))
        group--;
    return group;
}

static int64_t input_channels(const struct tern_job *j) { return j->p->unet_config.in_channels; }

void tern_predictor_close(const struct tern_job *j, struct tern_predictor *s)
{
    tern_known_close(j, s);
    for (int g = 0; s->in && g < s->groups; g++)
        for (int i = 0; i < TERN_UNET_INPUTS; i++)
            tern_tensor_unref(&s->in[g][i]);
    for (int g = 0; s->deep && g < s->groups; g++)
        tern_tensor_unref(&s->deep[g]);
    tern_tensor_unref(&s->out);
    tern_tensor_unref(&s->shallow_out);
    tern_job_end_runs(&s->shallow);
    tern_job_end_runs(&s->binding);
    tern_free(j->p->ctx, s->deep);
    tern_free(j->p->ctx, s->in);
    tern_free(j->p->ctx, s->input);
    tern_free(j->p->ctx, s->output);
}

/* Rows of the sample that a group's plan is given. */
static int samples_of(const struct tern_job *j, const struct tern_predictor *s) { return s->pictures * (j->branches / j->share); }

/* Row r of a group among those of all: branch by branch, the pictures of the group in each. */
static int64_t row_of(const struct tern_job *j, const struct tern_predictor *s, int group, int r)
{
    return r / s->pictures * j->params.count + group * s->pictures + r % s->pictures;
}

void tern_job_fill_told(const struct tern_job *j, int branch, int64_t picture, float *to)
{
    const int64_t hw = j->lh * j->lw;
    const size_t bytes = (size_t)j->picture * sizeof(float);
    if (tern_pipeline_inpaints(j->p)) {
        memcpy(to, j->mask, (size_t)hw * sizeof(float));
        memcpy(to + hw, j->masked_latents + picture, bytes);
    } else if (tern_pipeline_edits(j->p) && j->image_guided && !branch)
        memset(to, 0, bytes);
    else if (tern_pipeline_edits(j->p))
        memcpy(to, j->image_latents, bytes);
}

/* Scaled latents, again for each branch that is not shared, and what the UNet is told behind them. Group by group. */
static void fill_input(const struct tern_job *j, int call, struct tern_predictor *s)
{
    const int64_t row = input_channels(j) * j->lh * j->lw;
    const int rows = samples_of(j, s);
    float *to = s->input;
    tern_scheduler_scale_input(j->scheduler, call, j->latents, s->output, j->params.count * j->picture); /* output is scratch here */
    for (int g = 0; g < s->groups; g++)
        for (int r = 0; r < rows; r++, to += row) {
            const int64_t picture = row_of(j, s, g, r) % j->params.count * j->picture;
            memcpy(to, s->output + picture, (size_t)j->picture * sizeof(float));
            tern_job_fill_told(j, r / s->pictures, picture, to + j->picture);
        }
}

/* Gives the tensors of all groups their rows of one that has all rows. */
static void spread(const struct tern_job *j, struct tern_predictor *s, int input, const tern_tensor *all)
{
    struct tern_context *ctx = j->p->ctx;
    const int rows = s->pictures * j->branches;
    const int64_t n = all ? tern_tensor_numel(all) : 0, row = n / (rows * s->groups);
    float *values = tern_alloc(ctx, (size_t)n * sizeof(float)), *own = tern_alloc(ctx, (size_t)(rows * row) * sizeof(float));
    if (values && own && tern_tensor_read(all, TERN_F32, values, (size_t)n * sizeof(float)) == TERN_OK)
        for (int g = 0; g < s->groups; g++) {
            for (int r = 0; r < rows; r++)
                memcpy(own + r * row, values + row_of(j, s, g, r) * row, (size_t)row * sizeof(float));
            tern_tensor_write(s->in[g][input], TERN_F32, own, (size_t)(rows * row) * sizeof(float));
        }
    tern_free(ctx, own);
    tern_free(ctx, values);
}

/* A tensor as `all`, with the rows of one group. */
static tern_tensor *like(const struct tern_job *j, const struct tern_predictor *s, enum tern_dtype dtype, const tern_tensor *all)
{
    int64_t shape[TERN_MAX_DIMS];
    if (!all)
        return NULL;
    memcpy(shape, tern_tensor_shape(all), (size_t)tern_tensor_ndim(all) * sizeof(*shape));
    shape[0] = s->pictures * j->branches;
    return tern_tensor_create(j->p->ctx, dtype, tern_tensor_ndim(all), shape, NULL);
}

/* What the texts say, into the tensors of all steps. */
static enum tern_status give_texts(const struct tern_job *j, struct tern_predictor *s, const tern_tensor *added)
{
    spread(j, s, TERN_UNET_CONTEXT, j->context);
    if (added)
        spread(j, s, TERN_UNET_ADDED, added);
    return tern_error_status(j->p->ctx);
}

/* The tensors of all steps: the same memory each time, so that a device can replay its launches. Time is the same for all groups. */
static enum tern_status make_inputs(const struct tern_job *j, const struct tern_unet *unet, double t, struct tern_predictor *s)
{
    struct tern_context *ctx = j->p->ctx;
    const int64_t shape[] = {samples_of(j, s), input_channels(j), j->lh, j->lw};
    const enum tern_dtype dtype = tern_pipeline_dtype(j->p, "unet");
    struct tern_unet_conditions c;
    tern_scope_begin(ctx);
    tern_unet_conditions(unet, &t, 1, j->params.cfg, j->pooled, j->time_ids, &c);
    tern_tensor *sample = tern_tensor_create(ctx, dtype, 4, shape, NULL);
    for (int g = 0; g < s->groups && !tern_failed(ctx); g++) {
        tern_tensor *in[] = {sample, c.time, like(j, s, dtype, j->context), like(j, s, TERN_F32, c.added)};
        for (int i = 0; i < TERN_UNET_INPUTS; i++)
            s->in[g][i] = tern_tensor_ref(in[i]);
    }
    enum tern_status st = tern_failed(ctx) ? tern_error_status(ctx) : give_texts(j, s, c.added);
    tern_scope_end(ctx, NULL);
    return st;
}

/* Another text holds from this step on. */
static enum tern_status renew_texts(const struct tern_job *j, const struct tern_unet *unet, double t, struct tern_predictor *s)
{
    struct tern_context *ctx = j->p->ctx;
    struct tern_unet_conditions c = {NULL, NULL};
    tern_scope_begin(ctx);
    if (!j->pooled || tern_unet_conditions(unet, &t, 1, j->params.cfg, j->pooled, j->time_ids, &c) == TERN_OK)
        give_texts(j, s, c.added);
    tern_scope_end(ctx, NULL);
    return tern_error_status(ctx);
}

/* Values that are known before the steps are computed with nothing but the inputs there. */
enum tern_status tern_predictor_open(struct tern_job *j, struct tern_predictor *s)
{
    struct tern_context *ctx = j->p->ctx;
    struct tern_device *former = tern_pipeline_go(j->p, "unet");
    const struct tern_stage stage = tern_job_stage(j, "unet");
    const int64_t rows = j->params.count * j->branches;
    *s = (struct tern_predictor){.pictures = tern_job_group(j)};
    s->groups = j->params.count / s->pictures;
    s->deep = tern_calloc(ctx, (size_t)s->groups, sizeof(*s->deep));
    s->in = tern_calloc(ctx, (size_t)s->groups, sizeof(*s->in));
    s->input = tern_alloc(ctx, (size_t)(rows / j->share * input_channels(j) * j->lh * j->lw) * sizeof(float));
    s->output = tern_alloc(ctx, (size_t)(rows * j->picture) * sizeof(float));
    tern_job_follow_prompt(j, j->begin);
    const struct tern_unet *unet = stage.known ? tern_pipeline_unet(j->p) : NULL;
    if (unet && make_inputs(j, unet, 0, s) == TERN_OK)
        tern_known_open(j, s);
    s->binding = tern_pipeline_binding(j->p, &stage);
    if (j->caches) {
        const struct tern_stage shallow = tern_job_shallow_stage(j);
        s->shallow = tern_pipeline_binding(j->p, &shallow);
    }
    tern_device_go(ctx, former);
    return tern_error_status(ctx);
}

/* The inputs of a plan: those that were not known before, then what the whole UNet keeps for the shallow one, then what was known. */
static void give_inputs(const struct tern_job *j, const struct tern_predictor *s, int call, int g, tern_tensor **in)
{
    const unsigned known = tern_job_stage(j, "unet").known, of[TERN_UNET_INPUTS] = {0, TERN_KNOWN_TIME, TERN_KNOWN_TEXT, TERN_KNOWN_TIME};
    for (int i = 0; i < TERN_UNET_INPUTS; i++)
        if (s->in[g][i] && !(known & of[i]))
            *in++ = s->in[g][i];
    if (tern_job_is_shallow(j, call))
        *in++ = s->deep[g];
    tern_known_give(j, s, call, g, in);
}

/* What the whole UNet keeps is an output behind its own. */
static tern_tensor *run_unet(const struct tern_job *j, struct tern_predictor *s, int call, int g)
{
    const bool shallow = tern_job_is_shallow(j, call);
    tern_tensor *in[TERN_GRAPH_MAX_IO] = {NULL}, *out[] = {shallow ? s->shallow_out : s->out, s->deep[g]};
    give_inputs(j, s, call, g, in);
    if (tern_job_run_plan(j, "unet", shallow ? s->shallow : s->binding, in, out))
        return NULL;
    s->deep[g] = out[1];
    return *(shallow ? &s->shallow_out : &s->out) = out[0];
}

static enum tern_status run_group(const struct tern_job *j, struct tern_predictor *s, int call, int g)
{
    const int64_t in = samples_of(j, s) * input_channels(j) * j->lh * j->lw, out = s->pictures * j->branches * j->picture;
    tern_tensor_write(s->in[g][TERN_UNET_SAMPLE], TERN_F32, s->input + g * in, (size_t)in * sizeof(float));
    const tern_tensor *predicted = tern_failed(j->p->ctx) ? NULL : run_unet(j, s, call, g);
    if (predicted)
        tern_tensor_read(predicted, TERN_F32, s->output + g * out, (size_t)out * sizeof(float));
    return tern_error_status(j->p->ctx);
}

/* negative + cfg * (positive - negative), with more than one positive the sum of all      [Ho 2022; Liu 2022]
 * With a picture that guides, the last branch is the negative one there, and it pulls away from the first:
 * first + cfg * (positive - last) + image_cfg * (last - first)                            [Brooks 2022, equation 3]
 * What a picture's first branch gives stands no later in the end than here: the pictures come to lie one behind the other. */
static void guide(const struct tern_job *j, struct tern_predictor *s)
{
    const int64_t n = s->pictures * j->picture;
    const int end = j->branches - j->image_guided, last = j->image_guided ? end : 0;
    const float image_cfg = (float)j->params.image_guidance_scale;
    float cfg[TERN_MOST_BRANCHES];
    for (int b = 1; b < end; b++)
        cfg[b] = (float)tern_job_guidance(j, b);
    for (int g = 0; g < s->groups; g++) {
        const float *from = s->output + g * j->branches * n;
        float *to = s->output + g * n;
        for (int64_t k = 0; k < n; k++) {
            const float negative = from[last * n + k];
            float sum = from[k];
            for (int b = 1; b < end; b++)
                sum = sum + cfg[b] * (from[b * n + k] - negative);
            to[k] = j->image_guided ? sum + image_cfg * (negative - from[k]) : sum;
        }
    }
}

static enum tern_status predict(struct tern_job *j, int call, struct tern_predictor *s)
{
    const bool other = tern_job_follow_prompt(j, call);
    const double t = tern_scheduler_timestep(j->scheduler, call);
    fill_input(j, call, s);
    const struct tern_unet *unet = tern_pipeline_unet(j->p);
    if (!unet || (s->in[0][TERN_UNET_SAMPLE] ? tern_unet_set_time(unet, &t, 1, j->params.cfg, s->in[0][TERN_UNET_TIME])
                                             : make_inputs(j, unet, t, s)))
        return tern_error_status(j->p->ctx);
    if (other && call > j->begin && renew_texts(j, unet, t, s))
        return tern_error_status(j->p->ctx);
    for (int g = 0; g < s->groups; g++)
        if (run_group(j, s, call, g))
            return tern_error_status(j->p->ctx);
    if (j->branches > 1)
        guide(j, s);
    return TERN_OK;
}

enum tern_status tern_job_predict(struct tern_job *j, int call, struct tern_predictor *s)
{
    struct tern_device *former = tern_pipeline_go(j->p, "unet");
    enum tern_status st = predict(j, call, s);
    tern_device_go(j->p->ctx, former);
    return st;
}

/* How much memory a job will need, before it runs. The plans of its stages tell most of it: arena, outputs, and what binding takes.
 * Each function below adds what the stage of the same name holds besides. */
#include <string.h>
#include <tern/ops.h>

#include "graph/plan.h"
#include "models/pipelines/conditions.h"
#include "models/pipelines/hoist.h"
#include "models/random/random.h"
#include "models/schedulers/scheduler.h"
#include "ops/dispatch.h"

#define SMALL ((size_t)16 << 10) /* strings, lists and structs of the job itself */

struct tally {
    struct tern_job *j;
    size_t now, most;
    bool device; /* what lies on the context's device counts, and no stage of a component that computes elsewhere */
    bool away;   /* it is such a stage */
};

static void take(struct tally *t, size_t size)
{
    t->now += t->device && t->away ? 0 : size;
    t->most = t->now > t->most ? t->now : t->most;
}

static void give(struct tally *t, size_t size)
{
    if (!t->device || !t->away)
        t->now -= size < t->now ? size : t->now;
}

static void begin_stage(struct tally *t, const char *component) { t->away = tern_pipeline_device(t->j->p, component) != t->j->p->ctx->own; }

static size_t rows(const struct tern_job *j) { return (size_t)j->params.count * (size_t)j->branches; }
static size_t pixels(const struct tern_job *j) { return (size_t)j->params.width * (size_t)j->params.height; }

/* As in tern_plan_params.resident. */
static size_t kept_weights(const struct tern_job *j, const char *component)
{
    const enum tern_offload own = tern_pipeline_offload(j->p, component);
    if (component[0] == 'u')
        return j->resident;
    return own == TERN_OFFLOAD_STREAM || (component[0] == 't' && own == TERN_OFFLOAD_AUTO && j->streams_text);
}

struct tern_stage tern_job_stage(const struct tern_job *j, const char *component)
{
    const bool text = component[0] == 't', two = j->guided && !j->zero_negative && !j->conditions;
    int n = component[0] == 'u' ? tern_job_group(j) * j->branches : text && two ? 2 : 1;
    return (struct tern_stage){.component = component,
                               .size = {n, j->params.width, j->params.height},
                               .resident = kept_weights(j, component),
                               .arena = component[0] == 'v' ? j->arena : 0,
                               .tokens = component[0] == 'u' ? j->tokens : 0,
                               .vectors = text && j->conditions && j->conditions->vectors,
                               .part = component[0] == 'u' && j->caches ? TERN_UNET_KEEPS : TERN_UNET_WHOLE,
                               .branch = component[0] == 'u' && j->caches ? j->params.cache_branch_id : 0,
                               .share = component[0] == 'u' ? j->share : 0,
                               .known = component[0] == 'u' && !j->resident ? j->known : 0,
                               .algorithm_bytes = component[0] == 'u'   ? j->unet_algorithm
                                                  : component[0] == 'v' ? j->vae_algorithm
                                                                        : 0};
}

/* The module and its part: of the component that the plan is of. */
static const struct tern_part *part_of(const struct tern_pipeline *p, const char *component, bool *there)
{
    const unsigned module = tern_module_of(component);
    *there = tern_pipeline_modules(p) & module;
    return module == TERN_MODULE_TEXT      ? &p->text_part
           : module == TERN_MODULE_TEXT_2  ? &p->text_2_part
           : module == TERN_MODULE_UNET    ? &p->unet_part
           : module == TERN_MODULE_PREVIEW ? &p->preview_part
                                           : &p->vae_part;
}

/* What the UNet's runs hold until sampling ends: their memory and results; with a cache those of two plans, of which one runs at a time. */
static size_t unet_runs(const struct tern_job *j)
{
    const struct tern_stage whole = tern_job_stage(j, "unet"), shallow = tern_job_shallow_stage(j);
    const struct tern_plan *plan = tern_pipeline_plan(j->p, &whole), *less = j->caches ? tern_pipeline_plan(j->p, &shallow) : NULL;
    if (!plan)
        return 0;
    size_t bytes = tern_plan_facts(plan).arena + tern_plan_facts(plan).outputs;
    if (!less)
        return bytes;
    const size_t more = (size_t)(j->params.count / tern_job_group(j) - 1); /* groups */
    return bytes + tern_plan_facts(less).outputs + (tern_plan_fits_beside(less, plan) ? 0 : tern_plan_facts(less).arena) +
           more * (size_t)tern_job_deep_values(j) * tern_dtype_size(tern_pipeline_dtype(j->p, "unet"));
}

/* Whether the second pass finds a component of the first one where it was. */
static bool stays(const struct tern_job *j, const char *component) { return component[0] != 'v' && !tern_job_leaves(j, component); }

/* Brings a component into memory, binds it and runs its plan. What stays is counted, and is the result. */
static size_t run(struct tally *t, const char *component)
{
    struct tern_pipeline *p = t->j->p;
    const struct tern_job *first = t->j->first;
    const bool beside = first && stays(first, component), left = first && !beside && component[0] != 'v';
    const struct tern_stage stage = tern_job_stage(t->j, component), other = tern_job_stage(beside ? first : t->j, component),
                            shallow = tern_job_shallow_stage(t->j);
    const struct tern_plan *plan = tern_pipeline_plan(p, &stage);
    size_t bound = plan ? tern_pipeline_bind_bytes(p, &stage, beside ? &other : NULL) : 0;
    if (!plan)
        return 0;
    if (stage.part == TERN_UNET_KEEPS)
        bound += tern_pipeline_bind_bytes(p, &shallow, &stage);
    bool there;
    size_t module = 0, making = 0;
    const struct tern_part *part = part_of(p, component, &there);
    if (!beside && (!there || left)) {
        take(t, part->module + part->loading);
        give(t, part->module + part->loading);
        module = part->module;
    }
    if (component[0] == 'u')
        tern_job_known_bytes(t->j, &making);
    take(t, module + making);
    give(t, module + making);
    bound += module;
    size_t once = component[0] == 'u' ? unet_runs(t->j) : tern_plan_facts(plan).arena + tern_plan_facts(plan).outputs;
    take(t, bound);
    take(t, once);
    give(t, once);
    return bound;
}

/* One batch of all texts; its states stay: rows of that width. The encoder leaves unless it is kept. */
static void encode_with(struct tally *t, const char *component, size_t width, const struct tern_text_encoder *m,
                        const struct tern_part *part)
{
    const struct tern_job *j = t->j;
    size_t length = (size_t)tern_tokenizer_max_length(j->p->tokenizer), ids = 4 * length * sizeof(int64_t);
    begin_stage(t, component);
    take(t, ids + rows(j) * length * width * sizeof(float) + (j->params.clip_skip > 1 ? 2 * rows(j) * length * width * sizeof(float) : 0));
    size_t bound = run(t, component);
    give(t, ids);
    if (tern_job_leaves(j, component)) /* with what LoRAs have made, which counts from the start if it was there */
        give(t, bound + (m && !j->first ? tern_part_derived_bytes(part) : 0));
    t->away = false;
}

/* SDXL: the projection of the pooled text runs without a plan, so that its matrix is prepared by itself; then the states are put
 * side by side in another tensor. */
static void encode_prompt(struct tally *t)
{
    const struct tern_pipeline *p = t->j->p;
    const struct tern_unet_config *u = &p->unet_config;
    size_t length = (size_t)tern_tokenizer_max_length(p->tokenizer), states = rows(t->j) * length * (size_t)u->context[0] * sizeof(float);
    take(t, tern_job_condition_bytes(t->j));
    if (!p->xl) {
        encode_with(t, "text_encoder", (size_t)u->context[0], p->text, &p->text_part);
        return;
    }
    size_t pooled = (size_t)u->pooled, projection = 2 * pooled * (size_t)u->context[0] * sizeof(float);
    size_t first = p->second_only ? 0 : (size_t)u->context[0] / 2;
    if (first)
        encode_with(t, "text_encoder", first, p->text, &p->text_part);
    take(t, projection + rows(t->j) * (pooled + TERN_XL_NUMBERS) * sizeof(float));
    encode_with(t, "text_encoder_2", (size_t)u->context[0] - first, p->text_2, &p->text_2_part);
    if (tern_job_leaves(t->j, "text_encoder_2"))
        give(t, projection);
    take(t, states);
    give(t, states);
}

static void start_latents(struct tally *t)
{
    const struct tern_job *j = t->j;
    size_t latents = (size_t)(j->params.count * j->picture) * sizeof(float);
    take(t, 2 * latents + (size_t)j->params.count * sizeof(struct tern_generator)); /* latents, noise */
    if (j->first) {
        take(t, tern_job_upscale_bytes(j));
        give(t, tern_job_upscale_bytes(j));
    }
    if (!j->params.init_image)
        return;
    const size_t pictures = tern_pipeline_inpaints(j->p) ? 2 : 1;
    take(t, pictures * latents + (size_t)(j->lh * j->lw) * sizeof(float));
    /* the resized picture, its values, and its encoding, and all that with the mask that the UNet is told; the values of the encoder's
     * input */
    size_t around =
        pictures * ((3 + 3 * sizeof(float)) * pixels(j) + 2 * (size_t)j->picture * sizeof(float)) + 2 * 3 * sizeof(float) * pixels(j);
    begin_stage(t, "vae");
    take(t, around);
    size_t bound = run(t, "vae_encoder");
    give(t, around + (tern_job_leaves(j, "vae") ? bound : 0));
    t->away = false;
}

/* Previews between the steps: the UNet's plan keeps its memory meanwhile. Returns what stays. */
static size_t preview(struct tally *t)
{
    struct tern_job *j = t->j;
    if (!j->params.on_preview)
        return 0;
    size_t values = (size_t)(j->params.count * j->picture) * sizeof(float), small = (size_t)(j->lh * j->lw) * (3 * sizeof(float) + 6);
    size_t around = values + (j->p->preview_alone ? (3 * sizeof(float) + 6) * pixels(j) + 4 * (size_t)j->picture * sizeof(float) : small);
    size_t once = unet_runs(j);
    take(t, once + around);
    size_t bound = j->p->preview_alone ? run(t, "preview_decoder") : 0;
    give(t, once + around);
    return bound;
}

/* All steps are alike. */
static void sample(struct tally *t)
{
    const struct tern_job *j = t->j;
    const struct tern_unet_config *u = &j->p->unet_config;
    size_t making, known = tern_job_known_bytes(j, &making), input = rows(j) / (size_t)j->share * (size_t)(u->in_channels * j->lh * j->lw),
                   output = rows(j) * (size_t)j->picture;
    size_t history = TERN_SCHEDULER_MAX_ROWS * (size_t)(j->params.count * j->picture);
    size_t buffers = input + output + (size_t)(j->params.count * j->picture); /* on the host */
    size_t tensors =
        2 * input +
        rows(j) * (size_t)(2 * u->pooled + 2 * (j->tokens ? j->tokens : tern_tokenizer_max_length(j->p->tokenizer)) * u->context[0] +
                           u->channels[0]);
    begin_stage(t, "unet");
    double low, high;
    size_t brownian = tern_job_noise_range(j, &low, &high) ? tern_brownian_bytes(low, high, j->picture) : 0;
    take(t, history * sizeof(float)); /* stays with the scheduler */
    take(t, (buffers + tensors) * sizeof(float) + brownian + known);
    size_t bound = run(t, "unet"), shown = preview(t);
    give(t, (buffers + tensors) * sizeof(float) + brownian + known);
    /* a module that leaves counts from the start if it was there */
    if (tern_job_leaves(j, "unet"))
        give(t, bound + (j->p->unet && !j->first ? j->p->unet_part.module : 0));
    if (tern_job_leaves(j, "preview_decoder"))
        give(t, shown + (j->p->preview && !j->first ? j->p->preview_part.module : 0));
    t->away = false;
}

static void decode(struct tally *t)
{
    const struct tern_job *j = t->j;
    begin_stage(t, "vae");
    take(t, (size_t)j->params.count * (3 * pixels(j) + 4096)); /* the pictures and their texts */
    take(t, (3 * sizeof(float) + 3) * pixels(j) + 4 * (size_t)j->picture * sizeof(float));
    run(t, "vae_decoder");
}

/* The larger one of `before` and the most since the stage began; another begins. */
static size_t end_stage(struct tally *t, size_t before)
{
    size_t most = t->most > before ? t->most : before;
    t->most = t->now;
    return most;
}

/* A part of which it is not known what LoRAs make of it comes in. */
static void know(struct tern_pipeline *p, const char *component)
{
    bool there;
    const struct tern_part *part = part_of(p, component, &there);
    if (!there && !part->module)
        tern_pipeline_module_weights(p, component);
}

/* The plans come first: making them takes memory for a moment, and they stay. */
static enum tern_status make_plans(struct tern_job *j)
{
    static const char *const components[] = {"text_encoder", "unet", "vae_decoder", "vae_encoder"};
    if (!j->p->second_only)
        know(j->p, "text_encoder");
    if (j->p->xl)
        know(j->p, "text_encoder_2");
    for (int i = j->p->second_only; i < (j->params.init_image ? 4 : j->hires ? 2 : 3); i++) {
        const struct tern_stage stage = tern_job_stage(j, components[i]);
        tern_pipeline_plan(j->p, &stage);
    }
    const struct tern_stage second = tern_job_stage(j, "text_encoder_2"), shown = tern_job_stage(j, "preview_decoder"),
                            shallow = tern_job_shallow_stage(j);
    if (j->caches)
        tern_pipeline_plan(j->p, &shallow);
    if (j->p->xl)
        tern_pipeline_plan(j->p, &second);
    if (j->p->preview_alone && j->params.on_preview)
        tern_pipeline_plan(j->p, &shown);
    return j->hires ? make_plans(j->hires) : tern_error_status(j->p->ctx);
}

enum tern_status tern_job_predict_peak(struct tern_job *j, struct tern_job_peak *peak)
{
    *peak = (struct tern_job_peak){0};
    if (tern_check_cancel(j->p->ctx) || tern_dispatch_prepare(j->p->ctx) || make_plans(j))
        return tern_error_status(j->p->ctx);
    if (j->forgets) /* it would be there or not, as a plan was made or had been */
        tern_plan_cache_drop(j->p->ctx);
    tern_memory_trim_devices(j->p->ctx); /* what is kept for reuse is not needed */
    struct tally t = {.j = j, .now = tern_memory_used(j->p->ctx) + SMALL + j->p->ctx->own->caps.compiling, .device = j->by_device};
    take(&t, j->p->making);
    give(&t, j->p->making);
    for (t.j = j; t.j; t.j = t.j->hires)
        encode_prompt(&t);
    peak->most = peak->encode = end_stage(&t, peak->most);
    for (t.j = j; t.j; t.j = t.j->hires) {
        start_latents(&t);
        peak->vae = end_stage(&t, peak->vae);
        sample(&t);
        peak->sample = end_stage(&t, peak->sample);
    }
    t.j = tern_job_last(j);
    decode(&t);
    peak->vae = end_stage(&t, peak->vae);
    peak->most = peak->sample > peak->most ? peak->sample : peak->most;
    peak->most = peak->vae > peak->most ? peak->vae : peak->most;
    return tern_error_status(j->p->ctx);
}

/* One call of tern_generate from what the command line says: check, load, sample, write. */
#include "picture.h"

#include <string.h>

#include <tern/quantize.h>

/* LoRAs that the prompts name; else --from has taken the tags off. */
static int take_tags(struct picture_job *j, const struct picture_settings *s)
{
    const bool named = s->prompt_syntax == TERN_PROMPT_A1111;
    const char *tags = named ? s->prompt : s->infotext.loras, *second = named ? s->hires.hr_prompt : NULL;
    if (!s->lora_dir)
        return GO_ON;
    if ((tags && tern_prompt_take_loras(j->ctx, tags, s->lora_dir, &j->named)) ||
        (second && tern_prompt_take_loras(j->ctx, second, s->lora_dir, &j->hires)))
        return library_failed(j->ctx, tern_error_status(j->ctx) == TERN_E_INVALID);
    if (j->hires.count && !lora_same(&j->hires, &j->named))
        from_tell(s, "hires prompt", "its LoRAs (both passes have those of the prompt)");
    if (second && *second && !*j->hires.prompt)
        from_tell(s, "hires prompt", "that it has no words but tags of LoRAs (both passes have the prompt)");
    return GO_ON;
}

/* What the settings say; the guidance scale may be the model's. */
static void fill_params(struct picture_job *j, struct picture_settings *s, struct tern_txt2img_params *p)
{
    *p = (struct tern_txt2img_params){
        .prompt = s->lora_dir && s->prompt_syntax == TERN_PROMPT_A1111 ? j->named.prompt : s->prompt,
        .negative_prompt = s->negative,
        .prompt_syntax = s->prompt_syntax,
        .emphasis = s->emphasis,
        .clip_skip = s->clip_skip,
        .width = s->width,
        .height = s->height,
        .steps = s->steps,
        .cfg = s->cfg < 0 ? 0 : s->cfg,
        .image_guidance_scale = s->image_cfg,
        .seed = s->seed,
        .sampler = s->sampler,
        .schedule = s->schedule,
        .sampler_options = s->sampler_options,
        .ensd = s->ensd,
        .generator = s->generator,
        .count = s->count,
        .init_image = j->image,
        .mask_image = j->mask,
        .strength = s->strength,
        .init_latents = j->latents,
        .hires = s->hires,
        .on_choice = picture_tell_choice,
        .on_choice_user = s,
        .on_kernel = s->profile ? trace_kernel : NULL,
        .on_kernel_user = &j->trace,
        .on_preview = s->preview.path ? preview_write : NULL,
        .on_preview_user = &s->preview,
        .preview_every = s->preview.every,
    };
    if (j->hires.prompt)
        p->hires.hr_prompt = j->hires.prompt;
    s->preview.ctx = j->ctx;
    s->preview.count = s->count;
    xl_first(&s->xl, p);
    deepcache_give(&s->deepcache, p);
}

/* A model that comes in int8 computes the rest as --dtype int8 lets it, if no dtype is given; a picture that is made again says its own. */
static bool comes_in_int8(const struct picture_settings *s, const struct tern_pipeline_params *params, const struct tern_pipeline *p)
{
    const bool said = s->optimize || s->from || s->run.dtype_given || params->quantize || params->recipe;
    const char *words = said ? NULL : tern_pipeline_layer_words(p, "unet");
    return words && !strstr(words, ":w"); /* those in few bits say so */
}

static struct tern_pipeline *load(struct picture_job *j, const struct tern_pipeline_params *params)
{
    const struct picture_settings *s = j->settings;
    struct tern_pipeline_params fast = *params;
    struct tern_pipeline *p = tern_pipeline_load(j->ctx, s->model, params);
    fast.dtype = tern_context_fast_dtype(j->ctx);
    if (!p || fast.dtype == params->dtype || !comes_in_int8(s, params, p))
        return p;
    tern_pipeline_destroy(&p);
    return tern_pipeline_load(j->ctx, s->model, &fast);
}

/* The model with what is set on it. The message of an error is told. */
static struct tern_pipeline *open_model(const struct tern_pipeline_params *params, void *user)
{
    struct picture_job *j = user;
    const struct picture_settings *s = j->settings;
    struct tern_pipeline *p = load(j, params);
    j->code = p ? GO_ON : library_failed(j->ctx, false);
    if (j->code == GO_ON)
        j->code = lora_set(j->ctx, p, &s->loras, &j->named);
    if (j->code == GO_ON)
        j->code = embedding_set(j->ctx, p, &s->embeddings);
    if (j->code != GO_ON)
        tern_pipeline_destroy(&p);
    return p;
}

/* The same, with what --optimize chooses of the params and the job. */
static int open_chosen(struct picture_job *j, struct picture_settings *s, struct tern_pipeline_params *params,
                       struct tern_txt2img_params *p)
{
    const struct tern_optimize_params o = {.goal = (enum tern_goal)(s->optimize - 1),
                                           .keep_dtype = s->run.dtype_given,
                                           .keep_offload = s->offload.given,
                                           .keep_cache = s->deepcache.given,
                                           .open = open_model,
                                           .open_user = j,
                                           .on_choice = picture_tell_choice,
                                           .on_choice_user = s};
    j->code = GO_ON;
    j->pipeline = s->optimize ? tern_pipeline_optimize(j->ctx, s->model, params, p, &o) : open_model(params, j);
    if (!j->pipeline && j->code == GO_ON)
        j->code = library_failed(j->ctx, true);
    return j->code;
}

static int generate(struct picture_job *j, struct picture_settings *s)
{
    struct tern_pipeline_params pipeline = {.dtype = run_dtype(&s->run, j->ctx),
                                            .quantize = run_quantize(&s->run),
                                            .recipe = s->run.recipe,
                                            .text_encoder_quantize = run_text_quantize(&s->run),
                                            .tokenizer_dir = s->tokenizer,
                                            .vae = s->vae,
                                            .preview_vae = s->preview_vae,
                                            .on_cpu = s->on_cpu,
                                            .offload = s->offload.all,
                                            .offload_components = s->offload.components,
                                            .single_use = true};
    struct tern_txt2img_params p;
    j->settings = s;
    int code = take_tags(j, s);
    if (code != GO_ON)
        return code;
    fill_params(j, s, &p);
    code = open_chosen(j, s, &pipeline, &p);
    if (code != GO_ON)
        return code;
    if (s->cfg < 0) /* not given */
        s->cfg = p.cfg = tern_pipeline_guidance(j->pipeline);
    pipeline.recipe = NULL; /* which is for the first model's architecture */
    code = refiner_try(j, s, &pipeline, p);
    if (code != GO_ON)
        return code;
    size_t peak = 0;
    if (tern_generate_check(j->pipeline, &p, &peak))
        return library_failed(j->ctx, true);
    picture_announce(s, peak);
    if (s->optimize && p.cache_quality == 0) /* it was told */
        p.on_choice = NULL;
    trace_call(&j->trace);
    j->result = tern_generate(j->pipeline, &p);
    if (!j->result)
        return library_failed(j->ctx, true);
    if (s->xl.refiner[0])
        code = refiner_run(j, s, &pipeline, p);
    if (code == GO_ON)
        code = picture_save(j, s);
    if (code == GO_ON && s->profile)
        code = trace_write(&j->trace, s->profile);
    if (code != GO_ON)
        return code;
    picture_tell_done(j, s);
    return DONE;
}

/* On one device. *again: it failed, and s->run names those that take over. */
static int make(struct picture_settings *s, bool *again)
{
    struct picture_job j = {0};
    int code = GO_ON;
    clock_gettime(CLOCK_MONOTONIC, &j.start);
    j.ctx = run_open(&s->run, &code);
    if (!j.ctx)
        return code;
    code = picture_load_inputs(&j, s);
    if (code == GO_ON && s->profile && !trace_begin(&j.trace))
        code = failed("out of memory");
    if (code == GO_ON)
        code = generate(&j, s);
    trace_end(&j.trace);
    tern_images_destroy(&j.result);
    tern_tensor_unref(&j.latents);
    tern_image_destroy(&j.image);
    tern_image_destroy(&j.mask);
    tern_pipeline_destroy(&j.pipeline);
    tern_pipeline_destroy(&j.refiner);
    tern_prompt_loras_free(j.ctx, &j.named);
    tern_prompt_loras_free(j.ctx, &j.hires);
    *again = run_takes_over(&s->run, &j.ctx, code);
    tern_context_destroy(&j.ctx);
    return code;
}

int picture_make(struct picture_settings *s)
{
    int code = picture_check_outputs(s);
    if (code == GO_ON)
        code = picture_choose_seed(s);
    if (code != GO_ON)
        return code;
    interrupt_catch();
    for (bool again = true; again;) {
        again = false;
        code = make(s, &again);
    }
    run_end(&s->run);
    return code;
}

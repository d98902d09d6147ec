/* One call of tern_generate from what the command line says: check, load, sample, write. */
#include "picture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* A picture above this many pixels does not set the size by itself: a photograph would ask for hours and gigabytes. */
#define OWN_SIZE_PIXELS (2 << 20)

struct job {
    struct tern_context *ctx;
    struct tern_pipeline *pipeline, *refiner;
    struct tern_image *image, *mask;
    tern_tensor *latents;
    struct tern_images *result;
    struct tern_prompt_loras named; /* LoRAs of the prompt's tags */
    struct timespec start;
    struct trace trace;
    const struct picture_settings *settings;
    int code; /* of opening the model */
};

static double seconds_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + 1e-9 * (double)(now.tv_nsec - start->tv_nsec);
}

/* Texts from the command line may be no UTF-8, which JSON cannot hold. */
static json_t *text_json(const char *text)
{
    json_t *s = text ? json_string(text) : NULL;
    return s ? s : json_null();
}

/* JSON libraries read integers up to 2^63 - 1; a larger seed is sent as a string. */
static json_t *seed_json(uint64_t seed)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, seed);
    return seed <= INT64_MAX ? json_integer((json_int_t)seed) : json_string(text);
}

static int check_outputs(const struct picture_settings *s)
{
    char *first = output_name(s->output, 0, s->count);
    int code = first ? output_check(first) : failed("out of memory");
    free(first);
    if (code == GO_ON && s->preview.path)
        code = output_check(s->preview.path);
    if (code == GO_ON && s->save_latents)
        code = output_check(s->save_latents);
    if (code == GO_ON && s->profile)
        code = output_check(s->profile);
    return code;
}

static int choose_seed(struct picture_settings *s)
{
    uint32_t random;
    if (s->seed_given)
        return GO_ON;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return failed("the system gives no random seed; --seed N chooses one");
    s->seed = random; /* PyTorch's CPU generator uses 32 bits, and people write seeds down */
    return GO_ON;
}

/* The size that was not asked for follows from the picture. */
static int choose_size(struct picture_settings *s, const struct tern_image *image)
{
    int64_t w = tern_image_width(image), h = tern_image_height(image);
    if (s->width && s->height)
        return GO_ON;
    if (!s->width && !s->height && w * h > OWN_SIZE_PIXELS)
        return usage("%s has %lld x %lld pixels; give the size to work in, for example -W 512 -H 512", s->image, (long long)w,
                     (long long)h);
    int64_t width = s->width ? s->width : s->height ? w * s->height / h : w;
    int64_t height = s->height ? s->height : s->width ? h * s->width / w : h;
    width = width / 8 * 8;
    height = height / 8 * 8;
    if (width < 8 || height < 8 || width > 8192 || height > 8192)
        return usage("%s has %lld x %lld pixels: no size from 8 to 8192 follows from it; give -W and -H", s->image, (long long)w,
                     (long long)h);
    s->width = (int)width;
    s->height = (int)height;
    return GO_ON;
}

static int load_inputs(struct job *j, struct picture_settings *s)
{
    if (s->image && !(j->image = tern_image_load(j->ctx, s->image)))
        return library_failed(j->ctx, false);
    if (s->mask && !(j->mask = tern_image_load(j->ctx, s->mask)))
        return library_failed(j->ctx, false);
    if (s->init_latents && !(j->latents = latents_load(j->ctx, s->init_latents)))
        return FAILED;
    return j->image ? choose_size(s, j->image) : GO_ON;
}

static void announce(const struct picture_settings *s, size_t peak)
{
    char bytes[BYTES_TEXT];
    if (s->run.json) {
        json_t *event =
            json_pack("{s:s, s:o, s:o, s:o, s:o, s:i, s:f, s:i, s:s, s:s}", "event", "start", "model", text_json(s->model), "prompt",
                      text_json(s->prompt), "negative", text_json(s->negative), "seed", seed_json(s->seed), "steps", s->steps, "cfg",
                      s->cfg, "count", s->count, "sampler", tern_sampler_name(s->sampler), "schedule", tern_schedule_name(s->schedule));
        if (event && s->width && s->height) {
            json_object_set_new(event, "width", json_integer(s->width));
            json_object_set_new(event, "height", json_integer(s->height));
        }
        if (event && peak)
            json_object_set_new(event, "peak_bytes", json_integer((json_int_t)peak));
        event_send(event);
    } else if (!s->run.quiet) {
        fprintf(stderr, "seed %" PRIu64 ", %d steps, cfg %g", s->seed, s->steps, s->cfg);
        fprintf(stderr, peak ? ", at most %s of memory\n" : "\n", bytes_text(peak, bytes));
    }
}

static void tell_choice(const struct tern_choice *c, void *user)
{
    const struct picture_settings *s = user;
    progress_break();
    if (s->run.json)
        event_send(json_pack("{s:s, s:s, s:s, s:s}", "event", "choice", "what", c->what, "value", c->value, "why", c->why));
    else if (!s->run.quiet)
        fprintf(stderr, "%s %s: %s\n", c->what, c->value, c->why);
}

/* A file that is begun is also ended when Ctrl-C comes; no further one is begun then. */
static int save_one(struct job *j, const struct picture_settings *s, int i)
{
    if (interrupt_seen()) {
        failed("cancelled; %d of %d pictures were written", i, tern_images_count(j->result));
        return CANCELLED;
    }
    char *path = output_name(s->output, i, s->count);
    if (!path)
        return failed("out of memory");
    const struct tern_image *img = tern_images_at(j->result, i);
    interrupt_hold(true);
    enum tern_status status = tern_image_save(img, path);
    interrupt_hold(false);
    int code = status ? library_failed(j->ctx, false) : GO_ON;
    uint64_t seed = s->seed + (uint64_t)i;
    if (!status && s->run.json)
        event_send(json_pack("{s:s, s:o, s:i, s:o, s:i, s:i, s:o}", "event", "image", "path", text_json(path), "index", i, "seed",
                             seed_json(seed), "width", tern_image_width(img), "height", tern_image_height(img), "parameters",
                             text_json(tern_image_text(img, "parameters"))));
    else if (!status && !s->run.quiet)
        fprintf(stderr, "%s: %d x %d, seed %" PRIu64 "\n", path, tern_image_width(img), tern_image_height(img), seed);
    free(path);
    return code;
}

static int save(struct job *j, const struct picture_settings *s)
{
    int code = GO_ON;
    for (int i = 0; i < tern_images_count(j->result) && code == GO_ON; i++)
        code = save_one(j, s, i);
    if (code != GO_ON || !s->save_latents)
        return code;
    interrupt_hold(true);
    enum tern_status status = latents_save(j->ctx, s->save_latents, tern_images_latents(j->result));
    interrupt_hold(false);
    if (status)
        return library_failed(j->ctx, false);
    if (s->run.json)
        event_send(json_pack("{s:s, s:o}", "event", "latents", "path", text_json(s->save_latents)));
    return GO_ON;
}

static int open_refiner(struct job *j, const struct picture_settings *s, const struct tern_pipeline_params *params)
{
    if (!j->refiner && !(j->refiner = tern_pipeline_load(j->ctx, s->xl.refiner, params)))
        return library_failed(j->ctx, false);
    return lora_set(j->ctx, j->refiner, &s->xl.loras, NULL);
}

/* Before the first model paints, so that the second is known to be one. With LoRAs its UNet would be in memory beside the first's. */
static int try_refiner(struct job *j, const struct picture_settings *s, const struct tern_pipeline_params *params)
{
    int code = s->xl.refiner[0] ? open_refiner(j, s, params) : GO_ON;
    if (s->xl.loras.count)
        tern_pipeline_destroy(&j->refiner);
    return code;
}

/* The second model goes on where the first has ended, which leaves memory. */
static int refine(struct job *j, const struct picture_settings *s, const struct tern_pipeline_params *params, struct tern_txt2img_params p)
{
    struct tern_images *first = j->result;
    j->result = NULL;
    xl_second(&s->xl, &p, first);
    tern_pipeline_destroy(&j->pipeline);
    int code = open_refiner(j, s, params);
    if (code == GO_ON && !(j->result = tern_generate(j->refiner, &p)))
        code = library_failed(j->ctx, true);
    for (int i = 0; j->result && i < tern_images_count(first); i++) /* which tells of both models */
        tern_image_set_text(tern_images_at(j->result, i), "parameters", tern_image_text(tern_images_at(first, i), "parameters"));
    tern_images_destroy(&first);
    return code;
}

/* LoRAs that the prompt names; else --from has taken the tags off. */
static int take_tags(struct job *j, const struct picture_settings *s)
{
    const char *tags = s->prompt_syntax == TERN_PROMPT_A1111 ? s->prompt : s->infotext.loras;
    if (s->lora_dir && tags && tern_prompt_take_loras(j->ctx, tags, s->lora_dir, &j->named))
        return library_failed(j->ctx, tern_error_status(j->ctx) == TERN_E_INVALID);
    return GO_ON;
}

/* What the settings say; the guidance scale may be the model's. */
static void fill_params(struct job *j, struct picture_settings *s, struct tern_txt2img_params *p)
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
        .cfg = s->cfg < 0   ? 0
               : s->cfg > 0 ? s->cfg
                            : 1, /* the library takes 0 as its default */
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
        .on_choice = tell_choice,
        .on_choice_user = s,
        .on_kernel = s->profile ? trace_kernel : NULL,
        .on_kernel_user = &j->trace,
        .on_preview = s->preview.path ? preview_write : NULL,
        .on_preview_user = &s->preview,
        .preview_every = s->preview.every,
    };
    s->preview.ctx = j->ctx;
    s->preview.count = s->count;
    xl_first(&s->xl, p);
    deepcache_give(&s->deepcache, p);
}

/* The model with what is set on it. The message of an error is told. */
static struct tern_pipeline *open_model(const struct tern_pipeline_params *params, void *user)
{
    struct job *j = user;
    const struct picture_settings *s = j->settings;
    struct tern_pipeline *p = tern_pipeline_load(j->ctx, s->model, params);
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
static int open_chosen(struct job *j, struct picture_settings *s, struct tern_pipeline_params *params, struct tern_txt2img_params *p)
{
    const struct tern_optimize_params o = {.goal = (enum tern_goal)(s->optimize - 1),
                                           .keep_dtype = s->run.dtype_given || s->run.weights || s->run.recipe,
                                           .keep_offload = s->offload.given,
                                           .keep_cache = s->deepcache.given,
                                           .open = open_model,
                                           .open_user = j,
                                           .on_choice = tell_choice,
                                           .on_choice_user = s};
    j->code = GO_ON;
    j->pipeline = s->optimize ? tern_pipeline_optimize(j->ctx, s->model, params, p, &o) : open_model(params, j);
    if (!j->pipeline && j->code == GO_ON)
        j->code = library_failed(j->ctx, true);
    return j->code;
}

static int generate(struct job *j, struct picture_settings *s)
{
    struct tern_pipeline_params pipeline = {.dtype = run_dtype(&s->run, j->ctx),
                                            .quantize = run_quantize(&s->run),
                                            .recipe = s->run.recipe,
                                            .text_encoder_quantize = run_text_quantize(&s->run),
                                            .tokenizer_dir = s->tokenizer,
                                            .vae = s->vae,
                                            .preview_vae = s->preview_vae,
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
    code = try_refiner(j, s, &pipeline);
    if (code != GO_ON)
        return code;
    size_t peak = 0;
    if (tern_generate_check(j->pipeline, &p, &peak))
        return library_failed(j->ctx, true);
    announce(s, peak);
    j->result = tern_generate(j->pipeline, &p);
    if (!j->result)
        return library_failed(j->ctx, true);
    if (s->xl.refiner[0])
        code = refine(j, s, &pipeline, p);
    if (code == GO_ON)
        code = save(j, s);
    if (code == GO_ON && s->profile)
        code = trace_write(&j->trace, s->profile);
    if (code != GO_ON)
        return code;
    char bytes[BYTES_TEXT];
    if (s->run.json)
        event_send(json_pack("{s:s, s:f, s:I}", "event", "done", "seconds", seconds_since(&j->start), "memory_peak",
                             (json_int_t)tern_memory_peak(j->ctx)));
    else if (!s->run.quiet)
        fprintf(stderr, "%.1f s, peak memory %s\n", seconds_since(&j->start), bytes_text(tern_memory_peak(j->ctx), bytes));
    return DONE;
}

/* On one device. *again: it failed, and s->run names those that take over. */
static int make(struct picture_settings *s, bool *again)
{
    struct job j = {0};
    int code = GO_ON;
    clock_gettime(CLOCK_MONOTONIC, &j.start);
    j.ctx = run_open(&s->run, &code);
    if (!j.ctx)
        return code;
    code = load_inputs(&j, s);
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
    *again = run_takes_over(&s->run, &j.ctx, code);
    tern_context_destroy(&j.ctx);
    return code;
}

int picture_make(struct picture_settings *s)
{
    int code = check_outputs(s);
    if (code == GO_ON)
        code = choose_seed(s);
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

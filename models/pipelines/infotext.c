/* The text that AUTOMATIC1111 writes into its pictures, so that its tools and others can read ours. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "core/json.h"
#include "models/pipelines/pipeline.h"
#include "models/prompts/prompts.h"
#include "models/schedulers/scheduler.h"

static const char *a1111_sampler(enum tern_sampler s)
{
    static const char *const names[TERN_SAMPLER_COUNT] = {
        [TERN_SAMPLER_DDIM] = "DDIM",
        [TERN_SAMPLER_PNDM] = "PLMS",
        [TERN_SAMPLER_EULER] = "Euler",
        [TERN_SAMPLER_EULER_A] = "Euler a",
        [TERN_SAMPLER_DPMPP_2M] = "DPM++ 2M",
        [TERN_SAMPLER_HEUN] = "Heun",
        [TERN_SAMPLER_LMS] = "LMS",
        [TERN_SAMPLER_UNIPC] = "UniPC",
        [TERN_SAMPLER_LCM] = "LCM",
        [TERN_SAMPLER_DPM2] = "DPM2",
        [TERN_SAMPLER_DPM2_A] = "DPM2 a",
        [TERN_SAMPLER_DDPM] = "DDPM",
        [TERN_SAMPLER_TCD] = "TCD",
        [TERN_SAMPLER_DPMPP_2S_A] = "DPM++ 2S a",
        [TERN_SAMPLER_DPMPP_SDE] = "DPM++ SDE",
        [TERN_SAMPLER_DPMPP_2M_SDE] = "DPM++ 2M SDE",
        [TERN_SAMPLER_DPMPP_2M_SDE_HEUN] = "DPM++ 2M SDE Heun",
        [TERN_SAMPLER_DPMPP_3M_SDE] = "DPM++ 3M SDE",
        [TERN_SAMPLER_DPM_FAST] = "DPM fast",
        [TERN_SAMPLER_DPM_ADAPTIVE] = "DPM adaptive",
    };
    return names[s] ? names[s] : tern_sampler_name(s);
}

/* Names come from paths, which may hold any bytes; a picture takes UTF-8 only. */
static void make_utf8(char *text)
{
    utf8proc_int32_t c;
    for (char *s = text; *s;) {
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)s, -1, &c);
        if (n <= 0)
            *s = '?';
        s += n > 0 ? n : 1;
    }
}

#define NUMBER_TEXT 32
/* The shortest decimal that gives the number back. */
static const char *number_text(double v, char out[NUMBER_TEXT])
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, NUMBER_TEXT, "%.*g", digits, v);
        char *comma = strchr(out, ','); /* of the program's locale */
        if (comma)
            *comma = '.';
        if (tern_prompt_number(out) == v)
            break;
    }
    return out;
}

/* The options that are not A1111's defaults, under its names. */
static void write_options(const struct tern_job *j, char *out, size_t size)
{
    const struct tern_scheduler *s = j->scheduler;
    const struct tern_sampler_options *o = &s->options;
    const struct {
        const char *name;
        double value, normal;
    } all[] = {
        {s->fns->sampler == TERN_SAMPLER_DDIM ? "Eta DDIM" : "Eta", o->eta, s->fns->eta},
        {"Sigma churn", o->s_churn, 0},
        {"Sigma tmin", o->s_tmin, 0},
        {"Sigma tmax", o->s_tmax, INFINITY},
        {"Sigma noise", o->s_noise, 1},
    };
    char number[NUMBER_TEXT];
    size_t used = 0;
    out[0] = 0;
    if (j->params.ensd && tern_scheduler_draws_fresh(s))
        used += (size_t)snprintf(out, size, ", ENSD: %lld", (long long)j->params.ensd);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && used < size; i++)
        if (all[i].value != all[i].normal)
            used += (size_t)snprintf(out + used, size - used, ", %s: %s", all[i].name, number_text(all[i].value, number));
}

/* What A1111 says of prompts: the layer, emphasis when it is another one and there are brackets, and that a prompt was filled up. */
static void prompt_fields(const struct tern_job *j, size_t size, char *skip, char *more)
{
    const enum tern_emphasis e = j->params.emphasis;
    *skip = *more = 0;
    if (j->params.clip_skip > 1)
        snprintf(skip, size, ", Clip skip: %d", j->params.clip_skip);
    snprintf(more, size, "%s%s%s", e && tern_job_has_emphasis(j) ? ", Emphasis: " : "",
             !e || !tern_job_has_emphasis(j) ? ""
             : e == TERN_EMPHASIS_NO_NORM    ? "No norm"
                                             : "Ignore",
             tern_job_pads_prompt(j) ? ", Pad conds: True" : "");
}

/* A value that holds what ends one is written as a JSON string, as A1111 does; tern_free. */
static char *quoted(struct tern_context *ctx, const char *value)
{
    if (!strpbrk(value, ",:\n\""))
        return tern_strdup(ctx, value);
    json_t *text = tern_json_text(ctx, value);
    char *dumped = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
    char *out = dumped ? tern_strdup(ctx, dumped) : NULL;
    free(dumped);
    json_decref(text);
    if (!out && !tern_failed(ctx))
        tern_fail(ctx, TERN_E_NO_MEMORY, "no memory for the infotext");
    return out;
}

/* What another reader has to know of calls that are cut short. */
static void cache_fields(const struct tern_job *j, char *out, size_t size)
{
    const struct tern_txt2img_params *q = &j->params;
    char number[NUMBER_TEXT];
    out[0] = 0;
    if (!j->caches)
        return;
    size_t used = (size_t)snprintf(out, size, ", DeepCache interval: %d, DeepCache branch: %d", q->cache_interval, q->cache_branch_id);
    if (q->cache_pow != 0 && used < size)
        snprintf(out + used, size - used, ", DeepCache center: %d, DeepCache pow: %s", q->cache_center, number_text(q->cache_pow, number));
}

static int count_tags(const char *loras)
{
    int n = 0;
    while ((loras = strstr(loras, "<lora:"))) {
        loras++;
        n++;
    }
    return n;
}

/* What tern needs to read its own text: A1111's programs take a prompt to be in their syntax. */
static void own_fields(const struct tern_job *j, const char *loras, char *out, size_t size)
{
    int tags = count_tags(loras);
    out[0] = 0;
    if (j->params.prompt_syntax == TERN_PROMPT_A1111)
        snprintf(out, size, ", Prompt syntax: a1111");
    else if (tags)
        snprintf(out, size, ", LoRA tags: %d", tags);
}

char *tern_job_infotext(const struct tern_job *j, int i)
{
    const struct tern_txt2img_params *q = &j->params;
    struct tern_context *ctx = j->p->ctx;
    char strength[64] = "", schedule[64] = "", image_cfg[64] = "", options[256], skip[64], more[64], own[64], cache[160],
         number[NUMBER_TEXT];
    const char *negative = q->negative_prompt;
    /* SDXL: an empty text is not the same as none */
    bool empty_counts = j->p->force_zeros && j->guided && !j->zero_negative;
    if (q->init_image)
        snprintf(strength, sizeof(strength), ", Denoising strength: %s", number_text(q->strength, number));
    if (q->schedule != TERN_SCHEDULE_DEFAULT)
        snprintf(schedule, sizeof(schedule), " Schedule type: %s,", tern_schedule_label(q->schedule));
    if (tern_pipeline_edits(j->p))
        snprintf(image_cfg, sizeof(image_cfg), ", Image CFG scale: %s", number_text(q->image_guidance_scale, number));
    write_options(j, options, sizeof(options));
    prompt_fields(j, sizeof(skip), skip, more);
    cache_fields(j, cache, sizeof(cache));
    /* tags are read as the first model's: there is no place for those of a second */
    char *loras = q->denoising_start > 0 ? tern_strdup(ctx, "") : tern_pipeline_lora_text(j->p),
         *model = loras ? quoted(ctx, j->p->name) : NULL, *text = NULL;
    if (model) {
        own_fields(j, loras, own, sizeof(own));
        text = tern_sprintf(ctx,
                            "%s%s%s%s\nSteps: %d, Sampler: %s,%s CFG scale: %s%s, Seed: %llu, Size: %dx%d, Model: %s%s%s%s%s%s%s, "
                            "Version: tern %s%s",
                            q->prompt, loras, negative[0] || empty_counts ? "\nNegative prompt: " : "", negative, q->steps,
                            a1111_sampler(tern_scheduler_sampler(j->scheduler)), schedule, number_text(q->cfg, number), image_cfg,
                            (unsigned long long)(q->seed + (uint64_t)i), q->width, q->height, model, skip,
                            q->generator == TERN_GENERATOR_CUDA ? ", RNG: NV" : ", RNG: CPU", strength, options, more, cache,
                            tern_version(), own);
    }
    tern_free(ctx, model);
    tern_free(ctx, loras);
    if (text)
        make_utf8(text);
    return text;
}

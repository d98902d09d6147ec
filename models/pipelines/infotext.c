/* The text that AUTOMATIC1111 writes into its pictures, so that its tools and others can read ours. */
#include <math.h>
#include <string.h>
#include <utf8proc.h>

#include "models/pipelines/pipeline.h"
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
    size_t used = 0;
    out[0] = 0;
    if (j->params.ensd && tern_scheduler_draws_fresh(s))
        used += (size_t)snprintf(out, size, ", ENSD: %lld", (long long)j->params.ensd);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && used < size; i++)
        if (all[i].value != all[i].normal)
            used += (size_t)snprintf(out + used, size - used, ", %s: %g", all[i].name, all[i].value);
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

char *tern_job_infotext(const struct tern_job *j, int i)
{
    const struct tern_txt2img_params *q = &j->params;
    struct tern_context *ctx = j->p->ctx;
    char strength[64] = "", schedule[64] = "", options[256], skip[64], more[64];
    const char *negative = q->negative_prompt;
    if (q->init_image)
        snprintf(strength, sizeof(strength), ", Denoising strength: %g", q->strength);
    if (q->schedule != TERN_SCHEDULE_DEFAULT)
        snprintf(schedule, sizeof(schedule), " Schedule type: %s,", tern_schedule_label(q->schedule));
    write_options(j, options, sizeof(options));
    prompt_fields(j, sizeof(skip), skip, more);
    char *loras = tern_pipeline_lora_text(j->p);
    if (!loras)
        return NULL;
    char *text = tern_sprintf(
        ctx, "%s%s%s%s\nSteps: %d, Sampler: %s,%s CFG scale: %g, Seed: %llu, Size: %dx%d, Model: %s%s%s%s%s%s, Version: tern %s", q->prompt,
        loras, negative[0] ? "\nNegative prompt: " : "", negative, q->steps, a1111_sampler(tern_scheduler_sampler(j->scheduler)), schedule,
        q->cfg, (unsigned long long)(q->seed + (uint64_t)i), q->width, q->height, j->p->name, skip,
        q->generator == TERN_GENERATOR_CUDA ? ", RNG: NV" : ", RNG: CPU", strength, options, more, tern_version());
    tern_free(ctx, loras);
    if (text)
        make_utf8(text);
    return text;
}

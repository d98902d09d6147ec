/* The text that AUTOMATIC1111 writes into its pictures, so that its tools and others can read ours. */
#include "models/pipelines/infotext.h"

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

/* The options that are not A1111's defaults, under its names. What is the default of the first pass may be none of the second. */
static void add_options(struct tern_infotext_line *l, const struct tern_job *j)
{
    const struct tern_scheduler *s = j->scheduler, *last = j->hires ? j->hires->scheduler : s;
    const struct tern_sampler_options *o = &s->options;
    const struct {
        const char *name;
        double value;
        bool counts;
    } all[] = {
        {s->fns->sampler == TERN_SAMPLER_DDIM ? "Eta DDIM" : "Eta", o->eta, o->eta != s->fns->eta || last->options.eta != last->fns->eta},
        {"Sigma churn", o->s_churn, o->s_churn != 0},
        {"Sigma tmin", o->s_tmin, o->s_tmin != 0},
        {"Sigma tmax", o->s_tmax, o->s_tmax != INFINITY},
        {"Sigma noise", o->s_noise, o->s_noise != 1},
    };
    if (j->params.ensd && (tern_scheduler_draws_fresh(s) || tern_scheduler_draws_fresh(last)))
        tern_infotext_add(l, "ENSD", tern_sprintf(l->ctx, "%lld", (long long)j->params.ensd));
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i].counts)
            tern_infotext_add_number(l, all[i].name, all[i].value);
    if (o->discard_penultimate_sigma)
        tern_infotext_add_text(l, "Discard penultimate sigma", "True");
    if (o->k_diffusion_levels)
        tern_infotext_add_text(l, "K-diffusion levels", "True");
}

/* The second pass. Its own texts are told where they are others. */
static void add_hires(struct tern_infotext_line *l, const struct tern_job *j)
{
    const struct tern_hires *h = &j->params.hires;
    const struct tern_job *second = j->hires;
    if (!second)
        return;
    if (tern_scheduler_sampler(second->scheduler) != tern_scheduler_sampler(j->scheduler))
        tern_infotext_add_text(l, "Hires sampler", a1111_sampler(tern_scheduler_sampler(second->scheduler)));
    if (h->hr_schedule && h->hr_schedule != j->params.schedule)
        tern_infotext_add_text(l, "Hires schedule type", tern_schedule_label(h->hr_schedule));
    const struct tern_sampler_options *of_first = &j->scheduler->options, *o = &second->scheduler->options;
    if (o->discard_penultimate_sigma != (of_first->discard_penultimate_sigma && second->scheduler->fns->has_schedules))
        tern_infotext_add_text(l, "Hires discard penultimate sigma", o->discard_penultimate_sigma ? "True" : "False");
    if (o->k_diffusion_levels != (of_first->k_diffusion_levels && second->scheduler->fns->has_schedules))
        tern_infotext_add_text(l, "Hires K-diffusion levels", o->k_diffusion_levels ? "True" : "False");
    if (second->params.cfg != j->params.cfg)
        tern_infotext_add_number(l, "Hires CFG Scale", second->params.cfg);
    if (strcmp(second->params.prompt, j->params.prompt))
        tern_infotext_add_text(l, "Hires prompt", second->params.prompt);
    if (strcmp(second->params.negative_prompt, j->params.negative_prompt))
        tern_infotext_add_text(l, "Hires negative prompt", second->params.negative_prompt);
    if (h->hr_resize_x || h->hr_resize_y)
        tern_infotext_add(l, "Hires resize", tern_sprintf(l->ctx, "%dx%d", h->hr_resize_x, h->hr_resize_y));
    else
        tern_infotext_add_number(l, "Hires upscale", h->hr_scale);
    if (h->hr_second_pass_steps)
        tern_infotext_add_number(l, "Hires steps", h->hr_second_pass_steps);
    tern_infotext_add_text(l, "Hires upscaler", h->hr_upscaler);
}

/* What counts in prompts: emphasis when it is another one and there are brackets, and that a prompt was filled up. */
static void add_prompt_fields(struct tern_infotext_line *l, const struct tern_job *j)
{
    const enum tern_emphasis e = j->params.emphasis;
    const struct tern_job *second = j->hires;
    if (e && (tern_job_has_emphasis(j) || (second && tern_job_has_emphasis(second))))
        tern_infotext_add_text(l, "Emphasis", e == TERN_EMPHASIS_NO_NORM ? "No norm" : "Ignore");
    if (tern_job_pads_prompt(j) || (second && tern_job_pads_prompt(second)))
        tern_infotext_add_text(l, "Pad conds", "True");
}

static void add_size(struct tern_infotext_line *l, const char *name, const int size[2])
{
    if (size[0] || size[1])
        tern_infotext_add(l, name, tern_sprintf(l->ctx, "%dx%d", size[1], size[0]));
}

static void add_if(struct tern_infotext_line *l, const char *name, double value)
{
    if (value != 0)
        tern_infotext_add_number(l, name, value);
}

/* What A1111 has no fields for: SDXL's sizes and scores as they were given, and parts of the steps without a refiner. */
static void add_xl(struct tern_infotext_line *l, const struct tern_txt2img_params *q)
{
    const bool refiner = q->refiner.name && q->denoising_end > 0;
    add_size(l, "SDXL original size", q->original_size);
    add_size(l, "SDXL target size", q->target_size);
    add_if(l, "SDXL crop top", q->crops_coords_top_left[0]);
    add_if(l, "SDXL crop left", q->crops_coords_top_left[1]);
    add_size(l, "SDXL negative original size", q->negative_original_size);
    add_size(l, "SDXL negative target size", q->negative_target_size);
    add_if(l, "SDXL negative crop top", q->negative_crops_coords_top_left[0]);
    add_if(l, "SDXL negative crop left", q->negative_crops_coords_top_left[1]);
    add_if(l, "SDXL aesthetic score", refiner ? q->refiner.aesthetic_score : q->aesthetic_score);
    add_if(l, "SDXL negative aesthetic score", refiner ? q->refiner.negative_aesthetic_score : q->negative_aesthetic_score);
    if (refiner)
        tern_infotext_add(l, "Refiner", tern_model_name(l->ctx, q->refiner.name));
    add_if(l, refiner ? "Refiner switch at" : "Denoising end", q->denoising_end);
    add_if(l, "Denoising start", q->denoising_start);
}

/* A VAE by itself, by the name of its file. */
static void add_vae(struct tern_infotext_line *l, const struct tern_pipeline *p)
{
    const char *path = p->vae_alone ? tern_checkpoint_path(p->vae_alone) : NULL, *slash = path ? strrchr(path, '/') : NULL;
    if (path)
        tern_infotext_add_text(l, "VAE", slash && slash[1] ? slash + 1 : path);
}

/* Textual inversions that the prompts name. */
static void add_embeddings(struct tern_infotext_line *l, const struct tern_job *j)
{
    bool *used = j->p->n_embeddings ? tern_calloc(l->ctx, (size_t)j->p->n_embeddings, sizeof(*used)) : NULL;
    if (!used)
        return;
    tern_job_mark_embeddings(j, used);
    if (j->hires)
        tern_job_mark_embeddings(j->hires, used);
    char *text = tern_pipeline_embedding_text(j->p, used);
    if (text && *text)
        tern_infotext_add_text(l, "TI hashes", text);
    tern_free(l->ctx, text);
    tern_free(l->ctx, used);
}

/* Calls that are cut short. */
static void add_cache(struct tern_infotext_line *l, const struct tern_job *j)
{
    const struct tern_txt2img_params *q = &j->params;
    if (!j->caches)
        return;
    tern_infotext_add_number(l, "DeepCache interval", q->cache_interval);
    tern_infotext_add_number(l, "DeepCache branch", q->cache_branch_id);
    if (q->cache_pow != 0) {
        tern_infotext_add_number(l, "DeepCache center", q->cache_center);
        tern_infotext_add_number(l, "DeepCache pow", q->cache_pow);
    }
}

/* What it was computed in. */
static void add_dtype(struct tern_infotext_line *l, const struct tern_pipeline *p)
{
    if (p->params.dtype != TERN_F32)
        tern_infotext_add_text(l, "Dtype", tern_dtype_name(p->params.dtype));
    if (p->quantize)
        tern_infotext_add_text(l, "Quantize", p->quantize);
    if (p->text_encoder_quantize)
        tern_infotext_add_text(l, "Quantize text encoder", p->text_encoder_quantize);
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

/* The version, and what tern needs to read its own text: A1111's programs take a prompt to be in their syntax. */
static void add_own_fields(struct tern_infotext_line *l, const struct tern_job *j, const char *loras)
{
    tern_infotext_add(l, "Version", tern_sprintf(l->ctx, "tern %s", tern_version()));
    if (j->params.prompt_syntax == TERN_PROMPT_A1111)
        tern_infotext_add_text(l, "Prompt syntax", "a1111");
    else if (count_tags(loras))
        tern_infotext_add_number(l, "LoRA tags", count_tags(loras));
}

/* The last line, in A1111's order. */
static void add_fields(struct tern_infotext_line *l, const struct tern_job *j, int i)
{
    const struct tern_txt2img_params *q = &j->params;
    tern_infotext_add_number(l, "Steps", q->steps);
    tern_infotext_add_text(l, "Sampler", a1111_sampler(tern_scheduler_sampler(j->scheduler)));
    if (q->schedule != TERN_SCHEDULE_DEFAULT)
        tern_infotext_add_text(l, "Schedule type", tern_schedule_label(q->schedule));
    tern_infotext_add_number(l, "CFG scale", q->cfg);
    if (tern_pipeline_edits(j->p))
        tern_infotext_add_number(l, "Image CFG scale", q->image_guidance_scale);
    tern_infotext_add(l, "Seed", tern_sprintf(l->ctx, "%llu", (unsigned long long)(q->seed + (uint64_t)i)));
    tern_infotext_add(l, "Size", tern_sprintf(l->ctx, "%dx%d", q->width, q->height));
    tern_infotext_add_text(l, "Model", j->p->name);
    add_vae(l, j->p);
    if (q->clip_skip > 1)
        tern_infotext_add_number(l, "Clip skip", q->clip_skip);
    tern_infotext_add_text(l, "RNG", q->generator == TERN_GENERATOR_CUDA ? "NV" : "CPU");
    if (q->init_image || j->hires)
        tern_infotext_add_number(l, "Denoising strength", j->hires ? q->hires.denoising_strength : q->strength);
    add_options(l, j);
    add_embeddings(l, j);
    add_prompt_fields(l, j);
    add_hires(l, j);
    add_xl(l, q);
    add_cache(l, j);
    add_dtype(l, j->p);
}

/* SDXL: an empty text is not the same as none. */
static bool empty_counts(const struct tern_job *j)
{
    return j->p->force_zeros && j->guided && !j->zero_negative && !*j->params.negative_prompt;
}

char *tern_job_infotext(const struct tern_job *j, int i)
{
    struct tern_context *ctx = j->p->ctx;
    struct tern_infotext_line line = {.ctx = ctx};
    const char *negative = j->params.negative_prompt;
    const bool told = *negative || empty_counts(j) || (j->hires && empty_counts(j->hires));
    /* tags are read as the first model's: there is no place for those of a second */
    char *loras = j->params.denoising_start > 0 ? tern_strdup(ctx, "") : tern_pipeline_lora_text(j->p), *text = NULL;
    if (loras) {
        add_fields(&line, j, i);
        add_own_fields(&line, j, loras);
        if (line.text)
            text = tern_sprintf(ctx, "%s%s%s%s\n%s", j->params.prompt, loras, told ? "\nNegative prompt: " : "", negative, line.text);
    }
    tern_free(ctx, line.text);
    tern_free(ctx, loras);
    if (text)
        make_utf8(text);
    return text;
}

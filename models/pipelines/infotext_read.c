/* What an infotext says, as parameters of a job. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "models/pipelines/infotext.h"
#include "models/pipelines/pipeline.h"
#include "models/pipelines/upscale.h"
#include "models/prompts/prompts.h"
#include "models/schedulers/scheduler.h"

#define SIZE_MOST 8192
#define XL_MOST 65536

struct reading {
    struct tern_txt2img_params params;
    bool ours;                   /* tern wrote it */
    bool hires;                  /* there is a second pass */
    enum tern_schedule schedule; /* by its own field; TERN_SCHEDULE_COUNT: there is none */
    unsigned takes;              /* options of the sampler */
    int tags;                    /* of LoRAs behind the prompt */
};

static bool whole(const char *v, int64_t min, int64_t max, int64_t *out)
{
    char *end;
    errno = 0;
    int64_t n = strtoll(v, &end, 10);
    bool ok = end != v && !*end && !errno && n >= min && n <= max;
    if (ok)
        *out = n;
    return ok;
}

static bool number(const char *v, double min, double max, double *out)
{
    double n = tern_prompt_is_number(v, strlen(v)) ? tern_prompt_number(v) : NAN;
    bool ok = n >= min && n <= max;
    if (ok)
        *out = n;
    return ok;
}

static bool take_int(const char *v, int min, int max, int *out)
{
    int64_t n = 0;
    bool ok = whole(v, min, max, &n);
    if (ok)
        *out = (int)n;
    return ok;
}

/* A factor of which 0 is said as -1, because 0 is the default. */
static bool take_factor(const struct reading *r, unsigned takers, const char *v, double *out)
{
    bool ok = r->takes & takers && number(v, 0, 10, out);
    if (ok && *out == 0)
        *out = -1;
    return ok;
}

static bool take_steps(struct reading *r, const char *v) { return take_int(v, 1, 1000, &r->params.steps); }
static bool take_skip(struct reading *r, const char *v) { return take_int(v, 1, 64, &r->params.clip_skip); }
static bool take_tags(struct reading *r, const char *v) { return r->ours && take_int(v, 1, 1000, &r->tags); }
static bool take_ensd(struct reading *r, const char *v) { return whole(v, INT32_MIN, INT32_MAX, &r->params.ensd); }
static bool take_strength(struct reading *r, const char *v) { return number(v, 1e-6, 1, &r->params.strength); }
static bool take_nothing(struct reading *r, const char *v) { return true; }
static bool take_padding(struct reading *r, const char *v) { return !strcmp(v, "True"); }

/* Up to 1 is all the same, and 0 would be the default. */
static bool take_cfg(struct reading *r, const char *v)
{
    bool ok = number(v, 0, 1000, &r->params.cfg);
    if (ok)
        r->params.cfg = fmax(r->params.cfg, 1);
    return ok;
}

/* Below 1 only tern's means no guidance. */
static bool take_image_cfg(struct reading *r, const char *v)
{
    return number(v, r->ours ? 1e-6 : 1, 1000, &r->params.image_guidance_scale);
}

static bool take_seed(struct reading *r, const char *v)
{
    char *end;
    errno = 0;
    uint64_t n = strtoull(v, &end, 10);
    bool ok = *v >= '0' && *v <= '9' && !*end && !errno;
    if (ok)
        r->params.seed = n;
    return ok;
}

static bool take_pair(const char *v, int least, int most, int *width, int *height)
{
    int w = 0, h = 0, end = 0;
    if (sscanf(v, "%5dx%5d%n", &w, &h, &end) != 2 || v[end] || w < least || h < least || w > most || h > most)
        return false;
    *width = w;
    *height = h;
    return true;
}

static bool take_size(struct reading *r, const char *v) { return take_pair(v, 8, SIZE_MOST, &r->params.width, &r->params.height); }

static bool take_sampler(struct reading *r, const char *v)
{
    enum tern_sampler s = tern_sampler_parse(v, &r->params.schedule);
    if (s == TERN_SAMPLER_COUNT)
        return false;
    r->params.sampler = s;
    r->takes = s == TERN_SAMPLER_DEFAULT ? 0 : tern_sampler_fns(s)->takes;
    return true;
}

static bool take_schedule(struct reading *r, const char *v)
{
    enum tern_schedule s = tern_schedule_parse(v);
    if (s < TERN_SCHEDULE_COUNT)
        r->schedule = s;
    return s < TERN_SCHEDULE_COUNT;
}

/* "GPU": a GPU's own, which A1111 has when it is not told otherwise; "NV": the same made elsewhere. */
static bool take_generator(struct reading *r, const char *v)
{
    if (strcmp(v, "CPU") && strcmp(v, "NV") && strcmp(v, "GPU"))
        return false;
    r->params.generator = strcmp(v, "CPU") ? TERN_GENERATOR_CUDA : TERN_GENERATOR_CPU;
    return true;
}

static bool take_emphasis(struct reading *r, const char *v)
{
    static const char *const names[] = {"Original", "No norm", "Ignore"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(v, names[i])) {
            r->params.emphasis = (enum tern_emphasis)i;
            return true;
        }
    return false;
}

static bool take_syntax(struct reading *r, const char *v)
{
    r->params.prompt_syntax = r->ours && !strcmp(v, "plain") ? TERN_PROMPT_PLAIN : TERN_PROMPT_A1111;
    return r->ours && (!strcmp(v, "plain") || !strcmp(v, "a1111"));
}

static bool take_eta(struct reading *r, const char *v)
{
    return r->params.sampler != TERN_SAMPLER_DDIM && take_factor(r, TERN_TAKES_ETA, v, &r->params.sampler_options.eta);
}

static bool take_eta_ddim(struct reading *r, const char *v)
{
    return r->params.sampler == TERN_SAMPLER_DDIM && take_factor(r, TERN_TAKES_ETA, v, &r->params.sampler_options.eta);
}

static bool take_noise(struct reading *r, const char *v)
{
    return take_factor(r, TERN_TAKES_NOISE | TERN_TAKES_CHURN, v, &r->params.sampler_options.s_noise);
}

static bool take_churn(struct reading *r, const char *v)
{
    return r->takes & TERN_TAKES_CHURN && number(v, 0, 1000, &r->params.sampler_options.s_churn);
}

static bool take_tmin(struct reading *r, const char *v)
{
    return r->takes & TERN_TAKES_CHURN && number(v, 0, 1e6, &r->params.sampler_options.s_tmin);
}

static bool take_tmax(struct reading *r, const char *v)
{
    return r->takes & TERN_TAKES_CHURN && number(v, 0, 1e6, &r->params.sampler_options.s_tmax);
}

static bool take_interval(struct reading *r, const char *v) { return take_int(v, 1, 1000, &r->params.cache_interval); }
static bool take_branch(struct reading *r, const char *v) { return take_int(v, 0, 1000, &r->params.cache_branch_id); }
static bool take_center(struct reading *r, const char *v) { return take_int(v, 0, 1000, &r->params.cache_center); }
static bool take_pow(struct reading *r, const char *v) { return number(v, 1.0000001, 10, &r->params.cache_pow); }
static bool take_hr_scale(struct reading *r, const char *v) { return r->hires = number(v, 1e-3, 8192, &r->params.hires.hr_scale); }

static bool take_hr_resize(struct reading *r, const char *v)
{
    struct tern_hires *h = &r->params.hires;
    if (!take_pair(v, 0, SIZE_MOST, &h->hr_resize_x, &h->hr_resize_y) || (!h->hr_resize_x && !h->hr_resize_y))
        return false;
    return r->hires = true;
}

static bool take_hr_steps(struct reading *r, const char *v)
{
    return r->hires && take_int(v, 1, 1000, &r->params.hires.hr_second_pass_steps);
}

static bool take_hr_upscaler(struct reading *r, const char *v)
{
    const struct tern_upscaler *u = tern_upscaler_find(v);
    if (r->hires && u)
        r->params.hires.hr_upscaler = u->name;
    return r->hires && u;
}

static bool take_hr_sampler(struct reading *r, const char *v)
{
    struct tern_hires *h = &r->params.hires;
    const enum tern_sampler s = r->hires ? tern_sampler_parse(v, &h->hr_schedule) : TERN_SAMPLER_COUNT;
    if (s < TERN_SAMPLER_COUNT)
        h->hr_sampler = s;
    return s < TERN_SAMPLER_COUNT;
}

/* A1111's own default is the one of choose_schedule. */
static bool take_hr_schedule(struct reading *r, const char *v)
{
    const enum tern_schedule s = r->hires ? tern_schedule_parse(v) : TERN_SCHEDULE_COUNT;
    if (s < TERN_SCHEDULE_COUNT)
        r->params.hires.hr_schedule = s == TERN_SCHEDULE_DEFAULT ? TERN_SCHEDULE_NORMAL : s;
    return s < TERN_SCHEDULE_COUNT;
}

static bool take_hr_cfg(struct reading *r, const char *v)
{
    const bool ok = r->hires && number(v, 0, 1000, &r->params.hires.hr_cfg);
    if (ok)
        r->params.hires.hr_cfg = fmax(r->params.hires.hr_cfg, 1);
    return ok;
}

/* The fields' own texts, of which the result gets copies. */
static bool take_hr_prompt(struct reading *r, const char *v)
{
    r->params.hires.hr_prompt = v;
    return r->hires;
}

static bool take_hr_negative(struct reading *r, const char *v)
{
    r->params.hires.hr_negative_prompt = v;
    return r->hires;
}

static bool take_xl_size(const char *v, int out[2])
{
    int width = 0, height = 0;
    if (!take_pair(v, 1, XL_MOST, &width, &height))
        return false;
    out[0] = height;
    out[1] = width;
    return true;
}

static bool take_original(struct reading *r, const char *v) { return take_xl_size(v, r->params.original_size); }
static bool take_target(struct reading *r, const char *v) { return take_xl_size(v, r->params.target_size); }
static bool take_top(struct reading *r, const char *v) { return take_int(v, 1, XL_MOST, &r->params.crops_coords_top_left[0]); }
static bool take_left(struct reading *r, const char *v) { return take_int(v, 1, XL_MOST, &r->params.crops_coords_top_left[1]); }
static bool take_negative_original(struct reading *r, const char *v) { return take_xl_size(v, r->params.negative_original_size); }
static bool take_negative_target(struct reading *r, const char *v) { return take_xl_size(v, r->params.negative_target_size); }

static bool take_negative_top(struct reading *r, const char *v)
{
    return take_int(v, 1, XL_MOST, &r->params.negative_crops_coords_top_left[0]);
}

static bool take_negative_left(struct reading *r, const char *v)
{
    return take_int(v, 1, XL_MOST, &r->params.negative_crops_coords_top_left[1]);
}

static bool take_score(struct reading *r, const char *v) { return number(v, -1000, 1000, &r->params.aesthetic_score); }
static bool take_negative_score(struct reading *r, const char *v) { return number(v, -1000, 1000, &r->params.negative_aesthetic_score); }
static bool take_end(struct reading *r, const char *v) { return r->ours && number(v, 1e-6, 0.999999, &r->params.denoising_end); }
static bool take_switch(struct reading *r, const char *v)
{
    return r->params.refiner.name && number(v, 1e-6, 0.999999, &r->params.denoising_end);
}

static bool take_refiner(struct reading *r, const char *v)
{
    r->params.refiner.name = v; /* of which the result gets a copy */
    return true;
}

static bool take_discard(struct reading *r, const char *v)
{
    const struct tern_sampler_fns *fns = tern_sampler_fns(r->params.sampler);
    return r->params.sampler_options.discard_penultimate_sigma = !strcmp(v, "True") && fns && fns->has_schedules;
}

/* Fields that are followed, in the order in which they are read: options depend on the sampler. */
static const struct {
    const char *name;
    bool (*take)(struct reading *r, const char *value); /* false: it cannot be followed */
} known[] = {
    {"Version", take_nothing},
    {"Model", take_nothing},
    {"VAE", take_nothing},
    {"TI hashes", take_nothing},
    {"Batch size", take_nothing}, /* each picture of a batch has its own seed */
    {"Batch pos", take_nothing},
    {"Prompt syntax", take_syntax},
    {"Sampler", take_sampler},
    {"Schedule type", take_schedule},
    {"Steps", take_steps},
    {"CFG scale", take_cfg},
    {"Image CFG scale", take_image_cfg},
    {"Seed", take_seed},
    {"Size", take_size},
    {"Clip skip", take_skip},
    {"RNG", take_generator},
    {"Emphasis", take_emphasis},
    {"Pad conds", take_padding},
    {"Denoising strength", take_strength},
    {"LoRA tags", take_tags},
    {"ENSD", take_ensd},
    {"Eta", take_eta},
    {"Eta DDIM", take_eta_ddim},
    {"Sigma churn", take_churn},
    {"Sigma tmin", take_tmin},
    {"Sigma tmax", take_tmax},
    {"Sigma noise", take_noise},
    {"DeepCache interval", take_interval},
    {"DeepCache branch", take_branch},
    {"DeepCache center", take_center},
    {"DeepCache pow", take_pow},
    {"Discard penultimate sigma", take_discard},
    {"Hires upscale", take_hr_scale},
    {"Hires resize", take_hr_resize},
    {"Hires steps", take_hr_steps},
    {"Hires upscaler", take_hr_upscaler},
    {"Hires sampler", take_hr_sampler},
    {"Hires schedule type", take_hr_schedule},
    {"Hires CFG Scale", take_hr_cfg},
    {"Hires prompt", take_hr_prompt},
    {"Hires negative prompt", take_hr_negative},
    {"SDXL original size", take_original},
    {"SDXL target size", take_target},
    {"SDXL crop top", take_top},
    {"SDXL crop left", take_left},
    {"SDXL negative original size", take_negative_original},
    {"SDXL negative target size", take_negative_target},
    {"SDXL negative crop top", take_negative_top},
    {"SDXL negative crop left", take_negative_left},
    {"SDXL aesthetic score", take_score},
    {"SDXL negative aesthetic score", take_negative_score},
    {"Refiner", take_refiner},
    {"Refiner switch at", take_switch},
    {"Denoising end", take_end},
};
#define KNOWN (sizeof(known) / sizeof(*known))

/* A1111's samplers of k-diffusion step through all noise levels evenly when nothing else is said; the checkpoint's own
 * scheduler, which is the default here, does not. Some discard a level without saying so. */
static void choose_schedule(struct reading *r)
{
    const struct tern_sampler_fns *fns = tern_sampler_fns(r->params.sampler);
    if (r->schedule != TERN_SCHEDULE_COUNT && r->schedule != TERN_SCHEDULE_DEFAULT)
        r->params.schedule = r->schedule;
    if (!r->ours && r->params.schedule == TERN_SCHEDULE_DEFAULT && fns && fns->has_schedules && r->params.sampler != TERN_SAMPLER_UNIPC)
        r->params.schedule = TERN_SCHEDULE_NORMAL;
    if (!r->ours && fns && fns->discards)
        r->params.sampler_options.discard_penultimate_sigma = true;
}

#define MOST_IGNORED 4096 /* bytes of the list, and of a value in it */
#define MOST_VALUE 160

/* At most that many bytes of a UTF-8 text, whole characters. */
static int cut(const char *text, size_t most)
{
    size_t n = strnlen(text, most + 1);
    if (n > most)
        for (n = most; n && ((unsigned char)text[n] & 0xc0) == 0x80;)
            n--;
    return (int)n;
}

/* Adds "name: value", fit for a terminal. */
static enum tern_status ignore(struct tern_context *ctx, const char *name, const char *value, char **list)
{
    if (strlen(*list) > MOST_IGNORED)
        return TERN_OK;
    int n = cut(name, MOST_VALUE), k = cut(value, MOST_VALUE);
    char *more = tern_sprintf(ctx, "%s%s%.*s: %.*s%s", *list, **list ? ", " : "", n, name, k, value, value[k] ? "..." : "");
    if (!more)
        return tern_error_status(ctx);
    for (char *c = more; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
    tern_free(ctx, *list);
    *list = more;
    return TERN_OK;
}

static enum tern_status follow(struct tern_context *ctx, const struct tern_infotext_fields *f, struct reading *r, char **list)
{
    for (size_t k = 0; k < KNOWN; k++) {
        const char *value = tern_infotext_field(f, known[k].name);
        if (value && !known[k].take(r, value) && ignore(ctx, known[k].name, value, list))
            return tern_error_status(ctx);
    }
    for (int i = 0; i < f->count; i++) {
        size_t k = 0;
        while (k < KNOWN && strcmp(known[k].name, f->field[i].name))
            k++;
        if (k == KNOWN && ignore(ctx, f->field[i].name, f->field[i].value, list))
            return tern_error_status(ctx);
    }
    choose_schedule(r);
    if (r->hires) { /* the strength is that of the second pass */
        r->params.hires.denoising_strength = r->params.strength;
        r->params.strength = 0;
    }
    if (r->params.refiner.name) { /* it is told the scores */
        struct tern_txt2img_params *p = &r->params;
        p->refiner.aesthetic_score = p->aesthetic_score;
        p->refiner.negative_aesthetic_score = p->negative_aesthetic_score;
        p->aesthetic_score = p->negative_aesthetic_score = 0;
    }
    return TERN_OK;
}

static char *copy(struct tern_context *ctx, const char *text) { return text ? tern_strdup(ctx, text) : NULL; }

/* Texts of fields become the result's. */
static enum tern_status copy_texts(struct tern_context *ctx, const struct tern_infotext_fields *f, struct tern_txt2img_params *q,
                                   struct tern_infotext *out)
{
    const char *embeddings = tern_infotext_field(f, "TI hashes");
    q->hires.hr_prompt = copy(ctx, q->hires.hr_prompt);
    q->hires.hr_negative_prompt = copy(ctx, q->hires.hr_negative_prompt);
    q->refiner.name = copy(ctx, q->refiner.name);
    out->params = *q;
    out->model = copy(ctx, tern_infotext_field(f, "Model"));
    out->vae = copy(ctx, tern_infotext_field(f, "VAE"));
    out->embeddings = tern_strdup(ctx, embeddings ? embeddings : "");
    return tern_error_status(ctx);
}

/* A plain prompt is text, so the tags that stand behind it are known by their number alone. Cuts them off. */
static char *cut_tags(struct tern_context *ctx, char *prompt, int n)
{
    char *at = prompt + strlen(prompt), *from = at;
    while (n > 0 && at > prompt) {
        at--;
        if (!strncmp(at, "<lora:", 6)) {
            from = at;
            n--;
        }
    }
    char *tags = tern_strdup(ctx, from);
    if (from > prompt && from[-1] == ' ')
        from--;
    *from = 0;
    return tags;
}

static enum tern_status fill(struct tern_context *ctx, struct tern_infotext_fields *f, struct tern_infotext *out)
{
    const char *version = tern_infotext_field(f, "Version");
    struct reading r = {.ours = version && !strncmp(version, "tern ", 5), .schedule = TERN_SCHEDULE_COUNT};
    r.params.prompt_syntax = r.ours ? TERN_PROMPT_PLAIN : TERN_PROMPT_A1111;
    r.params.generator = r.ours ? TERN_GENERATOR_CPU : TERN_GENERATOR_CUDA;
    out->ignored = tern_strdup(ctx, "");
    if (!out->ignored || follow(ctx, f, &r, &out->ignored))
        return tern_error_status(ctx);
    out->loras = cut_tags(ctx, f->prompt, r.params.prompt_syntax == TERN_PROMPT_PLAIN ? r.tags : 0);
    if (copy_texts(ctx, f, &r.params, out))
        return tern_error_status(ctx);
    out->params.prompt = f->prompt;
    out->params.negative_prompt = f->negative;
    f->prompt = f->negative = NULL; /* they are the result's now */
    return TERN_OK;
}

enum tern_status tern_infotext_read(struct tern_context *ctx, const char *text, struct tern_infotext *out)
{
    *out = (struct tern_infotext){0};
    if (!text)
        return tern_fail(ctx, TERN_E_INVALID, "tern_infotext_read: expected a text, found NULL");
    struct tern_infotext_fields f;
    enum tern_status st = tern_infotext_split(ctx, text, &f);
    if (!st && !f.count)
        st = tern_fail(ctx, TERN_E_FORMAT,
                       "infotext: expected a last line such as \"Steps: 20, Sampler: Euler a, CFG scale: 7, Seed: 1\", found none");
    if (!st)
        st = fill(ctx, &f, out);
    tern_infotext_fields_free(ctx, &f);
    if (st)
        tern_infotext_free(ctx, out);
    return st;
}

void tern_infotext_free(struct tern_context *ctx, struct tern_infotext *t)
{
    const struct tern_hires *h = &t->params.hires;
    void *all[] = {(void *)(uintptr_t)t->params.prompt,
                   (void *)(uintptr_t)t->params.negative_prompt,
                   (void *)(uintptr_t)h->hr_prompt,
                   (void *)(uintptr_t)h->hr_negative_prompt,
                   (void *)(uintptr_t)t->params.refiner.name,
                   t->model,
                   t->vae,
                   t->embeddings,
                   t->loras,
                   t->ignored};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        tern_free(ctx, all[i]);
    *t = (struct tern_infotext){0};
}

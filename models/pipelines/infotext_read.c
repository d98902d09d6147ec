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
#include "models/prompts/prompts.h"
#include "models/schedulers/scheduler.h"

struct reading {
    struct tern_txt2img_params params;
    bool ours;                   /* tern wrote it */
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

static bool take_size(struct reading *r, const char *v)
{
    int width = 0, height = 0, end = 0;
    if (sscanf(v, "%5dx%5d%n", &width, &height, &end) != 2 || v[end] || width < 8 || height < 8 || width > 8192 || height > 8192)
        return false;
    r->params.width = width;
    r->params.height = height;
    return true;
}

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

/* Fields that are followed, in the order in which they are read: options depend on the sampler. */
static const struct {
    const char *name;
    bool (*take)(struct reading *r, const char *value); /* false: it cannot be followed */
} known[] = {
    {"Version", take_nothing},
    {"Model", take_nothing},
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
};
#define KNOWN (sizeof(known) / sizeof(*known))

/* A1111's samplers of k-diffusion step through all noise levels evenly when nothing else is said; the checkpoint's own
 * scheduler, which is the default here, does not. */
static void choose_schedule(struct reading *r)
{
    const struct tern_sampler_fns *fns = tern_sampler_fns(r->params.sampler);
    if (r->schedule != TERN_SCHEDULE_COUNT && r->schedule != TERN_SCHEDULE_DEFAULT)
        r->params.schedule = r->schedule;
    if (!r->ours && r->params.schedule == TERN_SCHEDULE_DEFAULT && fns && fns->has_schedules && r->params.sampler != TERN_SAMPLER_UNIPC)
        r->params.schedule = TERN_SCHEDULE_NORMAL;
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
    return TERN_OK;
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
    const char *version = tern_infotext_field(f, "Version"), *model = tern_infotext_field(f, "Model");
    struct reading r = {.ours = version && !strncmp(version, "tern ", 5), .schedule = TERN_SCHEDULE_COUNT};
    r.params.prompt_syntax = r.ours ? TERN_PROMPT_PLAIN : TERN_PROMPT_A1111;
    r.params.generator = r.ours ? TERN_GENERATOR_CPU : TERN_GENERATOR_CUDA;
    out->ignored = tern_strdup(ctx, "");
    if (!out->ignored || follow(ctx, f, &r, &out->ignored))
        return tern_error_status(ctx);
    out->loras = cut_tags(ctx, f->prompt, r.params.prompt_syntax == TERN_PROMPT_PLAIN ? r.tags : 0);
    out->model = model ? tern_strdup(ctx, model) : NULL;
    if (!out->loras || (model && !out->model))
        return tern_error_status(ctx);
    out->params = r.params;
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
    void *all[] = {(void *)(uintptr_t)t->params.prompt, (void *)(uintptr_t)t->params.negative_prompt, t->model, t->loras, t->ignored};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        tern_free(ctx, all[i]);
    *t = (struct tern_infotext){0};
}

/* What an infotext says, as parameters of a job. */
#include <string.h>

#include "core/ascii.h"
#include "core/context.h"
#include "models/pipelines/infotext.h"
#include "models/pipelines/infotext_known.h"
#include "models/pipelines/pipeline.h"
#include "models/schedulers/scheduler.h"

static const struct tern_infotext_known *const tables[] = {tern_infotext_sampling, tern_infotext_basics, tern_infotext_second_pass,
                                                           tern_infotext_stages, NULL};

static bool is_known(const char *name)
{
    for (int t = 0; tables[t]; t++)
        for (const struct tern_infotext_known *k = tables[t]; k->name; k++)
            if (!strcmp(k->name, name))
                return true;
    return false;
}

/* What A1111's samplers do without saying so: each has its usual schedule, and some discard a level. */
static void choose_schedules(struct tern_infotext_reading *r)
{
    struct tern_txt2img_params *p = &r->params;
    struct tern_hires *h = &p->hires;
    const struct tern_sampler_fns *first = tern_sampler_fns(p->sampler), *second = tern_sampler_fns(h->hr_sampler);
    bool *discards = &p->sampler_options.discard_penultimate_sigma; /* of all, when the text says so */
    if (r->ours)
        return;
    if (p->schedule == TERN_SCHEDULE_DEFAULT) {
        p->schedule = tern_infotext_usual_schedule(r, p->sampler);
        if (second && p->schedule == TERN_SCHEDULE_DEFAULT && h->hr_schedule == TERN_SCHEDULE_DEFAULT)
            h->hr_schedule = tern_infotext_usual_schedule(r, h->hr_sampler);
    }
    if (second && second->has_schedules) {
        h->hr_discard_penultimate_sigma = *discards || second->discards ? 1 : -1;
        h->hr_k_diffusion_levels = 1;
    }
    p->sampler_options.k_diffusion_levels = first && first->has_schedules;
    *discards = *discards || (first && first->discards);
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

static enum tern_status follow(struct tern_context *ctx, const struct tern_infotext_fields *f, struct tern_infotext_reading *r, char **list)
{
    for (int t = 0; tables[t]; t++)
        for (const struct tern_infotext_known *k = tables[t]; k->name; k++) {
            const char *value = tern_infotext_field(f, k->name);
            if (value && !k->take(r, value) && ignore(ctx, k->name, value, list))
                return tern_error_status(ctx);
        }
    for (int i = 0; i < f->count; i++)
        if (!is_known(f->field[i].name) && ignore(ctx, f->field[i].name, f->field[i].value, list))
            return tern_error_status(ctx);
    choose_schedules(r);
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
    out->quantize = copy(ctx, tern_infotext_field(f, "Quantize"));
    out->text_encoder_quantize = copy(ctx, tern_infotext_field(f, "Quantize text encoder"));
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

/* The noise of a text that does not say it. ComfyUI, whose save nodes write A1111's form, draws it on the CPU; A1111 on a GPU. */
static enum tern_generator_kind usual_generator(const struct tern_infotext_reading *r, const char *version)
{
    return r->ours || (version && tern_ascii_begins(version, "ComfyUI")) ? TERN_GENERATOR_CPU : TERN_GENERATOR_CUDA;
}

static enum tern_status fill(struct tern_context *ctx, struct tern_infotext_fields *f, struct tern_infotext *out)
{
    const char *version = tern_infotext_field(f, "Version");
    struct tern_infotext_reading r = {.ours = version && !strncmp(version, "tern ", 5)};
    r.params.prompt_syntax = r.ours ? TERN_PROMPT_PLAIN : TERN_PROMPT_A1111;
    r.params.generator = usual_generator(&r, version);
    out->ignored = tern_strdup(ctx, "");
    if (!out->ignored || follow(ctx, f, &r, &out->ignored))
        return tern_error_status(ctx);
    out->dtype = r.dtype;
    out->has_seed = r.has_seed;
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
    if (out)
        *out = (struct tern_infotext){0};
    if (!ctx || !text || !out)
        return tern_fail(ctx, TERN_E_INVALID, "tern_infotext_read: expected a text and a place for the result, found NULL");
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
    if (!ctx || !t)
        return;
    const struct tern_hires *h = &t->params.hires;
    void *all[] = {(void *)(uintptr_t)t->params.prompt,
                   (void *)(uintptr_t)t->params.negative_prompt,
                   (void *)(uintptr_t)h->hr_prompt,
                   (void *)(uintptr_t)h->hr_negative_prompt,
                   (void *)(uintptr_t)t->params.refiner.name,
                   t->model,
                   t->vae,
                   t->quantize,
                   t->text_encoder_quantize,
                   t->embeddings,
                   t->loras,
                   t->ignored};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        tern_free(ctx, all[i]);
    *t = (struct tern_infotext){0};
}

/* Reading the prompts of a job, and which of their texts the UNet is told at a step. */
#include "models/pipelines/conditions.h"

#include <string.h>
#include <tern/ops.h>

#include "models/schedulers/scheduler.h"

static bool is_a1111(const struct tern_job *j) { return j->params.prompt_syntax == TERN_PROMPT_A1111; }

static enum tern_status read_chunks(struct tern_job *j, const char *text, struct tern_condition_text *out)
{
    for (int e = tern_pipeline_first_encoder(j->p); e < tern_pipeline_end_encoders(j->p); e++) {
        const struct tern_prompt_words words = tern_pipeline_words(j->p, e);
        if ((is_a1111(j) ? tern_prompt_chunks : tern_prompt_plain_chunk)(tern_job_encoder(j, e).tokenizer, text, &words, &out->chunks[e]))
            return tern_error_status(j->p->ctx);
        for (int64_t i = 0; i < out->chunks[e].count * out->chunks[e].length; i++)
            j->conditions->vectors |= out->chunks[e].ids[i] < 0;
    }
    return TERN_OK;
}

static enum tern_status read_texts(struct tern_job *j, struct tern_condition *c)
{
    struct tern_context *ctx = j->p->ctx;
    c->texts = tern_calloc(ctx, (size_t)c->schedule.n_texts, sizeof(*c->texts));
    for (int i = 0; c->texts && i < c->schedule.n_texts; i++) {
        struct tern_condition_text *t = &c->texts[i];
        j->conditions->brackets |= is_a1111(j) && strpbrk(c->schedule.texts[i], "([");
        if (read_chunks(j, c->schedule.texts[i], t))
            break;
        for (int e = 0; e < TERN_ENCODERS; e++)
            c->chunks = t->chunks[e].count > c->chunks ? t->chunks[e].count : c->chunks;
    }
    for (int i = 0; c->texts && i < c->schedule.n_parts; i++)
        c->texts[c->schedule.parts[i].text].times++;
    return tern_error_status(ctx);
}

/* Steps as prompts count them. */
static int prompt_steps(const struct tern_job *j) { return (j->params.steps - j->skipped) * j->scheduler->fns->calls_per_step; }

/* One more condition. A text that is plain holds for all steps. */
static enum tern_status add(struct tern_job *j, const char *text, double weight, bool zeros)
{
    struct tern_condition *c = &j->conditions->at[j->conditions->count++];
    *c = (struct tern_condition){.weight = weight, .zeros = zeros};
    if (is_a1111(j) ? tern_prompt_schedule(j->p->ctx, text, prompt_steps(j), j->first ? prompt_steps(j->first) : 0, &c->schedule)
                    : tern_prompt_schedule_plain(j->p->ctx, text, &c->schedule))
        return tern_error_status(j->p->ctx);
    return read_texts(j, c);
}

/* The longest text decides how many chunks all have. */
static void count_chunks(struct tern_conditions *c)
{
    for (int i = 0; i < c->count; i++) {
        c->chunks = c->at[i].chunks > c->chunks ? c->at[i].chunks : c->chunks;
        c->shown[i] = -1;
    }
}

static enum tern_status read_all(struct tern_job *j, const struct tern_subprompt *parts, int n)
{
    struct tern_conditions *c = j->conditions;
    const bool weighted = n > 1 || parts[0].weight != 1;
    if (weighted && tern_pipeline_edits(j->p) && j->params.image_guidance_scale < 1)
        return tern_fail(j->p->ctx, TERN_E_INVALID,
                         "prompt: AND and a weight behind a text are guidance, and image_guidance_scale %g is none; expected at least 1",
                         j->params.image_guidance_scale);
    if (weighted && j->p->unet_config.guidance)
        return tern_fail(
            j->p->ctx, TERN_E_INVALID,
            "prompt: AND and a weight behind a text are guidance, which the UNet of %s is told and makes by itself, for one prompt; "
            "expected a text without them",
            j->p->name);
    j->guided = j->guided || weighted;
    j->zero_negative = j->guided && (j->zero_negative || (is_a1111(j) && j->p->xl && !*j->params.negative_prompt));
    if (j->guided)
        add(j, j->params.negative_prompt, 0, j->zero_negative);
    for (int i = 0; i < n && !tern_failed(j->p->ctx); i++)
        add(j, parts[i].text, parts[i].weight, false);
    if (tern_failed(j->p->ctx) || read_chunks(j, "", &c->empty))
        return tern_error_status(j->p->ctx);
    c->length = c->empty.chunks[tern_pipeline_first_encoder(j->p)].length;
    c->width = j->p->unet_config.context[0];
    count_chunks(c);
    j->tokens = c->chunks > 1 ? c->chunks * c->length : 0;
    return TERN_OK;
}

/* Rows a picture, from the conditions or the two prompts. */
static enum tern_status count_branches(struct tern_job *j)
{
    const int prompts = j->conditions ? j->conditions->count : 1 + j->guided;
    j->image_guided = j->guided && tern_pipeline_edits(j->p) && j->params.image_guidance_scale != 1; /* else it changes nothing */
    j->branches = prompts + j->image_guided;
    j->share = j->image_guided || j->p->unet_config.pooled ? 1 : j->branches;
    if ((int64_t)j->params.count * j->branches <= TERN_UNET_MAX_ROWS)
        return TERN_OK;
    return tern_fail(j->p->ctx, TERN_E_INVALID,
                     "prompt: %d rows each for %d pictures at once, because of %s; expected at most %d rows in all", j->branches,
                     j->params.count, prompts > 2 ? "AND" : "image guidance", TERN_UNET_MAX_ROWS);
}

static enum tern_status check_text(const struct tern_job *j, const char *what, const char *text)
{
    enum tern_status st = tern_prompt_check(j->p->ctx, what, text);
    return st ? st : tern_prompt_refuse_tags(j->p->ctx, what, text);
}

static void forget(struct tern_job *j)
{
    tern_job_free_conditions(j);
    j->tokens = 0;
}

enum tern_status tern_job_read_prompts(struct tern_job *j)
{
    struct tern_context *ctx = j->p->ctx;
    struct tern_subprompt parts[TERN_MOST_SUBPROMPTS] = {{(char *)(uintptr_t)j->params.prompt, 1}};
    int n = 1;
    if (!is_a1111(j) && !j->p->n_embeddings)
        return count_branches(j);
    if (is_a1111(j) && (check_text(j, "prompt", j->params.prompt) || check_text(j, "negative prompt", j->params.negative_prompt)))
        return tern_error_status(ctx);
    j->conditions = tern_calloc(ctx, 1, sizeof(*j->conditions));
    if (!j->conditions)
        return tern_error_status(ctx);
    if (is_a1111(j))
        n = tern_prompt_compose(ctx, j->params.prompt, parts);
    if (n)
        read_all(j, parts, n);
    if (!is_a1111(j) && !tern_failed(ctx) && !j->conditions->vectors) /* no name of an embedding is there: all as if none were set */
        forget(j);
    for (int i = 0; is_a1111(j) && i < TERN_MOST_SUBPROMPTS; i++)
        tern_free(ctx, parts[i].text);
    return tern_failed(ctx) ? tern_error_status(ctx) : count_branches(j);
}

static void free_text(struct tern_context *ctx, struct tern_condition_text *t)
{
    for (int e = 0; e < TERN_ENCODERS; e++)
        if (t->chunks[e].ctx)
            tern_chunks_free(&t->chunks[e]);
    tern_free(ctx, t->states);
    tern_free(ctx, t->pooled);
}

void tern_job_free_conditions(struct tern_job *j)
{
    struct tern_context *ctx = j->p->ctx;
    struct tern_conditions *c = j->conditions;
    if (!c)
        return;
    for (int i = 0; i < c->count; i++) {
        for (int k = 0; c->at[i].texts && k < c->at[i].schedule.n_texts; k++)
            free_text(ctx, &c->at[i].texts[k]);
        tern_free(ctx, c->at[i].texts);
        if (c->at[i].schedule.ctx)
            tern_prompt_schedule_free(&c->at[i].schedule);
    }
    free_text(ctx, &c->empty);
    tern_free(ctx, c);
    j->conditions = NULL;
}

double tern_job_guidance(const struct tern_job *j, int branch)
{
    return j->params.cfg * (j->conditions ? j->conditions->at[branch].weight : 1);
}

bool tern_job_pads_prompt(const struct tern_job *j)
{
    const struct tern_conditions *c = j->conditions;
    int64_t longest = 0;
    for (int i = 1; c && i < c->count; i++)
        longest = c->at[i].chunks > longest ? c->at[i].chunks : longest;
    return longest && longest != c->at[0].chunks;
}

bool tern_job_has_emphasis(const struct tern_job *j) { return j->conditions && j->conditions->brackets; }

void tern_job_mark_embeddings(const struct tern_job *j, bool *used)
{
    const struct tern_conditions *c = j->conditions;
    const int e = tern_pipeline_first_encoder(j->p); /* the names are the same for both */
    for (int i = 0; c && i < c->count; i++)
        for (int k = 0; k < c->at[i].schedule.n_texts; k++) {
            const struct tern_chunks *x = &c->at[i].texts[k].chunks[e];
            for (int64_t n = 0; n < x->count * x->length; n++)
                if (x->ids[n] < 0)
                    used[tern_pipeline_word_of(j->p, e, -1 - x->ids[n])] = true;
        }
}

size_t tern_job_condition_bytes(const struct tern_job *j)
{
    const struct tern_conditions *c = j->conditions;
    size_t texts = 1, rows = (size_t)j->params.count * (size_t)j->branches;
    if (!c)
        return 0;
    for (int i = 0; i < c->count; i++)
        texts += (size_t)c->at[i].schedule.n_texts;
    const size_t states = (size_t)(c->chunks * c->length * c->width), pooled = (size_t)j->p->unet_config.pooled;
    return (texts + 2 * rows) * (states + pooled + 64) * sizeof(float);
}

/* ---- the context of a step */

/* (rows, ...) of one value of each condition's text, repeated for the pictures; the negative one again where a last branch has it. */
static tern_tensor *gather(struct tern_job *j, bool pooled, int ndim, const int64_t *shape)
{
    struct tern_conditions *c = j->conditions;
    const size_t n = (size_t)(shape[1] * (ndim > 2 ? shape[2] : 1));
    float *all = tern_alloc(j->p->ctx, (size_t)shape[0] * n * sizeof(*all)), *at = all;
    for (int b = 0; all && b < j->branches; b++) {
        const int i = tern_job_is_negative(j, b) ? 0 : b;
        const struct tern_condition_text *text = &c->at[i].texts[c->shown[i]];
        for (int k = 0; k < j->params.count; k++, at += n)
            memcpy(at, pooled ? text->pooled : text->states, n * sizeof(*at));
    }
    tern_tensor *t = all ? tern_tensor_create(j->p->ctx, TERN_F32, ndim, shape, all) : NULL;
    tern_free(j->p->ctx, all);
    return t;
}

bool tern_job_follow_prompt(struct tern_job *j, int call)
{
    struct tern_conditions *c = j->conditions;
    bool changed = false;
    for (int i = 0; c && i < c->count; i++) {
        const int text = tern_prompt_schedule_at(&c->at[i].schedule, call - j->counted)->text;
        changed |= text != c->shown[i];
        c->shown[i] = text;
    }
    if (!changed)
        return false;
    const int64_t rows = (int64_t)j->params.count * j->branches;
    tern_tensor_unref(&j->context);
    tern_tensor_unref(&j->pooled);
    j->context = gather(j, false, 3, (const int64_t[]){rows, c->chunks * c->length, c->width});
    if (j->p->xl)
        j->pooled = gather(j, true, 2, (const int64_t[]){rows, tern_pipeline_pooled_width(j->p)});
    return true;
}

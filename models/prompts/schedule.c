/* A1111's prompt editing: [from:to:when] and [a|b], read into the texts that hold up to which step.
 *
 * One walk over the brackets tells which pairs are in order: inside of one there is no bracket, colon or bar but those that belong to
 * it or to a pair that is in order itself. All others are text. A bar that belongs to no pair, or a backslash before nothing, makes
 * the whole prompt text, as in A1111. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include <tern/context.h>

#include "core/memory.h"
#include "core/status.h"
#include "models/prompts/prompts.h"

enum pair_kind { NONE, LITERAL, SCHEDULED, ALTERNATE };

/* What begins at a bracket. */
struct pair {
    enum pair_kind kind;
    size_t end;     /* its closing bracket */
    size_t cut[2];  /* the first colon and the last */
    int cuts, when; /* colons or bars; the step of SCHEDULED */
};

struct reader {
    struct tern_context *ctx;
    const char *text;
    size_t size;
    int steps, before;  /* of this pass, of the one before it */
    struct pair *pairs; /* by the place of the opening bracket */
    char *out;          /* the text of a step */
    size_t used;
};

/* A pair that is open. */
struct open {
    size_t at, cut[2];
    int colons, bars;
    bool loose; /* something inside is not in order */
};

/* With a point in it a part of all steps, else a step. */
static bool read_when(const struct reader *r, size_t begin, size_t end, int *when)
{
    begin += tern_prompt_space(r->text + begin, end - begin);
    end -= tern_prompt_space_before(r->text + begin, end - begin);
    if (!tern_prompt_is_number(r->text + begin, end - begin))
        return false;
    const double number = tern_prompt_number(r->text + begin);
    const bool part = memchr(r->text + begin, '.', end - begin);
    const double value = part ? (number - (r->before > 0)) * r->steps : number - r->before;
    *when = value >= r->steps ? r->steps : value <= INT_MIN ? INT_MIN : (int)value;
    return true;
}

/* What the pair is that closes at `end`. */
static enum pair_kind kind_of(const struct reader *r, const struct open *o, size_t end, int *when)
{
    if (o->loose)
        return NONE;
    if (r->text[o->at] == '(')
        return !o->bars && o->colons <= 1 ? LITERAL : NONE;
    if (!o->bars && !o->colons)
        return LITERAL;
    if (o->bars)
        return o->colons ? NONE : ALTERNATE;
    return o->colons <= 2 && read_when(r, o->cut[1] + 1, end, when) ? SCHEDULED : NONE;
}

static void close_pair(struct reader *r, const struct open *o, size_t end)
{
    struct pair *p = &r->pairs[o->at];
    *p = (struct pair){.end = end, .cut = {o->cut[0], o->cut[1]}, .cuts = o->colons + o->bars};
    p->kind = kind_of(r, o, end, &p->when);
}

static void note(struct open *o, char c, size_t i)
{
    o->colons += c == ':';
    o->bars += c == '|';
    if (c == ':' && o->colons == 1)
        o->cut[0] = i;
    if (c == ':')
        o->cut[1] = i;
}

/* Finds the pairs; false when all is text, as it is with more open than tern_prompt_check lets through. */
static bool find_pairs(struct reader *r, struct open *stack)
{
    int depth = 0;
    for (size_t i = 0; i < r->size; i++) {
        const char c = r->text[i];
        if (c == '\\' && (++i == r->size || r->text[i] == '\n'))
            return false;
        if (c == '(' || c == '[') {
            if (depth > TERN_PROMPT_DEPTH)
                return false;
            stack[depth++] = (struct open){.at = i};
        } else if (depth && (c == ':' || c == '|'))
            note(&stack[depth - 1], c, i);
        else if (depth && (c == ')' || c == ']')) {
            const struct open *o = &stack[--depth];
            if (r->text[o->at] == (c == ')' ? '(' : '['))
                close_pair(r, o, i);
            else
                depth = 0; /* nothing that is open can be in order */
            if (depth && r->pairs[o->at].kind == NONE)
                stack[depth - 1].loose = true;
        }
    }
    return true;
}

/* A bar is loose when no pair around it takes it. */
static bool has_loose_bar(const struct reader *r)
{
    for (size_t i = 0; i < r->size; i++) {
        if (r->pairs[i].kind != NONE)
            i = r->pairs[i].end;
        else if (r->text[i] == '|')
            return true;
        i += r->text[i] == '\\';
    }
    return false;
}

static void render(struct reader *r, size_t begin, size_t end, int step);

/* The choice of this step. */
static void render_alternate(struct reader *r, size_t at, int step)
{
    const struct pair *p = &r->pairs[at];
    int left = (step - 1) % (p->cuts + 1);
    size_t begin = at + 1, i = begin;
    for (;; i++) {
        if (i == p->end || r->text[i] == '|') {
            if (!left-- || i == p->end)
                break;
            begin = i + 1;
        }
        i = r->pairs[i].kind != NONE ? r->pairs[i].end : i + (r->text[i] == '\\');
    }
    render(r, begin, i, step);
}

static void render_scheduled(struct reader *r, size_t at, int step)
{
    const struct pair *p = &r->pairs[at];
    const size_t middle = p->cuts == 2 ? p->cut[0] : at; /* [to:when] has nothing before */
    if (step > p->when)
        render(r, middle + 1, p->cut[1], step);
    else if (p->cuts == 2)
        render(r, at + 1, middle, step);
}

/* As deep as brackets nest. */
static void render(struct reader *r, size_t begin, size_t end, int step)
{
    for (size_t i = begin; i < end; i++) {
        const enum pair_kind kind = r->pairs[i].kind;
        if (kind == SCHEDULED || kind == ALTERNATE) {
            (kind == SCHEDULED ? render_scheduled : render_alternate)(r, i, step);
            i = r->pairs[i].end;
            continue;
        }
        r->out[r->used++] = r->text[i];
        if (r->text[i] == '\\' && i + 1 < end)
            r->out[r->used++] = r->text[++i];
    }
}

/* Index of the text among those that are there, or behind them. */
static int keep_text(struct tern_prompt_schedule *s, const char *text)
{
    for (int i = 0; i < s->n_texts; i++)
        if (!strcmp(s->texts[i], text))
            return i;
    if (tern_grow(s->ctx, (void **)&s->texts, s->n_texts, &s->capacity, sizeof(*s->texts)) &&
        (s->texts[s->n_texts] = tern_strdup(s->ctx, text)))
        s->n_texts++;
    return s->n_texts - 1;
}

/* Marks the steps after which another text may hold. */
static void mark_ends(const struct reader *r, bool *ends)
{
    ends[r->steps] = true;
    for (size_t i = 0; i < r->size; i++) {
        const struct pair *p = &r->pairs[i];
        if (p->kind == SCHEDULED && p->when >= 1)
            ends[p->when] = true;
        if (p->kind == ALTERNATE)
            memset(ends + 1, true, (size_t)r->steps);
    }
}

static enum tern_status read_parts(struct reader *r, const bool *ends, struct tern_prompt_schedule *out)
{
    for (int step = 1; step <= r->steps && !tern_failed(r->ctx); step++) {
        if (!ends[step])
            continue;
        r->used = 0;
        render(r, 0, r->size, step);
        r->out[r->used] = 0;
        out->parts[out->n_parts++] = (struct tern_scheduled){step, keep_text(out, r->out)};
    }
    return tern_error_status(r->ctx);
}

enum tern_status tern_prompt_schedule(struct tern_context *ctx, const char *text, int steps, int before, struct tern_prompt_schedule *out)
{
    struct reader r = {.ctx = ctx, .text = text, .size = strlen(text), .steps = steps, .before = before};
    *out = (struct tern_prompt_schedule){.ctx = ctx};
    out->parts = tern_calloc(ctx, (size_t)steps, sizeof(*out->parts));
    r.pairs = tern_calloc(ctx, r.size + 1, sizeof(*r.pairs));
    r.out = tern_alloc(ctx, r.size + 1);
    bool *ends = tern_calloc(ctx, (size_t)steps + 1, sizeof(*ends));
    struct open *stack = tern_calloc(ctx, TERN_PROMPT_DEPTH + 1, sizeof(*stack));
    if (!tern_failed(ctx)) {
        if (!find_pairs(&r, stack) || has_loose_bar(&r))
            memset(r.pairs, 0, (r.size + 1) * sizeof(*r.pairs));
        mark_ends(&r, ends);
        read_parts(&r, ends, out);
    }
    void *all[] = {r.pairs, r.out, ends, stack};
    for (int i = 0; i < 4; i++)
        tern_free(ctx, all[i]);
    return tern_error_status(ctx);
}

enum tern_status tern_prompt_schedule_plain(struct tern_context *ctx, const char *text, struct tern_prompt_schedule *out)
{
    *out = (struct tern_prompt_schedule){.ctx = ctx};
    out->parts = tern_calloc(ctx, 1, sizeof(*out->parts));
    if (out->parts)
        out->parts[out->n_parts++] = (struct tern_scheduled){INT_MAX, keep_text(out, text)};
    return tern_error_status(ctx);
}

void tern_prompt_schedule_free(struct tern_prompt_schedule *s)
{
    for (int i = 0; i < s->n_texts; i++)
        tern_free(s->ctx, s->texts[i]);
    tern_free(s->ctx, s->texts);
    tern_free(s->ctx, s->parts);
    *s = (struct tern_prompt_schedule){.ctx = s->ctx};
}

const struct tern_scheduled *tern_prompt_schedule_at(const struct tern_prompt_schedule *s, int call)
{
    for (int i = 0; i < s->n_parts; i++)
        if (call <= s->parts[i].end)
            return &s->parts[i];
    return &s->parts[0];
}

/* A prompt as the text encoder reads it: chunks with begin and end tokens, as many as the prompt needs. */
#include <math.h>
#include <string.h>

#include <tern/context.h>

#include "core/memory.h"
#include "core/status.h"
#include "models/prompts/prompts.h"
#include "models/tokenizers/tokenizer.h"

#define BACKTRACK 20 /* tokens behind a comma that may go to the next chunk rather than be torn from their like */

struct filling {
    const struct tern_tokenizer *t;
    const struct tern_prompt_words *words;
    struct tern_chunks *out;
    int64_t room, capacity; /* tokens of the text in a chunk; chunks that are allocated */
    int64_t used, comma;    /* of the chunk that is open: tokens; the last comma or -1 */
    int32_t comma_id;
    int64_t *ids; /* of the chunk that is open */
    float *weights;
};

enum tern_status tern_prompt_tokens(const struct tern_tokenizer *t, const char *text, size_t size, int32_t **ids, int64_t *count)
{
    enum tern_status st = t->pad == t->end ? tern_tokenize_text(t, text, size, ids, count) : tern_tokenize_words(t, text, size, ids, count);
    if (!st) {
        *count -= 2;
        memmove(*ids, *ids + 1, (size_t)*count * sizeof(**ids));
    }
    return st;
}

/* Room for one more chunk of the result. */
static bool grow(struct filling *f)
{
    struct tern_chunks *c = f->out;
    if (c->count < f->capacity)
        return true;
    const int64_t capacity = f->capacity ? 2 * f->capacity : 2;
    int64_t *ids = tern_realloc(c->ctx, c->ids, (size_t)(capacity * c->length) * sizeof(*ids));
    c->ids = ids ? ids : c->ids;
    float *weights = ids ? tern_realloc(c->ctx, c->weights, (size_t)(capacity * c->length) * sizeof(*weights)) : NULL;
    c->weights = weights ? weights : c->weights;
    f->capacity = weights ? capacity : f->capacity;
    return weights;
}

/* Closes the open chunk and opens another. In some models padding has a token of its own; a text of diffusers' may hold the end token. */
static void next_chunk(struct filling *f)
{
    struct tern_chunks *c = f->out;
    if (c->count == TERN_PROMPT_CHUNKS)
        tern_fail(c->ctx, TERN_E_INVALID, "prompt: more than %d chunks of %lld tokens", TERN_PROMPT_CHUNKS, (long long)f->room);
    if (tern_failed(c->ctx) || !grow(f))
        return;
    int64_t *ids = c->ids + c->count * c->length;
    float *weights = c->weights + c->count * c->length;
    for (int64_t i = 0; i < c->length; i++) {
        const bool text = i && i <= f->used;
        ids[i] = text ? f->ids[i - 1] : !i ? f->t->begin : i == f->used + 1 ? f->t->end : f->t->pad;
        weights[i] = text ? f->weights[i - 1] : 1;
    }
    c->count++;
    f->used = 0;
    f->comma = -1;
}

static void push(struct filling *f, int64_t id, double weight)
{
    f->ids[f->used] = id;
    f->weights[f->used++] = (float)weight;
}

/* The chunk is full: what follows a near comma goes along to the next one. */
static void turn_page(struct filling *f)
{
    const int64_t from = f->comma + 1, moved = f->used - from;
    const bool near = f->comma >= 0 && f->used - f->comma <= BACKTRACK;
    if (near)
        f->used = from;
    next_chunk(f);
    if (!near || tern_failed(f->out->ctx))
        return;
    memmove(f->ids, f->ids + from, (size_t)moved * sizeof(*f->ids));
    memmove(f->weights, f->weights + from, (size_t)moved * sizeof(*f->weights));
    f->used = moved;
}

/* The word whose tokens stand at ids[0], of several the one with most; NULL: none. */
static const struct tern_prompt_word *find_word(const struct filling *f, const int32_t *ids, int64_t n)
{
    const struct tern_prompt_word *best = NULL;
    for (int i = 0; i < f->words->count; i++) {
        const struct tern_prompt_word *w = &f->words->at[i];
        if (w->n_ids <= n && !memcmp(w->ids, ids, (size_t)w->n_ids * sizeof(*ids)) && (!best || w->n_ids > best->n_ids))
            best = w;
    }
    return best;
}

static void push_word(struct filling *f, const struct tern_prompt_word *w, double weight)
{
    if (w->vectors > f->room) {
        tern_fail(f->out->ctx, TERN_E_INVALID, "prompt: the embedding \"%.60s\" has %lld vectors; a chunk has room for %lld", w->name,
                  (long long)w->vectors, (long long)f->room);
        return;
    }
    if (f->used + w->vectors > f->room)
        next_chunk(f);
    for (int64_t k = 0; k < w->vectors && !tern_failed(f->out->ctx); k++)
        push(f, -1 - (w->first + k), weight);
}

static void push_tokens(struct filling *f, const int32_t *ids, int64_t n, double weight)
{
    for (int64_t i = 0; i < n && !tern_failed(f->out->ctx);) {
        if (ids[i] == f->comma_id)
            f->comma = f->used;
        else if (f->used == f->room)
            turn_page(f);
        if (f->used == f->room)
            next_chunk(f);
        const struct tern_prompt_word *w = find_word(f, ids + i, n - i);
        if (tern_failed(f->out->ctx))
            return;
        if (w)
            push_word(f, w, weight);
        else
            push(f, ids[i], weight);
        i += w ? w->n_ids : 1;
    }
}

static void push_span(struct filling *f, const struct tern_spans *spans, size_t i)
{
    const struct tern_span *s = &spans->at[i];
    int32_t *ids;
    int64_t n;
    if (tern_span_is_break(spans, i)) {
        next_chunk(f);
        return;
    }
    if (tern_prompt_tokens(f->t, spans->text + s->begin, s->size, &ids, &n))
        return;
    push_tokens(f, ids, n, s->weight);
    tern_tokenizer_free_ids(f->t, ids);
}

/* -1: a comma is no token of its own. */
static enum tern_status find_comma(struct filling *f)
{
    int32_t *ids;
    int64_t n;
    f->comma_id = -1;
    if (tern_prompt_tokens(f->t, ",", 1, &ids, &n))
        return tern_error_status(f->out->ctx);
    if (n == 1)
        f->comma_id = ids[0];
    tern_tokenizer_free_ids(f->t, ids);
    return TERN_OK;
}

static enum tern_status start(struct filling *f, const struct tern_tokenizer *t, const struct tern_prompt_words *words,
                              struct tern_chunks *out)
{
    *out = (struct tern_chunks){.ctx = t->ctx, .length = t->max_length};
    *f = (struct filling){.t = t, .words = words, .out = out, .room = t->max_length - 2, .comma = -1};
    if (f->room < 1)
        return tern_fail(t->ctx, TERN_E_UNSUPPORTED, "prompt: the tokenizer's texts of %d ids leave no room for words", t->max_length);
    f->ids = tern_calloc(t->ctx, (size_t)f->room, sizeof(*f->ids));
    f->weights = tern_calloc(t->ctx, (size_t)f->room, sizeof(*f->weights));
    return tern_error_status(t->ctx);
}

static enum tern_status end(struct filling *f)
{
    tern_free(f->t->ctx, f->ids);
    tern_free(f->t->ctx, f->weights);
    return tern_error_status(f->t->ctx);
}

enum tern_status tern_prompt_chunks(const struct tern_tokenizer *t, const char *text, const struct tern_prompt_words *words,
                                    struct tern_chunks *out)
{
    struct filling f;
    struct tern_spans spans = {.ctx = t->ctx};
    if (!start(&f, t, words, out) && !find_comma(&f) && !tern_prompt_attention(t->ctx, text, &spans)) {
        for (size_t i = 0; i < spans.count && !tern_failed(t->ctx); i++)
            push_span(&f, &spans, i);
        if (f.used || !out->count)
            next_chunk(&f);
    }
    tern_spans_free(&spans);
    return end(&f);
}

/* ---- plain texts */

static bool same_letter(char a, char b) { return a == b || ((a ^ b) == 0x20 && (a | 0x20) >= 'a' && (a | 0x20) <= 'z'); }

/* The word whose name stands at text[0], of several the longest; NULL: none. Diffusers' tokenizer looks for it in lower case. */
static const struct tern_prompt_word *find_name(const struct tern_prompt_words *words, const char *text)
{
    const struct tern_prompt_word *best = NULL;
    size_t most = 0;
    for (int i = 0; i < words->count; i++) {
        const char *name = words->at[i].name;
        size_t k = 0;
        while (name[k] && same_letter(name[k], text[k]))
            k++;
        if (!name[k] && k > most) {
            best = &words->at[i];
            most = k;
        }
    }
    return best;
}

/* Appends as much as the chunk takes. */
static enum tern_status push_plain(struct filling *f, const char *text, size_t size)
{
    int32_t *ids;
    int64_t n;
    if (tern_tokenize_text(f->t, text, size, &ids, &n))
        return tern_error_status(f->t->ctx);
    f->out->tokens += n - 2;
    for (int64_t i = 1; i + 1 < n && f->used < f->room; i++)
        push(f, ids[i], 1);
    tern_tokenizer_free_ids(f->t, ids);
    return TERN_OK;
}

enum tern_status tern_prompt_plain_chunk(const struct tern_tokenizer *t, const char *text, const struct tern_prompt_words *words,
                                         struct tern_chunks *out)
{
    struct filling f;
    size_t begin = 0, i = 0;
    const size_t size = strlen(text);
    start(&f, t, words, out);
    out->tokens = 2;
    while (i <= size && !tern_failed(t->ctx)) {
        const struct tern_prompt_word *w = i < size ? find_name(words, text + i) : NULL;
        if ((w || i == size) && push_plain(&f, text + begin, i - begin))
            break;
        for (int64_t k = 0; w && k < w->vectors && f.used < f.room; k++)
            push(&f, -1 - (w->first + k), 1);
        out->tokens += w ? w->vectors : 0;
        i += w ? strlen(w->name) : 1;
        begin = w ? i : begin;
    }
    if (!tern_failed(t->ctx))
        next_chunk(&f);
    return end(&f);
}

void tern_chunks_free(struct tern_chunks *c)
{
    tern_free(c->ctx, c->ids);
    tern_free(c->ctx, c->weights);
    *c = (struct tern_chunks){.ctx = c->ctx};
}

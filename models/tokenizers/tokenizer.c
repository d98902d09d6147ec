/* From text to ids: added tokens are cut out before and after normalisation, the kind does the rest. */
#include "models/tokenizers/tokenizer.h"

#include <string.h>
#include <tern/context.h>

#include "core/context.h"
#include "core/memory.h"
#include "core/status.h"
#include "models/tokenizers/unicode.h"

/* Most bytes of one text. */
#define TEXT_LIMIT ((size_t)256 << 20)

struct tern_tokenizer *tern_tokenizer_new(struct tern_context *ctx, const struct tern_tokenizer_fns *fns)
{
    struct tern_tokenizer *t = tern_calloc(ctx, 1, sizeof(*t));
    if (!t)
        return NULL;
    tern_context_ref(ctx);
    t->ctx = t->added.ctx = t->bpe.merges.ctx = t->wordpiece.vocab.ctx = ctx;
    t->fns = fns;
    return t;
}

static enum tern_status normalize_added(const void *user, const int32_t *cp, size_t n, struct tern_ints *out)
{
    const struct tern_tokenizer *t = user;
    return n ? t->fns->normalize(t, cp, n, out) : TERN_OK;
}

enum tern_status tern_tokenizer_finish(struct tern_tokenizer *t) { return tern_added_finish(&t->added, normalize_added, t); }

void tern_tokenizer_destroy(struct tern_tokenizer **tokenizer)
{
    struct tern_tokenizer *t = tokenizer ? *tokenizer : NULL;
    if (!t)
        return;
    *tokenizer = NULL;
    struct tern_context *ctx = t->ctx;
    tern_added_free(&t->added);
    tern_pairs_free(&t->bpe.merges);
    tern_vocab_free(&t->wordpiece.vocab);
    tern_free(ctx, t);
    tern_context_unref(ctx);
}

/* A part of the text that holds no token that is looked for in raw text. */
static enum tern_status encode_part(const struct tern_tokenizer *t, const int32_t *cp, size_t n, bool words, struct tern_ints *out)
{
    struct tern_ints text = {.ctx = t->ctx};
    enum tern_status st = t->fns->normalize(t, cp, n, &text);
    struct tern_added_cursor cursor = {.words = words};
    struct tern_added_part part;
    while (!st && tern_added_next(&t->added, &t->added.normalized, text.at, text.count, &cursor, &part)) {
        if (!part.token)
            st = t->fns->encode(t, text.at + part.begin, part.end - part.begin, out);
        else if (!tern_ints_push(out, part.token->id))
            st = tern_ints_error(out);
    }
    tern_ints_free(&text);
    return st;
}

/* Appends the ids of a text, with begin and end tokens. */
static enum tern_status encode_text(const struct tern_tokenizer *t, const char *text, size_t size, bool words, struct tern_ints *out)
{
    if (size > TEXT_LIMIT)
        return tern_fail(t->ctx, TERN_E_INVALID, "text to tokenize: %zu bytes; at most %zu are taken", size, TEXT_LIMIT);
    struct tern_ints cp = {.ctx = t->ctx};
    enum tern_status st = tern_utf8_decode(text, size, "text to tokenize", &cp);
    struct tern_added_cursor cursor = {.words = words};
    struct tern_added_part part;
    if (!st && !tern_ints_push(out, t->begin))
        st = tern_ints_error(out);
    while (!st && tern_added_next(&t->added, &t->added.raw, cp.at, cp.count, &cursor, &part)) {
        if (!part.token)
            st = encode_part(t, cp.at + part.begin, part.end - part.begin, words, out);
        else if (!tern_ints_push(out, part.token->id))
            st = tern_ints_error(out);
    }
    if (!st && !tern_ints_push(out, t->end))
        st = tern_ints_error(out);
    tern_ints_free(&cp);
    return st;
}

static enum tern_status tokenize(const struct tern_tokenizer *t, const char *text, size_t size, bool words, int32_t **ids, int64_t *count)
{
    struct tern_ints out = {.ctx = t->ctx};
    enum tern_status st = encode_text(t, text, size, words, &out);
    if (st)
        tern_ints_free(&out);
    *ids = out.at;
    *count = (int64_t)out.count;
    return st;
}

enum tern_status tern_tokenize_text(const struct tern_tokenizer *t, const char *text, size_t size, int32_t **ids, int64_t *count)
{
    return tokenize(t, text, size, false, ids, count);
}

enum tern_status tern_tokenize_words(const struct tern_tokenizer *t, const char *text, size_t size, int32_t **ids, int64_t *count)
{
    return tokenize(t, text, size, true, ids, count);
}

enum tern_status tern_tokenize(const struct tern_tokenizer *t, const char *text, int32_t **ids, int64_t *count)
{
    if (ids)
        *ids = NULL;
    if (count)
        *count = 0;
    if (!t)
        return TERN_E_INVALID;
    if (!text || !ids || !count)
        return tern_fail(t->ctx, TERN_E_INVALID, "tern_tokenize: expected text, ids and count, found NULL");
    return tern_tokenize_text(t, text, strlen(text), ids, count);
}

void tern_tokenizer_free_ids(const struct tern_tokenizer *t, int32_t *ids)
{
    if (t)
        tern_free(t->ctx, ids);
}

enum tern_status tern_tokenize_padded(const struct tern_tokenizer *t, const char *text, int64_t *out)
{
    if (!t)
        return TERN_E_INVALID;
    if (!text || !out)
        return tern_fail(t->ctx, TERN_E_INVALID, "tern_tokenize_padded: expected text and out, found NULL");
    int32_t *ids;
    int64_t count;
    enum tern_status st = tern_tokenize_text(t, text, strlen(text), &ids, &count);
    if (st)
        return st;
    for (int64_t i = 0; i < t->max_length; i++)
        out[i] = i < count ? ids[i] : t->pad;
    if (count > t->max_length)
        out[t->max_length - 1] = t->end;
    tern_free(t->ctx, ids);
    return TERN_OK;
}

int32_t tern_tokenizer_max_length(const struct tern_tokenizer *t) { return t ? t->max_length : 0; }
int32_t tern_tokenizer_vocab_size(const struct tern_tokenizer *t) { return t ? t->vocab_size : 0; }
int32_t tern_tokenizer_begin_id(const struct tern_tokenizer *t) { return t ? t->begin : -1; }
int32_t tern_tokenizer_end_id(const struct tern_tokenizer *t) { return t ? t->end : -1; }
int32_t tern_tokenizer_pad_id(const struct tern_tokenizer *t) { return t ? t->pad : -1; }

/* Vocabularies and merges from their files, checked piece by piece. */
#include <string.h>
#include <tern/context.h>

#include "core/memory.h"
#include "core/status.h"
#include "models/tokenizers/load.h"
#include "models/tokenizers/unicode.h"

enum tern_status tern_vocab_from_json(struct tern_vocab *v, const json_t *o, const char *where, bool dense)
{
    struct tern_context *ctx = v->ctx;
    const char *key;
    json_t *value;
    size_t n = json_object_size(o), bytes = 0;
    if (!json_is_object(o) || !n)
        return tern_fail(ctx, TERN_E_FORMAT, "%s: expected an object of pieces and ids, found %s", where,
                         json_is_object(o) ? "none" : "something else");
    size_t limit = dense ? n : TERN_VOCAB_LIMIT;
    json_object_foreach((json_t *)(uintptr_t)o, key, value) {
        json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || (uint64_t)id >= limit)
            return tern_fail(ctx, TERN_E_FORMAT, "%s: piece \"%.40s\": expected an id from 0 to %zu, found %lld%s", where, key, limit - 1,
                             (long long)id, json_is_integer(value) ? "" : " (not an integer)");
        bytes += strlen(key);
    }
    uint8_t *seen = tern_calloc(ctx, limit, 1);
    enum tern_status st = seen && tern_vocab_reserve(v, n, bytes) ? TERN_OK : tern_error_status(ctx);
    json_object_foreach((json_t *)(uintptr_t)o, key, value) {
        json_int_t id = json_integer_value(value);
        if (!st && seen[id]++)
            st = tern_fail(ctx, TERN_E_FORMAT, "%s: id %lld belongs to two pieces, one is \"%.40s\"%s", where, (long long)id, key,
                           dense ? "; so another id is missing" : "");
        if (!st && !tern_vocab_put(v, key, strlen(key), (int32_t)id))
            st = tern_error_status(ctx);
    }
    tern_free(ctx, seen);
    return st;
}

/* The next line without its end ("\n" or "\r\n"); false behind the last. */
static bool next_line(const char **text, const char *end, const char **line, size_t *size)
{
    if (*text == end)
        return false;
    const char *stop = memchr(*text, '\n', (size_t)(end - *text));
    *line = *text;
    *size = (size_t)((stop ? stop : end) - *text);
    if (stop && *size && (*line)[*size - 1] == '\r')
        --*size;
    *text = stop ? stop + 1 : end;
    return true;
}

/* Cuts white space off the end of a line of valid UTF-8, as the reference does. */
static enum tern_status trim_line(const char *line, size_t *size, struct tern_ints *scratch)
{
    uint8_t bytes[4];
    scratch->count = 0;
    enum tern_status st = tern_utf8_decode(line, *size, "line", scratch);
    while (!st && scratch->count && tern_cp_is(TERN_CP_SPACE, scratch->at[scratch->count - 1]))
        *size -= tern_utf8_encode(scratch->at[--scratch->count], bytes);
    return st;
}

enum tern_status tern_vocab_from_lines(struct tern_vocab *v, const char *text, size_t size, const char *where)
{
    struct tern_ints scratch = {.ctx = v->ctx};
    const char *end = text + size, *line;
    size_t lines = 0, n;
    for (const char *p = text; next_line(&p, end, &line, &n);)
        lines++;
    if (!lines)
        return tern_fail(v->ctx, TERN_E_FORMAT, "%s: expected one piece a line, found an empty file", where);
    enum tern_status st = tern_utf8_decode(text, size, where, &scratch);
    if (!st && !tern_vocab_reserve(v, lines, size))
        st = tern_error_status(v->ctx);
    int32_t id = 0;
    while (!st && next_line(&text, end, &line, &n)) {
        st = trim_line(line, &n, &scratch);
        if (!st && !tern_vocab_put(v, line, n, id++)) /* of two equal lines the last counts */
            st = tern_error_status(v->ctx);
    }
    tern_ints_free(&scratch);
    return st;
}

static void set_bytes(struct tern_bpe *bpe, const struct tern_vocab *v)
{
    for (int b = 0; b < 256; b++) {
        uint8_t text[4];
        size_t n = tern_utf8_encode(tern_bpe_byte_char(b), text);
        bpe->byte_id[b] = tern_vocab_find(v, (char *)text, n);
        bpe->last_id[b] = tern_vocab_find2(v, (char *)text, n, "</w>", 4);
    }
}

/* One merge; all three pieces must be in the vocabulary. A pair that comes again gets the later rank. */
static enum tern_status put_merge(struct tern_bpe *bpe, const struct tern_vocab *v, const char *a, size_t a_size, const char *b,
                                  size_t b_size, uint32_t rank, const char *where)
{
    int32_t left = tern_vocab_find(v, a, a_size), right = tern_vocab_find(v, b, b_size);
    int32_t both = tern_vocab_find2(v, a, a_size, b, b_size);
    if (left < 0 || right < 0 || both < 0)
        return tern_fail(v->ctx, TERN_E_FORMAT, "%s: merge %u, \"%.*s\" and \"%.*s\": %s is not in the vocabulary", where, rank + 1,
                         (int)(a_size < 40 ? a_size : 40), a, (int)(b_size < 40 ? b_size : 40), b,
                         left < 0    ? "the first"
                         : right < 0 ? "the second"
                                     : "the two together");
    if (!tern_pairs_put(&bpe->merges, (uint32_t)left, (uint32_t)right, rank, (uint32_t)both))
        return tern_error_status(v->ctx);
    return TERN_OK;
}

/* "left right", exactly one blank */
static enum tern_status put_line(struct tern_bpe *bpe, const struct tern_vocab *v, const char *line, size_t n, uint32_t rank,
                                 const char *where)
{
    const char *blank = memchr(line, ' ', n);
    size_t left = blank ? (size_t)(blank - line) : 0;
    if (!blank || memchr(blank + 1, ' ', n - left - 1))
        return tern_fail(v->ctx, TERN_E_FORMAT, "%s: merge %u: expected two pieces with one blank between, found \"%.*s\"", where, rank + 1,
                         (int)(n < 80 ? n : 80), line);
    return put_merge(bpe, v, line, left, blank + 1, n - left - 1, rank, where);
}

static enum tern_status put_item(struct tern_bpe *bpe, const struct tern_vocab *v, const json_t *item, uint32_t rank, const char *where)
{
    const json_t *a = json_array_get(item, 0), *b = json_array_get(item, 1);
    if (json_is_string(item))
        return put_line(bpe, v, json_string_value(item), json_string_length(item), rank, where);
    if (json_array_size(item) != 2 || !json_is_string(a) || !json_is_string(b))
        return tern_fail(v->ctx, TERN_E_FORMAT, "%s: merge %u: expected \"left right\" or [\"left\", \"right\"]", where, rank + 1);
    return put_merge(bpe, v, json_string_value(a), json_string_length(a), json_string_value(b), json_string_length(b), rank, where);
}

enum tern_status tern_bpe_from_merges(struct tern_bpe *bpe, const struct tern_vocab *v, const char *merges, size_t size, const json_t *list,
                                      const char *where)
{
    enum tern_status st = TERN_OK;
    uint32_t rank = 0;
    set_bytes(bpe, v);
    if (!merges) {
        if (!json_is_array(list))
            return tern_fail(v->ctx, TERN_E_FORMAT, "%s: \"merges\": expected an array", where);
        for (; !st && rank < json_array_size(list); rank++)
            st = put_item(bpe, v, json_array_get(list, rank), rank, where);
        return st;
    }
    const char *end = merges + size, *line;
    size_t n;
    while (!st && next_line(&merges, end, &line, &n))
        if (n < 8 || memcmp(line, "#version", 8))
            st = put_line(bpe, v, line, n, rank++, where);
    return st;
}

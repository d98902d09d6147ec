/* JSON with errors that name file and key. */
#include "core/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "core/context.h"
#include "core/files.h"
#include "core/number.h"

/* What jansson gets: a list of a string and the text, in pieces, each up to a quote: numbers stand behind it. */
struct part {
    const char *at; /* NULL: the letter x, `left` times */
    size_t left;
};

struct text {
    struct part *part, *last;
    bool ended; /* memory did */
};

static size_t next_piece(void *buffer, size_t size, void *user)
{
    struct text *t = user;
    t->ended = t->ended || errno == ENOMEM;
    while (!t->part->left && t->part < t->last)
        t->part++;
    struct part *part = t->part;
    if (t->ended || !part->left || !size)
        return 0;
    const size_t most = part->left < size ? part->left : size;
    const char *quote = part->at ? memchr(part->at, '"', most) : NULL;
    const size_t n = quote ? (size_t)(quote + 1 - part->at) : most;
    if (part->at) {
        memcpy(buffer, part->at, n);
        part->at += n;
    } else {
        memset(buffer, 'x', n);
    }
    part->left -= n;
    return n;
}

/* A text of 100 MiB may be 35 million empty lists, for which jansson takes 4.5 GiB. A tensor of a header is about ten values. */
#define MOST_VALUES (1 << 22)

/* Bytes of the longest token, or a few more; 0: there are too many values, the last one at *end. */
static size_t longest_token(const char *text, size_t size, size_t *end)
{
    static const bool ends[256] = {[' '] = true, ['\t'] = true, ['\r'] = true, ['\n'] = true, [','] = true,
                                   [':'] = true, ['['] = true,  [']'] = true,  ['{'] = true,  ['}'] = true};
    size_t most = 1, run = 0, values = 0;
    bool string = false, escaped = false;
    for (size_t i = 0; i < size; i++) { /* text may be NULL */
        const bool quote = text[i] == '"' && !escaped;
        escaped = string && !escaped && text[i] == '\\';
        most = ++run > most ? run : most;
        values += !string && (text[i] == '[' || text[i] == '{' || text[i] == ',');
        if (values > MOST_VALUES) {
            *end = i;
            return 0;
        }
        if (string ? quote : !quote && ends[(unsigned char)text[i]])
            run = 0;
        string = string != quote;
    }
    return most;
}

/* NULL with errno as it is where memory ended. jansson writes the locale's point into a number and ends the process where it has two bytes.
 */
static json_t *read_parts(struct part *parts, int n, size_t flags, json_error_t *e)
{
    struct text t = {.part = parts, .last = parts + n - 1};
    locale_t before = tern_number_enter();
    errno = 0;
    json_t *o = json_load_callback(next_piece, &t, flags, e);
    tern_number_leave(before);
    if (!t.ended && errno != ENOMEM) {
        errno = 0;
        return o;
    }
    json_decref(o);
    errno = ENOMEM;
    return NULL;
}

static json_t *too_many(const char *text, size_t end, json_error_t *e)
{
    json_error_t found = {.line = 1, .position = (int)end};
    for (size_t i = 0; i <= end; i++) {
        found.column = text[i] == '\n' ? 0 : found.column + 1;
        found.line += text[i] == '\n';
    }
    snprintf(found.text, sizeof(found.text), "more than %d values", MOST_VALUES);
    if (e)
        *e = found;
    errno = 0;
    return NULL;
}

/* jansson collects a token in a buffer that doubles when it is full. Where memory ends there, it loses bytes and goes on with what is left:
 * only errno tells, until it reads the next number, and a string without its closing quote, or with half an escape, is read beyond its end.
 * So a string of x comes first, which makes the buffer large enough for all tokens; its own quote is not the byte at which it grows. */
json_t *tern_json_read(const char *text, size_t size, size_t flags, json_error_t *e)
{
    size_t room = 16, end = 0; /* the buffer's at first */
    const size_t most = longest_token(text, size, &end);
    if (!most)
        return too_many(text, end, e);
    while (room < most)
        room *= 2;
    struct part list[] = {{"[\"", 2}, {NULL, room - 1}, {"\",", 2}, {text, size}, {"]", 1}}, alone = {text, size};
    json_t *both = read_parts(list, sizeof(list) / sizeof(*list), flags, e), *o = json_array_get(both, 1);
    if (json_array_size(both) == 2 && (json_is_object(o) || json_is_array(o) || flags & JSON_DECODE_ANY))
        json_incref(o);
    else
        o = NULL;
    json_decref(both);
    return o || errno == ENOMEM ? o : read_parts(&alone, 1, flags, e); /* what is wrong, and where */
}

/* jansson leaves a key out that finds no memory. */
char *tern_json_dumps(const json_t *o, size_t flags)
{
    locale_t before = tern_number_enter();
    errno = 0;
    char *text = json_dumps(o, flags);
    tern_number_leave(before);
    if (errno != ENOMEM)
        return text;
    free(text);
    return NULL;
}

bool tern_json_write(const json_t *o, FILE *file, size_t flags)
{
    locale_t before = tern_number_enter();
    errno = 0;
    const bool written = !json_dumpf(o, file, flags);
    tern_number_leave(before);
    return written;
}

json_t *tern_json_parse(struct tern_context *ctx, const char *text, size_t size, const char *where)
{
    json_error_t e;
    json_t *o = tern_json_read(text, size, JSON_REJECT_DUPLICATES, &e);
    if (!o)
        tern_json_fail(ctx, where, &e);
    return o;
}

/* jansson takes memory that ends for a wrong character, or says nothing. */
enum tern_status tern_json_fail(struct tern_context *ctx, const char *where, const json_error_t *e)
{
    if (tern_errno_status(TERN_E_FORMAT) == TERN_E_NO_MEMORY)
        return tern_fail(ctx, TERN_E_NO_MEMORY, "%s: no memory to read it", where);
    return tern_fail(ctx, TERN_E_FORMAT, "%s: not valid JSON: line %d, column %d: %s", where, e->line, e->column, e->text);
}

static void drop_unless(bool took, json_t **o)
{
    if (took)
        return;
    json_decref(*o);
    *o = NULL;
}

void tern_json_set(json_t **o, const char *key, json_t *value) { drop_unless(!json_object_set_new(*o, key, value), o); }

void tern_json_append(json_t **list, json_t *value) { drop_unless(!json_array_append_new(*list, value), list); }

json_t *tern_json_load(struct tern_context *ctx, const char *path)
{
    size_t size;
    char *text = tern_read_file(ctx, path, (size_t)64 << 20, &size);
    json_t *o = text ? tern_json_parse(ctx, text, size, path) : NULL;
    tern_free(ctx, text);
    return o;
}

static const char *type_name(const json_t *v)
{
    static const char *const names[] = {"an object", "an array", "a string", "an integer", "a number", "true", "false", "null"};
    return names[json_typeof(v)];
}

static enum tern_status wrong_type(struct tern_context *ctx, const char *where, const char *key, const char *expected, const json_t *v)
{
    return tern_fail(ctx, TERN_E_FORMAT, "%s: \"%s\": expected %s, found %s", where, key, expected, type_name(v));
}

enum tern_status tern_json_int(struct tern_context *ctx, const json_t *o, const char *where, const char *key, int64_t min, int64_t max,
                               int64_t *out)
{
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v))
        return TERN_OK;
    if (!json_is_integer(v))
        return wrong_type(ctx, where, key, "an integer", v);
    int64_t x = json_integer_value(v);
    if (x < min || x > max)
        return tern_fail(ctx, TERN_E_FORMAT, "%s: \"%s\": expected %lld..%lld, found %lld", where, key, (long long)min, (long long)max,
                         (long long)x);
    *out = x;
    return TERN_OK;
}

enum tern_status tern_json_number(struct tern_context *ctx, const json_t *o, const char *where, const char *key, double *out)
{
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v))
        return TERN_OK;
    if (!json_is_number(v) || !isfinite(json_number_value(v)))
        return wrong_type(ctx, where, key, "a finite number", v);
    *out = json_number_value(v);
    return TERN_OK;
}

enum tern_status tern_json_bool(struct tern_context *ctx, const json_t *o, const char *where, const char *key, bool *out)
{
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v))
        return TERN_OK;
    if (!json_is_boolean(v))
        return wrong_type(ctx, where, key, "true or false", v);
    *out = json_is_true(v);
    return TERN_OK;
}

enum tern_status tern_json_string(struct tern_context *ctx, const json_t *o, const char *where, const char *key, const char **out)
{
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v))
        return TERN_OK;
    if (!json_is_string(v))
        return wrong_type(ctx, where, key, "a string", v);
    *out = json_string_value(v);
    return TERN_OK;
}

json_t *tern_json_text(struct tern_context *ctx, const char *s)
{
    json_t *text = json_string(s); /* refuses what is not UTF-8 */
    size_t n = strlen(s), length = 0;
    char *fixed = text || n > SIZE_MAX / 3 - 1 ? NULL : tern_alloc(ctx, 3 * n + 1);
    if (!fixed)
        return text;
    for (size_t at = 0; at < n;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t took = utf8proc_iterate((const utf8proc_uint8_t *)s + at, (utf8proc_ssize_t)(n - at), &c);
        memcpy(fixed + length, took > 0 ? s + at : "\xef\xbf\xbd", took > 0 ? (size_t)took : 3);
        length += took > 0 ? (size_t)took : 3;
        at += took > 0 ? (size_t)took : 1;
    }
    text = json_stringn(fixed, length);
    tern_free(ctx, fixed);
    return text;
}

/* An infotext split as AUTOMATIC1111 splits it: lines of the prompt, lines of the negative prompt, and a last line of at least three
 * fields "Name: value", separated by commas, where a value with a comma is a JSON string. */
#include "models/pipelines/infotext.h"

#include <string.h>
#include <utf8proc.h>

#include "core/context.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/status.h"
#include "models/prompts/prompts.h"
#include "models/tokenizers/unicode.h"

#define LEAST_FIELDS 3
#define NEGATIVE "Negative prompt:"

/* A part of the text that is read. */
struct span {
    const char *s;
    size_t size;
};

static struct span strip(struct span t)
{
    size_t n = tern_prompt_space(t.s, t.size);
    t = (struct span){t.s + n, t.size - n};
    t.size -= tern_prompt_space_before(t.s, t.size);
    return t;
}

/* Bytes of the character at s when names of fields may have it, else 0. `first`: a letter, a number or '_'; else also ' ', '-', '/'. */
static size_t name_character(const char *s, size_t size, bool first)
{
    utf8proc_int32_t c;
    utf8proc_ssize_t n = size ? utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)size, &c) : 0;
    if (n <= 0)
        return 0;
    return tern_cp_is_word(c) || (!first && (c == ' ' || c == '-' || c == '/')) ? (size_t)n : 0;
}

/* The length of a quoted value that a comma or the end follows; 0: there is none. */
static size_t quoted(struct span t)
{
    size_t i = 1;
    if (!t.size || t.s[0] != '"')
        return 0;
    while (i < t.size && t.s[i] != '"')
        i += t.s[i] == '\\' ? 2 : 1;
    return i > 1 && i < t.size && (i + 1 == t.size || t.s[i + 1] == ',') ? i + 1 : 0;
}

/* The next field of a line, and what is behind it. */
static bool next_field(struct span *line, struct span *name, struct span *value)
{
    while (line->size) {
        size_t n, used = 0;
        while ((n = name_character(line->s + used, line->size - used, !used)))
            used += n;
        if (!used || used == line->size || line->s[used] != ':' || used == name_character(line->s, line->size, true)) {
            n = used ? used : 1; /* no name ends here, so none begins within it */
            *line = (struct span){line->s + n, line->size - n};
            continue;
        }
        *name = (struct span){line->s, used};
        *line = (struct span){line->s + used + 1, line->size - used - 1};
        n = tern_prompt_space(line->s, line->size);
        *line = (struct span){line->s + n, line->size - n};
        const char *comma = memchr(line->s, ',', line->size);
        n = quoted(*line);
        n = n ? n : comma ? (size_t)(comma - line->s) : line->size;
        *value = (struct span){line->s, n};
        n += n < line->size; /* the comma */
        *line = (struct span){line->s + n, line->size - n};
        return true;
    }
    return false;
}

/* A value in quotes is JSON; what is none stays as it is. */
static char *value_text(struct tern_context *ctx, struct span v)
{
    json_t *text = v.size > 1 && v.s[0] == '"' && v.s[v.size - 1] == '"' ? tern_json_read(v.s, v.size, JSON_DECODE_ANY, NULL) : NULL;
    char *out = json_is_string(text) ? tern_strdup(ctx, json_string_value(text)) : tern_strndup(ctx, v.s, v.size);
    json_decref(text);
    return out;
}

static enum tern_status read_fields(struct tern_context *ctx, struct span line, struct tern_infotext_fields *out)
{
    struct span name, value;
    while (next_field(&line, &name, &value)) {
        if (!tern_grow(ctx, (void **)&out->field, out->count, &out->capacity, sizeof(*out->field)))
            return tern_error_status(ctx);
        struct tern_infotext_field *f = &out->field[out->count++];
        *f = (struct tern_infotext_field){tern_strndup(ctx, name.s, name.size), value_text(ctx, value)};
        if (!f->name || !f->value)
            return tern_error_status(ctx);
    }
    return TERN_OK;
}

static bool is_last_line(struct span line)
{
    struct span name, value;
    int n = 0;
    while (n < LEAST_FIELDS && next_field(&line, &name, &value))
        n++;
    return n == LEAST_FIELDS;
}

/* Adds a line to one of the prompts. `used`: bytes that it has. */
static void add_line(char *to, size_t *used, struct span line)
{
    if (*used)
        to[(*used)++] = '\n';
    memcpy(to + *used, line.s, line.size);
    *used += line.size;
    to[*used] = 0;
}

/* The lines before the fields. Each prompt has room for all of them. */
static void read_lines(struct span text, char *prompt, char *negative, bool *has_negative)
{
    size_t used[2] = {0, 0};
    *has_negative = false;
    while (text.s) {
        const char *end = memchr(text.s, '\n', text.size);
        struct span line = strip((struct span){text.s, end ? (size_t)(end - text.s) : text.size});
        if (line.size >= strlen(NEGATIVE) && !memcmp(line.s, NEGATIVE, strlen(NEGATIVE))) {
            *has_negative = true;
            line = strip((struct span){line.s + strlen(NEGATIVE), line.size - strlen(NEGATIVE)});
        }
        add_line(*has_negative ? negative : prompt, &used[*has_negative], line);
        text = end ? (struct span){end + 1, text.size - (size_t)(end + 1 - text.s)} : (struct span){NULL, 0};
    }
}

enum tern_status tern_infotext_split(struct tern_context *ctx, const char *text, struct tern_infotext_fields *out)
{
    struct tern_ints characters = {.ctx = ctx};
    *out = (struct tern_infotext_fields){0};
    enum tern_status st = tern_utf8_decode(text, strlen(text), "infotext", &characters);
    tern_ints_free(&characters);
    if (st)
        return st;
    struct span all = strip((struct span){text, strlen(text)}), last = all;
    for (size_t i = all.size; i > 0; i--)
        if (all.s[i - 1] == '\n') {
            last = (struct span){all.s + i, all.size - i};
            break;
        }
    bool has_negative = false, fields = is_last_line(last);
    out->prompt = tern_calloc(ctx, all.size + 1, 1);
    out->negative = tern_calloc(ctx, all.size + 1, 1);
    if (!out->prompt || !out->negative)
        return tern_error_status(ctx);
    struct span lines = {all.s, fields ? (size_t)(last.s - all.s) : all.size};
    if (!fields || lines.size)
        read_lines((struct span){lines.s, lines.size - fields}, out->prompt, out->negative, &has_negative);
    if (!has_negative) {
        tern_free(ctx, out->negative);
        out->negative = NULL;
    }
    return fields ? read_fields(ctx, last, out) : TERN_OK;
}

void tern_infotext_fields_free(struct tern_context *ctx, struct tern_infotext_fields *f)
{
    for (int i = 0; i < f->count; i++) {
        tern_free(ctx, f->field[i].name);
        tern_free(ctx, f->field[i].value);
    }
    tern_free(ctx, f->field);
    tern_free(ctx, f->prompt);
    tern_free(ctx, f->negative);
    *f = (struct tern_infotext_fields){0};
}

const char *tern_infotext_field(const struct tern_infotext_fields *f, const char *name)
{
    for (int i = f->count; i-- > 0;)
        if (!strcmp(f->field[i].name, name))
            return f->field[i].value;
    return NULL;
}

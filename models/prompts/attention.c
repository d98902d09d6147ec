/* A1111's attention: round brackets make their text count 1.1 times as much, square ones 1 / 1.1 times, (text:1.3) as much as it says.
 * What is left open counts to the end, what closes nothing is text, and \( is a bracket that is text. */
#include <math.h>
#include <string.h>

#include <tern/context.h>

#include "core/memory.h"
#include "core/status.h"
#include "models/prompts/prompts.h"

static const char break_word[] = "BREAK";

struct scan {
    struct tern_spans *out;
    size_t used;                               /* bytes of out->text */
    uint32_t opened[2][TERN_PROMPT_BYTES + 1]; /* spans at which round and square brackets were opened */
    size_t n[2];
};

static void append(struct scan *s, const char *text, size_t size, double weight)
{
    memcpy(s->out->text + s->used, text, size);
    s->out->at[s->out->count++] = (struct tern_span){s->used, size, weight};
    s->used += size;
}

/* Text without brackets; a BREAK in it takes the white space around. */
static void append_text(struct scan *s, const char *text, size_t size)
{
    for (size_t at; (at = tern_prompt_find_word(text, size, 0, break_word)) != SIZE_MAX;) {
        append(s, text, at - tern_prompt_space_before(text, at), 1);
        append(s, break_word, strlen(break_word), -1);
        at += strlen(break_word);
        at += tern_prompt_space(text + at, size - at);
        text += at;
        size -= at;
    }
    append(s, text, size, 1);
}

static void multiply(struct scan *s, size_t from, double factor)
{
    for (size_t i = from; i < s->out->count; i++)
        s->out->at[i].weight *= factor;
}

/* ": 1.3 )" from text[0] on: its bytes, and where the number is; 0: it is something else. */
static size_t find_weight(const char *text, size_t *number, size_t *digits)
{
    size_t i = 1 + tern_prompt_space(text + 1, strlen(text + 1));
    *number = i;
    i += text[i] == '+' || text[i] == '-';
    const size_t n = strspn(text + i, ".0123456789");
    i += n;
    *digits = i - *number;
    i += tern_prompt_space(text + i, strlen(text + i));
    return n && text[i] == ')' ? i + 1 : 0;
}

static enum tern_status close_weighted(struct scan *s, const char *number, size_t digits)
{
    size_t points = 0, numerals = 0;
    for (size_t i = 0; i < digits; i++) {
        points += number[i] == '.';
        numerals += number[i] >= '0' && number[i] <= '9';
    }
    const double weight = tern_prompt_number(number);
    if (points > 1 || !numerals || !isfinite(weight))
        return tern_fail(s->out->ctx, TERN_E_INVALID, "prompt: (text:%.*s): the weight is no finite number",
                         (int)(digits < 40 ? digits : 40), number);
    multiply(s, s->opened[0][--s->n[0]], weight);
    return TERN_OK;
}

/* The piece that begins at text[i]; its bytes. */
static size_t read_piece(struct scan *s, const char *text, size_t i)
{
    static const double factors[] = {1.1, 1 / 1.1};
    const char c = text[i];
    const int kind = c == '[' || c == ']';
    size_t number, digits, size;
    if (c == '\\') {
        size = text[i + 1] && strchr("()[]\\", text[i + 1]) ? 1 : 0;
        append(s, text + i + 1, size, 1);
        return 1 + size;
    }
    if (c == '(' || c == '[') {
        s->opened[kind][s->n[kind]++] = (uint32_t)s->out->count;
        return 1;
    }
    if (c == ':' && (size = find_weight(text + i, &number, &digits))) {
        if (s->n[0])
            close_weighted(s, text + i + number, digits);
        else
            append_text(s, text + i, size);
        return size;
    }
    if ((c == ')' || c == ']') && s->n[kind]) {
        multiply(s, s->opened[kind][--s->n[kind]], factors[kind]);
        return 1;
    }
    size = c == ')' || c == ']' || c == ':' ? 1 : strcspn(text + i, "\\()[]:");
    append_text(s, text + i, size);
    return size;
}

/* Neighbours of one weight become one span. */
static void merge(struct tern_spans *s)
{
    size_t n = 0;
    for (size_t i = 1; i < s->count; i++)
        if (s->at[i].weight == s->at[n].weight)
            s->at[n].size += s->at[i].size;
        else
            s->at[++n] = s->at[i];
    s->count = s->count ? n + 1 : 0;
}

static void read_all(struct scan *s, const char *text)
{
    const size_t size = strlen(text);
    for (size_t i = 0; i < size && !tern_failed(s->out->ctx);)
        i += read_piece(s, text, i);
    while (s->n[0])
        multiply(s, s->opened[0][--s->n[0]], 1.1);
    while (s->n[1])
        multiply(s, s->opened[1][--s->n[1]], 1 / 1.1);
    if (!s->out->count)
        append(s, "", 0, 1);
    merge(s->out);
}

static enum tern_status check_weights(const struct tern_spans *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (!isfinite((float)s->at[i].weight))
            return tern_fail(s->ctx, TERN_E_INVALID, "prompt: \"%.*s\" gets the weight %g from its brackets, which is too much",
                             (int)(s->at[i].size < 60 ? s->at[i].size : 60), s->text + s->at[i].begin, s->at[i].weight);
    return TERN_OK;
}

enum tern_status tern_prompt_attention(struct tern_context *ctx, const char *text, struct tern_spans *out)
{
    const size_t size = strlen(text);
    *out = (struct tern_spans){.ctx = ctx};
    struct scan *s = tern_calloc(ctx, 1, sizeof(*s));
    out->text = tern_calloc(ctx, size + 1, 1);
    out->at = tern_calloc(ctx, size + 2, sizeof(*out->at));
    if (s && out->text && out->at) {
        s->out = out;
        read_all(s, text);
        if (!tern_failed(ctx))
            check_weights(out);
    }
    tern_free(ctx, s);
    return tern_error_status(ctx);
}

void tern_spans_free(struct tern_spans *s)
{
    tern_free(s->ctx, s->text);
    tern_free(s->ctx, s->at);
    *s = (struct tern_spans){.ctx = s->ctx};
}

bool tern_span_is_break(const struct tern_spans *s, size_t i)
{
    const struct tern_span *p = &s->at[i];
    return p->weight == -1 && p->size == strlen(break_word) && !memcmp(s->text + p->begin, break_word, p->size);
}

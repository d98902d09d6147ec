/* The words of tern_plan_params.quantize: which layers they name, and how these are to be kept; and the factors of norms. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "graph/passes/passes.h"
#include "graph/plan.h"

/* Whether a text is the word's, of n characters, in which * stands for any characters. The last * that was met is the one that gives way. */
static bool fits(const char *word, size_t n, const char *text)
{
    size_t at = 0, star = n;
    const char *behind = text; /* what follows what the star stands for */
    while (*text) {
        if (at < n && word[at] == '*') {
            star = at++;
            behind = text;
        } else if (at < n && word[at] == *text) {
            at++;
            text++;
        } else if (star < n) {
            at = star + 1;
            text = ++behind;
        } else {
            return false;
        }
    }
    while (at < n && word[at] == '*')
        at++;
    return at == n;
}

#define FORMATS TERN_LAYER_FORMATS

static const char *const suffixes[FORMATS] = {[TERN_LAYER_W8A8] = "w8a8", [TERN_LAYER_W8] = "w8", [TERN_LAYER_W4] = "w4"};

/* Of what stands behind the colon of a word; FORMATS: there is no such. */
static enum tern_layer_format format_of(const char *suffix, size_t n)
{
    enum tern_layer_format f = TERN_LAYER_W8A8;
    while (f < FORMATS && (n != strlen(suffixes[f]) || memcmp(suffix, suffixes[f], n) != 0))
        f++;
    return f;
}

/* A word: !, a name with *, a colon and a suffix, or ^ and factors. A name has neither colon nor ^. */
struct word {
    const char *name, *suffix, *factors; /* NULL: it has none */
    size_t length, suffix_length;        /* the latter of either */
    bool out;
};

/* The word at *at, which goes on to the next; false: there is none. */
static bool next_word(const char **at, struct word *w)
{
    const size_t n = strcspn(*at, " "), out = **at == '!', name = strcspn(*at + out, ":^ ");
    const char mark = (*at)[out + name];
    *w = (struct word){*at + out, NULL, NULL, name, 0, out};
    if (mark == ':' || mark == '^') {
        *(mark == ':' ? &w->suffix : &w->factors) = *at + out + name + 1;
        w->suffix_length = n - out - name - 1;
    }
    const bool any = n > 0;
    *at += n + strspn(*at + n, " ");
    return any || **at;
}

const char *tern_quantize_named(const char *words)
{
    struct word w;
    for (const char *at = words ? words : ""; next_word(&at, &w);)
        if (w.length && !w.out)
            return words;
    return NULL;
}

/* The last word that fits decides. */
enum tern_layer_format tern_quantize_format(const char *words, const char *name)
{
    enum tern_layer_format f = TERN_LAYER_PLAIN;
    struct word w;
    while (next_word(&words, &w))
        if (w.length && !w.factors && fits(w.name, w.length, name))
            f = w.out ? TERN_LAYER_PLAIN : w.suffix ? format_of(w.suffix, w.suffix_length) : TERN_LAYER_W8A8;
    return f;
}

bool tern_quantize_next_name(const char **at, char name[TERN_QUANTIZE_NAME])
{
    struct word w;
    const bool any = next_word(at, &w);
    snprintf(name, TERN_QUANTIZE_NAME, "%.*s",
             !any || w.out                   ? 0
             : w.length < TERN_QUANTIZE_NAME ? (int)w.length
                                             : TERN_QUANTIZE_NAME - 1,
             any ? w.name : "");
    return any;
}

const char *tern_quantize_factors(const char *words, const char *name, size_t *count)
{
    const char *found = NULL;
    struct word w;
    while (next_word(&words, &w))
        if (w.factors && w.length && fits(w.name, w.length, name)) {
            found = w.factors;
            *count = w.suffix_length;
        }
    return found;
}

/* Of A to Z, a to z: a quarter of an octave each. */
double tern_quantize_factor_power(char letter)
{
    const int low = letter - 'a', high = letter - 'A';
    return low >= 0 && low < TERN_FACTOR_LETTERS / 2 ? 0.25 * low : 0.25 * (high - TERN_FACTOR_LETTERS / 2);
}

char tern_quantize_factor_letter(double power)
{
    const double steps = round(4 * power), least = -TERN_FACTOR_LETTERS / 2, most = TERN_FACTOR_LETTERS / 2 - 1;
    const int k = (int)(steps > least ? steps < most ? steps : most : least);
    return (char)(k < 0 ? 'A' + TERN_FACTOR_LETTERS / 2 + k : 'a' + k);
}

size_t tern_quantize_factor_span(const char *letters)
{
    size_t n = 0;
    while ((letters[n] >= 'A' && letters[n] <= 'Z') || (letters[n] >= 'a' && letters[n] <= 'z'))
        n++;
    return n;
}

/* A word with ^ is a name and letters. */
static enum tern_status check_factors(struct tern_context *ctx, const char *field, const struct word *w)
{
    const int shown = w->length > 60 ? 60 : (int)w->length;
    const size_t good = tern_quantize_factor_span(w->factors);
    if (w->out || !w->length)
        return tern_fail(ctx, TERN_E_INVALID, "%s: word \"%s%.*s^...\": factors are those of a norm: expected its weight's name before ^",
                         field, w->out ? "!" : "", shown, w->name);
    if (!w->suffix_length || good < w->suffix_length)
        return tern_fail(ctx, TERN_E_INVALID,
                         "%s: word \"%.*s^...\": expected a letter of A to Z or a to z, a for 1, for each channel, found %s", field, shown,
                         w->name, w->suffix_length ? "another character" : "none");
    return TERN_OK;
}

enum tern_status tern_quantize_check(struct tern_context *ctx, const char *field, const char *words)
{
    struct word w;
    for (const char *at = words ? words : ""; next_word(&at, &w);) {
        const size_t length = w.length + (w.suffix ? 1 + w.suffix_length : 0);
        const int shown = length > 60 ? 60 : (int)length;
        if (w.factors && check_factors(ctx, field, &w))
            return tern_error_status(ctx);
        if (w.suffix && w.out)
            return tern_fail(ctx, TERN_E_INVALID,
                             "%s: word \"!%.*s\" says how a layer is kept, but ! leaves it as it is: expected \"!%.*s\"", field, shown,
                             w.name, w.length > 60 ? 60 : (int)w.length, w.name);
        if (w.suffix && format_of(w.suffix, w.suffix_length) == FORMATS)
            return tern_fail(ctx, TERN_E_INVALID, "%s: word \"%.*s\": behind the colon expected w8a8 (int8), w8 or w4 (weights only)",
                             field, shown, w.name);
    }
    return TERN_OK;
}

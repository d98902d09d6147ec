/* Characters of prompts: what is white space, where a word stands alone; and which texts are prompts at all. */
#include <stdio.h>
#include <string.h>

#include "core/number.h"
#include "core/status.h"
#include "models/prompts/prompts.h"
#include "models/tokenizers/unicode.h"

/* The character that begins at s[0], of valid UTF-8; *size: its bytes. */
static int32_t character(const char *s, size_t *size)
{
    const uint8_t *b = (const uint8_t *)s;
    const size_t n = b[0] < 0x80 ? 1 : b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;
    int32_t c = n == 1 ? b[0] : b[0] & (0x7f >> n);
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (b[i] & 0x3f);
    *size = n;
    return c;
}

/* The character that ends before s[end]; *size: its bytes. */
static int32_t character_before(const char *s, size_t end, size_t *size)
{
    size_t at = end - 1;
    while (at && ((uint8_t)s[at] & 0xc0) == 0x80)
        at--;
    return character(s + at, size);
}

bool tern_prompt_is_number(const char *s, size_t size)
{
    size_t i = size && (*s == '+' || *s == '-'), digits = 0;
    for (; i < size && s[i] >= '0' && s[i] <= '9'; i++)
        digits++;
    if (i < size && s[i] == '.')
        for (i++; i < size && s[i] >= '0' && s[i] <= '9'; i++)
            digits++;
    if (digits && i < size && (s[i] == 'e' || s[i] == 'E')) {
        i++;
        i += i < size && (s[i] == '+' || s[i] == '-');
        if (i == size)
            return false;
        for (; i < size && s[i] >= '0' && s[i] <= '9'; i++)
            digits++;
        if (s[i - 1] < '0' || s[i - 1] > '9')
            return false;
    }
    return digits && i == size;
}

double tern_prompt_number(const char *text) { return tern_number_parse(text, NULL); }

/* As Python has it: with the separators of ASCII. */
static bool is_space(int32_t c) { return (c >= 0x1c && c <= 0x1f) || tern_cp_is(TERN_CP_SPACE, c); }

size_t tern_prompt_space(const char *text, size_t size)
{
    size_t i = 0, n;
    while (i < size && is_space(character(text + i, &n)))
        i += n;
    return i;
}

size_t tern_prompt_space_before(const char *text, size_t size)
{
    size_t i = size, n;
    while (i && is_space(character_before(text, i, &n)))
        i -= n;
    return size - i;
}

size_t tern_prompt_find_word(const char *text, size_t size, size_t from, const char *word)
{
    const size_t length = strlen(word);
    size_t n;
    for (size_t i = from; i + length <= size; i++)
        if (!memcmp(text + i, word, length) && !(i && tern_cp_is_word(character_before(text, i, &n))) &&
            !(i + length < size && tern_cp_is_word(character(text + i + length, &n))))
            return i;
    return SIZE_MAX;
}

enum tern_status tern_prompt_check(struct tern_context *ctx, const char *what, const char *text)
{
    const size_t size = strlen(text);
    struct tern_ints cp = {.ctx = ctx};
    int depth = 0;
    if (size > TERN_PROMPT_BYTES)
        return tern_fail(ctx, TERN_E_INVALID, "%s: expected at most %d bytes, found %zu", what, TERN_PROMPT_BYTES, size);
    enum tern_status st = tern_utf8_decode(text, size, what, &cp);
    tern_ints_free(&cp);
    for (size_t i = 0; i < size && !st; i++) {
        if (text[i] == '\\') {
            i++; /* a bracket there is text */
            continue;
        }
        depth += text[i] == '(' || text[i] == '[';
        depth -= depth && (text[i] == ')' || text[i] == ']');
        if (depth > TERN_PROMPT_DEPTH)
            st = tern_fail(ctx, TERN_E_INVALID, "%s: at byte %zu more than %d brackets are open", what, i, TERN_PROMPT_DEPTH);
    }
    return st;
}

/* Lookups in the tables of classes and case, and UTF-8. */
#include "models/tokenizers/unicode.h"

#include <utf8proc.h>

#include "core/status.h"

bool tern_cp_is(enum tern_cp_class c, int32_t cp)
{
    const struct tern_range_table *t = &tern_range_tables[c];
    size_t low = 0, high = t->count; /* the first row whose end is not below cp */
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (t->rows[mid].last < (uint32_t)cp)
            low = mid + 1;
        else
            high = mid;
    }
    return low < t->count && t->rows[low].first <= (uint32_t)cp;
}

bool tern_cp_is_word(int32_t cp) { return tern_cp_is(TERN_CP_LETTER, cp) || tern_cp_is(TERN_CP_WORD, cp); }

enum tern_status tern_utf8_decode(const char *text, size_t size, const char *what, struct tern_ints *out)
{
    const uint8_t *s = (const uint8_t *)text;
    if (!tern_ints_reserve(out, size))
        return tern_ints_error(out);
    for (size_t i = 0; i < size;) {
        utf8proc_int32_t cp = s[i];
        size_t step = 1;
        if (cp >= 0x80) {
            /* a sequence has at most 4 bytes, so a longer size need not be passed */
            utf8proc_ssize_t got = utf8proc_iterate(s + i, (utf8proc_ssize_t)(size - i < 4 ? size - i : 4), &cp);
            if (got <= 0)
                return tern_fail(out->ctx, TERN_E_INVALID, "%s: not valid UTF-8 at byte %zu (0x%02x); UTF-8 text is expected", what, i,
                                 s[i]);
            step = (size_t)got;
        }
        out->at[out->count++] = cp;
        i += step;
    }
    return TERN_OK;
}

size_t tern_utf8_encode(int32_t cp, uint8_t out[4])
{
    if (cp < 0x80) {
        out[0] = (uint8_t)cp;
        return 1;
    }
    return (size_t)utf8proc_encode_char(cp, out);
}

bool tern_cp_lower(int32_t cp, struct tern_ints *out)
{
    if (cp < 0x80)
        return tern_ints_push(out, cp >= 'A' && cp <= 'Z' ? cp + 32 : cp);
    if (cp == 0x130) /* I with dot: i and a combining dot */
        return tern_ints_push(out, 'i') && tern_ints_push(out, 0x307);
    const struct tern_case_range *rows = tern_lower_table.rows;
    size_t low = 0, high = tern_lower_table.count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (rows[mid].last < (uint32_t)cp)
            low = mid + 1;
        else
            high = mid;
    }
    if (low < tern_lower_table.count && rows[low].first <= (uint32_t)cp && ((uint32_t)cp - rows[low].first) % rows[low].step == 0)
        cp += rows[low].difference;
    return tern_ints_push(out, cp);
}

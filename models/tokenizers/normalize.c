/* NFC and NFD [Unicode TR 15] with utf8proc's data, but of the Unicode version that the reference knows: code points outside
 * TERN_CP_NORMALISING pass through, as starters that combine with nothing. Marks are ordered with a counting sort, because
 * the library's own sort is quadratic in a run of marks. */
#include <string.h>
#include <utf8proc.h>

#include "core/memory.h"
#include "models/tokenizers/unicode.h"

/* Most code points that one canonical decomposition yields (U+1F82 …). */
#define MAX_DECOMPOSITION 4

static int combining_class(int32_t cp)
{
    return cp < 0x300 || !tern_cp_is(TERN_CP_NORMALISING, cp) ? 0 : (int)utf8proc_get_property(cp)->combining_class;
}

/* Sorts marks (all of a class above 0) by class; equal classes keep their order. */
static bool sort_marks(int32_t *cp, size_t n, struct tern_ints *scratch)
{
    size_t start[257] = {0};
    bool sorted = true;
    for (size_t i = 0, before = 0; i < n; i++) {
        size_t c = (size_t)combining_class(cp[i]);
        start[c + 1]++;
        sorted = sorted && c >= before;
        before = c;
    }
    if (sorted)
        return true;
    scratch->count = 0;
    if (!tern_ints_reserve(scratch, n))
        return false;
    for (size_t c = 0; c < 256; c++)
        start[c + 1] += start[c];
    for (size_t i = 0; i < n; i++)
        scratch->at[start[combining_class(cp[i])]++] = cp[i];
    memcpy(cp, scratch->at, n * sizeof(*cp));
    return true;
}

static bool order_marks(int32_t *cp, size_t n, struct tern_ints *scratch)
{
    for (size_t i = 0; i < n; i++) {
        size_t begin = i;
        while (i < n && combining_class(cp[i]))
            i++;
        if (i - begin > 1 && !sort_marks(cp + begin, i - begin, scratch))
            return false;
    }
    return true;
}

/* Appends the full decomposition of code points that are all inside TERN_CP_NORMALISING or below U+0300. */
static bool decompose(const int32_t *cp, size_t n, struct tern_ints *out)
{
    for (size_t i = 0; i < n; i++) {
        if (!tern_ints_reserve(out, MAX_DECOMPOSITION))
            return false;
        if (cp[i] < 0xc0) {
            out->at[out->count++] = cp[i];
            continue;
        }
        int boundary = 0;
        utf8proc_ssize_t got = utf8proc_decompose_char(cp[i], out->at + out->count, (utf8proc_ssize_t)(out->capacity - out->count),
                                                       UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);
        if (got > 0)
            out->count += (size_t)got;
    }
    return true;
}

/* A stretch without barriers. */
static bool normalize_stretch(enum tern_normal_form form, const int32_t *cp, size_t n, struct tern_ints *out, struct tern_ints *scratch)
{
    size_t begin = out->count;
    if (!decompose(cp, n, out) || !order_marks(out->at + begin, out->count - begin, scratch))
        return false;
    if (form == TERN_NFC) {
        utf8proc_ssize_t left =
            utf8proc_normalize_utf32(out->at + begin, (utf8proc_ssize_t)(out->count - begin), UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        if (left >= 0)
            out->count = begin + (size_t)left;
    }
    return true;
}

enum tern_status tern_normalize(enum tern_normal_form form, const int32_t *cp, size_t n, struct tern_ints *out)
{
    struct tern_ints scratch = {.ctx = out->ctx};
    const int32_t plain = form == TERN_NFC ? 0x300 : 0xc0; /* below it text is its own normal form */
    bool ok = tern_ints_reserve(out, n);
    for (size_t i = 0; ok && i < n;) {
        size_t begin = i;
        bool trivial = true;
        while (i < n && (cp[i] < 0x300 || tern_cp_is(TERN_CP_NORMALISING, cp[i]))) {
            trivial = trivial && cp[i] < plain;
            i++;
        }
        if (!trivial)
            ok = normalize_stretch(form, cp + begin, i - begin, out, &scratch);
        else if (i > begin)
            ok = tern_ints_append(out, cp + begin, i - begin);
        if (ok && i < n)
            ok = tern_ints_push(out, cp[i++]);
    }
    tern_ints_free(&scratch);
    return ok ? TERN_OK : tern_ints_error(out);
}

/* BERT: clean text, blanks around Chinese characters, accents off, lower case, words and punctuation, WordPiece. */
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "models/tokenizers/tokenizer.h"
#include "models/tokenizers/unicode.h"

/* Longer words are unknown. */
#define MAX_WORD 100

/* The reference's blocks; the first of extension E (U+2B820) is not among them. */
static bool is_chinese(int32_t cp)
{
    static const struct tern_range blocks[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},  {0x20000, 0x2a6df},
                                               {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};
    for (size_t i = 0; i < sizeof(blocks) / sizeof(*blocks); i++)
        if ((uint32_t)cp >= blocks[i].first && (uint32_t)cp <= blocks[i].last)
            return true;
    return false;
}

static bool is_space(int32_t cp) { return cp < 0x80 ? cp == ' ' || (cp >= '\t' && cp <= '\r') : tern_cp_is(TERN_CP_SPACE, cp); }

/* Control characters go, white space becomes blanks, Chinese characters stand alone. */
static bool clean(const struct tern_wordpiece *w, int32_t cp, struct tern_ints *out)
{
    if (cp >= ' ' && cp < 0x7f)
        return tern_ints_push(out, cp);
    if (tern_cp_is(TERN_CP_DROPPED, cp))
        return true;
    if (is_space(cp))
        return tern_ints_push(out, ' ');
    if (w->split_chinese && is_chinese(cp))
        return tern_ints_push(out, ' ') && tern_ints_push(out, cp) && tern_ints_push(out, ' ');
    return tern_ints_push(out, cp);
}

static enum tern_status normalize(const struct tern_tokenizer *t, const int32_t *cp, size_t n, struct tern_ints *out)
{
    const struct tern_wordpiece *w = &t->wordpiece;
    struct tern_ints cleaned = {.ctx = t->ctx}, decomposed = {.ctx = t->ctx};
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++)
        ok = clean(w, cp[i], &cleaned);
    if (ok && w->strip_accents)
        ok = tern_normalize(TERN_NFD, cleaned.at, cleaned.count, &decomposed) == TERN_OK;
    const struct tern_ints *text = w->strip_accents ? &decomposed : &cleaned;
    for (size_t i = 0; ok && i < text->count; i++) {
        int32_t c = text->at[i];
        if (w->strip_accents && c >= 0x300 && tern_cp_is(TERN_CP_MARK, c))
            continue;
        ok = w->lower ? tern_cp_lower(c, out) : tern_ints_push(out, c);
    }
    tern_ints_free(&cleaned);
    tern_ints_free(&decomposed);
    return ok ? TERN_OK : tern_ints_error(out);
}

struct word {
    char text[4 * MAX_WORD];
    size_t offset[MAX_WORD + 1]; /* of each character, and the end */
    size_t length;               /* characters */
};

/* The longest piece at character `begin` of the word; *end is where it ends. -1 when there is none. */
static int32_t longest_piece(const struct tern_vocab *v, const struct word *w, size_t begin, size_t *end)
{
    const char *prefix = begin ? "##" : "";
    size_t prefix_size = strlen(prefix), n = begin;
    uint32_t hash[MAX_WORD + 1];
    hash[begin] = tern_hash(TERN_HASH_START, prefix, prefix_size);
    while (n < w->length && prefix_size + w->offset[n + 1] - w->offset[begin] <= v->longest) {
        hash[n + 1] = tern_hash(hash[n], w->text + w->offset[n], w->offset[n + 1] - w->offset[n]);
        n++;
    }
    for (*end = n; *end > begin; --*end) {
        int32_t id =
            tern_vocab_find_hashed(v, hash[*end], prefix, prefix_size, w->text + w->offset[begin], w->offset[*end] - w->offset[begin]);
        if (id >= 0)
            return id;
    }
    return -1;
}

/* Appends the pieces of a word, or the unknown token when it is too long or some part of it has no piece. */
static enum tern_status encode_word(const struct tern_wordpiece *wp, const int32_t *cp, size_t n, struct tern_ints *out)
{
    struct word w;
    w.length = n;
    w.offset[0] = 0;
    size_t before = out->count;
    bool known = n <= MAX_WORD;
    for (size_t i = 0; known && i < n; i++)
        w.offset[i + 1] = w.offset[i] + tern_utf8_encode(cp[i], (uint8_t *)w.text + w.offset[i]);
    for (size_t i = 0, end; known && i < n; i = end) {
        int32_t id = longest_piece(&wp->vocab, &w, i, &end);
        known = id >= 0;
        if (known && !tern_ints_push(out, id))
            return tern_ints_error(out);
    }
    if (known)
        return TERN_OK;
    out->count = before;
    if (wp->unk < 0)
        return tern_fail(out->ctx, TERN_E_FORMAT, "tokenizer: a word is not in the vocabulary, and the vocabulary has no unknown token");
    return tern_ints_push(out, wp->unk) ? TERN_OK : tern_ints_error(out);
}

static bool is_punctuation(int32_t cp)
{
    if (cp < 0x80)
        return cp > ' ' && cp < 0x7f && !(cp >= '0' && cp <= '9') && !((cp | 32) >= 'a' && (cp | 32) <= 'z');
    return tern_cp_is(TERN_CP_PUNCTUATION, cp);
}

static enum tern_status encode(const struct tern_tokenizer *t, const int32_t *cp, size_t n, struct tern_ints *out)
{
    enum tern_status st = TERN_OK;
    for (size_t i = 0; !st && i < n;) {
        size_t begin = i++;
        if (is_space(cp[begin]))
            continue;
        if (!is_punctuation(cp[begin]))
            while (i < n && !is_space(cp[i]) && !is_punctuation(cp[i]))
                i++;
        st = encode_word(&t->wordpiece, cp + begin, i - begin, out);
    }
    return st;
}

const struct tern_tokenizer_fns tern_bert_fns = {normalize, encode};

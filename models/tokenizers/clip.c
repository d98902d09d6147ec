/* CLIP: NFC, white space to blanks, lower case, CLIP's word pattern, GPT-2's bytes, byte pair encoding [Radford 2021]. */
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "models/tokenizers/tokenizer.h"
#include "models/tokenizers/unicode.h"

static enum tern_status normalize(const struct tern_tokenizer *t, const int32_t *cp, size_t n, struct tern_ints *out)
{
    struct tern_ints composed = {.ctx = t->ctx};
    enum tern_status st = tern_normalize(TERN_NFC, cp, n, &composed);
    for (size_t i = 0; !st && i < composed.count;) {
        bool ok;
        if (tern_cp_is(TERN_CP_SPACE, composed.at[i])) {
            ok = tern_ints_push(out, ' ');
            while (i < composed.count && tern_cp_is(TERN_CP_SPACE, composed.at[i]))
                i++;
        } else {
            ok = tern_cp_lower(composed.at[i++], out);
        }
        if (!ok)
            st = tern_ints_error(out);
    }
    tern_ints_free(&composed);
    return st;
}

enum word_class { LETTER, NUMBER, SPACE, OTHER };

static enum word_class class_of(int32_t cp)
{
    if (cp < 0x80)
        return (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z') ? LETTER
               : cp >= '0' && cp <= '9'                             ? NUMBER
               : cp == ' ' || (cp >= '\t' && cp <= '\r')            ? SPACE
                                                                    : OTHER;
    return tern_cp_is(TERN_CP_LETTER, cp)   ? LETTER
           : tern_cp_is(TERN_CP_NUMBER, cp) ? NUMBER
           : tern_cp_is(TERN_CP_SPACE, cp)  ? SPACE
                                            : OTHER;
}

/* True when cp begins with the ASCII text. */
static bool begins_with(const int32_t *cp, size_t n, const char *text)
{
    size_t i = 0;
    while (text[i] && i < n && cp[i] == text[i])
        i++;
    return !text[i];
}

/* Length of the word that begins at cp[0], which is no white space, by the pattern
 * <|startoftext|> | <|endoftext|> | 's | 't | 're | 've | 'm | 'll | 'd | letters | one number | others
 * and, inside the first two, GPT-2's pattern, which cuts them into "<|", the name and "|>". So a marker is three words,
 * of which the first is found here; the name is letters, and *close tells that the next "|>" is a word of its own. */
static size_t word_length(const int32_t *cp, size_t n, bool *close)
{
    static const char *const contractions[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    if (*close && begins_with(cp, n, "|>")) {
        *close = false;
        return 2;
    }
    if (cp[0] == '<' && (begins_with(cp, n, "<|startoftext|>") || begins_with(cp, n, "<|endoftext|>"))) {
        *close = true;
        return 2;
    }
    if (cp[0] == '\'')
        for (size_t i = 0; i < sizeof(contractions) / sizeof(*contractions); i++)
            if (begins_with(cp, n, contractions[i]))
                return strlen(contractions[i]);
    enum word_class c = class_of(cp[0]);
    size_t length = 1;
    while (c != NUMBER && length < n && class_of(cp[length]) == c)
        length++;
    return length;
}

static enum tern_status encode(const struct tern_tokenizer *t, const int32_t *cp, size_t n, struct tern_ints *out)
{
    struct tern_bpe_work work = {.ctx = t->ctx};
    enum tern_status st = TERN_OK;
    bool close = false;
    uint8_t *word = tern_calloc(t->ctx, n, 4); /* UTF-8 */
    if (!word)
        st = tern_ints_error(out);
    for (size_t i = 0; !st && i < n;) {
        if (class_of(cp[i]) == SPACE) {
            i++;
            continue;
        }
        size_t length = word_length(cp + i, n - i, &close), bytes = 0;
        for (size_t j = 0; j < length; j++)
            bytes += tern_utf8_encode(cp[i + j], word + bytes);
        st = tern_bpe_encode(&t->bpe, word, bytes, &work, out);
        i += length;
    }
    tern_bpe_work_free(&work);
    tern_free(t->ctx, word);
    return st;
}

const struct tern_tokenizer_fns tern_clip_fns = {normalize, encode};

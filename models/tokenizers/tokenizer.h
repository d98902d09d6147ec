/* The inside of a tokenizer: added tokens around one of two kinds, CLIP's byte pairs or BERT's word pieces. */
#ifndef TERN_TOKENIZERS_TOKENIZER_H
#define TERN_TOKENIZERS_TOKENIZER_H

#include <tern/tokenizer.h>

#include "models/tokenizers/added.h"
#include "models/tokenizers/bpe.h"
#include "models/tokenizers/vocab.h"

/* How a kind treats the text between added tokens; n > 0 code points. */
struct tern_tokenizer_fns {
    /* Appends the normalised text. */
    enum tern_status (*normalize)(const struct tern_tokenizer *t, const int32_t *cp, size_t n, struct tern_ints *out);
    /* Appends the ids of normalised text. */
    enum tern_status (*encode)(const struct tern_tokenizer *t, const int32_t *cp, size_t n, struct tern_ints *out);
};
extern const struct tern_tokenizer_fns tern_clip_fns, tern_bert_fns;

/* WordPiece [Schuster 2012] over BERT's basic tokens. */
struct tern_wordpiece {
    struct tern_vocab vocab;
    int32_t unk; /* -1: the vocabulary lacks it */
    bool lower, split_chinese, strip_accents;
};

/* Immutable once loaded. */
struct tern_tokenizer {
    struct tern_context *ctx; /* one reference */
    const struct tern_tokenizer_fns *fns;
    struct tern_added added;
    int32_t begin, end, pad, vocab_size, max_length;
    struct tern_bpe bpe;             /* CLIP */
    struct tern_wordpiece wordpiece; /* BERT */
};

/* An empty tokenizer; free with tern_tokenizer_destroy. */
struct tern_tokenizer *tern_tokenizer_new(struct tern_context *ctx, const struct tern_tokenizer_fns *fns);
/* Prepares the search for added tokens: the last step of loading. */
enum tern_status tern_tokenizer_finish(struct tern_tokenizer *t);
/* tern_tokenize for a text that may hold NUL characters. */
enum tern_status tern_tokenize_text(const struct tern_tokenizer *t, const char *text, size_t size, int32_t **ids, int64_t *count);
/* The same where no part of the text is a special token: markers and padding are words. What a vocabulary has been widened by, as
 * Taiyi-XL's by Chinese characters, is not special. */
enum tern_status tern_tokenize_words(const struct tern_tokenizer *t, const char *text, size_t size, int32_t **ids, int64_t *count);

#endif

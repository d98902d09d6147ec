/* Byte pair encoding of one word [Sennrich 2016], on bytes as GPT-2 does it, with CLIP's end-of-word pieces. */
#ifndef TERN_TOKENIZERS_BPE_H
#define TERN_TOKENIZERS_BPE_H

#include "models/tokenizers/ints.h"
#include "models/tokenizers/pairs.h"

/* Immutable once loaded. */
struct tern_bpe {
    struct tern_pairs merges; /* (left id, right id) -> (rank, id of both) */
    int32_t byte_id[256];     /* -1: the vocabulary lacks it */
    int32_t last_id[256];     /* the byte as the last one of a word */
    int32_t unk;              /* for bytes without a piece; -1: the vocabulary lacks that too */
};

/* Memory that one call uses word after word. Start with {.ctx = ctx}. */
struct tern_bpe_work {
    struct tern_context *ctx;
    struct tern_bpe_symbol *symbols;
    struct tern_bpe_merge *heap;
    size_t capacity; /* symbols */
};
void tern_bpe_work_free(struct tern_bpe_work *w);

/* Appends the ids of a word of n > 0 bytes. O(n log n). */
enum tern_status tern_bpe_encode(const struct tern_bpe *bpe, const uint8_t *word, size_t n, struct tern_bpe_work *w, struct tern_ints *out);

/* GPT-2's printable stand-in for a byte: itself, or 256 + n for the n-th of those that are not printable. */
int32_t tern_bpe_byte_char(int byte);

#endif

/* The pieces of a vocabulary: text to id. */
#ifndef TERN_TOKENIZERS_VOCAB_H
#define TERN_TOKENIZERS_VOCAB_H

#include <tern/base.h>

/* Most ids of a vocabulary, added tokens included. */
#define TERN_VOCAB_LIMIT ((size_t)1 << 24)

/* Start with {.ctx = ctx}. */
struct tern_vocab {
    struct tern_context *ctx;
    struct tern_piece {
        size_t text; /* offset into `texts` */
        uint32_t size, hash;
        int32_t id;
    } * pieces;
    uint32_t *slots; /* 1 + index of a piece, 0: empty; mask + 1 slots, at most half full */
    char *texts;
    size_t count, mask, used, capacity, texts_capacity;
    size_t longest; /* bytes of the longest piece */
};

/* FNV-1a; a text may be hashed in parts. */
#define TERN_HASH_START 2166136261u
static inline uint32_t tern_hash(uint32_t h, const void *text, size_t size)
{
    const uint8_t *s = text;
    for (size_t i = 0; i < size; i++)
        h = (h ^ s[i]) * 16777619u;
    return h;
}

/* Room for n pieces and their texts of `bytes` bytes together; puts beyond that are refused. */
bool tern_vocab_reserve(struct tern_vocab *v, size_t n, size_t bytes);
/* Adds a piece; a text that is there gets the new id. */
bool tern_vocab_put(struct tern_vocab *v, const char *text, size_t size, int32_t id);
/* The id of the piece `prefix` + `text`, whose hash is given; -1 when there is none. */
int32_t tern_vocab_find_hashed(const struct tern_vocab *v, uint32_t hash, const char *prefix, size_t prefix_size, const char *text,
                               size_t size);
/* The id of the piece a + b. */
int32_t tern_vocab_find2(const struct tern_vocab *v, const char *a, size_t a_size, const char *b, size_t b_size);
int32_t tern_vocab_find(const struct tern_vocab *v, const char *text, size_t size);
void tern_vocab_free(struct tern_vocab *v);

#endif

/* A hash table from pairs of 32-bit numbers to pairs of 32-bit numbers: BPE merges (left, right) -> (rank, id), and the
 * edges of a trie (node, code point) -> (node, 0). */
#ifndef TERN_TOKENIZERS_PAIRS_H
#define TERN_TOKENIZERS_PAIRS_H

#include <tern/base.h>

struct tern_pair {
    uint32_t a, b; /* key; a is TERN_PAIR_NONE in an empty slot */
    uint32_t x, y;
};
#define TERN_PAIR_NONE UINT32_MAX

/* Start with {.ctx = ctx}. */
struct tern_pairs {
    struct tern_context *ctx;
    struct tern_pair *slots;
    size_t count, mask; /* mask + 1 slots, a power of two, at most three quarters full */
};

/* Room for n pairs in all. */
bool tern_pairs_reserve(struct tern_pairs *p, size_t n);
/* Adds or replaces; a is not TERN_PAIR_NONE. False (error recorded) when there is no memory. */
bool tern_pairs_put(struct tern_pairs *p, uint32_t a, uint32_t b, uint32_t x, uint32_t y);
void tern_pairs_free(struct tern_pairs *p);

static inline size_t tern_pair_hash(uint32_t a, uint32_t b)
{
    /* multiplicative hashing [Knuth, 6.4]; the high half is the well mixed one */
    uint64_t h = ((uint64_t)a << 32 | b) * 0x9e3779b97f4a7c15u;
    return (size_t)(h >> 32 ^ h >> 15);
}

/* The pair with that key, NULL when there is none. */
static inline const struct tern_pair *tern_pairs_get(const struct tern_pairs *p, uint32_t a, uint32_t b)
{
    if (!p->count)
        return NULL;
    for (size_t i = tern_pair_hash(a, b) & p->mask;; i = (i + 1) & p->mask) {
        const struct tern_pair *s = &p->slots[i];
        if (s->a == a && s->b == b)
            return s;
        if (s->a == TERN_PAIR_NONE)
            return NULL;
    }
}

#endif

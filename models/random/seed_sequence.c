/* numpy.random.SeedSequence: seeds for the nodes of a tree, mixed from an entropy and the node's place [O'Neill 2015, "Developing a
 * seed_seq alternative"]. */
#include "models/random/random.h"

#define POOL TERN_SEED_POOL

/* A multiplicative hash whose constant changes with every word. */
struct hash {
    uint32_t constant, factor;
};

static uint32_t hash(struct hash *h, uint32_t value)
{
    value ^= h->constant;
    h->constant *= h->factor;
    value *= h->constant;
    return value ^ value >> 16;
}

static uint32_t mix(uint32_t x, uint32_t y)
{
    uint32_t z = 0xca01f9ddu * x - 0x4973f715u * y;
    return z ^ z >> 16;
}

/* A number as 32-bit words, lowest first; 0 is one word. */
static int put_words(uint64_t value, uint32_t *out)
{
    out[0] = (uint32_t)value;
    out[1] = (uint32_t)(value >> 32);
    return out[1] ? 2 : 1;
}

void tern_seed_sequence(uint64_t entropy, const uint64_t *spawn_key, int keys, uint32_t *out, int n)
{
    uint32_t word[POOL + 2 * TERN_SEED_MAX_KEYS] = {0}, pool[POOL];
    struct hash in = {0x43b0d7e5u, 0x931e8875u}, result = {0x8b51f9ddu, 0x58f38dedu};
    int words = POOL; /* the spawn key stands behind a full pool */
    put_words(entropy, word);
    for (int i = 0; i < keys; i++)
        words += put_words(spawn_key[i], word + words);

    for (int i = 0; i < POOL; i++)
        pool[i] = hash(&in, word[i]);
    for (int from = 0; from < POOL; from++)
        for (int to = 0; to < POOL; to++)
            if (from != to)
                pool[to] = mix(pool[to], hash(&in, pool[from]));
    for (int from = POOL; from < words; from++)
        for (int to = 0; to < POOL; to++)
            pool[to] = mix(pool[to], hash(&in, word[from]));
    for (int i = 0; i < n; i++)
        out[i] = hash(&result, pool[i % POOL]);
}

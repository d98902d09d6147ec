/* What the generators share: the two engines and the transform from uniform to normal numbers. */
#ifndef TERN_MODELS_RANDOM_RANDOM_H
#define TERN_MODELS_RANDOM_RANDOM_H

#include <tern/random.h>

/* MT19937 [Matsumoto, Nishimura 1998]. Uses the low 32 bits of the seed, as PyTorch does. */
void tern_mt19937_seed(struct tern_generator *g, uint64_t seed);
uint32_t tern_mt19937_next(struct tern_generator *g);

/* The CUDA generator's draw number g->offset: one value for each subsequence 0..n-1; g->offset goes up by one. */
void tern_philox_randn(struct tern_generator *g, float *out, int64_t n);
void tern_philox_rand(struct tern_generator *g, float *out, int64_t n);

/* 16 uniforms in [0, 1) -> 16 normals in place; value i is paired with i + 8. */
void tern_box_muller_16(float x[16]);

/* Bytes that a tern_brownian of that range and width has. */
size_t tern_brownian_bytes(double low, double high, int64_t n);

/* seed_sequence.c: numpy.random.SeedSequence(entropy, spawn_key = `keys` numbers, at most TERN_SEED_MAX_KEYS,
 * pool_size = 24).generate_state(n). Of an entropy without a spawn key, too: zeros fill the pool either way. */
#define TERN_SEED_POOL 24
#define TERN_SEED_MAX_KEYS 2
void tern_seed_sequence(uint64_t entropy, const uint64_t *spawn_key, int keys, uint32_t *out, int n);

#endif

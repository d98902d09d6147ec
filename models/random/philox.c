/* Philox 4x32-10 as PyTorch's CUDA generator uses it through cuRAND: thread i has subsequence i, each call of randn or
 * rand moves the offset on by one block. The layout is that of a tensor for which the GPU starts one thread per value:
 * up to 256 threads x resident blocks (40,960 values on a T4, 221,184 on an A100, more on larger GPUs). */
#include "ops/philox.h"
#include "models/random/random.h"

void tern_philox_randn(struct tern_generator *g, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = tern_philox_normal(g->seed, g->offset, (uint64_t)i);
    g->offset++;
}

void tern_philox_rand(struct tern_generator *g, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = tern_philox_uniform(g->seed, g->offset, (uint64_t)i);
    g->offset++;
}

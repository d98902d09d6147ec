/* What OFT and BOFT make of a weight: its outputs turned in blocks, R W, with R orthogonal.      [Qiu 2023; Liu 2023, 2311.06243]
 * As LyCORIS, kohya's scripts and AUTOMATIC1111: each block is Cayley's R = (I + Q) (I - Q)^-1 of Q = B - B^T. */
#include <math.h>
#include <tern/ops.h>

#include "core/memory.h"
#include "core/status.h"
#include "core/tensor.h"
#include "core/threads.h"
#include "models/files/lora.h"
#include "models/files/weights.h"

/* Blocks of n x n, each replaced by its rotation. */
struct blocks {
    float *at;
    double *scratch; /* one block for each thread */
    double factor;   /* of Q */
    int64_t n;
};

/* a^-1 in its place, by Gauss and Jordan. Its symmetric part is I, so that no pivot is below 1 and none has to be looked for. */
static void invert(double *a, int64_t n)
{
    for (int64_t p = 0; p < n; p++) {
        double *row = a + p * n;
        const double pivot = 1 / row[p];
        row[p] = 1;
        for (int64_t c = 0; c < n; c++)
            row[c] *= pivot;
        for (int64_t r = 0; r < n; r++) {
            double *other = a + r * n;
            const double by = other[p];
            if (r == p)
                continue;
            other[p] = 0;
            for (int64_t c = 0; c < n; c++)
                other[c] -= by * row[c];
        }
    }
}

/* R = 2 (I - Q)^-1 - I */
static void rotate(void *arg, int slot, int64_t i)
{
    const struct blocks *b = arg;
    const int64_t n = b->n;
    float *at = b->at + i * n * n;
    double *a = b->scratch + slot * n * n;
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < n; c++)
            a[r * n + c] = (r == c) - b->factor * ((double)at[r * n + c] - (double)at[c * n + r]);
    invert(a, n);
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < n; c++)
            at[r * n + c] = (float)(2 * a[r * n + c] - (r == c));
}

/* What Q of all blocks is multiplied by, so that its norm is no larger than the constraint. */
static double shrink(const struct blocks *b, int64_t count, double constraint)
{
    double sum = 0;
    for (int64_t i = 0; constraint > 0 && i < count; i++) {
        const float *at = b->at + i * b->n * b->n;
        for (int64_t r = 0; r < b->n; r++)
            for (int64_t c = 0; c < b->n; c++)
                sum += pow((double)at[r * b->n + c] - (double)at[c * b->n + r], 2);
    }
    return constraint > 0 && sqrt(sum) > constraint ? constraint / sqrt(sum) : 1;
}

/* The rotations of blocks (..., n, n) as (count, n, n), f32. */
static tern_tensor *rotations(const struct tern_lora_file *f, const tern_tensor *t, double constraint)
{
    struct tern_context *ctx = f->ctx;
    const int64_t n = tern_tensor_size(t, tern_tensor_ndim(t) - 1), count = tern_tensor_numel(t) / (n * n);
    const size_t bytes = (size_t)(count * n * n) * sizeof(float);
    struct blocks b = {.at = tern_alloc(ctx, bytes), .n = n};
    b.scratch = b.at ? tern_calloc(ctx, (size_t)tern_thread_count(ctx), (size_t)(n * n) * sizeof(double)) : NULL;
    tern_tensor *out = NULL;
    if (b.scratch && !tern_tensor_read(t, TERN_F32, b.at, bytes)) {
        b.factor = shrink(&b, count, constraint);
        tern_parallel_slots(ctx, count, rotate, &b);
        out = tern_tensor_create(ctx, TERN_F32, 3, (const int64_t[]){count, n, n}, b.at);
    }
    tern_free(ctx, b.scratch);
    tern_free(ctx, b.at);
    return out;
}

/* OFT: block k turns the outputs k n to (k + 1) n, by its transposed. w: (out, all else) */
static tern_tensor *turn(tern_tensor *r, tern_tensor *w)
{
    if (!r)
        return NULL;
    const int64_t shape[] = {tern_tensor_size(r, 0), tern_tensor_size(r, 1), -1};
    return tern_matmul(tern_transpose(r, 1, 2), tern_reshape(w, 3, shape));
}

/* BOFT: factor i turns outputs that lie 2^i n / 2 apart. r: (m count, n, n) */
static tern_tensor *turn_butterfly(tern_tensor *r, int64_t m, tern_tensor *w)
{
    if (!r)
        return NULL;
    const int64_t count = tern_tensor_size(r, 0) / m, n = tern_tensor_size(r, 1);
    for (int64_t i = 0; i < m; i++) {
        const int64_t apart = (n / 2) << i, groups = count * n / (2 * apart);
        tern_tensor *x = tern_permute(tern_reshape(w, 4, (const int64_t[]){groups, 2, apart, -1}), 4, (const int[]){0, 2, 1, 3});
        x = tern_matmul(tern_slice(r, 0, i * count, (i + 1) * count, 1), tern_reshape(x, 3, (const int64_t[]){count, n, -1}));
        w = tern_permute(tern_reshape(x, 4, (const int64_t[]){groups, apart, 2, -1}), 4, (const int[]){0, 2, 1, 3});
    }
    return w;
}

/* The whole turn and the factors of the outputs count `strength` times, as in AUTOMATIC1111: what LyCORIS and ComfyUI make of a strength
 * differs between them and between their versions, and is the same at 1. */
tern_tensor *tern_lora_rotation(const struct tern_lora_file *f, const struct tern_lora_module *m, tern_tensor *w, double strength)
{
    const int64_t blocks = m->tensor[TERN_LORA_OFT_BLOCKS], diag = m->tensor[TERN_LORA_OFT_DIAG], rescale = m->tensor[TERN_LORA_RESCALE];
    tern_tensor *t = tern_weights_at(f->weights, (blocks ? blocks : diag) - 1), *flat, *x;
    flat = tern_reshape(w, 2, (const int64_t[]){w->meta.shape[0], -1});
    if (diag)
        x = turn(tern_cast(t, TERN_F32), flat);
    else if (m->butterfly)
        x = turn_butterfly(rotations(f, t, m->constraint), tern_tensor_size(t, 0), flat);
    else
        x = turn(rotations(f, t, m->constraint), flat);
    x = tern_reshape(x, 2, (const int64_t[]){w->meta.shape[0], -1});
    if (rescale)
        x = tern_mul(x, tern_reshape(tern_cast(tern_weights_at(f->weights, rescale - 1), TERN_F32), 2, (const int64_t[]){-1, 1}));
    return tern_mul_scalar(tern_sub(x, flat), strength);
}

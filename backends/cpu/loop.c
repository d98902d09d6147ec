/* Loops over strided operands. */
#include "backends/cpu/loop.h"

#include <string.h>

#include "core/threads.h"

#define CHUNK 16384 /* elements of one call at most */

static void swap_dims(struct cpu_loop *l, int a, int b)
{
    int64_t t = l->shape[a];
    l->shape[a] = l->shape[b];
    l->shape[b] = t;
    for (int i = 0; i < l->operands; i++) {
        t = l->stride[i][a];
        l->stride[i][a] = l->stride[i][b];
        l->stride[i][b] = t;
    }
}

/* Largest output stride first. */
static void order_dims(struct cpu_loop *l)
{
    for (int i = 1; i < l->ndim; i++)
        for (int j = i; j > 0 && l->stride[0][j - 1] < l->stride[0][j]; j--)
            swap_dims(l, j - 1, j);
}

static bool can_merge(const struct cpu_loop *l, int d)
{
    for (int i = 0; i < l->operands; i++)
        if (l->stride[i][d] != l->stride[i][d + 1] * l->shape[d + 1])
            return false;
    return true;
}

static void remove_dim(struct cpu_loop *l, int d)
{
    for (int j = d; j + 1 < l->ndim; j++)
        swap_dims(l, j, j + 1);
    l->ndim--;
}

struct cpu_loop tern_cpu_loop_make(int operands, const struct tern_meta *const *metas)
{
    struct cpu_loop l = {.operands = operands, .ndim = metas[0]->ndim};
    memcpy(l.shape, metas[0]->shape, sizeof(l.shape));
    memcpy(l.stride[0], metas[0]->stride, sizeof(l.stride[0]));
    for (int i = 1; i < operands; i++)
        tern_broadcast_strides(metas[i], metas[0], l.stride[i]);
    for (int d = l.ndim - 1; d >= 0; d--)
        if (l.shape[d] == 1)
            remove_dim(&l, d);
    order_dims(&l);
    for (int d = l.ndim - 2; d >= 0; d--)
        if (can_merge(&l, d)) {
            l.shape[d + 1] *= l.shape[d];
            remove_dim(&l, d);
        }
    if (!l.ndim) {
        l.ndim = 1;
        l.shape[0] = 1;
        for (int i = 0; i < operands; i++)
            l.stride[i][0] = 1;
    }
    return l;
}

struct run {
    const struct cpu_loop *loop;
    void (*fn)(void *arg, const struct cpu_loop *loop, const int64_t *at, int64_t n);
    void *arg;
    int64_t chunks; /* per inner run */
};

static void run_range(void *arg, int64_t begin, int64_t end)
{
    const struct run *r = arg;
    const struct cpu_loop *l = r->loop;
    int inner = l->ndim - 1;
    for (int64_t i = begin; i < end; i++) {
        int64_t at[CPU_LOOP_OPERANDS], start = i % r->chunks * CHUNK, rest = i / r->chunks;
        int64_t n = l->shape[inner] - start < CHUNK ? l->shape[inner] - start : CHUNK;
        for (int k = 0; k < l->operands; k++)
            at[k] = start * l->stride[k][inner];
        for (int d = inner - 1; d >= 0; d--) {
            int64_t index = rest % l->shape[d];
            rest /= l->shape[d];
            for (int k = 0; k < l->operands; k++)
                at[k] += index * l->stride[k][d];
        }
        r->fn(r->arg, l, at, n);
    }
}

void tern_cpu_loop_run(struct tern_context *ctx, const struct cpu_loop *loop,
                       void (*fn)(void *arg, const struct cpu_loop *loop, const int64_t *at, int64_t n), void *arg)
{
    int64_t inner = loop->shape[loop->ndim - 1], outer = 1;
    for (int d = 0; d < loop->ndim - 1; d++)
        outer *= loop->shape[d];
    if (!inner || !outer)
        return;
    struct run r = {loop, fn, arg, (inner + CHUNK - 1) / CHUNK};
    int64_t run = inner < CHUNK ? inner : CHUNK;
    tern_parallel(ctx, outer * r.chunks, 2 * CHUNK / run, run_range, &r);
}

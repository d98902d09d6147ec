/* matmul: batches of products, in chunks whose matrices are packed together. */
#include "backends/cpu/matmul.h"

#include "backends/cpu/integers.h"
#include "core/threads.h"
#include "ops/reference.h"

#define MOST_PACKED ((size_t)8 << 20) /* bytes of a chunk of packed matrices */

/* All of a batch as rows of one product: they meet the same matrix, and are as far apart as rows. */
static bool merges(const struct cpu_matmul *p)
{
    int64_t next = p->m * p->lda;
    for (int i = p->dims.ndim - 1; i >= 0; i--) {
        if (p->dims.shape[i] == 1)
            continue;
        if (p->other_stride[i] || p->x_stride[i] != next)
            return false;
        next *= p->dims.shape[i];
    }
    return true;
}

bool tern_cpu_matmul_of(const struct tern_op_desc *d, enum tern_dtype dtype, struct cpu_matmul *p)
{
    struct tern_product q = {.m = 0};
    if (d->in[0].dtype != dtype || d->in[1].dtype != dtype || d->out.dtype != dtype || !tern_meta_is_contiguous(&d->out) ||
        !tern_product_of(d, &q) || q.k < 1)
        return false;
    const int64_t *x = q.x.stride + q.x.ndim - 2, *other = q.other.stride + q.other.ndim - 2;
    if (q.k > 1 && x[1] != 1)
        return false;
    *p = (struct cpu_matmul){.batch = tern_meta_numel(&q.batch),
                             .m = q.m,
                             .n = q.n,
                             .k = q.k,
                             .lda = q.m > 1 ? x[0] : q.k,
                             .row = other[0],
                             .column = q.n > 1 ? other[1] : 1,
                             .dims = q.batch};
    tern_product_strides(&q, p->x_stride, p->other_stride);
    if (p->batch > 1 && merges(p)) {
        p->m *= p->batch;
        p->batch = 1;
        p->dims.ndim = 0;
    }
    if (!p->m || !p->n) /* nothing to compute, of matrices of any depth */
        p->batch = 0;
    return true;
}

static size_t bytes(const struct cpu_matmul_run *r, int64_t values) { return (size_t)values * tern_dtype_size(r->kind->dtype); }

const void *tern_cpu_matmul_x(const struct cpu_matmul_run *r, int64_t i)
{
    return r->x + bytes(r, tern_offset_of(r->first + i, r->p.dims.ndim, r->p.dims.shape, r->p.x_stride));
}

static const void *other_at(const struct cpu_matmul_run *r, int64_t i)
{
    return r->other + bytes(r, tern_offset_of(r->first + i, r->p.dims.ndim, r->p.dims.shape, r->p.other_stride));
}

const void *tern_cpu_matmul_b(const struct cpu_matmul_run *r, int64_t i) { return r->packed + (size_t)i * r->packed_size; }
void *tern_cpu_matmul_out(const struct cpu_matmul_run *r, int64_t i) { return r->out + bytes(r, (r->first + i) * r->p.m * r->p.n); }

static size_t packed_size(const struct tern_cpu_level *level, const struct cpu_matmul *p, const struct cpu_matmul_kind *kind)
{
    return (size_t)round_up((int64_t)kind->packed_size(level, p), 64);
}

/* Products that are packed and multiplied together. */
static int64_t chunk_of(struct tern_context *ctx, const struct cpu_matmul *p, size_t packed)
{
    const int64_t most = max64(packed ? (int64_t)(MOST_PACKED / packed) : p->batch, 1);
    const int64_t chunk = ceil_div(p->batch, max64(ceil_div(p->batch, most), 1)), threads = tern_thread_count(ctx);
    return chunk > threads ? min64(round_up(chunk, threads), p->batch) : chunk;
}

size_t tern_cpu_matmul_workspace(struct tern_context *ctx, const struct tern_op_desc *d, const struct cpu_matmul_kind *kind)
{
    struct cpu_matmul p;
    if (!tern_cpu_matmul_of(d, kind->dtype, &p) || !p.batch)
        return 0;
    const size_t packed = packed_size(cpu_level(ctx), &p, kind);
    const int64_t chunk = chunk_of(ctx, &p, packed), rest = p.batch % chunk;
    const size_t all = kind->workspace(ctx, &p, chunk), last = rest ? kind->workspace(ctx, &p, rest) : 0;
    return (size_t)chunk * packed + (all > last ? all : last) + 64;
}

static void pack_task(void *arg, int64_t begin, int64_t end)
{
    const struct cpu_matmul_run *r = arg;
    const struct cpu_pack pack = {
        .n = r->p.n, .k = r->p.k, .inner = r->p.k, .column = r->p.column, .within = r->p.row, .element = bytes(r, 1)};
    const int64_t panels = ceil_div(r->p.n, r->kind->panel_width(r->level));
    for (int64_t i = begin; i < end; i++)
        r->kind->pack(r->level, &pack, other_at(r, i / panels), r->packed + (size_t)(i / panels) * r->packed_size, i % panels);
}

enum tern_status tern_cpu_matmul_launch(const struct tern_kernel_args *a, const struct cpu_matmul_kind *kind)
{
    struct cpu_matmul_run r = {.kind = kind,
                               .level = cpu_level(a->ctx),
                               .x = tern_arg_host(&a->in[0]),
                               .other = tern_arg_host(&a->in[1]),
                               .out = tern_arg_host(&a->out),
                               .packed = tern_arg_host(&a->workspace)};
    if (!tern_cpu_matmul_of(a->desc, kind->dtype, &r.p) || !r.p.batch) /* without products there is no workspace */
        return TERN_OK;
    r.packed += (64 - (uintptr_t)r.packed % 64) % 64;
    r.packed_size = packed_size(r.level, &r.p, kind);
    const int64_t chunk = chunk_of(a->ctx, &r.p, r.packed_size), panels = ceil_div(r.p.n, kind->panel_width(r.level));
    for (; r.first < r.p.batch; r.first += chunk) {
        const int64_t count = min64(chunk, r.p.batch - r.first);
        tern_parallel(a->ctx, count * panels, ceil_div(max64(count * panels, 1), 2 * tern_thread_count(a->ctx)), pack_task, &r);
        kind->multiply(a->ctx, &r, count, r.packed + (size_t)chunk * r.packed_size);
    }
    return TERN_OK;
}

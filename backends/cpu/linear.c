/* linear, linear_geglu and matmul on the gemm: weights are packed once. */
#include <string.h>

#include "backends/cpu/gemm.h"
#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/weights.h"
#include "core/threads.h"

static void gather_rows(const struct cpu_gemm *g, int64_t row0, int64_t rows, int64_t k0, int64_t kc, float *dst, int64_t ld)
{
    for (int64_t i = 0; i < rows; i++)
        memcpy(dst + i * ld, (const float *)g->source + (row0 + i) * g->lda + k0, (size_t)kc * sizeof(float));
}

/* ---- linear: x (..., k) f32 contiguous, weight (n, k) in any floating dtype, bias f32. linear_geglu: weight (2 n, k), bias (2 n) */

bool cpu_is_gated(const struct tern_op_desc *d) { return d->op == TERN_OP_linear_geglu || d->op == TERN_OP_weight_only_linear_geglu; }

bool cpu_linear_fits(const struct tern_op_desc *d)
{
    return tern_meta_is_contiguous(&d->in[0]) && tern_dtype_is_float(d->in[1].dtype) && tern_meta_is_contiguous(&d->in[1]) &&
           (!d->present[2] || tern_meta_is_contiguous(&d->in[2])) && tern_meta_is_contiguous(&d->out) && d->in[1].shape[1] > 0;
}

bool cpu_linear_supports_f32(struct tern_device *device, const struct tern_op_desc *d)
{
    return d->in[0].dtype == TERN_F32 && (!d->present[2] || d->in[2].dtype == TERN_F32) && cpu_linear_fits(d);
}

bool cpu_linear_post_f32(const struct tern_op_desc *d)
{
    struct cpu_rows rows = cpu_rows_contiguous(d->out.ndim, d->out.ndim - 1);
    return cpu_post_fits(d, TERN_F32, &rows);
}

static struct cpu_gemm linear_gemm(const struct tern_op_desc *d)
{
    int64_t n = d->out.shape[d->out.ndim - 1], k = d->in[1].shape[1];
    return (struct cpu_gemm){.m = k ? tern_meta_numel(&d->in[0]) / k : 0,
                             .n = n,
                             .k = k,
                             .gather = gather_rows,
                             .lda = k,
                             .b_dtype = d->in[1].dtype,
                             .ldc = n,
                             .gated = cpu_is_gated(d)};
}

static size_t linear_workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct cpu_weights w = cpu_weights_f32(ctx, d);
    struct cpu_gemm g = linear_gemm(d);
    g.kept = w.bits ? &w : NULL;
    return cpu_gemm_workspace(ctx, &g);
}

size_t cpu_linear_packed_size(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct tern_cpu_level *l = cpu_level(ctx);
    if (cpu_weight_bits(d)) {
        const struct cpu_weights w = cpu_weights_f32(ctx, d);
        return cpu_weights_size(&w);
    }
    int64_t n = d->in[1].shape[0], columns = d->op == TERN_OP_linear_geglu ? 2 * round_up(n / 2, l->nr) : n;
    return cpu_packed_size(l, columns, d->in[1].shape[1], tern_dtype_size(d->in[1].dtype));
}

static struct cpu_pack linear_weights(const struct tern_op_desc *d)
{
    int64_t k = d->in[1].shape[1];
    return (struct cpu_pack){.n = d->out.shape[d->out.ndim - 1],
                             .k = k,
                             .inner = k,
                             .column = k,
                             .within = 1,
                             .element = tern_dtype_size(d->in[1].dtype),
                             .gated = cpu_is_gated(d)};
}

enum tern_status cpu_linear_pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst)
{
    if (cpu_weight_bits(d)) {
        const struct cpu_weights w = cpu_weights_f32(ctx, d);
        return cpu_weights_pack(ctx, &w, &d->in[1], src, dst);
    }
    struct cpu_pack p = linear_weights(d);
    cpu_pack_b(ctx, &p, src, dst);
    return TERN_OK;
}

static enum tern_status linear_run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const struct cpu_weights w = cpu_weights_f32(a->ctx, d);
    struct cpu_gemm g = linear_gemm(d);
    g.kept = w.bits ? &w : NULL;
    struct cpu_rows rows = cpu_rows_contiguous(d->out.ndim, d->out.ndim - 1);
    g.source = tern_arg_host(&a->in[0]);
    return cpu_gemm_launch(a, &g, &rows);
}

const struct tern_kernel cpu_linear_f32_gemm = {
    .name = "linear_f32_gemm",
    .revision = 1,
    .op = TERN_OP_linear,
    .supports = cpu_linear_supports_f32,
    .post = cpu_linear_post_f32,
    .workspace = linear_workspace,
    .pack_input = 1,
    .packed_size = cpu_linear_packed_size,
    .pack = cpu_linear_pack,
    .run = linear_run,
};

const struct tern_kernel cpu_weight_only_linear_f32_gemm = {
    .name = "weight_only_linear_f32_gemm",
    .op = TERN_OP_weight_only_linear,
    .supports = cpu_linear_supports_f32,
    .post = cpu_linear_post_f32,
    .workspace = linear_workspace,
    .pack_input = 1,
    .packed_size = cpu_linear_packed_size,
    .pack_key = cpu_weight_key,
    .pack = cpu_linear_pack,
    .run = linear_run,
};

const struct tern_kernel cpu_linear_geglu_f32_gemm = {
    .name = "linear_geglu_f32_gemm",
    .revision = 2,
    .op = TERN_OP_linear_geglu,
    .supports = cpu_linear_supports_f32,
    .workspace = linear_workspace,
    .pack_input = 1,
    .packed_size = cpu_linear_packed_size,
    .pack = cpu_linear_pack,
    .run = linear_run,
};

const struct tern_kernel cpu_weight_only_linear_geglu_f32_gemm = {
    .name = "weight_only_linear_geglu_f32_gemm",
    .revision = 1,
    .op = TERN_OP_weight_only_linear_geglu,
    .supports = cpu_linear_supports_f32,
    .workspace = linear_workspace,
    .pack_input = 1,
    .packed_size = cpu_linear_packed_size,
    .pack_key = cpu_weight_key,
    .pack = cpu_linear_pack,
    .run = linear_run,
};

/* ---- matmul: f32, both contiguous or the last two dimensions of `other` swapped; leading dimensions equal, or
 * `other` a plain matrix */

struct product {
    int64_t batch, m, n, k;
    int64_t other_batch; /* elements between matrices of other; 0: one for all */
    bool swapped;        /* other is stored as (n, k) */
};

static bool leading_dense(const struct tern_meta *m)
{
    struct tern_meta t = *m;
    int n = t.ndim;
    int64_t s = t.shape[n - 1];
    t.shape[n - 1] = t.shape[n - 2];
    t.shape[n - 2] = s;
    s = t.stride[n - 1];
    t.stride[n - 1] = t.stride[n - 2];
    t.stride[n - 2] = s;
    return tern_meta_is_contiguous(&t);
}

static bool as_product(const struct tern_op_desc *d, struct product *p)
{
    const struct tern_meta *x = &d->in[0], *y = &d->in[1];
    if (x->ndim < 2 || y->ndim < 2 || x->dtype != TERN_F32 || y->dtype != TERN_F32 || !tern_meta_is_contiguous(x))
        return false;
    p->swapped = !tern_meta_is_contiguous(y);
    if (p->swapped && !leading_dense(y))
        return false;
    p->m = x->shape[x->ndim - 2];
    p->k = x->shape[x->ndim - 1];
    p->n = y->shape[y->ndim - 1];
    p->batch = 1;
    for (int i = 0; i < x->ndim - 2; i++)
        p->batch *= x->shape[i];
    p->other_batch = p->n * p->k;
    bool equal = x->ndim == y->ndim && !memcmp(x->shape, y->shape, sizeof(x->shape[0]) * (size_t)(x->ndim - 2));
    if (!equal) {
        if (tern_meta_numel(y) != p->n * p->k || y->ndim > x->ndim)
            return false;
        p->m *= p->batch;
        p->batch = 1;
        p->other_batch = 0;
    }
    return p->k > 0;
}

static bool matmul_supports(struct tern_device *device, const struct tern_op_desc *d)
{
    struct product p = {0};
    return as_product(d, &p) && tern_meta_is_contiguous(&d->out);
}

static struct cpu_gemm matmul_gemm(const struct product *p)
{
    return (struct cpu_gemm){.m = p->m, .n = p->n, .k = p->k, .gather = gather_rows, .lda = p->k, .b_dtype = TERN_F32, .ldc = p->n};
}

static size_t aligned(size_t n) { return (n + 63) / 64 * 64; }

static size_t matmul_workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct product p = {0};
    as_product(d, &p);
    struct cpu_gemm g = matmul_gemm(&p);
    return aligned(cpu_packed_size(cpu_level(ctx), p.n, p.k, 4)) + cpu_gemm_workspace(ctx, &g);
}

static enum tern_status matmul_run(const struct tern_kernel_args *a)
{
    struct product p = {0};
    as_product(a->desc, &p);
    struct cpu_gemm g = matmul_gemm(&p);
    struct cpu_pack pack = {.n = p.n, .k = p.k, .inner = p.k, .column = p.swapped ? p.k : 1, .within = p.swapped ? 1 : p.n, .element = 4};
    char *w = tern_arg_host(&a->workspace);
    const float *x = tern_arg_host(&a->in[0]), *y = tern_arg_host(&a->in[1]);
    float *out = tern_arg_host(&a->out);
    for (int64_t i = 0; i < p.batch; i++) {
        cpu_pack_b(a->ctx, &pack, y + i * p.other_batch, w);
        g.source = x + i * p.m * p.k;
        g.b = w;
        g.c = out + i * p.m * p.n;
        cpu_gemm_run(a->ctx, &g, w + aligned(cpu_packed_size(cpu_level(a->ctx), p.n, p.k, 4)));
    }
    return TERN_OK;
}

const struct tern_kernel cpu_matmul_f32_gemm = {
    .name = "matmul_f32_gemm",
    .revision = 1,
    .op = TERN_OP_matmul,
    .supports = matmul_supports,
    .workspace = matmul_workspace,
    .run = matmul_run,
};

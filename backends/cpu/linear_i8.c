/* quantized_linear and quantized_linear_geglu: x (..., k) of any floating dtype, contiguous. */
#include "backends/cpu/gemm_i8.h"
#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "core/threads.h"

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return tern_cpu_i8_fits(d, tern_meta_is_contiguous(&d->in[0]) && tern_meta_is_contiguous(&d->out)) && d->in[1].shape[1] > 0 &&
           d->in[1].shape[1] <= CPU_I8_MOST_DEPTH;
}

static bool post(const struct tern_op_desc *d)
{
    struct cpu_rows rows = tern_cpu_rows_contiguous(d->out.ndim, d->out.ndim - 1);
    return tern_cpu_post_fits(d, d->in[0].dtype, &rows);
}

/* Rows lie `pitch` bytes apart, and the depth counts pairs of them. */
static int stage(const struct cpu_dot_gemm *g, int64_t row0, int64_t rows, int part, uint16_t *scratch, struct tern_dot_piece *pieces)
{
    int64_t k0, there = tern_cpu_dot_range(g, part, &k0), ld = odd_lines(2 * g->k, CPU_I8_LINE) / 2;
    const uint16_t *a = (const uint16_t *)g->source + row0 * ld + k0;
    *pieces = (struct tern_dot_piece){{a, a + TERN_DOT_HALF * ld}, ld, k0, there};
    return 1;
}

/* first: all rows are quantised first, each once, and not by tasks. */
struct plan {
    struct cpu_dot_values values;
    struct cpu_dot_gemm g;
    bool first;
};

static void plan_of(struct tern_context *ctx, const struct tern_op_desc *d, struct plan *p)
{
    const int64_t n = d->out.shape[d->out.ndim - 1], k = d->in[1].shape[1];
    p->g = (struct cpu_dot_gemm){.m = tern_meta_numel(&d->in[0]) / k,
                                 .n = n,
                                 .k = round_up(k, CPU_I8_LINE) / 2,
                                 .dot = &cpu_level(ctx)->i8.dot,
                                 .stage = stage,
                                 .ldc = n,
                                 .gated = d->op == TERN_OP_quantized_linear_geglu};
    tern_cpu_dot_parts(ctx, &p->g);
    p->g.scratch = 0;
    p->values = (struct cpu_dot_values){.dtype = d->in[0].dtype, .k = k, .pitch = odd_lines(2 * p->g.k, CPU_I8_LINE)};
    p->first = !tern_cpu_i8_rows_by_tasks(ctx, &p->g, &p->values);
}

/* Bytes of the quantised rows, whole blocks of them, and of their factors. */
static size_t rows_size(const struct plan *p) { return p->first ? (size_t)(round_up(p->g.m, TERN_DOT_ROWS) * p->values.pitch) : 0; }
static size_t factors_size(const struct plan *p) { return p->first ? (size_t)round_up(p->g.m * (int64_t)sizeof(float), CPU_I8_LINE) : 0; }

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct plan p;
    plan_of(ctx, d, &p);
    size_t size = tern_cpu_dot_workspace(ctx, &p.g);
    return size ? CPU_I8_LINE + rows_size(&p) + factors_size(&p) + size : 0;
}

static size_t packed_size(struct tern_context *ctx, const struct tern_op_desc *d)
{
    return tern_cpu_i8_packed_size(&d->in[1], round_up(d->in[1].shape[1], CPU_I8_LINE), d->op == TERN_OP_quantized_linear_geglu);
}

static enum tern_status pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst)
{
    tern_cpu_i8_pack(ctx, &d->in[1], d->op == TERN_OP_quantized_linear_geglu, src, dst, NULL, NULL);
    return TERN_OK;
}

struct quantize {
    const struct tern_cpu_i8 *i8;
    const struct cpu_dot_values *values;
    uint8_t *y;
    float *factors;
};

static void quantize_rows(void *arg, int64_t begin, int64_t end)
{
    const struct quantize *q = arg;
    tern_cpu_i8_quantize_rows(q->i8, q->values, begin, end - begin, q->y + begin * q->values->pitch, q->factors + begin);
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    struct plan p;
    const struct cpu_rows rows = tern_cpu_rows_contiguous(a->desc->out.ndim, a->desc->out.ndim - 1);
    if (!a->workspace.buffer)
        return TERN_OK;
    plan_of(a->ctx, a->desc, &p);
    p.values.x = tern_arg_host(&a->in[0]);
    char *y = tern_arg_host(&a->workspace);
    y += (CPU_I8_LINE - (uintptr_t)y % CPU_I8_LINE) % CPU_I8_LINE;
    struct quantize q = {&cpu_level(a->ctx)->i8, &p.values, (uint8_t *)y, (float *)(void *)(y + rows_size(&p))};
    if (p.first)
        tern_parallel(a->ctx, p.g.m, max64(1, 16384 / p.values.k), quantize_rows, &q);
    p.g.source = y;
    return tern_cpu_i8_launch(a, &p.g, &rows, q.factors, 1, y + rows_size(&p) + factors_size(&p));
}

const struct tern_kernel tern_cpu_quantized_linear_i8_gemm = {
    .name = "quantized_linear_i8_gemm",
    .op = TERN_OP_quantized_linear,
    .revision = 5,
    .supports = supports,
    .post = post,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = packed_size,
    .pack = pack,
    .run = run,
};

const struct tern_kernel tern_cpu_quantized_linear_geglu_i8_gemm = {
    .name = "quantized_linear_geglu_i8_gemm",
    .op = TERN_OP_quantized_linear_geglu,
    .revision = 7,
    .supports = supports,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = packed_size,
    .pack = pack,
    .run = run,
};

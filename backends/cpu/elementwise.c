/* Element-wise kernels on f32, f16 and bf16, computed in f32: one kernel a function, all on the same two loops. */
#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/post.h"
#include "core/threads.h"

#define TILE 512 /* values that wait in f32 for their posts */

static bool unary_supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return tern_dtype_is_float(d->in[0].dtype) && d->out.dtype == d->in[0].dtype;
}

struct unary_run {
    void (*fn)(enum tern_dtype dtype, int64_t n, const void *x, void *y, float s);
    enum tern_dtype dtype;
    int64_t size; /* bytes of a value */
    const char *x;
    char *y;
    float s;
};

static void unary_part(void *arg, const struct cpu_loop *l, const int64_t *at, int64_t n)
{
    const struct unary_run *r = arg;
    int64_t x_step = l->stride[1][l->ndim - 1], y_step = l->stride[0][l->ndim - 1];
    if (x_step == 1 && y_step == 1) {
        r->fn(r->dtype, n, r->x + at[1] * r->size, r->y + at[0] * r->size, r->s);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        r->fn(r->dtype, 1, r->x + (at[1] + i * x_step) * r->size, r->y + (at[0] + i * y_step) * r->size, r->s);
}

/* With posts: row by row, in tiles of f32 that stay in L1. */
struct rows_run {
    const struct tern_cpu_level *level;
    tern_cpu_unary_fn *unary_wide; /* of f32, for posts behind it */
    struct unary_run unary;
    struct cpu_operand x;
    struct cpu_post post;
    int64_t columns;
};

static struct cpu_rows last_dimension(const struct tern_op_desc *d)
{
    return tern_cpu_rows_contiguous(d->out.ndim, d->out.ndim > 0 ? d->out.ndim - 1 : 0);
}

static bool unary_post(const struct tern_op_desc *d)
{
    struct cpu_rows rows = last_dimension(d);
    struct cpu_operand x;
    return tern_meta_is_contiguous(&d->out) && tern_cpu_operand_make(&d->in[0], &d->out, &rows, &x) && x.step &&
           tern_cpu_post_fits(d, d->out.dtype, &rows);
}

static void rows_part(void *arg, int64_t begin, int64_t end)
{
    const struct rows_run *r = arg;
    const struct unary_run *u = &r->unary;
    float tile[TILE];
    for (int64_t i = begin; i < end; i++) {
        const char *x = u->x + i / r->x.inner * r->x.ld * u->size;
        char *y = u->y + i * r->columns * u->size;
        for (int64_t c = 0, n; c < r->columns; c += n) {
            const void *from = x + c * u->size;
            void *to = y + c * u->size;
            float *wide = u->dtype == TERN_F32 ? to : tile;
            n = r->columns - c < TILE ? r->columns - c : TILE;
            if (u->dtype != TERN_F32)
                r->level->to_f32(u->dtype, n, from, tile);
            r->unary_wide(n, u->dtype == TERN_F32 ? from : tile, wide, u->s);
            tern_cpu_post_apply(&r->post, wide, wide, i, c, n);
            if (u->dtype != TERN_F32)
                r->level->from_f32(u->dtype, n, tile, to);
        }
    }
}

static enum tern_status run_rows(const struct tern_kernel_args *a, enum tern_cpu_unary which, const struct unary_run *unary)
{
    const struct tern_meta *o = &a->desc->out;
    struct cpu_rows rows = last_dimension(a->desc);
    const struct tern_cpu_level *l = cpu_level(a->ctx);
    struct rows_run r = {.level = l,
                         .unary_wide = cpu_unary_for(l, o->dtype, which),
                         .unary = *unary,
                         .post = tern_cpu_post_make(a, &rows),
                         .columns = o->ndim ? o->shape[o->ndim - 1] : 1};
    tern_cpu_operand_make(&a->desc->in[0], o, &rows, &r.x);
    if (tern_meta_numel(o))
        tern_parallel(a->ctx, tern_meta_numel(o) / r.columns, 1 + 16384 / r.columns, rows_part, &r);
    return TERN_OK;
}

static enum tern_status run_unary(const struct tern_kernel_args *a, enum tern_cpu_unary which, double scalar)
{
    const struct tern_meta *metas[] = {&a->desc->out, &a->desc->in[0]};
    struct cpu_loop loop = tern_cpu_loop_make(2, metas);
    struct unary_run r = {.fn = cpu_level(a->ctx)->unary_of[which],
                          .dtype = a->desc->out.dtype,
                          .size = (int64_t)tern_dtype_size(a->desc->out.dtype),
                          .x = tern_arg_host(&a->in[0]),
                          .y = tern_arg_host(&a->out),
                          .s = (float)scalar};
    if (a->desc->n_post)
        return run_rows(a, which, &r);
    tern_cpu_loop_run(a->ctx, &loop, unary_part, &r);
    return TERN_OK;
}

#define UNARY(op_name, which, scalar)                                                                               \
    static enum tern_status run_##op_name(const struct tern_kernel_args *a) { return run_unary(a, which, scalar); } \
    const struct tern_kernel tern_cpu_##op_name##_float = {                                                         \
        .name = #op_name "_float", .op = TERN_OP_##op_name, .supports = unary_supports, .post = unary_post, .run = run_##op_name};
UNARY(neg, TERN_CPU_NEG, 0)
UNARY(abs, TERN_CPU_ABS, 0)
UNARY(exp, TERN_CPU_EXP, 0)
UNARY(sqrt, TERN_CPU_SQRT, 0)
UNARY(rsqrt, TERN_CPU_RSQRT, 0)
UNARY(reciprocal, TERN_CPU_RECIPROCAL, 0)
UNARY(square, TERN_CPU_SQUARE, 0)
UNARY(tanh, TERN_CPU_TANH, 0)
UNARY(sigmoid, TERN_CPU_SIGMOID, 0)
UNARY(relu, TERN_CPU_RELU, 0)
UNARY(silu, TERN_CPU_SILU, 0)
UNARY(quick_gelu, TERN_CPU_QUICK_GELU, 0)
UNARY(gelu, a->desc->attrs.gelu.approximate ? TERN_CPU_GELU_TANH : TERN_CPU_GELU, 0)
UNARY(add_scalar, TERN_CPU_ADD_SCALAR, a->desc->attrs.add_scalar.other)
UNARY(mul_scalar, TERN_CPU_MUL_SCALAR, a->desc->attrs.mul_scalar.other)

struct binary_run {
    void (*fn)(enum tern_dtype dtype, int64_t n, const void *x, int x_step, const void *y, int y_step, void *out);
    enum tern_dtype dtype;
    int64_t size; /* bytes of a value */
    const char *x, *y;
    char *out;
};

static bool is_unit(int64_t step) { return step == 0 || step == 1; }

static void binary_part(void *arg, const struct cpu_loop *l, const int64_t *at, int64_t n)
{
    const struct binary_run *r = arg;
    const int inner = l->ndim - 1;
    const int64_t o = l->stride[0][inner] * r->size, x = l->stride[1][inner], y = l->stride[2][inner];
    const char *from_x = r->x + at[1] * r->size, *from_y = r->y + at[2] * r->size;
    char *to = r->out + at[0] * r->size;
    if ((o == r->size || n == 1) && is_unit(x) && is_unit(y)) {
        r->fn(r->dtype, n, from_x, (int)x, from_y, (int)y, to);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        r->fn(r->dtype, 1, from_x + i * x * r->size, 0, from_y + i * y * r->size, 0, to + i * o);
}

static bool binary_supports(struct tern_device *device, const struct tern_op_desc *d)
{
    enum tern_dtype dtype = d->out.dtype;
    return tern_dtype_is_float(dtype) && d->in[0].dtype == dtype && d->in[1].dtype == dtype;
}

static enum tern_status run_binary(const struct tern_kernel_args *a, enum tern_cpu_binary which)
{
    const struct tern_meta *metas[] = {&a->desc->out, &a->desc->in[0], &a->desc->in[1]};
    struct cpu_loop loop = tern_cpu_loop_make(3, metas);
    struct binary_run r = {.fn = cpu_level(a->ctx)->binary_of[which],
                           .dtype = a->desc->out.dtype,
                           .size = (int64_t)tern_dtype_size(a->desc->out.dtype),
                           .x = tern_arg_host(&a->in[0]),
                           .y = tern_arg_host(&a->in[1]),
                           .out = tern_arg_host(&a->out)};
    tern_cpu_loop_run(a->ctx, &loop, binary_part, &r);
    return TERN_OK;
}

#define BINARY(op_name, which)                                                                               \
    static enum tern_status run_##op_name(const struct tern_kernel_args *a) { return run_binary(a, which); } \
    const struct tern_kernel tern_cpu_##op_name##_float = {                                                  \
        .name = #op_name "_float", .op = TERN_OP_##op_name, .supports = binary_supports, .run = run_##op_name};
BINARY(add, TERN_CPU_ADD)
BINARY(sub, TERN_CPU_SUB)
BINARY(mul, TERN_CPU_MUL)
BINARY(div, TERN_CPU_DIV)

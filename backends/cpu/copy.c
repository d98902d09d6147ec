/* Copies between layouts and dtypes: contiguous, cast, reshape of what no view can show, cat, pad. */
#include <math.h>
#include <string.h>

#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "ops/reference.h"

struct copy_run {
    enum tern_dtype from, to;
    const char *x;
    char *y;
    const struct tern_cpu_level *level;
};

#define STRIDED(type)                                                                             \
    static void strided_##type(int64_t n, const type *x, int64_t x_step, type *y, int64_t y_step) \
    {                                                                                             \
        for (int64_t i = 0; i < n; i++)                                                           \
            y[i * y_step] = x[i * x_step];                                                        \
    }
STRIDED(uint8_t)
STRIDED(uint16_t)
STRIDED(uint32_t)
STRIDED(uint64_t)

static void copy_part(void *arg, const struct cpu_loop *l, const int64_t *at, int64_t n)
{
    const struct copy_run *r = arg;
    int inner = l->ndim - 1;
    size_t size = tern_dtype_size(r->to);
    int64_t x_step = l->stride[1][inner], y_step = l->stride[0][inner];
    const void *x = r->x + at[1] * (int64_t)size;
    void *y = r->y + at[0] * (int64_t)size;
    if (x_step == 1 && y_step == 1)
        memcpy(y, x, (size_t)n * size);
    else if (size == 1)
        strided_uint8_t(n, x, x_step, y, y_step);
    else if (size == 2)
        strided_uint16_t(n, x, x_step, y, y_step);
    else if (size == 4)
        strided_uint32_t(n, x, x_step, y, y_step);
    else
        strided_uint64_t(n, x, x_step, y, y_step);
}

static void copy_strided(struct tern_context *ctx, const struct tern_meta *from, const void *x, const struct tern_meta *to, void *y)
{
    const struct tern_meta *metas[] = {to, from};
    struct cpu_loop loop = tern_cpu_loop_make(2, metas);
    struct copy_run r = {.from = from->dtype, .to = to->dtype, .x = x, .y = y};
    tern_cpu_loop_run(ctx, &loop, copy_part, &r);
}

static bool supports_any(struct tern_device *device, const struct tern_op_desc *d) { return true; }

static enum tern_status run_contiguous(const struct tern_kernel_args *a)
{
    copy_strided(a->ctx, &a->desc->in[0], tern_arg_host(&a->in[0]), &a->desc->out, tern_arg_host(&a->out));
    return TERN_OK;
}
const struct tern_kernel tern_cpu_contiguous = {
    .name = "contiguous", .op = TERN_OP_contiguous, .supports = supports_any, .run = run_contiguous};

/* Elements of the input in row-major order are those of the output: copy as if the output had the input's shape. */
static enum tern_status run_reshape(const struct tern_kernel_args *a)
{
    struct tern_meta to = a->desc->in[0];
    tern_meta_contiguous(&to);
    copy_strided(a->ctx, &a->desc->in[0], tern_arg_host(&a->in[0]), &to, tern_arg_host(&a->out));
    return TERN_OK;
}
static bool supports_reshape(struct tern_device *device, const struct tern_op_desc *d) { return tern_meta_is_contiguous(&d->out); }
const struct tern_kernel tern_cpu_reshape = {
    .name = "reshape_copy", .op = TERN_OP_reshape, .supports = supports_reshape, .run = run_reshape};

/* ---- cast between floating dtypes, by way of f32 */

static bool supports_cast(struct tern_device *device, const struct tern_op_desc *d)
{
    return tern_dtype_is_float(d->in[0].dtype) && tern_dtype_is_float(d->out.dtype);
}

/* n values that lie together */
static void cast_dense(const struct copy_run *r, int64_t n, const char *x, char *y)
{
    float wide[256];
    const int64_t size_x = (int64_t)tern_dtype_size(r->from), size_y = (int64_t)tern_dtype_size(r->to);
    if (r->to == TERN_F32) {
        r->level->to_f32(r->from, n, x, (float *)(void *)y);
        return;
    }
    if (r->from == TERN_F32) {
        r->level->from_f32(r->to, n, (const float *)(const void *)x, y);
        return;
    }
    for (int64_t i = 0, part; i < n; i += part) {
        part = n - i < 256 ? n - i : 256;
        r->level->to_f32(r->from, part, x + i * size_x, wide);
        r->level->from_f32(r->to, part, wide, y + i * size_y);
    }
}

static void cast_part(void *arg, const struct cpu_loop *l, const int64_t *at, int64_t n)
{
    const struct copy_run *r = arg;
    int inner = l->ndim - 1;
    int64_t x_step = l->stride[1][inner], y_step = l->stride[0][inner], size_x = (int64_t)tern_dtype_size(r->from),
            size_y = (int64_t)tern_dtype_size(r->to);
    int64_t count = x_step == 1 && y_step == 1 ? n : 1;
    for (int64_t i = 0; i < n; i += count)
        cast_dense(r, count, r->x + (at[1] + i * x_step) * size_x, r->y + (at[0] + i * y_step) * size_y);
}

static enum tern_status run_cast(const struct tern_kernel_args *a)
{
    const struct tern_meta *metas[] = {&a->desc->out, &a->desc->in[0]};
    struct cpu_loop loop = tern_cpu_loop_make(2, metas);
    struct copy_run r = {a->desc->in[0].dtype, a->desc->out.dtype, tern_arg_host(&a->in[0]), tern_arg_host(&a->out), cpu_level(a->ctx)};
    tern_cpu_loop_run(a->ctx, &loop, cast_part, &r);
    return TERN_OK;
}
const struct tern_kernel tern_cpu_cast_float = {.name = "cast_float", .op = TERN_OP_cast, .supports = supports_cast, .run = run_cast};

/* ---- cat: each tensor is copied to its part of the output */

static enum tern_status run_cat(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    int64_t dim = d->attrs.cat.dim, at = 0;
    size_t size = tern_dtype_size(d->out.dtype);
    for (int i = 0; i < d->n_in; i++) {
        struct tern_meta part = d->in[i];
        memcpy(part.stride, d->out.stride, sizeof(part.stride));
        copy_strided(a->ctx, &d->in[i], tern_arg_host(&a->in[i]), &part,
                     (char *)tern_arg_host(&a->out) + (size_t)(at * part.stride[dim]) * size);
        at += part.shape[dim];
    }
    return TERN_OK;
}
const struct tern_kernel tern_cpu_cat = {.name = "cat_copy", .op = TERN_OP_cat, .supports = supports_any, .run = run_cat};

/* ---- pad: a value all over, then the picture into the middle */

/* All bits are 0, unlike those of -0. */
static bool is_plain_zero(double v) { return v == 0 && !signbit(v); }

static bool supports_pad(struct tern_device *device, const struct tern_op_desc *d)
{
    for (int64_t i = 0; i < d->attrs.pad.pad_n; i++)
        if (d->attrs.pad.pad[i] < 0)
            return false;
    return tern_meta_is_dense(&d->out) && (is_plain_zero(d->attrs.pad.value) || tern_dtype_is_float(d->out.dtype)) &&
           tern_meta_numel(&d->in[0]) > 0;
}

static enum tern_status run_pad(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    size_t size = tern_dtype_size(d->out.dtype);
    int64_t n = tern_meta_numel(&d->out), at = 0;
    char *y = tern_arg_host(&a->out);
    _Alignas(float) char value[sizeof(float)];
    if (is_plain_zero(d->attrs.pad.value)) {
        memset(y, 0, (size_t)n * size);
    } else {
        tern_store(d->out.dtype, value, 0, d->attrs.pad.value);
        for (int64_t i = 0; i < n; i++)
            memcpy(y + (size_t)i * size, value, size);
    }
    struct tern_meta inside = d->in[0];
    memcpy(inside.stride, d->out.stride, sizeof(inside.stride));
    for (int64_t i = 0; i < d->attrs.pad.pad_n / 2; i++)
        at += d->attrs.pad.pad[2 * i] * d->out.stride[d->out.ndim - 1 - i];
    copy_strided(a->ctx, &d->in[0], tern_arg_host(&a->in[0]), &inside, y + (size_t)at * size);
    return TERN_OK;
}
const struct tern_kernel tern_cpu_pad = {.name = "pad_copy", .op = TERN_OP_pad, .supports = supports_pad, .run = run_pad};

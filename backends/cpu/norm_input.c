/* A group norm in front of a convolution. */
#include "backends/cpu/norm_input.h"

#include "backends/cpu/integers.h"

bool tern_cpu_norm_input_fits(const struct tern_op_desc *d)
{
    return !tern_meta_is_contiguous(&d->in[0]) && cpu_norm_vector(d, (int)d->pre.input) && cpu_norm_vector(d, (int)d->pre.input + 1);
}

static struct groups groups_of(const struct tern_op_desc *d)
{
    const int64_t *x = d->in[0].shape, hw = x[2] * x[3];
    return (struct groups){.dtype = d->in[0].dtype,
                           .y_dtype = d->in[0].dtype,
                           .size = (int64_t)tern_dtype_size(d->in[0].dtype),
                           .n = x[0],
                           .c = x[1],
                           .hw = hw,
                           .g = d->pre.num_groups,
                           .eps = d->pre.eps,
                           .channels_last = true,
                           .silu = d->pre.silu,
                           .blocks = ceil_div(hw, CPU_GROUPS_BLOCK),
                           .pieces = ceil_div(hw, CPU_GROUPS_PIECE)};
}

size_t tern_cpu_norm_input_bytes(const struct tern_op_desc *d)
{
    if (!d->pre.num_groups)
        return 0;
    const struct groups r = groups_of(d);
    const size_t small = cpu_norm_room(d, (int)d->pre.input) + cpu_norm_room(d, (int)d->pre.input + 1);
    return (size_t)round_up((int64_t)small + r.n * r.c * (4 + 2 * r.blocks) * (int64_t)sizeof(float), 64);
}

struct groups tern_cpu_norm_input_make(const struct tern_kernel_args *a, float *workspace)
{
    const struct tern_op_desc *d = a->desc;
    struct groups r = groups_of(d);
    const int64_t step = r.n * r.c;
    r.level = cpu_level(a->ctx);
    r.x = tern_arg_host(&a->in[0]);
    r.weight = cpu_norm_input(a, (int)d->pre.input, &workspace);
    r.bias = cpu_norm_input(a, (int)d->pre.input + 1, &workspace);
    r.first = workspace;
    r.shift = workspace + step;
    r.scale = workspace + 2 * step;
    r.offset = workspace + 3 * step;
    r.sums = workspace + 4 * step;
    tern_cpu_groups_affines(a->ctx, &r);
    return r;
}

void tern_cpu_norm_input_apply(const struct groups *r, int64_t picture, int64_t rows, const void *x, void *y, int64_t ldy)
{
    const int64_t at = picture * r->c;
    const struct tern_cpu_affine affine = {r->shift + at, r->scale + at, r->offset + at, r->silu};
    r->level->affine(r->dtype, r->y_dtype, rows, r->c, x, r->c, &affine, true, r->near, y, ldy);
}

/* A group norm in front of a convolution. */
#include "backends/cpu/norm_input.h"

#include "backends/cpu/integers.h"

bool tern_cpu_norm_input_fits(const struct tern_op_desc *d)
{
    return !tern_meta_is_contiguous(&d->in[0]) && cpu_norm_vector(d, (int)d->pre.input) && cpu_norm_vector(d, (int)d->pre.input + 1);
}

#define PARTS (CPU_GROUPS_SUMS | CPU_GROUPS_AFFINES)

size_t tern_cpu_norm_input_bytes(const struct tern_op_desc *d)
{
    if (!d->pre.num_groups)
        return 0;
    const size_t small = cpu_norm_room(d, (int)d->pre.input) + cpu_norm_room(d, (int)d->pre.input + 1);
    return (size_t)round_up((int64_t)(small + tern_cpu_groups_room(d, PARTS)), 64);
}

struct groups tern_cpu_norm_input_make(const struct tern_kernel_args *a, float *workspace)
{
    const struct tern_pre *p = &a->desc->pre;
    const float *weight = cpu_norm_input(a, (int)p->input, &workspace), *bias = cpu_norm_input(a, (int)p->input + 1, &workspace);
    struct groups r = tern_cpu_groups_begin(a, p->num_groups, workspace, PARTS);
    r.y_dtype = r.dtype;
    r.weight = weight;
    r.bias = bias;
    r.eps = p->eps;
    r.silu = p->silu;
    tern_cpu_groups_affines(a->ctx, &r);
    return r;
}

void tern_cpu_norm_input_apply(const struct groups *r, int64_t picture, int64_t rows, const void *x, void *y, int64_t ldy)
{
    const int64_t at = picture * r->c;
    const struct tern_cpu_affine affine = {r->shift + at, r->scale + at, r->offset + at, r->silu};
    r->level->affine(r->dtype, r->y_dtype, rows, r->c, x, r->c, &affine, true, r->near, y, ldy);
}

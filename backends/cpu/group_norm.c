/* group_norm, whole and in two halves, on contiguous and channels-last pictures of f32, f16 or bf16. */
#include "backends/cpu/groups.h"

/* ---- the descriptions */

/* Both pictures have one of the two formats; a result that is no picture is contiguous. */
static bool supports_pictures(const struct tern_op_desc *d)
{
    const struct tern_meta *m = &d->in[0], *o = &d->out;
    bool last = tern_meta_is_channels_last(m) && (d->op == TERN_OP_group_norm_stats || tern_meta_is_channels_last(o));
    bool contiguous = tern_meta_is_contiguous(m) && tern_meta_is_contiguous(o);
    return tern_dtype_is_float(m->dtype) && (contiguous || last) && tern_meta_numel(m) > 0;
}

static bool is_channels_last(const struct tern_op_desc *d)
{
    return !tern_meta_is_contiguous(&d->in[0]) || !tern_meta_is_contiguous(&d->out);
}

static struct groups groups_of(const struct tern_op_desc *d, int64_t num_groups)
{
    const struct tern_meta *m = &d->in[0];
    struct groups r = {.dtype = m->dtype,
                       .y_dtype = d->out.dtype,
                       .size = (int64_t)tern_dtype_size(m->dtype),
                       .n = m->shape[0],
                       .c = m->shape[1],
                       .hw = 1,
                       .g = num_groups,
                       .channels_last = is_channels_last(d)};
    for (int i = 2; i < m->ndim; i++)
        r.hw *= m->shape[i];
    r.blocks = (r.hw + CPU_GROUPS_BLOCK - 1) / CPU_GROUPS_BLOCK;
    r.pieces = (r.hw + CPU_GROUPS_PIECE - 1) / CPU_GROUPS_PIECE;
    return r;
}

static struct cpu_rows rows_of(const struct tern_op_desc *d)
{
    return is_channels_last(d) ? tern_cpu_rows_channels_last() : tern_cpu_rows_contiguous(d->out.ndim, 2);
}

static bool picture_post(const struct tern_op_desc *d)
{
    struct cpu_rows rows = rows_of(d);
    return tern_cpu_post_fits(d, d->in[0].dtype == TERN_F32 ? d->out.dtype : d->in[0].dtype, &rows);
}

/* ---- runs. The workspace holds what has to be widened of the small inputs, then sums, then values by channel. */

size_t tern_cpu_groups_room(const struct tern_op_desc *d, int parts)
{
    struct groups r = groups_of(d, 1);
    int64_t rows = 1 + (parts & CPU_GROUPS_SUMS ? 2 * r.blocks : 0) + (parts & CPU_GROUPS_AFFINES ? 3 : 0);
    return r.channels_last ? (size_t)(r.n * r.c * rows) * sizeof(float) : 0;
}

struct groups tern_cpu_groups_begin(const struct tern_kernel_args *a, int64_t num_groups, float *workspace, int parts)
{
    struct groups r = groups_of(a->desc, num_groups);
    const int64_t step = r.n * r.c;
    r.level = cpu_level(a->ctx);
    r.x = tern_arg_host(&a->in[0]);
    r.y = tern_arg_host(&a->out);
    if (!r.channels_last)
        return r;
    r.first = workspace;
    workspace += step;
    if (parts & CPU_GROUPS_SUMS) {
        r.sums = workspace;
        workspace += step * 2 * r.blocks;
    }
    if (parts & CPU_GROUPS_AFFINES) {
        r.shift = workspace;
        r.scale = workspace + step;
        r.offset = workspace + 2 * step;
    }
    return r;
}

/* ---- the kernels */

static bool group_norm_supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return supports_pictures(d) && cpu_norm_vector(d, 1) && cpu_norm_vector(d, 2);
}

static size_t group_norm_workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    return cpu_norm_room(d, 1) + cpu_norm_room(d, 2) + tern_cpu_groups_room(d, CPU_GROUPS_SUMS | CPU_GROUPS_AFFINES);
}

static enum tern_status group_norm_run(const struct tern_kernel_args *a)
{
    float *workspace = tern_arg_host(&a->workspace);
    const float *weight = cpu_norm_input(a, 1, &workspace), *bias = cpu_norm_input(a, 2, &workspace);
    struct groups r = tern_cpu_groups_begin(a, a->desc->attrs.group_norm.num_groups, workspace, CPU_GROUPS_SUMS | CPU_GROUPS_AFFINES);
    struct cpu_rows rows = rows_of(a->desc);
    r.eps = a->desc->attrs.group_norm.eps;
    r.weight = weight;
    r.bias = bias;
    r.post = tern_cpu_post_make(a, &rows);
    tern_cpu_groups_normalize(a->ctx, &r);
    return TERN_OK;
}

static bool stats_supports(struct tern_device *device, const struct tern_op_desc *d) { return supports_pictures(d); }

static size_t stats_workspace(struct tern_context *ctx, const struct tern_op_desc *d) { return tern_cpu_groups_room(d, CPU_GROUPS_SUMS); }

static enum tern_status stats_run(const struct tern_kernel_args *a)
{
    struct groups r = tern_cpu_groups_begin(a, a->desc->attrs.group_norm_stats.num_groups, tern_arg_host(&a->workspace), CPU_GROUPS_SUMS);
    tern_cpu_groups_stats(a->ctx, &r);
    return TERN_OK;
}

static bool apply_supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return supports_pictures(d) && cpu_norm_vector(d, 1) && cpu_norm_vector(d, 2) && cpu_norm_vector(d, 3);
}

static size_t apply_workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    return cpu_norm_room(d, 1) + cpu_norm_room(d, 2) + cpu_norm_room(d, 3) + tern_cpu_groups_room(d, CPU_GROUPS_AFFINES);
}

static enum tern_status apply_run(const struct tern_kernel_args *a)
{
    float *workspace = tern_arg_host(&a->workspace);
    const float *given = cpu_norm_input(a, 1, &workspace), *weight = cpu_norm_input(a, 2, &workspace),
                *bias = cpu_norm_input(a, 3, &workspace);
    struct groups r = tern_cpu_groups_begin(a, a->desc->in[1].shape[1], workspace, CPU_GROUPS_AFFINES);
    struct cpu_rows rows = rows_of(a->desc);
    r.given = given;
    r.eps = a->desc->attrs.group_norm_apply.eps;
    r.weight = weight;
    r.bias = bias;
    r.post = tern_cpu_post_make(a, &rows);
    tern_cpu_groups_normalize(a->ctx, &r);
    return TERN_OK;
}

const struct tern_kernel tern_cpu_group_norm_float = {.name = "group_norm_float",
                                                      .op = TERN_OP_group_norm,
                                                      .supports = group_norm_supports,
                                                      .post = picture_post,
                                                      .workspace = group_norm_workspace,
                                                      .run = group_norm_run};
const struct tern_kernel tern_cpu_group_norm_stats_float = {.name = "group_norm_stats_float",
                                                            .op = TERN_OP_group_norm_stats,
                                                            .supports = stats_supports,
                                                            .workspace = stats_workspace,
                                                            .run = stats_run};
const struct tern_kernel tern_cpu_group_norm_apply_float = {.name = "group_norm_apply_float",
                                                            .op = TERN_OP_group_norm_apply,
                                                            .supports = apply_supports,
                                                            .post = picture_post,
                                                            .workspace = apply_workspace,
                                                            .run = apply_run};

/* layer_norm and rms_norm over contiguous rows of n values of f32, f16 or bf16; from f32 with a cast as post. A row comes from memory once:
 * sums of it as it lies in L1, about a value of the data (so that large means do not cost digits), in short f32 runs added in double. */
#include "backends/cpu/norm.h"
#include "core/threads.h"

struct rows_run {
    const struct tern_cpu_level *level;
    enum tern_dtype from, to;
    const char *x;
    char *y;
    int64_t n;
    struct tern_cpu_norm norm;
};

static void rows_part(void *arg, int64_t begin, int64_t end)
{
    const struct rows_run *r = arg;
    const int64_t at = begin * r->n;
    r->level->normalize(r->from, r->to, end - begin, r->n, r->x + at * (int64_t)tern_dtype_size(r->from), &r->norm,
                        r->y + at * (int64_t)tern_dtype_size(r->to));
}

static bool rows_supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return tern_dtype_is_float(d->in[0].dtype) && tern_meta_is_contiguous(&d->in[0]) && tern_meta_is_contiguous(&d->out) &&
           cpu_norm_vector(d, 1) && cpu_norm_vector(d, 2) && tern_meta_numel(&d->in[0]) > 0;
}

static bool rows_post(const struct tern_op_desc *d)
{
    return d->n_post == 1 && d->post[0].op == TERN_OP_cast && d->in[0].dtype == TERN_F32 && tern_dtype_is_float(d->out.dtype);
}

static size_t rows_workspace(struct tern_context *ctx, const struct tern_op_desc *d) { return cpu_norm_room(d, 1) + cpu_norm_room(d, 2); }

static enum tern_status rows_run(const struct tern_kernel_args *a, int64_t ndim, double eps, bool center)
{
    const struct tern_meta *m = &a->desc->in[0];
    float *room = tern_arg_host(&a->workspace);
    struct rows_run r = {.level = cpu_level(a->ctx),
                         .from = m->dtype,
                         .to = a->desc->out.dtype,
                         .x = tern_arg_host(&a->in[0]),
                         .y = tern_arg_host(&a->out),
                         .n = 1,
                         .norm = {.weight = cpu_norm_input(a, 1, &room), .eps = eps, .center = center}};
    r.norm.bias = cpu_norm_input(a, 2, &room);
    for (int i = m->ndim - (int)ndim; i < m->ndim; i++)
        r.n *= m->shape[i];
    int64_t rows = tern_meta_numel(m) / r.n;
    tern_parallel(a->ctx, rows, 1 + 16384 / r.n, rows_part, &r);
    return TERN_OK;
}

static enum tern_status layer_norm_run(const struct tern_kernel_args *a)
{
    return rows_run(a, a->desc->attrs.layer_norm.normalized_ndim, a->desc->attrs.layer_norm.eps, true);
}
static enum tern_status rms_norm_run(const struct tern_kernel_args *a)
{
    return rows_run(a, a->desc->attrs.rms_norm.normalized_ndim, a->desc->attrs.rms_norm.eps, false);
}

#define ROWS(op_name)                                                                   \
    const struct tern_kernel tern_cpu_##op_name##_float = {.name = #op_name "_float",   \
                                                           .op = TERN_OP_##op_name,     \
                                                           .supports = rows_supports,   \
                                                           .post = rows_post,           \
                                                           .workspace = rows_workspace, \
                                                           .run = op_name##_run};
ROWS(layer_norm)
ROWS(rms_norm)

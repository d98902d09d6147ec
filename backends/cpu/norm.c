/* layer_norm and rms_norm in f32 over contiguous rows of n values. Sums are taken about a value of the data (so that large means
 * do not cost digits), in short f32 runs added in double. */
#include "backends/cpu/norm.h"
#include "core/threads.h"

struct rows_run {
    const struct tern_cpu_level *level;
    const float *x, *weight, *bias;
    float *y;
    int64_t n;
    double eps;
    bool center; /* layer_norm */
};

static void rows_part(void *arg, int64_t begin, int64_t end)
{
    const struct rows_run *r = arg;
    for (int64_t i = begin; i < end; i++) {
        const float *x = r->x + i * r->n;
        float *y = r->y + i * r->n;
        double sum, square;
        float shift = r->center ? x[0] : 0;
        r->level->moments(r->n, x, shift, &sum, &square);
        double mean = r->center ? sum / (double)r->n : 0;
        float scale = (float)cpu_norm_scale(square / (double)r->n - mean * mean, r->eps);
        float delta = (float)mean, zero = 0;
        r->level->affine(r->n, x, &(struct tern_cpu_affine){&shift, &delta, &scale, &zero}, false, y);
        if (r->weight)
            r->level->binary[TERN_CPU_MUL](r->n, y, 1, r->weight, 1, y);
        if (r->bias)
            r->level->binary[TERN_CPU_ADD](r->n, y, 1, r->bias, 1, y);
    }
}

static bool rows_supports(const struct tern_op_desc *d)
{
    return d->in[0].dtype == TERN_F32 && tern_meta_is_contiguous(&d->in[0]) && tern_meta_is_contiguous(&d->out) && cpu_norm_vector(d, 1) &&
           (d->n_in < 3 || cpu_norm_vector(d, 2)) && tern_meta_numel(&d->in[0]) > 0;
}

static enum tern_status rows_run(const struct tern_kernel_args *a, int64_t ndim, double eps, bool center)
{
    const struct tern_meta *m = &a->desc->in[0];
    struct rows_run r = {cpu_level(a->ctx),
                         cpu_norm_input(a, 0),
                         cpu_norm_input(a, 1),
                         center ? cpu_norm_input(a, 2) : NULL,
                         tern_arg_host(&a->out),
                         1,
                         eps,
                         center};
    for (int i = m->ndim - (int)ndim; i < m->ndim; i++)
        r.n *= m->shape[i];
    int64_t rows = tern_meta_numel(m) / r.n;
    tern_parallel(a->ctx, rows, 1 + 16384 / r.n, rows_part, &r);
    return TERN_OK;
}

static bool layer_norm_supports(struct tern_device *device, const struct tern_op_desc *d) { return rows_supports(d); }
static enum tern_status layer_norm_run(const struct tern_kernel_args *a)
{
    return rows_run(a, a->desc->attrs.layer_norm.normalized_ndim, a->desc->attrs.layer_norm.eps, true);
}
static bool rms_norm_supports(struct tern_device *device, const struct tern_op_desc *d) { return rows_supports(d); }
static enum tern_status rms_norm_run(const struct tern_kernel_args *a)
{
    return rows_run(a, a->desc->attrs.rms_norm.normalized_ndim, a->desc->attrs.rms_norm.eps, false);
}
const struct tern_kernel cpu_layer_norm_f32 = {
    .name = "layer_norm_f32", .op = TERN_OP_layer_norm, .supports = layer_norm_supports, .run = layer_norm_run};
const struct tern_kernel cpu_rms_norm_f32 = {
    .name = "rms_norm_f32", .op = TERN_OP_rms_norm, .supports = rms_norm_supports, .run = rms_norm_run};

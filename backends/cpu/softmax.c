/* softmax over the last dimension of contiguous f32 rows. */
#include <math.h>
#include <string.h>

#include "backends/cpu/kernels.h"
#include "core/threads.h"

struct run {
    const struct tern_cpu_level *level;
    const float *x;
    float *y;
    int64_t n;
};

static void part(void *arg, int64_t begin, int64_t end)
{
    const struct run *r = arg;
    for (int64_t i = begin; i < end; i++) {
        float *y = r->y + i * r->n;
        memcpy(y, r->x + i * r->n, (size_t)r->n * sizeof(float));
        float sum = r->level->exp_sum(r->n, y, r->level->max(r->n, y));
        r->level->unary[TERN_CPU_MUL_SCALAR](r->n, y, y, 1 / sum);
    }
}

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return d->in[0].dtype == TERN_F32 && d->attrs.softmax.dim == d->in[0].ndim - 1 && tern_meta_is_contiguous(&d->in[0]) &&
           tern_meta_is_contiguous(&d->out) && tern_meta_numel(&d->in[0]) > 0;
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_meta *m = &a->desc->in[0];
    struct run r = {cpu_level(a->ctx), tern_arg_host(&a->in[0]), tern_arg_host(&a->out), m->shape[m->ndim - 1]};
    tern_parallel(a->ctx, tern_meta_numel(m) / r.n, 1 + 16384 / r.n, part, &r);
    return TERN_OK;
}

const struct tern_kernel cpu_softmax_f32 = {.name = "softmax_f32", .op = TERN_OP_softmax, .supports = supports, .run = run};

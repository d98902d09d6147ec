/* softmax over the last dimension of contiguous rows of f32, f16 or bf16. Exponentials are f32: in the output, or in a row of scratch. */
#include "backends/cpu/kernels.h"
#include "backends/cpu/slots.h"
#include "core/threads.h"

struct run {
    const struct tern_cpu_level *level;
    enum tern_dtype dtype;
    const char *x;
    char *y;
    char *scratch; /* a row for each thread; NULL: y is f32 */
    int64_t rows, n, rows_of_task;
};

/* Bytes from one thread's row to the next one's. */
static size_t pitch(int64_t n) { return cpu_slot((size_t)n * sizeof(float)); }

static void task(void *arg, int slot, int64_t i)
{
    const struct run *r = arg;
    const int64_t row = r->n * (int64_t)tern_dtype_size(r->dtype), begin = i * r->rows_of_task;
    const int64_t end = begin + r->rows_of_task < r->rows ? begin + r->rows_of_task : r->rows;
    for (int64_t j = begin; j < end; j++) {
        float *wide = (float *)(void *)(r->scratch ? r->scratch + (size_t)slot * pitch(r->n) : r->y + j * row);
        r->level->to_f32(r->dtype, r->n, r->x + j * row, wide);
        float sum = r->level->exp_sum(r->n, wide, r->level->max(r->n, wide));
        r->level->unary[TERN_CPU_MUL_SCALAR](r->n, wide, wide, 1 / sum);
        if (r->scratch)
            r->level->from_f32(r->dtype, r->n, wide, r->y + j * row);
    }
}

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return tern_dtype_is_float(d->in[0].dtype) && d->attrs.softmax.dim == d->in[0].ndim - 1 && tern_meta_is_contiguous(&d->in[0]) &&
           tern_meta_is_contiguous(&d->out) && tern_meta_numel(&d->in[0]) > 0;
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct tern_meta *m = &d->in[0];
    return m->dtype == TERN_F32 ? 0 : cpu_slots(pitch(m->shape[m->ndim - 1]), tern_thread_count(ctx));
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_meta *m = &a->desc->in[0];
    struct run r = {.level = cpu_level(a->ctx),
                    .dtype = m->dtype,
                    .x = tern_arg_host(&a->in[0]),
                    .y = tern_arg_host(&a->out),
                    .scratch = tern_arg_host(&a->workspace),
                    .n = m->shape[m->ndim - 1]};
    r.rows = tern_meta_numel(m) / r.n;
    r.rows_of_task = 1 + 16384 / r.n;
    tern_parallel_slots(a->ctx, (r.rows + r.rows_of_task - 1) / r.rows_of_task, task, &r);
    return TERN_OK;
}

const struct tern_kernel tern_cpu_softmax_float = {
    .name = "softmax_float", .op = TERN_OP_softmax, .supports = supports, .workspace = workspace, .run = run};

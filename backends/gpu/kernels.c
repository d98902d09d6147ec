/* The kernels of devices that compile kernel texts: one for each op, which asks ops/kernels for its launches. */
#include <string.h>

#include "backends/gpu/gpu.h"
#include "core/context.h"

size_t tern_gpu_slot_bytes(const struct tern_op_desc *d, int what, size_t workspace)
{
    if (what == TERN_SLOT_WORKSPACE)
        return workspace;
    const struct tern_meta *m = what == TERN_SLOT_OUT ? &d->out : &d->in[what];
    return tern_meta_bytes(m);
}

/* Whether every argument fits into a binding wherever it begins. */
static bool fits(const struct tern_gpu *gpu, const struct tern_op_desc *d, size_t workspace)
{
    size_t most = tern_gpu_slot_bytes(d, TERN_SLOT_OUT, workspace);
    for (int i = 0; i < d->n_in; i++) {
        size_t bytes = d->present[i] ? tern_gpu_slot_bytes(d, i, workspace) : 0;
        most = bytes > most ? bytes : most;
    }
    most = workspace > most ? workspace : most;
    return !gpu->max_binding || most <= gpu->max_binding - gpu->binding_alignment;
}

/* False without memory, too: the caller's next allocation says so. */
static bool launches(const struct tern_gpu *gpu, const struct tern_op_desc *d, size_t *workspace)
{
    struct tern_launches *all = tern_alloc(gpu->base.ctx, sizeof(*all));
    bool runs = all && tern_launches_make(d, &gpu->limits, all) && fits(gpu, d, all->workspace);
    *workspace = runs ? all->workspace : 0;
    tern_free(gpu->base.ctx, all);
    return runs;
}

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    size_t workspace;
    return launches((struct tern_gpu *)device, d, &workspace);
}

/* A text applies any that its launches are made with. A post works on the f32 value: what becomes whole numbers it would reach before they
 * are, and of a cast to fewer bits it would undo all that it is for. */
static bool post(const struct tern_op_desc *d)
{
    return tern_dtype_is_float(d->out.dtype) && (d->op != TERN_OP_cast || tern_dtype_size(d->out.dtype) >= tern_dtype_size(d->in[0].dtype));
}

static size_t workspace_of(struct tern_context *ctx, const struct tern_op_desc *d)
{
    size_t workspace;
    launches((struct tern_gpu *)ctx->device, d, &workspace);
    return workspace;
}

static const struct tern_arg *slot_of(const struct tern_kernel_args *a, int what)
{
    return what == TERN_SLOT_OUT ? &a->out : what == TERN_SLOT_WORKSPACE ? &a->workspace : &a->in[what];
}

static bool is_aligned(const struct tern_kernel_args *a)
{
    size_t bits = a->out.offset;
    for (int i = 0; i < a->desc->n_in; i++)
        bits |= a->in[i].offset;
    return bits % 16 == 0;
}

/* Indices of texts have 32 bits, and count from where the buffer is bound. */
static enum tern_status add_offset(struct tern_context *ctx, struct tern_launch *l, int slot, size_t offset)
{
    int64_t sum = l->params.head.offset[slot] + (int64_t)(offset / l->slot[slot].size);
    if (sum > INT32_MAX / 2)
        return tern_fail(ctx, TERN_E_UNSUPPORTED,
                         "%s: its memory begins %zu bytes behind the start of a buffer, more than kernels can count", l->text, offset);
    l->params.head.offset[slot] = (int32_t)sum;
    return TERN_OK;
}

static enum tern_status enqueue(struct tern_gpu *gpu, const struct tern_kernel_args *a)
{
    struct tern_gpu_call *c = tern_gpu_borrow_call(gpu, a->desc, is_aligned(a));
    enum tern_status st = c ? TERN_OK : tern_error_status(a->ctx);
    for (int i = 0; !st && i < c->n; i++) {
        struct tern_launch l = c->launch[i];
        struct tern_arg slots[TERN_MAX_SLOTS];
        for (int s = 0; s < l.n_slots && !st; s++) {
            slots[s] = *slot_of(a, l.slot[s].what);
            if (l.slot[s].what == TERN_SLOT_WORKSPACE && !slots[s].buffer) /* how much it needs could not be found without memory */
                st = tern_fail(a->ctx, TERN_E_NO_MEMORY, "%s: out of memory", l.text);
            else
                st = add_offset(a->ctx, &l, s, slots[s].offset - tern_gpu_bound(gpu, slots[s].offset));
        }
        st = st ? st : gpu->fns->enqueue(gpu, c->program[i], &l, slots);
    }
    if (c)
        tern_gpu_return_call(gpu, c);
    return st;
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    struct tern_gpu *gpu = (struct tern_gpu *)a->out.buffer->device;
    pthread_mutex_lock(&gpu->lock);
    enum tern_status st = enqueue(gpu, a);
    pthread_mutex_unlock(&gpu->lock);
    return st;
}

/* One kernel for every op. */
#define OP(op_name, inputs, attrs, counterpart)       \
    static const struct tern_kernel gpu_##op_name = { \
        .name = #op_name "_text", .op = TERN_OP_##op_name, .supports = supports, .post = post, .workspace = workspace_of, .run = run};
#include "ops/ops.def"
#undef OP
const struct tern_kernel *const tern_gpu_kernels[] = {
#define OP(op_name, inputs, attrs, counterpart) &gpu_##op_name,
#include "ops/ops.def"
#undef OP
    NULL};

void tern_gpu_open(struct tern_gpu *gpu, struct tern_context *ctx, const char *name)
{
    gpu->base.ctx = ctx;
    gpu->base.name = name;
    gpu->base.kernels = tern_gpu_kernels;
    gpu->base.caps.prefers_channels_last = true;
    gpu->base.caps.computes = true;
    gpu->base.caps.merges = true;
    gpu->base.caps.compiling = (size_t)512 << 10; /* a source has up to 63 KB; what a driver's binary has is not known before */
    pthread_mutexattr_t recursive;                /* a capture holds it over many launches */
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&gpu->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
}

void tern_gpu_close(struct tern_gpu *gpu)
{
    tern_gpu_drop_calls(gpu);
    tern_gpu_drop_programs(gpu);
    pthread_mutex_destroy(&gpu->lock);
}

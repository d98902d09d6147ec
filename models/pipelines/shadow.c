/* The shadow of a device. */
#include "models/pipelines/shadow.h"

#include <string.h>

#include "core/context.h"
#include "core/tensor.h"
#include "ops/dispatch.h"
#include "ops/select.h"

#define BLOCK 64 /* what the allocator adds to each block */

/* A weight's packed form that the device would make. */
struct packed {
    const tern_tensor *tensor;
    const struct tern_kernel *kernel;
    uint64_t key;
    size_t size;
};

struct tern_shadow {
    struct tern_device base;
    struct tern_queue queue;
    struct tern_device *of;
    struct packed *packed;
    int n_packed, capacity;
    char forced[64];
    size_t budget, peak, held; /* of the context, before; by tern_shadow_hold */
};

static void count(struct tern_context *ctx, size_t size)
{
    size_t used = __atomic_add_fetch(&ctx->used, size, __ATOMIC_RELAXED), peak = __atomic_load_n(&ctx->peak, __ATOMIC_RELAXED);
    while (used > peak && !__atomic_compare_exchange_n(&ctx->peak, &peak, used, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static void uncount(struct tern_context *ctx, size_t size) { __atomic_sub_fetch(&ctx->used, size, __ATOMIC_RELAXED); }

/* ---- buffers: a size and no memory */

static void buffer_destroy(struct tern_buffer *b)
{
    struct tern_context *ctx = b->device->ctx;
    uncount(ctx, b->size + BLOCK);
    tern_free(ctx, b);
}

static enum tern_status buffer_write(struct tern_buffer *b, size_t offset, const void *src, size_t size) { return TERN_OK; }

static enum tern_status buffer_read(struct tern_buffer *b, size_t offset, void *dst, size_t size)
{
    memset(dst, 0, size);
    return TERN_OK;
}

static const struct tern_buffer_fns buffer_fns = {buffer_destroy, buffer_write, buffer_read};

static struct tern_buffer *buffer_create(struct tern_device *d, size_t size)
{
    struct tern_buffer *b = tern_calloc(d->ctx, 1, sizeof(*b));
    if (b) {
        *b = (struct tern_buffer){.fns = &buffer_fns, .device = d, .refs = 1, .size = size};
        count(d->ctx, size + BLOCK);
    }
    return b;
}

static const struct tern_device_fns device_fns = {.buffer_create = buffer_create};

/* ---- launches: only what the kernel would pack is counted */

static bool is_packed(const struct tern_shadow *s, const tern_tensor *t, const struct tern_kernel *k, uint64_t key)
{
    for (const struct tern_prepared *p = t->prepared; p; p = p->next)
        if (p->kernel == k && p->key == key)
            return true;
    for (int i = 0; i < s->n_packed; i++)
        if (s->packed[i].tensor == t && s->packed[i].kernel == k && s->packed[i].key == key)
            return true;
    return false;
}

static enum tern_status add_packed(struct tern_shadow *s, const struct packed *p)
{
    struct tern_context *ctx = s->base.ctx;
    if (s->n_packed == s->capacity) {
        struct packed *grown = tern_realloc(ctx, s->packed, (size_t)(2 * s->capacity + 256) * sizeof(*grown));
        if (!grown)
            return TERN_E_NO_MEMORY;
        s->packed = grown;
        s->capacity = 2 * s->capacity + 256;
    }
    s->packed[s->n_packed++] = *p;
    count(ctx, p->size);
    return TERN_OK;
}

/* The kernel that the device would run; NULL: its reference. */
static const struct tern_kernel *original(struct tern_shadow *s, const struct tern_op_desc *d)
{
    return tern_kernel_choose(s->base.ctx, s->of, d);
}

static enum tern_status launch(struct tern_queue *q, const struct tern_kernel *k, const struct tern_kernel_args *a)
{
    struct tern_shadow *s = (struct tern_shadow *)q->device;
    const struct tern_kernel *o = original(s, a->desc);
    if (!o || !o->pack)
        return TERN_OK;
    struct packed p = {a->tensors[o->pack_input], o, o->pack_key ? o->pack_key(a->desc) : 0,
                       o->packed_size(a->ctx, a->desc) + 3 * BLOCK + sizeof(struct tern_prepared) + sizeof(struct tern_buffer)};
    if (!a->desc->constant[o->pack_input]) {
        count(a->ctx, p.size);
        uncount(a->ctx, p.size);
        return TERN_OK;
    }
    return is_packed(s, p.tensor, o, p.key) ? TERN_OK : add_packed(s, &p);
}

static const struct tern_queue_fns queue_fns = {.launch = launch};

/* ---- one kernel for every op: it supports what the device's kernels do, and what the reference is left with */

/* The last rung of the dispatcher's ladder, after tidying and widening. */
static bool is_left_to_reference(const struct tern_op_desc *d)
{
    if (d->op == TERN_OP_cast || d->op == TERN_OP_contiguous)
        return true;
    for (int i = 0; i < d->n_in; i++)
        if (d->present[i] && !tern_meta_is_contiguous(&d->in[i]) && !tern_meta_is_channels_last(&d->in[i]))
            return false;
    return !d->n_in || (d->in[0].dtype != TERN_F16 && d->in[0].dtype != TERN_BF16);
}

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return original((struct tern_shadow *)device, d) || is_left_to_reference(d);
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct tern_kernel *o = original((struct tern_shadow *)ctx->device, d);
    return o && o->workspace ? o->workspace(ctx, d) : 0;
}

#define OP(op_name, inputs, attrs, counterpart)          \
    static const struct tern_kernel shadow_##op_name = { \
        .name = "shadow_" #op_name, .op = TERN_OP_##op_name, .supports = supports, .workspace = workspace};
#include "ops/ops.def"
#undef OP
static const struct tern_kernel *const kernels[] = {
#define OP(op_name, inputs, attrs, counterpart) &shadow_##op_name,
#include "ops/ops.def"
#undef OP
    NULL};

struct tern_shadow *tern_shadow_begin(struct tern_context *ctx)
{
    struct tern_shadow *s = tern_calloc(ctx, 1, sizeof(*s));
    if (!s)
        return NULL;
    s->base = *ctx->device;
    s->base.fns = &device_fns;
    s->base.ctx = ctx;
    s->base.kernels = kernels;
    s->base.queue = &s->queue;
    s->base.caps.host_memory = s->base.caps.computes = false;
    s->queue = (struct tern_queue){.fns = &queue_fns, .device = &s->base};
    s->of = ctx->device;
    const char *forced = tern_dispatch_forced(ctx);
    strncpy(s->forced, forced ? forced : "", sizeof(s->forced) - 1);
    if (tern_dispatch_force(ctx, NULL)) {
        tern_free(ctx, s);
        return NULL;
    }
    tern_memory_trim(ctx); /* what is kept for reuse is not needed */
    s->budget = ctx->params.budget;
    s->peak = tern_memory_peak(ctx);
    ctx->device = &s->base;
    ctx->params.budget = 0;
    tern_memory_reset_peak(ctx);
    return s;
}

size_t tern_shadow_end(struct tern_shadow **shadow)
{
    struct tern_shadow *s = *shadow;
    *shadow = NULL;
    if (!s)
        return 0;
    struct tern_context *ctx = s->base.ctx;
    size_t most = tern_memory_peak(ctx);
    tern_shadow_forget(s, 0);
    uncount(ctx, s->held);
    ctx->device = s->of;
    ctx->params.budget = s->budget;
    __atomic_store_n(&ctx->peak, s->peak, __ATOMIC_RELAXED);
    tern_dispatch_force(ctx, s->forced[0] ? s->forced : NULL); /* forgets what was chosen for the shadow, too */
    tern_free(ctx, s->packed);
    tern_free(ctx, s);
    return most;
}

void tern_shadow_hold(struct tern_shadow *s, size_t size)
{
    if (!s)
        return;
    s->held += size;
    count(s->base.ctx, size);
}

void tern_shadow_release(struct tern_shadow *s, size_t size)
{
    if (!s)
        return;
    s->held -= size;
    uncount(s->base.ctx, size);
}

size_t tern_shadow_packed(const struct tern_shadow *s)
{
    size_t sum = 0;
    for (int i = 0; s && i < s->n_packed; i++)
        sum += s->packed[i].size;
    return sum;
}

void tern_shadow_forget(struct tern_shadow *s, size_t size)
{
    for (size_t left = tern_shadow_packed(s); s && left > size;) {
        const struct packed *p = &s->packed[--s->n_packed];
        left -= p->size;
        uncount(s->base.ctx, p->size);
    }
}

/* Descriptions that were met before, with their launches: what steps of a plan ask for again and again. */
#include <string.h>

#include "backends/gpu/gpu.h"
#include "core/context.h"
#include "ops/op.h"

static struct tern_gpu_call *make(struct tern_gpu *gpu, const struct tern_op_desc *d, bool aligned)
{
    struct tern_context *ctx = gpu->base.ctx;
    struct tern_launch_limits limits = gpu->limits;
    struct tern_launches *all = tern_alloc(ctx, sizeof(*all));
    limits.vectors = limits.vectors && aligned;
    if (!all)
        return NULL;
    struct tern_gpu_call *c = NULL;
    if (!tern_launches_make(d, &limits, all))
        tern_fail(ctx, TERN_E_INTERNAL, "%s: no kernel text runs a call that one ran before", tern_op_get(d->op).name);
    else
        c = tern_calloc(ctx, 1, sizeof(*c) + (size_t)all->n * sizeof(c->launch[0]));
    for (int i = 0; c && i < all->n; i++) {
        c->launch[i] = all->launch[i];
        c->launch[i].flops = tern_desc_flops(d);
        for (int s = 0; s < c->launch[i].n_slots; s++)
            c->launch[i].slot[s].bytes = tern_gpu_slot_bytes(d, c->launch[i].slot[s].what, all->workspace);
        if (!(c->program[i] = tern_gpu_program(gpu, &all->launch[i], all->defines[i]))) {
            tern_free(ctx, c);
            c = NULL;
        }
    }
    if (c)
        c->n = all->n;
    tern_free(ctx, all);
    return c;
}

/* Out of its chain; NULL when it was not met before, or is gone. */
static struct tern_gpu_call *take(struct tern_gpu_call **at, uint64_t hash, const struct tern_op_desc *d, bool aligned)
{
    struct tern_gpu_call *c;
    while ((c = *at) && (c->hash != hash || c->aligned != aligned || memcmp(&c->desc, d, sizeof(*d))))
        at = &c->next;
    if (c)
        *at = c->next;
    return c;
}

struct tern_gpu_call *tern_gpu_borrow_call(struct tern_gpu *gpu, const struct tern_op_desc *d, bool aligned)
{
    const uint64_t hash = tern_gpu_hash(aligned, d, sizeof(*d));
    struct tern_gpu_call *c = take(&gpu->calls[hash % TERN_GPU_TABLE], hash, d, aligned);
    if (!c && (c = make(gpu, d, aligned))) {
        c->hash = hash;
        c->aligned = aligned;
        c->desc = *d;
    }
    return c;
}

/* Of a chain that has grown too long the call that was asked for longest ago goes. */
static void shorten(struct tern_gpu *gpu, struct tern_gpu_call **at)
{
    for (int i = 0; *at && i < TERN_GPU_CHAIN; i++)
        at = &(*at)->next;
    tern_free(gpu->base.ctx, *at);
    *at = NULL;
}

void tern_gpu_return_call(struct tern_gpu *gpu, struct tern_gpu_call *c)
{
    struct tern_gpu_call **chain = &gpu->calls[c->hash % TERN_GPU_TABLE];
    c->next = *chain;
    *chain = c;
    shorten(gpu, chain);
}

void tern_gpu_drop_calls(struct tern_gpu *gpu)
{
    for (int i = 0; i < TERN_GPU_TABLE; i++)
        while (gpu->calls[i]) {
            struct tern_gpu_call *c = gpu->calls[i];
            gpu->calls[i] = c->next;
            tern_free(gpu->base.ctx, c);
        }
}

void tern_gpu_trim(struct tern_device *device)
{
    struct tern_gpu *gpu = (struct tern_gpu *)device;
    if (pthread_mutex_trylock(&gpu->lock)) /* another thread works with them: it may be the one that waits for this one */
        return;
    tern_gpu_drop_calls(gpu);
    pthread_mutex_unlock(&gpu->lock);
}

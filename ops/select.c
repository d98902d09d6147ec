/* Choosing among the kernels of a device. The choice is remembered by description. */
#include "ops/select.h"

#include <string.h>

#include "core/context.h"
#include "ops/dispatch.h"

const struct tern_kernel *tern_kernel_find(const struct tern_device *device, const char *name)
{
    for (int i = 0; device->kernels[i]; i++)
        if (!strcmp(device->kernels[i]->name, name))
            return device->kernels[i];
    return NULL;
}

bool tern_kernel_takes(const struct tern_kernel *k, struct tern_device *device, const struct tern_op_desc *d)
{
    return k->op == d->op && (!d->n_post || (k->post && k->post(d))) && (!d->pre.num_groups || (k->pre && k->pre(device, d)));
}

static const struct tern_kernel *choose(struct tern_context *ctx, struct tern_device *device, const struct tern_op_desc *d, bool planned)
{
    const struct tern_kernel *best = NULL;
    double best_cost = 0;
    const char *forced = tern_dispatch_forced(ctx);
    const struct tern_kernel *only = forced ? tern_kernel_find(device, forced) : NULL; /* NULL: the reference is forced */
    if (only && only->op != d->op)
        forced = NULL;
    for (int i = 0; device->kernels[i]; i++) {
        const struct tern_kernel *k = device->kernels[i];
        if ((forced && strcmp(forced, k->name)) || !tern_kernel_takes(k, device, d))
            continue;
        if (k->planned && !planned && !forced)
            continue;
        double cost = tern_kernel_cost(device, k, d);
        if ((!best || cost < best_cost) && k->supports(device, d)) {
            best = k;
            best_cost = cost;
        }
    }
    return best;
}

int tern_kernel_candidates(struct tern_device *device, const struct tern_op_desc *d, double within, struct tern_candidate *list, int most)
{
    double least = 0;
    int n = 0;
    for (int i = 0; device->kernels[i]; i++) {
        const struct tern_kernel *k = device->kernels[i];
        if (!tern_kernel_takes(k, device, d))
            continue;
        double cost = tern_kernel_cost(device, k, d);
        int at = n;
        while (at > 0 && list[at - 1].cost > cost)
            at--;
        if (at == most)
            continue;
        n = n < most ? n + 1 : n;
        memmove(&list[at + 1], &list[at], (size_t)(n - 1 - at) * sizeof(*list));
        list[at] = (struct tern_candidate){k, cost};
    }
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if ((kept && within > 0 && list[i].cost > within * least) || !list[i].kernel->supports(device, d))
            continue;
        if (!kept)
            least = list[i].cost;
        list[kept++] = list[i];
    }
    return kept;
}

const struct tern_kernel *tern_kernel_choose(struct tern_context *ctx, struct tern_device *device, const struct tern_op_desc *d)
{
    return choose(ctx, device, d, false);
}

const struct tern_kernel *tern_kernel_choose_planned(struct tern_context *ctx, struct tern_device *device, const struct tern_op_desc *d)
{
    return choose(ctx, device, d, true);
}

static uint64_t hash_bytes(const void *p, size_t n)
{
    const uint64_t *w = p;
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < n / 8; i++) {
        h = (h ^ w[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

const struct tern_kernel *tern_select_cached(struct tern_context *ctx, struct tern_select_cache *cache, struct tern_device *device,
                                             const struct tern_op_desc *d)
{
    _Static_assert(sizeof(*d) % 8 == 0, "hashed in words");
    uint64_t h = hash_bytes(d, sizeof(*d)) | 1;
    struct tern_select_entry *e = &cache->entries[h % TERN_SELECT_ENTRIES];
    if (e->hash == h && e->device == device && !memcmp(&e->desc, d, sizeof(*d)))
        return e->kernel;
    const struct tern_kernel *k = tern_kernel_choose(ctx, device, d);
    *e = (struct tern_select_entry){h, device, k, *d};
    return k;
}

/* The tracked allocator: a header in front of every block holds its size. */
#include "core/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"

#define HEADER TERN_MEMORY_HEADER
#define KEPT_MOST ((size_t)256 << 20)
#define KEPT_STEP ((size_t)1 << 20)

struct header {
    size_t size; /* of the whole block */
};

/* In the heap a few small blocks among the big ones kept 0.4 GiB of a finished picture of SD 1.5 resident: big ones are
 * pages of their own. */
static bool is_pages(size_t size) { return size >= TERN_PAGES_FROM; }

/* Free pages that are kept never raise what the context has taken: before that, they go, more than a few at a time. */
static void trim_pages(struct tern_context *ctx)
{
    const size_t used = tern_memory_used(ctx), most = __atomic_load_n(&ctx->most, __ATOMIC_RELAXED), room = most > used ? most - used : 0;
    const size_t kept = tern_pages_kept(&ctx->pages), limit = room < KEPT_MOST ? room : KEPT_MOST;
    if (kept > limit)
        tern_pages_trim(&ctx->pages, limit > KEPT_STEP ? limit - KEPT_STEP : 0);
}

static void *system_alloc(struct tern_context *ctx, size_t size, bool cleared)
{
    void *p = is_pages(size) && !cleared ? tern_pages_take(&ctx->pages, size) : NULL;
    if (p)
        return p;
    trim_pages(ctx);
    if (is_pages(size))
        return tern_pages_map(size);
    return posix_memalign(&p, HEADER, size) ? NULL : p;
}

static void system_free(struct tern_context *ctx, void *p, size_t size)
{
    if (!is_pages(size)) {
        free(p);
        return;
    }
    tern_pages_keep(&ctx->pages, p, size);
    tern_pages_trim(&ctx->pages, KEPT_MOST);
}

static void *raw_alloc(struct tern_context *ctx, size_t size, bool cleared)
{
    const struct tern_allocator *a = &ctx->params.allocator;
    return a->alloc ? a->alloc(size, HEADER, a->user) : system_alloc(ctx, size, cleared);
}

static void raw_free(struct tern_context *ctx, void *p, size_t size)
{
    const struct tern_allocator *a = &ctx->params.allocator;
    if (a->free)
        a->free(p, size, a->user);
    else
        system_free(ctx, p, size);
}

static void raise(size_t *most, size_t to)
{
    size_t now = __atomic_load_n(most, __ATOMIC_RELAXED);
    while (to > now && !__atomic_compare_exchange_n(most, &now, to, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

void tern_memory_raise_peak(struct tern_context *ctx, size_t peak) { raise(&ctx->peak, peak); }

size_t tern_memory_limit(const struct tern_context *ctx)
{
    return __atomic_load_n(&ctx->unlimited, __ATOMIC_RELAXED) ? 0 : ctx->params.budget;
}

/* Counts `size` more bytes; false when the budget does not allow them. Not counted before that is known: what one thread is refused would
 * be missing for another meanwhile. */
static bool reserve(struct tern_context *ctx, size_t size)
{
    const size_t budget = tern_memory_limit(ctx);
    size_t used = tern_memory_used(ctx);
    do
        if (budget && (used > budget || size > budget - used))
            return false;
    while (!__atomic_compare_exchange_n(&ctx->used, &used, used + size, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return true;
}

static void *try_alloc(struct tern_context *ctx, size_t total, bool cleared, bool *over_budget)
{
    *over_budget = !reserve(ctx, total);
    if (*over_budget)
        return NULL;
    void *p = raw_alloc(ctx, total, cleared);
    if (p) {
        raise(&ctx->peak, tern_memory_used(ctx));
        raise(&ctx->most, tern_memory_used(ctx));
    } else
        __atomic_sub_fetch(&ctx->used, total, __ATOMIC_RELAXED);
    return p;
}

enum tern_status tern_memory_charge(struct tern_context *ctx, const char *device, size_t size)
{
    bool fits = reserve(ctx, size);
    if (!fits) {
        tern_memory_trim(ctx);
        fits = reserve(ctx, size);
    }
    if (!fits)
        return tern_fail(ctx, TERN_E_BUDGET, "memory budget of %zu bytes reached on device %s: %zu in use, %zu more needed",
                         ctx->params.budget, device, tern_memory_used(ctx), size);
    raise(&ctx->peak, tern_memory_used(ctx));
    trim_pages(ctx);
    return TERN_OK;
}

void tern_memory_discharge(struct tern_context *ctx, size_t size) { __atomic_sub_fetch(&ctx->used, size, __ATOMIC_RELAXED); }

/* cleared: of new pages, where it is that large. */
static void *alloc(struct tern_context *ctx, size_t size, bool cleared)
{
    size_t total;
    bool over_budget = false;
    if (__builtin_add_overflow(size, HEADER, &total) || total > PTRDIFF_MAX) {
        tern_fail(ctx, TERN_E_NO_MEMORY, "out of memory: a block of %zu bytes was asked for", size);
        return NULL;
    }
    void *p = try_alloc(ctx, total, cleared, &over_budget);
    if (!p) {
        tern_memory_trim(ctx);
        p = try_alloc(ctx, total, cleared, &over_budget);
    }
    if (!p) {
        if (over_budget)
            tern_fail(ctx, TERN_E_BUDGET,
                      "memory budget of %zu bytes reached: %zu in use, %zu more needed here; a larger budget would help",
                      ctx->params.budget, tern_memory_used(ctx), total);
        else
            tern_fail(ctx, TERN_E_NO_MEMORY, "out of memory: %zu bytes more on top of %zu in use", total, tern_memory_used(ctx));
        return NULL;
    }
    __atomic_add_fetch(&ctx->allocations, 1, __ATOMIC_RELAXED);
    ((struct header *)p)->size = total;
    return (char *)p + HEADER;
}

void *tern_alloc(struct tern_context *ctx, size_t size) { return alloc(ctx, size, false); }

/* Whether a block of that size comes cleared: pages of a new mapping are zero, and those that nobody writes take no memory. */
static bool comes_cleared(const struct tern_context *ctx, size_t size) { return !ctx->params.allocator.alloc && is_pages(size); }

void *tern_calloc(struct tern_context *ctx, size_t n, size_t size)
{
    size_t total;
    if (!tern_mul_size(n, size, &total)) {
        tern_fail(ctx, TERN_E_NO_MEMORY, "out of memory: %zu elements of %zu bytes were asked for", n, size);
        return NULL;
    }
    void *p = alloc(ctx, total, true);
    if (p && !comes_cleared(ctx, total))
        memset(p, 0, total);
    return p;
}

void tern_free(struct tern_context *ctx, void *ptr)
{
    if (!ptr)
        return;
    struct header *h = (struct header *)((char *)ptr - HEADER);
    size_t size = h->size;
    raw_free(ctx, h, size);
    __atomic_sub_fetch(&ctx->used, size, __ATOMIC_RELAXED);
}

void *tern_realloc(struct tern_context *ctx, void *ptr, size_t size)
{
    void *p = tern_alloc(ctx, size);
    if (p && ptr) {
        size_t old = ((struct header *)((char *)ptr - HEADER))->size - HEADER;
        memcpy(p, ptr, old < size ? old : size);
        tern_free(ctx, ptr);
    }
    return p;
}

bool tern_grow(struct tern_context *ctx, void **array, int count, int *capacity, size_t size)
{
    if (count < *capacity)
        return true;
    int n = *capacity ? 2 * *capacity : 64;
    void *p = tern_realloc(ctx, *array, (size_t)n * size);
    if (!p)
        return false;
    *array = p;
    *capacity = n;
    return true;
}

char *tern_strndup(struct tern_context *ctx, const char *s, size_t n)
{
    char *p = tern_alloc(ctx, n + 1);
    if (p) {
        memcpy(p, s, n);
        p[n] = 0;
    }
    return p;
}

char *tern_strdup(struct tern_context *ctx, const char *s) { return tern_strndup(ctx, s, strlen(s)); }

char *tern_sprintf(struct tern_context *ctx, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : tern_alloc(ctx, (size_t)n + 1);
    if (p) {
        va_start(ap, fmt);
        vsnprintf(p, (size_t)n + 1, fmt, ap);
        va_end(ap);
    }
    return p;
}

size_t tern_memory_used(const struct tern_context *ctx) { return ctx ? __atomic_load_n(&ctx->used, __ATOMIC_RELAXED) : 0; }
size_t tern_memory_peak(const struct tern_context *ctx) { return ctx ? __atomic_load_n(&ctx->peak, __ATOMIC_RELAXED) : 0; }
uint64_t tern_memory_allocations(const struct tern_context *ctx) { return ctx ? __atomic_load_n(&ctx->allocations, __ATOMIC_RELAXED) : 0; }

void tern_memory_reset_peak(struct tern_context *ctx)
{
    if (ctx)
        __atomic_store_n(&ctx->peak, tern_memory_used(ctx), __ATOMIC_RELAXED);
}

void tern_memory_trim_devices(struct tern_context *ctx)
{
    struct tern_device *devices[] = {ctx->own, ctx->host};
    for (int i = 0; i < 2; i++)
        if (devices[i] && devices[i]->fns->trim)
            devices[i]->fns->trim(devices[i]);
}

void tern_memory_trim(struct tern_context *ctx)
{
    if (!ctx)
        return;
    tern_memory_trim_devices(ctx);
    tern_pages_trim(&ctx->pages, 0);
}

void tern_free_text(struct tern_context *ctx, char *text)
{
    if (ctx)
        tern_free(ctx, text);
}

/* The tracked allocator: a 64-byte header in front of every block holds its size. */
#include "core/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/context.h"
#include "core/threads.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older ones refuse it */
#endif

#define HEADER ((size_t)64)
#ifdef TERN_HEAP_ONLY
#define MAP_FROM SIZE_MAX /* AddressSanitizer watches the heap only */
#else
#define MAP_FROM ((size_t)1 << 20)
#endif

struct header {
    size_t size; /* of the whole block */
};

/* Big blocks are mappings of their own: what is freed goes back to the system at once. In the heap a few small blocks
 * among the big ones kept 0.4 GiB of a finished picture of SD 1.5 resident. Huge pages are not asked for: the guest of a virtual
 * machine that gives free memory back to its host waited 4.7 ms for each (a model took 1.8 s longer to start), and no step was faster
 * with them. */
static void *map_alloc(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void *system_alloc(size_t size)
{
    void *p = NULL;
    if (size >= MAP_FROM)
        return map_alloc(size);
    return posix_memalign(&p, HEADER, size) ? NULL : p;
}

static void system_free(void *p, size_t size)
{
    if (size >= MAP_FROM)
        munmap(p, size);
    else
        free(p);
}

static void *raw_alloc(struct tern_context *ctx, size_t size)
{
    const struct tern_allocator *a = &ctx->params.allocator;
    return a->alloc ? a->alloc(size, HEADER, a->user) : system_alloc(size);
}

static void raw_free(struct tern_context *ctx, void *p, size_t size)
{
    const struct tern_allocator *a = &ctx->params.allocator;
    if (a->free)
        a->free(p, size, a->user);
    else
        system_free(p, size);
}

void tern_memory_raise_peak(struct tern_context *ctx, size_t peak)
{
    size_t now = __atomic_load_n(&ctx->peak, __ATOMIC_RELAXED);
    while (peak > now && !__atomic_compare_exchange_n(&ctx->peak, &now, peak, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* Counts `size` more bytes; false when the budget does not allow them. */
static bool reserve(struct tern_context *ctx, size_t size)
{
    size_t budget = ctx->params.budget;
    size_t used = __atomic_add_fetch(&ctx->used, size, __ATOMIC_RELAXED);
    if (budget && used > budget) {
        __atomic_sub_fetch(&ctx->used, size, __ATOMIC_RELAXED);
        return false;
    }
    tern_memory_raise_peak(ctx, used);
    return true;
}

static void *try_alloc(struct tern_context *ctx, size_t total, bool *over_budget)
{
    *over_budget = !reserve(ctx, total);
    if (*over_budget)
        return NULL;
    void *p = raw_alloc(ctx, total);
    if (!p)
        __atomic_sub_fetch(&ctx->used, total, __ATOMIC_RELAXED);
    return p;
}

enum tern_status tern_memory_charge(struct tern_context *ctx, const char *device, size_t size)
{
    if (reserve(ctx, size))
        return TERN_OK;
    tern_memory_trim(ctx);
    if (reserve(ctx, size))
        return TERN_OK;
    return tern_fail(ctx, TERN_E_BUDGET, "memory budget of %zu bytes reached on device %s: %zu in use, %zu more needed", ctx->params.budget,
                     device, tern_memory_used(ctx), size);
}

void tern_memory_discharge(struct tern_context *ctx, size_t size) { __atomic_sub_fetch(&ctx->used, size, __ATOMIC_RELAXED); }

void *tern_alloc(struct tern_context *ctx, size_t size)
{
    size_t total;
    bool over_budget = false;
    if (__builtin_add_overflow(size, HEADER, &total)) {
        tern_fail(ctx, TERN_E_NO_MEMORY, "out of memory: a block of %zu bytes was asked for", size);
        return NULL;
    }
    void *p = try_alloc(ctx, total, &over_budget);
    if (!p) {
        tern_memory_trim(ctx);
        p = try_alloc(ctx, total, &over_budget);
    }
    if (!p) {
        if (over_budget)
            tern_fail(ctx, TERN_E_BUDGET,
                      "memory budget of %zu bytes reached: %zu in use, %zu more needed; a budget of at least %zu would help",
                      ctx->params.budget, tern_memory_used(ctx), total, tern_memory_used(ctx) + total);
        else
            tern_fail(ctx, TERN_E_NO_MEMORY, "out of memory: %zu bytes more on top of %zu in use", total, tern_memory_used(ctx));
        return NULL;
    }
    __atomic_add_fetch(&ctx->allocations, 1, __ATOMIC_RELAXED);
    ((struct header *)p)->size = total;
    return (char *)p + HEADER;
}

/* Whether a block of that size comes cleared: pages of a new mapping are zero, and those that nobody writes take no memory. */
static bool comes_cleared(const struct tern_context *ctx, size_t size) { return !ctx->params.allocator.alloc && size >= MAP_FROM; }

void *tern_calloc(struct tern_context *ctx, size_t n, size_t size)
{
    size_t total;
    if (!tern_mul_size(n, size, &total)) {
        tern_fail(ctx, TERN_E_NO_MEMORY, "out of memory: %zu elements of %zu bytes were asked for", n, size);
        return NULL;
    }
    void *p = tern_alloc(ctx, total);
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

static void populate_task(void *arg, int64_t begin, int64_t end)
{
    madvise((char *)arg + begin, (size_t)(end - begin), MADV_POPULATE_WRITE);
}

void tern_memory_populate(struct tern_context *ctx, void *ptr, size_t size)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)ptr + page - 1) & ~(page - 1),
                    to = ((uintptr_t)ptr + size) & ~(page - 1);
    if (size >= MAP_FROM)
        tern_parallel(ctx, (int64_t)(to - from), 1 << 20, populate_task, (void *)from);
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

void tern_memory_trim(struct tern_context *ctx)
{
    struct tern_device *devices[] = {ctx ? ctx->device : NULL, ctx ? ctx->host : NULL};
    for (int i = 0; i < 2; i++)
        if (devices[i] && devices[i]->fns->trim)
            devices[i]->fns->trim(devices[i]);
}

void tern_free_text(struct tern_context *ctx, char *text)
{
    if (ctx)
        tern_free(ctx, text);
}

/* Pages of new memory, before they are written. */
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/context.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older ones refuse it */
#endif

#define SLOW 1e-3 /* seconds; as small pages, so many bytes take some 0.6 ms */

struct populate {
    struct tern_context *ctx;
    char *from; /* its pieces are of a huge page each, the first and the last what there is of it */
    char *begin, *end;
};

/* Of this thread: others may have the core meanwhile. */
static double own_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A huge page is 6 times as fast as the small ones that it stands for; but the guest of a virtual machine that gives free memory back to
 * its host waits 4.7 ms for each that it has to fetch again. Then the rest is small ones. */
static void populate_piece(const struct populate *r, char *p)
{
    char *from = p < r->begin ? r->begin : p, *to = r->end - p > (ptrdiff_t)TERN_HUGE_PAGE ? p + TERN_HUGE_PAGE : r->end;
    bool *slow = &r->ctx->pages.slow;
    const bool huge = (size_t)(to - from) == TERN_HUGE_PAGE && !__atomic_load_n(slow, __ATOMIC_RELAXED) && !r->ctx->params.allocator.alloc;
    if (huge)
        madvise(from, TERN_HUGE_PAGE, MADV_HUGEPAGE);
    const double start = huge ? own_seconds() : 0;
    const bool there = !madvise(from, (size_t)(to - from), MADV_POPULATE_WRITE);
    if (huge && (!there || own_seconds() - start > SLOW))
        __atomic_store_n(slow, true, __ATOMIC_RELAXED);
}

static void populate_task(void *arg, int64_t begin, int64_t end)
{
    const struct populate *r = arg;
    for (int64_t i = begin; i < end; i++)
        populate_piece(r, r->from + i * (int64_t)TERN_HUGE_PAGE);
}

void tern_memory_populate(struct tern_context *ctx, void *ptr, size_t size)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = ((uintptr_t)ptr + page - 1) & ~(page - 1),
                    end = ((uintptr_t)ptr + size) & ~(page - 1), from = begin & ~(TERN_HUGE_PAGE - 1);
    struct populate r = {ctx, (char *)from, (char *)begin, (char *)end};
    if (size >= TERN_PAGES_FROM)
        tern_parallel(ctx, (int64_t)((end - from + TERN_HUGE_PAGE - 1) / TERN_HUGE_PAGE), 1, populate_task, &r);
}

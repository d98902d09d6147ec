/* Parallel loops on pthreadpool. */
#include "core/threads.h"

#include "core/context.h"

/* Workers sleep as soon as there is nothing to do. By default they spin for milliseconds: one that shares a core with the
 * thread it waits for then holds it up at every op, a picture of the demo in 18 s instead of 2.3 s on a busy machine.
 * On an idle one the difference cannot be measured. */
#define FLAGS PTHREADPOOL_FLAG_YIELD_WORKERS

struct range_call {
    void (*fn)(void *arg, int64_t begin, int64_t end);
    void *arg;
};

static void run_tile(void *p, size_t begin, size_t count)
{
    const struct range_call *c = p;
    c->fn(c->arg, (int64_t)begin, (int64_t)(begin + count));
}

void tern_parallel(struct tern_context *ctx, int64_t n, int64_t tile, void (*fn)(void *arg, int64_t begin, int64_t end), void *arg)
{
    struct range_call c = {fn, arg};
    if (n <= 0)
        return;
    if (tile < 1)
        tile = 1;
    if (n <= tile)
        fn(arg, 0, n);
    else
        pthreadpool_parallelize_1d_tile_1d(ctx->pool, run_tile, &c, (size_t)n, (size_t)tile, FLAGS);
}

struct slot_call {
    void (*fn)(void *arg, int slot, int64_t i);
    void *arg;
    int64_t n, next; /* next is atomic */
};

static void run_slot(void *p, size_t slot)
{
    struct slot_call *c = p;
    int64_t i;
    while ((i = __atomic_fetch_add(&c->next, 1, __ATOMIC_RELAXED)) < c->n)
        c->fn(c->arg, (int)slot, i);
}

void tern_parallel_slots(struct tern_context *ctx, int64_t n, void (*fn)(void *arg, int slot, int64_t i), void *arg)
{
    struct slot_call c = {fn, arg, n, 0};
    int64_t threads = tern_thread_count(ctx);
    if (n > 0)
        pthreadpool_parallelize_1d(ctx->pool, run_slot, &c, (size_t)(n < threads ? n : threads), FLAGS);
}

int tern_thread_count(const struct tern_context *ctx) { return (int)pthreadpool_get_threads_count(ctx->pool); }

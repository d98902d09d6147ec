/* Parallel loops on pthreadpool. */
#include "core/threads.h"

#include <sys/resource.h>
#include <time.h>

#include "core/context.h"
#include "core/muster.h"

/* Waking a worker takes as long as a small product: a text encoder has 109 loops, and 9 % of its time was that. But a worker that spins
 * on a core which the thread it waits for needs holds that up at every loop: a picture of the demo in 18 s instead of 2.3 s on a busy
 * machine. So workers spin while a plan runs, unless the process is switched off against its will again and again: then they sleep for a
 * while, for longer if that goes on. Two threads that share their cores are switched off some hundred times a second;
 * 15 to 30 times is what an idle system does by itself. More threads than cores never spin: few of them can be switched off at a time, so
 * that the switches of each would not be enough to send them to sleep (eight on two busy cores: a small picture of the demo in 19 to 26 s
 * instead of 0.2 to 0.4 s). */
#define LEAST_REST ((int64_t)2000000) /* ns */
#define MOST_REST ((int64_t)2000000000)
#define SWITCH ((int64_t)16000000) /* a switch is forgiven in that time */
#define MOST_DEBT (3 * SWITCH)

static int64_t load(const int64_t *at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
static void store(int64_t *at, int64_t value) { __atomic_store_n(at, value, __ATOMIC_RELAXED); }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t nanoseconds(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_MONOTONIC, &t) ? 0 : (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* So far, of two threads: those of more have as many times more that mean nothing. */
static int64_t switches(const struct tern_context *ctx)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? 0 : (int64_t)usage.ru_nivcsw * 2 / tern_thread_count(ctx);
}

/* Time pays for switches and shortens the next rest. counts: whether switches since the last call matter. */
static bool was_disturbed(struct tern_threads *t, int64_t now, int64_t switched, bool counts)
{
    const int64_t passed = now - load(&t->at), more = counts ? switched - load(&t->switches) : 0;
    const int64_t debt = larger(0, load(&t->debt) - passed) + more * SWITCH;
    store(&t->at, now);
    store(&t->switches, switched);
    store(&t->debt, debt < MOST_DEBT ? debt : 0);
    store(&t->rest, larger(LEAST_REST, load(&t->rest) - passed / 4));
    return debt >= MOST_DEBT;
}

void tern_threads_forget(struct tern_threads *t, int64_t now, int64_t switched) { was_disturbed(t, now, switched, false); }

bool tern_threads_asleep(const struct tern_threads *t, int64_t now) { return now < load(&t->until); }

bool tern_threads_rest(struct tern_threads *t, int64_t now, int64_t switched)
{
    const bool awake = load(&t->until) == 0;
    store(&t->until, 0);
    if (!was_disturbed(t, now, switched, awake)) /* what happened while they slept does not count */
        return false;
    const int64_t rest = load(&t->rest);
    store(&t->until, now + rest);
    store(&t->rest, rest < MOST_REST / 4 ? 4 * rest : MOST_REST);
    return true;
}

/* How workers wait behind the loop that comes. */
static uint32_t waiting(struct tern_context *ctx)
{
    struct tern_threads *t = &ctx->threads;
    const int64_t now = nanoseconds();
    if (t->crowded || __atomic_load_n(&t->runs, __ATOMIC_RELAXED) < 1 || tern_threads_asleep(t, now) ||
        tern_threads_rest(t, now, switches(ctx)))
        return PTHREADPOOL_FLAG_YIELD_WORKERS;
    if (!__atomic_exchange_n(&t->awake, 1, __ATOMIC_RELAXED)) {
        tern_muster(ctx->pool);
        tern_threads_forget(t, nanoseconds(), switches(ctx)); /* it yields, which counts as being switched off */
    }
    return 0;
}

void tern_threads_begin(struct tern_context *ctx)
{
    if (__atomic_fetch_add(&ctx->threads.runs, 1, __ATOMIC_RELAXED) == 0)
        tern_threads_forget(&ctx->threads, nanoseconds(), switches(ctx)); /* what happened before */
}

static void nothing(void *arg, size_t i) {}

void tern_threads_end(struct tern_context *ctx)
{
    struct tern_threads *t = &ctx->threads;
    if (__atomic_sub_fetch(&t->runs, 1, __ATOMIC_RELAXED) == 0 && __atomic_exchange_n(&t->awake, 0, __ATOMIC_RELAXED))
        pthreadpool_parallelize_1d(ctx->pool, nothing, NULL, pthreadpool_get_threads_count(ctx->pool), PTHREADPOOL_FLAG_YIELD_WORKERS);
}

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
        pthreadpool_parallelize_1d_tile_1d(ctx->pool, run_tile, &c, (size_t)n, (size_t)tile, waiting(ctx));
}

/* Tasks that nobody has taken yet: the first of them, and behind its 32 bits how many there are. */
struct share {
    uint64_t left; /* atomic */
    char line[56]; /* no two in a line of cache */
};
#define MOST_SHARES 64
#define MOST_TASKS ((int64_t)1 << 31)

struct slot_call {
    void (*fn)(void *arg, int slot, int64_t i);
    void *arg;
    int64_t n, unit; /* unit: calls of a task */
    int shares;
    struct share share[MOST_SHARES];
};

/* One of them, or -1: who owns the share takes the first, others the last. */
static int64_t take(struct share *s, bool first)
{
    uint64_t left = __atomic_load_n(&s->left, __ATOMIC_RELAXED), then;
    do {
        if (left >> 32 == 0)
            return -1;
        then = left - ((uint64_t)1 << 32) + first;
    } while (!__atomic_compare_exchange_n(&s->left, &left, then, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return (int64_t)((left & UINT32_MAX) + (first ? 0 : (left >> 32) - 1));
}

static void run_slot(void *p, size_t slot)
{
    struct slot_call *c = p;
    for (int other = 0; other < c->shares; other++)
        for (int64_t task; (task = take(&c->share[(slot + (size_t)other) % (size_t)c->shares], other == 0)) >= 0;)
            for (int64_t i = task * c->unit; i < (task + 1) * c->unit && i < c->n; i++)
                c->fn(c->arg, (int)slot, i);
}

void tern_parallel_slots(struct tern_context *ctx, int64_t n, void (*fn)(void *arg, int slot, int64_t i), void *arg)
{
    struct slot_call c = {.fn = fn, .arg = arg, .n = n, .unit = n / MOST_TASKS + 1};
    const int64_t threads = tern_thread_count(ctx), tasks = n / c.unit + (n % c.unit != 0), slots = tasks < threads ? tasks : threads;
    if (n <= 0)
        return;
    c.shares = (int)(slots < MOST_SHARES ? slots : MOST_SHARES);
    for (int s = 0; s < c.shares; s++) {
        const uint64_t begin = (uint64_t)(tasks * s / c.shares), end = (uint64_t)(tasks * (s + 1) / c.shares);
        c.share[s].left = (end - begin) << 32 | begin;
    }
    pthreadpool_parallelize_1d(ctx->pool, run_slot, &c, (size_t)slots, waiting(ctx));
}

int tern_thread_count(const struct tern_context *ctx) { return ctx ? (int)pthreadpool_get_threads_count(ctx->pool) : 0; }

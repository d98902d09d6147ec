/* Parallel loops of a context. */
#include "core/threads.h"

#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "core/context.h"
#include "core/muster.h"
#include "core/team.h"

enum tern_status tern_threads_open(struct tern_context *ctx, int asked, int cores)
{
    const int wanted = asked ? asked : cores < 256 ? cores : 256;
    int error = 0;
    ctx->team = tern_team_create(wanted, &error);
    if (!ctx->team)
        return tern_fail(ctx, TERN_E_NO_MEMORY, "%d threads cannot be made", wanted);
    const int threads = tern_team_size(ctx->team);
    if (threads < wanted && asked)
        return tern_fail(ctx, TERN_E_NO_MEMORY, "threads: expected at most %d, as no more can be started (%s), found %d", threads,
                         strerror(error), asked);
    if (threads < wanted)
        tern_message(ctx, TERN_LOG_WARN, "%d threads for %d cores, as no more can be started: %s", threads, wanted, strerror(error));
    ctx->threads.crowded = threads > cores;
    return TERN_OK;
}

/* Waking a worker takes as long as a small product: a text encoder has 109 loops, and 9 % of its time was that. But a worker that spins
 * holds up others that need its core, and so the thread it waits for: four pictures of the demo beside a busy thread took 2.9 s in place of
 * 1.8 s. So workers spin while a plan runs, unless the process is switched off against its will again and again: then they sleep for a
 * while, for longer if that goes on. Two threads that share their cores are switched off some hundred times a second; 15 to 30 times is
 * what an idle system does by itself. More threads than cores never spin: few of them can be switched off at a time, so that the switches
 * of each would not be enough to send them to sleep (eight on two cores: those pictures in 5.9 to 7.6 s in place of 2.0 s). */
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

/* Whether workers spin behind the loop that comes. */
static bool awake(struct tern_context *ctx)
{
    struct tern_threads *t = &ctx->threads;
    const int64_t now = nanoseconds();
    if (t->crowded || __atomic_load_n(&t->runs, __ATOMIC_RELAXED) < 1 || tern_threads_asleep(t, now) ||
        tern_threads_rest(t, now, switches(ctx)))
        return false;
    if (!__atomic_exchange_n(&t->awake, 1, __ATOMIC_RELAXED)) {
        tern_muster(ctx->team);
        tern_threads_forget(t, nanoseconds(), switches(ctx)); /* it yields, which counts as being switched off */
    }
    return true;
}

void tern_threads_begin(struct tern_context *ctx)
{
    if (__atomic_fetch_add(&ctx->threads.runs, 1, __ATOMIC_RELAXED) == 0) {
        __atomic_store_n(&ctx->threads.awake, 0, __ATOMIC_RELAXED);       /* a loop that saw the run before may have set it */
        tern_threads_forget(&ctx->threads, nanoseconds(), switches(ctx)); /* what happened before */
    }
}

void tern_threads_end(struct tern_context *ctx)
{
    struct tern_threads *t = &ctx->threads;
    if (__atomic_sub_fetch(&t->runs, 1, __ATOMIC_RELAXED) == 0 && __atomic_exchange_n(&t->awake, 0, __ATOMIC_RELAXED))
        tern_team_rest(ctx->team);
}

/* Tasks that nobody has taken yet: the first of them, and behind its 32 bits how many there are. */
struct share {
    _Alignas(64) uint64_t left; /* atomic; alone in its line of cache */
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

static void run_slot(void *p, int slot)
{
    struct slot_call *c = p;
    for (int other = 0; other < c->shares; other++)
        for (int64_t task; (task = take(&c->share[(slot + other) % c->shares], other == 0)) >= 0;)
            for (int64_t i = task * c->unit; i < (task + 1) * c->unit && i < c->n; i++)
                c->fn(c->arg, slot, i);
}

void tern_parallel_slots(struct tern_context *ctx, int64_t n, void (*fn)(void *arg, int slot, int64_t i), void *arg)
{
    struct slot_call c; /* its shares take 4 KiB: only those that count are set */
    c.fn = fn;
    c.arg = arg;
    c.n = n;
    c.unit = n / MOST_TASKS + 1;
    const int64_t threads = tern_thread_count(ctx), tasks = n / c.unit + (n % c.unit != 0), slots = tasks < threads ? tasks : threads;
    if (n <= 0)
        return;
    c.shares = (int)(slots < MOST_SHARES ? slots : MOST_SHARES);
    for (int s = 0; s < c.shares; s++) {
        const uint64_t begin = (uint64_t)(tasks * s / c.shares), end = (uint64_t)(tasks * (s + 1) / c.shares);
        c.share[s].left = (end - begin) << 32 | begin;
    }
    tern_team_run(ctx->team, (int)slots, run_slot, &c, slots > 1 && awake(ctx));
}

struct ranges {
    void (*fn)(void *arg, int64_t begin, int64_t end);
    void *arg;
    int64_t n, tile;
};

static void run_range(void *p, int slot, int64_t i)
{
    const struct ranges *r = p;
    const int64_t begin = i * r->tile;
    r->fn(r->arg, begin, r->n - begin < r->tile ? r->n : begin + r->tile);
}

void tern_parallel(struct tern_context *ctx, int64_t n, int64_t tile, void (*fn)(void *arg, int64_t begin, int64_t end), void *arg)
{
    struct ranges r = {fn, arg, n, tile < 1 ? 1 : tile};
    if (n > 0)
        tern_parallel_slots(ctx, n / r.tile + (n % r.tile != 0), run_range, &r);
}

int tern_thread_count(const struct tern_context *ctx) { return ctx ? tern_team_size(ctx->team) : 0; }

/* Loops of CPU kernels, by the threads of a context. */
#ifndef TERN_CORE_THREADS_H
#define TERN_CORE_THREADS_H

#include <tern/base.h>

#define TERN_MOST_THREADS 1024

/* Makes the team of the context: with `asked` threads, or the error is recorded; 0: with one for each of the cores, or as many as can be
 * started. */
enum tern_status tern_threads_open(struct tern_context *ctx, int asked, int cores);

/* Between begin and end (which may be nested, also from several threads) one loop follows the other at once. Workers stay awake from one to
 * the next, as long as nobody else wants the cores. */
void tern_threads_begin(struct tern_context *ctx);
void tern_threads_end(struct tern_context *ctx);

/* Of a context; all but the first atomic. */
struct tern_threads {
    bool crowded;        /* they are more than the cores: who spins holds one that another needs */
    int runs;            /* begun */
    int awake;           /* workers may be */
    int64_t until, rest; /* ns: when they may be again, 0: they may; how long it will be at the next disturbance */
    int64_t at, debt;    /* ns: when this was counted last; what the switches cost that time has not paid yet */
    int64_t switches;    /* that the process did not want, so far */
};

/* Whether workers rest at `now` (ns): then nobody needs to count switches. */
bool tern_threads_asleep(const struct tern_threads *t, int64_t now);
/* They do not. Whether they are to begin: up to `now` the process has been switched off against its will so often. */
bool tern_threads_rest(struct tern_threads *t, int64_t now, int64_t switched);
/* Switches up to now do not matter. */
void tern_threads_forget(struct tern_threads *t, int64_t now, int64_t switched);

/* Calls fn(arg, begin, end) over disjoint ranges that cover 0..n, each a multiple of `tile` long but the
 * last, from several threads; returns when all are done. */
void tern_parallel(struct tern_context *ctx, int64_t n, int64_t tile, void (*fn)(void *arg, int64_t begin, int64_t end), void *arg);

/* Calls fn(arg, slot, i) for i in 0..n-1, as tern_parallel gives ranges to threads: each begins with its own part of them, so that it finds
 * in its caches what it made in the loop before, and who is done takes from the others. Of one loop no two calls with the same slot run at
 * once, and 0 <= slot < tern_thread_count: for scratch memory of the loop's threads. */
void tern_parallel_slots(struct tern_context *ctx, int64_t n, void (*fn)(void *arg, int slot, int64_t i), void *arg);

#endif

/* The thread pool for CPU kernels: pthreadpool, one per context. */
#ifndef TERN_CORE_THREADS_H
#define TERN_CORE_THREADS_H

#include <tern/base.h>

/* Calls fn(arg, begin, end) over disjoint ranges that cover 0..n, each a multiple of `tile` long but the
 * last, from several threads; returns when all are done. */
void tern_parallel(struct tern_context *ctx, int64_t n, int64_t tile, void (*fn)(void *arg, int64_t begin, int64_t end), void *arg);

/* Calls fn(arg, slot, i) for i in 0..n-1, handed out one by one. No two calls with the same slot run at once, and
 * 0 <= slot < tern_thread_count: for scratch memory of a thread. */
void tern_parallel_slots(struct tern_context *ctx, int64_t n, void (*fn)(void *arg, int slot, int64_t i), void *arg);

#endif

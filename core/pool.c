/* Making the thread pool, where threads may be refused: by ulimit -u, a container's limit of processes, or no room for their stacks. */
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/context.h"
#include "core/threads.h"

static void *wait_for(void *lock)
{
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

/* Threads of the process that count against its limits; 0: not known. One that is joined counts for a moment still. */
static int running(void)
{
    struct stat st;
    return stat("/proc/self/task", &st) ? 0 : (int)st.st_nlink;
}

/* How many of `most` threads can be there at once, beside the caller, and why no more. */
static int startable(int most, int *error)
{
    pthread_t thread[TERN_MOST_THREADS];
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const int before = running();
    int n = 0;
    pthread_mutex_lock(&lock);
    for (*error = 0; n < most && !*error; n += !*error)
        *error = pthread_create(&thread[n], NULL, wait_for, &lock);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < 100 && running() > before; i++)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    return n;
}

/* pthreadpool_create waits for ever for workers that could not be started. */
enum tern_status tern_pool_open(struct tern_context *ctx, int asked, int cores)
{
    const int wanted = asked ? asked : cores < 256 ? cores : 256;
    int error, threads = 1 + startable(wanted - 1, &error);
    if (threads < wanted && asked)
        return tern_fail(ctx, TERN_E_NO_MEMORY, "threads: expected at most %d, as no more can be started (%s), found %d", threads,
                         strerror(error), asked);
    if (threads < wanted)
        tern_message(ctx, TERN_LOG_WARN, "%d threads for %d cores, as no more can be started: %s", threads, wanted, strerror(error));
    ctx->threads.crowded = threads > cores;
    ctx->pool = pthreadpool_create((size_t)threads);
    return ctx->pool ? TERN_OK : tern_fail(ctx, TERN_E_NO_MEMORY, "the thread pool cannot be made");
}

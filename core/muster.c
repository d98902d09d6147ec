/* A core for each thread of a team, before they are to spin. */
#include "core/muster.h"

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>

#include "core/status.h"

/* What the caller waits at most: waking takes some 50 us, and where another process has the cores nobody may come. */
#define PATIENCE 200e-6 /* s */

struct muster {
    pthread_mutex_t lock;
    cpu_set_t taken; /* cores of those that are here */
    int here, all;   /* atomic: here */
    bool over;       /* atomic; the caller waits no longer */
};

/* To another core than those, if there is one that this thread may use; later it may use all of them again. */
static void leave(const cpu_set_t *taken)
{
    cpu_set_t mine, others;
    if (sched_getaffinity(0, sizeof(mine), &mine))
        return;
    CPU_AND(&others, &mine, taken);
    CPU_XOR(&others, &mine, &others);
    if (CPU_COUNT(&others) && !sched_setaffinity(0, sizeof(others), &others))
        sched_setaffinity(0, sizeof(mine), &mine);
}

/* A worker that came has the core that it is on, or another. */
static void take_core(struct muster *m)
{
    pthread_mutex_lock(&m->lock);
    int core = sched_getcpu();
    if (core >= 0 && CPU_ISSET((size_t)core, &m->taken)) {
        leave(&m->taken);
        core = sched_getcpu();
    }
    if (core >= 0)
        CPU_SET((size_t)core, &m->taken);
    pthread_mutex_unlock(&m->lock);
    __atomic_add_fetch(&m->here, 1, __ATOMIC_RELAXED);
}

/* The calling thread stays where it is. All wait for the others, since the loop ends with the caller's part. They yield, because who comes
 * may have been woken on the core of one of them. */
static void come(void *arg, int slot)
{
    struct muster *m = arg;
    const double until = slot ? 0 : tern_now() + PATIENCE;
    if (slot && !__atomic_load_n(&m->over, __ATOMIC_RELAXED))
        take_core(m);
    while (__atomic_load_n(&m->here, __ATOMIC_RELAXED) < m->all && !__atomic_load_n(&m->over, __ATOMIC_RELAXED)) {
        if (!slot && tern_now() >= until)
            __atomic_store_n(&m->over, true, __ATOMIC_RELAXED);
        sched_yield();
    }
}

void tern_muster(struct tern_team *team)
{
    struct muster m = {.lock = PTHREAD_MUTEX_INITIALIZER, .all = tern_team_size(team) - 1};
    const int core = sched_getcpu();
    if (core >= 0)
        CPU_SET((size_t)core, &m.taken);
    tern_team_run(team, m.all + 1, come, &m, true);
}
#else
void tern_muster(struct tern_team *team) {}
#endif

/* Threads that help each other without waiting for those that did not come. */
#include "core/team.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/status.h"

#define SPIN 2e-3     /* s; a worker spins so long for the next loop: longer than the parts of a plan that one thread does */
#define PATIENCE 2e-4 /* s; the caller spins so long for calls that began, longer than a wake-up takes. Then it leaves its core to them */
#define LOOKS 64      /* between two looks at the clock */

/* The state of the team: the number of the loop, then a bit that says whether workers may still join, then how many have. */
#define LOOP ((uint64_t)1 << 16)
#define OPEN ((uint64_t)1 << 15)
#define JOINED (OPEN - 1)

#define LINE _Alignas(64) /* what one thread writes does not lie in a line of cache that others read */

/* A thread that sleeps. Without a lock, which a thread that was switched off would hold, and without a condition variable, whose groups of
 * waiters wait for each other. */
struct sleeper {
    LINE bool asleep; /* atomic */
    sem_t woken;      /* once for each time that another thread took `asleep` back */
};

struct tern_team {
    LINE uint64_t state; /* atomic */
    LINE int left;       /* atomic; workers that joined the loop and are done */
    LINE bool awake;     /* atomic; who waits for a loop spins */
    bool ended;          /* atomic */
    int slots;           /* atomic; of the open loop, as are fn and arg, which are read by who joined */
    void (*fn)(void *arg, int slot);
    void *arg;
    int size;             /* with the caller */
    pid_t owner;          /* the process that has the threads: a child of it has none of them */
    pthread_mutex_t turn; /* held through a loop */
    struct sleeper caller;
    struct worker {
        struct sleeper sleeper;
        struct tern_team *team;
        int slot;
        pthread_t thread;
    } workers[];
};

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool is(const bool *flag) { return __atomic_load_n(flag, __ATOMIC_SEQ_CST); }
static uint64_t state_of(const struct tern_team *t) { return __atomic_load_n(&t->state, __ATOMIC_SEQ_CST); }

/* Until who makes over(t, value) true wakes this thread. */
static void sleep_until(struct sleeper *s, bool (*over)(const struct tern_team *t, uint64_t value), const struct tern_team *t,
                        uint64_t value)
{
    while (!over(t, value)) {
        __atomic_store_n(&s->asleep, true, __ATOMIC_SEQ_CST);
        if (over(t, value) && __atomic_exchange_n(&s->asleep, false, __ATOMIC_SEQ_CST))
            return;
        while (sem_wait(&s->woken) && errno == EINTR)
            ;
    }
}

static void wake(struct sleeper *s)
{
    if (is(&s->asleep) && __atomic_exchange_n(&s->asleep, false, __ATOMIC_SEQ_CST))
        sem_post(&s->woken);
}

/* ---- a worker */

static bool is_behind(const struct tern_team *t, uint64_t loop) { return state_of(t) / LOOP != loop || is(&t->ended); }

/* For a loop behind `loop`, or too long. */
static void spin(const struct tern_team *t, uint64_t loop)
{
    const double until = tern_now() + SPIN;
    while (is(&t->awake) && tern_now() < until)
        for (int i = 0; i < LOOKS; i++, pause_briefly())
            if (is_behind(t, loop))
                return;
}

/* The loop may have ended, or have no part for this worker. Nobody changes `slots` while it is open, so that it is the loop's if joining
 * succeeds. */
static bool join(struct tern_team *t, uint64_t loop, int slot)
{
    uint64_t state = state_of(t);
    while (state / LOOP == loop && state & OPEN && slot < __atomic_load_n(&t->slots, __ATOMIC_RELAXED))
        if (__atomic_compare_exchange_n(&t->state, &state, state + 1, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            return true;
    return false;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct tern_team *t = w->team;
    for (uint64_t loop = 0; !is(&t->ended);) {
        spin(t, loop);
        sleep_until(&w->sleeper, is_behind, t, loop);
        loop = state_of(t) / LOOP;
        if (join(t, loop, w->slot)) {
            t->fn(t->arg, w->slot);
            __atomic_add_fetch(&t->left, 1, __ATOMIC_SEQ_CST);
            wake(&t->caller);
        }
    }
    return NULL;
}

/* ---- the caller */

static bool have_left(const struct tern_team *t, uint64_t joined) { return __atomic_load_n(&t->left, __ATOMIC_SEQ_CST) == (int)joined; }

static void wait_for(struct tern_team *t, uint64_t joined)
{
    if (have_left(t, joined))
        return;
    const double until = tern_now() + PATIENCE;
    do
        for (int i = 0; i < LOOKS; i++, pause_briefly())
            if (have_left(t, joined))
                return;
    while (tern_now() < until);
    sleep_until(&t->caller, have_left, t, joined);
}

void tern_team_run(struct tern_team *t, int slots, void (*fn)(void *arg, int slot), void *arg, bool awake)
{
    slots = slots < t->size ? slots : t->size;
    if (slots < 2) {
        fn(arg, 0);
        return;
    }
    pthread_mutex_lock(&t->turn);
    __atomic_store_n(&t->slots, slots, __ATOMIC_RELAXED);
    t->fn = fn;
    t->arg = arg;
    __atomic_store_n(&t->left, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&t->awake, awake, __ATOMIC_RELAXED);
    __atomic_store_n(&t->state, (state_of(t) / LOOP + 1) * LOOP | OPEN, __ATOMIC_SEQ_CST);
    for (int i = 0; i < slots - 1; i++)
        wake(&t->workers[i].sleeper);
    fn(arg, 0);
    wait_for(t, __atomic_fetch_and(&t->state, ~OPEN, __ATOMIC_SEQ_CST) & JOINED);
    pthread_mutex_unlock(&t->turn);
}

void tern_team_rest(struct tern_team *t) { __atomic_store_n(&t->awake, false, __ATOMIC_RELAXED); }

int tern_team_size(const struct tern_team *t) { return t->size; }

/* ---- making and ending it */

struct tern_team *tern_team_create(int threads, int *error)
{
    struct tern_team *t = aligned_alloc(_Alignof(struct tern_team), sizeof(*t) + (size_t)threads * sizeof(t->workers[0]));
    *error = 0;
    if (!t)
        return NULL;
    *t = (struct tern_team){.size = 1, .owner = getpid()};
    pthread_mutex_init(&t->turn, NULL);
    sem_init(&t->caller.woken, 0, 0);
    for (; t->size < threads; t->size++) {
        struct worker *w = &t->workers[t->size - 1];
        *w = (struct worker){.team = t, .slot = t->size};
        sem_init(&w->sleeper.woken, 0, 0);
        if ((*error = pthread_create(&w->thread, NULL, work, w))) {
            sem_destroy(&w->sleeper.woken);
            break;
        }
    }
    return t;
}

void tern_team_destroy(struct tern_team *t)
{
    if (!t)
        return;
    if (t->owner != getpid()) { /* there is nobody to wake or to wait for, and locks may be held by who is not there */
        free(t);
        return;
    }
    __atomic_store_n(&t->ended, true, __ATOMIC_SEQ_CST);
    for (int i = 0; i < t->size - 1; i++)
        wake(&t->workers[i].sleeper);
    for (int i = 0; i < t->size - 1; i++) {
        pthread_join(t->workers[i].thread, NULL);
        sem_destroy(&t->workers[i].sleeper.woken);
    }
    sem_destroy(&t->caller.woken);
    pthread_mutex_destroy(&t->turn);
    free(t);
}

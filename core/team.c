/* Threads that help each other without waiting for those that did not come. */
#include "core/team.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "core/status.h"

#define SPIN 2e-3     /* s; a worker spins so long for the next loop: longer than the parts of a plan that one thread does */
#define PATIENCE 2e-4 /* s; the caller spins so long for calls that began, longer than a wake-up takes. Then it leaves its core to them */
#define LOOKS 64      /* between two looks at the clock */

/* The state of the team: the number of the loop, then a bit that says whether workers may still join, then how many have. */
#define LOOP ((uint64_t)1 << 16)
#define OPEN ((uint64_t)1 << 15)
#define JOINED (OPEN - 1)

struct tern_team {
    uint64_t state; /* atomic */
    char line[56];  /* alone in its line of cache: all look at it */
    int left;       /* atomic; workers that joined the loop and are done */
    bool awake;     /* atomic; who waits for a loop spins */
    bool waits;     /* atomic; the caller sleeps until all are done */
    int asleep;     /* atomic, changed under `lock` */
    bool ended;     /* under `lock` */
    int slots;      /* atomic; of the open loop, as fn and arg */
    void (*fn)(void *arg, int slot);
    void *arg;

    pthread_mutex_t turn; /* held through a loop */
    pthread_mutex_t lock; /* to sleep and to wake */
    pthread_cond_t loop, done;
    int size; /* with the caller */
    struct worker {
        struct tern_team *team;
        int slot;
        pthread_t thread;
    } workers[];
};

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t state_of(struct tern_team *t) { return __atomic_load_n(&t->state, __ATOMIC_SEQ_CST); }

/* Until a loop behind `seen` began, or the time is over. */
static bool spin_for_loop(struct tern_team *t, uint64_t seen)
{
    const double until = tern_now() + SPIN;
    do
        for (int i = 0; i < LOOKS; i++, pause_briefly())
            if (state_of(t) / LOOP != seen)
                return true;
    while (__atomic_load_n(&t->awake, __ATOMIC_RELAXED) && tern_now() < until);
    return false;
}

/* The number of a loop behind `seen`, or 0 at the end of the team. */
static uint64_t next_loop(struct tern_team *t, uint64_t seen)
{
    if (__atomic_load_n(&t->awake, __ATOMIC_RELAXED) && spin_for_loop(t, seen))
        return state_of(t) / LOOP;
    pthread_mutex_lock(&t->lock);
    __atomic_add_fetch(&t->asleep, 1, __ATOMIC_SEQ_CST);
    while (state_of(t) / LOOP == seen && !t->ended)
        pthread_cond_wait(&t->loop, &t->lock);
    __atomic_sub_fetch(&t->asleep, 1, __ATOMIC_SEQ_CST);
    const bool ended = t->ended;
    pthread_mutex_unlock(&t->lock);
    return ended ? 0 : state_of(t) / LOOP;
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

/* This worker has done what it joined for. */
static void leave(struct tern_team *t)
{
    __atomic_add_fetch(&t->left, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&t->waits, __ATOMIC_SEQ_CST)) {
        pthread_mutex_lock(&t->lock);
        pthread_cond_signal(&t->done);
        pthread_mutex_unlock(&t->lock);
    }
}

static void *work(void *arg)
{
    const struct worker *w = arg;
    struct tern_team *t = w->team;
    for (uint64_t loop = 0; (loop = next_loop(t, loop));)
        if (join(t, loop, w->slot)) {
            t->fn(t->arg, w->slot);
            leave(t);
        }
    return NULL;
}

static bool all_left(struct tern_team *t, int joined) { return __atomic_load_n(&t->left, __ATOMIC_SEQ_CST) == joined; }

static void wait_for_joined(struct tern_team *t, int joined)
{
    if (all_left(t, joined))
        return;
    const double until = tern_now() + PATIENCE;
    do
        for (int i = 0; i < LOOKS; i++, pause_briefly())
            if (all_left(t, joined))
                return;
    while (tern_now() < until);
    pthread_mutex_lock(&t->lock);
    __atomic_store_n(&t->waits, true, __ATOMIC_SEQ_CST);
    while (!all_left(t, joined))
        pthread_cond_wait(&t->done, &t->lock);
    __atomic_store_n(&t->waits, false, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&t->lock);
}

static void wake(struct tern_team *t)
{
    if (!__atomic_load_n(&t->asleep, __ATOMIC_SEQ_CST))
        return;
    pthread_mutex_lock(&t->lock);
    pthread_cond_broadcast(&t->loop);
    pthread_mutex_unlock(&t->lock);
}

void tern_team_run(struct tern_team *t, int slots, void (*fn)(void *arg, int slot), void *arg, bool awake)
{
    if (slots < 2 || t->size < 2) {
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
    wake(t);
    fn(arg, 0);
    wait_for_joined(t, (int)(__atomic_fetch_and(&t->state, ~OPEN, __ATOMIC_SEQ_CST) & JOINED));
    pthread_mutex_unlock(&t->turn);
}

void tern_team_rest(struct tern_team *t) { __atomic_store_n(&t->awake, false, __ATOMIC_RELAXED); }

int tern_team_size(const struct tern_team *t) { return t->size; }

struct tern_team *tern_team_create(int threads, int *error)
{
    struct tern_team *t = aligned_alloc(64, (sizeof(*t) + (size_t)threads * sizeof(t->workers[0]) + 63) / 64 * 64);
    *error = 0;
    if (!t)
        return NULL;
    *t = (struct tern_team){.size = 1};
    pthread_mutex_init(&t->turn, NULL);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->loop, NULL);
    pthread_cond_init(&t->done, NULL);
    for (; t->size < threads; t->size++) {
        struct worker *w = &t->workers[t->size - 1];
        *w = (struct worker){.team = t, .slot = t->size};
        if ((*error = pthread_create(&w->thread, NULL, work, w)))
            break;
    }
    return t;
}

void tern_team_destroy(struct tern_team *t)
{
    if (!t)
        return;
    tern_team_rest(t);
    pthread_mutex_lock(&t->lock);
    t->ended = true;
    pthread_cond_broadcast(&t->loop);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->size - 1; i++)
        pthread_join(t->workers[i].thread, NULL);
    pthread_mutex_destroy(&t->turn);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->loop);
    pthread_cond_destroy(&t->done);
    free(t);
}

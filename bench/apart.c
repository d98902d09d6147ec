/* How far the first two processors of this process are from each other: nanoseconds from the one that writes a word to the other that sees
 * it. Cores beside each other share a cache; where they do not, threads wait longer for what others made. One JSON object. */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "timing.h"

#define FIRST 1000  /* turns until the other thread is where it belongs: not counted */
#define TURNS 20000 /* of a measurement: some milliseconds */
#define TIMES 9

struct game {
    int64_t ball; /* atomic: even numbers are the caller's to return */
    int processor[2];
};

static void stay_on(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static void play(struct game *g, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i += 2) {
        while (__atomic_load_n(&g->ball, __ATOMIC_ACQUIRE) != i)
            ;
        __atomic_store_n(&g->ball, i + 1, __ATOMIC_RELEASE);
    }
}

static void *other_player(void *arg)
{
    struct game *g = arg;
    stay_on(g->processor[1]);
    play(g, 1, 2 * (FIRST + TURNS));
    return NULL;
}

/* Two processors that the process may use; false: there is one. */
static bool find_processors(struct game *g)
{
    cpu_set_t set;
    int found = 0;
    if (sched_getaffinity(0, sizeof(set), &set))
        return false;
    for (int i = 0; i < CPU_SETSIZE && found < 2; i++)
        if (CPU_ISSET(i, &set))
            g->processor[found++] = i;
    return found == 2;
}

int main(void)
{
    static struct game g;
    double ns[TIMES];
    if (!find_processors(&g)) {
        printf("{\"apart_ns\": null}\n");
        return 0;
    }
    stay_on(g.processor[0]);
    for (int i = 0; i < TIMES; i++) {
        pthread_t other;
        g.ball = 0;
        if (pthread_create(&other, NULL, other_player, &g)) {
            fprintf(stderr, "bench_apart: no thread could be started\n");
            return 1;
        }
        play(&g, 0, 2 * FIRST);
        const double begin = now();
        play(&g, 2 * FIRST, 2 * (FIRST + TURNS));
        ns[i] = (now() - begin) / (2 * TURNS) * 1e9;
        pthread_join(other, NULL);
    }
    printf("{\"apart_ns\": %.0f}\n", median(ns, TIMES));
    return 0;
}

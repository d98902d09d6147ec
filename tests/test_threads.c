/* The threads of a context: loops, who does what in them, who is waited for, and when workers sleep. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "core/cores.h"
#include "core/threads.h"
#include "support.h"

struct cover {
    int seen[1000];
    int64_t tile, n;
    int busy[8];
};

static void mark_range(void *arg, int64_t begin, int64_t end)
{
    struct cover *c = arg;
    if (begin % c->tile || (end - begin != c->tile && end != c->n && end - begin != c->n))
        __atomic_add_fetch(&c->seen[0], 100, __ATOMIC_RELAXED);
    for (int64_t i = begin; i < end; i++)
        __atomic_add_fetch(&c->seen[i], 1, __ATOMIC_RELAXED);
}

static void mark_slot(void *arg, int slot, int64_t i)
{
    struct cover *c = arg;
    if (slot < 0 || slot >= 4 || __atomic_add_fetch(&c->busy[slot], 1, __ATOMIC_ACQ_REL) != 1)
        __atomic_add_fetch(&c->seen[0], 100, __ATOMIC_RELAXED);
    __atomic_add_fetch(&c->seen[i], 1, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&c->busy[slot], 1, __ATOMIC_ACQ_REL);
}

static void loops_cover_their_range_once(void **state)
{
    static const int64_t sizes[] = {0, 1, 2, 7, 64, 999, 1000};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 4});
    for (int i = 0; i < 7; i++)
        for (int64_t tile = 1; tile < 1500; tile = tile * 5 + 2) {
            struct cover c = {.tile = tile, .n = sizes[i]}, s = {.n = sizes[i]};
            tern_parallel(ctx, sizes[i], tile, mark_range, &c);
            tern_parallel_slots(ctx, sizes[i], mark_slot, &s);
            for (int64_t k = 0; k < 1000; k++) {
                assert_int_equal(c.seen[k], k < sizes[i]);
                assert_int_equal(s.seen[k], k < sizes[i]);
            }
        }
    tern_parallel(ctx, -5, 0, mark_range, NULL);
    tern_context_destroy(&ctx);
}

struct starts {
    int64_t first[4]; /* that a slot was given; -1: none */
    int there;        /* atomic */
};

static void wait_for_all(void *arg, int slot, int64_t i)
{
    struct starts *s = arg;
    if (s->first[slot] >= 0)
        return;
    s->first[slot] = i;
    __atomic_add_fetch(&s->there, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&s->there, __ATOMIC_ACQUIRE) < 4)
        sched_yield();
}

/* Each thread begins with its own part of a loop's calls, as in the loop before. */
static void slots_have_their_own_parts(void **state)
{
    static const int64_t sizes[] = {4, 7, 64, 1001};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 4});
    assert_non_null(ctx);
    for (int i = 0; i < 4; i++) {
        struct starts s = {.first = {-1, -1, -1, -1}};
        tern_parallel_slots(ctx, sizes[i], wait_for_all, &s);
        for (int slot = 0; slot < 4; slot++)
            assert_int_equal(s.first[slot], sizes[i] * slot / 4);
    }
    tern_context_destroy(&ctx);
}

/* A process that may use one core of several has one thread. */
static void threads_are_as_many_as_cores(void **state)
{
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    int core = 0;
    while (!CPU_ISSET(core, &all))
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    struct tern_context *ctx = tern_context_create(NULL);
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    assert_int_equal(tern_thread_count(ctx), 1);
    tern_context_destroy(&ctx);
    ctx = tern_context_create(NULL);
    const int share = tern_cores_of_share("/proc/self/cgroup", "/sys/fs/cgroup"), cores = CPU_COUNT(&all);
    const int most = share && share < 256 ? share : 256;
    assert_int_equal(tern_thread_count(ctx), cores < most ? cores : most);
    tern_context_destroy(&ctx);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* What a container or a service gets of the cores' time, in both versions of control groups: the least on the way up counts. */
static void shares_of_cores(void **state)
{
    static const struct {
        const char *groups;
        const char *files[4][2]; /* name, text */
        int cores;
    } rows[] = {
        {"0::/\n", {{"cpu.max", "200000 100000\n"}}, 2},
        {"0::/\n", {{"cpu.max", "max 100000\n"}}, 0},
        {"0::/a/b\n", {{"a/b/cpu.max", "max 100000\n"}, {"a/cpu.max", "150000 100000\n"}}, 2},
        {"0::/a/b\n", {{"a/b/cpu.max", "50000 100000\n"}, {"a/cpu.max", "900000 100000\n"}}, 1},
        {"0::/not/there\n", {{"cpu.max", "300000 100000\n"}}, 3},
        {"5:memory:/a\n4:cpu,cpuacct:/a\n0::/\n",
         {{"cpu,cpuacct/a/cpu.cfs_quota_us", "250000\n"}, {"cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"}},
         3},
        {"4:cpu:/\n", {{"cpu/cpu.cfs_quota_us", "-1\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}}, 0},
        {"4:cpuset:/a\n", {{"cpuset/a/cpu.cfs_quota_us", "100000\n"}, {"cpuset/a/cpu.cfs_period_us", "100000\n"}}, 0},
        {"0::/\n", {{"cpu.max", "nonsense\n"}}, 0},
        {"0::/\n", {{"cpu.max", ""}}, 0},
        {"0::/\n", {{"cpu.max", "100000 0\n"}}, 0},
        {"what is this\n:::\n0::relative\n", {{NULL}}, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char folder[64] = "/tmp/tern-cores-XXXXXX", path[256], command[128];
        assert_non_null(mkdtemp(folder));
        for (int k = 0; k < 4 && rows[i].files[k][0]; k++) {
            snprintf(path, sizeof(path), "%s/%s", folder, rows[i].files[k][0]);
            for (char *slash = strchr(path + strlen(folder) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
                *slash = 0;
                mkdir(path, 0700);
                *slash = '/';
            }
            write_text(path, rows[i].files[k][1]);
        }
        snprintf(path, sizeof(path), "%s/groups", folder);
        write_text(path, rows[i].groups);
        const int cores = tern_cores_of_share(path, folder);
        if (cores != rows[i].cores)
            fail_msg("row %zu: expected %d cores, found %d", i, rows[i].cores, cores);
        snprintf(command, sizeof(command), "rm -r %s", folder);
        assert_int_equal(system(command), 0);
    }
    assert_int_equal(tern_cores_of_share("/nonexistent", "/nonexistent"), 0);
    assert_true(tern_core_count() >= 1);
}

/* With room for few stacks or for none: 0 when it is as expected. Whatever waits for a thread that is not there is ended. */
static int in_little(int threads, size_t more)
{
    if (!support_leave_space(more))
        return 2;
    alarm(20);
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = threads});
    if (threads)
        return ctx || !strstr(tern_create_error(), "as no more can be started (") || !strstr(tern_create_error(), "), found 1024");
    float x = 0;
    tern_tensor *t = tern_tensor_scalar(ctx, TERN_F32, 2.5);
    return tern_thread_count(ctx) < 1 || tern_tensor_read(t, TERN_F32, &x, sizeof(x)) || x != 2.5f;
}

/* What is asked for is refused; one per core is as many as can be started. */
static void threads_that_cannot_be_started(void **state)
{
    support_skip_watched();
    for (int threads = 0; threads <= 1024; threads += 1024) {
        int status = 1;
        const pid_t child = fork();
        if (!child)
            _exit(in_little(threads, threads ? 64 << 20 : 1 << 20));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

/* A child has none of its parent's threads, and may release what they were of. Joining them ends a process with four and more. */
static void a_child_releases_what_its_parent_had(void **state)
{
    support_skip_watched();
    for (int threads = 1; threads <= 64; threads *= 4) {
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = threads});
        assert_non_null(ctx);
        int status = 1;
        const pid_t child = fork();
        if (!child) {
            alarm(20);
            tern_context_destroy(&ctx);
            struct tern_context *own = tern_context_create(&(struct tern_context_params){.threads = threads});
            float x = 0;
            _exit(tern_tensor_read(tern_tensor_scalar(own, TERN_F32, 2.5), TERN_F32, &x, sizeof(x)) || x != 2.5f);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        tern_context_destroy(&ctx);
    }
}

static double processor_seconds(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void sleep_for(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

/* Workers may spin from loop to loop, but not when the last run is over: of 200 ms behind runs hardly any are computed. */
static void workers_sleep_behind_a_run(void **state)
{
    struct cover c = {.tile = 1, .n = 64};
    double computed = 0;
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 2});
    assert_non_null(ctx);
    for (int run = 0; run < 20; run++) {
        tern_threads_begin(ctx);
        tern_threads_begin(ctx);
        for (int i = 0; i < 10; i++)
            tern_parallel(ctx, 64, 1, mark_range, &c);
        tern_threads_end(ctx);
        tern_parallel(ctx, 64, 1, mark_range, &c);
        tern_threads_end(ctx);
        const double before = processor_seconds();
        sleep_for(10);
        computed += processor_seconds() - before;
    }
    for (int i = 0; i < 64; i++)
        assert_int_equal(c.seen[i], 20 * 11);
    assert_true(computed < 0.01); /* else each spins for two milliseconds */
    tern_context_destroy(&ctx);
}

/* ---- who is waited for */

enum { MET = 3 };
static struct {
    pthread_t thread[MET];
    int here, held; /* atomic */
} met;

static void meet(void *arg, int64_t begin, int64_t end)
{
    met.thread[begin] = pthread_self();
    for (__atomic_add_fetch(&met.here, 1, __ATOMIC_ACQ_REL); __atomic_load_n(&met.here, __ATOMIC_ACQUIRE) < MET;)
        sched_yield();
}

/* As a thread that another program keeps from its processor. */
static void hold(int signal)
{
    __atomic_store_n(&met.held, 2, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&met.held, __ATOMIC_SEQ_CST))
        sleep_for(1);
}

static void count_slowly(void *arg, int64_t begin, int64_t end)
{
    sleep_for(1);
    __atomic_add_fetch((int *)arg, 1, __ATOMIC_RELAXED);
}

/* One of two workers is held where it sleeps, behind a run as in one. Loops end without it, also those behind loops that the other worker
 * came to and sleeps again. It helps again when it is let go. */
static void nobody_waits_for_who_does_not_come(void **state)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = MET});
    assert_non_null(ctx);
    signal(SIGUSR1, hold);
    alarm(100); /* who waits waits for ever */
    for (int in_run = 0; in_run < 2; in_run++) {
        int done = 0;
        if (in_run)
            tern_threads_begin(ctx);
        __atomic_store_n(&met.here, 0, __ATOMIC_SEQ_CST);
        tern_parallel(ctx, MET, 1, meet, NULL);
        sleep_for(20);
        __atomic_store_n(&met.held, 1, __ATOMIC_SEQ_CST);
        assert_int_equal(pthread_kill(met.thread[pthread_equal(met.thread[0], pthread_self())], SIGUSR1), 0);
        while (__atomic_load_n(&met.held, __ATOMIC_SEQ_CST) == 1)
            sched_yield();
        for (int i = 0; i < 10; i++) {
            tern_parallel(ctx, 8, 1, count_slowly, &done);
            sleep_for(4);
        }
        assert_int_equal(done, 80);
        __atomic_store_n(&met.held, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&met.here, 0, __ATOMIC_SEQ_CST);
        tern_parallel(ctx, MET, 1, meet, NULL);
        if (in_run)
            tern_threads_end(ctx);
    }
    alarm(0);
    signal(SIGUSR1, SIG_DFL);
    tern_context_destroy(&ctx);
}

struct slow {
    pthread_t caller;
    int begun; /* atomic */
    int done;
    double before; /* s; what the process had computed when it began */
};

static void begin_slowly(void *arg, int64_t begin, int64_t end)
{
    struct slow *s = arg;
    if (pthread_equal(pthread_self(), s->caller)) {
        while (!__atomic_load_n(&s->begun, __ATOMIC_ACQUIRE))
            sched_yield();
        s->before = processor_seconds();
    } else {
        __atomic_store_n(&s->begun, 1, __ATOMIC_RELEASE);
        sleep_for(100);
        s->done = 1;
    }
}

/* Who has begun is waited for, and not by spinning all the time. */
static void what_began_is_waited_for(void **state)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 2});
    assert_non_null(ctx);
    for (int in_run = 0; in_run < 2; in_run++) {
        struct slow s = {pthread_self()};
        if (in_run)
            tern_threads_begin(ctx);
        tern_parallel(ctx, 2, 1, begin_slowly, &s);
        assert_int_equal(s.done, 1);
        assert_true(processor_seconds() - s.before < 0.05);
        if (in_run)
            tern_threads_end(ctx);
    }
    tern_context_destroy(&ctx);
}

struct callers {
    struct tern_context *ctx;
    struct cover cover;
    int helped, late; /* atomic; calls of workers, calls of loops that were over */
};

struct one_loop {
    struct callers *of;
    int lasts; /* atomic */
};

static void take_some_time(void *arg, int slot, int64_t i)
{
    struct one_loop *l = arg;
    const double until = tern_now() + 4e-6 * (double)(i % 4);
    mark_slot(&l->of->cover, slot, i);
    while (tern_now() < until)
        ;
    __atomic_add_fetch(&l->of->helped, slot > 0, __ATOMIC_RELAXED);
    __atomic_add_fetch(&l->of->late, __atomic_load_n(&l->lasts, __ATOMIC_RELAXED) != 1, __ATOMIC_RELAXED);
}

static void *many_loops(void *arg)
{
    struct callers *c = arg;
    for (int i = 0; i < 400; i++) {
        struct one_loop l = {c, 1};
        if (i % 100 == 50)
            tern_threads_begin(c->ctx);
        tern_parallel_slots(c->ctx, 64, take_some_time, &l);
        __atomic_store_n(&l.lasts, 0, __ATOMIC_RELAXED);
        if (i % 100 == 99)
            tern_threads_end(c->ctx);
    }
    return NULL;
}

/* Loops that begin at once, in runs and outside: no slot is two callers' at a time, and no call comes late. */
static void callers_take_turns(void **state)
{
    for (int threads = 2; threads <= 4; threads++) {
        pthread_t thread[3];
        struct callers c = {tern_context_create(&(struct tern_context_params){.threads = threads})};
        assert_non_null(c.ctx);
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_create(&thread[i], NULL, many_loops, &c), 0);
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_join(thread[i], NULL), 0);
        for (int i = 0; i < 64; i++)
            assert_int_equal(c.cover.seen[i], 3 * 400);
        assert_int_equal(c.late, 0);
        assert_true(c.helped > 0);
        tern_context_destroy(&c.ctx);
    }
}

/* ---- where workers are, and when they sleep */

#if defined(__linux__)
enum { MUSTERED = 2 };
struct place {
    const cpu_set_t *set[2]; /* for the other threads, one after the other; NULL: none */
    pthread_t caller;
    int here, failed; /* atomic */
    cpu_set_t may[MUSTERED];
};

static void take_place(void *arg, int64_t begin, int64_t end)
{
    struct place *p = arg;
    for (int i = 0; i < 2 && p->set[i] && !pthread_equal(pthread_self(), p->caller); i++)
        __atomic_or_fetch(&p->failed, sched_setaffinity(0, sizeof(cpu_set_t), p->set[i]), __ATOMIC_RELAXED);
    __atomic_or_fetch(&p->failed, sched_getaffinity(0, sizeof(cpu_set_t), &p->may[begin]), __ATOMIC_RELAXED);
    __atomic_add_fetch(&p->here, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&p->here, __ATOMIC_RELAXED) < MUSTERED) /* each thread has one */
        sched_yield();
}

/* A worker that sleeps on the caller's core, and one that may use no other: both may go afterwards where they could go before. */
static void workers_stay_as_free_as_they_were(void **state)
{
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    struct tern_context *ctx = CPU_COUNT(&all) < MUSTERED ? NULL : tern_context_create(&(struct tern_context_params){.threads = MUSTERED});
    if (!ctx) {
        print_message("not run: it needs as many processors as threads that muster\n");
        skip();
    }
    for (int i = 0; i < 60; i++) {
        const bool bound = i % 3 == 2;
        struct place p = {{&one, bound ? NULL : &all}, pthread_self()}, found = {.caller = pthread_self()};
        CPU_ZERO(&one);
        CPU_SET((size_t)sched_getcpu(), &one);
        tern_parallel(ctx, MUSTERED, 1, take_place, &p);
        sleep_for(1);
        tern_threads_begin(ctx);
        tern_parallel(ctx, MUSTERED, 1, take_place, &found);
        assert_int_equal(ctx->threads.awake, 1);
        tern_threads_end(ctx);
        assert_int_equal(p.failed | found.failed, 0);
        assert_true(CPU_EQUAL(&found.may[0], &all)); /* the caller's */
        assert_true(CPU_EQUAL(&found.may[1], bound ? &one : &all));
    }
    tern_context_destroy(&ctx);
}
#endif

/* Nor while one goes on when a core has two threads. */
static void crowded_workers_never_spin(void **state)
{
    struct cover c = {.tile = 1, .n = 64};
    cpu_set_t all;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    const int cores = CPU_COUNT(&all);
    if (2 * cores > TERN_MOST_THREADS) {
        print_message("not run: there can be no more threads than these processors\n");
        skip();
    }
    struct tern_context *one_a_core = tern_context_create(NULL);
    assert_false(one_a_core->threads.crowded);
    tern_context_destroy(&one_a_core);
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 2 * cores});
    assert_non_null(ctx);
    tern_threads_begin(ctx);
    for (int i = 0; i < 200; i++) {
        tern_parallel(ctx, 64, 1, mark_range, &c);
        assert_int_equal(ctx->threads.awake, 0);
    }
    tern_threads_end(ctx);
    tern_context_destroy(&ctx);
}

#define MS ((int64_t)1000000)

/* Loops of one millisecond each, a switch in every `apart`-th; how many of them had workers that slept. */
static int slept(struct tern_threads *t, int64_t *now, int64_t *switched, int loops, int apart)
{
    int n = 0;
    for (int i = 1; i <= loops; i++) {
        *switched += i % apart == 0;
        *now += MS;
        n += tern_threads_asleep(t, *now) || tern_threads_rest(t, *now, *switched);
    }
    return n;
}

/* 30 switches a second are an idle system's, 300 a shared core's: then rests begin with 2 ms and grow to 2 s, and get shorter again. */
static void workers_rest_where_cores_are_shared(void **state)
{
    struct tern_threads t = {0};
    int64_t now = 5 * MS, switched = 1000;
    tern_threads_forget(&t, now, switched);
    assert_int_equal(slept(&t, &now, &switched, 3000, 33), 0);
    assert_int_equal(slept(&t, &now, &switched, 3, 1), 0);
    assert_int_equal(slept(&t, &now, &switched, 1, 1), 1);          /* 16 ms for each of four, of which three have passed */
    assert_int_equal(slept(&t, &now, &switched, 1000, 1000000), 1); /* 2 ms in all */
    const int first = slept(&t, &now, &switched, 300, 3);
    assert_in_range(first, 100, 299);
    assert_in_range(slept(&t, &now, &switched, 60000, 3), 58000, 59990);
    slept(&t, &now, &switched, 2000, 1000000); /* sleeps no longer than two seconds more */
    assert_int_equal(slept(&t, &now, &switched, 9000, 1000000), 0);
    assert_int_equal(t.rest, 2 * MS);
    switched += 1000; /* between two runs */
    tern_threads_forget(&t, now, switched);
    assert_int_equal(slept(&t, &now, &switched, 100, 1000000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_that_cannot_be_started),
        cmocka_unit_test(a_child_releases_what_its_parent_had), /* first: stacks of threads are kept for others */
        cmocka_unit_test(loops_cover_their_range_once),
        cmocka_unit_test(slots_have_their_own_parts),
        cmocka_unit_test(nobody_waits_for_who_does_not_come),
        cmocka_unit_test(what_began_is_waited_for),
        cmocka_unit_test(callers_take_turns),
        cmocka_unit_test(threads_are_as_many_as_cores),
        cmocka_unit_test(shares_of_cores),
        cmocka_unit_test(workers_sleep_behind_a_run),
#if defined(__linux__)
        cmocka_unit_test(workers_stay_as_free_as_they_were),
#endif
        cmocka_unit_test(crowded_workers_never_spin),
        cmocka_unit_test(workers_rest_where_cores_are_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

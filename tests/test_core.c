/* The core: contexts, memory, errors and messages, scopes and tensors, buffers, threads. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/cache.h"
#include "core/context.h"
#include "core/tensor.h"
#include "core/threads.h"
#include "support.h"

/* ---- contexts */

static void not_created(const struct tern_context_params *params, const char *part)
{
    struct tern_context *ctx = tern_context_create(params);
    if (ctx)
        fail_msg("created, expected \"%s\"", part);
    if (!strstr(tern_create_error(), part))
        fail_msg("expected \"%s\", found \"%s\"", part, tern_create_error());
}

static void *no_memory(size_t size, size_t alignment, void *user) { return NULL; }
static void no_free(void *ptr, size_t size, void *user) {}

static void wrong_parameters_are_named(void **state)
{
    not_created(&(struct tern_context_params){.threads = -1}, "threads: expected 0..1024, found -1");
    not_created(&(struct tern_context_params){.threads = 1025}, "threads: expected 0..1024, found 1025");
    not_created(&(struct tern_context_params){.device = "tpu"}, "device \"tpu\" is not known; this build has: cpu");
    not_created(&(struct tern_context_params){.device = ""}, "device \"\" is not known");
    not_created(&(struct tern_context_params){.device = "cpu:1"}, "there is only cpu:0");
    not_created(&(struct tern_context_params){.device = "null:x"}, "expected a number from 0 behind the colon");
    not_created(&(struct tern_context_params){.device = "null:-1"}, "expected a number from 0 behind the colon");
    not_created(&(struct tern_context_params){.device = "null:99999999999999999999"}, "expected a number from 0");
    not_created(&(struct tern_context_params){.allocator = {.alloc = no_memory}}, "alloc and free must both be given");
    not_created(&(struct tern_context_params){.allocator = {.free = no_free}}, "alloc and free must both be given");
    not_created(&(struct tern_context_params){.allocator = {.alloc = no_memory, .free = no_free}}, "out of memory");
    not_created(&(struct tern_context_params){.budget = 64}, "memory budget of 64 bytes reached");
    setenv("TERN_CPU_LEVEL", "sse9", 1);
    not_created(NULL, "TERN_CPU_LEVEL: this build has no \"sse9\"; expected scalar");
    unsetenv("TERN_CPU_LEVEL");
    struct tern_context *ctx = tern_context_create(NULL);
    assert_non_null(ctx);
    assert_string_equal(tern_create_error(), "");
    tern_context_destroy(&ctx);
    assert_null(ctx);
    tern_context_destroy(&ctx);
    tern_context_destroy(NULL);
}

static void objects_keep_their_context(void **state)
{
    struct support_allocator m = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 3, .allocator = support_failing(&m)});
    assert_int_equal(tern_thread_count(ctx), 3);
    tern_tensor *t = tern_tensor_scalar(ctx, TERN_F32, 2.5);
    tern_context_destroy(&ctx);
    float x = 0;
    assert_int_equal(tern_tensor_read(t, TERN_F32, &x, sizeof(x)), TERN_OK);
    assert_true(x == 2.5f);
    assert_true(m.live > 0);
    tern_tensor_unref(&t);
    assert_int_equal(m.live, 0);
}

static void devices_are_listed(void **state)
{
    struct tern_context *ctx = support_context();
    char *text = tern_devices_describe(ctx);
    assert_non_null(strstr(text, "cpu "));
    assert_non_null(strstr(text, "1 threads"));
    assert_non_null(strstr(text, "null "));
    tern_free_text(ctx, text);
    assert_string_equal(tern_error(ctx), "");
    tern_fail(ctx, TERN_E_SHAPE, "an error from before"); /* it is no device's, and stays */
    assert_null(tern_devices_describe(ctx));
    support_error(ctx, TERN_E_SHAPE, "an error from before");
    tern_context_destroy(&ctx);
}

/* An empty name is none: the root of the file system is no cache. */
static void an_empty_cache_folder_is_none(void **state)
{
    static const struct {
        const char *named, *expected;
    } rows[] = {{NULL, "/xdg/tern/kind/name"}, {"", "/xdg/tern/kind/name"}, {"/own", "/own/kind/name"}, {"/", "//kind/name"}};
    char before[1024];
    const char *xdg = getenv("XDG_CACHE_HOME");
    snprintf(before, sizeof(before), "%s", xdg ? xdg : "");
    setenv("XDG_CACHE_HOME", "/xdg", 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cache_dir = rows[i].named});
        assert_non_null(ctx);
        char *path = tern_cache_path(ctx, "kind", "name");
        assert_string_equal(path, rows[i].expected);
        tern_free(ctx, path);
        tern_context_destroy(&ctx);
    }
    setenv("XDG_CACHE_HOME", before, 1);
}

/* ---- errors, messages, progress, cancel */

static void the_first_error_stays(void **state)
{
    struct tern_context *ctx = support_context();
    assert_false(tern_failed(ctx));
    assert_string_equal(tern_error(ctx), "");
    assert_int_equal(tern_fail(ctx, TERN_E_SHAPE, "first %d", 1), TERN_E_SHAPE);
    assert_int_equal(tern_fail(ctx, TERN_E_IO, "second"), TERN_E_IO);
    assert_true(tern_failed(ctx));
    assert_int_equal(tern_error_status(ctx), TERN_E_SHAPE);
    assert_string_equal(tern_error(ctx), "first 1");
    tern_fail_prefix(ctx, "file %s", "a.bin");
    assert_string_equal(tern_error(ctx), "file a.bin: first 1");
    tern_error_clear(ctx);
    assert_int_equal(tern_error_status(ctx), TERN_OK);
    assert_string_equal(tern_error(ctx), "");
    tern_fail(ctx, TERN_E_IO, "%05000d", 3); /* longer than there is room */
    assert_int_equal(strlen(tern_error(ctx)), TERN_ERROR_SIZE - 1);
    tern_fail_prefix(ctx, "%0200d", 4);
    assert_int_equal(strlen(tern_error(ctx)), TERN_ERROR_SIZE - 1);
    tern_error_clear(ctx);
    assert_null(tern_tensor_create(ctx, TERN_F32, 99, NULL, NULL));
    assert_null(tern_silu(NULL)); /* NULL passes through and says nothing new */
    support_error(ctx, TERN_E_INVALID, "99 dimensions");
    assert_string_equal(tern_status_name(TERN_E_CANCELLED), "cancelled");
    assert_string_equal(tern_status_name((enum tern_status)99), "unknown status");
    assert_string_equal(tern_status_name((enum tern_status) - 1), "unknown status");
    tern_context_destroy(&ctx);
}

static void an_error_stops_what_follows(void **state)
{
    struct tern_context *ctx = support_context();
    tern_scope_begin(ctx);
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){3}, NULL),
                *y = tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){4}, NULL);
    assert_null(tern_mul(tern_add(x, y), x));
    assert_null(tern_add(x, x)); /* until the error is cleared */
    support_error(ctx, TERN_E_SHAPE, "add");
    assert_non_null(tern_add(x, x));
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

struct heard {
    int messages, events, asked;
    char text[64];
    struct tern_progress last;
};

static void hear(enum tern_log_level level, const char *message, void *user)
{
    struct heard *h = user;
    h->messages++;
    snprintf(h->text, sizeof(h->text), "%d %s", (int)level, message);
}

static void see(const struct tern_progress *p, void *user)
{
    struct heard *h = user;
    h->events++;
    h->last = *p;
}

static bool ask(void *user) { return ++((struct heard *)user)->asked == 2; }

static void callbacks_are_called(void **state)
{
    struct heard h = {0};
    struct tern_context *ctx = tern_context_create(
        &(struct tern_context_params){.threads = 1, .log_level = TERN_LOG_WARN, .log = hear, .progress = see, .cancel = ask, .user = &h});
    tern_message(ctx, TERN_LOG_INFO, "too quiet");
    assert_int_equal(h.messages, 0);
    tern_message(ctx, TERN_LOG_WARN, "mind %s", "this");
    assert_int_equal(h.messages, 1);
    assert_string_equal(h.text, "2 mind this");
    tern_report(ctx, "sample", 3, 20, 1.5);
    assert_int_equal(h.events, 1);
    assert_string_equal(h.last.stage, "sample");
    assert_true(h.last.done == 3 && h.last.total == 20 && h.last.seconds == 1.5);
    assert_int_equal(tern_check_cancel(ctx), TERN_OK);
    assert_int_equal(tern_check_cancel(ctx), TERN_E_CANCELLED);
    support_error(ctx, TERN_E_CANCELLED, "cancelled");
    tern_context_destroy(&ctx);
    ctx = support_context(); /* none given */
    tern_message(ctx, TERN_LOG_ERROR, "unheard");
    tern_report(ctx, "sample", 1, 1, 0);
    assert_int_equal(tern_check_cancel(ctx), TERN_OK);
    tern_context_destroy(&ctx);
}

struct limited {
    struct tern_context *ctx;
    int callbacks;
};

static void has_little(struct limited *l)
{
    assert_int_equal(tern_memory_limit(l->ctx), 4096);
    assert_null(tern_alloc(l->ctx, 8192));
    support_error(l->ctx, TERN_E_BUDGET, "memory budget");
    l->callbacks++;
}

static void has_little_in_log(enum tern_log_level level, const char *message, void *user) { has_little(user); }
static void has_little_in_progress(const struct tern_progress *p, void *user) { has_little(user); }
static bool has_little_in_cancel(void *user)
{
    has_little(user);
    return false;
}

static void *put_back(void *ctx) { return tern_budget_lift(ctx, false) ? ctx : NULL; }

/* What lifts it does so for its own work. */
static void the_budget_holds_in_callbacks(void **state)
{
    struct limited l = {0};
    pthread_t other;
    void *had;
    l.ctx = tern_context_create(&(struct tern_context_params){
        .threads = 1, .log = has_little_in_log, .progress = has_little_in_progress, .cancel = has_little_in_cancel, .user = &l});
    const bool outer = tern_budget_lift(l.ctx, true);
    assert_false(outer);
    l.ctx->params.budget = 4096;
    tern_message(l.ctx, TERN_LOG_WARN, "mind this");
    tern_report(l.ctx, "tune", 1, 1, 0);
    assert_int_equal(tern_check_cancel(l.ctx), TERN_OK);
    assert_int_equal(l.callbacks, 3);
    assert_int_equal(pthread_create(&other, NULL, put_back, l.ctx), 0);
    assert_int_equal(pthread_join(other, &had), 0);
    assert_null(had); /* nor is it that thread's to put back */
    assert_int_equal(tern_memory_limit(l.ctx), 0);
    assert_true(tern_budget_lift(l.ctx, outer));
    assert_int_equal(tern_memory_limit(l.ctx), 4096);
    tern_context_destroy(&l.ctx);
}

/* ---- buffers and threads */

static void count_release(void *user) { ++*(int *)user; }

struct asking {
    struct tern_context *ctx;
    bool over;          /* atomic */
    long within, wrong; /* atomic; how often the asked thread was told that it is, and another one */
};

static bool note(void *user)
{
    struct asking *a = user;
    __atomic_add_fetch(tern_is_asked(a->ctx) ? &a->within : &a->wrong, 1, __ATOMIC_RELAXED);
    return false;
}

static void *go_on(void *arg)
{
    struct asking *a = arg;
    while (!__atomic_load_n(&a->over, __ATOMIC_ACQUIRE))
        if (tern_check_cancel(a->ctx) || tern_is_asked(a->ctx))
            __atomic_add_fetch(&a->wrong, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void linger(int number) { nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); }

/* Of two threads the one that is asked is so, and never the one that goes on, wherever a signal holds the other one up. */
static void one_thread_is_asked(void **state)
{
    struct asking a = {0};
    struct sigaction own = {.sa_handler = linger}, before;
    pthread_t threads[2];
    a.ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = note, .user = &a});
    assert_int_equal(sigaction(SIGUSR1, &own, &before), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, go_on, &a), 0);
    for (int i = 0; i < 2000; i++) {
        linger(0);
        pthread_kill(threads[0], SIGUSR1);
    }
    __atomic_store_n(&a.over, true, __ATOMIC_RELEASE);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
    assert_true(a.within > 0);
    assert_int_equal(a.wrong, 0);
    tern_context_destroy(&a.ctx);
}

static void buffers_check_their_ranges(void **state)
{
    struct tern_context *ctx = support_context();
    char data[64] = "0123456789", out[64] = "";
    int released = 0;
    struct tern_buffer *b = tern_buffer_create(tern_default_device(ctx), 16),
                       *w = tern_buffer_wrap(tern_host_device(ctx), data, 10, count_release, &released);
    assert_int_equal(tern_buffer_write(b, 4, data, 8), TERN_OK);
    assert_int_equal(tern_buffer_read(b, 4, out, 8), TERN_OK);
    assert_memory_equal(out, data, 8);
    static const size_t wrong[][2] = {{0, 17}, {16, 1}, {17, 0}, {8, 9}, {SIZE_MAX, 2}, {2, SIZE_MAX}};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(tern_buffer_read(b, wrong[i][0], out, wrong[i][1]), TERN_E_INTERNAL);
        support_error(ctx, TERN_E_INTERNAL, "outside a buffer of 16 bytes");
    }
    assert_int_equal(tern_buffer_read(b, 16, out, 0), TERN_OK);
    assert_int_equal(tern_buffer_write(w, 0, out, 1), TERN_E_INTERNAL); /* it is somebody else's */
    support_error(ctx, TERN_E_INTERNAL, "read-only");
    struct tern_buffer *again = tern_buffer_ref(w);
    tern_buffer_unref(&w);
    assert_int_equal(released, 0);
    tern_buffer_unref(&again);
    assert_int_equal(released, 1);
    tern_buffer_unref(&b);
    tern_buffer_unref(&b);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_parameters_are_named), cmocka_unit_test(objects_keep_their_context),
        cmocka_unit_test(devices_are_listed),         cmocka_unit_test(an_empty_cache_folder_is_none),
        cmocka_unit_test(the_first_error_stays),      cmocka_unit_test(an_error_stops_what_follows),
        cmocka_unit_test(callbacks_are_called),       cmocka_unit_test(the_budget_holds_in_callbacks),
        cmocka_unit_test(one_thread_is_asked),        cmocka_unit_test(buffers_check_their_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* NULL where a function has no use for it: a status, NULL, 0 or false as the headers say, and no crash. Every call is made in a process
 * of its own, so that one that crashes is one that fails. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/tern.h>

#include "support.h"

/* What calls are given in the places that are not NULL. */
static struct tern_context *ctx;
static tern_tensor *t;
static const int64_t shape[] = {2, 3};

/* cmocka's handlers would go on with the tests in the child. */
static void die_of_signals(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
        signal(signals[i], SIG_DFL);
}

static int failures;

static void judge(pid_t child, int line, const char *what)
{
    int status = -1;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
        print_error("line %d: crashes: %s\n", line, what);
    else if (WEXITSTATUS(status))
        print_error("line %d: does not hold: %s\n", line, what);
    failures += status != 0;
}

/* A condition that calls the function. */
#define HOLDS(...)                            \
    do {                                      \
        pid_t child = fork();                 \
        if (!child) {                         \
            die_of_signals();                 \
            _exit((__VA_ARGS__) ? 0 : 1);     \
        }                                     \
        judge(child, __LINE__, #__VA_ARGS__); \
    } while (0)

/* Likewise, and the error is recorded. */
#define REFUSED(...) HOLDS((__VA_ARGS__) && tern_error_status(ctx) == TERN_E_INVALID && tern_error(ctx)[0])
/* A function without a result returns. */
#define RETURNS(...) HOLDS((__VA_ARGS__, true))

static int open_things(void **state)
{
    ctx = support_context();
    t = tern_tensor_create(ctx, TERN_F32, 2, shape, NULL);
    return t ? 0 : 1;
}

static int close_things(void **state)
{
    tern_tensor_unref(&t);
    tern_context_destroy(&ctx);
    return 0;
}

static void of_contexts(void **state)
{
    struct tern_device_peak peak;
    failures = 0;
    RETURNS(tern_context_destroy(NULL));
    HOLDS(!tern_error(NULL)[0]);
    HOLDS(tern_error_status(NULL) == TERN_E_INVALID);
    RETURNS(tern_error_clear(NULL));
    HOLDS(tern_memory_used(NULL) == 0);
    HOLDS(tern_memory_peak(NULL) == 0);
    RETURNS(tern_memory_reset_peak(NULL));
    HOLDS(tern_memory_allocations(NULL) == 0);
    RETURNS(tern_memory_trim(NULL));
    HOLDS(!tern_context_devices_behind(NULL));
    HOLDS(tern_context_fast_dtype(NULL) == TERN_F32);
    HOLDS(!tern_devices_describe(NULL));
    RETURNS(tern_free_text(NULL, NULL));
    RETURNS(tern_free_text(ctx, NULL));
    HOLDS(tern_device_peak(NULL, &peak) == TERN_E_INVALID && peak.flops == 0);
    REFUSED(tern_device_peak(ctx, NULL) == TERN_E_INVALID);
    HOLDS(tern_thread_count(NULL) == 0);
    HOLDS(tern_dtype_parse(NULL) == TERN_DTYPE_COUNT);
    assert_int_equal(failures, 0);
}

static void of_tensors(void **state)
{
    float values[6];
    failures = 0;
    HOLDS(!tern_tensor_create(NULL, TERN_F32, 2, shape, NULL));
    REFUSED(!tern_tensor_create(ctx, TERN_F32, 2, NULL, NULL));
    HOLDS(!tern_tensor_scalar(NULL, TERN_F32, 1));
    HOLDS(!tern_tensor_ref(NULL));
    RETURNS(tern_tensor_unref(NULL));
    HOLDS(!tern_tensor_context(NULL));
    HOLDS(tern_tensor_dtype(NULL) == TERN_DTYPE_COUNT);
    HOLDS(tern_tensor_ndim(NULL) == 0);
    HOLDS(tern_tensor_size(NULL, 0) == 0);
    HOLDS(tern_tensor_size(NULL, -1) == 0);
    HOLDS(!tern_tensor_shape(NULL));
    HOLDS(!tern_tensor_strides(NULL));
    HOLDS(tern_tensor_numel(NULL) == 0);
    HOLDS(tern_tensor_read(NULL, TERN_F32, values, sizeof(values)) == TERN_E_INVALID);
    REFUSED(tern_tensor_read(t, TERN_F32, NULL, sizeof(values)) == TERN_E_INVALID);
    REFUSED(tern_tensor_read(t, TERN_I64, NULL, 6 * sizeof(int64_t)) == TERN_E_INVALID);
    HOLDS(tern_tensor_write(NULL, TERN_F32, values, sizeof(values)) == TERN_E_INVALID);
    REFUSED(tern_tensor_write(t, TERN_F32, NULL, sizeof(values)) == TERN_E_INVALID);
    REFUSED(tern_tensor_write(t, TERN_I64, NULL, 6 * sizeof(int64_t)) == TERN_E_INVALID);
    RETURNS(tern_scope_begin(NULL));
    HOLDS(!tern_scope_end(NULL, NULL));
    HOLDS(!tern_scope_next(NULL, NULL));
    RETURNS(tern_scope_end_many(NULL, &t, 1));
    HOLDS((tern_scope_begin(ctx), !tern_scope_end(ctx, NULL)) && tern_error_status(ctx) == TERN_OK);
    REFUSED((tern_scope_begin(ctx), tern_scope_end_many(ctx, NULL, 1), tern_error_clear(ctx), tern_scope_end(ctx, NULL), true));
    assert_int_equal(failures, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_contexts),
        cmocka_unit_test(of_tensors),
    };
    return cmocka_run_group_tests(tests, open_things, close_things);
}

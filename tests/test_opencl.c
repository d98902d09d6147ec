/* The OpenCL backend on whatever device the system has (PoCL: the processor): ops, pictures, plans, its cache, what it refuses. */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "gpu_help.h"
#include "support.h"

#define ONE_IN 12 /* cases of the table: each new variant is compiled, and tests/test_texts_opencl.c runs the others */

static char cache_dir[256];
static int warnings;

static void count_warnings(enum tern_log_level level, const char *text, void *user)
{
    warnings += level == TERN_LOG_WARN && strstr(text, "the kernel is built again") != NULL;
}

static struct tern_context *open_device(const char *device)
{
    return tern_context_create(
        &(struct tern_context_params){.device = device, .threads = 2, .cache_dir = cache_dir, .log = count_warnings});
}

/* NULL, and the test is skipped, when there is no device. */
static struct tern_context *open_or_skip(void)
{
    struct tern_context *ctx = open_device("opencl");
    if (!ctx) {
        print_message("%s (Debian's pocl-opencl-icd has a driver)\n", tern_create_error());
        skip();
    }
    return ctx;
}

static void ops_agree(void **state)
{
    struct tern_context *ctx = open_or_skip();
    assert_true(gpu_ops_agree(ctx, "opencl", ONE_IN) > 100);
    tern_context_destroy(&ctx);
}

static void pictures_agree(void **state)
{
    static const char *const prompts[] = {"a red circle", "一艘蓝色的船在海上，日落"};
    struct tern_context *ctx = open_or_skip(), *cpu = support_context();
    for (int i = 0; i < 2; i++) {
        struct tern_image *expected = gpu_paint(cpu, prompts[i]), *found = gpu_paint(ctx, prompts[i]);
        gpu_compare(expected, found);
        tern_image_destroy(&expected);
        tern_image_destroy(&found);
    }
    tern_context_destroy(&ctx);
    tern_context_destroy(&cpu);
}

/* Another context finds all kernels in the cache folder. Damaged files and those of another driver are built again. */
static void the_cache_is_checked(void **state)
{
    struct tern_context *ctx = open_or_skip();
    char pattern[300];
    glob_t files;
    struct tern_image *expected = gpu_paint(ctx, "a star");
    tern_context_destroy(&ctx);
    snprintf(pattern, sizeof(pattern), "%s/opencl/*.bin", cache_dir);
    assert_int_equal(glob(pattern, 0, NULL, &files), 0);
    assert_true(files.gl_pathc > 20);
    for (int what = 0; what < 3; what++) { /* whole, a byte changed, cut */
        int damaged = 0;
        for (size_t i = 0; what && i < files.gl_pathc; i += 10, damaged++) {
            FILE *f = fopen(files.gl_pathv[i], what == 1 ? "r+b" : "wb");
            assert_non_null(f);
            if (what == 1)
                fseek(f, 40, SEEK_SET);
            fputc('?', f);
            fclose(f);
        }
        warnings = 0;
        ctx = open_device("opencl");
        struct tern_image *found = gpu_paint(ctx, "a star");
        gpu_compare(expected, found);
        assert_true(what ? warnings > 0 && warnings <= damaged : warnings == 0);
        tern_image_destroy(&found);
        tern_context_destroy(&ctx);
    }
    globfree(&files);
    tern_image_destroy(&expected);
}

static void plans_agree(void **state)
{
    struct tern_context *ctx = open_or_skip(), *cpu = support_context();
    float expected[GPU_PLAN_VALUES], found[GPU_PLAN_VALUES];
    gpu_run_plan(cpu, expected);
    gpu_run_plan(ctx, found);
    assert_true(support_nmse(found, expected, GPU_PLAN_VALUES) < 1e-11);
    tern_context_destroy(&ctx);
    tern_context_destroy(&cpu);
}

/* Every allocation of the library fails once, from opening the device to the result: a status, no leak. */
static void faults_are_statuses(void **state)
{
    struct tern_context *ctx = open_or_skip();
    tern_context_destroy(&ctx);
    int faults = 0;
    for (long n = 1; n < 10000; n++, faults++) {
        struct support_allocator m = {.fail_at = n};
        const struct tern_context_params params = {
            .device = "opencl", .threads = 1, .allocator = support_failing(&m), .cache_dir = cache_dir};
        ctx = tern_context_create(&params);
        tern_tensor *x = ctx ? tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){100}, NULL) : NULL;
        float values[100];
        tern_tensor *y = x ? tern_exp(x) : NULL;
        bool ok = y && !tern_tensor_read(y, TERN_F32, values, sizeof(values)) && values[99] == 1;
        assert_true(ok || !ctx || tern_error_status(ctx) == TERN_E_NO_MEMORY);
        tern_tensor_unref(&x);
        tern_tensor_unref(&y);
        tern_context_destroy(&ctx);
        assert_int_equal(m.live, 0);
        if (ok && m.count < n)
            break;
    }
    print_message("%d faults\n", faults);
    assert_true(faults > 8);
}

static void wrong_use_is_refused(void **state)
{
    struct tern_context *ctx = open_or_skip();
    tern_context_destroy(&ctx);
    assert_null(open_device("opencl:99"));
    assert_non_null(strstr(tern_create_error(), "device 99 was asked for, there "));
    ctx = tern_context_create(&(struct tern_context_params){.device = "opencl", .threads = 1, .budget = 1 << 20, .cache_dir = cache_dir});
    assert_non_null(ctx);
    assert_null(tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){1 << 20}, NULL));
    support_error(ctx, TERN_E_BUDGET, "memory budget of 1048576 bytes reached on device opencl");
    tern_context_destroy(&ctx);
}

static int make_cache_dir(void **state)
{
    snprintf(cache_dir, sizeof(cache_dir), "/tmp/tern-test-opencl-XXXXXX");
    return mkdtemp(cache_dir) ? 0 : -1;
}

static int remove_cache_dir(void **state)
{
    char command[300];
    snprintf(command, sizeof(command), "rm -rf '%s'", cache_dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_agree),          cmocka_unit_test(ops_agree),           cmocka_unit_test(pictures_agree),
        cmocka_unit_test(the_cache_is_checked), cmocka_unit_test(faults_are_statuses), cmocka_unit_test(wrong_use_is_refused),
    };
    return cmocka_run_group_tests(tests, make_cache_dir, remove_cache_dir);
}

/* What goes wrong with Vulkan: memory and calls that fail one by one, a lost device, no loader, no compiler, an old driver, wrong use.
 * Each time a status that says so, nothing left behind, and the next context works. And modules that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#define VK_NO_PROTOTYPES
#include <tern/ops.h>
#include <vulkan/vulkan_core.h>

#include "backends/vulkan/vulkan.h"
#include "core/context.h"
#include "core/tensor.h"
#include "gpu_help.h"
#include "support.h"
#include "vulkan_help.h"

static void skip_without_device(void)
{
    struct tern_context *ctx = vulkan_open_or_skip();
    assert_true(gpu_compute(ctx));
    tern_context_destroy(&ctx);
    assert_int_equal(vulkan_shim()->live, 0);
}

static void nothing_is_left(void) { assert_int_equal(vulkan_shim()->live, 0); }

static void allocations_fail(void **state)
{
    skip_without_device();
    assert_true(gpu_allocations_fail("vulkan", vulkan_cache_dir(), nothing_is_left) > 20);
}

/* Every call of the driver that can fail does so once, in three ways. */
static void calls_fail(void **state)
{
    static const VkResult ways[] = {VK_ERROR_OUT_OF_DEVICE_MEMORY, VK_ERROR_INITIALIZATION_FAILED, VK_ERROR_DEVICE_LOST};
    struct vulkan_shim *shim = vulkan_shim();
    skip_without_device();
    for (int w = 0; w < 3; w++) {
        long n = 1;
        int failed = 0;
        for (; n < 1000; n++) {
            *shim = (struct vulkan_shim){.fail_at = n, .fail_with = ways[w], .stays_lost = ways[w] == VK_ERROR_DEVICE_LOST};
            struct support_allocator m = {0};
            const struct tern_context_params params = {
                .device = "vulkan", .threads = 1, .allocator = support_failing(&m), .cache_dir = vulkan_cache_dir()};
            struct tern_context *ctx = tern_context_create(&params);
            bool ok = gpu_compute(ctx);
            if (!ok)
                assert_non_null(strstr(ctx ? tern_error(ctx) : tern_create_error(), "vulkan"));
            failed += !ok;
            tern_context_destroy(&ctx);
            assert_int_equal(m.live, 0);
            assert_int_equal(shim->live, 0);
            if (ok && shim->calls < n)
                break;
        }
        print_message("error %d: %ld calls, %d results did not come\n", (int)ways[w], n - 1, failed);
        assert_true(n > 40 && n < 1000 && failed > 25);
    }
    vulkan_reset(NULL);
    skip_without_device();
}

/* A wait for a lost device may succeed (the specification, "Lost Device"): the counter shows it. */
static void a_loss_shows_in_the_counter(void **state)
{
    struct vulkan_shim *shim = vulkan_shim();
    skip_without_device();
    for (int way = 0; way < 3; way++) {
        struct tern_context *ctx = vulkan_open("vulkan");
        assert_true(gpu_compute(ctx));
        shim->counter = way == 0 ? 1 : way == 1 ? UINT64_MAX : 0;
        shim->fail_of = "vkGetSemaphoreCounterValue";
        shim->fail_with = VK_ERROR_DEVICE_LOST;
        shim->stays_lost = true;
        shim->fail_at = way == 2 ? shim->calls + 1 : 0;
        assert_false(gpu_compute(ctx));
        support_error(ctx, TERN_E_DEVICE, "the device is lost");
        shim->fail_at = 0;
        shim->counter = 0;
        assert_false(gpu_compute(ctx));
        support_error(ctx, TERN_E_DEVICE, "the device is lost");
        tern_context_destroy(&ctx);
        assert_int_equal(shim->live, 0);
    }
    vulkan_reset(NULL);
    skip_without_device();
}

/* Lost in the middle: everything later says so at once, and a new context works. */
static void a_lost_device_stays_lost(void **state)
{
    static const char *const at[] = {"vkQueueSubmit", "vkWaitSemaphores"};
    struct vulkan_shim *shim = vulkan_shim();
    skip_without_device();
    for (int i = 0; i < 2; i++) {
        struct tern_context *ctx = vulkan_open("vulkan");
        struct tern_queue *q = ctx->device->queue;
        assert_true(gpu_compute(ctx));
        shim->calls = 0;
        shim->fail_of = at[i];
        shim->fail_at = 1;
        shim->fail_with = VK_ERROR_DEVICE_LOST;
        assert_false(gpu_compute(ctx));
        support_error(ctx, TERN_E_DEVICE, "the device is lost");
        shim->fail_at = 0; /* the driver would go on; the backend does not */
        assert_false(gpu_compute(ctx));
        support_error(ctx, TERN_E_DEVICE, "the device is lost");
        assert_int_equal(q->fns->finish(q), TERN_E_DEVICE);
        support_error(ctx, TERN_E_DEVICE, "the device is lost");
        assert_int_equal(q->fns->capture_begin(q), TERN_E_DEVICE);
        support_error(ctx, TERN_E_DEVICE, "the device is lost");
        assert_null(tern_buffer_create(ctx->device, 100));
        support_error(ctx, TERN_E_DEVICE, "the device is lost");
        tern_context_destroy(&ctx);
        assert_int_equal(shim->live, 0);
        skip_without_device();
    }
}

static void expect_no_device(const char *why)
{
    assert_null(vulkan_open("vulkan"));
    if (!strstr(tern_create_error(), why))
        fail_msg("expected \"%s\" in \"%s\"", why, tern_create_error());
    assert_int_equal(vulkan_shim()->live, 0);
}

static void drivers_are_refused(void **state)
{
    struct vulkan_shim *shim = vulkan_shim();
    skip_without_device();
    shim->version = VK_API_VERSION_1_1;
    expect_no_device("expected a driver of Vulkan 1.2 or later, found 1.1");
    shim->version = 0;
    *shim = (struct vulkan_shim){.fail_at = 1, .fail_of = "vkCreateInstance", .fail_with = VK_ERROR_INCOMPATIBLE_DRIVER};
    expect_no_device("no driver is installed");
    char *library = strdup(getenv("TERN_VULKAN_LIBRARY"));
    setenv("TERN_VULKAN_LIBRARY", "/nonexistent/libvulkan.so.1", 1);
    expect_no_device("/nonexistent/libvulkan.so.1: cannot open shared object file");
    setenv("TERN_VULKAN_LIBRARY", "libm.so.6", 1);
    expect_no_device("has no function vkGetInstanceProcAddr");
    setenv("TERN_VULKAN_LIBRARY", library, 1);
    free(library);
}

/* A command of that text in place of glslc. */
static void write_glslc(const char *text)
{
    char name[300];
    snprintf(name, sizeof(name), "%s/glslc", vulkan_cache_dir());
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(name, 0755), 0);
    setenv("PATH", vulkan_cache_dir(), 1);
}

/* An op whose kernel is not in the cache yet. */
static void expect_no_kernel(enum tern_status status, const char *why)
{
    struct tern_context *ctx = vulkan_open("vulkan");
    assert_non_null(ctx);
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){9}, (float[9]){0});
    assert_null(tern_cos(x));
    support_error(ctx, status, why);
    tern_tensor_unref(&x);
    tern_context_destroy(&ctx);
    assert_int_equal(vulkan_shim()->live, 0);
}

static void compilers_fail(void **state)
{
    skip_without_device();
    vulkan_hide_compilers();
    expect_no_kernel(TERN_E_NOT_FOUND, "the Debian package glslc the command");
    write_glslc("#!/bin/sh\necho 'bad weather' >&2\nexit 1\n");
    expect_no_kernel(TERN_E_DEVICE, "kernel text elementwise: glslc says: bad weather");
    write_glslc("#!/bin/sh\necho 'this is no SPIR-V module'; echo 123456\n");
    expect_no_kernel(TERN_E_DEVICE, "that are no SPIR-V module");
    vulkan_show_compilers();
    struct vulkan_shim *shim = vulkan_shim();
    *shim = (struct vulkan_shim){.fail_at = 1, .fail_of = "vkCreateComputePipelines", .fail_with = VK_ERROR_UNKNOWN};
    expect_no_kernel(TERN_E_DEVICE, "vulkan: elementwise: unknown error");
}

/* The library of shaderc is not there, the command is. */
static void glslc_compiles(void **state)
{
    skip_without_device();
    if (system("glslc --version >/dev/null 2>&1")) {
        print_message("no glslc (Debian's package glslc has it)\n");
        skip();
    }
    setenv("TERN_SHADERC_LIBRARY", "/nonexistent", 1);
    struct tern_context *ctx = vulkan_open("vulkan");
    float values[3] = {0, 1, 4};
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){3}, values), *y = tern_sqrt(x);
    assert_int_equal(tern_tensor_read(y, TERN_F32, values, sizeof(values)), TERN_OK);
    assert_true(values[0] == 0 && values[1] == 1 && values[2] == 2);
    tern_tensor_unref(&x);
    tern_tensor_unref(&y);
    tern_context_destroy(&ctx);
}

/* Opens a device of which the driver says it has cooperative matrices; what it tells people of them has to contain one of two words. */
static void describe_matrix(int matrix, const char *expected, const char *or_else)
{
    struct vulkan_shim *shim = vulkan_shim();
    char line[2000];
    *shim = (struct vulkan_shim){.matrix = matrix};
    struct tern_context *ctx = vulkan_open("vulkan");
    ctx->device->fns->describe(ctx->device, line, sizeof(line));
    if (!strstr(line, expected) && !strstr(line, or_else))
        fail_msg("expected \"%s\", found \"%s\"", expected, line);
    assert_int_equal(tern_context_fast_dtype(ctx), strstr(line, "cooperative matrix used") ? TERN_F16 : TERN_F32);
    assert_true(gpu_compute(ctx));
    tern_context_destroy(&ctx);
    assert_int_equal(shim->live, 0);
}

/* They are used where driver and compiler have them in the shape of the texts; Debian 12's compiler does not. */
static void matrices_are_used_where_all_have_them(void **state)
{
    static const char no_compiler[] = "cooperative matrix not used: the compiler of GLSL", lacking[] = "not there: cooperative matrix";
    struct vulkan_shim *shim = vulkan_shim();
    skip_without_device();
    describe_matrix(0, lacking, ", cooperative matrix");
    assert_int_equal(shim->matrices_enabled, 0);
    describe_matrix(1, no_compiler, "cooperative matrix used for f16");
    assert_int_equal(shim->matrices_enabled, 1);
    describe_matrix(2, "cooperative matrix not used: none of 16 x 16 x 16 from f16 to f32", "none of 16 x 16 x 16");
    assert_int_equal(shim->matrices_enabled, 0);
    setenv("TERN_GPU_LIMITS", "matrix=no", 1);
    describe_matrix(1, "cooperative matrix not used: by TERN_GPU_LIMITS", "by TERN_GPU_LIMITS");
    assert_int_equal(shim->matrices_enabled, 0);
}

static void wrong_use_is_refused(void **state)
{
    skip_without_device();
    gpu_wrong_use_is_refused("vulkan", vulkan_cache_dir());
    struct tern_context *ctx = vulkan_open("vulkan");
    assert_null(tern_buffer_create(ctx->device, (size_t)1 << 45));
    support_error(ctx, TERN_E_NO_MEMORY, "the device allows");
    struct vulkan_shim *shim = vulkan_shim();
    *shim = (struct vulkan_shim){
        .fail_at = 1, .fail_of = "vkAllocateMemory", .fail_with = VK_ERROR_OUT_OF_DEVICE_MEMORY, .stays_lost = true, .live = shim->live};
    assert_null(tern_buffer_create(ctx->device, 100000000));
    support_error(ctx, TERN_E_NO_MEMORY, "a buffer of 100000000 bytes was asked for; of the device's memory ");
    tern_context_destroy(&ctx);
    assert_int_equal(shim->live, 0);
}

static void the_largest_buffer_can_be_made(void **state)
{
    struct vulkan_shim *shim = vulkan_shim();
    skip_without_device();
    shim->max_allocation = (64 << 20) + 1000;
    struct tern_context *ctx = vulkan_open("vulkan");
    gpu_largest_buffer_is_made(ctx, shim->max_allocation);
    tern_context_destroy(&ctx);
    assert_int_equal(shim->live, 0);
}

/* A capability each at the beginning, an execution mode each behind the entry point, in a module with one of either. */
static void modes_are_asked_for(void **state)
{
    enum { SHADER = 1, LOCAL_SIZE = 17, MAIN = 4 };
    const uint32_t head[] = {0x07230203, 0x10500, 0, 10, 0}, capability[] = {2 << 16 | 17, SHADER}, model[] = {3 << 16 | 14, 0, 1};
    const uint32_t entry[] = {5 << 16 | 15, 5, MAIN, 0x6e69616d, 0}, size[] = {6 << 16 | 16, MAIN, LOCAL_SIZE, 1, 1, 1};
    for (int what = 0; what < 4; what++) {
        uint32_t words[64], expected[64];
        size_t n = 0, m = 0;
#define PUT(array, count, part) (memcpy((array) + (count), part, sizeof(part)), (count) += sizeof(part) / sizeof(*(part)))
        PUT(words, n, head), PUT(words, n, capability), PUT(words, n, model), PUT(words, n, entry), PUT(words, n, size);
        PUT(expected, m, head);
        if (what & 2)
            PUT(expected, m, ((const uint32_t[]){2 << 16 | 17, 4464}));
        if (what & 1)
            PUT(expected, m, ((const uint32_t[]){2 << 16 | 17, 4466}));
        PUT(expected, m, capability), PUT(expected, m, model), PUT(expected, m, entry);
        if (what & 2)
            PUT(expected, m, ((const uint32_t[]){4 << 16 | 16, MAIN, 4459, 32}));
        if (what & 1)
            PUT(expected, m, ((const uint32_t[]){4 << 16 | 16, MAIN, 4461, 32}));
        PUT(expected, m, size);
#undef PUT
        assert_int_equal(tern_vulkan_spirv_keep(words, n, what & 1, what & 2), m);
        assert_memory_equal(words, expected, m * sizeof(*words));
    }
    uint32_t none[64] = {0x07230203, 0x10500, 0, 10, 0, 2 << 16 | 17, SHADER};
    assert_int_equal(tern_vulkan_spirv_keep(none, 7, true, false), 0); /* no entry point */
    assert_int_equal(tern_vulkan_spirv_keep(none, 7, false, true), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(allocations_fail, vulkan_reset),
        cmocka_unit_test_setup(calls_fail, vulkan_reset),
        cmocka_unit_test_setup(a_lost_device_stays_lost, vulkan_reset),
        cmocka_unit_test_setup(a_loss_shows_in_the_counter, vulkan_reset),
        cmocka_unit_test_setup(drivers_are_refused, vulkan_reset),
        cmocka_unit_test_setup(compilers_fail, vulkan_reset),
        cmocka_unit_test_setup(glslc_compiles, vulkan_reset),
        cmocka_unit_test_setup(wrong_use_is_refused, vulkan_reset),
        cmocka_unit_test_setup(the_largest_buffer_can_be_made, vulkan_reset),
        cmocka_unit_test(modes_are_asked_for),
        cmocka_unit_test_setup(matrices_are_used_where_all_have_them, vulkan_reset),
    };
    return cmocka_run_group_tests(tests, vulkan_setup, vulkan_teardown);
}

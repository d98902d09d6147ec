/* What drivers of OpenCL say of their devices, as a stand-in of the loader has it: limits, long names, old versions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/graph.h>
#include <tern/ops.h>

#include "backends/gpu/gpu.h"
#include "core/context.h"
#include "gpu_help.h"
#include "support.h"
#include "tests/opencl_shim.h"

static char cache_dir[GPU_FOLDER];
static struct opencl_shim *shim;

static struct tern_context *open_device(void)
{
    return tern_context_create(&(const struct tern_context_params){.device = "opencl", .threads = 1, .cache_dir = cache_dir});
}

static struct tern_context *open_or_skip(void)
{
    struct tern_context *ctx = shim ? open_device() : NULL;
    if (!ctx) {
        print_message("%s\n", shim ? tern_create_error() : "TERN_TEST_OPENCL does not name the stand-in of the loader; meson test does");
        skip();
    }
    return ctx;
}

static void skip_without_device(void) { tern_context_destroy(&(struct tern_context *){open_or_skip()}); }

static void the_largest_buffer_can_be_made(void **state)
{
    skip_without_device();
    shim->max_allocation = (32 << 20) + 5;
    struct tern_context *ctx = open_or_skip();
    gpu_largest_buffer_is_made(ctx, shim->max_allocation);
    tern_context_destroy(&ctx);
}

/* Files of what the driver compiled. */
static int binaries(void)
{
    char command[400];
    int n = -1;
    snprintf(command, sizeof(command), "find '%s' -name '*.bin' | wc -l", cache_dir);
    FILE *f = popen(command, "r");
    assert_true(f && fscanf(f, "%d", &n) == 1);
    pclose(f);
    return n;
}

static void compute(void)
{
    struct tern_context *ctx = open_or_skip();
    float values[2] = {4, 9};
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){2}, values), *y = tern_sqrt(x);
    assert_int_equal(tern_tensor_read(y, TERN_F32, values, sizeof(values)), TERN_OK);
    assert_true(values[0] == 2 && values[1] == 3);
    tern_tensor_unref(&x);
    tern_tensor_unref(&y);
    tern_context_destroy(&ctx);
}

/* What a driver compiled is another's no more, however long their names are: of 64 characters Qualcomm's differ in the last ones. */
static void binaries_are_of_one_driver(void **state)
{
    static const struct {
        const char *driver, *version;
        int binaries;
    } all[] = {{"OpenCL 3.0 QUALCOMM build: commit unknown Compiler E031.45.02.06", "OpenCL 3.0 Adreno(TM) 740", 1},
               {"OpenCL 3.0 QUALCOMM build: commit unknown Compiler E031.45.02.07", "OpenCL 3.0 Adreno(TM) 740", 2},
               {"OpenCL 3.0 QUALCOMM build: commit unknown Compiler E031.45.02.07", "OpenCL 3.1 Adreno(TM) 740", 3},
               {"OpenCL 3.0 QUALCOMM build: commit unknown Compiler E031.45.02.06", "OpenCL 3.0 Adreno(TM) 740", 3}};
    char line[1000];
    skip_without_device();
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        shim->driver = all[i].driver;
        shim->version = all[i].version;
        compute();
        assert_int_equal(binaries(), all[i].binaries);
    }
    struct tern_context *ctx = open_device();
    ctx->device->fns->describe(ctx->device, line, sizeof(line));
    assert_non_null(strstr(line, "E031.45.02.06"));
    tern_context_destroy(&ctx);
}

static void expect_line(const char *part, bool there)
{
    char line[1000];
    struct tern_context *ctx = open_device();
    if (!ctx)
        fail_msg("%s", tern_create_error());
    ctx->device->fns->describe(ctx->device, line, sizeof(line));
    if ((strstr(line, part) != NULL) != there)
        fail_msg("expected %s\"%s\" in \"%s\"", there ? "" : "no ", part, line);
    tern_context_destroy(&ctx);
}

static enum tern_status root(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_sqrt(in[0]);
    return tern_error_status(tern_tensor_context(in[0]));
}

static void plans_are_of_one_driver(void **state)
{
    static const char *const drivers[] = {"545.29.06", "550.54.14", "545.29.06"};
    const struct tern_graph_input in = {"x", TERN_F32, 1, {2}};
    char path[300];
    skip_without_device();
    snprintf(path, sizeof(path), "%s/root.plan", cache_dir);
    for (int i = 0; i < 3; i++) {
        shim->driver = drivers[i];
        struct tern_context *ctx = open_or_skip();
        struct tern_graph *g = i ? NULL : tern_graph_trace(ctx, root, NULL, NULL, &in, 1, 1);
        struct tern_plan *plan = i ? tern_plan_load(ctx, path) : tern_plan_compile(g, NULL);
        if (i == 1)
            support_error(ctx, TERN_E_FORMAT, "a plan of another tern, device or processor");
        else if (!plan || (!i && tern_plan_save(plan, path)))
            fail_msg("%s", tern_error(ctx));
        assert_int_equal(plan == NULL, i == 1);
        tern_plan_unref(&plan);
        tern_graph_destroy(&g);
        tern_context_destroy(&ctx);
    }
}

/* A version of 59 characters, as Mali's are, and ten thousand characters of extensions. */
static void long_texts_are_read(void **state)
{
    char extensions[10000];
    skip_without_device();
    memset(extensions, 'x', sizeof(extensions));
    strcpy(extensions + sizeof(extensions) - 40, " cl_khr_integer_dot_product");
    shim->extensions = extensions;
    shim->dot_products = true;
    shim->version = "OpenCL 2.1 v1.r44p1-01eac0.c1a71ed9acd4c7e4cf4a9d3ee1a7a6e5";
    expect_line(", dot products of i8", false);
    shim->version = "OpenCL 3.0 v1.r44p1-01eac0.c1a71ed9acd4c7e4cf4a9d3ee1a7a6e5";
    expect_line(", dot products of i8", true);
}

static void old_devices_are_refused(void **state)
{
    static const char *const versions[] = {"OpenCL 1.1 Mesa 11.2.0", "OpenCL 0.9", ""};
    skip_without_device();
    for (int i = 0; i < 3; i++) {
        char expected[100];
        snprintf(expected, sizeof(expected), "expected a device of OpenCL 1.2 or later, found \"%s\" (driver of old)", versions[i]);
        shim->version = versions[i];
        shim->driver = "of old";
        assert_null(open_device());
        if (!strstr(tern_create_error(), expected))
            fail_msg("expected \"%s\" in \"%s\"", expected, tern_create_error());
    }
    shim->version = "OpenCL 1.2 pocl 1.0";
    tern_context_destroy(&(struct tern_context *){open_or_skip()});
}

/* A driver that finds no memory for a buffer when it is used: the buffer lies in the host's then, as if it had said so at once. */
static void memory_is_looked_for_at_once(void **state)
{
    enum { SMALL = 1 << 20, LARGE = 2 << 20 };
    skip_without_device();
    shim->discrete = true;
    shim->most_found = SMALL + 100;
    struct tern_context *ctx = open_or_skip();
    const struct tern_gpu_memory *m = &((const struct tern_gpu *)ctx->device)->memory;
    struct tern_buffer *small = tern_buffer_create(ctx->device, SMALL), *large = tern_buffer_create(ctx->device, LARGE);
    uint32_t word = 7;
    assert_true(small && large);
    assert_true(m->on_device == SMALL && m->on_host == LARGE);
    if (tern_buffer_write(large, LARGE - 4, &(const uint32_t){42}, 4) || tern_buffer_read(large, LARGE - 4, &word, 4))
        fail_msg("%s", tern_error(ctx));
    assert_int_equal(word, 42);
    tern_buffer_unref(&small);
    tern_buffer_unref(&large);
    tern_context_destroy(&ctx);
}

static int reset(void **state)
{
    if (shim)
        *shim = (struct opencl_shim){0};
    return 0;
}

static int group_setup(void **state)
{
    shim = gpu_open_standin("TERN_TEST_OPENCL", "opencl_shim", "TERN_OPENCL_LIBRARY");
    return gpu_make_folder(cache_dir, "opencl");
}

static int group_teardown(void **state) { return gpu_remove_folder(cache_dir); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_largest_buffer_can_be_made, reset), cmocka_unit_test_setup(binaries_are_of_one_driver, reset),
        cmocka_unit_test_setup(plans_are_of_one_driver, reset),        cmocka_unit_test_setup(long_texts_are_read, reset),
        cmocka_unit_test_setup(old_devices_are_refused, reset),        cmocka_unit_test_setup(memory_is_looked_for_at_once, reset),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}

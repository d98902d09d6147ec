/* What drivers of OpenCL say of their devices, as a stand-in of the loader has it: limits, long names, old versions. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "support.h"
#include "tests/opencl_shim.h"

static char cache_dir[256];
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

/* A driver's largest allocation holds what is put behind a buffer, too: plans make buffers as large as the device says. */
static void the_largest_buffer_can_be_made(void **state)
{
    skip_without_device();
    shim->max_allocation = (32 << 20) + 5;
    struct tern_context *ctx = open_or_skip();
    size_t most = ctx->device->caps.max_buffer;
    assert_true(most > (31 << 20) && most <= shim->max_allocation);
    struct tern_buffer *b = tern_buffer_create(ctx->device, most);
    if (!b)
        fail_msg("%s", tern_error(ctx));
    tern_buffer_unref(&b);
    assert_null(tern_buffer_create(ctx->device, most + 1));
    support_error(ctx, TERN_E_NO_MEMORY, "the device allows");
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
    const char *path = getenv("TERN_TEST_OPENCL");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    struct opencl_shim *(*get)(void) = NULL;
    if (library)
        *(void **)(void *)&get = dlsym(library, "opencl_shim");
    if (get) {
        shim = get();
        setenv("TERN_OPENCL_LIBRARY", path, 1);
    }
    snprintf(cache_dir, sizeof(cache_dir), "/tmp/tern-test-opencl-XXXXXX");
    return mkdtemp(cache_dir) ? 0 : -1;
}

static int group_teardown(void **state)
{
    char command[300];
    snprintf(command, sizeof(command), "rm -rf '%s'", cache_dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_largest_buffer_can_be_made, reset),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}

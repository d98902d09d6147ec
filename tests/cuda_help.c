/* What the tests of the CUDA backend share: the stand-in driver and compiler, which the environment names, and small jobs. */
#include "tests/cuda_help.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"

struct cuda_standin cuda;
char cuda_cache[256];
static struct standin_facts fresh;

static void *open_named(const char *variable)
{
    const char *path = getenv(variable);
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    if (!library)
        print_message("%s: %s\n", variable, path ? dlerror() : "not set; the build sets it for this test");
    return library;
}

int cuda_group_setup(void **state)
{
    snprintf(cuda_cache, sizeof(cuda_cache), "/tmp/tern-test-cuda-XXXXXX");
    if (!mkdtemp(cuda_cache))
        return -1;
    cuda.driver = open_named("TERN_CUDA_LIBRARY");
    cuda.compiler = open_named("TERN_NVRTC_LIBRARY");
    if (!cuda.driver || !cuda.compiler)
        return 0;
#define LOAD(name)                                                   \
    if (!(*(void **)(void *)&cuda.name = dlsym(cuda.driver, #name))) \
        return -1;
    STANDIN_FUNCTIONS(LOAD)
#undef LOAD
#define LOAD(name)                                                     \
    if (!(*(void **)(void *)&cuda.name = dlsym(cuda.compiler, #name))) \
        return -1;
    STANDIN_NVRTC_FUNCTIONS(LOAD)
#undef LOAD
    cuda.standin_get_facts(&fresh);
    return 0;
}

int cuda_group_teardown(void **state)
{
    char command[300];
    snprintf(command, sizeof(command), "rm -rf '%s'", cuda_cache);
    return system(command);
}

int cuda_setup(void **state)
{
    static const int archs[] = {50, 52, 53, 60, 61, 70, 72, 75, 80, 86, 87, 89, 90, 0};
    if (!cuda.standin_reset)
        return 0;
    cuda.standin_reset();
    cuda.standin_set_facts(&fresh);
    cuda.standin_nvrtc_set(12090, archs);
    return 0;
}

int cuda_teardown(void **state)
{
    char text[400];
    if (!cuda.standin_reset)
        return 0;
    int misuses = cuda.standin_misuses(text, sizeof(text));
    if (misuses)
        print_error("%d misuses, the first: %s\n", misuses, text);
    int leaks = cuda.standin_leaks(text, sizeof(text));
    if (leaks)
        print_error("%d things left, the first: %s\n", leaks, text);
    return misuses || leaks ? -1 : 0;
}

struct tern_context *cuda_context(const char *device)
{
    if (!cuda.standin_reset) {
        print_message("the stand-in driver of CUDA is not there: TERN_CUDA_LIBRARY and TERN_NVRTC_LIBRARY name it\n");
        skip();
    }
    return tern_context_create(&(const struct tern_context_params){.device = device, .threads = 2, .cache_dir = cuda_cache});
}

struct tern_context *cuda_open(void)
{
    struct tern_context *ctx = cuda_context("cuda");
    if (!ctx)
        fail_msg("%s", tern_create_error());
    return ctx;
}

struct standin_counts cuda_counts(void)
{
    struct standin_counts counts;
    cuda.standin_counts(&counts);
    return counts;
}

struct standin_facts cuda_facts(void)
{
    struct standin_facts facts;
    cuda.standin_get_facts(&facts);
    return facts;
}

bool cuda_small_job(struct tern_context *ctx)
{
    float in[1000], out[1000];
    for (int i = 0; i < 1000; i++)
        in[i] = (float)i / 500 - 1;
    tern_scope_begin(ctx);
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){1000}, in);
    tern_tensor *y = tern_mul_scalar(tern_add_scalar(tern_exp(x), 1), 0.5);
    bool good = y && tern_tensor_read(y, TERN_F32, out, sizeof(out)) == TERN_OK;
    for (int i = 0; good && i < 1000; i++)
        if (!(fabs(out[i] - 0.5 * (exp(in[i]) + 1)) < 1e-6))
            fail_msg("value %d is %g, expected %g", i, (double)out[i], 0.5 * (exp(in[i]) + 1));
    tern_scope_end(ctx, NULL);
    return good;
}

void cuda_assert_text(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("expected \"%s\" in: %s", part, text);
}

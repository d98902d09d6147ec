/* The CUDA backend's compiler options with a real NVRTC, for each generation: the image is what cuModuleLoadData takes, a cubin (ELF) or
 * PTX. And all functions that the backend wants of NVRTC are in it. Nothing runs. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/cuda/cuda.h"
#include "core/context.h"
#include "support.h"

static struct nvrtc_api nvrtc;

static void open_or_skip(void)
{
    const char *path = getenv("TERN_NVRTC"), *missing = NULL;
    nvrtc.library = dlopen(path ? path : "libnvrtc.so.12", RTLD_NOW);
    if (!nvrtc.library) {
        print_message("no NVRTC: the wheel nvidia-cuda-nvrtc-cu12 has libnvrtc.so.12; its path goes into TERN_NVRTC\n");
        skip();
    }
#define LOAD(name, arguments)                                    \
    *(void **)(void *)&nvrtc.name = dlsym(nvrtc.library, #name); \
    missing = nvrtc.name ? missing : #name;
    NVRTC_FUNCTIONS(LOAD)
#undef LOAD
    if (missing)
        fail_msg("no function %s", missing);
}

/* The image for that architecture; free(). */
static char *compile(const char *source, int arch, bool binary, size_t *size)
{
    char text[40], log[2000] = "";
    const char *options[CUDA_OPTIONS];
    nvrtcProgram p = NULL;
    tern_cuda_nvrtc_options(arch, binary, text, options);
    assert_int_equal(nvrtc.nvrtcCreateProgram(&p, source, "copy", 0, NULL, NULL), NVRTC_SUCCESS);
    if (nvrtc.nvrtcCompileProgram(p, CUDA_OPTIONS, options)) {
        if (!nvrtc.nvrtcGetProgramLogSize(p, size) && *size < sizeof(log))
            nvrtc.nvrtcGetProgramLog(p, log);
        fail_msg("sm_%d: %s", arch, log);
    }
    assert_int_equal(binary ? nvrtc.nvrtcGetCUBINSize(p, size) : nvrtc.nvrtcGetPTXSize(p, size), NVRTC_SUCCESS);
    char *image = malloc(*size + 1);
    assert_non_null(image);
    assert_int_equal(binary ? nvrtc.nvrtcGetCUBIN(p, image) : nvrtc.nvrtcGetPTX(p, image), NVRTC_SUCCESS);
    image[*size] = 0;
    nvrtc.nvrtcDestroyProgram(&p);
    return image;
}

static void test_images(void **state)
{
    static const int generations[] = {70, 75, 80, 86, 89, 90};
    static const char defines[] = "GROUP_SIZE_X 256\nGROUP_SIZE_Y 1\nDTYPE_table F16\nDTYPE_ids I64\nDTYPE_y F16\nID_NDIM 1\n";
    struct tern_context *ctx = *state;
    size_t size = 0;
    int major = 0, minor = 0;
    open_or_skip();
    assert_int_equal(nvrtc.nvrtcVersion(&major, &minor), NVRTC_SUCCESS);
    char *source = tern_text_source(ctx, TERN_TEXT_CUDA, "embedding", defines);
    assert_non_null(source);
    for (size_t i = major > 12; i < sizeof(generations) / sizeof(*generations); i++) { /* CUDA 13 has no sm_70 */
        char *cubin = compile(source, generations[i], true, &size);
        assert_true(size > 1000 && !memcmp(cubin, "\177ELF", 4));
        free(cubin);
        char expected[32], *ptx = compile(source, generations[i], false, &size);
        snprintf(expected, sizeof(expected), ".target sm_%d", generations[i]);
        assert_non_null(strstr(ptx, ".version"));
        assert_non_null(strstr(ptx, expected));
        assert_int_equal(strlen(ptx) + 1, size); /* its end is told by its NUL */
        assert_non_null(strstr(ptx, ".entry tern_kernel("));
        free(ptx);
    }
    print_message("NVRTC %d.%d\n", major, minor);
    tern_free(ctx, source);
}

/* A quotient rounded to nearest is a division alone: a correction behind it could be contracted to another one. */
static void test_quotients(void **state)
{
    static const char defines[] = "REDUCE_MOST 1\nSCALE 1\nLANES 1\nROW_NDIM 1\nCOL_NDIM 1\nVALUE float\nGROUP_SIZE_X 64\nGROUP_SIZE_Y 1\n"
                                  "DTYPE_x F32\nDTYPE_y F32\n";
    struct tern_context *ctx = *state;
    size_t size = 0;
    open_or_skip();
    char *source = tern_text_source(ctx, TERN_TEXT_CUDA, "reduce", defines);
    assert_non_null(source);
    char *ptx = compile(source, 80, false, &size);
    assert_non_null(strstr(ptx, "div.rn.f32"));
    assert_null(strstr(ptx, "mul.f32"));
    assert_null(strstr(ptx, "fma.rn.f32"));
    free(ptx);
    tern_free(ctx, source);
}

/* Architectures are listed as numbers, which is what the choice of one builds on. */
static void test_architectures(void **state)
{
    int archs[256], n = 0;
    bool found = false;
    open_or_skip();
    assert_int_equal(nvrtc.nvrtcGetNumSupportedArchs(&n), NVRTC_SUCCESS);
    assert_in_range(n, 1, 255);
    assert_int_equal(nvrtc.nvrtcGetSupportedArchs(archs), NVRTC_SUCCESS);
    for (int i = 0; i < n; i++)
        found = found || archs[i] == 80;
    assert_true(found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_images), cmocka_unit_test(test_quotients),
                                       cmocka_unit_test(test_architectures)};
    return cmocka_run_group_tests(tests, support_setup, support_teardown);
}

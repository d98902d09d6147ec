/* Which devices, drivers and compilers the CUDA backend takes, what it says of them, and what it says of those that do not fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "cuda_help.h"
#include "support.h"

static void assert_refused(const char *const *parts)
{
    struct tern_context *ctx = cuda_context("cuda");
    assert_null(ctx);
    for (; *parts; parts++)
        cuda_assert_text(tern_create_error(), *parts);
}
#define REFUSED(...) assert_refused((const char *const[]){__VA_ARGS__, NULL})

/* ---- versions and devices ---- */

static void test_describes(void **state)
{
    struct tern_context *ctx = cuda_open();
    char line[512];
    ctx->device->fns->describe(ctx->device, line, sizeof(line));
    cuda_assert_text(line, "stand-in, 16.0 GiB, driver of CUDA 12.8, sm_86, tensor cores used for f16, bf16 and int8, NVRTC 12.9");
    tern_context_destroy(&ctx);
}

/* Keys of tuning and of plans have it. */
static void test_identity(void **state)
{
    struct tern_context *ctx = cuda_open();
    support_point(cuda_cache, ",");
    const char *identity = tern_device_identity(ctx->device);
    support_point(cuda_cache, ".");
    cuda_assert_text(identity, "stand-in, 16.0 GiB, driver");
    tern_context_destroy(&ctx);
}

/* Which devices of Turing have tensor cores shows in their names alone. */
static void test_tensor_cores(void **state)
{
    static const struct {
        const char *name, *expected;
        int capability;
    } devices[] = {{"Tesla V100", "tensor cores used for f16,", 70},
                   {"Tesla T4", "tensor cores used for f16 and int8,", 75},
                   {"NVIDIA GeForce RTX 2060", "tensor cores used for f16 and int8,", 75},
                   {"Quadro RTX 4000", "tensor cores used for f16 and int8,", 75},
                   {"NVIDIA GeForce GTX 1650", "no tensor cores,", 75},
                   {"NVIDIA T400 4GB", "no tensor cores,", 75},
                   {"NVIDIA T1000 8GB", "no tensor cores,", 75},
                   {"Quadro T2000 with Max-Q Design", "no tensor cores,", 75},
                   {"NVIDIA GeForce MX450", "no tensor cores,", 75},
                   {"NVIDIA GeForce GTX 1080", "no tensor cores,", 61}};
    struct standin_facts f = cuda_facts();
    for (size_t i = 0; i < sizeof(devices) / sizeof(*devices); i++) {
        char line[512];
        snprintf(f.name, sizeof(f.name), "%s", devices[i].name);
        f.capability = devices[i].capability;
        cuda.standin_set_facts(&f);
        struct tern_context *ctx = cuda_open();
        ctx->device->fns->describe(ctx->device, line, sizeof(line));
        cuda_assert_text(line, devices[i].name);
        cuda_assert_text(line, devices[i].expected);
        tern_context_destroy(&ctx);
    }
}

static void test_no_device(void **state)
{
    struct standin_facts f = cuda_facts();
    f.devices = 0;
    cuda.standin_set_facts(&f);
    REFUSED("device 0 was asked for, there are 0");
    cuda.standin_fail("cuInit", 1, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
    REFUSED("another version than the kernel's driver (error 803)");
    cuda.standin_fail("cuInit", 1, CUDA_ERROR_UNKNOWN);
    REFUSED("cuda: cuInit: CUDA_ERROR_UNKNOWN");
    if (strstr(tern_create_error(), "launch"))
        fail_msg("nothing was launched: %s", tern_create_error());
}

static void test_old_driver(void **state)
{
    struct standin_facts f = cuda_facts();
    f.driver = 11010;
    cuda.standin_set_facts(&f);
    REFUSED("the driver is of CUDA 11.1", "11.2 or later");
    f.driver = 11080;
    cuda.standin_set_facts(&f);
    REFUSED("is of CUDA 12.9, the driver of CUDA 11.8", "libnvrtc.so.11");
}

static void test_old_device(void **state)
{
    static const int later[] = {75, 80, 90, 0};
    struct standin_facts f = cuda_facts();
    f.capability = 50;
    cuda.standin_set_facts(&f);
    REFUSED("compute capability 5.3 or later", "found 5.0");
    f.capability = 70;
    cuda.standin_set_facts(&f);
    cuda.standin_nvrtc_set(12090, later);
    REFUSED("compiles for sm_75 and later, the device is sm_70");
}

/* A device that NVRTC does not know gets PTX, which the driver compiles; one of an older CUDA than NVRTC's does not take it. */
static void test_new_device(void **state)
{
    struct standin_facts f = cuda_facts();
    char line[512];
    f.capability = 100;
    cuda.standin_set_facts(&f);
    cuda.standin_nvrtc_set(12080, (const int[]){80, 90, 0});
    struct tern_context *ctx = cuda_open();
    ctx->device->fns->describe(ctx->device, line, sizeof(line));
    cuda_assert_text(line, "sm_100, tensor cores used for f16, bf16 and int8, NVRTC 12.8 (older than the device: PTX)");
    assert_true(cuda_small_job(ctx));
    tern_context_destroy(&ctx);
    cuda.standin_nvrtc_set(12090, (const int[]){80, 90, 0});
    ctx = cuda_open();
    assert_false(cuda_small_job(ctx));
    support_error(ctx, TERN_E_UNSUPPORTED, "the driver, of CUDA 12.8, does not take what NVRTC 12.9 makes for sm_90 (error 222)");
    tern_context_destroy(&ctx);
}

static void test_libraries_missing(void **state)
{
    char driver[1024], compiler[1024];
    tern_context_destroy(&(struct tern_context *){cuda_open()});
    snprintf(driver, sizeof(driver), "%s", getenv("TERN_CUDA_LIBRARY"));
    snprintf(compiler, sizeof(compiler), "%s", getenv("TERN_NVRTC_LIBRARY"));
    setenv("TERN_NVRTC_LIBRARY", "/nonexistent/libnvrtc.so", 1);
    REFUSED("stand-in: no compiler for it: /nonexistent/libnvrtc.so cannot be opened", "nvidia-cuda-nvrtc-cu12");
    setenv("TERN_NVRTC_LIBRARY", driver, 1); /* a library, and no NVRTC */
    REFUSED("has no function nvrtc");
    setenv("TERN_CUDA_LIBRARY", compiler, 1);
    REFUSED("has no function cu", "11.2 or later is needed");
    setenv("TERN_CUDA_LIBRARY", "/nonexistent/libcuda.so", 1);
    REFUSED("/nonexistent/libcuda.so cannot be opened; NVIDIA's driver has it");
    setenv("TERN_CUDA_LIBRARY", driver, 1);
    setenv("TERN_NVRTC_LIBRARY", compiler, 1);
}

/* ---- the compiler ---- */

static void test_compile_fails(void **state)
{
    struct tern_context *ctx = tern_context_create(
        &(const struct tern_context_params){.device = cuda.standin_reset ? "cuda" : "cpu", .threads = 1, .cache_dir = "/dev/null/none"});
    if (!cuda.standin_reset)
        skip();
    cuda.standin_nvrtc_fail(NVRTC_ERROR_COMPILATION);
    assert_false(cuda_small_job(ctx));
    support_error(ctx, TERN_E_DEVICE,
                  "kernel text elementwise on stand-in (sm_86): NVRTC 12.9 failed with error 6 and says: text.cu(1): error");
    cuda.standin_nvrtc_fail(NVRTC_ERROR_OUT_OF_MEMORY);
    assert_false(cuda_small_job(ctx));
    support_error(ctx, TERN_E_NO_MEMORY, "NVRTC 12.9 failed");
    assert_true(cuda_small_job(ctx)); /* and again, with no folder to keep anything in */
    tern_context_destroy(&ctx);
}

/* As one without its libnvrtc-builtins: it opens, and fails at each source. */
static void test_compiles_nothing(void **state)
{
    tern_context_destroy(&(struct tern_context *){cuda_open()});
    cuda.standin_nvrtc_fail(7);
    REFUSED("stand-in: no compiler for it: ", "compiles nothing (error 7): text.cu(1): error: made to fail");
    tern_context_destroy(&(struct tern_context *){cuda_open()});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CUDA_TEST(test_describes),     CUDA_TEST(test_identity),         CUDA_TEST(test_tensor_cores), CUDA_TEST(test_no_device),
        CUDA_TEST(test_old_driver),    CUDA_TEST(test_old_device),       CUDA_TEST(test_new_device),   CUDA_TEST(test_libraries_missing),
        CUDA_TEST(test_compile_fails), CUDA_TEST(test_compiles_nothing),
    };
    return cmocka_run_group_tests(tests, cuda_group_setup, cuda_group_teardown);
}

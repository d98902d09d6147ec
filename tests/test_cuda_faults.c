/* The CUDA backend when its driver or compiler fails: every function of the driver in turn, memory that ends, lost devices, versions
 * that do not fit. Each is a status that says what happened; nothing is left, and nothing misused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "core/hal.h"
#include "core/tensor.h"
#include "cuda_help.h"
#include "support.h"

static void assert_text(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("expected \"%s\" in: %s", part, text);
}

static void assert_refused(const char *const *parts)
{
    struct tern_context *ctx = cuda_context("cuda");
    assert_null(ctx);
    for (; *parts; parts++)
        assert_text(tern_create_error(), *parts);
}
#define REFUSED(...) assert_refused((const char *const[]){__VA_ARGS__, NULL})

/* ---- versions and devices ---- */

static void test_describes(void **state)
{
    struct tern_context *ctx = cuda_open();
    char line[512];
    ctx->device->fns->describe(ctx->device, line, sizeof(line));
    assert_text(line, "stand-in, 16.0 GiB, driver of CUDA 12.8, sm_86, tensor cores used for f16, bf16 and int8, NVRTC 12.9");
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
        assert_text(line, devices[i].name);
        assert_text(line, devices[i].expected);
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
    assert_text(line, "sm_100, tensor cores used for f16, bf16 and int8, NVRTC 12.8 (older than the device: PTX)");
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

/* What the pool keeps goes back when the driver has no memory for a kernel. */
static void test_kernels_find_room(void **state)
{
    static const char *const functions[] = {"cuModuleLoadData", "cuModuleGetFunction"}; /* whole, or lazily */
    tern_context_destroy(&(struct tern_context *){cuda_open()});
    for (int i = 0; i < 2; i++) {
        struct tern_context *ctx =
            tern_context_create(&(const struct tern_context_params){.device = "cuda", .threads = 1, .cache_dir = "/dev/null/none"});
        assert_non_null(ctx);
        cuda.standin_fail(functions[i], 1, CUDA_ERROR_OUT_OF_MEMORY);
        if (!cuda_small_job(ctx))
            fail_msg("%s: %s", functions[i], tern_error(ctx));
        assert_false(cuda.standin_pending());
        tern_context_destroy(&ctx);
    }
}

/* ---- every function of the driver fails once, at each of its calls ---- */

/* From opening to the result, with a capture; true when all of it went well. */
static bool whole_job(void)
{
    struct tern_context *ctx = cuda_context("cuda");
    if (!ctx)
        return false;
    bool good = cuda_small_job(ctx);
    struct tern_queue *q = ctx->device->queue;
    struct tern_event *e = good ? q->fns->record(q) : NULL;
    good = good && e && !e->fns->wait(e) && !q->fns->capture_begin(q);
    if (good) {
        struct tern_capture *c = q->fns->capture_end(q);
        good = c && !q->fns->replay(q, c) && !q->fns->finish(q);
        if (c)
            c->fns->destroy(c);
    }
    if (e)
        e->fns->destroy(e);
    assert_true(good == !tern_failed(ctx));
    tern_context_destroy(&ctx);
    return good;
}

static const char *const functions[] = {
#define NAME(name, arguments) #name,
    CUDA_FUNCTIONS(NAME) CUDA_LATER_FUNCTIONS(NAME)
#undef NAME
};

static bool has(const char *name, const char *const *parts)
{
    for (; *parts; parts++)
        if (strstr(name, *parts))
            return true;
    return false;
}

static void fail_each(CUresult error)
{
    /* what gives things back cannot be tried again; CtxP: entering to give back */
    static const char *const gives_back[] = {"Free", "Destroy", "Unload", "Release", "CtxP", NULL};
    /* what is done without: pinned memory, pools, facts; and kernels that are built again */
    static const char *const spared[] = {"cuMemHostAlloc", "cuMemPool", "GetAttribute", "cuModule", NULL};
    int faults = 0, harmless = 0;
    char text[400];
    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
        for (int nth = 1;; nth++, faults++) {
            cuda_setup(NULL);
            cuda.standin_fail(functions[i], nth, error);
            bool good = whole_job();
            if (cuda.standin_misuses(text, sizeof(text)))
                fail_msg("%s, call %d: misuse: %s", functions[i], nth, text);
            if (!has(functions[i], gives_back) && cuda.standin_leaks(text, sizeof(text)))
                fail_msg("%s, call %d: left: %s", functions[i], nth, text);
            if (cuda.standin_pending())
                break; /* it is not called so often */
            bool closing =
                (!strcmp(functions[i], "cuStreamSynchronize") && nth > 1) || (!strcmp(functions[i], "cuEventSynchronize") && nth > 2);
            if (good && !closing && !has(functions[i], gives_back) && !has(functions[i], spared) &&
                (error != CUDA_ERROR_OUT_OF_MEMORY || strcmp(functions[i], "cuMemAllocFromPoolAsync") != 0))
                fail_msg("%s, call %d: the fault was not told", functions[i], nth);
            harmless += good;
        }
    }
    print_message("%d faults, %d of them did no harm\n", faults, harmless);
    assert_true(faults > 100 && harmless < 80);
    cuda_setup(NULL);
}

static void test_every_call_fails(void **state)
{
    tern_context_destroy(&(struct tern_context *){cuda_open()});
    fail_each(CUDA_ERROR_INVALID_VALUE);
}

static void test_memory_fails_everywhere(void **state)
{
    tern_context_destroy(&(struct tern_context *){cuda_open()});
    fail_each(CUDA_ERROR_OUT_OF_MEMORY);
}

/* ---- lost devices ---- */

static void test_lost(void **state)
{
    static const struct {
        CUresult error;
        const char *name;
    } lost[] = {{CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
                {CUDA_ERROR_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT"},
                {CUDA_ERROR_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE"},
                {CUDA_ERROR_NVLINK_UNCORRECTABLE, "CUDA_ERROR_NVLINK_UNCORRECTABLE"},
                {226, "226"}, /* CUDA_ERROR_CONTAINED and CUDA_ERROR_TENSOR_MEMORY_LEAK: the stand-in is older */
                {721, "721"},
                {CUDA_ERROR_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS"}};
    for (size_t i = 0; i < sizeof(lost) / sizeof(*lost); i++) {
        struct tern_context *ctx = cuda_open();
        assert_true(cuda_small_job(ctx));
        cuda.standin_fail("kernel", 2, lost[i].error);
        assert_false(cuda_small_job(ctx));
        assert_text(tern_error(ctx), "the device can be used again by a new process");
        support_error(ctx, TERN_E_DEVICE, lost[i].name);
        assert_false(cuda_small_job(ctx)); /* nor ever again */
        assert_text(tern_error(ctx), "the device was lost to an earlier launch");
        support_error(ctx, TERN_E_DEVICE, lost[i].name);
        struct tern_queue *q = ctx->device->queue;
        assert_int_equal(q->fns->capture_begin(q), TERN_E_DEVICE);
        support_error(ctx, TERN_E_DEVICE, lost[i].name);
        assert_int_equal(q->fns->finish(q), TERN_E_DEVICE);
        support_error(ctx, TERN_E_DEVICE, lost[i].name);
        tern_context_destroy(&ctx);
        cuda_setup(NULL);
    }
}

/* ---- memory ---- */

static void test_host_memory(void **state)
{
    struct standin_facts f = cuda_facts();
    f.memory = 4096; /* two vectors of the small job have no room */
    cuda.standin_set_facts(&f);
    struct tern_context *ctx = cuda_open();
    assert_true(cuda_small_job(ctx));
    tern_context_destroy(&ctx);
    f.maps_host = 0;
    cuda.standin_set_facts(&f);
    ctx = cuda_open();
    assert_false(cuda_small_job(ctx));
    support_error(ctx, TERN_E_NO_MEMORY,
                  "a buffer of 4000 bytes was asked for; of the device's memory 0 bytes are taken of a share of 3840, of the host's 0 of ");
    tern_context_destroy(&ctx);
}

/* 16-bit elements farther behind the start of their buffer than indices of 32 bits count. The stand-in's memory is touched only where the
 * kernel does. */
static void test_far_behind(void **state)
{
    enum { N = 100 };
    const size_t far = ((size_t)2 << 30) + 6;
    const struct tern_meta all = {.dtype = TERN_F16, .ndim = 1, .shape = {(int64_t)(far / 2) + N}, .stride = {1}};
    const struct tern_meta part = {.dtype = TERN_F16, .ndim = 1, .shape = {N}, .stride = {1}};
    uint16_t ones[N];
    float found[N];
    struct tern_context *ctx = cuda_open();
    struct standin_facts f = cuda_facts();
    f.compute = 0;
    cuda.standin_set_facts(&f);
    tern_scope_begin(ctx);
    tern_tensor *memory = tern_tensor_empty_on(ctx->device, &all);
    if (!memory)
        fail_msg("%s", tern_error(ctx));
    f.compute = 1;
    cuda.standin_set_facts(&f);
    for (int i = 0; i < N; i++)
        ones[i] = 0x3c00;
    assert_int_equal(memory->buffer->fns->write(memory->buffer, far, ones, sizeof(ones)), TERN_OK);
    tern_tensor *y = tern_add_scalar(tern_tensor_view(memory, &part, far), 1);
    if (!y || tern_tensor_read(y, TERN_F32, found, sizeof(found)))
        fail_msg("%s", tern_error(ctx));
    for (int i = 0; i < N; i++)
        assert_true(found[i] == 2);
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

static void test_without_pools(void **state)
{
    struct standin_facts f = cuda_facts();
    f.pools = 0;
    cuda.standin_set_facts(&f);
    struct tern_context *ctx = cuda_open();
    assert_true(cuda_small_job(ctx));
    tern_context_destroy(&ctx);
}

/* No pinned memory: writes take the driver's own way. */
static void test_without_pinned_memory(void **state)
{
    struct tern_context *ctx = cuda_open();
    cuda.standin_fail("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(cuda_small_job(ctx));
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CUDA_TEST(test_describes),
        CUDA_TEST(test_tensor_cores),
        CUDA_TEST(test_no_device),
        CUDA_TEST(test_old_driver),
        CUDA_TEST(test_old_device),
        CUDA_TEST(test_new_device),
        CUDA_TEST(test_libraries_missing),
        CUDA_TEST(test_compile_fails),
        CUDA_TEST(test_compiles_nothing),
        CUDA_TEST(test_kernels_find_room),
        CUDA_TEST(test_every_call_fails),
        CUDA_TEST(test_lost),
        CUDA_TEST(test_memory_fails_everywhere),
        CUDA_TEST(test_host_memory),
        CUDA_TEST(test_far_behind),
        CUDA_TEST(test_without_pools),
        CUDA_TEST(test_without_pinned_memory),
    };
    return cmocka_run_group_tests(tests, cuda_group_setup, cuda_group_teardown);
}

/* The CUDA backend when its driver fails: every function in turn, memory that ends, lost devices. Each is a status that says what
 * happened; nothing is left, and nothing misused. */
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
        cuda_assert_text(tern_error(ctx), "the device can be used again by a new process");
        support_error(ctx, TERN_E_DEVICE, lost[i].name);
        assert_false(cuda_small_job(ctx)); /* nor ever again */
        cuda_assert_text(tern_error(ctx), "the device was lost to an earlier launch");
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
        CUDA_TEST(test_kernels_find_room),       CUDA_TEST(test_every_call_fails),      CUDA_TEST(test_lost),
        CUDA_TEST(test_memory_fails_everywhere), CUDA_TEST(test_host_memory),           CUDA_TEST(test_far_behind),
        CUDA_TEST(test_without_pools),           CUDA_TEST(test_without_pinned_memory),
    };
    return cmocka_run_group_tests(tests, cuda_group_setup, cuda_group_teardown);
}

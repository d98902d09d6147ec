/* cuDNN as a candidate of the CUDA backend, on stand-ins for driver and library: the op table, what follows a convolution, memory that is
 * aligned to little, captures, and a library that fails or is not the one that is expected. */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/cuda/cudnn.h"
#include "core/context.h"
#include "core/tensor.h"
#include "cuda_help.h"
#include "dnn_help.h"
#include "gpu_help.h"
#include "graph/key.h"
#include "support.h"

static struct {
    void *library;
#define MEMBER(name) __typeof__(name) *name;
    STANDIN_DNN_FUNCTIONS(MEMBER)
#undef MEMBER
} dnn;

enum { VERSION = 91900, WORKSPACE = 4096 };

static int group_setup(void **state)
{
    const char *path = getenv("TERN_STANDIN_DNN");
    if (cuda_group_setup(state))
        return -1;
    if (!path || !(dnn.library = dlopen(path, RTLD_NOW)))
        return 0;
#define LOAD(name)                                                  \
    if (!(*(void **)(void *)&dnn.name = dlsym(dnn.library, #name))) \
        return -1;
    STANDIN_DNN_FUNCTIONS(LOAD)
#undef LOAD
    return 0;
}

static int setup(void **state)
{
    if (dnn.library) {
        setenv("TERN_CUDNN_LIBRARY", getenv("TERN_STANDIN_DNN"), 1);
        dnn.standin_dnn_set(VERSION, WORKSPACE);
        dnn.standin_dnn_fail(NULL, 0, 0);
    }
    return cuda_setup(state);
}

static int teardown(void **state)
{
    int left = dnn.library ? dnn.standin_dnn_live() : 0;
    if (left)
        print_error("%d descriptors are left\n", left);
    return cuda_teardown(state) || left ? -1 : 0;
}

static void test_table(void **state)
{
    struct tern_context *ctx = cuda_open();
    int before = dnn.standin_dnn_runs();
    assert_true(support_conformance(ctx, "cuda", "conv2d_cudnn") >= 20);
    int convolutions = dnn.standin_dnn_runs() - before;
    assert_true(convolutions >= 20);
    assert_true(support_conformance(ctx, "cuda", "sdpa_cudnn") >= 4);
    assert_true(dnn.standin_dnn_runs() - before - convolutions >= 4);
    tern_context_destroy(&ctx);
}

/* ---- a plan ---- */

static void expect_plan(struct tern_context *ctx, int times)
{
    struct tern_context *cpu = support_context();
    float expected[DNN_PICTURE], found[DNN_PICTURE];
    assert_true(dnn_run_plan(cpu, TERN_F32, 1, expected));
    if (!dnn_run_plan(ctx, TERN_F32, times, found))
        fail_msg("%s", tern_error(ctx));
    assert_true(support_nmse(found, expected, DNN_PICTURE) < 1e-11);
    tern_context_destroy(&cpu);
}

/* A launch for each convolution with all that is behind it; the picture is turned once, at the start, and the filter, when it is bound. */
static void test_epilogues(void **state)
{
    struct tern_context *ctx = cuda_open();
    struct standin_counts from = cuda_counts();
    int runs = dnn.standin_dnn_runs();
    expect_plan(ctx, 1);
    struct standin_counts to = cuda_counts();
    assert_int_equal(dnn.standin_dnn_runs() - runs, DNN_CONVOLUTIONS);
    assert_int_equal(to.launches - from.launches, DNN_CONVOLUTIONS + 2);
    tern_context_destroy(&ctx);
}

/* In f16 with a bias in f32, which the plan casts: cuDNN serves all of them. Rounding of f16 is 5e-4 of a value. */
static void test_half(void **state)
{
    struct tern_context *ctx = cuda_open(), *cpu = support_context();
    float expected[DNN_PICTURE], found[DNN_PICTURE];
    int runs = dnn.standin_dnn_runs();
    assert_true(dnn_run_plan(cpu, TERN_F32, 1, expected));
    if (!dnn_run_plan(ctx, TERN_F16, 1, found))
        fail_msg("%s", tern_error(ctx));
    double error = support_nmse(found, expected, DNN_PICTURE);
    if (!(error < 1e-5 && error > 0))
        fail_msg("NMSE %g", error);
    assert_int_equal(dnn.standin_dnn_runs() - runs, DNN_CONVOLUTIONS);
    tern_context_destroy(&ctx);
    tern_context_destroy(&cpu);
}

/* The first run is plain, the second one captured; all others replay it, without cuDNN. */
static void test_capture(void **state)
{
    struct tern_context *ctx = cuda_open();
    struct standin_counts from = cuda_counts();
    int runs = dnn.standin_dnn_runs();
    uint64_t launches = ctx->device->queue->launches;
    expect_plan(ctx, 6);
    struct standin_counts to = cuda_counts();
    assert_int_equal(dnn.standin_dnn_runs() - runs, 2 * DNN_CONVOLUTIONS);
    assert_int_equal(to.graph_launches - from.graph_launches, 5);
    assert_int_equal(to.graph_kernels - from.graph_kernels, 5 * (DNN_CONVOLUTIONS + 1));
    assert_int_equal(ctx->device->queue->launches - launches, 7 * (DNN_CONVOLUTIONS + 1) + 1); /* the captured ones count as well */
    tern_context_destroy(&ctx);
}

/* ---- plans on disk ---- */

/* The plan by a new context; plans of cuDNN that were made meanwhile, and how many were read. */
static int plan_anew(const char *folder, int *read)
{
    const int made = dnn.standin_dnn_plans_made(), before = dnn.standin_dnn_plans_read();
    struct tern_context *ctx =
        tern_context_create(&(struct tern_context_params){.device = "cuda", .threads = 1, .cache_dir = folder, .log = gpu_count_warnings});
    if (!ctx)
        fail_msg("%s", tern_create_error());
    expect_plan(ctx, 1);
    tern_context_destroy(&ctx);
    *read = dnn.standin_dnn_plans_read() - before;
    return dnn.standin_dnn_plans_made() - made;
}

/* Another context finds them; those of another cuDNN, and damaged ones, are made again. */
static void test_plans_are_kept(void **state)
{
    char folder[GPU_FOLDER], pattern[GPU_FOLDER + 40];
    int read;
    tern_context_destroy(&(struct tern_context *){cuda_open()}); /* skips without the stand-ins */
    assert_int_equal(gpu_make_folder(folder, "dnn"), 0);
    snprintf(pattern, sizeof(pattern), "%s/cuda/*.bin", folder);
    const int made = plan_anew(folder, &read);
    assert_true(made >= DNN_CONVOLUTIONS && read == 0);
    assert_int_equal(plan_anew(folder, &read), 0);
    assert_true(read >= DNN_CONVOLUTIONS); /* descriptions that were asked for while the plan was made, too */
    dnn.standin_dnn_set(VERSION + 1, WORKSPACE);
    assert_int_equal(plan_anew(folder, &read), made);
    assert_int_equal(read, 0);
    gpu_damage_files(pattern, 1, false);
    gpu_warnings = 0;
    assert_int_equal(plan_anew(folder, &read), made);
    assert_true(read == 0 && gpu_warnings >= DNN_CONVOLUTIONS);
    gpu_remove_folder(folder);
}

/* ---- one call ---- */

/* 1 x 1: each of 4 outputs is the sum of 4 channels and its number. The bias begins `skip` floats behind the start of its memory. */
static bool small(struct tern_context *ctx, int64_t width, int skip)
{
    float x[4 * 64], w[16], b[8] = {0}, y[4 * 64];
    for (int i = 0; i < 4 * 64; i++)
        x[i] = (float)(i % 7);
    for (int i = 0; i < 16; i++)
        w[i] = 1;
    for (int i = 0; i < 4; i++)
        b[skip + i] = (float)i;
    tern_scope_begin(ctx);
    tern_tensor *picture = tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){1, 4, 1, width}, x);
    tern_tensor *filter = tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){4, 4, 1, 1}, w);
    tern_tensor *bias = tern_slice(tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){8}, b), 0, skip, skip + 4, 1);
    tern_tensor *out = tern_conv2d(tern_contiguous(picture, TERN_CHANNELS_LAST), filter, bias);
    bool good = out && !tern_tensor_read(out, TERN_F32, y, 4 * (size_t)width * sizeof(float));
    for (int64_t p = 0; p < width && good; p++)
        for (int o = 0; o < 4; o++) {
            float expected = x[p] + x[width + p] + x[2 * width + p] + x[3 * width + p] + (float)o;
            if (y[o * width + p] != expected)
                fail_msg("channel %d, pixel %d: expected %g, found %g", o, (int)p, (double)expected, (double)y[o * width + p]);
        }
    tern_scope_end(ctx, NULL);
    return good;
}

static void test_alignment(void **state)
{
    struct tern_context *ctx = cuda_open();
    int runs = dnn.standin_dnn_runs();
    assert_true(small(ctx, 5, 0));
    assert_true(small(ctx, 5, 1));
    assert_int_equal(dnn.standin_dnn_runs() - runs, 2);
    tern_context_destroy(&ctx);
}

/* ---- what fails ---- */

static int warnings;
static void count_warnings(enum tern_log_level level, const char *message, void *user)
{
    warnings += level == TERN_LOG_WARN && strstr(message, "cuDNN failed with a failure of the stand-in (5000)") != NULL;
}

/* The text serves, from then on; it is told once. */
static void test_execution(void **state)
{
    struct tern_context *ctx = tern_context_create(
        &(const struct tern_context_params){.device = "cuda", .threads = 1, .cache_dir = cuda_cache, .log = count_warnings});
    assert_non_null(ctx);
    int runs = dnn.standin_dnn_runs();
    for (int width = 3; width < 6; width++) {
        dnn.standin_dnn_fail("cudnnBackendExecute", 1, CUDNN_STATUS_EXECUTION_FAILED);
        assert_true(small(ctx, width, 0));
        assert_int_equal(dnn.standin_dnn_pending(), 0);
        assert_true(small(ctx, width, 0));
    }
    assert_int_equal(warnings, 1);
    assert_int_equal(dnn.standin_dnn_runs(), runs);
    assert_true(small(ctx, 6, 0)); /* another description is tried */
    assert_int_equal(dnn.standin_dnn_runs() - runs, 1);
    tern_context_destroy(&ctx);
}

/* Each call of each function fails once: the values are right, nothing is left (teardown). */
static void test_every_call(void **state)
{
    static const char *const functions[] = {"cudnnCreate",
                                            "cudnnSetStream",
                                            "cudnnBackendCreateDescriptor",
                                            "cudnnBackendSetAttribute",
                                            "cudnnBackendGetAttribute",
                                            "cudnnBackendFinalize",
                                            "cudnnBackendExecute"};
    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
        int n = 1;
        for (bool failed = true; failed; n++) {
            assert_true(n < 300);
            struct tern_context *ctx = cuda_open();
            dnn.standin_dnn_fail(functions[i], n, CUDNN_STATUS_NOT_SUPPORTED);
            if (!small(ctx, 5, 0))
                fail_msg("%s %d: %s", functions[i], n, tern_error(ctx));
            failed = !dnn.standin_dnn_pending();
            tern_context_destroy(&ctx);
            if (dnn.standin_dnn_live())
                fail_msg("%s %d: %d descriptors are left", functions[i], n, dnn.standin_dnn_live());
        }
        assert_true(n > 2); /* it was called */
    }
}

static void test_memory(void **state)
{
    tern_context_destroy(&(struct tern_context *){cuda_open()});
    for (long n = 1;; n++) {
        assert_true(n < 5000);
        struct support_allocator m = {.fail_at = n};
        struct tern_context_params params = {.device = "cuda", .threads = 1, .allocator = support_failing(&m), .cache_dir = cuda_cache};
        struct tern_context *ctx = tern_context_create(&params);
        bool good = ctx && small(ctx, 5, 0);
        assert_true(good || !ctx || tern_error_status(ctx) == TERN_E_NO_MEMORY);
        tern_context_destroy(&ctx);
        assert_int_equal(m.live, 0);
        if (good && m.count < n)
            break;
    }
}

/* ---- the library ---- */

static void expect_without(const char *reason)
{
    struct tern_context *ctx = cuda_open();
    char line[900];
    int runs = dnn.standin_dnn_runs();
    assert_true(small(ctx, 5, 0));
    assert_int_equal(dnn.standin_dnn_runs(), runs);
    ctx->device->fns->describe(ctx->device, line, sizeof(line));
    if (!strstr(line, "no cuDNN (") || !strstr(line, reason))
        fail_msg("expected \"no cuDNN (…%s…)\" in: %s", reason, line);
    tern_context_destroy(&ctx);
}

static void test_without(void **state)
{
    tern_context_destroy(&(struct tern_context *){cuda_open()});
    setenv("TERN_CUDNN_LIBRARY", "none", 1);
    expect_without("TERN_CUDNN_LIBRARY=none");
    setenv("TERN_CUDNN_LIBRARY", "/nonexistent/libcudnn.so.9", 1);
    expect_without("/nonexistent/libcudnn.so.9 cannot be opened");
    setenv("TERN_CUDNN_LIBRARY", getenv("TERN_NVRTC_LIBRARY"), 1);
    expect_without("it has no function cudnn");
    setenv("TERN_CUDNN_LIBRARY", getenv("TERN_STANDIN_DNN"), 1);
    dnn.standin_dnn_fail("cudnnCreate", 1, CUDNN_STATUS_NOT_INITIALIZED);
    expect_without("cuDNN 9.19.0 fails to make a handle: a failure of the stand-in (1001)");
}

/* A cuDNN 9 that ends the process, as the real one does, when it is called and the libraries that it needs are not open. */
static void test_alone(void **state)
{
    char folder[] = "/tmp/tern-test-dnn-XXXXXX", library[64], part[64];
    const char *alone = getenv("TERN_STANDIN_DNN_ALONE"), *graph = getenv("TERN_STANDIN_DNN_GRAPH");
    tern_context_destroy(&(struct tern_context *){cuda_open()});
    assert_non_null(mkdtemp(folder));
    snprintf(library, sizeof(library), "%s/libcudnn.so.9", folder);
    snprintf(part, sizeof(part), "%s/libcudnn_graph.so.9", folder);
    assert_int_equal(symlink(alone, library), 0);
    setenv("TERN_CUDNN_LIBRARY", library, 1);
    expect_without("it would end the process, for it finds no lib"); /* a machine may have the first: then the second is missing */
    assert_int_equal(symlink(graph, part), 0);
    expect_without("it would end the process, for it finds no libcublasLt.so.99");
    unlink(part);
    unlink(library);
    rmdir(folder);
}

static struct tern_key fingerprint(const char *library)
{
    setenv("TERN_CUDNN_LIBRARY", library, 1);
    struct tern_context *ctx = cuda_open();
    struct tern_key key = tern_plan_fingerprint(ctx);
    tern_context_destroy(&ctx);
    return key;
}

/* What was planned without the library is not taken for a plan with it. */
static void test_plans(void **state)
{
    tern_context_destroy(&(struct tern_context *){cuda_open()});
    const struct tern_key there = fingerprint(getenv("TERN_STANDIN_DNN"));
    assert_false(tern_key_equal(fingerprint("none"), there));
    assert_true(tern_key_equal(fingerprint(getenv("TERN_STANDIN_DNN")), there));
}

static void test_versions(void **state)
{
    struct tern_context *ctx = cuda_open();
    char line[900];
    ctx->device->fns->describe(ctx->device, line, sizeof(line));
    assert_non_null(strstr(line, ", cuDNN 9.19.0"));
    tern_context_destroy(&ctx);
    dnn.standin_dnn_set(8204, WORKSPACE);
    expect_without("it is cuDNN 8.2.4: expected 8.3 to 9");
    dnn.standin_dnn_set(100100, WORKSPACE);
    expect_without("it is cuDNN 10.1.0");
    dnn.standin_dnn_set(8907, WORKSPACE);
    expect_without("it would end the process, for it finds no libcudnn_ops_infer.so.8");
}

/* Before 9.13 there is no node of attention; convolutions are not touched by it. A plan may need no workspace. */
static void test_before_attention(void **state)
{
    dnn.standin_dnn_set(90100, 0);
    struct tern_context *ctx = cuda_open();
    int runs = dnn.standin_dnn_runs();
    assert_int_equal(support_conformance(ctx, "cuda", "sdpa_cudnn"), 0);
    assert_int_equal(dnn.standin_dnn_runs(), runs);
    expect_plan(ctx, 1);
    assert_int_equal(dnn.standin_dnn_runs() - runs, DNN_CONVOLUTIONS);
    tern_context_destroy(&ctx);
}

/* No engine keeps to the limit of workspace: texts serve. */
static void test_large(void **state)
{
    dnn.standin_dnn_set(VERSION, (int64_t)1 << 30);
    struct tern_context *ctx = cuda_open();
    int runs = dnn.standin_dnn_runs();
    assert_true(small(ctx, 5, 0));
    assert_int_equal(dnn.standin_dnn_runs(), runs);
    tern_context_destroy(&ctx);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_table),          TEST(test_epilogues),        TEST(test_half),      TEST(test_capture),
                                       TEST(test_plans_are_kept), TEST(test_alignment),        TEST(test_execution), TEST(test_every_call),
                                       TEST(test_memory),         TEST(test_without),          TEST(test_alone),     TEST(test_plans),
                                       TEST(test_versions),       TEST(test_before_attention), TEST(test_large)};
    return cmocka_run_group_tests(tests, group_setup, cuda_group_teardown);
}

/* CLBlast as a candidate of the OpenCL backend, on whatever device the system has (PoCL: the processor): the op table, what is added to
 * products, large ones, batches, and a library that fails, does not work, or is not there. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/graph.h>
#include <tern/ops.h>

#include "core/context.h"
#include "core/tensor.h"
#include "gpu_help.h"
#include "ops/dispatch.h"
#include "support.h"

#ifdef TERN_HAVE_OPENCL
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

/* Small tiles, which PoCL compiles in half the time, and 64 as the least size of a large product. Meant for this process alone. */
static void make_quick(void)
{
    static const struct {
        const char *kernel;
        int n;
        const char *names[16];
        size_t values[16];
    } overrides[] = {{"XgemmDirect",
                      10,
                      {"WGD", "MDIMCD", "NDIMCD", "MDIMAD", "NDIMBD", "KWID", "VWMD", "VWND", "PADA", "PADB"},
                      {8, 8, 8, 8, 8, 2, 1, 1, 1, 1}},
                     {"Xgemm",
                      16,
                      {"GEMMK", "KREG", "MWG", "NWG", "KWG", "MDIMC", "NDIMC", "MDIMA", "NDIMB", "KWI", "VWM", "VWN", "STRM", "STRN", "SA",
                       "SB"},
                      {0, 1, 8, 8, 16, 8, 8, 8, 8, 2, 1, 1, 0, 0, 0, 0}},
                     {"GemmRoutine", 1, {"XGEMM_MIN_INDIRECT_SIZE"}, {64}}};
    int (*override)(cl_device_id, const char *, int, size_t, const char *const *, const size_t *) = NULL;
    void *library = dlopen("libclblast.so.1", RTLD_NOW);
    cl_platform_id platform;
    cl_device_id device;
    cl_uint n = 0;
    if (library)
        *(void **)(void *)&override = dlsym(library, "CLBlastOverrideParameters");
    if (!override || clGetPlatformIDs(1, &platform, &n) || !n || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, &n) || !n)
        return;
    for (size_t i = 0; i < sizeof(overrides) / sizeof(*overrides); i++)
        assert_int_equal(override(device, overrides[i].kernel, 32, (size_t)overrides[i].n, overrides[i].names, overrides[i].values), 0);
}
#else
static void make_quick(void) {}
#endif

static char cache_dir[GPU_FOLDER];
static int warnings;

static void count_warnings(enum tern_log_level level, const char *text, void *user)
{
    warnings += level == TERN_LOG_WARN && strstr(text, "CLBlast does not work on") != NULL;
}

static struct tern_context *open_device(void)
{
    struct tern_context *ctx =
        tern_context_create(&(struct tern_context_params){.device = "opencl", .threads = 1, .cache_dir = cache_dir, .log = count_warnings});
    if (!ctx) {
        print_message("%s (Debian's pocl-opencl-icd has a driver)\n", tern_create_error());
        skip();
    }
    return ctx;
}

/* With the kernels of the real library; skips where it is not there. */
static struct tern_context *open_real(void)
{
    char text[512];
    unsetenv("TERN_CLBLAST_LIBRARY");
    struct tern_context *ctx = open_device();
    struct tern_device *d = tern_default_device(ctx);
    d->fns->describe(d, text, sizeof(text));
    if (strstr(text, "; not there: CLBlast")) {
        print_message("%s: Debian's libclblast1 has it\n", text);
        tern_context_destroy(&ctx);
        skip();
    }
    assert_non_null(strstr(text, ", CLBlast"));
    return ctx;
}

static void test_table(void **state)
{
    struct tern_context *ctx = open_real();
    assert_true(support_conformance(ctx, "opencl", "linear_clblast") >= 10);
    assert_true(support_conformance(ctx, "opencl", "matmul_clblast") >= 11);
    tern_context_destroy(&ctx);
}

/* ---- what is added: x (ROWS, K), w (N, K), bias (N), r (ROWS, N) ---- */

enum { ROWS = 70, N = 66, K = 72, BATCH = 3 };
static float x[BATCH * ROWS * K], w[BATCH * N * K], bias[N], r[ROWS * N];

/* Small whole numbers: sums are exact, so the order in which they are made does not matter. */
static void fill(void)
{
    for (int i = 0; i < BATCH * ROWS * K; i++)
        x[i] = (float)(i * 29 % 13) - 6;
    for (int i = 0; i < BATCH * N * K; i++)
        w[i] = (float)(i * 37 % 11) - 5;
    for (int i = 0; i < N; i++)
        bias[i] = (float)(i % 5);
    for (int i = 0; i < ROWS * N; i++)
        r[i] = (float)(i * 17 % 23) - 11;
}

static float expected(int batch, int rows, int row, int col, bool biased, bool added)
{
    float sum = biased ? bias[col] : 0;
    for (int k = 0; k < K; k++)
        sum += x[(batch * rows + row) * K + k] * w[(batch * N + col) * K + k];
    return added ? sum + r[row * N + col] : sum;
}

struct sum {
    bool biased, added;
    const struct tern_weights *weights;
};

static enum tern_status add_up(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct sum *s = user;
    out[0] = tern_linear(in[0], tern_weights_get(s->weights, "w"), s->biased ? tern_weights_get(s->weights, "bias") : NULL);
    if (s->added)
        out[0] = tern_add(out[0], in[1]);
    return TERN_OK;
}

static bool run_plan(struct tern_context *ctx, bool biased, bool added, float *found)
{
    const struct tern_graph_input inputs[] = {{"x", TERN_F32, 2, {ROWS, K}}, {"r", TERN_F32, 2, {ROWS, N}}};
    struct tern_weights *weights = tern_weights_create(ctx);
    tern_tensor *of_w = tern_tensor_wrap(ctx, TERN_F32, 2, (const int64_t[]){N, K}, w, NULL, NULL);
    tern_tensor *of_bias = tern_tensor_wrap(ctx, TERN_F32, 1, (const int64_t[]){N}, bias, NULL, NULL);
    assert_int_equal(tern_weights_add(weights, "w", of_w), TERN_OK);
    assert_int_equal(tern_weights_add(weights, "bias", of_bias), TERN_OK);
    tern_tensor_unref(&of_w);
    tern_tensor_unref(&of_bias);
    struct sum sum = {biased, added, weights};
    struct tern_graph *g = tern_graph_trace(ctx, add_up, &sum, weights, inputs, 2, 1);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    struct tern_binding *b = plan ? tern_plan_bind(plan, weights) : NULL;
    tern_scope_begin(ctx);
    tern_tensor *in[2] = {tern_tensor_create(ctx, TERN_F32, 2, inputs[0].shape, x),
                          tern_tensor_create(ctx, TERN_F32, 2, inputs[1].shape, r)};
    tern_tensor *out = NULL;
    uint64_t before = tern_default_device(ctx)->queue->launches;
    bool good = b && in[0] && in[1] && !tern_plan_run(b, in, &out) && !tern_tensor_read(out, TERN_F32, found, ROWS * N * sizeof(float));
    assert_true(!good || tern_default_device(ctx)->queue->launches - before == 1); /* what is added needs no step of its own */
    tern_scope_end(ctx, NULL);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_weights_unref(&weights);
    return good;
}

static void check_plan(struct tern_context *ctx, bool biased, bool added)
{
    static float found[ROWS * N];
    if (!run_plan(ctx, biased, added, found))
        fail_msg("%s", tern_error(ctx));
    for (int i = 0; i < ROWS * N; i++)
        if (found[i] != expected(0, ROWS, i / N, i % N, biased, added))
            fail_msg("bias %d, sum %d, value %d: expected %g, found %g", biased, added, i,
                     (double)expected(0, ROWS, i / N, i % N, biased, added), (double)found[i]);
}

/* Larger than 64 each: through the workspace. */
static void test_sums(void **state)
{
    struct tern_context *ctx = open_real();
    assert_int_equal(tern_dispatch_force(ctx, "linear_clblast"), TERN_OK);
    for (int i = 0; i < 4; i++)
        check_plan(ctx, i & 1, i & 2);
    tern_context_destroy(&ctx);
}

/* Products at places inside of larger memory; small ones in one batch, large ones one by one. */
static void test_batches(void **state)
{
    struct tern_context *ctx = open_real();
    static float found[BATCH * ROWS * N];
    assert_int_equal(tern_dispatch_force(ctx, "matmul_clblast"), TERN_OK);
    for (int rows = 5; rows <= ROWS; rows += ROWS - 5) {
        tern_scope_begin(ctx);
        tern_tensor *a = tern_tensor_create(ctx, TERN_F32, 3, (const int64_t[]){BATCH, rows, K}, x);
        tern_tensor *b = tern_tensor_create(ctx, TERN_F32, 3, (const int64_t[]){BATCH, N, K}, w);
        tern_tensor *y = tern_matmul(tern_slice(a, 0, 1, BATCH, 1), tern_transpose(tern_slice(b, 0, 1, BATCH, 1), 1, 2));
        if (!y || tern_tensor_read(y, TERN_F32, found, (size_t)((BATCH - 1) * rows * N) * sizeof(float)))
            fail_msg("%s", tern_error(ctx));
        for (int i = 0; i < (BATCH - 1) * rows * N; i++)
            assert_true(found[i] == expected(1 + i / (rows * N), rows, i / N % rows, i % N, false, false));
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
}

/* Of sizes that need no temporary memory where operands begin at 0, at other places. */
static void test_whole_tiles(void **state)
{
    enum { SIDE = 512, MANY = 3 * SIDE * SIDE };
    struct tern_context *ctx = open_real();
    float *a = malloc(MANY * sizeof(*a)), *b = malloc(MANY * sizeof(*b)), *found = malloc(2 * SIDE * SIDE * sizeof(*found));
    for (int i = 0; i < MANY; i++) {
        a[i] = (float)(i * 7 % 11 - 5);
        b[i] = (float)(i * 5 % 13 - 6);
    }
    assert_int_equal(tern_dispatch_force(ctx, "matmul_clblast"), TERN_OK);
    tern_scope_begin(ctx);
    tern_tensor *l = tern_tensor_create(ctx, TERN_F32, 3, (const int64_t[]){3, SIDE, SIDE}, a);
    tern_tensor *s = tern_tensor_create(ctx, TERN_F32, 3, (const int64_t[]){3, SIDE, SIDE}, b);
    tern_tensor *y = tern_matmul(tern_slice(l, 0, 1, 3, 1), tern_slice(s, 0, 1, 3, 1));
    if (!y || tern_tensor_read(y, TERN_F32, found, 2 * SIDE * SIDE * sizeof(*found)))
        fail_msg("%s", tern_error(ctx));
    for (int i = 0; i < 2 * SIDE * SIDE; i += 97) {
        const float *row = a + SIDE * SIDE + i / SIDE * SIDE, *column = b + SIDE * SIDE + i / (SIDE * SIDE) * SIDE * SIDE + i % SIDE;
        float sum = 0; /* of whole numbers */
        for (int k = 0; k < SIDE; k++)
            sum += row[k] * column[k * SIDE];
        assert_true(found[i] == sum);
    }
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
    free(a);
    free(b);
    free(found);
}

/* ---- when it fails ---- */

static struct tern_context *open_standin(const char *code)
{
    const char *path = getenv("TERN_TEST_CLBLAST");
    if (!path) {
        print_message("no stand-in: TERN_TEST_CLBLAST names it\n");
        skip();
    }
    setenv("TERN_CLBLAST_LIBRARY", path, 1);
    setenv("TERN_STANDIN_CLBLAST", code, 1);
    struct tern_context *ctx = open_device();
    assert_int_equal(tern_dispatch_force(ctx, "linear_clblast"), TERN_OK);
    return ctx;
}

static void test_failures(void **state)
{
    float found[ROWS * N];
    struct tern_context *ctx = open_standin("-1009");
    assert_false(run_plan(ctx, true, false, found));
    support_error(ctx, TERN_E_DEVICE, "linear: CLBlast failed with code -1009; TERN_CLBLAST_LIBRARY=none leaves it out");
    setenv("TERN_STANDIN_CLBLAST", "-4", 1);
    assert_false(run_plan(ctx, false, false, found));
    support_error(ctx, TERN_E_NO_MEMORY, "linear: CLBlast failed with code -4");
    tern_context_destroy(&ctx);
}

/* Kernels that cannot be built: texts serve, which is told once; from then on CLBlast supports nothing. */
static void test_broken(void **state)
{
    struct tern_context *ctx = open_standin("-11");
    warnings = 0;
    check_plan(ctx, true, true);
    assert_int_equal(tern_dispatch_force(ctx, NULL), TERN_OK);
    check_plan(ctx, true, false);
    assert_int_equal(warnings, 1);
    tern_context_destroy(&ctx);
}

static void test_without(void **state)
{
    char text[512];
    setenv("TERN_CLBLAST_LIBRARY", "none", 1);
    struct tern_context *ctx = open_device();
    struct tern_device *d = tern_default_device(ctx);
    d->fns->describe(d, text, sizeof(text));
    assert_non_null(strstr(text, "; not there: CLBlast (libclblast.so.1)"));
    check_plan(ctx, true, true);
    assert_int_equal(support_conformance(ctx, "opencl", "linear_clblast"), 0);
    tern_context_destroy(&ctx);
}

/* Every allocation of the library fails once. */
static void test_no_memory(void **state)
{
    static float found[ROWS * N];
    struct tern_context *ctx = open_standin("-11");
    tern_context_destroy(&ctx);
    int faults = 0;
    for (long n = 1; n < 10000; n++, faults++) {
        struct support_allocator m = {.fail_at = n};
        ctx = tern_context_create(
            &(struct tern_context_params){.device = "opencl", .threads = 1, .allocator = support_failing(&m), .cache_dir = cache_dir});
        tern_tensor *a = ctx ? tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){ROWS, K}, x) : NULL;
        tern_tensor *b = ctx ? tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){N, K}, w) : NULL;
        tern_tensor *y = a && b && !tern_dispatch_force(ctx, "linear_clblast") ? tern_linear(a, b, NULL) : NULL;
        bool good = y && !tern_tensor_read(y, TERN_F32, found, sizeof(found)) && found[N] == expected(0, ROWS, 1, 0, false, false);
        assert_true(good || !ctx || tern_error_status(ctx) == TERN_E_NO_MEMORY);
        tern_tensor_unref(&a);
        tern_tensor_unref(&b);
        tern_tensor_unref(&y);
        tern_context_destroy(&ctx);
        assert_int_equal(m.live, 0);
        if (good && m.count < n)
            break;
    }
    assert_true(faults > 8 && faults < 9999);
}

static int group_setup(void **state)
{
    fill();
    make_quick();
    return gpu_make_folder(cache_dir, "clblast");
}

static int group_teardown(void **state) { return gpu_remove_folder(cache_dir); }

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table),       cmocka_unit_test(test_sums),     cmocka_unit_test(test_batches),
                                       cmocka_unit_test(test_whole_tiles), cmocka_unit_test(test_failures), cmocka_unit_test(test_broken),
                                       cmocka_unit_test(test_without),     cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}

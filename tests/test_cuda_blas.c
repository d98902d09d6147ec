/* cuBLASLt as a candidate of the CUDA backend, on stand-ins for driver and library: the op table, epilogues in a plan, memory that is
 * aligned to little, a library that fails or does not work. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/graph.h>
#include <tern/ops.h>

#include "backends/cuda/cublas.h"
#include "core/context.h"
#include "core/tensor.h"
#include "cuda_help.h"
#include "graph/plan.h"
#include "ops/dispatch.h"
#include "ops/kernel.h"
#include "support.h"

static struct {
    void *library;
#define MEMBER(name) __typeof__(name) *name;
    STANDIN_BLAS_FUNCTIONS(MEMBER)
#undef MEMBER
} blas;

static int group_setup(void **state)
{
    const char *path = getenv("TERN_STANDIN_BLAS");
    if (cuda_group_setup(state))
        return -1;
    if (!path || !(blas.library = dlopen(path, RTLD_NOW)))
        return 0;
    setenv("TERN_CUBLASLT_LIBRARY", path, 1);
#define LOAD(name)                                                    \
    if (!(*(void **)(void *)&blas.name = dlsym(blas.library, #name))) \
        return -1;
    STANDIN_BLAS_FUNCTIONS(LOAD)
#undef LOAD
    return 0;
}

static int teardown(void **state)
{
    int left = blas.library ? blas.standin_blas_live() : 0, refused = blas.library ? blas.standin_blas_refusals() : 0;
    if (left)
        print_error("%d descriptors are left\n", left);
    if (refused)
        print_error("%d wrong calls\n", refused);
    return cuda_teardown(state) || left || refused ? -1 : 0;
}

static void test_table(void **state)
{
    struct tern_context *ctx = cuda_open();
    int before = blas.standin_blas_products();
    assert_true(support_conformance(ctx, "cuda", "linear_cublaslt") >= 12);
    assert_true(support_conformance(ctx, "cuda", "matmul_cublaslt") >= 16);
    assert_true(blas.standin_blas_products() - before >= 28);
    tern_context_destroy(&ctx);
}

/* x (1, 24, 16) -> gelu(x w1' + b1) -> h w2' + b2, plus x */
static enum tern_status block(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct tern_weights *w = user;
    tern_tensor *h = tern_linear(in[0], tern_weights_get(w, "w1"), tern_weights_get(w, "b1"));
    h = tern_linear(tern_gelu(h, TERN_GELU_TANH), tern_weights_get(w, "w2"), tern_weights_get(w, "b2"));
    out[0] = tern_add(h, in[0]);
    return TERN_OK;
}

static void add(struct tern_context *ctx, struct tern_weights *w, const char *name, float *memory, int n, int k)
{
    for (int i = 0; i < n * k; i++)
        memory[i] = (float)((i + n) * 37 % 101) / 200 - 0.25f;
    tern_tensor *t = tern_tensor_wrap(ctx, TERN_F32, k > 1 ? 2 : 1, (const int64_t[]){n, k}, memory, NULL, NULL);
    assert_int_equal(tern_weights_add(w, name, t), TERN_OK);
    tern_tensor_unref(&t);
}

enum { ROWS = 24, WIDTH = 16, INNER = 40 };

/* values: of the plan. False, with the error recorded, when it could not run. */
static bool run_plan(struct tern_context *ctx, float *values)
{
    static float memory[2][WIDTH * INNER], bias[2][INNER];
    float x[ROWS * WIDTH];
    const struct tern_graph_input input = {"x", TERN_F32, 3, {1, ROWS, WIDTH}};
    struct tern_weights *w = tern_weights_create(ctx);
    add(ctx, w, "w1", memory[0], INNER, WIDTH);
    add(ctx, w, "b1", bias[0], INNER, 1);
    add(ctx, w, "w2", memory[1], WIDTH, INNER);
    add(ctx, w, "b2", bias[1], WIDTH, 1);
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (float)(i * 29 % 97) / 50 - 1;
    struct tern_graph *g = tern_graph_trace(ctx, block, w, w, &input, 1, 1);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    struct tern_binding *b = plan ? tern_plan_bind(plan, w) : NULL;
    tern_scope_begin(ctx);
    tern_tensor *in = tern_tensor_create(ctx, TERN_F32, 3, input.shape, x), *out = NULL;
    bool good = b && in && !tern_plan_run(b, &in, &out) && !tern_tensor_read(out, TERN_F32, values, sizeof(x));
    tern_scope_end(ctx, NULL);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_weights_unref(&w);
    return good;
}

/* Two launches for two products, GELU, two biases and a sum. */
static void test_epilogues(void **state)
{
    struct tern_context *ctx = cuda_open(), *cpu = support_context();
    float expected[ROWS * WIDTH], found[ROWS * WIDTH];
    assert_true(run_plan(cpu, expected));
    struct standin_counts from = cuda_counts();
    int products = blas.standin_blas_products();
    assert_true(run_plan(ctx, found));
    struct standin_counts to = cuda_counts();
    assert_true(support_nmse(found, expected, ROWS * WIDTH) < 1e-11);
    assert_int_equal(blas.standin_blas_products() - products, 2);
    assert_int_equal(to.launches + to.graph_kernels - from.launches - from.graph_kernels, 2);
    tern_context_destroy(&ctx);
    tern_context_destroy(&cpu);
}

static enum tern_status layer(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_linear(in[0], tern_weights_get(user, "w"), tern_weights_get(user, "b"));
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

static enum tern_status gated_block(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_linear_geglu(in[0], tern_weights_get(user, "w"), tern_weights_get(user, "b"));
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

/* Gates are apart where the library multiplies, and not where int8 does. */
static void test_gates(void **state)
{
    static const struct {
        enum tern_dtype dtype;
        const char *quantize;
        int products;
        enum tern_op first;
        double error;
    } all[] = {{TERN_F32, NULL, 1, TERN_OP_linear, 1e-11},
               {TERN_F16, NULL, 1, TERN_OP_linear, 1e-5}, /* weight and bias are f32 */
               {TERN_F32, "*", 0, TERN_OP_quantized_linear_geglu, 1e-3}};
    static float memory[WIDTH * INNER], bias[INNER], x[ROWS * WIDTH], found[ROWS * INNER / 2], expected[ROWS * INNER / 2];
    struct tern_context *ctx = cuda_open();
    struct tern_weights *w = tern_weights_create(ctx);
    add(ctx, w, "w", memory, INNER, WIDTH);
    add(ctx, w, "b", bias, INNER, 1);
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (float)(i * 29 % 97) / 50 - 1;
    tern_scope_begin(ctx);
    tern_tensor *in = tern_tensor_create(ctx, TERN_F32, 3, (const int64_t[]){1, ROWS, WIDTH}, x);
    tern_tensor *eager = tern_linear_geglu(in, tern_weights_get(w, "w"), tern_weights_get(w, "b"));
    assert_int_equal(tern_tensor_read(eager, TERN_F32, expected, sizeof(expected)), TERN_OK);
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        const struct tern_graph_input input = {"x", all[i].dtype, 3, {1, ROWS, WIDTH}};
        struct tern_graph *g = tern_graph_trace(ctx, gated_block, w, w, &input, 1, 1);
        struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.quantize = all[i].quantize});
        struct tern_binding *b = plan ? tern_plan_bind(plan, w) : NULL;
        const int products = blas.standin_blas_products();
        tern_tensor *given = tern_cast(in, all[i].dtype), *out = NULL;
        if (!b || tern_plan_run(b, &given, &out) || tern_tensor_read(out, TERN_F32, found, sizeof(found)))
            fail_msg("%s", tern_error(ctx));
        assert_int_equal(blas.standin_blas_products() - products, all[i].products);
        assert_int_equal(plan->steps[0].desc->op, all[i].first);
        assert_true(support_nmse(found, expected, ROWS * INNER / 2) < all[i].error);
        tern_binding_unref(&b);
        tern_plan_unref(&plan);
        tern_graph_destroy(&g);
    }
    tern_scope_end(ctx, NULL);
    tern_weights_unref(&w);
    tern_context_destroy(&ctx);
}

/* What computes in f32 has the library multiply f32, made of a weight in f16 at each run: it stays on the device as it is. Few rows are
 * not worth the cast. */
static void test_half_weights(void **state)
{
    enum { OUTPUTS = 160, DEPTH = 128, MOST = 256 }; /* 80 KiB in f32: what is small stays in f32 */
    static float found[MOST * OUTPUTS], expected[MOST * OUTPUTS];
    for (int rows = 24; rows <= MOST; rows += MOST - 24) {
        struct tern_context *ctx = cuda_open();
        const struct tern_graph_input input = {"x", TERN_F32, 2, {rows, DEPTH}};
        const size_t bytes = (size_t)(rows * OUTPUTS) * sizeof(float);
        struct tern_weights *w = tern_weights_create(ctx);
        tern_scope_begin(ctx);
        tern_weights_add(w, "w", support_noise(ctx, 1, 2, (const int64_t[]){OUTPUTS, DEPTH}, 0.2f, TERN_F16));
        tern_weights_add(w, "b", support_noise(ctx, 2, 1, (const int64_t[]){OUTPUTS}, 1, TERN_F32));
        tern_tensor *in = support_noise(ctx, 3, 2, input.shape, 1, TERN_F32), *out = NULL;
        tern_tensor *eager = tern_linear(in, tern_weights_get(w, "w"), tern_weights_get(w, "b"));
        assert_int_equal(tern_tensor_read(eager, TERN_F32, expected, bytes), TERN_OK);
        struct tern_graph *g = tern_graph_trace(ctx, layer, w, w, &input, 1, 1);
        struct tern_plan *plan = tern_plan_compile(g, NULL);
        struct tern_binding *b = plan ? tern_plan_bind(plan, w) : NULL;
        const int products = blas.standin_blas_products();
        if (!b || tern_plan_run(b, &in, &out) || tern_tensor_read(out, TERN_F32, found, bytes))
            fail_msg("%s", tern_error(ctx));
        assert_int_equal(blas.standin_blas_products() - products, rows == MOST);
        assert_int_equal(tern_plan_facts(plan).prepared, 0);
        assert_true(support_nmse(found, expected, rows * OUTPUTS) < 1e-11);
        tern_scope_end(ctx, NULL);
        tern_binding_unref(&b);
        tern_plan_unref(&plan);
        tern_graph_destroy(&g);
        tern_weights_unref(&w);
        tern_context_destroy(&ctx);
    }
}

/* A bias that begins at an odd element goes to a text: the stand-in, as the library may, refuses it. */
static void test_bias_alignment(void **state)
{
    struct tern_context *ctx = cuda_open();
    float ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, bias[3] = {0, 5, 7}, y[2];
    int products = blas.standin_blas_products();
    tern_scope_begin(ctx);
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){1, 4}, ones);
    tern_tensor *w = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){2, 4}, ones);
    tern_tensor *b = tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){3}, bias);
    for (int from = 0; from < 2; from++) {
        tern_tensor *out = tern_linear(x, w, tern_slice(b, 0, from, from + 2, 1));
        if (!out || tern_tensor_read(out, TERN_F32, y, sizeof(y)))
            fail_msg("%s", tern_error(ctx));
        assert_true(y[0] == 4 + bias[from] && y[1] == 4 + bias[from + 1]);
        assert_int_equal(blas.standin_blas_products() - products, 1);
    }
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* One column of a wider matrix, with a bias: CUDA 11's library fails at it, without a word. */
static void test_one_column(void **state)
{
    struct tern_context *ctx = cuda_open();
    const struct tern_kernel *const *k = ctx->device->kernels;
    while (strcmp((*k)->name, "linear_cublaslt"))
        k++;
    for (int width = 1; width <= 3; width += 2)
        for (int biases = 0; biases <= 1; biases++) {
            struct tern_op_desc d = {.op = TERN_OP_linear, .n_in = 3, .present = {true, true, biases}};
            d.in[0] = (struct tern_meta){TERN_F32, 2, {4, 8}, {8, 1}};
            d.in[1] = (struct tern_meta){TERN_F32, 2, {1, 8}, {8, 1}};
            d.in[2] = (struct tern_meta){TERN_F32, 1, {1}, {1}};
            d.out = (struct tern_meta){TERN_F32, 2, {4, 1}, {width, 1}};
            assert_int_equal((*k)->supports(ctx->device, &d), width == 1 || !biases);
        }
    tern_context_destroy(&ctx);
}

/* Rows that begin at odd elements. */
static void test_alignment(void **state)
{
    struct tern_context *ctx = cuda_open();
    float x[3 * 9], w[2 * 8], y[3 * 2];
    for (int i = 0; i < 27; i++)
        x[i] = (float)i;
    for (int i = 0; i < 16; i++)
        w[i] = (float)(i % 5) - 2;
    int products = blas.standin_blas_products();
    tern_scope_begin(ctx);
    tern_tensor *all = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){3, 9}, x);
    tern_tensor *part = tern_slice(all, 1, 1, 9, 1);
    tern_tensor *out = tern_linear(part, tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){2, 8}, w), NULL);
    if (!out || tern_tensor_read(out, TERN_F32, y, sizeof(y)))
        fail_msg("%s", tern_error(ctx));
    tern_scope_end(ctx, NULL);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 2; j++) {
            float sum = 0;
            for (int k = 0; k < 8; k++)
                sum += x[9 * i + 1 + k] * w[8 * j + k];
            assert_true(y[2 * i + j] == sum);
        }
    assert_int_equal(blas.standin_blas_products() - products, 1);
    tern_context_destroy(&ctx);
}

static bool check_small(struct tern_context *ctx)
{
    float x[8], y[4];
    for (int i = 0; i < 8; i++)
        x[i] = 1;
    tern_tensor *t = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){2, 4}, x);
    tern_tensor *out = t ? tern_linear(t, t, NULL) : NULL;
    bool good = out && !tern_tensor_read(out, TERN_F32, y, sizeof(y)) && y[3] == 4;
    tern_tensor_unref(&t);
    tern_tensor_unref(&out);
    return good;
}

static void test_failures(void **state)
{
    struct tern_context *ctx = cuda_open();
    float expected[ROWS * WIDTH], values[ROWS * WIDTH];
    assert_true(run_plan(ctx, expected));
    int products = blas.standin_blas_products();
    blas.standin_blas_fail(CUBLAS_STATUS_NOT_SUPPORTED); /* of the two products, and of one of them from then on: a text serves */
    assert_true(run_plan(ctx, values));
    assert_true(support_nmse(values, expected, ROWS * WIDTH) < 1e-11);
    assert_int_equal(blas.standin_blas_products() - products, 1);
    tern_context_destroy(&ctx);
    for (long n = 1;; n++) { /* every allocation of the library fails once */
        struct support_allocator m = {.fail_at = n};
        const struct tern_context_params params = {
            .device = "cuda", .threads = 1, .allocator = support_failing(&m), .cache_dir = cuda_cache};
        ctx = tern_context_create(&params);
        bool good = ctx && check_small(ctx);
        assert_true(good || !ctx || tern_error_status(ctx) == TERN_E_NO_MEMORY);
        tern_context_destroy(&ctx);
        assert_int_equal(m.live, 0);
        if (good && m.count < n)
            break;
    }
}

/* Lack of memory, and a launch that was refused on a device that is well: the text serves, now and later. */
static void test_refused_launches(void **state)
{
    static const int errors[] = {CUBLAS_STATUS_ALLOC_FAILED, CUBLAS_STATUS_EXECUTION_FAILED};
    float expected[ROWS * WIDTH], values[ROWS * WIDTH];
    for (int i = 0; i < 2; i++) {
        struct tern_context *ctx = cuda_open();
        assert_true(run_plan(ctx, expected));
        blas.standin_blas_fail(errors[i]);
        for (int again = 0; again < 2; again++) {
            int products = blas.standin_blas_products();
            if (!run_plan(ctx, values))
                fail_msg("%s", tern_error(ctx));
            assert_true(support_nmse(values, expected, ROWS * WIDTH) < 1e-11);
            assert_int_equal(blas.standin_blas_products() - products, 1);
        }
        tern_context_destroy(&ctx);
    }
}

/* A kernel that failed: the stream says so, and the device is lost. */
static void test_failed_kernel(void **state)
{
    struct tern_context *ctx = cuda_open();
    float values[ROWS * WIDTH];
    assert_true(run_plan(ctx, values));
    blas.standin_blas_fail(CUBLAS_STATUS_EXECUTION_FAILED);
    cuda.standin_fail("cuStreamSynchronize", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_false(run_plan(ctx, values));
    support_error(ctx, TERN_E_DEVICE, "cuda: cuBLASLt: CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_false(run_plan(ctx, values));
    support_error(ctx, TERN_E_DEVICE, "the device was lost to an earlier launch");
    tern_context_destroy(&ctx);
}

/* Refused in a capture: that fails, the device is well, and the text serves from then on. */
static void test_refused_capture(void **state)
{
    struct tern_context *ctx = cuda_open();
    struct tern_queue *q = ctx->device->queue;
    float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1}, y[4];
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){2, 4}, ones);
    tern_tensor *out = tern_linear(x, x, NULL);
    assert_non_null(out);
    tern_tensor_unref(&out);
    blas.standin_blas_fail(CUBLAS_STATUS_EXECUTION_FAILED);
    assert_int_equal(q->fns->capture_begin(q), TERN_OK);
    out = tern_linear(x, x, NULL);
    assert_null(out);
    struct tern_capture *c = q->fns->capture_end(q);
    if (c)
        c->fns->destroy(c);
    support_error(ctx, TERN_E_DEVICE, "linear: cuBLASLt failed with status 13 in a capture");
    int products = blas.standin_blas_products();
    out = tern_linear(x, x, NULL);
    if (!out || tern_tensor_read(out, TERN_F32, y, sizeof(y)))
        fail_msg("%s", tern_error(ctx));
    assert_true(y[0] == 4 && y[3] == 4);
    assert_int_equal(blas.standin_blas_products(), products);
    tern_tensor_unref(&out);
    tern_tensor_unref(&x);
    tern_context_destroy(&ctx);
}

static void expect_described(struct tern_context *ctx, const char *part)
{
    char line[1200];
    ctx->device->fns->describe(ctx->device, line, sizeof(line));
    if (!strstr(line, part))
        fail_msg("expected \"%s\" in \"%s\"", part, line);
}

/* What is described is what serves: it is opened once, and stays. */
static void test_described(void **state)
{
    char name[256], part[260];
    struct tern_context *ctx = cuda_open();
    snprintf(name, 200, "%s", getenv("TERN_CUBLASLT_LIBRARY"));
    snprintf(part, sizeof(part), ", %s", name);
    expect_described(ctx, part);
    setenv("TERN_CUBLASLT_LIBRARY", "none", 1);
    int products = blas.standin_blas_products();
    assert_true(check_small(ctx));
    assert_int_equal(blas.standin_blas_products() - products, 1);
    expect_described(ctx, part);
    setenv("TERN_CUBLASLT_LIBRARY", name, 1);
    tern_context_destroy(&ctx);
}

/* 4 MiB, and 32 from Hopper on, as NVIDIA recommends; and what begins such memory at a multiple of 256. */
static void test_workspace(void **state)
{
    static const int capabilities[] = {86, 90, 100};
    const int64_t sides[] = {16, 16};
    struct tern_op_desc d = {.op = TERN_OP_linear, .n_in = 2, .present = {true, true}};
    d.in[0] = d.in[1] = d.out = tern_meta_make(TERN_F16, 2, sides);
    tern_context_destroy(&(struct tern_context *){cuda_open()});
    for (int i = 0; i < 3; i++) {
        struct standin_facts facts;
        cuda.standin_get_facts(&facts);
        facts.capability = capabilities[i];
        cuda.standin_set_facts(&facts);
        struct tern_context *ctx = cuda_open();
        const struct tern_kernel *k = tern_kernel_find(ctx->device, "linear_cublaslt");
        assert_true(k && k->supports(ctx->device, &d));
        assert_int_equal(k->workspace(ctx, &d), ((size_t)(i ? 32 : 4) << 20) + 256);
        tern_context_destroy(&ctx);
    }
}

/* Texts serve where the library is not there, or does not work. */
static void test_without(void **state)
{
    char path[1024];
    float values[ROWS * WIDTH];
    int products = blas.standin_blas_products();
    tern_context_destroy(&(struct tern_context *){cuda_open()});
    snprintf(path, sizeof(path), "%s", getenv("TERN_CUBLASLT_LIBRARY"));
    const char *const without[] = {"none", getenv("TERN_NVRTC_LIBRARY")};
    for (int i = 0; i < 2; i++) {
        setenv("TERN_CUBLASLT_LIBRARY", without[i], 1);
        struct tern_context *ctx = cuda_open();
        expect_described(ctx, ", no cuBLASLt,");
        assert_true(run_plan(ctx, values));
        tern_context_destroy(&ctx);
    }
    setenv("TERN_CUBLASLT_LIBRARY", path, 1);
    assert_int_equal(blas.standin_blas_products(), products);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, cuda_setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_table),         TEST(test_epilogues),       TEST(test_gates),
                                       TEST(test_half_weights),  TEST(test_alignment),       TEST(test_bias_alignment),
                                       TEST(test_one_column),    TEST(test_failures),        TEST(test_refused_launches),
                                       TEST(test_failed_kernel), TEST(test_refused_capture), TEST(test_described),
                                       TEST(test_workspace),     TEST(test_without)};
    return cmocka_run_group_tests(tests, group_setup, cuda_group_teardown);
}

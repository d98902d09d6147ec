/* The CUDA backend on the stand-in driver (tests/cuda): ops, pictures, plans, its cache, what it refuses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "cuda_help.h"
#include "gpu_help.h"
#include "support.h"

#define ONE_IN 6 /* cases of the table: each new variant is compiled */

static void ops_agree(void **state)
{
    struct tern_context *ctx = cuda_open();
    assert_true(gpu_ops_agree(ctx, "cuda", 0, ONE_IN) > 100);
    tern_context_destroy(&ctx);
}

/* All products of f16 and bf16, with tensor cores and without. */
static void products_agree(void **state)
{
    static const char *const ops[] = {"linear", "matmul", "conv2d", "sdpa"};
    for (int without = 0; without < 2; without++) {
        char line[600];
        without ? setenv("TERN_GPU_LIMITS", "matrix=no", 1) : unsetenv("TERN_GPU_LIMITS");
        struct tern_context *ctx = cuda_open();
        ctx->device->fns->describe(ctx->device, line, sizeof(line));
        assert_non_null(strstr(line, without ? "tensor cores not used" : "tensor cores used for f16, bf16 and int8"));
        assert_int_equal(tern_context_fast_dtype(ctx), without ? TERN_F32 : TERN_F16);
        struct tern_conformance *c =
            tern_conformance_create(ctx, &(const struct tern_conformance_params){.device = "cuda", .kernel = "chosen"});
        int failed = 0, passed = 0, met = 0;
        if (!c)
            fail_msg("%s", tern_error(ctx));
        for (int i = 0; i < tern_conformance_facts(c).cases; i++) {
            struct tern_conformance_check check = tern_conformance_get(c, i);
            struct tern_conformance_outcome out;
            bool product = false;
            for (int k = 0; k < 4; k++)
                product = product || !strcmp(check.group, ops[k]);
            if (!product || !strstr(check.name, "f16") || (without && met++ % 4))
                continue;
            assert_int_equal(tern_conformance_run(c, i, &out), TERN_OK);
            passed += out.result == TERN_CONFORMANCE_PASSED;
            if (out.result == TERN_CONFORMANCE_FAILED && ++failed < 20)
                print_error("%s: %s\n", check.name, out.message);
        }
        print_message("%s tensor cores: %d passed\n", without ? "without" : "with", passed);
        assert_int_equal(failed, 0);
        assert_true(passed >= (without ? 5 : 20));
        tern_conformance_destroy(&c);
        tern_context_destroy(&ctx);
    }
    unsetenv("TERN_GPU_LIMITS");
}

/* What sdpa is of one row: softmax(q k^T / sqrt(e)) v, in f64. */
static void attend(const float *q, const float *k, const float *v, int keys, int e, double *y)
{
    double *p = calloc((size_t)keys, sizeof(*p)), top = -INFINITY, sum = 0;
    assert_non_null(p);
    for (int s = 0; s < keys; s++) {
        for (int i = 0; i < e; i++)
            p[s] += (double)q[i] * (double)k[s * e + i] / sqrt(e);
        top = fmax(top, p[s]);
    }
    for (int i = 0; i < e; i++)
        y[i] = 0;
    for (int s = 0; s < keys; s++) {
        sum += p[s] = exp(p[s] - top);
        for (int i = 0; i < e; i++)
            y[i] += p[s] * (double)v[s * e + i];
    }
    for (int i = 0; i < e; i++)
        y[i] /= sum;
    free(p);
}

/* Heads as large as the VAE's, of counts that fill no block: with tensor cores (sdpa_matrix_wide), with less shared memory, and with too
 * little. */
static void large_heads_agree(void **state)
{
    enum { L = 70, S = 203, MOST = 512 };
    static const char *const limits[] = {"shared=48K", "shared=32K", "shared=16K"};
    static const int heads[] = {512, 256, 192};
    for (int at = 0; at < 18; at++) {
        const enum tern_dtype dtype = at % 2 ? TERN_BF16 : TERN_F16;
        const int e = heads[at / 2 % 3];
        double y[MOST], worst = 0, most = dtype == TERN_F16 ? 1.0 / 1024 : 1.0 / 128;
        int64_t n;
        setenv("TERN_GPU_LIMITS", limits[at / 6], 1);
        struct tern_context *ctx = cuda_open();
        tern_scope_begin(ctx);
        tern_tensor *x[3] = {support_noise(ctx, 1, 4, (const int64_t[]){1, 1, L, e}, 2, dtype)};
        for (int i = 1; i < 3; i++)
            x[i] = support_noise(ctx, 1 + (uint64_t)i, 4, (const int64_t[]){1, 1, S, e}, 1, dtype);
        float *q = support_values(x[0], &n), *k = support_values(x[1], &n), *v = support_values(x[2], &n);
        float *found = support_values(tern_sdpa(x[0], x[1], x[2]), &n);
        assert_int_equal(n, L * e);
        for (int l = 0; l < L; l++) {
            attend(q + l * e, k, v, S, e, y);
            for (int i = 0; i < e; i++)
                worst = fmax(worst, fabs(y[i] - (double)found[l * e + i]));
        }
        print_message("head of %d, %s, %s: off by %.2g at most\n", e, tern_dtype_name(dtype), limits[at / 6], worst);
        assert_true(worst < most);
        free(q);
        free(k);
        free(v);
        free(found);
        tern_scope_end(ctx, NULL);
        tern_context_destroy(&ctx);
    }
    unsetenv("TERN_GPU_LIMITS");
}

static void quotients_agree(void **state)
{
    struct tern_context *ctx = cuda_open();
    gpu_quotients_agree(ctx);
    tern_context_destroy(&ctx);
}

static void pictures_agree(void **state)
{
    struct tern_context *ctx = cuda_open();
    gpu_pictures_agree(ctx);
    tern_context_destroy(&ctx);
}

static void skip_without_standin(void) { tern_context_destroy(&(struct tern_context *){cuda_open()}); }

static void the_cache_is_checked(void **state)
{
    skip_without_standin();
    gpu_cache_is_checked("cuda", cuda_cache);
}

/* conv2d, group_norm (a small one is one launch), linear; the rest is fused. From the second run on nothing is allocated, waited for or
 * copied. */
static void watch(int run, bool over)
{
    static struct standin_counts from;
    struct standin_counts to = cuda_counts();
    if (!over)
        from = to;
    if (!over || run < 2)
        return;
    uint64_t kernels = to.launches - from.launches + to.graph_kernels - from.graph_kernels;
    print_message("%d launches\n", (int)kernels);
    assert_int_equal(kernels, 3);
    assert_int_equal(to.synchronisations, from.synchronisations);
    assert_int_equal(to.allocations + to.frees + to.modules, from.allocations + from.frees + from.modules);
    assert_int_equal(to.copies_in + to.copies_out, from.copies_in + from.copies_out);
}

static void plans_agree(void **state)
{
    struct tern_context *ctx = cuda_open();
    gpu_plan_agrees(ctx, watch);
    tern_context_destroy(&ctx);
}

static void faults_are_statuses(void **state)
{
    skip_without_standin();
    assert_true(gpu_allocations_fail("cuda", cuda_cache, NULL) > 8);
}

static void wrong_use_is_refused(void **state)
{
    skip_without_standin();
    gpu_wrong_use_is_refused("cuda", cuda_cache);
}

/* A row whose mask is the least float of bf16 everywhere sees all keys alike, as in PyTorch: its result is the mean of the values. */
static void least_masks_hide_nothing(void **state)
{
    enum { ROWS = 16, KEYS = 40, HEAD = 16 };
    static float least[ROWS * KEYS], values[KEYS * HEAD], found[ROWS * HEAD];
    struct tern_context *ctx = cuda_open();
    for (int i = 0; i < ROWS * KEYS; i++)
        least[i] = -3.3895314e38f;
    tern_scope_begin(ctx);
    tern_tensor *q = support_noise(ctx, 1, 4, (const int64_t[]){1, 1, ROWS, HEAD}, 1, TERN_BF16),
                *k = support_noise(ctx, 2, 4, (const int64_t[]){1, 1, KEYS, HEAD}, 1, TERN_BF16),
                *v = support_noise(ctx, 3, 4, (const int64_t[]){1, 1, KEYS, HEAD}, 1, TERN_BF16);
    tern_tensor *mask = tern_cast(tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){1, 1, ROWS, KEYS}, least), TERN_BF16);
    tern_tensor *y = tern_sdpa(q, k, v, .attn_mask = mask);
    if (!y || tern_tensor_read(y, TERN_F32, found, sizeof(found)) || tern_tensor_read(v, TERN_F32, values, sizeof(values)))
        fail_msg("%s", tern_error(ctx));
    for (int c = 0; c < HEAD; c++) {
        float mean = 0;
        for (int i = 0; i < KEYS; i++)
            mean += values[i * HEAD + c] / KEYS;
        for (int i = 0; i < ROWS; i++)
            assert_true(fabsf(found[i * HEAD + c] - mean) <= 0.01f);
    }
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CUDA_TEST(plans_agree),
                                       CUDA_TEST(ops_agree),
                                       CUDA_TEST(products_agree),
                                       CUDA_TEST(large_heads_agree),
                                       CUDA_TEST(least_masks_hide_nothing),
                                       CUDA_TEST(quotients_agree),
                                       CUDA_TEST(pictures_agree),
                                       CUDA_TEST(the_cache_is_checked),
                                       CUDA_TEST(faults_are_statuses),
                                       CUDA_TEST(wrong_use_is_refused)};
    return cmocka_run_group_tests(tests, cuda_group_setup, cuda_group_teardown);
}

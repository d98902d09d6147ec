/* The CUDA backend on the stand-in driver (tests/cuda): ops, pictures, plans, its cache, what it refuses. */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/conformance.h>
#include <tern/ops.h>

#include "core/context.h"
#include "core/tensor.h"
#include "cuda_help.h"
#include "model_help.h"
#include "support.h"

#define ONE_IN 6 /* cases of the table: each new variant is compiled */

static int warnings;

static void count_warnings(enum tern_log_level level, const char *text, void *user)
{
    warnings += level == TERN_LOG_WARN && strstr(text, "the kernel is built again") != NULL;
}

static void ops_agree(void **state)
{
    struct tern_context *ctx = cuda_open();
    struct tern_conformance *c =
        tern_conformance_create(ctx, &(const struct tern_conformance_params){.device = "cuda", .kernel = "chosen"});
    int failed = 0, passed = 0;
    if (!c)
        fail_msg("%s", tern_error(ctx));
    for (int i = 0; i < tern_conformance_facts(c).cases; i += ONE_IN) { /* the stage of ops comes first */
        struct tern_conformance_outcome out;
        assert_int_equal(tern_conformance_run(c, i, &out), TERN_OK);
        passed += out.result == TERN_CONFORMANCE_PASSED;
        if (out.result == TERN_CONFORMANCE_FAILED && ++failed < 20)
            print_error("%s: %s\n", tern_conformance_get(c, i).name, out.message);
    }
    assert_int_equal(failed, 0);
    assert_true(passed > 100);
    tern_conformance_destroy(&c);
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
        assert_non_null(strstr(line, without ? "tensor cores not used" : "tensor cores used for f16 and bf16"));
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

static struct tern_image *paint(struct tern_context *ctx, const char *prompt)
{
    char path[PATH_SIZE];
    struct tern_pipeline *p = model_load(ctx, model_path("demo", path));
    const struct tern_txt2img_params q = {.prompt = prompt, .width = 128, .height = 64, .steps = 2, .seed = 7};
    struct tern_image *image = tern_txt2img(p, &q);
    if (!image)
        fail_msg("%s", tern_error(ctx));
    tern_pipeline_destroy(&p);
    return image;
}

/* Values of two pictures differ by at most 1. */
static void compare(const struct tern_image *a, const struct tern_image *b)
{
    int n = 3 * tern_image_width(a) * tern_image_height(a);
    for (int i = 0; i < n; i++)
        assert_true(abs(tern_image_data(a)[i] - tern_image_data(b)[i]) <= 1);
}

static void pictures_agree(void **state)
{
    static const char *const prompts[] = {"a red circle", "一艘蓝色的船在海上，日落"};
    struct tern_context *ctx = cuda_open(), *cpu = support_context();
    for (int i = 0; i < 2; i++) {
        struct tern_image *expected = paint(cpu, prompts[i]), *found = paint(ctx, prompts[i]);
        compare(expected, found);
        tern_image_destroy(&expected);
        tern_image_destroy(&found);
    }
    tern_context_destroy(&ctx);
    tern_context_destroy(&cpu);
}

/* Another context finds all kernels in the cache folder. Damaged files and those of another driver are built again. */
static void the_cache_is_checked(void **state)
{
    struct tern_context *ctx = cuda_open();
    char pattern[300];
    glob_t files;
    struct tern_image *expected = paint(ctx, "a star");
    tern_context_destroy(&ctx);
    snprintf(pattern, sizeof(pattern), "%s/cuda/*.bin", cuda_cache);
    assert_int_equal(glob(pattern, 0, NULL, &files), 0);
    assert_true(files.gl_pathc > 20);
    for (int what = 0; what < 3; what++) { /* whole, a byte changed, cut */
        int damaged = 0;
        for (size_t i = 0; what && i < files.gl_pathc; i += 10, damaged++) {
            FILE *f = fopen(files.gl_pathv[i], what == 1 ? "r+b" : "wb");
            assert_non_null(f);
            if (what == 1)
                fseek(f, 40, SEEK_SET);
            fputc('?', f);
            fclose(f);
        }
        warnings = 0;
        ctx = tern_context_create(
            &(const struct tern_context_params){.device = "cuda", .threads = 2, .cache_dir = cuda_cache, .log = count_warnings});
        assert_non_null(ctx);
        struct tern_image *found = paint(ctx, "a star");
        compare(expected, found);
        assert_true(what ? warnings > 0 && warnings <= damaged : warnings == 0);
        tern_image_destroy(&found);
        tern_context_destroy(&ctx);
    }
    globfree(&files);
    tern_image_destroy(&expected);
}

/* A convolution, a norm, a product with weights that lie in the host's memory. */
static enum tern_status block(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct tern_weights *w = user;
    tern_tensor *h = tern_conv2d(in[0], tern_weights_get(w, "conv"), NULL, .padding = 1);
    h = tern_silu(tern_group_norm(h, 2, NULL, NULL, 1e-5));
    out[0] = tern_linear(h, tern_weights_get(w, "linear"), NULL);
    return TERN_OK;
}

static void fill(float *v, int n)
{
    for (int i = 0; i < n; i++)
        v[i] = (float)(i * 37 % 101) / 50 - 1;
}

static struct tern_weights *host_weights(struct tern_context *ctx, float *memory)
{
    struct tern_weights *w = tern_weights_create(ctx);
    tern_tensor *conv = tern_tensor_wrap(ctx, TERN_F32, 4, (const int64_t[]){4, 3, 3, 3}, memory, NULL, NULL);
    tern_tensor *linear = tern_tensor_wrap(ctx, TERN_F32, 2, (const int64_t[]){5, 8}, memory + 108, NULL, NULL);
    assert_int_equal(tern_weights_add(w, "conv", conv), TERN_OK);
    assert_int_equal(tern_weights_add(w, "linear", linear), TERN_OK);
    tern_tensor_unref(&conv);
    tern_tensor_unref(&linear);
    return w;
}

/* What a plan gives on a device, three runs of it; from the second on nothing is allocated, waited for or copied. */
static void run_plan(struct tern_context *ctx, bool on_cuda, float *values)
{
    float memory[148], picture[3 * 6 * 8];
    const struct tern_graph_input input = {"x", TERN_F32, 4, {1, 3, 6, 8}};
    fill(memory, 148);
    fill(picture, 3 * 6 * 8);
    struct tern_weights *w = host_weights(ctx, memory);
    struct tern_graph *g = tern_graph_trace(ctx, block, w, w, &input, 1, 1);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    size_t told = plan ? tern_plan_bind_bytes(plan, w) : 0, before = tern_memory_used(ctx);
    struct tern_binding *b = tern_plan_bind(plan, w);
    if (!b)
        fail_msg("%s", tern_error(ctx));
    assert_true(tern_memory_used(ctx) - before <= told);
    tern_scope_begin(ctx);
    tern_tensor *in = tern_tensor_create(ctx, TERN_F32, 4, input.shape, picture), *out = NULL;
    uint64_t allocations = 0;
    for (int i = 0; i < 3; i++) {
        struct standin_counts from = cuda_counts(), to;
        if (tern_plan_run(b, &in, &out))
            fail_msg("%s", tern_error(ctx));
        assert_true(i < 2 || tern_memory_allocations(ctx) == allocations);
        allocations = tern_memory_allocations(ctx);
        to = cuda_counts();
        if (i == 2 && on_cuda) { /* conv2d, group_norm (a small one is one launch), linear; the rest is fused */
            uint64_t kernels = to.launches - from.launches + to.graph_kernels - from.graph_kernels;
            print_message("%d launches\n", (int)kernels);
            assert_int_equal(kernels, 3);
            assert_int_equal(to.synchronisations, from.synchronisations);
            assert_int_equal(to.allocations + to.frees + to.modules, from.allocations + from.frees + from.modules);
            assert_int_equal(to.copies_in + to.copies_out, from.copies_in + from.copies_out);
        }
    }
    assert_int_equal(tern_tensor_read(out, TERN_F32, values, 4 * 6 * 5 * sizeof(float)), TERN_OK);
    tern_scope_end(ctx, NULL);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_weights_unref(&w);
}

static void plans_agree(void **state)
{
    struct tern_context *ctx = cuda_open(), *cpu = support_context();
    float expected[4 * 6 * 5], found[4 * 6 * 5];
    run_plan(cpu, false, expected);
    run_plan(ctx, true, found);
    assert_true(support_nmse(found, expected, 4 * 6 * 5) < 1e-11);
    tern_context_destroy(&ctx);
    tern_context_destroy(&cpu);
}

/* Every allocation of the library fails once, from opening the device to the result: a status, no leak. */
static void faults_are_statuses(void **state)
{
    struct tern_context *ctx = cuda_open();
    tern_context_destroy(&ctx);
    int faults = 0;
    for (long n = 1; n < 10000; n++, faults++) {
        struct support_allocator m = {.fail_at = n};
        const struct tern_context_params params = {
            .device = "cuda", .threads = 1, .allocator = support_failing(&m), .cache_dir = cuda_cache};
        ctx = tern_context_create(&params);
        tern_tensor *x = ctx ? tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){100}, NULL) : NULL;
        float values[100];
        tern_tensor *y = x ? tern_exp(x) : NULL;
        bool ok = y && !tern_tensor_read(y, TERN_F32, values, sizeof(values)) && values[99] == 1;
        assert_true(ok || !ctx || tern_error_status(ctx) == TERN_E_NO_MEMORY);
        tern_tensor_unref(&x);
        tern_tensor_unref(&y);
        tern_context_destroy(&ctx);
        assert_int_equal(m.live, 0);
        if (ok && m.count < n)
            break;
    }
    print_message("%d faults\n", faults);
    assert_true(faults > 8);
}

static void wrong_use_is_refused(void **state)
{
    struct tern_context *ctx = cuda_open();
    tern_context_destroy(&ctx);
    assert_null(cuda_context("cuda:99"));
    assert_non_null(strstr(tern_create_error(), "device 99 was asked for, there are 1"));
    ctx = tern_context_create(&(struct tern_context_params){.device = "cuda", .threads = 1, .budget = 1 << 20, .cache_dir = cuda_cache});
    assert_non_null(ctx);
    assert_null(tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){1 << 20}, NULL));
    support_error(ctx, TERN_E_BUDGET, "memory budget of 1048576 bytes reached on device cuda");
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CUDA_TEST(plans_agree),          CUDA_TEST(ops_agree),
                                       CUDA_TEST(products_agree),       CUDA_TEST(pictures_agree),
                                       CUDA_TEST(the_cache_is_checked), CUDA_TEST(faults_are_statuses),
                                       CUDA_TEST(wrong_use_is_refused)};
    return cmocka_run_group_tests(tests, cuda_group_setup, cuda_group_teardown);
}

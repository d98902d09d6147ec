/* The OpenCL backend on whatever device the system has (PoCL: the processor): ops, pictures, plans, its cache, what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <string.h>

#include <cmocka.h>
#include <tern/graph.h>
#include <tern/ops.h>

#include "backends/gpu/gpu.h"
#include "core/context.h"
#include "gpu_help.h"

/* Cases of the table, others than those of the test vulkan: each new variant is compiled, and tests/test_texts_opencl.c runs the rest. */
#define ONE_IN 16

static char cache_dir[GPU_FOLDER];

/* The test is skipped when there is no device. */
static struct tern_context *open_or_skip(void)
{
    struct tern_context *ctx =
        tern_context_create(&(const struct tern_context_params){.device = "opencl", .threads = 2, .cache_dir = cache_dir});
    if (!ctx) {
        print_message("%s (Debian's pocl-opencl-icd has a driver)\n", tern_create_error());
        skip();
    }
    return ctx;
}

static void skip_without_device(void) { tern_context_destroy(&(struct tern_context *){open_or_skip()}); }

/* The environment has no cache folder: what is not kept PoCL need not compile for groups of any size. */
static void ops_agree(void **state)
{
    skip_without_device();
    struct tern_context *ctx = tern_context_create(&(const struct tern_context_params){.device = "opencl", .threads = 2});
    assert_non_null(ctx);
    assert_true(gpu_ops_agree(ctx, "opencl", ONE_IN / 2, ONE_IN) > 100);
    tern_context_destroy(&ctx);
}

static void sines_agree(void **state)
{
    struct tern_context *ctx = open_or_skip();
    gpu_sines_agree(ctx);
    tern_context_destroy(&ctx);
}

static const struct tern_gpu_fns *driver_fns;

/* As compilers of GPUs do unless they are told: one operation is made of a product and a sum wherever that may be, across statements, even
 * if the product itself has to be made once more for another use. PoCL's leaves one with two uses alone, so the text makes it twice. */
static void *compile_contracted(struct tern_gpu *gpu, const char *source, const struct tern_launch *l)
{
    static const char use[] = "- product;\n", again[] = "- again;\n";
    const char *at = strstr(source, use);
    const char *line = strstr(source, "EXACT float lost");
    assert_true(at && line && line < at);
    char *all = tern_sprintf(gpu->base.ctx, "#pragma clang fp contract(fast)\n%.*svolatile float copy = q, again = copy * y;\n%.*s%s%s",
                             (int)(line - source), source, (int)(at - line), line, again, at + strlen(use));
    assert_non_null(all);
    void *kernel = driver_fns->compile(gpu, all, l);
    tern_free(gpu->base.ctx, all);
    return kernel;
}

static void quotients_agree(void **state)
{
    for (int contracted = 0; contracted < 2; contracted++) {
        skip_without_device();
        struct tern_context *ctx = tern_context_create(&(const struct tern_context_params){.device = "opencl", .threads = 2});
        struct tern_gpu *gpu = (struct tern_gpu *)ctx->device;
        driver_fns = gpu->fns;
        const struct tern_gpu_fns fns = {compile_contracted, driver_fns->release, driver_fns->enqueue};
        if (contracted)
            gpu->fns = &fns;
        gpu_quotients_agree(ctx);
        gpu->fns = driver_fns;
        tern_context_destroy(&ctx);
    }
}

static void pictures_agree(void **state)
{
    struct tern_context *ctx = open_or_skip();
    gpu_pictures_agree(ctx);
    tern_context_destroy(&ctx);
}

static void plans_agree(void **state)
{
    struct tern_context *ctx = open_or_skip();
    gpu_plan_agrees(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* 80,000 is infinite in f16: a post that narrows is not skipped because another one follows. */
static enum tern_status narrowed_twice(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_cast(tern_cast(tern_mul_scalar(in[0], 1000), TERN_F16), TERN_BF16);
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

/* The values that a plan of `fn` has for those of its input. */
static void run_plan(struct tern_context *ctx, tern_graph_fn fn, const struct tern_graph_input *input, const float *values, float *found,
                     size_t size)
{
    tern_scope_begin(ctx);
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, input->ndim, input->shape, values), *y = NULL;
    struct tern_graph *g = tern_graph_trace(ctx, fn, ctx, NULL, input, 1, 1);
    struct tern_plan *p = tern_plan_compile(g, NULL);
    struct tern_binding *b = tern_plan_bind(p, NULL);
    assert_int_equal(tern_plan_run(b, &x, &y), TERN_OK);
    assert_int_equal(tern_tensor_read(y, TERN_F32, found, size), TERN_OK);
    tern_scope_end(ctx, NULL);
    tern_binding_unref(&b);
    tern_plan_unref(&p);
    tern_graph_destroy(&g);
}

/* What is left of x where f16 holds every second whole number. */
static enum tern_status narrowed_and_moved(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_add_scalar(tern_cast(in[0], TERN_F16), -2048);
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

/* What is left of x where its fraction goes, and 3. */
static enum tern_status made_whole_and_moved(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_add_scalar(tern_cast(in[0], TERN_I32), 3);
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

static void written_roundings_stay(void **state)
{
    struct tern_context *ctx = open_or_skip();
    const struct tern_graph_input input = {"x", TERN_F32, 1, {2}};
    float found[2] = {0, 0};
    run_plan(ctx, narrowed_and_moved, &input, (const float[]){2049, 2051}, found, sizeof(found));
    assert_true(found[0] == 0 && found[1] == 4);
    run_plan(ctx, narrowed_twice, &input, (const float[]){80, 1}, found, sizeof(found));
    assert_true(found[0] > 1e38f && found[1] == 1000);
    run_plan(ctx, made_whole_and_moved, &input, (const float[]){-2.7f, 2.7f}, found, sizeof(found));
    assert_true(found[0] == 1 && found[1] == 5);
    tern_context_destroy(&ctx);
}

/* x (B, M, K) times ones (K), plus a vector (M). */
static enum tern_status row_sums(void *ctx, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *ones = tern_full(ctx, TERN_F32, 1, (const int64_t[]){2}, 1);
    out[0] = tern_add(tern_matmul(in[0], ones), tern_arange(ctx, TERN_F32, 0, 3, 1));
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

/* The result of a product with a vector ends with the rows: what is added to it changes along them, not along columns. */
static void rows_of_vectors_are_added_to(void **state)
{
    struct tern_context *ctx = open_or_skip();
    const struct tern_graph_input input = {"x", TERN_F32, 3, {2, 3, 2}};
    const float x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    float found[6] = {0};
    run_plan(ctx, row_sums, &input, x, found, sizeof(found));
    for (int i = 0; i < 6; i++)
        assert_true(found[i] == x[2 * i] + x[2 * i + 1] + (float)(i % 3));
    tern_context_destroy(&ctx);
}

/* A number that changes from call to call, as samplers have them: what is kept of each call makes room for the next ones. */
static void numbers_take_no_memory(void **state)
{
    struct tern_context *ctx = open_or_skip();
    const struct tern_gpu *gpu = (struct tern_gpu *)ctx->device;
    float value = 0;
    int most = 0;
    for (int i = 0; i < 3000; i++) {
        tern_scope_begin(ctx);
        tern_tensor *y = tern_mul_scalar(tern_tensor_scalar(ctx, TERN_F32, 2), i);
        assert_non_null(y);
        if (i % 1000 == 0) {
            assert_int_equal(tern_tensor_read(y, TERN_F32, &value, sizeof(value)), TERN_OK);
            assert_true(value == 2 * (float)i);
        }
        tern_scope_end(ctx, NULL);
    }
    for (int i = 0; i < TERN_GPU_TABLE; i++) {
        int n = 0;
        for (const struct tern_gpu_call *c = gpu->calls[i]; c; c = c->next)
            n++;
        most = n > most ? n : most;
    }
    assert_int_equal(most, TERN_GPU_CHAIN);
    tern_context_destroy(&ctx);
}

static void the_cache_is_checked(void **state)
{
    skip_without_device();
    gpu_cache_is_checked("opencl", cache_dir);
}

static void faults_are_statuses(void **state)
{
    skip_without_device();
    assert_true(gpu_allocations_fail("opencl", cache_dir, NULL) > 8);
}

/* What lies far behind the start of a buffer is bound as a part of it: operands, a result in its place of a whole, and both at once. */
static void parts_of_buffers_are_bound(void **state)
{
    enum { ROWS = 512, COLS = 300 };
    static float v[ROWS * COLS], found[ROWS * COLS];
    struct tern_context *ctx = open_or_skip();
    struct tern_gpu *gpu = (struct tern_gpu *)ctx->device;
    gpu->binding_from = 4096;
    assert_true(tern_gpu_bound(gpu, 4000) == 0 && tern_gpu_bound(gpu, 10000) > 8000);
    for (int i = 0; i < ROWS * COLS; i++)
        v[i] = (float)(i % 65521);
    tern_scope_begin(ctx);
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){ROWS, COLS}, v), *parts[4];
    for (int i = 0; i < 4; i++)
        parts[i] = tern_add(tern_neg(tern_slice(x, 0, i * ROWS / 4, (i + 1) * ROWS / 4, 1)), tern_slice(x, 0, 300, 300 + ROWS / 4, 1));
    assert_int_equal(tern_tensor_read(tern_cat(parts, 4, 0), TERN_F32, found, sizeof(found)), TERN_OK);
    for (int i = 0; i < ROWS * COLS; i++)
        assert_true(found[i] == v[300 * COLS + i % (ROWS / 4 * COLS)] - v[i]);
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

static void wrong_use_is_refused(void **state)
{
    skip_without_device();
    gpu_wrong_use_is_refused("opencl", cache_dir);
}

/* What the compiler says of a text is told, however much that is. */
static void a_failed_build_tells_why(void **state)
{
    struct tern_context *ctx = open_or_skip();
    struct tern_gpu *gpu = (struct tern_gpu *)ctx->device;
    const struct tern_launch l = {.text = "broken"};
    for (int lines = 1; lines <= 1000; lines *= 10) {
        char source[64 << 10] = "__kernel void tern_kernel(__global int *y) {\n";
        for (int i = 0; i < lines; i++)
            snprintf(source + strlen(source), sizeof(source) - strlen(source), "y[%d] = first_unknown_%d;\n", i, i);
        strcat(source, "}\n");
        assert_null(gpu->fns->compile(gpu, source, &l));
        assert_int_equal(tern_error_status(ctx), TERN_E_DEVICE);
        assert_non_null(strstr(tern_error(ctx), "kernel text broken"));
        assert_non_null(strstr(tern_error(ctx), "first_unknown_0"));
        tern_error_clear(ctx);
    }
    tern_context_destroy(&ctx);
}

static int make_cache_dir(void **state) { return gpu_make_folder(cache_dir, "opencl"); }

static int remove_cache_dir(void **state) { return gpu_remove_folder(cache_dir); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_agree),
        cmocka_unit_test(written_roundings_stay),
        cmocka_unit_test(rows_of_vectors_are_added_to),
        cmocka_unit_test(numbers_take_no_memory),
        cmocka_unit_test(ops_agree),
        cmocka_unit_test(sines_agree),
        cmocka_unit_test(quotients_agree),
        cmocka_unit_test(pictures_agree),
        cmocka_unit_test(the_cache_is_checked),
        cmocka_unit_test(faults_are_statuses),
        cmocka_unit_test(parts_of_buffers_are_bound),
        cmocka_unit_test(wrong_use_is_refused),
        cmocka_unit_test(a_failed_build_tells_why),
    };
    return cmocka_run_group_tests(tests, make_cache_dir, remove_cache_dir);
}

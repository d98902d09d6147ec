/* The null device: shapes, launches and memory without arithmetic; and the memory that a job is predicted to need. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "job_cases.h"
#include "model_help.h"
#include "ops/dispatch.h"
#include "support.h"

static struct tern_context *null_context(size_t budget)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = "null", .threads = 1, .budget = budget});
    assert_non_null(ctx);
    return ctx;
}

static tern_tensor *zeros(struct tern_context *ctx, int ndim, const int64_t *shape)
{
    tern_tensor *t = tern_tensor_create(ctx, TERN_F32, ndim, shape, NULL);
    assert_non_null(t);
    return t;
}
#define ZEROS(ctx, ...) zeros(ctx, sizeof((int64_t[]){__VA_ARGS__}) / 8, (const int64_t[]){__VA_ARGS__})

static void assert_shape(struct tern_context *ctx, const tern_tensor *t, int ndim, const int64_t *shape)
{
    if (!t)
        fail_msg("%s", tern_error(ctx));
    assert_int_equal(tern_tensor_ndim(t), ndim);
    assert_memory_equal(tern_tensor_shape(t), shape, (size_t)ndim * sizeof(*shape));
}
#define SHAPE(t, ...) assert_shape(ctx, t, sizeof((int64_t[]){__VA_ARGS__}) / 8, (const int64_t[]){__VA_ARGS__})

static void shapes_are_right_and_launches_counted(void **state)
{
    struct tern_context *ctx = null_context(0);
    tern_scope_begin(ctx);
    tern_tensor *x = ZEROS(ctx, 2, 6, 9, 7), *w = ZEROS(ctx, 8, 6, 3, 3), *b = ZEROS(ctx, 8), *m = ZEROS(ctx, 5, 7);
    uint64_t before = ctx->device->queue->launches, dispatched = tern_dispatch_count(ctx);
    SHAPE(tern_conv2d(x, w, b, .stride = 2, .padding = 1), 2, 8, 5, 4);
    SHAPE(tern_linear(x, m, NULL), 2, 6, 9, 5);
    SHAPE(tern_interpolate(x, .scale_factor = 2), 2, 6, 18, 14);
    SHAPE(tern_group_norm(x, 3, NULL, NULL, 1e-5), 2, 6, 9, 7);
    SHAPE(tern_softmax(x, -1), 2, 6, 9, 7);
    SHAPE(tern_sum(x, 2, (const int[]){1, 3}, false), 2, 9);
    SHAPE(tern_add(x, ZEROS(ctx, 9, 1)), 2, 6, 9, 7);
    SHAPE(tern_cat((tern_tensor *[]){x, x, x}, 3, 1), 2, 18, 9, 7);
    SHAPE(tern_sdpa(x, x, ZEROS(ctx, 2, 6, 9, 4)), 2, 6, 9, 4);
    SHAPE(tern_argmax(x, 1, false), 2, 9, 7);
    assert_int_equal(ctx->device->queue->launches - before, 10);
    assert_int_equal(tern_dispatch_count(ctx) - dispatched, 10);
    SHAPE(tern_permute(x, 4, (const int[]){0, 2, 3, 1}), 2, 9, 7, 6); /* views launch nothing */
    SHAPE(tern_slice(x, 2, 1, 8, 3), 2, 6, 3, 7);
    assert_int_equal(ctx->device->queue->launches - before, 10);
    assert_int_equal(ctx->host->queue->launches, 0);
    assert_null(tern_conv2d(x, m, NULL)); /* rules hold as on any device */
    support_error(ctx, TERN_E_SHAPE, "conv2d");
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

static void memory_is_counted_not_taken(void **state)
{
    struct tern_context *ctx = null_context(0);
    size_t idle = tern_memory_used(ctx);
    const int64_t shape[] = {1 << 14, 1 << 14, 1 << 6}; /* 64 GiB */
    struct tern_meta meta = tern_meta_make(TERN_F32, 3, shape);
    tern_tensor *t = tern_tensor_empty(ctx, &meta);
    assert_non_null(t);
    size_t bytes = (size_t)1 << 36, used = tern_memory_used(ctx) - idle;
    assert_true(used >= bytes && used < bytes + 1024);
    assert_true(tern_memory_peak(ctx) >= idle + bytes);
    float first = 1;
    tern_tensor *row = tern_slice(t, 0, 0, 1, 1), *column = tern_slice(row, 1, 0, 1, 1), *part = tern_slice(column, 2, 0, 1, 1);
    assert_int_equal(tern_tensor_read(part, TERN_F32, &first, sizeof(first)), TERN_OK);
    assert_true(first == 0);
    tern_tensor_unref(&t); /* the views hold it */
    tern_tensor_unref(&row);
    tern_tensor_unref(&column);
    assert_true(tern_memory_used(ctx) >= idle + bytes);
    tern_tensor_unref(&part);
    assert_true(tern_memory_used(ctx) < idle + (bytes >> 10)); /* kernels were chosen, which is remembered */
    tern_context_destroy(&ctx);
}

static void memory_comes_back(void **state)
{
    struct tern_context *ctx = null_context(0);
    tern_scope_begin(ctx);
    tern_silu(ZEROS(ctx, 4, 4));
    tern_scope_end(ctx, NULL);
    size_t idle = tern_memory_used(ctx);
    tern_scope_begin(ctx);
    tern_tensor *x = ZEROS(ctx, 100, 1000);
    for (int i = 0; i < 9; i++)
        x = tern_gelu(tern_mul(x, x), TERN_GELU_NONE);
    assert_true(tern_memory_used(ctx) - idle >= 19 * 400000);
    tern_scope_end(ctx, NULL);
    assert_int_equal(tern_memory_used(ctx), idle);
    tern_context_destroy(&ctx);
}

static void budgets_hold(void **state)
{
    struct tern_context *ctx = null_context((size_t)8 << 20);
    tern_tensor *t = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){1024, 1024}, NULL);
    assert_non_null(t);
    assert_null(tern_add(t, t));
    support_error(ctx, TERN_E_BUDGET, "8388608");
    tern_tensor_unref(&t);
    t = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){1024, 1280}, NULL);
    assert_non_null(t);
    tern_tensor_unref(&t);
    tern_context_destroy(&ctx);
}

static enum tern_status refuse_write(struct tern_buffer *b, size_t offset, const void *src, size_t size)
{
    return tern_fail(b->device->ctx, TERN_E_DEVICE, "the device is gone");
}

/* A buffer of the host that cannot be written: it stands for one of a device that fails. */
static struct tern_buffer *create_refusing(struct tern_device *d, size_t size)
{
    static struct tern_buffer_fns refusing;
    struct tern_buffer *b = tern_buffer_create(d->ctx->host, size);
    if (b) {
        refusing = *b->fns;
        refusing.write = refuse_write;
        b->fns = &refusing;
    }
    return b;
}

/* A tensor whose values did not get there is none: neither those that were given, nor the zeros. */
static void unwritten_tensors_are_none(void **state)
{
    const float one = 1;
    for (int scope = 0; scope < 2; scope++) {
        struct tern_context *ctx = null_context((size_t)8 << 20);
        for (int i = 0; i < scope; i++)
            tern_scope_begin(ctx);
        size_t idle = tern_memory_used(ctx);
        int64_t most = ((int64_t)(8 << 20) - (int64_t)idle) / 4 - 4096; /* fits, but not with zeros beside it */
        assert_null(tern_tensor_create(ctx, TERN_F32, 1, &most, NULL));
        support_error(ctx, TERN_E_BUDGET, "8388608");
        struct tern_device_fns fns = *ctx->device->fns;
        const struct tern_device_fns *own = ctx->device->fns;
        fns.buffer_create = create_refusing;
        ctx->device->fns = &fns;
        assert_null(tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){1}, &one));
        support_error(ctx, TERN_E_DEVICE, "the device is gone");
        ctx->device->fns = own;
        for (int i = 0; i < scope; i++)
            tern_scope_end(ctx, NULL);
        tern_memory_trim(ctx);
        assert_true(tern_memory_used(ctx) <= idle + 8192); /* the list of tensors in a scope */
        tern_context_destroy(&ctx);
    }
}

/* A whole job runs: every shape of every layer fits. */
static void whole_pictures_run(void **state)
{
    static const char *const models[] = {"sd1", "sd1-heads", "sdxl"};
    char path[PATH_SIZE];
    for (int i = 0; i < 3; i++) {
        struct tern_context *ctx = null_context(0);
        struct tern_pipeline *p = model_load(ctx, model_path(models[i], path));
        struct tern_images *images =
            tern_generate(p, &tern_txt2img_params(.prompt = "x", .width = 88, .height = 40, .steps = 2, .count = 2));
        if (!images)
            fail_msg("%s", tern_error(ctx));
        assert_int_equal(tern_images_count(images), 2);
        assert_int_equal(tern_image_width(tern_images_at(images, 1)), 88);
        assert_int_equal(tern_image_height(tern_images_at(images, 1)), 40);
        assert_int_equal(tern_image_data(tern_images_at(images, 1))[0], 128); /* zero, read back */
        assert_true(ctx->device->queue->launches > 200);
        assert_int_equal(ctx->host->queue->launches, 0);
        tern_images_destroy(&images);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
}

/* ---- prediction against measurement */

struct job {
    const char *model;
    int width, height, count;
    bool image, keep;
    enum tern_dtype dtype;
};

/* Predicted bytes per measured byte of one job. */
static double predict_and_run(struct tern_context *ctx, struct tern_pipeline *p, const struct tern_txt2img_params *q, const struct job *j)
{
    size_t predicted = 0;
    tern_memory_trim(ctx);
    tern_memory_reset_peak(ctx); /* the plans are made when the job is checked */
    assert_int_equal(tern_generate_check(p, q, &predicted), TERN_OK);
    struct tern_images *images = tern_generate(p, q);
    assert_non_null(images);
    size_t measured = tern_memory_peak(ctx);
    double ratio = (double)predicted / (double)measured;
    if (ratio < 1 || ratio > 1.6)
        fail_msg("%s %d x %d, %d pictures, %s: predicted %zu bytes, measured %zu", j->model, j->width, j->height, j->count,
                 tern_dtype_name(j->dtype), predicted, measured);
    tern_images_destroy(&images);
    return ratio;
}

static double check_prediction(const struct job *j, int threads)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = model_context(NULL, threads);
    struct tern_pipeline_params params = {.dtype = j->dtype, .keep_text_encoder = j->keep};
    struct tern_pipeline *p = tern_pipeline_load(ctx, model_path(j->model, path), &params);
    assert_non_null(p);
    struct tern_image *init = j->image ? tern_image_create(ctx, j->width + 8, j->height, NULL) : NULL;
    struct tern_txt2img_params q = {
        .prompt = "x", .width = j->width, .height = j->height, .count = j->count, .steps = 3, .seed = 1, .init_image = init, .strength = 1};
    double first = predict_and_run(ctx, p, &q, j), again = predict_and_run(ctx, p, &q, j); /* again: now that all weights are packed */
    tern_image_destroy(&init);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return again > first ? again : first;
}

static void predictions_hold(void **state)
{
    static const struct job jobs[] = {
        {"sd1", 16, 16, 1, false, false, TERN_F32},       {"sd1", 48, 40, 3, false, false, TERN_F32},
        {"sd1", 128, 96, 1, true, false, TERN_F32},       {"sd1", 128, 96, 2, true, true, TERN_F32},
        {"sd1-heads", 48, 40, 1, false, false, TERN_F32}, {"sd1-heads", 200, 120, 2, false, true, TERN_F32},
        {"sd1", 96, 96, 1, false, false, TERN_BF16},      {"sd1", 96, 96, 1, false, false, TERN_F16},
        {"sd1-heads", 96, 96, 1, true, false, TERN_BF16}, {"demo", 64, 64, 1, false, false, TERN_F32},
        {"sdxl", 48, 40, 1, false, false, TERN_F32},      {"sdxl", 96, 96, 2, true, true, TERN_F32},
        {"sdxl", 200, 120, 1, false, false, TERN_F16},    {"demo", 128, 128, 1, true, false, TERN_F32},
        {"demo", 256, 256, 1, false, false, TERN_F32},
    };
    double least = 9, most = 0;
    for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++) {
        double ratio = check_prediction(&jobs[i], 1 + i % 2);
        least = ratio < least ? ratio : least;
        most = ratio > most ? ratio : most;
    }
    print_message("predicted / measured: %.3f to %.3f\n", least, most);
}

/* A prediction changes nothing: not the peak, not what is held, not the launches, not the pictures. */
static void predicting_leaves_no_trace(void **state)
{
    char path[PATH_SIZE];
    size_t predicted = 0, once = 0;
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    struct tern_txt2img_params q = {.width = 64, .height = 64, .steps = 2};
    assert_int_equal(tern_generate_check(p, &q, &once), TERN_OK);
    size_t used = tern_memory_used(ctx), peak = tern_memory_peak(ctx);
    uint64_t launches = ctx->device->queue->launches;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tern_generate_check(p, &q, &predicted), TERN_OK);
        assert_int_equal(predicted, once);
    }
    assert_int_equal(tern_memory_used(ctx), used);
    assert_int_equal(tern_memory_peak(ctx), peak);
    assert_int_equal(ctx->device->queue->launches, launches);
    assert_ptr_equal(ctx->device, ctx->host);
    struct tern_images *first = job_run(ctx, p, &q); /* afterwards the text encoder has to be made again */
    assert_int_equal(tern_generate_check(p, &q, &predicted), TERN_OK);
    struct tern_images *second = job_run(ctx, p, &q);
    assert_true(job_same(first, 0, second));
    tern_images_destroy(&first);
    tern_images_destroy(&second);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_right_and_launches_counted),
        cmocka_unit_test(memory_is_counted_not_taken),
        cmocka_unit_test(memory_comes_back),
        cmocka_unit_test(budgets_hold),
        cmocka_unit_test(unwritten_tensors_are_none),
        cmocka_unit_test(whole_pictures_run),
        cmocka_unit_test(predictions_hold),
        cmocka_unit_test(predicting_leaves_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

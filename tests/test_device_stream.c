/* Weights that are streamed to a GPU, and what fails on the way of weights that do not fit: the same bits or a status, and nothing left.
 * The argument is the device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "cuda_help.h"
#include "gpu_help.h"
#include "model_help.h"
#include "room_help.h"
#include "support.h"
#include "vulkan_help.h"

/* Weights that are not kept are copied for each step that reads them: as many bytes on the device as was asked for, the same bits, and
 * nothing allocated by a second run. */
static void weights_are_streamed(void **state)
{
    char path[PATH_SIZE];
    room_compute_expected();
    size_t whole = 0;
    for (int part = 1; part <= 3; part++) { /* all, half, none of what could be kept */
        struct tern_context *ctx = room_open(0, NULL);
        struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
        const struct tern_stage stage = {.component = "unet",
                                         .size = room_size,
                                         .resident = part == 1   ? SIZE_MAX / 2
                                                     : part == 2 ? whole / 2
                                                                 : 1};
        struct tern_binding *b = tern_pipeline_binding(p, &stage);
        if (!b)
            fail_msg("%s", tern_error(ctx));
        struct tern_plan_facts facts = tern_plan_facts(tern_binding_plan(b));
        static float found[ROOM_VALUES];
        size_t at[2];
        model_run(b, found, sizeof(found));
        assert_true(support_nmse(found, room_expected, ROOM_VALUES) < 1e-11); /* layers of one input are not made one: other sums */
        uint64_t allocations = tern_memory_allocations(ctx);
        tern_tensor *in[TERN_GRAPH_MAX_IO] = {NULL}, *out[TERN_GRAPH_MAX_IO] = {NULL};
        model_inputs(b, in);
        for (int run = 0; run < 3; run++) {
            assert_int_equal(tern_plan_run(b, in, out), TERN_OK);
            assert_true(run < 2 || tern_memory_allocations(ctx) == allocations); /* the second one is captured */
            allocations = tern_memory_allocations(ctx);
        }
        assert_int_equal(tern_tensor_read(out[0], TERN_F32, found, sizeof(found)), TERN_OK);
        assert_true(support_nmse(found, room_expected, ROOM_VALUES) < 1e-11);
        room_count_weights(ctx, at);
        print_message("%zu bytes kept, %d steps streamed, %zu bytes of weights there, an arena of %zu\n", facts.resident, facts.streamed,
                      at[0], facts.arena);
        whole = part == 1 ? facts.resident : whole;
        assert_int_equal(facts.streamed == 0, part == 1);
        assert_true(facts.resident <= (part == 1 ? room_all_weights : part == 2 ? whole / 2 : 0));
        assert_true(at[0] <= facts.resident + 40 * 1024); /* vectors are the module's own, and there before */
        for (int i = 0; i < TERN_GRAPH_MAX_IO; i++) {
            tern_tensor_unref(&in[i]);
            tern_tensor_unref(&out[i]);
        }
        tern_binding_unref(&b);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
}

/* A picture by the demo model under a budget of the context; what it was predicted to need, and what it took. */
static struct tern_image *paint(size_t budget, enum tern_offload offload, size_t *need, size_t *peak)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = tern_context_create(&(
        const struct tern_context_params){.device = room_device, .threads = 2, .budget = budget, .cache_dir = room_cache, .log = room_log});
    struct tern_pipeline *p = tern_pipeline_load(ctx, model_path("demo", path), &(const struct tern_pipeline_params){.offload = offload});
    const struct tern_txt2img_params q = {.prompt = "a star", .width = 64, .height = 64, .steps = 1, .seed = 5};
    if (!p || tern_generate_check(p, &q, need))
        fail_msg("%s", tern_error(ctx));
    tern_memory_trim(ctx);
    tern_memory_reset_peak(ctx);
    struct tern_image *image = peak ? tern_txt2img(p, &q) : NULL;
    if (peak && !image)
        fail_msg("%s", tern_error(ctx));
    if (peak)
        *peak = tern_memory_peak(ctx);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return image;
}

/* A budget that does not hold the weights has them streamed. */
static void the_budget_streams(void **state)
{
    tern_context_destroy(&(struct tern_context *){room_open(0, NULL)});
    size_t sequential, streamed, need, peak, whole;
    paint(0, TERN_OFFLOAD_SEQUENTIAL, &sequential, NULL);
    paint(0, TERN_OFFLOAD_STREAM, &streamed, NULL);
    struct tern_image *a = paint(0, TERN_OFFLOAD_NONE, &need, &whole);
    print_message("predicted: %zu sequential, %zu streamed\n", sequential, streamed);
    assert_true(streamed + (4 << 20) < sequential);
    const size_t budget = streamed + (3 << 20); /* plans that were tried */
    struct tern_image *b = paint(budget, TERN_OFFLOAD_AUTO, &need, &peak);
    print_message("%zu bytes whole, %zu in %zu\n", whole, peak, budget);
    gpu_compare(a, b);
    assert_true(need <= budget && peak <= budget && peak < sequential);
    tern_image_destroy(&a);
    tern_image_destroy(&b);
}

/* A UNet that the device's own memory does not hold streams, though the host's memory would hold the rest; asked to stay, it lies there. */
static void what_the_device_does_not_hold_streams(void **state)
{
    static const enum tern_offload ways[] = {TERN_OFFLOAD_AUTO, TERN_OFFLOAD_NONE, TERN_OFFLOAD_AUTO};
    const struct tern_txt2img_params q = {.prompt = "a star", .width = 64, .height = 64, .steps = 1, .seed = 5};
    char path[PATH_SIZE];
    size_t streamed, whole, told = 0;
    tern_context_destroy(&(struct tern_context *){room_open(0, NULL)});
    paint(0, TERN_OFFLOAD_STREAM, &streamed, NULL);
    struct tern_image *expected = paint(0, TERN_OFFLOAD_NONE, &whole, &(size_t){0});
    const size_t share = streamed + (3 << 20);
    char limits[40]; /* both kinds of memory hold the job, but not beside the plans of a check */
    snprintf(limits, sizeof(limits), "host=%zu", whole + (1 << 20) - share);
    for (int i = 0; i < 3; i++) {
        struct tern_context *ctx = room_open(share, i == 2 ? limits : NULL);
        struct tern_pipeline *p =
            tern_pipeline_load(ctx, model_path("demo", path), &(const struct tern_pipeline_params){.offload = ways[i]});
        const bool good = p && (i < 2 || !tern_generate_check(p, &q, &told));
        struct tern_image *image = good ? tern_txt2img(p, &q) : NULL;
        if (!image)
            fail_msg("%s", tern_error(ctx));
        gpu_compare(expected, image);
        assert_int_equal(room_times_told, ways[i] == TERN_OFFLOAD_NONE); /* that kernels read some over the bus */
        tern_image_destroy(&image);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
    tern_image_destroy(&expected);
}

/* A budget that holds the UNet or the VAE, not both: the second picture, before which neither is in memory, goes the same way. */
static void the_budget_holds_a_second_time(void **state)
{
    char path[PATH_SIZE];
    tern_context_destroy(&(struct tern_context *){room_open(0, NULL)});
    size_t sequential, whole, need[2];
    paint(0, TERN_OFFLOAD_SEQUENTIAL, &sequential, NULL);
    paint(0, TERN_OFFLOAD_NONE, &whole, NULL);
    const size_t budget = whole - (whole - sequential) / 4; /* with plans that were tried */
    struct tern_context *ctx = room_open(0, NULL);
    struct tern_pipeline *p = model_load(ctx, model_path("demo", path));
    ctx->params.budget = budget;
    for (int picture = 0; picture < 2; picture++) {
        const struct tern_txt2img_params q = {.prompt = "a star", .width = 64, .height = 64, .steps = 1, .seed = 5};
        struct tern_image *image = tern_generate_check(p, &q, &need[picture]) ? NULL : tern_txt2img(p, &q);
        if (!image)
            fail_msg("picture %d: %s", picture, tern_error(ctx));
        tern_image_destroy(&image);
    }
    print_message("%zu and %zu bytes predicted in %zu, %zu sequential, %zu whole\n", need[0], need[1], budget, sequential, whole);
    assert_true(need[0] + 8192 >= sequential); /* nothing was streamed; a budget counts no cache of plans */
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* What is predicted is enough for a first picture and for the next, tables of kernels included. */
static void the_predicted_budget_is_enough(void **state)
{
    static const struct tern_pipeline_params ways[] = {{.offload = TERN_OFFLOAD_SEQUENTIAL},
                                                       {.offload = TERN_OFFLOAD_STREAM},
                                                       {.offload = TERN_OFFLOAD_STREAM, .quantize = "*:w4"}};
    const bool quick = room_is("cuda");
    const int side = quick ? 128 : 64, rows = quick ? 3 : 2; /* the decoder's kernels take the most; the others need long for it */
    const struct tern_txt2img_params q = {.prompt = "a star", .width = side, .height = side, .steps = 1, .seed = 5};
    char path[PATH_SIZE];
    for (int i = 0; i < rows; i++) {
        struct tern_context *ctx = room_open(0, NULL);
        struct tern_pipeline *p = tern_pipeline_load(ctx, model_path("sd1", path), &ways[i]);
        for (int picture = 0; picture < 2; picture++) {
            size_t need = 0;
            if (!p || tern_generate_check(p, &q, &need))
                fail_msg("%s", tern_error(ctx));
            tern_memory_reset_peak(ctx);
            ctx->params.budget = need;
            struct tern_image *image = tern_txt2img(p, &q);
            if (!image)
                fail_msg("way %d, picture %d, within %zu bytes: %s", i, picture, need, tern_error(ctx));
            print_message("%zu bytes predicted, %zu taken\n", need, tern_memory_peak(ctx));
            tern_image_destroy(&image);
            ctx->params.budget = 0;
        }
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
}

/* Opens, binds and runs; true when all of it went well. */
static bool whole(size_t budget, const struct tern_allocator *a)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = room_try_open(budget, NULL, a);
    struct tern_pipeline *p = ctx ? tern_pipeline_load(ctx, model_path("sd1", path), NULL) : NULL;
    const struct tern_stage stage = {.component = "unet", .size = room_size};
    struct tern_binding *b = p ? tern_pipeline_binding(p, &stage) : NULL;
    static float found[ROOM_VALUES];
    bool good = b && !tern_failed(ctx) && model_try_run(b, found, sizeof(found));
    if (good)
        assert_memory_equal(found, room_expected, sizeof(found));
    if (!good)
        snprintf(room_told, sizeof(room_told), "%s", ctx ? tern_error(ctx) : tern_create_error());
    assert_true(good || !ctx || tern_error_status(ctx) == TERN_E_NO_MEMORY || tern_error_status(ctx) == TERN_E_DEVICE);
    tern_binding_unref(&b);
    if (p)
        tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return good;
}

/* The driver has no host memory for weights, or has it only for the first. */
static void host_memory_fails(void **state)
{
    room_compute_expected();
    if (!strcmp(room_device, "cuda")) {
        static const char *const functions[] = {"cuMemHostAlloc", "cuMemHostGetDevicePointer_v2", "cuMemcpyDtoHAsync_v2",
                                                "cuMemcpyHtoDAsync_v2"};
        for (int f = 0; f < 4; f++)
            for (int nth = 1; nth < 12; nth += 5) {
                cuda.standin_fail(functions[f], nth, CUDA_ERROR_OUT_OF_MEMORY);
                whole(room_budget(50), NULL);
                char text[400];
                if (cuda.standin_misuses(text, sizeof(text)) || cuda.standin_leaks(text, sizeof(text)))
                    fail_msg("%s, call %d: %s", functions[f], nth, text);
                cuda_setup(NULL);
            }
    } else if (!strcmp(room_device, "vulkan")) {
        for (long nth = 1; nth < 12; nth += 2) {
            *vulkan_shim() = (struct vulkan_shim){.discrete = true,
                                                  .fail_at = nth,
                                                  .fail_of = "vkAllocateMemory",
                                                  .fail_with = VULKAN_SHIM_OUT_OF_MEMORY,
                                                  .stays_lost = nth % 4 == 1};
            whole(room_budget(50), NULL);
            assert_int_equal(vulkan_shim()->live, 0);
        }
    } else {
        print_message("the loader of OpenCL has no stand-in whose calls could fail\n");
        skip();
    }
}

/* Allocations of the library fail on the way. */
static void allocations_fail(void **state)
{
    room_compute_expected();
    struct support_allocator m = {0};
    struct tern_allocator a = support_failing(&m);
    if (!whole(room_budget(50), &a))
        fail_msg("%s", room_told);
    const long all = m.count;
    int failed = 0;
    for (long n = 1; n < all; n += all / 12) {
        m = (struct support_allocator){.fail_at = n};
        failed += !whole(room_budget(50), &a);
        assert_int_equal(m.live, 0);
    }
    assert_true(failed > 8); /* what fails while it closes fails nothing */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {ROOM_CASE(weights_are_streamed),
                                       ROOM_CASE(the_budget_streams),
                                       ROOM_CASE(what_the_device_does_not_hold_streams),
                                       ROOM_CASE(the_budget_holds_a_second_time),
                                       ROOM_CASE(the_predicted_budget_is_enough),
                                       ROOM_CASE(host_memory_fails),
                                       ROOM_CASE(allocations_fail)};
    room_device = argc > 1 ? argv[1] : "cuda";
    return cmocka_run_group_tests(tests, room_group_setup, room_group_teardown);
}

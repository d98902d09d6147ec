/* Weights that do not fit a GPU's memory: the same bits as when they fit, weights and never activations lie in the host's memory, whatever
 * came first, and what nobody can place is refused with the figures. The argument is the device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "cuda_help.h"
#include "model_help.h"
#include "room_help.h"
#include "support.h"
#include "vulkan_help.h"

static void weights_lie_where_there_is_room(void **state)
{
    room_compute_expected();
    for (int percent = 60; percent >= 0; percent -= 60) {
        struct tern_context *ctx = room_open(room_budget(percent), NULL);
        struct room_unet u = room_open_unet(ctx);
        assert_int_equal(u.weights, room_all_weights);
        for (int run = 0; run < 4; run++) { /* plain, captured, replayed */
            room_expect_bits(&u);
            room_check_places(ctx, &u);
        }
        size_t on_host = room_memory(ctx)->on_host, most = room_all_weights - room_all_weights / 100 * (size_t)percent;
        print_message("%d %%: %zu bytes on the host\n", percent, on_host);
        assert_true(on_host <= most && on_host + 96 * 1024 > most);
        assert_int_equal(room_times_told, 1);
        size_t said = strtoul(room_told + strlen(room_device) + 2, NULL, 10); /* before the result took its place */
        assert_true(said <= on_host && said + 32 * 1024 > on_host);
        room_close_unet(&u);
        assert_int_equal(room_memory(ctx)->on_host, 0);
        assert_int_equal(room_memory(ctx)->on_device, room_arena); /* of the plan that the context keeps */
        tern_context_destroy(&ctx);
    }
}

static void check_on_device(const struct tern_binding *b)
{
    for (int i = 0; i < b->plan->graph->n_values; i++)
        if (b->at[i].buffer && b->at[i].buffer->device == b->plan->ctx->device) /* not what only preparations read */
            assert_false(((struct tern_gpu_buffer *)b->at[i].buffer)->on_host);
}

/* A run on a device with that much memory, whose driver says so or not; what was open to the share then. */
static size_t run_in_little(size_t bytes, size_t budget)
{
    if (!strcmp(room_device, "cuda")) {
        struct standin_facts f = cuda_facts();
        f.memory = bytes;
        cuda.standin_set_facts(&f);
    } else {
        vulkan_shim()->local_bytes = bytes;
        vulkan_shim()->heap_bytes = budget ? 0 : bytes + bytes / 2;
        vulkan_shim()->free_bytes = budget ? 0 : bytes;
    }
    struct tern_context *ctx = room_open(budget, NULL);
    const size_t share = ctx->device->caps.memory;
    struct room_unet u = room_open_unet(ctx);
    for (int run = 0; run < 3; run++) {
        room_expect_bits(&u);
        room_check_places(ctx, &u);
    }
    assert_true(room_memory(ctx)->on_host > 0);
    print_message("%zu bytes on the device, %zu on the host\n", room_memory(ctx)->on_device, room_memory(ctx)->on_host);
    room_close_unet(&u);
    tern_context_destroy(&ctx);
    return share;
}

/* The share is what the driver has free, less a sixteenth; and where it has less than was given, that is found when it ends. */
static void the_driver_decides(void **state)
{
    room_compute_expected();
    const size_t bytes = room_budget(60), generous = (size_t)1 << 40;
    if (!strcmp(room_device, "opencl")) {
        print_message("drivers of OpenCL have no figure to lower\n");
        skip();
    }
    size_t share = run_in_little(bytes, 0);
    assert_int_equal(share, !strcmp(room_device, "cuda") || vulkan_shim()->tells_free ? bytes - bytes / 16 : (bytes + bytes / 2) / 4 * 3);
    assert_int_equal(run_in_little(bytes, generous), generous);
}

/* What comes later and runs has the device's memory: weights leave, captures notice, and weights come back when it has gone. */
static void activations_come_first(void **state)
{
    room_compute_expected();
    struct tern_context *ctx = room_open(room_budget(200), NULL);
    struct room_unet u = room_open_unet(ctx);
    for (int run = 0; run < 3; run++)
        room_expect_bits(&u);
    assert_int_equal(room_memory(ctx)->on_host, 0);
    const int64_t half = (int64_t)(room_all_weights / 10 * 14 / sizeof(float));
    tern_tensor *big = tern_tensor_create(ctx, TERN_F32, 1, &half, NULL);
    assert_non_null(big);
    assert_false(((struct tern_gpu_buffer *)big->buffer)->on_host);
    assert_true(room_memory(ctx)->on_host > room_all_weights / 10);
    for (int run = 0; run < 3; run++)
        room_expect_bits(&u);
    assert_true(room_memory(ctx)->on_host > room_all_weights / 10);
    tern_tensor_unref(&big);
    tern_plan_trim(tern_binding_plan(u.b)); /* the next run takes memory anew */
    room_expect_bits(&u);
    room_check_places(ctx, &u);
    check_on_device(u.b);
    room_close_unet(&u);
    tern_context_destroy(&ctx);
}

/* Runs with memory that stays are replayed. When weights were moved, the old launches are not run again. */
static void replays_notice(void **state)
{
    room_compute_expected();
    static float found[ROOM_VALUES];
    struct tern_context *ctx = room_open(room_budget(200), NULL);
    struct tern_queue *q = ctx->device->queue;
    struct room_unet u = room_open_unet(ctx);
    tern_tensor *in[TERN_GRAPH_MAX_IO] = {NULL}, *out[TERN_GRAPH_MAX_IO] = {NULL}, *big = NULL;
    const int64_t most = (int64_t)(room_all_weights / 10 * 14 / sizeof(float)), few = 3;
    model_inputs(u.b, in);
    for (int run = 0; run < 10; run++) {
        if (run == 4)
            big = tern_tensor_create(ctx, TERN_F32, 1, &most, NULL);
        assert_int_equal(tern_plan_run(u.b, in, out), TERN_OK);
        assert_int_equal(tern_tensor_read(out[0], TERN_F32, found, sizeof(found)), TERN_OK);
        assert_memory_equal(found, room_expected, sizeof(found));
    }
    assert_true(room_memory(ctx)->on_host > 0);
    for (int i = 0; i < TERN_GRAPH_MAX_IO; i++) {
        tern_tensor_unref(&in[i]);
        tern_tensor_unref(&out[i]);
    }
    if (q->fns->capture_begin) { /* and by itself */
        tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 1, &few, NULL), *y = tern_exp(x), *z = NULL;
        assert_int_equal(q->fns->capture_begin(q), TERN_OK);
        z = tern_exp(y);
        struct tern_capture *c = q->fns->capture_end(q);
        assert_int_equal(q->fns->replay(q, c), TERN_OK);
        assert_false(c->stale);
        tern_tensor_unref(&big);
        tern_plan_trim(tern_binding_plan(u.b));
        room_expect_bits(&u); /* weights come back */
        const uint64_t launches = q->launches;
        assert_int_equal(q->fns->replay(q, c), TERN_OK);
        assert_true(c->stale);
        assert_int_equal(q->launches, launches);
        c->fns->destroy(c);
        tern_tensor_unref(&x);
        tern_tensor_unref(&y);
        tern_tensor_unref(&z);
    }
    tern_tensor_unref(&big);
    room_close_unet(&u);
    tern_context_destroy(&ctx);
}

/* Of two networks the one that runs has the device's memory. */
static void who_runs_comes_first(void **state)
{
    room_compute_expected();
    static float picture[3 * ROOM_SIDE * ROOM_SIDE];
    struct tern_context *ctx = room_open(0, NULL);
    struct room_unet u = room_open_unet(ctx);
    const struct tern_stage stage = {.component = "vae_decoder", .size = room_size};
    struct tern_binding *vae = tern_pipeline_binding(u.p, &stage);
    const size_t budget = room_all_weights + room_arena + tern_plan_facts(tern_binding_plan(vae)).arena;
    tern_binding_unref(&vae);
    room_close_unet(&u);
    tern_context_destroy(&ctx);
    ctx = room_open(budget, NULL); /* either fits beside its room_arena; both do not */
    u = room_open_unet(ctx);
    vae = tern_pipeline_binding(u.p, &stage);
    for (int turn = 0; turn < 2; turn++) {
        room_expect_bits(&u);
        check_on_device(u.b);
        tern_plan_trim(tern_binding_plan(u.b));
        model_run(vae, picture, sizeof(picture));
        check_on_device(vae);
        tern_plan_trim(tern_binding_plan(vae));
    }
    tern_binding_unref(&vae);
    room_close_unet(&u);
    tern_context_destroy(&ctx);
}

static void too_little_is_refused(void **state)
{
    char path[PATH_SIZE], text[100];
    room_compute_expected();
    struct tern_context *ctx = room_open(room_budget(20), "host=64K");
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    const struct tern_stage stage = {.component = "unet", .size = room_size};
    assert_non_null(tern_pipeline_plan(p, &stage));
    const size_t before = room_memory(ctx)->on_device;
    assert_null(tern_pipeline_binding(p, &stage));
    assert_int_equal(room_memory(ctx)->on_device, before); /* nothing was copied */
    snprintf(text, sizeof(text), "whose share of its memory is %zu bytes, with 65536 of the host's", room_budget(20));
    support_error(ctx, TERN_E_NO_MEMORY, text);
    /* a whole job, before its first stage */
    const struct tern_txt2img_params q = {.prompt = "x", .width = ROOM_SIDE, .height = ROOM_SIDE, .steps = 2};
    assert_null(tern_generate(p, &q));
    assert_true(room_memory(ctx)->on_device <= before); /* nor now; the UNet that was used has left before the job was to begin */
    snprintf(text, sizeof(text), "is %zu and 65536 bytes; a smaller size", room_budget(20));
    support_error(ctx, TERN_E_NO_MEMORY, text);
    tern_pipeline_destroy(&p);
    /* an activation that neither has room for */
    const int64_t n = (int64_t)room_budget(20);
    assert_null(tern_tensor_create(ctx, TERN_F32, 1, &n, NULL));
    support_error(ctx, TERN_E_NO_MEMORY, "of the host's 0 of 65536; a smaller picture");
    tern_context_destroy(&ctx);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {ROOM_CASE(weights_lie_where_there_is_room),
                                       ROOM_CASE(the_driver_decides),
                                       ROOM_CASE(activations_come_first),
                                       ROOM_CASE(replays_notice),
                                       ROOM_CASE(who_runs_comes_first),
                                       ROOM_CASE(too_little_is_refused)};
    room_device = argc > 1 ? argv[1] : "cuda";
    return cmocka_run_group_tests(tests, room_group_setup, room_group_teardown);
}

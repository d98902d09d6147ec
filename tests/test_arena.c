/* Places of a plan's memory: no overlap, as small as claimed, and never across two windows of a device with small buffers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/tensor.h>

#include "core/context.h"
#include "graph/arena.h"
#include "graph/plan.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "support.h"

#define MOST 60

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

static int random_blocks(uint64_t seed, size_t largest, struct tern_block *b)
{
    uint64_t state = seed;
    int n = 1 + (int)draw(&state, MOST);
    for (int i = 0; i < n; i++) {
        int first = (int)draw(&state, 40);
        b[i] = (struct tern_block){.size = draw(&state, (uint32_t)largest + 1), .first = first, .last = first + (int)draw(&state, 12)};
    }
    return n;
}

/* By the definition, byte by byte of the claim: a checker that shares nothing with the planner. */
static void check_places(const struct tern_block *b, int n, size_t window, size_t size)
{
    size_t end = 0;
    for (int i = 0; i < n; i++) {
        size_t room = (b[i].size + 63) / 64 * 64;
        assert_int_equal(b[i].offset % 64, 0);
        end = b[i].offset + room > end ? b[i].offset + room : end;
        if (window && room)
            assert_int_equal(b[i].offset / window, (b[i].offset + room - 1) / window);
        for (int k = 0; k < i; k++) {
            bool together = b[i].first <= b[k].last && b[k].first <= b[i].last;
            bool apart = b[i].offset + room <= b[k].offset || b[k].offset + (b[k].size + 63) / 64 * 64 <= b[i].offset;
            assert_true(!together || apart);
        }
    }
    assert_int_equal(size, end);
}

static void blocks_never_lie_in_two_windows(void **state)
{
    struct tern_context *ctx = *state;
    static const size_t windows[] = {0, 4096, 5120, 65536};
    struct tern_block b[MOST];
    for (uint64_t seed = 1; seed <= 300; seed++)
        for (int w = 0; w < 4; w++) {
            size_t least, again;
            int n = random_blocks(seed, 4096, b);
            size_t size = tern_arena_place(ctx, b, n, windows[w], &least);
            check_places(b, n, windows[w], size);
            assert_true(size >= least);
            assert_int_equal(tern_arena_check(b, n, windows[w], &again), size);
            assert_int_equal(again, least);
        }
}

static void wrong_places_are_found(void **state)
{
    size_t least;
    struct tern_block b[2] = {{.size = 4096, .first = 0, .last = 3, .offset = 64}, {.size = 64, .first = 1, .last = 1, .offset = 0}};
    assert_int_equal(tern_arena_check(b, 2, 0, &least), 4160);
    assert_int_equal(tern_arena_check(b, 2, 4096, &least), SIZE_MAX); /* the first begins in one window and ends in the next */
    b[0].offset = 4096;
    assert_int_equal(tern_arena_check(b, 2, 4096, &least), 8192);
}

static void what_no_buffer_holds_has_no_place(void **state)
{
    struct tern_context *ctx = *state;
    size_t least;
    struct tern_block b[2] = {{.size = 64}, {.size = 4097, .first = 7, .last = 7}};
    assert_int_equal(tern_arena_place(ctx, b, 2, 4096, &least), SIZE_MAX);
    assert_int_equal(tern_error_status(ctx), TERN_OK); /* another plan may do */
    assert_int_equal(tern_arena_window(4100), 4096);
    assert_int_equal(tern_arena_window(0), 0);
}

static void what_begins_is_within_reach(void **state)
{
    const struct tern_block b[2] = {{.size = 1000}, {.size = 2000, .first = 7, .last = 7}};
    assert_int_equal(tern_arena_window_for(b, 2, 0, 0), 0);
    assert_int_equal(tern_arena_window_for(b, 2, 100000, 0), 99968);
    assert_int_equal(tern_arena_window_for(b, 2, 100000, 4100), 4096);
    assert_int_equal(tern_arena_window_for(b, 2, 0, 4100), 4096);
    assert_int_equal(tern_arena_window_for(b, 2, 100000, 1500), 2048); /* a block begins where its window does */
    assert_int_equal(tern_arena_window_for(b, 2, 3000, 4100), 2944);
    assert_int_equal(tern_arena_window_for(b, 2, 1024, 4100), 1024); /* and one block has no place */
}

static size_t largest_block(const struct tern_plan *p)
{
    size_t most = 64;
    for (int i = 0; i < p->n_blocks; i++)
        most = p->blocks[i].size > most ? p->blocks[i].size : most;
    return (most + 63) / 64 * 64;
}

#define SIDE 32

enum device { USUAL, SMALL_BUFFERS, SHORT_REACH }; /* buffers that hold no more than the largest result; of which no more is reached */

/* The UNet of a small model. */
static void run_unet(enum device device, float *result, size_t bytes)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cache_dir = "/proc/none"});
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    const struct tern_stage stage = {.component = "unet", .size = {1, 8 * SIDE, 8 * SIDE}};
    struct tern_plan *plan = tern_pipeline_plan(p, &stage);
    size_t window = largest_block(plan), arena = plan->facts.arena;
    assert_true(window < arena);
    if (device != USUAL) {
        tern_pipeline_drop_plans(p);
        *(device == SMALL_BUFFERS ? &ctx->device->caps.max_buffer : &ctx->device->caps.max_start) = window;
    }
    struct tern_binding *b = tern_pipeline_binding(p, &stage);
    assert_non_null(b);
    assert_int_equal(tern_binding_plan(b)->window, device == USUAL ? 0 : window);
    model_run(b, result, bytes);
    tern_binding_unref(&b);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

static void a_plan_runs_in_many_buffers(void **state)
{
    static float whole[4 * SIDE * SIDE], parts[4 * SIDE * SIDE];
    run_unet(USUAL, whole, sizeof(whole));
    for (enum device d = SMALL_BUFFERS; d <= SHORT_REACH; d++) {
        run_unet(d, parts, sizeof(parts));
        assert_memory_equal(whole, parts, sizeof(whole));
    }
    assert_true(whole[0] != 0);
}

/* Bands do not help a UNet. */
static void what_has_no_place_is_refused(void **state)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cache_dir = "/proc/none"});
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    const struct tern_stage stage = {.component = "unet", .size = {1, 8 * SIDE, 8 * SIDE}};
    ctx->device->caps.max_buffer = 5000;
    assert_null(tern_pipeline_plan(p, &stage));
    support_error(ctx, TERN_E_NO_MEMORY, "and the device has buffers of at most 4992; a smaller picture");
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(blocks_never_lie_in_two_windows, support_setup, support_teardown),
        cmocka_unit_test_setup_teardown(wrong_places_are_found, support_setup, support_teardown),
        cmocka_unit_test_setup_teardown(what_no_buffer_holds_has_no_place, support_setup, support_teardown),
        cmocka_unit_test(what_begins_is_within_reach),
        cmocka_unit_test(a_plan_runs_in_many_buffers),
        cmocka_unit_test(what_has_no_place_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

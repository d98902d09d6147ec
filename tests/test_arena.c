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
        b[i] = (struct tern_block){.size = 1 + draw(&state, (uint32_t)largest), .first = first, .last = first + (int)draw(&state, 12)};
    }
    return n;
}

/* By the definition, byte by byte of the claim: a checker that shares nothing with the planner. */
static void check_places(const struct tern_block *b, int n, struct tern_arena_limits l, size_t size, const size_t *used)
{
    size_t ends[MOST] = {0}, sum = 0;
    for (int i = 0; i < n; i++) {
        size_t room = (b[i].size + 63) / 64 * 64, w = l.window ? l.window : SIZE_MAX, k = b[i].offset / w, begin = b[i].offset % w;
        assert_int_equal(b[i].offset % 64, 0);
        assert_true(begin + room <= w && (!l.reach || !begin || begin + room <= l.reach) && k < (size_t)n);
        ends[k] = begin + room > ends[k] ? begin + room : ends[k];
        for (int j = 0; j < i; j++) {
            bool together = b[i].first <= b[j].last && b[j].first <= b[i].last;
            bool apart = b[i].offset + room <= b[j].offset || b[j].offset + (b[j].size + 63) / 64 * 64 <= b[i].offset;
            assert_true(!together || apart);
        }
    }
    for (int k = 0; k < n; k++)
        sum += ends[k];
    assert_memory_equal(used, ends, (size_t)n * sizeof(*used));
    assert_int_equal(size, sum);
}

static void blocks_keep_to_windows_and_reach(void **state)
{
    struct tern_context *ctx = *state;
    static const struct tern_arena_limits limits[] = {{0},         {4096},       {5120},        {65536},
                                                      {4096, 500}, {8192, 4096}, {65536, 2000}, {(size_t)1 << 40, 10000}};
    struct tern_block b[MOST];
    for (uint64_t seed = 1; seed <= 200; seed++)
        for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
            size_t least, again, used[MOST];
            int n = random_blocks(seed, 4096, b);
            size_t size = tern_arena_place(ctx, b, n, limits[i], used, &least);
            check_places(b, n, limits[i], size, used);
            assert_true(size >= least);
            memset(used, 0xff, sizeof(used));
            assert_int_equal(tern_arena_check(b, n, limits[i], used, &again), size);
            check_places(b, n, limits[i], size, used);
            assert_int_equal(again, least);
        }
}

static void wrong_places_are_found(void **state)
{
    const struct tern_arena_limits one = {0}, small = {.window = 4096}, large = {.window = 8192, .reach = 1024};
    size_t least, used[2];
    struct tern_block b[2] = {{.size = 4096, .first = 0, .last = 3, .offset = 64}, {.size = 64, .first = 1, .last = 1, .offset = 0}};
    assert_int_equal(tern_arena_check(b, 2, one, used, &least), 4160);
    assert_int_equal(tern_arena_check(b, 2, small, used, &least), SIZE_MAX); /* the first begins in one window and ends in the next */
    b[0].offset = 4096;
    assert_int_equal(tern_arena_check(b, 2, small, used, &least), 4160); /* 64 bytes of the first buffer */
    assert_int_equal(tern_arena_check(b, 2, large, used, &least), SIZE_MAX);
    b[0].offset = 960; /* begins within reach and ends behind it */
    assert_int_equal(tern_arena_check(b, 2, large, used, &least), SIZE_MAX);
    b[0].offset = 8192; /* larger than it, and begins where its buffer does */
    assert_int_equal(tern_arena_check(b, 2, large, used, &least), 4160);
    b[1].offset = 960;
    assert_int_equal(tern_arena_check(b, 2, large, used, &least), 1024 + 4096);
    b[1].offset = 1024;
    assert_int_equal(tern_arena_check(b, 2, large, used, &least), SIZE_MAX);
    b[0].offset = 2 * 8192;
    b[1].offset = 0;
    assert_int_equal(tern_arena_check(b, 2, large, used, &least), SIZE_MAX); /* no buffer is empty */
}

static void what_no_buffer_holds_has_no_place(void **state)
{
    struct tern_context *ctx = *state;
    size_t least, used[2];
    struct tern_block b[2] = {{.size = 64}, {.size = 4097, .first = 7, .last = 7}};
    assert_int_equal(tern_arena_place(ctx, b, 2, (struct tern_arena_limits){.window = 4096}, used, &least), SIZE_MAX);
    assert_int_equal(tern_error_status(ctx), TERN_OK); /* another plan may do */
    assert_int_equal(tern_arena_window(4100), 4096);
    assert_int_equal(tern_arena_window(0), 0);
}

/* Three blocks of which two end within reach, and small ones beside one that is larger than it: no more than the blocks need. */
static void reach_takes_no_memory(void **state)
{
    struct tern_context *ctx = *state;
    for (int limited = 0; limited < 2; limited++) {
        const struct tern_arena_limits l = tern_arena_limits(limited ? 100000 : 0, 1700);
        size_t least, used[3];
        struct tern_block same[3] = {{.size = 832}, {.size = 832}, {.size = 832}},
                          large[3] = {{.size = 640}, {.size = 5000}, {.size = 640}};
        assert_int_equal(tern_arena_place(ctx, same, 3, l, used, &least), 3 * 832);
        assert_int_equal(used[0], 2 * 832);
        check_places(same, 3, l, 3 * 832, used);
        check_places(large, 3, l, tern_arena_place(ctx, large, 3, l, used, &least), used);
        assert_int_equal(used[0] + used[1] + used[2], 640 + 640 + 5056);
    }
}

static size_t largest_block(const struct tern_plan *p)
{
    size_t most = 64;
    for (int i = 0; i < p->n_blocks; i++)
        most = p->blocks[i].size > most ? p->blocks[i].size : most;
    return (most + 63) / 64 * 64;
}

#define SIDE 32

enum device {
    USUAL,
    SMALL_BUFFERS,
    SHORT_REACH
}; /* buffers that hold no more than the largest result; of which a quarter of it is reached */

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
        ctx->device->caps.max_buffer = device == SMALL_BUFFERS ? window : 0;
        ctx->device->caps.reach = device == SHORT_REACH ? window / 4 : 0;
    }
    struct tern_binding *b = tern_pipeline_binding(p, &stage);
    assert_non_null(b);
    plan = tern_binding_plan(b);
    assert_true(device == USUAL ? plan->n_buffers == 1 : plan->n_buffers > 1);
    for (int i = 0; i < plan->n_buffers; i++)
        assert_true(device != SMALL_BUFFERS || plan->buffers[i] <= window);
    for (int i = 0; i < plan->n_blocks; i++) {
        const struct tern_plan_block *one = &plan->blocks[i];
        const size_t begin = device == SHORT_REACH ? one->offset % plan->window : 0;
        assert_true(!begin || begin + one->size <= window / 4);
        assert_true(one->at + one->size <= plan->facts.arena);
    }
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
        cmocka_unit_test_setup_teardown(blocks_keep_to_windows_and_reach, support_setup, support_teardown),
        cmocka_unit_test_setup_teardown(wrong_places_are_found, support_setup, support_teardown),
        cmocka_unit_test_setup_teardown(what_no_buffer_holds_has_no_place, support_setup, support_teardown),
        cmocka_unit_test_setup_teardown(reach_takes_no_memory, support_setup, support_teardown),
        cmocka_unit_test(a_plan_runs_in_many_buffers),
        cmocka_unit_test(what_has_no_place_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The Vulkan backend on whatever device the system has (lavapipe: the processor): ops, pictures, plans, captures, its memory, and that
 * the validation layers have nothing to say. All through the stand-in of the loader, which counts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "core/tensor.h"
#include "gpu_help.h"
#include "support.h"
#include "vulkan_help.h"

#define ONE_IN 16 /* checks of single ops: each new variant is compiled; the test opencl has those in between */

static void ops_agree(void **state)
{
    struct tern_context *ctx = vulkan_open_or_skip();
    assert_true(gpu_ops_agree(ctx, "vulkan", 0, ONE_IN) > 100);
    tern_context_destroy(&ctx);
    assert_int_equal(vulkan_shim()->live, 0);
}

static void sines_agree(void **state)
{
    struct tern_context *ctx = vulkan_open_or_skip();
    gpu_sines_agree(ctx);
    tern_context_destroy(&ctx);
}

static void pictures_agree(void **state)
{
    struct tern_context *ctx = vulkan_open_or_skip(), *cpu = support_context();
    struct tern_image *expected = gpu_paint(cpu, "a red circle"), *found = gpu_paint(ctx, "a red circle");
    gpu_compare(expected, found);
    tern_image_destroy(&expected);
    tern_image_destroy(&found);
    tern_context_destroy(&ctx);
    tern_context_destroy(&cpu);
}

static void plans_agree(void **state)
{
    struct tern_context *ctx = vulkan_open_or_skip();
    gpu_plan_agrees(ctx, NULL);
    tern_context_destroy(&ctx);
    assert_int_equal(vulkan_shim()->live, 0);
}

/* y = tanh(y w + x), thirty times: more launches than a batch has. */
static tern_tensor *chain(tern_tensor *x, tern_tensor *w)
{
    tern_tensor *y = x;
    for (int i = 0; i < 30; i++)
        y = tern_tanh(tern_add(tern_linear(y, w, NULL), x));
    return y;
}

#define SIDE 24
static tern_tensor *square(struct tern_context *ctx, int seed)
{
    float v[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++)
        v[i] = (float)((i * 37 + seed * 11) % 101) / 200 - 0.25f;
    return tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){SIDE, SIDE}, v);
}

static void read_all(const tern_tensor *t, float v[SIDE * SIDE])
{
    assert_int_equal(tern_tensor_read(t, TERN_F32, v, SIDE * SIDE * sizeof(float)), TERN_OK);
}

static void expect_chain(const tern_tensor *found, int seed)
{
    struct tern_context *cpu = support_context();
    float a[SIDE * SIDE], b[SIDE * SIDE];
    tern_scope_begin(cpu);
    read_all(chain(square(cpu, seed), square(cpu, 7)), a);
    tern_scope_end(cpu, NULL);
    tern_context_destroy(&cpu);
    read_all(found, b);
    assert_true(support_nmse(b, a, SIDE * SIDE) < 1e-11);
}

/* Nothing is made for a launch, nothing waits for the whole device, and a batch has many launches. */
static void launches_are_cheap(void **state)
{
    struct tern_context *ctx = vulkan_open_or_skip();
    struct vulkan_shim *shim = vulkan_shim();
    tern_scope_begin(ctx);
    tern_tensor *x = square(ctx, 1), *w = square(ctx, 7);
    expect_chain(chain(x, w), 1);
    long made = shim->made, submits = shim->submits, binds = shim->binds, idles = shim->idles;
    for (int i = 0; i < 4; i++)
        expect_chain(chain(x, w), 1);
    assert_int_equal(shim->made, made);
    assert_int_equal(shim->idles, idles);
    long launches = shim->binds - binds;
    assert_true(launches >= 4 * 90);
    assert_true(shim->submits - submits <= launches / 64 + 2 * 4);
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
    assert_int_equal(shim->live, 0);
}

/* A chain is captured, its input written anew, and replayed: twice in a row, with launches around it. */
static void check_capture(struct tern_context *ctx)
{
    struct tern_queue *q = ctx->device->queue;
    float v[SIDE * SIDE];
    tern_scope_begin(ctx);
    tern_tensor *x = square(ctx, 1), *w = square(ctx, 7), *other = square(ctx, 2);
    expect_chain(chain(x, w), 1); /* weights are on the device, and programs compiled */
    assert_int_equal(q->fns->capture_begin(q), TERN_OK);
    tern_tensor *y = chain(x, w);
    struct tern_capture *c = q->fns->capture_end(q);
    assert_non_null(y);
    assert_non_null(c);
    assert_int_equal(c->launches, 90);
    for (int seed = 2; seed < 5; seed++) {
        tern_tensor *in = square(ctx, seed);
        read_all(in, v);
        assert_int_equal(tern_buffer_write(x->buffer, x->offset, v, sizeof(v)), TERN_OK);
        long submits = vulkan_shim()->submits;
        tern_tensor *before = tern_add(other, w);
        assert_int_equal(q->fns->replay(q, c), TERN_OK);
        assert_int_equal(q->fns->replay(q, c), TERN_OK);
        assert_int_equal(vulkan_shim()->submits - submits, 3);
        tern_tensor *copy = tern_mul_scalar(y, 1);
        expect_chain(y, seed);
        expect_chain(copy, seed);
        assert_non_null(before);
    }
    c->fns->destroy(c);
    tern_scope_end(ctx, NULL);
}

static void captures_replay(void **state)
{
    struct tern_context *ctx = vulkan_open_or_skip();
    check_capture(ctx);
    tern_context_destroy(&ctx);
    assert_int_equal(vulkan_shim()->live, 0);
}

static void events_wait(void **state)
{
    struct tern_context *ctx = vulkan_open_or_skip();
    struct tern_queue *q = ctx->device->queue;
    tern_scope_begin(ctx);
    tern_tensor *y = chain(square(ctx, 3), square(ctx, 7));
    struct tern_event *e = q->fns->record(q);
    assert_non_null(e);
    *vulkan_shim() = (struct vulkan_shim){.fail_at = 1, .fail_of = "vkWaitSemaphores", .fail_with = VULKAN_SHIM_OUT_OF_MEMORY};
    assert_int_equal(e->fns->wait(e), TERN_E_NO_MEMORY); /* so it does ask the driver */
    support_error(ctx, TERN_E_NO_MEMORY, "waiting for the queue");
    assert_int_equal(e->fns->wait(e), TERN_OK);
    e->fns->destroy(e);
    long submits = vulkan_shim()->submits;
    expect_chain(y, 3);
    assert_int_equal(vulkan_shim()->submits, submits); /* it was done */
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* 41 MB through staging memory in three parts, there and back; and a plan. */
static void check_staging(struct tern_context *ctx)
{
    enum { N = 10250001 };
    float *v = malloc(N * sizeof(*v)), *back = malloc(N * sizeof(*back));
    assert_non_null(v);
    assert_non_null(back);
    for (int i = 0; i < N; i++)
        v[i] = (float)(i % 1000003);
    tern_scope_begin(ctx);
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){N}, v), *y = tern_neg(x);
    assert_non_null(y);
    assert_int_equal(tern_tensor_read(y, TERN_F32, back, N * sizeof(*back)), TERN_OK);
    for (int i = 0; i < N; i++)
        assert_true(back[i] == -v[i]);
    tern_scope_end(ctx, NULL);
    free(v);
    free(back);
}

static void memory_of_its_own(void **state)
{
    vulkan_shim()->discrete = true;
    struct tern_context *ctx = vulkan_open_or_skip();
    check_staging(ctx);
    assert_true(vulkan_shim()->copies >= 6);
    gpu_plan_agrees(ctx, NULL);
    tern_context_destroy(&ctx);
    assert_int_equal(vulkan_shim()->live, 0);
}

/* What does not fit into the device's own memory goes to the host's. */
static void full_memory_gives_way(void **state)
{
    vulkan_shim()->discrete = true;
    vulkan_shim()->local_bytes = (size_t)48 << 20;
    struct tern_context *ctx = vulkan_open_or_skip();
    size_t before = vulkan_shim()->host_used;
    check_staging(ctx);
    assert_true(vulkan_shim()->local_used <= (size_t)48 << 20);
    assert_true(vulkan_shim()->host_used - before > (size_t)40 << 20);
    tern_context_destroy(&ctx);
    assert_int_equal(vulkan_shim()->live, 0);
}

/* Bindings of 1 MiB: parts of a buffer of 4 MiB are bound, wherever they begin; a whole one runs by the ladder. */
static void windows_are_bound(void **state)
{
    enum { ROWS = 1024, COLS = 1024 };
    struct tern_context *ctx;
    float *v = malloc(ROWS * COLS * sizeof(*v)), found[3 * COLS];
    assert_non_null(v);
    for (int i = 0; i < ROWS * COLS; i++)
        v[i] = (float)(i % 65521);
    setenv("TERN_GPU_LIMITS", "buffer=1M", 1);
    ctx = vulkan_open_or_skip();
    tern_scope_begin(ctx);
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){ROWS, COLS}, v);
    long binds = vulkan_shim()->binds;
    for (int row = 0; row < ROWS - 3; row += 203) {
        tern_tensor *part = tern_slice(x, 0, row, row + 3, 1);
        assert_int_equal(tern_tensor_read(tern_neg(part), TERN_F32, found, sizeof(found)), TERN_OK);
        for (int i = 0; i < 3 * COLS; i++)
            assert_true(found[i] == -v[row * COLS + i]);
    }
    assert_true(vulkan_shim()->binds > binds);
    binds = vulkan_shim()->binds;
    tern_tensor *all = tern_neg(x);
    assert_int_equal(vulkan_shim()->binds, binds);
    assert_int_equal(tern_tensor_read(tern_slice(all, 0, 1000, 1003, 1), TERN_F32, found, sizeof(found)), TERN_OK);
    assert_true(found[3 * COLS - 1] == -v[1003 * COLS - 1]);
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
    free(v);
}

/* Sums give back what rounding takes from them, on drivers that compute as if nothing was rounded, too; NaN and infinity come through. */
static void values_are_kept(void **state)
{
    const float cancels[] = {1, 1e8f, 1, -1e8f}, special[] = {NAN, INFINITY, -INFINITY, -0.0f};
    for (int rearranges = 0; rearranges < 2; rearranges++) {
        float found[4];
        vulkan_shim()->rearranges = rearranges;
        struct tern_context *ctx = vulkan_open_or_skip();
        tern_scope_begin(ctx);
        tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){4}, cancels);
        assert_int_equal(tern_tensor_read(tern_sum(x, 0, NULL, false), TERN_F32, found, sizeof(float)), TERN_OK);
        assert_true(found[0] == 2);
        x = tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){4}, special);
        assert_int_equal(tern_tensor_read(tern_maximum(x, tern_neg(x)), TERN_F32, found, sizeof(found)), TERN_OK);
        assert_true(isnan(found[0]) && found[1] == INFINITY && found[2] == INFINITY && found[3] == 0);
        tern_scope_end(ctx, NULL);
        tern_context_destroy(&ctx);
    }
}

/* Another context finds all kernels in the cache folder, and needs no compiler. Damaged files are built again. */
static void the_cache_is_checked(void **state)
{
    char pattern[300];
    snprintf(pattern, sizeof(pattern), "%s/vulkan/*.*", vulkan_cache_dir());
    for (int what = 0; what < 4; what++) { /* new, whole, a byte changed, cut */
        if (what > 1)
            assert_true(gpu_damage_files(pattern, 1, what == 3) > 3);
        gpu_warnings = 0;
        if (what == 1)
            vulkan_hide_compilers();
        struct tern_context *ctx = vulkan_open_or_skip();
        gpu_plan_agrees(ctx, NULL);
        tern_context_destroy(&ctx);
        vulkan_show_compilers();
        assert_true(what > 1 ? gpu_warnings >= 4 : gpu_warnings == 0);
    }
}

static void weights_move(void **state)
{
    vulkan_shim()->discrete = true;
    tern_context_destroy(&(struct tern_context *){vulkan_open_or_skip()});
    gpu_weights_move("vulkan", vulkan_cache_dir());
    assert_int_equal(vulkan_shim()->live, 0);
}

/* ---- the validation layer, with its checks of synchronisation ---- */

/* A product in parts, and a capture of it in several command buffers. */
static void check_parts(struct tern_context *ctx)
{
    enum { N = 256 };
    static float ones[N * N], v[N * N];
    struct tern_queue *q = ctx->device->queue;
    for (int i = 0; i < N * N; i++)
        ones[i] = 1;
    tern_scope_begin(ctx);
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 2, (int64_t[]){N, N}, ones), *y = tern_matmul(x, x);
    long parts = vulkan_shim()->parts, submits;
    assert_int_equal(q->fns->capture_begin(q), TERN_OK);
    tern_tensor *z = tern_matmul(y, x);
    struct tern_capture *c = q->fns->capture_end(q);
    assert_non_null(c);
    assert_true(vulkan_shim()->parts - parts >= 3);
    assert_int_equal(q->fns->finish(q), TERN_OK);
    submits = vulkan_shim()->submits;
    assert_int_equal(q->fns->replay(q, c), TERN_OK);
    assert_true(vulkan_shim()->submits - submits >= 4);
    assert_int_equal(tern_tensor_read(z, TERN_F32, v, sizeof(v)), TERN_OK);
    for (int i = 0; i < N * N; i++)
        assert_true(v[i] == N * N);
    c->fns->destroy(c);
    tern_scope_end(ctx, NULL);
}

static void use_all(void)
{
    setenv("TERN_GPU_LIMITS", "flops=1M", 1);
    struct tern_context *ctx = vulkan_open_or_skip();
    check_parts(ctx);
    tern_context_destroy(&ctx);
    unsetenv("TERN_GPU_LIMITS");
    ctx = vulkan_open_or_skip();
    gpu_plan_agrees(ctx, NULL);
    check_capture(ctx);
    gpu_ops_agree(ctx, "vulkan", 0, 97);
    tern_context_destroy(&ctx);
    vulkan_shim()->discrete = true;
    ctx = vulkan_open_or_skip();
    check_staging(ctx);
    gpu_plan_agrees(ctx, NULL);
    tern_context_destroy(&ctx);
    gpu_weights_move("vulkan", vulkan_cache_dir());
}

static void validation_is_silent(void **state)
{
    char settings[300], log[300], text[2048] = "";
    if (!vulkan_has_validation()) {
        print_message("no VK_LAYER_KHRONOS_validation (Debian's vulkan-validationlayers has it)\n");
        skip();
    }
    snprintf(settings, sizeof(settings), "%s/vk_layer_settings.txt", vulkan_cache_dir());
    snprintf(log, sizeof(log), "%s/validation.log", vulkan_cache_dir());
    FILE *f = fopen(settings, "w");
    assert_non_null(f);
    fprintf(f,
            "khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\nkhronos_validation.log_filename = %s\n"
            "khronos_validation.report_flags = error,warn,perf\n"
            "khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT\n",
            log);
    fclose(f);
    setenv("VK_LAYER_SETTINGS_PATH", settings, 1);
    setenv("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation", 1);
    use_all();
    unsetenv("VK_INSTANCE_LAYERS");
    f = fopen(log, "r");
    assert_non_null(f); /* the layer was there */
    text[fread(text, 1, sizeof(text) - 1, f)] = 0;
    fclose(f);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(plans_agree, vulkan_reset),          cmocka_unit_test_setup(launches_are_cheap, vulkan_reset),
        cmocka_unit_test_setup(captures_replay, vulkan_reset),      cmocka_unit_test_setup(events_wait, vulkan_reset),
        cmocka_unit_test_setup(memory_of_its_own, vulkan_reset),    cmocka_unit_test_setup(full_memory_gives_way, vulkan_reset),
        cmocka_unit_test_setup(weights_move, vulkan_reset),         cmocka_unit_test_setup(windows_are_bound, vulkan_reset),
        cmocka_unit_test_setup(the_cache_is_checked, vulkan_reset), cmocka_unit_test_setup(validation_is_silent, vulkan_reset),
        cmocka_unit_test_setup(sines_agree, vulkan_reset),          cmocka_unit_test_setup(pictures_agree, vulkan_reset),
        cmocka_unit_test_setup(values_are_kept, vulkan_reset),      cmocka_unit_test_setup(ops_agree, vulkan_reset),
    };
    return cmocka_run_group_tests(tests, vulkan_setup, vulkan_teardown);
}

/* Steps of the UNet through Vulkan, counted by the stand-in of the loader: after the second one a step is the submission of what was
 * recorded, in as many parts as keep each short, makes nothing and waits for nothing; Stable Diffusion 1.5 needs at most 450 dispatches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "backends/gpu/gpu.h"
#include "core/context.h"
#include "model_help.h"
#include "step_help.h"
#include "vulkan_help.h"

struct counts {
    long dispatches, parts, made, waits, idles, copies, submits;
};

static struct counts counts(void)
{
    const struct vulkan_shim *s = vulkan_shim();
    return (struct counts){s->dispatches, s->parts, s->made, s->waits, s->idles, s->copies, s->submits};
}

/* What the driver saw of one run, and nothing of what came before or after it. */
static struct counts run_counted(struct step_unet *u)
{
    struct counts a = counts();
    assert_int_equal(tern_plan_run(u->binding, u->in, u->out), TERN_OK);
    struct counts b = counts();
    return (struct counts){b.dispatches - a.dispatches, b.parts - a.parts,   b.made - a.made,      b.waits - a.waits,
                           b.idles - a.idles,           b.copies - a.copies, b.submits - a.submits};
}

/* No submission has more than the device's most; two neighbours have more than that together, or they were one. What an op of several
 * launches takes counts for each, of which none has more than two. */
static void expect_submits(const struct step_unet *u, long submits)
{
    const struct tern_plan *p = tern_binding_plan(u->binding);
    const double most = ((const struct tern_gpu *)tern_plan_graph(p)->ctx->device)->max_flops, flops = tern_plan_facts(p).flops;
    if ((double)submits < flops / most || (double)submits > 4 * flops / most + 1)
        fail_msg("%ld submissions of at most %g operations for a step of %g", submits, most, flops);
}

/* Five steps. The first one makes what the others use, and waits for memory that it takes anew; the second one is recorded, too; three are
 * submitted as they were recorded. Dispatches of one. */
static long check_steps(struct step_unet *u)
{
    long kernels = 0;
    for (int step = 0; step < 5; step++) {
        step_fill(u->in[0], step);
        struct counts c = run_counted(u);
        assert_int_equal(c.idles, 0);
        if (!step) {
            kernels = c.dispatches;
            continue;
        }
        assert_int_equal(c.waits, 0);
        assert_int_equal(c.copies, 0);
        assert_int_equal(c.dispatches, step == 1 ? kernels : 0);
        if (step == 1)
            continue;
        assert_int_equal(c.made, 0);
        expect_submits(u, c.submits);
    }
    return kernels;
}

static void small_steps_are_one_submission(void **state)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = vulkan_open_or_skip();
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    struct step_unet u = step_unet_open(p, 2, 128);
    assert_in_range(check_steps(&u), 50, STEP_MOST_KERNELS);
    assert_int_equal(run_counted(&u).submits, 1);
    step_unet_close(&u);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    assert_int_equal(vulkan_shim()->live, 0);
}

/* Results of three steps, the last one a replay; parts of launches. */
static long run_steps(const char *limits, float *result, size_t n)
{
    char path[PATH_SIZE];
    long parts = 0;
    limits ? setenv("TERN_GPU_LIMITS", limits, 1) : unsetenv("TERN_GPU_LIMITS");
    struct tern_context *ctx = vulkan_open_or_skip();
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    struct step_unet u = step_unet_open(p, 2, 128);
    for (int step = 0; step < 3; step++) {
        step_fill(u.in[0], step);
        struct counts c = run_counted(&u);
        parts += c.parts;
        if (step == 2)
            expect_submits(&u, c.submits);
    }
    assert_int_equal(tern_tensor_numel(u.out[0]), n);
    assert_int_equal(tern_tensor_read(u.out[0], TERN_F32, result, n * sizeof(*result)), TERN_OK);
    step_unet_close(&u);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return parts;
}

/* Launches that take too long are cut, too, and nothing changes. */
static void long_work_is_cut(void **state)
{
    enum { N = 2 * 4 * 16 * 16 };
    float whole[N], cut[N];
    assert_int_equal(run_steps(NULL, whole, N), 0);
    assert_true(run_steps("flops=1M", cut, N) > 20);
    assert_memory_equal(cut, whole, sizeof(cut));
}

/* Where there is no room for a further command buffer the step runs, or fails, and the next one runs. */
static void captures_may_fail_to_be_cut(void **state)
{
    char path[PATH_SIZE];
    setenv("TERN_GPU_LIMITS", "flops=1M", 1);
    struct tern_context *ctx = vulkan_open_or_skip();
    struct vulkan_shim *s = vulkan_shim();
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    struct step_unet u = step_unet_open(p, 2, 128);
    assert_int_equal(run_counted(&u).parts > 0, true);
    s->calls = 0;
    s->fail_of = "vkAllocateCommandBuffers";
    s->fail_at = 3;
    s->fail_with = VULKAN_SHIM_OUT_OF_MEMORY;
    if (tern_plan_run(u.binding, u.in, u.out))
        tern_error_clear(ctx);
    assert_true(s->calls >= 3);
    s->fail_of = NULL;
    s->fail_at = 0;
    for (int i = 0; i < 3; i++)
        run_counted(&u);
    step_unet_close(&u);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    assert_int_equal(s->live, 0);
}

/* The whole model, 512 x 512 and guided, with dispatches that are recorded here and not by the driver. */
static void sd15_needs_few_dispatches(void **state)
{
    char folder[STEP_FOLDER];
    vulkan_shim()->drops_dispatches = true;
    struct tern_context *ctx = vulkan_open_or_skip();
    struct tern_pipeline *p = step_sd15(ctx, folder);
    struct step_unet u = step_unet_open(p, 2, 512);
    long kernels = check_steps(&u), submits = run_counted(&u).submits;
    step_unet_close(&u);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    step_remove(folder);
    print_message("SD 1.5, 512 x 512, guided: %ld dispatches a step (at most %d), %ld submissions\n", kernels, STEP_MOST_KERNELS, submits);
    assert_in_range(kernels, 100, STEP_MOST_KERNELS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup(small_steps_are_one_submission, vulkan_reset),
                                       cmocka_unit_test_setup(long_work_is_cut, vulkan_reset),
                                       cmocka_unit_test_setup(captures_may_fail_to_be_cut, vulkan_reset),
                                       cmocka_unit_test_setup(sd15_needs_few_dispatches, vulkan_reset)};
    return cmocka_run_group_tests(tests, vulkan_setup, vulkan_teardown);
}

/* Steps of the UNet through Vulkan, counted by the stand-in of the loader: after the second one a step is the submission of what was
 * recorded, makes nothing and waits for nothing; Stable Diffusion 1.5 needs at most 450 dispatches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/context.h"
#include "model_help.h"
#include "step_help.h"
#include "vulkan_help.h"

struct counts {
    long dispatches, made, waits, idles, copies, submits;
};

static struct counts counts(void)
{
    const struct vulkan_shim *s = vulkan_shim();
    return (struct counts){s->dispatches, s->made, s->waits, s->idles, s->copies, s->submits};
}

/* What the driver saw of one run, and nothing of what came before or after it. */
static struct counts run_counted(struct step_unet *u)
{
    struct counts a = counts();
    assert_int_equal(tern_plan_run(u->binding, u->in, u->out), TERN_OK);
    struct counts b = counts();
    return (struct counts){b.dispatches - a.dispatches, b.made - a.made,     b.waits - a.waits,
                           b.idles - a.idles,           b.copies - a.copies, b.submits - a.submits};
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
        assert_int_equal(c.submits, 1);
    }
    return kernels;
}

static void steps_are_one_submission(void **state)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = vulkan_open_or_skip();
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    struct step_unet u = step_unet_open(p, 2, 128);
    assert_in_range(check_steps(&u), 50, STEP_MOST_KERNELS);
    step_unet_close(&u);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    assert_int_equal(vulkan_shim()->live, 0);
}

/* The whole model, 512 x 512 and guided, with dispatches that are recorded here and not by the driver. */
static void sd15_needs_few_dispatches(void **state)
{
    char folder[STEP_FOLDER];
    vulkan_shim()->drops_dispatches = true;
    struct tern_context *ctx = vulkan_open_or_skip();
    struct tern_pipeline *p = step_sd15(ctx, folder);
    struct step_unet u = step_unet_open(p, 2, 512);
    long kernels = check_steps(&u);
    step_unet_close(&u);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    step_remove(folder);
    print_message("SD 1.5, 512 x 512, guided: %ld dispatches a step (at most %d)\n", kernels, STEP_MOST_KERNELS);
    assert_in_range(kernels, 100, STEP_MOST_KERNELS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup(steps_are_one_submission, vulkan_reset),
                                       cmocka_unit_test_setup(sd15_needs_few_dispatches, vulkan_reset)};
    return cmocka_run_group_tests(tests, vulkan_setup, vulkan_teardown);
}

/* Steps of the UNet on a GPU, counted by the stand-in driver: after the second one a step is one call that launches, makes no memory and
 * waits for nothing; Stable Diffusion 1.5 needs at most 450 kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/context.h"
#include "cuda_help.h"
#include "graph/plan.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "step_help.h"
#include "support.h"

/* What the driver saw of one run, and nothing of what came before or after it. */
static struct standin_counts run_counted(struct step_unet *u)
{
    struct standin_counts before = cuda_counts();
    assert_int_equal(tern_plan_run(u->binding, u->in, u->out), TERN_OK);
    struct standin_counts c = cuda_counts();
    c.launches -= before.launches;
    c.graph_launches -= before.graph_launches;
    c.graph_kernels -= before.graph_kernels;
    c.synchronisations -= before.synchronisations;
    c.allocations -= before.allocations;
    c.frees -= before.frees;
    c.copies_in -= before.copies_in;
    c.copies_out -= before.copies_out;
    c.modules -= before.modules;
    return c;
}

/* The run number `step` from 0; kernels of one run. */
static int check_step(struct step_unet *u, int step)
{
    step_fill(u->in[0], step);
    struct standin_counts c = run_counted(u);
    bool replayed = step >= 1;
    assert_int_equal(c.synchronisations, 0);
    assert_int_equal(c.copies_out, 0);
    assert_int_equal(c.graph_launches, replayed);
    if (step >= 2) {
        assert_int_equal(c.allocations, 0);
        assert_int_equal(c.frees, 0);
        assert_int_equal(c.copies_in, 0);
        assert_int_equal(c.modules, 0);
    }
    assert_int_equal(replayed ? c.launches : c.graph_kernels, 0);
    return (int)(replayed ? c.graph_kernels : c.launches);
}

/* Plain, captured, replayed: each computes what the CPU does. */
static void replays_compute(void **state)
{
    static float expected[4 * 16 * 16], found[4 * 16 * 16];
    char path[PATH_SIZE];
    struct tern_context *host = model_context(NULL, 2), *ctx = cuda_open();
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path)), *q = model_load(host, path);
    struct step_unet u = step_unet_open(p, 1, 128), v = step_unet_open(q, 1, 128);
    for (int step = 0; step < 5; step++) {
        check_step(&u, step);
        step_fill(v.in[0], step);
        assert_int_equal(tern_plan_run(v.binding, v.in, v.out), TERN_OK);
        assert_int_equal(tern_tensor_read(u.out[0], TERN_F32, found, sizeof(found)), TERN_OK);
        assert_int_equal(tern_tensor_read(v.out[0], TERN_F32, expected, sizeof(expected)), TERN_OK);
        double error = support_nmse(found, expected, 4 * 16 * 16);
        if (!(error <= 1e-10))
            fail_msg("step %d: NMSE %g", step, error);
    }
    /* Other memory for the result: plain again, then captured anew. */
    tern_tensor_unref(&u.out[0]);
    tern_tensor *spare = tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){4 * 16 * 16}, NULL); /* takes the place of the old one */
    assert_int_equal(run_counted(&u).graph_launches, 0);
    assert_int_equal(run_counted(&u).graph_launches, 1);
    assert_int_equal(tern_tensor_read(u.out[0], TERN_F32, found, sizeof(found)), TERN_OK);
    assert_true(support_nmse(found, expected, 4 * 16 * 16) <= 1e-10);
    tern_tensor_unref(&spare);
    step_unet_close(&u);
    step_unet_close(&v);
    tern_pipeline_destroy(&p);
    tern_pipeline_destroy(&q);
    tern_context_destroy(&ctx);
    tern_context_destroy(&host);
}

/* A job replays, too: of its steps all but the first. */
static void jobs_replay(void **state)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = cuda_open();
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    const struct tern_txt2img_params q = {.prompt = "a cat", .width = 64, .height = 64, .steps = 5, .sampler = TERN_SAMPLER_EULER};
    struct tern_images *images = tern_generate(p, &q);
    if (!images)
        fail_msg("%s", tern_error(ctx));
    assert_int_equal(cuda_counts().graph_launches, 4);
    tern_images_destroy(&images);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* The whole model, 512 x 512 and guided, with kernels that are checked and counted but not run. */
static void sd15_needs_few_launches(void **state)
{
    char folder[STEP_FOLDER];
    struct standin_facts facts = cuda_facts();
    facts.compute = 0;
    facts.memory = (size_t)16 << 30;
    cuda.standin_set_facts(&facts);
    struct tern_context *ctx = cuda_open();
    struct tern_pipeline *p = step_sd15(ctx, folder);
    struct step_unet u = step_unet_open(p, 2, 512);
    int kernels = 0;
    for (int step = 0; step < 4; step++) {
        int n = check_step(&u, step);
        assert_true(!step || n == kernels);
        kernels = n;
    }
    step_unet_close(&u);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    step_remove(folder);
    print_message("SD 1.5, 512 x 512, guided: %d kernels a step (at most %d)\n", kernels, STEP_MOST_KERNELS);
    assert_in_range(kernels, 100, STEP_MOST_KERNELS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CUDA_TEST(replays_compute), CUDA_TEST(jobs_replay), CUDA_TEST(sd15_needs_few_launches)};
    return cmocka_run_group_tests(tests, cuda_group_setup, cuda_group_teardown);
}

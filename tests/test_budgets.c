/* What is told of a job's memory holds, whatever the budget: it takes no more, from the first check to the last picture, and the way that a
 * check has found is the one that the job goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/context.h"
#include "job_cases.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "support.h"

#define MIB ((size_t)1 << 20)

static char folder[64]; /* the cache */

static struct tern_context *context(size_t budget)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .budget = budget, .cache_dir = folder});
    assert_non_null(ctx);
    return ctx;
}

/* The number of "at most 32.3 MiB of 200.0; …". */
static void keep_number(const struct tern_choice *c, void *user)
{
    if (!strcmp(c->what, "offload"))
        assert_int_equal(sscanf(c->why, "at most %15s", (char *)user), 1);
}

/* Checks the job and makes it, as the command does: all that its context has taken until then counts. */
static void holds(struct tern_pipeline *p, struct tern_txt2img_params q, size_t budget, const char *what)
{
    struct tern_context *ctx = p->ctx;
    char number[16] = "", expected[16];
    size_t told = 0;
    if (tern_generate_check(p, &q, &told))
        fail_msg("%s: %s", what, tern_error(ctx));
    snprintf(expected, sizeof(expected), "%.1f", (double)told / MIB);
    q.on_choice = q.cache_quality > 0 ? NULL : keep_number;
    q.on_choice_user = number;
    struct tern_images *images = tern_generate(p, &q);
    if (!images && told <= budget)
        fail_msg("%s: %zu bytes were told: %s", what, told, tern_error(ctx));
    if (!images) { /* it was told to be too much */
        support_error(ctx, TERN_E_BUDGET, "needs at least");
        return;
    }
    if (tern_memory_peak(ctx) > told || told > budget)
        fail_msg("%s: of %zu bytes %zu were told, %zu taken", what, budget, told, tern_memory_peak(ctx));
    if (q.on_choice && strcmp(number, expected) != 0)
        fail_msg("%s: %s MiB were told, and %s when it began", what, expected, number);
    tern_images_destroy(&images);
}

/* One job in a context of its own. */
static void sweep_one(const char *model, size_t budget, enum tern_offload offload, const struct tern_txt2img_params *q)
{
    char path[PATH_SIZE], what[160];
    struct tern_context *ctx = context(budget);
    struct tern_pipeline *p =
        tern_pipeline_load(ctx, model_path(model, path), &(struct tern_pipeline_params){.offload = offload, .single_use = true});
    snprintf(what, sizeof(what), "%s, budget %zu, offload %d, interval %d, branch %d, hires %g", model, budget, (int)offload,
             q->cache_interval, q->cache_branch_id, q->hires.hr_scale);
    if (!p)
        fail_msg("%s: %s", what, tern_error(ctx));
    holds(p, *q, budget, what);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* From tight to plenty: limits of stages are made of what is left. */
static void what_is_told_holds(void **state)
{
    static const size_t budgets[] = {9, 24, 115, 150, 220};
    int jobs = 0;
    for (size_t b = 0; b < sizeof(budgets) / sizeof(*budgets); b++)
        for (enum tern_offload o = TERN_OFFLOAD_AUTO; o <= TERN_OFFLOAD_STREAM; o++)
            for (int k = 0; k < 4; k++) { /* without DeepCache, and branches of it; each with a second pass or without */
                struct tern_txt2img_params q = tern_txt2img_params(.prompt = "boat", .width = 128, .height = 64, .steps = 3, .seed = 5);
                q.cache_interval = k ? 3 : 0;
                q.cache_branch_id = k > 1 ? k - 1 : 0;
                q.hires.hr_scale = (b + (size_t)o + (size_t)k) % 2 ? 1.5 : 0;
                sweep_one("sd1", budgets[b] * MIB, o, &q);
                jobs++;
            }
    print_message("%d jobs\n", jobs);
}

/* Of a model whose weights outweigh its plans. */
static void what_is_told_of_the_demo_holds(void **state)
{
    static const size_t budgets[] = {100, 150, 200, 250};
    struct tern_txt2img_params q = tern_txt2img_params(.prompt = "boat", .width = 128, .height = 128, .steps = 4, .seed = 5,
                                                       .cache_interval = 3, .cache_branch_id = 1, .hires.hr_scale = 1.5);
    for (int b = 0; b < 4; b++)
        sweep_one("demo", budgets[b] * MIB, TERN_OFFLOAD_STREAM, &q);
}

static void choose_one(const char *model, size_t budget, const struct tern_optimize_params *o, struct tern_pipeline_params pipeline,
                       struct tern_txt2img_params q)
{
    char path[PATH_SIZE], what[80];
    struct tern_context *ctx = context(budget);
    struct tern_pipeline *p = tern_pipeline_optimize(ctx, model_path(model, path), &pipeline, &q, o);
    snprintf(what, sizeof(what), "%s, goal %d, budget %zu", model, (int)o->goal, budget);
    if (!p)
        fail_msg("%s: %s", what, tern_error(ctx));
    holds(p, q, budget, what);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* What is tried before is gone by then, but was there: with DeepCache by quality that has no call to cut short, too, and with all given,
 * where the ways to need least are tried for their own sake. */
static void what_is_told_of_a_choice_holds(void **state)
{
    static const size_t budgets[] = {8290000, 10 * MIB, 24 * MIB};
    const struct tern_txt2img_params q = tern_txt2img_params(.prompt = "boat", .width = 64, .height = 64, .steps = 2, .seed = 1);
    for (int goal = TERN_GOAL_SPEED; goal <= TERN_GOAL_QUALITY; goal++)
        for (size_t b = 0; b < sizeof(budgets) / sizeof(*budgets); b++)
            choose_one("demo", budgets[b], &(struct tern_optimize_params){.goal = (enum tern_goal)goal},
                       (struct tern_pipeline_params){.single_use = true}, q);
    choose_one("sdxl", 180 * MIB,
               &(struct tern_optimize_params){.goal = TERN_GOAL_MEMORY, .keep_dtype = true, .keep_offload = true, .keep_cache = true},
               (struct tern_pipeline_params){.single_use = true, .dtype = TERN_F16, .offload = TERN_OFFLOAD_STREAM},
               tern_txt2img_params(.prompt = "x", .width = 96, .height = 152, .steps = 3, .count = 3, .cache_interval = 3,
                                   .cache_branch_id = 1));
}

/* What a check has found goes with the plans, and what the next one finds is what the job behind it takes. */
static void what_was_found_goes_with_the_plans(void **state)
{
    char path[PATH_SIZE];
    size_t told = 0;
    struct tern_context *ctx = context(115 * MIB);
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    struct tern_txt2img_params q = tern_txt2img_params(.prompt = "boat", .width = 128, .height = 128, .steps = 2, .seed = 5);
    assert_int_equal(tern_generate_check(p, &q, &told), TERN_OK);
    assert_int_equal(p->n_found, 1);
    tern_pipeline_drop_plans(p);
    assert_int_equal(p->n_found, 0);
    q.width = 64;
    assert_int_equal(tern_generate_check(p, &q, &told), TERN_OK);
    assert_int_equal(p->n_found, 1);
    assert_int_equal(p->found[0].told, told);
    q.steps = 3; /* another kind */
    assert_int_equal(tern_generate_check(p, &q, &told), TERN_OK);
    assert_int_equal(p->n_found, 2);
    assert_int_equal(tern_pipeline_set_loras(p, NULL, 0), TERN_OK);
    assert_int_equal(p->n_found, 0);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

static int open_folder(void **state)
{
    snprintf(folder, sizeof(folder), "/tmp/tern-budgets-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_told_holds),
        cmocka_unit_test(what_is_told_of_the_demo_holds),
        cmocka_unit_test(what_is_told_of_a_choice_holds),
        cmocka_unit_test(what_was_found_goes_with_the_plans),
    };
    return cmocka_run_group_tests_name("budgets", tests, open_folder, remove_folder);
}

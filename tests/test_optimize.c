/* What is chosen for speed, memory and quality: it follows the budget, is what is done, keeps to the budget, and leaves what is given. */
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

/* The last choice of each kind. */
struct told {
    int count;
    char dtype[32], deepcache[32], offload[32], tiling[32], why[4][256];
};

static void keep(const struct tern_choice *c, void *user)
{
    struct told *t = user;
    static const char *const kinds[] = {"dtype", "deepcache", "offload", "tiling"};
    char *to[] = {t->dtype, t->deepcache, t->offload, t->tiling};
    for (int i = 0; i < 4; i++)
        if (!strcmp(c->what, kinds[i])) {
            snprintf(to[i], 32, "%s", c->value);
            snprintf(t->why[i], 256, "%s", c->why);
            t->count++;
        }
}

/* A context, what was chosen, and its pipeline; NULL: nothing keeps to the budget. */
struct chosen {
    struct tern_context *ctx;
    struct tern_pipeline_params pipeline;
    struct tern_txt2img_params job;
    struct told told;
    struct tern_pipeline *p;
};

static struct tern_txt2img_params job_of(void)
{
    return tern_txt2img_params(.prompt = "a cat", .width = 128, .height = 128, .steps = 8, .seed = 3);
}

static struct tern_context *context(size_t budget)
{
    return tern_context_create(&(struct tern_context_params){.threads = 1, .budget = budget, .cache_dir = folder});
}

static struct chosen choose_with(size_t budget, struct tern_optimize_params o, struct tern_pipeline_params pipeline,
                                 struct tern_txt2img_params job)
{
    char path[PATH_SIZE];
    struct chosen c = {.ctx = context(budget), .pipeline = pipeline, .job = job};
    o.on_choice = keep;
    o.on_choice_user = &c.told;
    c.p = tern_pipeline_optimize(c.ctx, model_path("demo", path), &c.pipeline, &c.job, &o);
    if (!c.p && tern_error_status(c.ctx) != TERN_E_BUDGET)
        fail_msg("%s", tern_error(c.ctx));
    assert_int_equal(c.told.count, c.p ? 4 : 0);
    return c;
}

static struct chosen choose(size_t budget, enum tern_goal goal)
{
    return choose_with(budget, (struct tern_optimize_params){.goal = goal}, (struct tern_pipeline_params){0}, job_of());
}

static void close_chosen(struct chosen *c)
{
    tern_pipeline_destroy(&c->p);
    tern_context_destroy(&c->ctx);
}

/* What is told is how the job lives, and is what its parameters say. With DeepCache by quality it is one of several, whose plans are there
 * by then: they are made before the first picture is. */
static void is_done(struct chosen *c)
{
    struct tern_txt2img_params q = c->job;
    struct tern_job j;
    size_t peak;
    if (q.cache_quality > 0)
        assert_int_equal(tern_generate_check(c->p, &q, &peak), TERN_OK);
    q.cache_interval = q.cache_quality > 0 ? 2 : 0;
    q.cache_quality = 0;
    assert_int_equal(tern_job_prepare(&j, c->p, &q), TERN_OK);
    assert_int_equal(tern_job_choose_offload(&j, &peak), TERN_OK);
    assert_string_equal(c->told.offload, j.resident ? "stream" : j.sequential ? "sequential" : "none");
    assert_string_equal(c->told.tiling, j.arena ? "vae" : "none");
    tern_job_destroy(&j);
    assert_string_equal(c->told.dtype, c->pipeline.quantize ? "int8" : tern_dtype_name(c->pipeline.dtype));
    assert_string_equal(c->told.deepcache, c->job.cache_quality > 0 ? "auto" : "1");
}

static int rank_of(const char *value, const char *const *names)
{
    int i = 0;
    while (names[i] && strcmp(names[i], value) != 0)
        i++;
    assert_non_null(names[i]);
    return i;
}

/* From much to too little: offload of a dtype only rises, quality only falls, and every job keeps to its budget. */
static void follows(enum tern_goal goal)
{
    static const char *const dtypes[] = {"f32", "f16", "bf16", "int8", NULL}, *const ways[] = {"none", "sequential", "stream", NULL};
    static const size_t budgets[] = {200, 40, 30, 24, 20, 17, 15, 13, 11, 8, 6, 4, 3};
    int dtype = 0, way = 0, made = 0, refused = 0;
    for (size_t i = 0; i < sizeof(budgets) / sizeof(*budgets); i++) {
        struct chosen c = choose(budgets[i] * MIB, goal);
        if (!c.p) {
            support_error(c.ctx, TERN_E_BUDGET, "this picture needs at least");
            refused++;
            close_chosen(&c);
            continue;
        }
        assert_int_equal(refused, 0); /* with more it is not refused */
        is_done(&c);
        size_t predicted;
        assert_int_equal(tern_generate_check(c.p, &c.job, &predicted), TERN_OK);
        struct tern_images *images = job_run(c.ctx, c.p, &c.job);
        if (predicted > budgets[i] * MIB || tern_memory_peak(c.ctx) > budgets[i] * MIB)
            fail_msg("%zu MiB: %zu predicted, %zu taken", budgets[i], predicted, tern_memory_peak(c.ctx));
        const int d = rank_of(c.told.dtype, dtypes), w = rank_of(c.told.offload, ways);
        if (goal == TERN_GOAL_QUALITY)
            assert_true(d >= dtype);
        if (d == dtype)
            assert_true(w >= way);
        dtype = d;
        way = w;
        made++;
        tern_images_destroy(&images);
        close_chosen(&c);
    }
    print_message("%d budgets kept to, %d refused\n", made, refused);
    assert_true(made > 3 && refused > 0);
}

static void speed_follows_the_budget(void **state) { follows(TERN_GOAL_SPEED); }
static void memory_follows_the_budget(void **state) { follows(TERN_GOAL_MEMORY); }
static void quality_follows_the_budget(void **state) { follows(TERN_GOAL_QUALITY); }

static void goals_are_met(void **state)
{
    struct chosen speed = choose(0, TERN_GOAL_SPEED), memory = choose(0, TERN_GOAL_MEMORY), quality = choose(0, TERN_GOAL_QUALITY);
    size_t peaks[3];
    struct chosen *all[] = {&speed, &memory, &quality};
    for (int i = 0; i < 3; i++) {
        is_done(all[i]);
        assert_int_equal(tern_generate_check(all[i]->p, &all[i]->job, &peaks[i]), TERN_OK);
    }
    assert_true(peaks[1] < peaks[0] && peaks[1] < peaks[2]);
    assert_true(speed.job.cache_quality == 0.95);
    assert_string_equal(quality.told.dtype, "f32");
    assert_true(memory.job.cache_quality == 0 && quality.job.cache_quality == 0);
    assert_string_equal(memory.told.offload, "stream");
    for (int i = 0; i < 3; i++)
        close_chosen(all[i]);
}

/* Also where a picture is so large that what is kept free beside it counts. */
static void least_memory_is_enough(void **state)
{
    struct tern_txt2img_params job = job_of();
    job.width = job.height = 1280;
    struct chosen c = choose_with(0, (struct tern_optimize_params){.goal = TERN_GOAL_MEMORY}, (struct tern_pipeline_params){0}, job);
    assert_non_null(c.p);
    assert_true(c.pipeline.budget > 0);
    if (tern_generate_check(c.p, &c.job, NULL))
        fail_msg("%s", tern_error(c.ctx));
    close_chosen(&c);
}

/* The parameters that come out make the same pictures in a pipeline that nobody has chosen for. */
static void parameters_say_what_was_chosen(void **state)
{
    for (int goal = TERN_GOAL_SPEED; goal <= TERN_GOAL_QUALITY; goal++) {
        char path[PATH_SIZE];
        struct chosen c = choose(24 * MIB, (enum tern_goal)goal);
        struct tern_images *images = job_run(c.ctx, c.p, &c.job);
        struct tern_context *ctx = context(24 * MIB);
        struct tern_pipeline *p = tern_pipeline_load(ctx, model_path("demo", path), &c.pipeline);
        struct tern_images *again = job_run(ctx, p, &c.job);
        assert_true(job_same(images, 0, again));
        tern_images_destroy(&images);
        tern_images_destroy(&again);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
        close_chosen(&c);
    }
}

static void what_is_given_stays(void **state)
{
    struct tern_txt2img_params q = job_of();
    q.cache_interval = 3;
    struct tern_optimize_params o = {.goal = TERN_GOAL_SPEED, .keep_dtype = true, .keep_offload = true, .keep_cache = true};
    struct chosen c = choose_with(0, o, (struct tern_pipeline_params){.dtype = TERN_F16, .offload = TERN_OFFLOAD_STREAM}, q);
    assert_string_equal(c.told.dtype, "f16");
    assert_string_equal(c.told.deepcache, "3");
    assert_string_equal(c.told.offload, "stream");
    for (int i = 0; i < 3; i++)
        assert_non_null(strstr(c.told.why[i], "as given"));
    assert_true(c.pipeline.dtype == TERN_F16 && !c.pipeline.quantize && c.pipeline.offload == TERN_OFFLOAD_STREAM);
    assert_true(c.job.cache_interval == 3 && c.job.cache_quality == 0);
    close_chosen(&c);
    c = choose_with(14 * MIB, (struct tern_optimize_params){.goal = TERN_GOAL_QUALITY, .keep_dtype = true, .keep_offload = true},
                    (struct tern_pipeline_params){.dtype = TERN_F32, .offload = TERN_OFFLOAD_NONE}, job_of());
    assert_null(c.p);
    support_error(c.ctx, TERN_E_BUDGET, "with dtype f32 and offload none");
    close_chosen(&c);
    q = job_of();
    q.cache_interval = 3;
    c = choose_with(MIB, (struct tern_optimize_params){.goal = TERN_GOAL_MEMORY}, (struct tern_pipeline_params){.dtype = TERN_F16}, q);
    assert_null(c.p); /* and nothing is changed */
    support_error(c.ctx, TERN_E_BUDGET, "memory budget");
    assert_true(c.job.cache_interval == 3 && c.pipeline.dtype == TERN_F16 && !c.pipeline.budget);
    close_chosen(&c);
}

/* A way to live that nobody asked to keep is one of those to choose from; a picture that is too small to be measured has no DeepCache. */
static void what_is_not_kept_is_chosen(void **state)
{
    const struct tern_optimize_params o = {.goal = TERN_GOAL_MEMORY};
    struct chosen free = choose_with(0, o, (struct tern_pipeline_params){0}, job_of());
    struct chosen c =
        choose_with(0, o,
                    (struct tern_pipeline_params){.offload = TERN_OFFLOAD_NONE, .offload_components = {.text_encoder = TERN_OFFLOAD_NONE}},
                    job_of());
    assert_string_equal(c.told.offload, free.told.offload);
    assert_string_not_equal(c.told.offload, "none");
    assert_true(c.pipeline.offload == TERN_OFFLOAD_AUTO && c.pipeline.offload_components.text_encoder == TERN_OFFLOAD_AUTO);
    close_chosen(&free);
    close_chosen(&c);
    struct tern_txt2img_params q = job_of();
    q.width = 8;
    c = choose_with(0, (struct tern_optimize_params){.goal = TERN_GOAL_SPEED}, (struct tern_pipeline_params){0}, q);
    assert_true(c.job.cache_quality == 0);
    close_chosen(&c);
}

/* Words for weights alone stay, and the dtype beside them is chosen; layers in int8, as a picture that is made again has them, are a
 * choice. */
static void words_and_the_dtype(void **state)
{
    struct chosen c = choose_with(0, (struct tern_optimize_params){.goal = TERN_GOAL_MEMORY},
                                  (struct tern_pipeline_params){.quantize = "*:w4"}, job_of());
    assert_string_equal(c.pipeline.quantize, "*:w4");
    assert_string_equal(c.told.dtype, tern_dtype_name(c.pipeline.dtype));
    assert_null(strstr(c.told.why[0], "as given"));
    if (tern_context_fast_dtype(c.ctx) != TERN_F32) /* else there is nothing to choose from */
        assert_non_null(strstr(c.told.why[0], c.pipeline.dtype == TERN_F32 ? "f16 " : "f32 "));
    close_chosen(&c);
    for (int i = 0; i < 2; i++) {
        c = choose_with(0, (struct tern_optimize_params){.goal = TERN_GOAL_SPEED},
                        (struct tern_pipeline_params){.quantize = i ? "conv_in" : "*"}, job_of());
        assert_true(!strcmp(c.told.dtype, "int8") || strstr(c.told.why[0], "int8"));
        close_chosen(&c);
    }
}

static struct tern_pipeline *open_other(const struct tern_pipeline_params *params, void *user)
{
    char path[PATH_SIZE];
    struct chosen *c = user;
    return tern_pipeline_load(c->ctx, model_path(c->told.count < 0 ? "absent" : "sd1", path), params);
}

static struct tern_pipeline *open_nothing(const struct tern_pipeline_params *params, void *user) { return NULL; }

static void bad_values_are_refused(void **state)
{
    char path[PATH_SIZE];
    struct chosen c = {.ctx = context(0), .job = job_of()};
    struct tern_optimize_params o = {.goal = (enum tern_goal)7};
    model_path("demo", path);
    assert_null(tern_pipeline_optimize(NULL, path, &c.pipeline, &c.job, &o));
    assert_null(tern_pipeline_optimize(c.ctx, path, &c.pipeline, &c.job, &o));
    support_error(c.ctx, TERN_E_INVALID, "speed, memory or quality");
    assert_null(tern_pipeline_optimize(c.ctx, path, NULL, &c.job, &o));
    support_error(c.ctx, TERN_E_INVALID, "expected params");
    o = (struct tern_optimize_params){.goal = TERN_GOAL_SPEED};
    c.job.steps = -1;
    assert_null(tern_pipeline_optimize(c.ctx, path, &c.pipeline, &c.job, &o));
    support_error(c.ctx, TERN_E_INVALID, "steps");
    c.job = job_of();
    o.open = open_other; /* the model is what the caller opens */
    o.open_user = &c;
    c.p = tern_pipeline_optimize(c.ctx, path, &c.pipeline, &c.job, &o);
    assert_string_equal(c.p->name, "sd1");
    tern_pipeline_destroy(&c.p);
    c.told.count = -1;
    assert_null(tern_pipeline_optimize(c.ctx, path, &c.pipeline, &c.job, &o));
    support_error(c.ctx, TERN_E_NOT_FOUND, "absent");
    o.open = open_nothing;
    for (int keep = 0; keep < 2; keep++) { /* the first that is opened, and the first that is tried */
        o.keep_dtype = keep;
        assert_null(tern_pipeline_optimize(c.ctx, path, &c.pipeline, &c.job, &o));
        support_error(c.ctx, TERN_E_INVALID, "open gave no pipeline");
    }
    assert_int_equal(c.told.count, -1);
    close_chosen(&c);
}

/* What is tried, as `open` knows it, and how often a callback met it. */
struct met {
    struct tern_context *ctx;
    struct tern_pipeline *p;
    int asked;
};

static struct tern_pipeline *open_met(const struct tern_pipeline_params *params, void *user)
{
    char path[PATH_SIZE];
    struct met *m = user;
    m->p = NULL;
    return m->p = tern_pipeline_load(m->ctx, model_path("sd1", path), params);
}

static bool meet(void *user)
{
    struct met *m = user;
    if (m->p) {
        m->asked++;
        if (tern_pipeline_set_embeddings(m->p, NULL, 0) == TERN_OK)
            fail_msg("set where it is asked the %dth time", m->asked);
        support_error(m->ctx, TERN_E_INVALID, "tern_pipeline_set_embeddings: the pipeline is at work");
    }
    return false;
}

/* A callback could take away what graphs are made of. For memory plans go, and are made once more to look at them. */
static void what_is_tried_is_at_work(void **state)
{
    struct met m = {0};
    struct tern_pipeline_params pipeline = {0};
    struct tern_txt2img_params job = tern_txt2img_params(.prompt = "a cat", .width = 16, .height = 16, .steps = 1);
    const struct tern_optimize_params o = {.goal = TERN_GOAL_MEMORY, .open = open_met, .open_user = &m};
    m.ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = meet, .user = &m});
    struct tern_pipeline *p = tern_pipeline_optimize(m.ctx, NULL, &pipeline, &job, &o);
    if (!p)
        fail_msg("%s", tern_error(m.ctx));
    assert_true(m.asked > 100);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&m.ctx);
}

static int open_folder(void **state)
{
    snprintf(folder, sizeof(folder), "/tmp/tern-optimize-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

/* Where f32 needs less than the dtype that is fast, as of a model whose weights are smaller than its plans, it is taken when nothing else
 * fits. */
static void what_fits_is_not_refused(void **state)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = context(0);
    const enum tern_dtype dtypes[] = {TERN_F32, tern_context_fast_dtype(ctx)};
    struct tern_txt2img_params job = tern_txt2img_params(.prompt = "a cat", .width = 64, .height = 64, .steps = 4);
    size_t least = SIZE_MAX;
    for (int i = 0; i < 2; i++) {
        size_t bytes;
        struct tern_pipeline *p =
            tern_pipeline_load(ctx, model_path("sd1", path), &(struct tern_pipeline_params){.dtype = dtypes[i], .budget = 1});
        assert_int_equal(tern_generate_check(p, &job, &bytes), TERN_OK);
        least = bytes < least ? bytes : least;
        tern_pipeline_destroy(&p);
        tern_memory_trim(ctx);
    }
    tern_context_destroy(&ctx);
    for (int goal = TERN_GOAL_SPEED; goal <= TERN_GOAL_QUALITY; goal++) {
        ctx = context(0);
        struct tern_pipeline_params pipeline = {.budget = least + (2 << 10)};
        struct tern_txt2img_params q = job;
        const struct tern_optimize_params o = {.goal = (enum tern_goal)goal};
        size_t bytes;
        struct tern_pipeline *p = tern_pipeline_optimize(ctx, model_path("sd1", path), &pipeline, &q, &o);
        if (!p)
            fail_msg("%s", tern_error(ctx));
        assert_int_equal(tern_generate_check(p, &q, &bytes), TERN_OK);
        assert_true(bytes <= least + (2 << 10));
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_is_not_refused),
        cmocka_unit_test(speed_follows_the_budget),
        cmocka_unit_test(memory_follows_the_budget),
        cmocka_unit_test(quality_follows_the_budget),
        cmocka_unit_test(goals_are_met),
        cmocka_unit_test(least_memory_is_enough),
        cmocka_unit_test(parameters_say_what_was_chosen),
        cmocka_unit_test(what_is_given_stays),
        cmocka_unit_test(what_is_not_kept_is_chosen),
        cmocka_unit_test(words_and_the_dtype),
        cmocka_unit_test(bad_values_are_refused),
        cmocka_unit_test(what_is_tried_is_at_work),
    };
    return cmocka_run_group_tests_name("optimize", tests, open_folder, remove_folder);
}

/* What is known before the steps is computed before them: the same bits as by the UNet whole, and within what was predicted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "damage.h"
#include "graph/plan.h"
#include "job_cases.h"
#include "lora_help.h"
#include "model_help.h"
#include "models/pipelines/hoist.h"
#include "support.h"
#include "xl_help.h"

#define BOTH (TERN_KNOWN_TEXT | TERN_KNOWN_TIME)

/* One model twice: its UNet as one plan, and with all that can be known before. */
struct pair {
    struct tern_context *ctx;
    struct tern_pipeline *whole, *split;
};

static struct pair open_pair(const char *path, enum tern_dtype dtype, enum tern_offload offload)
{
    struct pair m = {.ctx = model_context(NULL, 1)};
    const struct tern_pipeline_params q = {.dtype = dtype, .offload = offload};
    m.whole = tern_pipeline_load(m.ctx, path, &q);
    m.split = tern_pipeline_load(m.ctx, path, &q);
    if (!m.whole || !m.split)
        fail_msg("%s: %s", path, tern_error(m.ctx));
    m.whole->hoist_least = INT64_MAX;
    m.split->hoist_least = INT64_MIN;
    return m;
}

static struct pair open_model(const char *model)
{
    char path[PATH_SIZE];
    return open_pair(model_path(model, path), TERN_F32, TERN_OFFLOAD_NONE);
}

static void close_pair(struct pair *m)
{
    tern_pipeline_destroy(&m->split);
    tern_pipeline_destroy(&m->whole);
    tern_context_destroy(&m->ctx);
}

/* What the UNet's plan was given that ran last. */
static unsigned known_of(const struct tern_pipeline *p)
{
    const struct tern_planned *last = NULL;
    for (int i = 0; i < TERN_MAX_PLANNED; i++) {
        const struct tern_planned *e = &p->planned[i];
        if (e->plan && e->stage.component[0] == 'u' && !e->stage.early && (!last || e->used > last->used))
            last = e;
    }
    assert_non_null(last);
    return last->stage.known;
}

static void same(const struct pair *m, const struct tern_txt2img_params *q, unsigned known)
{
    struct tern_images *expected = job_run(m->ctx, m->whole, q), *found = job_run(m->ctx, m->split, q);
    assert_int_equal(known_of(m->whole), 0);
    assert_int_equal(known_of(m->split), known);
    if (!job_same(expected, 0, found))
        fail_msg("\"%s\", sampler %d, %d pictures, interval %d: other bits than by the whole UNet", q->prompt, (int)q->sampler, q->count,
                 q->cache_interval);
    tern_images_destroy(&expected);
    tern_images_destroy(&found);
}

static struct tern_txt2img_params job_of(const char *prompt)
{
    return tern_txt2img_params(.prompt = prompt, .negative_prompt = "x", .width = 48, .height = 40, .steps = 3, .seed = 3, .count = 1);
}

/* Guided and not, alone and together, in groups and in one; again with another text. */
static void check_model(const struct pair *m)
{
    struct tern_txt2img_params q = job_of("a cat");
    same(m, &q, BOTH);
    q.prompt = "two dogs";
    same(m, &q, BOTH);
    q.cfg = 1;
    same(m, &q, BOTH);
    q.cfg = 5;
    q.count = 4;
    same(m, &q, BOTH);
    m->ctx->device->caps.cache = (size_t)4 * 4 * (size_t)m->whole->unet_config.channels[0] * 6 * 5 * sizeof(float);
    same(m, &q, BOTH);
    q.cache_interval = 2;
    same(m, &q, BOTH);
}

static void models_agree(void **state)
{
    static const char *const models[] = {"sd1", "sd1-heads", "sd2", "sdxl"};
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_BF16};
    char path[PATH_SIZE];
    for (int i = 0; i < 8; i++) {
        struct pair m = open_pair(model_path(models[i / 2], path), dtypes[i % 2], (enum tern_offload)(TERN_OFFLOAD_NONE + i % 3 % 2));
        check_model(&m);
        close_pair(&m);
    }
}

/* The UNet that is told the guidance scale. */
static void a_consistency_model_agrees(void **state)
{
    char folder[PATH_SIZE];
    struct tern_context *ctx = model_context(NULL, 1);
    xl_folder(ctx, "sd1-lcm", folder);
    struct pair m = open_pair(folder, TERN_F32, TERN_OFFLOAD_NONE);
    struct tern_txt2img_params q = job_of("a cat");
    q.cfg = 1.5;
    same(&m, &q, BOTH);
    q.cfg = 8;
    same(&m, &q, BOTH);
    close_pair(&m);
    damage_remove(folder);
    tern_context_destroy(&ctx);
}

/* Whatever calls a sampler makes, and between which timesteps; only dpm_adaptive does not know them. */
static void samplers_agree(void **state)
{
    struct pair m = open_model("sd1");
    for (int s = TERN_SAMPLER_DEFAULT; s < TERN_SAMPLER_COUNT; s++) {
        struct tern_txt2img_params q = job_of("a cat");
        q.sampler = (enum tern_sampler)s;
        q.steps = 4;
        same(&m, &q, s == TERN_SAMPLER_DPM_ADAPTIVE ? TERN_KNOWN_TEXT : BOTH);
    }
    struct tern_txt2img_params q = job_of("a cat");
    q.sampler = TERN_SAMPLER_EULER;
    q.sampler_options = (struct tern_sampler_options){.s_churn = 2};
    same(&m, &q, BOTH);
    q.sampler_options = (struct tern_sampler_options){.s_churn = 0};
    q.denoising_end = 0.6;
    same(&m, &q, BOTH);
    close_pair(&m);
}

/* Whole calls and shallow ones, of every branch. */
static void caches_agree(void **state)
{
    struct pair m = open_model("sd1");
    const int branches = TERN_UNET_BRANCHES * m.whole->unet_config.blocks;
    for (int branch = 0; branch < branches; branch++) {
        struct tern_txt2img_params q = job_of("a cat");
        q.cache_interval = 2 + branch % 2;
        q.cache_branch_id = branch;
        q.steps = 5;
        q.sampler = branch % 3 ? TERN_SAMPLER_EULER_A : TERN_SAMPLER_HEUN;
        same(&m, &q, BOTH);
    }
    close_pair(&m);
}

/* Other weights of keys and values: what was computed of the former ones is not used again. */
static void weights_may_change(void **state)
{
    static const struct lora_spec lora = {"a.safetensors", 1, NULL, 0};
    struct pair m = open_model("sd1");
    const struct tern_txt2img_params q = job_of("a cat");
    same(&m, &q, BOTH);
    lora_set(m.ctx, m.whole, &lora, 1);
    lora_set(m.ctx, m.split, &lora, 1);
    same(&m, &q, BOTH);
    lora_set(m.ctx, m.whole, NULL, 0);
    lora_set(m.ctx, m.split, NULL, 0);
    same(&m, &q, BOTH);
    close_pair(&m);
}

/* A text that changes from step to step is not known; nor is, in SDXL, what the time's values follow from. */
static void texts_may_change_between_steps(void **state)
{
    struct pair sd = open_model("sd1"), xl = open_model("sdxl");
    struct tern_txt2img_params q = job_of("a [cat:dog:2]");
    q.prompt_syntax = TERN_PROMPT_A1111;
    same(&sd, &q, TERN_KNOWN_TIME);
    same(&xl, &q, 0);
    q.prompt = "a (cat:1.2) AND a dog";
    same(&sd, &q, BOTH);
    same(&xl, &q, BOTH);
    close_pair(&sd);
    close_pair(&xl);
}

/* From a picture, and in a second pass at another size. */
static void other_beginnings_agree(void **state)
{
    struct pair m = open_model("sd1");
    struct tern_txt2img_params q = job_of("a cat");
    struct tern_images *images = job_run(m.ctx, m.whole, &q);
    q.init_image = tern_images_at(images, 0);
    q.strength = 0.7;
    same(&m, &q, BOTH);
    q = job_of("a cat");
    q.hires = (struct tern_hires){.hr_scale = 2, .hr_second_pass_steps = 3, .denoising_strength = 0.7};
    same(&m, &q, BOTH);
    tern_images_destroy(&images);
    close_pair(&m);
}

/* What makes the peak may be there twice, before and while the steps run. */
static void the_peak_is_predicted(void **state)
{
    for (int i = 0; i < 6; i++) {
        char path[PATH_SIZE];
        struct pair m = open_pair(model_path("demo", path), TERN_F32, (enum tern_offload)(TERN_OFFLOAD_NONE + i % 2));
        struct tern_txt2img_params q = job_of("a red boat");
        q.width = q.height = 256;
        q.count = 2;
        q.cache_interval = i / 2 % 2 + 1;
        m.split->hoist_least = i / 4 ? 0 : INT64_MIN;
        tern_pipeline_destroy(&m.whole);
        for (int k = 0; k < 2; k++) {
            size_t need = 0;
            assert_int_equal(tern_generate_check(m.split, &q, &need), TERN_OK);
            tern_memory_trim(m.ctx);
            tern_memory_reset_peak(m.ctx);
            struct tern_images *images = job_run(m.ctx, m.split, &q);
            const double ratio = (double)tern_memory_peak(m.ctx) / (double)need;
            tern_images_destroy(&images);
            if (ratio > 1 || ratio < 0.95)
                fail_msg("job %d of kind %d: predicted %zu bytes, the peak was %.4f of that", k, i, need, ratio);
        }
        close_pair(&m);
    }
}

/* The bytes of a job, and what its UNet is given. */
static size_t need_of(int64_t least, const struct tern_txt2img_params *q, unsigned *known)
{
    char path[PATH_SIZE];
    size_t need = 0;
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = model_load(ctx, model_path("demo", path));
    p->hoist_least = least;
    assert_int_equal(tern_generate_check(p, q, &need), TERN_OK);
    *known = known_of(p);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return need;
}

/* What takes so much more as weights than as values is computed early, and then the job needs less. */
static void it_is_done_where_it_pays(void **state)
{
    unsigned known;
    struct tern_txt2img_params q = job_of("a red boat");
    const size_t whole = need_of(INT64_MAX, &q, &known);
    assert_int_equal(known, 0);
    const size_t split = need_of(64 << 10, &q, &known);
    print_message("the UNet whole: %zu bytes, with what is known early %zu\n", whole, split);
    assert_int_equal(known, TERN_KNOWN_TIME); /* 2 x 77 rows of keys and values are as much as their weights */
    assert_true(split < whole);
    q.steps = 900; /* values of so many calls are more than the weights */
    need_of(64 << 10, &q, &known);
    assert_int_equal(known, 0);
}

/* A graph has no more inputs than TERN_GRAPH_MAX_IO: of what does not go in, one kind is computed in the UNet, or both are. */
static void inputs_are_not_too_many(void **state)
{
    struct pair m = open_model("sd1");
    const struct tern_txt2img_params q = job_of("a cat");
    struct tern_images *expected = job_run(m.ctx, m.whole, &q);
    bool seen[BOTH + 1] = {false};
    for (int most = TERN_UNET_INPUTS; most <= TERN_UNET_INPUTS + 120; most += 3) {
        m.split->hoist_inputs = most;
        struct tern_images *found = job_run(m.ctx, m.split, &q);
        const unsigned known = known_of(m.split);
        for (int i = 0; i < TERN_MAX_PLANNED; i++) {
            const struct tern_planned *e = &m.split->planned[i];
            if (e->plan && e->stage.component[0] == 'u' && !e->stage.early && e->stage.known == known)
                assert_true(e->plan->graph->n_inputs <= most);
        }
        assert_true(job_same(expected, 0, found));
        tern_images_destroy(&found);
        seen[known] = true;
    }
    assert_true(seen[0] && seen[BOTH] && (seen[TERN_KNOWN_TIME] || seen[TERN_KNOWN_TEXT]));
    tern_images_destroy(&expected);
    close_pair(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_agree),
        cmocka_unit_test(inputs_are_not_too_many),
        cmocka_unit_test(a_consistency_model_agrees),
        cmocka_unit_test(samplers_agree),
        cmocka_unit_test(caches_agree),
        cmocka_unit_test(weights_may_change),
        cmocka_unit_test(texts_may_change_between_steps),
        cmocka_unit_test(other_beginnings_agree),
        cmocka_unit_test(the_peak_is_predicted),
        cmocka_unit_test(it_is_done_where_it_pays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Whole pictures of the samplers that only k-diffusion has: noise by seed and memory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/pipeline.h>

#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "support.h"

static struct tern_pipeline *load(struct tern_context *ctx)
{
    char path[PATH_SIZE];
    return model_load(ctx, model_path("sd1", path));
}

/* The latents after the last step; free(). */
static float *latents_of(struct tern_context *ctx, struct tern_pipeline *p, const struct tern_txt2img_params *q, int64_t *n)
{
    struct tern_images *images = tern_generate(p, q);
    if (!images)
        fail_msg("%s", tern_error(ctx));
    float *x = support_values(tern_images_latents(images), n);
    tern_images_destroy(&images);
    return x;
}

static const enum tern_sampler brownian[] = {TERN_SAMPLER_DPMPP_SDE, TERN_SAMPLER_DPMPP_2M_SDE, TERN_SAMPLER_DPMPP_2M_SDE_HEUN,
                                             TERN_SAMPLER_DPMPP_3M_SDE};

/* A picture of a batch is the one that its seed gives alone; another seed gives another. */
static void test_seeds_in_a_batch(void **state)
{
    (void)state;
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = load(ctx);
    for (int i = 0; i < 4; i++) {
        struct tern_txt2img_params q = {
            .prompt = "a cat", .width = 40, .height = 32, .steps = 4, .seed = 5, .sampler = brownian[i], .count = 2};
        int64_t n, one;
        float *both = latents_of(ctx, p, &q, &n);
        q.count = 1;
        for (int k = 0; k < 2; k++, q.seed++) {
            float *alone = latents_of(ctx, p, &q, &one);
            assert_int_equal(n, 2 * one);
            assert_true(support_nmse(both + k * one, alone, one) < 1e-10);
            free(alone);
        }
        assert_true(support_nmse(both, both + one, one) > 1e-3);
        free(both);
    }
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

struct steps {
    int calls, first, last, total; /* first: what the first call says of the total */
    bool rising;
};

static void count_step(int step, int steps, const float *latents, int64_t count, void *user)
{
    struct steps *s = user;
    (void)latents;
    (void)count;
    s->rising = s->rising && step == s->last + 1 && steps >= step && (!s->calls || s->last < s->total);
    s->first = s->calls ? s->first : steps;
    s->last = step;
    s->total = steps;
    s->calls++;
}

/* How many calls dpm_adaptive makes is known at the end: only then is the display full. */
static void test_calls_that_are_not_known(void **state)
{
    (void)state;
    static const enum tern_sampler samplers[] = {TERN_SAMPLER_DPM_FAST, TERN_SAMPLER_DPM_ADAPTIVE};
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = load(ctx);
    int calls[2];
    for (int i = 0; i < 2; i++) {
        struct steps s = {.rising = true};
        int64_t n;
        struct tern_txt2img_params q = {
            .prompt = "a cat", .width = 32, .height = 32, .steps = 7, .sampler = samplers[i], .on_step = count_step, .on_step_user = &s};
        float *x = latents_of(ctx, p, &q, &n);
        for (int64_t k = 0; k < n; k++)
            assert_true(isfinite(x[k]));
        free(x);
        assert_true(s.rising && s.last == s.total);
        assert_true(s.first > 6 && (i || s.first == s.total)); /* more than the calls of one step */
        calls[i] = s.calls;
    }
    assert_int_equal(calls[0], 7);
    assert_true(calls[1] > 12 && calls[1] % 3 == 0);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* Infotext has A1111's names for what is not its default, and ENSD where noise is drawn. */
static void test_infotext(void **state)
{
    static const struct {
        struct tern_txt2img_params q;
        const char *part;
    } rows[] = {
        {{.sampler = TERN_SAMPLER_DPMPP_2M_SDE_HEUN, .schedule = TERN_SCHEDULE_KARRAS, .ensd = 3},
         "Sampler: DPM++ 2M SDE Heun, Schedule type: Karras,"},
        {{.sampler = TERN_SAMPLER_DPMPP_2M_SDE_HEUN, .ensd = 3}, "RNG: CPU, Version"},
        {{.sampler = TERN_SAMPLER_EULER_A, .sampler_options = {.eta = 0.5}, .ensd = 31337}, "RNG: CPU, ENSD: 31337, Eta: 0.5, Version"},
        {{.sampler = TERN_SAMPLER_EULER_A, .sampler_options = {.eta = -1}, .ensd = 31337}, "RNG: CPU, Eta: 0, Version"},
        {{.sampler = TERN_SAMPLER_DDIM, .sampler_options = {.eta = 0.25}}, "RNG: CPU, Eta DDIM: 0.25, Version"},
        {{.sampler = TERN_SAMPLER_HEUN, .sampler_options = {.s_churn = 4, .s_tmin = 0.5, .s_tmax = 9, .s_noise = 1.01}},
         "RNG: CPU, Sigma churn: 4, Sigma tmin: 0.5, Sigma tmax: 9, Sigma noise: 1.01, Version"},
        {{.sampler = TERN_SAMPLER_DPM_ADAPTIVE, .sampler_options = {.eta = 1}}, "Sampler: DPM adaptive, CFG scale"},
    };
    (void)state;
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = load(ctx);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tern_txt2img_params q = rows[i].q;
        q.width = q.height = 16;
        q.steps = 2;
        q.cfg = 1;
        struct tern_image *image = tern_txt2img(p, &q);
        if (!image || !strstr(tern_image_text(image, "parameters"), rows[i].part))
            fail_msg("%s: %s", rows[i].part, image ? tern_image_text(image, "parameters") : tern_error(ctx));
        tern_image_destroy(&image);
    }
    struct tern_txt2img_params wrong = {.sampler = TERN_SAMPLER_DDIM, .sampler_options = {.s_churn = 1}};
    assert_null(tern_txt2img(p, &wrong));
    support_error(ctx, TERN_E_INVALID, "s_churn: sampler ddim");
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* With ENSD the first noise is the seed's and what follows another seed's from its start: where nothing follows, or the tree's noise, the
 * picture is the same; a sampler that churns or is ancestral gives another, and with a second seed whose noise is that again. */
static void test_ensd(void **state)
{
    static const struct {
        enum tern_sampler sampler;
        double churn;
        bool changes;
    } rows[] = {{TERN_SAMPLER_EULER, 0, false},        {TERN_SAMPLER_EULER, 5, true},        {TERN_SAMPLER_HEUN, 5, true},
                {TERN_SAMPLER_DPM2, 5, true},          {TERN_SAMPLER_EULER_A, 0, true},      {TERN_SAMPLER_DPMPP_2S_A, 0, true},
                {TERN_SAMPLER_DPMPP_2M_SDE, 0, false}, {TERN_SAMPLER_DPM_ADAPTIVE, 0, true}, {TERN_SAMPLER_LCM, 0, true}};
    (void)state;
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = load(ctx);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tern_txt2img_params q = {.prompt = "a cat",
                                        .width = 32,
                                        .height = 32,
                                        .steps = 3,
                                        .seed = 8,
                                        .cfg = 1,
                                        .sampler = rows[i].sampler,
                                        .sampler_options.s_churn = rows[i].churn};
        int64_t n;
        float *plain = latents_of(ctx, p, &q, &n), first[64];
        q.ensd = 31337;
        float *delta = latents_of(ctx, p, &q, &n);
        assert_true(rows[i].changes ? support_nmse(delta, plain, n) > 1e-4 : support_nmse(delta, plain, n) == 0);
        /* the same from the seed 8 + 31337 - 2 with a delta of 2 and the first noise of seed 8 */
        struct tern_generator g;
        tern_generator_seed(&g, TERN_GENERATOR_CPU, 8);
        tern_generator_randn(&g, first, 64);
        assert_int_equal(n, 64);
        q.init_latents = tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){1, 4, 4, 4}, first);
        q.seed = rows[i].sampler == TERN_SAMPLER_DPMPP_2M_SDE ? 8 : 8 + 31337 - 2;
        q.ensd = 2;
        float *again = latents_of(ctx, p, &q, &n);
        assert_true(support_nmse(again, delta, n) == 0);
        tern_tensor_unref(&q.init_latents);
        free(plain);
        free(delta);
        free(again);
    }
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

static size_t predicted(struct tern_pipeline *p, enum tern_sampler sampler)
{
    struct tern_job j;
    struct tern_job_peak peak;
    struct tern_txt2img_params q = {.width = 64, .height = 48, .steps = 3, .sampler = sampler};
    assert_int_equal(tern_job_prepare(&j, p, &q), TERN_OK);
    assert_int_equal(tern_job_predict_peak(&j, &peak), TERN_OK);
    tern_job_destroy(&j);
    return peak.sample;
}

/* The tree counts in what sampling is predicted to need: as many bytes as it takes. */
static void test_memory(void **state)
{
    (void)state;
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = load(ctx);
    predicted(p, TERN_SAMPLER_EULER); /* plans are made */
    size_t without = predicted(p, TERN_SAMPLER_EULER), before = tern_memory_used(ctx);
    struct tern_brownian *b = tern_brownian_create(ctx, TERN_GENERATOR_CPU, 0.0291675, 14.614647, 4 * 8 * 6);
    size_t bytes = tern_memory_used(ctx) - before;
    tern_brownian_destroy(&b);
    for (int i = 0; i < 4; i++) {
        size_t more = predicted(p, brownian[i]) - without;
        assert_true(more > 4 * 8 * 6 * sizeof(float) && more <= bytes && bytes <= more + 256); /* rounded up to blocks */
    }
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seeds_in_a_batch), cmocka_unit_test(test_calls_that_are_not_known),
        cmocka_unit_test(test_infotext),         cmocka_unit_test(test_ensd),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

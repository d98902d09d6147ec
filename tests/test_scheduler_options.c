/* Options of the samplers that the golden trajectories leave at their defaults, against numbers of diffusers 0.42.1. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <tern/scheduler.h>

#include "models/schedulers/scheduler.h"
#include "support.h"

#define VALUES 4

/* The config has SD 1.5's betas (unless `more` has its own) and `more`. Run: the sample below times init_noise_sigma, or for
 * a strength under 1 the sample with itself backwards as noise. Value j of model output k is ((7 k + 3 j) mod 11 - 5) / 5;
 * noise, where it is drawn, is the sample. Expected: the sample after the last call. */
static const float sample[VALUES] = {0.8f, -1.1f, 0.3f, -0.2f};

static const struct {
    enum tern_sampler sampler;
    int steps;
    double strength;
    const char *more;
    float expected[VALUES];
} cases[] = {
    {TERN_SAMPLER_PNDM, 9, 1, "\"skip_prk_steps\": false", {4.958002f, -10.28898f, 2.512782f, 0.9129507f}},
    {TERN_SAMPLER_PNDM,
     9,
     1,
     "\"skip_prk_steps\": false, \"prediction_type\": \"v_prediction\", \"timestep_spacing\": \"trailing\"",
     {-0.4671284f, -0.91209066f, 1.0557654f, -0.4596389f}},
    {TERN_SAMPLER_PNDM, 9, 0.7, "\"skip_prk_steps\": false", {-0.03602779f, -0.25010204f, -11.52323f, 9.022347f}},
    {TERN_SAMPLER_PNDM,
     6,
     1,
     "\"skip_prk_steps\": true, \"set_alpha_to_one\": true, \"timestep_spacing\": \"linspace\"",
     {8.801426f, -12.487993f, 1.8726388f, -1.305315f}},
    {TERN_SAMPLER_DDIM, 6, 1, "\"clip_sample_range\": 0.6", {-0.18273824f, -0.06603955f, 0.4964651f, -0.18273821f}},
    {TERN_SAMPLER_DDIM,
     6,
     1,
     "\"thresholding\": true, \"dynamic_thresholding_ratio\": 0.7, \"sample_max_value\": 1.3",
     {-0.5827382f, 0.2973416f, 0.13452582f, 0.11636093f}},
    {TERN_SAMPLER_DDIM,
     6,
     1,
     "\"rescale_betas_zero_snr\": true, \"timestep_spacing\": \"trailing\", "
     "\"prediction_type\": \"v_prediction\", \"clip_sample\": false",
     {0.70471734f, -1.0864142f, 0.10616491f, 0.27310202f}},
    {TERN_SAMPLER_EULER, 6, 1, "\"final_sigmas_type\": \"sigma_min\"", {19.835537f, -15.381889f, 3.7076821f, -9.893819f}},
    {TERN_SAMPLER_EULER,
     6,
     1,
     "\"use_karras_sigmas\": true, \"sigma_min\": 0.1, \"sigma_max\": 9.5",
     {11.332801f, -11.173064f, 2.5334272f, -4.927531f}},
    {TERN_SAMPLER_EULER,
     6,
     1,
     "\"trained_betas\": [0.001, 0.00102, 0.00104, 0.00106, 0.00108, 0.0011, 0.00112, 0.00114, 0.00116, "
     "0.00118, 0.0012, 0.00122, 0.00124, 0.00126, 0.00128, 0.0013, 0.00132, 0.00134, 0.00136, 0.00138], "
     "\"num_train_timesteps\": 20",
     {0.12844361f, -0.20294882f, 0.049556755f, -0.004211221f}},
    {TERN_SAMPLER_HEUN, 5, 1, "\"clip_sample\": true, \"clip_sample_range\": 0.8", {0.8f, -0.8f, 0.78321373f, -0.6390055f}},
    {TERN_SAMPLER_HEUN,
     5,
     0.6,
     "\"use_karras_sigmas\": true, \"timestep_spacing\": \"leading\"",
     {0.7696752f, -1.0501841f, -0.3136264f, 0.12805451f}},
    {TERN_SAMPLER_LMS, 9, 0.6, "\"timestep_spacing\": \"trailing\"", {1.7387509f, -2.047106f, -1.5249683f, 2.0612686f}},
    {TERN_SAMPLER_LMS, 9, 1, "\"beta_schedule\": \"squaredcos_cap_v2\"", {36518.234f, -14208.816f, 2031.4135f, -20286.262f}},
    {TERN_SAMPLER_DPMPP_2M, 8, 1, "\"solver_order\": 1", {17.391726f, -16.635664f, 4.258969f, -7.5092793f}},
    {TERN_SAMPLER_DPMPP_2M, 8, 1, "\"solver_order\": 3", {16.635891f, -16.755861f, 3.8378797f, -6.2967076f}},
    {TERN_SAMPLER_DPMPP_2M, 16, 1, "\"solver_order\": 3", {13.479856f, -17.021984f, 4.1821637f, -4.69629f}},
    {TERN_SAMPLER_DPMPP_2M,
     8,
     1,
     "\"solver_order\": 3, \"lower_order_final\": false, \"final_sigmas_type\": \"sigma_min\"",
     {17.854124f, -22.956717f, 8.49971f, -5.0212736f}},
    {TERN_SAMPLER_DPMPP_2M, 8, 1, "\"solver_type\": \"heun\"", {15.097057f, -18.146227f, 4.923506f, -5.863952f}},
    {TERN_SAMPLER_DPMPP_2M, 16, 1, "\"final_sigmas_type\": \"sigma_min\"", {12.549663f, -19.013151f, 5.4655457f, -3.731684f}},
    {TERN_SAMPLER_DPMPP_2M,
     16,
     1,
     "\"final_sigmas_type\": \"sigma_min\", \"euler_at_final\": true",
     {12.404037f, -18.457796f, 4.90409f, -3.8924925f}},
    {TERN_SAMPLER_DPMPP_2M, 8, 1, "\"lambda_min_clipped\": -1.5", {3.8834941f, -5.712088f, 1.7481819f, -1.1032852f}},
    {TERN_SAMPLER_DPMPP_2M, 8, 1, "\"thresholding\": true, \"sample_max_value\": 2.0", {0.6172823f, -1.0f, 0.603208f, -0.13268937f}},
    {TERN_SAMPLER_DPMPP_2M,
     8,
     1,
     "\"use_karras_sigmas\": true, \"beta_schedule\": \"squaredcos_cap_v2\"",
     {19568.432f, -28515.518f, 7329.425f, -7145.277f}},
    {TERN_SAMPLER_DPMPP_2M, 8, 1, "\"solver_type\": \"logrho\"", {15.330382f, -17.977556f, 4.849749f, -6.0325933f}},
    {TERN_SAMPLER_UNIPC, 8, 1, "\"solver_order\": 1", {15.91842f, -17.634745f, 4.6522346f, -6.38891f}},
    {TERN_SAMPLER_UNIPC, 8, 1, "\"solver_order\": 3", {15.411632f, -17.897247f, 4.3613276f, -5.457454f}},
    {TERN_SAMPLER_UNIPC,
     8,
     1,
     "\"solver_order\": 3, \"solver_type\": \"bh1\", \"final_sigmas_type\": \"sigma_min\"",
     {14.335603f, -18.85681f, 4.8968954f, -4.887783f}},
    {TERN_SAMPLER_UNIPC,
     8,
     1,
     "\"final_sigmas_type\": \"sigma_min\", \"lower_order_final\": false",
     {14.6130705f, -19.052856f, 5.9852624f, -5.6502132f}},
    {TERN_SAMPLER_UNIPC, 8, 1, "\"final_sigmas_type\": \"sigma_min\"", {14.688813f, -18.376976f, 4.9962816f, -5.6034303f}},
    {TERN_SAMPLER_UNIPC,
     8,
     1,
     "\"use_karras_sigmas\": true, \"final_sigmas_type\": \"sigma_min\", \"prediction_type\": \"v_prediction\"",
     {0.5403797f, -1.4009941f, 0.5589339f, 0.0331906f}},
    {TERN_SAMPLER_UNIPC,
     8,
     1,
     "\"use_karras_sigmas\": true, \"sigma_min\": 0.2, \"final_sigmas_type\": \"sigma_min\"",
     {11.777531f, -19.360388f, 4.794259f, -3.15392f}},
    {TERN_SAMPLER_UNIPC,
     8,
     1,
     "\"rescale_betas_zero_snr\": true, \"timestep_spacing\": \"trailing\"",
     {7350.418f, -2885.1719f, 417.56635f, -4079.2742f}},
    {TERN_SAMPLER_UNIPC,
     8,
     0.5,
     "\"solver_order\": 3, \"final_sigmas_type\": \"sigma_min\"",
     {0.3439861f, -0.8716785f, -1.673051f, 1.124252f}},
    {TERN_SAMPLER_LCM,
     5,
     1,
     "\"original_inference_steps\": 20, \"timestep_scaling\": 0.002, \"timestep_spacing\": \"trailing\"",
     {35.00995f, -28.720247f, 6.4809246f, -16.84634f}},
    {TERN_SAMPLER_LCM, 3, 1, "\"clip_sample\": true, \"clip_sample_range\": 0.4", {0.40000004f, -0.40000004f, -0.07569792f, 0.17083755f}},
};

static struct tern_scheduler *make(struct tern_context *ctx, size_t i)
{
    bool own_betas = strstr(cases[i].more, "\"beta_schedule\"") || strstr(cases[i].more, "\"trained_betas\"");
    char config[1024];
    snprintf(config, sizeof(config), "{\"beta_start\": 0.00085, \"beta_end\": 0.012, %s%s}",
             own_betas ? "" : "\"beta_schedule\": \"scaled_linear\", ", cases[i].more);
    struct tern_scheduler *s = tern_scheduler_create(ctx, config, cases[i].sampler, TERN_SCHEDULE_DEFAULT);
    if (!s || tern_scheduler_set_steps(s, cases[i].steps))
        fail_msg("%s: %s", cases[i].more, tern_error(ctx));
    return s;
}

static void model_output(int k, float output[VALUES])
{
    for (int j = 0; j < VALUES; j++)
        output[j] = (float)(((7 * k + 3 * j) % 11 - 5) * 0.2);
}

static void test_options(void **state)
{
    struct tern_context *ctx = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tern_scheduler *s = make(ctx, i);
        float x[VALUES], output[VALUES], backwards[VALUES];
        for (int j = 0; j < VALUES; j++) {
            backwards[j] = sample[VALUES - 1 - j];
            x[j] = sample[j] * (float)tern_scheduler_init_noise_sigma(s);
        }
        int begin = 0;
        if (cases[i].strength < 1) {
            begin = tern_scheduler_begin_at(s, cases[i].strength);
            tern_scheduler_add_noise(s, begin, sample, backwards, x, VALUES);
        }
        for (int call = begin, k = 0; call < tern_scheduler_calls(s); call++, k++) {
            model_output(k, output);
            assert_int_equal(tern_scheduler_step(s, call, output, sample, x, VALUES), TERN_OK);
        }
        double error = support_nmse(x, cases[i].expected, VALUES);
        if (!(error <= 1e-12))
            fail_msg("%s, %d steps, %s: NMSE %g", tern_sampler_name(cases[i].sampler), cases[i].steps, cases[i].more, error);
        tern_scheduler_destroy(&s);
    }
}

/* The same run of tcd, with numbers of diffusers' step(eta=…). */
static void test_eta_of_tcd(void **state)
{
    static const struct {
        double eta;
        float expected[VALUES];
    } rows[] = {
        {-1, {20.672476f, -14.378197f, 3.1962664f, -10.907718f}}, /* none */
        {0, {27.464127f, -20.251822f, 4.6156769f, -13.850192f}},  /* the default */
        {0.5, {28.53351f, -20.872253f, 4.7146425f, -14.43048f}},
        {1, {29.816067f, -21.655361f, 4.7249594f, -15.057267f}},
    };
    struct tern_context *ctx = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tern_scheduler *s = tern_scheduler_create(ctx, NULL, TERN_SAMPLER_TCD, TERN_SCHEDULE_DEFAULT);
        assert_int_equal(tern_scheduler_set_options(s, &(struct tern_sampler_options){.eta = rows[i].eta}), TERN_OK);
        assert_int_equal(tern_scheduler_set_steps(s, 4), TERN_OK);
        float x[VALUES], output[VALUES];
        memcpy(x, sample, sizeof(x));
        for (int k = 0; k < tern_scheduler_calls(s); k++) {
            assert_int_equal(tern_scheduler_draws_noise(s, k), rows[i].eta >= 0 && k < 3);
            model_output(k, output);
            assert_int_equal(tern_scheduler_step(s, k, output, sample, x, VALUES), TERN_OK);
        }
        assert_true(support_nmse(x, rows[i].expected, VALUES) <= 1e-12);
        tern_scheduler_destroy(&s);
    }
}

/* AUTOMATIC1111's levels of Align Your Steps for SDXL: numpy's interpolation of the logarithms of those that it has for 10 steps. */
static void test_levels_of_sdxl(void **state)
{
    static const struct {
        int steps;
        float sigmas[11];
    } rows[] = {
        {1, {0.029f}},
        {4, {14.615f, 1.85504571f, 0.431141729f, 0.029f}},
        {7, {14.615f, 4.47811738f, 1.85504571f, 0.862f, 0.431141729f, 0.183584799f, 0.029f}},
        {11, {14.615f, 6.315f, 3.771f, 2.181f, 1.342f, 0.862f, 0.555f, 0.38f, 0.234f, 0.113f, 0.029f}},
    };
    struct tern_context *ctx = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tern_scheduler *s = tern_scheduler_create(ctx, NULL, TERN_SAMPLER_EULER, TERN_SCHEDULE_ALIGN_YOUR_STEPS);
        assert_int_equal(tern_scheduler_set_options(s, &(struct tern_sampler_options){.sdxl = true}), TERN_OK);
        assert_int_equal(tern_scheduler_set_steps(s, rows[i].steps), TERN_OK);
        for (int k = 0; k < rows[i].steps; k++)
            assert_true(fabs(tern_scheduler_sigma(s, k) / (double)rows[i].sigmas[k] - 1) <= 1e-6);
        tern_scheduler_destroy(&s);
    }
}

/* Rounding makes 62 points of 61 trailing steps: samplers with sigmas make the call, as diffusers does, with timestep -1 at
 * the lowest sigma; where the timestep is an index it is left out. */
static void test_trailing_with_one_call_more(void **state)
{
    static const char config[] = "{\"timestep_spacing\": \"trailing\", \"skip_prk_steps\": true, \"beta_start\": 0.0001, "
                                 "\"beta_end\": 0.02, \"beta_schedule\": \"linear\"}";
    struct tern_context *ctx = *state;
    for (int sampler = 1; sampler < TERN_SAMPLER_LCM; sampler++) {
        struct tern_scheduler *s = tern_scheduler_create(ctx, config, (enum tern_sampler)sampler, TERN_SCHEDULE_DEFAULT);
        assert_int_equal(tern_scheduler_set_steps(s, 61), TERN_OK);
        int calls = tern_scheduler_calls(s), sigmas = tern_scheduler_sigma_count(s);
        assert_int_equal(calls, sampler == TERN_SAMPLER_DDIM ? 61 : sampler == TERN_SAMPLER_HEUN ? 123 : 62);
        assert_true(tern_scheduler_timestep(s, calls - 1) == (sigmas ? -1 : 15));
        if (sigmas) /* sqrt(0.0001 / 0.9999), of timestep 0 */
            assert_true(fabs(tern_scheduler_sigma(s, sigmas - 2) - 0.0100005) < 1e-6);
        tern_scheduler_destroy(&s);
    }
}

/* Betas so small that neighbouring noise levels are equal in f32: no division by their difference. */
static void test_repeated_levels(void **state)
{
    static const char config[] = "{\"num_train_timesteps\": 8, \"trained_betas\": [0.4, 6e-8, 6e-8, 6e-8, 6e-8, 6e-8, 0.1, 0.1], "
                                 "\"solver_order\": 3, \"lower_order_final\": false}";
    static const enum tern_sampler samplers[] = {TERN_SAMPLER_EULER, TERN_SAMPLER_HEUN, TERN_SAMPLER_LMS, TERN_SAMPLER_DPMPP_2M,
                                                 TERN_SAMPLER_UNIPC};
    struct tern_context *ctx = *state;
    for (size_t i = 0; i < sizeof(samplers) / sizeof(samplers[0]); i++) {
        struct tern_scheduler *s = tern_scheduler_create(ctx, config, samplers[i], TERN_SCHEDULE_DEFAULT);
        assert_non_null(s);
        assert_int_equal(tern_scheduler_set_steps(s, i < 3 ? 8 : 7), TERN_OK); /* every timestep, or all but the last */
        int repeated = 0;
        float x[VALUES] = {1, 2, 3, 4}, output[VALUES];
        for (int call = 0; call < tern_scheduler_calls(s); call++) {
            repeated += tern_scheduler_sigma(s, call) == tern_scheduler_sigma(s, call + 1);
            for (int j = 0; j < VALUES; j++)
                output[j] = (float)(call - j) * 0.3f;
            assert_int_equal(tern_scheduler_step(s, call, output, NULL, x, VALUES), TERN_OK);
            for (int j = 0; j < VALUES; j++)
                assert_true(isfinite(x[j]));
        }
        assert_true(repeated > 0);
        tern_scheduler_destroy(&s);
    }
}

/* A1111's schedules end at 0, whatever the config says: the last step gives the x0 that its model output tells, as any does there. */
static void test_a1111_schedules_end_at_zero(void **state)
{
    static const char config[] = "{\"final_sigmas_type\": \"sigma_min\"}";
    struct tern_context *ctx = *state;
    for (int k = TERN_SCHEDULE_SGM_UNIFORM; k < TERN_SCHEDULE_COUNT; k++) {
        struct tern_scheduler *s = tern_scheduler_create(ctx, config, TERN_SAMPLER_DPMPP_2M, (enum tern_schedule)k);
        assert_int_equal(tern_scheduler_set_steps(s, 20), TERN_OK);
        const int last = tern_scheduler_calls(s) - 1;
        const double sigma = tern_scheduler_sigma(s, last);
        float x[VALUES], output[VALUES], expected[VALUES];
        memcpy(x, sample, sizeof(x));
        for (int call = 0; call <= last; call++) {
            model_output(call, output);
            for (int j = 0; j < VALUES; j++) /* of x = alpha (x0 + sigma e), alpha^2 (1 + sigma^2) = 1 */
                expected[j] = (float)((double)x[j] * sqrt(1 + sigma * sigma) - sigma * (double)output[j]);
            assert_int_equal(tern_scheduler_step(s, call, output, NULL, x, VALUES), TERN_OK);
        }
        if (!(support_nmse(x, expected, VALUES) <= 1e-12))
            fail_msg("%s: ends with %g, expected %g", tern_schedule_name((enum tern_schedule)k), (double)x[0], (double)expected[0]);
        tern_scheduler_destroy(&s);
    }
}

/* What inpainting puts noise on for each call: by add_noise of diffusers' KDPM2DiscreteScheduler and KDPM2AncestralDiscreteScheduler, of 4
 * steps. */
static void test_noise_between_levels(void **state)
{
    static const float expected[] = {14.614647f, 2.9183085f, 2.9183085f, 0.93235838f, 0.93235838f, 0.029167535f, 0.029167535f, 0};
    static const enum tern_sampler samplers[] = {TERN_SAMPLER_DPM2, TERN_SAMPLER_DPM2_A};
    struct tern_context *ctx = *state;
    for (int k = 0; k < 2; k++) {
        struct tern_scheduler *s = tern_scheduler_create(ctx, NULL, samplers[k], TERN_SCHEDULE_DEFAULT);
        assert_int_equal(tern_scheduler_set_steps(s, 4), TERN_OK);
        assert_int_equal(tern_scheduler_calls(s), 7);
        for (int i = 0; i < 8; i++) {
            const float zero = 0, one = 1;
            float got;
            tern_scheduler_add_noise(s, i, &zero, &one, &got, 1);
            assert_float_equal(got, expected[i], 1e-6 * (double)expected[i]);
        }
        tern_scheduler_destroy(&s);
    }
}

/* dpm_adaptive ends with an error where no step is good enough: outputs that are no numbers, and outputs of which 1000 steps are too
 * short: the second and the third of each step pull in opposite directions. */
static void test_adaptive_gives_up(void **state)
{
    static const float none[VALUES] = {0};
    struct tern_context *ctx = *state;
    for (int wild = 0; wild < 2; wild++) {
        float x[VALUES] = {0}, output[VALUES];
        enum tern_status status = TERN_OK;
        struct tern_scheduler *s = tern_scheduler_create(ctx, NULL, TERN_SAMPLER_DPM_ADAPTIVE, TERN_SCHEDULE_DEFAULT);
        assert_int_equal(tern_scheduler_set_steps(s, 10), TERN_OK);
        assert_int_equal(tern_scheduler_calls(s), 3);
        int call = 0;
        for (; !status && call < tern_scheduler_calls(s); call++) {
            static const double pull[] = {0, 100, -100};
            for (int j = 0; j < VALUES; j++)
                output[j] = wild ? (float)(pull[call % 3] * (call % 6 < 3 ? 1 : -1) / tern_scheduler_sigma(s, call)) : NAN;
            status = tern_scheduler_step(s, call, output, none, x, VALUES);
        }
        assert_int_equal(status, TERN_E_INVALID);
        assert_int_equal(call, wild ? 3000 : 3);
        support_error(ctx, TERN_E_INVALID, wild ? "in 1000 steps down to" : "outputs are no numbers");
        assert_int_equal(tern_scheduler_step(s, call, output, none, x, VALUES), TERN_E_INVALID);
        support_error(ctx, TERN_E_INVALID, "out of order");
        assert_int_equal(tern_scheduler_set_steps(s, 10), TERN_OK); /* the state of that run is gone */
        assert_int_equal(tern_scheduler_calls(s), 3);
        tern_scheduler_destroy(&s);
    }
}

/* Their range: from the level of img2img's first step, of which at least a step must be left; levels that differ. */
static void test_range_of_dpm_solvers(void **state)
{
    struct tern_context *ctx = *state;
    for (int i = 0; i < 2; i++) {
        enum tern_sampler sampler = i ? TERN_SAMPLER_DPM_ADAPTIVE : TERN_SAMPLER_DPM_FAST;
        struct tern_scheduler *s = tern_scheduler_create(ctx, NULL, sampler, TERN_SCHEDULE_DEFAULT);
        assert_int_equal(tern_scheduler_set_steps(s, 11), TERN_OK);
        assert_true(fabs(tern_scheduler_sigma(s, 0) - 14.614647) < 1e-5);
        assert_int_equal(tern_scheduler_begin_at(s, 0.55), 0); /* the last 6 of timesteps 999, 899.1 … */
        assert_int_equal(tern_scheduler_calls(s), i ? 3 : 6);
        assert_true(fabs(tern_scheduler_timestep(s, 0) - 499.5) < 1e-2);
        assert_int_equal(tern_scheduler_begin_at(s, 0.1), 0); /* only the last one, which begins at the end */
        assert_int_equal(tern_scheduler_calls(s), 0);
        assert_int_equal(tern_scheduler_begin_at(s, 0), 0);
        assert_int_equal(tern_scheduler_calls(s), 0);
        assert_int_equal(tern_scheduler_expected_calls(s), 0);
        assert_int_equal(tern_scheduler_begin_at(s, 1), 0);
        assert_int_equal(tern_scheduler_calls(s), i ? 3 : 11);
        tern_scheduler_destroy(&s);
        static const char still[] = "{\"num_train_timesteps\": 4, \"trained_betas\": [0.1, 1e-9, 1e-9, 1e-9]}";
        s = tern_scheduler_create(ctx, still, sampler, TERN_SCHEDULE_DEFAULT);
        assert_int_equal(tern_scheduler_set_steps(s, 3), TERN_E_INVALID);
        support_error(ctx, TERN_E_INVALID, "rise, found 0.333333 to 0.333333");
        tern_scheduler_destroy(&s);
    }
}

/* Which sampler has which option, and the ranges; a run that leaves the churn out. */
static void test_sampler_options(void **state)
{
    static const struct {
        enum tern_sampler sampler;
        struct tern_sampler_options options;
        const char *part; /* NULL: they are taken */
    } rows[] = {
        {TERN_SAMPLER_EULER, {.eta = 0.5}, "eta: sampler euler does not have it; these do: ddim, euler_a, dpm2_a, tcd, dpm++2s_a"},
        {TERN_SAMPLER_UNIPC, {.eta = -1}, "eta: sampler unipc"},
        {TERN_SAMPLER_EULER_A, {.s_churn = 1}, "s_churn: sampler euler_a does not have it; these do: euler, heun, dpm2"},
        {TERN_SAMPLER_LMS, {.s_tmin = 1}, "s_tmin"},
        {TERN_SAMPLER_DDIM, {.s_tmax = 1}, "s_tmax"},
        {TERN_SAMPLER_DDIM, {.s_noise = 1.5}, "s_noise: sampler ddim"},
        {TERN_SAMPLER_EULER_A, {.eta = 10.5}, "eta: expected a number up to 10, found 10.5"},
        {TERN_SAMPLER_EULER_A, {.eta = NAN}, "eta"},
        {TERN_SAMPLER_TCD, {.eta = 1.5}, "eta: expected a number up to 1, found 1.5"},
        {TERN_SAMPLER_HEUN, {.s_churn = INFINITY}, "s_churn: expected a number up to 1000, found inf"},
        {TERN_SAMPLER_HEUN, {.s_tmin = NAN}, "s_tmin"},
        {TERN_SAMPLER_HEUN, {.s_noise = 11}, "s_noise"},
        {TERN_SAMPLER_HEUN, {.s_churn = 1000, .s_tmin = 1, .s_tmax = 2, .s_noise = 0.5}, NULL},
        {TERN_SAMPLER_DPM2_A, {.eta = 10, .s_noise = -1}, NULL},
        {TERN_SAMPLER_DPMPP_3M_SDE, {.eta = 10, .s_noise = 10}, NULL},
        {TERN_SAMPLER_DPM_FAST, {.eta = 10}, NULL},
        {TERN_SAMPLER_DPM_ADAPTIVE, {.eta = -3, .s_tmin = 0}, NULL},
        {TERN_SAMPLER_DDIM, {.eta = 10}, NULL},
    };
    struct tern_context *ctx = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tern_scheduler *s = tern_scheduler_create(ctx, NULL, rows[i].sampler, TERN_SCHEDULE_DEFAULT);
        assert_int_equal(tern_scheduler_set_steps(s, 4), TERN_OK);
        assert_int_equal(tern_scheduler_set_options(s, &rows[i].options), rows[i].part ? TERN_E_INVALID : TERN_OK);
        if (rows[i].part)
            support_error(ctx, TERN_E_INVALID, rows[i].part);
        else
            assert_int_equal(tern_scheduler_calls(s), 0);
        float x[VALUES] = {1, 2, 3, 4};
        assert_int_equal(tern_scheduler_set_steps(s, 6), TERN_OK);
        for (int call = 0; call < tern_scheduler_calls(s); call++) {
            if (tern_scheduler_churns(s, call)) {
                assert_int_equal(tern_scheduler_step(s, call, sample, sample, x, VALUES), TERN_E_INVALID);
                support_error(ctx, TERN_E_INVALID, "needs tern_scheduler_churn");
                assert_int_equal(tern_scheduler_churn(s, call, sample, x, VALUES), TERN_OK);
            }
            assert_int_equal(tern_scheduler_churn(s, call, sample, x, VALUES), TERN_E_INVALID); /* none, or a second one */
            support_error(ctx, TERN_E_INVALID, "churn of call");
            assert_int_equal(tern_scheduler_step(s, call, sample, sample, x, VALUES), TERN_OK);
            for (int j = 0; j < VALUES; j++)
                assert_true(isfinite(x[j]));
        }
        tern_scheduler_destroy(&s);
    }
    assert_int_equal(tern_scheduler_set_options(NULL, NULL), TERN_E_INVALID);
    assert_int_equal(tern_scheduler_churn(NULL, 0, sample, NULL, 1), TERN_E_INVALID);
    assert_false(tern_scheduler_churns(NULL, 0));
}

/* ---- levels without the last but one */

#define DEVIATION 0.5 /* of the values that the model knows */

/* The run's end from `start` times the first level, of a model that knows the values' deviation. */
static void run_gaussian(struct tern_scheduler *s, const float start[4], float x[4])
{
    for (int k = 0; k < 4; k++)
        x[k] = start[k] * (float)tern_scheduler_sigma(s, 0);
    for (int i = 0; i < tern_scheduler_calls(s); i++) {
        const double sigma = tern_scheduler_sigma(s, i);
        float noise[4];
        for (int k = 0; k < 4; k++)
            noise[k] = (float)((double)x[k] * sigma / (DEVIATION * DEVIATION + sigma * sigma));
        assert_int_equal(tern_scheduler_step(s, i, noise, NULL, x, 4), TERN_OK);
    }
}

static void check_discarded(struct tern_context *ctx, const char *sampler, const json_t *row, const float start[4])
{
    const char *schedule = json_string_value(json_object_get(row, "schedule"));
    const json_t *sigmas = json_object_get(row, "sigmas"), *end = json_object_get(json_object_get(row, "ends"), sampler);
    const struct tern_sampler_options options = {.eta = strchr(sampler, 'a') ? -1 : 0, .discard_penultimate_sigma = true};
    struct tern_scheduler *s = tern_scheduler_create(ctx, NULL, tern_sampler_parse(sampler, NULL), tern_schedule_parse(schedule));
    assert_non_null(s);
    assert_int_equal(tern_scheduler_set_options(s, &options), TERN_OK);
    assert_int_equal(tern_scheduler_set_steps(s, (int)json_integer_value(json_object_get(row, "steps"))), TERN_OK);
    const int per_step = strcmp(sampler, "euler") && strcmp(sampler, "euler_a") ? 2 : 1, n = (int)json_array_size(sigmas);
    assert_int_equal(tern_scheduler_calls(s), per_step * (n - 2) + 1);
    assert_int_equal(tern_scheduler_sigma_count(s), tern_scheduler_calls(s) + 1);
    for (int i = 0; i < n; i++) {
        const int at = i == n - 1 ? tern_scheduler_calls(s) : per_step * i;
        const double expected = json_number_value(json_array_get(sigmas, (size_t)i)), found = tern_scheduler_sigma(s, at);
        if (fabs(found - expected) > 2e-6 * expected)
            fail_msg("%s %s, %d levels: level %d is %.9g, expected %.9g", sampler, schedule, n, i, found, expected);
    }
    float x[4], y[4];
    run_gaussian(s, start, x);
    for (int k = 0; k < 4; k++)
        y[k] = (float)json_number_value(json_array_get(end, (size_t)k));
    if (!(support_nmse(x, y, 4) <= 1e-8))
        fail_msg("%s %s, %d levels: the end is another, NMSE %.3g", sampler, schedule, n, support_nmse(x, y, 4));
    tern_scheduler_destroy(&s);
}

static void test_the_penultimate_sigma_is_discarded(void **state)
{
    static const char *const samplers[] = {"euler", "heun", "dpm2", "dpm2_a", "euler_a"};
    json_t *runs = support_json("penultimate/runs.json"), *row;
    float start[4];
    size_t n;
    for (size_t k = 0; k < 4; k++)
        start[k] = (float)json_number_value(json_array_get(json_object_get(runs, "start"), k));
    json_array_foreach(json_object_get(runs, "rows"), n, row)
        for (int i = 0; i < 5; i++)
            check_discarded(*state, samplers[i], row, start);
    assert_int_equal(n, 20);
    json_decref(runs);
}

/* k-diffusion's karras and exponential (get_sigmas_karras, _exponential) of the model's range, whatever the config says of its own; the
 * timesteps are fractions as euler's, by whatever sampler. */
static void test_levels_of_k_diffusion(void **state)
{
    static const char config[] =
        "{\"beta_start\": 0.00085, \"beta_end\": 0.012, \"beta_schedule\": \"scaled_linear\", \"timestep_spacing\": "
        "\"leading\", \"steps_offset\": 1, \"sigma_max\": 9, \"final_sigmas_type\": \"sigma_min\"}";
    static const enum tern_sampler samplers[] = {TERN_SAMPLER_EULER, TERN_SAMPLER_LMS, TERN_SAMPLER_DPMPP_2M, TERN_SAMPLER_DPMPP_2M_SDE};
    const struct tern_sampler_options options = {.k_diffusion_levels = true};
    const double low = 0.029167533, high = 14.614647;
    enum { STEPS = 20 };
    double timesteps[2][STEPS];
    for (int i = 0; i < 8; i++) {
        const bool karras = i % 2;
        struct tern_scheduler *s =
            tern_scheduler_create(*state, config, samplers[i / 2], karras ? TERN_SCHEDULE_KARRAS : TERN_SCHEDULE_EXPONENTIAL);
        assert_int_equal(tern_scheduler_set_options(s, &options), TERN_OK);
        assert_int_equal(tern_scheduler_set_steps(s, STEPS), TERN_OK);
        assert_int_equal(tern_scheduler_calls(s), STEPS);
        for (int k = 0; k < STEPS; k++) {
            const double part = k / (STEPS - 1.0),
                         expected = karras ? pow(pow(high, 1.0 / 7) + part * (pow(low, 1.0 / 7) - pow(high, 1.0 / 7)), 7)
                                           : exp(log(high) + part * (log(low) - log(high)));
            timesteps[karras][k] = i < 2 ? tern_scheduler_timestep(s, k) : timesteps[karras][k];
            assert_true(fabs(tern_scheduler_timestep(s, k) - timesteps[karras][k]) <= 1e-3);
            if (!(fabs(tern_scheduler_sigma(s, k) / expected - 1) <= 2e-6))
                fail_msg("%s: level %d is %g, expected %g", tern_sampler_name(samplers[i / 2]), k, tern_scheduler_sigma(s, k), expected);
        }
        assert_true(tern_scheduler_sigma(s, STEPS) == 0);
        tern_scheduler_destroy(&s);
    }
}

/* Every sampler with schedules has it, the others refuse it; strength counts steps as without it. */
static void test_who_discards(void **state)
{
    const struct tern_sampler_options options = {.discard_penultimate_sigma = true};
    for (int i = 1; i < TERN_SAMPLER_COUNT; i++) {
        struct tern_scheduler *s = tern_scheduler_create(*state, NULL, (enum tern_sampler)i, TERN_SCHEDULE_DEFAULT);
        assert_non_null(s);
        assert_int_equal(tern_scheduler_set_steps(s, 8), TERN_OK);
        const int calls = tern_scheduler_calls(s), begin = tern_scheduler_begin_at(s, 0.5);
        const bool has = s->fns->has_schedules;
        assert_int_equal(tern_scheduler_set_options(s, &options), has ? TERN_OK : TERN_E_INVALID);
        if (has) {
            assert_int_equal(tern_scheduler_set_steps(s, 8), TERN_OK);
            assert_int_equal(tern_scheduler_calls(s), calls);
            assert_int_equal(tern_scheduler_begin_at(s, 0.5), begin);
            assert_int_equal(tern_scheduler_set_steps(s, 1000), TERN_E_INVALID);
            support_error(*state, TERN_E_INVALID, "steps: expected 1..999 (the model's training timesteps but the one that is discarded)");
        } else {
            support_error(*state, TERN_E_INVALID, "discard_penultimate_sigma: sampler");
            assert_int_equal(tern_scheduler_set_options(s, &(struct tern_sampler_options){.k_diffusion_levels = true}), TERN_E_INVALID);
            support_error(*state, TERN_E_INVALID, "k_diffusion_levels: sampler");
        }
        tern_scheduler_destroy(&s);
    }
}

/* A schedule may have fewer timesteps than it was asked for, so that none is left. */
static void test_nothing_is_left_to_discard(void **state)
{
    static const enum tern_sampler samplers[] = {TERN_SAMPLER_HEUN, TERN_SAMPLER_DPM2, TERN_SAMPLER_DPM2_A, TERN_SAMPLER_EULER};
    const struct tern_sampler_options options = {.discard_penultimate_sigma = true};
    for (int i = 0; i < 4; i++) {
        struct tern_scheduler *s =
            tern_scheduler_create(*state, "{\"num_train_timesteps\": 2}", samplers[i], tern_schedule_parse("ddim_uniform"));
        assert_non_null(s);
        assert_int_equal(tern_scheduler_set_options(s, &options), TERN_OK);
        assert_int_equal(tern_scheduler_set_steps(s, 1), TERN_E_INVALID);
        support_error(*state, TERN_E_INVALID, "discard_penultimate_sigma leaves none");
        assert_int_equal(tern_scheduler_calls(s), 0);
        tern_scheduler_destroy(&s);
    }
}

/* The second of two models: samplers that choose their steps themselves cannot be it. */
static void test_begin_behind(void **state)
{
    for (int i = 1; i < TERN_SAMPLER_COUNT; i++) {
        struct tern_scheduler *s = tern_scheduler_create(*state, NULL, (enum tern_sampler)i, TERN_SCHEDULE_DEFAULT);
        assert_int_equal(tern_scheduler_set_steps(s, 8), TERN_OK);
        if (i == TERN_SAMPLER_DPM_FAST || i == TERN_SAMPLER_DPM_ADAPTIVE) {
            assert_int_equal(tern_scheduler_begin_behind(s, 0.5), -1);
            support_error(*state, TERN_E_UNSUPPORTED, "chooses its steps itself");
        } else {
            const int begin = tern_scheduler_begin_behind(s, 0.5);
            assert_true(begin > 0 && begin <= tern_scheduler_calls_until(s, 0.5) && begin < tern_scheduler_calls(s));
        }
        tern_scheduler_destroy(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_left_to_discard),
        cmocka_unit_test(test_begin_behind),
        cmocka_unit_test(test_the_penultimate_sigma_is_discarded),
        cmocka_unit_test(test_who_discards),
        cmocka_unit_test(test_levels_of_k_diffusion),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_eta_of_tcd),
        cmocka_unit_test(test_levels_of_sdxl),
        cmocka_unit_test(test_trailing_with_one_call_more),
        cmocka_unit_test(test_repeated_levels),
        cmocka_unit_test(test_a1111_schedules_end_at_zero),
        cmocka_unit_test(test_noise_between_levels),
        cmocka_unit_test(test_adaptive_gives_up),
        cmocka_unit_test(test_range_of_dpm_solvers),
        cmocka_unit_test(test_sampler_options),
    };
    return cmocka_run_group_tests(tests, support_setup, support_teardown);
}

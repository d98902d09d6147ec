/* Names, configuration files and wrong use of the schedulers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/scheduler.h>

#include "models/schedulers/scheduler.h"
#include "support.h"

static void test_names(void **state)
{
    static const struct {
        const char *name;
        enum tern_sampler sampler;
        enum tern_schedule schedule;
    } names[] = {
        {"ddim", TERN_SAMPLER_DDIM, TERN_SCHEDULE_DEFAULT},
        {"DDIM", TERN_SAMPLER_DDIM, TERN_SCHEDULE_DEFAULT},
        {"PLMS", TERN_SAMPLER_PNDM, TERN_SCHEDULE_DEFAULT},
        {"PNDMScheduler", TERN_SAMPLER_PNDM, TERN_SCHEDULE_DEFAULT},
        {"Euler", TERN_SAMPLER_EULER, TERN_SCHEDULE_DEFAULT},
        {"Euler a", TERN_SAMPLER_EULER_A, TERN_SCHEDULE_DEFAULT},
        {"EulerAncestralDiscreteScheduler", TERN_SAMPLER_EULER_A, TERN_SCHEDULE_DEFAULT},
        {"DPM++ 2M", TERN_SAMPLER_DPMPP_2M, TERN_SCHEDULE_DEFAULT},
        {"DPM++ 2M Karras", TERN_SAMPLER_DPMPP_2M, TERN_SCHEDULE_KARRAS},
        {"DPM++ 2M AYS", TERN_SAMPLER_DPMPP_2M, TERN_SCHEDULE_ALIGN_YOUR_STEPS},
        {"DPM++ 2M SGM Uniform", TERN_SAMPLER_DPMPP_2M, TERN_SCHEDULE_SGM_UNIFORM},
        {"Euler a Align Your Steps", TERN_SAMPLER_EULER_A, TERN_SCHEDULE_ALIGN_YOUR_STEPS},
        {"heun_exponential", TERN_SAMPLER_HEUN, TERN_SCHEDULE_EXPONENTIAL},
        {"Euler Uniform", TERN_SAMPLER_EULER, TERN_SCHEDULE_NORMAL},
        {"LMS DDIM", TERN_SAMPLER_LMS, TERN_SCHEDULE_DDIM_UNIFORM},
        {"DPMSolverMultistepScheduler", TERN_SAMPLER_DPMPP_2M, TERN_SCHEDULE_DEFAULT},
        {"Heun", TERN_SAMPLER_HEUN, TERN_SCHEDULE_DEFAULT},
        {"LMS Karras", TERN_SAMPLER_LMS, TERN_SCHEDULE_KARRAS},
        {"UniPC", TERN_SAMPLER_UNIPC, TERN_SCHEDULE_DEFAULT},
        {"LCM", TERN_SAMPLER_LCM, TERN_SCHEDULE_DEFAULT},
        {"DDPMScheduler", TERN_SAMPLER_DDPM, TERN_SCHEDULE_DEFAULT},
        {"TCD", TERN_SAMPLER_TCD, TERN_SCHEDULE_DEFAULT},
        {"DPM++ 2S a", TERN_SAMPLER_DPMPP_2S_A, TERN_SCHEDULE_DEFAULT},
        {"DPM++ 2S a Karras", TERN_SAMPLER_DPMPP_2S_A, TERN_SCHEDULE_KARRAS},
        {"DPM++ SDE", TERN_SAMPLER_DPMPP_SDE, TERN_SCHEDULE_DEFAULT},
        {"DPM++ 2M SDE", TERN_SAMPLER_DPMPP_2M_SDE, TERN_SCHEDULE_DEFAULT},
        {"DPM++ 2M SDE Heun", TERN_SAMPLER_DPMPP_2M_SDE_HEUN, TERN_SCHEDULE_DEFAULT},
        {"DPM++ 2M SDE Heun Exponential", TERN_SAMPLER_DPMPP_2M_SDE_HEUN, TERN_SCHEDULE_EXPONENTIAL},
        {"DPM++ 3M SDE Karras", TERN_SAMPLER_DPMPP_3M_SDE, TERN_SCHEDULE_KARRAS},
        {"DPM fast", TERN_SAMPLER_DPM_FAST, TERN_SCHEDULE_DEFAULT},
        {"DPM adaptive", TERN_SAMPLER_DPM_ADAPTIVE, TERN_SCHEDULE_DEFAULT},
        {"DPM2", TERN_SAMPLER_DPM2, TERN_SCHEDULE_DEFAULT},
        {"DPM2 a Karras", TERN_SAMPLER_DPM2_A, TERN_SCHEDULE_KARRAS},
        {"KDPM2AncestralDiscreteScheduler", TERN_SAMPLER_DPM2_A, TERN_SCHEDULE_DEFAULT},
        {"default", TERN_SAMPLER_DEFAULT, TERN_SCHEDULE_DEFAULT},
        {"", TERN_SAMPLER_COUNT, TERN_SCHEDULE_DEFAULT},
        {"karras", TERN_SAMPLER_COUNT, TERN_SCHEDULE_DEFAULT},
        {"eule", TERN_SAMPLER_COUNT, TERN_SCHEDULE_DEFAULT},
        {"DPM++ 4M SDE", TERN_SAMPLER_COUNT, TERN_SCHEDULE_DEFAULT},
        {"a name that is much longer than the longest name of any sampler that there is", TERN_SAMPLER_COUNT, TERN_SCHEDULE_DEFAULT},
        {NULL, TERN_SAMPLER_COUNT, TERN_SCHEDULE_DEFAULT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        enum tern_schedule schedule = TERN_SCHEDULE_DEFAULT;
        assert_int_equal(tern_sampler_parse(names[i].name, &schedule), names[i].sampler);
        assert_int_equal(schedule, names[i].schedule);
        assert_int_equal(tern_sampler_parse(names[i].name, NULL), names[i].sampler);
    }
    static const char *const own[] = {"default",     "ddim",     "pndm",        "euler",    "euler_a",     "dpm++2m",
                                      "heun",        "lms",      "unipc",       "lcm",      "dpm2",        "dpm2_a",
                                      "ddpm",        "tcd",      "dpm++2s_a",   "dpm++sde", "dpm++2m_sde", "dpm++2m_sde_heun",
                                      "dpm++3m_sde", "dpm_fast", "dpm_adaptive"};
    for (int i = 0; i < TERN_SAMPLER_COUNT; i++) {
        assert_string_equal(tern_sampler_name((enum tern_sampler)i), own[i]);
        assert_int_equal(tern_sampler_parse(own[i], NULL), i);
    }
    assert_string_equal(tern_sampler_name(TERN_SAMPLER_COUNT), "?");
}

static void test_schedule_names(void **state)
{
    static const struct {
        const char *name, *label;
    } rows[TERN_SCHEDULE_COUNT] = {
        {"default", "Automatic"}, {"karras", "Karras"},           {"exponential", "Exponential"},
        {"beta", "Beta"},         {"sgm_uniform", "SGM Uniform"}, {"simple", "Simple"},
        {"normal", "Normal"},     {"ddim_uniform", "DDIM"},       {"align_your_steps", "Align Your Steps"},
    };
    (void)state;
    for (int i = 0; i < TERN_SCHEDULE_COUNT; i++) {
        assert_string_equal(tern_schedule_name((enum tern_schedule)i), rows[i].name);
        assert_string_equal(tern_schedule_label((enum tern_schedule)i), rows[i].label);
        assert_int_equal(tern_schedule_parse(rows[i].name), i);
        assert_int_equal(tern_schedule_parse(rows[i].label), i);
    }
    assert_int_equal(tern_schedule_parse("align-your-steps"), TERN_SCHEDULE_ALIGN_YOUR_STEPS);
    assert_int_equal(tern_schedule_parse("uniform"), TERN_SCHEDULE_NORMAL);
    assert_int_equal(tern_schedule_parse("polyexponential"), TERN_SCHEDULE_COUNT);
    assert_int_equal(tern_schedule_parse(NULL), TERN_SCHEDULE_COUNT);
    assert_string_equal(tern_schedule_name(TERN_SCHEDULE_COUNT), "?");
    assert_string_equal(tern_schedule_label(TERN_SCHEDULE_COUNT), "?");
}

/* Configurations that are refused: status and what the message says. */
static void test_bad_configs(void **state)
{
    static const struct {
        enum tern_sampler sampler;
        const char *config;
        enum tern_status status;
        const char *part;
    } cases[] = {
        {TERN_SAMPLER_DDIM, "", TERN_E_FORMAT, "JSON"},
        {TERN_SAMPLER_DDIM, "{\"beta_start\": 0.1", TERN_E_FORMAT, "JSON"},
        {TERN_SAMPLER_DDIM, "[1]", TERN_E_FORMAT, "expected an object"},
        {TERN_SAMPLER_DEFAULT, "{}", TERN_E_FORMAT, "_class_name"},
        {TERN_SAMPLER_DEFAULT, "{\"_class_name\": 3}", TERN_E_FORMAT, "_class_name"},
        {TERN_SAMPLER_DEFAULT, "{\"_class_name\": \"KDPM3DiscreteScheduler\"}", TERN_E_UNSUPPORTED, "dpm++2m"},
        {TERN_SAMPLER_COUNT, "{}", TERN_E_INVALID, "number"},
        {(enum tern_sampler) - 1, "{}", TERN_E_INVALID, "number"},
        {TERN_SAMPLER_DDIM, "{\"num_train_timesteps\": \"1000\"}", TERN_E_FORMAT, "num_train_timesteps"},
        {TERN_SAMPLER_DDIM, "{\"num_train_timesteps\": 1000.0}", TERN_E_FORMAT, "num_train_timesteps"},
        {TERN_SAMPLER_DDIM, "{\"num_train_timesteps\": 0}", TERN_E_FORMAT, "num_train_timesteps"},
        {TERN_SAMPLER_DDIM, "{\"num_train_timesteps\": 2000000000}", TERN_E_FORMAT, "num_train_timesteps"},
        {TERN_SAMPLER_DDIM, "{\"steps_offset\": -1}", TERN_E_FORMAT, "steps_offset"},
        {TERN_SAMPLER_DDIM, "{\"beta_start\": true}", TERN_E_FORMAT, "beta_start"},
        {TERN_SAMPLER_DDIM, "{\"beta_start\": NaN}", TERN_E_FORMAT, "beta_start"},
        {TERN_SAMPLER_DDIM, "{\"beta_end\": Infinity}", TERN_E_FORMAT, "beta_end"},
        {TERN_SAMPLER_DDIM, "{\"beta_end\": -0.1}", TERN_E_FORMAT, "beta_end"},
        {TERN_SAMPLER_DDIM, "{\"beta_start\": 0, \"beta_end\": 0.02}", TERN_E_FORMAT, "beta 0 at timestep 0"},
        {TERN_SAMPLER_DDIM, "{\"beta_start\": 0.5, \"beta_end\": 1}", TERN_E_FORMAT, "alphas_cumprod|beta 1"},
        {TERN_SAMPLER_DDIM, "{\"beta_start\": 0.9, \"beta_end\": 0.9}", TERN_E_FORMAT, "alphas_cumprod"},
        {TERN_SAMPLER_DDIM, "{\"beta_start\": 1e-12, \"beta_end\": 1e-11}", TERN_E_FORMAT, "alphas_cumprod"},
        {TERN_SAMPLER_DDIM, "{\"beta_schedule\": \"sigmoid\"}", TERN_E_UNSUPPORTED, "squaredcos_cap_v2"},
        {TERN_SAMPLER_DDIM, "{\"prediction_type\": \"flow\"}", TERN_E_UNSUPPORTED, "v_prediction"},
        {TERN_SAMPLER_DDIM, "{\"prediction_type\": 1}", TERN_E_FORMAT, "prediction_type"},
        {TERN_SAMPLER_DDIM, "{\"timestep_spacing\": \"none\"}", TERN_E_UNSUPPORTED, "trailing"},
        {TERN_SAMPLER_DDIM, "{\"clip_sample\": \"yes\"}", TERN_E_FORMAT, "clip_sample"},
        {TERN_SAMPLER_DDIM, "{\"clip_sample_range\": 0}", TERN_E_FORMAT, "greater than 0"},
        {TERN_SAMPLER_DDIM, "{\"trained_betas\": [0.1, 0.2]}", TERN_E_FORMAT, "trained_betas"},
        {TERN_SAMPLER_DDIM, "{\"trained_betas\": 0.1}", TERN_E_FORMAT, "trained_betas"},
        {TERN_SAMPLER_DDIM, "{\"num_train_timesteps\": 2, \"trained_betas\": [0.1, \"x\"]}", TERN_E_FORMAT, "trained_betas"},
        {TERN_SAMPLER_DDIM, "{\"num_train_timesteps\": 2, \"trained_betas\": [0.1, 1.5]}", TERN_E_FORMAT, "trained_betas"},
        {TERN_SAMPLER_PNDM, "{\"prediction_type\": \"sample\"}", TERN_E_UNSUPPORTED, "pndm"},
        {TERN_SAMPLER_EULER, "{\"use_exponential_sigmas\": true, \"use_beta_sigmas\": true}", TERN_E_FORMAT, "only one of"},
        {TERN_SAMPLER_UNIPC, "{\"use_beta_sigmas\": 1}", TERN_E_FORMAT, "use_beta_sigmas"},
        {TERN_SAMPLER_EULER, "{\"interpolation_type\": \"log_linear\"}", TERN_E_UNSUPPORTED, "linear"},
        {TERN_SAMPLER_EULER, "{\"timestep_type\": \"continuous\"}", TERN_E_UNSUPPORTED, "timestep_type"},
        {TERN_SAMPLER_EULER, "{\"final_sigmas_type\": \"one\"}", TERN_E_UNSUPPORTED, "sigma_min"},
        {TERN_SAMPLER_DPMPP_2M, "{\"algorithm_type\": \"sde-dpmsolver++\"}", TERN_E_UNSUPPORTED, "algorithm_type"},
        {TERN_SAMPLER_DPMPP_2M, "{\"solver_order\": 4}", TERN_E_FORMAT, "solver_order"},
        {TERN_SAMPLER_DPMPP_2M, "{\"solver_type\": \"bh3\"}", TERN_E_UNSUPPORTED, "solver_type"},
        {TERN_SAMPLER_DPMPP_2M, "{\"lambda_min_clipped\": Infinity}", TERN_E_FORMAT, "lambda_min_clipped"},
        {TERN_SAMPLER_DPMPP_2M, "{\"variance_type\": \"learned\"}", TERN_E_UNSUPPORTED, "variance_type"},
        {TERN_SAMPLER_UNIPC, "{\"disable_corrector\": [0]}", TERN_E_UNSUPPORTED, "disable_corrector"},
        {TERN_SAMPLER_UNIPC, "{\"predict_x0\": false}", TERN_E_UNSUPPORTED, "predict_x0"},
        {TERN_SAMPLER_DDPM, "{\"variance_type\": \"learned\"}", TERN_E_UNSUPPORTED, "fixed_small"},
        {TERN_SAMPLER_TCD, "{\"original_inference_steps\": 0}", TERN_E_FORMAT, "original_inference_steps"},
        {TERN_SAMPLER_LCM, "{\"original_inference_steps\": 0}", TERN_E_FORMAT, "original_inference_steps"},
        {TERN_SAMPLER_EULER, "{\"use_karras_sigmas\": true, \"sigma_max\": 1e20}", TERN_E_FORMAT, "sigma_max"},
        {TERN_SAMPLER_DPMPP_SDE, "{\"beta_schedule\": \"linear\", \"beta_start\": 0.0001, \"beta_end\": 0.18}", TERN_E_INVALID,
         "noise level infinite"},
    };
    struct tern_context *ctx = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tern_scheduler *s = tern_scheduler_create(ctx, cases[i].config, cases[i].sampler, TERN_SCHEDULE_DEFAULT);
        if (s)
            fail_msg("not refused: %s", cases[i].config);
        /* "a|b": f32 rounding decides which of the two is met first */
        char part[64];
        snprintf(part, sizeof(part), "%s", cases[i].part);
        char *other = strchr(part, '|');
        if (other)
            *other++ = 0;
        support_error(ctx, cases[i].status, other && strstr(tern_error(ctx), other) ? other : part);
    }
}

/* A key that the class does not take does not count, whatever it says. */
static void test_foreign_keys_are_ignored(void **state)
{
    struct tern_context *ctx = *state;
    struct tern_scheduler *s = tern_scheduler_create(
        ctx, "{\"use_karras_sigmas\": true, \"algorithm_type\": \"sde-dpmsolver++\", \"solver_order\": 9, \"_x\": {}, \"name\": NaN}",
        TERN_SAMPLER_DDIM, TERN_SCHEDULE_DEFAULT);
    assert_non_null(s);
    assert_int_equal(tern_scheduler_set_steps(s, 4), TERN_OK);
    static const double expected[] = {750, 500, 250, 0}; /* the class's own leading spacing and steps_offset 0 */
    for (int i = 0; i < 4; i++)
        assert_true(tern_scheduler_timestep(s, i) == expected[i]);
    tern_scheduler_destroy(&s);
}

/* NULL is SD 1.5: PNDM, leading, offset 1. What save_pretrained writes for DPM-Solver is not JSON. */
static void test_default_and_python_json(void **state)
{
    struct tern_context *ctx = *state;
    struct tern_scheduler *s = tern_scheduler_create(ctx, NULL, TERN_SAMPLER_DEFAULT, TERN_SCHEDULE_DEFAULT);
    assert_non_null(s);
    assert_int_equal(tern_scheduler_sampler(s), TERN_SAMPLER_PNDM);
    assert_int_equal(tern_scheduler_set_steps(s, 4), TERN_OK);
    static const double expected[] = {751, 501, 501, 251, 1};
    assert_int_equal(tern_scheduler_calls(s), 5);
    for (int i = 0; i < 5; i++)
        assert_true(tern_scheduler_timestep(s, i) == expected[i]);
    tern_scheduler_destroy(&s);

    s = tern_scheduler_create(ctx,
                              "{\"_class_name\": \"DPMSolverMultistepScheduler\", \"lambda_min_clipped\": -Infinity, \"solver_order\": 2, "
                              "\"algorithm_type\": \"dpmsolver++\", \"note\": \"\\\\\\\"-Infinity\\\\\"}",
                              TERN_SAMPLER_DEFAULT, TERN_SCHEDULE_DEFAULT);
    if (!s)
        fail_msg("%s", tern_error(ctx));
    assert_int_equal(tern_scheduler_set_steps(s, 3), TERN_OK);
    assert_true(tern_scheduler_timestep(s, 0) == 999 && tern_scheduler_timestep(s, 2) == 333);
    tern_scheduler_destroy(&s);
}

static void test_schedules(void **state)
{
    struct tern_context *ctx = *state;
    for (int sampler = 1; sampler < TERN_SAMPLER_COUNT; sampler++) {
        bool none = sampler == TERN_SAMPLER_DDIM || sampler == TERN_SAMPLER_PNDM || sampler == TERN_SAMPLER_LCM ||
                    sampler == TERN_SAMPLER_DDPM || sampler == TERN_SAMPLER_TCD || sampler == TERN_SAMPLER_DPM_FAST ||
                    sampler == TERN_SAMPLER_DPM_ADAPTIVE;
        for (int i = 1; i < TERN_SCHEDULE_COUNT; i++) {
            struct tern_scheduler *s = tern_scheduler_create(ctx, NULL, (enum tern_sampler)sampler, (enum tern_schedule)i);
            assert_true(none == !s);
            if (none)
                support_error(ctx, TERN_E_INVALID,
                              "these have it: euler, euler_a, dpm++2m, heun, lms, unipc, dpm2, dpm2_a, dpm++2s_a, dpm++sde, dpm++2m_sde");
            /* ddim_uniform makes nearly twice as many levels as steps, heun two calls of each: the most room there is */
            assert_true(none || !tern_scheduler_set_steps(s, 501));
            bool two = sampler == TERN_SAMPLER_HEUN || sampler == TERN_SAMPLER_DPM2 || sampler == TERN_SAMPLER_DPM2_A ||
                       sampler == TERN_SAMPLER_DPMPP_2S_A || sampler == TERN_SAMPLER_DPMPP_SDE;
            int most = two ? 2 * 999 - 1 : 999;
            assert_true(none || i != TERN_SCHEDULE_DDIM_UNIFORM || tern_scheduler_calls(s) == most);
            tern_scheduler_destroy(&s);
        }
    }
    assert_null(tern_scheduler_create(ctx, NULL, TERN_SAMPLER_EULER, TERN_SCHEDULE_COUNT));
    support_error(ctx, TERN_E_INVALID, "default, karras, exponential");
}

/* The schedule asked for counts, whatever the file has; else the file's. */
static void test_schedule_of_the_file(void **state)
{
    struct tern_context *ctx = *state;
    static const char config[] = "{\"use_beta_sigmas\": true}";
    for (int i = 0; i < 2; i++) {
        struct tern_scheduler *a = tern_scheduler_create(ctx, config, TERN_SAMPLER_LMS, i ? TERN_SCHEDULE_SIMPLE : TERN_SCHEDULE_DEFAULT),
                              *b = tern_scheduler_create(ctx, "{}", TERN_SAMPLER_LMS, i ? TERN_SCHEDULE_SIMPLE : TERN_SCHEDULE_BETA);
        assert_int_equal(tern_scheduler_set_steps(a, 5), TERN_OK);
        assert_int_equal(tern_scheduler_set_steps(b, 5), TERN_OK);
        for (int k = 0; k < 6; k++)
            assert_true(tern_scheduler_sigma(a, k) == tern_scheduler_sigma(b, k));
        assert_true(tern_scheduler_sigma(a, 2) > 0);
        tern_scheduler_destroy(&a);
        tern_scheduler_destroy(&b);
    }
}

/* sigma_min and sigma_max of a file count for classes that do not take them, too: sigmas of diffusers 0.42 after set_timesteps(4). */
static void test_ends_of_levels(void **state)
{
    static const struct {
        enum tern_sampler sampler;
        enum tern_schedule schedule;
        double levels[4];
    } rows[] = {
        {TERN_SAMPLER_LMS, TERN_SCHEDULE_KARRAS, {14.614647, 3.168611, 0.4469209, 0.029167535}}, /* its own way */
        {TERN_SAMPLER_LMS, TERN_SCHEDULE_EXPONENTIAL, {9, 2.0082989, 0.44814047, 0.1}},
        {TERN_SAMPLER_LMS, TERN_SCHEDULE_BETA, {9, 6.5488219, 2.5511782, 0.1}},
        {TERN_SAMPLER_LMS, TERN_SCHEDULE_DEFAULT, {14.614647, 2.9183085, 0.93235838, 0.029167535}},
        {TERN_SAMPLER_DPM2, TERN_SCHEDULE_KARRAS, {9, 2.6989152, 0.62957788, 0.1}},
        {TERN_SAMPLER_DPM2, TERN_SCHEDULE_EXPONENTIAL, {9, 2.0082989, 0.44814047, 0.1}},
        {TERN_SAMPLER_DPM2, TERN_SCHEDULE_BETA, {9, 6.5488219, 2.5511782, 0.1}},
        {TERN_SAMPLER_DPM2, TERN_SCHEDULE_DEFAULT, {14.614647, 2.9183085, 0.93235838, 0.029167535}},
        {TERN_SAMPLER_DPM2_A, TERN_SCHEDULE_KARRAS, {9, 2.6989152, 0.62957788, 0.1}},
        {TERN_SAMPLER_DPM2_A, TERN_SCHEDULE_EXPONENTIAL, {9, 2.0082989, 0.44814047, 0.1}},
        {TERN_SAMPLER_DPM2_A, TERN_SCHEDULE_BETA, {9, 6.5488219, 2.5511782, 0.1}},
        {TERN_SAMPLER_DPM2_A, TERN_SCHEDULE_DEFAULT, {14.614647, 2.9183085, 0.93235838, 0.029167535}},
        /* Euler's */
        {TERN_SAMPLER_DPMPP_2S_A, TERN_SCHEDULE_KARRAS, {9, 2.6989152, 0.62957788, 0.1}},
        {TERN_SAMPLER_DPMPP_2S_A, TERN_SCHEDULE_DEFAULT, {14.614647, 2.9183085, 0.93235838, 0.029167535}},
        {TERN_SAMPLER_DPMPP_SDE, TERN_SCHEDULE_EXPONENTIAL, {9, 2.0082989, 0.44814047, 0.1}},
        {TERN_SAMPLER_DPMPP_2M_SDE, TERN_SCHEDULE_BETA, {9, 6.5488219, 2.5511782, 0.1}},
        {TERN_SAMPLER_DPMPP_2M_SDE_HEUN, TERN_SCHEDULE_KARRAS, {9, 2.6989152, 0.62957788, 0.1}},
        {TERN_SAMPLER_DPMPP_3M_SDE, TERN_SCHEDULE_EXPONENTIAL, {9, 2.0082989, 0.44814047, 0.1}},
    };
    static const char config[] = "{\"beta_start\": 0.00085, \"beta_end\": 0.012, \"beta_schedule\": \"scaled_linear\", "
                                 "\"sigma_min\": 0.1, \"sigma_max\": 9.0}";
    struct tern_context *ctx = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tern_scheduler *s = tern_scheduler_create(ctx, config, rows[i].sampler, rows[i].schedule);
        assert_int_equal(tern_scheduler_set_steps(s, 4), TERN_OK);
        for (int k = 0; k < 4; k++) {
            double found = tern_scheduler_sigma(s, k * s->fns->calls_per_step);
            if (!(fabs(found - rows[i].levels[k]) <= 1e-6 * rows[i].levels[k]))
                fail_msg("%s %s, level %d: %.8g", s->fns->name, tern_schedule_name(rows[i].schedule), k, found);
        }
        tern_scheduler_destroy(&s);
    }
}

static void test_steps_out_of_range(void **state)
{
    static const char zero_snr[] = "{\"rescale_betas_zero_snr\": true, \"timestep_spacing\": \"trailing\"}";
    static const struct {
        enum tern_sampler sampler;
        const char *config; /* NULL: SD 1.5 */
        int steps;
        const char *part;
    } cases[] = {
        {TERN_SAMPLER_EULER, NULL, 0, "1..1000"},
        {TERN_SAMPLER_EULER, NULL, -3, "1..1000"},
        {TERN_SAMPLER_EULER, NULL, 1001, "1..1000"},
        {TERN_SAMPLER_EULER, NULL, 10000000, "found 10000000"},
        {TERN_SAMPLER_DDIM, "{\"num_train_timesteps\": 100}", 101, "1..100"},
        {TERN_SAMPLER_LCM, NULL, 51, "lcm makes at most original_inference_steps 50"},
        {TERN_SAMPLER_LCM, "{\"num_train_timesteps\": 20}", 5, "original_inference_steps"},
        {TERN_SAMPLER_PNDM, "{}", 3, "skip_prk_steps"},
        {TERN_SAMPLER_DDIM, NULL, 1000, "past the last, 999"},
        {TERN_SAMPLER_UNIPC, "{\"timestep_spacing\": \"leading\"}", 1000, "1001 timesteps"},
        {TERN_SAMPLER_DPMPP_2M, "{\"lambda_min_clipped\": 100}", 5, "lambda_min_clipped"},
        {TERN_SAMPLER_EULER, "{\"use_karras_sigmas\": true, \"sigma_min\": 20, \"sigma_max\": 1}", 5, "sigma_min"},
        {TERN_SAMPLER_DDIM, zero_snr, 5, "timestep 999"},
    };
    struct tern_context *ctx = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tern_scheduler *s = tern_scheduler_create(ctx, cases[i].config, cases[i].sampler, TERN_SCHEDULE_DEFAULT);
        if (!s)
            fail_msg("%s", tern_error(ctx));
        assert_int_equal(tern_scheduler_set_steps(s, cases[i].steps), TERN_E_INVALID);
        support_error(ctx, TERN_E_INVALID, cases[i].part);
        assert_int_equal(tern_scheduler_calls(s), 0);
        assert_int_equal(tern_scheduler_set_steps(s, cases[i].sampler == TERN_SAMPLER_PNDM ? 4 : 1),
                         i == 6 || i == 10 || i >= 11 ? TERN_E_INVALID : TERN_OK);
        tern_error_clear(ctx);
        tern_scheduler_destroy(&s);
    }
}

static void test_wrong_use(void **state)
{
    struct tern_context *ctx = *state;
    struct tern_scheduler *s = tern_scheduler_create(ctx, NULL, TERN_SAMPLER_EULER_A, TERN_SCHEDULE_DEFAULT);
    float x[4] = {1, 2, 3, 4}, m[4] = {0}, noise[4] = {0};
    assert_int_equal(tern_scheduler_step(s, 0, m, noise, x, 4), TERN_E_INVALID); /* no steps set */
    support_error(ctx, TERN_E_INVALID, "of 0 calls");
    assert_int_equal(tern_scheduler_begin_at(s, 0.5), -1);
    support_error(ctx, TERN_E_INVALID, "no steps");
    assert_int_equal(tern_scheduler_set_steps(s, 3), TERN_OK);

    assert_int_equal(tern_scheduler_step(s, 1, m, noise, x, 4), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "expected 0");
    assert_int_equal(tern_scheduler_step(s, 0, m, NULL, x, 4), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "needs noise");
    assert_int_equal(tern_scheduler_step(s, 0, NULL, noise, x, 4), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "model output");
    assert_int_equal(tern_scheduler_step(s, 0, m, noise, x, 0), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "0 values");
    assert_int_equal(tern_scheduler_step(s, 0, m, noise, x, INT64_MAX), TERN_E_NO_MEMORY);
    support_error(ctx, TERN_E_NO_MEMORY, "");
    assert_int_equal(tern_scheduler_step(s, 0, m, noise, x, 4), TERN_OK);
    assert_int_equal(tern_scheduler_step(s, 0, m, noise, x, 4), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "expected 1");
    assert_int_equal(tern_scheduler_step(s, 1, m, noise, x, 3), TERN_E_SHAPE);
    support_error(ctx, TERN_E_SHAPE, "3 values");
    assert_int_equal(tern_scheduler_set_batch(s, 0), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "batch");
    assert_int_equal(tern_scheduler_step(s, 1, m, noise, x, 4), TERN_OK);
    assert_int_equal(tern_scheduler_step(s, 2, m, noise, x, 4), TERN_OK);
    assert_int_equal(tern_scheduler_step(s, 3, m, noise, x, 4), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "of 3 calls");

    assert_true(tern_scheduler_timestep(s, -1) == 0 && tern_scheduler_timestep(s, 3) == 0);
    assert_true(tern_scheduler_sigma(s, -1) == 0 && tern_scheduler_sigma(s, 4) == 0);
    assert_false(tern_scheduler_draws_noise(s, 3));
    tern_scheduler_scale_input(s, 9, x, m, 4);
    assert_memory_equal(x, m, sizeof(x));
    tern_scheduler_destroy(&s);

    assert_null(tern_scheduler_create(NULL, NULL, TERN_SAMPLER_EULER, TERN_SCHEDULE_DEFAULT));
    assert_int_equal(tern_scheduler_set_steps(NULL, 1), TERN_E_INVALID);
    assert_int_equal(tern_scheduler_calls(NULL), 0);
    tern_scheduler_destroy(NULL);
    tern_scheduler_destroy(&s);
}

/* diffusers' get_timesteps: int(steps x strength) of the steps are made. */
static void test_begin_at(void **state)
{
    static const struct {
        enum tern_sampler sampler;
        int steps;
        double strength;
        int begin, calls;
    } cases[] = {
        {TERN_SAMPLER_DDIM, 50, 0.8, 10, 50},   {TERN_SAMPLER_DDIM, 50, 1.0, 0, 50},   {TERN_SAMPLER_DDIM, 50, 0.58, 22, 50}, /* 28.999… */
        {TERN_SAMPLER_PNDM, 20, 0.75, 5, 21},   {TERN_SAMPLER_HEUN, 10, 0.35, 14, 19}, {TERN_SAMPLER_HEUN, 10, 0.05, 19, 19},
        {TERN_SAMPLER_EULER, 10, 0.05, 10, 10}, {TERN_SAMPLER_LCM, 4, 0.5, 2, 4},      {TERN_SAMPLER_EULER, 10, 0.0, 10, 10},
    };
    struct tern_context *ctx = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tern_scheduler *s = tern_scheduler_create(ctx, NULL, cases[i].sampler, TERN_SCHEDULE_DEFAULT);
        assert_int_equal(tern_scheduler_set_steps(s, cases[i].steps), TERN_OK);
        assert_int_equal(tern_scheduler_begin_at(s, cases[i].strength), cases[i].begin);
        assert_int_equal(tern_scheduler_calls(s), cases[i].calls);
        float x[1] = {1}, m[1] = {0}, clean[1] = {0};
        if (cases[i].begin < cases[i].calls)
            assert_int_equal(tern_scheduler_step(s, cases[i].begin, m, m, x, 1), TERN_OK);
        tern_scheduler_add_noise(s, cases[i].calls, x, m, clean, 1); /* behind the last call nothing is noisy */
        assert_true(clean[0] == x[0]);
        tern_scheduler_destroy(&s);
    }
    static const double wrong[] = {-0.1, 1.1, NAN, INFINITY};
    struct tern_scheduler *s = tern_scheduler_create(ctx, NULL, TERN_SAMPLER_DDIM, TERN_SCHEDULE_DEFAULT);
    assert_int_equal(tern_scheduler_set_steps(s, 10), TERN_OK);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(tern_scheduler_begin_at(s, wrong[i]), -1);
        support_error(ctx, TERN_E_INVALID, "strength");
    }
    tern_scheduler_destroy(&s);
}

/* Thresholding looks at each picture by itself: the first is within 1 and stays, the second is divided by 1.5, which its
 * quantile 1 reaches. DDIM from timestep 0 to alpha 1 returns x0 itself. */
static void test_thresholding(void **state)
{
    struct tern_context *ctx = *state;
    static const char config[] = "{\"thresholding\": true, \"dynamic_thresholding_ratio\": 1, \"sample_max_value\": 1.5, "
                                 "\"prediction_type\": \"sample\"}";
    struct tern_scheduler *s = tern_scheduler_create(ctx, config, TERN_SAMPLER_DDIM, TERN_SCHEDULE_DEFAULT);
    assert_non_null(s);
    assert_int_equal(tern_scheduler_set_steps(s, 1), TERN_OK);
    assert_int_equal(tern_scheduler_set_batch(s, 2), TERN_OK);
    float x[6] = {0}, m[6] = {0.5f, -0.25f, 1, 3, -1.2f, 0.3f};
    static const float expected[6] = {0.5f, -0.25f, 1, 1, -0.8f, 0.2f};
    assert_int_equal(tern_scheduler_step(s, 0, m, NULL, x, 5), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "2 pictures");
    assert_int_equal(tern_scheduler_step(s, 0, m, NULL, x, 6), TERN_OK);
    for (int i = 0; i < 6; i++)
        assert_true(fabsf(x[i] - expected[i]) < 1e-6f);
    tern_scheduler_destroy(&s);
}

/* A flag of null is false, also where the class's default is true: as None in Python. DDIM from timestep 0: x0 itself to alpha 1, and
 * clipped; without set_alpha_to_one to the alpha of timestep 0, which the first beta of 0.5 makes a half. */
static void test_null_flags(void **state)
{
    static const struct {
        const char *flags;
        float expected;
    } rows[] = {
        {"\"clip_sample\": true, \"set_alpha_to_one\": true", 1},
        {"\"clip_sample\": null, \"set_alpha_to_one\": true", 3},
        {"\"clip_sample\": null, \"set_alpha_to_one\": null", 3 * 0.70710678f},
        {"\"clip_sample\": true, \"set_alpha_to_one\": null", 0.70710678f},
    };
    struct tern_context *ctx = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char config[256];
        snprintf(config, sizeof(config), "{\"prediction_type\": \"sample\", \"num_train_timesteps\": 2, \"trained_betas\": [0.5, 0.5], %s}",
                 rows[i].flags);
        struct tern_scheduler *s = tern_scheduler_create(ctx, config, TERN_SAMPLER_DDIM, TERN_SCHEDULE_DEFAULT);
        assert_non_null(s);
        assert_int_equal(tern_scheduler_set_steps(s, 1), TERN_OK);
        float x[1] = {3 * 0.70710678f}, m[1] = {3};
        assert_int_equal(tern_scheduler_step(s, 0, m, NULL, x, 1), TERN_OK);
        assert_true(fabsf(x[0] - rows[i].expected) < 1e-6f);
        tern_scheduler_destroy(&s);
    }
}

/* Every allocation fails once: an error, no crash, nothing left over. */
static void test_out_of_memory(void **state)
{
    (void)state;
    for (int sampler = 1; sampler < TERN_SAMPLER_COUNT; sampler++) {
        bool done = false;
        for (long fail_at = 1; !done; fail_at++) {
            struct support_allocator memory = {0};
            struct tern_context_params params = {.threads = 1, .allocator = support_failing(&memory)};
            struct tern_context *ctx = tern_context_create(&params);
            assert_non_null(ctx);
            size_t before = tern_memory_used(ctx);
            memory.fail_at = memory.count + fail_at;
            float x[8] = {0}, m[8] = {0};
            struct tern_scheduler *s = tern_scheduler_create(ctx, NULL, (enum tern_sampler)sampler, TERN_SCHEDULE_DEFAULT);
            done = s && !tern_scheduler_set_steps(s, 5) && !tern_scheduler_step(s, 0, m, m, x, 8);
            assert_int_equal(tern_error_status(ctx), done ? TERN_OK : TERN_E_NO_MEMORY);
            tern_scheduler_destroy(&s);
            assert_int_equal(tern_memory_used(ctx), before);
            tern_context_destroy(&ctx);
            assert_int_equal(memory.live, 0);
        }
    }
}

/* What diffusers 0.42's StableDiffusionPipeline and StableDiffusionInpaintPipeline left of a file with only a class and these
 * keys, and what DDIMScheduler.from_config and PNDMScheduler.from_config then took over: a dump of both. "-": not in it. */
static void test_old_files(void **state)
{
    static const struct {
        const char *file;
        enum tern_sampler sampler;
        const char *key, *text2img, *inpaint;
    } rows[] = {
        {"\"DDIMScheduler\"", TERN_SAMPLER_DEFAULT, "steps_offset", "1", "1"},
        {"\"DDIMScheduler\"", TERN_SAMPLER_DEFAULT, "clip_sample", "false", "-"},
        {"\"DDIMScheduler\"", TERN_SAMPLER_PNDM, "steps_offset", "-", "-"},
        {"\"DDIMScheduler\"", TERN_SAMPLER_PNDM, "skip_prk_steps", "-", "-"},
        {"\"DDIMScheduler\", \"clip_sample\": true, \"steps_offset\": 0", TERN_SAMPLER_DDIM, "clip_sample", "false", "true"},
        {"\"DDIMScheduler\", \"clip_sample\": true, \"steps_offset\": 0", TERN_SAMPLER_PNDM, "steps_offset", "1", "1"},
        {"\"PNDMScheduler\"", TERN_SAMPLER_DEFAULT, "clip_sample", "-", "-"},
        {"\"PNDMScheduler\"", TERN_SAMPLER_DDIM, "clip_sample", "-", "-"},
        {"\"PNDMScheduler\"", TERN_SAMPLER_DEFAULT, "skip_prk_steps", "-", "true"},
        {"\"PNDMScheduler\"", TERN_SAMPLER_EULER, "steps_offset", "-", "-"},
        {"\"PNDMScheduler\", \"clip_sample\": true", TERN_SAMPLER_DDIM, "clip_sample", "false", "true"},
        {"\"PNDMScheduler\", \"skip_prk_steps\": false, \"steps_offset\": 0", TERN_SAMPLER_PNDM, "skip_prk_steps", "false", "true"},
        {"\"PNDMScheduler\", \"skip_prk_steps\": false, \"steps_offset\": 0", TERN_SAMPLER_DDIM, "steps_offset", "1", "1"},
        {"\"EulerDiscreteScheduler\"", TERN_SAMPLER_DEFAULT, "steps_offset", "1", "1"},
        {"\"EulerDiscreteScheduler\", \"steps_offset\": \"one\"", TERN_SAMPLER_DEFAULT, "steps_offset", "\"one\"", "\"one\""},
        {"\"DDIMScheduler\", \"steps_offset\": null", TERN_SAMPLER_DEFAULT, "steps_offset", "1", "1"},
        {"\"DDIMScheduler\", \"steps_offset\": null", TERN_SAMPLER_PNDM, "steps_offset", "1", "1"},
        {"\"DDIMScheduler\", \"clip_sample\": null", TERN_SAMPLER_DEFAULT, "clip_sample", "null", "null"},
        {"\"PNDMScheduler\", \"skip_prk_steps\": null", TERN_SAMPLER_DEFAULT, "skip_prk_steps", "null", "null"},
        {"\"DPMSolverMultistepScheduler\", \"lambda_min_clipped\": -Infinity", TERN_SAMPLER_DEFAULT, "clip_sample", "-", "-"},
    };
    struct tern_context *ctx = support_context();
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
        char file[256];
        snprintf(file, sizeof(file), "{\"_class_name\": %s}", rows[i / 2].file);
        char *text = tern_scheduler_correct(ctx, file, NULL, rows[i / 2].sampler, i % 2);
        assert_non_null(text);
        json_t *config = json_loads(text, 0, NULL), *value = json_object_get(config, rows[i / 2].key);
        char *found = value ? json_dumps(value, JSON_ENCODE_ANY) : strdup("-");
        assert_string_equal(found, i % 2 ? rows[i / 2].inpaint : rows[i / 2].text2img);
        free(found);
        json_decref(config);
        tern_free(ctx, text);
    }
    assert_null(tern_scheduler_correct(ctx, "[]", NULL, TERN_SAMPLER_DEFAULT, false));
    support_error(ctx, TERN_E_FORMAT, "scheduler_config.json");
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_schedule_names),
        cmocka_unit_test(test_old_files),
        cmocka_unit_test(test_bad_configs),
        cmocka_unit_test(test_foreign_keys_are_ignored),
        cmocka_unit_test(test_default_and_python_json),
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_schedule_of_the_file),
        cmocka_unit_test(test_ends_of_levels),
        cmocka_unit_test(test_steps_out_of_range),
        cmocka_unit_test(test_wrong_use),
        cmocka_unit_test(test_begin_at),
        cmocka_unit_test(test_null_flags),
        cmocka_unit_test(test_thresholding),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, support_setup, support_teardown);
}

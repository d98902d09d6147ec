/* Samplers against diffusers' numbers (tests/data/schedulers, see tests/data/README.md), and against a perfect model. */
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

static const char *text(const json_t *row, const char *key) { return json_string_value(json_object_get(row, key)); }
static int64_t whole(const json_t *row, const char *key) { return json_integer_value(json_object_get(row, key)); }

/* The scheduler of a golden row, without its steps; NULL when tern refuses it. */
static struct tern_scheduler *scheduler_of(struct tern_context *ctx, const json_t *file, const json_t *row)
{
    char *config = json_dumps(json_object_get(json_object_get(file, "configs"), text(row, "config")), 0);
    assert_non_null(config);
    enum tern_sampler sampler = tern_sampler_parse(text(row, "sampler"), NULL);
    assert_true(sampler != TERN_SAMPLER_DEFAULT && sampler != TERN_SAMPLER_COUNT);
    struct tern_scheduler *s = tern_scheduler_create(ctx, config, sampler, tern_schedule_parse(text(row, "schedule")));
    free(config);
    if (s)
        assert_int_equal(tern_scheduler_sampler(s), sampler);
    return s;
}

static double option(const json_t *row, const char *key)
{
    const json_t *v = json_object_get(json_object_get(row, "options"), key);
    return v && json_number_value(v) == 0 ? -1 : json_number_value(v); /* for tern 0 is the default */
}

static void set_options(struct tern_context *ctx, struct tern_scheduler *s, const json_t *row)
{
    const struct tern_sampler_options o = {option(row, "eta"), option(row, "s_churn"), option(row, "s_tmin"), option(row, "s_tmax"),
                                           option(row, "s_noise")};
    if (tern_scheduler_set_options(s, &o))
        fail_msg("%s", tern_error(ctx));
}

static bool has_middle(const json_t *row)
{
    return strncmp(text(row, "sampler"), "dpm2", 4) == 0 || strcmp(text(row, "sampler"), "dpm++2s_a") == 0 ||
           strcmp(text(row, "sampler"), "dpm++sde") == 0;
}

/* A call between two levels: diffusers finds its timestep from f32 logarithms, whose last bits are 1e-5 of a timestep. */
static bool between(const json_t *row, const char *what, size_t i) { return i % 2 && strcmp(what, "timesteps") == 0 && has_middle(row); }

static void assert_near(const json_t *row, const char *what, size_t i, double found, double expected)
{
    if (!(fabs(found - expected) <= (between(row, what, i) ? 1e-5 : 1e-6) * fmax(1, fabs(expected))))
        fail_msg("%s %s %s, %lld steps: %s[%zu]: expected %.9g, found %.9g", text(row, "sampler"), text(row, "schedule"),
                 text(row, "config"), (long long)whole(row, "steps"), what, i, expected, found);
}

static void check_tables(struct tern_context *ctx, const char *name, size_t at_least)
{
    json_t *file = support_json(name), *row, *v;
    size_t rows, i;
    json_array_foreach(json_object_get(file, "tables"), rows, row) {
        const json_t *timesteps = json_object_get(row, "timesteps"), *sigmas = json_object_get(row, "sigmas");
        struct tern_scheduler *s = scheduler_of(ctx, file, row);
        if (!s || tern_scheduler_set_steps(s, (int)whole(row, "steps")))
            fail_msg("%s", tern_error(ctx));
        assert_int_equal(tern_scheduler_calls(s), json_array_size(timesteps));
        json_array_foreach(timesteps, i, v)
            assert_near(row, "timesteps", i, tern_scheduler_timestep(s, (int)i), json_number_value(v));
        assert_int_equal(tern_scheduler_sigma_count(s), json_array_size(sigmas));
        json_array_foreach(sigmas, i, v)
            assert_near(row, "sigmas", i, tern_scheduler_sigma(s, (int)i), json_number_value(v));
        assert_near(row, "init_noise_sigma", 0, tern_scheduler_init_noise_sigma(s),
                    json_number_value(json_object_get(row, "init_noise_sigma")));
        tern_scheduler_destroy(&s);
        assert_null(s);
    }
    assert_true(rows >= at_least);
    json_decref(file);
}

static void test_tables(void **state)
{
    check_tables(*state, "schedulers/tables.json", 300);
    check_tables(*state, "schedulers/more.json", 80);
    check_tables(*state, "ksamplers/runs.json", 20);
}

#define VALUES 64 /* of a sample in paths.safetensors; more.safetensors has 16 */

/* The output of call number k: the given one, or that of a model that knows the deviation of each value. */
static void model(const struct tern_scheduler *s, const json_t *row, int i, int k, const float *given, const float *x, float *out,
                  int64_t n)
{
    if (!json_object_get(row, "model")) {
        memcpy(out, given + k * n, (size_t)n * sizeof(float));
        return;
    }
    float sigma = (float)tern_scheduler_sigma(s, i);
    const bool v = s->config.prediction_type == TERN_PREDICT_V;
    for (int64_t j = 0; j < n; j++) {
        const float square = given[j] * given[j];
        out[j] = x[j] * sigma / (square + sigma * sigma) * (v ? (1 - square) / sqrtf(sigma * sigma + 1) : 1);
    }
}

/* Noise before a call, where the sampler has it. */
static void churn(struct tern_scheduler *s, int i, const float *noise, int *draws, float *x, int64_t n)
{
    if (tern_scheduler_churns(s, i))
        assert_int_equal(tern_scheduler_churn(s, i, noise + n * (*draws)++, x, n), TERN_OK);
}

/* One trajectory: the values after each call, the model inputs, and how many draws there were. */
static void check_path(struct tern_scheduler *s, const json_t *row, const struct tern_weights *w)
{
    int64_t n;
    float x[VALUES], scaled[VALUES], output[VALUES], *outputs = support_f32(w, "model_output", &n), *noise = support_f32(w, "noise", &n);
    float *original = support_f32(w, "original", &n), *sample = support_f32(w, "sample", &n);
    char name[160];
    snprintf(name, sizeof(name), "%s.prev", text(row, "name"));
    float *prev = support_f32(w, name, &n);
    snprintf(name, sizeof(name), "%s.scaled", text(row, "name"));
    float *inputs = tern_weights_get(w, name) ? support_f32(w, name, &n) : NULL;
    snprintf(name, sizeof(name), "%s.start", text(row, "name"));
    float *start = support_f32(w, name, &n);
    assert_true(n <= VALUES);

    int begin = (int)whole(row, "begin"), draws = 0;
    const json_t *strength = json_object_get(row, "strength");
    if (strength) {
        assert_int_equal(tern_scheduler_begin_at(s, json_number_value(strength)), begin);
        tern_scheduler_add_noise(s, begin, original, noise, x, n);
        draws = 1;
    } else {
        for (int j = 0; j < n; j++)
            x[j] = sample[j] * (float)tern_scheduler_init_noise_sigma(s);
    }
    double worst = support_nmse(x, start, n);
    const json_t *timesteps = json_object_get(row, "timesteps");
    churn(s, begin, noise, &draws, x, n);
    for (int i = begin, k = 0; i < tern_scheduler_calls(s); i++, k++) {
        if (timesteps)
            assert_near(row, "timesteps", (size_t)i, tern_scheduler_timestep(s, i),
                        json_number_value(json_array_get(timesteps, (size_t)k)));
        tern_scheduler_scale_input(s, i, x, scaled, n);
        const float *expected = inputs ? inputs + k * n : k ? prev + (k - 1) * n : start;
        worst = fmax(worst, support_nmse(scaled, expected, n));
        const float *draw = tern_scheduler_draws_noise(s, i) ? noise + n * draws++ : NULL;
        assert_true(tern_scheduler_expected_calls(s) >= tern_scheduler_calls(s) && k < whole(row, "calls"));
        model(s, row, i, k, outputs, x, output, n);
        assert_int_equal(tern_scheduler_step(s, i, output, draw, x, n), TERN_OK);
        churn(s, i + 1, noise, &draws, x, n);
        worst = fmax(worst, support_nmse(x, prev + k * n, n));
    }
    assert_int_equal(draws, whole(row, "draws"));
    assert_int_equal(tern_scheduler_calls(s) - begin, whole(row, "calls"));
    assert_int_equal(tern_scheduler_expected_calls(s), tern_scheduler_calls(s));
    /* Steps from a level far over the next divide by a small number what is rounded at the size of the large one. */
    bool two = has_middle(row);
    if (!(worst <= (two ? 1e-9 : 1e-12)))
        fail_msg("%s: NMSE %g", text(row, "name"), worst);
    free(outputs);
    free(noise);
    free(original);
    free(sample);
    free(prev);
    free(inputs);
    free(start);
}

/* The levels that the noise of each step is asked for, to 1e-6, and that they lie in the range. */
static void check_spans(struct tern_scheduler *s, const json_t *row)
{
    const json_t *spans = json_object_get(row, "spans"), *span;
    double low = 0, high = 0, from, to;
    int next = 0, first = json_object_get(row, "strength") ? 1 : 0;
    assert_int_equal(tern_scheduler_noise_range(s, &low, &high), spans != NULL);
    for (int i = (int)whole(row, "begin"); spans && i < tern_scheduler_calls(s); i++) {
        if (!tern_scheduler_noise_span(s, i, &from, &to))
            continue;
        span = json_array_get(spans, (size_t)next++);
        assert_near(row, "from", (size_t)i, from, json_number_value(json_array_get(span, 0)));
        assert_near(row, "to", (size_t)i, to, json_number_value(json_array_get(span, 1)));
        assert_true(from <= high * (1 + 1e-6) && to >= low * (1 - 1e-6));
    }
    assert_int_equal(next, json_array_size(spans));
    assert_true(!spans || next == whole(row, "draws") - first);
}

static void check_paths(struct tern_context *ctx, const char *name, size_t at_least)
{
    char path[64];
    struct tern_weights *w = support_tensors(ctx, name);
    snprintf(path, sizeof(path), "%s.json", name);
    json_t *file = support_json(path), *row;
    size_t rows;
    json_array_foreach(json_object_get(file, "paths"), rows, row) {
        struct tern_scheduler *s = scheduler_of(ctx, file, row);
        set_options(ctx, s, row);
        if (tern_scheduler_set_steps(s, (int)whole(row, "steps")))
            fail_msg("%s", tern_error(ctx));
        check_path(s, row, w);
        /* Again with the same object: the state of the first run is gone. */
        assert_int_equal(tern_scheduler_set_steps(s, (int)whole(row, "steps")), TERN_OK);
        check_path(s, row, w);
        check_spans(s, row);
        tern_scheduler_destroy(&s);
    }
    assert_true(rows >= at_least);
    tern_weights_unref(&w);
    json_decref(file);
}

static void test_paths(void **state)
{
    check_paths(*state, "schedulers/paths", 150);
    check_paths(*state, "schedulers/more", 40);
    check_paths(*state, "ksamplers/runs", 60);
}

/* What diffusers refuses, tern refuses. */
static void test_refused(void **state)
{
    struct tern_context *ctx = *state;
    json_t *file = support_json("schedulers/paths.json"), *row;
    size_t rows;
    json_array_foreach(json_object_get(file, "refused"), rows, row) {
        assert_null(scheduler_of(ctx, file, row));
        support_error(ctx, TERN_E_UNSUPPORTED, text(row, "sampler"));
    }
    assert_true(rows >= 2);
    json_decref(file);
}

/* alphas_cumprod of SD 1.5, in f64 */
static double alpha_bar(double timestep)
{
    double product = 1, from = sqrt(0.00085), to = sqrt(0.012);
    for (int t = 0; t <= (int)timestep; t++) {
        double root = from + (to - from) * t / 999;
        product *= 1 - root * root;
    }
    return product;
}

struct perfect {
    double alpha, sigma; /* of the sample: x = alpha x0 + sigma e */
};

/* Where the sampler believes itself to be at call i. */
static struct perfect level(const struct tern_scheduler *s, int i)
{
    double sigma = tern_scheduler_sigma(s, i);
    switch (tern_scheduler_sampler(s)) {
    case TERN_SAMPLER_DDIM:
    case TERN_SAMPLER_PNDM:
    case TERN_SAMPLER_LCM:
    case TERN_SAMPLER_DDPM:
    case TERN_SAMPLER_TCD: {
        double a = alpha_bar(tern_scheduler_timestep(s, i));
        return (struct perfect){sqrt(a), sqrt(1 - a)};
    }
    case TERN_SAMPLER_DPMPP_2M:
    case TERN_SAMPLER_UNIPC:
        return (struct perfect){1 / sqrt(sigma * sigma + 1), sigma / sqrt(sigma * sigma + 1)};
    default:
        return (struct perfect){1, sigma};
    }
}

/* What a model that knows x0 says of x. */
static float answer(struct perfect p, const char *prediction, float x, float x0)
{
    double e = ((double)x - p.alpha * (double)x0) / p.sigma, length = sqrt(p.alpha * p.alpha + p.sigma * p.sigma);
    if (strcmp(prediction, "epsilon") == 0)
        return (float)e;
    return strcmp(prediction, "sample") == 0 ? x0 : (float)((p.alpha * e - p.sigma * (double)x0) / length);
}

/* A whole run with the perfect model; the largest distance from x0 at the end. */
static double run_perfect(struct tern_scheduler *s, const char *prediction, const float *x0, int n)
{
    struct tern_generator g;
    float x[16], output[16], noise[16];
    tern_generator_seed(&g, TERN_GENERATOR_CPU, 1);
    tern_generator_randn(&g, x, n);
    for (int j = 0; j < n; j++)
        x[j] *= (float)tern_scheduler_init_noise_sigma(s);
    for (int i = 0; i < tern_scheduler_calls(s); i++) {
        struct perfect p = level(s, i);
        for (int j = 0; j < n; j++)
            output[j] = answer(p, prediction, x[j], x0[j]);
        if (tern_scheduler_draws_noise(s, i))
            tern_generator_randn(&g, noise, n);
        assert_int_equal(tern_scheduler_step(s, i, output, noise, x, n), TERN_OK);
        for (int j = 0; j < n; j++)
            if (!isfinite(x[j]))
                return INFINITY;
    }
    double worst = 0;
    for (int j = 0; j < n; j++)
        worst = fmax(worst, fabs((double)x[j] - (double)x0[j]));
    return worst;
}

/* How far from x0 a perfect run may end. DDIM goes T / n back from its last timestep, which may be 0 and not yet clean:
 * sqrt(1 - alphas_cumprod[0]) = 0.03 of the noise is left, as TCD always leaves it. PNDM is exact for noise predictions T / n apart, only
 * finite otherwise: it mixes v predictions of several timesteps, and leaves the levels of uneven timesteps. */
static double allowed(const struct tern_scheduler *s, const char *spacing, const char *prediction, int steps)
{
    enum tern_sampler sampler = tern_scheduler_sampler(s);
    if (sampler == TERN_SAMPLER_PNDM && (strcmp(spacing, "leading") || strcmp(prediction, "epsilon")))
        return 1e3;
    if (sampler == TERN_SAMPLER_DPM_FAST || sampler == TERN_SAMPLER_DPM_ADAPTIVE)
        return 0.2; /* end at the lowest level, 0.03 */
    bool clean = tern_scheduler_timestep(s, tern_scheduler_calls(s) - 1) < 1000 / steps;
    return (sampler == TERN_SAMPLER_DDIM && !clean) || sampler == TERN_SAMPLER_TCD ? 0.2 : 1e-3;
}

static void perfect_case(struct tern_context *ctx, enum tern_sampler sampler, enum tern_schedule schedule, const char *spacing,
                         const char *prediction, const char *more)
{
    static const float x0[4] = {0.9f, -1.7f, 0.02f, 2.5f};
    char config[400];
    snprintf(config, sizeof(config),
             "{\"beta_start\": 0.00085, \"beta_end\": 0.012, \"beta_schedule\": \"scaled_linear\", \"timestep_spacing\": \"%s\", "
             "\"prediction_type\": \"%s\", \"clip_sample\": false, \"set_alpha_to_one\": true, \"steps_offset\": 1%s}",
             spacing, prediction, more);
    struct tern_scheduler *s = tern_scheduler_create(ctx, config, sampler, schedule);
    if (!s)
        fail_msg("%s", tern_error(ctx));
    for (int steps = strstr(more, "prk") && strstr(more, "false") ? 4 : 1; steps <= 50; steps++) {
        assert_int_equal(tern_scheduler_set_steps(s, steps), TERN_OK);
        double worst = run_perfect(s, prediction, x0, 4);
        if (!(worst <= allowed(s, spacing, prediction, steps)))
            fail_msg("%s %s %s %s%s, %d steps: %g from the right sample", tern_sampler_name(sampler), tern_schedule_name(schedule), spacing,
                     prediction, more, steps, worst);
    }
    tern_scheduler_destroy(&s);
}

static void test_perfect_model(void **state)
{
    static const char *const spacings[] = {"leading", "linspace", "trailing"}, *const predictions[] = {"epsilon", "v_prediction", "sample"};
    struct tern_context *ctx = *state;
    for (int sampler = 1; sampler < TERN_SAMPLER_COUNT; sampler++) {
        bool schedules = sampler != TERN_SAMPLER_DDIM && sampler != TERN_SAMPLER_PNDM && sampler != TERN_SAMPLER_LCM &&
                         sampler != TERN_SAMPLER_DDPM && sampler != TERN_SAMPLER_TCD && sampler != TERN_SAMPLER_DPM_FAST &&
                         sampler != TERN_SAMPLER_DPM_ADAPTIVE;
        bool sample = sampler != TERN_SAMPLER_PNDM && sampler != TERN_SAMPLER_EULER_A && sampler != TERN_SAMPLER_DPM2 &&
                      sampler != TERN_SAMPLER_DPM2_A;
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < (sample ? 3 : 2); b++)
                for (int c = 0; c < (schedules ? TERN_SCHEDULE_COUNT : 1); c++)
                    perfect_case(ctx, (enum tern_sampler)sampler, (enum tern_schedule)c, spacings[a], predictions[b],
                                 ", \"skip_prk_steps\": true");
    }
}

/* Options of single samplers. */
static void test_perfect_model_options(void **state)
{
    static const struct {
        enum tern_sampler sampler;
        const char *more;
    } cases[] = {
        {TERN_SAMPLER_PNDM, ", \"skip_prk_steps\": false"},
        {TERN_SAMPLER_DPMPP_2M, ", \"solver_order\": 1"},
        {TERN_SAMPLER_DPMPP_2M, ", \"solver_order\": 3"},
        {TERN_SAMPLER_DPMPP_2M, ", \"solver_type\": \"heun\", \"lower_order_final\": false"},
        {TERN_SAMPLER_DPMPP_2M, ", \"solver_order\": 3, \"lower_order_final\": false, \"euler_at_final\": true"},
        {TERN_SAMPLER_UNIPC, ", \"solver_order\": 1"},
        {TERN_SAMPLER_UNIPC, ", \"solver_order\": 3"},
        {TERN_SAMPLER_UNIPC, ", \"solver_type\": \"bh1\""},
        {TERN_SAMPLER_UNIPC, ", \"solver_order\": 3, \"lower_order_final\": false"},
        {TERN_SAMPLER_UNIPC, ", \"solver_order\": 2, \"solver_type\": \"bh1\", \"lower_order_final\": false"},
    };
    struct tern_context *ctx = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        perfect_case(ctx, cases[i].sampler, TERN_SCHEDULE_DEFAULT, "leading", "epsilon", cases[i].more);
        perfect_case(ctx, cases[i].sampler, TERN_SCHEDULE_DEFAULT, "leading", "v_prediction", cases[i].more);
    }
}

/* The longest run: some samplers meet the same noise level twice on the way. */
static void test_as_many_steps_as_timesteps(void **state)
{
    static const char config[] = "{\"beta_schedule\": \"scaled_linear\", \"beta_start\": 0.00085, \"beta_end\": 0.012, "
                                 "\"timestep_spacing\": \"linspace\", \"original_inference_steps\": 1000, \"skip_prk_steps\": true, "
                                 "\"clip_sample\": false, \"set_alpha_to_one\": true}";
    struct tern_context *ctx = *state;
    for (int sampler = 1; sampler < TERN_SAMPLER_COUNT; sampler++) {
        struct tern_scheduler *s = tern_scheduler_create(ctx, config, (enum tern_sampler)sampler, TERN_SCHEDULE_DEFAULT);
        assert_non_null(s);
        assert_int_equal(tern_scheduler_set_steps(s, 1000), TERN_OK);
        static const float x0[2] = {0.5f, -0.5f};
        double worst = run_perfect(s, "epsilon", x0, 2);
        if (!(worst <= (sampler == TERN_SAMPLER_LCM || sampler == TERN_SAMPLER_TCD || sampler >= TERN_SAMPLER_DPM_FAST
                            ? 0.1
                            : 1e-2))) /* lcm keeps c_skip of the sample at timestep 0 */
            fail_msg("%s: %g", tern_sampler_name((enum tern_sampler)sampler), worst);
        tern_scheduler_destroy(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_perfect_model),
        cmocka_unit_test(test_perfect_model_options),
        cmocka_unit_test(test_as_many_steps_as_timesteps),
    };
    return cmocka_run_group_tests(tests, support_setup, support_teardown);
}

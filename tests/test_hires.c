/* The second pass of a picture: upscaled latents, sizes, steps and prompts by AUTOMATIC1111's rules, against a loop in Python; memory,
 * previews, jobs that end early. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "job_cases.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "models/pipelines/upscale.h"
#include "models/prompts/prompts.h"
#include "models/schedulers/scheduler.h"
#include "support.h"

#define UPSCALERS 6
#define NEAR 1e-12 /* NMSE of values that differ by the rounding of f32 */

static struct tern_context *ctx;
static struct tern_pipeline *p; /* sd1 */

static const char *const upscalers[UPSCALERS] = {"Latent",           "Latent (antialiased)",
                                                 "Latent (bicubic)", "Latent (bicubic antialiased)",
                                                 "Latent (nearest)", "Latent (nearest-exact)"};

/* Values of (…, rows, columns) in another size. */
static float *upscaled(const char *name, const float *from, int64_t count, const int64_t of[2], const int64_t to[2])
{
    const struct tern_upscaler *u = tern_upscaler_find(name);
    const struct tern_planes size = {count, of[0], of[1]};
    float *out = malloc((size_t)(count * to[0] * to[1]) * sizeof(*out));
    assert_non_null(u);
    assert_non_null(out);
    assert_string_equal(u->name, name);
    const size_t used = tern_memory_used(ctx);
    tern_memory_reset_peak(ctx);
    assert_int_equal(tern_upscale(ctx, u, &size, from, to[0], to[1], out), TERN_OK);
    const size_t told = tern_upscale_bytes(u, &size, to[0], to[1]), took = tern_memory_peak(ctx) - used;
    assert_true(took >= told && took <= told + 1024);
    assert_int_equal(tern_memory_used(ctx), used);
    return out;
}

static void upscalers_agree(void **state)
{
    (void)state;
    struct tern_weights *w = support_tensors(ctx, "hires/upscaled");
    double worst = 0;
    int cases = 0;
    char name[64];
    for (int i = 0; snprintf(name, sizeof(name), "%d.from", i) && tern_weights_get(w, name); i++) {
        int64_t n, m;
        const tern_tensor *t = tern_weights_get(w, name);
        float *from = support_f32(w, name, &n);
        for (int k = 0; k < UPSCALERS; k++, cases++) {
            snprintf(name, sizeof(name), "%d.%s", i, upscalers[k]);
            float *expected = support_f32(w, name, &m),
                  *found = upscaled(upscalers[k], from, 2, tern_tensor_shape(t) + 1, tern_tensor_shape(tern_weights_get(w, name)) + 1);
            const double e = support_nmse(found, expected, m);
            if (!(e <= NEAR))
                fail_msg("%s: NMSE %.3g", name, e);
            worst = e > worst ? e : worst;
            free(expected);
            free(found);
        }
        free(from);
    }
    assert_int_equal(cases, 5 * UPSCALERS);
    print_message("%d cases, worst NMSE %.2g\n", cases, worst);
    tern_weights_unref(&w);
}

/* Which value torch takes depends on products in f32. */
static void nearest_values_are_torchs(void **state)
{
    (void)state;
    static const int64_t lines[][2] = {{64, 96}, {64, 83}, {37, 101}, {90, 64}, {52, 73}, {41, 123}, {3, 29}};
    struct tern_weights *w = support_tensors(ctx, "hires/upscaled");
    float from[128];
    for (int i = 0; i < 128; i++)
        from[i] = (float)i;
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
        for (int k = 4; k < UPSCALERS; k++) {
            char name[64];
            int64_t n;
            snprintf(name, sizeof(name), "%d.%d.%s", (int)lines[i][0], (int)lines[i][1], upscalers[k]);
            float *expected = support_f32(w, name, &n),
                  *found = upscaled(upscalers[k], from, 1, (const int64_t[]){1, lines[i][0]}, (const int64_t[]){1, lines[i][1]});
            assert_int_equal(n, lines[i][1]);
            assert_memory_equal(found, expected, (size_t)n * sizeof(*found));
            free(expected);
            free(found);
        }
    tern_weights_unref(&w);
}

static void names_are_forgiving(void **state)
{
    (void)state;
    assert_ptr_equal(tern_upscaler_find(NULL), tern_upscaler_find("latent"));
    assert_ptr_equal(tern_upscaler_find("latent-bicubic-antialiased"), tern_upscaler_find(upscalers[3]));
    assert_ptr_equal(tern_upscaler_find("LATENT_NEAREST_EXACT"), tern_upscaler_find(upscalers[5]));
    assert_null(tern_upscaler_find(""));
    assert_null(tern_upscaler_find("Lanczos"));
}

static void prompts_count_on(void **state)
{
    (void)state;
    json_t *rows = support_json("hires/prompts.json"), *row;
    size_t i;
    json_array_foreach(rows, i, row) {
        struct tern_prompt_schedule s;
        const char *text = json_string_value(json_object_get(row, "text"));
        const json_t *parts = json_object_get(row, "schedule");
        assert_int_equal(tern_prompt_schedule(ctx, text, 5, 6, &s), TERN_OK);
        if ((size_t)s.n_parts != json_array_size(parts))
            fail_msg("%s: %d parts, expected %zu", text, s.n_parts, json_array_size(parts));
        for (int k = 0; k < s.n_parts; k++) {
            const json_t *part = json_array_get(parts, (size_t)k);
            const char *expected = json_string_value(json_array_get(part, 1));
            if (s.parts[k].end != json_integer_value(json_array_get(part, 0)) || strcmp(s.texts[s.parts[k].text], expected))
                fail_msg("%s: \"%s\" up to %d, expected \"%s\"", text, s.texts[s.parts[k].text], s.parts[k].end, expected);
        }
        tern_prompt_schedule_free(&s);
    }
    assert_true(i >= 15);
    json_decref(rows);
}

/* ---- pictures */

static struct tern_hires hires_of(const json_t *row)
{
    const char *sampler = json_string_value(json_object_get(row, "hr_sampler"));
    return (struct tern_hires){
        .hr_scale = json_number_value(json_object_get(row, "hr_scale")),
        .hr_resize_x = (int)json_integer_value(json_object_get(row, "hr_resize_x")),
        .hr_resize_y = (int)json_integer_value(json_object_get(row, "hr_resize_y")),
        .hr_upscaler = json_string_value(json_object_get(row, "hr_upscaler")),
        .hr_second_pass_steps = (int)json_integer_value(json_object_get(row, "hr_second_pass_steps")),
        .denoising_strength = json_number_value(json_object_get(row, "denoising_strength")),
        .hr_prompt = json_string_value(json_object_get(row, "hr_prompt")),
        .hr_negative_prompt = json_string_value(json_object_get(row, "hr_negative_prompt")),
        .hr_sampler = sampler ? tern_sampler_parse(sampler, NULL) : TERN_SAMPLER_DEFAULT,
        .hr_cfg = json_number_value(json_object_get(row, "hr_cfg")),
    };
}

static void latents_agree(void **state)
{
    (void)state;
    struct job_worst w = {0};
    json_t *rows = support_json("hires/cases.json"), *row;
    struct tern_weights *expected = support_tensors(ctx, "hires/latents");
    size_t i;
    json_array_foreach(rows, i, row) {
        struct job_case c = job_case_read(ctx, row, "hires");
        char path[PATH_SIZE];
        struct tern_pipeline *of = model_load(ctx, model_path(c.model, path));
        c.params.prompt_syntax = json_is_true(json_object_get(row, "plain")) ? TERN_PROMPT_PLAIN : TERN_PROMPT_A1111;
        c.params.hires = hires_of(json_object_get(row, "hires"));
        struct tern_images *images = job_run(ctx, of, &c.params);
        const int64_t *a = tern_tensor_shape(tern_images_latents(images)), *b = tern_tensor_shape(tern_weights_get(expected, c.name));
        assert_memory_equal(a, b, 4 * sizeof(*a));
        assert_int_equal(tern_image_width(tern_images_at(images, 0)), 8 * a[3]);
        assert_int_equal(tern_image_height(tern_images_at(images, 0)), 8 * a[2]);
        job_check_latents(images, expected, c.name, &w);
        w.cases++;
        tern_images_destroy(&images);
        tern_pipeline_destroy(&of);
        job_case_close(&c);
    }
    assert_int_equal(w.cases, 8);
    job_print_worst(&w);
    tern_weights_unref(&expected);
    json_decref(rows);
}

static struct tern_txt2img_params small(void)
{
    return tern_txt2img_params(.prompt = "a cat", .negative_prompt = "b", .width = 24, .height = 16, .steps = 2, .seed = 3, .count = 2,
                               .sampler = TERN_SAMPLER_EULER_A, .hires = {.hr_scale = 1.5});
}

/* By hand, from A1111's rules. */
static void sizes_and_steps(void **state)
{
    (void)state;
    static const struct {
        double scale;
        int x, y, steps, width, height;
        double strength;
        int all, begin; /* of a picture of 64 x 48 in 20 steps */
    } rows[] = {
        {2, 0, 0, 0, 128, 96, 0.7, 28, 8},    {1.3, 0, 0, 0, 80, 56, 0.5, 40, 20},      {0.5, 0, 0, 10, 32, 24, 0.75, 13, 3},
        {0, 100, 0, 0, 96, 72, 0.7, 28, 8},   {0, 0, 100, 0, 128, 96, 0.7, 28, 8},      {0, 128, 128, 0, 128, 128, 0.7, 28, 8},
        {0, 128, 64, 0, 128, 64, 0.7, 28, 8}, {9, 60, 100, 1, 56, 96, 0.002, 500, 499}, {2, 0, 0, 20, 128, 96, 1, 20, 0},
        {0, 64, 48, 7, 64, 48, 0.3, 23, 16},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct tern_job j;
        struct tern_txt2img_params q = {.width = 64, .height = 48, .steps = 20, .sampler = TERN_SAMPLER_EULER};
        q.hires = (struct tern_hires){.hr_scale = rows[i].scale,
                                      .hr_resize_x = rows[i].x,
                                      .hr_resize_y = rows[i].y,
                                      .hr_second_pass_steps = rows[i].steps,
                                      .denoising_strength = rows[i].strength};
        if (tern_job_prepare(&j, p, &q))
            fail_msg("%zu: %s", i, tern_error(ctx));
        const struct tern_job *h = j.hires;
        if (h->params.width != rows[i].width || h->params.height != rows[i].height || h->params.steps != rows[i].all ||
            h->begin != rows[i].begin)
            fail_msg("%zu: %d x %d, %d steps from %d", i, h->params.width, h->params.height, h->params.steps, h->begin);
        tern_job_destroy(&j);
    }
}

/* Another sampler keeps the schedule and the options that it has. */
static void another_sampler_keeps_what_it_has(void **state)
{
    (void)state;
    struct tern_job j;
    struct tern_txt2img_params q = small();
    q.schedule = TERN_SCHEDULE_KARRAS;
    q.sampler_options = (struct tern_sampler_options){.eta = 0.5, .s_noise = 1.1};
    q.hires.hr_sampler = TERN_SAMPLER_HEUN;
    assert_int_equal(tern_job_prepare(&j, p, &q), TERN_OK);
    const struct tern_txt2img_params *h = &j.hires->params;
    assert_true(h->sampler == TERN_SAMPLER_HEUN && h->schedule == TERN_SCHEDULE_KARRAS);
    assert_true(h->sampler_options.eta == 0 && h->sampler_options.s_noise == 1.1);
    tern_job_destroy(&j);
    q.hires.hr_sampler = TERN_SAMPLER_DDIM; /* its eta is another */
    assert_int_equal(tern_job_prepare(&j, p, &q), TERN_OK);
    assert_true(j.hires->params.schedule == TERN_SCHEDULE_DEFAULT && j.hires->params.sampler_options.eta == 0);
    tern_job_destroy(&j);
    q.hires.hr_sampler = TERN_SAMPLER_TCD; /* so is its */
    assert_int_equal(tern_job_prepare(&j, p, &q), TERN_OK);
    assert_true(j.hires->params.sampler_options.eta == 0);
    tern_job_destroy(&j);
    q.hires.hr_sampler = TERN_SAMPLER_DPM2_A;
    q.hires.hr_schedule = TERN_SCHEDULE_BETA;
    assert_int_equal(tern_job_prepare(&j, p, &q), TERN_OK);
    assert_true(j.hires->params.schedule == TERN_SCHEDULE_BETA && j.hires->params.sampler_options.eta == 0.5);
    tern_job_destroy(&j);
}

/* k-diffusion's sample_lms gets the levels from `begin` on: its first step has order 1 and is Euler's, and those behind are exact for
 * slopes that are linear, as here that of sigma^2 / 2. */
static void lms_builds_its_order_up(void **state)
{
    (void)state;
    struct tern_job j;
    struct tern_txt2img_params q = small();
    q.steps = 9;
    q.count = 1;
    q.sampler = TERN_SAMPLER_LMS;
    assert_int_equal(tern_job_prepare(&j, p, &q), TERN_OK);
    struct tern_scheduler *s = j.hires->scheduler;
    const int begin = j.hires->begin;
    const double a = tern_scheduler_sigma(s, begin), b = tern_scheduler_sigma(s, begin + 1), expected = (b - a) * a - b * b / 2;
    assert_true(begin >= 3);
    float x = 0;
    for (int i = begin; i < tern_scheduler_calls(s); i++) {
        const float slope = (float)tern_scheduler_sigma(s, i);
        assert_int_equal(tern_scheduler_step(s, i, &slope, NULL, &x, 1), TERN_OK);
    }
    if (!(fabs((double)x - expected) <= 1e-5 * fabs(expected)))
        fail_msg("%.9g, expected %.9g", (double)x, expected);
    tern_job_destroy(&j);
}

/* A picture of a batch is the one that its seed gives alone. */
static void batches_are_single_pictures(void **state)
{
    (void)state;
    struct tern_txt2img_params q = small();
    struct tern_images *both = job_run(ctx, p, &q);
    q.count = 1;
    q.seed++;
    struct tern_images *second = job_run(ctx, p, &q);
    assert_true(job_same(both, 1, second));
    tern_images_destroy(&both);
    tern_images_destroy(&second);
}

/* ---- callbacks and stages */

struct seen {
    int steps, previews, hires, width;
    int64_t most;
};

static void on_step(int step, int steps, const float *latents, int64_t count, void *user)
{
    struct seen *s = user;
    s->steps++;
    s->most = count;
    assert_true(step >= 1 && step <= steps && latents[count - 1] == latents[count - 1]);
}

static void on_preview(int step, int steps, int index, const struct tern_image *picture, void *user)
{
    struct seen *s = user;
    (void)step;
    (void)steps;
    (void)index;
    s->previews++;
    s->width = tern_image_width(picture);
}

static void on_progress(const struct tern_progress *e, void *user)
{
    struct seen *s = user;
    s->hires += !strcmp(e->stage, "hires");
}

static void both_passes_are_seen(void **state)
{
    (void)state;
    char path[PATH_SIZE];
    for (int i = 0; i < 2; i++) { /* previews by the linear map, then by a TAESD */
        struct seen s = {0};
        struct tern_context *own = tern_context_create(&(struct tern_context_params){.threads = 1, .progress = on_progress, .user = &s});
        assert_non_null(own);
        struct tern_pipeline_params how = {.preview_vae = i ? TERN_TEST_DATA "/taesd/vae" : NULL};
        struct tern_pipeline *of = tern_pipeline_load(own, model_path("sd1", path), &how);
        assert_non_null(of);
        struct tern_txt2img_params q = small();
        q.hires.hr_second_pass_steps = 3;
        struct tern_images *without = job_run(own, of, &q);
        s = (struct seen){0};
        q.on_step = on_step;
        q.on_preview = on_preview;
        q.on_step_user = q.on_preview_user = &s;
        struct tern_images *images = job_run(own, of, &q);
        assert_true(job_same(images, 0, without));
        assert_true(s.steps == 2 + 3 && s.previews == 2 * (2 + 3) && s.hires == 1 + 3);
        assert_true(s.most == 2 * 4 * 3 * 4 && s.width == (i ? 32 : 4));
        tern_images_destroy(&images);
        tern_images_destroy(&without);
        tern_pipeline_destroy(&of);
        tern_context_destroy(&own);
    }
}

/* ---- memory */

static void memory_is_predicted(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        enum tern_offload offload;
        bool preview, keep;
        double scale;
    } rows[] = {{"sd1", TERN_OFFLOAD_NONE, false, false, 2},        {"sd1", TERN_OFFLOAD_NONE, true, true, 2},
                {"demo", TERN_OFFLOAD_NONE, false, false, 1.5},     {"demo", TERN_OFFLOAD_SEQUENTIAL, true, false, 1.5},
                {"sdxl", TERN_OFFLOAD_SEQUENTIAL, false, false, 2}, {"demo", TERN_OFFLOAD_STREAM, false, false, 1.5}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char path[PATH_SIZE];
        struct seen s = {0};
        struct tern_context *own = model_context(NULL, 2);
        struct tern_pipeline_params how = {.offload = rows[i].offload,
                                           .keep_text_encoder = rows[i].keep,
                                           .preview_vae = rows[i].preview ? TERN_TEST_DATA "/taesd/vae" : NULL};
        struct tern_pipeline *of = tern_pipeline_load(own, model_path(rows[i].model, path), &how);
        assert_non_null(of);
        struct tern_txt2img_params q = {.prompt = "x", .width = 192, .height = 128, .steps = 2, .seed = 3};
        q.hires = (struct tern_hires){.hr_scale = rows[i].scale, .hr_upscaler = "Latent (bicubic antialiased)"};
        q.on_preview = rows[i].preview ? on_preview : NULL;
        q.on_preview_user = &s;
        for (int k = 0; k < 2; k++) { /* again with what the first job left */
            size_t need = 0;
            if (tern_generate_check(of, &q, &need))
                fail_msg("%s", tern_error(own));
            tern_memory_trim(own);
            tern_memory_reset_peak(own);
            struct tern_images *images = job_run(own, of, &q);
            const double ratio = (double)tern_memory_peak(own) / (double)need;
            if (ratio > 1 || ratio < 0.97)
                fail_msg("row %zu, job %d: predicted %zu bytes, the peak was %.4f of that", i, k, need, ratio);
            tern_images_destroy(&images);
        }
        tern_pipeline_destroy(&of);
        tern_context_destroy(&own);
    }
}

/* ---- jobs that end early */

static long cancel_asked, cancel_at;
static bool answer(void *user)
{
    (void)user;
    return ++cancel_asked == cancel_at;
}

static void cancelled_jobs_leave_nothing(void **state)
{
    (void)state;
    char path[PATH_SIZE];
    struct tern_context *own = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = answer});
    struct tern_pipeline *of = model_load(own, model_path("sd1", path));
    struct tern_txt2img_params q = small();
    cancel_at = 0;
    struct tern_images *whole = job_run(own, of, &q), *again = job_run(own, of, &q);
    tern_images_destroy(&again);
    tern_memory_trim(own);
    const size_t used = tern_memory_used(own);
    cancel_asked = 0;
    again = job_run(own, of, &q);
    const long total = cancel_asked;
    tern_images_destroy(&again);
    for (long n = 1; n <= total; n += 1 + total / 40) {
        cancel_asked = 0;
        cancel_at = n;
        assert_null(tern_generate(of, &q));
        support_error(own, TERN_E_CANCELLED, "cancelled");
        assert_int_equal(cancel_asked, n);
        tern_memory_trim(own);
        assert_int_equal(tern_memory_used(own), used);
    }
    cancel_at = 0;
    again = job_run(own, of, &q);
    assert_true(job_same(whole, 0, again));
    tern_images_destroy(&whole);
    tern_images_destroy(&again);
    tern_pipeline_destroy(&of);
    tern_context_destroy(&own);
}

static void allocations_may_fail(void **state)
{
    (void)state;
    char path[PATH_SIZE];
    struct support_allocator a = {0};
    struct tern_context_params params = {.device = "cpu", .threads = 1, .allocator = support_failing(&a)};
    struct tern_context *own = tern_context_create(&params);
    struct tern_pipeline *of = model_load(own, model_path("sd1", path));
    struct tern_txt2img_params q = small();
    struct tern_images *images = job_run(own, of, &q);
    tern_images_destroy(&images);
    for (long n = 1, done = 0; !done; n += 1 + n / 12) {
        a.fail_at = a.count + n;
        images = tern_generate(of, &q);
        a.fail_at = 0;
        done = images != NULL;
        if (!done)
            support_error(own, TERN_E_NO_MEMORY, "");
        tern_images_destroy(&images);
    }
    tern_pipeline_destroy(&of);
    tern_context_destroy(&own);
    assert_int_equal(a.live, 0);
}

static int setup(void **state)
{
    char path[PATH_SIZE];
    (void)state;
    ctx = support_context();
    p = model_load(ctx, model_path("sd1", path));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(upscalers_agree),
        cmocka_unit_test(nearest_values_are_torchs),
        cmocka_unit_test(names_are_forgiving),
        cmocka_unit_test(prompts_count_on),
        cmocka_unit_test(latents_agree),
        cmocka_unit_test(sizes_and_steps),
        cmocka_unit_test(another_sampler_keeps_what_it_has),
        cmocka_unit_test(lms_builds_its_order_up),
        cmocka_unit_test(batches_are_single_pictures),
        cmocka_unit_test(both_passes_are_seen),
        cmocka_unit_test(memory_is_predicted),
        cmocka_unit_test(cancelled_jobs_leave_nothing),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

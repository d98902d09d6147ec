/* Wrong parameters of a picture or a component run: refused before anything is computed, with a message that says what is
 * wrong and what was expected; the same pipeline works on. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "core/tensor.h"
#include "job_cases.h"
#include "model_help.h"
#include "support.h"

struct fixture {
    struct tern_context *ctx;
    struct tern_pipeline *p; /* sd1 */
    struct tern_image *picture, *mask;
    int events; /* of progress, by any stage but loading */
    char last[32];
};

static void count_event(const struct tern_progress *e, void *user)
{
    struct fixture *f = user;
    f->events += strcmp(e->stage, "load") != 0;
    snprintf(f->last, sizeof(f->last), "%s", e->stage);
}

static struct fixture *open_fixture(const char *model, size_t budget)
{
    struct fixture *f = calloc(1, sizeof(*f));
    char path[PATH_SIZE];
    f->ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .budget = budget, .progress = count_event, .user = f});
    assert_non_null(f->ctx);
    f->p = model_load(f->ctx, model_path(model, path));
    f->picture = tern_image_create(f->ctx, 16, 16, NULL);
    f->mask = tern_image_create(f->ctx, 16, 16, NULL);
    return f;
}

static void close_fixture(struct fixture *f)
{
    tern_image_destroy(&f->picture);
    tern_image_destroy(&f->mask);
    tern_pipeline_destroy(&f->p);
    tern_context_destroy(&f->ctx);
    free(f);
}

static int setup(void **state)
{
    *state = open_fixture("sd1", 0);
    return 0;
}

static int teardown(void **state)
{
    close_fixture(*state);
    return 0;
}

/* The smallest job; what a test changes is wrong then. */
static struct tern_txt2img_params tiny(void)
{
    return tern_txt2img_params(.prompt = "x", .width = 16, .height = 16, .steps = 1, .seed = 1);
}

static void refused(struct fixture *f, const struct tern_txt2img_params *q, enum tern_status status, const char *part)
{
    size_t used = tern_memory_used(f->ctx);
    f->events = 0;
    assert_int_equal(tern_generate_check(f->p, q, NULL), status);
    support_error(f->ctx, status, part);
    size_t most = 1;
    assert_int_equal(tern_generate_check(f->p, q, &most), status);
    support_error(f->ctx, status, part);
    assert_true(most == 0);
    assert_null(tern_generate(f->p, q));
    support_error(f->ctx, status, part);
    assert_int_equal(f->events, 0);
    assert_int_equal(tern_memory_used(f->ctx), used);
}

static void works(struct fixture *f)
{
    struct tern_txt2img_params q = tiny();
    struct tern_image *image = tern_txt2img(f->p, &q);
    if (!image)
        fail_msg("%s", tern_error(f->ctx));
    tern_image_destroy(&image);
}

static void wrong_sizes(void **state)
{
    static const int wrong[] = {-8, 1, 7, 12, 17, 8200, 8191, 1 << 20, INT_MAX, INT_MIN};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        char number[32];
        struct tern_txt2img_params q = tiny();
        q.width = wrong[i];
        snprintf(number, sizeof(number), "found %d x 16", wrong[i]);
        refused(f, &q, TERN_E_INVALID, number);
        q.width = 16;
        q.height = wrong[i];
        snprintf(number, sizeof(number), "found 16 x %d", wrong[i]);
        refused(f, &q, TERN_E_INVALID, number);
        refused(f, &q, TERN_E_INVALID, "expected multiples of 8 in 8..8192");
    }
    works(f);
}

static void wrong_numbers(void **state)
{
    static const struct {
        int steps;
        double cfg;
        int count;
        const char *message;
    } rows[] = {
        {-1, 5, 1, "steps: expected 1..1000, found -1"},
        {1001, 5, 1, "steps: expected 1..1000, found 1001"},
        {10000000, 5, 1, "steps: expected 1..1000, found 10000000"},
        {INT_MIN, 5, 1, "steps: expected 1..1000"},
        {1, -0.5, 1, "cfg: expected a number in 0..1000, found -0.5"},
        {1, 1001, 1, "cfg: expected a number in 0..1000, found 1001"},
        {1, (double)INFINITY, 1, "cfg: expected a number in 0..1000, found inf"},
        {1, (double)NAN, 1, "cfg: expected a number in 0..1000"},
        {1, 5, -1, "count: expected 1..64, found -1"},
        {1, 5, 65, "count: expected 1..64, found 65"},
        {1, 5, INT_MAX, "count: expected 1..64"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct tern_txt2img_params q = tiny();
        q.steps = rows[i].steps;
        q.cfg = rows[i].cfg;
        q.count = rows[i].count;
        refused(f, &q, TERN_E_INVALID, rows[i].message);
    }
    struct tern_txt2img_params q = tiny();
    q.ensd = (int64_t)INT32_MAX + 1;
    refused(f, &q, TERN_E_INVALID, "ensd: expected -2147483648..2147483647, found 2147483648");
    q.ensd = (int64_t)INT32_MIN - 1;
    refused(f, &q, TERN_E_INVALID, "found -2147483649");
    works(f);
}

static void wrong_names(void **state)
{
    struct fixture *f = *state;
    struct tern_txt2img_params q = tiny();
    q.sampler = (enum tern_sampler)99;
    refused(f, &q, TERN_E_INVALID, "sampler or schedule: 99 and 0");
    q.sampler = (enum tern_sampler) - 1;
    refused(f, &q, TERN_E_INVALID, "sampler or schedule: -1");
    q = tiny();
    q.schedule = (enum tern_schedule)77;
    refused(f, &q, TERN_E_INVALID, "77 are no such values");
    q = tiny();
    q.sampler = TERN_SAMPLER_DDIM;
    q.schedule = TERN_SCHEDULE_KARRAS;
    refused(f, &q, TERN_E_INVALID, "ddim has no karras schedule; these have it: euler");
    q = tiny();
    q.generator = (enum tern_generator_kind)2;
    refused(f, &q, TERN_E_INVALID, "generator: 2");
    q = tiny();
    q.schedule_config = "{\"_class_name\": \"EDMEulerScheduler\"}";
    refused(f, &q, TERN_E_UNSUPPORTED, "EDMEulerScheduler is not available; choose a sampler: ddim, pndm");
    q.schedule_config = "{";
    refused(f, &q, TERN_E_FORMAT, "scheduler_config.json: not valid JSON");
    works(f);
}

static void wrong_second_passes(void **state)
{
    static const struct {
        struct tern_hires hires;
        const char *message;
    } rows[] = {
        {{.hr_scale = -1}, "hr_scale: expected a number above 0, found -1"},
        {{.hr_scale = (double)NAN}, "hr_scale"},
        {{.hr_scale = (double)INFINITY}, "hr_scale: expected a number above 0, found inf"},
        {{.hr_scale = 1e300}, "expected latents of 8..8192 pixels on each side"},
        {{.hr_scale = 513}, "hr_scale 513, hr_resize 0 x 0 of a picture of 16 x 16: expected latents of 8..8192"},
        {{.hr_scale = 1e-300}, "expected latents of 8..8192"},
        {{.hr_scale = 0.49}, "expected latents of 8..8192"},
        {{.hr_resize_x = -1}, "hr_resize_x, hr_resize_y: expected 0..8192, found -1 and 0"},
        {{.hr_resize_y = INT_MAX}, "found 0 and 2147483647"},
        {{.hr_resize_x = 7}, "expected latents of 8..8192"},
        {{.hr_resize_x = 94, .hr_resize_y = 1}, "hr_resize 94 x 1 of a picture of 16 x 16: expected latents"}, /* all is cut off */
        {{.hr_scale = 2, .hr_second_pass_steps = -1}, "hr_second_pass_steps: expected 1..1000, found -1"},
        {{.hr_scale = 2, .hr_second_pass_steps = INT_MAX}, "hr_second_pass_steps: expected 1..1000"},
        {{.hr_scale = 2, .denoising_strength = 1.1}, "denoising_strength: expected a number above 0 and at most 1, found 1.1"},
        {{.hr_scale = 2, .denoising_strength = -0.1}, "denoising_strength"},
        {{.hr_scale = 2, .denoising_strength = (double)NAN}, "denoising_strength"},
        {{.hr_scale = 2, .denoising_strength = 1e-300}, "hires: the last 1 steps at denoising_strength 1e-300 are those of 1000000000"},
        {{.hr_scale = 2, .hr_second_pass_steps = 20, .denoising_strength = 0.01}, "are those of 2000; expected at most 1000"},
        {{.hr_scale = 2, .hr_upscaler = "ESRGAN"}, "there is no upscaler of latents \"ESRGAN\"; there are Latent, Latent (antialiased), "},
        {{.hr_scale = 2, .hr_upscaler = ""}, "there is no upscaler"},
        {{.hr_scale = 2, .hr_sampler = (enum tern_sampler)99}, "hr_sampler or hr_schedule: 99 and 0"},
        {{.hr_scale = 2, .hr_schedule = (enum tern_schedule) - 1}, "hr_sampler or hr_schedule: 0 and -1"},
        {{.hr_scale = 2, .hr_sampler = TERN_SAMPLER_DDIM, .hr_schedule = TERN_SCHEDULE_KARRAS},
         "hires: scheduler: sampler ddim has no karras"},
        {{.hr_scale = 2, .hr_cfg = -1}, "hires: cfg: expected a number in 0..1000, found -1"},
        {{.hr_scale = 2, .hr_cfg = (double)NAN}, "hires: cfg"},
    };
    struct fixture *f = *state;
    struct tern_txt2img_params q;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        q = tiny();
        q.hires = rows[i].hires;
        refused(f, &q, TERN_E_INVALID, rows[i].message);
    }
    q = tiny();
    q.steps = 4;
    q.hires.hr_scale = 2;
    q.init_image = f->picture;
    refused(f, &q, TERN_E_INVALID, "follows a picture from text by one model; found init_image");
    q.init_image = NULL;
    q.denoising_end = 0.5;
    refused(f, &q, TERN_E_INVALID, "found denoising_start or denoising_end");
    q.denoising_end = 0;
    q.prompt_syntax = TERN_PROMPT_A1111;
    q.hires.hr_prompt = "a <lora:x:1>";
    refused(f, &q, TERN_E_INVALID, "hires: prompt");
    works(f);
}

static void wrong_strengths(void **state)
{
    static const double wrong[] = {-0.1, 1.5, -1e300, (double)INFINITY, (double)NAN};
    struct fixture *f = *state;
    struct tern_txt2img_params q = tiny();
    q.init_image = f->picture;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        q.strength = wrong[i];
        refused(f, &q, TERN_E_INVALID, "strength: expected a number above 0 and at most 1");
    }
    q.strength = 0.01; /* of one step */
    refused(f, &q, TERN_E_INVALID, "strength 0.01 of 1 steps leaves no step to do");
    works(f);
}

static void images_that_do_not_go_together(void **state)
{
    struct fixture *f = *state, *nine = open_fixture("sd1-inpaint", 0), *xl = open_fixture("sdxl", 0);
    struct tern_txt2img_params q = tiny();
    q.mask_image = f->mask;
    refused(f, &q, TERN_E_INVALID, "mask_image: inpainting needs init_image too");
    works(f);
    q = tiny();
    refused(nine, &q, TERN_E_INVALID, "sd1-inpaint is an inpainting model: it needs init_image and mask_image");
    q.init_image = nine->picture;
    refused(nine, &q, TERN_E_INVALID, "it needs init_image and mask_image");
    q.mask_image = nine->mask;
    q.strength = 1;
    works(xl);
    close_fixture(xl);
    close_fixture(nine);
}

static void wrong_latents(void **state)
{
    static const int64_t shapes[][4] = {{2, 4, 2, 2}, {1, 5, 2, 2}, {1, 4, 3, 2}, {1, 4, 2, 1}, {1, 4, 16, 16}};
    struct fixture *f = *state;
    struct tern_txt2img_params q = tiny();
    for (int i = 0; i < 5; i++) {
        q.init_latents = tern_tensor_create(f->ctx, TERN_F32, 4, shapes[i], NULL);
        refused(f, &q, TERN_E_SHAPE, "latents: expected (1, 4, 2, 2) f32, found (");
        tern_tensor_unref(&q.init_latents);
    }
    q.init_latents = tern_tensor_create(f->ctx, TERN_F32, 1, (const int64_t[]){16}, NULL);
    refused(f, &q, TERN_E_SHAPE, "found (16,) f32");
    tern_tensor_unref(&q.init_latents);
    q.init_latents = tern_tensor_create(f->ctx, TERN_F16, 4, (const int64_t[]){1, 4, 2, 2}, NULL);
    refused(f, &q, TERN_E_SHAPE, "found (1, 4, 2, 2) f16");
    tern_tensor_unref(&q.init_latents);
    works(f);
}

/* What a job reads of another context needs nothing of that one: not its memory, which has run out here. */
static void pictures_of_another_context(void **state)
{
    struct support_allocator memory = {0};
    struct fixture *f = *state;
    struct tern_context *other = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&memory)});
    struct tern_txt2img_params q = tiny();
    uint8_t rgb[24 * 32 * 3];
    for (int i = 0; i < 24 * 32 * 3; i++)
        rgb[i] = i / 3 % 32 < 16 ? 255 : (uint8_t)(i * 7);
    struct tern_image *own = tern_image_create(f->ctx, 32, 24, rgb), *theirs = tern_image_create(other, 32, 24, rgb);
    assert_non_null(theirs);
    memory.fail_at = 1;
    for (int mask = 0; mask < 2; mask++) {
        q.init_image = own;
        q.mask_image = mask ? own : NULL;
        q.strength = 1;
        struct tern_images *expected = job_run(f->ctx, f->p, &q);
        q.init_image = theirs;
        q.mask_image = mask ? theirs : NULL;
        struct tern_images *found = job_run(f->ctx, f->p, &q);
        assert_true(job_same(expected, 0, found));
        tern_images_destroy(&expected);
        tern_images_destroy(&found);
    }
    assert_int_equal(tern_error_status(other), TERN_OK);
    tern_image_destroy(&own);
    tern_image_destroy(&theirs);
    tern_context_destroy(&other);
    assert_int_equal(memory.live, 0);
}

static enum tern_status lost(struct tern_buffer *b, size_t offset, void *dst, size_t size)
{
    return tern_fail(b->device->ctx, TERN_E_DEVICE, "the device is lost");
}

/* It is the other one that has the error. */
static void latents_of_another_context(void **state)
{
    struct fixture *f = *state;
    struct tern_context *other = support_context();
    struct tern_txt2img_params q = tiny();
    q.steps = 10;
    q.count = 4;
    q.init_latents = tern_tensor_create(other, TERN_F32, 4, (const int64_t[]){4, 4, 2, 2}, NULL);
    struct tern_buffer *b = q.init_latents->buffer;
    const struct tern_buffer_fns *whole = b->fns, broken = {whole->destroy, whole->write, lost};
    struct tern_images *images = job_run(f->ctx, f->p, &q);
    tern_images_destroy(&images);
    b->fns = &broken;
    for (int searches = 0; searches < 2; searches++) {
        q.cache_quality = searches ? 0.5 : 0;
        assert_null(tern_generate(f->p, &q));
        support_error(f->ctx, TERN_E_DEVICE, "latents: the device is lost");
        support_error(other, TERN_E_DEVICE, "the device is lost");
    }
    b->fns = whole;
    tern_tensor_unref(&q.init_latents);
    tern_context_destroy(&other);
    works(f);
}

static enum tern_status keep_input(void *user, tern_tensor *const *in, tern_tensor **out)
{
    *(tern_tensor **)user = tern_tensor_ref(in[0]);
    out[0] = tern_contiguous(in[0], TERN_CONTIGUOUS);
    return TERN_OK;
}

static void latents_without_values(void **state)
{
    struct fixture *f = *state;
    struct tern_txt2img_params q = tiny();
    const struct tern_graph_input in = {"x", TERN_F32, 4, {1, 4, 2, 2}};
    struct tern_graph *g = tern_graph_trace(f->ctx, keep_input, &q.init_latents, NULL, &in, 1, 1);
    assert_non_null(g);
    refused(f, &q, TERN_E_INVALID, "latents: expected values, found a tensor of a graph that is or was recorded");
    tern_tensor_unref(&q.init_latents);
    tern_graph_destroy(&g);
    works(f);
}

/* Invalid UTF-8 is found when the text is read: no step is made, and the pipeline works on. */
static void wrong_prompts(void **state)
{
    struct fixture *f = *state;
    struct tern_txt2img_params q = tiny();
    q.prompt = "a \xc3( cat";
    assert_null(tern_generate(f->p, &q));
    support_error(f->ctx, TERN_E_INVALID, "UTF-8");
    assert_string_equal(f->last, "encode");
    q.prompt = "x";
    q.negative_prompt = "\xff";
    assert_null(tern_generate(f->p, &q));
    support_error(f->ctx, TERN_E_INVALID, "UTF-8");
    assert_string_equal(f->last, "encode");
    works(f);
}

/* Zero is the default, in every field. */
static void zeros_are_defaults(void **state)
{
    struct fixture *f = *state;
    struct tern_images *images = tern_generate(f->p, NULL);
    assert_non_null(images);
    assert_int_equal(tern_images_count(images), 1);
    struct tern_image *image = tern_images_at(images, 0);
    assert_int_equal(tern_image_width(image), 64); /* sample_size 8 at 1/8 */
    assert_int_equal(tern_image_height(image), 64);
    assert_string_equal(tern_image_text(image, "parameters"),
                        "\nSteps: 20, Sampler: PLMS, CFG scale: 7.5, Seed: 0, Size: 64x64, Model: sd1, RNG: CPU, Version: tern 0.1.0");
    assert_null(tern_images_at(images, 1));
    assert_null(tern_images_at(images, -1));
    tern_images_destroy(&images);
    assert_null(images);
    images = tern_generate(f->p, &tern_txt2img_params(.steps = 1, .sampler = TERN_SAMPLER_EULER_A, .schedule = TERN_SCHEDULE_SGM_UNIFORM));
    assert_non_null(images);
    const char *text = tern_image_text(tern_images_at(images, 0), "parameters");
    assert_non_null(strstr(text, "Steps: 1, Sampler: Euler a, Schedule type: SGM Uniform, CFG scale"));
    tern_images_destroy(&images);
}

/* ---- budget */

static void budgets_are_checked_before_sampling(void **state)
{
    size_t need = 0, huge = 0;
    char number[32];
    struct fixture *f = open_fixture("sd1", (size_t)24 << 20);
    struct tern_txt2img_params q = tiny();
    q.width = q.height = 512;
    assert_int_equal(tern_generate_check(f->p, &q, &need), TERN_OK);
    assert_true(need > (size_t)24 << 20);
    f->events = 0;
    assert_null(tern_generate(f->p, &q));
    snprintf(number, sizeof(number), "(%zu bytes)", need);
    assert_non_null(strstr(tern_error(f->ctx), number));
    support_error(f->ctx, TERN_E_BUDGET, "memory budget: this picture needs");
    assert_int_equal(f->events, 0);
    works(f);
    q.width = q.height = 8192; /* the number is right although nothing of that size fits anywhere */
    q.count = 64;
    assert_int_equal(tern_generate_check(f->p, &q, &huge), TERN_OK);
    assert_true(huge > 500 * need);
    assert_null(tern_generate(f->p, &q));
    support_error(f->ctx, TERN_E_BUDGET, "memory budget");
    works(f);
    close_fixture(f);
}

/* What is predicted is enough, to the byte that the prediction says, and much less is not. */
static void the_predicted_budget_is_enough(void **state)
{
    static const int sides[] = {16, 64, 128};
    for (int i = 0; i < 3; i++) {
        struct fixture *f = open_fixture("sd1", 0);
        struct tern_txt2img_params q = tiny();
        size_t need = 0;
        q.width = q.height = sides[i];
        assert_int_equal(tern_generate_check(f->p, &q, &need), TERN_OK);
        close_fixture(f);
        f = open_fixture("sd1", need);
        struct tern_image *image = tern_txt2img(f->p, &q);
        if (!image)
            fail_msg("%d x %d within %zu bytes: %s", sides[i], sides[i], need, tern_error(f->ctx));
        assert_true(tern_memory_peak(f->ctx) <= need);
        tern_image_destroy(&image);
        close_fixture(f);
        f = open_fixture("sd1", need - need / 10);
        assert_null(tern_txt2img(f->p, &q));
        support_error(f->ctx, TERN_E_BUDGET, "memory budget");
        close_fixture(f);
    }
}

static void budgets_too_small_to_load(void **state)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .budget = 64 << 10});
    assert_non_null(ctx);
    assert_null(tern_pipeline_load(ctx, model_path("sd1", path), NULL));
    support_error(ctx, TERN_E_BUDGET, "memory budget of 65536 bytes reached");
    tern_context_destroy(&ctx);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(wrong_sizes),
        TEST(wrong_numbers),
        TEST(wrong_names),
        TEST(wrong_strengths),
        TEST(wrong_second_passes),
        TEST(images_that_do_not_go_together),
        TEST(wrong_latents),
        TEST(pictures_of_another_context),
        TEST(latents_of_another_context),
        TEST(latents_without_values),
        TEST(wrong_prompts),
        TEST(zeros_are_defaults),
        cmocka_unit_test(budgets_are_checked_before_sampling),
        cmocka_unit_test(the_predicted_budget_is_enough),
        cmocka_unit_test(budgets_too_small_to_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* DeepCache by the quality that is asked for: the trial of few pictures has calls to cut short, whatever the job begins with, and what it
 * finds is remembered for jobs alone that lose as much. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "deepcache_help.h"
#include "job_cases.h"

/* Stripes to start from, and the upper half of it to paint anew. */
static struct tern_image *picture(const struct choosing *f)
{
    uint8_t rgb[3 * 16 * 16];
    for (int i = 0; i < 3 * 16 * 16; i++)
        rgb[i] = i / 3 % 16 < 8 ? 0xe0 : 0x30;
    return tern_image_create(f->ctx, 16, 16, rgb);
}

static struct tern_image *mask(const struct choosing *f)
{
    uint8_t rgb[3 * 16 * 16] = {0};
    memset(rgb, 0xff, sizeof(rgb) / 2);
    return tern_image_create(f->ctx, 16, 16, rgb);
}

struct row {
    enum tern_sampler sampler;
    int steps;
    double strength;  /* 0: from text */
    int second;       /* steps of a second pass; 0: there is none */
    double denoising; /* of that */
    enum tern_sampler second_sampler;
};

/* A tenth of what the least interval loses is allowed, so no call may be cut short. */
static void trials_lose_what_can_be_lost(void **state)
{
    static const struct row rows[] = {
        {TERN_SAMPLER_EULER, 30, 0.3},                           /* 9 calls, of 6 steps 1 */
        {TERN_SAMPLER_HEUN, 24, 0.21},                           /* 9 calls, of 4 steps none */
        {TERN_SAMPLER_DPMPP_SDE, 24, 0.21},                      /* likewise */
        {TERN_SAMPLER_HEUN, 20, 0.8},                            /* by their timesteps all calls are even ones */
        {TERN_SAMPLER_DPM_FAST, 40, 0.25},                       /* 10 calls, of 8 steps 2 */
        {TERN_SAMPLER_EULER, 12, 0, 5, 0.9},                     /* a fifth of the second pass is one call */
        {TERN_SAMPLER_EULER, 12, 0, 12, 0.7, TERN_SAMPLER_HEUN}, /* as with heun above */
    };
    struct choosing *f = *state;
    struct tern_image *from = picture(f);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct row *r = &rows[i];
        struct tern_txt2img_params q = choosing_job(f, 0, 1);
        q.width = q.height = 16;
        q.sampler = r->sampler;
        q.steps = r->steps;
        q.strength = r->strength;
        q.init_image = r->strength > 0 ? from : NULL;
        if (r->second)
            q.hires = (struct tern_hires){
                .hr_scale = 1.5, .hr_second_pass_steps = r->second, .denoising_strength = r->denoising, .hr_sampler = r->second_sampler};
        const double lost = 1 - choosing_quality_of(f, q, 2);
        assert_true(lost > 1e-5);
        q.cache_quality = 1 - lost / 10;
        assert_int_equal(tern_generate_check(f->p, &q, NULL), TERN_OK);
        f->fewest = 0;
        struct tern_images *images = job_run(f->ctx, f->p, &q);
        print_message("%zu: every second call loses %g; %d calls, chosen %s: %s\n", i, lost, f->fewest, f->value, f->why);
        assert_true(f->fewest >= 4);
        assert_int_equal(choosing_interval(f), 1);
        assert_non_null(strstr(f->why, "a trial in few steps"));
        tern_images_destroy(&images);
    }
    tern_image_destroy(&from);
}

/* Jobs that differ in one thing each. */
static struct tern_txt2img_params kind(struct choosing *f, int i, const struct tern_image *from, const struct tern_image *painted)
{
    static const struct tern_hires hires = {.hr_scale = 2, .hr_second_pass_steps = 4, .denoising_strength = 0.5};
    struct tern_txt2img_params q = choosing_job(f, 0.01, 1);
    q.width = q.height = 16;
    q.sampler_options.eta = i == 1 ? 0.5 : 0;
    q.sampler_options.s_noise = i == 2 ? 0.9 : 0;
    q.sampler = i == 3 || i == 4 ? TERN_SAMPLER_EULER : i == 7 || i == 8 ? TERN_SAMPLER_DPM_FAST : q.sampler;
    q.sampler_options.s_churn = i == 4 ? 5 : 0;
    q.init_image = i >= 5 && i <= 8 ? from : NULL;
    q.mask_image = i == 6 ? painted : NULL;
    q.strength = i == 7 ? 0.9 : i == 8 ? 0.8 : 1;
    q.hires = i >= 9 ? hires : q.hires;
    q.hires.denoising_strength = i == 10 ? 0.9 : q.hires.denoising_strength;
    q.hires.hr_sampler = i == 11 ? TERN_SAMPLER_EULER : TERN_SAMPLER_DEFAULT;
    q.hires.hr_schedule = i == 12 ? TERN_SCHEDULE_KARRAS : TERN_SCHEDULE_DEFAULT;
    return q;
}
#define KINDS 13

static void kinds_are_told_apart(void **state)
{
    struct choosing *f = *state;
    struct tern_image *from = picture(f), *painted = mask(f);
    for (int again = 0; again < 2; again++) {
        int found = 0;
        for (int i = 0; i < KINDS; i++) {
            struct tern_txt2img_params q = kind(f, i, from, painted);
            q.prompt = again ? "a dog" : "a cat";
            struct tern_images *images = job_run(f->ctx, f->p, &q);
            const bool before = strstr(f->why, "found before");
            if (before != (again == 1))
                print_message("kind %d: %s\n", i, f->why);
            found += before;
            tern_images_destroy(&images);
        }
        assert_int_equal(found, again ? KINDS : 0);
    }
    tern_image_destroy(&from);
    tern_image_destroy(&painted);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, choosing_open, choosing_close)
    const struct CMUnitTest tests[] = {TEST(trials_lose_what_can_be_lost), TEST(kinds_are_told_apart)};
    return cmocka_run_group_tests_name("deepcache_trial", tests, NULL, NULL);
}

/* DeepCache by the quality that is asked for: the trial of few pictures has calls to cut short, whatever the job begins with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "deepcache_help.h"
#include "job_cases.h"

/* Stripes to start from. */
static struct tern_image *picture(const struct choosing *f)
{
    uint8_t rgb[3 * 16 * 16];
    for (int i = 0; i < 3 * 16 * 16; i++)
        rgb[i] = i / 3 % 16 < 8 ? 0xe0 : 0x30;
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

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, choosing_open, choosing_close)
    const struct CMUnitTest tests[] = {TEST(trials_lose_what_can_be_lost)};
    return cmocka_run_group_tests_name("deepcache_trial", tests, NULL, NULL);
}

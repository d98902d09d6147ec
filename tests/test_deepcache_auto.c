/* DeepCache by the quality that is asked for: what is chosen holds, is remembered, and makes the pictures that the same interval makes. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/context.h"
#include "deepcache_help.h"
#include "job_cases.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "support.h"

/* Runs the job, checks that its pictures and their texts are those of the interval, and returns that. */
static int run(struct choosing *f, const struct tern_txt2img_params *q)
{
    const int before = f->choices;
    struct tern_images *images = job_run(f->ctx, f->p, q);
    assert_int_equal(f->choices, before + 1);
    const struct tern_txt2img_params plain = choosing_with(*q, choosing_interval(f));
    struct tern_images *other = job_run(f->ctx, f->p, &plain);
    assert_int_equal(tern_images_count(images), q->count);
    assert_true(job_same(images, 0, other));
    for (int i = 0; i < q->count; i++)
        assert_string_equal(tern_image_text(tern_images_at(images, i), "parameters"),
                            tern_image_text(tern_images_at(other, i), "parameters"));
    tern_images_destroy(&images);
    tern_images_destroy(&other);
    return choosing_interval(f);
}

/* Half way between what two candidates lose: the slower one holds. */
static void many_pictures_are_measured(void **state)
{
    static const int candidates[] = {1, 2, 3, 4, 5, 8, 10};
    struct choosing *f = *state;
    struct tern_txt2img_params q = choosing_job(f, 0.5, 4);
    double last = 1;
    int tried = 0;
    for (int i = 1; i < 7; i++) {
        const double ssim = choosing_quality_of(f, q, candidates[i]), between = (last + ssim) / 2;
        if (last - ssim < 1e-4) { /* 12 steps have as many whole calls with both, or it is no worse */
            last = ssim < last ? ssim : last;
            continue;
        }
        q.cache_quality = between;
        const int n = run(f, &q);
        assert_true(choosing_quality_of(f, q, n) >= between);
        assert_non_null(strstr(f->why, "measured on the first of 4 pictures"));
        for (int k = 0; k < i; k++)
            if (n == candidates[k])
                tried++;
        last = ssim;
    }
    print_message("%d qualities, each held by what was chosen\n", tried);
    assert_true(tried >= 3);
}

static void few_pictures_are_tried_in_few_steps(void **state)
{
    struct choosing *f = *state;
    struct tern_txt2img_params q = choosing_job(f, 0.01, 1);
    assert_int_equal(run(f, &q), 10);
    assert_non_null(strstr(f->why, "a trial in few steps"));
    q = choosing_job(f, 0.999999, 2);
    assert_int_equal(run(f, &q), 1);
    q = choosing_job(f, 0.9, 1);
    q.steps = 7;
    assert_int_equal(run(f, &q), 1);
    assert_non_null(strstr(f->why, "too few calls"));
}

/* The only file of the folder. */
static const char *remembered(const struct choosing *f, char path[512])
{
    char folder[128];
    snprintf(folder, sizeof(folder), "%s/deepcache", f->folder);
    DIR *d = opendir(folder);
    int files = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.') {
            snprintf(path, 512, "%s/%s", folder, e->d_name);
            files++;
        }
    if (d)
        closedir(d);
    assert_int_equal(files, 1);
    return path;
}

static void a_choice_is_remembered(void **state)
{
    struct choosing *f = *state;
    char path[512];
    struct tern_txt2img_params q = choosing_job(f, 0.01, 1);
    const int n = run(f, &q);
    q.prompt = "a dog";
    q.count = 4;
    assert_int_equal(run(f, &q), n);
    assert_non_null(strstr(f->why, "found before"));
    static const char *const damaged[] = {"", "nonsense", "tern-deepcache 2\n", "tern-deepcache 1\nanother kind of job\n3 0.9\n"};
    for (size_t i = 0; i < sizeof(damaged) / sizeof(*damaged); i++) {
        FILE *file = fopen(remembered(f, path), "w");
        fputs(damaged[i], file);
        fclose(file);
        q.count = 1;
        run(f, &q);
        assert_int_equal(f->logged, i + 1);
        assert_null(strstr(f->why, "found before"));
        run(f, &q);
        assert_non_null(strstr(f->why, "found before"));
    }
    assert_int_equal(f->logged, 4);
    /* the right first lines, and then what is no choice */
    static const char *const ends[] = {"0 0.9\n",     "3 nan\n", "3 1.5\n", "3 0.9",    "3 0.9\nmore\n",
                                       "99999 0.5\n", "7 1\n",   "900 1\n", "2 0.001\n"};
    FILE *file = fopen(remembered(f, path), "r");
    char head[512];
    size_t size = fread(head, 1, sizeof(head) - 1, file);
    fclose(file);
    head[size - 1] = 0;
    *(strrchr(head, '\n') + 1) = 0;
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        file = fopen(path, "w");
        fprintf(file, "%s%s", head, ends[i]);
        fclose(file);
        run(f, &q);
        assert_int_equal(f->logged, 5 + i);
    }
}

/* Refused each; the error is none of the search. */
static void change(enum tern_log_level level, const char *message, void *user)
{
    struct choosing *f = user;
    if (!strstr(message, "measured anew"))
        return;
    f->logged += tern_pipeline_set_loras(f->p, NULL, 0) == TERN_E_INVALID;
    tern_error_clear(f->ctx);
    f->logged += tern_pipeline_set_embeddings(f->p, NULL, 0) == TERN_E_INVALID;
    tern_error_clear(f->ctx);
}

/* Also between the pictures that are compared. */
static void nothing_is_set_during_the_search(void **state)
{
    struct choosing *f = *state;
    char path[512];
    const struct tern_txt2img_params q = choosing_job(f, 0.01, 1);
    run(f, &q);
    fclose(fopen(remembered(f, path), "w"));
    f->ctx->params.log = change;
    run(f, &q);
    assert_int_equal(f->logged, 2);
}

static void note_index(int step, int steps, int index, const struct tern_image *picture, void *user) { *(unsigned *)user |= 1u << index; }

/* Previews count on behind the picture that was measured; given latents are those of each picture; predictions hold. */
static void callers_see_one_job(void **state)
{
    struct choosing *f = *state;
    unsigned shown = 0;
    size_t predicted;
    struct tern_txt2img_params q = choosing_job(f, 0.01, 4);
    tern_scope_begin(f->ctx);
    q.init_latents = tern_scope_end(f->ctx, support_noise(f->ctx, 5, 4, (const int64_t[]){4, 4, 5, 6}, 1, TERN_F32));
    q.on_preview = note_index;
    q.on_preview_user = &shown;
    assert_int_equal(tern_generate_check(f->p, &q, &predicted), TERN_OK);
    tern_memory_reset_peak(f->ctx);
    struct tern_images *images = job_run(f->ctx, f->p, &q);
    print_message("%zu bytes predicted, %zu taken\n", predicted, tern_memory_peak(f->ctx));
    assert_true(tern_memory_peak(f->ctx) <= predicted);
    assert_int_equal(shown, 14);
    tern_images_destroy(&images);
    q.cache_quality = 0.02;
    run(f, &q);
    tern_tensor_unref(&q.init_latents);
}

static void bad_values_are_refused(void **state)
{
    struct choosing *f = *state;
    static const double bad[] = {1, 2, -0.5, 0.0 / 0.0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct tern_txt2img_params q = choosing_job(f, bad[i], 1);
        assert_null(tern_generate(f->p, &q));
        support_error(f->ctx, TERN_E_INVALID, "cache_quality: expected an SSIM above 0 and below 1");
    }
    struct tern_txt2img_params q = choosing_job(f, 0.9, 1);
    q.cache_interval = 3;
    assert_null(tern_generate(f->p, &q));
    support_error(f->ctx, TERN_E_INVALID, "chooses cache_interval");
    q = choosing_job(f, 0.9, 1);
    q.denoising_end = 0.8;
    assert_int_equal(tern_generate_check(f->p, &q, NULL), TERN_E_INVALID);
    support_error(f->ctx, TERN_E_INVALID, "by two models");
    q = choosing_job(f, 0.9, 1);
    q.height = 8;
    assert_null(tern_generate(f->p, &q));
    support_error(f->ctx, TERN_E_INVALID, "11 x 11 pixels or more");
    q = choosing_job(f, 0.9, 65);
    assert_null(tern_generate(f->p, &q));
    support_error(f->ctx, TERN_E_INVALID, "count: expected");
    assert_int_equal(f->choices, 0);
}

static bool cancel(void *user) { return *(int *)user && !--*(int *)user; }

/* Ended anywhere, and with every allocation failing in turn. */
static void ends_cleanly(void **state)
{
    char path[PATH_SIZE];
    struct support_allocator a = {0};
    struct choosing *f = *state;
    int asked = 0, failures = 0, cancelled = 0;
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){
        .threads = 1, .cache_dir = f->folder, .allocator = support_failing(&a), .cancel = cancel, .user = &asked});
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    struct tern_txt2img_params q = choosing_job(f, 0.9, 4);
    struct tern_images *images = NULL;
    q.width = q.height = 16;
    q.on_choice = NULL;
    for (long at = 1; !images; at += 1 + at / 12, q.cfg += 0.01) { /* another kind of job each time: nothing is remembered */
        a.fail_at = a.count + at;
        images = tern_generate(p, &q);
        a.fail_at = 0;
        failures += !images;
        if (tern_error_status(ctx) != (images ? TERN_OK : TERN_E_NO_MEMORY))
            fail_msg("allocation %ld: %s", at, tern_error(ctx));
        tern_error_clear(ctx);
    }
    for (int at = 1;; at += 1 + at / 3, q.cfg += 0.01, cancelled++) {
        tern_images_destroy(&images);
        asked = at;
        if ((images = tern_generate(p, &q)))
            break;
        support_error(ctx, TERN_E_CANCELLED, "");
    }
    asked = 0;
    print_message("%d allocations failed in turn, %d times cancelled\n", failures, cancelled);
    assert_true(failures > 40 && cancelled > 10);
    tern_images_destroy(&images);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    assert_int_equal(a.live, 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, choosing_open, choosing_close)
    const struct CMUnitTest tests[] = {TEST(many_pictures_are_measured),
                                       TEST(few_pictures_are_tried_in_few_steps),
                                       TEST(a_choice_is_remembered),
                                       TEST(nothing_is_set_during_the_search),
                                       TEST(callers_see_one_job),
                                       TEST(bad_values_are_refused),
                                       TEST(ends_cleanly)};
    return cmocka_run_group_tests_name("deepcache_auto", tests, NULL, NULL);
}

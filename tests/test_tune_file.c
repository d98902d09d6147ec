/* What was measured, on disk: found again, refused when it is damaged or of others, shared by contexts; and the plans that it decides. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "ops/tuner.h"
#include "plan_help.h"
#include "support.h"
#include "tune_help.h"

#define SLOW 0.02

/* |x| is tuned: abs_other, in the file. */
static struct tune tuned(void)
{
    struct tune f = tune_open();
    trials[TRIAL_USUAL].seconds = trials[TRIAL_DEAR].seconds = SLOW;
    struct tern_context *ctx = tune_context(&f, TERN_TUNE_FAST);
    struct tern_plan *p = tune_plan(ctx, NULL);
    assert_string_equal(tune_kernel(p, 0), "abs_other");
    tern_plan_unref(&p);
    tern_context_destroy(&ctx);
    for (int k = 0; k < TRIAL_COUNT; k++)
        trials[k].calls = 0;
    return f;
}

static const char *kernel_with(struct tune *f, const struct tern_context_params *params)
{
    struct tern_context *ctx = tune_context_of(f, params);
    struct tern_plan *p = tune_plan(ctx, NULL);
    const char *name = tune_kernel(p, 0);
    assert_int_equal(tern_error_status(ctx), TERN_OK);
    tern_plan_unref(&p);
    tern_context_destroy(&ctx);
    return name;
}

static const char *kernel_of(struct tune *f) { return kernel_with(f, &(struct tern_context_params){.tune = {.cache = f->file}}); }

static void a_file_is_found_again(void **state)
{
    struct tune f = tuned();
    size_t size, again;
    uint8_t *before = plan_bytes(f.file, &size);
    assert_string_equal(kernel_of(&f), "abs_other");
    const struct tern_context_params fast = {.tune = {.level = TERN_TUNE_FAST, .cache = f.file}};
    assert_string_equal(kernel_with(&f, &fast), "abs_other");
    assert_int_equal(trials[TRIAL_USUAL].calls, 0);
    uint8_t *after = plan_bytes(f.file, &again); /* nothing new: not even written */
    assert_int_equal(again, size);
    assert_memory_equal(after, before, size);
    assert_int_equal(f.warnings, 0);
    free(before);
    free(after);
    tune_close(&f);
}

/* Without a name, or with an empty one, it lies in the cache folder. */
static void the_cache_folder(void **state)
{
    struct tune f = tune_open();
    char folder[80];
    trials[TRIAL_USUAL].seconds = trials[TRIAL_DEAR].seconds = SLOW;
    for (int i = 0; i < 3; i++) {
        const struct tern_context_params fast = {.tune = {.level = TERN_TUNE_FAST, .cache = i < 2 ? NULL : ""}};
        int before = trials[TRIAL_USUAL].calls;
        assert_string_equal(kernel_with(&f, &fast), "abs_other");
        assert_int_equal(trials[TRIAL_USUAL].calls > before, !i);
    }
    snprintf(folder, sizeof(folder), "%s/tune", f.folder);
    assert_int_equal(access(folder, R_OK), 0);
    tune_close(&f);
}

/* Writes `data` to the file and compiles: it is ignored with one line, and the model decides. */
static void expect_ignored(struct tune *f, const uint8_t *data, size_t size)
{
    plan_write(f->file, data, size);
    f->warnings = 0;
    assert_string_equal(kernel_of(f), "abs_usual");
    assert_int_equal(f->warnings, 1);
}

static void damage(void **state)
{
    struct tune f = tuned();
    struct tern_context *ctx = tune_context(&f, TERN_TUNE_OFF);
    struct tern_tuning t = {0};
    size_t size;
    uint8_t *data = plan_bytes(f.file, &size), *copy = malloc(size);
    for (size_t i = 0; i < size; i++) { /* cut behind each byte */
        plan_write(f.file, data, i);
        assert_int_equal(tern_tuning_read(ctx, f.file, &t), TERN_E_FORMAT);
        support_error(ctx, TERN_E_FORMAT, "damaged");
        assert_int_equal(t.n + t.n_devices, 0);
    }
    for (size_t i = 0; i < size; i++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(copy, data, size);
            copy[i] ^= (uint8_t)(1 << bit);
            plan_write(f.file, copy, size);
            assert_int_equal(tern_tuning_read(ctx, f.file, &t), TERN_E_FORMAT);
            tern_error_clear(ctx);
        }
    expect_ignored(&f, data, size / 2);
    expect_ignored(&f, (const uint8_t *)"", 0);
    copy[0] = 0;
    expect_ignored(&f, copy, size);
    plan_write(f.file, data, size);
    assert_string_equal(kernel_of(&f), "abs_other");
    free(data);
    free(copy);
    tern_context_destroy(&ctx);
    tune_close(&f);
}

/* The lines with a right checksum behind them. */
static void write_lines(const struct tune *f, const char *lines)
{
    const size_t size = strlen(lines) + 16;
    char *text = malloc(size);
    assert_non_null(text);
    snprintf(text, size, "%scrc32 %08lx\n", lines, crc32_z(0, (const uint8_t *)lines, strlen(lines)));
    plan_write(f->file, (const uint8_t *)text, strlen(text));
    free(text);
}

#define KEY "0123456789abcdef0123456789abcdef"

static void lines_that_are_wrong(void **state)
{
    static const char *const bad[] = {
        "tern-tuning 2\n",
        "tern-tuning 1\n" KEY " 1 a 1 b 1\n", /* of no device */
        "tern-tuning 1\ndevice " KEY "\n",
        "tern-tuning 1\ndevice 123 cpu\n",
        "tern-tuning 1\ndevice " KEY " cpu\n" KEY "\n",
        "tern-tuning 1\ndevice " KEY " cpu\n" KEY " 0 a 1 b 1\n",
        "tern-tuning 1\ndevice " KEY " cpu\n" KEY " 3 a 1 b 1\n",
        "tern-tuning 1\ndevice " KEY " cpu\n" KEY " 1 a 1 b\n",
        "tern-tuning 1\ndevice " KEY " cpu\n" KEY " 1 a 1 b 1 c\n",
        "tern-tuning 1\ndevice " KEY " cpu\n" KEY " 1 A 1 b 1\n",
        "tern-tuning 1\ndevice " KEY " cpu\n" KEY " 1 a 1 b 1", /* an open line */
        "tern-tuning 1\ndevice " KEY " cpu\n" KEY " 1 a12345678901234567890123456789012345678901234567890123456789012345 1 b 1\n",
        "tern-tuning 1\n\n",
    };
    struct tune f = tune_open();
    struct tern_context *ctx = tune_context(&f, TERN_TUNE_OFF);
    struct tern_tuning t = {0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        write_lines(&f, bad[i]);
        assert_int_equal(tern_tuning_read(ctx, f.file, &t), TERN_E_FORMAT);
        tern_error_clear(ctx);
    }
    write_lines(&f, "tern-tuning 1\ndevice " KEY " cpu\n" KEY " 2 a 1 b_2 23\n");
    assert_int_equal(tern_tuning_read(ctx, f.file, &t), TERN_OK);
    assert_int_equal(t.n, 1);
    assert_string_equal(t.devices[0].text, "cpu");
    assert_string_equal(t.tuned[0].usual, "b_2");
    assert_true(t.tuned[0].time == 1 && t.tuned[0].usual_time == 23 && t.tuned[0].level == 2);
    tern_tuning_clear(ctx, &t);
    tern_context_destroy(&ctx);
    tune_close(&f);
}

/* A kernel that the device has not, with a right key and checksum: passed by. */
static void a_kernel_that_is_gone(void **state)
{
    static const char *const names[] = {"abs_xxxxx", "neg_other", "abs_other"};
    struct tune f = tuned();
    size_t size;
    for (int i = 0; i < 3; i++) {
        char *text = (char *)plan_bytes(f.file, &size);
        text[size - 15] = 0;
        char *at = strstr(text, i < 2 && strstr(text, "abs_other") ? "abs_other" : names[i - 1]);
        memcpy(at, names[i], 9);
        write_lines(&f, text);
        free(text);
        assert_string_equal(kernel_of(&f), i < 2 ? "abs_usual" : "abs_other");
    }
    tune_close(&f);
}

/* Another number of threads is another device: told once, measured anew beside the first. */
static void results_of_others(void **state)
{
    struct tune f = tuned();
    const struct tern_context_params off = {.threads = 2, .tune = {.cache = f.file}},
                                     fast = {.threads = 2, .tune = {.level = TERN_TUNE_FAST, .cache = f.file}};
    assert_string_equal(kernel_with(&f, &off), "abs_usual");
    assert_int_equal(f.warnings, 1);
    assert_non_null(strstr(f.last, "2 threads"));
    trials[TRIAL_OTHER].seconds = 3 * SLOW;
    assert_string_equal(kernel_with(&f, &fast), "abs_usual");
    int before = trials[TRIAL_USUAL].calls;
    assert_true(before > 0);
    f.warnings = 0;
    assert_string_equal(kernel_with(&f, &off), "abs_usual");
    assert_string_equal(kernel_of(&f), "abs_other"); /* the first is still there */
    assert_int_equal(f.warnings, 0);
    assert_int_equal(trials[TRIAL_USUAL].calls, before);
    tune_close(&f);
}

/* As many other devices as a file holds: it is ignored with one line, and stays as it is. */
static void a_file_that_is_full(void **state)
{
    struct tune f = tune_open();
    char lines[256 * 96] = "tern-tuning 1\n";
    size_t n = strlen(lines), size, again;
    for (int i = 0; i < 256; i++)
        n += (size_t)snprintf(lines + n, sizeof(lines) - n, "device %032x cpu\n%032x 1 a 1 b 1\n", i, i);
    write_lines(&f, lines);
    uint8_t *before = plan_bytes(f.file, &size);
    assert_string_equal(kernel_of(&f), "abs_usual");
    assert_int_equal(f.warnings, 1);
    assert_non_null(strstr(f.last, "not used: tuning: a file holds at most 256 devices"));
    trials[TRIAL_USUAL].seconds = SLOW;
    assert_string_equal(kernel_with(&f, &(struct tern_context_params){.tune = {.level = TERN_TUNE_FAST, .cache = f.file}}), "abs_other");
    assert_int_equal(f.warnings, 3);
    assert_non_null(strstr(f.last, "not kept: tuning: a file holds at most 256 devices"));
    uint8_t *after = plan_bytes(f.file, &again);
    assert_int_equal(again, size);
    assert_memory_equal(after, before, size);
    free(before);
    free(after);
    tune_close(&f);
}

/* One that was named by mistake. */
static void a_file_of_another_kind(void **state)
{
    static const char *const texts[] = {"{\"model\": 1}", "tern", "tern-tunings are\n"};
    struct tune f = tune_open();
    trials[TRIAL_USUAL].seconds = SLOW;
    for (int i = 0; i < 3; i++) {
        size_t size;
        const bool ours = i == 1; /* as far as it goes */
        plan_write(f.file, (const uint8_t *)texts[i], strlen(texts[i]));
        f.warnings = 0;
        assert_string_equal(kernel_with(&f, &(struct tern_context_params){.tune = {.level = TERN_TUNE_FAST, .cache = f.file}}),
                            "abs_other");
        uint8_t *after = plan_bytes(f.file, &size);
        const bool same = size == strlen(texts[i]) && !memcmp(after, texts[i], size);
        free(after);
        assert_int_equal(same, !ours);
        assert_int_equal(f.warnings, ours ? 1 : 2);
        assert_true(ours || strstr(f.last, "another kind of file"));
    }
    tune_close(&f);
}

/* Another version of the library behind a candidate: what was measured does not count. */
static void versions_count(void **state)
{
    struct tune f = tuned();
    trials[TRIAL_NEG].library = 7; /* of another op */
    assert_string_equal(kernel_of(&f), "abs_other");
    trials[TRIAL_DEAR].library = 7;
    assert_string_equal(kernel_of(&f), "abs_usual");
    tune_close(&f);
}

static void a_file_that_cannot_be_written(void **state)
{
    struct tune f = tuned();
    const struct tern_context_params p = {.tune = {.level = TERN_TUNE_FAST, .cache = "/proc/tern/file"}};
    assert_string_equal(kernel_with(&f, &p), "abs_other");
    assert_int_equal(f.warnings, 1);
    assert_non_null(strstr(f.last, "not kept"));
    tune_close(&f);
}

/* ---- plans */

static enum tern_status chain(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = in[0];
    for (int i = 0; i < 130; i++) /* as many steps as are worth a file */
        out[0] = tern_abs(out[0]);
    return tern_error_status(user);
}

static void count_pass(void *user, const char *pass, const struct tern_graph *g) { ++*(int *)user; }

static struct tern_plan *chain_plan(struct tern_context *ctx, int *passes)
{
    const struct tern_graph_input x = {"x", TERN_F32, 1, {TUNE_ELEMENTS}};
    struct tern_graph *g = tern_graph_trace(ctx, chain, ctx, NULL, &x, 1, 1);
    *passes = 0;
    struct tern_plan *p = tern_plan_cached(g, &(struct tern_plan_params){.after = count_pass, .user = passes});
    assert_non_null(p);
    assert_int_equal(p->n_steps, 130);
    tern_graph_destroy(&g);
    return p;
}

/* The kernel of a kept plan in a new context, and whether it was compiled. */
static void expect_plan(struct tune *f, const struct tern_tune_params *tune, const char *kernel, bool compiled)
{
    int passes;
    struct tern_context *ctx = tune_context_of(f, &(struct tern_context_params){.tune = *tune});
    struct tern_plan *p = chain_plan(ctx, &passes), *again = chain_plan(ctx, &passes);
    assert_ptr_equal(p, again);
    tern_plan_unref(&again);
    tern_plan_unref(&p);
    tern_context_destroy(&ctx);
    ctx = tune_context_of(f, &(struct tern_context_params){.tune = *tune});
    p = chain_plan(ctx, &passes);
    assert_string_equal(tune_kernel(p, 129), kernel);
    assert_int_equal(passes > 0, compiled);
    tern_plan_unref(&p);
    tern_context_destroy(&ctx);
}

/* Kept plans with and without tuning do not mix, and one that was made of other results is made anew. */
static void kept_plans(void **state)
{
    struct tune f = tune_open();
    trials[TRIAL_USUAL].seconds = trials[TRIAL_DEAR].seconds = SLOW;
    const struct tern_tune_params off = {0}, fast = {.level = TERN_TUNE_FAST, .cache = f.file}, file = {.cache = f.file},
                                  cut = {.level = TERN_TUNE_FULL, .cache = "/proc/tern/file", .seconds = 1e-9};
    expect_plan(&f, &off, "abs_usual", false);
    expect_plan(&f, &fast, "abs_other", false);
    expect_plan(&f, &off, "abs_usual", false);
    expect_plan(&f, &file, "abs_other", false);
    unlink(f.file);
    expect_plan(&f, &file, "abs_usual", false);
    expect_plan(&f, &cut, "abs_usual", true); /* another time there may be time: not kept on disk */
    tune_close(&f);
}

/* Where measuring finds what the model says, the plan is the same, byte for byte. */
static void equal_choices_equal_plans(void **state)
{
    struct tune f = tune_open();
    uint8_t *data[2];
    size_t size[2];
    char path[100];
    snprintf(path, sizeof(path), "%s/plan", f.folder);
    trials[TRIAL_OTHER].seconds = SLOW;
    for (int i = 0; i < 2; i++) {
        struct tern_context *ctx = tune_context(&f, i ? TERN_TUNE_FAST : TERN_TUNE_OFF);
        struct tern_plan *p = tune_plan(ctx, NULL);
        assert_int_equal(tern_plan_save(p, path), TERN_OK);
        data[i] = plan_bytes(path, &size[i]);
        tern_plan_unref(&p);
        tern_context_destroy(&ctx);
    }
    assert_true(trials[TRIAL_OTHER].calls > 0);
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(data[0], data[1], size[0]);
    free(data[0]);
    free(data[1]);
    tune_close(&f);
}

/* ---- two contexts at once */

struct worker {
    struct tune *f;
    int rounds, wrong;
};

static void *tune_again_and_again(void *user)
{
    struct worker *w = user;
    for (int i = 0; i < w->rounds; i++) {
        struct tern_context *ctx = tune_context(w->f, TERN_TUNE_FAST);
        struct tern_plan *p = tune_plan(ctx, NULL);
        w->wrong += !p || strcmp(tune_kernel(p, 0), "abs_other") != 0;
        tern_plan_unref(&p);
        tern_context_destroy(&ctx);
        if (i % 4 == 3)
            unlink(w->f->file);
    }
    return NULL;
}

static void two_contexts_at_once(void **state)
{
    struct tune f = tune_open();
    struct worker workers[2] = {{&f, 12, 0}, {&f, 12, 0}};
    pthread_t threads[2];
    trials[TRIAL_USUAL].seconds = SLOW;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, tune_again_and_again, &workers[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(workers[0].wrong + workers[1].wrong, 0);
    assert_int_equal(f.warnings, 0); /* no half file was seen */
    tune_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_found_again),
        cmocka_unit_test(the_cache_folder),
        cmocka_unit_test(damage),
        cmocka_unit_test(lines_that_are_wrong),
        cmocka_unit_test(a_kernel_that_is_gone),
        cmocka_unit_test(results_of_others),
        cmocka_unit_test(a_file_that_is_full),
        cmocka_unit_test(a_file_of_another_kind),
        cmocka_unit_test(versions_count),
        cmocka_unit_test(a_file_that_cannot_be_written),
        cmocka_unit_test(kept_plans),
        cmocka_unit_test(equal_choices_equal_plans),
        cmocka_unit_test(two_contexts_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

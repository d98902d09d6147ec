/* Memory that ends inside jansson, at any of its allocations: it is told as that, nothing is left behind, and what is written is whole.
 * And what is written does not depend on the locale. */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weights_help.h"

#include "core/json.h"
#include "core/memory.h"
#include "damage.h"
#include "model_help.h"
#include "models/quantize/analysis.h"
#include "models/quantize/recipe.h"
#include "models/schedulers/scheduler.h"
#include "models/tokenizers/clip_files.h"
#include "support.h"

static long count, fail_at; /* of jansson's allocations, from 1; 0: none fails */

static void *take(size_t size)
{
    if (++count != fail_at)
        return malloc(size);
    errno = ENOMEM; /* as malloc does */
    return NULL;
}

#define TEN(x) x x x x x x x x x x
static const char as[] = TEN("aaaaaaaaaa"), ones[] = TEN("1111111111");

/* What is tried: it writes `out`, or nothing. */
typedef enum tern_status attempt(struct tern_context *ctx, const char *out);

static enum tern_status to_file(struct tern_context *ctx, const char *out)
{
    return tern_convert(ctx, FORMATS "mini", out, &(struct tern_convert_params){.form = TERN_CONVERT_SINGLE_FILE});
}

static enum tern_status to_folder(struct tern_context *ctx, const char *out)
{
    return tern_convert(ctx, FORMATS "mini.safetensors", out, &(struct tern_convert_params){.form = TERN_CONVERT_FOLDER});
}

static enum tern_status write_recipe(struct tern_context *ctx, const char *out)
{
    struct tern_recipe *r = tern_recipe_create(ctx);
    assert_non_null(r);
    assert_int_equal(tern_recipe_add(r, "conv_in.weight", "conv", 4, (const int64_t[]){8, 4, 3, 3}), TERN_OK);
    r->architecture = tern_strdup(ctx, "Stable Diffusion 1");
    r->layer[0].density = r->layer[0].seconds = r->layer[0].measured_with = 1;
    assert_int_equal(tern_recipe_smooth(r, "conv_norm_out.weight", "aabZaaXc"), TERN_OK);
    enum tern_status st = tern_recipe_save(r, out);
    tern_recipe_destroy(&r);
    return st;
}

/* Frees the text. */
static enum tern_status put(struct tern_context *ctx, const char *out, char *text)
{
    FILE *f = text ? fopen(out, "w") : NULL;
    if (f) {
        fputs(text, f);
        fclose(f);
    }
    tern_free_text(ctx, text);
    return tern_error_status(ctx);
}

/* What diffusers makes of a configuration that is old: steps_offset 1 and clip_sample false. */
static enum tern_status correct(struct tern_context *ctx, const char *out)
{
    char *text = tern_scheduler_correct(ctx, "{\"_class_name\": \"DDIMScheduler\", \"trained_betas\": [0.5, 0.25]}", NULL,
                                        TERN_SAMPLER_DEFAULT, false);
    return put(ctx, out, text);
}

static enum tern_status describe_model(struct tern_context *ctx, const char *out)
{
    const long at = fail_at;
    fail_at = 0;
    struct tern_pipeline *p = tern_pipeline_load(ctx, TERN_TEST_DATA "/models/sd1-heads", NULL);
    count = 0; /* of the description alone */
    fail_at = at;
    char *text = p ? tern_pipeline_describe(p, true) : NULL;
    tern_pipeline_destroy(&p);
    return put(ctx, out, text);
}

static enum tern_status describe_file(struct tern_context *ctx, const char *out)
{
    return put(ctx, out, tern_weights_describe(ctx, FORMATS "mini.safetensors", true));
}

static enum tern_status vocabulary(struct tern_context *ctx, const char *out) { return put(ctx, out, tern_clip_vocabulary_json(ctx)); }

static enum tern_status tokenizer(struct tern_context *ctx, const char *out)
{
    struct tern_tokenizer *t = tern_tokenizer_load(ctx, TERN_TEST_DATA "/models/sd1/tokenizer");
    tern_tokenizer_destroy(&t);
    return tern_error_status(ctx);
}

/* Strings of every length up to 70, plain and with escapes, one by one and together, and long numbers: wherever the buffer of a token
 * grows. */
static void tokens_that_grow_are_whole(void **state)
{
    struct fixture *f = *state;
    char text[2048];
    long failures = 0;
    for (int length = 0; length <= 70; length++)
        for (int kind = 0; kind < 5; kind++) {
            static const char *const ends[] = {"", "\\n", "\\\"", "\\u00e9\\\\", "\xc3\xa9"};
            int n =
                snprintf(text, sizeof(text), "[\"%.*s%s\", 0.%.*s, {\"%.*s\": 1}]", length, as, ends[kind], length + 1, ones, length, as);
            json_t *whole = json_loads(text, 0, NULL), *again = NULL;
            assert_non_null(whole);
            for (long at = 1; !again; at++, failures++) {
                count = 0;
                fail_at = at;
                again = tern_json_parse(f->ctx, text, (size_t)n, "a text");
                fail_at = 0;
                if (!again)
                    support_error(f->ctx, TERN_E_NO_MEMORY, "a text: no memory to read it");
            }
            assert_true(json_equal(whole, again));
            json_decref(whole);
            json_decref(again);
        }
    print_message("%ld failures are told\n", failures);
    assert_true(failures > 4000);
    assert_null(tern_json_parse(f->ctx, NULL, 0, "nothing"));
    support_error(f->ctx, TERN_E_FORMAT, "nothing: ");
}

/* What two files or folders of files have is the same; neither may be there. */
static void same(const char *a, const char *b)
{
    char x[PATH_SIZE], y[PATH_SIZE];
    DIR *d = opendir(a);
    size_t n = 0, m = 0;
    for (const struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.') {
            assert_true(snprintf(x, sizeof(x), "%s/%s", a, e->d_name) < PATH_SIZE);
            assert_true(snprintf(y, sizeof(y), "%s/%s", b, e->d_name) < PATH_SIZE);
            same(x, y);
        }
    if (d) {
        closedir(d);
        return;
    }
    FILE *f = fopen(a, "rb");
    if (!f)
        return;
    fclose(f);
    uint8_t *p = help_read(a, &n), *q = help_read(b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(p, q, n);
    free(p);
    free(q);
}

static int entries(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    while (d && readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void try_everywhere(struct fixture *f, const char *name, attempt *run)
{
    char whole[PATH_SIZE], out[PATH_SIZE];
    int failures = 0, runs = 0;
    snprintf(whole, sizeof(whole), "%s", help_path(f, "whole"));
    snprintf(out, sizeof(out), "%s", help_path(f, "out"));
    count = fail_at = 0;
    assert_int_equal(run(f->ctx, whole), TERN_OK);
    const long total = count;
    const int before = entries(f->folder);
    for (long n = 1; n <= total; n += 1 + n / 15, runs++) {
        count = 0;
        fail_at = n;
        const enum tern_status st = run(f->ctx, out);
        fail_at = 0;
        if (st != tern_error_status(f->ctx) || (st && st != TERN_E_NO_MEMORY))
            fail_msg("%s, allocation %ld of jansson: status %d, \"%s\"", name, n, st, tern_error(f->ctx));
        failures += st != TERN_OK;
        if (!st && getenv("DBG"))
            print_message("ok at %ld\n", n);
        if (!st) {
            same(whole, out);
            damage_remove(out);
        }
        tern_error_clear(f->ctx);
        assert_int_equal(entries(f->folder), before);
    }
    damage_remove(whole);
    print_message("%s: %d of %d failures are told, of %ld allocations\n", name, failures, runs, total);
    assert_true(failures > 5);
}

static void json_that_ends_is_told(void **state)
{
    static const struct {
        const char *name;
        attempt *run;
    } rows[] = {{"to a file", to_file},   {"to a folder", to_folder}, {"recipe", write_recipe}, {"scheduler", correct},
                {"tokenizer", tokenizer}, {"model", describe_model},  {"file", describe_file},  {"vocabulary", vocabulary}};
    struct fixture *f = *state;
    struct tern_pipeline *p = model_load(f->ctx, TERN_TEST_DATA "/models/sd1-heads");
    tern_pipeline_destroy(&p);
    f->idle = tern_memory_used(f->ctx); /* with the tables of kernels and plans */
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        try_everywhere(f, rows[i].name, rows[i].run);
}

static enum tern_status with_vae(struct tern_context *ctx, const char *out)
{
    const struct tern_pipeline_params params = {.vae = TERN_TEST_DATA "/models/sd1-heads/vae"};
    struct tern_pipeline *p = tern_pipeline_load(ctx, TERN_TEST_DATA "/models/sd1-heads", &params);
    char *text = p ? tern_pipeline_describe(p, true) : NULL;
    tern_pipeline_destroy(&p);
    return put(ctx, out, text);
}

static enum tern_status state_of_quantize(struct tern_context *ctx, const char *out)
{
    struct tern_quantize_state s = {.ctx = NULL};
    double value = 0;
    json_t *options = json_pack("{s:f}", "share", 0.5);
    for (int i = 0; i < 2; i++) { /* the second time it reads what it wrote */
        enum tern_status st = tern_state_open(&s, ctx, out, false, options);
        if (!st && !i)
            st = tern_state_put(&s, "a", 0.25);
        assert_int_equal(st, TERN_OK);
        assert_true(tern_state_get(&s, "a", 0, 1, &value) && value == 0.25);
        tern_state_close(&s, false);
    }
    json_decref(options);
    help_holds(out, "{\"format\":\"tern quantize state\",\"version\":1,\"options\":{\"share\":0.5},\"times\":{},\"trials\":{\"a\":0.25}}");
    return tern_error_status(ctx);
}

/* A value in quotes behind which jansson finds a number. */
static enum tern_status infotext(struct tern_context *ctx, const char *out)
{
    struct tern_infotext t;
    enum tern_status st = tern_infotext_read(ctx, "a boat\nSteps: 20, Note: \"b\" 1.5 \"c\", CFG scale: 7.5", &t);
    if (st)
        return st;
    assert_true(t.params.cfg == 7.5);
    tern_infotext_free(ctx, &t);
    return put(ctx, out, tern_strdup(ctx, "read"));
}

/* U+066B, of which jansson takes the first byte, and a comma. */
static void files_are_the_same_in_every_locale(void **state)
{
    static attempt *const rows[] = {to_file, to_folder, write_recipe, correct, describe_model, with_vae, state_of_quantize, infotext};
    static const char *const points[] = {"\xd9\xab", ","};
    struct fixture *f = *state;
    char whole[PATH_SIZE], out[PATH_SIZE];
    snprintf(whole, sizeof(whole), "%s", help_path(f, "whole"));
    snprintf(out, sizeof(out), "%s", help_path(f, "out"));
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(*rows); i++) {
        assert_int_equal(rows[i / 2](f->ctx, whole), TERN_OK);
        support_point(f->folder, points[i % 2]);
        const enum tern_status st = rows[i / 2](f->ctx, out);
        support_point(f->folder, ".");
        assert_string_equal(tern_error(f->ctx), "");
        assert_int_equal(st, TERN_OK);
        same(whole, out);
        damage_remove(whole);
        damage_remove(out);
    }
    f->idle = tern_memory_used(f->ctx); /* with the tables of kernels and plans */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(tokens_that_grow_are_whole, help_setup, help_teardown),
                                       cmocka_unit_test_setup_teardown(json_that_ends_is_told, help_setup, help_teardown),
                                       cmocka_unit_test_setup_teardown(files_are_the_same_in_every_locale, help_setup, help_teardown)};
    json_set_alloc_funcs(take, free);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

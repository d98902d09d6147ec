/* States of tern_pipeline_quantize: an interrupted run ends with the same recipe, those of other runs are refused, nothing is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/quantize.h>

#include "analysis_help.h"
#include "core/context.h"
#include "damage.h"
#include "lora_help.h"
#include "model_help.h"
#include "models/quantize/analysis.h"
#include "ops/dispatch.h"
#include "support.h"

/* Its text without the time of a whole call, which is measured at the end. */
static char *recipe_text(struct tern_recipe **r, const char *folder)
{
    char path[2 * PATH_SIZE];
    snprintf(path, sizeof(path), "%s/recipe.json", folder);
    assert_int_equal(tern_recipe_save(*r, path), TERN_OK);
    assert_true(tern_recipe_facts(*r).call_seconds > 0 && tern_recipe_facts(*r).call_int8_seconds > 0);
    tern_recipe_destroy(r);
    char *text = damage_read(folder, "recipe.json", &(size_t){0});
    for (char *at = text; (at = strstr(at, "\"call_"));)
        memmove(at, at + strcspn(at, "\n"), strlen(at + strcspn(at, "\n")) + 1);
    return text;
}

static void interrupt(struct analysis *f, const struct tern_quantize_params *q, int at)
{
    f->stop = (struct analysis_stop){.at = at};
    assert_null(tern_pipeline_quantize(f->p, q));
    support_error(f->ctx, TERN_E_CANCELLED, "cancelled");
    assert_int_equal(f->stop.reached, at);
    f->stop = (struct analysis_stop){0};
}

/* A folder for the test, and in it the file of the analysis' state. */
static void begin(char *folder, char path[2 * PATH_SIZE], struct tern_quantize_params *q)
{
    lora_temporary(folder);
    snprintf(path, 2 * PATH_SIZE, "%s/state", folder);
    q->state = path;
}

/* Times are measured once: from there on a run without a stop and one with many write the same bytes. */
static void interrupted_runs_go_on(void **state)
{
    char folder[PATH_SIZE], path[2 * PATH_SIZE];
    size_t size;
    struct analysis f;
    struct tern_quantize_params q = analysis_params();
    begin(folder, path, &q);
    q.ssim = 0.97;
    q.smooth_quant = 0.5;
    analysis_open(&f);
    interrupt(&f, &q, 3);
    char *begun = damage_read(folder, "state", &size);
    struct tern_recipe *r = analysis_run(&f, &q);
    char *whole = recipe_text(&r, folder);
    assert_int_equal(access(path, F_OK), -1);
    damage_text(folder, "state", begun, size);
    const int stops[] = {4, 7, 12, 13, 17};
    for (size_t i = 0; i < sizeof(stops) / sizeof(*stops); i++)
        interrupt(&f, &q, stops[i]);
    r = analysis_run(&f, &q);
    char *resumed = recipe_text(&r, folder);
    assert_string_equal(resumed, whole);
    free(begun);
    free(whole);
    free(resumed);
    analysis_close(&f);
    damage_remove(folder);
}

static bool is_call(const char *name) { return *name && !strchr(name, '.') && strcmp(name, "sdpa") != 0; }

/* Every layer takes an eighth in int8, by the times of its steps; of whole calls the first that was run takes 0.9, the others a quarter.
 * Returns how many were. */
static int tell_times(const char *path)
{
    json_t *root = json_load_file(path, 0, NULL), *times = json_object_get(root, "times"), *value;
    const char *name;
    double all = 0;
    int calls = 0;
    assert_non_null(times);
    json_object_foreach(times, name, value) {
        const double factor = is_call(name) && ++calls > 1 ? 0.25 : is_call(name) ? 0.9 : 1.0 / 8;
        if (!*name)
            continue;
        json_array_set_new(value, 0, json_real(1));
        json_array_set_new(value, 1, json_real(factor));
        all += !is_call(name);
    }
    json_object_set_new(times, "", json_pack("[f, f]", all, all / 8));
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
    return calls;
}

/* A speed is reached when a whole call reaches it, not when the sum over layers does. */
static void whole_calls_decide(void **state)
{
    char folder[PATH_SIZE], path[2 * PATH_SIZE];
    struct analysis f;
    struct tern_quantize_params q = analysis_params();
    begin(folder, path, &q);
    analysis_open(&f);
    interrupt(&f, &q, 4);
    tell_times(path);
    q.speedup = 3;
    assert_null(tern_pipeline_quantize(f.p, &q)); /* real calls are not as fast as they are told */
    support_error(f.ctx, TERN_E_UNSUPPORTED, "speedup: 3 cannot be reached: the best is ");
    const int calls = tell_times(path);
    print_message("%d sets of layers whose sum is fast enough\n", calls);
    assert_true(calls > 2);
    q.keep_state = true;
    struct tern_recipe *r = analysis_run(&f, &q);
    const struct tern_recipe_facts facts = tern_recipe_facts(r);
    assert_true(facts.call_seconds / facts.call_int8_seconds == 4);
    int layers = 0;
    double sum = facts.seconds - facts.saved;
    for (int i = 0; i < tern_recipe_count(r); i++)
        layers += tern_recipe_at(r, i)->int8;
    assert_true(layers > 0 && layers < tern_recipe_count(r));
    assert_true(facts.seconds / sum > 3);
    assert_int_equal(tell_times(path), calls); /* none was run anew */
    tern_recipe_destroy(&r);
    analysis_close(&f);
    damage_remove(folder);
}

/* Numbers that nobody can have measured are measured anew: of a trial the recipe is the same, of times tern reads it. */
static void damaged_numbers_are_measured_anew(void **state)
{
    static const char *const bad[] = {"-5", "1e31", "\"x\"", "[-1, 5]", "[1e12, 0]", "[1]"};
    char folder[PATH_SIZE], path[2 * PATH_SIZE], name[3 * PATH_SIZE];
    size_t size;
    struct analysis f;
    struct tern_quantize_params q = analysis_params();
    begin(folder, path, &q);
    snprintf(name, sizeof(name), "%s/recipe.json", folder);
    analysis_open(&f);
    interrupt(&f, &q, 4);
    char *begun = damage_read(folder, "state", &size);
    struct tern_recipe *r = analysis_run(&f, &q);
    char *whole = recipe_text(&r, folder);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        json_t *root = json_loads(begun, 0, NULL), *numbers = json_object_get(root, *bad[i] == '[' ? "times" : "trials");
        assert_int_equal(
            json_object_set_new(numbers, json_object_iter_key(json_object_iter(numbers)), json_loads(bad[i], JSON_DECODE_ANY, NULL)), 0);
        assert_int_equal(json_dump_file(root, path, 0), 0);
        json_decref(root);
        r = analysis_run(&f, &q);
        char *resumed = recipe_text(&r, folder);
        if (*bad[i] != '[')
            assert_string_equal(resumed, whole);
        r = tern_recipe_open(f.ctx, name);
        if (!r || tern_recipe_at(r, 0)->seconds <= 0)
            fail_msg("%s: %s", bad[i], r ? "a layer without a time" : tern_error(f.ctx));
        tern_recipe_destroy(&r);
        free(resumed);
    }
    free(begun);
    free(whole);
    analysis_close(&f);
    damage_remove(folder);
}

/* When a run is done its state goes, not what leads to it nor what is no file. */
static void only_the_state_goes(void **state)
{
    static const char *const names[] = {"file", "link", "pipe"};
    char folder[PATH_SIZE], path[2 * PATH_SIZE];
    struct stat st;
    (void)state;
    lora_temporary(folder);
    struct tern_context *ctx = tern_context_create(NULL);
    json_t *options = json_object();
    for (int i = 0; i < 3; i++) {
        struct tern_quantize_state s;
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        if (i == 1)
            assert_int_equal(symlink("file", path), 0);
        if (i == 2)
            assert_int_equal(mkfifo(path, 0600), 0);
        assert_int_equal(tern_state_open(&s, ctx, path, true, options), TERN_OK);
        if (i < 2)
            assert_int_equal(tern_state_save(&s), TERN_OK);
        tern_state_close(&s, true);
        assert_int_equal(lstat(path, &st), i ? 0 : -1);
        snprintf(path, sizeof(path), "%s/file", folder);
        assert_int_equal(access(path, F_OK), -1);
    }
    json_decref(options);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* Of other options, of another model, or no state at all: refused, or begun anew when that is asked for. */
static void states_of_other_runs(void **state)
{
    char folder[PATH_SIZE], path[2 * PATH_SIZE], other[PATH_SIZE], sd1[PATH_SIZE];
    size_t size;
    struct analysis f;
    struct tern_quantize_params q = analysis_params();
    begin(folder, path, &q);
    analysis_open(&f);
    interrupt(&f, &q, 4);
    for (int i = 0; i < 2; i++) { /* numbers of no model */
        char *begun = damage_read(folder, "state", &size);
        damage_json(folder, "state", "model", i ? NULL : json_integer(7));
        assert_null(tern_pipeline_quantize(f.p, &q));
        support_error(f.ctx, TERN_E_INVALID, "the state of another model");
        damage_text(folder, "state", begun, size);
        free(begun);
    }
    q.steps = 3;
    assert_null(tern_pipeline_quantize(f.p, &q));
    support_error(f.ctx, TERN_E_INVALID, "the state of a run with other options (\"steps\" differs)");
    q.steps = 2;
    analysis_close(&f);
    damage_copy("sd1", other);
    analysis_spoil(other);
    analysis_open_path(&f, other);
    assert_null(tern_pipeline_quantize(f.p, &q));
    support_error(f.ctx, TERN_E_INVALID, "(\"model\" differs)");
    analysis_close(&f);
    f.ctx = tern_context_create(&(struct tern_context_params){.threads = 2});
    f.p = model_load(f.ctx, model_path("sd1", sd1));
    assert_null(tern_pipeline_quantize(f.p, &q));
    support_error(f.ctx, TERN_E_INVALID, "(\"threads\" differs)");
    analysis_close(&f);
    analysis_open(&f);
    static const char *const bad[] = {"", "[]", "{}",
                                      "{\"format\": \"tern quantize state\", \"version\": 1, \"times\": [], \"trials\": {}}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        damage_text(folder, "state", bad[i], strlen(bad[i]));
        assert_null(tern_pipeline_quantize(f.p, &q));
        support_error(f.ctx, TERN_E_FORMAT, path);
    }
    q.restart = true;
    struct tern_recipe *r = analysis_run(&f, &q);
    tern_recipe_destroy(&r);
    analysis_close(&f);
    damage_remove(other);
    damage_remove(folder);
}

/* How alike pictures are is a matter of the VAE, too: with another one they are painted anew, and the rest is taken from the state. */
static void another_vae_paints_anew(void **state)
{
    char folder[PATH_SIZE], path[2 * PATH_SIZE];
    struct analysis f;
    struct tern_quantize_params q = analysis_params();
    double ssim[3], seconds[3];
    (void)state;
    damage_copy("sd1", folder);
    snprintf(path, sizeof(path), "%s/state", folder);
    q.keep_state = true;
    for (int i = 0; i < 3; i++) {
        q.state = i < 2 ? path : NULL;
        if (i == 1)
            damage_json(folder, "vae/config.json", "scaling_factor", json_real(0.05));
        analysis_open_path(&f, folder);
        struct tern_recipe *r = analysis_run(&f, &q);
        ssim[i] = tern_recipe_facts(r).ssim;
        seconds[i] = tern_recipe_facts(r).seconds;
        tern_recipe_destroy(&r);
        analysis_close(&f);
    }
    assert_true(seconds[1] == seconds[0] && ssim[1] == ssim[2] && ssim[1] != ssim[0]);
    damage_remove(folder);
}

/* Nothing stays in memory behind a run, also behind one that was stopped. */
static void runs_leave_nothing(void **state)
{
    struct analysis f;
    struct tern_quantize_params q = analysis_params();
    q.smooth_quant = 0.5;
    analysis_open(&f);
    struct tern_recipe *r = analysis_run(&f, &q);
    tern_recipe_destroy(&r);
    tern_memory_trim(f.ctx);
    const size_t used = tern_memory_used(f.ctx);
    const int stops[] = {0, 1, 2, 3, 10, 16};
    for (size_t i = 0; i < sizeof(stops) / sizeof(*stops); i++) {
        if (stops[i])
            interrupt(&f, &q, stops[i]);
        else
            r = analysis_run(&f, &q);
        tern_recipe_destroy(&r);
        tern_memory_trim(f.ctx);
        assert_int_equal(tern_memory_used(f.ctx), used);
    }
    analysis_close(&f);
}

/* What another machine's kernels took is not what these take. The last test: it leaves the best level in place of one that was asked for. */
static void states_of_other_kernels(void **state)
{
    char folder[PATH_SIZE], path[2 * PATH_SIZE], sd1[PATH_SIZE];
    struct analysis f;
    struct tern_quantize_params q = analysis_params();
    (void)state;
    begin(folder, path, &q);
    analysis_open(&f);
    const char *level = f.ctx->device->level;
    interrupt(&f, &q, 4);
    analysis_close(&f);
    f.ctx = model_context("scalar", 1);
    f.p = model_load(f.ctx, model_path("sd1", sd1));
    const bool other = strcmp(f.ctx->device->level, level) != 0;
    if (other) {
        assert_null(tern_pipeline_quantize(f.p, &q));
        support_error(f.ctx, TERN_E_INVALID, "the state of a run with other options (\"kernels\" differs)");
    }
    analysis_close(&f);
    damage_remove(folder);
    if (!other)
        skip(); /* no lower level */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interrupted_runs_go_on),  cmocka_unit_test(damaged_numbers_are_measured_anew),
        cmocka_unit_test(only_the_state_goes),     cmocka_unit_test(states_of_other_runs),
        cmocka_unit_test(another_vae_paints_anew), cmocka_unit_test(runs_leave_nothing),
        cmocka_unit_test(states_of_other_kernels), cmocka_unit_test(whole_calls_decide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

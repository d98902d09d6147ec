/* tern_pipeline_quantize on a small model: layers that lose much are found, targets, what it refuses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static const struct tern_recipe_layer *layer(const struct tern_recipe *r, const char *name)
{
    for (int i = 0; i < tern_recipe_count(r); i++)
        if (!strcmp(tern_recipe_at(r, i)->name, name))
            return tern_recipe_at(r, i);
    fail_msg("no layer %s", name);
    return NULL;
}

static int count_int8(const struct tern_recipe *r)
{
    int n = 0;
    for (int i = 0; i < tern_recipe_count(r); i++)
        n += tern_recipe_at(r, i)->int8;
    return n;
}

/* ---- wrong params */

static void wrong_params_are_told_at_once(void **state)
{
    static const char *const hole[] = {"a", NULL};
#define Q(...)                                                   \
    {                                                            \
        .prompts = analysis_prompts, .n_prompts = 1, __VA_ARGS__ \
    }
    static const struct {
        struct tern_quantize_params q;
        const char *message;
    } rows[] = {
        {{.prompts = NULL}, "prompts: calibration needs at least one, found none"},
        {{.prompts = analysis_prompts, .n_prompts = -1}, "prompts: calibration needs at least one"},
        {{.prompts = analysis_prompts, .n_prompts = 1 << 30}, "prompts: expected at most 1024"},
        {{.prompts = hole, .n_prompts = 2}, "prompts: number 2 is NULL"},
        {Q(.bits = 4), "bits: expected 8, found 4"},
        {Q(.width = 8), "size: expected at least 16 x 16, found 8 x 64"},
        {Q(.width = 68), "size: expected multiples of 8"},
        {Q(.steps = 1001), "steps: expected 1..1000, found 1001"},
        {Q(.ssim = 0.9, .speedup = 2), "target: expected one of ssim and speedup"},
        {Q(.smooth_quant = 1), "smooth_quant: expected a number above 0 and below 1, or 0: no factors, found 1"},
        {Q(.smooth_quant = -0.1), "smooth_quant: expected a number above 0"},
        {Q(.smooth_quant = 0.0 / 0.0), "smooth_quant: expected a number above 0"},
        {Q(.smooth_quant = 0.5, .sampler = TERN_SAMPLER_DPM_ADAPTIVE), "smooth_quant: expected a sampler whose noise levels are known"},
        {Q(.cfg = 0.0 / 0.0), "cfg: expected a number in 0..1000"},
        {Q(.ssim = 1), "ssim: expected a number above 0 and below 1, or 0: no such target, found 1"},
        {Q(.ssim = -0.5), "ssim: expected a number above 0"},
        {Q(.speedup = 1), "speedup: expected a number in"},
        {Q(.speedup = -2), "speedup: expected a number in"},
        {Q(.conv_mse_threshold = -1), "conv_mse_threshold: expected a number in 0..1e+06, found -1"},
        {Q(.linear_mse_threshold = 1e300 * 1e300), "linear_mse_threshold: expected a number in"},
        {Q(.compute_density_threshold = -1), "compute_density_threshold: expected a number in"},
        {Q(.compute_density_threshold = 1e8), "quantize: none of 203 layers can be int8"},
        {Q(.compute_density_threshold = 1e8, .quantize_linear = true), "can be int8: the densest that is asked for, "},
        {Q(.compute_density_threshold = 1e8, .quantize_linear = true),
         ", stays: density"}, /* not: "stays: no attention layer is asked for" */
        {Q(.state = "/nowhere/state"), "/nowhere/state"},
    };
    struct analysis f;
    analysis_open(&f);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_null(tern_pipeline_quantize(f.p, &rows[i].q));
        if (!strstr(tern_error(f.ctx), rows[i].message))
            fail_msg("expected \"%s\", found \"%s\"", rows[i].message, tern_error(f.ctx));
        tern_error_clear(f.ctx);
    }
    assert_null(tern_pipeline_quantize(f.p, NULL));
    support_error(f.ctx, TERN_E_INVALID, "prompts: calibration");
    /* Layers that references compute are layers, too. */
    const struct tern_quantize_params least = {.prompts = analysis_prompts, .n_prompts = 1, .width = 16, .height = 16, .steps = 1};
    assert_int_equal(tern_op_force(f.ctx, "reference"), TERN_OK);
    assert_null(tern_pipeline_quantize(f.p, &least));
    support_error(f.ctx, TERN_E_UNSUPPORTED, "quantize: none of 203 layers can be int8");
    analysis_close(&f);
}

/* A budget that is too small is told before anything is measured, and one that is enough is kept to. */
static void the_budget_comes_first(void **state)
{
    struct analysis f;
    analysis_open(&f);
    const struct tern_quantize_params q = analysis_params();
    tern_recipe_destroy(&(struct tern_recipe *){analysis_run(&f, &q)});
    const size_t peak = tern_memory_peak(f.ctx);
    const int calls = f.stop.calls;
    f.p->params.budget = peak / 2;
    assert_null(tern_pipeline_quantize(f.p, &q));
    support_error(f.ctx, TERN_E_BUDGET, "quantize: takes about");
    assert_int_equal(f.stop.calls, calls); /* no progress was told */
    f.p->params.budget = peak + peak / 8;
    struct tern_recipe *r = tern_pipeline_quantize(f.p, &q);
    if (!r)
        fail_msg("%s", tern_error(f.ctx));
    assert_true(tern_memory_peak(f.ctx) <= peak + peak / 8);
    tern_recipe_destroy(&r);
    analysis_close(&f);
}

static void only_plain_pipelines(void **state)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = support_context();
    const struct tern_quantize_params q = analysis_params();
    struct tern_pipeline *p = tern_pipeline_load(ctx, model_path("sd1", path), &(struct tern_pipeline_params){.quantize = "*"});
    assert_null(tern_pipeline_quantize(p, &q));
    support_error(ctx, TERN_E_INVALID, "expected a model of floats without a recipe");
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* ---- what is chosen */

static void a_spoiled_layer_stays(void **state)
{
    char folder[PATH_SIZE];
    struct analysis f;
    struct tern_quantize_params q = analysis_params();
    damage_copy("sd1", folder);
    analysis_spoil(folder);
    analysis_open_path(&f, folder);
    struct tern_recipe *r = analysis_run(&f, &q);
    const struct tern_recipe_layer *last = layer(r, "conv_out.weight"), *first = layer(r, "conv_in.weight");
    assert_false(last->int8);
    assert_true(last->error > 0.1 && last->measured_with == 1);
    assert_non_null(strstr(last->decision, "is above 0.1"));
    assert_true(first->int8 && first->error < 0.1);
    assert_true(count_int8(r) > 190);
    tern_recipe_destroy(&r);
    q.conv_mse_threshold = 1e6; /* nothing is too much */
    r = analysis_run(&f, &q);
    assert_true(layer(r, "conv_out.weight")->int8);
    tern_recipe_destroy(&r);
    analysis_close(&f);
    damage_remove(folder);
}

/* The letters of a norm in the recipe's words; borrowed from these. */
static const char *factors_of(const char *words, const char *norm)
{
    char word[128];
    snprintf(word, sizeof(word), " %s^", norm);
    const char *at = strstr(words, word);
    if (!at)
        fail_msg("no word%s", word);
    return at + strlen(word);
}

/* SmoothQuant leaves a range to the other channels: factors of the large one are the most there is, of the others the least. */
static void factors_save_a_spoiled_layer(void **state)
{
    char folder[PATH_SIZE];
    struct analysis f;
    struct tern_quantize_params q = analysis_params();
    q.smooth_quant = 0.7;
    damage_copy("sd1", folder);
    analysis_spoil(folder);
    analysis_open_path(&f, folder);
    struct tern_recipe *r = analysis_run(&f, &q);
    assert_true(layer(r, "conv_out.weight")->int8 && layer(r, "conv_out.weight")->error < 0.1);
    assert_true(tern_recipe_smoothed(r) > 60);
    char *words = tern_recipe_words(r);
    const char *letters = factors_of(words, "conv_norm_out.weight");
    assert_int_equal(letters[0], 'z');
    for (int i = 1; letters[i] && letters[i] != ' '; i++)
        assert_true(letters[i] >= 'A' && letters[i] <= 'F');
    tern_free_text(f.ctx, words);
    tern_recipe_destroy(&r);
    analysis_close(&f);
    damage_remove(folder);
}

/* Quarters of octaves. */
static int steps_of(char letter) { return letter < 'a' ? letter - 'Z' - 1 : letter - 'a'; }

/* A channel without values has the least factor there is, and moves no other: the middle of these is 1. */
static void a_silent_channel_moves_no_factor(void **state)
{
    char folder[PATH_SIZE];
    struct analysis f;
    struct tern_quantize_params q = analysis_params();
    int least = 100, most = -100;
    (void)state;
    q.smooth_quant = 0.7;
    damage_copy("sd1", folder);
    analysis_change_last(folder, 0, false);
    analysis_open_path(&f, folder);
    struct tern_recipe *r = analysis_run(&f, &q);
    char *words = tern_recipe_words(r);
    const char *letters = factors_of(words, "conv_norm_out.weight");
    assert_int_equal(letters[0], 'A');
    for (int i = 1; letters[i] && letters[i] != ' '; i++) {
        least = steps_of(letters[i]) < least ? steps_of(letters[i]) : least;
        most = steps_of(letters[i]) > most ? steps_of(letters[i]) : most;
    }
    assert_in_range(least + most + 1, 0, 2); /* of rounding */
    tern_free_text(f.ctx, words);
    tern_recipe_destroy(&r);
    analysis_close(&f);
    damage_remove(folder);
}

/* With a strength next to 0 factors follow from the weights alone: the larger a channel's largest, the smaller, by quarters of octaves. */
static void factors_of_weights(void **state)
{
    struct analysis f;
    struct tern_quantize_params q = analysis_params();
    double power[64] = {0}, least = INFINITY, most = -INFINITY;
    int64_t n;
    q.smooth_quant = 1e-12;
    analysis_open(&f);
    const struct tern_weights *w = tern_pipeline_weights(f.p, "unet");
    const int64_t *shape = tern_tensor_shape(tern_weights_get(w, "conv_out.weight"));
    float *values = support_f32(w, "conv_out.weight", &n);
    assert_true(shape[1] <= 64);
    for (int64_t i = 0; i < n; i++)
        power[i / 9 % shape[1]] = fmax(power[i / 9 % shape[1]], fabs(values[i]));
    for (int c = 0; c < shape[1]; c++) {
        power[c] = -log2(power[c]);
        least = fmin(least, power[c]);
        most = fmax(most, power[c]);
    }
    struct tern_recipe *r = analysis_run(&f, &q);
    char *words = tern_recipe_words(r);
    const char *letters = factors_of(words, "conv_norm_out.weight");
    for (int c = 0; c < shape[1]; c++) {
        const int steps = (int)round(4 * (power[c] - (least + most) / 2));
        assert_int_equal(letters[c], steps < 0 ? 'Z' + 1 + steps : 'a' + steps);
    }
    assert_true(letters[shape[1]] == ' ' || !letters[shape[1]]);
    free(values);
    tern_free_text(f.ctx, words);
    tern_recipe_destroy(&r);
    analysis_close(&f);
}

static void kinds_and_densities(void **state)
{
    struct analysis f;
    struct tern_quantize_params q = analysis_params();
    q.quantize_linear = true;
    q.linear_mse_threshold = 1e6;
    analysis_open(&f);
    struct tern_recipe *r = analysis_run(&f, &q);
    for (int i = 0; i < tern_recipe_count(r); i++)
        assert_int_equal(tern_recipe_at(r, i)->int8, !strcmp(tern_recipe_at(r, i)->kind, "linear"));
    assert_string_equal(layer(r, "conv_in.weight")->decision, "stays: no conv layer is asked for");
    double density = 0; /* the highest of a linear layer */
    for (int i = 0; i < tern_recipe_count(r); i++)
        if (tern_recipe_at(r, i)->int8 && tern_recipe_at(r, i)->density > density)
            density = tern_recipe_at(r, i)->density;
    tern_recipe_destroy(&r);
    q.compute_density_threshold = density;
    r = analysis_run(&f, &q);
    assert_true(count_int8(r) >= 1 && count_int8(r) < 20);
    assert_non_null(strstr(layer(r, "time_embedding.linear_1.weight")->decision, "is below"));
    /* 2 x 8 x 32 operations; 8 values in, 8 x 32 weights of 2 bytes, 32 biases and 32 values out */
    assert_float_equal(layer(r, "time_embedding.linear_1.weight")->density, 2.0 * 8 * 32 / (4 * 8 + 2 * 8 * 32 + 4 * 32 + 4 * 32), 1e-9);
    tern_recipe_destroy(&r);
    analysis_close(&f);
}

/* Whether the device multiplies heads of 16 x 16 latents in int8. */
static bool attends_in_int8(struct tern_context *ctx)
{
    const struct tern_meta heads = {.dtype = TERN_BF16, .ndim = 4, .shape = {2, 4, 256, 8}, .stride = {8192, 2048, 8, 1}};
    struct tern_op_desc d;
    memset(&d, 0, sizeof(d));
    d.op = TERN_OP_sdpa;
    d.n_in = 4;
    for (int i = 0; i < 3; i++) {
        d.in[i] = heads;
        d.present[i] = true;
    }
    d.out = heads;
    const struct tern_kernel *floats = tern_kernel_choose(ctx, ctx->device, &d);
    d.attrs.sdpa.int8 = 1;
    return tern_kernel_choose(ctx, ctx->device, &d) != floats;
}

/* All attention is tried together, where the device has a kernel for it. */
static void attention_is_a_layer(void **state)
{
    char path[PATH_SIZE];
    struct analysis f;
    struct tern_quantize_params q = analysis_params();
    q.width = q.height = 128;
    q.quantize_attention = true;
    analysis_open_typed(&f, model_path("sd1", path), TERN_BF16);
    struct tern_recipe *r = tern_pipeline_quantize(f.p, &q);
    if (attends_in_int8(f.ctx)) {
        const struct tern_recipe_layer *l = layer(r, "sdpa");
        char *words = tern_recipe_words(r);
        assert_string_equal(words, "winograd sdpa");
        assert_int_equal(count_int8(r), 1);
        assert_int_equal(l->measured_with, 1);
        assert_true(l->error > 1e-9 && l->error < 0.1 && l->density > 1 && l->seconds > 0);
        assert_string_equal(layer(r, "conv_in.weight")->decision, "stays: no conv layer is asked for");
        tern_free_text(f.ctx, words);
    } else {
        assert_null(r);
        support_error(f.ctx, TERN_E_UNSUPPORTED, "the densest that is asked for, sdpa, stays: the device has no int8 kernel for it");
    }
    tern_recipe_destroy(&r);
    analysis_close(&f);
}

/* ---- targets, and pictures by the recipe */

static void targets(void **state)
{
    struct analysis f;
    struct tern_quantize_params q = analysis_params();
    analysis_open(&f);
    q.speedup = 90;
    assert_null(tern_pipeline_quantize(f.p, &q));
    assert_non_null(strstr(tern_error(f.ctx), "speedup: 90 cannot be reached: the best is "));
    support_error(f.ctx, TERN_E_UNSUPPORTED, " of 203 layers in int8");
    q.speedup = 0;
    tern_error_clear(f.ctx);
    struct tern_quantize_params none = q;
    none.ssim = 0.5;
    none.quantize_conv = true; /* an attention of one token has layers without any error */
    none.conv_mse_threshold = none.linear_mse_threshold = 1e-30;
    assert_null(tern_pipeline_quantize(f.p, &none));
    support_error(f.ctx, TERN_E_UNSUPPORTED, "the thresholds leave all as they are");
    struct tern_recipe *all = analysis_run(&f, &q);
    const double between = (1 + tern_recipe_facts(all).ssim) / 2;
    q.ssim = between;
    struct tern_recipe *r = analysis_run(&f, &q);
    assert_true(tern_recipe_facts(r).ssim >= between);
    assert_true(count_int8(r) < count_int8(all) && count_int8(r) > 0);
    assert_true(tern_recipe_facts(r).verified > 1);
    tern_recipe_destroy(&all);
    tern_recipe_destroy(&r);
    analysis_close(&f);
}

/* Bytes of the second picture. */
struct pictures {
    struct analysis *f;
    uint8_t before[32 * 32 * 3], after[32 * 32 * 3];
};

static void keep(int prompt, const struct tern_image *before, const struct tern_image *after, void *user)
{
    struct pictures *p = user;
    if (prompt != 1)
        return;
    memcpy(p->before, tern_image_data(before), sizeof(p->before));
    memcpy(p->after, tern_image_data(after), sizeof(p->after));
    assert_false(p->f->stop.wrong);
    struct tern_image *image =
        tern_txt2img(p->f->p, &tern_txt2img_params(.prompt = analysis_prompts[1], .width = 32, .height = 32, .steps = 2, .seed = 5));
    assert_non_null(image);
    assert_memory_equal(tern_image_data(image), p->before, sizeof(p->before));
    tern_image_destroy(&image);
    assert_true(p->f->stop.wrong); /* its stages are told */
    p->f->stop.wrong = false;
}

static void pictures_are_those_of_the_recipe(void **state)
{
    char folder[PATH_SIZE], path[2 * PATH_SIZE], model[PATH_SIZE];
    struct analysis f;
    struct pictures shown = {.f = &f};
    struct tern_quantize_params q = analysis_params();
    q.on_picture = keep;
    q.on_picture_user = &shown;
    lora_temporary(folder);
    snprintf(path, sizeof(path), "%s/recipe.json", folder);
    analysis_open(&f);
    struct tern_recipe *r = analysis_run(&f, &q);
    assert_int_equal(tern_recipe_save(r, path), TERN_OK);
    tern_recipe_destroy(&r);
    assert_true(f.stop.calls > 20 && !f.stop.wrong);
    struct tern_pipeline *by = tern_pipeline_load(f.ctx, model_path("sd1", model), &(struct tern_pipeline_params){.recipe = path});
    assert_non_null(by);
    for (int i = 0; i < 2; i++) {
        struct tern_image *image = tern_txt2img(i ? by : f.p, &tern_txt2img_params(.prompt = analysis_prompts[1], .width = 32, .height = 32,
                                                                                   .steps = 2, .seed = 5));
        assert_non_null(image);
        assert_memory_equal(tern_image_data(image), i ? shown.after : shown.before, sizeof(shown.after));
        tern_image_destroy(&image);
    }
    assert_true(memcmp(shown.before, shown.after, sizeof(shown.after)) != 0);
    tern_pipeline_destroy(&by);
    analysis_close(&f);
    damage_remove(folder);
}

/* The jobs of the other size take the texts as they are, and are told their own sizes (SDXL). */
static void texts_are_encoded_once(void **state)
{
    char path[PATH_SIZE];
    struct analysis f;
    const struct tern_quantize_params q = {.prompts = analysis_prompts, .n_prompts = 2, .steps = 2, .cfg = 1};
    struct tern_calibration large, small;
    const float expected[] = {32, 48, 0, 0, 32, 48};
    float found[6];
    (void)state;
    analysis_open_path(&f, model_path("sdxl", path));
    assert_int_equal(tern_calibration_open(&large, f.p, &q, 96, 64, NULL), TERN_OK);
    f.stop.calls = 0;
    assert_int_equal(tern_calibration_open(&small, f.p, &q, 48, 32, &large), TERN_OK);
    assert_int_equal(f.stop.calls, 0); /* nothing was encoded */
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(small.texts[i].context, large.texts[i].context);
        assert_ptr_equal(small.texts[i].pooled, large.texts[i].pooled);
        assert_int_equal(tern_tensor_read(small.texts[i].time_ids, TERN_F32, found, sizeof(found)), TERN_OK);
        assert_memory_equal(found, expected, sizeof(found));
    }
    tern_calibration_close(&small);
    tern_calibration_close(&large);
    analysis_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_params_are_told_at_once),
        cmocka_unit_test(only_plain_pipelines),
        cmocka_unit_test(the_budget_comes_first),
        cmocka_unit_test(a_spoiled_layer_stays),
        cmocka_unit_test(factors_save_a_spoiled_layer),
        cmocka_unit_test(a_silent_channel_moves_no_factor),
        cmocka_unit_test(factors_of_weights),
        cmocka_unit_test(kinds_and_densities),
        cmocka_unit_test(attention_is_a_layer),
        cmocka_unit_test(targets),
        cmocka_unit_test(pictures_are_those_of_the_recipe),
        cmocka_unit_test(texts_are_encoded_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* tern_pipeline_quantize on models that are told a picture: inpainting and instruct-pix2pix. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis_help.h"
#include "damage.h"
#include "model_help.h"
#include "support.h"
#include "xl_help.h"

enum { SIDE = 32 };

static struct tern_image *plain_image(struct tern_context *ctx, int value)
{
    uint8_t rgb[SIDE * SIDE * 3];
    memset(rgb, value, sizeof(rgb));
    struct tern_image *img = tern_image_create(ctx, SIDE, SIDE, rgb);
    assert_non_null(img);
    return img;
}

/* The job that a prompt's picture without int8 is to be the picture of. */
struct watched {
    struct tern_pipeline *p;
    struct tern_txt2img_params job;
    int pictures;
};

static void compare(int prompt, const struct tern_image *before, const struct tern_image *after, void *user)
{
    struct watched *w = user;
    w->job.prompt = analysis_prompts[prompt];
    w->job.seed = analysis_params().seed + (uint64_t)prompt;
    struct tern_image *own = tern_txt2img(w->p, &w->job);
    assert_non_null(own);
    assert_int_equal(tern_image_width(before), SIDE);
    assert_memory_equal(tern_image_data(before), tern_image_data(own), SIDE * SIDE * 3);
    assert_memory_not_equal(tern_image_data(after), tern_image_data(own), SIDE * SIDE * 3);
    tern_image_destroy(&own);
    w->pictures++;
}

static const struct tern_recipe_layer *first_layer(const struct tern_recipe *r)
{
    for (int i = 0; i < tern_recipe_count(r); i++)
        if (!strcmp(tern_recipe_at(r, i)->name, "conv_in.weight"))
            return tern_recipe_at(r, i);
    fail_msg("no conv_in.weight");
    return NULL;
}

/* Pictures are those of jobs that a caller would write, and the recipe is one of the model and of its kin that is told nothing. */
static void check_model(const char *folder, const struct tern_image *init_image, const struct tern_txt2img_params *job, int channels)
{
    struct analysis f;
    struct tern_quantize_params q = analysis_params();
    analysis_open_path(&f, folder);
    struct watched w = {.p = f.p, .job = *job};
    q.init_image = init_image;
    q.on_picture = compare;
    q.on_picture_user = &w;
    struct tern_recipe *r = analysis_run(&f, &q);
    assert_int_equal(w.pictures, 2);
    assert_int_equal(first_layer(r)->shape[1], channels);
    assert_true(first_layer(r)->error > 0 && first_layer(r)->density > 0);
    assert_int_equal(tern_recipe_check(r, f.p), TERN_OK);
    tern_recipe_destroy(&r);
    analysis_close(&f);
}

static void inpainting(void **state)
{
    char path[PATH_SIZE];
    (void)state;
    struct tern_context *ctx = support_context();
    struct tern_image *hidden = plain_image(ctx, 77), *white = plain_image(ctx, 255);
    const struct tern_txt2img_params job =
        tern_txt2img_params(.width = SIDE, .height = SIDE, .steps = 2, .init_image = hidden, .mask_image = white);
    check_model(model_path("sd1-inpaint", path), NULL, &job, 9);
    tern_image_destroy(&hidden);
    tern_image_destroy(&white);
    tern_context_destroy(&ctx);
}

static void instructions(void **state)
{
    char folder[PATH_SIZE];
    (void)state;
    struct tern_context *ctx = support_context();
    struct tern_image *picture = plain_image(ctx, 200);
    const struct tern_txt2img_params job = tern_txt2img_params(.width = SIDE, .height = SIDE, .steps = 2, .init_image = picture);
    xl_folder(ctx, "sd1-pix2pix", folder);
    check_model(folder, picture, &job, 8);
    damage_remove(folder);
    tern_image_destroy(&picture);
    tern_context_destroy(&ctx);
}

static void pictures_that_are_asked_for(void **state)
{
    char folder[PATH_SIZE];
    struct analysis f;
    struct tern_quantize_params q = analysis_params();
    (void)state;
    struct tern_context *ctx = support_context();
    struct tern_image *picture = plain_image(ctx, 200);
    xl_folder(ctx, "sd1-pix2pix", folder);
    analysis_open_path(&f, folder);
    assert_null(tern_pipeline_quantize(f.p, &q));
    support_error(f.ctx, TERN_E_INVALID, "calibration needs init_image");
    analysis_close(&f);
    damage_remove(folder);
    q.init_image = picture;
    analysis_open(&f);
    assert_null(tern_pipeline_quantize(f.p, &q));
    support_error(f.ctx, TERN_E_INVALID, "init_image: ");
    analysis_close(&f);
    tern_image_destroy(&picture);
    tern_context_destroy(&ctx);
}

/* ---- factors */

#define CONV_IN "conv_in.weight"
#define NORM "down_blocks.0.resnets.0.norm1"
#define READER "down_blocks.0.resnets.0.conv1.weight"

static tern_tensor *changed(struct tern_context *ctx, const struct tern_weights *w, const char *name, void (*change)(float *, int64_t))
{
    int64_t n;
    tern_tensor *old = tern_weights_get(w, name);
    float *values = support_f32(w, name, &n);
    change(values, n);
    tern_tensor *t = tern_tensor_create(ctx, tern_tensor_dtype(old), tern_tensor_ndim(old), tern_tensor_shape(old), NULL);
    assert_int_equal(tern_tensor_write(t, TERN_F32, values, (size_t)n * sizeof(*values)), TERN_OK);
    free(values);
    return t;
}

/* (8, 9, 3, 3): the first channel is 1000 times the mask and nothing else. */
static void read_the_mask(float *w, int64_t n)
{
    (void)n;
    memset(w, 0, 9 * 9 * sizeof(*w));
    w[4 * 9 + 4] = 1000;
}

static void ones(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = 1;
}

static void zeros(float *x, int64_t n) { memset(x, 0, (size_t)n * sizeof(*x)); }

static void change_unet(const char *folder)
{
    static const struct {
        const char *name;
        void (*change)(float *, int64_t);
    } all[] = {{CONV_IN, read_the_mask}, {NORM ".weight", ones}, {NORM ".bias", zeros}};
    char path[2 * PATH_SIZE];
    struct tern_context *ctx = support_context();
    struct tern_weights_change changes[3];
    tern_tensor *t[3];
    snprintf(path, sizeof(path), "%s/unet/diffusion_pytorch_model.safetensors", folder);
    struct tern_weights *w = tern_weights_open(ctx, path);
    for (int i = 0; i < 3; i++)
        changes[i] = (struct tern_weights_change){all[i].name, t[i] = changed(ctx, w, all[i].name, all[i].change)};
    struct tern_weights *derived = tern_weights_derive(w, changes, 3);
    if (tern_weights_save(derived, path))
        fail_msg("%s", tern_error(ctx));
    for (int i = 0; i < 3; i++)
        tern_tensor_unref(&t[i]);
    tern_weights_unref(&derived);
    tern_weights_unref(&w);
    tern_context_destroy(&ctx);
}

/* The largest weight that reads a channel of the norm, (16 or so, 8, 3, 3). */
static double largest(const float *w, int64_t n, int64_t channels, int64_t channel)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = i / 9 % channels == channel ? fmax(most, fabs(w[i])) : most;
    return most;
}

static int steps_of(char letter) { return letter < 'a' ? letter - 'Z' - 1 : letter - 'a'; }

/* A mask of ones makes the first channel 1000 where its neighbour in the norm's group is some ones at most: the norm gives 1 and -1, silu
 * 0.7311 and -0.2689. So both factors follow from the weights behind. */
static void factors_count_what_the_model_is_told(void **state)
{
    char folder[PATH_SIZE];
    struct analysis f;
    struct tern_quantize_params q = analysis_params();
    int64_t n;
    (void)state;
    q.smooth_quant = 0.7;
    damage_copy("sd1-inpaint", folder);
    change_unet(folder);
    analysis_open_path(&f, folder);
    struct tern_recipe *r = analysis_run(&f, &q);
    char *words = tern_recipe_words(r);
    const char *at = strstr(words, " " NORM ".weight^");
    assert_non_null(at);
    at += strlen(" " NORM ".weight^");
    const struct tern_weights *w = tern_pipeline_weights(f.p, "unet");
    float *reader = support_f32(w, READER, &n);
    const double powers = 0.7 * log2(0.731059 / 0.268941) - 0.3 * log2(largest(reader, n, 8, 0) / largest(reader, n, 8, 1));
    assert_true(fabs(steps_of(at[0]) - steps_of(at[1]) - 4 * powers) <= 1.05);
    free(reader);
    tern_free_text(f.ctx, words);
    tern_recipe_destroy(&r);
    analysis_close(&f);
    damage_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(inpainting), cmocka_unit_test(instructions),
                                       cmocka_unit_test(pictures_that_are_asked_for),
                                       cmocka_unit_test(factors_count_what_the_model_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

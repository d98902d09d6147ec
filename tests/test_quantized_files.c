/* Checkpoints that come quantised: what is written by the rule, read again with the same bits as the words give, and refused when damaged. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/quantize.h>

#include "core/context.h"
#include "core/tensor.h"
#include "damage.h"
#include "lora_help.h"
#include "model_help.h"
#include "models/files/layout.h"
#include "models/files/quantized.h"
#include "models/quantize/recipe.h"
#include "support.h"

#define UNET "unet/diffusion_pytorch_model.safetensors"
#define TEXT "text_encoder/model.safetensors"

/* Some of each kind, and some left. */
#define MIXED "*:w8 !conv_out.weight *.to_q.weight:w4 *.conv1.weight:w8a8 sdpa"

static void sub_path(const char *folder, const char *name, char out[PATH_SIZE])
{
    assert_true(snprintf(out, PATH_SIZE, "%s/%s", folder, name) < PATH_SIZE);
}

static struct tern_pipeline *load(struct tern_context *ctx, const char *model, const char *words, const char *text)
{
    struct tern_pipeline *p =
        tern_pipeline_load(ctx, model, &(struct tern_pipeline_params){.quantize = words, .text_encoder_quantize = text});
    if (!p)
        fail_msg("%s: %s", model, tern_error(ctx));
    return p;
}

/* The model with heads as single files have them, and its quantised form. */
static void make(struct tern_context *ctx, const char *model, const char *words, const char *text, enum tern_convert_form form,
                 char folder[PATH_SIZE], char out[PATH_SIZE])
{
    damage_copy(model, folder);
    damage_json(folder, "unet/config.json", "attention_head_dim", json_integer(1));
    damage_json(folder, "text_encoder/config.json", "num_attention_heads", json_integer(1));
    sub_path(folder, form == TERN_CONVERT_FOLDER ? "quantised" : "quantised.safetensors", out);
    const struct tern_convert_params params = {.form = form, .quantize = words, .text_encoder_quantize = text};
    if (tern_convert(ctx, folder, out, &params))
        fail_msg("%s", tern_error(ctx));
}

/* ---- the rule */

/* The raw parts of the file: without its metadata nothing is joined. */
static struct tern_weights *open_raw(struct tern_context *ctx, const char *folder, const char *file)
{
    char path[PATH_SIZE], *bytes, *mark;
    size_t size;
    bytes = damage_read(folder, file, &size);
    assert_non_null(mark = memmem(bytes, size, TERN_QUANTIZED_KEY "\"", strlen(TERN_QUANTIZED_KEY) + 1));
    mark[0] = 'T';
    damage_text(folder, "raw.safetensors", bytes, size);
    free(bytes);
    sub_path(folder, "raw.safetensors", path);
    struct tern_weights *w = tern_weights_open(ctx, path);
    if (!w)
        fail_msg("%s", tern_error(ctx));
    return w;
}

static const void *part(const struct tern_weights *w, const char *name, const char *ending, enum tern_dtype dtype, int ndim,
                        const int64_t *shape)
{
    char full[256];
    snprintf(full, sizeof(full), "%s%s", name, ending);
    const tern_tensor *t = tern_weights_get(w, full);
    if (!t)
        fail_msg("%s is missing", full);
    assert_int_equal(t->meta.dtype, dtype);
    assert_int_equal(t->meta.ndim, ndim);
    assert_memory_equal(t->meta.shape, shape, (size_t)ndim * sizeof(*shape));
    return tern_tensor_host(t);
}

static float *values_of(const tern_tensor *t)
{
    const size_t size = (size_t)tern_tensor_numel(t) * sizeof(float);
    float *x = malloc(size);
    assert_int_equal(tern_tensor_read(t, TERN_F32, x, size), TERN_OK);
    return x;
}

/* int8: each number is nearest to the value over the scale, which is the largest / 127. */
static void eight_bits(struct tern_context *ctx, const char *folder, const struct tern_weights *from, const char *name)
{
    const tern_tensor *t = tern_weights_get(from, name);
    const int64_t rows = t->meta.shape[0], depth = tern_tensor_numel(t) / rows;
    struct tern_weights *raw = open_raw(ctx, folder, UNET);
    const int8_t *q = part(raw, name, "", TERN_I8, t->meta.ndim, t->meta.shape);
    const float *scale = part(raw, name, "_scale", TERN_F32, 2, (const int64_t[]){rows, 1});
    float *x = values_of(t);
    for (int64_t r = 0; r < rows; r++) {
        float most = 0;
        for (int64_t i = 0; i < depth; i++)
            most = fmaxf(most, fabsf(x[r * depth + i]));
        assert_true(scale[r] == most / 127);
        for (int64_t i = 0; i < depth; i++)
            assert_true(fabs((double)x[r * depth + i] / (double)scale[r] - q[r * depth + i]) <= 0.500001);
    }
    free(x);
    tern_weights_unref(&raw);
}

/* 4 bits: value i of a row is in word i / 8, bits 4 (i % 8), and 8 more than it is; rows tap by tap, 32 values a scale. */
static void four_bits(struct tern_context *ctx, const char *folder, const struct tern_weights *from, const char *name)
{
    const tern_tensor *t = tern_weights_get(from, name);
    const int64_t rows = t->meta.shape[0], depth = tern_tensor_numel(t) / rows, channels = t->meta.shape[1], taps = depth / channels;
    struct tern_weights *raw = open_raw(ctx, folder, UNET);
    const uint32_t *q = part(raw, name, "_packed", TERN_I32, 2, (const int64_t[]){rows, (depth + 7) / 8});
    const uint16_t *scales = part(raw, name, "_scale", TERN_BF16, 2, (const int64_t[]){rows, (depth + 31) / 32});
    const int64_t *shape = part(raw, name, "_shape", TERN_I64, 1, (const int64_t[]){t->meta.ndim});
    assert_memory_equal(shape, t->meta.shape, (size_t)t->meta.ndim * sizeof(*shape));
    float *x = values_of(t);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < depth; i++) {
            const uint32_t bits = (uint32_t)scales[r * ((depth + 31) / 32) + i / 32] << 16;
            float scale;
            memcpy(&scale, &bits, sizeof(scale));
            const double value = (double)x[r * depth + i % channels * taps + i / channels] / (double)scale;
            const int number = (int)(q[r * ((depth + 7) / 8) + i / 8] >> i % 8 * 4 & 15) - 8;
            assert_true(fabs(value - number) <= (number == 7 ? 1.04 : number == -8 ? 0.54 : 0.500001)); /* the ends are limits */
        }
    free(x);
    tern_weights_unref(&raw);
}

static void files_are_by_the_rule(void **state)
{
    (void)state;
    char folder[PATH_SIZE], out[PATH_SIZE], path[PATH_SIZE];
    struct tern_context *ctx = model_context(NULL, 1);
    make(ctx, "sd1", "*:w4 conv_in.weight:w8 time_embedding.linear_1.weight", NULL, TERN_CONVERT_FOLDER, folder, out);
    sub_path(folder, UNET, path);
    struct tern_weights *from = tern_weights_open(ctx, path);
    eight_bits(ctx, out, from, "conv_in.weight");
    eight_bits(ctx, out, from, "time_embedding.linear_1.weight");
    four_bits(ctx, out, from, "conv_out.weight");
    four_bits(ctx, out, from, "down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k.weight");
    tern_weights_unref(&from);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* Numbers and scales stay when what they stand for is quantised again: for any scale, and rows that are not whole groups. */
static void quantised_again_nothing_changes(void **state)
{
    (void)state;
    struct tern_context *ctx = model_context(NULL, 1);
    uint64_t random = 88172645463325252u;
    for (int k = 0; k < 20000; k++) {
        const int64_t shape[] = {1, 3 + k % 40, 3, 3}, four = k % 2;
        struct tern_quantized_form f;
        float x[43 * 9], turned[43 * 9], again[43 * 9];
        int64_t numbers[2][43 * 9], scales[2][8];
        assert_true(tern_quantized_form(four ? 4 : 8, 4, shape, &f));
        for (int64_t i = 0; i < f.depth; i++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            x[i] = ldexpf((float)(int32_t)(random >> 32), -31 - k % 90);
        }
        assert_true(tern_quantized_pack_row(&f, x, turned, numbers[0], scales[0]));
        tern_tensor *q = tern_tensor_wrap(ctx, TERN_U8, 1, (const int64_t[]){sizeof(numbers[0])}, numbers[0], NULL, NULL),
                    *s = tern_tensor_wrap(ctx, TERN_U8, 1, (const int64_t[]){sizeof(scales[0])}, scales[0], NULL, NULL),
                    *t = tern_quantized_tensor(q, s, &f, 0, 4, shape);
        assert_int_equal(tern_tensor_read(t, TERN_F32, again, (size_t)f.depth * sizeof(float)), TERN_OK);
        assert_true(tern_quantized_pack_row(&f, again, turned, numbers[1], scales[1]));
        assert_memory_equal(numbers[0], numbers[1], tern_quantized_row_size(&f));
        assert_memory_equal(scales[0], scales[1], tern_quantized_scale_size(&f));
        tern_tensor_unref(&t);
        tern_tensor_unref(&s);
        tern_tensor_unref(&q);
    }
    tern_context_destroy(&ctx);
}

/* ---- the same bits */

static float *paint(struct tern_context *ctx, struct tern_pipeline *p, int64_t *n)
{
    static const struct tern_txt2img_params job = {.prompt = "a red circle", .width = 64, .height = 64, .steps = 2, .seed = 5};
    char *text;
    float *values = lora_latents(ctx, p, &job, n, &text);
    free(text);
    return values;
}

static void same_picture(struct tern_context *ctx, struct tern_pipeline *a, struct tern_pipeline *b)
{
    int64_t n, m;
    float *x = paint(ctx, a, &n), *y = paint(ctx, b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, (size_t)n * sizeof(float));
    free(x);
    free(y);
}

static void pictures_are_those_of_the_words(void **state)
{
    static const char *const words[][2] = {{"*", NULL}, {"*:w8", "*:w8"}, {"*:w4", "*:w4"}, {MIXED, "*:w4 *.fc1.weight"}};
    (void)state;
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        for (enum tern_convert_form form = TERN_CONVERT_FOLDER; form <= TERN_CONVERT_SINGLE_FILE; form++) {
            char folder[PATH_SIZE], out[PATH_SIZE], tokenizer[PATH_SIZE];
            struct tern_context *ctx = model_context(NULL, 1);
            make(ctx, "sd2", words[i][0], words[i][1], form, folder, out);
            sub_path(folder, "tokenizer", tokenizer);
            struct tern_pipeline *a = load(ctx, folder, words[i][0], words[i][1]),
                                 *b = tern_pipeline_load(ctx, out, &(struct tern_pipeline_params){.tokenizer_dir = tokenizer});
            if (!b)
                fail_msg("%s", tern_error(ctx));
            assert_string_equal(tern_pipeline_layer_words(b, "unet"), words[i][0]);
            same_picture(ctx, a, b);
            tern_pipeline_destroy(&b);
            b = tern_pipeline_load(ctx, out, &(struct tern_pipeline_params){.tokenizer_dir = tokenizer, .offload = TERN_OFFLOAD_STREAM});
            same_picture(ctx, a, b); /* streamed */
            tern_pipeline_destroy(&a);
            tern_pipeline_destroy(&b);
            tern_context_destroy(&ctx);
            damage_remove(folder);
        }
}

/* SDXL has a projection that runs without a plan. */
static void both_text_encoders(void **state)
{
    (void)state;
    char folder[PATH_SIZE], out[PATH_SIZE];
    struct tern_context *ctx = model_context(NULL, 1);
    make(ctx, "sdxl", "*:w4", "*:w4", TERN_CONVERT_FOLDER, folder, out);
    struct tern_pipeline *a = load(ctx, folder, "*:w4", "*:w4"), *b = load(ctx, out, NULL, NULL);
    same_picture(ctx, a, b);
    tern_pipeline_destroy(&a);
    tern_pipeline_destroy(&b);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* Kernels that read a weight unpacked get its values, however the device was named. */
static void unpacked_on_any_cpu(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu", "cpu:0", "cpu:0,opencl"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = names[i], .threads = 1});
        struct tern_quantized_form f;
        int8_t numbers[] = {1, -127, 64, 5, 127, 0};
        float scales[] = {0.5f, 2}, found[6], values[] = {0.5f, -63.5f, 32, 10, 254, 0};
        assert_true(ctx && tern_quantized_form(8, 2, (const int64_t[]){2, 3}, &f));
        tern_scope_begin(ctx);
        tern_tensor *q = tern_tensor_create(ctx, TERN_I8, 2, (const int64_t[]){2, 3}, numbers),
                    *s = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){2, 1}, scales),
                    *t = tern_quantized_tensor(q, s, &f, 0, 2, (const int64_t[]){2, 3}), *twice = tern_add(t, t);
        assert_int_equal(tern_tensor_read(twice, TERN_F32, found, sizeof(found)), TERN_OK);
        for (int k = 0; k < 6; k++)
            assert_true(found[k] == 2 * values[k]);
        tern_tensor_unref(&t);
        tern_scope_end(ctx, NULL);
        tern_context_destroy(&ctx);
    }
}

/* Layers that a LoRA names are merged onto what the file stands for and quantised anew: as from the floats that the file is converted to.
 * Without it the bits are the same again. */
static void loras_begin_at_what_the_file_stands_for(void **state)
{
    char folder[PATH_SIZE], out[PATH_SIZE], wide[PATH_SIZE];
    const struct lora_spec lora = {.file = "a-kohya.safetensors", .scale = 1};
    (void)state;
    struct tern_context *ctx = model_context(NULL, 1);
    make(ctx, "sd1", MIXED, "*:w8", TERN_CONVERT_FOLDER, folder, out);
    sub_path(folder, "wide", wide);
    const struct tern_convert_params floats = {.form = TERN_CONVERT_FOLDER, .change_dtype = true, .dtype = TERN_F32};
    assert_int_equal(tern_convert(ctx, out, wide, &floats), TERN_OK);
    struct tern_pipeline *a = load(ctx, wide, MIXED, "*:w8"), *b = load(ctx, out, NULL, NULL);
    int64_t n;
    float *before = paint(ctx, b, &n);
    lora_set(ctx, a, &lora, 1);
    lora_set(ctx, b, &lora, 1);
    same_picture(ctx, a, b);
    float *with = paint(ctx, b, &n);
    assert_true(memcmp(with, before, (size_t)n * sizeof(float)) != 0);
    lora_set(ctx, b, NULL, 0);
    float *after = paint(ctx, b, &n);
    assert_memory_equal(before, after, (size_t)n * sizeof(float));
    free(before);
    free(with);
    free(after);
    tern_pipeline_destroy(&a);
    tern_pipeline_destroy(&b);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* ---- converting */

static void same_file(const char *a, const char *b, const char *name)
{
    size_t n, m;
    char *x = damage_read(a, name, &n), *y = damage_read(b, name, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

/* A folder stays quantised, byte by byte; through a single file and back, too; floats are the numbers times the scales. */
static void conversion_keeps_it(void **state)
{
    (void)state;
    char folder[PATH_SIZE], out[PATH_SIZE], again[PATH_SIZE], file[PATH_SIZE], back[PATH_SIZE], wide[PATH_SIZE];
    struct tern_context *ctx = model_context(NULL, 1);
    make(ctx, "sd2", MIXED, "*:w4", TERN_CONVERT_FOLDER, folder, out);
    const char *const names[] = {"again", "one.safetensors", "back", "wide"};
    char *const paths[] = {again, file, back, wide};
    for (int i = 0; i < 4; i++)
        sub_path(folder, names[i], paths[i]);
    assert_int_equal(tern_convert(ctx, out, again, &(struct tern_convert_params){.form = TERN_CONVERT_FOLDER}), TERN_OK);
    if (tern_convert(ctx, out, file, NULL))
        fail_msg("%s", tern_error(ctx));
    assert_int_equal(tern_convert(ctx, file, back, NULL), TERN_OK);
    same_file(out, again, UNET);
    same_file(out, again, TEXT);
    same_file(out, back, UNET);
    same_file(out, back, TEXT);
    const struct tern_convert_params floats = {.form = TERN_CONVERT_FOLDER, .change_dtype = true, .dtype = TERN_F32};
    assert_int_equal(tern_convert(ctx, out, wide, &floats), TERN_OK);
    struct tern_weights *raw = open_raw(ctx, out, UNET);
    sub_path(wide, UNET, file);
    struct tern_weights *w = tern_weights_open(ctx, file);
    const tern_tensor *t = tern_weights_get(w, "conv_in.weight");
    const int8_t *q = tern_tensor_host(tern_weights_get(raw, "conv_in.weight"));
    const float *scale = tern_tensor_host(tern_weights_get(raw, "conv_in.weight_scale")), *x = tern_tensor_host(t);
    const int64_t depth = tern_tensor_numel(t) / t->meta.shape[0];
    for (int64_t i = 0; i < tern_tensor_numel(t); i++)
        assert_true(x[i] == (float)q[i] * scale[i / depth]);
    assert_null(tern_weights_metadata(w, TERN_QUANTIZED_KEY));
    tern_weights_unref(&w);
    tern_weights_unref(&raw);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* Nothing is left where a value is no number, or words are wrong. */
static void what_cannot_be_quantised(void **state)
{
    (void)state;
    char folder[PATH_SIZE], out[PATH_SIZE], file[PATH_SIZE];
    struct tern_context *ctx = model_context(NULL, 1);
    damage_copy("sd1", folder);
    sub_path(folder, "quantised", out);
    assert_int_equal(tern_convert(ctx, folder, out, &(struct tern_convert_params){.quantize = "*:w5", .form = TERN_CONVERT_FOLDER}),
                     TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "\"*:w5\"");
    assert_int_equal(tern_convert(ctx, folder, out,
                                  &(struct tern_convert_params){.quantize = "* typo.weight", .form = TERN_CONVERT_FOLDER}),
                     TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "convert: quantize: the words name the layer \"typo.weight\": expected a weight of the model");
    assert_int_equal(tern_convert(ctx, folder, out,
                                  &(struct tern_convert_params){.quantize = "* conv_norm_out.weight^aaaaaaaa",
                                                                .form = TERN_CONVERT_FOLDER}),
                     TERN_E_UNSUPPORTED);
    support_error(ctx, TERN_E_UNSUPPORTED, "convert: the recipe has factors of norms");
    assert_int_equal(tern_convert(ctx, folder, out, &(struct tern_convert_params){.recipe = "none.json", .form = TERN_CONVERT_FOLDER}),
                     TERN_E_NOT_FOUND);
    tern_error_clear(ctx);
    sub_path(folder, UNET, file);
    struct tern_weights *w = tern_weights_open(ctx, file);
    const tern_tensor *t = tern_weights_get(w, "conv_in.weight");
    const int64_t n = tern_tensor_numel(t), shape[] = {t->meta.shape[0], t->meta.shape[1], t->meta.shape[2], t->meta.shape[3]};
    float *values = calloc((size_t)n, sizeof(float));
    values[0] = NAN;
    tern_scope_begin(ctx);
    tern_tensor *bad = tern_tensor_create(ctx, TERN_F32, 4, shape, values);
    struct tern_weights *changed =
        tern_weights_derive(w, &(struct tern_weights_change){"conv_in.weight", tern_cast(bad, t->meta.dtype)}, 1);
    assert_int_equal(tern_weights_save(changed, file), TERN_OK);
    tern_scope_end(ctx, NULL);
    tern_weights_unref(&changed);
    tern_weights_unref(&w);
    free(values);
    assert_int_not_equal(tern_convert(ctx, folder, out, &(struct tern_convert_params){.quantize = "*", .form = TERN_CONVERT_FOLDER}),
                         TERN_OK);
    support_error(ctx, TERN_E_INVALID, "\"conv_in.weight\": expected numbers");
    assert_int_equal(tern_convert(ctx, folder, out,
                                  &(struct tern_convert_params){.quantize = "* !conv_in.weight", .form = TERN_CONVERT_FOLDER}),
                     TERN_OK);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* ---- words beside it */

static void other_words_are_refused(void **state)
{
    static const struct {
        const char *words, *text, *error;
    } rows[] = {
        {"*:w8", NULL, NULL},
        {NULL, "*:w4", NULL},
        {"*", NULL, "unet comes quantised as \"*:w8\", and \"*\" was asked for"},
        {NULL, "*", "text_encoder comes quantised as \"*:w4\", and \"*\" was asked for"},
    };
    (void)state;
    char folder[PATH_SIZE], out[PATH_SIZE];
    struct tern_context *ctx = model_context(NULL, 1);
    make(ctx, "sd1", "*:w8", "*:w4", TERN_CONVERT_FOLDER, folder, out);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct tern_pipeline_params q = {.quantize = rows[i].words, .text_encoder_quantize = rows[i].text};
        struct tern_pipeline *p = tern_pipeline_load(ctx, out, &q);
        if (!rows[i].error)
            assert_non_null(p);
        else
            support_error(ctx, TERN_E_INVALID, rows[i].error);
        tern_pipeline_destroy(&p);
    }
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* A recipe without a layer in int8 makes no quantised model: not a pipeline, nor a file. Beside words of the file it says something else. */
static void a_recipe_of_no_layer_quantises_nothing(void **state)
{
    (void)state;
    char folder[PATH_SIZE], out[PATH_SIZE], plain[PATH_SIZE], recipe[PATH_SIZE];
    struct tern_context *ctx = model_context(NULL, 1);
    make(ctx, "sd1", "*:w8", NULL, TERN_CONVERT_FOLDER, folder, out);
    sub_path(folder, "recipe.json", recipe);
    sub_path(folder, "plain", plain);
    struct tern_pipeline *p = load(ctx, folder, NULL, NULL);
    struct tern_recipe *r = tern_recipe_of_pipeline(p);
    assert_int_equal(tern_recipe_save(r, recipe), TERN_OK);
    tern_recipe_destroy(&r);
    tern_pipeline_destroy(&p);
    const struct tern_pipeline_params by = {.recipe = recipe};
    assert_non_null(p = tern_pipeline_load(ctx, folder, &by));
    assert_null(tern_pipeline_layer_words(p, "unet"));
    tern_pipeline_destroy(&p);
    assert_int_equal(tern_convert(ctx, folder, plain, &(struct tern_convert_params){.form = TERN_CONVERT_FOLDER, .recipe = recipe}),
                     TERN_OK);
    p = load(ctx, plain, "*", NULL);
    assert_string_equal(tern_pipeline_layer_words(p, "unet"), "*");
    tern_pipeline_destroy(&p);
    assert_null(tern_pipeline_load(ctx, out, &by));
    support_error(ctx, TERN_E_INVALID, "comes quantised as \"*:w8\", and \"\" was asked for");
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* Nor do words that name no layer, which are as none: beside a file's own they ask for nothing else. */
static void words_of_no_layer_quantise_nothing(void **state)
{
    static const char *const words[] = {"", " ", "!conv_in.weight !*.to_q.weight"};
    (void)state;
    char folder[PATH_SIZE], out[PATH_SIZE], plain[PATH_SIZE];
    struct tern_context *ctx = model_context(NULL, 1);
    make(ctx, "sd1", "*:w8", "*:w4", TERN_CONVERT_FOLDER, folder, out);
    sub_path(folder, "plain", plain);
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        const struct tern_convert_params params = {.form = TERN_CONVERT_FOLDER, .quantize = words[i], .text_encoder_quantize = words[i]};
        struct tern_pipeline *p = load(ctx, folder, words[i], words[i]);
        assert_null(tern_pipeline_layer_words(p, "unet"));
        assert_null(tern_pipeline_layer_words(p, "text_encoder"));
        tern_pipeline_destroy(&p);
        assert_int_equal(tern_convert(ctx, folder, plain, &params), TERN_OK);
        p = load(ctx, plain, "*", "*");
        tern_pipeline_destroy(&p);
        damage_remove(plain);
        p = load(ctx, out, words[i], words[i]);
        assert_string_equal(tern_pipeline_layer_words(p, "unet"), "*:w8");
        assert_string_equal(tern_pipeline_layer_words(p, "text_encoder"), "*:w4");
        tern_pipeline_destroy(&p);
    }
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* ---- bad files */

enum edit { RENAME, SHAPE, DTYPE, BYTES, METADATA, RENAME_METADATA };

struct bad {
    enum edit edit;
    const char *tensor, *value; /* METADATA: key, value or NULL: it goes; RENAME_METADATA: keys */
    float number;               /* BYTES: the first 4 */
    const char *error;
};

/* The header of a file, edited; its data is as it was but for the bytes. */
static void edit(const char *folder, const char *file, const struct bad *b)
{
    size_t size;
    char *bytes = damage_read(folder, file, &size);
    uint64_t n;
    memcpy(&n, bytes, 8);
    json_t *header = json_loadb(bytes + 8, n, 0, NULL), *entry = json_object_get(header, b->tensor),
           *meta = json_object_get(header, "__metadata__");
    char *data = bytes + 8 + n;
    if (b->edit == RENAME)
        json_object_set(header, b->value, entry), json_object_del(header, b->tensor);
    else if (b->edit == SHAPE)
        json_object_set_new(entry, "shape", json_loads(b->value, 0, NULL));
    else if (b->edit == DTYPE)
        json_object_set_new(entry, "dtype", json_string(b->value));
    else if (b->edit == BYTES)
        memcpy(data + json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0)), &b->number, 4);
    else if (b->edit == RENAME_METADATA)
        json_object_set(meta, b->value, json_object_get(meta, b->tensor)), json_object_del(meta, b->tensor);
    else if (b->value)
        json_object_set_new(meta, b->tensor, json_string(b->value));
    else
        json_object_del(meta, b->tensor);
    char *text = json_dumps(header, JSON_COMPACT);
    const size_t length = strlen(text), padded = (length + 7) / 8 * 8, rest = size - 8 - n;
    char *whole = malloc(8 + padded + rest);
    memset(whole, ' ', 8 + padded);
    memcpy(whole, &(uint64_t){padded}, 8);
    memcpy(whole + 8, text, length);
    memcpy(whole + 8 + padded, data, rest);
    damage_text(folder, file, whole, 8 + padded + rest);
    free(whole);
    free(text);
    free(bytes);
    json_decref(header);
}

static void bad_files_are_refused(void **state)
{
#define KEY "mid_block.attentions.0.proj_in.weight"
    static const struct bad rows[] = {
        {RENAME, "conv_in.weight_scale", "conv_in.other", 0,
         "tensor \"conv_in.weight_scale\": expected (8, 1) f32, the scales of its weight, found none"},
        {SHAPE, "conv_in.weight_scale", "[1, 8]", 0, "tensor \"conv_in.weight_scale\": expected (8, 1) f32"},
        {SHAPE, "conv_in.weight_scale", "[8]", 0, "expected (8, 1) f32, the scales of its weight, found (8,) f32"},
        {DTYPE, "conv_in.weight_scale", "I32", 0, "found (8, 1) i32"},
        {BYTES, "conv_in.weight_scale", NULL, NAN,
         "expected scales that are positive and normal numbers, also times 128, found nan as number 0"},
        {BYTES, "conv_in.weight_scale", NULL, -1, "found -1 as number 0"},
        {BYTES, "conv_in.weight_scale", NULL, 0, "found 0 as number 0"},
        {BYTES, "conv_in.weight_scale", NULL, INFINITY, "found inf as number 0"},
        {BYTES, "conv_in.weight_scale", NULL, 1e-42f, "as number 0"},
        {BYTES, "conv_in.weight_scale", NULL, 3e38f, "found 3e+38 as number 0"},
        {BYTES, "conv_out.weight_scale", NULL, 0,
         "tensor \"conv_out.weight_scale\": expected scales that are normal numbers, also times 8, found 0 as number 0"},
        {RENAME, "conv_out.weight_scale", "conv_out.other", 0, "tensor \"conv_out.weight_scale\": expected (4, 3) bf16"},
        {RENAME, "conv_out.weight_shape", "conv_out.other", 0, "tensor \"conv_out.weight_shape\": expected (2) or (4) i64"},
        {BYTES, "conv_out.weight_shape", NULL, 0,
         "tensor \"conv_out.weight_shape\": expected (2) or (4) i64, the shape of its weight, without zeros"},
        {BYTES, "conv_out.weight_shape", NULL, 1e20f, "conv_out.weight_packed\": expected ("},
        {SHAPE, "conv_out.weight_packed", "[9, 4]", 0,
         "tensor \"conv_out.weight_packed\": expected (4, 9) i32, 8 values in each, found (9, 4) i32"},
        {METADATA, TERN_QUANTIZED_KEY, "2", 0, "metadata \"tern.quantization\": expected version 1, found \"2\""},
        {METADATA, TERN_QUANTIZED_KEY, NULL, 0, "found (8, 4, 3, 3) i8"},
        {METADATA, TERN_QUANTIZED_UNET, NULL, 0, "expected \"tern.quantize\" or \"tern.text_encoder_quantize\""},
        {METADATA, TERN_QUANTIZED_UNET, "*\x1b[31m", 0, "metadata \"tern.quantize\": expected printable ASCII, found byte 27 at 1"},
        {METADATA, TERN_QUANTIZED_UNET, "* conv_norm_out.weight^aaaaaaaa", 0,
         "expected words without factors of norms, found \"^\" at byte 22"},
        {RENAME_METADATA, TERN_QUANTIZED_UNET, TERN_QUANTIZED_TEXT, 0,
         "tensor \"conv_in.weight\": the file has no words for unet: expected floats, found 8 bits"},
        {METADATA, TERN_QUANTIZED_UNET, "*:w9", 0, "metadata \"tern.quantize\": word \"*:w9\""},
        {METADATA, TERN_QUANTIZED_UNET, "*:w8", 0, "tensor \"conv_out.weight\": the words of the file expect w8, found 4 bits"},
        {METADATA, TERN_QUANTIZED_UNET, "!*", 0, "the words of the file expect floats, found 8 bits"},
        {METADATA, TERN_QUANTIZED_UNET, "*:w8 conv_out.weight:w4 conv_middle.weight", 0,
         "the words name the layer \"conv_middle.weight\": expected a weight of the model, found none"},
    };
    (void)state;
    char folder[PATH_SIZE], out[PATH_SIZE];
    struct tern_context *ctx = model_context(NULL, 1);
    make(ctx, "sd1", "*:w8 conv_out.weight:w4", NULL, TERN_CONVERT_FOLDER, folder, out);
    size_t size;
    char *good = damage_read(out, UNET, &size);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        edit(out, UNET, &rows[i]);
        struct tern_pipeline *p = tern_pipeline_load(ctx, out, NULL);
        if (p || !strstr(tern_error(ctx), rows[i].error))
            fail_msg("row %zu: expected \"%s\", found \"%s\"", i, rows[i].error, p ? "it was loaded" : tern_error(ctx));
        tern_error_clear(ctx);
        damage_text(out, UNET, good, size);
    }
    struct tern_pipeline *p = load(ctx, out, NULL, NULL);
    tern_pipeline_destroy(&p);
    free(good);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

static bool is_cancelled(void *user) { return *(bool *)user; }

/* All words are read for each tensor: no file has so many that this takes minutes, and it can be stopped. */
static void many_words_hold_nothing_up(void **state)
{
    (void)state;
    char folder[PATH_SIZE], out[PATH_SIZE];
    const size_t size = 1000000;
    bool stop = false;
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = is_cancelled, .user = &stop});
    make(ctx, "sd1", "*:w8", NULL, TERN_CONVERT_FOLDER, folder, out);
    stop = true;
    assert_null(tern_pipeline_load(ctx, out, NULL));
    support_error(ctx, TERN_E_CANCELLED, "cancelled");
    stop = false;
    char *words = malloc(size + 1);
    for (size_t i = 0; i < size; i++)
        words[i] = "*:w8 "[i % 5];
    words[size] = 0;
    edit(out, UNET, &(struct bad){METADATA, TERN_QUANTIZED_UNET, words, 0, NULL});
    free(words);
    assert_null(tern_pipeline_load(ctx, out, NULL)); /* 2^27 / 202 */
    support_error(ctx, TERN_E_FORMAT, "the words of the file: expected at most 664444 bytes for 202 quantised tensors, found 1000000");
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* Weights stay as the file has them: a pipeline that is bound takes no more than that of the source, but what one layer is expanded to. */
static void nothing_else_is_kept(void **state)
{
    (void)state;
    char folder[PATH_SIZE], out[PATH_SIZE], *text;
    struct tern_context *ctx = model_context(NULL, 1);
    make(ctx, "sd1", "*", NULL, TERN_CONVERT_FOLDER, folder, out);
    tern_context_destroy(&ctx);
    size_t used[2];
    for (int i = 0; i < 2; i++) {
        ctx = model_context(NULL, 1);
        struct tern_pipeline *p = load(ctx, i ? out : folder, i ? NULL : "*", NULL);
        int64_t n;
        float *x = paint(ctx, p, &n);
        tern_memory_trim(ctx);
        used[i] = tern_memory_used(ctx);
        free(x);
        text = tern_pipeline_describe(p, false);
        assert_true(!i || (strstr(text, "quantised: UNet as \"*\"") && strstr(text, " int8")));
        tern_free_text(ctx, text);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
    assert_true(used[1] <= used[0] + (256 << 10)); /* structs of the parts; the floats are 826 KiB */
    damage_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_by_the_rule),
        cmocka_unit_test(quantised_again_nothing_changes),
        cmocka_unit_test(pictures_are_those_of_the_words),
        cmocka_unit_test(both_text_encoders),
        cmocka_unit_test(unpacked_on_any_cpu),
        cmocka_unit_test(loras_begin_at_what_the_file_stands_for),
        cmocka_unit_test(conversion_keeps_it),
        cmocka_unit_test(what_cannot_be_quantised),
        cmocka_unit_test(other_words_are_refused),
        cmocka_unit_test(a_recipe_of_no_layer_quantises_nothing),
        cmocka_unit_test(words_of_no_layer_quantise_nothing),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(many_words_hold_nothing_up),
        cmocka_unit_test(nothing_else_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The weights that LoRA files give, number by number, against sums made here: first layers of UNets for inpainting, layers with
 * two names, GLoRA. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "damage.h"
#include "lora_help.h"
#include "model_help.h"
#include "support.h"

#define SCALE 0.75 /* of the LoRA */
#define ALPHA 3.0
#define TENSORS 6
#define MOST 2400 /* elements of a tensor of a file */

/* What lies in a file for one weight, or beside it: a whole name. */
struct tensor {
    const char *ending;
    int ndim;
    int64_t shape[4];
};

/* The weight W (out, in, kh, kw) and the file's tensors: what is added to element (o, i, k), k counting kh and kw in one. */
struct weight {
    const float *w, *t[TENSORS];
    int64_t in, kernel, rank;
    double alpha; /* by rank */
};
typedef double (*added)(const struct weight *m, int64_t o, int64_t i, int64_t k);

struct layer {
    const char *name, *module; /* in the model, in the file; NULL: the tensors have whole names */
    struct tensor tensor[TENSORS];
    int64_t rank;
    added added;
};

static char folder[PATH_SIZE], path[2 * PATH_SIZE], model[PATH_SIZE];

static float *values_of(const struct tensor *t, int which, int64_t *n)
{
    *n = 1;
    for (int d = 0; d < t->ndim; d++)
        *n *= t->shape[d];
    assert_true(*n <= MOST);
    float *v = malloc((size_t)*n * sizeof(*v));
    for (int64_t i = 0; i < *n; i++)
        v[i] = 0.1f * (float)((i * i + 7 * i + 3 * which) % 11 - 4);
    if (strstr(t->ending, ".alpha"))
        *v = (float)ALPHA;
    return v;
}

/* (r, columns) of a file: the sum over r of a's (o, r) and b's (r, column). */
static double product(const float *a, const float *b, int64_t rank, int64_t columns, int64_t o, int64_t column)
{
    double sum = 0;
    for (int64_t r = 0; r < rank; r++)
        sum += (double)a[o * rank + r] * (double)b[r * columns + column];
    return sum;
}

#define LATENTS 4 /* inputs that the files know */

static double locon(const struct weight *m, int64_t o, int64_t i, int64_t k)
{
    return i < LATENTS ? SCALE * m->alpha * product(m->t[1], m->t[0], m->rank, LATENTS * m->kernel, o, i * m->kernel + k) : 0;
}

static double locon_of_all(const struct weight *m, int64_t o, int64_t i, int64_t k)
{
    return SCALE * m->alpha * product(m->t[1], m->t[0], m->rank, m->in * m->kernel, o, i * m->kernel + k);
}

static double whole(const struct weight *m, int64_t o, int64_t i, int64_t k)
{
    return i < LATENTS ? SCALE * (double)m->t[0][(o * LATENTS + i) * m->kernel + k] : 0;
}

static double loha(const struct weight *m, int64_t o, int64_t i, int64_t k)
{
    const int64_t columns = LATENTS * m->kernel, at = i * m->kernel + k;
    return i < LATENTS
               ? SCALE * m->alpha * product(m->t[0], m->t[1], m->rank, columns, o, at) * product(m->t[2], m->t[3], m->rank, columns, o, at)
               : 0;
}

/* a1, a2, b1, b2, by LyCORIS' (W a1) a2 + b1 b2; `inputs` are those that the file knows. */
static double generalised(const struct weight *m, int64_t inputs, int64_t o, int64_t i, int64_t k)
{
    double sum = product(m->t[2], m->t[3], m->rank, inputs * m->kernel, o, i * m->kernel + k);
    for (int64_t c = 0; c < inputs; c++)
        sum += (double)m->w[(o * m->in + c) * m->kernel + k] * product(m->t[0], m->t[1], m->rank, inputs, c, i);
    return SCALE * m->alpha * sum;
}

static double glora(const struct weight *m, int64_t o, int64_t i, int64_t k) { return generalised(m, m->in, o, i, k); }

static double glora_of_latents(const struct weight *m, int64_t o, int64_t i, int64_t k)
{
    return i < LATENTS ? generalised(m, LATENTS, o, i, k) : 0;
}

/* The older (W a2) a1 + b2 b1 */
static double old_glora(const struct weight *m, int64_t o, int64_t i, int64_t k)
{
    const struct weight other = {m->w, {m->t[1], m->t[0], m->t[3], m->t[2]}, m->in, m->kernel, m->rank, m->alpha};
    return glora(&other, o, i, k);
}

/* b1, bm, b2: the sum over both ranks of b1 (o, r), bm (r, q, k) and b2 (q, i). */
static double glora_with_core(const struct weight *m, int64_t o, int64_t i, int64_t k)
{
    double sum = 0;
    for (int64_t r = 0; r < m->rank; r++)
        for (int64_t q = 0; q < m->rank; q++)
            sum += (double)m->t[2][o * m->rank + r] * (double)m->t[4][(r * m->rank + q) * m->kernel + k] * (double)m->t[3][q * m->in + i];
    for (int64_t c = 0; c < m->in; c++)
        sum += (double)m->w[(o * m->in + c) * m->kernel + k] * product(m->t[0], m->t[1], m->rank, m->in, c, i);
    return SCALE * m->alpha * sum;
}

/* w1 (2, 2), w2 (4, 2, kh, kw) */
static double lokr(const struct weight *m, int64_t o, int64_t i, int64_t k)
{
    if (i >= LATENTS)
        return 0;
    return SCALE * (double)m->t[0][o / 4 * 2 + i / 2] * (double)m->t[1][(o % 4 * 2 + i % 2) * m->kernel + k];
}

/* The norm is over what the file knows. */
static double dora(const struct weight *m, int64_t o, int64_t i, int64_t k)
{
    double squares = 0, v = 0;
    if (i >= LATENTS)
        return 0;
    for (int64_t c = 0; c < LATENTS * m->kernel; c++) {
        const double x = (double)m->w[o * m->in * m->kernel + c] + m->alpha * product(m->t[1], m->t[0], m->rank, LATENTS * m->kernel, o, c);
        squares += x * x;
        v = c == i * m->kernel + k ? x : v;
    }
    return SCALE * ((double)m->t[2][o] * v / sqrt(squares) - (double)m->w[(o * m->in + i) * m->kernel + k]);
}

#define FIRST "conv_in.weight", "lora_unet_conv_in"
static const struct layer first_layers[] = {
    {FIRST, {{".lora_down.weight", 4, {2, 4, 3, 3}}, {".lora_up.weight", 4, {8, 2, 1, 1}}, {".alpha", 0, {0}}}, 2, locon},
    {"conv_in.weight",
     "lora_unet_input_blocks_0_0",
     {{".lora_down.weight", 4, {2, 4, 3, 3}}, {".lora_up.weight", 4, {8, 2, 1, 1}}, {".alpha", 0, {0}}},
     2,
     locon},
    {FIRST, {{".lora_down.weight", 4, {2, 9, 3, 3}}, {".lora_up.weight", 4, {8, 2, 1, 1}}, {".alpha", 0, {0}}}, 2, locon_of_all},
    {FIRST, {{".diff", 4, {8, 4, 3, 3}}}, 1, whole},
    {FIRST,
     {{".hada_w1_a", 2, {8, 2}}, {".hada_w1_b", 2, {2, 36}}, {".hada_w2_a", 2, {8, 2}}, {".hada_w2_b", 2, {2, 36}}, {".alpha", 0, {0}}},
     2,
     loha},
    {FIRST, {{".lokr_w1", 2, {2, 2}}, {".lokr_w2", 4, {4, 2, 3, 3}}}, 1, lokr},
    {FIRST,
     {{".lora_down.weight", 4, {2, 4, 3, 3}}, {".lora_up.weight", 4, {8, 2, 1, 1}}, {".dora_scale", 4, {8, 1, 1, 1}}, {".alpha", 0, {0}}},
     2,
     dora},
    {FIRST,
     {{".a1.weight", 4, {4, 2, 1, 1}},
      {".a2.weight", 4, {2, 4, 1, 1}},
      {".b1.weight", 4, {8, 2, 1, 1}},
      {".b2.weight", 4, {2, 4, 3, 3}},
      {".alpha", 0, {0}}},
     2,
     glora_of_latents},
};

#define CROSS                                                            \
    "down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k.weight", \
        "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn2_to_k"
#define SQUARE                                                           \
    "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q.weight", \
        "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q"
#define CONV "down_blocks.1.resnets.0.conv1.weight", "lora_unet_down_blocks_1_resnets_0_conv1" /* (16, 8, 3, 3) */
#define GLORA(in, out, r)                                                                                                \
    {                                                                                                                    \
        {".a1.weight", 2, {in, r}}, {".a2.weight", 2, {r, in}}, {".b1.weight", 2, {out, r}}, {".b2.weight", 2, {r, in}}, \
        {                                                                                                                \
            ".alpha", 0, { 0 }                                                                                           \
        }                                                                                                                \
    }
#define OLD_GLORA(in, out, r)                                                                                            \
    {                                                                                                                    \
        {".a1.weight", 2, {r, in}}, {".a2.weight", 2, {in, r}}, {".b1.weight", 2, {r, in}}, {".b2.weight", 2, {out, r}}, \
        {                                                                                                                \
            ".alpha", 0, { 0 }                                                                                           \
        }                                                                                                                \
    }
static const struct layer gloras[] = {
    {CROSS, GLORA(24, 8, 2), 2, glora},
    {CROSS, OLD_GLORA(24, 8, 2), 2, old_glora},
    {SQUARE, GLORA(8, 8, 3), 3, glora},
    {SQUARE, OLD_GLORA(8, 8, 3), 3, old_glora},
    {CONV,
     {{".a1.weight", 4, {8, 2, 1, 1}},
      {".a2.weight", 4, {2, 8, 1, 1}},
      {".b1.weight", 4, {16, 2, 1, 1}},
      {".b2.weight", 4, {2, 8, 3, 3}},
      {".alpha", 0, {0}}},
     2,
     glora},
    {CONV,
     {{".a1.weight", 4, {8, 2, 1, 1}},
      {".a2.weight", 4, {2, 8, 1, 1}},
      {".b1.weight", 4, {16, 2, 1, 1}},
      {".b2.weight", 4, {2, 8, 1, 1}},
      {".bm.weight", 4, {2, 2, 3, 3}},
      {".alpha", 0, {0}}},
     2,
     glora_with_core},
};

#define DOWN \
    "transformer_blocks_0_attn2_to_k.lora_down.weight", 2, { 2, 24 }
#define UP \
    "transformer_blocks_0_attn2_to_k.lora_up.weight", 2, { 8, 2 }
#define TO_K_ALPHA \
    "transformer_blocks_0_attn2_to_k.alpha", 0, { 0 }
static const struct layer two_names[] = {
    {"down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k.weight",
     NULL,
     {{"lora_unet_down_blocks_0_attentions_0_" DOWN},
      {"lora_unet_down_blocks_0_attentions_0_" UP},
      {"lora_unet_down_blocks_0_attentions_0_" TO_K_ALPHA},
      {"lora_unet_input_blocks_1_1_" DOWN},
      {"lora_unet_input_blocks_1_1_" UP},
      {"lora_unet_input_blocks_1_1_" TO_K_ALPHA}},
     2,
     locon_of_all},
    {"up_blocks.1.attentions.0.transformer_blocks.0.attn2.to_k.weight", /* in order of names LDM's come first */
     NULL,
     {{"lora_unet_up_blocks_1_attentions_0_" DOWN},
      {"lora_unet_up_blocks_1_attentions_0_" UP},
      {"lora_unet_up_blocks_1_attentions_0_" TO_K_ALPHA},
      {"lora_unet_output_blocks_2_1_" DOWN},
      {"lora_unet_output_blocks_2_1_" UP},
      {"lora_unet_output_blocks_2_1_" TO_K_ALPHA}},
     2,
     locon_of_all},
    {"up_blocks.1.attentions.0.transformer_blocks.0.attn2.to_k.weight", /* a layer that has LDM's name alone */
     NULL,
     {{"lora_unet_output_blocks_2_1_" DOWN},
      {"lora_unet_output_blocks_2_1_" UP},
      {"lora_unet_output_blocks_2_1_" TO_K_ALPHA},
      {"lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn2_to_k.diff", 2, {8, 24}}},
     2,
     locon_of_all},
};

/* Writes the file of a layer; its values are the caller's. */
static void write_file(struct tern_context *ctx, const struct layer *l, float *values[TENSORS])
{
    struct tern_weights *w = tern_weights_create(ctx);
    for (int k = 0; k < TENSORS && l->tensor[k].ending; k++) {
        char name[256];
        int64_t n;
        values[k] = values_of(&l->tensor[k], k, &n);
        snprintf(name, sizeof(name), "%s%s", *l->tensor[k].ending == '.' ? l->module : "", l->tensor[k].ending);
        tern_tensor *t = tern_tensor_create(ctx, TERN_F32, l->tensor[k].ndim, l->tensor[k].shape, values[k]);
        assert_int_equal(tern_weights_add(w, name, t), TERN_OK);
        tern_tensor_unref(&t);
    }
    assert_int_equal(tern_weights_save(w, path), TERN_OK);
    tern_weights_unref(&w);
}

/* W' is W and what is added, to f32. */
static void check_layer(struct tern_context *ctx, struct tern_pipeline *p, const struct layer *l, int index)
{
    float *values[TENSORS] = {0};
    int64_t n, m;
    write_file(ctx, l, values);
    float *before = support_f32(tern_pipeline_weights(p, "unet"), l->name, &n);
    if (tern_pipeline_set_loras(p, &(struct tern_lora){.path = path, .scale = SCALE}, 1))
        fail_msg("layer %d: %s", index, tern_error(ctx));
    float *after = support_f32(tern_pipeline_weights(p, "unet"), l->name, &m);
    const tern_tensor *t = tern_weights_get(tern_pipeline_weights(p, "unet"), l->name);
    struct weight w = {.w = before, .in = tern_tensor_size(t, 1), .rank = l->rank, .alpha = ALPHA / (double)l->rank};
    w.kernel = n / tern_tensor_size(t, 0) / w.in;
    for (int k = 0; k < TENSORS; k++)
        w.t[k] = values[k];
    assert_int_equal(n, m);
    for (int64_t at = 0; at < n; at++) {
        const double want = (double)before[at] + l->added(&w, at / w.kernel / w.in, at / w.kernel % w.in, at % w.kernel);
        if (!(fabs((double)after[at] - want) <= 1e-5 * (1 + fabs(want))))
            fail_msg("layer %d, element %d: expected %.8g, found %.8g", index, (int)at, want, (double)after[at]);
    }
    free(before);
    free(after);
    for (int k = 0; k < TENSORS; k++)
        free(values[k]);
    assert_int_equal(tern_pipeline_set_loras(p, NULL, 0), TERN_OK);
}

static void check_layers(const struct layer *layers, size_t n)
{
    struct tern_context *ctx = support_context();
    struct tern_pipeline *p = model_load(ctx, model);
    for (size_t i = 0; i < n; i++)
        check_layer(ctx, p, &layers[i], (int)i);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* 9 inputs; files for 4 change the first 4. */
static void inputs_behind_the_latents_stay(void **state) { check_layers(first_layers, sizeof(first_layers) / sizeof(*first_layers)); }

/* Neither the model's inputs nor those of the latents: instructions have 8. */
static void other_numbers_of_inputs_are_refused(void **state)
{
    static const struct layer eight = {FIRST, {{".diff", 4, {8, 8, 3, 3}}}, 1, NULL};
    float *values[TENSORS] = {0};
    struct tern_context *ctx = support_context();
    struct tern_pipeline *p = model_load(ctx, model);
    write_file(ctx, &eight, values);
    free(values[0]);
    assert_int_equal(tern_pipeline_set_loras(p, &(struct tern_lora){.path = path, .scale = 1}, 1), TERN_E_SHAPE);
    support_error(ctx, TERN_E_SHAPE, "expected (8, 9, 3, 3) f32");
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* As in diffusers; a layer that only LDM's names have counts, as in AUTOMATIC1111 and ComfyUI. */
static void names_of_diffusers_win(void **state) { check_layers(two_names, sizeof(two_names) / sizeof(*two_names)); }

static void generalised_loras_depend_on_the_weight(void **state) { check_layers(gloras, sizeof(gloras) / sizeof(*gloras)); }

static int setup(void **state)
{
    lora_temporary(folder);
    lora_wide_model("sd1-inpaint", model);
    snprintf(path, sizeof(path), "%s/x.safetensors", folder);
    return 0;
}

static int teardown(void **state)
{
    damage_remove(model);
    damage_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_behind_the_latents_stay),
        cmocka_unit_test(names_of_diffusers_win),
        cmocka_unit_test(generalised_loras_depend_on_the_weight),
        cmocka_unit_test(other_numbers_of_inputs_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

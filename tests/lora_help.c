/* What the tests of LoRAs share. */
#include "lora_help.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "damage.h"
#include "model_help.h"
#include "support.h"

void lora_set(struct tern_context *ctx, struct tern_pipeline *p, const struct lora_spec *list, int n)
{
    char path[16][PATH_SIZE];
    struct tern_lora loras[16] = {{0}};
    for (int i = 0; i < n; i++) {
        snprintf(path[i], PATH_SIZE, "%s/lora/%s", TERN_TEST_DATA, list[i].file);
        loras[i] = (struct tern_lora){path[i], list[i].scale, list[i].blocks, list[i].n_blocks};
    }
    if (tern_pipeline_set_loras(p, loras, n))
        fail_msg("%s: %s", n ? list[0].file : "none", tern_error(ctx));
}

double lora_error(struct tern_context *ctx, struct tern_pipeline *p, const char *folder, const char *component, const char *name)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), "%s/%s/%s.%s.safetensors", TERN_TEST_DATA, folder, component, name);
    struct golden g = golden_open(ctx, path);
    double e = golden_error(p, component, &g, name);
    golden_close(&g);
    return e;
}

void lora_check_cases(const char *model, const char *folder, const struct lora_case *cases, size_t n)
{
    struct tern_context *ctx = support_context();
    struct tern_pipeline *p = model_load(ctx, model);
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        int count = 0;
        while (count < LORA_MOST && cases[i].lora[count].file)
            count++;
        lora_set(ctx, p, cases[i].lora, count);
        for (int k = 0; k < 3 && cases[i].components[k]; k++) {
            double e = lora_error(ctx, p, folder, cases[i].components[k], cases[i].name);
            worst = fmax(worst, e);
            if (!(e <= LORA_LIMIT))
                fail_msg("%s %s (%s): NMSE %.3g, expected at most %g", cases[i].components[k], cases[i].lora[0].file, cases[i].name, e,
                         LORA_LIMIT);
        }
    }
    print_message("worst NMSE %.2g\n", worst);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

void lora_leaves_nothing(const char *model, const struct lora_spec *all, int count, int n)
{
    static const struct tern_lora_strength blocks[] = {{"text_encoder", 0.25}, {"down", 0.5}, {"mid", 0}, {"up", 2}};
    struct tern_context *ctx = support_context();
    struct tern_pipeline *p = model_load(ctx, model);
    struct lora_print *before = lora_print(ctx, p);
    lora_set(ctx, p, all, count); /* once, so that each op has its kernel */
    lora_set(ctx, p, NULL, 0);
    tern_memory_trim(ctx);
    size_t used = tern_memory_used(ctx);
    uint32_t random = 1;
    for (int i = 0; i < n; i++) {
        struct lora_spec list[3];
        int m = 0;
        for (; m < 3 && (random = random * 1664525u + 1013904223u) >> 30; m++) {
            random = random * 1664525u + 1013904223u;
            list[m] = (struct lora_spec){all[(random >> 24) % (uint32_t)count].file, (int)(random >> 19 & 31) / 8.0 - 1.5, blocks,
                                         random >> 12 & 3};
        }
        lora_set(ctx, p, list, m);
    }
    for (int i = 0; i < count; i++) {
        lora_set(ctx, p, &all[i], 1);
        struct lora_print *during = lora_print(ctx, p);
        assert_false(lora_print_same(before, during));
        lora_print_free(&during);
    }
    lora_set(ctx, p, NULL, 0);
    struct lora_print *after = lora_print(ctx, p);
    assert_true(lora_print_same(before, after));
    lora_print_free(&before);
    lora_print_free(&after);
    tern_memory_trim(ctx);
    assert_int_equal(tern_memory_used(ctx), used);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

static void widen(struct tern_context *ctx, const char *folder, const char *file)
{
    char path[2 * PATH_SIZE];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    struct tern_weights *old = tern_weights_open(ctx, path), *w = tern_weights_create(ctx);
    assert_non_null(old);
    for (int64_t i = 0; i < tern_weights_count(old); i++) {
        tern_tensor *t = tern_weights_at(old, i);
        t = tern_dtype_is_float(tern_tensor_dtype(t)) ? tern_cast(t, TERN_F32) : tern_tensor_ref(t);
        assert_int_equal(tern_weights_add(w, tern_weights_name(old, i), t), TERN_OK);
        tern_tensor_unref(&t);
    }
    assert_int_equal(tern_weights_save(w, path), TERN_OK);
    tern_weights_unref(&w);
    tern_weights_unref(&old);
}

void lora_wide_model(const char *model, char *folder)
{
    struct tern_context *ctx = support_context();
    damage_copy(model, folder);
    widen(ctx, folder, "unet/diffusion_pytorch_model.safetensors");
    widen(ctx, folder, "text_encoder/model.safetensors");
    if (!strcmp(model, "sdxl"))
        widen(ctx, folder, "text_encoder_2/model.safetensors");
    tern_context_destroy(&ctx);
}

void lora_temporary(char *folder)
{
    snprintf(folder, PATH_SIZE, "/tmp/tern-lora-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

void lora_copy(const char *file, const char *folder, const char *name)
{
    size_t n;
    char from[PATH_SIZE];
    snprintf(from, sizeof(from), "%s/lora", TERN_TEST_DATA);
    char *data = damage_read(from, file, &n);
    damage_text(folder, name, data, n);
    free(data);
}

static void add(struct tern_context *ctx, struct tern_weights *w, const char *name, int ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    float *v = malloc((size_t)n * sizeof(*v));
    for (int64_t i = 0; i < n; i++)
        v[i] = 0.1f * (float)(i % 7 - 3);
    tern_tensor *t = tern_tensor_create(ctx, TERN_F32, ndim, shape, v);
    assert_int_equal(tern_weights_add(w, name, t), TERN_OK);
    tern_tensor_unref(&t);
    free(v);
}

void lora_synthesise(struct tern_context *ctx, struct tern_pipeline *p, const char *path)
{
    static const char *const places[][3] = {
        {"unet", "down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k",
         "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn2_to_k"},
        {"unet", "mid_block.resnets.0.conv1", "lora_unet_mid_block_resnets_0_conv1"},
        {"text_encoder", "text_model.encoder.layers.0.self_attn.q_proj", "lora_te_text_model_encoder_layers_0_self_attn_q_proj"},
    };
    struct tern_weights *w = tern_weights_create(ctx);
    for (int i = 0; i < 3; i++) {
        char name[256];
        int64_t down[4], up[4] = {1, 1, 1, 1};
        snprintf(name, sizeof(name), "%s.weight", places[i][1]);
        const tern_tensor *t = tern_weights_get(tern_pipeline_weights(p, places[i][0]), name);
        assert_non_null(t);
        int ndim = tern_tensor_ndim(t);
        memcpy(down, tern_tensor_shape(t), (size_t)ndim * sizeof(*down));
        down[0] = 1;
        up[0] = tern_tensor_size(t, 0);
        snprintf(name, sizeof(name), "%s.lora_down.weight", places[i][2]);
        add(ctx, w, name, ndim, down);
        snprintf(name, sizeof(name), "%s.lora_up.weight", places[i][2]);
        add(ctx, w, name, ndim, up);
    }
    assert_int_equal(tern_weights_save(w, path), TERN_OK);
    tern_weights_unref(&w);
}

#define PARTS 3

struct lora_print {
    float *values[PARTS];
    int64_t count[PARTS];
};

static void run(struct tern_context *ctx, struct tern_pipeline *p, const char *component, const struct tern_weights *in, const char *output,
                struct lora_print *print, int i)
{
    struct tern_weights *out = model_exec(p, component, in);
    print->values[i] = support_f32(out, output, &print->count[i]);
    tern_weights_unref(&out);
}

static void run_text(struct tern_context *ctx, struct tern_pipeline *p, const char *component, struct lora_print *print, int i)
{
    const int64_t ids[] = {3, 7, 1, 9};
    struct tern_weights *w = tern_weights_create(ctx);
    tern_tensor *t = tern_tensor_create(ctx, TERN_I64, 2, (const int64_t[]){1, 4}, ids);
    assert_int_equal(tern_weights_add(w, "input_ids", t), TERN_OK);
    tern_tensor_unref(&t);
    run(ctx, p, component, w, "last_hidden_state", print, i);
    tern_weights_unref(&w);
}

struct lora_print *lora_print(struct tern_context *ctx, struct tern_pipeline *p)
{
    const struct tern_weights *unet = tern_pipeline_weights(p, "unet");
    const tern_tensor *in = tern_weights_get(unet, "conv_in.weight"),
                      *k = tern_weights_get(unet, "mid_block.attentions.0.transformer_blocks.0.attn2.to_k.weight");
    const bool xl = tern_weights_get(unet, "add_embedding.linear_1.weight");
    struct lora_print *print = calloc(1, sizeof(*print));
    struct tern_weights *w = tern_weights_create(ctx);
    add(ctx, w, "sample", 4, (const int64_t[]){1, tern_tensor_size(in, 1), 4, 6});
    add(ctx, w, "encoder_hidden_states", 3, (const int64_t[]){1, 5, tern_tensor_size(k, 1)});
    add(ctx, w, "timestep", 1, (const int64_t[]){1});
    if (xl) {
        const tern_tensor *pooled = tern_weights_get(tern_pipeline_weights(p, "text_encoder_2"), "text_projection.weight");
        add(ctx, w, "text_embeds", 2, (const int64_t[]){1, tern_tensor_size(pooled, 0)});
        add(ctx, w, "time_ids", 2, (const int64_t[]){1, 6});
    }
    run(ctx, p, "unet", w, "sample", print, 0);
    tern_weights_unref(&w);
    run_text(ctx, p, "text_encoder", print, 1);
    if (xl)
        run_text(ctx, p, "text_encoder_2", print, 2);
    return print;
}

bool lora_print_same(const struct lora_print *a, const struct lora_print *b)
{
    for (int i = 0; i < PARTS; i++)
        if (a->count[i] != b->count[i] || (a->count[i] && memcmp(a->values[i], b->values[i], (size_t)a->count[i] * sizeof(float))))
            return false;
    return true;
}

void lora_print_free(struct lora_print **print)
{
    for (int i = 0; i < PARTS; i++)
        free((*print)->values[i]);
    free(*print);
    *print = NULL;
}

float *lora_latents(struct tern_context *ctx, struct tern_pipeline *p, const struct tern_txt2img_params *q, int64_t *n, char **text)
{
    struct tern_images *images = tern_generate(p, q);
    if (!images)
        fail_msg("%s", tern_error(ctx));
    const tern_tensor *t = tern_images_latents(images);
    *n = tern_tensor_numel(t);
    float *out = malloc((size_t)*n * sizeof(*out));
    assert_int_equal(tern_tensor_read(t, TERN_F32, out, (size_t)*n * sizeof(*out)), TERN_OK);
    *text = strdup(tern_image_text(tern_images_at(images, 0), "parameters"));
    tern_images_destroy(&images);
    return out;
}

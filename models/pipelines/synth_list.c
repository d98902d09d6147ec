/* Which checkpoints are synthesised, and which tensors they have: that is asked of the same builders that load real ones. */
#include <stdio.h>
#include <string.h>

#include "models/pipelines/pipeline.h"
#include "models/pipelines/synth.h"
#include "models/pipelines/synth_configs.h"

#define SD_UNET "unet", "UNet2DConditionModel"
#define SD_VAE "vae", "AutoencoderKL"
#define SD_TEXT "text_encoder", "CLIPTextModel"

static const struct tern_ldm_sizes sd15_sizes = {4, 2, 0xe, 4, 0, TERN_LDM_SD1}, sd2_sizes = {4, 2, 0xe, 4, 24, TERN_LDM_SD2},
                                   sdxl_sizes = {3, 2, 0x3, 4, 32, TERN_LDM_XL};

static const struct tern_synth_arch archs[] = {
    {"sd15", sd15_index, sd15_scheduler, {{SD_UNET, sd15_unet}, {SD_VAE, sd15_vae}, {SD_TEXT, sd15_text_encoder}}, &sd15_sizes, NULL},
    {"sd2",
     sd2_index,
     sd2_scheduler,
     {{SD_UNET, sd2_unet}, {SD_VAE, sd15_vae}, {SD_TEXT, sd2_text_encoder, sd2_text_encoder_file}},
     &sd2_sizes,
     NULL,
     "v"},
    {"sdxl",
     sdxl_index,
     sdxl_scheduler,
     {{SD_UNET, sdxl_unet},
      {SD_VAE, sdxl_vae},
      {SD_TEXT, sdxl_text_encoder},
      {"text_encoder_2", "CLIPTextModelWithProjection", sdxl_text_encoder_2}},
     &sdxl_sizes,
     NULL},
    {"taiyi",
     taiyi_index,
     sd15_scheduler,
     {{SD_UNET, sd15_unet}, {SD_VAE, sd15_vae}, {"text_encoder", "BertModel", taiyi_text_encoder}},
     NULL,
     taiyi_tokenizer},
};
enum { ARCHS = sizeof(archs) / sizeof(*archs) };

const struct tern_synth_arch *tern_synth_arch_find(struct tern_context *ctx, const char *name)
{
    char list[128] = "";
    for (int i = 0; i < ARCHS; i++) {
        if (!strcmp(archs[i].name, name))
            return &archs[i];
        size_t n = strlen(list);
        snprintf(list + n, sizeof(list) - n, "%s%s", i ? i + 1 < ARCHS ? ", " : " or " : "", archs[i].name);
    }
    tern_fail(ctx, TERN_E_NOT_FOUND, "synth: architecture \"%.40s\" is not known; expected %s", name, list);
    return NULL;
}

static struct tern_safetensors_entry *grow(struct tern_synth_list *l)
{
    if (l->count == l->capacity) {
        int64_t n = l->capacity ? 2 * l->capacity : 512;
        void *p = tern_realloc(l->ctx, l->entry, (size_t)n * sizeof(*l->entry));
        if (!p)
            return NULL;
        l->entry = p;
        l->capacity = n;
    }
    return &l->entry[l->count];
}

static void list_tensor(void *user, const char *name, int ndim, const int64_t *shape)
{
    struct tern_synth_list *l = user;
    char ldm[TERN_LDM_NAME];
    struct tern_safetensors_entry *e = grow(l);
    if (!e)
        return;
    *e = (struct tern_safetensors_entry){.dtype = l->dtype, .ndim = ndim};
    memcpy(e->shape, shape, (size_t)ndim * sizeof(*shape));
    enum tern_ldm_form form = l->ldm ? tern_ldm_form(l->ldm, l->component, name, e, ldm) : TERN_LDM_SAME;
    if (form == TERN_LDM_UNKNOWN)
        tern_fail(l->ctx, TERN_E_INTERNAL, "synth: %s tensor \"%s\" has no LDM name", l->component, name);
    if (form == TERN_LDM_UNKNOWN || form == TERN_LDM_WITH_Q)
        return;
    e->name = tern_strdup(l->ctx, l->ldm ? ldm : name);
    l->count += e->name != NULL;
}

void tern_synth_list_add(struct tern_synth_list *l, const struct tern_synth_component *component)
{
    struct tern_bind b;
    struct tern_unet *unet = NULL;
    struct tern_vae *vae = NULL;
    struct tern_text_encoder *text = NULL;
    const char *name = component->name, *config = l->ldm && component->in_file ? component->in_file : component->config;
    l->component = name;
    tern_bind_begin_visit(&b, l->ctx, name, list_tensor, l);
    if (!strcmp(name, "unet"))
        unet = tern_unet_build(l->ctx, config, name, &b);
    else if (!strcmp(name, "vae"))
        vae = tern_vae_build(l->ctx, config, name, &b);
    else
        text = tern_text_encoder_build(l->ctx, component->class_name, config, name, &b);
    tern_unet_destroy(&unet);
    tern_vae_destroy(&vae);
    tern_text_encoder_destroy(&text);
}

void tern_synth_list_free(struct tern_synth_list *l)
{
    for (int64_t i = 0; i < l->count; i++)
        tern_free(l->ctx, (void *)(uintptr_t)l->entry[i].name);
    tern_free(l->ctx, l->entry);
    l->entry = NULL;
    l->count = l->capacity = 0;
}

/* As bert-base-chinese: [PAD], unused ones, [UNK] at 100. */
char *tern_synth_vocabulary(struct tern_context *ctx)
{
    enum { SIZE = 21128, SPECIAL = 104, LETTERS = 26, FIRST_IDEOGRAPH = 0x4e00, LINE = 16 };
    static const char *const special[] = {"[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    char *text = tern_alloc(ctx, (size_t)SIZE * LINE), *at = text;
    for (int i = 0; text && i < SIZE; i++) {
        int rest = i - SPECIAL, ideograph = FIRST_IDEOGRAPH + rest - ('~' - '!' + 1) - LETTERS;
        if (i < 100)
            at += snprintf(at, LINE, i ? "[unused%d]\n" : "[PAD]\n", i);
        else if (rest < 0)
            at += snprintf(at, LINE, "%s\n", special[i - 100]);
        else if (rest <= '~' - '!')
            at += snprintf(at, LINE, "%c\n", '!' + rest);
        else if (ideograph < FIRST_IDEOGRAPH)
            at += snprintf(at, LINE, "##%c\n", 'a' + LETTERS - (FIRST_IDEOGRAPH - ideograph));
        else
            at += snprintf(at, LINE, "%c%c%c\n", 0xe0 | ideograph >> 12, 0x80 | (ideograph >> 6 & 0x3f), 0x80 | (ideograph & 0x3f));
    }
    return text;
}

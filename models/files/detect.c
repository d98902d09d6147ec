/* What a single file is: its family and its VAE from the names and shapes of the tensors, written as the configuration files that a
 * diffusers folder has. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/json.h"
#include "core/tensor.h"
#include "models/files/detect.h"
#include "models/files/weights.h"

#define GROUPS 32 /* of group norms, in every published model */

const tern_tensor *tern_detect_get(const struct tern_detector *d, const char *fmt, ...)
{
    char name[TERN_LDM_NAME];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(name, sizeof(name), fmt, ap);
    va_end(ap);
    return n > 0 && (size_t)n < sizeof(name) ? tern_weights_get(d->w, name) : NULL;
}

int64_t tern_detect_size(const tern_tensor *t, int dim) { return t && dim < t->meta.ndim ? t->meta.shape[dim] : 0; }

enum tern_status tern_detect_odd(const struct tern_detector *d, const char *what)
{
    return tern_fail(d->ctx, TERN_E_FORMAT,
                     "%s: the tensors' names are a Stable Diffusion checkpoint's, but %s; it is damaged or of an unknown variant", d->where,
                     what);
}

int64_t tern_detect_heads(int64_t width)
{
    return width > 0 && width < TERN_CLIP_HEAD ? 1 : width % TERN_CLIP_HEAD ? 0 : width / TERN_CLIP_HEAD;
}

char *tern_detect_dump(struct tern_context *ctx, json_t *o)
{
    char *dumped = o ? tern_json_dumps(o, JSON_INDENT(2)) : NULL, *text = dumped ? tern_strdup(ctx, dumped) : NULL;
    if (!dumped)
        tern_fail(ctx, TERN_E_NO_MEMORY, "no memory for a configuration text");
    free(dumped);
    json_decref(o);
    return text;
}

json_t *tern_detect_ints(const int64_t *values, int n)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++)
        tern_json_append(&a, json_integer(values[i]));
    return a;
}

int tern_detect_groups(const int64_t *channels, int levels)
{
    int g = GROUPS;
    for (int i = 0; i < levels; i++) {
        if (channels[i] <= 0)
            return 0;
        while (channels[i] % g)
            g /= 2;
    }
    return g;
}

static json_t *repeated(const char *text, int n)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++)
        tern_json_append(&a, json_string(text));
    return a;
}

/* The VAE, when the file has one. */
static enum tern_status detect_vae(const struct tern_detector *d, struct tern_detected *out)
{
    int64_t channels[TERN_DETECT_LEVELS];
    int levels = 0, layers = 0;
    bool xl = out->sizes.family >= TERN_LDM_XL;
    const tern_tensor *conv_in = tern_detect_get(d, "first_stage_model.encoder.conv_in.weight"), *conv, *post;
    if (!conv_in && !tern_detect_get(d, "first_stage_model.decoder.conv_in.weight"))
        return TERN_OK;
    while ((conv = tern_detect_get(d, "first_stage_model.encoder.down.%d.block.0.conv1.weight", levels))) {
        if (levels == TERN_DETECT_LEVELS)
            return tern_detect_odd(d, "the VAE has too many levels");
        channels[levels++] = tern_detect_size(conv, 0);
    }
    while (layers < TERN_DETECT_LAYERS && tern_detect_get(d, "first_stage_model.encoder.down.0.block.%d.conv1.weight", layers))
        layers++;
    post = tern_detect_get(d, "first_stage_model.decoder.conv_in.weight");
    bool quant = tern_detect_get(d, "first_stage_model.quant_conv.weight"),
         post_quant = tern_detect_get(d, "first_stage_model.post_quant_conv.weight");
    if (!levels || !tern_detect_size(conv_in, 1) || !tern_detect_size(post, 1))
        return tern_detect_odd(d, "the VAE lacks its encoder or its decoder");
    if (!tern_detect_groups(channels, levels))
        return tern_detect_odd(d, "a level of the VAE has no channels");
    out->sizes.vae_levels = levels;
    out->vae = tern_detect_dump(
        d->ctx, json_pack("{s:s,s:s,s:o,s:o,s:I,s:I,s:i,s:b,s:i,s:I,s:i,s:f,s:o,s:b,s:b}", "_class_name", "AutoencoderKL", "act_fn", "silu",
                          "block_out_channels", tern_detect_ints(channels, levels), "down_block_types",
                          repeated("DownEncoderBlock2D", levels), "in_channels", (json_int_t)tern_detect_size(conv_in, 1),
                          "latent_channels", (json_int_t)tern_detect_size(post, 1), "layers_per_block", layers, "mid_block_add_attention",
                          tern_detect_get(d, "first_stage_model.encoder.mid.attn_1.q.weight") != NULL, "norm_num_groups",
                          tern_detect_groups(channels, levels), "out_channels",
                          (json_int_t)tern_detect_size(tern_detect_get(d, "first_stage_model.decoder.conv_out.weight"), 0), "sample_size",
                          xl ? 1024 : 512, "scaling_factor", xl ? 0.13025 : 0.18215, "up_block_types", repeated("UpDecoderBlock2D", levels),
                          "use_post_quant_conv", (int)post_quant, "use_quant_conv", (int)quant));
    return out->vae ? TERN_OK : TERN_E_NO_MEMORY;
}

/* Says what the file seems to be instead. */
static enum tern_status not_sd(const struct tern_detector *d)
{
    static const struct {
        const char *start, *what;
    } known[] = {
        {"lora_", "a LoRA, which goes on top of a checkpoint (--lora)"},
        {"down_blocks.", "the UNet of a diffusers folder; name the folder that holds model_index.json"},
        {"conv_in.", "the UNet of a diffusers folder; name the folder that holds model_index.json"},
        {"text_model.", "a text encoder alone; name the folder that holds model_index.json"},
        {"decoder.", "a VAE alone; name the checkpoint that it belongs to"},
        {"first_stage_model.", "a VAE alone; name the checkpoint that it belongs to"},
        {"model.diffusion_model.double_blocks.", "a Flux model"},
        {"double_blocks.", "a Flux model"},
        {"model.diffusion_model.joint_blocks.", "a Stable Diffusion 3 model"},
    };
    char text[TERN_PRINTABLE];
    for (size_t k = 0; k < sizeof(known) / sizeof(*known); k++)
        for (int64_t i = 0; i < d->w->count; i++)
            if (!strncmp(d->w->entries[i].name, known[k].start, strlen(known[k].start)))
                return tern_fail(d->ctx, TERN_E_UNSUPPORTED, "%s: not a Stable Diffusion checkpoint in one file, but %s", d->where,
                                 known[k].what);
    const char *first = d->w->count ? d->w->entries[0].name : "";
    return tern_fail(d->ctx, TERN_E_UNSUPPORTED,
                     "%s: not a Stable Diffusion checkpoint in one file: expected a tensor "
                     "\"model.diffusion_model.input_blocks.0.0.weight\", found %lld "
                     "tensors such as \"%s\"",
                     d->where, (long long)d->w->count, tern_printable(first, strlen(first), text));
}

/* By the names of the text encoders; a UNet that is told more than the time is SDXL's, if it has them. */
static enum tern_status detect_family(const struct tern_detector *d, enum tern_ldm_family *family)
{
    if (!tern_detect_get(d, "model.diffusion_model.label_emb.0.0.weight"))
        *family = tern_detect_get(d, "cond_stage_model.model.ln_final.weight") ? TERN_LDM_SD2 : TERN_LDM_SD1;
    else if (tern_detect_get(d, "conditioner.embedders.1.model.ln_final.weight"))
        *family = TERN_LDM_XL;
    else if (tern_detect_get(d, "conditioner.embedders.0.model.ln_final.weight"))
        *family = TERN_LDM_REFINER;
    else
        return tern_fail(
            d->ctx, TERN_E_UNSUPPORTED,
            "%s: the UNet is that of Stable Diffusion XL or of another model with labels, and the file lacks SDXL's text encoders: "
            "expected \"conditioner.embedders.1.model.ln_final.weight\"; its diffusers folder would help",
            d->where);
    return TERN_OK;
}

static const char *pipeline_name(const struct tern_detector *d, enum tern_ldm_family family)
{
    static const char *const names[2][3] = {
        {"StableDiffusionPipeline", "StableDiffusionInpaintPipeline", "StableDiffusionInstructPix2PixPipeline"},
        {"StableDiffusionXLPipeline", "StableDiffusionXLInpaintPipeline", "StableDiffusionXLInstructPix2PixPipeline"}};
    const int64_t channels = tern_detect_size(tern_detect_get(d, TERN_DETECT_FIRST), 1);
    if (family == TERN_LDM_REFINER)
        return "StableDiffusionXLImg2ImgPipeline";
    return names[family == TERN_LDM_XL][channels == 9 ? 1 : channels == 8 ? 2 : 0];
}

enum tern_status tern_detect_sd(struct tern_context *ctx, const struct tern_weights *w, const char *where, struct tern_detected *out)
{
    const struct tern_detector d = {ctx, w, where};
    *out = (struct tern_detected){0};
    if (!tern_detect_get(&d, TERN_DETECT_FIRST))
        return not_sd(&d);
    enum tern_status st = detect_family(&d, &out->sizes.family);
    if (st)
        return st;
    out->pipeline = pipeline_name(&d, out->sizes.family);
    st = tern_detect_unet(&d, out);
    if (!st)
        st = detect_vae(&d, out);
    if (!st)
        st = tern_detect_text(&d, out);
    if (st)
        tern_detected_free(ctx, out);
    return st;
}

enum tern_status tern_detect_vae(struct tern_context *ctx, const struct tern_weights *w, const char *where, struct tern_detected *out)
{
    const struct tern_detector d = {ctx, w, where};
    enum tern_status st = detect_vae(&d, out);
    return st || out->vae ? st : tern_detect_odd(&d, "the VAE's first convolutions are missing");
}

void tern_detected_free(struct tern_context *ctx, struct tern_detected *d)
{
    tern_free(ctx, d->unet);
    tern_free(ctx, d->vae);
    tern_free(ctx, d->text_encoder);
    tern_free(ctx, d->text_encoder_2);
    tern_free(ctx, d->scheduler);
    *d = (struct tern_detected){0};
}

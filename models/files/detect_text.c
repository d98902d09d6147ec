/* The text encoders of a single file: their sizes, as the config.json that a diffusers folder has. */
#include "core/context.h"
#include "models/files/detect.h"

#define MAX_LAYERS 1000
#define SD2_LAYERS 23 /* that SD 2 uses, of OpenCLIP's 24 */

/* What a CLIP text encoder's config.json says. */
struct clip {
    const char *class_name, *act;
    int64_t vocab, positions, hidden, inner, projection;
    int layers;
};

static char *clip_config(const struct tern_detector *d, const struct clip *c)
{
    return tern_detect_dump(
        d->ctx, json_pack("{s:[s],s:i,s:i,s:s,s:I,s:I,s:f,s:I,s:s,s:I,s:i,s:i,s:I,s:I}", "architectures", c->class_name, "bos_token_id", 0,
                          "eos_token_id", 2, "hidden_act", c->act, "hidden_size", (json_int_t)c->hidden, "intermediate_size",
                          (json_int_t)c->inner, "layer_norm_eps", 1e-5, "max_position_embeddings", (json_int_t)c->positions, "model_type",
                          "clip_text_model", "num_attention_heads", (json_int_t)tern_detect_heads(c->hidden), "num_hidden_layers",
                          c->layers, "pad_token_id", 1, "projection_dim", (json_int_t)c->projection, "vocab_size", (json_int_t)c->vocab));
}

static enum tern_status check(const struct tern_detector *d, const struct clip *c)
{
    if (c->layers < 1 || !c->inner || !tern_detect_heads(c->hidden) || !c->positions)
        return tern_detect_odd(d, "the text encoder is no CLIP with heads of 64 channels");
    return TERN_OK;
}

/* OpenAI's CLIP, as in SD 1.x. */
static enum tern_status detect_clip(const struct tern_detector *d, const char *prefix, char **config)
{
    const tern_tensor *token = tern_detect_get(d, "%sembeddings.token_embedding.weight", prefix),
                      *position = tern_detect_get(d, "%sembeddings.position_embedding.weight", prefix);
    struct clip c = {.class_name = "CLIPTextModel",
                     .act = "quick_gelu",
                     .vocab = tern_detect_size(token, 0),
                     .positions = tern_detect_size(position, 0),
                     .hidden = tern_detect_size(token, 1),
                     .inner = tern_detect_size(tern_detect_get(d, "%sencoder.layers.0.mlp.fc1.weight", prefix), 0)};
    c.projection = c.hidden;
    while (c.layers < MAX_LAYERS && tern_detect_get(d, "%sencoder.layers.%d.self_attn.q_proj.weight", prefix, c.layers))
        c.layers++;
    if (!token || check(d, &c))
        return tern_error_status(d->ctx);
    *config = clip_config(d, &c);
    return *config ? TERN_OK : TERN_E_NO_MEMORY;
}

int64_t tern_detect_pooled(const struct tern_detector *d, const char *prefix)
{
    const tern_tensor *open_clip = tern_detect_get(d, "%stext_projection", prefix);
    return open_clip ? tern_detect_size(open_clip, 1) : tern_detect_size(tern_detect_get(d, "%stext_projection.weight", prefix), 0);
}

/* OpenCLIP. SD 2 is conditioned by the last but one layer's result, so its last layer is left out, unless the file has been written of a
 * diffusers folder, which lacks it; SDXL pools the last one's, too, and projects it. */
static enum tern_status detect_open_clip(const struct tern_detector *d, const char *prefix, struct tern_ldm_sizes *sizes, char **config)
{
    bool xl = sizes->family != TERN_LDM_SD2;
    const tern_tensor *token = tern_detect_get(d, "%stoken_embedding.weight", prefix);
    struct clip c = {.class_name = xl ? "CLIPTextModelWithProjection" : "CLIPTextModel",
                     .act = "gelu",
                     .vocab = tern_detect_size(token, 0),
                     .positions = tern_detect_size(tern_detect_get(d, "%spositional_embedding", prefix), 0),
                     .hidden = tern_detect_size(token, 1),
                     .inner = tern_detect_size(tern_detect_get(d, "%stransformer.resblocks.0.mlp.c_fc.weight", prefix), 0),
                     .projection = xl ? tern_detect_pooled(d, prefix) : 512};
    while (c.layers < MAX_LAYERS && tern_detect_get(d, "%stransformer.resblocks.%d.ln_1.weight", prefix, c.layers))
        c.layers++;
    c.layers -= !xl && c.layers != SD2_LAYERS;
    if (!token || check(d, &c))
        return tern_error_status(d->ctx);
    sizes->open_clip_layers = c.layers;
    *config = clip_config(d, &c);
    return *config ? TERN_OK : TERN_E_NO_MEMORY;
}

enum tern_status tern_detect_text(const struct tern_detector *d, struct tern_detected *out)
{
    static const char *const first[][2] = {
        [TERN_LDM_SD1] = {"cond_stage_model.transformer.text_model.", "cond_stage_model.transformer."},
        [TERN_LDM_XL] = {"conditioner.embedders.0.transformer.text_model.", "conditioner.embedders.0.transformer."},
    };
    enum tern_ldm_family family = out->sizes.family;
    if (family == TERN_LDM_SD2)
        return detect_open_clip(d, "cond_stage_model.model.", &out->sizes, &out->text_encoder);
    if (family == TERN_LDM_REFINER)
        return detect_open_clip(d, "conditioner.embedders.0.model.", &out->sizes, &out->text_encoder_2);
    bool shorter = !tern_detect_get(d, "%sembeddings.token_embedding.weight", first[family][0]);
    enum tern_status st = detect_clip(d, first[family][shorter], &out->text_encoder);
    return st || family != TERN_LDM_XL ? st : detect_open_clip(d, "conditioner.embedders.1.model.", &out->sizes, &out->text_encoder_2);
}

/* The UNet of a single file: its sizes, as the config.json that a diffusers folder has, and the scheduler that goes with it. */
#include <stdio.h>

#include "core/context.h"
#include "core/json.h"
#include "core/tensor.h"
#include "models/files/detect.h"

#define MAX_DEPTH 64
#define SD1_HEADS 8

struct unet {
    int levels, layers, attends; /* attends: the last input block with attention */
    bool mid;
    int64_t channels[TERN_DETECT_LEVELS], depth[TERN_DETECT_LEVELS]; /* depth: transformer blocks, 0 where a level has no attention */
    int64_t in_channels, out_channels, context, mid_depth;
    bool linear, v;          /* v: it predicts v, not the noise */
    int64_t added, time_ids; /* SDXL: width of the pooled text with all its time ids, and of one; else 0 */
};

/* Consecutive transformer blocks below an attention's name. */
static int64_t count_depth(const struct tern_detector *d, const char *attention)
{
    int64_t n = 0;
    while (n < MAX_DEPTH && tern_detect_get(d, "%stransformer_blocks.%d.norm1.weight", attention, (int)n))
        n++;
    return n;
}

/* Input blocks in a row: resnets of one level, a downsampling, those of the next. */
static enum tern_status walk_input_blocks(const struct tern_detector *d, struct unet *u)
{
    char attention[TERN_LDM_NAME];
    int layers = 0;
    u->levels = 1;
    for (int b = 1; b < TERN_DETECT_LEVELS * (TERN_DETECT_LAYERS + 1); b++) {
        const tern_tensor *conv = tern_detect_get(d, "model.diffusion_model.input_blocks.%d.0.in_layers.2.weight", b);
        int level = u->levels - 1;
        if (conv) {
            snprintf(attention, sizeof(attention), "model.diffusion_model.input_blocks.%d.1.", b);
            u->channels[level] = tern_detect_size(conv, 0);
            u->depth[level] = count_depth(d, attention);
            u->attends = u->depth[level] ? b : u->attends;
            if (++layers > TERN_DETECT_LAYERS)
                return tern_detect_odd(d, "a level of the UNet has too many layers");
            continue;
        }
        if ((u->layers && layers != u->layers) || !layers)
            return tern_detect_odd(d, "the levels of the UNet differ in their number of layers");
        u->layers = layers;
        layers = 0;
        if (!tern_detect_get(d, "model.diffusion_model.input_blocks.%d.0.op.weight", b))
            return TERN_OK;
        if (++u->levels > TERN_DETECT_LEVELS)
            break;
    }
    return tern_detect_odd(d, "the UNet has too many levels");
}

/* SDXL's UNet is told the pooled text and six numbers (the refiner's: five), each as sinusoids of one width.    [Podell 2023, 2.2] */
static enum tern_status measure_added(const struct tern_detector *d, enum tern_ldm_family family, struct unet *u)
{
    int64_t numbers = family == TERN_LDM_REFINER ? 5 : 6;
    int64_t pooled = tern_detect_pooled(d, family == TERN_LDM_XL ? "conditioner.embedders.1.model." : "conditioner.embedders.0.model.");
    u->added = tern_detect_size(tern_detect_get(d, "model.diffusion_model.label_emb.0.0.weight"), 1);
    u->time_ids = (u->added - pooled) / numbers;
    if (!pooled || u->time_ids < 2 || u->added != pooled + numbers * u->time_ids)
        return tern_detect_odd(d, "its UNet's label_emb does not fit the pooled text of its text encoder");
    return TERN_OK;
}

static enum tern_status measure_unet(const struct tern_detector *d, enum tern_ldm_family family, struct unet *u)
{
    const tern_tensor *in = tern_detect_get(d, TERN_DETECT_FIRST), *out = tern_detect_get(d, "model.diffusion_model.out.2.weight");
    enum tern_status st = walk_input_blocks(d, u);
    if (st)
        return st;
    u->in_channels = tern_detect_size(in, 1);
    u->out_channels = tern_detect_size(out, 0);
    char attention[TERN_LDM_NAME] = "model.diffusion_model.middle_block.1.";
    u->mid =
        tern_detect_get(d, "%sproj_in.weight", attention) || tern_detect_get(d, "model.diffusion_model.middle_block.0.in_layers.2.weight");
    if (!u->mid) /* not a tensor of it; of half a block the rest is missed later */
        snprintf(attention, sizeof(attention), "model.diffusion_model.input_blocks.%d.1.", u->attends);
    u->mid_depth = count_depth(d, attention);
    u->context = tern_detect_size(tern_detect_get(d, "%stransformer_blocks.0.attn2.to_k.weight", attention), 1);
    const tern_tensor *proj = tern_detect_get(d, "%sproj_in.weight", attention);
    u->linear = proj && proj->meta.ndim == 2;
    if (family >= TERN_LDM_XL && measure_added(d, family, u))
        return tern_error_status(d->ctx);
    if (!u->in_channels || !u->out_channels || !u->context)
        return tern_detect_odd(d, "the UNet's first or last convolution or its attention is missing");
    return tern_detect_groups(u->channels, u->levels) ? TERN_OK : tern_detect_odd(d, "a level of the UNet has no channels");
}

/* Heads: SD 1.x has 8 on every level; since SD 2, which made the projections linear, a head has 64 channels. diffusers'
 * key attention_head_dim holds the number of heads. */
static json_t *heads(const struct unet *u)
{
    int64_t n[TERN_DETECT_LEVELS];
    for (int i = 0; i < u->levels; i++)
        n[i] = tern_detect_heads(u->channels[i]);
    return u->linear ? tern_detect_ints(n, u->levels) : json_integer(SD1_HEADS);
}

/* SD 2.1 for 768 pixels. */
static bool is_sd2_768(const struct unet *u) { return !u->added && u->linear && u->in_channels == 4 && u->v; }

/* In latents, as the published models were trained: SDXL at 1024, SD 2.1 at 768, its base, its inpainting and all of SD 1.x at 512. */
static int sample_size(const struct unet *u) { return u->added ? 128 : is_sd2_768(u) ? 96 : 64; }

static char *unet_config(const struct tern_detector *d, const struct unet *u)
{
    json_t *down = json_array(), *up = json_array(), *depths = json_array();
    for (int i = 0; i < u->levels; i++) {
        bool last = u->depth[u->levels - 1 - i];
        tern_json_append(&down, json_string(u->depth[i] ? "CrossAttnDownBlock2D" : "DownBlock2D"));
        tern_json_append(&up, json_string(last ? "CrossAttnUpBlock2D" : "UpBlock2D"));
        tern_json_append(&depths, json_integer(u->depth[i] ? u->depth[i] : i == u->levels - 1 ? u->mid_depth : 1));
    }
    json_t *o =
        json_pack("{s:s,s:s,s:o,s:o,s:b,s:I,s:o,s:i,s:b,s:i,s:I,s:i,s:i,s:f,s:i,s:I,s:i,s:o,s:o,s:b}", "_class_name",
                  "UNet2DConditionModel", "act_fn", "silu", "attention_head_dim", heads(u), "block_out_channels",
                  tern_detect_ints(u->channels, u->levels), "center_input_sample", 0, "cross_attention_dim", (json_int_t)u->context,
                  "down_block_types", down, "downsample_padding", 1, "flip_sin_to_cos", 1, "freq_shift", 0, "in_channels",
                  (json_int_t)u->in_channels, "layers_per_block", u->layers, "mid_block_scale_factor", 1, "norm_eps", 1e-5,
                  "norm_num_groups", tern_detect_groups(u->channels, u->levels), "out_channels", (json_int_t)u->out_channels, "sample_size",
                  sample_size(u), "transformer_layers_per_block", depths, "up_block_types", up, "use_linear_projection", (int)u->linear);
    if (is_sd2_768(u)) /* as published: its scores may leave the range of f16, in which diffusers would keep them */
        tern_json_set(&o, "upcast_attention", json_true());
    if (!u->mid)
        tern_json_set(&o, "mid_block_type", json_null());
    if (u->added) {
        tern_json_set(&o, "addition_embed_type", json_string("text_time"));
        tern_json_set(&o, "addition_time_embed_dim", json_integer(u->time_ids));
        tern_json_set(&o, "projection_class_embeddings_input_dim", json_integer(u->added));
    }
    return tern_detect_dump(d->ctx, o);
}

enum tern_status tern_detect_unet(const struct tern_detector *d, struct tern_detected *out)
{
    struct unet u = {0};
    enum tern_ldm_family family = out->sizes.family;
    if (measure_unet(d, family, &u))
        return tern_error_status(d->ctx);
    u.v = tern_detect_predicts_v(d, family < TERN_LDM_XL && u.linear && u.in_channels == 4);
    out->sizes.unet_levels = u.levels;
    out->sizes.unet_layers = u.layers;
    for (int i = 0; i < u.levels; i++)
        out->sizes.unet_up_attention |= (u.depth[u.levels - 1 - i] ? 1u : 0u) << i;
    out->unet = unet_config(d, &u);
    out->scheduler = family >= TERN_LDM_XL ? tern_detect_scheduler_xl(d, u.v)
                     : u.linear            ? tern_detect_scheduler_sd2(d->ctx, u.v)
                                           : tern_detect_scheduler_sd1(d->ctx, u.v);
    return tern_error_status(d->ctx);
}

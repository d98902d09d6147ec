/* What a single file is: the sizes of UNet, VAE and text encoder from the names and shapes of its tensors, written as the
 * configuration files that a diffusers folder has. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/detect.h"
#include "models/files/weights.h"

#define MAX_LEVELS 8
#define MAX_LAYERS 16
#define MAX_DEPTH 64
#define GROUPS 32 /* of group norms, in every published model */
#define SD1_HEADS 8

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
    char *text = NULL;
    size_t n = o ? json_dumpb(o, NULL, 0, JSON_INDENT(2)) : 0;
    if (n && (text = tern_alloc(ctx, n + 1))) {
        json_dumpb(o, text, n, JSON_INDENT(2));
        text[n] = 0;
    } else if (!n) {
        tern_fail(ctx, TERN_E_NO_MEMORY, "no memory for a configuration text");
    }
    json_decref(o);
    return text;
}

static json_t *ints(const int64_t *values, int n)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(a, json_integer(values[i]));
    return a;
}

static json_t *repeated(const char *text, int n)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(a, json_string(text));
    return a;
}

/* Groups of the norms: 32, or what of it divides all levels in smaller models. 0: a level without channels. */
static int groups(const int64_t *channels, int levels)
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

struct unet {
    int levels, layers;
    int64_t channels[MAX_LEVELS], depth[MAX_LEVELS]; /* depth: transformer blocks, 0 where a level has no attention */
    int64_t in_channels, out_channels, context, mid_depth;
    bool linear, labels;
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
    for (int b = 1; b < MAX_LEVELS * (MAX_LAYERS + 1); b++) {
        const tern_tensor *conv = tern_detect_get(d, "model.diffusion_model.input_blocks.%d.0.in_layers.2.weight", b);
        int level = u->levels - 1;
        if (conv) {
            snprintf(attention, sizeof(attention), "model.diffusion_model.input_blocks.%d.1.", b);
            u->channels[level] = tern_detect_size(conv, 0);
            u->depth[level] = count_depth(d, attention);
            if (++layers > MAX_LAYERS)
                return tern_detect_odd(d, "a level of the UNet has too many layers");
            continue;
        }
        if ((u->layers && layers != u->layers) || !layers)
            return tern_detect_odd(d, "the levels of the UNet differ in their number of layers");
        u->layers = layers;
        layers = 0;
        if (!tern_detect_get(d, "model.diffusion_model.input_blocks.%d.0.op.weight", b))
            return TERN_OK;
        if (++u->levels > MAX_LEVELS)
            break;
    }
    return tern_detect_odd(d, "the UNet has too many levels");
}

static enum tern_status measure_unet(const struct tern_detector *d, struct unet *u)
{
    const tern_tensor *in = tern_detect_get(d, "model.diffusion_model.input_blocks.0.0.weight"),
                      *out = tern_detect_get(d, "model.diffusion_model.out.2.weight");
    enum tern_status st = walk_input_blocks(d, u);
    if (st)
        return st;
    u->in_channels = tern_detect_size(in, 1);
    u->out_channels = tern_detect_size(out, 0);
    u->mid_depth = count_depth(d, "model.diffusion_model.middle_block.1.");
    u->context = tern_detect_size(tern_detect_get(d, "model.diffusion_model.middle_block.1.transformer_blocks.0.attn2.to_k.weight"), 1);
    const tern_tensor *proj = tern_detect_get(d, "model.diffusion_model.middle_block.1.proj_in.weight");
    u->linear = proj && proj->meta.ndim == 2;
    u->labels = tern_detect_get(d, "model.diffusion_model.label_emb.0.0.weight");
    if (!u->in_channels || !u->out_channels || !u->context)
        return tern_detect_odd(d, "the UNet's first or last convolution or its middle attention is missing");
    return groups(u->channels, u->levels) ? TERN_OK : tern_detect_odd(d, "a level of the UNet has no channels");
}

/* Heads: SD 1.x has 8 on every level; since SD 2, which made the projections linear, a head has 64 channels. diffusers'
 * key attention_head_dim holds the number of heads. */
static json_t *heads(const struct unet *u)
{
    int64_t n[MAX_LEVELS];
    for (int i = 0; i < u->levels; i++)
        n[i] = tern_detect_heads(u->channels[i]);
    return u->linear ? ints(n, u->levels) : json_integer(SD1_HEADS);
}

/* In latents, as the published models were trained: SD 2.1 at 768, its inpainting and all of SD 1.x at 512. */
static int sample_size(const struct unet *u) { return u->linear && u->in_channels == 4 ? 96 : 64; }

static char *unet_config(const struct tern_detector *d, const struct unet *u)
{
    json_t *down = json_array(), *up = json_array(), *depths = json_array();
    for (int i = 0; i < u->levels; i++) {
        bool last = u->depth[u->levels - 1 - i];
        json_array_append_new(down, json_string(u->depth[i] ? "CrossAttnDownBlock2D" : "DownBlock2D"));
        json_array_append_new(up, json_string(last ? "CrossAttnUpBlock2D" : "UpBlock2D"));
        json_array_append_new(depths, json_integer(u->depth[i] ? u->depth[i] : i == u->levels - 1 ? u->mid_depth : 1));
    }
    return tern_detect_dump(d->ctx,
                            json_pack("{s:s,s:s,s:o,s:o,s:b,s:I,s:o,s:i,s:b,s:i,s:I,s:i,s:i,s:f,s:i,s:I,s:i,s:o,s:o,s:b}", "_class_name",
                                      "UNet2DConditionModel", "act_fn", "silu", "attention_head_dim", heads(u), "block_out_channels",
                                      ints(u->channels, u->levels), "center_input_sample", 0, "cross_attention_dim", (json_int_t)u->context,
                                      "down_block_types", down, "downsample_padding", 1, "flip_sin_to_cos", 1, "freq_shift", 0,
                                      "in_channels", (json_int_t)u->in_channels, "layers_per_block", u->layers, "mid_block_scale_factor", 1,
                                      "norm_eps", 1e-5, "norm_num_groups", groups(u->channels, u->levels), "out_channels",
                                      (json_int_t)u->out_channels, "sample_size", sample_size(u), "transformer_layers_per_block", depths,
                                      "up_block_types", up, "use_linear_projection", (int)u->linear));
}

/* The VAE, when the file has one. */
static enum tern_status detect_vae(const struct tern_detector *d, struct tern_detected *out)
{
    int64_t channels[MAX_LEVELS];
    int levels = 0, layers = 0;
    const tern_tensor *conv_in = tern_detect_get(d, "first_stage_model.encoder.conv_in.weight"), *conv, *post;
    if (!conv_in && !tern_detect_get(d, "first_stage_model.decoder.conv_in.weight"))
        return TERN_OK;
    while ((conv = tern_detect_get(d, "first_stage_model.encoder.down.%d.block.0.conv1.weight", levels))) {
        if (levels == MAX_LEVELS)
            return tern_detect_odd(d, "the VAE has too many levels");
        channels[levels++] = tern_detect_size(conv, 0);
    }
    while (layers < MAX_LAYERS && tern_detect_get(d, "first_stage_model.encoder.down.0.block.%d.conv1.weight", layers))
        layers++;
    post = tern_detect_get(d, "first_stage_model.decoder.conv_in.weight");
    bool quant = tern_detect_get(d, "first_stage_model.quant_conv.weight"),
         post_quant = tern_detect_get(d, "first_stage_model.post_quant_conv.weight");
    if (!levels || !tern_detect_size(conv_in, 1) || !tern_detect_size(post, 1))
        return tern_detect_odd(d, "the VAE lacks its encoder or its decoder");
    if (!groups(channels, levels))
        return tern_detect_odd(d, "a level of the VAE has no channels");
    out->sizes.vae_levels = levels;
    out->vae =
        tern_detect_dump(d->ctx,
                         json_pack("{s:s,s:s,s:o,s:o,s:I,s:I,s:i,s:b,s:i,s:I,s:i,s:f,s:o,s:b,s:b}", "_class_name", "AutoencoderKL",
                                   "act_fn", "silu", "block_out_channels", ints(channels, levels), "down_block_types",
                                   repeated("DownEncoderBlock2D", levels), "in_channels", (json_int_t)tern_detect_size(conv_in, 1),
                                   "latent_channels", (json_int_t)tern_detect_size(post, 1), "layers_per_block", layers,
                                   "mid_block_add_attention", tern_detect_get(d, "first_stage_model.encoder.mid.attn_1.q.weight") != NULL,
                                   "norm_num_groups", groups(channels, levels), "out_channels",
                                   (json_int_t)tern_detect_size(tern_detect_get(d, "first_stage_model.decoder.conv_out.weight"), 0),
                                   "sample_size", 512, "scaling_factor", 0.18215, "up_block_types", repeated("UpDecoderBlock2D", levels),
                                   "use_post_quant_conv", (int)post_quant, "use_quant_conv", (int)quant));
    return out->vae ? TERN_OK : TERN_E_NO_MEMORY;
}

/* As scheduler_config.json of Stable Diffusion 1.5. */
static char *sd1_scheduler(struct tern_context *ctx)
{
    return tern_detect_dump(ctx, json_pack("{s:s,s:s,s:f,s:s,s:f,s:i,s:b,s:b,s:i,s:n,s:b}", "_class_name", "PNDMScheduler",
                                           "_diffusers_version", "0.6.0", "beta_end", 0.012, "beta_schedule", "scaled_linear", "beta_start",
                                           0.00085, "num_train_timesteps", 1000, "set_alpha_to_one", 0, "skip_prk_steps", 1, "steps_offset",
                                           1, "trained_betas", "clip_sample", 0));
}

/* As scheduler_config.json of Stable Diffusion 2.1. Nothing in a file tells what is predicted: diffusers, too, takes every
 * file of SD 2 to be the one for 768 pixels, which predicts v; the inpainting model predicts the noise. */
static char *sd2_scheduler(struct tern_context *ctx, bool inpaint)
{
    return tern_detect_dump(ctx, json_pack("{s:s,s:s,s:f,s:s,s:f,s:b,s:i,s:s,s:b,s:b,s:i,s:n}", "_class_name", "DDIMScheduler",
                                           "_diffusers_version", "0.8.0", "beta_end", 0.012, "beta_schedule", "scaled_linear", "beta_start",
                                           0.00085, "clip_sample", 0, "num_train_timesteps", 1000, "prediction_type",
                                           inpaint ? "epsilon" : "v_prediction", "set_alpha_to_one", 0, "skip_prk_steps", 1, "steps_offset",
                                           1, "trained_betas"));
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

enum tern_status tern_detect_sd(struct tern_context *ctx, const struct tern_weights *w, const char *where, struct tern_detected *out)
{
    const struct tern_detector d = {ctx, w, where};
    struct unet u = {0};
    *out = (struct tern_detected){0};
    if (!tern_detect_get(&d, "model.diffusion_model.input_blocks.0.0.weight"))
        return not_sd(&d);
    enum tern_status st = measure_unet(&d, &u);
    if (!st && u.labels)
        st = tern_fail(ctx, TERN_E_UNSUPPORTED, "%s: a Stable Diffusion XL checkpoint in one file; its diffusers folder would help", where);
    if (st)
        return st;
    out->pipeline = u.in_channels == 9 ? "StableDiffusionInpaintPipeline" : "StableDiffusionPipeline";
    out->sizes = (struct tern_ldm_sizes){.unet_levels = u.levels, .unet_layers = u.layers};
    for (int i = 0; i < u.levels; i++)
        out->sizes.unet_up_attention |= (u.depth[u.levels - 1 - i] ? 1u : 0u) << i;
    out->unet = unet_config(&d, &u);
    out->scheduler = u.linear ? sd2_scheduler(ctx, u.in_channels == 9) : sd1_scheduler(ctx);
    st = out->unet && out->scheduler ? detect_vae(&d, out) : TERN_E_NO_MEMORY;
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
    tern_free(ctx, d->scheduler);
    *d = (struct tern_detected){0};
}

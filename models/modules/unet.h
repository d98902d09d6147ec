/* UNet2DConditionModel of diffusers: SD 1.x, and SD 2.x and SDXL by configuration.        [Rombach 2022; Podell 2023] */
#ifndef TERN_MODELS_UNET_H
#define TERN_MODELS_UNET_H

#include "models/modules/config.h"
#include "models/modules/layers.h"

#define TERN_MAX_UNET_LAYERS 8
#define TERN_UNET_MAX_ROWS 128 /* of a batch: 64 pictures with guidance */

struct tern_unet_config {
    int blocks;
    int64_t in_channels, out_channels, channels[TERN_MAX_BLOCKS];
    bool cross_down[TERN_MAX_BLOCKS], cross_up[TERN_MAX_BLOCKS];
    bool mid;                        /* false: none between the way down and the way up (BK-SDM) */
    int64_t layers[TERN_MAX_BLOCKS]; /* resnets of a down block; an up block has one more */
    int64_t heads[TERN_MAX_BLOCKS], depth[TERN_MAX_BLOCKS], context[TERN_MAX_BLOCKS];
    int64_t up_depth[TERN_MAX_BLOCKS];
    bool linear_projection, flip_sin_to_cos, center_input;
    double freq_shift, eps;
    int groups, downsample_padding;
    enum tern_activation act;
    int64_t sample_h, sample_w; /* latent size of the training pictures */
    bool doubtful_size;         /* one number below 64, in a file from before diffusers 0.9, whose own models were trained at 64 */
    int64_t time_ids, pooled;   /* SDXL's "text_time" embedding: width of one time id; width of its input. 0: none */
    int64_t guidance;           /* width of the embedding of the guidance scale, which distilled models are told; 0: they are not */
};

/* One transformer block: self attention, cross attention, gated feed-forward.     [Vaswani 2017; Shazeer 2020] */
struct tern_transformer_block {
    struct tern_layer norm1, norm2, norm3, gate, out;
    struct tern_attention self, cross;
};

struct tern_transformer {
    struct tern_layer norm, in, out;
    struct tern_transformer_block *block;
    int depth, groups;
    bool linear;
};

struct tern_unet_block {
    struct tern_resnet resnet[TERN_MAX_UNET_LAYERS];
    struct tern_transformer *attention[TERN_MAX_UNET_LAYERS]; /* NULL: none */
    int layers;
    struct tern_layer sample; /* down- or upsampler; w NULL: none */
};

struct tern_unet {
    struct tern_context *ctx;
    struct tern_weights *weights; /* its tensors by name */
    struct tern_unet_config config;
    struct tern_layer conv_in, time1, time2, guidance, add1, add2, norm_out, conv_out;
    struct tern_unet_block down[TERN_MAX_BLOCKS], mid, up[TERN_MAX_BLOCKS];
};

enum tern_status tern_unet_read_config(struct tern_context *ctx, const char *config, const char *where, struct tern_unet_config *out);
struct tern_unet *tern_unet_create(struct tern_context *ctx, const char *config, const char *where, const struct tern_weights *weights);
/* The same on any binding; what it holds after an error is to be destroyed. */
struct tern_unet *tern_unet_build(struct tern_context *ctx, const char *config, const char *where, struct tern_bind *b);
void tern_unet_destroy(struct tern_unet **m);

/* What a forward pass takes besides the sample: computed on the host, because it depends on numbers and not on tensors.
 * time: (n_timesteps, channels[0]) sinusoids, behind them in a model that is told the guidance scale those of it. added: SDXL's (N, P) text
 * embedding and sinusoids of the time ids; else NULL. */
struct tern_unet_conditions {
    tern_tensor *time, *added;
};
/* timesteps: one for each row of the sample, or one for all. guidance: the scale, for models that are told it [Luo 2023]. text_embeds (N,
 * P') and time_ids (N, 6; a refiner's 5) for SDXL, else NULL. The tensors belong to the open scope or the caller. */
enum tern_status tern_unet_conditions(const struct tern_unet *m, const double *timesteps, int n_timesteps, double guidance,
                                      tern_tensor *text_embeds, tern_tensor *time_ids, struct tern_unet_conditions *out);
/* Other timesteps into the `time` of conditions that were made for as many. */
enum tern_status tern_unet_set_time(const struct tern_unet *m, const double *timesteps, int n_timesteps, double guidance,
                                    tern_tensor *time);
/* Width of `time`. */
int64_t tern_unet_time_width(const struct tern_unet_config *u);
/* Puts an embedding (1 or N, D) that diffusers calls timestep_cond in the place of the guidance's; NULL: none counts. */
void tern_unet_set_guidance(const struct tern_unet *m, tern_tensor *timestep_cond, struct tern_unet_conditions *c);
/* DeepCache [Ma 2023]: what lies deeper than a branch changes little from step to step. The branches are skip connections, numbered from
 * the outermost on, three a block, as in the reference; `deep` is what meets that skip on the way up, (N, C'', H'', W''). */
struct tern_unet_cache {
    int branch;
    tern_tensor *deep; /* given: in place of all that is deeper; NULL: is set by a pass through everything, and belongs as its result */
};
#define TERN_UNET_BRANCHES 3 /* of each block */
/* The shape of `deep` for a sample (N, C, h, w). */
void tern_unet_deep_shape(const struct tern_unet_config *u, int branch, int64_t n, int64_t h, int64_t w, int64_t shape[4]);
/* sample (M, C, H, W), context (N, L, D), N a multiple of M -> (N, C', H, W): row i of the context goes with row i % M of the sample. With
 * guidance all texts of a picture share its row, and what does not depend on the text is computed once: the first residual block and
 * self-attention, if all rows are told the same of the time. cache: NULL, or as above. The result belongs to the open scope or the caller. */
tern_tensor *tern_unet_forward(const struct tern_unet *m, tern_tensor *sample, const struct tern_unet_conditions *c, tern_tensor *context,
                               struct tern_unet_cache *cache);

/* struct tern_transformer, in transformer.c */
struct tern_transformer *tern_bind_transformer(struct tern_bind *b, int64_t channels, int64_t heads, int64_t depth, int64_t context,
                                               int groups, bool linear);
/* x (N, C, H, W) and the result have the dtype of context (N, S, D). Where that is bf16, sums over layers are f32: rounding them is most of
 * what bf16 loses (docs/kernels/bf16.md). x may have fewer rows, which are repeated where they meet the texts. */
tern_tensor *tern_apply_transformer(const struct tern_transformer *m, tern_tensor *x, tern_tensor *context);
void tern_transformer_destroy(struct tern_context *ctx, struct tern_transformer **m);

#endif

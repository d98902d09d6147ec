/* AutoencoderKL of diffusers: pictures to latents and back; or AutoencoderTiny in its place. [Kingma 2014; Rombach 2022, 3.1] */
#ifndef TERN_MODELS_VAE_H
#define TERN_MODELS_VAE_H

#include "models/modules/config.h"
#include "models/modules/layers.h"
#include "models/modules/taesd.h"

#define TERN_MAX_VAE_LAYERS 8

struct tern_vae_config {
    int blocks, layers, groups;
    int64_t in_channels, out_channels, latent_channels, channels[TERN_MAX_BLOCKS];
    bool mid_attention, quant_conv, post_quant_conv;
    double scaling_factor; /* of latents; those of SD have no shift, whatever a config says, as in diffusers */
    bool tiny;             /* AutoencoderTiny: `encoder` and `decoder` are its sizes, `blocks` its stages */
    struct tern_taesd_config encoder, decoder;
};

struct tern_vae_block {
    struct tern_resnet resnet[TERN_MAX_VAE_LAYERS];
    int layers;
    struct tern_layer sample; /* w NULL: none */
};

struct tern_vae_half { /* encoder or decoder */
    struct tern_layer conv_in, norm_out, conv_out;
    struct tern_vae_block block[TERN_MAX_BLOCKS];
    struct tern_resnet mid[2];
    struct tern_layer attention_norm;
    struct tern_attention attention; /* q.w NULL: none */
};

struct tern_vae {
    struct tern_context *ctx;
    struct tern_weights *weights; /* its tensors by name */
    struct tern_vae_config config;
    struct tern_vae_half encoder, decoder; /* encoder.conv_in.w NULL: the weights have none */
    struct tern_layer quant, post_quant;
    struct tern_taesd_half tiny_encoder, tiny_decoder; /* where config.tiny says so, in place of all these */
};

enum tern_status tern_vae_read_config(struct tern_context *ctx, const char *config, const char *where, struct tern_vae_config *out);
struct tern_vae *tern_vae_create(struct tern_context *ctx, const char *config, const char *where, const struct tern_weights *weights);
/* The same on any binding; what it holds after an error is to be destroyed. */
struct tern_vae *tern_vae_build(struct tern_context *ctx, const char *config, const char *where, struct tern_bind *b);
void tern_vae_destroy(struct tern_vae **m);

/* latent (N, 4, h, w), already divided by the scaling factor -> picture (N, 3, 8h, 8w), about -1..1 */
tern_tensor *tern_vae_decode(const struct tern_vae *m, tern_tensor *latent);
/* picture (N, 3, H, W) -> mean and logvar (N, 4, H / 8, W / 8) of the latent; H and W from 8 on, no multiples; logvar is
 * clamped to -30..20. AutoencoderTiny has no distribution: *mean is the latent, *logvar NULL. */
enum tern_status tern_vae_encode(const struct tern_vae *m, tern_tensor *picture, tern_tensor **mean, tern_tensor **logvar);

#endif

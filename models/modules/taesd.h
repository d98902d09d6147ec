/* AutoencoderTiny of diffusers, known as TAESD: convolutions and ReLU alone in place of a whole VAE. One half of it. */
#ifndef TERN_MODELS_TAESD_H
#define TERN_MODELS_TAESD_H

#include "models/modules/config.h"
#include "models/modules/layers.h"

#define TERN_MAX_TINY_BLOCKS 8

/* A stage is a row of residual blocks; between two stages the size is halved or doubled. */
struct tern_taesd_config {
    int stages, blocks[TERN_MAX_BLOCKS];
    int64_t channels;
};

struct tern_taesd_half {                         /* encoder or decoder */
    struct tern_layer conv[TERN_MAX_BLOCKS + 1]; /* before each stage, and the last one; [0].w NULL: the weights have none */
    struct tern_layer block[TERN_MAX_BLOCKS][TERN_MAX_TINY_BLOCKS][3];
};

/* Keys of config.json: `half` is "encoder" or "decoder". */
void tern_taesd_read_config(const struct tern_config *c, const char *half, struct tern_taesd_config *out);
void tern_taesd_bind_encoder(struct tern_bind *b, const struct tern_taesd_config *c, int64_t in, int64_t latent, struct tern_taesd_half *h);
void tern_taesd_bind_decoder(struct tern_bind *b, const struct tern_taesd_config *c, int64_t latent, int64_t out,
                             struct tern_taesd_half *h);
void tern_taesd_destroy(struct tern_taesd_half *h);

/* As tern_vae_decode; the latent of a diffusion model as it is. */
tern_tensor *tern_taesd_decode(struct tern_context *ctx, const struct tern_taesd_config *c, const struct tern_taesd_half *h,
                               tern_tensor *latent);
/* picture (N, 3, H, W) in -1..1 -> latent (N, Z, H / 8, W / 8): no distribution */
tern_tensor *tern_taesd_encode(struct tern_context *ctx, const struct tern_taesd_config *c, const struct tern_taesd_half *h,
                               tern_tensor *picture);

#endif

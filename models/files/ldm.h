/* Names of LDM-style single files (CompVis, Stability) and of diffusers folders, in both directions, and what a
 * single file's names and shapes say of the architecture. */
#ifndef TERN_MODELS_FILES_LDM_H
#define TERN_MODELS_FILES_LDM_H

#include <tern/weights.h>

#include "models/files/safetensors.h"

/* What stands for the text encoders in a single file. */
enum tern_ldm_family {
    TERN_LDM_SD1,    /* cond_stage_model.transformer: OpenAI's CLIP */
    TERN_LDM_SD2,    /* cond_stage_model.model: OpenCLIP without its last layer and projection */
    TERN_LDM_XL,     /* conditioner.embedders.0.transformer and .1.model: OpenAI's CLIP, and all of an OpenCLIP */
    TERN_LDM_REFINER /* conditioner.embedders.0.model: all of an OpenCLIP */
};

/* LDM numbers a UNet's blocks in one row, diffusers by level: these sizes translate. SD 1.x: {4, 2, 0xe, 4}. */
struct tern_ldm_sizes {
    int unet_levels;            /* length of block_out_channels */
    int unet_layers;            /* layers_per_block */
    unsigned unet_up_attention; /* bit k: up_blocks.k has attentions */
    int vae_levels;
    int open_clip_layers; /* of the text encoder by OpenCLIP's names: those that are used; 0: there is none */
    enum tern_ldm_family family;
};

#define TERN_LDM_NAME 256
#define TERN_LDM_PREDICTION "modelspec.prediction_type" /* in the header of a single file: "epsilon" or "v" */

/* The LDM name of a tensor of a component ("unet", "vae", "text_encoder", "text_encoder_2"), with its prefix:
 * "unet", "down_blocks.0.resnets.0.norm1.weight" -> "model.diffusion_model.input_blocks.1.0.in_layers.0.weight".
 * False when there is no such name or it does not fit. */
bool tern_ldm_name(const struct tern_ldm_sizes *sizes, const char *component, const char *name, char out[TERN_LDM_NAME]);

/* The other way: a name with its prefix -> the component (static text) and its diffusers name, which some files have inside the prefix
 * already: OpenAI's CLIP without "text_model.", OpenCLIP with "text_projection.weight", the matrix as diffusers has it. False for a tensor
 * that no component has (model_ema.*, sqrt_alphas_cumprod, position_ids …). */
bool tern_ldm_to_diffusers(const struct tern_ldm_sizes *sizes, const char *ldm, const char **component, char out[TERN_LDM_NAME]);

/* True when LDM stores that tensor (diffusers name) as a 1x1 convolution (C, C, 1, 1) and diffusers as a linear (C, C):
 * the matrices of the VAE's attention. */
bool tern_ldm_is_conv1x1(const char *component, const char *name);

/* What a single file is. The texts are in diffusers' / transformers' keys; NULL: component not in the file. */
struct tern_detected {
    const char *pipeline; /* "StableDiffusionPipeline" …, static */
    struct tern_ldm_sizes sizes;
    char *unet, *vae, *text_encoder, *text_encoder_2; /* config.json */
    char *scheduler;                                  /* scheduler_config.json */
};

/* Recognises a Stable Diffusion single file from names and shapes. `where` names the file in messages. What shapes do not
 * tell is what the published models have: 32 groups (or what of 32 divides all levels), 8 heads (SD 1.x), 64 channels a
 * head in CLIP (one head in narrower ones). */
enum tern_status tern_detect_sd(struct tern_context *ctx, const struct tern_weights *w, const char *where, struct tern_detected *out);
/* The VAE of such a file alone: sets out->vae and the sizes' vae_levels; what the names do not tell goes by the sizes that `out` has. */
enum tern_status tern_detect_vae(struct tern_context *ctx, const struct tern_weights *w, const char *where, struct tern_detected *out);
void tern_detected_free(struct tern_context *ctx, struct tern_detected *d);

/* What becomes of a folder's tensor in a single file. */
enum tern_ldm_form {
    TERN_LDM_UNKNOWN,    /* it has no name there */
    TERN_LDM_SAME,       /* the same elements */
    TERN_LDM_TRANSPOSED, /* rows and columns exchanged */
    TERN_LDM_FUSED,      /* OpenCLIP's q, with the rows of k and v behind its own */
    TERN_LDM_WITH_Q      /* OpenCLIP's k or v */
};
/* Name and shape that a tensor (diffusers name, with its shape in `e`) has in a single file. */
enum tern_ldm_form tern_ldm_form(const struct tern_ldm_sizes *sizes, const char *component, const char *name,
                                 struct tern_safetensors_entry *e, char ldm[TERN_LDM_NAME]);

/* True when the diffusers name stands for one tensor of a single file that is three in the folder: an OpenCLIP attention's
 * "self_attn.qkv_proj.", rows of q, of k, of v. */
bool tern_ldm_is_qkv(const char *name);

/* True when LDM stores that matrix (diffusers name) as (in, out) and diffusers as (out, in): OpenCLIP's projection. */
bool tern_ldm_is_transposed(const char *name);

/* True for a tensor that a component has and does not use: CLIP's logit_scale and, but for SDXL's second one, its projection; in SD 2 the
 * last layer; what training left beside a VAE. */
bool tern_ldm_is_unused(const struct tern_ldm_sizes *sizes, const char *ldm);

/* The weights of one component of a single file under their diffusers names; the caller owns the reference. */
struct tern_weights *tern_ldm_component(struct tern_context *ctx, const struct tern_weights *w, const struct tern_ldm_sizes *sizes,
                                        const char *component, const char *where);

#endif

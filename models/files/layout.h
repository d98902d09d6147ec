/* Checkpoints: what a path is, and the weights and configuration of each component under the names of
 * the diffusers folder, whatever the file on disk calls them. */
#ifndef TERN_MODELS_FILES_LAYOUT_H
#define TERN_MODELS_FILES_LAYOUT_H

#include <tern/weights.h>

enum tern_layout {
    TERN_LAYOUT_FOLDER,      /* a diffusers folder: model_index.json, and a folder per component */
    TERN_LAYOUT_SINGLE_FILE, /* one LDM-style .safetensors, .ckpt or .pt file */
    TERN_LAYOUT_COMPONENT    /* the folder of one component */
};

/* An opened checkpoint: immutable, so several threads may ask it. Strings are borrowed and live as long as it does. */
struct tern_checkpoint;

/* Finds out what `path` is, reads its configuration texts, and for a single file recognises the architecture
 * from tensor names and shapes. No weight file of a folder is opened yet. NULL with the error recorded: no such
 * path, a folder that is no model (what was looked for is said), a file that is no Stable Diffusion checkpoint. */
struct tern_checkpoint *tern_checkpoint_open(struct tern_context *ctx, const char *path);
void tern_checkpoint_close(struct tern_checkpoint **cp);

/* A VAE by itself, for `model`, as a checkpoint whose only component is "vae": one weight file, whose names are LDM's, with
 * "first_stage_model." or without, or diffusers'; or a diffusers folder with config.json. NULL with the error recorded. */
struct tern_checkpoint *tern_checkpoint_open_vae(struct tern_context *ctx, const char *path, const struct tern_checkpoint *model);

enum tern_layout tern_checkpoint_layout(const struct tern_checkpoint *cp);
const char *tern_checkpoint_path(const struct tern_checkpoint *cp);
/* The pipeline class: "StableDiffusionPipeline" … (folder: model_index.json's _class_name; single file: recognised). */
const char *tern_checkpoint_pipeline(const struct tern_checkpoint *cp);
/* model_index.json's text; NULL for a single file. */
const char *tern_checkpoint_index(const struct tern_checkpoint *cp);

/* Components by their folder name: "unet", "vae", "text_encoder", "text_encoder_2" … A folder's component counts
 * when its folder exists and holds a config.json. */
bool tern_checkpoint_has(const struct tern_checkpoint *cp, const char *component);
int tern_checkpoint_count(const struct tern_checkpoint *cp);
const char *tern_checkpoint_component(const struct tern_checkpoint *cp, int i);
/* Class of a component: "UNet2DConditionModel", "CLIPTextModel", "BertModel" …; NULL when there is no such component. */
const char *tern_checkpoint_class(const struct tern_checkpoint *cp, const char *component);
/* config.json's text of a component, in diffusers' / transformers' keys: a folder's own; for a single file the one that
 * was recognised. NULL when there is no such component (no error recorded). */
const char *tern_checkpoint_config(const struct tern_checkpoint *cp, const char *component);
/* What to call the configuration in messages: the path of config.json, or of the single file. NULL when absent. */
const char *tern_checkpoint_config_where(const struct tern_checkpoint *cp, const char *component);

/* The weights of a component; the caller owns the reference, the checkpoint keeps none. Names are those of the
 * diffusers folder as the hub has them: text encoders with "text_model.", VAE attention as linears to_q to_k to_v
 * to_out.0 of shape (C, C), no position_ids. NULL with the error recorded: no such component, no weight file (the
 * names that were tried are listed), a damaged one. */
struct tern_weights *tern_checkpoint_weights(struct tern_checkpoint *cp, const char *component);
/* The file that these weights come from (an index file when sharded); NULL with the error recorded. tern_free. */
char *tern_checkpoint_weights_path(const struct tern_checkpoint *cp, const char *component);

/* scheduler/scheduler_config.json's text; a single file's: SD 1.5's or 2.1's. NULL when the folder has none. */
const char *tern_checkpoint_scheduler(const struct tern_checkpoint *cp);
/* The scheduler's class in model_index.json, which counts whatever _class_name that text has. NULL: the index names none, or there is
 * no text. */
const char *tern_checkpoint_scheduler_class(const struct tern_checkpoint *cp);
/* The tokenizer folder, index 0 or 1 ("tokenizer", "tokenizer_2"). NULL: none there, use tern_tokenizer_clip. */
const char *tern_checkpoint_tokenizer(const struct tern_checkpoint *cp, int index);

/* Weights under the names that a component has on the hub (see tern_checkpoint_weights), from a set that may use the
 * older or newer ones. A new set that shares the tensors; NULL with the error recorded. */
struct tern_weights *tern_weights_normalise(struct tern_context *ctx, const struct tern_weights *w, const char *component);

#endif

/* The inside of a checkpoint. */
#ifndef TERN_MODELS_FILES_CHECKPOINT_H
#define TERN_MODELS_FILES_CHECKPOINT_H

#include "models/files/layout.h"
#include "models/files/ldm.h"

#define TERN_MAX_COMPONENTS 16
#define TERN_CONFIG_LIMIT ((size_t)16 << 20) /* bytes of a configuration */

struct tern_component {
    char *name, *class_name, *config, *where;
};

struct tern_checkpoint {
    struct tern_context *ctx;
    enum tern_layout layout;
    char *path, *pipeline, *index, *scheduler, *scheduler_class, *tokenizers[2];
    char *fixed; /* the path, also when the process has gone to another folder */
    struct tern_component components[TERN_MAX_COMPONENTS];
    int count;
    struct tern_weights *source; /* single file: all tensors under their LDM names */
    struct tern_ldm_sizes sizes; /* single file */
};

/* A checkpoint without components, of a folder or a single file; NULL also where nothing is at the path: the message says what was
 * `expected`. */
struct tern_checkpoint *tern_checkpoint_create(struct tern_context *ctx, const char *path, const char *expected);

/* Adds a component; takes config over, also on failure. */
enum tern_status tern_checkpoint_add(struct tern_checkpoint *cp, const char *name, const char *class_name, char *config, const char *where);

/* Refuses a VAE by itself whose latents are not the model's; a file gets what of the configuration it does not tell from the model's VAE,
 * if that has one. */
enum tern_status tern_vae_fit(struct tern_checkpoint *vae, const struct tern_checkpoint *model);

/* Records why a folder without model_index.json is no model, and what would help. */
enum tern_status tern_layout_no_model(struct tern_context *ctx, const char *path);

#endif

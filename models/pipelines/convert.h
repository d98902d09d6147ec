/* The parts of converting a checkpoint: lists of tensors, single files, folders. */
#ifndef TERN_MODELS_PIPELINES_CONVERT_H
#define TERN_MODELS_PIPELINES_CONVERT_H

#include <tern/pipeline.h>

#include "models/files/layout.h"
#include "models/files/ldm.h"

/* One tensor of a file that is written, of up to three that are read. */
struct tern_convert_item {
    struct tern_safetensors_entry entry; /* its name belongs to the list */
    tern_tensor *part[3];                /* borrowed from the sets */
    int parts;
    bool transposed;
};

#define TERN_CONVERT_SETS 4
struct tern_convert_list {
    struct tern_context *ctx;
    const struct tern_convert_params *params;
    struct tern_convert_item *item;
    int count, capacity;
    struct tern_weights *set[TERN_CONVERT_SETS]; /* what the tensors are of */
    int sets;
};

/* A new item of one tensor under that name, in the dtype that is asked for; NULL with the error recorded. */
struct tern_convert_item *tern_convert_add(struct tern_convert_list *l, const char *name, tern_tensor *t);
/* Opens a component's weights into l->set; NULL with the error recorded. Borrowed. */
const struct tern_weights *tern_convert_open(struct tern_convert_list *l, struct tern_checkpoint *cp, const char *component);
/* Writes the file, with the metadata of the sets. */
enum tern_status tern_convert_write(struct tern_convert_list *l, const char *path);
void tern_convert_free(struct tern_convert_list *l);

/* Facts of a text encoder's configuration. */
struct tern_convert_text {
    int64_t layers, heads;
    char act[32];
};
enum tern_status tern_convert_read_text(struct tern_context *ctx, const char *config, const char *where, struct tern_convert_text *out);
/* What the scheduler predicts; "epsilon" when it does not say. */
enum tern_status tern_convert_prediction(struct tern_context *ctx, const char *config, char out[32], bool *zero_snr);
/* Records that there is no single file of the checkpoint, and why. */
enum tern_status tern_convert_no_form(const struct tern_checkpoint *cp, const char *what);
/* Before anything is written: whether a reader makes of the list what the checkpoint is. */
enum tern_status tern_convert_check(const struct tern_convert_list *l, const struct tern_checkpoint *cp, const char *out);

enum tern_status tern_convert_single(struct tern_context *ctx, struct tern_checkpoint *cp, const char *out,
                                     const struct tern_convert_params *params);
enum tern_status tern_convert_folder(struct tern_context *ctx, struct tern_checkpoint *cp, const char *out,
                                     const struct tern_convert_params *params);

#endif

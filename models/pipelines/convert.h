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
    int bits; /* 8 or 4: a quantised layer, of which the file gets several tensors; 0: it is not */
};

#define TERN_CONVERT_SETS 4
/* The components that are written: what else a folder has, as a safety checker, is left out. */
extern const char *const tern_convert_components[TERN_CONVERT_SETS];

struct tern_convert_list {
    struct tern_context *ctx;
    const struct tern_convert_params *params;
    struct tern_convert_item *item;
    int count, capacity;
    struct tern_weights *set[TERN_CONVERT_SETS]; /* what the tensors are of */
    int sets;
    bool quantized_unet, quantized_text; /* some are quantised, by params */
    const char *prediction;              /* of TERN_LDM_PREDICTION, for the header; NULL: it has none */
};

/* A new item of one tensor under that name, in the dtype that is asked for; NULL with the error recorded. */
struct tern_convert_item *tern_convert_add(struct tern_convert_list *l, const char *name, tern_tensor *t);
/* Opens a component's weights into l->set; NULL with the error recorded. Borrowed. */
const struct tern_weights *tern_convert_open(struct tern_convert_list *l, struct tern_checkpoint *cp, const char *component);
/* Writes the file, with the metadata of the sets. */
enum tern_status tern_convert_write(struct tern_convert_list *l, const char *path);
void tern_convert_free(struct tern_convert_list *l);

/* convert_single.c: the name of k's or v's tensor, 'k' or 'v', beside that of q's (text encoders). */
void tern_convert_sibling(const char *name, char letter, char out[TERN_LDM_NAME]);
/* convert_quantize.c: whether params have words for the item, a weight of that name in diffusers folders, and for its other parts. */
void tern_convert_quantize(struct tern_convert_list *l, struct tern_convert_item *item, const char *component, const char *name);
/* The tensors that an item is in the file. */
enum tern_convert_piece { TERN_CONVERT_NUMBERS, TERN_CONVERT_SCALES, TERN_CONVERT_SHAPE, TERN_CONVERT_PIECES };
/* False: a quantised item has no such piece. */
bool tern_convert_has_piece(const struct tern_convert_item *item, enum tern_convert_piece piece);
/* Describes it; the name is for tern_free, NULL with the error recorded. */
void tern_convert_describe(struct tern_context *ctx, const struct tern_convert_item *item, enum tern_convert_piece piece,
                           struct tern_safetensors_entry *out);
/* Its bytes, as many as it is described to have. */
enum tern_status tern_convert_fill(const struct tern_convert_item *item, enum tern_convert_piece piece, void *bytes);

/* convert_words.c: params with the words that hold: given, of a recipe, or of a model that comes quantised. `own` keeps them, for
 * tern_free. */
struct tern_convert_words {
    char *unet, *text;
};
enum tern_status tern_convert_choose_words(struct tern_context *ctx, const char *model, struct tern_checkpoint *cp,
                                           struct tern_convert_params *params, struct tern_convert_words *own);

/* Facts of a text encoder's configuration. */
struct tern_convert_text {
    int64_t layers, heads;
    double eps;
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

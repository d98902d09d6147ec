/* LoRA files: low-rank changes of a model's matrices, and the weight sets that they give.        [Hu 2021] */
#ifndef TERN_MODELS_FILES_LORA_H
#define TERN_MODELS_FILES_LORA_H

#include <tern/pipeline.h>

/* The parts of a model that LoRAs change. */
enum tern_lora_part { TERN_LORA_UNET, TERN_LORA_TEXT, TERN_LORA_PARTS };
/* "unet", "text_encoder"; static. */
const char *tern_lora_part_name(enum tern_lora_part part);

/* What a file holds for one matrix: indices into its tensors plus one; 0: none. */
struct tern_lora_module {
    int64_t down; /* A: (r, in) or (r, in, kh, kw); with a mid (q, in, 1, 1) */
    int64_t up;   /* B: (out, r) or (out, r, 1, 1) */
    int64_t mid;  /* (r, q, kh, kw), for convolutions only */
    int64_t alpha;
    double scale; /* alpha / rank */
};

/* An opened file, whose tensors have found their places in one model. Immutable; one thread at a time counts references. */
struct tern_lora_file {
    int refs;
    struct tern_context *ctx;
    char *path;
    const char *format; /* "kohya" …, static; NULL before one was recognised */
    struct tern_weights *weights;
    struct {
        struct tern_lora_module *module; /* by index in the part's weight set */
        int64_t count;
    } part[TERN_LORA_PARTS];
};

/* Reads a file for the model with these weight sets (borrowed, by part; all of them). NULL with the error recorded: no weight
 * file, no LoRA, a kind of adapter that tern does not have, tensors that the model has no place for, shapes that do not fit. */
struct tern_lora_file *tern_lora_open(struct tern_context *ctx, const char *path, struct tern_weights *const bases[TERN_LORA_PARTS]);
struct tern_lora_file *tern_lora_ref(struct tern_lora_file *f);
void tern_lora_unref(struct tern_lora_file **f);

/* A file, how strongly it counts, and where (borrowed). */
struct tern_lora_use {
    const struct tern_lora_file *file;
    double scale;
    const struct tern_lora_strength *blocks;
    int n_blocks;
};

/* The part's weights with these LoRAs: base itself when none of them changes it. The caller owns the reference; NULL with the
 * error recorded. What is new is computed on the context's device, in f32, and rounded once to base's dtype. */
struct tern_weights *tern_lora_derive(struct tern_weights *base, enum tern_lora_part part, const struct tern_lora_use *uses, int n);

/* Refuses a block that the UNet does not have, and strengths that are no numbers. */
enum tern_status tern_lora_check_blocks(const struct tern_weights *unet, const struct tern_lora *lora);

/* ---- between the files of the reader */

/* The places of one part under all the names that LoRA files use for them. */
struct tern_lora_names;
struct tern_lora_names *tern_lora_names_create(const struct tern_weights *base, enum tern_lora_part part);
void tern_lora_names_destroy(struct tern_lora_names **n);
/* Index in the weight set of a module's matrix; -1 when there is none. '.' and '_' are the same in a name. */
int64_t tern_lora_names_find(const struct tern_lora_names *n, const char *module);

/* Sets the scale of every module: from its alpha tensor, else from the file's metadata, else 1. */
enum tern_status tern_lora_read_alphas(struct tern_lora_file *f, struct tern_weights *const bases[TERN_LORA_PARTS]);

#endif

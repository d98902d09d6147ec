/* Files of textual inversions: vectors that a word of the prompt stands for.                                [Gal 2022] */
#ifndef TERN_MODELS_FILES_EMBEDDING_H
#define TERN_MODELS_FILES_EMBEDDING_H

#include <tern/weights.h>

/* The vectors of one file for one text encoder, or for the two of SDXL (then as many for each). */
struct tern_embedding_file {
    struct tern_context *ctx;
    char *own_name; /* that the file gives the word; NULL: none */
    int encoders;
    int64_t vectors, width[2];
    float *values[2]; /* (vectors, width) */
};

/* Reads `emb_params`, `clip_l` and `clip_g` (or `text_encoders_0` and `text_encoders_1`), `string_to_param` with its one entry, or one
 * tensor under the word itself. TERN_E_FORMAT for other files. Free also after an error. */
enum tern_status tern_embedding_read(struct tern_context *ctx, const char *path, struct tern_embedding_file *out);
void tern_embedding_free(struct tern_embedding_file *f);

#endif

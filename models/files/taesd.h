/* Weight files of TAESD, diffusers' AutoencoderTiny, and what their names and shapes say of its sizes. */
#ifndef TERN_MODELS_FILES_TAESD_H
#define TERN_MODELS_FILES_TAESD_H

#include <tern/weights.h>

#define TERN_TAESD_CLASS "AutoencoderTiny"

/* Whether a file is one: by diffusers' names, or a half as its author published it (taesd_decoder, taesd_encoder). */
bool tern_taesd_is(const struct tern_weights *w);
/* The weights under diffusers' names; for a decoder alone whose file name says so, the encoder of the file beside it, too
 * (taesd_decoder.safetensors: taesd_encoder.safetensors). NULL with the error recorded: an encoder alone. */
struct tern_weights *tern_taesd_open(struct tern_context *ctx, const char *path);
/* config.json's text for them; NULL with the error recorded. tern_free. */
char *tern_taesd_config(struct tern_context *ctx, const struct tern_weights *w, const char *where);

#endif

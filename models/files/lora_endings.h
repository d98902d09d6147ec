/* How the names of a LoRA file's tensors end, by the programs that write them. */
#ifndef TERN_MODELS_FILES_LORA_ENDINGS_H
#define TERN_MODELS_FILES_LORA_ENDINGS_H

#include "models/files/lora.h"

/* Which tensor of the model a name's tensor changes; NOTHING: it is of a kind of adapter that tern does not have. */
enum tern_lora_target { TERN_LORA_OF_WEIGHT, TERN_LORA_OF_BIAS, TERN_LORA_OF_NOTHING };

/* How a tensor's name ends, and what that says. */
struct tern_lora_ending {
    const char *text;
    enum tern_lora_role role;
    enum tern_lora_target target;
    const char *format; /* NULL: it is in several; OF_NOTHING: what it is instead */
};

/* The ending of a tensor's name in a file, static; *length: of what stands before it. NULL: it has none. */
const struct tern_lora_ending *tern_lora_find_ending(const struct tern_weights *w, const char *name, size_t *length);

#endif

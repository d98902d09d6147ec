/* The parts of synthesised checkpoints: which models there are, and the tensors of each. */
#ifndef TERN_MODELS_PIPELINES_SYNTH_H
#define TERN_MODELS_PIPELINES_SYNTH_H

#include "models/files/ldm.h"
#include "models/files/safetensors.h"

struct tern_synth_component {
    const char *name, *class_name, *config;
    const char *in_file; /* the config of what a single file has; NULL: the same */
};

#define TERN_SYNTH_COMPONENTS 4

struct tern_synth_arch {
    const char *name, *index, *scheduler;
    struct tern_synth_component components[TERN_SYNTH_COMPONENTS]; /* name NULL: no more */
    const struct tern_ldm_sizes *sizes;                            /* of the single file; NULL: there is no such form */
    const char *tokenizer; /* tokenizer_config.json of a BERT; NULL: the tokenizers that ship with tern */
    const char *predicts;  /* TERN_LDM_PREDICTION of the single file; NULL: it does not say it */
};

/* NULL with the error recorded, which lists those that there are. */
const struct tern_synth_arch *tern_synth_arch_find(struct tern_context *ctx, const char *name);

/* The tensors of a file, in the order in which they lie there. */
struct tern_synth_list {
    struct tern_context *ctx;
    struct tern_safetensors_entry *entry;
    int64_t count, capacity;
    const char *component;            /* of what is being listed */
    const struct tern_ldm_sizes *ldm; /* NULL: diffusers names */
    const char *predicts;             /* as that of the architecture */
    enum tern_dtype dtype;
};
void tern_synth_list_add(struct tern_synth_list *l, const struct tern_synth_component *component);
void tern_synth_list_free(struct tern_synth_list *l);

/* vocab.txt with as many pieces as the text encoder of a Chinese BERT has: special ones, ASCII, then ideographs by their number. tern_free.
 */
char *tern_synth_vocabulary(struct tern_context *ctx);

#endif

/* Where tensors of a LoRA file lie in a model, by their names. */
#ifndef TERN_MODELS_FILES_LORA_PLACE_H
#define TERN_MODELS_FILES_LORA_PLACE_H

#include "models/files/lora.h"

/* What names mean in a model; bases as in tern_lora_open. */
struct tern_lora_places {
    struct tern_weights *const *bases;
    struct tern_lora_names *names[TERN_LORA_PARTS];
    bool of_second; /* names that do not say of which text encoder they are, are of the second */
};
/* For the names of that file. Not TERN_OK: no memory (recorded). Close it in any case. */
enum tern_status tern_lora_places_open(struct tern_lora_places *p, const struct tern_weights *file,
                                       struct tern_weights *const bases[TERN_LORA_PARTS]);
void tern_lora_places_close(struct tern_lora_places *p);

/* A module of the model: indices in the weight set of the part. */
struct tern_lora_place {
    int part;
    int64_t weight, bias; /* bias -1: it has none */
};
/* The module that the first `length` bytes of a tensor's name are; false when the model has none. */
bool tern_lora_find_place(const struct tern_lora_places *p, const char *name, size_t length, struct tern_lora_place *at);

#endif

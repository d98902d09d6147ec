/* Where a tensor of a LoRA file lies in a model, by how its name begins and which module that names. */
#include "models/files/lora_place.h"

#include <string.h>

#include "core/tensor.h"
#include "models/files/lora_endings.h"
#include "models/files/weights.h"

/* How the name of a tensor begins. */
static const struct beginning {
    const char *text;
    int part;   /* -1: not said */
    bool alone; /* of the only text encoder, whichever that is: a refiner has the second */
} beginnings[] = {
    {"lora_unet_", TERN_LORA_UNET},
    {"lora_te_", TERN_LORA_TEXT, true},
    {"lora_te1_", TERN_LORA_TEXT},
    {"lora_te2_", TERN_LORA_TEXT_2},
    {"oft_unet_", TERN_LORA_UNET},
    {"lycoris_", -1},
    {"unet.", TERN_LORA_UNET},
    {"text_encoder.", TERN_LORA_TEXT},
    {"text_encoder_2.", TERN_LORA_TEXT_2},
    {"text_encoders.clip_l.transformer.", TERN_LORA_TEXT}, /* ComfyUI's own names, beside diffusion_model. */
    {"text_encoders.clip_h.transformer.", TERN_LORA_TEXT},
    {"text_encoders.clip_g.transformer.", TERN_LORA_TEXT_2},
    {"base_model.model.", -1},
    {"diffusion_model.", TERN_LORA_UNET},
    {"", -1}, /* fits last */
};

/* "….attn1.processor.to_q" is diffusers' old way to say "….attn1.to_q". */
static void drop_processor(char *module)
{
    static const char word[] = ".processor.";
    char *at = strstr(module, word);
    if (at)
        memmove(at, at + strlen(word) - 1, strlen(at + strlen(word) - 1) + 1);
}

#define MODULE 512 /* bytes of a name */

/* How the name begins, and the module that it goes on with. NULL: no name of a module is like that. */
static const struct beginning *split_name(const char *name, size_t length, char module[MODULE])
{
    const struct beginning *b = beginnings;
    while (strncmp(name, b->text, strlen(b->text)))
        b++;
    size_t skip = strlen(b->text);
    if (skip >= length || length - skip >= MODULE)
        return NULL;
    memcpy(module, name + skip, length - skip);
    module[length - skip] = 0;
    drop_processor(module);
    return b;
}

/* Adapters of a single text encoder, as PEFT keeps them, have names that both encoders of SDXL have: the inputs of the first matrix that
 * is of one of them alone tell which it is. */
static bool is_of_second(const struct tern_lora_places *p, const struct tern_weights *w)
{
    const struct tern_weights *const one = p->bases[TERN_LORA_TEXT], *const two = p->bases[TERN_LORA_TEXT_2];
    for (int64_t i = 0; one && two && i < tern_weights_count(w); i++) {
        char module[MODULE];
        size_t length = 0;
        int64_t a, b, bias;
        const struct tern_lora_ending *e = tern_lora_find_ending(w, tern_weights_name(w, i), &length);
        const struct tern_meta *m = &tern_weights_at(w, i)->meta;
        const struct beginning *begin =
            e && e->role == TERN_LORA_DOWN && m->ndim > 1 ? split_name(tern_weights_name(w, i), length, module) : NULL;
        if (!begin || begin->part >= 0 || !tern_lora_names_find(p->names[TERN_LORA_TEXT], module, &a, &bias) ||
            !tern_lora_names_find(p->names[TERN_LORA_TEXT_2], module, &b, &bias))
            continue;
        const struct tern_meta *first = &tern_weights_at(one, a)->meta, *second = &tern_weights_at(two, b)->meta;
        if (first->ndim > 1 && second->ndim > 1 && first->shape[1] != second->shape[1])
            return m->shape[1] == second->shape[1];
    }
    return false;
}

bool tern_lora_find_place(const struct tern_lora_places *p, const char *name, size_t length, struct tern_lora_place *at)
{
    char module[MODULE];
    const struct beginning *b = split_name(name, length, module);
    if (!b)
        return false;
    int first = b->part < 0 ? 0 : b->part;
    if (b->alone && !p->bases[first])
        first = TERN_LORA_TEXT_2;
    for (at->part = first; at->part < TERN_LORA_PARTS; at->part++) {
        if (b->part < 0 && at->part == TERN_LORA_TEXT && p->of_second)
            continue;
        const bool found = tern_lora_names_find(p->names[at->part], module, &at->weight, &at->bias);
        if (found || b->part >= 0)
            return found;
    }
    return false;
}

enum tern_status tern_lora_places_open(struct tern_lora_places *p, const struct tern_weights *file,
                                       struct tern_weights *const bases[TERN_LORA_PARTS])
{
    *p = (struct tern_lora_places){.bases = bases};
    for (int part = 0; part < TERN_LORA_PARTS; part++) {
        p->names[part] = bases[part] ? tern_lora_names_create(bases[part], (enum tern_lora_part)part) : NULL;
        if (bases[part] && !p->names[part])
            return TERN_E_NO_MEMORY;
    }
    p->of_second = is_of_second(p, file);
    return TERN_OK;
}

void tern_lora_places_close(struct tern_lora_places *p)
{
    for (int part = 0; part < TERN_LORA_PARTS; part++)
        tern_lora_names_destroy(&p->names[part]);
}

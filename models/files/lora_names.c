/* The names that LoRA files have for the matrices of a model: diffusers' and LDM's, with dots or underscores. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/ldm.h"
#include "models/files/lora.h"
#include "models/files/weights.h"

/* kohya's scripts write every '.' of a module's name as '_', so that all names are compared in that form. */
struct place {
    char key[TERN_LDM_NAME];
    int64_t target, bias; /* -1: it has none */
};

struct tern_lora_names {
    struct tern_context *ctx;
    struct place *places; /* by key */
    int64_t count, capacity;
};

const char *tern_lora_part_name(enum tern_lora_part part)
{
    static const char *const names[] = {"unet", "text_encoder", "text_encoder_2"};
    return names[part];
}

/* False when it is too long for any name that is known. */
static bool make_key(const char *module, size_t n, char out[TERN_LDM_NAME])
{
    if (n >= TERN_LDM_NAME)
        return false;
    for (size_t i = 0; i < n; i++)
        out[i] = module[i] == '.' ? '_' : module[i];
    out[n] = 0;
    return true;
}

/* The bias of the module of length n whose weight is `target`: in order of names it stands before it. */
static int64_t find_bias(const struct tern_weights *base, int64_t target, size_t n)
{
    if (target < 1)
        return -1;
    const char *name = base->entries[target].name, *before = base->entries[target - 1].name;
    return !strncmp(before, name, n) && !strcmp(before + n, ".bias") ? target - 1 : -1;
}

static void add(struct tern_lora_names *l, const char *module, size_t n, struct place at)
{
    if (l->count == l->capacity) {
        int64_t capacity = l->capacity ? 2 * l->capacity : 2048;
        struct place *p = tern_realloc(l->ctx, l->places, (size_t)capacity * sizeof(*p));
        if (!p)
            return;
        l->places = p;
        l->capacity = capacity;
    }
    l->places[l->count] = at;
    l->count += make_key(module, n, l->places[l->count].key);
}

static bool ends_with(const char *s, size_t n, const char *end)
{
    size_t k = strlen(end);
    return n >= k && !memcmp(s + n - k, end, k);
}

/* diffusers before 0.22 called the matrices of all attentions to_q, to_k, to_v and to_out. */
static void add_old_attention(struct tern_lora_names *l, const char *module, size_t n, struct place at)
{
    static const char *const names[][2] = {
        {".to_out.0", ".to_out"},
        {".self_attn.q_proj", ".self_attn.to_q"},
        {".self_attn.k_proj", ".self_attn.to_k"},
        {".self_attn.v_proj", ".self_attn.to_v"},
        {".self_attn.out_proj", ".self_attn.to_out"},
    };
    char old[TERN_LDM_NAME];
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (ends_with(module, n, names[i][0]) && n < sizeof(old) - 8) {
            int length = snprintf(old, sizeof(old), "%.*s%s", (int)(n - strlen(names[i][0])), module, names[i][1]);
            add(l, old, (size_t)length, at);
        }
}

/* What LDM's numbering of the blocks depends on, read off the names. */
static struct tern_ldm_sizes ldm_sizes(const struct tern_weights *base)
{
    struct tern_ldm_sizes s = {0};
    for (int64_t i = 0; i < base->count; i++) {
        const char *name = base->entries[i].name;
        int block = 0, layer = 0;
        if (sscanf(name, "down_blocks.%2d.resnets.%2d.", &block, &layer) == 2) {
            s.unet_levels = block >= s.unet_levels ? block + 1 : s.unet_levels;
            s.unet_layers = layer >= s.unet_layers ? layer + 1 : s.unet_layers;
        } else if (sscanf(name, "up_blocks.%2d.attentions.%2d.", &block, &layer) == 2 && block >= 0 && block < 32) {
            s.unet_up_attention |= 1u << block;
        }
    }
    return s;
}

static void add_names(struct tern_lora_names *l, const struct tern_weights *base, enum tern_lora_part part)
{
    static const char ldm_prefix[] = "model.diffusion_model.", text_prefix[] = "text_model.";
    const size_t ending = strlen(".weight");
    char ldm[TERN_LDM_NAME];
    struct tern_ldm_sizes sizes = ldm_sizes(base);
    for (int64_t i = 0; i < base->count && !tern_failed(l->ctx); i++) {
        const char *name = base->entries[i].name;
        size_t n = strlen(name);
        if (!ends_with(name, n, ".weight"))
            continue;
        n -= ending;
        const struct place at = {.target = i, .bias = find_bias(base, i, n)};
        add(l, name, n, at);
        add_old_attention(l, name, n, at);
        if (part != TERN_LORA_UNET && !strncmp(name, text_prefix, strlen(text_prefix))) { /* left out by transformers 5 */
            add(l, name + strlen(text_prefix), n - strlen(text_prefix), at);
            add_old_attention(l, name + strlen(text_prefix), n - strlen(text_prefix), at);
        }
        if (part == TERN_LORA_UNET && tern_ldm_name(&sizes, "unet", name, ldm))
            add(l, ldm + strlen(ldm_prefix), strlen(ldm) - strlen(ldm_prefix) - ending, at);
    }
}

static int by_key(const void *a, const void *b) { return strcmp(((const struct place *)a)->key, ((const struct place *)b)->key); }

struct tern_lora_names *tern_lora_names_create(const struct tern_weights *base, enum tern_lora_part part)
{
    struct tern_lora_names *l = tern_calloc(base->ctx, 1, sizeof(*l));
    if (!l)
        return NULL;
    l->ctx = base->ctx;
    add_names(l, base, part);
    if (tern_failed(l->ctx))
        tern_lora_names_destroy(&l);
    else if (l->count)
        qsort(l->places, (size_t)l->count, sizeof(*l->places), by_key);
    return l;
}

void tern_lora_names_destroy(struct tern_lora_names **names)
{
    struct tern_lora_names *l = *names;
    *names = NULL;
    if (!l)
        return;
    tern_free(l->ctx, l->places);
    tern_free(l->ctx, l);
}

bool tern_lora_names_find(const struct tern_lora_names *l, const char *module, int64_t *weight, int64_t *bias)
{
    struct place key;
    if (!l || !l->count || !make_key(module, strlen(module), key.key))
        return false;
    const struct place *p = bsearch(&key, l->places, (size_t)l->count, sizeof(*l->places), by_key);
    if (!p)
        return false;
    *weight = p->target;
    *bias = p->bias;
    return true;
}

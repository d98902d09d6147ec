/* Strengths of a LoRA by block: which of them counts for a tensor. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "models/files/lora.h"
#include "models/files/weights.h"

static const char all_encoders[] = "text_encoders"; /* the block that is each of a model's */

/* "down.1.0" for what lies in layer 0 of down block 1, "down.1" for its sampler, "mid.0", "" for what is in no block. */
static void block_of(const char *name, char *out, size_t size)
{
    static const char *const blocks[][2] = {{"down_blocks.", "down"}, {"up_blocks.", "up"}};
    int block = 0, layer = 0;
    *out = 0;
    if (sscanf(name, "mid_block.%*[a-z].%2d.", &layer) == 1)
        snprintf(out, size, "mid.%d", layer);
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(blocks[i][0]);
        if (strncmp(name, blocks[i][0], n) || sscanf(name + n, "%2d.", &block) != 1)
            continue;
        if (sscanf(name + n, "%*d.attentions.%2d.", &layer) == 1 || sscanf(name + n, "%*d.resnets.%2d.", &layer) == 1)
            snprintf(out, size, "%s.%d.%d", blocks[i][1], block, layer);
        else
            snprintf(out, size, "%s.%d", blocks[i][1], block);
    }
}

/* How many characters of the label the block names; 0: it is another block. */
static size_t covers(const char *block, const char *label)
{
    size_t n = strlen(block);
    return n && !strncmp(label, block, n) && (!label[n] || label[n] == '.') ? n : 0;
}

/* How special a block is for a tensor of that label; 0: it does not cover it. */
static size_t special(const char *block, enum tern_lora_part part, const char *label)
{
    enum { ALL_ENCODERS = 1, WHOLE_PART };
    if (!strcmp(block, tern_lora_part_name(part)))
        return WHOLE_PART;
    if (part != TERN_LORA_UNET)
        return strcmp(block, all_encoders) ? 0 : ALL_ENCODERS;
    const size_t n = covers(block, label);
    return n ? WHOLE_PART + n : 0;
}

/* That of the most special block that it lies in, of equal ones the last. */
double tern_lora_strength(const struct tern_lora_use *u, enum tern_lora_part part, const char *name)
{
    char label[64];
    double strength = 1;
    size_t best = 0;
    block_of(name, label, sizeof(label));
    for (int i = 0; i < u->n_blocks; i++) {
        const size_t n = special(u->blocks[i].block, part, label);
        if (n && n >= best) {
            best = n;
            strength = u->blocks[i].scale;
        }
    }
    return strength;
}

static bool unet_has_block(const struct tern_weights *unet, const char *block)
{
    char label[64];
    for (int64_t i = 0; i < unet->count; i++) {
        block_of(unet->entries[i].name, label, sizeof(label));
        if (covers(block, label))
            return true;
    }
    return false;
}

static bool is_part(const char *block, enum tern_lora_part first, int end)
{
    for (int i = first; i < end; i++)
        if (!strcmp(block, tern_lora_part_name((enum tern_lora_part)i)))
            return true;
    return !strcmp(block, all_encoders) || !strcmp(block, tern_lora_part_name(TERN_LORA_UNET));
}

enum tern_status tern_lora_check_blocks(const struct tern_weights *unet, enum tern_lora_part first, int end, const struct tern_lora *lora)
{
    char text[TERN_PRINTABLE];
    if (!isfinite(lora->scale))
        return tern_fail(unet->ctx, TERN_E_INVALID, "%s: scale: expected a finite number, found %g", lora->path, lora->scale);
    if (lora->n_blocks < 0 || (lora->n_blocks && !lora->blocks))
        return tern_fail(unet->ctx, TERN_E_INVALID, "%s: blocks: %d of them, and no list", lora->path, lora->n_blocks);
    for (int i = 0; i < lora->n_blocks; i++) {
        const struct tern_lora_strength *b = &lora->blocks[i];
        const char *block = b->block ? b->block : "";
        bool known = is_part(block, first, end) || unet_has_block(unet, block);
        tern_printable(block, strlen(block), text);
        if (!known)
            return tern_fail(unet->ctx, TERN_E_INVALID,
                             "%s: the model has no block \"%s\"; expected %s%s%s, unet, down, mid, up, a block as down.1, or "
                             "a layer as up.1.2 or mid.0",
                             lora->path, text, first == TERN_LORA_TEXT ? "text_encoder, " : "",
                             end == TERN_LORA_PARTS ? "text_encoder_2, " : "", all_encoders);
        if (!isfinite(b->scale))
            return tern_fail(unet->ctx, TERN_E_INVALID, "%s: block \"%s\": expected a finite number, found %g", lora->path, text, b->scale);
    }
    return TERN_OK;
}

/* The names of LDM single files against those of diffusers folders: one table of rules, read in both directions. */
#include "models/files/ldm.h"

#include <stdio.h>
#include <string.h>

/* How the numbers of a rule translate. */
enum numbers {
    SAME,
    DOWN,         /* input_blocks.B   <-> down_blocks.I.*.J */
    DOWNSAMPLE,   /* input_blocks.B   <-> down_blocks.I */
    UP,           /* output_blocks.B  <-> up_blocks.I.*.J */
    UPSAMPLE,     /* output_blocks.B.SLOT <-> up_blocks.I */
    VAE_UP,       /* decoder.up.V.block.J <-> up_blocks.I.resnets.J: counted from the other end */
    VAE_UPSAMPLE, /* the same with one number */
    OPEN_CLIP     /* resblocks.N     <-> layers.N, as many as are used */
};

/* A part of the name that is called otherwise. */
struct tail {
    const char *ldm, *diffusers;
};

static const struct tail unet_resnet[] = {
    {"in_layers.0.", "norm1."},
    {"in_layers.2.", "conv1."},
    {"emb_layers.1.", "time_emb_proj."},
    {"out_layers.0.", "norm2."},
    {"out_layers.3.", "conv2."},
    {"skip_connection.", "conv_shortcut."},
    {NULL, NULL},
};
static const struct tail vae_resnet[] = {
    {"norm1.", "norm1."}, {"conv1.", "conv1."}, {"norm2.", "norm2."}, {"conv2.", "conv2."}, {"nin_shortcut.", "conv_shortcut."},
    {NULL, NULL},
};
static const struct tail vae_attention[] = {
    {"norm.", "group_norm."}, {"q.", "to_q."}, {"k.", "to_k."}, {"v.", "to_v."}, {"proj_out.", "to_out.0."}, {NULL, NULL},
};

/* '#' is a number, '*' the rest of the name, translated by the tails where there are some. The first rule that fits counts. */
struct rule {
    const char *ldm, *diffusers;
    enum numbers numbers;
    const struct tail *tails;
};

static const struct rule unet_rules[] = {
    {"time_embed.0.*", "time_embedding.linear_1.*", SAME, NULL},
    {"time_embed.2.*", "time_embedding.linear_2.*", SAME, NULL},
    {"label_emb.0.0.*", "add_embedding.linear_1.*", SAME, NULL},
    {"label_emb.0.2.*", "add_embedding.linear_2.*", SAME, NULL},
    {"input_blocks.0.0.*", "conv_in.*", SAME, NULL},
    {"out.0.*", "conv_norm_out.*", SAME, NULL},
    {"out.2.*", "conv_out.*", SAME, NULL},
    {"middle_block.0.*", "mid_block.resnets.0.*", SAME, unet_resnet},
    {"middle_block.1.*", "mid_block.attentions.0.*", SAME, NULL},
    {"middle_block.2.*", "mid_block.resnets.1.*", SAME, unet_resnet},
    {"input_blocks.#.0.op.*", "down_blocks.#.downsamplers.0.conv.*", DOWNSAMPLE, NULL},
    {"input_blocks.#.0.*", "down_blocks.#.resnets.#.*", DOWN, unet_resnet},
    {"input_blocks.#.1.*", "down_blocks.#.attentions.#.*", DOWN, NULL},
    {"output_blocks.#.#.conv.*", "up_blocks.#.upsamplers.0.conv.*", UPSAMPLE, NULL},
    {"output_blocks.#.0.*", "up_blocks.#.resnets.#.*", UP, unet_resnet},
    {"output_blocks.#.1.*", "up_blocks.#.attentions.#.*", UP, NULL},
    {NULL, NULL, SAME, NULL},
};
static const struct rule vae_rules[] = {
    {"encoder.down.#.block.#.*", "encoder.down_blocks.#.resnets.#.*", SAME, vae_resnet},
    {"encoder.down.#.downsample.conv.*", "encoder.down_blocks.#.downsamplers.0.conv.*", SAME, NULL},
    {"decoder.up.#.block.#.*", "decoder.up_blocks.#.resnets.#.*", VAE_UP, vae_resnet},
    {"decoder.up.#.upsample.conv.*", "decoder.up_blocks.#.upsamplers.0.conv.*", VAE_UPSAMPLE, NULL},
    {"encoder.mid.block_1.*", "encoder.mid_block.resnets.0.*", SAME, vae_resnet},
    {"encoder.mid.attn_1.*", "encoder.mid_block.attentions.0.*", SAME, vae_attention},
    {"encoder.mid.block_2.*", "encoder.mid_block.resnets.1.*", SAME, vae_resnet},
    {"decoder.mid.block_1.*", "decoder.mid_block.resnets.0.*", SAME, vae_resnet},
    {"decoder.mid.attn_1.*", "decoder.mid_block.attentions.0.*", SAME, vae_attention},
    {"decoder.mid.block_2.*", "decoder.mid_block.resnets.1.*", SAME, vae_resnet},
    {"encoder.norm_out.*", "encoder.conv_norm_out.*", SAME, NULL},
    {"decoder.norm_out.*", "decoder.conv_norm_out.*", SAME, NULL},
    {"encoder.conv_in.*", "encoder.conv_in.*", SAME, NULL},
    {"encoder.conv_out.*", "encoder.conv_out.*", SAME, NULL},
    {"decoder.conv_in.*", "decoder.conv_in.*", SAME, NULL},
    {"decoder.conv_out.*", "decoder.conv_out.*", SAME, NULL},
    {"quant_conv.*", "quant_conv.*", SAME, NULL},
    {"post_quant_conv.*", "post_quant_conv.*", SAME, NULL},
    {NULL, NULL, SAME, NULL},
};
static const struct rule text_rules[] = {
    {"text_model.*", "text_model.*", SAME, NULL},
    {NULL, NULL, SAME, NULL},
};

static const struct tail open_clip_layer[] = {
    {"ln_1.", "layer_norm1."},
    {"ln_2.", "layer_norm2."},
    {"mlp.c_fc.", "mlp.fc1."},
    {"mlp.c_proj.", "mlp.fc2."},
    {"attn.out_proj.", "self_attn.out_proj."},
    {"attn.in_proj_", "self_attn.qkv_proj."},
    {NULL, NULL},
};
static const struct tail open_clip_table[] = {{"embedding", "embedding.weight"}, {NULL, NULL}};
static const struct tail open_clip_projection[] = {{"projection", "projection.weight"}, {NULL, NULL}};
static const struct rule open_clip_rules[] = {
    {"transformer.resblocks.#.*", "text_model.encoder.layers.#.*", OPEN_CLIP, open_clip_layer},
    {"positional_*", "text_model.embeddings.position_*", SAME, open_clip_table},
    {"token_embedding.*", "text_model.embeddings.token_embedding.*", SAME, NULL},
    {"ln_final.*", "text_model.final_layer_norm.*", SAME, NULL},
    {"text_*", "text_*", SAME, open_clip_projection},
    {NULL, NULL, SAME, NULL},
};

#define PROJECTION "text_projection.weight"
#define FAMILY(f) (1u << TERN_LDM_##f)

static const struct component {
    const char *name, *prefix;
    const struct rule *rules;
    unsigned families; /* in whose files it has that prefix */
} components[] = {
    {"unet", "model.diffusion_model.", unet_rules, ~0u},
    {"vae", "first_stage_model.", vae_rules, ~0u},
    {"text_encoder", "cond_stage_model.transformer.", text_rules, FAMILY(SD1)},
    {"text_encoder", "cond_stage_model.model.", open_clip_rules, FAMILY(SD2)},
    {"text_encoder", "conditioner.embedders.0.transformer.", text_rules, FAMILY(XL)},
    {"text_encoder_2", "conditioner.embedders.1.model.", open_clip_rules, FAMILY(XL)},
    {"text_encoder_2", "conditioner.embedders.0.model.", open_clip_rules, FAMILY(REFINER)},
};
#define COMPONENTS (sizeof(components) / sizeof(*components))

/* What a pattern found: its numbers and the rest. */
struct match {
    int numbers[2], count;
    const char *rest;
};

static bool match_pattern(const char *pattern, const char *name, struct match *m)
{
    m->count = 0;
    for (; *pattern; pattern++) {
        if (*pattern == '*') {
            m->rest = name;
            return *name;
        }
        if (*pattern == '#') {
            int n = 0, digits = 0;
            for (; *name >= '0' && *name <= '9' && digits < 4; name++, digits++)
                n = 10 * n + *name - '0';
            if (!digits)
                return false;
            m->numbers[m->count++] = n;
        } else if (*name++ != *pattern) {
            return false;
        }
    }
    return false;
}

/* Writes the pattern with those numbers up to its '*'; the length, or -1 when it does not fit. */
static int write_pattern(const char *pattern, const int *numbers, char *out, size_t size)
{
    size_t n = 0;
    for (; *pattern != '*'; pattern++) {
        int k = *pattern == '#' ? snprintf(out + n, size - n, "%d", *numbers++) : snprintf(out + n, size - n, "%c", *pattern);
        if (k < 0 || (size_t)k >= size - n)
            return -1;
        n += (size_t)k;
    }
    return (int)n;
}

/* LDM numbers to diffusers numbers, false when they are out of range. Input block 0 is conv_in; each level has its layers
 * and one downsampling, an output level one layer more. */
static bool to_diffusers(enum numbers kind, const struct tern_ldm_sizes *s, int *n)
{
    int layers = s->unet_layers, b = n[0];
    switch (kind) {
    case SAME:
        return true;
    case OPEN_CLIP:
        return n[0] < s->open_clip_layers;
    case DOWN:
        n[0] = (b - 1) / (layers + 1);
        n[1] = (b - 1) % (layers + 1);
        return b > 0 && n[0] < s->unet_levels && n[1] < layers;
    case DOWNSAMPLE:
        n[0] = b / (layers + 1) - 1;
        return b > 0 && b % (layers + 1) == 0 && n[0] < s->unet_levels - 1;
    case UP:
        n[0] = b / (layers + 1);
        n[1] = b % (layers + 1);
        return n[0] < s->unet_levels;
    case UPSAMPLE:
        n[0] = b / (layers + 1);
        return b % (layers + 1) == layers && n[0] < s->unet_levels - 1;
    case VAE_UP:
    case VAE_UPSAMPLE:
        n[0] = s->vae_levels - 1 - b;
        return n[0] >= 0;
    }
    return false;
}

static bool to_ldm(enum numbers kind, const struct tern_ldm_sizes *s, int *n)
{
    int layers = s->unet_layers, i = n[0], j = n[1];
    switch (kind) {
    case SAME:
        return true;
    case OPEN_CLIP:
        return n[0] < s->open_clip_layers;
    case DOWN:
        n[0] = 1 + i * (layers + 1) + j;
        return i < s->unet_levels && j < layers;
    case DOWNSAMPLE:
        n[0] = (i + 1) * (layers + 1);
        return i < s->unet_levels - 1;
    case UP:
        n[0] = i * (layers + 1) + j;
        return i < s->unet_levels && j <= layers;
    case UPSAMPLE: /* the slot behind the resnet, or behind the attention where the level has one */
        n[0] = i * (layers + 1) + layers;
        n[1] = i < 32 && s->unet_up_attention >> i & 1 ? 2 : 1;
        return i < s->unet_levels - 1;
    case VAE_UP:
    case VAE_UPSAMPLE:
        n[0] = s->vae_levels - 1 - i;
        return n[0] >= 0;
    }
    return false;
}

/* A name from one side of the rules to the other. */
static bool translate(const struct rule *rules, const struct tern_ldm_sizes *sizes, bool from_ldm, const char *name, char *out, size_t size)
{
    for (const struct rule *r = rules; r->ldm; r++) {
        struct match m = {.numbers = {0, 0}};
        if (!match_pattern(from_ldm ? r->ldm : r->diffusers, name, &m) ||
            !(from_ldm ? to_diffusers(r->numbers, sizes, m.numbers) : to_ldm(r->numbers, sizes, m.numbers)))
            continue;
        const char *rest = m.rest, *renamed = "";
        for (const struct tail *t = r->tails; t; t++) {
            if (!t->ldm)
                return false;
            size_t n = strlen(from_ldm ? t->ldm : t->diffusers);
            if (!strncmp(rest, from_ldm ? t->ldm : t->diffusers, n)) {
                renamed = from_ldm ? t->diffusers : t->ldm;
                rest += n;
                break;
            }
        }
        int at = write_pattern(from_ldm ? r->diffusers : r->ldm, m.numbers, out, size);
        int k = at < 0 ? -1 : snprintf(out + at, size - (size_t)at, "%s%s", renamed, rest);
        return k >= 0 && (size_t)k < size - (size_t)at;
    }
    return false;
}

bool tern_ldm_is_qkv(const char *name) { return strstr(name, ".self_attn.qkv_proj."); }

bool tern_ldm_is_transposed(const char *name) { return !strcmp(name, PROJECTION); }

/* The component that a name belongs to; NULL: none. */
static const struct component *owner_of(const char *ldm)
{
    for (size_t i = 0; i < COMPONENTS; i++)
        if (!strncmp(ldm, components[i].prefix, strlen(components[i].prefix)))
            return &components[i];
    return NULL;
}

static bool begins(const char *name, const char *with) { return !strncmp(name, with, strlen(with)); }

bool tern_ldm_is_unused(const struct tern_ldm_sizes *sizes, const char *ldm)
{
    const struct component *c = owner_of(ldm);
    int layer = 0;
    if (!c || c->rules == unet_rules)
        return false;
    const char *name = ldm + strlen(c->prefix);
    if (c->rules == vae_rules)
        return begins(name, "loss.") || begins(name, "model_ema.");
    if (!strcmp(name, "logit_scale"))
        return true;
    if (c->rules == text_rules)
        return !strcmp(name, PROJECTION);
    if (!strcmp(name, "attn_mask"))
        return true;
    if (sizes->family != TERN_LDM_SD2)
        return false;
    return !strcmp(name, "text_projection") || !strcmp(name, PROJECTION) ||
           (sscanf(name, "transformer.resblocks.%4d.", &layer) == 1 && layer == sizes->open_clip_layers);
}

static bool is_position_ids(const char *name)
{
    static const char end[] = "position_ids";
    size_t n = strlen(name);
    return n >= sizeof(end) - 1 && !strcmp(name + n - (sizeof(end) - 1), end);
}

bool tern_ldm_name(const struct tern_ldm_sizes *sizes, const char *component, const char *name, char out[TERN_LDM_NAME])
{
    for (size_t i = 0; i < COMPONENTS; i++)
        if (!strcmp(components[i].name, component) && components[i].families >> sizes->family & 1) {
            size_t n = strlen(components[i].prefix);
            memcpy(out, components[i].prefix, n);
            return translate(components[i].rules, sizes, false, name, out + n, TERN_LDM_NAME - n);
        }
    return false;
}

bool tern_ldm_to_diffusers(const struct tern_ldm_sizes *sizes, const char *ldm, const char **component, char out[TERN_LDM_NAME])
{
    const struct component *c = owner_of(ldm);
    if (!c)
        return false;
    *component = c->name;
    if (is_position_ids(ldm))
        return false;
    const char *name = ldm + strlen(c->prefix);
    const bool shorter = c->rules == text_rules && strncmp(name, "text_model.", 11) != 0,
               same = c->rules == open_clip_rules && !strcmp(name, PROJECTION);
    if (!shorter && !same)
        return translate(c->rules, sizes, true, name, out, TERN_LDM_NAME);
    int k = snprintf(out, TERN_LDM_NAME, "%s%s", shorter ? "text_model." : "", name);
    return k >= 0 && k < TERN_LDM_NAME;
}

bool tern_ldm_is_conv1x1(const char *component, const char *name)
{
    static const char *const matrices[] = {"to_q.weight", "to_k.weight", "to_v.weight", "to_out.0.weight"};
    static const char *const folders[] = {"encoder.mid_block.attentions.0.", "decoder.mid_block.attentions.0."};
    for (int i = 0; !strcmp(component, "vae") && i < 2; i++)
        for (int k = 0; k < 4 && !strncmp(name, folders[i], strlen(folders[i])); k++)
            if (!strcmp(name + strlen(folders[i]), matrices[k]))
                return true;
    return false;
}

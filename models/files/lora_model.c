/* Which architecture a LoRA file was made for, from its header, its names and its widths. */
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/architecture.h"
#include "models/files/lora.h"
#include "models/files/weights.h"

/* Trainers write it into the header: kohya's scripts "sdxl_base_v1-0", the model specification "stable-diffusion-xl-v1-base/lora". */
static unsigned model_of_header(const struct tern_weights *w)
{
    static const char *const keys[] = {"ss_base_model_version", "modelspec.architecture"};
    static const struct {
        const char *start;
        unsigned set;
    } values[] = {
        {"sd_v1", TERN_SD1},
        {"sd_v2", TERN_SD2},
        {"sdxl_", TERN_SDXL | TERN_SDXL_REFINER}, /* the scripts know one SDXL */
        {"sd3", TERN_SD3},
        {"flux", TERN_FLUX},
        {"stable-diffusion-v1", TERN_SD1},
        {"stable-diffusion-v2", TERN_SD2},
        {"stable-diffusion-xl-v1-base", TERN_SDXL},
        {"stable-diffusion-xl-", TERN_SDXL | TERN_SDXL_REFINER},
        {"stable-diffusion-3", TERN_SD3},
    };
    for (size_t k = 0; k < sizeof(keys) / sizeof(*keys); k++) {
        const char *value = tern_weights_metadata(w, keys[k]);
        for (size_t i = 0; value && i < sizeof(values) / sizeof(*values); i++)
            if (!strncmp(value, values[i].start, strlen(values[i].start)))
                return values[i].set;
    }
    return TERN_ALL_ARCHITECTURES;
}

/* "a.b_c" fits "a_b_c": '.' and '_' are the same. */
static bool contains(const char *name, const char *part)
{
    for (; *name; name++) {
        size_t n = 0;
        while (part[n] && (name[n] == part[n] || (name[n] == '.' && part[n] == '_')))
            n++;
        if (!part[n])
            return true;
    }
    return false;
}

/* Those whose noise is told by a UNet. */
#define UNETS (TERN_SD1 | TERN_SD2 | TERN_SDXL | TERN_SDXL_REFINER)

/* What a name tells: parts that only some architectures have. */
static unsigned model_of_name(const char *name)
{
    static const struct {
        const char *part;
        unsigned set;
    } parts[] = {
        {"double_blocks_", TERN_FLUX},
        {"single_transformer_blocks_", TERN_FLUX},
        {"transformer_transformer_blocks_", TERN_SD3 | TERN_FLUX}, /* in diffusers' form both lie in "transformer." */
        {"single_blocks_", TERN_FLUX},
        {"joint_blocks_", TERN_SD3},
        {"down_blocks_", UNETS},
        {"mid_block_", UNETS},
        {"up_blocks_", UNETS},
        {"input_blocks_", UNETS},
        {"middle_block_", UNETS},
        {"output_blocks_", UNETS},
        {"lora_te_", TERN_SD1 | TERN_SD2 | TERN_SDXL_REFINER},
        {"lora_te1_", TERN_ALL_ARCHITECTURES & ~TERN_SDXL_REFINER},
        {"lora_te2_", TERN_SDXL | TERN_SDXL_REFINER | TERN_SD3 | TERN_FLUX},
        {"text_encoder_2_", TERN_SDXL | TERN_SDXL_REFINER | TERN_SD3 | TERN_FLUX},
        {"text_encoders_clip_h_", TERN_SD2},
        {"text_encoders_clip_g_", TERN_SDXL | TERN_SDXL_REFINER | TERN_SD3},
        {"down_blocks_0_attentions_", TERN_SD1 | TERN_SD2},
        {"up_blocks_3_", TERN_SD1 | TERN_SD2 | TERN_SDXL_REFINER},
        {"up_blocks_3_attentions_", TERN_SD1 | TERN_SD2},
        {"input_blocks_1_1_", TERN_SD1 | TERN_SD2},
        {"output_blocks_9_", TERN_SD1 | TERN_SD2 | TERN_SDXL_REFINER},
        {"attentions_0_transformer_blocks_1_", TERN_SDXL | TERN_SDXL_REFINER},
        {"_1_transformer_blocks_1_", TERN_SDXL | TERN_SDXL_REFINER}, /* also of LDM's blocks, as input_blocks_4_1 */
        {"_transformer_blocks_4_", TERN_SDXL},
    };
    unsigned set = TERN_ALL_ARCHITECTURES;
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        if (contains(name, parts[i].part))
            set &= parts[i].set;
    return set;
}

/* Size d of tensor t - 1, and 0 for what no matrix of a known model has. */
static int64_t size_of(const struct tern_lora_file *f, int64_t t, int d)
{
    const tern_tensor *x = t ? tern_weights_at(f->weights, t - 1) : NULL;
    const int64_t n = x && d >= 0 && d < tern_tensor_ndim(x) ? tern_tensor_size(x, d) : 0;
    return n < 1 << 20 ? n : 0;
}

/* Elements of a row of tensor t - 1 by `kernel`, as limited. */
static int64_t row_of(const struct tern_lora_file *f, int64_t t, int64_t kernel)
{
    const tern_tensor *x = tern_weights_at(f->weights, t - 1);
    const int64_t rows = size_of(f, t, 0), n = rows ? tern_tensor_numel(x) / rows : 0;
    return n % kernel == 0 && n / kernel < 1 << 20 ? n / kernel : 0;
}

int64_t tern_lora_inputs(const struct tern_lora_file *f, const struct tern_lora_module *m, int64_t kernel)
{
    static const int whole[][2] = {{TERN_LORA_DOWN, TERN_LORA_MID},
                                   {TERN_LORA_HADA_W1_B, TERN_LORA_HADA_T1},
                                   {TERN_LORA_DIFF, TERN_LORA_ROLES}};
    const int64_t *t = m->tensor;
    for (size_t i = 0; i < sizeof(whole) / sizeof(*whole); i++)
        if (t[whole[i][0]])
            return row_of(f, t[whole[i][0]], whole[i][1] < TERN_LORA_ROLES && t[whole[i][1]] ? 1 : kernel);
    if (t[TERN_LORA_GLORA_B2] && kernel > 1)
        return row_of(f, t[TERN_LORA_GLORA_B2], t[TERN_LORA_GLORA_BM] ? 1 : kernel);
    if (t[TERN_LORA_GLORA_A1]) { /* (in, r) or (r, in): the rank is the smaller one */
        const int64_t rows = size_of(f, t[TERN_LORA_GLORA_A1], 0), columns = size_of(f, t[TERN_LORA_GLORA_A1], 1);
        return rows > columns ? rows : columns;
    }
    const int64_t first = t[TERN_LORA_KRON_W1] ? t[TERN_LORA_KRON_W1] : t[TERN_LORA_KRON_W1_B];
    const int64_t second = t[TERN_LORA_KRON_W2] ? t[TERN_LORA_KRON_W2] : t[TERN_LORA_KRON_W2_B];
    return first && second ? row_of(f, first, 1) * row_of(f, second, t[TERN_LORA_KRON_T2] ? 1 : kernel) : 0;
}

/* The same of a matrix. `square`: it has as many outputs. */
static int64_t inputs_of(const struct tern_lora_file *f, const struct tern_lora_module *m, bool square)
{
    const int64_t *t = m->tensor, turned = t[TERN_LORA_OFT_BLOCKS] ? t[TERN_LORA_OFT_BLOCKS] : t[TERN_LORA_OFT_DIAG];
    const int64_t n = tern_lora_inputs(f, m, 1);
    if (n || !square)
        return n;
    if (turned) {
        const int last = tern_tensor_ndim(tern_weights_at(f->weights, turned - 1)) - 1;
        return size_of(f, turned, last) * size_of(f, turned, last - 2);
    }
    return size_of(f, t[TERN_LORA_FACTOR], 0);
}

/* By the width of the text: what cross attention reads, and what a text encoder's own attention reads and writes. What the model has, too,
 * tells nothing. */
static unsigned model_of_width(const struct tern_lora_file *f, enum tern_lora_part part, const struct tern_weights *base, int64_t i)
{
    static const struct {
        int64_t width;
        unsigned set;
    } widths[] = {{768, TERN_SD1}, {1024, TERN_SD2}, {1280, TERN_SDXL_REFINER}, {2048, TERN_SDXL}};
    const char *name = base->entries[i].name;
    const tern_tensor *w = base->entries[i].tensor;
    const bool text = part != TERN_LORA_UNET, reads = strstr(name, text ? ".self_attn." : ".attn2.to_k.") || strstr(name, ".attn2.to_v.");
    const int64_t width = reads && tern_tensor_ndim(w) == 2 ? inputs_of(f, &f->part[part].module[i], text) : 0;
    if (!width || width == tern_tensor_size(w, 1))
        return TERN_ALL_ARCHITECTURES;
    if (text)
        return tern_architectures_of_text(width);
    for (size_t k = 0; k < sizeof(widths) / sizeof(*widths); k++)
        if (width == widths[k].width)
            return widths[k].set;
    return TERN_ALL_ARCHITECTURES;
}

enum tern_status tern_lora_check_model(const struct tern_lora_file *f, struct tern_weights *const bases[TERN_LORA_PARTS], bool by_names)
{
    char made[TERN_ARCHITECTURE_TEXT], own[TERN_ARCHITECTURE_TEXT];
    unsigned set = model_of_header(f->weights), named = TERN_ALL_ARCHITECTURES;
    for (int part = 0; part < TERN_LORA_PARTS; part++)
        for (int64_t i = 0; i < f->part[part].count; i++)
            set &= model_of_width(f, (enum tern_lora_part)part, bases[part], i);
    for (int64_t i = 0; i < f->weights->count; i++)
        named &= model_of_name(f->weights->entries[i].name);
    set &= by_names ? named : TERN_ALL_ARCHITECTURES;
    if (!set || set & f->model) /* what contradicts itself tells nothing */
        return TERN_OK;
    set &= set & named ? named : TERN_ALL_ARCHITECTURES; /* the message may say more */
    return tern_fail(f->ctx, TERN_E_FORMAT, "%s: a LoRA for %s, but this model is %s", f->path, tern_architecture_text(set, made),
                     tern_architecture_text(f->model, own));
}

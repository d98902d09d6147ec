/* Which architecture a LoRA file was made for, from its header, its names and its widths. */
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/lora.h"
#include "models/files/weights.h"

/* Architectures as a set: what is known leaves some of them. */
enum { SD1 = 1, SD2 = 2, SDXL = 4, SD3 = 8, FLUX = 16, ALL = 31 };

static const char *model_text(unsigned set)
{
    static const struct {
        unsigned set;
        const char *text;
    } names[] = {
        {SD1, "Stable Diffusion 1"},
        {SD2, "Stable Diffusion 2"},
        {SD1 | SD2, "Stable Diffusion 1 or 2"},
        {SDXL, "Stable Diffusion XL"},
        {SD3, "Stable Diffusion 3"},
        {FLUX, "Flux"},
        {SD3 | FLUX, "Stable Diffusion 3 or Flux"},
        {SDXL | SD3 | FLUX, "Stable Diffusion XL, Stable Diffusion 3 or Flux"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (names[i].set == set)
            return names[i].text;
    return "another architecture";
}

/* What has a pooled text is SDXL; the projections around a transformer are convolutions in SD 1 and linear since SD 2. */
static unsigned model_of_unet(const struct tern_weights *unet)
{
    if (tern_weights_get(unet, "add_embedding.linear_1.weight"))
        return SDXL;
    const tern_tensor *proj = tern_weights_get(unet, "mid_block.attentions.0.proj_in.weight");
    return proj && tern_tensor_ndim(proj) == 2 ? SD2 : SD1;
}

/* Trainers write it into the header: kohya's scripts "sdxl_base_v1-0", the model specification "stable-diffusion-xl-v1-base/lora". */
static unsigned model_of_header(const struct tern_weights *w)
{
    static const char *const keys[] = {"ss_base_model_version", "modelspec.architecture"};
    static const struct {
        const char *start;
        unsigned set;
    } values[] = {
        {"sd_v1", SD1},
        {"sd_v2", SD2},
        {"sdxl_", SDXL},
        {"sd3", SD3},
        {"flux", FLUX},
        {"stable-diffusion-v1", SD1},
        {"stable-diffusion-v2", SD2},
        {"stable-diffusion-xl-", SDXL},
        {"stable-diffusion-3", SD3},
    };
    for (size_t k = 0; k < sizeof(keys) / sizeof(*keys); k++) {
        const char *value = tern_weights_metadata(w, keys[k]);
        for (size_t i = 0; value && i < sizeof(values) / sizeof(*values); i++)
            if (!strncmp(value, values[i].start, strlen(values[i].start)))
                return values[i].set;
    }
    return ALL;
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

/* What a name tells: parts that only some architectures have. */
static unsigned model_of_name(const char *name)
{
    static const struct {
        const char *part;
        unsigned set;
    } parts[] = {
        {"double_blocks_", FLUX},
        {"single_transformer_blocks_", FLUX},
        {"transformer_transformer_blocks_", SD3 | FLUX}, /* in diffusers' form both lie in "transformer." */
        {"single_blocks_", FLUX},
        {"joint_blocks_", SD3},
        {"lora_te_", SD1 | SD2},
        {"lora_te2_", SDXL | SD3 | FLUX},
        {"text_encoder_2_", SDXL | SD3 | FLUX},
        {"down_blocks_0_attentions_", SD1 | SD2},
        {"up_blocks_3_", SD1 | SD2},
        {"input_blocks_1_1_", SD1 | SD2},
        {"output_blocks_9_", SD1 | SD2},
        {"attentions_0_transformer_blocks_1_", SDXL},
        {"_1_transformer_blocks_1_", SDXL}, /* also of LDM's blocks, as input_blocks_4_1 */
    };
    unsigned set = ALL;
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        if (contains(name, parts[i].part))
            set &= parts[i].set;
    return set;
}

/* The text's width, in the factors of what cross attention reads; the model's own tells nothing. */
static unsigned model_of_width(const char *name, const tern_tensor *t, int64_t own)
{
    static const struct {
        int64_t width;
        unsigned set;
    } widths[] = {{768, SD1}, {1024, SD2}, {2048, SDXL}};
    if (!contains(name, "attn2_to_k_lora_down") && !contains(name, "attn2_to_k_lora_A"))
        return ALL;
    const int64_t width = tern_tensor_ndim(t) >= 2 ? tern_tensor_size(t, 1) : own;
    for (size_t i = 0; i < sizeof(widths) / sizeof(*widths); i++)
        if (width != own && width == widths[i].width)
            return widths[i].set;
    return ALL;
}

enum tern_status tern_lora_check_model(const struct tern_lora_file *f, const struct tern_weights *unet, bool by_names)
{
    const unsigned own = model_of_unet(unet);
    const tern_tensor *to_k = tern_weights_get(unet, "mid_block.attentions.0.transformer_blocks.0.attn2.to_k.weight");
    const int64_t width = to_k && tern_tensor_ndim(to_k) == 2 ? tern_tensor_size(to_k, 1) : 0;
    unsigned set = model_of_header(f->weights);
    for (int64_t i = 0; i < f->weights->count; i++) {
        const char *name = f->weights->entries[i].name;
        set &= model_of_width(name, f->weights->entries[i].tensor, width) & (by_names ? model_of_name(name) : ALL);
    }
    if (!set || set & own) /* what contradicts itself tells nothing */
        return TERN_OK;
    return tern_fail(f->ctx, TERN_E_FORMAT, "%s: a LoRA for %s, but this model is %s", f->path, model_text(set), model_text(own));
}

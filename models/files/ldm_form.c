/* The form that a tensor of a folder has in a single file: name and shape. */
#include <stdio.h>
#include <string.h>

#include "models/files/ldm.h"

/* "…self_attn.q_proj.weight" -> "…self_attn.qkv_proj.weight"; false for other names. */
static bool fused_name(const char *name, const char *part, char out[TERN_LDM_NAME])
{
    const char *at = strstr(name, part);
    int n = at ? snprintf(out, TERN_LDM_NAME, "%.*s.self_attn.qkv_proj.%s", (int)(at - name), name, at + strlen(part)) : -1;
    return n > 0 && n < TERN_LDM_NAME;
}

enum tern_ldm_form tern_ldm_form(const struct tern_ldm_sizes *sizes, const char *component, const char *name,
                                 struct tern_safetensors_entry *e, char ldm[TERN_LDM_NAME])
{
    char fused[TERN_LDM_NAME];
    if (tern_ldm_is_conv1x1(component, name) && e->ndim == 2) {
        e->shape[2] = e->shape[3] = 1;
        e->ndim = 4;
    }
    if (tern_ldm_is_transposed(name) && e->ndim == 2) {
        int64_t rows = e->shape[0];
        e->shape[0] = e->shape[1];
        e->shape[1] = rows;
    }
    if (tern_ldm_name(sizes, component, name, ldm)) /* OpenAI's CLIP and all networks */
        return tern_ldm_is_transposed(name) ? TERN_LDM_TRANSPOSED : TERN_LDM_SAME;
    if (!sizes->open_clip_layers)
        return TERN_LDM_UNKNOWN;
    if (strstr(name, ".self_attn.k_proj.") || strstr(name, ".self_attn.v_proj."))
        return TERN_LDM_WITH_Q;
    if (!fused_name(name, ".self_attn.q_proj.", fused) || !tern_ldm_name(sizes, component, fused, ldm))
        return TERN_LDM_UNKNOWN;
    e->shape[0] *= 3;
    return TERN_LDM_FUSED;
}

/* A checkpoint as one LDM-style file. */
#include <stdio.h>
#include <string.h>

#include "core/tensor.h"
#include "models/files/checkpoint.h"
#include "models/files/weights.h"
#include "models/modules/config.h"
#include "models/pipelines/convert.h"
#include "models/pipelines/pipeline.h"

/* Families by their text encoders: OpenCLIP's is known by its exact GELU. */
static enum tern_status choose_family(struct tern_context *ctx, const struct tern_checkpoint *cp, struct tern_ldm_sizes *out)
{
    bool first = tern_checkpoint_has(cp, "text_encoder"), second = tern_checkpoint_has(cp, "text_encoder_2");
    struct tern_convert_text t = {0};
    for (int i = 0; i < 2; i++) {
        const char *class_name = tern_checkpoint_class(cp, tern_convert_components[i]);
        char what[128];
        snprintf(what, sizeof(what), "%s is a %.60s, and single files have CLIP's text encoders", tern_convert_components[i],
                 class_name ? class_name : "");
        if (class_name && strcmp(class_name, "CLIPTextModel") && strcmp(class_name, "CLIPTextModelWithProjection"))
            return tern_convert_no_form(cp, what);
    }
    if (!first && !second)
        return tern_convert_no_form(cp, "it has no text encoder");
    const char *open = second ? "text_encoder_2" : "text_encoder";
    if (tern_convert_read_text(ctx, tern_checkpoint_config(cp, open), tern_checkpoint_config_where(cp, open), &t))
        return tern_error_status(ctx);
    out->family = second ? (first ? TERN_LDM_XL : TERN_LDM_REFINER) : !strcmp(t.act, "gelu") ? TERN_LDM_SD2 : TERN_LDM_SD1;
    out->open_clip_layers = out->family == TERN_LDM_SD1 ? 0 : (int)t.layers;
    return TERN_OK;
}

static enum tern_status choose_sizes(struct tern_context *ctx, const struct tern_checkpoint *cp, struct tern_ldm_sizes *out)
{
    struct tern_unet_config u;
    struct tern_vae_config v;
    if (choose_family(ctx, cp, out))
        return tern_error_status(ctx);
    if (!tern_checkpoint_has(cp, "unet") || !tern_checkpoint_has(cp, "vae"))
        return tern_convert_no_form(cp, "it lacks its unet or its vae");
    if (tern_unet_read_config(ctx, tern_checkpoint_config(cp, "unet"), tern_checkpoint_config_where(cp, "unet"), &u) ||
        tern_vae_read_config(ctx, tern_checkpoint_config(cp, "vae"), tern_checkpoint_config_where(cp, "vae"), &v))
        return tern_error_status(ctx);
    out->unet_levels = u.blocks;
    out->unet_layers = (int)u.layers[0];
    out->vae_levels = v.blocks;
    for (int i = 0; i < u.blocks; i++) {
        if (u.layers[i] != u.layers[0])
            return tern_convert_no_form(cp, "its UNet has another number of layers at each level");
        out->unet_up_attention |= (u.cross_up[i] ? 1u : 0u) << i;
    }
    return TERN_OK;
}

/* SD 2's files have a layer that nobody uses, by which readers count: the last one that is used once more. */
static enum tern_status add_unused_layer(struct tern_convert_list *l, const struct tern_ldm_sizes *sizes, const char *ldm)
{
    static const char mark[] = ".resblocks.";
    char name[TERN_LDM_NAME];
    const char *at = strstr(ldm, mark), *number = at ? at + sizeof(mark) - 1 : NULL;
    int layer = -1, length = 0;
    if (sizes->family != TERN_LDM_SD2 || !at || sscanf(number, "%4d%n", &layer, &length) != 1 || layer != sizes->open_clip_layers - 1)
        return TERN_OK;
    struct tern_convert_item last = l->item[l->count - 1];
    int n = snprintf(name, sizeof(name), "%.*s%d%s", (int)(number - ldm), ldm, layer + 1, number + length);
    struct tern_convert_item *more = n > 0 && n < TERN_LDM_NAME ? tern_convert_add(l, name, last.part[0]) : NULL;
    if (!more)
        return tern_failed(l->ctx) ? tern_error_status(l->ctx) : tern_fail(l->ctx, TERN_E_INTERNAL, "convert: \"%s\" is too long", ldm);
    last.entry.name = more->entry.name;
    *more = last;
    return TERN_OK;
}

void tern_convert_sibling(const char *name, char letter, char out[TERN_LDM_NAME])
{
    const char *at = strstr(name, "q_proj");
    snprintf(out, TERN_LDM_NAME, "%.*s%c%s", (int)(at - name), name, letter, at + 1);
}

/* q's item gets k and v. */
static enum tern_status add_rows(struct tern_convert_item *item, const struct tern_weights *w, const char *name)
{
    char other[TERN_LDM_NAME];
    for (int i = 1; i < 3; i++) {
        tern_convert_sibling(name, "qkv"[i], other);
        tern_tensor *t = tern_weights_get(w, other);
        if (!t || !tern_meta_same_shape(&t->meta, &item->part[0]->meta))
            return tern_fail(w->ctx, TERN_E_FORMAT, "convert: \"%s\": expected a tensor like \"%s\", which has its rows before it", other,
                             name);
        item->part[item->parts++] = t;
    }
    return TERN_OK;
}

static enum tern_status add_component(struct tern_convert_list *l, struct tern_checkpoint *cp, const struct tern_ldm_sizes *sizes,
                                      const char *component)
{
    const struct tern_weights *w = tern_convert_open(l, cp, component);
    char ldm[TERN_LDM_NAME], text[TERN_PRINTABLE];
    for (int64_t i = 0; w && i < w->count; i++) {
        const char *name = w->entries[i].name;
        struct tern_safetensors_entry e = {.ndim = w->entries[i].tensor->meta.ndim};
        memcpy(e.shape, w->entries[i].tensor->meta.shape, sizeof(e.shape));
        enum tern_ldm_form form = tern_ldm_form(sizes, component, name, &e, ldm);
        if (form == TERN_LDM_UNKNOWN)
            return tern_fail(l->ctx, TERN_E_UNSUPPORTED, "%s: %s: the tensor \"%s\" has no name in single files", tern_checkpoint_path(cp),
                             component, tern_printable(name, strlen(name), text));
        if (form == TERN_LDM_WITH_Q)
            continue;
        struct tern_convert_item *item = tern_convert_add(l, ldm, w->entries[i].tensor);
        if (!item)
            return tern_error_status(l->ctx);
        item->entry.ndim = e.ndim;
        memcpy(item->entry.shape, e.shape, sizeof(e.shape));
        item->transposed = form == TERN_LDM_TRANSPOSED;
        if (form == TERN_LDM_FUSED && add_rows(item, w, name))
            return tern_error_status(l->ctx);
        tern_convert_quantize(l, item, component, name);
        if (add_unused_layer(l, sizes, ldm))
            return tern_error_status(l->ctx);
    }
    return tern_error_status(l->ctx);
}

/* A file says in its header what it predicts; SDXL's say v by empty tensors, too, which is what other programs read. */
static enum tern_status say_prediction(struct tern_convert_list *l, const struct tern_checkpoint *cp, const struct tern_ldm_sizes *sizes,
                                       tern_tensor *mark)
{
    char kind[32];
    bool zero_snr;
    if (tern_convert_prediction(l->ctx, tern_checkpoint_scheduler(cp), kind, &zero_snr))
        return tern_error_status(l->ctx);
    const bool v = !strcmp(kind, "v_prediction");
    l->prediction = v ? "v" : !strcmp(kind, "epsilon") ? "epsilon" : NULL;
    if (sizes->family < TERN_LDM_XL || !v)
        return TERN_OK;
    return tern_convert_add(l, "v_pred", mark) && (!zero_snr || tern_convert_add(l, "ztsnr", mark)) ? TERN_OK : tern_error_status(l->ctx);
}

enum tern_status tern_convert_single(struct tern_context *ctx, struct tern_checkpoint *cp, const char *out,
                                     const struct tern_convert_params *params)
{
    struct tern_convert_list l = {.ctx = ctx, .params = params};
    struct tern_ldm_sizes sizes = {0};
    tern_tensor *mark = tern_tensor_wrap(ctx, TERN_F32, 1, (const int64_t[]){0}, "", NULL, NULL);
    enum tern_status st = mark ? choose_sizes(ctx, cp, &sizes) : tern_error_status(ctx);
    for (int i = 0; !st && i < TERN_CONVERT_SETS; i++)
        if (tern_checkpoint_has(cp, tern_convert_components[i]))
            st = add_component(&l, cp, &sizes, tern_convert_components[i]);
    if (!st)
        st = say_prediction(&l, cp, &sizes, mark);
    if (!st)
        st = tern_convert_check(&l, cp, out);
    if (!st)
        st = tern_convert_write(&l, out);
    tern_convert_free(&l);
    tern_tensor_unref(&mark);
    return st;
}

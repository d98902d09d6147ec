/* One spelling for the names of tensors: that of the files on the hub. Older and newer diffusers and transformers wrote others. */
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/layout.h"
#include "models/files/ldm.h"
#include "models/files/quantized.h"
#include "models/files/weights.h"

#define NAME_SIZE 512

static bool starts_with(const char *s, const char *start) { return !strncmp(s, start, strlen(start)); }

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

/* Text encoders. transformers 5 leaves "text_model." out of CLIP's names; BERT's are without a prefix, though some files
 * have "bert.". Position numbers are no weights. False: the tensor is dropped. */
static bool text_name(const char *name, char out[NAME_SIZE])
{
    static const char *const clip[] = {"embeddings.token_embedding.", "embeddings.position_embedding.", "encoder.layers.",
                                       "final_layer_norm."};
    if (ends_with(name, "position_ids"))
        return false;
    for (size_t i = 0; i < sizeof(clip) / sizeof(*clip); i++)
        if (starts_with(name, clip[i])) {
            snprintf(out, NAME_SIZE, "text_model.%s", name);
            return true;
        }
    snprintf(out, NAME_SIZE, "%s", starts_with(name, "bert.") ? name + 5 : name);
    return true;
}

/* The VAE's attention had a class of its own before diffusers 0.18. */
static void vae_name(const char *name, char out[NAME_SIZE])
{
    static const char *const names[][2] = {{"query.", "to_q."}, {"key.", "to_k."}, {"value.", "to_v."}, {"proj_attn.", "to_out.0."}};
    const char *at = strstr(name, ".attentions.0.");
    snprintf(out, NAME_SIZE, "%s", name);
    if (!at)
        return;
    at += strlen(".attentions.0.");
    for (int i = 0; i < 4; i++)
        if (starts_with(at, names[i][0]))
            snprintf(out, NAME_SIZE, "%.*s%s%s", (int)(at - name), name, names[i][1], at + strlen(names[i][0]));
}

/* Whether there can be another tensor over its memory. */
static bool can_be_lent(const tern_tensor *t)
{
    return tern_meta_is_contiguous(&t->meta) && (tern_tensor_host(t) || tern_quantized_bits(t));
}

/* The tensor under its new name; a matrix that is written as 1x1 convolution becomes one. */
static enum tern_status append(struct tern_weights *out, const char *component, const char *name, tern_tensor *t)
{
    const struct tern_meta *m = &t->meta;
    bool matrix = m->ndim == 4 && m->shape[2] == 1 && m->shape[3] == 1 && tern_ldm_is_conv1x1(component, name);
    if (matrix && can_be_lent(t))
        return tern_weights_append(out, name, tern_alias_tensor(t, m->dtype, 2, m->shape, 0));
    return tern_weights_append(out, name, tern_tensor_ref(t));
}

/* The tensor of a set that stays open, as another one over the same memory: what kernels prepare of it goes with the component. */
static tern_tensor *lent(tern_tensor *t)
{
    const struct tern_meta *m = &t->meta;
    return can_be_lent(t) ? tern_alias_tensor(t, m->dtype, m->ndim, m->shape, 0) : tern_tensor_ref(t);
}

/* Rows of q, of k and of v: three tensors over the memory of one. */
static enum tern_status append_qkv(struct tern_weights *out, const char *where, const char *name, tern_tensor *t)
{
    static const char mark[] = "qkv_proj";
    char one[NAME_SIZE], text[TERN_META_TEXT], shown[TERN_PRINTABLE];
    const struct tern_meta *m = &t->meta;
    const char *at = strstr(name, mark);
    if (m->ndim < 1 || m->ndim > 2 || m->shape[0] % 3 || !can_be_lent(t))
        return tern_fail(out->ctx, TERN_E_FORMAT, "%s: \"%s\": expected rows of q, k and v, as many of each, found %s", where,
                         tern_printable(name, strlen(name), shown), tern_meta_text(m, text));
    struct tern_meta part = *m;
    part.shape[0] /= 3;
    size_t bytes = (size_t)tern_meta_numel(&part) * tern_dtype_size(m->dtype);
    enum tern_status st = TERN_OK;
    for (int i = 0; i < 3 && !st; i++) {
        snprintf(one, sizeof(one), "%.*s%c_proj%s", (int)(at - name), name, "qkv"[i], at + sizeof(mark) - 1);
        st = tern_weights_append(out, one, tern_alias_tensor(t, m->dtype, m->ndim, part.shape, (size_t)i * bytes));
    }
    return st;
}

/* A copy with rows and columns exchanged. */
static enum tern_status append_transposed(struct tern_weights *out, const char *where, const char *name, tern_tensor *t)
{
    char text[TERN_META_TEXT];
    struct tern_meta m = t->meta;
    if (m.ndim != 2 || !tern_tensor_host(t))
        return tern_fail(out->ctx, TERN_E_FORMAT, "%s: \"%s\": expected a matrix, found %s", where, name, tern_meta_text(&m, text));
    for (int i = 0; i < 2; i++) {
        m.shape[i] = t->meta.shape[1 - i];
        m.stride[i] = t->meta.stride[1 - i];
    }
    return tern_weights_append(out, name, tern_copied_tensor(out->ctx, tern_tensor_host(t), TERN_FILE_NATIVE, &m));
}

struct tern_weights *tern_weights_like(struct tern_context *ctx, const struct tern_weights *w)
{
    struct tern_weights *out = tern_weights_create(ctx);
    if (out)
        out->format = w->format;
    for (int64_t i = 0; out && i < w->metadata_count; i++)
        if (tern_weights_add_metadata(out, w->metadata[2 * i], w->metadata[2 * i + 1]))
            tern_weights_unref(&out);
    return out;
}

struct tern_weights *tern_weights_normalise(struct tern_context *ctx, const struct tern_weights *w, const char *component)
{
    char name[NAME_SIZE], text[TERN_PRINTABLE];
    struct tern_weights *out = tern_weights_like(ctx, w);
    bool is_text = starts_with(component, "text_encoder");
    enum tern_status st = out ? TERN_OK : tern_error_status(ctx);
    for (int64_t i = 0; !st && i < w->count; i++) {
        const char *old = w->entries[i].name;
        if (strlen(old) > NAME_SIZE - 32) {
            st = tern_fail(ctx, TERN_E_FORMAT, "%s: the name \"%s\" is too long", component, tern_printable(old, strlen(old), text));
            break;
        }
        if (is_text && !text_name(old, name))
            continue;
        if (!is_text)
            vae_name(old, name);
        st = append(out, component, name, w->entries[i].tensor);
    }
    if (!st)
        st = tern_weights_finish(out, component);
    if (st)
        tern_weights_unref(&out);
    return out;
}

struct tern_weights *tern_ldm_component(struct tern_context *ctx, const struct tern_weights *w, const struct tern_ldm_sizes *sizes,
                                        const char *component, const char *where)
{
    char name[TERN_LDM_NAME];
    struct tern_weights *out = tern_weights_like(ctx, w);
    enum tern_status st = out ? TERN_OK : tern_error_status(ctx);
    for (int64_t i = 0; !st && i < w->count; i++) {
        const char *owner = "", *old = w->entries[i].name;
        bool known = tern_ldm_to_diffusers(sizes, old, &owner, name);
        if (strcmp(owner, component) || ends_with(old, "position_ids") || tern_ldm_is_unused(sizes, old))
            continue;
        tern_tensor *t = lent(w->entries[i].tensor);
        if (!t)
            st = tern_error_status(ctx);
        else if (known && tern_ldm_is_qkv(name))
            st = append_qkv(out, where, name, t);
        else if (known && tern_ldm_is_transposed(name) && !ends_with(old, name)) /* under that name it is as diffusers has it */
            st = append_transposed(out, where, name, t);
        else /* a name that does not translate stays as it is: whoever builds the component reports it as left over */
            st = append(out, component, known ? name : old, t);
        tern_tensor_unref(&t);
    }
    if (!st)
        st = tern_weights_finish(out, where);
    if (st)
        tern_weights_unref(&out);
    return out;
}

/* Reading a textual inversion, in the forms that AUTOMATIC1111, diffusers and their trainers write. */
#include "models/files/embedding.h"

#include <math.h>
#include <string.h>

#include "core/context.h"
#include "core/memory.h"
#include "core/status.h"
#include "core/tensor.h"
#include "models/files/weights.h"

static const char param[] = "string_to_param.";

/* The only tensor that can be the vectors; NULL when there are more. */
static const tern_tensor *find_single(const struct tern_weights *w, const char **name)
{
    const tern_tensor *found = NULL;
    for (int64_t i = 0; i < tern_weights_count(w); i++) {
        const char *s = tern_weights_name(w, i);
        if (!strncmp(s, "string_to_token.", strlen("string_to_token.")))
            continue; /* the word's id where it was trained */
        if (found)
            return NULL;
        found = tern_weights_at(w, i);
        *name = s;
    }
    return found;
}

/* (V, D) or (D) as V x D finite numbers. */
static enum tern_status read_vectors(struct tern_embedding_file *f, const char *path, const char *name, const tern_tensor *t)
{
    char text[TERN_META_TEXT], label[TERN_PRINTABLE];
    const int ndim = tern_tensor_ndim(t), e = f->encoders;
    const int64_t n = tern_tensor_numel(t), vectors = ndim == 2 ? tern_tensor_size(t, 0) : 1;
    tern_printable(name, strlen(name), label);
    if (ndim < 1 || ndim > 2 || !n || !tern_dtype_is_float(tern_tensor_dtype(t)))
        return tern_fail(f->ctx, TERN_E_SHAPE, "%s: tensor \"%s\": expected the vectors of an embedding, (V, D) or (D), found %s", path,
                         label, tern_meta_text(&t->meta, text));
    if (e && vectors != f->vectors)
        return tern_fail(f->ctx, TERN_E_SHAPE,
                         "%s: tensor \"%s\": expected as many vectors as for the first text encoder, %lld, found %lld", path, label,
                         (long long)f->vectors, (long long)vectors);
    f->vectors = vectors;
    f->width[e] = n / vectors;
    f->values[e] = tern_alloc(f->ctx, (size_t)n * sizeof(float));
    f->encoders++;
    if (!f->values[e] || tern_tensor_read(t, TERN_F32, f->values[e], (size_t)n * sizeof(float)))
        return tern_error_status(f->ctx);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(f->values[e][i]))
            return tern_fail(f->ctx, TERN_E_FORMAT, "%s: tensor \"%s\" has values that are no finite numbers", path, label);
    return TERN_OK;
}

static enum tern_status read_own_name(struct tern_embedding_file *f, const struct tern_weights *w, const char *tensor)
{
    const char *own = tern_weights_metadata(w, "name");
    if (!own && strcmp(tensor, "emb_params") && strncmp(tensor, param, strlen(param)))
        own = tensor;
    if (own && *own)
        f->own_name = tern_strdup(f->ctx, own);
    return tern_error_status(f->ctx);
}

/* SDXL's two tensors; false: the file has no such. cog-sdxl and diffusers' pivotal tuning call them otherwise. */
static bool read_pair(struct tern_embedding_file *f, const char *path, const struct tern_weights *w)
{
    static const char *const names[][2] = {{"clip_l", "clip_g"}, {"text_encoders_0", "text_encoders_1"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const tern_tensor *l = tern_weights_get(w, names[i][0]), *g = tern_weights_get(w, names[i][1]);
        if (!l || !g)
            continue;
        if (!read_vectors(f, path, names[i][0], l))
            read_vectors(f, path, names[i][1], g);
        return true;
    }
    return false;
}

static enum tern_status read_alone(struct tern_embedding_file *f, const char *path, const struct tern_weights *w, const char *name,
                                   const tern_tensor *t)
{
    enum tern_status st = read_vectors(f, path, name, t);
    return st ? st : read_own_name(f, w, name);
}

enum tern_status tern_embedding_read(struct tern_context *ctx, const char *path, struct tern_embedding_file *out)
{
    *out = (struct tern_embedding_file){.ctx = ctx};
    struct tern_weights *w = tern_weights_open(ctx, path);
    if (!w)
        return tern_error_status(ctx);
    const char *name = NULL;
    const bool pair = read_pair(out, path, w);
    const tern_tensor *single = pair ? NULL : find_single(w, &name);
    if (single)
        read_alone(out, path, w, name, single);
    else if (!pair)
        tern_fail(ctx, TERN_E_FORMAT,
                  "%s: no embedding: expected emb_params, clip_l and clip_g, string_to_param or one tensor alone, found %lld tensors", path,
                  (long long)tern_weights_count(w));
    tern_weights_unref(&w);
    return tern_error_status(ctx);
}

void tern_embedding_free(struct tern_embedding_file *f)
{
    tern_free(f->ctx, f->own_name);
    for (int e = 0; e < 2; e++)
        tern_free(f->ctx, f->values[e]);
    *f = (struct tern_embedding_file){.ctx = f->ctx};
}

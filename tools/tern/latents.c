/* Latents in safetensors files: one tensor, "latents" (N, 4, H/8, W/8). */
#include <stdio.h>
#include <stdlib.h>

#include "picture.h"

/* The tensor as f32 on the context's device; the caller owns it. */
static tern_tensor *as_f32(struct tern_context *ctx, tern_tensor *t)
{
    if (tern_tensor_dtype(t) == TERN_F32)
        return tern_tensor_ref(t);
    size_t size = (size_t)tern_tensor_numel(t) * sizeof(float);
    float *values = malloc(size ? size : 1);
    tern_tensor *out = NULL;
    if (values && !tern_tensor_read(t, TERN_F32, values, size))
        out = tern_tensor_create(ctx, TERN_F32, tern_tensor_ndim(t), tern_tensor_shape(t), values);
    free(values);
    return out;
}

tern_tensor *latents_load(struct tern_context *ctx, const char *path)
{
    struct tern_weights *w = tern_weights_open(ctx, path);
    if (!w) {
        library_failed(ctx, false);
        return NULL;
    }
    tern_tensor *out = NULL, *t = tern_weights_get(w, "latents");
    if (!t)
        failed("%s: the tensor \"latents\" is missing; there are %lld tensors, the first is \"%s\"", path, (long long)tern_weights_count(w),
               tern_weights_count(w) ? tern_weights_name(w, 0) : "");
    else if (!tern_dtype_is_float(tern_tensor_dtype(t)))
        failed("%s: \"latents\" is %s; expected f32, f16 or bf16", path, tern_dtype_name(tern_tensor_dtype(t)));
    else if (!(out = as_f32(ctx, t)))
        library_failed(ctx, false);
    tern_weights_unref(&w);
    return out;
}

enum tern_status latents_save(struct tern_context *ctx, const char *path, tern_tensor *latents)
{
    struct tern_weights *w = tern_weights_create(ctx);
    if (!w)
        return TERN_E_NO_MEMORY;
    enum tern_status status = tern_weights_add(w, "latents", latents);
    if (!status)
        status = tern_weights_save(w, path);
    tern_weights_unref(&w);
    return status;
}

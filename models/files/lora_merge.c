/* The weights that LoRAs give: W' = W + the sum of what each adds to W, always from the base, in f32, rounded once. */
#include <string.h>
#include <tern/ops.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/lora.h"
#include "models/files/quantized.h"
#include "models/files/weights.h"
#include "ops/resident.h"

/* How strongly a use changes tensor i; 0: not at all. */
static double strength_at(const struct tern_lora_use *u, enum tern_lora_part part, int64_t i, const char *name)
{
    return u->file->part[part].module[i].kind ? u->scale * tern_lora_strength(u, part, name) : 0;
}

/* The base in f32. Of a quantised weight values of its own: none are to stay with it. In the open scope. */
static tern_tensor *in_f32(tern_tensor *w)
{
    if (!tern_quantized_bits(w))
        return tern_cast(w, TERN_F32);
    void *copy;
    const void *values = tern_host_elements(w, &copy);
    tern_tensor *t = values ? tern_tensor_create(w->ctx, TERN_F32, w->meta.ndim, w->meta.shape, values) : NULL;
    tern_free(w->ctx, copy);
    return t;
}

/* The new tensor, an owned reference; NULL: it stays, or an error is recorded. */
static tern_tensor *merge(const struct tern_weights *base, enum tern_lora_part part, int64_t i, const struct tern_lora_use *uses, int n)
{
    struct tern_context *ctx = base->ctx;
    tern_tensor *w = base->entries[i].tensor, *sum = NULL;
    bool changed = false;
    for (int k = 0; k < n && !changed; k++)
        changed = strength_at(&uses[k], part, i, base->entries[i].name) != 0;
    if (!changed)
        return NULL;
    tern_scope_begin(ctx);
    tern_tensor *from = in_f32(w);
    for (int k = 0; k < n && !tern_failed(ctx); k++) {
        double strength = strength_at(&uses[k], part, i, base->entries[i].name);
        if (strength == 0)
            continue;
        tern_tensor *d = tern_lora_difference(uses[k].file, &uses[k].file->part[part].module[i], from, strength);
        sum = sum ? tern_add(sum, d) : d;
    }
    sum = tern_contiguous(tern_cast(tern_add(from, sum), w->meta.dtype), TERN_CONTIGUOUS);
    tern_tensor_ref(sum);
    tern_scope_end(ctx, NULL);
    tern_tensor_make_constant(sum);
    if (sum) /* read here, perhaps never again */
        tern_tensor_advise(w, false);
    return sum;
}

struct tern_weights *tern_lora_derive(struct tern_weights *base, enum tern_lora_part part, const struct tern_lora_use *uses, int n)
{
    struct tern_context *ctx = base->ctx;
    for (int k = 0; k < n; k++)
        if (uses[k].file->part[part].count != base->count) {
            tern_fail(ctx, TERN_E_FORMAT, "%s: the files of the model have changed since it was loaded", tern_lora_part_name(part));
            return NULL;
        }
    struct tern_weights_change *changes = tern_calloc(ctx, (size_t)base->count + 1, sizeof(*changes));
    struct tern_weights *w = NULL;
    int64_t count = 0;
    for (int64_t i = 0; changes && i < base->count && !tern_failed(ctx); i++) {
        tern_tensor *t = merge(base, part, i, uses, n);
        if (t)
            changes[count++] = (struct tern_weights_change){base->entries[i].name, t};
    }
    if (changes && !tern_failed(ctx))
        w = tern_weights_derive(base, changes, count);
    for (int64_t i = 0; i < count; i++)
        tern_tensor_unref(&changes[i].tensor);
    tern_free(ctx, changes);
    return w;
}

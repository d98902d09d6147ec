/* The weights that LoRAs give: W' = W + sum of strength alpha / rank B A, always from the base, in f32, rounded once.
 * With a mid (a convolution by its factors): W' = W + … sum over p, q of B[o,p] mid[p,q,k,l] A[q,i].      [Hu 2021; Yeh 2023] */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tern/ops.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/lora.h"
#include "models/files/weights.h"

/* ---- strengths by block */

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

/* The factor of a tensor: that of the most special block that it lies in, of equal ones the last. */
static double strength_of(const struct tern_lora_use *u, enum tern_lora_part part, const char *name)
{
    char label[64];
    double strength = 1;
    size_t best = 0;
    block_of(name, label, sizeof(label));
    for (int i = 0; i < u->n_blocks; i++) {
        bool all = !strcmp(u->blocks[i].block, tern_lora_part_name(part));
        size_t special = part == TERN_LORA_UNET ? covers(u->blocks[i].block, label) : 0;
        if ((all || special) && special >= best) {
            best = special;
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

enum tern_status tern_lora_check_blocks(const struct tern_weights *unet, const struct tern_lora *lora)
{
    char text[TERN_PRINTABLE];
    if (!isfinite(lora->scale))
        return tern_fail(unet->ctx, TERN_E_INVALID, "%s: scale: expected a finite number, found %g", lora->path, lora->scale);
    if (lora->n_blocks < 0 || (lora->n_blocks && !lora->blocks))
        return tern_fail(unet->ctx, TERN_E_INVALID, "%s: blocks: %d of them, and no list", lora->path, lora->n_blocks);
    for (int i = 0; i < lora->n_blocks; i++) {
        const struct tern_lora_strength *b = &lora->blocks[i];
        const char *block = b->block ? b->block : "";
        bool known = !strcmp(block, "unet") || !strcmp(block, "text_encoder") || unet_has_block(unet, block);
        tern_printable(block, strlen(block), text);
        if (!known)
            return tern_fail(unet->ctx, TERN_E_INVALID,
                             "%s: the model has no block \"%s\"; expected text_encoder, unet, down, mid, up, a block as down.1, or a layer "
                             "as up.1.2 or mid.0",
                             lora->path, text);
        if (!isfinite(b->scale))
            return tern_fail(unet->ctx, TERN_E_INVALID, "%s: block \"%s\": expected a finite number, found %g", lora->path, text, b->scale);
    }
    return TERN_OK;
}

/* ---- products */

static tern_tensor *matrix(const struct tern_lora_file *f, int64_t i, int64_t rows)
{
    return tern_cast(tern_reshape(tern_weights_at(f->weights, i - 1), 2, (const int64_t[]){rows, -1}), TERN_F32);
}

/* A mid and A in one: (r, q, kh, kw) and (q, in) -> (r, in kh kw) */
static tern_tensor *apply_mid(const struct tern_lora_file *f, int64_t i, tern_tensor *down)
{
    const int64_t *s = tern_tensor_shape(tern_weights_at(f->weights, i - 1)), in = tern_tensor_size(down, 1);
    tern_tensor *mid = tern_cast(tern_weights_at(f->weights, i - 1), TERN_F32);
    mid = tern_reshape(tern_permute(mid, 4, (const int[]){0, 2, 3, 1}), 2, (const int64_t[]){s[0] * s[2] * s[3], s[1]});
    tern_tensor *x = tern_reshape(tern_matmul(mid, down), 4, (const int64_t[]){s[0], s[2], s[3], in});
    return tern_reshape(tern_permute(x, 4, (const int[]){0, 3, 1, 2}), 2, (const int64_t[]){s[0], in * s[2] * s[3]});
}

/* scale B A: (out, in …) as a matrix */
static tern_tensor *product(const struct tern_lora_file *f, const struct tern_lora_module *m, double scale)
{
    const tern_tensor *a = tern_weights_at(f->weights, m->down - 1), *b = tern_weights_at(f->weights, m->up - 1);
    tern_tensor *down = matrix(f, m->down, tern_tensor_size(a, 0)), *up = matrix(f, m->up, tern_tensor_size(b, 0));
    if (down && m->mid)
        down = apply_mid(f, m->mid, down);
    return tern_matmul(tern_mul_scalar(up, scale), down);
}

/* ---- sets */

/* The scale with which a use changes tensor i; 0: not at all. */
static double scale_at(const struct tern_lora_use *u, enum tern_lora_part part, int64_t i, const char *name)
{
    const struct tern_lora_module *m = &u->file->part[part].module[i];
    return m->down ? u->scale * strength_of(u, part, name) * m->scale : 0;
}

/* The new tensor, an owned reference; *changed false and NULL: it stays. */
static tern_tensor *merge(const struct tern_weights *base, enum tern_lora_part part, int64_t i, const struct tern_lora_use *uses, int n,
                          bool *changed)
{
    struct tern_context *ctx = base->ctx;
    tern_tensor *w = base->entries[i].tensor, *sum = NULL;
    *changed = false;
    for (int k = 0; k < n && !*changed; k++)
        *changed = scale_at(&uses[k], part, i, base->entries[i].name) != 0;
    if (!*changed)
        return NULL;
    tern_scope_begin(ctx);
    for (int k = 0; k < n && !tern_failed(ctx); k++) {
        double scale = scale_at(&uses[k], part, i, base->entries[i].name);
        if (scale == 0)
            continue;
        tern_tensor *p = product(uses[k].file, &uses[k].file->part[part].module[i], scale);
        sum = sum ? tern_add(sum, p) : p;
    }
    sum = tern_reshape(sum, w->meta.ndim, w->meta.shape);
    sum = tern_contiguous(tern_cast(tern_add(tern_cast(w, TERN_F32), sum), w->meta.dtype), TERN_CONTIGUOUS);
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
    bool changed;
    for (int64_t i = 0; changes && i < base->count && !tern_failed(ctx); i++) {
        tern_tensor *t = merge(base, part, i, uses, n, &changed);
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

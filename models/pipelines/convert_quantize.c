/* Quantised layers of a converted checkpoint: which they are, and their numbers and scales, which are those that kernels would make. */
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "core/threads.h"
#include "graph/passes/passes.h"
#include "models/files/quantized.h"
#include "models/pipelines/convert.h"

/* Tables of vectors, beside layers; and the projection of SDXL's pooled text, which is no part of a plan that words are for. */
#define EMBEDDINGS "embeddings."
#define PROJECTION "text_projection.weight"

static int bits_of(const char *words, const char *name)
{
    const bool floats = strstr(name, EMBEDDINGS) || !strcmp(name, PROJECTION);
    const enum tern_layer_format f = floats ? TERN_LAYER_PLAIN : tern_quantize_format(words, name);
    return f == TERN_LAYER_PLAIN ? 0 : f == TERN_LAYER_W4 ? 4 : 8;
}

void tern_convert_quantize(struct tern_convert_list *l, struct tern_convert_item *item, const char *component, const char *name)
{
    const bool unet = !strcmp(component, "unet"), text = component[0] == 't';
    const char *words = unet ? l->params->quantize : text ? l->params->text_encoder_quantize : NULL;
    char other[TERN_LDM_NAME];
    struct tern_quantized_form f;
    if (!words)
        return;
    *(unet ? &l->quantized_unet : &l->quantized_text) = true;
    int bits = tern_dtype_is_float(item->entry.dtype) && !item->transposed ? bits_of(words, name) : 0;
    for (int i = 1; i < item->parts && bits; i++) { /* rows of k and v, all of one kind */
        tern_convert_sibling(name, "qkv"[i], other);
        bits = bits_of(words, other) == bits ? bits : 0;
    }
    item->bits = bits && tern_quantized_form(bits, item->entry.ndim, item->entry.shape, &f) ? bits : 0;
}

bool tern_convert_has_piece(const struct tern_convert_item *item, enum tern_convert_piece piece)
{
    return piece == TERN_CONVERT_NUMBERS || (item->bits && (piece == TERN_CONVERT_SCALES || item->bits == 4));
}

static struct tern_quantized_form form_of(const struct tern_convert_item *item)
{
    struct tern_quantized_form f;
    tern_quantized_form(item->bits, item->entry.ndim, item->entry.shape, &f);
    return f;
}

static void describe_quantized(const struct tern_convert_item *item, enum tern_convert_piece piece, struct tern_safetensors_entry *out)
{
    const struct tern_quantized_form f = form_of(item);
    out->ndim = 2;
    out->shape[0] = f.rows;
    if (piece == TERN_CONVERT_SHAPE) {
        out->dtype = TERN_I64;
        out->ndim = 1;
        out->shape[0] = item->entry.ndim;
    } else if (piece == TERN_CONVERT_SCALES) {
        out->dtype = item->bits == 8 ? TERN_F32 : TERN_BF16;
        out->shape[1] = f.groups;
    } else if (item->bits == 4) {
        out->dtype = TERN_I32;
        out->shape[1] = f.words;
    } else {
        out->dtype = TERN_I8;
        out->ndim = item->entry.ndim;
        memcpy(out->shape, item->entry.shape, sizeof(out->shape));
    }
}

void tern_convert_describe(struct tern_context *ctx, const struct tern_convert_item *item, enum tern_convert_piece piece,
                           struct tern_safetensors_entry *out)
{
    const char *const endings[] = {item->bits == 4 ? "_packed" : "", "_scale", "_shape"};
    *out = item->entry;
    if (item->bits)
        describe_quantized(item, piece, out);
    out->name = tern_sprintf(ctx, "%s%s", item->entry.name, endings[piece]);
}

/* Rows of one part. */
struct filling {
    struct tern_quantized_form form;
    const float *x;
    char *numbers, *scales; /* of the first row; NULL: not wanted */
    char *scratch;          /* of each thread: a row turned, its numbers, its scales */
    size_t room;
    int bad; /* atomic: a value is no number, or infinite */
};

static void fill_row(void *arg, int slot, int64_t i)
{
    struct filling *f = arg;
    const size_t turned = (size_t)f->form.depth * sizeof(float), row = tern_quantized_row_size(&f->form),
                 scale = tern_quantized_scale_size(&f->form);
    char *own = f->scratch + (size_t)slot * f->room;
    void *numbers = f->numbers ? f->numbers + (size_t)i * row : own + turned, *scales = own + f->room - (scale + 7) / 8 * 8;
    if (!tern_quantized_pack_row(&f->form, f->x + i * f->form.depth, (float *)(void *)own, numbers, scales))
        __atomic_store_n(&f->bad, 1, __ATOMIC_RELAXED);
    if (f->scales)
        memcpy(f->scales + (size_t)i * scale, scales, scale);
}

static enum tern_status fill_part(const struct tern_convert_item *item, tern_tensor *t, struct filling *f)
{
    struct tern_context *ctx = t->ctx;
    const size_t size = (size_t)tern_meta_numel(&t->meta) * sizeof(float);
    float *x = tern_alloc(ctx, size);
    f->room = (((size_t)f->form.depth * sizeof(float) + tern_quantized_row_size(&f->form) + 7) / 8 +
               (tern_quantized_scale_size(&f->form) + 7) / 8) *
              8;
    f->scratch = x ? tern_alloc(ctx, f->room * (size_t)tern_thread_count(ctx)) : NULL;
    f->x = x;
    enum tern_status st = f->scratch ? tern_tensor_read(t, TERN_F32, x, size) : tern_error_status(ctx);
    if (!st)
        tern_parallel_slots(ctx, tern_meta_numel(&t->meta) / f->form.depth, fill_row, f);
    tern_free(ctx, f->scratch);
    tern_free(ctx, x);
    tern_tensor_advise(t, false);
    if (!st && f->bad)
        st = tern_fail(
            ctx, TERN_E_INVALID,
            "convert: \"%s\": expected numbers, found one that is infinite or none, which cannot be quantised; \"!NAME\" among the "
            "words leaves a layer as it is",
            item->entry.name);
    return st;
}

enum tern_status tern_convert_fill(const struct tern_convert_item *item, enum tern_convert_piece piece, void *bytes)
{
    enum tern_status st = TERN_OK;
    struct filling f = {.form = form_of(item)};
    char *to = bytes;
    if (piece == TERN_CONVERT_SHAPE) {
        memcpy(bytes, item->entry.shape, (size_t)item->entry.ndim * sizeof(int64_t));
        return TERN_OK;
    }
    *(piece == TERN_CONVERT_NUMBERS ? &f.numbers : &f.scales) = to;
    for (int i = 0; i < item->parts && !st; i++) {
        const size_t rows = (size_t)(tern_meta_numel(&item->part[i]->meta) / f.form.depth);
        st = fill_part(item, item->part[i], &f);
        if (piece == TERN_CONVERT_NUMBERS)
            f.numbers += rows * tern_quantized_row_size(&f.form);
        else
            f.scales += rows * tern_quantized_scale_size(&f.form);
    }
    return st;
}

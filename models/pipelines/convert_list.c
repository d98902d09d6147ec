/* The tensors of a converted file, and writing them one by one. */
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/quantized.h"
#include "models/files/weights.h"
#include "models/pipelines/convert.h"

/* The text encoders first, as in published single files. */
const char *const tern_convert_components[TERN_CONVERT_SETS] = {"text_encoder", "text_encoder_2", "unet", "vae"};

static bool is_float(enum tern_dtype d) { return d == TERN_F32 || d == TERN_F16 || d == TERN_BF16; }

struct tern_convert_item *tern_convert_add(struct tern_convert_list *l, const char *name, tern_tensor *t)
{
    if (!tern_grow(l->ctx, (void **)&l->item, l->count, &l->capacity, sizeof(*l->item)))
        return NULL;
    struct tern_convert_item *item = &l->item[l->count];
    enum tern_dtype dtype = l->params->change_dtype && is_float(t->meta.dtype) ? l->params->dtype : t->meta.dtype;
    *item = (struct tern_convert_item){.entry = {.dtype = dtype, .ndim = t->meta.ndim}, .part = {t}, .parts = 1};
    memcpy(item->entry.shape, t->meta.shape, sizeof(t->meta.shape));
    item->entry.name = tern_strdup(l->ctx, name);
    l->count += item->entry.name != NULL;
    return item->entry.name ? item : NULL;
}

const struct tern_weights *tern_convert_open(struct tern_convert_list *l, struct tern_checkpoint *cp, const char *component)
{
    struct tern_weights *w = tern_checkpoint_weights(cp, component);
    if (w && !w->count) {
        tern_fail(l->ctx, TERN_E_FORMAT, "%s: %s has no tensors", tern_checkpoint_path(cp), component);
        tern_weights_unref(&w);
    }
    if (w)
        l->set[l->sets++] = w;
    return w;
}

void tern_convert_free(struct tern_convert_list *l)
{
    for (int i = 0; i < l->count; i++)
        tern_free(l->ctx, (void *)(uintptr_t)l->item[i].entry.name);
    tern_free(l->ctx, l->item);
    for (int i = 0; i < l->sets; i++)
        tern_weights_unref(&l->set[i]);
    *l = (struct tern_convert_list){.ctx = l->ctx, .params = l->params};
}

static void transpose(const uint8_t *from, uint8_t *to, int64_t rows, int64_t columns, size_t size)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            memcpy(to + (size_t)(c * rows + r) * size, from + (size_t)(r * columns + c) * size, size);
}

/* Whether an f16 of them is infinite. */
static bool has_infinite(const uint16_t *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((v[i] & 0x7fff) == 0x7c00)
            return true;
    return false;
}

/* The elements of an item, converted, in `bytes`. */
static enum tern_status gather(const struct tern_convert_item *item, uint8_t *bytes, size_t size, uint8_t *turned)
{
    size_t used = 0, element = tern_dtype_size(item->entry.dtype);
    for (int i = 0; i < item->parts; i++) {
        tern_tensor *t = item->part[i];
        size_t n = (size_t)tern_meta_numel(&t->meta) * element;
        if (n > size - used)
            return tern_fail(t->ctx, TERN_E_INTERNAL, "convert: \"%s\": its parts do not fit", item->entry.name);
        if (tern_tensor_read(t, item->entry.dtype, bytes + used, n))
            return tern_error_status(t->ctx);
        used += n;
        tern_tensor_advise(t, false);
    }
    if (item->transposed)
        transpose(bytes, turned, item->part[0]->meta.shape[0], item->part[0]->meta.shape[1], element);
    return TERN_OK;
}

static enum tern_status write_floats(struct tern_convert_list *l, struct tern_safetensors_writer *out, const struct tern_convert_item *item,
                                     uint8_t *bytes, size_t size, int *infinite)
{
    uint8_t *turned = item->transposed ? tern_alloc(l->ctx, size) : NULL;
    enum tern_status st = turned || !item->transposed ? gather(item, bytes, size, turned) : tern_error_status(l->ctx);
    if (!st && item->entry.dtype == TERN_F16 && item->part[0]->meta.dtype != TERN_F16)
        *infinite += has_infinite((const uint16_t *)bytes, size / 2);
    if (!st)
        st = tern_safetensors_writer_add(out, turned ? turned : bytes, size);
    tern_free(l->ctx, turned);
    return st;
}

/* A tensor of the file. */
struct output {
    struct tern_safetensors_entry entry; /* its name is for tern_free */
    int item;
    enum tern_convert_piece piece;
};

static enum tern_status write_output(struct tern_convert_list *l, struct tern_safetensors_writer *out, const struct output *o,
                                     int *infinite)
{
    const struct tern_safetensors_entry *e = &o->entry;
    const struct tern_convert_item *item = &l->item[o->item];
    struct tern_meta m = tern_meta_make(e->dtype, e->ndim, e->shape);
    size_t size = 0;
    if (!tern_mul_size((size_t)tern_meta_numel(&m), tern_dtype_size(e->dtype), &size))
        return tern_fail(l->ctx, TERN_E_NO_MEMORY, "convert: \"%s\" is too large", e->name);
    uint8_t *bytes = tern_alloc(l->ctx, size);
    enum tern_status st = !bytes       ? tern_error_status(l->ctx)
                          : item->bits ? tern_convert_fill(item, o->piece, bytes)
                                       : write_floats(l, out, item, bytes, size, infinite);
    if (!st && item->bits)
        st = tern_safetensors_writer_add(out, bytes, size);
    tern_free(l->ctx, bytes);
    return st;
}

static void put(const char **pairs, int64_t *n, const char *key, const char *value)
{
    pairs[2 * *n] = key;
    pairs[2 * (*n)++ + 1] = value;
}

/* Said anew of what is written, or, as the prediction in a folder, elsewhere. */
static bool is_replaced(const char *key)
{
    static const char *const keys[] = {TERN_QUANTIZED_KEY, TERN_QUANTIZED_UNET, TERN_QUANTIZED_TEXT, TERN_LDM_PREDICTION};
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (!strcmp(key, keys[i]))
            return true;
    return false;
}

/* Pairs of all sets, of equal keys the first, in memory of the caller's; how many pairs. */
static int64_t metadata(const struct tern_convert_list *l, const char **pairs)
{
    int64_t n = 0;
    put(pairs, &n, "format", "pt");
    if (l->prediction)
        put(pairs, &n, TERN_LDM_PREDICTION, l->prediction);
    if (l->quantized_unet || l->quantized_text)
        put(pairs, &n, TERN_QUANTIZED_KEY, TERN_QUANTIZED_VERSION);
    if (l->quantized_unet)
        put(pairs, &n, TERN_QUANTIZED_UNET, l->params->quantize);
    if (l->quantized_text)
        put(pairs, &n, TERN_QUANTIZED_TEXT, l->params->text_encoder_quantize);
    for (int s = 0; s < l->sets; s++)
        for (int64_t i = 0; i < l->set[s]->metadata_count; i++) {
            const char *key = l->set[s]->metadata[2 * i];
            int64_t k = 0;
            while (k < n && strcmp(pairs[2 * k], key))
                k++;
            if (k == n && !is_replaced(key))
                put(pairs, &n, key, l->set[s]->metadata[2 * i + 1]);
        }
    return n;
}

/* Large elements first where numbers of one byte are among them, so that each tensor is aligned to its own; else in their order. */
static int compare_outputs(const void *a, const void *b)
{
    const struct output *x = a, *y = b;
    const size_t sx = tern_dtype_size(x->entry.dtype), sy = tern_dtype_size(y->entry.dtype);
    if (sx != sy)
        return sx > sy ? -1 : 1;
    return x->item != y->item ? (x->item < y->item ? -1 : 1) : (int)x->piece - (int)y->piece;
}

/* The tensors of the file; *count of them need to be freed, also with the error recorded. */
static struct output *list_outputs(const struct tern_convert_list *l, int *count)
{
    struct output *list = tern_calloc(l->ctx, (size_t)l->count * TERN_CONVERT_PIECES + 1, sizeof(*list));
    int n = 0;
    for (int i = 0; list && i < l->count; i++)
        for (int k = 0; k < TERN_CONVERT_PIECES; k++)
            if (tern_convert_has_piece(&l->item[i], k)) {
                list[n] = (struct output){.item = i, .piece = k};
                tern_convert_describe(l->ctx, &l->item[i], k, &list[n++].entry);
            }
    if (n && (l->quantized_unet || l->quantized_text))
        qsort(list, (size_t)n, sizeof(*list), compare_outputs);
    *count = n;
    return list;
}

static void free_outputs(const struct tern_convert_list *l, struct output *list, int count)
{
    for (int i = 0; i < count; i++)
        tern_free(l->ctx, (void *)(uintptr_t)list[i].entry.name);
    tern_free(l->ctx, list);
}

static struct tern_safetensors_writer *open_file(const struct tern_convert_list *l, const char *path, const struct output *list, int count)
{
    size_t most = 5;
    for (int s = 0; s < l->sets; s++)
        most += (size_t)l->set[s]->metadata_count;
    const char **pairs = tern_calloc(l->ctx, most, 2 * sizeof(*pairs));
    struct tern_safetensors_entry *entries = tern_calloc(l->ctx, (size_t)count + 1, sizeof(*entries));
    struct tern_safetensors_writer *out = NULL;
    for (int i = 0; entries && i < count; i++)
        entries[i] = list[i].entry;
    if (pairs && entries)
        out = tern_safetensors_writer_open(l->ctx, path, entries, count, pairs, metadata(l, pairs));
    tern_free(l->ctx, entries);
    tern_free(l->ctx, pairs);
    return out;
}

enum tern_status tern_convert_write(struct tern_convert_list *l, const char *path)
{
    double start = tern_now();
    int infinite = 0, count = 0;
    struct output *list = list_outputs(l, &count);
    struct tern_safetensors_writer *out = tern_failed(l->ctx) ? NULL : open_file(l, path, list, count);
    enum tern_status st = out ? TERN_OK : tern_error_status(l->ctx);
    for (int i = 0; !st && i < count; i++) {
        st = tern_check_cancel(l->ctx);
        if (!st && (st = write_output(l, out, &list[i], &infinite)) == TERN_OK) {
            tern_report(l->ctx, "write", i + 1, count, tern_now() - start);
            st = tern_error_status(l->ctx);
        }
    }
    if (!st)
        st = tern_safetensors_writer_commit(&out);
    else
        tern_safetensors_writer_discard(&out);
    free_outputs(l, list, count);
    if (!st && infinite)
        tern_message(l->ctx, TERN_LOG_WARN,
                     "%s: %d tensors have values beyond the range of f16, which are infinite now; bf16 would hold them", path, infinite);
    return st;
}

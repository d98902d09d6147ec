/* Tensors over mapped files: no copy where the bytes are already what tern computes with. */
#include <string.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/quantized.h"
#include "models/files/weights.h"

/* A copy may be this many times larger than the file (deflated, transposed or converted tensors), but small files are
 * always fine. Real weights do not compress by more than about 4. */
#define COPY_FACTOR 32
#define COPY_ALWAYS ((size_t)64 << 20)

struct tern_copy_limit tern_copy_limit_for(size_t file_size)
{
    size_t limit;
    if (!tern_mul_size(file_size, COPY_FACTOR, &limit))
        limit = SIZE_MAX;
    return (struct tern_copy_limit){0, limit > COPY_ALWAYS ? limit : COPY_ALWAYS};
}

enum tern_status tern_copy_limit_take(struct tern_context *ctx, struct tern_copy_limit *l, size_t size, const char *where, const char *name)
{
    char text[TERN_PRINTABLE];
    if (size > l->limit - l->used)
        return tern_fail(
            ctx, TERN_E_FORMAT,
            "%s: tensor \"%s\" would unpack to %zu bytes, together with others more than the %zu that a file of this size can need", where,
            tern_printable(name, strlen(name), text), size, l->limit);
    l->used += size;
    return TERN_OK;
}

/* Memory that one tensor owns: the context stands before the elements, because a release function gets one pointer. */
struct owned {
    struct tern_context *ctx;
};
#define OWNED_HEADER ((size_t)64) /* keeps the elements 64-byte aligned */

static void release_owned(void *user) { tern_free(((struct owned *)user)->ctx, user); }

static void release_mapping(void *user)
{
    struct tern_mapping *m = user;
    tern_mapping_unref(&m);
}

static void release_alias(void *user)
{
    tern_tensor *t = user;
    tern_tensor_unref(&t);
}

/* buffer->user is the mapping, and the buffer is exactly the tensor. */
static void advise_mapping(tern_tensor *t, bool needed)
{
    const struct tern_mapping *m = t->buffer->user;
    tern_mapping_advise(m, (size_t)((const uint8_t *)t->buffer->host - m->data), t->buffer->size, needed);
}

static void advise_alias(tern_tensor *t, bool needed) { tern_tensor_advise(t->buffer->user, needed); }

/* Bytes of an element in the file. */
static size_t size_in_file(enum tern_file_dtype f, enum tern_dtype d)
{
    static const size_t sizes[] = {
        [TERN_FILE_F64] = 8, [TERN_FILE_BOOL] = 1, [TERN_FILE_I16] = 2, [TERN_FILE_U16] = 2, [TERN_FILE_U32] = 4,
    };
    return f == TERN_FILE_NATIVE ? tern_dtype_size(d) : sizes[f];
}

/* One element; neither side need be aligned. */
static void convert(uint8_t *out, const uint8_t *in, enum tern_file_dtype f, size_t size)
{
    union {
        double f64;
        int16_t i16;
        uint16_t u16;
        uint32_t u32;
    } x;
    int32_t i32;
    switch (f) {
    case TERN_FILE_NATIVE:
        memcpy(out, in, size);
        break;
    case TERN_FILE_BOOL:
        *out = *in != 0;
        break;
    case TERN_FILE_F64:
        memcpy(&x, in, 8);
        memcpy(out, &(float){(float)x.f64}, 4);
        break;
    case TERN_FILE_I16:
    case TERN_FILE_U16:
        memcpy(&x, in, 2);
        i32 = f == TERN_FILE_I16 ? x.i16 : x.u16;
        memcpy(out, &i32, 4);
        break;
    case TERN_FILE_U32:
        memcpy(&x, in, 4);
        memcpy(out, &(int64_t){x.u32}, 8);
        break;
    }
}

/* One row of n elements, `stride` elements apart, to contiguous ones. */
static void copy_row(uint8_t *out, const uint8_t *in, int64_t n, int64_t stride, enum tern_file_dtype f, size_t in_size, size_t out_size)
{
    if (f == TERN_FILE_NATIVE && stride == 1) {
        memcpy(out, in, (size_t)n * out_size);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        convert(out + (size_t)i * out_size, in + (size_t)(i * stride) * in_size, f, out_size);
}

/* All rows of the last dimension, in row-major order. */
static void copy_elements(uint8_t *out, const uint8_t *data, enum tern_file_dtype f, const struct tern_meta *m)
{
    int64_t index[TERN_MAX_DIMS] = {0}, n = m->ndim ? m->shape[m->ndim - 1] : 1, total = tern_meta_numel(m);
    int64_t stride = m->ndim ? m->stride[m->ndim - 1] : 1, first = 0;
    size_t in_size = size_in_file(f, m->dtype), out_size = tern_dtype_size(m->dtype);
    for (int64_t done = 0; done < total; done += n) {
        copy_row(out + (size_t)done * out_size, data + (size_t)first * in_size, n, stride, f, in_size, out_size);
        for (int d = m->ndim - 2; d >= 0; d--) {
            first += m->stride[d];
            if (++index[d] < m->shape[d])
                break;
            first -= m->stride[d] * m->shape[d];
            index[d] = 0;
        }
    }
}

/* Memory behind an owner's header, NULL with the error recorded. */
static uint8_t *owned_alloc(struct tern_context *ctx, size_t size)
{
    struct owned *o = size > SIZE_MAX - OWNED_HEADER ? NULL : tern_alloc(ctx, OWNED_HEADER + size);
    if (!o)
        return NULL;
    o->ctx = ctx;
    return (uint8_t *)o + OWNED_HEADER;
}

tern_tensor *tern_copied_tensor(struct tern_context *ctx, const uint8_t *data, enum tern_file_dtype f, const struct tern_meta *meta)
{
    uint8_t *elements = owned_alloc(ctx, (size_t)tern_meta_numel(meta) * tern_dtype_size(meta->dtype));
    if (!elements)
        return NULL;
    copy_elements(elements, data, f, meta);
    return tern_tensor_wrap(ctx, meta->dtype, meta->ndim, meta->shape, elements, release_owned, elements - OWNED_HEADER);
}

tern_tensor *tern_owned_bytes(struct tern_context *ctx, size_t n)
{
    int64_t shape[1] = {(int64_t)n};
    uint8_t *elements = n > INT64_MAX ? NULL : owned_alloc(ctx, n);
    return elements ? tern_tensor_wrap(ctx, TERN_U8, 1, shape, elements, release_owned, elements - OWNED_HEADER) : NULL;
}

bool tern_mapped_needs_copy(const uint8_t *data, enum tern_file_dtype f, const struct tern_meta *meta)
{
    return f != TERN_FILE_NATIVE || (uintptr_t)data % tern_dtype_size(meta->dtype) || !tern_meta_is_contiguous(meta);
}

tern_tensor *tern_mapped_tensor(struct tern_mapping *m, const uint8_t *data, enum tern_file_dtype f, const struct tern_meta *meta)
{
    if (tern_mapped_needs_copy(data, f, meta))
        return tern_copied_tensor(m->ctx, data, f, meta);
    tern_tensor *t = tern_tensor_wrap(m->ctx, meta->dtype, meta->ndim, meta->shape, data, release_mapping, tern_mapping_ref(m));
    if (t)
        t->advise = advise_mapping;
    return t;
}

tern_tensor *tern_alias_tensor(tern_tensor *t, enum tern_dtype dtype, int ndim, const int64_t *shape, size_t first_byte)
{
    if (tern_quantized_bits(t))
        return tern_quantized_alias(t, ndim, shape, first_byte);
    const uint8_t *data = (const uint8_t *)tern_tensor_host(t) + first_byte;
    tern_tensor *a = tern_tensor_wrap(t->ctx, dtype, ndim, shape, data, release_alias, tern_tensor_ref(t));
    if (a && t->advise)
        a->advise = advise_alias;
    return a;
}

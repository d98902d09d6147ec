/* Tensors over quantised weights: their buffer expands what is read of it, so that a file's bytes are all that is in memory. A value is its
 * number times its scale, rounded to f32; to quantise that again gives the same numbers and scales, because scales are quotients of f32 by
 * 127, or have the 8 bits of bf16. */
#include "models/files/quantized.h"

#include <string.h>

#include "core/context.h"
#include "core/threads.h"
#include "ops/weight_only.h"

#define GROUP TERN_WEIGHT_GROUP

bool tern_quantized_form(int bits, int ndim, const int64_t *shape, struct tern_quantized_form *out)
{
    int64_t numel = 0;
    if ((ndim != 2 && ndim != 4) || !tern_shape_valid(ndim, shape, &numel) || !numel)
        return false;
    *out = (struct tern_quantized_form){.bits = bits, .rows = shape[0], .depth = numel / shape[0], .channels = shape[1]};
    out->taps = out->depth / out->channels;
    out->words = out->depth / 8 + (out->depth % 8 != 0);
    out->groups = bits == 8 ? 1 : out->depth / GROUP + (out->depth % GROUP != 0);
    return true;
}

size_t tern_quantized_row_size(const struct tern_quantized_form *f) { return (size_t)(f->bits == 8 ? f->depth : f->words * 4); }

size_t tern_quantized_scale_size(const struct tern_quantized_form *f) { return (size_t)f->groups * (f->bits == 8 ? 4 : 2); }

/* ---- packing */

static float or_one(float scale) { return scale == 0 ? 1 : scale; }

static bool pack_8(int64_t n, const float *x, int8_t *numbers, float *scale)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabsf(x[i]) <= most || isnan(most) ? most : fabsf(x[i]); /* NaN stays */
    const float s = tern_weight_scale(most / 127);
    for (int64_t i = 0; i < n; i++)
        numbers[i] = (int8_t)tern_weight_value(x[i], s, -127, 127);
    *scale = or_one(s);
    return !isnan(s);
}

static bool pack_4(int64_t n, const float *x, uint8_t *nibbles, uint16_t *scales)
{
    bool good = true;
    for (int64_t first = 0; first < n; first += GROUP) {
        const int64_t count = n - first < GROUP ? n - first : GROUP;
        const float s = tern_group_scale(count, x + first), kept = or_one(s);
        uint32_t bits;
        memcpy(&bits, &kept, sizeof(bits));
        scales[first / GROUP] = (uint16_t)(bits >> 16);
        good = good && !isnan(s);
        for (int64_t i = first; i < first + count; i++)
            nibbles[i / 2] = (uint8_t)(nibbles[i / 2] | ((int)tern_weight_value(x[i], s, -8, 7) + 8) << i % 2 * 4);
    }
    return good;
}

bool tern_quantized_pack_row(const struct tern_quantized_form *f, const float *x, float *turned, void *numbers, void *scales)
{
    if (f->bits == 8)
        return pack_8(f->depth, x, numbers, scales);
    for (int64_t c = 0; c < f->channels; c++)
        for (int64_t t = 0; t < f->taps; t++)
            turned[t * f->channels + c] = x[c * f->taps + t];
    memset(numbers, 0, tern_quantized_row_size(f));
    return pack_4(f->depth, turned, numbers, scales);
}

/* ---- expanding */

struct expanding {
    struct tern_buffer base; /* first: host is NULL */
    struct tern_quantized_form form;
    tern_tensor *numbers, *scales;
    int64_t first; /* row of the numbers */
};

static float of_bf16(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof(y));
    return y;
}

/* Row i of the tensor: depth values. */
static void expand_row(const struct expanding *e, int64_t i, float *out)
{
    const struct tern_quantized_form *f = &e->form;
    const size_t row = (size_t)(e->first + i);
    const char *numbers = (const char *)tern_tensor_host(e->numbers) + row * tern_quantized_row_size(f);
    const char *scales = (const char *)tern_tensor_host(e->scales) + row * tern_quantized_scale_size(f);
    if (f->bits == 8) {
        const int8_t *q = (const int8_t *)numbers;
        const float scale = *(const float *)(const void *)scales;
        for (int64_t k = 0; k < f->depth; k++)
            out[k] = (float)q[k] * scale;
        return;
    }
    const uint8_t *q = (const uint8_t *)numbers;
    const uint16_t *groups = (const uint16_t *)(const void *)scales;
    for (int64_t t = 0, k = 0; t < f->taps; t++)
        for (int64_t c = 0; c < f->channels; c++, k++)
            out[c * f->taps + t] = (float)((q[k / 2] >> k % 2 * 4 & 15) - 8) * of_bf16(groups[k / GROUP]);
}

/* Whole rows from one on. */
struct rows {
    const struct expanding *e;
    int64_t from;
    float *out;
};

static void expand_rows(void *arg, int64_t begin, int64_t end)
{
    const struct rows *r = arg;
    for (int64_t i = begin; i < end; i++)
        expand_row(r->e, r->from + i, r->out + i * r->e->form.depth);
}

/* Bytes of a row that is not read as a whole. */
static enum tern_status read_part(const struct expanding *e, size_t offset, char *out, size_t size)
{
    struct tern_context *ctx = e->base.device->ctx;
    const size_t row = (size_t)e->form.depth * sizeof(float);
    float *values = tern_alloc(ctx, row);
    if (!values)
        return tern_error_status(ctx);
    expand_row(e, (int64_t)(offset / row), values);
    memcpy(out, (const char *)values + offset % row, size);
    tern_free(ctx, values);
    return TERN_OK;
}

static enum tern_status read(struct tern_buffer *b, size_t offset, void *dst, size_t size)
{
    const struct expanding *e = (const struct expanding *)b; /* its first member */
    const size_t row = (size_t)e->form.depth * sizeof(float);
    char *out = dst;
    enum tern_status st = TERN_OK;
    while (size && !st) {
        const bool whole = offset % row == 0 && size >= row && (uintptr_t)out % sizeof(float) == 0;
        const size_t left = row - offset % row, n = whole ? size / row * row : size < left ? size : left;
        if (whole)
            tern_parallel(b->device->ctx, (int64_t)(n / row), 8, expand_rows,
                          &(struct rows){e, (int64_t)(offset / row), (float *)(void *)out});
        else
            st = read_part(e, offset, out, n);
        offset += n;
        out += n;
        size -= n;
    }
    return st;
}

static enum tern_status write(struct tern_buffer *b, size_t offset, const void *src, size_t size)
{
    (void)src;
    return tern_fail(b->device->ctx, TERN_E_INTERNAL, "write of %zu bytes at %zu of a quantised weight", size, offset);
}

static void destroy(struct tern_buffer *b)
{
    struct expanding *e = (struct expanding *)b;
    struct tern_context *ctx = b->device->ctx;
    tern_tensor_unref(&e->numbers);
    tern_tensor_unref(&e->scales);
    tern_free(ctx, e);
}

static const struct tern_buffer_fns fns = {destroy, write, read};

static const struct expanding *expanding_of(const tern_tensor *t)
{
    return t->buffer && t->buffer->fns == &fns ? (const struct expanding *)t->buffer : NULL;
}

static void advise(tern_tensor *t, bool needed)
{
    const struct expanding *e = expanding_of(t);
    tern_tensor_advise(e->numbers, needed);
    tern_tensor_advise(e->scales, needed);
}

tern_tensor *tern_quantized_tensor(tern_tensor *numbers, tern_tensor *scales, const struct tern_quantized_form *form, int64_t first,
                                   int ndim, const int64_t *shape)
{
    struct tern_context *ctx = numbers->ctx;
    const struct tern_meta meta = tern_meta_make(TERN_F32, ndim, shape);
    struct expanding *e = tern_calloc(ctx, 1, sizeof(*e));
    if (!e)
        return NULL;
    e->base = (struct tern_buffer){.fns = &fns, .device = ctx->host, .refs = 1};
    e->form = *form;
    e->form.rows = shape[0];
    e->first = first;
    e->numbers = tern_tensor_ref(numbers);
    e->scales = tern_tensor_ref(scales);
    if (!tern_mul_size((size_t)tern_meta_numel(&meta), sizeof(float), &e->base.size)) {
        tern_fail(ctx, TERN_E_NO_MEMORY, "a quantised weight of %lld rows does not fit in memory", (long long)shape[0]);
        destroy(&e->base);
        return NULL;
    }
    tern_tensor *t = tern_tensor_around(ctx, &meta, &e->base);
    if (t)
        t->advise = advise;
    return t;
}

int tern_quantized_bits(const tern_tensor *t)
{
    const struct expanding *e = expanding_of(t);
    return e ? e->form.bits : 0;
}

int tern_stored_kind(const tern_tensor *t)
{
    const int bits = tern_quantized_bits(t);
    return !bits ? (int)t->meta.dtype : bits == 8 ? TERN_STORED_INT8 : TERN_STORED_INT4;
}

const char *tern_stored_name(int kind)
{
    return kind == TERN_STORED_INT8 ? "int8" : kind == TERN_STORED_INT4 ? "int4" : tern_dtype_name((enum tern_dtype)kind);
}

int64_t tern_stored_bytes(const tern_tensor *t)
{
    const struct expanding *e = expanding_of(t);
    if (e)
        return e->form.rows * (int64_t)(tern_quantized_row_size(&e->form) + tern_quantized_scale_size(&e->form));
    return tern_meta_numel(&t->meta) * (int64_t)tern_dtype_size(t->meta.dtype);
}

tern_tensor *tern_quantized_alias(const tern_tensor *t, int ndim, const int64_t *shape, size_t first_byte)
{
    const struct expanding *e = expanding_of(t);
    const int64_t row = (int64_t)(first_byte / sizeof(float)) / e->form.depth;
    return tern_quantized_tensor(e->numbers, e->scales, &e->form, e->first + row, ndim, shape);
}

/* pack_weight and unpack_weight: a weight in few bits as words (ops/weight_only.h), and the values that it stands for. */
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"
#include "ops/weight_only.h"

/* A weight is a matrix, or filters. */
static bool is_weight(int64_t ndim) { return ndim == 2 || ndim == 4; }

enum tern_status tern_shape_pack_weight(struct tern_context *ctx, struct tern_op_desc *d)
{
    const struct tern_meta *w = &d->in[0];
    char text[TERN_META_TEXT];
    enum tern_status st = tern_rule_dtype(ctx, d, 0, TERN_FLOAT_ONLY);
    if (!st && !is_weight(w->ndim))
        st = tern_fail(ctx, TERN_E_SHAPE, "%s: weight: expected (O, C) or (O, C, kh, kw), found %s", tern_rule_op(d),
                       tern_meta_text(w, text));
    st = tern_weight_check_bits(ctx, d, d->attrs.pack_weight.bits, st);
    if (st)
        return st;
    const int64_t shape[] = {w->shape[0], tern_packed_words(tern_weight_depth(w), d->attrs.pack_weight.bits)};
    return tern_rule_out(ctx, d, TERN_I32, 2, shape);
}

static enum tern_status check_packed(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct tern_unpack_weight_attrs *p = &d->attrs.unpack_weight;
    const struct tern_meta *x = &d->in[0];
    char text[TERN_META_TEXT];
    if (p->dtype < 0 || p->dtype >= TERN_DTYPE_COUNT || !tern_dtype_is_float((enum tern_dtype)p->dtype))
        return tern_fail(ctx, TERN_E_DTYPE, "%s: dtype is %lld: expected that of f32, f16 or bf16", tern_rule_op(d), (long long)p->dtype);
    if (!is_weight(p->shape_n))
        return tern_fail(ctx, TERN_E_SHAPE, "%s: shape: expected (O, C) or (O, C, kh, kw), found %lld dimensions", tern_rule_op(d),
                         (long long)p->shape_n);
    if (x->dtype != TERN_I32)
        return tern_fail(ctx, TERN_E_DTYPE, "%s: packed is %s: expected i32", tern_rule_op(d), tern_dtype_name(x->dtype));
    const int64_t words = tern_packed_words(tern_weight_depth(&d->out), p->bits);
    if (x->ndim != 2 || x->shape[0] != p->shape[0] || x->shape[1] != words)
        return tern_fail(ctx, TERN_E_SHAPE, "%s: packed: expected (%lld, %lld), found %s", tern_rule_op(d), (long long)p->shape[0],
                         (long long)words, tern_meta_text(x, text));
    return TERN_OK;
}

enum tern_status tern_shape_unpack_weight(struct tern_context *ctx, struct tern_op_desc *d)
{
    const struct tern_unpack_weight_attrs *p = &d->attrs.unpack_weight;
    enum tern_status st = tern_weight_check_bits(ctx, d, p->bits, TERN_OK);
    if (!st && is_weight(p->shape_n))
        st = tern_rule_out(ctx, d, TERN_F32, (int)p->shape_n, p->shape);
    if (!st)
        st = check_packed(ctx, d);
    if (!st)
        d->out.dtype = (enum tern_dtype)p->dtype;
    return st;
}

/* ---- references */

static void put(const struct tern_kernel_args *a, int64_t row, int64_t word, uint32_t bits)
{
    const int64_t *stride = a->desc->out.stride;
    tern_store_i64(TERN_I32, tern_arg_host(&a->out), row * stride[0] + word * stride[1], (int32_t)bits);
}

static uint32_t bits_of(float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof(bits));
    return isnan(scale) ? 0x7fc00000u : bits;
}

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* A word of values from so deep on. */
static uint32_t word_of(const struct tern_kernel_args *a, int64_t row, int64_t depth, float scale, int bits)
{
    const int64_t all = tern_weight_depth(&a->desc->in[0]);
    const float most = bits == 8 ? 127 : 7, least = bits == 8 ? -127 : -8;
    uint32_t word = 0;
    for (int i = 0; i < 32 / bits; i++) {
        const float x = depth + i < all ? tern_weight_at(a, 0, row, depth + i) : 0;
        const int value = (int)tern_weight_value(x, scale, least, most);
        word |= (bits == 8 ? (uint32_t)value & 255 : (uint32_t)(value + 8)) << (i * bits);
    }
    return word;
}

static void pack_groups(const struct tern_kernel_args *a, int64_t row, int64_t pair)
{
    const int64_t groups = (tern_weight_depth(&a->desc->in[0]) + TERN_WEIGHT_GROUP - 1) / TERN_WEIGHT_GROUP;
    uint32_t scales = 0;
    for (int half = 0; half < 2; half++) {
        const int64_t group = pair * 2 + half;
        const float scale = group < groups ? tern_weight_group_scale(a, 0, row, group) : 0;
        scales |= bits_of(scale) >> 16 << (16 * half);
        for (int i = 0; i < 4; i++)
            put(a, row, pair * 9 + 1 + half * 4 + i, word_of(a, row, group * TERN_WEIGHT_GROUP + i * 8, scale, 4));
    }
    put(a, row, pair * 9, scales);
}

void tern_ref_pack_weight(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const int64_t words = d->out.shape[1];
    for (int64_t row = 0; row < d->out.shape[0]; row++) {
        for (int64_t pair = 0; d->attrs.pack_weight.bits == 4 && pair < words / 9; pair++)
            pack_groups(a, row, pair);
        if (d->attrs.pack_weight.bits == 4)
            continue;
        const float scale = tern_weight_channel_scale(a, 0, row);
        put(a, row, 0, bits_of(scale));
        for (int64_t i = 1; i < words; i++)
            put(a, row, i, word_of(a, row, (i - 1) * 4, scale, 8));
    }
}

static uint32_t get(const struct tern_kernel_args *a, int64_t row, int64_t word)
{
    const struct tern_meta *x = &a->desc->in[0];
    return (uint32_t)tern_load_i64(TERN_I32, tern_arg_host(&a->in[0]), row * x->stride[0] + word * x->stride[1]);
}

static double value_of(const struct tern_kernel_args *a, int64_t row, int64_t depth)
{
    if (a->desc->attrs.unpack_weight.bits == 8) {
        const uint32_t byte = get(a, row, 1 + depth / 4) >> (depth % 4 * 8) & 255;
        return (double)(int8_t)byte * (double)float_of(get(a, row, 0));
    }
    const int64_t pair = depth / 64 * 9;
    const uint32_t scale = get(a, row, pair) >> (depth % 64 / TERN_WEIGHT_GROUP * 16) << 16;
    return ((double)(get(a, row, pair + 1 + depth % 64 / 8) >> (depth % 8 * 4) & 15) - 8) * (double)float_of(scale);
}

void tern_ref_unpack_weight(const struct tern_kernel_args *a)
{
    const struct tern_meta *w = &a->desc->out;
    const int64_t depth = tern_weight_depth(w), taps = w->ndim == 4 ? w->shape[2] * w->shape[3] : 1;
    for (int64_t row = 0; row < w->shape[0]; row++)
        for (int64_t i = 0; i < depth; i++) /* in the order of the shape */
            tern_out(a, tern_meta_offset(w, row * depth + i), value_of(a, row, i % taps * w->shape[1] + i / taps));
}

/* ---- public functions */

tern_tensor *tern_pack_weight(tern_tensor *weight, int bits)
{
    const union tern_op_attrs attrs = {.pack_weight = {.bits = bits}};
    return tern_call_unary(TERN_OP_pack_weight, weight, &attrs);
}

tern_tensor *tern_unpack_weight(tern_tensor *packed, int ndim, const int64_t *shape, enum tern_dtype dtype, int bits)
{
    union tern_op_attrs attrs = {.unpack_weight = {.shape_n = ndim, .dtype = dtype, .bits = bits}};
    if (!packed || !tern_ndim_fits(packed->ctx, "unpack_weight", ndim, shape))
        return NULL;
    for (int i = 0; i < ndim; i++)
        attrs.unpack_weight.shape[i] = shape[i];
    return tern_call_unary(TERN_OP_unpack_weight, packed, &attrs);
}

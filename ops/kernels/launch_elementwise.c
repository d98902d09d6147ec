/* Launches of element-wise ops, alone or with posts, and of copies. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/kernels/launch_internal.h"

enum { ITEMS = 256, EXPRESSION = 512 };

/* Ops of integers that the text has: functions terni_*. */
static bool has_integers(enum tern_op op)
{
    switch (op) {
    case TERN_OP_clamp:
    case TERN_OP_add_scalar:
    case TERN_OP_mul_scalar:
    case TERN_OP_pow_scalar:
    case TERN_OP_neg:
    case TERN_OP_abs:
    case TERN_OP_square:
    case TERN_OP_relu:
    case TERN_OP_logical_not:
    case TERN_OP_add:
    case TERN_OP_sub:
    case TERN_OP_mul:
    case TERN_OP_maximum:
    case TERN_OP_minimum:
    case TERN_OP_eq:
    case TERN_OP_ne:
    case TERN_OP_lt:
    case TERN_OP_le:
    case TERN_OP_gt:
    case TERN_OP_ge:
    case TERN_OP_logical_and:
    case TERN_OP_logical_or:
    case TERN_OP_where:
    case TERN_OP_cast:
        return true;
    default:
        return false;
    }
}

static int group_items(const struct tern_launch_maker *m) { return m->limits->max_group < ITEMS ? m->limits->max_group : ITEMS; }

/* Number i of an expression, as f32 or as a whole number; infinity is the end of the range. */
static void scalar_of(struct tern_launch_maker *m, bool integer, int i, double value)
{
    struct tern_params_elementwise *p = &m->l->params.elementwise;
    p->scalar[i] = (float)value;
    if (!integer)
        return;
    bool fits = value >= -2147483648.0 && value <= 2147483647.0;
    p->whole[i] = fits ? (int32_t)value : value > 0 ? INT32_MAX : INT32_MIN;
    m->failed = m->failed || (!fits && !isinf(value));
}

/* The op itself as an expression of v0, v1 …; its numbers become P.scalar or P.whole. */
static void expression_of(struct tern_launch_maker *m, bool integer, int n_own, char out[EXPRESSION])
{
    const struct tern_op_desc *d = m->d;
    const char *name = tern_op_get(d->op).name, *prefix = integer ? "terni" : "tern", *numbers = integer ? "whole" : "scalar";
    switch (d->op) {
    case TERN_OP_cast:
        snprintf(out, EXPRESSION, "v0");
        return;
    case TERN_OP_gelu:
        snprintf(out, EXPRESSION, d->attrs.gelu.approximate ? "tern_gelu_tanh(v0)" : "tern_gelu(v0)");
        return;
    case TERN_OP_clamp:
        scalar_of(m, integer, 0, d->attrs.clamp.min);
        scalar_of(m, integer, 1, d->attrs.clamp.max);
        snprintf(out, EXPRESSION, "%s_clamp(v0, P.%s[0], P.%s[1])", prefix, numbers, numbers);
        return;
    case TERN_OP_add_scalar:
    case TERN_OP_mul_scalar:
    case TERN_OP_pow_scalar: /* one number each, the first attribute */
        scalar_of(m, integer, 0, d->attrs.add_scalar.other);
        snprintf(out, EXPRESSION, "%s_%s(v0, P.%s[0])", prefix, name, numbers);
        return;
    default:
        snprintf(out, EXPRESSION, n_own == 1 ? "%s_%s(v0)" : n_own == 2 ? "%s_%s(v0, v1)" : "%s_%s(v0, v1, v2)", prefix, name);
    }
}

/* Posts wrap the expression; their operands are further inputs, in order. */
static void wrap_posts(struct tern_launch_maker *m, int n_own, char out[EXPRESSION])
{
    char whole[EXPRESSION], operand[32];
    int next = n_own;
    for (int i = 0; i < m->d->n_post; i++) {
        const struct tern_post *p = &m->d->post[i];
        if (p->input < 0)
            snprintf(operand, sizeof(operand), "P.post_value[%d]", i);
        else
            snprintf(operand, sizeof(operand), "v%d", next++);
        m->l->params.head.post_value[i] = (float)p->value;
        m->failed = m->failed || !tern_post_call(p, out, operand, whole, sizeof(whole));
        memcpy(out, whole, sizeof(whole));
    }
}

static bool dtype_fits(enum tern_op op, enum tern_dtype in, enum tern_dtype out, bool *integer)
{
    *integer = !tern_dtype_is_float(in) && !tern_dtype_is_float(out);
    if (in == TERN_I64 || out == TERN_I64)
        return op == TERN_OP_cast && !*integer && out != TERN_I64; /* 32 bits are not enough for more */
    return !*integer || has_integers(op);
}

bool tern_launch_elementwise(struct tern_launch_maker *m)
{
    const struct tern_op_desc *d = m->d;
    int64_t stride[TERN_MAX_INPUTS + 1][TERN_MAX_DIMS], n = tern_meta_numel(&d->out);
    int input[TERN_MAX_INPUTS], n_own = d->op == TERN_OP_where ? 3 : tern_op_get(d->op).max_inputs, n_in = n_own;
    char expression[EXPRESSION];
    struct tern_loop loop;
    bool integer;
    if (!tern_op_is_elementwise(d->op) && d->op != TERN_OP_cast && d->op != TERN_OP_quantize)
        return false;
    if (!dtype_fits(d->op, d->in[n_own - 1].dtype, d->out.dtype, &integer) || (integer && d->n_post)) {
        m->failed = true;
        return true;
    }
    for (int i = 0; i < n_own; i++)
        input[i] = i;
    for (int i = 0; i < d->n_post; i++)
        if (d->post[i].input >= 0 && n_in < TERN_MAX_INPUTS)
            input[n_in++] = (int)d->post[i].input;
    for (int i = 0; i < n_in; i++)
        tern_broadcast_strides(&d->in[input[i]], &d->out, stride[i]);
    if (d->op == TERN_OP_quantize) { /* a scale for each index of the first dimension */
        memset(stride[1], 0, sizeof(stride[1]));
        stride[1][0] = d->in[1].stride[0];
    }
    memcpy(stride[n_in], d->out.stride, sizeof(stride[0]));
    if (!n)
        return true;
    if (!tern_loop_make(d->out.ndim, d->out.shape, n_in + 1, (const int64_t(*)[TERN_MAX_DIMS])stride, true, &loop)) {
        m->failed = true;
        return true;
    }
    struct tern_launch *l = tern_launch_begin(m, "elementwise", sizeof(l->params.elementwise), group_items(m), 1);
    struct tern_params_elementwise *p = &l->params.elementwise;
    for (int i = 0; i < n_in; i++)
        tern_launch_read(m, (const char[]){'x', (char)('0' + i), 0}, input[i]);
    tern_launch_write(m, "y", TERN_SLOT_OUT);
    expression_of(m, integer, n_own, expression);
    wrap_posts(m, n_own, expression);
    tern_launch_define(m, "INPUTS %d", n_in);
    tern_launch_define(m, "NDIM %d", loop.ndim);
    tern_launch_define(m, "VALUE %s", integer ? "int" : "float");
    if (integer)
        tern_launch_define(m, "INTEGER 1");
    tern_launch_define(m, "EXPRESSION %s", expression);
    p->n = (int32_t)n;
    for (int i = 0; i < loop.ndim; i++) {
        p->shape[i] = loop.shape[i];
        for (int k = 0; k <= n_in; k++)
            p->stride[(k < n_in ? k : 8) * TERN_LOOP_DIMS + i] = loop.stride[k][i];
    }
    tern_launch_items(m, n, l->group_size[0]);
    return true;
}

/* ---- copies: x with strides and an offset to a place of the output ---- */

struct part {
    int input;
    struct tern_meta from;      /* strides of x under the sizes that are copied */
    int64_t to[TERN_MAX_DIMS];  /* strides of the output */
    int64_t x_offset, y_offset; /* in elements */
    const int64_t *before;      /* of pad; NULL: none */
    const int64_t *inside;
};

static void copy_part(struct tern_launch_maker *m, const struct part *c)
{
    const struct tern_op_desc *d = m->d;
    struct tern_loop loop = {.ndim = 0};
    int64_t stride[2][TERN_MAX_DIMS], n = tern_meta_numel(&c->from);
    memcpy(stride[0], c->from.stride, sizeof(stride[0]));
    memcpy(stride[1], c->to, sizeof(stride[1]));
    if (!n || m->failed)
        return;
    if (c->before) { /* every dimension has bounds of its own */
        loop.ndim = c->from.ndim ? c->from.ndim : 1;
        loop.shape[0] = 1;
        for (int i = 0; i < c->from.ndim && i < TERN_LOOP_DIMS; i++) {
            loop.shape[i] = (int32_t)c->from.shape[i];
            loop.stride[0][i] = (int32_t)stride[0][i];
            loop.stride[1][i] = (int32_t)stride[1][i];
        }
    }
    if (c->before ? loop.ndim > TERN_LOOP_DIMS
                  : !tern_loop_make(c->from.ndim, c->from.shape, 2, (const int64_t(*)[TERN_MAX_DIMS])stride, true, &loop)) {
        m->failed = true;
        return;
    }
    struct tern_launch *l = tern_launch_begin(m, "copy", sizeof(l->params.copy), group_items(m), 1);
    struct tern_params_copy *p = &l->params.copy;
    tern_launch_read(m, "x", c->input);
    tern_launch_write(m, "y", TERN_SLOT_OUT);
    tern_launch_define(m, "NDIM %d", loop.ndim);
    p->n = (int32_t)n;
    p->offset[0] = (int32_t)c->x_offset;
    p->offset[1] = (int32_t)c->y_offset;
    for (int i = 0; i < loop.ndim; i++) {
        p->shape[i] = loop.shape[i];
        p->x_stride[i] = loop.stride[0][i];
        p->y_stride[i] = loop.stride[1][i];
        p->before[i] = c->before && i < c->from.ndim ? (int32_t)c->before[i] : 0;
        p->inside[i] = c->before && i < c->from.ndim ? (int32_t)c->inside[i] : 1;
    }
    if (c->before) {
        tern_launch_define(m, "PAD 1");
        if (!tern_dtype_is_float(d->out.dtype))
            tern_launch_define(m, "INTEGER 1");
        p->value = (float)d->attrs.pad.value;
        p->whole = d->attrs.pad.value >= -2147483648.0 && d->attrs.pad.value <= 2147483647.0 ? (int32_t)d->attrs.pad.value : 0;
        m->failed = m->failed || (!tern_dtype_is_float(d->out.dtype) && (double)p->whole != d->attrs.pad.value);
    }
    tern_launch_items(m, n, l->group_size[0]);
}

static void copy_cat(struct tern_launch_maker *m)
{
    const struct tern_op_desc *d = m->d;
    int64_t at = 0, dim = d->attrs.cat.dim;
    for (int i = 0; i < d->n_in; i++) {
        struct part c = {.input = i, .from = d->in[i], .y_offset = at * d->out.stride[dim]};
        memcpy(c.to, d->out.stride, sizeof(c.to));
        copy_part(m, &c);
        at += d->in[i].shape[dim];
    }
}

static void copy_pad(struct tern_launch_maker *m)
{
    const struct tern_op_desc *d = m->d;
    int64_t before[TERN_MAX_DIMS] = {0};
    struct part c = {.from = d->out, .before = before, .inside = d->in[0].shape};
    for (int i = 0; i < d->out.ndim; i++) {
        int64_t pair = 2 * (int64_t)(d->out.ndim - 1 - i);
        before[i] = pair < d->attrs.pad.pad_n ? d->attrs.pad.pad[pair] : 0;
        c.from.stride[i] = d->in[0].stride[i];
    }
    memcpy(c.to, d->out.stride, sizeof(c.to));
    copy_part(m, &c);
}

/* Row-major order stays, whatever the shapes: one side must be contiguous, and lends its strides to the other's shape. */
static void copy_reshape(struct tern_launch_maker *m)
{
    const struct tern_op_desc *d = m->d;
    struct part c = {.from = d->in[0]};
    struct tern_meta to = d->in[0];
    tern_meta_contiguous(&to);
    memcpy(c.to, to.stride, sizeof(c.to));
    m->failed = m->failed || !tern_meta_is_contiguous(&d->out);
    copy_part(m, &c);
}

bool tern_launch_copy(struct tern_launch_maker *m)
{
    const struct tern_op_desc *d = m->d;
    struct part c = {.input = 0};
    switch (d->op) {
    case TERN_OP_cat:
        copy_cat(m);
        break;
    case TERN_OP_pad:
        copy_pad(m);
        break;
    case TERN_OP_reshape:
        copy_reshape(m);
        break;
    case TERN_OP_contiguous:
        c.from = d->in[0];
        memcpy(c.to, d->out.stride, sizeof(c.to));
        copy_part(m, &c);
        break;
    case TERN_OP_permute:
    case TERN_OP_expand:
    case TERN_OP_slice:
        tern_op_view(d, &c.from, &c.x_offset);
        memcpy(c.to, d->out.stride, sizeof(c.to));
        copy_part(m, &c);
        break;
    default:
        return false;
    }
    m->failed = m->failed || d->n_post;
    return true;
}

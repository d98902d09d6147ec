/* Calls that reach more variants of the kernel texts than the op table: tiles that are full and cut, vector loads, layouts, posts,
 * many parts. Expected values come from the references of the ops. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "core/tensor.h"
#include "ops/reference.h"
#include "tests/text_run.h"

/* layout: c contiguous, l channels-last, t last two dimensions swapped in memory, s a slice of wider rows, from the second on;
 * b contiguous, f32 of random bits: numbers of all sizes, infinities and NaN among them */
struct input {
    enum tern_dtype dtype;
    char layout;
    int ndim;
    int64_t shape[4];
};

struct call {
    const char *name;
    enum tern_op op;
    struct input in[TERN_MAX_INPUTS]; /* dtype -1: absent */
    int n_in;                         /* the op's own; operands of posts are behind them */
    union tern_op_attrs attrs;
    int n_post;
    struct tern_post post[TERN_MAX_POST];
    double limit; /* of an error; 0: the dtype's */
};

#define F32 TERN_F32
#define F16 TERN_F16
#define BF16 TERN_BF16
#define I8 TERN_I8
#define NONE       \
    {              \
        .ndim = -1 \
    }
#define D(dtype, layout, ...)                                                      \
    {                                                                              \
        dtype, layout, sizeof((int[]){__VA_ARGS__}) / sizeof(int), { __VA_ARGS__ } \
    }

static const struct call calls[] = {
#include "tests/text_more.def"
};

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Values in -1 .. 1 or, by the layout, of random bits; indices below 7; bools; int8 in -127 .. 127. */
static tern_tensor *make_input(struct tern_context *ctx, const struct input *spec, uint32_t *seed)
{
    int64_t shape[4], n = 1;
    memcpy(shape, spec->shape, sizeof(shape));
    int last = spec->ndim - 1;
    if (spec->layout == 's')
        shape[last] += 3;
    if (spec->layout == 't') {
        shape[last] = spec->shape[last - 1];
        shape[last - 1] = spec->shape[last];
    }
    for (int i = 0; i < spec->ndim; i++)
        n *= shape[i];
    void *data = malloc((size_t)n * tern_dtype_size(spec->dtype) + 1);
    for (int64_t i = 0; i < n && data; i++) {
        uint32_t r = next_random(seed);
        if (spec->layout == 'b')
            ((uint32_t *)data)[i] = r << 16 ^ next_random(seed);
        else if (tern_dtype_is_float(spec->dtype))
            tern_store(spec->dtype, data, i, (double)r / 8388608.0 - 1);
        else
            tern_store_i64(spec->dtype, data, i,
                           spec->dtype == TERN_BOOL ? r % 4 != 0
                           : spec->dtype == TERN_I8 ? (int64_t)(r % 255) - 127
                                                    : (int64_t)(r % 7));
    }
    tern_tensor *x = data ? tern_tensor_create(ctx, spec->dtype, spec->ndim, shape, data) : NULL;
    free(data);
    if (spec->layout == 's')
        return tern_slice(x, last, 1, 1 + spec->shape[last], 1);
    if (spec->layout == 't')
        return tern_transpose(x, last - 1, last);
    return spec->layout == 'l' ? tern_contiguous(x, TERN_CHANNELS_LAST) : x;
}

/* Host memory for a result, with guards; freed by the context's scope. */
static tern_tensor *make_output(struct tern_context *ctx, const struct tern_meta *m)
{
    tern_tensor *t = tern_tensor_empty(ctx, m);
    if (t)
        memset(tern_tensor_host(t), 0xFF, (size_t)tern_meta_span(m) * tern_dtype_size(m->dtype));
    return t;
}

/* One post by the reference of its op, from f32 to f32. */
static bool apply_post(struct tern_context *ctx, const struct tern_op_desc *d, int i, tern_tensor *const *in, tern_tensor **value)
{
    const struct tern_post *p = &d->post[i];
    if (p->op == TERN_OP_cast) /* rounded where it is stored */
        return true;
    struct tern_op_desc q;
    memset(&q, 0, sizeof(q));
    q.op = (enum tern_op)p->op;
    q.n_in = p->input < 0 ? 1 : 2;
    q.in[0] = (*value)->meta;
    if (q.op == TERN_OP_gelu)
        q.attrs.gelu.approximate = (int64_t)p->value;
    else if (p->input < 0)
        q.attrs.add_scalar.other = p->value; /* mul_scalar's, too; the others have none */
    struct tern_kernel_args a = {.desc = &q, .ctx = ctx, .in = {{(*value)->buffer, (*value)->offset}}};
    tern_tensor *operand = p->input < 0 ? NULL : tern_cast(in[p->input], TERN_F32);
    q.present[0] = true;
    if (operand) {
        q.present[1] = true;
        q.in[1] = operand->meta;
        a.in[1] = (struct tern_arg){operand->buffer, operand->offset};
    }
    q.out = d->out;
    q.out.dtype = TERN_F32;
    tern_tensor *out = make_output(ctx, &q.out);
    if (!out || (p->input >= 0 && !operand))
        return false;
    a.out = (struct tern_arg){out->buffer, out->offset};
    tern_op_get(q.op).reference(&a);
    *value = out;
    return true;
}

/* The reference; in front of posts in f32, as kernels keep it. */
static tern_tensor *expected_of(struct tern_context *ctx, const struct tern_op_desc *d, struct tern_kernel_args a, tern_tensor *const *in)
{
    struct tern_op_desc plain = *d;
    plain.n_post = 0;
    if (d->n_post)
        plain.out.dtype = TERN_F32;
    tern_tensor *value = make_output(ctx, &plain.out);
    if (!value)
        return NULL;
    a.desc = &plain;
    a.out = (struct tern_arg){value->buffer, value->offset};
    tern_op_get(d->op).reference(&a);
    for (int i = 0; i < d->n_post; i++)
        if (!apply_post(ctx, d, i, in, &value))
            return NULL;
    return value;
}

static bool compare(const tern_tensor *expected, const tern_tensor *found, double own_limit, char *message, size_t size)
{
    static const double limits[TERN_DTYPE_COUNT] = {[TERN_F32] = 2e-5, [TERN_F16] = 2e-3, [TERN_BF16] = 1.6e-2};
    double largest = 0, limit = own_limit > 0 ? own_limit : limits[found->meta.dtype];
    int64_t n = tern_meta_numel(&found->meta);
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(tern_load(expected->meta.dtype, tern_tensor_host(expected), tern_meta_offset(&expected->meta, i))));
    for (int64_t i = 0; i < n; i++) {
        double e = tern_load(expected->meta.dtype, tern_tensor_host(expected), tern_meta_offset(&expected->meta, i));
        double f = tern_load(found->meta.dtype, tern_tensor_host(found), tern_meta_offset(&found->meta, i));
        if (isnan(e) ? !isnan(f) : !(fabs(e - f) <= limit * (largest > 1 ? largest : 1))) {
            snprintf(message, size, "element %lld: expected %.9g, found %.9g, largest %.3g", (long long)i, e, f, largest);
            return false;
        }
    }
    return true;
}

static bool describe(struct tern_context *ctx, const struct call *c, tern_tensor **in, struct tern_op_desc *d)
{
    uint32_t seed = 1;
    memset(d, 0, sizeof(*d));
    d->op = c->op;
    d->n_in = c->n_in;
    d->attrs = c->attrs;
    for (int i = 0; i < TERN_MAX_INPUTS; i++) {
        in[i] = c->in[i].ndim > 0 ? make_input(ctx, &c->in[i], &seed) : NULL;
        if (c->in[i].ndim > 0 && !in[i])
            return false;
        d->present[i] = in[i] != NULL;
        if (in[i])
            d->in[i] = in[i]->meta;
        if (in[i] && i >= d->n_in)
            d->n_in = i + 1;
    }
    int own = c->n_in, all = d->n_in;
    d->n_in = own;
    if (tern_op_get(d->op).shape(ctx, d))
        return false;
    d->n_in = all;
    if (c->in[0].layout == 'l' && d->out.ndim == 4)
        tern_meta_channels_last(&d->out);
    for (int i = 0; i < c->n_post; i++) /* the last cast is where values are stored */
        d->out.dtype = c->post[i].op == TERN_OP_cast ? (enum tern_dtype)c->post[i].value : d->out.dtype;
    d->n_post = c->n_post;
    memcpy(d->post, c->post, sizeof(d->post));
    return true;
}

static enum tern_status run_one(struct tern_context *ctx, const struct call *c, struct text_executor *e, char *message, size_t size)
{
    struct tern_op_desc d;
    tern_tensor *in[TERN_MAX_INPUTS];
    snprintf(message, size, "the call could not be made");
    if (!describe(ctx, c, in, &d)) {
        snprintf(message, size, "%s", tern_error(ctx));
        return TERN_E_INTERNAL;
    }
    struct tern_kernel_args a = {.desc = &d, .ctx = ctx};
    for (int i = 0; i < d.n_in; i++)
        if (in[i])
            a.in[i] = (struct tern_arg){in[i]->buffer, in[i]->offset};
    tern_tensor *expected = expected_of(ctx, &d, a, in), *found = make_output(ctx, &d.out);
    if (!expected || !found)
        return TERN_E_INTERNAL;
    a.out = (struct tern_arg){found->buffer, found->offset};
    if (!text_run_call(&a, e, message, size))
        return message[0] ? TERN_E_INTERNAL : TERN_E_UNSUPPORTED;
    return e->only_compiles || compare(expected, found, c->limit, message, size) ? TERN_OK : TERN_E_INTERNAL;
}

struct text_counts text_run_more(struct text_executor *e)
{
    char message[1400];
    struct text_counts counts = {.passed = 0};
    struct tern_context *ctx = tern_context_create(&(const struct tern_context_params){.threads = 1});
    const char *only = getenv("TERN_TEXT_CASES");
    e->launches = 0;
    e->one_in = 0;
    for (size_t i = 0; ctx && i < sizeof(calls) / sizeof(*calls); i++) {
        /* Without matrix units other calls run the same tiles; those of many groups are for nothing else, the rest where time does not
         * count. */
        bool matrix = strstr(calls[i].name, e->one_order ? ".matrix" : ".matrix_large") != NULL;
        if ((only && strncmp(calls[i].name, only, strlen(only))) || (matrix && !e->limits.matrix_subgroup))
            continue;
        tern_scope_begin(ctx);
        enum tern_status st = run_one(ctx, &calls[i], e, message, sizeof(message));
        tern_scope_end(ctx, NULL);
        tern_error_clear(ctx);
        counts.passed += !st;
        counts.skipped += st == TERN_E_UNSUPPORTED;
        if (st && st != TERN_E_UNSUPPORTED) {
            counts.failed++;
            print_error("%s: %s: %s\n", e->name, calls[i].name, message);
        } else if (st) {
            print_message("%s: %s: no text runs it\n", e->name, calls[i].name);
        }
    }
    tern_context_destroy(&ctx);
    print_message("%s: %d more calls passed, %d skipped, %d failed, %d launches\n", e->name, counts.passed, counts.skipped, counts.failed,
                  e->launches);
    counts.launches = e->launches;
    return counts;
}

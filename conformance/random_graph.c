/* Random valid graphs. Calls grow a pool of tensors; each call takes operands from it that fit. */
#include "conformance/random_graph.h"

#include <stdio.h>
#include <tern/ops.h>
#include <tern/random.h>

#include "core/context.h"

#define MOST 64

struct pool {
    uint64_t state;
    tern_tensor *t[MOST];
    int n;
    const struct tern_random_graph *r;
};

static uint64_t next(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int below(struct pool *p, int n) { return (int)(next(&p->state) % (uint64_t)n); }

static tern_tensor *noise(struct tern_context *ctx, uint64_t seed, int ndim, const int64_t *shape, float scale)
{
    struct tern_generator g;
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    float *values = tern_alloc(ctx, (size_t)n * sizeof(*values));
    if (!values)
        return NULL;
    tern_generator_seed(&g, TERN_GENERATOR_CPU, seed);
    tern_generator_randn(&g, values, n);
    for (int64_t i = 0; i < n; i++)
        values[i] *= scale;
    tern_tensor *t = tern_tensor_create(ctx, TERN_F32, ndim, shape, values);
    tern_free(ctx, values);
    return t;
}

/* Layers: a conv or a linear from a to b channels with its bias, and norms, for every pair of these widths. */
static const int64_t widths[] = {4, 8, 12};

static void add_weight(struct tern_random_graph *r, const char *fmt, int a, int b, tern_tensor *t)
{
    char name[32];
    snprintf(name, sizeof(name), fmt, a, b); /* NOLINT: the formats stand below */
    if (r->weights && t)
        tern_weights_add(r->weights, name, t);
}

struct tern_random_graph tern_random_graph_make(struct tern_context *ctx, uint64_t seed, uint64_t weight_seed)
{
    struct tern_random_graph r = {.seed = seed, .ctx = ctx, .n_inputs = 3, .weights = tern_weights_create(ctx)};
    uint64_t s = seed ^ 0x5151;
    r.calls = 3 + (int)(next(&s) % 30);
    r.n_outputs = 1 + (int)(next(&s) % 3);
    int64_t n = 1 + (int64_t)(next(&s) % 2), h = 3 + (int64_t)(next(&s) % 6), w = 3 + (int64_t)(next(&s) % 6);
    r.inputs[0] = (struct tern_graph_input){"picture", TERN_F32, 4, {n, widths[next(&s) % 3], h, w}};
    r.inputs[1] = (struct tern_graph_input){"tokens", TERN_F32, 3, {n, 2 + (int64_t)(next(&s) % 7), widths[next(&s) % 3]}};
    r.inputs[2] = (struct tern_graph_input){"vector", TERN_F32, 2, {n, widths[next(&s) % 3]}};
    tern_scope_begin(ctx);
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 4; b++) { /* b == 3: the norm of a */
            int64_t i = widths[a], o = widths[b % 3];
            const int64_t conv[] = {o, i, 3, 3}, linear[] = {o, i}, one[] = {b == 3 ? i : o};
            uint64_t ws = weight_seed * 64 + (uint64_t)(a * 4 + b);
            if (b < 3) {
                add_weight(&r, "conv.%d.%d.weight", a, b, noise(ctx, ws, 4, conv, 0.15f));
                add_weight(&r, "linear.%d.%d.weight", a, b, noise(ctx, ws + 1000, 2, linear, 0.3f));
            }
            add_weight(&r, b == 3 ? "norm.%d" : "bias.%d.%d", a, b, noise(ctx, ws + 2000, 1, one, 0.5f));
        }
    tern_scope_end(ctx, NULL);
    return r;
}

void tern_random_graph_close(struct tern_random_graph *r) { tern_weights_unref(&r->weights); }

void tern_random_graph_inputs(const struct tern_random_graph *r, uint64_t seed, tern_tensor **in)
{
    for (int i = 0; i < r->n_inputs; i++)
        in[i] = noise(r->ctx, seed * 8 + (uint64_t)i, r->inputs[i].ndim, r->inputs[i].shape, 1);
}

static tern_tensor *weight(const struct pool *p, const char *fmt, int a, int b)
{
    char name[32];
    snprintf(name, sizeof(name), fmt, a, b); /* NOLINT: the formats stand below */
    return tern_weights_get(p->r->weights, name);
}

static int width_index(int64_t c)
{
    for (int i = 0; i < 3; i++)
        if (widths[i] == c)
            return i;
    return -1;
}

/* Some tensor of ndim dimensions (0: any), late ones more often. NULL: none. */
static tern_tensor *pick(struct pool *p, int ndim)
{
    for (int tries = 0; tries < 8; tries++) {
        int i = p->n - 1 - below(p, below(p, 2) ? p->n : (p->n < 4 ? p->n : 4));
        if (!ndim || tern_tensor_ndim(p->t[i]) == ndim)
            return p->t[i];
    }
    return NULL;
}

static tern_tensor *unary(struct pool *p, tern_tensor *x)
{
    switch (below(p, 10)) {
    case 0:
        return tern_neg(x);
    case 1:
        return tern_silu(x);
    case 2:
        return tern_gelu(x, TERN_GELU_NONE);
    case 3:
        return tern_tanh(x);
    case 4:
        return tern_sigmoid(x);
    case 5:
        return tern_quick_gelu(x);
    case 6:
        if (below(p, 3) == 0) /* equal but for an attribute */
            return tern_sub(tern_mul_scalar(x, 0.7), tern_mul_scalar(x, -0.4));
        return tern_mul_scalar(x, 0.7);
    case 7:
        return tern_add_scalar(x, -0.3);
    case 8:
        return tern_clamp(x, -1, 2); /* by reference on a CPU */
    default:
        return tern_cast(tern_cast(x, TERN_BF16), TERN_F32);
    }
}

static tern_tensor *binary(struct pool *p, tern_tensor *x, tern_tensor *y)
{
    switch (below(p, 4)) {
    case 0:
        return tern_mul(x, y);
    case 1:
        return tern_sub(x, y);
    case 2:
        return tern_maximum(x, y);
    default:
        return tern_add(x, y);
    }
}

/* A second operand for x: a tensor of its shape, a vector over its channels, a constant. */
static tern_tensor *partner(struct pool *p, tern_tensor *x)
{
    for (int i = p->n - 1 - below(p, p->n); i >= 0; i--) {
        bool same = tern_tensor_ndim(p->t[i]) == tern_tensor_ndim(x);
        for (int d = 0; same && d < tern_tensor_ndim(x); d++)
            same = tern_tensor_size(p->t[i], d) == tern_tensor_size(x, d);
        if (same)
            return p->t[i];
    }
    int c = tern_tensor_ndim(x) == 4 ? width_index(tern_tensor_size(x, 1)) : width_index(tern_tensor_size(x, -1));
    if (c < 0 || below(p, 3) == 0)
        return tern_tensor_scalar(p->r->ctx, TERN_F32, 0.5 + below(p, 4));
    tern_tensor *vector = p->t[2]; /* as a time embedding */
    int from = width_index(tern_tensor_size(vector, 1));
    if (tern_tensor_ndim(x) == 4 && tern_tensor_size(x, 0) == tern_tensor_size(vector, 0) && below(p, 2))
        return tern_as_nc11(tern_linear(vector, weight(p, "linear.%d.%d.weight", from, c), NULL));
    tern_tensor *v = tern_mul_scalar(weight(p, "norm.%d", c, 0), 0.5); /* of weights alone: a prepare node */
    return tern_tensor_ndim(x) == 4 ? tern_reshape(v, 4, (const int64_t[]){1, -1, 1, 1}) : v;
}

static tern_tensor *layer(struct pool *p, tern_tensor *x)
{
    bool picture = tern_tensor_ndim(x) == 4;
    int a = width_index(tern_tensor_size(x, picture ? 1 : -1)), b = below(p, 3);
    if (a < 0)
        return NULL;
    tern_tensor *bias = below(p, 4) ? weight(p, "bias.%d.%d", a, b) : NULL;
    if (!picture)
        return below(p, 3) ? tern_linear(x, weight(p, "linear.%d.%d.weight", a, b), bias)
                           : tern_layer_norm(x, 1, weight(p, "norm.%d", a, 0), below(p, 2) ? weight(p, "norm.%d", a, 0) : NULL, 1e-5);
    if (below(p, 2))
        return tern_conv2d(x, weight(p, "conv.%d.%d.weight", a, b), bias, .padding = 1);
    tern_tensor *norm = weight(p, "norm.%d", a, 0);
    tern_tensor *shift = below(p, 2) ? norm : NULL;
    int how = below(p, 4), groups = how & 1 ? 4 : 2;
    tern_tensor *y = how & 2 ? tern_group_norm_apply(x, tern_group_norm_stats(x, groups), norm, shift, 1e-5)
                             : tern_group_norm(x, groups, norm, shift, 1e-5);
    return below(p, 2) ? tern_silu(y) : y;
}

static bool is_below(const tern_tensor *x, int64_t n) { return tern_tensor_numel(x) < n; }

static tern_tensor *shape_op(struct pool *p, tern_tensor *x)
{
    int n = tern_tensor_ndim(x);
    const int to_tokens[] = {0, 2, 3, 1}, swap[] = {0, 2, 1};
    switch (below(p, 6)) {
    case 0: { /* half of them of tensors that nothing else needs: they can be made in their places */
        if (!is_below(x, 4000))
            return NULL;
        tern_tensor *pair[] = {x, x};
        for (int i = below(p, 2); i < 2; i++)
            pair[i] = unary(p, x);
        return tern_cat(pair, 2, below(p, 2) ? 0 : n - 1);
    }
    case 1:
        return tern_tensor_size(x, -1) > 2 ? tern_slice(x, -1, 1, INT64_MAX, 1) : NULL;
    case 2:
        if (n == 4)
            return tern_reshape(tern_permute(x, 4, to_tokens), 3, (const int64_t[]){tern_tensor_size(x, 0), -1, tern_tensor_size(x, 1)});
        return n == 3 ? tern_permute(x, 3, swap) : tern_unsqueeze(x, 1);
    case 3:
        return n == 4 && is_below(x, 1000) ? tern_interpolate(x, .scale_factor = 2, .mode = TERN_NEAREST) : NULL;
    case 4:
        return tern_pad(x, 2, (const int64_t[]){1, 0}, 0.25);
    default:
        return tern_mean(x, 1, (const int[]){n - 1}, true);
    }
}

static tern_tensor *call(struct pool *p)
{
    tern_tensor *x = pick(p, 0);
    switch (below(p, 8)) {
    case 0:
    case 1:
        return unary(p, x);
    case 2:
    case 3:
        return binary(p, x, partner(p, x));
    case 4:
    case 5:
        return layer(p, x);
    case 6:
        return shape_op(p, x);
    default:
        x = pick(p, 3);
        if (!x || tern_tensor_size(x, 1) > 64)
            return NULL;
        if (below(p, 3) == 0) { /* a square and its transpose: two views of one memory */
            tern_tensor *square = tern_matmul(x, tern_permute(x, 3, (const int[]){0, 2, 1}));
            return tern_add(square, tern_permute(square, 3, (const int[]){0, 2, 1}));
        }
        x = tern_unsqueeze(x, 1);
        return below(p, 2) ? tern_squeeze(tern_sdpa(x, x, x, .is_causal = false), 1) : tern_squeeze(tern_softmax(x, -1), 1);
    }
}

enum tern_status tern_random_graph_fn(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct tern_random_graph *r = user;
    struct pool p = {.state = r->seed, .r = r};
    if (tern_failed(r->ctx)) /* inputs or weights are missing */
        return tern_error_status(r->ctx);
    for (int i = 0; i < r->n_inputs; i++)
        p.t[p.n++] = in[i];
    for (int i = 0; i < r->calls && p.n < MOST; i++) {
        tern_tensor *t = call(&p);
        if (tern_error_status(r->ctx))
            return tern_error_status(r->ctx);
        if (t)
            p.t[p.n++] = t;
    }
    for (int i = 0; i < r->n_outputs; i++)
        out[i] = p.t[p.n - 1 - below(&p, p.n < 5 ? p.n : 5)];
    return TERN_OK;
}

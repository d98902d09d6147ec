/* SmoothQuant [Xiao et al. 2023]: what a norm gives is divided by a factor for each channel, and the weights that read it are multiplied by
 * the same, so that channels with large values do not take the range of int8 from the others. The factors go into the norm's own weight
 * and bias, or, behind a norm and silu, into a product that is fused with both. Those that are powers of two change no float. */
#include <math.h>
#include <string.h>
#include <tern/ops.h>

#include "core/context.h"
#include "core/tensor.h"
#include "graph/passes/again.h"
#include "graph/passes/passes.h"

/* Letters for each channel. */
struct factors {
    const char *letters; /* in the words; NULL: none */
    int64_t count;
    int dim;      /* of what is divided: its channels */
    bool in_norm; /* it is the norm's weight and bias that are divided */
};

struct smoothing {
    struct tern_again again; /* first */
    struct factors *divided; /* by value of the old graph: what becomes smaller by them */
    struct factors *scaled;  /* by node of a norm: its weight and bias become so */
};

static bool is_norm(const struct tern_node *n)
{
    return !n->dead && tern_node_computes(n) && (n->desc.op == TERN_OP_layer_norm || n->desc.op == TERN_OP_group_norm);
}

/* A layer whose channels are those of what such a norm gives. */
static bool is_layer(const struct tern_node *n, enum tern_op norm)
{
    const bool linear = n->desc.op == TERN_OP_linear || n->desc.op == TERN_OP_linear_geglu,
               conv = n->desc.op == TERN_OP_conv2d && n->desc.attrs.conv2d.groups == 1;
    return (norm == TERN_OP_layer_norm ? linear : conv) && tern_node_computes(n) && !n->desc.n_post;
}

/* Whether such layers alone read the value, as what comes in. */
static bool is_read_by_layers(const struct tern_graph *g, int value, enum tern_op norm)
{
    int readers = 0;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; !g->nodes[i].dead && k < g->nodes[i].desc.n_in; k++)
            if (g->nodes[i].in[k] == value) {
                if (k || !is_layer(&g->nodes[i], norm))
                    return false;
                readers++;
            }
    return readers > 0 && !tern_graph_is_output(g, value);
}

/* The result of a silu or a cast that alone reads the value; -1: it is read by something else. */
static int passed_on(const struct tern_graph *g, int value)
{
    int found = -1;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; !g->nodes[i].dead && k < g->nodes[i].desc.n_in; k++)
            if (g->nodes[i].in[k] == value) {
                const enum tern_op op = g->nodes[i].desc.op;
                if (found >= 0 || (op != TERN_OP_silu && op != TERN_OP_cast))
                    return -1;
                found = g->nodes[i].out;
            }
    return tern_graph_is_output(g, value) ? -1 : found;
}

int tern_smooth_place(const struct tern_graph *g, int node, bool *silu)
{
    const struct tern_node *n = &g->nodes[node];
    const bool affine = is_norm(n) && n->desc.n_in > 1 && n->in[1] >= 0 && g->values[n->in[1]].kind == TERN_VALUE_WEIGHT;
    int value = affine && g->values[n->in[1]].meta.ndim == 1 ? n->out : -1;
    *silu = false;
    while (value >= 0 && !is_read_by_layers(g, value, n->desc.op)) {
        value = passed_on(g, value);
        *silu = *silu || (value >= 0 && g->nodes[g->values[value].node].desc.op == TERN_OP_silu);
    }
    return value;
}

int tern_smooth_channels(const struct tern_graph *g, int node)
{
    const struct tern_op_desc *d = &g->nodes[node].desc;
    return d->op == TERN_OP_layer_norm ? d->out.ndim - 1 : 1;
}

/* The value is read by layers alone. */
static bool is_read_in_int8(const struct tern_graph *g, int value, const char *words)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (!g->nodes[i].dead && g->nodes[i].desc.n_in > 1 && g->nodes[i].in[0] == value &&
            tern_quantize_format_of(g, g->nodes[i].in[1], words) == TERN_LAYER_W8A8)
            return true;
    return false;
}

/* Takes the norm's factors, if the words have some, to what layers read. */
static enum tern_status take(struct smoothing *s, const struct tern_graph *g, int node, const char *words)
{
    const struct tern_node *n = &g->nodes[node];
    const struct tern_value *w = n->desc.n_in > 1 && n->in[1] >= 0 ? &g->values[n->in[1]] : NULL;
    size_t count = 0;
    const char *letters = w && w->kind == TERN_VALUE_WEIGHT ? tern_quantize_factors(words, w->name, &count) : NULL;
    if (!letters)
        return TERN_OK;
    if ((int64_t)count != tern_meta_numel(&w->meta))
        return tern_fail(g->ctx, TERN_E_SHAPE, "smooth: \"%s\" has %zu factors: expected %lld, one for each channel", w->name, count,
                         (long long)tern_meta_numel(&w->meta));
    bool silu;
    const int to = tern_smooth_place(g, node, &silu);
    if (to < 0)
        return tern_fail(g->ctx, TERN_E_INVALID,
                         "smooth: what the norm \"%s\" gives, or silu of it, is not read by linear layers and convolutions alone", w->name);
    if (!is_read_in_int8(g, to, words))
        return TERN_OK;
    s->divided[to] = (struct factors){letters, (int64_t)count, tern_smooth_channels(g, node), !silu};
    if (!silu)
        s->scaled[node] = s->divided[to];
    return TERN_OK;
}

/* The factors, or one over them, as a constant that spreads over `like`; channels are its dimension `dim`. */
static tern_tensor *constant_of(struct tern_context *ctx, const struct factors *f, bool inverse, const struct tern_meta *like, int dim)
{
    int64_t shape[TERN_MAX_DIMS];
    float *values = tern_alloc(ctx, (size_t)f->count * sizeof(*values));
    for (int i = 0; i < like->ndim; i++)
        shape[i] = i == dim ? f->count : 1;
    for (int64_t k = 0; values && k < f->count; k++)
        values[k] = (float)exp2((inverse ? -1 : 1) * tern_quantize_factor_power(f->letters[k]));
    tern_tensor *t = values ? tern_tensor_create(ctx, like->dtype, like->ndim, shape, NULL) : NULL;
    if (t)
        tern_tensor_write(t, TERN_F32, values, (size_t)f->count * sizeof(*values));
    tern_free(ctx, values);
    tern_tensor_make_constant(t);
    return t;
}

static tern_tensor *times(tern_tensor *x, const struct factors *f, bool inverse, int dim)
{
    tern_tensor *by = x ? constant_of(x->ctx, f, inverse, &x->meta, dim) : NULL;
    return by ? tern_mul(x, by) : NULL;
}

static void record(struct tern_again *again, const struct tern_node *n)
{
    struct smoothing *s = (struct smoothing *)again; /* its first member */
    const struct factors *scaled = &s->scaled[n - again->from->nodes], *divided = &s->divided[n->out];
    const struct factors *comes = n->desc.n_in > 1 && n->in[0] >= 0 ? &s->divided[n->in[0]] : NULL;
    tern_tensor *in[TERN_MAX_INPUTS] = {NULL};
    for (int k = 0; k < n->desc.n_in; k++)
        in[k] = n->in[k] >= 0 ? again->map[n->in[k]] : NULL;
    for (int k = 1; scaled->letters && k < n->desc.n_in; k++)
        in[k] = in[k] ? times(in[k], scaled, true, 0) : NULL;
    if (comes && comes->letters)
        in[1] = times(in[1], comes, false, 1);
    tern_tensor *out = tern_op_call(again->ctx, n->desc.op, in, n->desc.n_in, &n->desc.attrs);
    again->map[n->out] = out && divided->letters && !divided->in_norm ? times(out, divided, true, divided->dim) : out;
}

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    const size_t values = (size_t)g->n_values + 1;
    struct smoothing s = {.again = {.node = record}};
    bool any = false;
    if (!params->quantize || !strchr(params->quantize, '^'))
        return TERN_OK;
    const enum tern_status st = tern_again_begin(&s.again, g);
    s.divided = tern_calloc(g->ctx, values, sizeof(*s.divided));
    s.scaled = tern_calloc(g->ctx, (size_t)g->n_nodes + 1, sizeof(*s.scaled));
    for (int i = 0; !st && s.divided && s.scaled && i < g->n_nodes && !tern_failed(g->ctx); i++)
        if (is_norm(&g->nodes[i]))
            take(&s, g, i, params->quantize);
    for (size_t v = 0; s.divided && v < values; v++)
        any = any || s.divided[v].letters;
    if (any && !tern_failed(g->ctx))
        tern_again_record(&s.again, g);
    tern_again_end(&s.again);
    tern_free(g->ctx, s.divided);
    tern_free(g->ctx, s.scaled);
    return tern_error_status(g->ctx);
}

const struct tern_pass tern_pass_smooth = {"smooth", run};

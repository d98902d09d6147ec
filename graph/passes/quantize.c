/* Linear layers and convolutions that the params name become products of int8, or products whose weights are kept in few bits. Weights
 * become so when they are packed, or, where kernels pack nothing, int8 once when they are bound, by ops of the graph. Nothing else of the
 * graph changes. */
#include <string.h>
#include <tern/ops.h>

#include "core/context.h"
#include "graph/passes/again.h"
#include "graph/passes/passes.h"

static enum tern_op counterpart(const struct tern_op_desc *d, enum tern_layer_format f)
{
    switch (d->op) {
    case TERN_OP_linear:
        return f == TERN_LAYER_W8A8 ? TERN_OP_quantized_linear : TERN_OP_weight_only_linear;
    case TERN_OP_linear_geglu:
        return f == TERN_LAYER_W8A8 ? TERN_OP_quantized_linear_geglu : TERN_OP_weight_only_linear_geglu;
    case TERN_OP_conv2d:
        return f == TERN_LAYER_W8A8 ? TERN_OP_quantized_conv2d : TERN_OP_weight_only_conv2d;
    default:
        return TERN_OP_COUNT;
    }
}

/* Only the weight is kept otherwise. False where the device has no kernel for it. */
static bool keep(struct tern_context *ctx, struct tern_node *n, enum tern_op op, int bits)
{
    struct tern_op_desc d = n->desc;
    d.op = op;
    if (op == TERN_OP_weight_only_conv2d)
        d.attrs.weight_only_conv2d.bits = bits;
    else
        d.attrs.weight_only_linear.bits = bits;
    if (!tern_kernel_choose(ctx, ctx->device, &d))
        return false;
    n->desc = d;
    return true;
}

/* What the pass `smooth` has multiplied by factors; the value itself, where it is another. */
static int unsmoothed(const struct tern_graph *g, int value)
{
    const struct tern_value *v = &g->values[value];
    const struct tern_node *n = v->kind == TERN_VALUE_RESULT ? &g->nodes[v->node] : NULL;
    const bool product = n && n->kind == TERN_CALL_LAUNCH && n->desc.op == TERN_OP_mul && !n->desc.n_post;
    return product && g->values[n->in[1]].kind == TERN_VALUE_CONSTANT ? n->in[0] : value;
}

enum tern_layer_format tern_quantize_format_of(const struct tern_graph *g, int value, const char *words)
{
    const struct tern_value *v = &g->values[unsmoothed(g, value)];
    if (v->kind == TERN_VALUE_WEIGHT)
        return tern_quantize_format(words, v->name);
    const struct tern_node *n = v->kind == TERN_VALUE_RESULT ? &g->nodes[v->node] : NULL;
    bool all = n && n->kind == TERN_CALL_LAUNCH && n->desc.op == TERN_OP_cat && !n->desc.n_post;
    for (int k = 0; all && k < n->desc.n_in; k++)
        all = g->values[n->in[k]].kind == TERN_VALUE_WEIGHT && tern_quantize_format(words, g->values[n->in[k]].name) == TERN_LAYER_W8A8;
    return all ? TERN_LAYER_W8A8 : TERN_LAYER_PLAIN;
}

/* How the node's layer is to be kept; PLAIN: as it is, or it is none. */
static enum tern_layer_format chosen(const struct tern_graph *g, const struct tern_node *n, const char *words)
{
    const bool layer =
        !n->dead && n->kind == TERN_CALL_LAUNCH && !n->desc.n_post && counterpart(&n->desc, TERN_LAYER_W8A8) != TERN_OP_COUNT;
    return layer ? tern_quantize_format_of(g, n->in[1], words) : TERN_LAYER_PLAIN;
}

/* The bias moves behind the scale, which a weight of floats has not. */
static struct tern_op_desc of_floats(const struct tern_node *n, enum tern_op op)
{
    struct tern_op_desc d = n->desc;
    const bool bias = d.n_in > 2 && d.present[2];
    d.op = op;
    d.n_in = 4;
    d.present[3] = bias;
    d.constant[3] = bias && d.constant[2];
    d.in[3] = d.in[2];
    d.present[2] = d.constant[2] = false;
    memset(&d.in[2], 0, sizeof(d.in[2]));
    return d;
}

/* In place: a kernel makes int8 of the weight. */
static void convert(struct tern_node *n, const struct tern_op_desc *d)
{
    n->desc = *d;
    n->in[3] = d->present[3] ? n->in[2] : -1;
    n->in[2] = -1;
}

/* ---- weights that are made int8 when they are bound: kernels that pack nothing would do it at every run */

struct preparing {
    struct tern_again again; /* first */
    const char *words;
    tern_tensor **scale, **bytes; /* of a weight, by value of the old graph; NULL: not met yet */
};

/* Whether the device itself makes int8 of the weight, and multiplies with it. */
static bool is_prepared(struct tern_context *ctx, const struct tern_op_desc *floats)
{
    struct tern_op_desc product = *floats, quantize;
    memset(&quantize, 0, sizeof(quantize));
    quantize.op = TERN_OP_quantize;
    quantize.n_in = 2;
    quantize.present[0] = quantize.present[1] = true;
    quantize.in[0] = quantize.out = floats->in[1];
    quantize.out.dtype = TERN_I8;
    quantize.in[1] = (struct tern_meta){.dtype = TERN_F32, .ndim = 1, .shape = {floats->in[1].shape[0]}, .stride = {1}};
    product.in[1] = quantize.out;
    product.in[2] = quantize.in[1];
    product.present[2] = true;
    return tern_kernel_choose(ctx, ctx->device, &quantize) && tern_kernel_choose(ctx, ctx->device, &product);
}

/* A filter's channels lie together, as kernels read them. */
static void prepare_weight(struct preparing *p, const struct tern_node *n)
{
    const int v = n->in[1];
    tern_tensor *w = p->again.map[v];
    if (p->bytes[v])
        return;
    p->scale[v] = tern_quantize_scale(w);
    p->bytes[v] = tern_quantize(w, p->scale[v]);
    if (n->desc.op == TERN_OP_conv2d)
        p->bytes[v] = tern_contiguous(p->bytes[v], TERN_CHANNELS_LAST);
}

static void record(struct tern_again *again, const struct tern_node *n)
{
    struct preparing *p = (struct preparing *)again; /* its first member */
    const bool bytes = chosen(again->from, n, p->words) == TERN_LAYER_W8A8;
    const enum tern_op op = bytes ? counterpart(&n->desc, TERN_LAYER_W8A8) : n->desc.op;
    const struct tern_op_desc d = bytes ? of_floats(n, op) : n->desc;
    if (!bytes || !is_prepared(again->ctx, &d)) {
        again->map[n->out] = tern_again_same(again, n);
        return;
    }
    prepare_weight(p, n);
    tern_tensor *const in[] = {again->map[n->in[0]], p->scale[n->in[1]] ? p->bytes[n->in[1]] : NULL, p->scale[n->in[1]],
                               d.present[3] ? again->map[n->in[2]] : NULL};
    again->map[n->out] = in[1] ? tern_op_call(again->ctx, op, in, 4, &d.attrs) : NULL;
}

static enum tern_status prepare_weights(struct tern_graph *g, const char *words)
{
    const size_t n = (size_t)g->n_values + 1;
    struct preparing p = {.again = {.node = record}, .words = words};
    const enum tern_status st = tern_again_begin(&p.again, g);
    p.scale = tern_calloc(g->ctx, n, sizeof(*p.scale));
    p.bytes = tern_calloc(g->ctx, n, sizeof(*p.bytes));
    if (!st && p.scale && p.bytes)
        tern_again_record(&p.again, g);
    tern_again_end(&p.again);
    tern_free(g->ctx, p.scale);
    tern_free(g->ctx, p.bytes);
    return tern_error_status(g->ctx);
}

/* Attention has no weight and goes by the name of its op. It does not count as left: a kernel of floats serves it as well. Winograd's
 * transforms of int8 likewise go by their name, for all convolutions that are int8. */
static void allow(struct tern_graph *g, const char *words)
{
    const bool attention = tern_quantize_format(words, "sdpa") == TERN_LAYER_W8A8;
    const bool winograd = tern_quantize_format(words, "winograd") == TERN_LAYER_W8A8;
    for (int i = 0; i < g->n_nodes; i++) {
        struct tern_node *n = &g->nodes[i];
        if (n->dead || n->kind != TERN_CALL_LAUNCH)
            continue;
        if (n->desc.op == TERN_OP_sdpa && attention)
            n->desc.attrs.sdpa.int8 = 1;
        if (n->desc.op == TERN_OP_quantized_conv2d && winograd)
            n->desc.attrs.quantized_conv2d.winograd = 1;
    }
}

/* Makes the node a product of int8, in place or, `prepares`, later. False where the device has no kernel for it: it stays. Weights that are
 * read for every run are not prepared. */
static bool make_bytes(struct tern_graph *g, struct tern_node *n, bool resident, bool *prepares)
{
    const struct tern_op_desc d = of_floats(n, counterpart(&n->desc, TERN_LAYER_W8A8));
    const struct tern_kernel *k = tern_kernel_choose(g->ctx, g->ctx->device, &d);
    const bool here = k && (k->pack || resident), later = k && !here && is_prepared(g->ctx, &d);
    if (here)
        convert(n, &d);
    *prepares |= later;
    return here || later;
}

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    static const char *const kinds[TERN_LAYER_FORMATS] = {"", "int8", "w8", "w4"};
    int left[TERN_LAYER_FORMATS] = {0};
    bool prepares = false;
    for (int i = 0; params->quantize && i < g->n_nodes; i++) {
        struct tern_node *n = &g->nodes[i];
        const enum tern_layer_format f = chosen(g, n, params->quantize);
        if (f == TERN_LAYER_W8A8)
            left[f] += !make_bytes(g, n, params->resident, &prepares);
        else if (f != TERN_LAYER_PLAIN)
            left[f] += !keep(g->ctx, n, counterpart(&n->desc, f), f == TERN_LAYER_W8 ? 8 : 4);
    }
    for (int f = 0; f < TERN_LAYER_FORMATS; f++)
        if (left[f])
            tern_message(g->ctx, TERN_LOG_WARN, "quantize: device %s has no %s kernel for %d of the layers; they stay as they are",
                         g->ctx->device->name, kinds[f], left[f]);
    const enum tern_status st = prepares ? prepare_weights(g, params->quantize) : TERN_OK;
    if (params->quantize && !st)
        allow(g, params->quantize);
    return st;
}

const struct tern_pass tern_pass_quantize = {"quantize", run};

/* Linear layers and convolutions that the params name become products of int8, or products whose weights are kept in few bits. Weights
 * become so when they are packed, or, where kernels pack nothing, once when they are bound, by ops of the graph: int8 is what products read
 * then, words of few bits become values just before. Nothing else of the graph changes. */
#include <string.h>
#include <tern/ops.h>

#include "core/context.h"
#include "graph/passes/quantize.h"

enum tern_op tern_quantize_counterpart(const struct tern_op_desc *d, enum tern_layer_format f)
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

/* Only the weight is kept otherwise, in place or, `prepares`, later. False where the device has no kernel for it. */
static bool keep(struct tern_context *ctx, struct tern_node *n, enum tern_layer_format f, bool *prepares)
{
    const int bits = f == TERN_LAYER_W8 ? 8 : 4;
    struct tern_op_desc d = n->desc;
    d.op = tern_quantize_counterpart(&n->desc, f);
    if (d.op == TERN_OP_weight_only_conv2d)
        d.attrs.weight_only_conv2d.bits = bits;
    else
        d.attrs.weight_only_linear.bits = bits;
    const bool here = tern_kernel_choose(ctx, ctx->device, &d), later = !here && tern_quantize_is_unpacked(ctx, &n->desc, bits);
    if (here) {
        n->kind = TERN_CALL_LAUNCH;
        n->desc = d;
    }
    *prepares |= later;
    return here || later;
}

/* The value itself, behind casts: a device that joins or multiplies no f16 does it in f32. */
static int uncast(const struct tern_graph *g, int value)
{
    for (;;) {
        const struct tern_value *v = &g->values[value];
        const struct tern_node *n = v->kind == TERN_VALUE_RESULT ? &g->nodes[v->node] : NULL;
        if (!n || n->desc.op != TERN_OP_cast || n->desc.n_post)
            return value;
        value = n->in[0];
    }
}

/* What the pass `smooth` has multiplied by factors; the value itself, where it is another. Both behind casts. */
static int unsmoothed(const struct tern_graph *g, int value)
{
    const int at = uncast(g, value);
    const struct tern_value *v = &g->values[at];
    const struct tern_node *n = v->kind == TERN_VALUE_RESULT ? &g->nodes[v->node] : NULL;
    const bool product = n && n->kind == TERN_CALL_LAUNCH && n->desc.op == TERN_OP_mul && !n->desc.n_post;
    return product && g->values[uncast(g, n->in[1])].kind == TERN_VALUE_CONSTANT ? uncast(g, n->in[0]) : at;
}

enum tern_layer_format tern_quantize_format_of(const struct tern_graph *g, int value, const char *words)
{
    const struct tern_value *v = &g->values[unsmoothed(g, value)];
    if (v->kind == TERN_VALUE_WEIGHT)
        return tern_quantize_format(words, v->name);
    const struct tern_node *n = v->kind == TERN_VALUE_RESULT ? &g->nodes[v->node] : NULL;
    bool all = n && n->kind == TERN_CALL_LAUNCH && n->desc.op == TERN_OP_cat && !n->desc.n_post;
    enum tern_layer_format format = TERN_LAYER_PLAIN;
    for (int k = 0; all && k < n->desc.n_in; k++) {
        const struct tern_value *part = &g->values[uncast(g, n->in[k])];
        const enum tern_layer_format f = part->kind == TERN_VALUE_WEIGHT ? tern_quantize_format(words, part->name) : TERN_LAYER_PLAIN;
        all = k == 0 || f == format;
        format = f;
    }
    return all ? format : TERN_LAYER_PLAIN;
}

enum tern_layer_format tern_quantize_chosen(const struct tern_graph *g, const struct tern_node *n, const char *words)
{
    const bool layer =
        !n->dead && tern_node_computes(n) && !n->desc.n_post && tern_quantize_counterpart(&n->desc, TERN_LAYER_W8A8) != TERN_OP_COUNT;
    return layer ? tern_quantize_format_of(g, n->in[1], words) : TERN_LAYER_PLAIN;
}

struct tern_op_desc tern_quantize_of_floats(const struct tern_node *n, enum tern_op op)
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
    n->kind = TERN_CALL_LAUNCH;
    n->desc = *d;
    n->in[3] = d->present[3] ? n->in[2] : -1;
    n->in[2] = -1;
}

/* Winograd's transforms of int8 go by their name, for all convolutions that are int8. */
static bool allows_winograd(const char *words) { return tern_quantize_format(words, "winograd") == TERN_LAYER_W8A8; }

/* So does attention, which has no weight. It does not count as left: a kernel of floats serves it as well. */
static void allow(struct tern_graph *g, const char *words)
{
    const bool attention = tern_quantize_format(words, "sdpa") == TERN_LAYER_W8A8;
    const bool winograd = allows_winograd(words);
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

/* Makes the node a product of int8, in place or, `prepares`, later. False where the device has no kernel for it: it stays. `streams`:
 * weights are read for every run, so kernels that pack nothing may make int8 of them as well. */
static bool make_bytes(struct tern_graph *g, struct tern_node *n, const char *words, bool streams, bool *prepares)
{
    struct tern_op_desc d = tern_quantize_of_floats(n, tern_quantize_counterpart(&n->desc, TERN_LAYER_W8A8));
    if (d.op == TERN_OP_quantized_conv2d)
        d.attrs.quantized_conv2d.winograd = allows_winograd(words); /* a kernel may be there for nothing else */
    const struct tern_kernel *k = tern_kernel_choose(g->ctx, g->ctx->device, &d);
    const bool later = k && !k->pack && tern_quantize_is_prepared(g->ctx, &d), here = k && !later && (k->pack || streams);
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
        const enum tern_layer_format f = tern_quantize_chosen(g, n, params->quantize);
        if (f == TERN_LAYER_W8A8)
            left[f] += !make_bytes(g, n, params->quantize, params->resident, &prepares);
        else if (f != TERN_LAYER_PLAIN)
            left[f] += !keep(g->ctx, n, f, &prepares);
    }
    for (int f = 0; f < TERN_LAYER_FORMATS; f++) {
        g->warned = g->warned || left[f];
        if (left[f])
            tern_message(g->ctx, TERN_LOG_WARN, "quantize: device %s has no %s kernel for %d of the layers; they stay as they are",
                         g->ctx->device->name, kinds[f], left[f]);
    }
    const enum tern_status st = prepares ? tern_quantize_prepare(g, params->quantize) : TERN_OK;
    if (params->quantize && !st)
        allow(g, params->quantize);
    return st;
}

const struct tern_pass tern_pass_quantize = {"quantize", run};

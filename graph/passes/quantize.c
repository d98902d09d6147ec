/* int8: linear layers and convolutions that the params name become products of int8, which quantise their weights when they are packed.
 * Nothing else of the graph changes. */
#include <string.h>

#include "core/context.h"
#include "graph/passes/passes.h"

/* Whether a text of n characters is the word's, in which * stands for any characters. */
static bool fits(const char *word, size_t n, const char *text)
{
    if (n == 0)
        return !*text;
    if (*word != '*')
        return *word == *text && fits(word + 1, n - 1, text + 1);
    return fits(word + 1, n - 1, text) || (*text && fits(word, n, text + 1));
}

/* The last word that fits decides. */
static bool is_named(const char *words, const char *name)
{
    bool named = false;
    for (const char *at = words; *at;) {
        const size_t n = strcspn(at, " "), out = *at == '!';
        if (n > out && fits(at + out, n - out, name))
            named = !out;
        at += n + strspn(at + n, " ");
    }
    return named;
}

static enum tern_op counterpart(const struct tern_op_desc *d)
{
    switch (d->op) {
    case TERN_OP_linear:
        return TERN_OP_quantized_linear;
    case TERN_OP_linear_geglu:
        return TERN_OP_quantized_linear_geglu;
    case TERN_OP_conv2d:
        return TERN_OP_quantized_conv2d;
    default:
        return TERN_OP_COUNT;
    }
}

/* The bias moves behind the scale, which a weight of floats has not. False where the device has no kernel for it: the node stays. */
static bool convert(struct tern_context *ctx, struct tern_node *n, enum tern_op op)
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
    if (!tern_kernel_choose(ctx, ctx->device, &d))
        return false;
    n->desc = d;
    n->in[3] = bias ? n->in[2] : -1;
    n->in[2] = -1;
    return true;
}

/* Attention has no weight and goes by the name of its op. It does not count as left: a kernel of floats serves it as well. */
static void allow_attention(struct tern_graph *g, const char *words)
{
    for (int i = 0; i < g->n_nodes; i++) {
        struct tern_node *n = &g->nodes[i];
        if (!n->dead && n->kind == TERN_CALL_LAUNCH && n->desc.op == TERN_OP_sdpa && is_named(words, "sdpa"))
            n->desc.attrs.sdpa.int8 = 1;
    }
}

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    int left = 0;
    if (params->quantize)
        allow_attention(g, params->quantize);
    for (int i = 0; params->quantize && i < g->n_nodes; i++) {
        struct tern_node *n = &g->nodes[i];
        const enum tern_op op = n->dead || n->kind != TERN_CALL_LAUNCH || n->desc.n_post ? TERN_OP_COUNT : counterpart(&n->desc);
        const struct tern_value *w = op == TERN_OP_COUNT ? NULL : &g->values[n->in[1]];
        if (w && w->kind == TERN_VALUE_WEIGHT && is_named(params->quantize, w->name))
            left += !convert(g->ctx, n, op);
    }
    if (left)
        tern_message(g->ctx, TERN_LOG_WARN, "quantize: device %s has no int8 kernel for %d of the layers; they stay as they are",
                     g->ctx->device->name, left);
    return TERN_OK;
}

const struct tern_pass tern_pass_quantize = {"quantize", run};

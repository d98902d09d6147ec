/* int8: linear layers and convolutions that the params name become products of int8. Their weights become int8 when they are packed, or,
 * where kernels pack nothing, once when they are bound, by ops of the graph. Nothing else of the graph changes. */
#include <string.h>
#include <tern/ops.h>

#include "core/context.h"
#include "graph/passes/again.h"
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

bool tern_quantize_names(const char *words, const char *name)
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

/* Whether the words name the value: a weight, or what the pass `merge` made of several that they name. */
static bool is_chosen(const struct tern_graph *g, int value, const char *words)
{
    const struct tern_value *v = &g->values[value];
    if (v->kind == TERN_VALUE_WEIGHT)
        return tern_quantize_names(words, v->name);
    const struct tern_node *n = v->kind == TERN_VALUE_RESULT ? &g->nodes[v->node] : NULL;
    bool all = n && n->kind == TERN_CALL_LAUNCH && n->desc.op == TERN_OP_cat && !n->desc.n_post;
    for (int k = 0; all && k < n->desc.n_in; k++)
        all = g->values[n->in[k]].kind == TERN_VALUE_WEIGHT && tern_quantize_names(words, g->values[n->in[k]].name);
    return all;
}

/* The op of int8 that the node is to become; TERN_OP_COUNT: none. */
static enum tern_op chosen(const struct tern_graph *g, const struct tern_node *n, const char *words)
{
    const enum tern_op op = n->dead || n->kind != TERN_CALL_LAUNCH || n->desc.n_post ? TERN_OP_COUNT : counterpart(&n->desc);
    return op != TERN_OP_COUNT && is_chosen(g, n->in[1], words) ? op : TERN_OP_COUNT;
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
    const enum tern_op op = chosen(again->from, n, p->words);
    const struct tern_op_desc d = op == TERN_OP_COUNT ? n->desc : of_floats(n, op);
    if (op == TERN_OP_COUNT || !is_prepared(again->ctx, &d)) {
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

/* Attention has no weight and goes by the name of its op. It does not count as left: a kernel of floats serves it as well. */
static void allow_attention(struct tern_graph *g, const char *words)
{
    for (int i = 0; i < g->n_nodes; i++) {
        struct tern_node *n = &g->nodes[i];
        if (!n->dead && n->kind == TERN_CALL_LAUNCH && n->desc.op == TERN_OP_sdpa && tern_quantize_names(words, "sdpa"))
            n->desc.attrs.sdpa.int8 = 1;
    }
}

/* Weights that are read for every run are not prepared. */
static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    int left = 0, prepared = 0;
    if (params->quantize)
        allow_attention(g, params->quantize);
    for (int i = 0; params->quantize && i < g->n_nodes; i++) {
        struct tern_node *n = &g->nodes[i];
        const enum tern_op op = chosen(g, n, params->quantize);
        if (op == TERN_OP_COUNT)
            continue;
        const struct tern_op_desc d = of_floats(n, op);
        const struct tern_kernel *k = tern_kernel_choose(g->ctx, g->ctx->device, &d);
        const bool packs = k && k->pack, prepares = k && !packs && !params->resident && is_prepared(g->ctx, &d);
        if (packs || (k && params->resident))
            convert(n, &d);
        prepared += prepares;
        left += !packs && !prepares && !(k && params->resident);
    }
    if (left)
        tern_message(g->ctx, TERN_LOG_WARN, "quantize: device %s has no int8 kernel for %d of the layers; they stay as they are",
                     g->ctx->device->name, left);
    return prepared ? prepare_weights(g, params->quantize) : TERN_OK;
}

const struct tern_pass tern_pass_quantize = {"quantize", run};

/* Linear layers and convolutions that the params name become products of int8, or products whose weights are kept in few bits. Both make
 * those of floats when they are packed. Nothing else of the graph changes. */
#include <string.h>

#include "core/context.h"
#include "graph/passes/passes.h"
#include "graph/plan.h"

/* Whether a text of n characters is the word's, in which * stands for any characters. */
static bool fits(const char *word, size_t n, const char *text)
{
    if (n == 0)
        return !*text;
    if (*word != '*')
        return *word == *text && fits(word + 1, n - 1, text + 1);
    return fits(word + 1, n - 1, text) || (*text && fits(word, n, text + 1));
}

/* How a layer is kept and computed. */
enum format { PLAIN, W8A8, W8, W4, FORMATS };
static const char *const suffixes[FORMATS] = {[W8A8] = "w8a8", [W8] = "w8", [W4] = "w4"};

/* Of what stands behind the colon of a word; FORMATS: there is no such. */
static enum format format_of(const char *suffix, size_t n)
{
    enum format f = W8A8;
    while (f < FORMATS && (n != strlen(suffixes[f]) || memcmp(suffix, suffixes[f], n) != 0))
        f++;
    return f;
}

/* A word: !, a name with *, a colon and a suffix. A name has no colon. */
struct word {
    const char *name, *suffix; /* NULL: it has none */
    size_t length, suffix_length;
    bool out;
};

/* The word at *at, which goes on to the next; false: there is none. */
static bool next_word(const char **at, struct word *w)
{
    const size_t n = strcspn(*at, " "), out = **at == '!', name = strcspn(*at + out, ": ");
    *w = (struct word){*at + out, NULL, name, 0, out};
    if ((*at)[out + name] == ':') {
        w->suffix = *at + out + name + 1;
        w->suffix_length = n - out - name - 1;
    }
    const bool any = n > 0;
    *at += n + strspn(*at + n, " ");
    return any || **at;
}

/* The last word that fits decides. */
static enum format named(const char *words, const char *name)
{
    enum format f = PLAIN;
    struct word w;
    while (next_word(&words, &w))
        if (w.length && fits(w.name, w.length, name))
            f = w.out ? PLAIN : w.suffix ? format_of(w.suffix, w.suffix_length) : W8A8;
    return f;
}

enum tern_status tern_quantize_check(struct tern_context *ctx, const char *field, const char *words)
{
    struct word w;
    for (const char *at = words ? words : ""; next_word(&at, &w);) {
        const size_t length = w.length + (w.suffix ? 1 + w.suffix_length : 0);
        const int shown = length > 60 ? 60 : (int)length;
        if (w.suffix && w.out)
            return tern_fail(ctx, TERN_E_INVALID,
                             "%s: word \"!%.*s\" says how a layer is kept, but ! leaves it as it is: expected \"!%.*s\"", field, shown,
                             w.name, w.length > 60 ? 60 : (int)w.length, w.name);
        if (w.suffix && format_of(w.suffix, w.suffix_length) == FORMATS)
            return tern_fail(ctx, TERN_E_INVALID, "%s: word \"%.*s\": behind the colon expected w8a8 (int8), w8 or w4 (weights only)",
                             field, shown, w.name);
    }
    return TERN_OK;
}

static enum tern_op counterpart(const struct tern_op_desc *d, enum format f)
{
    switch (d->op) {
    case TERN_OP_linear:
        return f == W8A8 ? TERN_OP_quantized_linear : TERN_OP_weight_only_linear;
    case TERN_OP_linear_geglu:
        return f == W8A8 ? TERN_OP_quantized_linear_geglu : TERN_OP_weight_only_linear_geglu;
    case TERN_OP_conv2d:
        return f == W8A8 ? TERN_OP_quantized_conv2d : TERN_OP_weight_only_conv2d;
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
        if (!n->dead && n->kind == TERN_CALL_LAUNCH && n->desc.op == TERN_OP_sdpa && named(words, "sdpa") == W8A8)
            n->desc.attrs.sdpa.int8 = 1;
    }
}

static bool is_layer(const struct tern_graph *g, const struct tern_node *n)
{
    return !n->dead && n->kind == TERN_CALL_LAUNCH && !n->desc.n_post && counterpart(&n->desc, W8A8) != TERN_OP_COUNT &&
           g->values[n->in[1]].kind == TERN_VALUE_WEIGHT;
}

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    static const char *const kinds[FORMATS] = {"", "int8", "w8", "w4"};
    int left[FORMATS] = {0};
    if (params->quantize)
        allow_attention(g, params->quantize);
    for (int i = 0; params->quantize && i < g->n_nodes; i++) {
        struct tern_node *n = &g->nodes[i];
        const enum format f = is_layer(g, n) ? named(params->quantize, g->values[n->in[1]].name) : PLAIN;
        if (f == W8A8)
            left[f] += !convert(g->ctx, n, counterpart(&n->desc, f));
        else if (f != PLAIN)
            left[f] += !keep(g->ctx, n, counterpart(&n->desc, f), f == W8 ? 8 : 4);
    }
    for (int f = 0; f < FORMATS; f++)
        if (left[f])
            tern_message(g->ctx, TERN_LOG_WARN, "quantize: device %s has no %s kernel for %d of the layers; they stay as they are",
                         g->ctx->device->name, kinds[f], left[f]);
    return TERN_OK;
}

const struct tern_pass tern_pass_quantize = {"quantize", run};

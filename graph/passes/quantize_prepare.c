/* Weights that become few bits when they are bound, by ops of the prepare graph: kernels that pack nothing would do it at every run.
 * Products of int8 read what is made; words of 8 or 4 bits become values just before the product that reads them, which is of floats. */
#include <string.h>
#include <tern/ops.h>

#include "core/context.h"
#include "graph/passes/again.h"
#include "graph/passes/quantize.h"
#include "ops/weight_only.h"

struct preparing {
    struct tern_again again; /* first */
    const char *words;
    tern_tensor **scale, **made; /* of a weight, by value of the old graph: int8 with scales, or words; NULL: not met yet */
};

static struct tern_op_desc of_one(enum tern_op op, const struct tern_meta *in, const struct tern_meta *out)
{
    struct tern_op_desc d;
    memset(&d, 0, sizeof(d));
    d.op = op;
    d.n_in = 1;
    d.present[0] = true;
    d.in[0] = *in;
    d.out = *out;
    return d;
}

bool tern_quantize_is_prepared(struct tern_context *ctx, const struct tern_op_desc *floats)
{
    struct tern_op_desc product = *floats, quantize = of_one(TERN_OP_quantize, &floats->in[1], &floats->in[1]);
    quantize.n_in = 2;
    quantize.present[1] = true;
    quantize.out.dtype = TERN_I8;
    quantize.in[1] = (struct tern_meta){.dtype = TERN_F32, .ndim = 1, .shape = {floats->in[1].shape[0]}, .stride = {1}};
    product.in[1] = quantize.out;
    product.in[2] = quantize.in[1];
    product.present[2] = true;
    return tern_kernel_choose(ctx, ctx->device, &quantize) && tern_kernel_choose(ctx, ctx->device, &product);
}

bool tern_quantize_is_unpacked(struct tern_context *ctx, const struct tern_op_desc *product, int bits)
{
    const struct tern_meta *w = &product->in[1];
    const int64_t words = tern_packed_words(tern_weight_depth(w), bits);
    const struct tern_meta packed = {.dtype = TERN_I32, .ndim = 2, .shape = {w->shape[0], words}, .stride = {words, 1}};
    struct tern_op_desc pack = of_one(TERN_OP_pack_weight, w, &packed), unpack = of_one(TERN_OP_unpack_weight, &packed, w);
    pack.attrs.pack_weight.bits = unpack.attrs.unpack_weight.bits = bits;
    unpack.out.dtype = product->in[0].dtype;
    return tern_kernel_choose(ctx, ctx->device, &pack) && tern_kernel_choose(ctx, ctx->device, &unpack);
}

/* The node as a product of int8. A filter's channels lie together, as kernels read them. */
static tern_tensor *of_bytes(const struct preparing *p, const struct tern_node *n, const struct tern_op_desc *d)
{
    const int v = n->in[1];
    tern_tensor *w = p->again.map[v];
    if (!p->made[v]) {
        p->scale[v] = tern_quantize_scale(w);
        p->made[v] = tern_quantize(w, p->scale[v]);
        if (n->desc.op == TERN_OP_conv2d)
            p->made[v] = tern_contiguous(p->made[v], TERN_CHANNELS_LAST);
    }
    tern_tensor *const in[] = {p->again.map[n->in[0]], p->scale[v] ? p->made[v] : NULL, p->scale[v],
                               d->present[3] ? p->again.map[n->in[2]] : NULL};
    return in[1] ? tern_op_call(p->again.ctx, d->op, in, 4, &d->attrs) : NULL;
}

/* The node as it is, on values that words stand for. */
static tern_tensor *of_words(const struct preparing *p, const struct tern_node *n, int bits)
{
    const int v = n->in[1];
    const struct tern_meta *w = &n->desc.in[1];
    if (!p->made[v])
        p->made[v] = tern_pack_weight(p->again.map[v], bits);
    tern_tensor *const in[] = {p->again.map[n->in[0]], tern_unpack_weight(p->made[v], w->ndim, w->shape, n->desc.in[0].dtype, bits),
                               n->desc.n_in > 2 && n->in[2] >= 0 ? p->again.map[n->in[2]] : NULL};
    return in[1] ? tern_op_call(p->again.ctx, n->desc.op, in, 3, &n->desc.attrs) : NULL;
}

static void record(struct tern_again *again, const struct tern_node *n)
{
    const struct preparing *p = (const struct preparing *)again; /* its first member */
    const enum tern_layer_format f = tern_quantize_chosen(again->from, n, p->words);
    const int bits = f == TERN_LAYER_W8 ? 8 : 4;
    tern_tensor **made = &again->map[n->out];
    if (f == TERN_LAYER_W8A8) {
        const struct tern_op_desc d = tern_quantize_of_floats(n, tern_quantize_counterpart(&n->desc, f));
        *made = tern_quantize_is_prepared(again->ctx, &d) ? of_bytes(p, n, &d) : tern_again_same(again, n);
    } else if (f != TERN_LAYER_PLAIN && tern_quantize_is_unpacked(again->ctx, &n->desc, bits)) {
        *made = of_words(p, n, bits);
    } else {
        *made = tern_again_same(again, n);
    }
}

enum tern_status tern_quantize_prepare(struct tern_graph *g, const char *words)
{
    const size_t n = (size_t)g->n_values + 1;
    struct preparing p = {.again = {.node = record}, .words = words};
    const enum tern_status st = tern_again_begin(&p.again, g);
    p.scale = tern_calloc(g->ctx, n, sizeof(*p.scale));
    p.made = tern_calloc(g->ctx, n, sizeof(*p.made));
    if (!st && p.scale && p.made)
        tern_again_record(&p.again, g);
    tern_again_end(&p.again);
    tern_free(g->ctx, p.scale);
    tern_free(g->ctx, p.made);
    return tern_error_status(g->ctx);
}

/* The prepare graph: nodes that depend on weights and constants alone run once for each binding, not at every run; but not those that make
 * values of packed weights, or values of f32 for a product, and not those whose results are as large as weights, where these may not stay.
 */
#include "core/context.h"
#include "graph/passes/passes.h"
#include "graph/passes/weights.h"

#define SMALL ((size_t)64 << 10) /* bytes */

/* What is made of a weight by the pass `quantize`; a filter laid out by the pass `filters`; or a weight times factors, by the pass
 * `smooth`, in f32 where kernels lack its dtype. */
static bool is_as_large_as_weights(const struct tern_op_desc *d)
{
    return tern_op_prepares(d->op) || (d->op == TERN_OP_contiguous && d->out.ndim == 4) ||
           ((d->op == TERN_OP_mul || d->op == TERN_OP_cast) && (size_t)tern_meta_numel(&d->out) * tern_dtype_size(d->out.dtype) > SMALL);
}

/* Whether a node that depends on weights alone runs once for each binding. `streams`: weights may not stay. */
static bool runs_once(const struct tern_op_desc *d, bool streams)
{
    return d->op != TERN_OP_unpack_weight && !(streams && is_as_large_as_weights(d));
}

/* By value: whether products read it as their weight, and nothing else does. */
static void find_read_by_products(const struct tern_graph *g, bool *by_products)
{
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < g->n_nodes; i++)
            for (int k = 0; !g->nodes[i].dead && k < g->nodes[i].desc.n_in; k++)
                if (g->nodes[i].in[k] >= 0 && (k == 1 && tern_is_layer(g->nodes[i].desc.op)) == (pass == 0))
                    by_products[g->nodes[i].in[k]] = pass == 0;
}

/* Of the pass `dtypes`, on devices with memory of their own: what stays there is the weight as the file has it. */
static bool widens(const struct tern_op_desc *d)
{
    return d->op == TERN_OP_cast && tern_dtype_size(d->out.dtype) > tern_dtype_size(d->in[0].dtype) && is_as_large_as_weights(d);
}

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    bool *by_products = tern_calloc(g->ctx, (size_t)g->n_values + 1, sizeof(*by_products));
    if (!by_products)
        return tern_error_status(g->ctx);
    find_read_by_products(g, by_products);
    for (int i = 0; i < g->n_nodes; i++) {
        struct tern_node *n = &g->nodes[i];
        bool fixed = !n->dead && n->desc.n_in > 0 && !tern_graph_is_output(g, n->out);
        fixed = fixed && runs_once(&n->desc, params->resident);
        fixed = fixed && !(by_products[n->out] && widens(&n->desc) && !g->ctx->device->caps.host_memory);
        for (int k = 0; k < n->desc.n_in; k++)
            if (n->in[k] >= 0 && tern_graph_is_fixed(g, n->in[k]))
                n->desc.constant[k] = true;
            else if (n->in[k] >= 0)
                fixed = false;
        n->prepare = fixed;
    }
    tern_free(g->ctx, by_products);
    return TERN_OK;
}

const struct tern_pass tern_pass_prepare = {"prepare", run, .revision = 1};

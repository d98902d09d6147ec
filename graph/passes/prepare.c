/* The prepare graph: nodes that depend on weights and constants alone run once for each binding, not at every run; but not those that make
 * values of packed weights, and not those whose results are as large as weights, where these may not stay. */
#include "graph/passes/passes.h"

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

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    for (int i = 0; i < g->n_nodes; i++) {
        struct tern_node *n = &g->nodes[i];
        bool fixed = !n->dead && n->desc.n_in > 0 && !tern_graph_is_output(g, n->out);
        fixed = fixed && runs_once(&n->desc, params->resident);
        for (int k = 0; k < n->desc.n_in; k++)
            if (n->in[k] >= 0 && tern_graph_is_fixed(g, n->in[k]))
                n->desc.constant[k] = true;
            else if (n->in[k] >= 0)
                fixed = false;
        n->prepare = fixed;
    }
    return TERN_OK;
}

const struct tern_pass tern_pass_prepare = {"prepare", run};

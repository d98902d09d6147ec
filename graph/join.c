/* Joins: a cat that copies nothing, because its inputs are made in their places of its result. */
#include "graph/graph.h"

/* Elements from the start of the whole to its part; *at counts along the dimension of the cat. */
static int64_t offset_of(const struct tern_node *n, int input, int64_t *at)
{
    int64_t dim = n->desc.attrs.cat.dim, offset = *at * n->desc.out.stride[dim];
    *at += n->desc.in[input].shape[dim];
    return offset;
}

/* Sizes of 1 have any stride. */
static bool is_laid_out_as(const struct tern_meta *part, const struct tern_meta *whole)
{
    for (int i = 0; i < whole->ndim; i++)
        if (part->shape[i] > 1 && part->stride[i] != whole->stride[i])
            return false;
    return true;
}

static bool is_part(const struct tern_graph *g, const struct tern_node *n, int input)
{
    int v = n->in[input];
    if (v < 0 || tern_meta_numel(&n->desc.in[input]) == 0)
        return false;
    for (int k = 0; k < input; k++)
        if (n->in[k] == v)
            return false;
    const struct tern_value *part = &g->values[v];
    return part->kind == TERN_VALUE_RESULT && part->whole < 0 && !g->nodes[part->node].prepare &&
           g->nodes[part->node].kind != TERN_CALL_VIEW && !tern_graph_is_output(g, v) && is_laid_out_as(&part->meta, &n->desc.out);
}

bool tern_join_fits(const struct tern_graph *g, const struct tern_node *n)
{
    bool fits = n->desc.op == TERN_OP_cat && !n->prepare && !n->desc.n_post;
    for (int k = 0; fits && k < n->desc.n_in; k++)
        fits = is_part(g, n, k);
    return fits;
}

void tern_join_make(struct tern_graph *g, struct tern_node *n)
{
    int64_t at = 0;
    n->kind = TERN_CALL_JOIN;
    for (int k = 0; k < n->desc.n_in; k++) {
        struct tern_value *part = &g->values[n->in[k]];
        part->whole = n->out;
        part->whole_offset = offset_of(n, k, &at);
    }
}

/* Common subexpressions: of equal nodes on equal inputs the first one serves all. Ops are functions of their inputs and
 * attributes; the random ones take their seed as an attribute. */
#include <string.h>

#include "core/context.h"
#include "graph/passes/passes.h"

static bool is_equal(const struct tern_graph *g, const struct tern_node *a, const struct tern_node *b)
{
    return g->values[a->out].wide == g->values[b->out].wide && a->kind == b->kind && a->offset == b->offset &&
           !memcmp(a->in, b->in, sizeof(a->in)) && !memcmp(&a->desc, &b->desc, sizeof(a->desc));
}

static uint64_t hash(const struct tern_node *n)
{
    uint64_t h = (uint64_t)n->desc.op + 1;
    for (int k = 0; k < TERN_MAX_INPUTS; k++)
        h = (h ^ (uint64_t)(uint32_t)n->in[k]) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    int capacity = 64;
    while (capacity < 2 * g->n_nodes)
        capacity *= 2;
    int *table = tern_calloc(g->ctx, (size_t)capacity, sizeof(*table)); /* node + 1 */
    if (!table)
        return tern_error_status(g->ctx);
    for (int i = 0; i < g->n_nodes; i++) {
        struct tern_node *n = &g->nodes[i];
        if (n->dead || tern_graph_is_output(g, n->out))
            continue;
        unsigned at = (unsigned)hash(n) & (unsigned)(capacity - 1);
        while (table[at] && !is_equal(g, &g->nodes[table[at] - 1], n))
            at = (at + 1) & (unsigned)(capacity - 1);
        if (!table[at]) {
            table[at] = i + 1;
            continue;
        }
        tern_graph_replace(g, n->out, g->nodes[table[at] - 1].out);
        n->dead = true;
    }
    tern_free(g->ctx, table);
    return TERN_OK;
}

const struct tern_pass tern_pass_cse = {"cse", run};

/* What is in front: a convolution that alone reads what a group norm gives reads the norm's input through it, where a kernel of the device
 * does so. What is normalised is then never written. Decided before kernels are measured: those that read no norm are no candidates then. */
#include <string.h>

#include "core/context.h"
#include "graph/passes/passes.h"

static void take_norm(struct tern_graph *g, struct tern_node *n)
{
    const int own = tern_op_get(n->desc.op).max_inputs, at = n->desc.n_in > own ? n->desc.n_in : own;
    if (n->dead || n->prepare || n->kind != TERN_CALL_LAUNCH || !tern_op_takes_pre(n->desc.op) || at + 2 > TERN_MAX_INPUTS)
        return;
    const struct tern_value *v = &g->values[n->in[0]];
    if (v->kind != TERN_VALUE_RESULT || v->uses != 1 || tern_graph_is_output(g, n->in[0]))
        return;
    struct tern_node *m = &g->nodes[v->node];
    const bool silu = m->desc.n_post == 1 && m->desc.post[0].op == TERN_OP_silu;
    if (m->dead || m->prepare || m->kind != TERN_CALL_LAUNCH || m->desc.op != TERN_OP_group_norm || m->desc.n_post > silu ||
        memcmp(&m->desc.in[0], &m->desc.out, sizeof(m->desc.out)))
        return;
    struct tern_node f = *n;
    f.in[0] = m->in[0];
    for (int k = 0; k < 2; k++) {
        const bool there = 1 + k < m->desc.n_in && m->desc.present[1 + k];
        f.in[at + k] = there ? m->in[1 + k] : -1;
        f.desc.present[at + k] = there;
        f.desc.constant[at + k] = there && m->desc.constant[1 + k];
        if (there)
            f.desc.in[at + k] = m->desc.in[1 + k];
    }
    for (int k = n->desc.n_in; k < at; k++)
        f.in[k] = -1;
    f.desc.n_in = at + 2;
    f.desc.pre = (struct tern_pre){m->desc.attrs.group_norm.num_groups, silu, at, m->desc.attrs.group_norm.eps};
    if (!tern_kernel_choose(g->ctx, g->ctx->device, &f.desc))
        return;
    *n = f;
    m->dead = true;
}

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    tern_graph_count_uses(g);
    for (int i = 0; i < g->n_nodes; i++)
        take_norm(g, &g->nodes[i]);
    return tern_error_status(g->ctx);
}

const struct tern_pass tern_pass_pre = {"pre", run};

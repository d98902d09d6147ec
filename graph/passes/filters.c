/* Filters are laid out as pictures are, all channels of a tap together: kernels that read them as they are given then read several at once,
 * and matrix units take no others. A copy for each binding, which the prepare graph makes. Kernels of CPUs pack filters themselves. */
#include <tern/ops.h>

#include "core/context.h"
#include "graph/passes/again.h"
#include "graph/passes/passes.h"

struct laying {
    struct tern_again again; /* first */
    bool *constant;          /* by value of the old graph: a weight, or made of weights and constants alone, as the pass `smooth` does */
    bool *wants;             /* by node: whether it is to read its filter otherwise */
    tern_tensor **made;      /* by value: the filter so laid out; NULL: not met yet */
};

static void find_constants(struct laying *l, const struct tern_graph *g)
{
    for (int i = 0; i < g->n_values; i++)
        l->constant[i] = tern_graph_is_fixed(g, i);
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_node *n = &g->nodes[i];
        bool all = !n->dead && n->desc.n_in > 0;
        for (int k = 0; all && k < n->desc.n_in; k++)
            all = n->in[k] < 0 || l->constant[n->in[k]];
        if (!n->dead)
            l->constant[n->out] = all;
    }
}

static bool wants_another(const struct laying *l, const struct tern_graph *g, const struct tern_node *n)
{
    const struct tern_meta *w = &n->desc.in[1];
    if (n->dead || n->kind != TERN_CALL_LAUNCH || n->desc.op != TERN_OP_conv2d || !l->constant[n->in[1]] || tern_meta_is_channels_last(w) ||
        !tern_meta_is_channels_last(&n->desc.in[0]))
        return false;
    struct tern_op_desc d = n->desc;
    tern_meta_channels_last(&d.in[1]);
    const struct tern_kernel *k = tern_kernel_choose(g->ctx, g->ctx->device, &d);
    return k && !k->pack;
}

static void record(struct tern_again *again, const struct tern_node *n)
{
    struct laying *l = (struct laying *)again; /* its first member */
    if (!l->wants[n - again->from->nodes]) {
        again->map[n->out] = tern_again_same(again, n);
        return;
    }
    const int w = n->in[1];
    tern_tensor *const own = again->map[w];
    if (!l->made[w])
        l->made[w] = tern_contiguous(own, TERN_CHANNELS_LAST);
    again->map[w] = l->made[w];
    again->map[n->out] = l->made[w] ? tern_again_same(again, n) : NULL;
    again->map[w] = own;
}

static enum tern_status lay(struct laying *l, struct tern_graph *g)
{
    bool any = false;
    find_constants(l, g);
    for (int i = 0; i < g->n_nodes; i++) {
        l->wants[i] = wants_another(l, g, &g->nodes[i]);
        any = any || l->wants[i];
    }
    if (any && tern_again_begin(&l->again, g) == TERN_OK)
        tern_again_record(&l->again, g);
    if (any)
        tern_again_end(&l->again);
    return tern_error_status(g->ctx);
}

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    (void)params;
    struct laying l = {.again = {.node = record}};
    l.constant = tern_calloc(g->ctx, (size_t)g->n_values + 1, sizeof(*l.constant));
    l.wants = tern_calloc(g->ctx, (size_t)g->n_nodes + 1, sizeof(*l.wants));
    l.made = tern_calloc(g->ctx, (size_t)g->n_values + 1, sizeof(*l.made));
    if (l.constant && l.wants && l.made)
        lay(&l, g);
    tern_free(g->ctx, l.constant);
    tern_free(g->ctx, l.wants);
    tern_free(g->ctx, l.made);
    return tern_error_status(g->ctx);
}

const struct tern_pass tern_pass_filters = {"filters", run};

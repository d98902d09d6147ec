/* Merging: linear layers that read the same input (query, key and value; the projections of the time embedding) become one, whose
 * weight is prepared once from theirs, and each result is a part of its result. Fewer and larger launches; runs where the device says
 * that launches are dear (caps.merges). On CPUs one matmul takes 0.96 to 1.13 of the time of three: docs/graph.md. */
#include <tern/ops.h>

#include "core/context.h"
#include "graph/passes/again.h"
#include "graph/passes/passes.h"

#define NEAR 24                          /* nodes between the first and the last of a group whose results are large */
#define SMALL_RESULT ((size_t)256 << 10) /* bytes; a smaller one may live for long */

struct merging {
    struct tern_again again; /* first */
    const char *quantize;    /* which weights become int8; NULL: none */
    int *leader;             /* by node of the old graph: the first node of its group; -1: in none */
    int64_t *start;          /* by node in a group: its first column of the merged result */
    tern_tensor **merged;    /* by leader */
};

static bool is_free_weight(const struct tern_graph *g, int value)
{
    return value >= 0 && g->values[value].kind == TERN_VALUE_WEIGHT && g->values[value].uses == 1;
}

/* A cast of such a weight for this layer alone, as biases in f32 are for layers in f16; NULL: no cast. */
static const struct tern_node *cast_of_weight(const struct tern_graph *g, int value)
{
    const struct tern_value *v = &g->values[value];
    const struct tern_node *n = v->kind == TERN_VALUE_RESULT && v->uses == 1 ? &g->nodes[v->node] : NULL;
    return n && n->desc.op == TERN_OP_cast && is_free_weight(g, n->in[0]) ? n : NULL;
}

/* x (..., K) in [0], weight (N, K) in [1], bias (N) or nothing in [2]. */
static bool may_merge(const struct tern_graph *g, const struct tern_node *n)
{
    bool bias = n->desc.n_in > 2 && n->in[2] >= 0;
    return !n->dead && n->kind == TERN_CALL_LAUNCH && n->desc.op == TERN_OP_linear && !n->desc.n_post && n->in[0] >= 0 &&
           !tern_graph_is_fixed(g, n->in[0]) && !tern_graph_is_output(g, n->out) && is_free_weight(g, n->in[1]) &&
           (!bias || is_free_weight(g, n->in[2]) || cast_of_weight(g, n->in[2]));
}

static size_t result_bytes(const struct tern_node *n) { return (size_t)tern_meta_numel(&n->desc.out) * tern_dtype_size(n->desc.out.dtype); }

static enum tern_layer_format format_of(const struct merging *m, const struct tern_node *n)
{
    return m->quantize ? tern_quantize_format(m->quantize, m->again.from->values[n->in[1]].name) : TERN_LAYER_PLAIN;
}

static bool has_equal_dtype(const struct tern_graph *g, int a, int b)
{
    return a < 0 || g->values[a].meta.dtype == g->values[b].meta.dtype;
}

static bool go_together(const struct merging *m, int a, int b)
{
    const struct tern_graph *g = m->again.from;
    const struct tern_node *p = &g->nodes[a], *q = &g->nodes[b];
    bool near = b - a <= NEAR || (result_bytes(p) <= SMALL_RESULT && result_bytes(q) <= SMALL_RESULT);
    return near && p->in[0] == q->in[0] && (p->in[2] >= 0) == (q->in[2] >= 0) && has_equal_dtype(g, p->in[1], q->in[1]) &&
           has_equal_dtype(g, p->in[2], q->in[2]) && format_of(m, p) == format_of(m, q);
}

/* Whether kernels take a result of so many columns in place of the node's. */
static bool is_taken(const struct tern_graph *g, const struct tern_node *n, int64_t columns)
{
    const size_t most = g->ctx->device->caps.max_argument;
    const int64_t own = n->desc.in[1].shape[0];
    return !most || !own || result_bytes(n) / (size_t)own * (size_t)columns <= most;
}

/* Greedy: the first that is in no group yet leads one. Returns whether there is any. */
static bool choose(struct merging *m)
{
    const struct tern_graph *g = m->again.from;
    bool any = false;
    for (int i = 0; i < g->n_nodes; i++)
        m->leader[i] = -1;
    for (int i = 0; i < g->n_nodes; i++) {
        int members = 1;
        if (m->leader[i] >= 0 || !may_merge(g, &g->nodes[i]))
            continue;
        int64_t columns = g->nodes[i].desc.in[1].shape[0];
        for (int k = i + 1; k < g->n_nodes && members < TERN_MAX_INPUTS; k++)
            if (m->leader[k] < 0 && may_merge(g, &g->nodes[k]) && go_together(m, i, k) &&
                is_taken(g, &g->nodes[i], columns + g->nodes[k].desc.in[1].shape[0])) {
                m->leader[k] = i;
                m->start[k] = columns;
                columns += g->nodes[k].desc.in[1].shape[0];
                members++;
            }
        if (members > 1)
            m->leader[i] = i;
        any = any || members > 1;
    }
    return any;
}

/* A fixed input of a layer, whose cast may come behind the first layer of the group. */
static tern_tensor *fixed(const struct merging *m, int value)
{
    const struct tern_again *again = &m->again;
    if (!again->map[value])
        again->map[value] = tern_again_same(again, &again->from->nodes[again->from->values[value].node]);
    return again->map[value];
}

/* Input k of all in the group, one behind the other. */
static tern_tensor *joined(const struct merging *m, int leader, int k)
{
    const struct tern_graph *g = m->again.from;
    tern_tensor *list[TERN_MAX_INPUTS];
    int n = 0;
    for (int i = leader; i < g->n_nodes && n < TERN_MAX_INPUTS; i++)
        if (m->leader[i] == leader)
            list[n++] = fixed(m, g->nodes[i].in[k]);
    return tern_cat(list, n, 0);
}

static void record(struct tern_again *again, const struct tern_node *n)
{
    struct merging *m = (struct merging *)again; /* its first member */
    int i = (int)(n - again->from->nodes), leader = m->leader[i];
    if (leader < 0) {
        again->map[n->out] = again->map[n->out] ? again->map[n->out] : tern_again_same(again, n);
        return;
    }
    if (leader == i)
        m->merged[i] = tern_linear(again->map[n->in[0]], joined(m, i, 1), n->in[2] >= 0 ? joined(m, i, 2) : NULL);
    int64_t columns = n->desc.in[1].shape[0];
    again->map[n->out] = tern_slice(m->merged[leader], n->desc.out.ndim - 1, m->start[i], m->start[i] + columns, 1);
}

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    size_t n = (size_t)g->n_nodes + 1;
    if (!g->ctx->device->caps.merges || params->resident) /* weights that are read for every run are not prepared */
        return TERN_OK;
    tern_graph_count_uses(g);
    struct merging m = {.again = {.node = record}, .quantize = params->quantize};
    enum tern_status st = tern_again_begin(&m.again, g);
    m.leader = tern_calloc(g->ctx, n, sizeof(*m.leader));
    m.start = tern_calloc(g->ctx, n, sizeof(*m.start));
    m.merged = tern_calloc(g->ctx, n, sizeof(*m.merged));
    if (!st && m.leader && m.start && m.merged && choose(&m))
        tern_again_record(&m.again, g);
    tern_again_end(&m.again);
    tern_free(g->ctx, m.leader);
    tern_free(g->ctx, m.start);
    tern_free(g->ctx, m.merged);
    return tern_error_status(g->ctx);
}

const struct tern_pass tern_pass_merge = {"merge", run, .revision = 2};

/* Fusion: an element-wise op becomes a post of the node that makes its operand, where a kernel of the device says that it
 * applies it: activations, residuals, time embeddings, gates, and a cast between floating dtypes, which spares the rounding to the
 * narrower one, also where a device computes it in f32 for lack of kernels. The fused node stands at the place of the element-wise one,
 * where all operands are there. */
#include <string.h>

#include "core/context.h"
#include "graph/passes/passes.h"

/* The op as a post; false when it is none. */
static bool as_post(const struct tern_node *n, struct tern_post *p)
{
    const union tern_op_attrs *a = &n->desc.attrs;
    *p = (struct tern_post){.op = n->desc.op, .input = -1};
    switch (n->desc.op) {
    case TERN_OP_gelu:
        p->value = (double)a->gelu.approximate;
        return true;
    case TERN_OP_add_scalar:
        p->value = a->add_scalar.other;
        return true;
    case TERN_OP_mul_scalar:
        p->value = a->mul_scalar.other;
        return true;
    case TERN_OP_cast:
        p->value = (double)a->cast.dtype;
        return tern_dtype_is_float(n->desc.in[0].dtype) && tern_dtype_is_float(n->desc.out.dtype);
    case TERN_OP_neg:
    case TERN_OP_tanh:
    case TERN_OP_sigmoid:
    case TERN_OP_relu:
    case TERN_OP_silu:
    case TERN_OP_quick_gelu:
    case TERN_OP_add:
    case TERN_OP_mul:
        return true;
    default:
        return false;
    }
}

static bool has_cast(const struct tern_op_desc *d)
{
    for (int i = 0; i < d->n_post; i++)
        if (d->post[i].op == TERN_OP_cast)
            return true;
    return d->op == TERN_OP_cast;
}

/* What n makes lies as the result of m, but for the dtype where n is a cast. One of what another has narrowed stays: who wrote both wants
 * the rounding. */
static bool is_alike(const struct tern_node *n, const struct tern_node *m)
{
    struct tern_meta out = m->desc.out;
    if (n->desc.op == TERN_OP_cast && (m->desc.out.dtype == TERN_F32 || !has_cast(&m->desc)))
        out.dtype = n->desc.out.dtype;
    return !memcmp(&out, &n->desc.out, sizeof(out));
}

/* The node that makes operand k, if nothing else needs what it makes; -1. */
static int maker(const struct tern_graph *g, const struct tern_node *n, int k)
{
    const struct tern_value *v = &g->values[n->in[k]];
    if (v->kind != TERN_VALUE_RESULT || v->uses != 1 || tern_graph_is_output(g, n->in[k]))
        return -1;
    const struct tern_node *m = &g->nodes[v->node];
    bool open = !m->dead && !m->prepare && m->kind == TERN_CALL_LAUNCH && m->desc.n_post < TERN_MAX_POST;
    return open && is_alike(n, m) ? v->node : -1;
}

/* m with n as its last post; n's other operand is `other` (-1: none). False when no kernel takes it. */
static bool fuse(struct tern_graph *g, struct tern_node *n, struct tern_node *m, int other, struct tern_post post)
{
    struct tern_node f = *m;
    if (other >= 0) {
        int at = tern_op_get(m->desc.op).max_inputs;
        at = m->desc.n_in > at ? m->desc.n_in : at;
        if (at >= TERN_MAX_INPUTS)
            return false;
        int k = n->in[0] == m->out ? 1 : 0;
        f.in[at] = other;
        f.desc.in[at] = n->desc.in[k];
        f.desc.present[at] = true;
        f.desc.constant[at] = n->desc.constant[k];
        f.desc.n_in = at + 1;
        post.input = at;
    }
    f.desc.post[f.desc.n_post++] = post;
    f.desc.out.dtype = n->desc.out.dtype;
    f.out = n->out;
    if (!tern_kernel_choose(g->ctx, g->ctx->device, &f.desc))
        return false;
    *n = f;
    m->dead = true;
    return true;
}

/* Tries the operand that is made last first: the other one is there by then, and lives no longer than before. */
static void fuse_node(struct tern_graph *g, int at)
{
    struct tern_node *n = &g->nodes[at];
    struct tern_post post;
    if (n->dead || n->prepare || n->kind != TERN_CALL_LAUNCH || n->desc.n_post || !as_post(n, &post))
        return;
    bool pair = n->desc.n_in == 2;
    if (pair && n->in[0] == n->in[1])
        return;
    int makers[2] = {maker(g, n, 0), pair ? maker(g, n, 1) : -1};
    int first = makers[1] > makers[0];
    for (int i = 0; i < 2; i++) {
        int k = i ? !first : first;
        if (makers[k] >= 0 && fuse(g, n, &g->nodes[makers[k]], pair ? n->in[!k] : -1, post))
            return;
    }
}

/* n widens what was computed in f32 and rounded for lack of kernels: who reads n reads that. */
static void skip_rounding(struct tern_graph *g, struct tern_node *n)
{
    const int wide = g->values[n->out].wide;
    if (n->dead || n->prepare || wide < 0 || g->values[wide].node < 0 ||
        (tern_graph_is_output(g, n->out) && tern_graph_is_output(g, wide)) ||
        memcmp(&g->values[wide].meta, &n->desc.out, sizeof(n->desc.out)))
        return;
    const struct tern_node *maker = &g->nodes[g->values[wide].node];
    if (maker->dead || maker->prepare || maker->kind == TERN_CALL_VIEW)
        return;
    const struct tern_value *narrow = &g->values[n->in[0]];
    if (narrow->kind == TERN_VALUE_RESULT && narrow->uses == 1 && !tern_graph_is_output(g, n->in[0]))
        g->nodes[narrow->node].dead = true;
    tern_graph_replace(g, n->out, wide);
    n->dead = true;
}

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    tern_graph_count_uses(g);
    for (int i = 0; i < g->n_nodes; i++)
        skip_rounding(g, &g->nodes[i]);
    tern_graph_count_uses(g);
    for (int i = 0; i < g->n_nodes; i++)
        fuse_node(g, i);
    return tern_error_status(g->ctx);
}

const struct tern_pass tern_pass_fuse = {"fuse", run, 1};

/* Plans on disk: reading the nodes. */
#include <string.h>

#include "core/context.h"
#include "graph/file.h"

static bool read_posts(struct tern_file_in *in, struct tern_op_desc *d)
{
    int n = tern_file_count(in, 1, TERN_MAX_POST);
    d->n_post = n < 0 ? 0 : n;
    for (int i = 0; i < d->n_post; i++) {
        uint64_t op = tern_file_number(in, 2), input = tern_file_number(in, 1), bits = tern_file_number(in, 8);
        d->post[i] = (struct tern_post){.op = (int64_t)op, .input = (int8_t)input};
        memcpy(&d->post[i].value, &bits, sizeof(bits));
        if (d->post[i].input < -1)
            return false;
    }
    return n >= 0 && !in->cut;
}

static bool read_pre(struct tern_file_in *in, struct tern_op_desc *d)
{
    d->pre.num_groups = (int64_t)tern_file_number(in, 4);
    if (!d->pre.num_groups)
        return !in->cut;
    d->pre.silu = (int64_t)tern_file_number(in, 1);
    d->pre.input = (int64_t)tern_file_number(in, 1);
    const uint64_t bits = tern_file_number(in, 8);
    memcpy(&d->pre.eps, &bits, sizeof(bits));
    return !in->cut;
}

/* Inputs are values that are there already: those of no node, and results of the nodes before. */
static bool read_inputs(struct tern_file_in *in, struct tern_node *n)
{
    const struct tern_graph *g = in->graph;
    unsigned constant = (unsigned)tern_file_number(in, 1);
    for (int k = 0; k < TERN_MAX_INPUTS; k++) {
        int v = k < n->desc.n_in ? tern_file_value(in, true) : -1;
        if (v < -1 || (v >= 0 && g->values[v].kind == TERN_VALUE_RESULT && g->values[v].node < 0))
            return false;
        n->in[k] = v;
        n->desc.present[k] = v >= 0;
        n->desc.constant[k] = constant >> k & 1;
        if (v >= 0)
            n->desc.in[k] = g->values[v].meta;
        else if (n->desc.constant[k])
            return false;
    }
    n->out = tern_file_value(in, false);
    return n->out >= 0 && g->values[n->out].kind == TERN_VALUE_RESULT && g->values[n->out].node < 0;
}

static enum tern_status read_kernel(struct tern_file_in *in, const struct tern_node *n, const struct tern_kernel **kernel)
{
    char name[256];
    if (!tern_file_text(in, 1, 255, name))
        return tern_file_wrong(in, "a kernel's name");
    *kernel = tern_kernel_find(in->ctx->device, name);
    return *kernel ? tern_check_kernel(in->ctx, *kernel, &n->desc) : tern_file_wrong(in, "no kernel of this device is \"%.60s\"", name);
}

static enum tern_status read_node(struct tern_file_in *in, struct tern_node *n)
{
    int kind = tern_file_count(in, 1, TERN_CALL_JOIN), flags = tern_file_count(in, 1, TERN_FILE_FLAG_PREPARE),
        op = tern_file_count(in, 2, TERN_OP_COUNT - 1);
    int n_in = tern_file_count(in, 1, TERN_MAX_INPUTS);
    if (kind < 0 || flags < 0 || op < 0 || n_in < 0)
        return tern_file_wrong(in, "a node of no op");
    n->kind = (enum tern_call_kind)kind;
    n->prepare = flags & TERN_FILE_FLAG_PREPARE;
    n->desc.op = (enum tern_op)op;
    n->desc.n_in = n_in;
    if (!read_inputs(in, n))
        return tern_file_wrong(in, "a node reads or makes what it cannot");
    if (!tern_file_meta(in, &n->desc.out))
        return tern_file_wrong(in, "a shape that is not valid");
    for (size_t i = 0; i < tern_op_get(n->desc.op).attrs_size; i += 8) {
        uint64_t word = tern_file_number(in, 8);
        memcpy((char *)&n->desc.attrs + i, &word, sizeof(word));
    }
    if (!read_posts(in, &n->desc))
        return tern_file_wrong(in, "posts that there are not");
    if (!read_pre(in, &n->desc))
        return tern_file_wrong(in, "the file ends in a node");
    return tern_check_node(in->graph, n);
}

enum tern_status tern_file_nodes(struct tern_file_in *in)
{
    struct tern_graph *g = in->graph;
    for (int i = 0; i < in->n_nodes; i++) {
        if (!tern_grow(in->ctx, (void **)&g->nodes, i, &g->node_capacity, sizeof(*g->nodes)))
            return tern_error_status(in->ctx);
        struct tern_node *n = &g->nodes[i];
        memset(n, 0, sizeof(*n));
        if (read_node(in, n) || (tern_node_has_kernel(n) && read_kernel(in, n, &in->kernels[i]))) {
            tern_fail_prefix(in->ctx, "node %d (%s)", i, tern_op_get(n->desc.op).name);
            return tern_error_status(in->ctx);
        }
        g->values[n->out].node = i;
        g->values[n->out].meta = n->desc.out;
        g->n_nodes++;
        if (n->kind == TERN_CALL_JOIN)
            tern_join_make(g, n);
    }
    return tern_check_ends(g);
}

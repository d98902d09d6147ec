/* A graph in the language of Graphviz: a box a node, an edge a value. */
#include <stdio.h>

#include "graph/graph.h"

typedef void write_fn(void *user, const char *line);

/* A name as the inside of a string of Graphviz. */
static const char *quoted(const char *name, char out[256])
{
    size_t n = 0;
    for (; *name && n + 2 < 256; name++) {
        if (*name == '"' || *name == '\\')
            out[n++] = '\\';
        out[n++] = *name == '\n' ? ' ' : *name;
    }
    out[n] = 0;
    return out;
}

static void put_box(const struct tern_graph *g, const struct tern_node *n, write_fn *write, void *user)
{
    char line[512], meta[TERN_META_TEXT];
    int at = snprintf(line, sizeof(line), "  v%d [shape=box%s, label=\"%s", n->out,
                      n->kind == TERN_CALL_VIEW || n->kind == TERN_CALL_JOIN ? ", style=dotted" : "", tern_op_get(n->desc.op).name);
    if (n->desc.pre.num_groups)
        at += snprintf(line + at, sizeof(line) - (size_t)at, " of group_norm%s", n->desc.pre.silu ? ", silu" : "");
    for (int i = 0; i < n->desc.n_post; i++)
        at += snprintf(line + at, sizeof(line) - (size_t)at, " + %s", tern_op_get((enum tern_op)n->desc.post[i].op).name);
    snprintf(line + at, sizeof(line) - (size_t)at, "\\n%s\"];", tern_meta_text(&n->desc.out, meta));
    write(user, line);
    for (int k = 0; k < n->desc.n_in; k++) {
        if (n->in[k] < 0 || (g->values[n->in[k]].kind != TERN_VALUE_RESULT && g->values[n->in[k]].kind != TERN_VALUE_INPUT))
            continue;
        snprintf(line, sizeof(line), "  v%d -> v%d;", n->in[k], n->out);
        write(user, line);
    }
}

void tern_graph_print_dot(const struct tern_graph *g, write_fn *write, void *user)
{
    char line[512], name[256];
    if (!tern_can_tell(g ? g->ctx : NULL, write))
        return;
    write(user, "digraph plan {");
    for (int i = 0; i < g->n_inputs; i++) {
        snprintf(line, sizeof(line), "  v%d [label=\"%s\"];", g->inputs[i], quoted(g->values[g->inputs[i]].name, name));
        write(user, line);
    }
    for (int i = 0; i < g->n_nodes; i++)
        if (!g->nodes[i].dead)
            put_box(g, &g->nodes[i], write, user);
    for (int i = 0; i < g->n_outputs; i++) {
        snprintf(line, sizeof(line), "  out%d; v%d -> out%d;", i, g->outputs[i], i);
        write(user, line);
    }
    write(user, "}");
}

/* A graph as lines of text: values by number, nodes in their order. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "graph/graph.h"

struct line {
    char text[1024];
    size_t length;
};

static void TERN_PRINTF(2, 3) put(struct line *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(l->text + l->length, sizeof(l->text) - l->length, fmt, ap);
    va_end(ap);
    l->length += n < 0 ? 0 : (size_t)n;
    l->length = l->length < sizeof(l->text) ? l->length : sizeof(l->text) - 1;
}

static void put_attrs(struct line *l, const struct tern_op_desc *d)
{
    struct tern_op_info info = tern_op_get(d->op);
    for (int i = 0; i < info.n_attrs; i++) {
        const struct tern_attr_info *a = &info.attrs[i];
        const char *at = (const char *)&d->attrs + a->offset;
        put(l, " %s=", a->name);
        for (int k = 0; k < a->count; k++)
            if (a->kind == TERN_ATTR_INT)
                put(l, "%s%lld", k ? "," : "", (long long)((const int64_t *)(const void *)at)[k]);
            else
                put(l, "%s%g", k ? "," : "", ((const double *)(const void *)at)[k]);
    }
}

static void put_node(struct line *l, const struct tern_graph *g, const struct tern_node *n)
{
    char meta[TERN_META_TEXT];
    put(l, "%%%d = %s%s", n->out, n->prepare ? "prepare " : "", tern_op_get(n->desc.op).name);
    for (int k = 0; k < n->desc.n_in; k++) {
        const struct tern_value *v = n->in[k] >= 0 ? &g->values[n->in[k]] : NULL;
        put(l, "%s", k ? ", " : "(");
        if (!v)
            put(l, "-");
        else if (v->name)
            put(l, "%s", v->name);
        else
            put(l, v->kind == TERN_VALUE_CONSTANT ? "const%d" : "%%%d", n->in[k]);
    }
    put(l, n->desc.n_in ? ")" : "()");
    put_attrs(l, &n->desc);
    if (n->desc.pre.num_groups)
        put(l, " of group_norm in%d num_groups=%lld eps=%g%s", (int)n->desc.pre.input, (long long)n->desc.pre.num_groups, n->desc.pre.eps,
            n->desc.pre.silu ? " silu" : "");
    for (int i = 0; i < n->desc.n_post; i++) {
        const struct tern_post *p = &n->desc.post[i];
        put(l, " then %s", tern_op_get((enum tern_op)p->op).name);
        if (p->input >= 0)
            put(l, " in%d", (int)p->input);
        else if (p->op == TERN_OP_cast)
            put(l, " %s", tern_dtype_name((enum tern_dtype)p->value));
        else if (p->value != 0)
            put(l, " %g", p->value);
    }
    put(l, " -> %s%s", tern_meta_text(&n->desc.out, meta),
        n->kind == TERN_CALL_VIEW        ? " view"
        : n->kind == TERN_CALL_JOIN      ? " joined"
        : n->kind == TERN_CALL_REFERENCE ? " by reference"
                                         : "");
}

bool tern_can_tell(struct tern_context *ctx, bool somebody)
{
    if (!ctx || !somebody)
        tern_fail(ctx, TERN_E_INVALID, "graph: expected a function that takes the report, found NULL");
    return ctx && somebody;
}

void tern_graph_print(const struct tern_graph *g, void (*write)(void *user, const char *line), void *user)
{
    char meta[TERN_META_TEXT];
    if (!tern_can_tell(g ? g->ctx : NULL, write))
        return;
    for (int i = 0; i < g->n_inputs; i++) {
        struct line l = {.length = 0};
        put(&l, "input %s %s", g->values[g->inputs[i]].name, tern_meta_text(&g->values[g->inputs[i]].meta, meta));
        write(user, l.text);
    }
    for (int i = 0; i < g->n_nodes; i++) {
        struct line l = {.length = 0};
        if (g->nodes[i].dead)
            continue;
        put_node(&l, g, &g->nodes[i]);
        write(user, l.text);
    }
    struct line l = {.length = 0};
    put(&l, "return");
    for (int i = 0; i < g->n_outputs; i++)
        put(&l, " %%%d", g->outputs[i]);
    write(user, l.text);
}

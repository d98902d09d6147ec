/* Splitting a graph: every node that depends on known inputs and weights alone is early, as far as the rest can be handed its results. The
 * cut runs through results with memory of their own, laid out as inputs are; what looks at them is late. */
#include "graph/split.h"

#include <string.h>

#include "core/context.h"

/* By value of the graph. */
struct splitting {
    const struct tern_graph *g;
    bool *known;         /* an input that is known */
    bool *barred;        /* must be made late */
    bool *early, *fixed; /* depends on known inputs, or on weights and constants alone */
    bool *first, *last;  /* needed in the early graph, in the late one */
    bool *cut;           /* made in the one and read in the other */
    int *number;         /* in the graph that is being made; -1: not yet there */
};

static enum tern_status begin(struct splitting *s, const struct tern_graph *g)
{
    bool **const flags[] = {&s->known, &s->barred, &s->early, &s->fixed, &s->first, &s->last, &s->cut};
    const size_t n = (size_t)g->n_values + 1;
    *s = (struct splitting){.g = g, .number = tern_calloc(g->ctx, n, sizeof(int))};
    for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++)
        *flags[i] = tern_calloc(g->ctx, n, sizeof(bool));
    return tern_error_status(g->ctx);
}

static void end(struct splitting *s)
{
    void *const all[] = {s->known, s->barred, s->early, s->fixed, s->first, s->last, s->cut, s->number};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        tern_free(s->g->ctx, all[i]);
}

static void mark_known(struct splitting *s, const char *const *known, int n)
{
    for (int i = 0; i < s->g->n_inputs; i++)
        for (int k = 0; k < n; k++)
            if (!strcmp(s->g->values[s->g->inputs[i]].name, known[k]))
                s->known[s->g->inputs[i]] = true;
}

/* Forwards: what is early, what is fixed. */
static void spread(struct splitting *s)
{
    const struct tern_graph *g = s->g;
    for (int v = 0; v < g->n_values; v++) {
        s->early[v] = s->known[v];
        s->fixed[v] = g->values[v].kind == TERN_VALUE_WEIGHT || g->values[v].kind == TERN_VALUE_CONSTANT;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_node *n = &g->nodes[i];
        bool fixed = true, early = false, late = s->barred[n->out];
        for (int k = 0; k < n->desc.n_in; k++) {
            if (n->in[k] < 0)
                continue;
            fixed = fixed && s->fixed[n->in[k]];
            early = early || s->early[n->in[k]];
            late = late || (!s->early[n->in[k]] && !s->fixed[n->in[k]]);
        }
        s->fixed[n->out] = fixed;
        s->early[n->out] = early && !late;
    }
}

static void need_operands(const struct tern_graph *g, const struct tern_node *n, bool *needed)
{
    for (int k = 0; k < n->desc.n_in; k++)
        if (n->in[k] >= 0)
            needed[n->in[k]] = true;
}

/* Backwards from the outputs: what is late, and where the cut runs. */
static void find_cut(struct splitting *s)
{
    const struct tern_graph *g = s->g;
    memset(s->last, 0, (size_t)g->n_values);
    memset(s->cut, 0, (size_t)g->n_values);
    for (int i = 0; i < g->n_outputs; i++)
        s->last[g->outputs[i]] = true;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const struct tern_node *n = &g->nodes[i];
        if (!s->last[n->out])
            continue;
        s->cut[n->out] = s->early[n->out] && n->kind != TERN_CALL_VIEW;
        if (!s->cut[n->out])
            need_operands(g, n, s->last);
    }
}

/* Backwards from the cut: what is made early. */
static void find_first(struct splitting *s)
{
    const struct tern_graph *g = s->g;
    memcpy(s->first, s->cut, (size_t)g->n_values);
    for (int i = g->n_nodes - 1; i >= 0; i--)
        if (s->first[g->nodes[i].out])
            need_operands(g, &g->nodes[i], s->first);
}

/* Inputs are contiguous: what is not is made late. Whether there was any. */
static bool bar(struct splitting *s)
{
    bool any = false;
    for (int v = 0; v < s->g->n_values; v++)
        if (s->cut[v] && !tern_meta_is_contiguous(&s->g->values[v].meta))
            any = s->barred[v] = true;
    return any;
}

static void find_parts(struct splitting *s)
{
    const struct tern_graph *g = s->g;
    for (int i = 0; i < g->n_outputs; i++) /* of the late graph alone, and nothing that it is given */
        s->barred[tern_graph_root(g, g->outputs[i])] = true;
    do {
        spread(s);
        find_cut(s);
    } while (bar(s));
    find_first(s);
}

/* ---- making the two graphs */

static int add_input(struct splitting *s, struct tern_graph *to, int value, const char *name)
{
    s->number[value] = tern_graph_add_value(to, TERN_VALUE_INPUT, &s->g->values[value].meta, name, NULL);
    if (s->number[value] >= 0)
        to->inputs[to->n_inputs++] = s->number[value];
    return s->number[value];
}

/* Inputs that are known or not, as far as they are `needed` (NULL: all). How many were added. */
static int add_inputs(struct splitting *s, struct tern_graph *to, bool known, const bool *needed)
{
    const struct tern_graph *g = s->g;
    const int before = to->n_inputs;
    for (int i = 0; i < g->n_inputs; i++)
        if (s->known[g->inputs[i]] == known && (!needed || needed[g->inputs[i]]))
            add_input(s, to, g->inputs[i], g->values[g->inputs[i]].name);
    return to->n_inputs - before;
}

/* The rest that is needed and not there yet, in the graph's order. */
static void add_rest(struct splitting *s, struct tern_graph *to, const bool *needed)
{
    const struct tern_graph *g = s->g;
    for (int v = 0; v < g->n_values; v++)
        if (needed[v] && s->number[v] < 0 && g->values[v].kind != TERN_VALUE_RESULT && g->values[v].kind != TERN_VALUE_INPUT)
            s->number[v] = tern_graph_add_value(to, g->values[v].kind, &g->values[v].meta, g->values[v].name, g->values[v].tensor);
    for (int i = 0; i < g->n_nodes && !tern_failed(g->ctx); i++) {
        const struct tern_node *n = &g->nodes[i];
        int in[TERN_MAX_INPUTS];
        if (!needed[n->out] || s->number[n->out] >= 0)
            continue;
        for (int k = 0; k < TERN_MAX_INPUTS; k++)
            in[k] = n->in[k] >= 0 ? s->number[n->in[k]] : -1;
        s->number[n->out] = tern_graph_add_node(to, n->kind, &n->desc, in, n->offset);
        const int wide = g->values[n->out].wide;
        if (wide >= 0 && s->number[n->out] >= 0)
            to->values[s->number[n->out]].wide = s->number[wide];
    }
}

static struct tern_graph *create(struct splitting *s)
{
    for (int v = 0; v < s->g->n_values; v++)
        s->number[v] = -1;
    struct tern_graph *to = tern_graph_create(s->g->ctx);
    if (to)
        to->device = s->g->device;
    return to;
}

static struct tern_graph *make_early(struct splitting *s)
{
    struct tern_graph *to = create(s);
    if (!to)
        return NULL;
    add_inputs(s, to, true, NULL);
    add_rest(s, to, s->first);
    for (int v = 0; v < s->g->n_values; v++)
        if (s->cut[v])
            to->outputs[to->n_outputs++] = s->number[v];
    return to;
}

static struct tern_graph *make_late(struct splitting *s, int *kept)
{
    const struct tern_graph *g = s->g;
    struct tern_graph *to = create(s);
    if (!to)
        return NULL;
    add_inputs(s, to, false, NULL);
    *kept = add_inputs(s, to, true, s->last);
    for (int v = 0; v < g->n_values; v++)
        if (s->cut[v])
            add_input(s, to, v, "known");
    add_rest(s, to, s->last);
    for (int i = 0; i < g->n_outputs; i++)
        to->outputs[to->n_outputs++] = s->number[g->outputs[i]];
    return to;
}

static int count(const struct splitting *s, const bool *flags)
{
    int n = 0;
    for (int v = 0; v < s->g->n_values; v++)
        n += flags[v];
    return n;
}

enum tern_status tern_graph_split(const struct tern_graph *g, const char *const *known, int n_known, struct tern_graph_parts *parts)
{
    struct splitting s;
    *parts = (struct tern_graph_parts){NULL, NULL, 0};
    if (tern_failed(g->ctx))
        return tern_error_status(g->ctx);
    if (begin(&s, g) == TERN_OK) {
        mark_known(&s, known, n_known);
        find_parts(&s);
        if (g->n_inputs + count(&s, s.cut) > TERN_GRAPH_MAX_IO) {
            memset(s.known, 0, (size_t)g->n_values);
            find_parts(&s);
        }
        parts->early = count(&s, s.cut) ? make_early(&s) : NULL;
        parts->late = make_late(&s, &parts->kept);
    }
    end(&s);
    if (tern_failed(g->ctx))
        tern_graph_parts_destroy(parts);
    return tern_error_status(g->ctx);
}

void tern_graph_parts_destroy(struct tern_graph_parts *parts)
{
    tern_graph_destroy(&parts->early);
    tern_graph_destroy(&parts->late);
}

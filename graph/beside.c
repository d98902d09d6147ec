/* Two plans of parts of one model: what their bindings have in common is there once. */
#include <string.h>

#include "core/context.h"
#include "graph/plan.h"

bool tern_plan_fits_beside(const struct tern_plan *plan, const struct tern_plan *beside)
{
    bool fits = plan->n_buffers <= beside->n_buffers && plan->window == beside->window;
    for (int i = 0; fits && i < plan->n_buffers; i++)
        fits = plan->buffers[i] <= beside->buffers[i];
    return fits;
}

int tern_plan_same_weight(const struct tern_plan *p, int value, const struct tern_plan *other)
{
    const struct tern_value *v = &p->graph->values[value];
    for (int i = 0; v->kind == TERN_VALUE_WEIGHT && i < other->graph->n_values; i++) {
        const struct tern_value *o = &other->graph->values[i];
        if (o->kind == TERN_VALUE_WEIGHT && o->uses && !strcmp(o->name, v->name))
            return i;
    }
    return -1;
}

static bool same_bytes(struct tern_context *ctx, const tern_tensor *a, const tern_tensor *b)
{
    size_t size[2];
    void *copy[2] = {NULL};
    const void *x = tern_constant_bytes(ctx, a, &size[0], &copy[0]), *y = x ? tern_constant_bytes(ctx, b, &size[1], &copy[1]) : NULL;
    const bool same = x && y && size[0] == size[1] && !memcmp(x, y, size[0]);
    tern_free(ctx, copy[0]);
    tern_free(ctx, copy[1]);
    return same;
}

/* Whether two values are the same: weights by name, constants, which are each plan's own, by what they are. `same` is filled for what nodes
 * before have made. */
static bool is_same(const struct tern_plan *p, int value, const struct tern_plan *other, int there, const int *same)
{
    if (value < 0 || there < 0)
        return value < 0 && there < 0;
    const struct tern_value *v = &p->graph->values[value], *o = &other->graph->values[there];
    if (v->kind != o->kind)
        return false;
    if (v->kind == TERN_VALUE_CONSTANT)
        return v->tensor && o->tensor && !memcmp(&o->meta, &v->meta, sizeof(v->meta)) && same_bytes(p->ctx, v->tensor, o->tensor);
    return v->kind == TERN_VALUE_WEIGHT ? o->uses && !strcmp(o->name, v->name) : same[value] == there;
}

static bool same_inputs(const struct tern_plan *p, const struct tern_node *n, const struct tern_plan *other, const struct tern_node *o,
                        const int *same)
{
    for (int k = 0; k < TERN_MAX_INPUTS; k++)
        if (!is_same(p, n->in[k], other, o->in[k], same))
            return false;
    return true;
}

/* What the node makes, in the other plan; -1: nothing there makes it. */
static int find_same(const struct tern_plan *p, const struct tern_node *n, const struct tern_plan *other, const int *same)
{
    for (int i = 0; i < other->graph->n_nodes; i++) {
        const struct tern_node *o = &other->graph->nodes[i];
        if (!o->dead && o->prepare && o->kind == n->kind && o->offset == n->offset && !memcmp(&o->desc, &n->desc, sizeof(n->desc)) &&
            same_inputs(p, n, other, o, same))
            return o->out;
    }
    return -1;
}

int *tern_plan_same_prepared(const struct tern_plan *p, const struct tern_plan *other)
{
    const struct tern_graph *g = p->graph;
    int *same = tern_calloc(p->ctx, (size_t)g->n_values + 1, sizeof(*same));
    for (int i = 0; same && i < g->n_values; i++)
        same[i] = -1;
    for (int i = 0; same && i < g->n_nodes; i++)
        if (!g->nodes[i].dead && g->nodes[i].prepare)
            same[g->nodes[i].out] = find_same(p, &g->nodes[i], other, same);
    return same;
}

bool tern_plan_same_packed(const struct tern_plan *p, const struct tern_step *s, const struct tern_plan *other, const int *same)
{
    const int packed = p->graph->nodes[s->node].in[s->kernel->pack_input];
    const int weight = tern_plan_same_weight(p, packed, other);
    const int value = weight < 0 && same ? same[packed] : weight;
    for (int i = 0; value >= 0 && i < other->n_steps; i++) {
        const struct tern_step *o = &other->steps[i];
        if (o->packed_index >= 0 && o->kernel == s->kernel && other->graph->nodes[o->node].in[o->kernel->pack_input] == value &&
            tern_step_pack_key(o) == tern_step_pack_key(s))
            return true;
    }
    return false;
}

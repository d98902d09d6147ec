/* Two plans of parts of one model: what their bindings have in common is there once. */
#include <string.h>

#include "graph/plan.h"

bool tern_plan_fits_beside(const struct tern_plan *plan, const struct tern_plan *beside)
{
    return plan->facts.arena <= beside->facts.arena && plan->window == beside->window;
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

/* Constants are each plan's own. */
static int same_value(const struct tern_plan *p, int value, const struct tern_plan *other)
{
    const int weight = tern_plan_same_weight(p, value, other);
    return weight >= 0 ? weight : tern_plan_same_prepared(p, value, other);
}

int tern_plan_same_prepared(const struct tern_plan *p, int value, const struct tern_plan *other)
{
    const struct tern_value *v = &p->graph->values[value];
    const struct tern_node *n = v->kind == TERN_VALUE_RESULT ? &p->graph->nodes[v->node] : NULL;
    int in[TERN_MAX_INPUTS];
    if (!n || !n->prepare)
        return -1;
    for (int k = 0; k < TERN_MAX_INPUTS; k++) {
        in[k] = n->in[k] >= 0 ? same_value(p, n->in[k], other) : -1;
        if (n->in[k] >= 0 && in[k] < 0)
            return -1;
    }
    for (int i = 0; i < other->graph->n_nodes; i++) {
        const struct tern_node *o = &other->graph->nodes[i];
        if (!o->dead && o->prepare && o->kind == n->kind && o->offset == n->offset && !memcmp(o->in, in, sizeof(in)) &&
            !memcmp(&o->desc, &n->desc, sizeof(n->desc)))
            return o->out;
    }
    return -1;
}

bool tern_plan_same_packed(const struct tern_plan *p, const struct tern_step *s, const struct tern_plan *other, bool prepared)
{
    const int packed = p->graph->nodes[s->node].in[s->kernel->pack_input];
    const int value = prepared ? same_value(p, packed, other) : tern_plan_same_weight(p, packed, other);
    for (int i = 0; value >= 0 && i < other->n_steps; i++) {
        const struct tern_step *o = &other->steps[i];
        if (o->packed_index >= 0 && o->kernel == s->kernel && other->graph->nodes[o->node].in[o->kernel->pack_input] == value &&
            tern_step_pack_key(o) == tern_step_pack_key(s))
            return true;
    }
    return false;
}

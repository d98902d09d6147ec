/* What a binding makes once of weights and constants: the nodes of the prepare graph, as far as something needs their results. What only
 * other such nodes read goes when the last of them has run. */
#include <string.h>

#include "core/context.h"
#include "graph/plan.h"
#include "ops/resident.h"

/* By value: the last node that is run and reads it, -1: none; the same of the other plan, tern_plan_same_prepared; whether a step needs it;
 * whether the device's copy is this preparation's; whether it is what it is in the former binding of the plan. */
struct preparing {
    struct tern_binding *b;            /* NULL: none is made */
    const struct tern_binding *former; /* NULL: none */
    const struct tern_plan *plan;
    const struct tern_plan *other; /* whose binding is beside; NULL: none */
    int *last, *there;
    bool *kept, *passing, *same;
    bool *packed; /* steps read but its packed forms: it goes when they are made */
};

static bool is_wanted(const struct preparing *p, const struct tern_node *n)
{
    return !n->dead && n->prepare && (p->kept[n->out] || p->last[n->out] >= 0);
}

/* Whether the step reads the value where it is bound, or keeps a packed form of it. */
static bool keeps(const struct tern_plan *p, const struct tern_step *step, int value)
{
    for (int k = 0; k < TERN_MAX_INPUTS; k++)
        if ((step->in[k].place == TERN_PLACE_BOUND && step->in[k].index == value) ||
            (step->from[k].place == TERN_PLACE_BOUND && step->from[k].index == value))
            return true;
    return step->kernel && step->kernel->pack && p->graph->nodes[step->node].in[step->kernel->pack_input] == value;
}

static void mark_kept(const struct tern_plan *p, const struct tern_step *step, bool *kept)
{
    const struct tern_node *n = &p->graph->nodes[step->node];
    for (int k = 0; k < TERN_MAX_INPUTS; k++) {
        const int values[] = {step->in[k].index, step->from[k].index, n->in[k]};
        for (int i = 0; i < 3; i++)
            if (values[i] >= 0 && values[i] < p->graph->n_values && keeps(p, step, values[i]))
                kept[values[i]] = true;
    }
}

static bool packs(const struct tern_plan *p, const struct tern_step *step, int value)
{
    return step->packed_index >= 0 && p->graph->nodes[step->node].in[step->kernel->pack_input] == value;
}

/* Whether steps read the value in packed forms alone. */
static bool is_packed_only(const struct tern_plan *p, int value)
{
    bool any = false;
    for (int s = 0; s < p->n_steps; s++) {
        const struct tern_step *step = &p->steps[s];
        any = any || packs(p, step, value);
        for (int k = 0; k < TERN_MAX_INPUTS; k++)
            if ((step->in[k].place == TERN_PLACE_BOUND && step->in[k].index == value &&
                 !(packs(p, step, value) && step->kernel->pack_input == k)) ||
                (step->from[k].place == TERN_PLACE_BOUND && step->from[k].index == value))
                return false;
    }
    return any;
}

/* Whether `other`, of whose value packed forms alone are there, has those that the plan wants. */
static bool has_forms(const struct preparing *p, int value)
{
    const struct tern_plan *plan = p->plan;
    for (int s = 0; s < plan->n_steps; s++)
        if (packs(plan, &plan->steps[s], value) && !tern_plan_same_packed(plan, &plan->steps[s], p->other, p->there))
            return false;
    return is_packed_only(plan, value);
}

/* The value of `other`, if there is such a plan, that is the same and that it keeps; `read`: by nodes that run, too, which want more than
 * packed forms. -1: none. */
static int there_already(const struct preparing *p, int value, bool read)
{
    const struct tern_plan *other = p->other;
    const int there = other ? p->there[value] : -1;
    for (int s = 0; there >= 0 && s < other->n_steps; s++)
        if (keeps(other, &other->steps[s], there))
            return !is_packed_only(other, there) || (!read && has_forms(p, value)) ? there : -1;
    return -1;
}

/* Equal weights and constants are the same tensors. */
static void find_same(struct preparing *p)
{
    const struct tern_graph *g = p->former ? p->former->plan->graph : NULL;
    for (int v = 0; g && v < g->n_values; v++)
        p->same[v] = p->b->bound[v] && p->b->bound[v] == p->former->bound[v];
    for (int i = 0; g && i < g->n_nodes; i++) {
        const struct tern_node *n = &g->nodes[i];
        bool same = !n->dead && n->prepare;
        for (int k = 0; same && k < n->desc.n_in; k++)
            same = n->in[k] < 0 || p->same[n->in[k]];
        p->same[n->out] = same;
    }
}

/* Whether another binding has the value: the former one, or that of the other plan. Asked when p->last of it is known. */
static bool is_there(const struct preparing *p, int value)
{
    return p->kept[value] && ((p->same[value] && p->former->bound[value]) || there_already(p, value, p->last[value] >= 0) >= 0);
}

static bool find_uses(struct preparing *p)
{
    const struct tern_plan *plan = p->plan;
    const struct tern_graph *g = plan->graph;
    const size_t n = (size_t)g->n_values + 1;
    p->last = tern_calloc(g->ctx, n, sizeof(*p->last));
    p->kept = tern_calloc(g->ctx, n, sizeof(*p->kept));
    p->passing = tern_calloc(g->ctx, n, sizeof(*p->passing));
    p->same = tern_calloc(g->ctx, n, sizeof(*p->same));
    p->packed = tern_calloc(g->ctx, n, sizeof(*p->packed));
    p->there = p->other ? tern_plan_same_prepared(plan, p->other) : NULL;
    if ((p->other && !p->there) || !p->last || !p->kept || !p->passing || !p->same || !p->packed)
        return false;
    find_same(p);
    for (int v = 0; v < g->n_values; v++)
        p->last[v] = -1;
    for (int s = 0; s < plan->n_steps; s++)
        mark_kept(plan, &plan->steps[s], p->kept);
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const struct tern_node *node = &g->nodes[i];
        if (!is_wanted(p, node) || is_there(p, node->out))
            continue;
        for (int k = 0; k < node->desc.n_in; k++)
            if (node->in[k] >= 0 && p->last[node->in[k]] < 0)
                p->last[node->in[k]] = i;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_node *node = &g->nodes[i];
        if (!node->dead && node->prepare && node->kind == TERN_CALL_LAUNCH && p->kept[node->out] && p->last[node->out] < 0)
            p->packed[node->out] = is_packed_only(plan, node->out);
    }
    return true;
}

static void forget(const struct preparing *p, struct tern_context *ctx)
{
    tern_free(ctx, p->last);
    tern_free(ctx, p->there);
    tern_free(ctx, p->kept);
    tern_free(ctx, p->passing);
    tern_free(ctx, p->same);
    tern_free(ctx, p->packed);
}

/* Whether the device has a copy of a bound weight that only this preparation makes. */
static bool is_passing(const struct preparing *p, int value)
{
    if (value < 0 || p->kept[value] || p->b->plan->graph->values[value].kind != TERN_VALUE_WEIGHT)
        return false;
    return tern_resident_bytes(p->b->plan->device, p->b->bound[value]) || p->passing[value];
}

/* Lets go of what node number i was the last to read. */
static void let_go(struct preparing *p, int i)
{
    const struct tern_node *n = &p->b->plan->graph->nodes[i];
    for (int k = 0; k < n->desc.n_in; k++) {
        const int v = n->in[k];
        if (v < 0 || p->last[v] != i || !p->b->bound[v])
            continue;
        if (p->passing[v])
            tern_resident_drop(p->b->plan->device, p->b->bound[v]);
        p->passing[v] = false;
        if (!p->kept[v] && p->b->plan->graph->values[v].kind == TERN_VALUE_RESULT)
            tern_tensor_unref(&p->b->bound[v]);
    }
}

/* Runs the node on what is bound. */
static tern_tensor *run(struct preparing *p, const struct tern_node *n)
{
    struct tern_context *ctx = p->b->plan->ctx;
    tern_tensor *in[TERN_MAX_INPUTS] = {NULL};
    for (int k = 0; k < n->desc.n_in; k++) {
        in[k] = n->in[k] >= 0 ? p->b->bound[n->in[k]] : NULL;
        if (n->in[k] >= 0)
            p->passing[n->in[k]] = is_passing(p, n->in[k]);
    }
    tern_scope_begin(ctx);
    tern_tensor *t = tern_tensor_ref(tern_op_call(ctx, n->desc.op, in, n->desc.n_in, &n->desc.attrs));
    tern_tensor_make_constant(t);
    tern_scope_end(ctx, NULL);
    if (t && memcmp(&t->meta, &n->desc.out, sizeof(t->meta))) { /* steps rely on it */
        tern_fail(ctx, TERN_E_INTERNAL, "plan: %s is prepared in another order of memory than it was recorded in",
                  tern_op_get(n->desc.op).name);
        tern_tensor_unref(&t);
    }
    return t;
}

/* Makes the packed forms of a value that nothing else is wanted of, and gives its memory back. */
static enum tern_status pack_and_release(const struct preparing *p, int value)
{
    const struct tern_plan *plan = p->b->plan;
    tern_tensor *t = p->b->bound[value];
    for (int s = 0; s < plan->n_steps; s++)
        if (packs(plan, &plan->steps[s], value) &&
            !tern_packed_form(plan->ctx, plan->device, plan->steps[s].kernel, plan->steps[s].desc, t))
            return tern_error_status(plan->ctx);
    tern_buffer_unref(&t->buffer);
    return TERN_OK;
}

static enum tern_status run_all(struct preparing *p)
{
    struct tern_binding *b = p->b;
    const struct tern_graph *g = b->plan->graph;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_node *n = &g->nodes[i];
        if (!is_wanted(p, n))
            continue;
        const bool before = p->same[n->out] && p->former->bound[n->out], there = before || is_there(p, n->out);
        b->bound[n->out] = before  ? tern_tensor_ref(p->former->bound[n->out])
                           : there ? tern_tensor_ref(b->beside->bound[there_already(p, n->out, p->last[n->out] >= 0)])
                                   : run(p, n);
        if (!b->bound[n->out] || (!there && p->packed[n->out] && pack_and_release(p, n->out)))
            return tern_error_status(g->ctx);
        let_go(p, i);
    }
    return TERN_OK;
}

enum tern_status tern_binding_prepare(struct tern_binding *b, const struct tern_binding *former)
{
    struct tern_context *ctx = b->plan->ctx;
    struct preparing p = {.b = b, .former = former, .plan = b->plan, .other = b->beside ? b->beside->plan : NULL};
    struct tern_device *former_device = tern_device_go(ctx, b->plan->device);
    const bool good = find_uses(&p);
    if (good)
        run_all(&p);
    tern_device_go(ctx, former_device);
    for (int v = 0; good && v < b->plan->graph->n_values; v++)
        if (p.passing[v]) /* an error came in between */
            tern_resident_drop(b->plan->device, b->bound[v]);
    forget(&p, ctx);
    return tern_error_status(ctx);
}

/* Of the packed forms of a value; `shared`: of those alone that the other plan has, too. */
static size_t forms_bytes(const struct preparing *p, int value, bool shared)
{
    const struct tern_plan *plan = p->plan;
    size_t bytes = 0;
    for (int s = 0; s < plan->n_steps; s++)
        if (packs(plan, &plan->steps[s], value) && !tern_step_packed_before(plan, s) &&
            (!shared || tern_plan_same_packed(plan, &plan->steps[s], p->other, p->there)))
            bytes += tern_bound_bytes(plan->device, plan->steps[s].kernel->packed_size(plan->ctx, plan->steps[s].desc));
    return bytes;
}

/* What the device takes for a view that steps read: of a weight that lies on the host it copies the view, and not the weight. */
static size_t view_bytes(const struct preparing *p, int value)
{
    const struct tern_graph *g = p->plan->graph;
    int root = value;
    while (g->values[root].kind == TERN_VALUE_RESULT && g->nodes[g->values[root].node].kind == TERN_CALL_VIEW)
        root = g->nodes[g->values[root].node].in[0];
    const bool copied = !p->plan->device->caps.host_memory && g->values[root].kind != TERN_VALUE_RESULT && p->kept[value];
    return copied && !is_packed_only(p->plan, value) ? tern_bound_bytes(p->plan->device, tern_meta_bytes(&g->values[value].meta)) : 0;
}

/* The results that stay, and the most that others take meanwhile, as far as packed forms do not take it later. */
size_t tern_plan_prepared_bytes(const struct tern_plan *plan, const struct tern_plan *other, size_t packs_bytes)
{
    const struct tern_graph *g = plan->graph;
    struct preparing p = {.plan = plan, .other = other};
    size_t kept = 0, now = 0, made = 0, most = 0;
    const bool good = find_uses(&p);
    for (int i = 0; good && i < g->n_nodes; i++) {
        const struct tern_node *n = &g->nodes[i];
        if (!is_wanted(&p, n) || is_there(&p, n->out))
            continue;
        const size_t own =
            n->kind == TERN_CALL_VIEW ? view_bytes(&p, n->out) : tern_bound_bytes(plan->device, tern_meta_bytes(&n->desc.out));
        *(p.kept[n->out] && !p.packed[n->out] ? &kept : &now) += own;
        made += p.packed[n->out] ? forms_bytes(&p, n->out, false) : 0;
        if (other && p.kept[n->out] && !p.packed[n->out]) /* made again, it has others than those of the other plan */
            kept += forms_bytes(&p, n->out, true);
        most = now + made > most ? now + made : most;
        now -= p.packed[n->out] ? own : 0;
        for (int k = 0; k < n->desc.n_in; k++) {
            const struct tern_value *v = n->in[k] >= 0 ? &g->values[n->in[k]] : NULL;
            const bool ends = v && v->kind == TERN_VALUE_RESULT && p.last[n->in[k]] == i && !p.kept[n->in[k]];
            if (ends && g->nodes[v->node].kind != TERN_CALL_VIEW)
                now -= tern_bound_bytes(plan->device, tern_meta_bytes(&v->meta));
            if (ends)
                p.last[n->in[k]] = -1; /* it may be there twice */
        }
    }
    forget(&p, plan->ctx);
    return kept + (most > packs_bytes ? most - packs_bytes : 0);
}

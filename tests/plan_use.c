/* Running plans of which nothing is known. */
#include "plan_use.h"

#include <string.h>
#include <tern/context.h>

#include "core/context.h"
#include "graph/plan.h"

#define MOST ((int64_t)1 << 12) /* elements of a value */

static bool is_small(const struct tern_plan *p)
{
    bool small = p->graph->n_nodes < 200 && p->facts.arena < (size_t)16 << 20;
    for (int i = 0; small && i < p->graph->n_values; i++)
        small = tern_meta_numel(&p->graph->values[i].meta) <= MOST && tern_meta_span(&p->graph->values[i].meta) <= MOST;
    return small;
}

/* Owned by the open scope. */
static tern_tensor *zeros(struct tern_context *ctx, const struct tern_meta *m)
{
    return tern_tensor_create(ctx, m->dtype, m->ndim, m->shape, NULL);
}

static bool run(struct tern_plan *p, struct tern_weights *w)
{
    tern_tensor *in[TERN_GRAPH_MAX_IO] = {NULL}, *out[TERN_GRAPH_MAX_IO] = {NULL};
    const struct tern_graph *g = p->graph;
    for (int i = 0; i < g->n_values; i++)
        if (g->values[i].kind == TERN_VALUE_WEIGHT && !tern_weights_get(w, g->values[i].name))
            tern_weights_add(w, g->values[i].name, zeros(p->ctx, &g->values[i].meta));
    for (int i = 0; i < g->n_inputs; i++)
        in[i] = zeros(p->ctx, &g->values[g->inputs[i]].meta);
    struct tern_binding *b = tern_plan_bind(p, w);
    bool ran = b && tern_plan_run(b, in, out) == TERN_OK;
    tern_binding_unref(&b);
    return ran;
}

bool plan_use(struct tern_plan *p)
{
    struct tern_context *ctx = p->ctx;
    if (!is_small(p))
        return false;
    struct tern_weights *w = tern_weights_create(ctx);
    tern_scope_begin(ctx);
    bool ran = run(p, w);
    tern_scope_end(ctx, NULL);
    tern_weights_unref(&w);
    tern_error_clear(ctx);
    return ran;
}

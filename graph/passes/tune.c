/* Tuning: descriptions whose kernels were measured, or are measured now, get the fastest. What does most work comes first, as time may be
 * limited. */
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "graph/passes/passes.h"
#include "ops/tuner.h"

#define NOTICEABLE 0.005 /* share of the plan's work */

/* Nodes of one description. */
struct group {
    int first, count;
    double work;
};

static bool is_launch(const struct tern_node *n) { return !n->dead && !n->prepare && n->kind == TERN_CALL_LAUNCH; }
static bool is_same(const struct tern_node *a, const struct tern_node *b) { return !memcmp(&a->desc, &b->desc, sizeof(a->desc)); }

static int find_groups(const struct tern_graph *g, struct group *list, double *total)
{
    int n = 0;
    *total = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        int at = 0;
        if (!is_launch(&g->nodes[i]))
            continue;
        while (at < n && !is_same(&g->nodes[list[at].first], &g->nodes[i]))
            at++;
        if (at == n)
            list[n++] = (struct group){.first = i};
        double work = tern_tuner_work(&g->nodes[i].desc);
        list[at].count++;
        list[at].work += work;
        *total += work;
    }
    return n;
}

/* Most work first; of equal ones the earlier. */
static int order(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    if (x->work > y->work || x->work < y->work)
        return x->work > y->work ? -1 : 1;
    return x->first - y->first;
}

static void take(struct tern_graph *g, const struct group *group, const struct tern_kernel *k)
{
    for (int i = group->first; i < g->n_nodes; i++)
        if (is_launch(&g->nodes[i]) && is_same(&g->nodes[i], &g->nodes[group->first]))
            g->nodes[i].tuned = k;
}

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    struct tern_context *ctx = g->ctx;
    struct tern_tuner *t = tern_tuner_get(ctx);
    struct group *list = t ? tern_calloc(ctx, (size_t)g->n_nodes + 1, sizeof(*list)) : NULL;
    double total, start = tern_now();
    int n = list ? find_groups(g, list, &total) : 0;
    if (n)
        qsort(list, (size_t)n, sizeof(*list), order);
    for (int i = 0; i < n && !tern_failed(ctx); i++) {
        const struct tern_op_desc *d = &g->nodes[list[i].first].desc;
        const struct tern_tuned *e = tern_tuner_measure(ctx, t, d, list[i].work >= NOTICEABLE * total, &t->time.left);
        if (e)
            take(g, &list[i], tern_kernel_find(ctx->device, e->kernel));
        if (t->ran)
            tern_report(ctx, "tune", i + 1, n, tern_now() - start);
    }
    tern_free(ctx, list);
    return tern_error_status(ctx);
}

const struct tern_pass tern_pass_tune = {"tune", run};

/* Which results exist in bands alone: first those that cost nothing, then those that are cheapest to compute again. */
#include <string.h>
#include <tern/ops.h>

#include "core/context.h"
#include "graph/arena.h"
#include "graph/passes/tile.h"

#define ROOM 8        /* this part of the limit is for bands and for what kernels work in */
#define SMALL 8       /* a result of less than this part of the limit is left whole */
#define HALO 16       /* this part of what a kernel takes may be rows around a band, where bands are for its sake */
#define MOST_WORK 1.5 /* times the arithmetic without tiling */
#define WIDE_WORK 4   /* likewise, where there is no plan else */

struct choice {
    const struct tern_graph *g;
    bool *inner;
    bool *can;       /* by value: made by a local node, read by local nodes alone */
    int *end;        /* by value: the last node that needs it */
    double *times;   /* by value: how often it is computed */
    size_t *live;    /* by node */
    int64_t *around; /* by inner value: rows that are read around those of a band */
};

static size_t bytes_of(const struct tern_value *v) { return tern_meta_bytes(&v->meta); }

/* How many bands of work, in wholes, the node asks of its operands. Statistics are a pass of their own. */
static double times_of(const struct choice *c, const struct tern_node *n)
{
    double times = c->inner[n->out] ? c->times[n->out] : 1;
    return times + (n->desc.op == TERN_OP_group_norm ? 1 : 0);
}

/* The last node at which the node's operands are needed for its result. */
static int end_of(const struct choice *c, const struct tern_node *n, int at)
{
    bool later = c->inner[n->out] || n->kind == TERN_CALL_VIEW;
    return later && c->end[n->out] > at ? c->end[n->out] : at;
}

/* Sets end and times, from the last node to the first. The arithmetic of the whole. */
static double follow(struct choice *c)
{
    const struct tern_graph *g = c->g;
    double work = 0;
    memset(c->end, 0, (size_t)g->n_values * sizeof(*c->end));
    memset(c->times, 0, (size_t)g->n_values * sizeof(*c->times));
    for (int i = 0; i < g->n_outputs; i++)
        c->end[tern_graph_root(g, g->outputs[i])] = g->n_nodes;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const struct tern_node *n = &g->nodes[i];
        if (n->dead)
            continue;
        int end = end_of(c, n, i);
        double times = times_of(c, n);
        for (int k = 0; k < n->desc.n_in; k++) {
            if (n->in[k] < 0)
                continue;
            c->end[n->in[k]] = c->end[n->in[k]] > end ? c->end[n->in[k]] : end;
            c->times[n->in[k]] += times;
        }
        work += tern_desc_flops(&n->desc) * (c->inner[n->out] ? c->times[n->out] : 1);
    }
    return work;
}

/* The largest sum of what lives whole at one node, and where. Outputs are the caller's. */
static size_t peak_of(const struct choice *c, int *where)
{
    const struct tern_graph *g = c->g;
    size_t most = 0;
    memset(c->live, 0, (size_t)g->n_nodes * sizeof(*c->live));
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_node *n = &g->nodes[i];
        if (n->dead || n->kind == TERN_CALL_VIEW || c->inner[n->out] || tern_graph_is_output(g, n->out))
            continue;
        for (int at = i; at <= c->end[n->out] && at < g->n_nodes; at++)
            c->live[at] += bytes_of(&g->values[n->out]);
    }
    for (int i = 0; i < g->n_nodes; i++)
        if (c->live[i] > most) {
            most = c->live[i];
            *where = i;
        }
    return most;
}

static void find_candidates(struct choice *c)
{
    const struct tern_graph *g = c->g;
    for (int i = 0; i < g->n_nodes; i++)
        c->can[g->nodes[i].out] = tern_tile_is_local(g, &g->nodes[i]) && !tern_graph_is_output(g, g->nodes[i].out);
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_node *n = &g->nodes[i];
        bool local = tern_tile_is_local(g, n);
        for (int k = 0; !n->dead && k < n->desc.n_in; k++)
            if (n->in[k] >= 0 && !(local && tern_tile_has_rows(n, k)))
                c->can[n->in[k]] = false;
    }
}

/* Those of so many bytes, or that kernels do not make whole, that one node reads, which is no norm: each row is computed about once all the
 * same. */
static bool take_free(struct choice *c, size_t least)
{
    const struct tern_graph *g = c->g;
    bool any = false;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_node *n = &g->nodes[i];
        for (int k = 0; !n->dead && k < n->desc.n_in; k++) {
            int v = n->in[k];
            if (v < 0 || !c->can[v] || g->values[v].uses != 1 || n->desc.op == TERN_OP_group_norm ||
                (bytes_of(&g->values[v]) < least && tern_desc_is_made_whole(&g->nodes[g->values[v].node].desc, &g->ctx->device->caps)))
                continue;
            c->inner[v] = any = true;
        }
    }
    return any;
}

static bool is_much(const struct choice *c, const struct tern_meta *m, int64_t rows)
{
    return rows * (int64_t)(tern_meta_bytes(m) / (size_t)m->shape[m->ndim - 2]) > (int64_t)(c->g->ctx->device->caps.max_argument / HALO);
}

/* Whether so many rows around a band of an inner result, or what is read whole for them, are a large part of what kernels take. */
static bool is_mostly_around(const struct choice *c, const struct tern_node *n, int64_t around)
{
    bool much = is_much(c, &n->desc.out, around);
    for (int k = 0; k < n->desc.n_in; k++)
        much = much || (n->in[k] >= 0 && !c->inner[n->in[k]] && tern_tile_has_rows(n, k) &&
                        is_much(c, &n->desc.in[k], tern_tile_around(n, around)));
    return much;
}

/* Where chains of filters would add up to bands that are mostly what is around them, one of their results is whole after all. */
static void cut_long_chains(struct choice *c)
{
    const struct tern_graph *g = c->g;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const struct tern_node *n = &g->nodes[i];
        if (n->dead)
            continue;
        if (c->inner[n->out] && is_mostly_around(c, n, c->around[n->out]))
            c->inner[n->out] = false;
        const int64_t own = c->inner[n->out] ? c->around[n->out] : 0;
        for (int k = 0; k < n->desc.n_in; k++)
            if (n->in[k] >= 0 && c->inner[n->in[k]] && tern_tile_around(n, own) > c->around[n->in[k]])
                c->around[n->in[k]] = tern_tile_around(n, own);
    }
}

/* The result at the peak that costs the least work for each byte that the peak goes down by; -1: none goes down far enough. */
static int cheapest(struct choice *c, int where, size_t peak, double work, double most_work)
{
    const struct tern_graph *g = c->g;
    int best = -1, ignored;
    double least = 0;
    for (int i = 0; i <= where; i++) {
        int v = g->nodes[i].out;
        if (g->nodes[i].dead || !c->can[v] || c->inner[v] || c->end[v] < where)
            continue;
        c->inner[v] = true;
        double more = follow(c) - work;
        size_t then = peak_of(c, &ignored);
        c->inner[v] = false;
        if (then >= peak || work + more > most_work)
            continue;
        double price = more / (double)(peak - then);
        if (best < 0 || price < least) {
            best = v;
            least = price;
        }
    }
    follow(c);
    return best;
}

/* Those that no buffer of the device holds, if that is not too much work. */
static bool take_wide(struct choice *c, double most_work)
{
    const struct tern_graph *g = c->g;
    const size_t window = tern_arena_window(g->ctx->device->caps.max_buffer);
    bool any = false;
    for (int i = 0; window && i < g->n_nodes; i++) {
        const int v = g->nodes[i].out;
        if (!c->can[v] || c->inner[v] || bytes_of(&g->values[v]) <= window)
            continue;
        c->inner[v] = true;
        c->inner[v] = follow(c) <= most_work;
        any = any || c->inner[v];
    }
    return any;
}

static bool choose_inner(struct choice *c, size_t limit)
{
    int where = 0;
    const double whole = follow(c);
    find_candidates(c);
    bool any = take_free(c, limit ? limit / SMALL : SIZE_MAX);
    if (!limit)
        return any;
    const bool wide = take_wide(c, WIDE_WORK * whole);
    double most_work = MOST_WORK * (wide ? follow(c) : whole), work;
    any = any || wide;
    for (;;) {
        work = follow(c);
        size_t peak = peak_of(c, &where);
        int v = peak + limit / ROOM > limit ? cheapest(c, where, peak, work, most_work) : -1;
        if (v < 0)
            return any;
        c->inner[v] = any = true;
    }
}

static bool choose(struct choice *c, size_t limit)
{
    const bool any = choose_inner(c, limit);
    if (any && c->g->ctx->device->caps.max_argument)
        cut_long_chains(c);
    return any;
}

bool tern_tiling_choose(const struct tern_graph *g, size_t limit, bool *inner)
{
    size_t values = (size_t)g->n_values, nodes = (size_t)g->n_nodes;
    struct choice c = {.g = g, .inner = inner};
    c.can = tern_calloc(g->ctx, values + 1, sizeof(*c.can));
    c.end = tern_calloc(g->ctx, values + 1, sizeof(*c.end));
    c.times = tern_calloc(g->ctx, values + 1, sizeof(*c.times));
    c.live = tern_calloc(g->ctx, nodes + 1, sizeof(*c.live));
    c.around = tern_calloc(g->ctx, values + 1, sizeof(*c.around));
    bool any = c.can && c.end && c.times && c.live && c.around && choose(&c, limit);
    tern_free(g->ctx, c.can);
    tern_free(g->ctx, c.end);
    tern_free(g->ctx, c.times);
    tern_free(g->ctx, c.live);
    tern_free(g->ctx, c.around);
    return any;
}

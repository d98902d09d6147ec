/* Which nodes run chunk by chunk: what a region is, where it begins and ends. */
#include <string.h>
#include <tern/ops.h>

#include "graph/passes/chunk.h"

#define DEAR 2 /* bytes of weights that are read again for each byte that is saved, at most */

static bool has_weight(const struct tern_chunking *c, const struct tern_node *n)
{
    return tern_desc_flops(&n->desc) > 0 && !tern_chunk_cuts(c, n, 1);
}

static int64_t least_rows(const struct tern_chunking *c) { return c->by_row ? c->limits->rows : c->limits->picture_rows; }

/* Whether the node's weight, if it has one, serves enough rows of a chunk. */
static bool serves_rows(const struct tern_chunking *c, const struct tern_node *n)
{
    return !has_weight(c, n) ||
           tern_desc_flops(&n->desc) >= 2.0 * (double)(least_rows(c) * tern_chunk_count(c, n)) * (double)tern_meta_numel(&n->desc.in[1]);
}

/* Whether the node becomes a post of another, most likely: what it reads is then not worth joining. */
static bool is_post(const struct tern_node *n) { return tern_op_is_elementwise(n->desc.op) || n->desc.op == TERN_OP_cast; }

bool tern_chunking_must_cut(const struct tern_chunking *c, const struct tern_node *n)
{
    const struct tern_device_caps *caps = c->limits->caps;
    bool whole = !caps || tern_desc_is_made_whole(&n->desc, caps);
    for (int k = 0; caps && k < n->desc.n_in; k++)
        whole = whole && (!tern_chunk_cuts(c, n, k) || tern_caps_take(caps, &n->desc.in[k]));
    return !whole && tern_node_computes(n);
}

/* Whether a region may begin with the node: a large result of many rows or pixels. One that becomes the post of another node is left there.
 */
static bool begins(const struct tern_chunking *c, const struct tern_node *n)
{
    const struct tern_meta *m = &n->desc.out;
    const bool heads = n->desc.op == TERN_OP_sdpa;
    if (c->limits->caps)
        return tern_chunking_must_cut(c, n);
    const int64_t rows = m->ndim == 4 ? m->shape[2] * (heads ? 1 : m->shape[3]) : m->ndim == 3 ? m->shape[1] : 0;
    return n->kind == TERN_CALL_LAUNCH && !is_post(n) && tern_meta_numel(m) > 0 && rows >= least_rows(c) &&
           (size_t)tern_meta_numel(m) / (size_t)m->shape[0] * tern_dtype_size(m->dtype) >= c->limits->large;
}

static int maker(const struct tern_graph *g, int value)
{
    return value >= 0 && g->values[value].kind == TERN_VALUE_RESULT ? g->values[value].node : -1;
}

/* Whether the node can be in the region at hand, which has `open` for its last node. *reads: it reads what that makes. */
static bool belongs(const struct tern_chunking *c, const struct tern_node *n, int64_t size, int open, bool *reads)
{
    const struct tern_graph *g = c->again.from;
    const struct tern_meta *m = &n->desc.out;
    bool fits = m->ndim > c->dim && m->shape[c->dim] == size && tern_meta_numel(m) > 0 && tern_chunk_fits(c, n) && serves_rows(c, n);
    *reads = false;
    for (int k = 0; k < n->desc.n_in; k++) {
        const int from = maker(g, n->in[k]);
        if (from < 0 || c->region[from] != open)
            continue;
        *reads = true;
        fits = fits && tern_chunk_cuts(c, n, k);
    }
    return fits;
}

/* The nodes from `first` on that can run chunk by chunk, up to one that reads theirs and cannot. The last of them. */
static int find_region(struct tern_chunking *c, int first)
{
    const struct tern_graph *g = c->again.from;
    const int64_t size = g->nodes[first].desc.out.shape[c->dim];
    const int open = g->n_nodes; /* until the last is known */
    int last = first;
    for (int i = first; i < g->n_nodes; i++) {
        const struct tern_node *n = &g->nodes[i];
        bool reads;
        if (n->dead)
            continue;
        const bool fits = belongs(c, n, size, open, &reads);
        if (reads && !fits)
            break;
        if (fits && (reads || begins(c, n))) {
            c->region[i] = open;
            last = i;
        }
    }
    for (int i = first; i <= last; i++)
        if (c->region[i] == open)
            c->region[i] = last;
    return last;
}

static void find_regions(struct tern_chunking *c)
{
    const struct tern_graph *g = c->again.from;
    bool reads;
    for (int i = 0; i < g->n_nodes; i++)
        c->region[i] = -1;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_node *n = &g->nodes[i];
        if (!n->dead && begins(c, n) && tern_chunk_count(c, n) > 1 && belongs(c, n, n->desc.out.shape[c->dim], g->n_nodes, &reads))
            i = find_region(c, i);
    }
}

/* What is read outside of its region; of a view that is, what it looks at, too. Where memory is read last. */
static void follow(struct tern_chunking *c)
{
    const struct tern_graph *g = c->again.from;
    memset(c->end, 0, (size_t)g->n_values * sizeof(*c->end));
    memset(c->outside, 0, (size_t)g->n_values * sizeof(*c->outside));
    for (int i = 0; i < g->n_outputs; i++)
        c->outside[g->outputs[i]] = true;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const struct tern_node *n = &g->nodes[i];
        const bool whole = c->region[i] < 0 || (n->kind == TERN_CALL_VIEW && c->outside[n->out]);
        for (int k = 0; !n->dead && k < n->desc.n_in; k++) {
            if (n->in[k] < 0)
                continue;
            const int root = tern_graph_root(g, n->in[k]), from = maker(g, n->in[k]);
            c->outside[n->in[k]] = c->outside[n->in[k]] || whole || from < 0 || c->region[from] != c->region[i];
            c->end[root] = c->end[root] > i ? c->end[root] : i;
        }
    }
}

/* Whether what others read of chunks can be made in its place of the whole. Attention's result lies as its query does, in another order
 * than a whole one has. */
static bool joins(const struct tern_meta *m) { return tern_meta_is_contiguous(m) || tern_meta_is_channels_last(m); }

static size_t bytes_of(const struct tern_meta *m) { return (size_t)tern_meta_numel(m) * tern_dtype_size(m->dtype); }

/* Whether chunks of the region first..last pay: weights have a part in it, and nothing is copied to be joined. Where rows are for
 * themselves, what is made and read in it alone is larger than what is joined, as the middle of a feed-forward layer is and the projections
 * of attention are not, and saves enough. Where nodes have to be cut, one of them is there. */
static bool pays(const struct tern_chunking *c, int first, int last)
{
    const struct tern_graph *g = c->again.from;
    const size_t again = (size_t)tern_chunk_count(c, &g->nodes[last]) - 1;
    int launches = 0;
    size_t weights = 0, inner = 0, joined = 0;
    bool wide = false;
    for (int i = first; i <= last; i++) {
        const struct tern_node *n = &g->nodes[i];
        if (c->region[i] != last)
            continue;
        wide = wide || tern_chunking_must_cut(c, n);
        launches += n->kind == TERN_CALL_LAUNCH;
        weights += has_weight(c, n) ? bytes_of(&n->desc.in[1]) : 0;
        if (c->outside[n->out] && n->kind != TERN_CALL_VIEW && !joins(&n->desc.out))
            return false;
        size_t *most = c->outside[n->out] ? &joined : &inner;
        *most = bytes_of(&n->desc.out) > *most ? bytes_of(&n->desc.out) : *most;
    }
    if (c->limits->caps)
        return wide;
    return weights && launches > 1 && (!c->by_row || (inner > joined && weights * again <= DEAR * (inner / (again + 1) * again)));
}

/* The node of the region behind one of it. */
static const struct tern_node *next_of(const struct tern_chunking *c, int i)
{
    int k = i + 1;
    while (c->region[k] != c->region[i])
        k++;
    return &c->again.from->nodes[k];
}

/* The end of the first part of a region: behind it no more goes on that is not made whole anyhow than there is freed of what the part has
 * read, which else waits for the last chunk of all. */
static int part_of_region(const struct tern_chunking *c, int first)
{
    const struct tern_graph *g = c->again.from;
    const int last = c->region[first];
    size_t open = 0, freed = 0;
    for (int i = first; i < last; i++) {
        const struct tern_node *n = &g->nodes[i];
        if (c->region[i] != last)
            continue;
        if (n->kind != TERN_CALL_VIEW && !c->outside[n->out])
            open += bytes_of(&n->desc.out);
        for (int k = 0; k < n->desc.n_in; k++) {
            const int root = n->in[k] < 0 ? -1 : tern_graph_root(g, n->in[k]), from = maker(g, root);
            if (from < 0 || c->end[root] != i || tern_graph_is_output(g, root))
                continue;
            c->end[root] = -1; /* counted */
            if (from < first || c->region[from] != last)
                freed += bytes_of(&g->values[root].meta);
            else if (!c->outside[root])
                open -= bytes_of(&g->values[root].meta);
        }
        const struct tern_node *next = next_of(c, i);
        if (open <= freed && !is_post(next) && (next->kind != TERN_CALL_VIEW || !open))
            return i;
    }
    return last;
}

static void cut_regions(struct tern_chunking *c)
{
    for (int i = 0, end = -1; i < c->again.from->n_nodes; i++) {
        const int last = c->region[i];
        if (last < 0 || i <= end)
            continue;
        end = part_of_region(c, i);
        for (int k = i; k <= end; k++)
            if (c->region[k] == last)
                c->region[k] = end;
    }
}

bool tern_chunking_choose(struct tern_chunking *c)
{
    const int nodes = c->again.from->n_nodes;
    bool any = false;
    find_regions(c);
    follow(c);
    cut_regions(c);
    follow(c);
    for (int i = 0, end = -1; i < nodes; i++) {
        if (c->region[i] < 0 || i <= end)
            continue;
        end = c->region[i];
        const bool kept = pays(c, i, end);
        for (int k = i; k <= end && !kept; k++)
            c->region[k] = -1;
        any = any || kept;
    }
    return any;
}

/* Chunking [diffusers: enable_forward_chunking]: where each picture of a batch fills the caches by itself, one is computed behind the
 * other; so are parts of the rows, or of the batch, around the wide middle of a feed-forward layer. What lies between such layers then
 * takes the memory of one chunk. The graph is recorded anew: the nodes of a region once for each chunk, on views of what they read; what
 * others read of it is joined, and made in its place where that can be (pass "concat"). Not where launches are dear (caps.merges), nor
 * where weights are prepared or read at every run: each chunk would do so again. But where tensors are larger than what the device's
 * kernels take (caps.max_argument, max_rows) they are read and written in chunks, which then are. */
#include "graph/passes/chunk.h"

#include <string.h>
#include <tern/ops.h>

#include "core/context.h"
#include "graph/check.h"
#include "graph/passes/passes.h"

#define ROUNDS 4 /* of chunks that fit: up to eight in each make 4,096 */

struct chunk {
    int64_t from, to;
    int number;
};

/* What a node of the region reads, of the chunk. */
static tern_tensor *operand(const struct tern_chunking *c, const struct tern_node *n, int k, struct chunk at, int last)
{
    const struct tern_graph *g = c->again.from;
    const int v = n->in[k];
    if (v < 0)
        return NULL;
    if ((g->values[v].kind == TERN_VALUE_RESULT && c->region[g->values[v].node] == last) || !tern_chunk_cuts(c, n, k))
        return c->again.map[v];
    if (!c->slice[v])
        c->slice[v] = tern_slice(c->again.map[v], c->dim, at.from, at.to, 1);
    return c->slice[v];
}

static tern_tensor *chunk_of(const struct tern_chunking *c, const struct tern_node *n, struct chunk at, int last)
{
    tern_tensor *in[TERN_MAX_INPUTS] = {NULL};
    union tern_op_attrs attrs = n->desc.attrs;
    for (int k = 0; k < n->desc.n_in; k++)
        in[k] = operand(c, n, k, at, last);
    if (n->desc.op == TERN_OP_reshape)
        attrs.reshape.shape[c->dim] = at.to - at.from;
    if (n->desc.op == TERN_OP_expand)
        attrs.expand.shape[c->dim] = at.to - at.from;
    return tern_op_call(c->again.ctx, n->desc.op, in, n->desc.n_in, &attrs);
}

static void record_chunk(struct tern_chunking *c, int first, int last, struct chunk at)
{
    const struct tern_graph *g = c->again.from;
    memset(c->slice, 0, (size_t)g->n_values * sizeof(tern_tensor *));
    for (int i = first; i <= last && !tern_failed(c->again.ctx); i++) {
        const struct tern_node *n = &g->nodes[i];
        if (n->dead || c->region[i] != last)
            continue;
        c->again.map[n->out] = c->made[n->out * TERN_CHUNKS + at.number] = chunk_of(c, n, at, last);
        tern_again_keep_wide(&c->again, n);
    }
}

/* What others read: views are taken anew, of what is whole. */
static void join(struct tern_chunking *c, int first, int last, int chunks)
{
    const struct tern_graph *g = c->again.from;
    for (int i = first; i <= last && !tern_failed(c->again.ctx); i++) {
        const struct tern_node *n = &g->nodes[i];
        if (n->dead || c->region[i] != last)
            continue;
        tern_tensor **whole = &c->again.map[n->out];
        if (!c->outside[n->out])
            *whole = NULL;
        else if (n->kind == TERN_CALL_VIEW)
            *whole = tern_again_same(&c->again, n);
        else
            *whole = tern_cat(&c->made[n->out * TERN_CHUNKS], chunks, c->dim);
    }
}

static void record_region(struct tern_chunking *c, int last)
{
    const struct tern_graph *g = c->again.from;
    const int64_t size = g->nodes[last].desc.out.shape[c->dim], chunks = tern_chunk_count(c, &g->nodes[last]);
    int first = 0;
    while (c->region[first] != last)
        first++;
    for (int64_t i = 0; i < chunks; i++)
        record_chunk(c, first, last, (struct chunk){i * size / chunks, (i + 1) * size / chunks, (int)i});
    join(c, first, last, (int)chunks);
}

/* One node of the old graph; those of a region wait for its last. */
static void replay(struct tern_again *again, const struct tern_node *n)
{
    struct tern_chunking *c = (struct tern_chunking *)again; /* its first member */
    const int at = (int)(n - again->from->nodes);
    if (c->region[at] < 0)
        again->map[n->out] = tern_again_same(again, n);
    else if (c->region[at] == at)
        record_region(c, at);
}

/* Nodes of the graph to be, with a slice for each chunk of what is cut. */
static int64_t nodes_to_be(const struct tern_chunking *c)
{
    const struct tern_graph *g = c->again.from;
    int64_t nodes = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_node *n = &g->nodes[i];
        if (n->dead)
            continue;
        nodes++;
        if (c->region[i] < 0)
            continue;
        const int64_t chunks = tern_chunk_count(c, &g->nodes[c->region[i]]);
        nodes += chunks - !c->outside[n->out];
        for (int k = 0; k < n->desc.n_in; k++) {
            const int v = n->in[k];
            const bool inside = v >= 0 && g->values[v].kind == TERN_VALUE_RESULT && c->region[g->values[v].node] == c->region[i];
            nodes += v >= 0 && !inside && tern_chunk_cuts(c, n, k) ? chunks : 0;
        }
    }
    return nodes;
}

static int64_t at_least(int64_t most, size_t bytes, int64_t size, size_t limit)
{
    const size_t of_one = limit ? (bytes + (size_t)size - 1) / (size_t)size : 0;
    const int64_t fit = !of_one ? size : of_one > limit ? 1 : (int64_t)(limit / of_one), chunks = (size + fit - 1) / fit;
    return chunks > most ? chunks : most;
}

/* In how many chunks what is too wide for kernels fits them. */
static int64_t chunks_that_fit(const struct tern_chunking *c)
{
    const struct tern_graph *g = c->again.from;
    const struct tern_device_caps *caps = c->limits->caps;
    int64_t most = 1;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_node *n = &g->nodes[i];
        const int64_t size = n->desc.out.ndim > c->dim ? n->desc.out.shape[c->dim] : 0;
        if (n->dead || size < 2 || !tern_chunk_fits(c, n) || !tern_chunking_must_cut(c, n))
            continue;
        most = at_least(most, tern_meta_bytes(&n->desc.out), size, caps->max_argument);
        most = at_least(most, (size_t)tern_desc_rows(&n->desc), size, (size_t)caps->max_rows);
        for (int k = 0; k < n->desc.n_in; k++)
            if (tern_chunk_cuts(c, n, k))
                most = at_least(most, tern_meta_bytes(&n->desc.in[k]), size, caps->max_argument);
    }
    return most;
}

/* With as many chunks as the limit of nodes leaves; where they have to fit, all or none. More than a cat joins come from another round. */
static bool choose(struct tern_chunking *c)
{
    const int64_t fit = c->limits->caps ? chunks_that_fit(c) : TERN_CHUNKS;
    for (c->most = fit < TERN_CHUNKS ? (int)fit : TERN_CHUNKS; c->most > 1; c->most = c->limits->caps ? 1 : c->most / 2)
        if (!tern_chunking_choose(c))
            return false;
        else if (nodes_to_be(c) * ((fit + TERN_CHUNKS - 1) / TERN_CHUNKS) <= c->limits->nodes)
            return true;
    return false;
}

static enum tern_status along(struct tern_graph *g, const struct tern_chunk_limits *limits, int dim, bool by_row)
{
    const size_t values = (size_t)g->n_values + 1;
    struct tern_chunking c = {.again = {.node = replay}, .limits = limits, .dim = dim, .by_row = by_row};
    enum tern_status st = tern_again_begin(&c.again, g);
    c.region = tern_calloc(g->ctx, (size_t)g->n_nodes + 1, sizeof(*c.region));
    c.outside = tern_calloc(g->ctx, values, sizeof(*c.outside));
    c.end = tern_calloc(g->ctx, values, sizeof(*c.end));
    c.slice = tern_calloc(g->ctx, values, sizeof(*c.slice));
    c.made = tern_calloc(g->ctx, values * TERN_CHUNKS, sizeof(*c.made));
    if (!st && c.region && c.outside && c.end && c.slice && c.made && choose(&c))
        tern_again_record(&c.again, g);
    tern_again_end(&c.again);
    tern_free(g->ctx, c.region);
    tern_free(g->ctx, c.outside);
    tern_free(g->ctx, c.end);
    tern_free(g->ctx, c.slice);
    tern_free(g->ctx, c.made);
    return tern_error_status(g->ctx);
}

enum tern_status tern_chunk_graph(struct tern_graph *g, const struct tern_chunk_limits *limits)
{
    enum tern_status st = along(g, limits, 0, false);
    if (!st)
        st = along(g, limits, 1, true);
    return st ? st : along(g, limits, 0, true);
}

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    /* With 4096 rows reading weights again is about a hundredth of the work. A plan that is kept on disk has a limit of nodes, and later
     * passes add some. */
    static const struct tern_chunk_limits limits = {
        .large = (size_t)1 << 20, .picture_rows = 4096, .rows = 1024, .rows_of_chunk = 2048, .nodes = TERN_FILE_NODES / 4 * 3};
    const struct tern_device_caps *caps = &g->ctx->device->caps;
    enum tern_status st = caps->merges || params->resident ? TERN_OK : tern_chunk_graph(g, &limits);
    if (!st && (caps->max_argument || caps->max_rows)) {
        const struct tern_chunk_limits wide = {.caps = caps, .picture_rows = 1, .rows = 1, .rows_of_chunk = 1, .nodes = limits.nodes};
        for (int i = 0, before = -1; !st && i < ROUNDS && g->n_nodes != before; i++) {
            before = g->n_nodes;
            st = tern_chunk_graph(g, &wide);
        }
    }
    return st;
}

const struct tern_pass tern_pass_chunk = {"chunk", run, .revision = 2};

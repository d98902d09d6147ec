/* Algorithms: nodes for which another kernel than that of an eager call is the fastest, by what was measured or by the cost model. Kernels
 * that only plans choose round otherwise, and may want more memory for prepared weights: that has to pay, and under a limit those come
 * first that do most work for each byte. */
#include <stdlib.h>

#include "core/context.h"
#include "graph/passes/passes.h"

/* Memory pays where so many operations are done with each byte, which for weights is a matter of how many pixels they meet. SD 1.5 at 512 x
 * 512 has 1170 at 64 x 64 pixels (batch 2), 290 at 32 x 32, 73 at 16 x 16, where Winograd's weights would be 2.7 GB to save 7 % of a step. */
#define WORTH 128.0
#define SMALL ((size_t)16 << 20) /* bytes that are always worth it */

/* A node that would take such a kernel. */
struct candidate {
    const struct tern_kernel *kernel;
    int node, weight;
    size_t extra; /* bytes that its weight takes more than the eager kernel's form of it */
    double flops, worth;
    int first; /* number of the candidate that stands for it: the first of its weight */
    bool taken;
};

static size_t packed_size(const struct tern_graph *g, const struct tern_kernel *k, const struct tern_op_desc *d)
{
    return k && k->pack ? k->packed_size(g->ctx, d) : 0;
}

/* Of two pictures, however many there are: picture i of a batch has the bits of a run alone. */
static double flops_of_pair(const struct tern_op_desc *d)
{
    double flops = tern_desc_flops(d);
    return d->out.ndim == 4 && d->out.shape[0] ? 2 * flops / (double)d->out.shape[0] : flops;
}

static int find_candidates(const struct tern_graph *g, struct candidate *list)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_op_desc *d = &g->nodes[i].desc;
        if (g->nodes[i].dead || g->nodes[i].prepare || g->nodes[i].kind != TERN_CALL_LAUNCH)
            continue;
        const struct tern_kernel *eager = tern_kernel_choose(g->ctx, g->ctx->device, d);
        const struct tern_kernel *k = g->nodes[i].tuned ? g->nodes[i].tuned : tern_kernel_choose_planned(g->ctx, g->ctx->device, d);
        if (!k || k == eager)
            continue;
        size_t size = packed_size(g, k, d), usual = packed_size(g, eager, d);
        list[n++] = (struct candidate){.kernel = k,
                                       .node = i,
                                       .weight = k->pack ? g->nodes[i].in[k->pack_input] : -1,
                                       .extra = size > usual ? size - usual : 0,
                                       .flops = flops_of_pair(d)};
    }
    return n;
}

/* Nodes of one weight share its prepared form: the first one stands for all, with the work of all. */
static void join(const struct tern_graph *g, struct candidate *list, int n, int *first)
{
    for (int i = 0; i < g->n_values; i++)
        first[i] = -1;
    for (int i = 0; i < n; i++) {
        const int w = list[i].weight;
        list[i].first = w < 0 ? i : first[w] < 0 ? (first[w] = i) : first[w];
        if (list[i].first != i)
            list[list[i].first].flops += list[i].flops;
    }
    for (int i = 0; i < n; i++)
        list[i].worth = list[i].flops / ((double)list[i].extra + 1);
}

/* Those that stand for others only, worth most first; of equal ones the earlier. */
static int order(const void *a, const void *b)
{
    const struct candidate *x = *(const struct candidate *const *)a, *y = *(const struct candidate *const *)b;
    if (x->worth > y->worth || x->worth < y->worth)
        return x->worth > y->worth ? -1 : 1;
    return x < y ? -1 : x > y;
}

static int find_worthy(struct candidate *list, int n, struct candidate **worthy)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        if (list[i].first == i && (list[i].extra <= SMALL || list[i].worth >= WORTH))
            worthy[count++] = &list[i];
    if (count)
        qsort(worthy, (size_t)count, sizeof(*worthy), order);
    return count;
}

static void take(struct tern_graph *g, struct candidate *list, int n, struct candidate **worthy, size_t room)
{
    const int count = find_worthy(list, n, worthy);
    for (int i = 0; i < count; i++)
        if (worthy[i]->extra <= room) {
            worthy[i]->taken = true;
            room -= worthy[i]->extra;
        }
    for (int i = 0; i < n; i++)
        if (list[list[i].first].taken)
            g->nodes[list[i].node].kernel = list[i].kernel;
}

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    struct candidate *list = tern_calloc(g->ctx, (size_t)g->n_nodes + 1, sizeof(*list));
    struct candidate **worthy = tern_calloc(g->ctx, (size_t)g->n_nodes + 1, sizeof(*worthy));
    int *first = tern_calloc(g->ctx, (size_t)g->n_values + 1, sizeof(*first));
    if (list && worthy && first) {
        const int n = find_candidates(g, list);
        join(g, list, n, first);
        take(g, list, n, worthy, params->algorithm_bytes ? params->algorithm_bytes : SIZE_MAX);
    }
    tern_free(g->ctx, list);
    tern_free(g->ctx, worthy);
    tern_free(g->ctx, first);
    return tern_error_status(g->ctx);
}

const struct tern_pass tern_pass_algorithm = {"algorithm", run};

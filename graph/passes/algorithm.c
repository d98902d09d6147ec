/* Algorithms: nodes for which another kernel than that of an eager call is the fastest, by what was measured or by the cost model. Kernels
 * that only plans choose round otherwise, and may want more memory for prepared weights: that has to pay, and under a limit those come
 * first that do most work for each byte. */
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
    double flops;
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

/* Nodes of one weight share its prepared form: the first one stands for all. */
static bool is_first(const struct candidate *list, int at)
{
    for (int i = 0; i < at && list[at].weight >= 0; i++)
        if (list[i].weight == list[at].weight)
            return false;
    return true;
}

static double flops_of(const struct candidate *list, int n, int first)
{
    double flops = 0;
    for (int i = first; i < n; i++)
        flops += i == first || (list[i].weight >= 0 && list[i].weight == list[first].weight) ? list[i].flops : 0;
    return flops;
}

/* The weight, by its first node, that fits and is worth most; -1: none. */
static int best_of(const struct candidate *list, int n, size_t room)
{
    int best = -1;
    double most = 0;
    for (int i = 0; i < n; i++) {
        if (list[i].taken || list[i].extra > room || !is_first(list, i))
            continue;
        double worth = flops_of(list, n, i) / ((double)list[i].extra + 1);
        if (list[i].extra > SMALL && worth < WORTH)
            continue;
        if (best < 0 || worth > most) {
            best = i;
            most = worth;
        }
    }
    return best;
}

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    struct candidate *list = tern_calloc(g->ctx, (size_t)g->n_nodes + 1, sizeof(*list));
    size_t room = params->algorithm_bytes ? params->algorithm_bytes : SIZE_MAX;
    int n = list ? find_candidates(g, list) : 0;
    for (int best; (best = best_of(list, n, room)) >= 0; room -= list[best].extra)
        for (int i = 0; i < n; i++)
            if (i == best || (list[best].weight >= 0 && list[i].weight == list[best].weight)) {
                list[i].taken = true;
                g->nodes[list[i].node].kernel = list[i].kernel;
            }
    tern_free(g->ctx, list);
    return tern_error_status(g->ctx);
}

const struct tern_pass tern_pass_algorithm = {"algorithm", run};

/* A feed-forward layer with its gates is a linear layer and a product again where a vendor's library has the linear layer, and our own
 * kernel alone has both. What the pass `quantize` has made of it stays whole. */
#include "ops/pieces.h"

#include "core/context.h"
#include "graph/passes/again.h"
#include "graph/passes/passes.h"

/* Kernels of devices where launches are dear have costs that say no more than which one goes before the other. */
static bool wants_pieces(const struct tern_graph *g, const struct tern_node *n)
{
    struct tern_device *device = g->ctx->device;
    if (n->dead || n->kind != TERN_CALL_LAUNCH || n->desc.op != TERN_OP_linear_geglu)
        return false;
    struct tern_op_desc linear = n->desc;
    linear.op = TERN_OP_linear;
    linear.out.shape[linear.out.ndim - 1] *= 2;
    tern_meta_contiguous(&linear.out);
    if (device->caps.uniform_bias && linear.n_in > 2 && linear.present[2] && tern_dtype_size(linear.in[0].dtype) == 2)
        linear.in[2].dtype = linear.in[0].dtype; /* tern_op_call casts it */
    const struct tern_kernel *whole = tern_kernel_choose(g->ctx, device, &n->desc), *part = tern_kernel_choose(g->ctx, device, &linear);
    return whole && part && tern_kernel_cost(device, part, &linear) < tern_kernel_cost(device, whole, &n->desc);
}

static void record(struct tern_again *again, const struct tern_node *n)
{
    tern_tensor *in[TERN_MAX_INPUTS] = {NULL};
    for (int k = 0; k < n->desc.n_in; k++)
        in[k] = n->in[k] >= 0 ? again->map[n->in[k]] : NULL;
    again->map[n->out] = wants_pieces(again->from, n) ? tern_linear_geglu_pieces(in, n->desc.n_in) : tern_again_same(again, n);
}

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    (void)params;
    bool any = false;
    for (int i = 0; g->ctx->device->caps.merges && i < g->n_nodes; i++)
        any = any || wants_pieces(g, &g->nodes[i]);
    struct tern_again again = {.node = record};
    if (any && tern_again_begin(&again, g) == TERN_OK)
        tern_again_record(&again, g);
    if (any)
        tern_again_end(&again);
    return tern_error_status(g->ctx);
}

const struct tern_pass tern_pass_pieces = {"pieces", run};

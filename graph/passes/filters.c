/* Filters are laid out as pictures are, all channels of a tap together: kernels that read them as they are given then read several at once,
 * and matrix units take no others. A copy for each binding, which the prepare graph makes. Kernels of CPUs pack filters themselves. */
#include <tern/ops.h>

#include "core/context.h"
#include "graph/passes/passes.h"
#include "graph/passes/weights.h"

static bool wants(const struct tern_graph *g, const struct tern_node *n)
{
    if (n->desc.op != TERN_OP_conv2d || tern_meta_is_channels_last(&n->desc.in[1]) || !tern_meta_is_channels_last(&n->desc.in[0]))
        return false;
    struct tern_op_desc d = n->desc;
    tern_meta_channels_last(&d.in[1]);
    const struct tern_kernel *k = tern_kernel_choose(g->ctx, g->ctx->device, &d);
    return k && !k->pack;
}

static tern_tensor *make(tern_tensor *filter, const struct tern_node *n)
{
    (void)n;
    return tern_contiguous(filter, TERN_CHANNELS_LAST);
}

static bool serves(const tern_tensor *made, const struct tern_node *n) { return true; }

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    static const struct tern_weight_form form = {wants, make, serves};
    (void)params;
    return tern_reform_weights(g, &form);
}

const struct tern_pass tern_pass_filters = {"filters", run};

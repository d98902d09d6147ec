/* Weights in another dtype than what they meet are cast to it, by the prepare graph: matrix units and vendors' libraries multiply values of
 * one dtype alone, and wider ones take more of a device's memory. Kernels of CPUs make that of them as they pack. What computes in f32 does
 * so of weights as the file has them. */
#include <tern/ops.h>

#include "core/context.h"
#include "graph/passes/passes.h"
#include "graph/passes/weights.h"

static bool is_half(enum tern_dtype t) { return t == TERN_F16 || t == TERN_BF16; }

static bool wants(const struct tern_graph *g, const struct tern_node *n)
{
    const enum tern_op op = n->desc.op;
    const enum tern_dtype x = n->desc.in[0].dtype, w = n->desc.in[1].dtype;
    const struct tern_device_caps *caps = &g->ctx->device->caps;
    if (!caps->uniform_weights && (caps->host_memory || tern_dtype_size(w) <= tern_dtype_size(x)))
        return false;
    if (!is_half(x) || x == w || !tern_dtype_is_float(w) || (op != TERN_OP_conv2d && op != TERN_OP_linear && op != TERN_OP_linear_geglu))
        return false;
    struct tern_op_desc d = n->desc;
    d.in[1].dtype = x;
    const struct tern_kernel *k = tern_kernel_choose(g->ctx, g->ctx->device, &d);
    return k && !k->pack;
}

static tern_tensor *make(tern_tensor *weight, const struct tern_node *n) { return tern_cast(weight, n->desc.in[0].dtype); }

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    static const struct tern_weight_form form = {wants, make};
    (void)params;
    return tern_reform_weights(g, &form);
}

const struct tern_pass tern_pass_dtypes = {"dtypes", run};

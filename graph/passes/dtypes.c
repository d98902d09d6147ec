/* Weights in another dtype than what they meet are cast to it: matrix units and vendors' libraries multiply values of one dtype alone, and
 * wider ones take more of a device's memory. To f16 and bf16 once for each binding, by the prepare graph. To f32, where a library then is
 * better, at each run, since it would take twice the memory (the pass `prepare`). Kernels of CPUs make that of them as they pack. */
#include <tern/ops.h>

#include "core/context.h"
#include "graph/passes/passes.h"
#include "graph/passes/weights.h"

/* Fewer rows (pixels) multiply a weight in less time than it takes to cast it: 10 bytes of memory an element, 2 operations a row. */
#define ROWS_OF_A_CAST 256

static bool is_half(enum tern_dtype t) { return t == TERN_F16 || t == TERN_BF16; }

static bool wants(const struct tern_graph *g, const struct tern_node *n)
{
    struct tern_device *device = g->ctx->device;
    const enum tern_dtype x = n->desc.in[0].dtype, w = n->desc.in[1].dtype;
    if (x == w || !tern_dtype_is_float(x) || !tern_dtype_is_float(w) || !tern_is_layer(n->desc.op))
        return false;
    struct tern_op_desc d = n->desc;
    d.in[1].dtype = x;
    const struct tern_kernel *k = tern_kernel_choose(g->ctx, device, &d), *own = tern_kernel_choose(g->ctx, device, &n->desc);
    if (!k || k->pack)
        return false;
    if (is_half(x))
        return device->caps.uniform_weights || tern_dtype_size(w) > tern_dtype_size(x);
    return tern_desc_rows(&d) >= ROWS_OF_A_CAST && own && tern_kernel_cost(device, k, &d) < tern_kernel_cost(device, own, &n->desc);
}

static tern_tensor *make(tern_tensor *weight, const struct tern_node *n) { return tern_cast(weight, n->desc.in[0].dtype); }

static bool serves(const tern_tensor *made, const struct tern_node *n) { return made->meta.dtype == n->desc.in[0].dtype; }

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    static const struct tern_weight_form form = {wants, make, serves};
    (void)params;
    return g->ctx->device->caps.host_memory ? TERN_OK : tern_reform_weights(g, &form);
}

const struct tern_pass tern_pass_dtypes = {"dtypes", run};

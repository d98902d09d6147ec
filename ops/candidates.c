/* The kernels of an op, by name, and forcing one of them: what benches and tests of an application need.
 * How a forced kernel is kept and used: dispatch.c, select.c. */
#include <tern/ops.h>

#include "core/context.h"
#include "ops/dispatch.h"

const char *tern_op_kernel(const struct tern_context *ctx, const char *op, int i)
{
    enum tern_op wanted = op ? tern_op_find(op) : TERN_OP_COUNT;
    if (!ctx || wanted == TERN_OP_COUNT || i < 0)
        return NULL;
    for (int k = 0; ctx->device->kernels[k]; k++)
        if (ctx->device->kernels[k]->op == wanted && i-- == 0)
            return ctx->device->kernels[k]->name;
    return NULL;
}

enum tern_status tern_op_force(struct tern_context *ctx, const char *kernel)
{
    return ctx ? tern_dispatch_force(ctx, kernel) : TERN_E_INVALID;
}

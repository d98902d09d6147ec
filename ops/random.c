/* rand and randn: value i is a function of seed, offset and i alone (ops/philox.h). The offset counts draws: it is the
 * offset of PyTorch's CUDA generator divided by 4. */
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/philox.h"
#include "ops/reference.h"
#include "ops/rules.h"

/* rand and randn have the same attributes. */
_Static_assert(sizeof(struct tern_rand_attrs) == sizeof(struct tern_randn_attrs), "rand and randn share their attributes");

static enum tern_status shape_rule(struct tern_context *ctx, struct tern_op_desc *d)
{
    const struct tern_rand_attrs *p = &d->attrs.rand;
    if (p->shape_n < 0 || p->shape_n > TERN_MAX_DIMS)
        return tern_fail(ctx, TERN_E_INVALID, "%s: %lld dimensions were given: expected 0..%d", tern_rule_op(d), (long long)p->shape_n,
                         TERN_MAX_DIMS);
    return tern_rule_out(ctx, d, TERN_F32, (int)p->shape_n, p->shape);
}

enum tern_status tern_shape_rand(struct tern_context *ctx, struct tern_op_desc *d) { return shape_rule(ctx, d); }
enum tern_status tern_shape_randn(struct tern_context *ctx, struct tern_op_desc *d) { return shape_rule(ctx, d); }

static void run(const struct tern_kernel_args *a, float (*value)(uint64_t seed, uint64_t offset, uint64_t i))
{
    const struct tern_rand_attrs *p = &a->desc->attrs.rand;
    int64_t n = tern_meta_numel(&a->desc->out);
    for (int64_t i = 0; i < n; i++)
        tern_out(a, tern_meta_offset(&a->desc->out, i), (double)value((uint64_t)p->seed, (uint64_t)p->offset, (uint64_t)i));
}

void tern_ref_rand(const struct tern_kernel_args *a) { run(a, tern_philox_uniform); }
void tern_ref_randn(const struct tern_kernel_args *a) { run(a, tern_philox_normal); }

static tern_tensor *call(struct tern_context *ctx, enum tern_op op, int ndim, const int64_t *shape, uint64_t seed, uint64_t offset)
{
    union tern_op_attrs attrs = {.rand = {.shape_n = ndim, .seed = (int64_t)seed, .offset = (int64_t)offset}};
    if (!tern_ndim_fits(ctx, tern_op_get(op).name, ndim, shape))
        return NULL;
    for (int i = 0; i < ndim; i++)
        attrs.rand.shape[i] = shape[i];
    return tern_op_call(ctx, op, NULL, 0, &attrs);
}

tern_tensor *tern_rand(struct tern_context *ctx, int ndim, const int64_t *shape, uint64_t seed, uint64_t offset)
{
    return call(ctx, TERN_OP_rand, ndim, shape, seed, offset);
}

tern_tensor *tern_randn(struct tern_context *ctx, int ndim, const int64_t *shape, uint64_t seed, uint64_t offset)
{
    return call(ctx, TERN_OP_randn, ndim, shape, seed, offset);
}

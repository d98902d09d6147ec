/* A device for tests of `tern conformance`: the CPU with kernels of its own, one right, the others broken on purpose. With the list
 * of backends, in place of that in backends/backends.c. */
#include "core/context.h"
#include "core/registry.h"
#include "ops/kernel.h"

extern const struct tern_backend tern_backend_cpu, tern_backend_null, far_backend;

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    bool plain = d->out.dtype == TERN_F32 && tern_meta_is_contiguous(&d->out);
    for (int i = 0; i < d->n_in; i++)
        plain = plain && d->in[i].dtype == TERN_F32 && tern_meta_is_contiguous(&d->in[i]) && tern_meta_same_shape(&d->in[i], &d->out);
    return plain;
}

static float *operand(const struct tern_kernel_args *a, int i) { return tern_arg_host(&a->in[i]); }

static enum tern_status run_sub(const struct tern_kernel_args *a)
{
    float *y = tern_arg_host(&a->out);
    for (int64_t i = 0; i < tern_meta_numel(&a->desc->out); i++)
        y[i] = operand(a, 0)[i] - operand(a, 1)[i];
    return TERN_OK;
}

/* One element is off. */
static enum tern_status run_add(const struct tern_kernel_args *a)
{
    float *y = tern_arg_host(&a->out);
    for (int64_t i = 0; i < tern_meta_numel(&a->desc->out); i++)
        y[i] = operand(a, 0)[i] + operand(a, 1)[i] + (i == 3 ? 0.5f : 0.0f);
    return TERN_OK;
}

/* Right, and one element too many. */
static enum tern_status run_mul(const struct tern_kernel_args *a)
{
    float *y = tern_arg_host(&a->out);
    int64_t n = tern_meta_numel(&a->desc->out);
    for (int64_t i = 0; i < n; i++)
        y[i] = operand(a, 0)[i] * operand(a, 1)[i];
    y[n] = 0;
    return TERN_OK;
}

/* Writes nothing: what was in memory before is the result. */
static enum tern_status run_nothing(const struct tern_kernel_args *a) { return TERN_OK; }

static enum tern_status run_error(const struct tern_kernel_args *a) { return tern_fail(a->ctx, TERN_E_DEVICE, "the device is lost"); }

static const struct tern_kernel sub_right = {.name = "sub_right", .op = TERN_OP_sub, .supports = supports, .run = run_sub};
static const struct tern_kernel add_wrong = {.name = "add_wrong", .op = TERN_OP_add, .supports = supports, .run = run_add};
static const struct tern_kernel mul_outside = {.name = "mul_outside", .op = TERN_OP_mul, .supports = supports, .run = run_mul};
static const struct tern_kernel abs_nothing = {.name = "abs_nothing", .op = TERN_OP_abs, .supports = supports, .run = run_nothing};
static const struct tern_kernel exp_lost = {.name = "exp_lost", .op = TERN_OP_exp, .supports = supports, .run = run_error};
static const struct tern_kernel *const kernels[] = {&sub_right, &add_wrong, &mul_outside, &abs_nothing, &exp_lost, NULL};

static struct tern_device *create(struct tern_context *ctx, int ordinal)
{
    struct tern_device *d = tern_backend_cpu.create(ctx, ordinal);
    if (d) {
        d->name = "broken";
        d->level = NULL;
        d->kernels = kernels;
    }
    return d;
}

static const struct tern_backend broken = {"broken", create};
const struct tern_backend *const tern_backends[] = {&tern_backend_cpu, &tern_backend_null, &broken, &far_backend, NULL};

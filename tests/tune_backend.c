/* Kernels that are as a test wants them, and the list of backends with their device, in place of that in backends/backends.c. */
#include "tune_backend.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "core/context.h"
#include "core/registry.h"

extern const struct tern_backend tern_backend_cpu, tern_backend_null;

struct trial trials[TRIAL_COUNT];
const char *const trial_names[TRIAL_COUNT] = {"abs_usual", "abs_other", "abs_dear", "neg_usual", "neg_other"};

void trials_reset(void) { memset(trials, 0, sizeof(trials)); }

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return d->in[0].dtype == TERN_F32 && tern_meta_is_contiguous(&d->in[0]) && tern_meta_is_contiguous(&d->out);
}

static enum tern_status run(const struct tern_kernel_args *a, enum trial_kernel k)
{
    const float *x = tern_arg_host(&a->in[0]);
    float *y = tern_arg_host(&a->out);
    __atomic_add_fetch(&trials[k].calls, 1, __ATOMIC_RELAXED);
    if (trials[k].fails)
        return tern_fail(a->ctx, TERN_E_DEVICE, "%s fails", trial_names[k]);
    if (trials[k].seconds > 0)
        nanosleep(&(struct timespec){0, (long)(trials[k].seconds * 1e9)}, NULL);
    for (int64_t i = 0; i < tern_meta_numel(&a->desc->out); i++)
        y[i] = k >= TRIAL_NEG ? -x[i] : fabsf(x[i]);
    return TERN_OK;
}

#define TRIAL(k, number, price)                                                                              \
    static enum tern_status run_##k(const struct tern_kernel_args *a) { return run(a, number); }             \
    static double cost_##k(const struct tern_device *device, const struct tern_op_desc *d) { return price; } \
    static uint64_t library_##k(struct tern_device *device) { return trials[number].library; }               \
    static size_t workspace_##k(struct tern_context *ctx, const struct tern_op_desc *d) { return trials[number].workspace; }
TRIAL(usual, TRIAL_USUAL, 1)
TRIAL(other, TRIAL_OTHER, 2)
TRIAL(dear, TRIAL_DEAR, 8)
TRIAL(neg, TRIAL_NEG, 1)
TRIAL(neg_other, TRIAL_NEG_OTHER, 2)

#define KERNEL(k, kernel_op, title)                                                                                                 \
    {                                                                                                                               \
        .name = title, .op = kernel_op, .library = library_##k, .cost = cost_##k, .supports = supports, .workspace = workspace_##k, \
        .run = run_##k                                                                                                              \
    }
static const struct tern_kernel all[] = {KERNEL(usual, TERN_OP_abs, "abs_usual"), KERNEL(other, TERN_OP_abs, "abs_other"),
                                         KERNEL(dear, TERN_OP_abs, "abs_dear"), KERNEL(neg, TERN_OP_neg, "neg_usual"),
                                         KERNEL(neg_other, TERN_OP_neg, "neg_other")};
static const struct tern_kernel *const kernels[] = {&all[0], &all[1], &all[2], &all[3], &all[4], NULL};

static struct tern_device *create(struct tern_context *ctx, int ordinal)
{
    struct tern_device *d = tern_backend_cpu.create(ctx, ordinal);
    if (d) {
        d->name = "trial";
        d->level = NULL;
        d->kernels = kernels;
    }
    return d;
}

static const struct tern_backend backend = {"trial", create};
const struct tern_backend *const tern_backends[] = {&tern_backend_cpu, &backend, &tern_backend_null, NULL};

/* How a call becomes a launch: layout of the result, choice of the kernel, preparation of its inputs. */
#ifndef TERN_OPS_DISPATCH_H
#define TERN_OPS_DISPATCH_H

#include "ops/kernel.h"

/* Makes the dispatcher use the kernel of that name wherever its op is called ("reference": the op's reference;
 * NULL: back to choosing). For tests, benches and the tuner. A forced kernel that does not support a call is an error. */
enum tern_status tern_dispatch_force(struct tern_context *ctx, const char *kernel);

/* Makes what the first call of an op would make, so that it is there when memory is counted. */
enum tern_status tern_dispatch_prepare(struct tern_context *ctx);

/* Number of launches of `op` so far by kernels of `name` (NULL: any); for tests and profiles. */
uint64_t tern_dispatch_count(const struct tern_context *ctx);

/* The kernel of the device for that description; NULL when none supports it. Kernels that only plans choose are left out unless
 * forced. */
const struct tern_kernel *tern_kernel_choose(struct tern_context *ctx, struct tern_device *device, const struct tern_op_desc *d);
/* The same with the kernels that only plans choose. */
const struct tern_kernel *tern_kernel_choose_planned(struct tern_context *ctx, struct tern_device *device, const struct tern_op_desc *d);
/* The kernels that support the description, the cheapest first, of equal ones the one that the device lists first; how many. within: only
 * those that cost at most so many times what the cheapest does (the others are not asked, so that no library is opened); 0: all. */
struct tern_candidate {
    const struct tern_kernel *kernel;
    double cost;
};
int tern_kernel_candidates(struct tern_device *device, const struct tern_op_desc *d, double within, struct tern_candidate *list, int most);
const struct tern_kernel *tern_kernel_find(const struct tern_device *device, const char *name);

/* What happens to a call that is recorded. */
enum tern_call_kind {
    TERN_CALL_LAUNCH,    /* a kernel of the device */
    TERN_CALL_REFERENCE, /* the op's reference on the host */
    TERN_CALL_VIEW,      /* nothing: another meta over in[0], `offset` elements behind its start */
    TERN_CALL_JOIN       /* nothing: a cat whose inputs were made in their places of it; never recorded, a pass says so */
};

/* While the context has one, calls are handed to it instead of being run. The output it returns has the desc's meta. */
struct tern_recorder {
    tern_tensor *(*record)(struct tern_recorder *r, enum tern_call_kind kind, const struct tern_op_desc *d, tern_tensor *const *in,
                           int64_t offset);
};

/* The packed form of a constant tensor that a kernel wants: made at the first use, kept by the tensor. Borrowed; NULL with
 * the error recorded. Thread safe. */
struct tern_buffer *tern_packed_form(struct tern_context *ctx, struct tern_device *device, const struct tern_kernel *k,
                                     const struct tern_op_desc *d, tern_tensor *t);

/* Gives the output the memory format that its inputs have (or that the device prefers). out's shape is set. */
void tern_choose_format(const struct tern_device *device, struct tern_op_desc *d);

#endif

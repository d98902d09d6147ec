/* One kernel, called as the dispatcher would. */
#ifndef TERN_TESTS_KERNEL_HELP_H
#define TERN_TESTS_KERNEL_HELP_H

#include "core/tensor.h"
#include "ops/kernel.h"

/* Inputs of d, posts' behind them, are in[]; the weight, in[1], is a constant, which the kernel may pack. d has its op, attrs, posts and
 * output. The kernel that is chosen has this name. The result is of the scope. */
tern_tensor *kernel_run(struct tern_context *ctx, struct tern_op_desc *d, tern_tensor *const *in, const char *name);
void kernel_post(struct tern_op_desc *d, enum tern_op op, int input);

#endif

/* The list of the CPU's kernels. */
#include "backends/cpu/kernels.h"

const struct tern_kernel *const cpu_kernels[] = {
#define KERNEL(symbol) &symbol,
#include "backends/cpu/kernels.def"
#undef KERNEL
    NULL};

/* The lists of the CPU's kernels. */
#include "backends/cpu/kernels.h"

#define KERNEL(symbol) &symbol,

#define KERNEL_BF16(symbol)
#define KERNEL_I16(symbol)
#define KERNEL_I8_ATTENTION(symbol)
#define KERNEL_BF16X3(symbol)
const struct tern_kernel *const tern_cpu_kernels[] = {
#include "backends/cpu/kernels.def"
    NULL};
#undef KERNEL_BF16

#define KERNEL_BF16(symbol) &symbol,
const struct tern_kernel *const tern_cpu_kernels_bf16[] = {
#include "backends/cpu/kernels.def"
    NULL};
#undef KERNEL_I16
#undef KERNEL_I8_ATTENTION

#define KERNEL_I16(symbol) &symbol,
#define KERNEL_I8_ATTENTION(symbol) &symbol,
const struct tern_kernel *const tern_cpu_kernels_i8_attention[] = {
#include "backends/cpu/kernels.def"
    NULL};
#undef KERNEL_BF16X3

#define KERNEL_BF16X3(symbol) &symbol,
const struct tern_kernel *const tern_cpu_kernels_bf16x3[] = {
#include "backends/cpu/kernels.def"
    NULL};

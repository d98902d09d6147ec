/* The kernels of the CPU, one declaration a row of kernels.def. */
#ifndef TERN_BACKENDS_CPU_KERNELS_H
#define TERN_BACKENDS_CPU_KERNELS_H

#include "backends/cpu/cpu.h"

#define KERNEL(symbol) extern const struct tern_kernel symbol;
#define KERNEL_BF16(symbol) KERNEL(symbol)
#define KERNEL_I16(symbol) KERNEL(symbol)
#define KERNEL_I8_ATTENTION(symbol) KERNEL(symbol)
#define KERNEL_BF16X3(symbol) KERNEL(symbol)
#include "backends/cpu/kernels.def"
#undef KERNEL_BF16X3
#undef KERNEL_I8_ATTENTION
#undef KERNEL_I16
#undef KERNEL_BF16
#undef KERNEL

#endif

/* CLBlast as a candidate for products: what is used of it, as clblast_c.h publishes it. tests/clblast_types.c compares them. */
#ifndef TERN_BACKENDS_OPENCL_CLBLAST_H
#define TERN_BACKENDS_OPENCL_CLBLAST_H

#include "backends/opencl/opencl.h"

/* clang-format off */
#define CLBLAST_VALUES(V) \
    V(CLBlastSuccess, 0) V(CLBlastOpenCLCompilerNotAvailable, -3) V(CLBlastTempBufferAllocFailure, -4) V(CLBlastOpenCLOutOfResources, -5) \
    V(CLBlastOpenCLOutOfHostMemory, -6) V(CLBlastOpenCLBuildProgramFailure, -11) V(CLBlastInvalidLocalThreadsTotal, -54) \
    V(CLBlastInvalidLocalThreadsDim, -55) V(CLBlastInvalidLocalMemUsage, -2046) V(CLBlastDatabaseError, -2041) \
    V(CLBlastLayoutRowMajor, 101) V(CLBlastTransposeNo, 111) V(CLBlastTransposeYes, 112)

#define CLBLAST_FUNCTIONS(F) \
    F(CLBlastSGemmTempBufferSize, (CLBlastLayout layout, CLBlastTranspose a_transpose, CLBlastTranspose b_transpose, size_t m, size_t n, \
        size_t k, size_t a_offset, size_t a_ld, size_t b_offset, size_t b_ld, size_t y_offset, size_t y_ld, cl_command_queue *queue, size_t *size)) \
    F(CLBlastSgemmWithTempBuffer, (CLBlastLayout layout, CLBlastTranspose a_transpose, CLBlastTranspose b_transpose, size_t m, size_t n, \
        size_t k, float alpha, cl_mem a, size_t a_offset, size_t a_ld, cl_mem b, size_t b_offset, size_t b_ld, float beta, cl_mem y, \
        size_t y_offset, size_t y_ld, cl_command_queue *queue, cl_event *event, cl_mem temporary)) \
    F(CLBlastSgemmStridedBatched, (CLBlastLayout layout, CLBlastTranspose a_transpose, CLBlastTranspose b_transpose, size_t m, size_t n, \
        size_t k, float alpha, cl_mem a, size_t a_offset, size_t a_ld, size_t a_stride, cl_mem b, size_t b_offset, size_t b_ld, \
        size_t b_stride, float beta, cl_mem y, size_t y_offset, size_t y_ld, size_t y_stride, size_t batch, cl_command_queue *queue, \
        cl_event *event)) \
    F(CLBlastClearCache, (void))
/* clang-format on */

#ifndef CLBLAST_CLBLAST_C_H_ /* clblast_c.h was not included before */
typedef int CLBlastStatusCode, CLBlastLayout, CLBlastTranspose;
#define VALUE(name, value) name = value,
enum { CLBLAST_VALUES(VALUE) };
#undef VALUE
#endif

struct clblast_api {
#define MEMBER(name, arguments) CLBlastStatusCode(*name) arguments;
    CLBLAST_FUNCTIONS(MEMBER)
#undef MEMBER
};

#endif

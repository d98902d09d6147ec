/* A stand-in for CLBlast whose products fail with the code in TERN_STANDIN_CLBLAST, and whose memory for large ones is 1 KiB. */
#include <stdlib.h>

#define CL_TARGET_OPENCL_VERSION 120
#include "backends/opencl/clblast.h"

#define DECLARE(name, arguments) __attribute__((visibility("default"))) CLBlastStatusCode name arguments;
CLBLAST_FUNCTIONS(DECLARE)
#undef DECLARE

static CLBlastStatusCode code(void) { return atoi(getenv("TERN_STANDIN_CLBLAST")); }

CLBlastStatusCode CLBlastSGemmTempBufferSize(CLBlastLayout layout, CLBlastTranspose a_transpose, CLBlastTranspose b_transpose, size_t m,
                                             size_t n, size_t k, size_t a_offset, size_t a_ld, size_t b_offset, size_t b_ld,
                                             size_t y_offset, size_t y_ld, cl_command_queue *queue, size_t *size)
{
    *size = m >= 16 ? 1024 : 0;
    return CLBlastSuccess;
}

CLBlastStatusCode CLBlastSgemmWithTempBuffer(CLBlastLayout layout, CLBlastTranspose a_transpose, CLBlastTranspose b_transpose, size_t m,
                                             size_t n, size_t k, float alpha, cl_mem a, size_t a_offset, size_t a_ld, cl_mem b,
                                             size_t b_offset, size_t b_ld, float beta, cl_mem y, size_t y_offset, size_t y_ld,
                                             cl_command_queue *queue, cl_event *event, cl_mem temporary)
{
    return code();
}

CLBlastStatusCode CLBlastSgemmStridedBatched(CLBlastLayout layout, CLBlastTranspose a_transpose, CLBlastTranspose b_transpose, size_t m,
                                             size_t n, size_t k, float alpha, cl_mem a, size_t a_offset, size_t a_ld, size_t a_stride,
                                             cl_mem b, size_t b_offset, size_t b_ld, size_t b_stride, float beta, cl_mem y, size_t y_offset,
                                             size_t y_ld, size_t y_stride, size_t batch, cl_command_queue *queue, cl_event *event)
{
    return code();
}

CLBlastStatusCode CLBlastClearCache(void) { return CLBlastSuccess; }

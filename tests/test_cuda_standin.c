/* The stand-in driver itself: each kind of misuse is caught, and what is right is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>

#include "cuda_help.h"

static struct cuda_api cu;
static CUcontext context;
static CUstream streams[2];
static CUevent event;
static CUdeviceptr memory;
static CUmemoryPool pool;
enum { BYTES = 4096 };

/* y[i] = x[i] + P.add through shared memory, 64 items a block. */
static const char text[] = "extern \"C\" __global__ void __launch_bounds__(64) tern_kernel(const struct P p, const float *__restrict__ x, "
                           "float *__restrict__ y)\n{\n    __shared__ float part[64];\n    part[threadIdx.x] = x[threadIdx.x];\n"
                           "    __syncthreads();\n    y[threadIdx.x + p.to] = part[63 - threadIdx.x] + p.add;\n}\n";
struct params {
    float add;
    int to;
};
static CUmodule module;
static CUfunction function;

static void expect(const char *part)
{
    char found[400];
    cuda.standin_misuses(found, sizeof(found));
    if (!strstr(found, part))
        fail_msg("expected a misuse with \"%s\", found \"%s\"", part, found);
    cuda.standin_clear_misuses();
}

static void fine(void)
{
    char found[400];
    if (cuda.standin_misuses(found, sizeof(found)))
        fail_msg("unexpected misuse: %s", found);
}

static char *compile(const char *source)
{
    struct nvrtc_api n;
    size_t size = 0;
    nvrtcProgram p;
#define LOAD(name, arguments) *(void **)(void *)&n.name = dlsym(cuda.compiler, #name);
    NVRTC_FUNCTIONS(LOAD)
#undef LOAD
    assert_int_equal(n.nvrtcCreateProgram(&p, source, "text", 0, NULL, NULL), 0);
    nvrtcResult error = n.nvrtcCompileProgram(p, 1, (const char *const[]){"--gpu-architecture=sm_86"});
    char *image = NULL;
    if (!error && !n.nvrtcGetCUBINSize(p, &size) && (image = malloc(size)))
        n.nvrtcGetCUBIN(p, image);
    n.nvrtcDestroyProgram(&p);
    return image;
}

static int setup(void **state)
{
    if (!cuda.driver)
        return 0;
    cuda_setup(state);
#define LOAD(name, arguments) *(void **)(void *)&cu.name = dlsym(cuda.driver, #name);
    CUDA_FUNCTIONS(LOAD)
    CUDA_LATER_FUNCTIONS(LOAD)
#undef LOAD
    char source[1024];
    snprintf(source, sizeof(source), "struct P { float add; int to; };\n%s", text);
    char *image = compile(source);
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    bool good = image && !cu.cuInit(0) && !cu.cuDevicePrimaryCtxRetain(&context, 0) && !cu.cuCtxPushCurrent_v2(context) &&
                !cu.cuStreamCreate(&streams[0], 1) && !cu.cuStreamCreate(&streams[1], 1) && !cu.cuEventCreate(&event, 2) &&
                !cu.cuMemPoolCreate(&pool, &properties) && !cu.cuMemAlloc_v2(&memory, BYTES) && !cu.cuModuleLoadData(&module, image) &&
                !cu.cuModuleGetFunction(&function, module, "tern_kernel");
    free(image);
    return good ? 0 : -1;
}

static int teardown(void **state)
{
    char found[400];
    if (!cuda.driver)
        return 0;
    int misuses = cuda.standin_misuses(found, sizeof(found));
    if (misuses)
        print_error("misuse: %s\n", found);
    cuda.standin_reset();
    return misuses ? -1 : 0;
}

static CUresult launch(CUdeviceptr x, CUdeviceptr y, unsigned threads, int to, CUstream stream)
{
    struct params p = {1, to};
    return cu.cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, stream, (void *[]){&p, &x, &y}, NULL);
}

static void need(void)
{
    if (!cuda.driver)
        skip();
}

static void test_runs(void **state)
{
    float in[64], out[64];
    need();
    for (int i = 0; i < 64; i++)
        in[i] = (float)i;
    assert_int_equal(cu.cuMemcpyHtoDAsync_v2(memory, in, sizeof(in), streams[0]), 0);
    assert_int_equal(launch(memory, memory + 1024, 64, 0, streams[0]), 0);
    assert_int_equal(cu.cuMemcpyDtoHAsync_v2(out, memory + 1024, sizeof(out), streams[0]), 0);
    assert_int_equal(cu.cuStreamSynchronize(streams[0]), 0);
    for (int i = 0; i < 64; i++)
        assert_true(out[i] == (float)(63 - i + 1));
    assert_int_equal(cuda_counts().launches, 1);
    assert_int_equal(cuda_counts().synchronisations, 1);
    fine();
}

static void test_memory(void **state)
{
    CUdeviceptr other;
    float values[64] = {0};
    need();
    assert_int_equal(cu.cuMemAllocFromPoolAsync(&other, BYTES, pool, streams[0]), 0);
    assert_int_equal(cu.cuMemPoolDestroy(pool), 0);
    assert_int_not_equal(cu.cuMemAllocFromPoolAsync(&other, BYTES, pool, streams[0]), 0);
    expect("the memory pool was destroyed before");
    assert_int_not_equal(cu.cuMemPoolTrimTo(NULL, 0), 0);
    expect("is no memory pool");
    assert_int_equal(cu.cuMemFreeAsync(other, streams[0]), 0);
    assert_int_not_equal(cu.cuMemFreeAsync(other, streams[0]), 0);
    expect("cuMemFreeAsync of memory that was freed before");
    assert_int_not_equal(launch(other, memory, 64, 0, streams[0]), 0);
    expect("memory is used that was freed before");
    cu.cuStreamSynchronize(streams[0]);
    assert_int_not_equal(launch(memory, other, 64, 0, streams[0]), 0);
    expect("argument 2 is");
    assert_int_not_equal(cu.cuMemFree_v2(other), 0);
    expect("not the beginning of memory");
    assert_int_not_equal(cu.cuMemFree_v2(memory + 16), 0);
    expect("not the beginning of memory");
    assert_int_not_equal(cu.cuMemcpyHtoDAsync_v2(memory + BYTES - 4, values, 8, streams[0]), 0);
    expect("are outside of memory");
    assert_int_not_equal(launch((CUdeviceptr)(uintptr_t)values, memory, 64, 0, streams[0]), 0);
    expect("argument 1 is");
    assert_int_not_equal(launch(memory + 2, memory, 64, 0, streams[0]), 0);
    expect("no multiple of 4 bytes");
    assert_int_not_equal(cu.cuMemAlloc_v2(&other, 0), 0);
    expect("an allocation of 0 bytes");
}

static void test_launches(void **state)
{
    struct params p = {1, 0};
    need();
    assert_int_not_equal(launch(memory, memory, 128, 0, streams[0]), 0);
    expect("a launch of 128 threads a block; the device allows 1024, the kernel 64");
    assert_int_not_equal(cu.cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 65536, streams[0], (void *[]){&p, &memory, &memory}, NULL), 0);
    expect("a launch with 65792 bytes of shared memory; the device allows 49152");
    assert_int_not_equal(cu.cuLaunchKernel(function, 1, 65536, 1, 64, 1, 1, 0, streams[0], (void *[]){&p, &memory, &memory}, NULL), 0);
    expect("a launch of 1 x 65536 x 1 blocks");
    assert_int_not_equal(cu.cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, streams[0], (void *[]){&p, &memory, NULL}, NULL), 0);
    expect("argument 2 of 3 is missing");
    assert_int_not_equal(launch(memory, memory, 64, 0, NULL), 0);
    expect("is no stream");
    assert_int_equal(cu.cuModuleGetFunction(&function, module, "other"), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(cu.cuModuleUnload(module), 0);
    assert_int_not_equal(launch(memory, memory, 64, 0, streams[0]), 0);
    expect("the module was destroyed before");
}

/* A kernel that writes behind its memory loses the device. */
static void test_outside(void **state)
{
    need();
    assert_int_equal(launch(memory, memory, 64, BYTES / 4 - 32, streams[0]), 0);
    assert_int_equal(cu.cuStreamSynchronize(streams[0]), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(launch(memory, memory, 64, 0, streams[0]), CUDA_ERROR_ILLEGAL_ADDRESS);
    fine();
}

/* What a kernel of 64 items with this body, behind these lines, makes the driver say. */
static void expect_of_body(const char *before, const char *body, const char *message)
{
    char source[1024];
    CUmodule m;
    CUfunction f;
    snprintf(source, sizeof(source), "%sextern \"C\" __global__ void __launch_bounds__(64) tern_kernel(float *y)\n{\n%s\n}\n", before,
             body);
    char *image = compile(source);
    assert_non_null(image);
    assert_int_equal(cu.cuModuleLoadData(&m, image), 0);
    free(image);
    assert_int_equal(cu.cuModuleGetFunction(&f, m, "tern_kernel"), 0);
    assert_int_equal(cu.cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, streams[0], (void *[]){&memory}, NULL), 0);
    assert_int_equal(cu.cuStreamSynchronize(streams[0]), CUDA_ERROR_LAUNCH_FAILED);
    expect(message);
}

static void test_barrier(void **state)
{
    need();
    expect_of_body("", "if (threadIdx.x < 3) __syncthreads(); y[0] = 1;", "a barrier that not all items of a block reach");
}

static void test_exchange(void **state)
{
    need();
    expect_of_body("", "float v = 1; if (threadIdx.x < 3) v = __shfl_xor_sync(0xffffffffu, v, 1); y[0] = v;",
                   "an exchange that not all lanes of a warp reach");
}

/* Matrix units that only a part of a warp uses. */
static void test_matrix_missed(void **state)
{
    need();
    expect_of_body("#define MATRIX 1\n", "MATRIX_SUM(sum, 1);\nif (threadIdx.x < 40) MATRIX_ZERO(sum[0]);\n__syncthreads(); y[0] = 1;",
                   "matrix units that not all items of a subgroup come to");
}

/* A matrix that reaches over the end of the shared memory. */
static void test_matrix_outside(void **state)
{
    need();
    expect_of_body("#define MATRIX 1\n",
                   "alignas(32) __shared__ uint4 tile[31]; MATRIX_A(a, 1);\n__syncthreads();\n"
                   "MATRIX_LOAD_A(a[0], tile, 0, 16, \"row\"); y[0] = 1;",
                   "a matrix is outside of the shared array");
}

static void test_two_streams(void **state)
{
    need();
    CUdeviceptr y = memory + 1024, other;
    assert_int_equal(cu.cuMemAlloc_v2(&other, BYTES), 0);
    assert_int_equal(launch(memory, y, 64, 0, streams[0]), 0);
    assert_int_not_equal(launch(y, other, 64, 0, streams[1]), 0);
    expect("memory that stream 0 writes is used on stream 1 without waiting");
    assert_int_equal(cu.cuEventRecord(event, streams[0]), 0);
    assert_int_equal(cu.cuStreamWaitEvent(streams[1], event, 0), 0);
    assert_int_equal(launch(y, other, 64, 0, streams[1]), 0);
    fine();
    assert_int_not_equal(launch(other, y, 64, 0, streams[0]), 0); /* stream 1 reads y, and writes other */
    expect("without waiting");
    assert_int_equal(cu.cuStreamSynchronize(streams[1]), 0);
    assert_int_equal(launch(other, y, 64, 0, streams[0]), 0);
    fine();
}

static void test_host_memory(void **state)
{
    float *pinned, *more;
    need();
    assert_int_equal(cu.cuMemHostAlloc((void **)&pinned, 256, 0), 0);
    assert_int_equal(cu.cuMemHostAlloc((void **)&more, 256, 0), 0);
    for (int i = 0; i < 64; i++)
        pinned[i] = 5;
    assert_int_equal(cu.cuMemcpyHtoDAsync_v2(memory, pinned, 256, streams[0]), 0);
    assert_int_equal(cu.cuMemcpyDtoHAsync_v2(more, memory, 256, streams[0]), 0);
    assert_true(more[3] != more[3]); /* who looks too early sees NaN */
    assert_int_not_equal(cu.cuMemFreeHost(pinned), 0);
    expect("may use yet");
    pinned[7] = 6;
    assert_int_equal(cu.cuStreamSynchronize(streams[0]), 0);
    expect("pinned memory was changed before it was copied");
    assert_true(more[3] == 5);
    assert_int_not_equal(launch((CUdeviceptr)(uintptr_t)pinned, memory, 64, 0, streams[0]), 0);
    expect("no memory of the device");
    assert_int_equal(cu.cuMemFreeHost(pinned), 0);
    fine();
}

static void test_objects(void **state)
{
    CUcontext popped;
    char found[400];
    need();
    assert_true(cuda.standin_leaks(found, sizeof(found)) >= 6);
    assert_int_equal(cu.cuEventDestroy_v2(event), 0);
    assert_int_not_equal(cu.cuEventRecord(event, streams[0]), 0);
    expect("the event was destroyed before");
    assert_int_not_equal(cu.cuEventDestroy_v2(event), 0);
    expect("the event was destroyed before");
    assert_int_equal(cu.cuStreamDestroy_v2(streams[1]), 0);
    assert_int_not_equal(cu.cuStreamSynchronize(streams[1]), 0);
    expect("the stream was destroyed before");
    assert_int_not_equal(cu.cuStreamSynchronize((CUstream)(uintptr_t)0x123456780), 0);
    expect("is no stream");
    assert_int_equal(cu.cuCtxPopCurrent_v2(&popped), 0);
    assert_int_not_equal(launch(memory, memory, 64, 0, streams[0]), 0);
    expect("cuLaunchKernel without a current context");
    assert_int_not_equal(cu.cuCtxPopCurrent_v2(&popped), 0);
    expect("without a current context");
    assert_int_equal(cu.cuDevicePrimaryCtxRelease_v2(0), 0);
    assert_int_not_equal(cu.cuCtxPushCurrent_v2(context), 0);
    expect("when nobody has retained it");
    assert_int_not_equal(cu.cuDevicePrimaryCtxRelease_v2(0), 0);
    expect("more often than retained");
}

static void test_captures(void **state)
{
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr more;
    need();
    assert_int_equal(cu.cuStreamBeginCapture_v2(streams[0], 2), 0);
    assert_int_equal(launch(memory, memory + 1024, 64, 0, streams[0]), 0);
    assert_int_not_equal(cu.cuMemAllocFromPoolAsync(&more, 16, pool, streams[0]), 0);
    expect("cuMemAllocFromPoolAsync on a stream that captures");
    assert_int_equal(cu.cuStreamEndCapture(streams[0], &graph), 0);
    assert_int_equal(cuda_counts().launches, 0);
    assert_int_equal(cu.cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
    assert_int_equal(cu.cuGraphDestroy(graph), 0);
    assert_int_equal(cu.cuGraphLaunch(exec, streams[0]), 0);
    assert_int_equal(cuda_counts().graph_kernels, 1);
    cu.cuGraphExecDestroy(exec);
    expect("a graph is destroyed that may run yet");
    assert_int_not_equal(cu.cuGraphLaunch(exec, streams[0]), 0);
    expect("the executable graph was destroyed before");
    assert_int_equal(cu.cuStreamBeginCapture_v2(streams[0], 2), 0);
    assert_int_equal(cu.cuStreamSynchronize(streams[0]), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect("cuStreamSynchronize on a stream that captures");
    assert_int_equal(cu.cuStreamEndCapture(streams[0], &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_not_equal(cu.cuStreamEndCapture(streams[0], &graph), 0);
    expect("does not capture");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_runs),        TEST(test_memory),      TEST(test_launches),      TEST(test_outside),
                                       TEST(test_barrier),     TEST(test_exchange),    TEST(test_matrix_missed), TEST(test_matrix_outside),
                                       TEST(test_two_streams), TEST(test_host_memory), TEST(test_objects),       TEST(test_captures)};
    return cmocka_run_group_tests(tests, cuda_group_setup, cuda_group_teardown);
}

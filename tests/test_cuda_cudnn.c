/* The graphs that the CUDA backend makes, with a real cuDNN and no device: the library takes every attribute, proposes engines for the
 * generations of devices that a description stands for, and plans with one that keeps f32 sums. Nothing runs. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/cuda/dnn.h"
#include "core/context.h"
#include "support.h"

static struct cudnn_api api;
static bool compiles; /* cuDNN finds a driver and an NVRTC of its CUDA */

/* Without the compiler of the library's CUDA, graphs that need it have no engines. TERN_NVRTC may be the one. */
static bool finds_compiler(void)
{
    const char *driver = getenv("TERN_STANDIN_NAMED"), *nvrtc = getenv("TERN_NVRTC");
    char name[32];
    if (!driver || !dlopen(driver, RTLD_NOW | RTLD_GLOBAL))
        return false;
    if (nvrtc)
        dlopen(nvrtc, RTLD_NOW | RTLD_GLOBAL);
    snprintf(name, sizeof(name), "libnvrtc.so.%d", (int)(api.cudnnGetCudartVersion() / 1000));
    return dlopen(name, RTLD_NOW | RTLD_GLOBAL) != NULL;
}

static int group_setup(void **state)
{
    const char *path = getenv("TERN_CUDNN"), *missing = NULL;
    if (support_setup(state))
        return -1;
    if (!(api.library = dlopen(path ? path : "libcudnn.so.9", RTLD_NOW)))
        return 0;
#define LOAD(type, name, arguments)                          \
    *(void **)(void *)&api.name = dlsym(api.library, #name); \
    missing = api.name ? missing : #name;
    CUDNN_FUNCTIONS(LOAD)
#undef LOAD
    if (missing)
        print_error("no function %s\n", missing);
    compiles = !missing && finds_compiler();
    return missing ? -1 : 0;
}

/* NVIDIA's T4, A100, RTX 3090, RTX 4090, H100: capability, multiprocessors, shared memory that a block may ask for. */
static const struct device {
    int capability, processors, shared;
} devices[] = {{750, 40, 65536}, {800, 108, 166912}, {860, 82, 101376}, {890, 128, 101376}, {900, 132, 232448}};

static cudnnBackendDescriptor_t describe(const struct device *d)
{
    char text[1200];
    cudnnBackendDescriptor_t p = NULL;
    int n =
        snprintf(text, sizeof(text),
                 "{\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,\"cudartVer\":13000,\"maxGridSize\":[2147483647,65535,65535],"
                 "\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":%d,\"smCountOrigin\":0,\"warpSize\":32,"
                 "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,\"oversizedSharedMemoryPerBlock\":0,"
                 "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":16,\"maxThreadsPerBlock\":1024,"
                 "\"maxThreadsPerSM\":1024,\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":17179869184,"
                 "\"smClockRateKHz\":1500000,\"memClockRateKHz\":5000000,\"l2CacheSize\":4194304,\"deviceName\":\"described\"}",
                 d->capability, d->processors, d->shared);
    if (api.cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &p))
        return NULL;
    if (api.cudnnBackendSetAttribute(p, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, n + 1, text) ||
        api.cudnnBackendFinalize(p)) {
        api.cudnnBackendDestroyDescriptor(p);
        return NULL;
    }
    return p;
}

/* cuDNN 9.8 and later plan for a device that is described. */
static cudnnBackendDescriptor_t described_or_skip(const struct device *d)
{
    if (!api.library) {
        print_message("no cuDNN: the wheels nvidia-cudnn-cu12 and -cu13 have libcudnn.so.9; its path goes into TERN_CUDNN\n");
        skip();
    }
    cudnnBackendDescriptor_t p = describe(d);
    if (!p) {
        print_message("cuDNN %zu takes no description of a device: 9.8 does\n", api.cudnnGetVersion());
        skip();
    }
    return p;
}

static struct tern_meta channels_last(enum tern_dtype dtype, int64_t n, int64_t c, int64_t h, int64_t w)
{
    struct tern_meta m = tern_meta_make(dtype, 4, (const int64_t[]){n, c, h, w});
    tern_meta_channels_last(&m);
    return m;
}

/* x (2, c, h, h), weight (o, c / groups, k, k) as it lies in files, bias (o); padding k / 2. */
static struct tern_op_desc conv(enum tern_dtype dtype, int64_t c, int64_t o, int64_t h, int64_t k, int64_t groups)
{
    struct tern_op_desc d;
    memset(&d, 0, sizeof(d));
    d.op = TERN_OP_conv2d;
    d.n_in = 3;
    d.present[0] = d.present[1] = d.present[2] = true;
    d.in[0] = channels_last(dtype, 2, c, h, h);
    d.in[1] = tern_meta_make(dtype, 4, (const int64_t[]){o, c / groups, k, k});
    d.in[2] = tern_meta_make(dtype, 1, &o);
    d.out = channels_last(dtype, 2, o, h, h);
    d.attrs.conv2d = (struct tern_conv2d_attrs){.stride = {1, 1}, .padding = {k / 2, k / 2}, .dilation = {1, 1}, .groups = groups};
    return d;
}

static void post(struct tern_op_desc *d, enum tern_op op, double value, const struct tern_meta *operand)
{
    d->post[d->n_post++] = (struct tern_post){op, operand ? d->n_in : -1, value};
    if (operand) {
        d->present[d->n_in] = true;
        d->in[d->n_in++] = *operand;
    }
}

/* Views (B, H, L, E) of memory (B, L, H, E), as attention blocks make them. */
static struct tern_op_desc attention(enum tern_dtype dtype, int64_t l, int64_t s, int64_t e)
{
    struct tern_op_desc d;
    memset(&d, 0, sizeof(d));
    d.op = TERN_OP_sdpa;
    d.n_in = 4;
    for (int i = 0; i < 3; i++) {
        int64_t length = i ? s : l;
        d.present[i] = true;
        d.in[i] = tern_meta_make(dtype, 4, (const int64_t[]){2, 8, length, e});
        memcpy(d.in[i].stride, (const int64_t[]){length * 8 * e, e, 8 * e, 1}, 4 * sizeof(int64_t));
    }
    d.out = d.in[0];
    d.attrs.sdpa.scale = 0.125;
    return d;
}

/* The engine of a plan sums in f32: its notes, as cuDNN tells them. The configuration was made before the plan. */
static void check_engine(const struct cuda_dnn_graph *g, bool f32)
{
    cudnnBackendDescriptor_t engine = NULL;
    int notes[32];
    int64_t n = 0;
    assert_ptr_equal(g->made[g->n_made - 1], g->plan);
    assert_int_equal(api.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine), 0);
    assert_int_equal(api.cudnnBackendGetAttribute(g->made[g->n_made - 2], CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                                  &engine),
                     0);
    assert_int_equal(api.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, 32, &n, notes), 0);
    for (int i = 0; i < n; i++)
        if (notes[i] != CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP && (f32 || notes[i] != CUDNN_NUMERICAL_NOTE_TENSOR_CORE))
            fail_msg("an engine with note %d", notes[i]);
    api.cudnnBackendDestroyDescriptor(engine);
}

/* Whether there is a plan; its ids, engine and workspace are what they have to be. */
static bool plans(const struct cuda_dnn_target *t, const struct tern_op_desc *d, int ids)
{
    struct cuda_dnn_graph g;
    assert_true(tern_cuda_dnn_takes(d) && tern_cuda_dnn_takes_posts(d));
    if (!tern_cuda_dnn_make(t, d, 16, CUDA_DNN_WORKSPACE, &g)) {
        assert_int_equal(g.n_made, 0);
        return false;
    }
    assert_int_equal(g.n_ids, ids);
    check_engine(&g, d->out.dtype == TERN_F32);
    assert_in_range(g.workspace, 0, CUDA_DNN_WORKSPACE);
    tern_cuda_dnn_drop(t, &g);
    return true;
}

/* What a UNet and a VAE ask for. */
static void test_convolutions(void **state)
{
    for (size_t i = 0; i < sizeof(devices) / sizeof(*devices); i++) {
        struct cuda_dnn_target t = {&api, NULL, described_or_skip(&devices[i])};
        for (int dtype = 0; dtype < 3; dtype++) {
            enum tern_dtype type = (const enum tern_dtype[]){TERN_F32, TERN_F16, TERN_BF16}[dtype];
            bool expected = type != TERN_BF16 || devices[i].capability >= 800;
            struct tern_op_desc d = conv(type, 320, 320, 64, 3, 1), in = conv(type, 4, 320, 64, 3, 1), out = conv(type, 320, 4, 64, 3, 1);
            struct tern_op_desc narrow = conv(type, 640, 320, 64, 1, 1), odd = conv(type, 3, 5, 13, 3, 1),
                                parts = conv(type, 64, 64, 16, 3, 4);
            struct tern_op_desc residual = d, last = d;
            struct tern_op_desc *const all[] = {&d, &in, &out, &narrow, &odd, &parts, &last};
            tern_meta_channels_last(&last.in[1]);
            for (size_t k = 0; k < sizeof(all) / sizeof(*all); k++)
                if (plans(&t, all[k], 4) != expected)
                    fail_msg("sm_%d, dtype %d, convolution %zu", devices[i].capability, dtype, k);
            post(&residual, TERN_OP_add, 0, &d.out);
            assert_true(plans(&t, &residual, 5) == expected);
            post(&residual, TERN_OP_relu, 0, NULL);
            assert_true(plans(&t, &residual, 5) == expected);
        }
        api.cudnnBackendDestroyDescriptor(t.device);
    }
}

/* Kernels that cuDNN compiles: for f16 on two devices, since each takes a second or two. In f32 only TF32 could do it, or nothing. */
static void test_compiled(void **state)
{
    struct tern_meta channel = tern_meta_make(TERN_F16, 4, (const int64_t[]){2, 320, 1, 1});
    struct tern_op_desc d = conv(TERN_F16, 320, 320, 64, 3, 1), embedding = d, gated = d, gelu = d, wide = d;
    channel.stride[0] = 960; /* a part of what was computed for three layers */
    wide.in[2].dtype = TERN_F32;
    post(&embedding, TERN_OP_add, 0, &channel);
    post(&gated, TERN_OP_quick_gelu, 0, NULL);
    post(&gated, TERN_OP_mul, 0, &d.out);
    post(&gelu, TERN_OP_gelu, 1, NULL);
    for (int i = 1; i < 5; i += 3) {
        struct cuda_dnn_target t = {&api, NULL, described_or_skip(&devices[i])};
        if (!compiles) {
            api.cudnnBackendDestroyDescriptor(t.device);
            print_message("cuDNN finds no NVRTC of its CUDA\n");
            skip();
        }
        assert_true(plans(&t, &embedding, 5));
        assert_true(plans(&t, &gated, 5));
        assert_true(plans(&t, &gelu, 4));
        assert_true(plans(&t, &wide, 4));
        api.cudnnBackendDestroyDescriptor(t.device);
    }
}

/* Attention is one node, since 9.13; devices before Ampere have no engine for it. */
static void test_attention(void **state)
{
    struct tern_op_desc self = attention(TERN_F16, 4096, 4096, 40), cross = attention(TERN_BF16, 1024, 77, 64);
    for (int i = 0; i < 5; i++) {
        struct cuda_dnn_target t = {&api, NULL, described_or_skip(&devices[i])};
        bool expected = compiles && api.cudnnGetVersion() >= 91300 && devices[i].capability >= 800;
        if (plans(&t, &self, 5) != expected || plans(&t, &cross, 5) != expected)
            fail_msg("sm_%d: expected %d", devices[i].capability, expected);
        api.cudnnBackendDestroyDescriptor(t.device);
    }
}

/* A plan that cuDNN wrote is the one that it was; of other text there is none. */
static void check_written(const struct cuda_dnn_target *t, const struct tern_op_desc *d)
{
    struct tern_context *ctx = support_context();
    struct cuda_dnn_graph g, h;
    size_t size = 0;
    assert_true(tern_cuda_dnn_make(t, d, 16, CUDA_DNN_WORKSPACE, &g));
    char *text = tern_cuda_dnn_write(ctx, t, &g, &size);
    assert_non_null(text);
    assert_true(tern_cuda_dnn_read(t, d, 16, CUDA_DNN_WORKSPACE, text, size, &h));
    assert_int_equal(h.workspace, g.workspace);
    assert_int_equal(h.n_ids, g.n_ids);
    assert_memory_equal(h.ids, g.ids, (size_t)g.n_ids * sizeof(*g.ids));
    assert_true(h.scale == g.scale);
    tern_cuda_dnn_drop(t, &h);
    assert_false(tern_cuda_dnn_read(t, d, 16, CUDA_DNN_WORKSPACE, text, size / 2, &h));
    assert_false(tern_cuda_dnn_read(t, d, 16, CUDA_DNN_WORKSPACE, "{}", 2, &h));
    assert_int_equal(h.n_made, 0);
    if (g.workspace > 0)
        assert_false(tern_cuda_dnn_read(t, d, 16, g.workspace - 1, text, size, &h));
    tern_cuda_dnn_drop(t, &g);
    tern_free(ctx, text);
    tern_context_destroy(&ctx);
}

static void test_written(void **state)
{
    struct cuda_dnn_target t = {&api, NULL, described_or_skip(&devices[4])};
    struct tern_op_desc d = conv(TERN_F16, 320, 320, 64, 3, 1), compiled = d, self = attention(TERN_F16, 4096, 4096, 40);
    check_written(&t, &d);
    post(&compiled, TERN_OP_gelu, 1, NULL);
    if (compiles)
        check_written(&t, &compiled);
    if (compiles && api.cudnnGetVersion() >= 91300)
        check_written(&t, &self);
    api.cudnnBackendDestroyDescriptor(t.device);
}

/* A limit of workspace holds, and no plan is left. */
static void test_workspace(void **state)
{
    struct cuda_dnn_target t = {&api, NULL, described_or_skip(&devices[1])};
    struct cuda_dnn_graph g;
    struct tern_op_desc d = conv(TERN_F16, 320, 320, 64, 3, 1);
    assert_true(tern_cuda_dnn_make(&t, &d, 16, CUDA_DNN_WORKSPACE, &g));
    assert_true(g.workspace > 0); /* the filter in another order */
    int64_t needed = g.workspace;
    tern_cuda_dnn_drop(&t, &g);
    assert_true(tern_cuda_dnn_make(&t, &d, 16, needed, &g));
    tern_cuda_dnn_drop(&t, &g);
    if (tern_cuda_dnn_make(&t, &d, 16, 16, &g))
        assert_in_range(g.workspace, 0, 16);
    tern_cuda_dnn_drop(&t, &g);
    api.cudnnBackendDestroyDescriptor(t.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_convolutions), cmocka_unit_test(test_compiled),
                                       cmocka_unit_test(test_attention), cmocka_unit_test(test_written), cmocka_unit_test(test_workspace)};
    return cmocka_run_group_tests(tests, group_setup, support_teardown);
}

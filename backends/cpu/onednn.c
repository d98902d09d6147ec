/* oneDNN 2.x as a candidate for conv2d, found at run time. Its headers are needed to build this file's content; without them
 * the kernel is never offered. */
#include "backends/cpu/borrow.h"
#include "backends/cpu/kernels.h"

#ifdef TERN_HAVE_ONEDNN
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>

/* The functions used, looked up by name. */
/* clang-format off: it does not settle on this */
#define FUNCTIONS(X)                         \
    X(engine_create)                         \
    X(engine_destroy)                        \
    X(stream_create)                         \
    X(stream_destroy)                        \
    X(stream_wait)                           \
    X(memory_desc_init_by_tag)               \
    X(memory_desc_get_size)                  \
    X(dilated_convolution_forward_desc_init) \
    X(primitive_desc_create)                 \
    X(primitive_desc_destroy)                \
    X(primitive_desc_query_md)               \
    X(primitive_create)                      \
    X(primitive_destroy)                     \
    X(primitive_execute)                     \
    X(memory_create)                         \
    X(memory_destroy)                        \
    X(reorder_primitive_desc_create)         \
    X(version)
/* clang-format on */

struct cpu_onednn {
    void *library;
    struct cpu_borrowed openmp; /* of the calling thread; none where it has another runtime */
    int threads;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
#define POINTER(name) __typeof__(dnnl_##name) *name;
    FUNCTIONS(POINTER)
#undef POINTER
};

static bool look_up(struct cpu_onednn *b)
{
#define FIND(name)                                         \
    *(void **)&b->name = dlsym(b->library, "dnnl_" #name); \
    if (!b->name)                                          \
        return false;
    FUNCTIONS(FIND)
#undef FIND
    return true;
}

static struct cpu_onednn *open_library(struct tern_device *device)
{
    struct cpu_onednn *b = tern_cpu_is_child() ? NULL : tern_calloc(device->ctx, 1, sizeof(*b));
    if (!b)
        return NULL;
    b->library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    b->threads = tern_thread_count(device->ctx);
    if (b->library) /* also of a library that it needs */
        b->openmp = cpu_borrowed_find(b->library, "omp_get_max_threads", "omp_set_num_threads");
    if (b->library && look_up(b) && b->engine_create(&b->engine, dnnl_cpu, 0) == dnnl_success) {
        if (b->stream_create(&b->stream, b->engine, dnnl_stream_default_flags) == dnnl_success)
            return b;
        b->engine_destroy(b->engine);
    }
    /* The library stays mapped: it may have started threads. */
    tern_free(device->ctx, b);
    return NULL;
}

struct cpu_onednn *tern_cpu_onednn_open(struct tern_device *device)
{
    struct cpu_device *d = (struct cpu_device *)device;
    pthread_mutex_lock(&d->library_lock);
    if (!d->opened_onednn) {
        d->onednn = open_library(device);
        d->opened_onednn = d->onednn || !tern_failed(device->ctx); /* without memory it may be there */
    }
    pthread_mutex_unlock(&d->library_lock);
    return d->onednn;
}

void tern_cpu_onednn_close(struct cpu_device *d)
{
    if (d->onednn) {
        d->onednn->stream_destroy(d->onednn->stream);
        d->onednn->engine_destroy(d->onednn->engine);
    }
    tern_free(d->base.ctx, d->onednn);
    d->onednn = NULL;
}

static enum tern_status failed(struct tern_context *ctx, const char *what, dnnl_status_t st)
{
    return tern_fail(ctx, TERN_E_DEVICE, "oneDNN: %s failed with status %d", what, (int)st);
}

/* Memory descriptors of the plain weights, and the primitive that may want them otherwise. */
static dnnl_status_t describe_here(const struct cpu_onednn *b, const struct tern_op_desc *d, dnnl_memory_desc_t *plain,
                                   dnnl_primitive_desc_t *pd)
{
    const struct tern_conv2d_attrs *p = &d->attrs.conv2d;
    const int64_t *x = d->in[0].shape, *w = d->in[1].shape, *y = d->out.shape, g = p->groups;
    dnnl_memory_desc_t src, wei, bias, dst;
    dnnl_convolution_desc_t cd;
    dnnl_dims_t xs = {x[0], x[1], x[2], x[3]}, ys = {y[0], y[1], y[2], y[3]}, os = {w[0]};
    dnnl_dims_t ws = {w[0], w[1], w[2], w[3]}, gs = {g, w[0] / g, w[1], w[2], w[3]};
    dnnl_dims_t strides = {p->stride[0], p->stride[1]}, dilation = {p->dilation[0] - 1, p->dilation[1] - 1};
    dnnl_dims_t before = {p->padding[0], p->padding[1]}, after;
    for (int i = 0; i < 2; i++)
        after[i] = (y[2 + i] - 1) * p->stride[i] + (w[2 + i] - 1) * p->dilation[i] + 1 - x[2 + i] - p->padding[i];
    dnnl_status_t st = b->memory_desc_init_by_tag(&src, 4, xs, dnnl_f32, dnnl_nhwc);
    if (!st)
        st = b->memory_desc_init_by_tag(&dst, 4, ys, dnnl_f32, dnnl_nhwc);
    if (!st)
        st = b->memory_desc_init_by_tag(&bias, 1, os, dnnl_f32, dnnl_a);
    if (!st)
        st = b->memory_desc_init_by_tag(plain, g > 1 ? 5 : 4, g > 1 ? gs : ws, dnnl_f32, g > 1 ? dnnl_goihw : dnnl_oihw);
    if (!st)
        st = b->memory_desc_init_by_tag(&wei, g > 1 ? 5 : 4, g > 1 ? gs : ws, dnnl_f32, dnnl_format_tag_any);
    if (!st)
        st = b->dilated_convolution_forward_desc_init(&cd, dnnl_forward_inference, dnnl_convolution_auto, &src, &wei,
                                                      d->present[2] ? &bias : NULL, &dst, strides, dilation, before, after);
    return st ? st : b->primitive_desc_create(pd, &cd, NULL, b->engine, NULL);
}

/* What is chosen depends on the number of threads. */
static dnnl_status_t describe(const struct cpu_onednn *b, const struct tern_op_desc *d, dnnl_memory_desc_t *plain,
                              dnnl_primitive_desc_t *pd)
{
    const int before = cpu_borrowed_use(&b->openmp, b->threads);
    const dnnl_status_t st = describe_here(b, d, plain, pd);
    cpu_borrowed_use(&b->openmp, before);
    return st;
}

static uint64_t library(struct tern_device *device)
{
    const struct cpu_onednn *b = tern_cpu_onednn_open(device);
    const dnnl_version_t *v = b ? b->version() : NULL;
    return v ? (uint64_t)v->major << 40 | (uint64_t)v->minor << 20 | (uint64_t)v->patch : 0;
}

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    dnnl_memory_desc_t plain;
    dnnl_primitive_desc_t pd;
    bool good = d->in[0].dtype == TERN_F32 && d->in[1].dtype == TERN_F32 && tern_meta_is_channels_last(&d->in[0]) &&
                tern_meta_is_contiguous(&d->in[1]) && tern_meta_is_channels_last(&d->out) &&
                (!d->present[2] || (d->in[2].dtype == TERN_F32 && tern_meta_is_contiguous(&d->in[2]))) && tern_meta_numel(&d->in[0]) > 0 &&
                tern_meta_numel(&d->in[1]) > 0 && tern_meta_numel(&d->out) > 0;
    const struct cpu_onednn *b = good ? tern_cpu_onednn_open(device) : NULL;
    if (!b || describe(b, d, &plain, &pd))
        return false;
    b->primitive_desc_destroy(pd);
    return true;
}

static size_t packed_size(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct cpu_onednn *b = cpu_device_of(ctx)->onednn;
    dnnl_memory_desc_t plain;
    dnnl_primitive_desc_t pd;
    if (describe(b, d, &plain, &pd))
        return 0;
    size_t size = b->memory_desc_get_size(b->primitive_desc_query_md(pd, dnnl_query_weights_md, 0));
    b->primitive_desc_destroy(pd);
    return size;
}

static void mix(uint64_t *h, int64_t value)
{
    *h = (*h ^ (uint64_t)value) * 0xff51afd7ed558ccdu;
    *h ^= *h >> 32;
}

/* The wanted layout depends on the whole description: every one has its own form. */
static uint64_t pack_key(const struct tern_op_desc *d)
{
    const struct tern_conv2d_attrs *p = &d->attrs.conv2d;
    uint64_t h = 1;
    for (int i = 0; i < 4; i++) {
        mix(&h, d->in[0].shape[i]);
        mix(&h, d->out.shape[i]);
    }
    for (int i = 0; i < 2; i++) {
        mix(&h, p->stride[i]);
        mix(&h, p->padding[i]);
        mix(&h, p->dilation[i]);
    }
    mix(&h, p->groups);
    mix(&h, d->present[2]);
    return h;
}

/* Runs one primitive on `n` pairs of argument and memory. Takes the memories over. */
static dnnl_status_t execute(const struct cpu_onednn *b, const_dnnl_primitive_desc_t pd, dnnl_exec_arg_t *args, int n)
{
    dnnl_primitive_t primitive = NULL;
    const int before = cpu_borrowed_use(&b->openmp, b->threads);
    dnnl_status_t st = b->primitive_create(&primitive, pd);
    if (!st)
        st = b->primitive_execute(primitive, b->stream, n, args);
    if (!st)
        st = b->stream_wait(b->stream);
    if (primitive)
        b->primitive_destroy(primitive);
    for (int i = 0; i < n; i++)
        b->memory_destroy(args[i].memory);
    cpu_borrowed_use(&b->openmp, before);
    return st;
}

static dnnl_exec_arg_t argument(const struct cpu_onednn *b, int index, const dnnl_memory_desc_t *md, const void *data)
{
    dnnl_exec_arg_t a = {index, NULL};
    b->memory_create(&a.memory, md, b->engine, (void *)(uintptr_t)data);
    return a;
}

static enum tern_status pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst)
{
    const struct cpu_onednn *b = cpu_device_of(ctx)->onednn;
    dnnl_memory_desc_t plain;
    dnnl_primitive_desc_t pd, reorder;
    dnnl_status_t st = describe(b, d, &plain, &pd);
    if (st)
        return failed(ctx, "describing a convolution", st);
    const dnnl_memory_desc_t *wanted = b->primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    const int before = cpu_borrowed_use(&b->openmp, b->threads); /* which the description keeps */
    st = b->reorder_primitive_desc_create(&reorder, &plain, b->engine, wanted, b->engine, NULL);
    cpu_borrowed_use(&b->openmp, before);
    if (!st) {
        dnnl_exec_arg_t args[] = {argument(b, DNNL_ARG_FROM, &plain, src), argument(b, DNNL_ARG_TO, wanted, dst)};
        st = execute(b, reorder, args, 2);
        b->primitive_desc_destroy(reorder);
    }
    b->primitive_desc_destroy(pd);
    return st ? failed(ctx, "packing weights", st) : TERN_OK;
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct cpu_onednn *b = cpu_device_of(a->ctx)->onednn;
    dnnl_memory_desc_t plain;
    dnnl_primitive_desc_t pd;
    dnnl_status_t st = describe(b, a->desc, &plain, &pd);
    if (st)
        return failed(a->ctx, "describing a convolution", st);
    dnnl_exec_arg_t args[4] = {
        argument(b, DNNL_ARG_SRC, b->primitive_desc_query_md(pd, dnnl_query_src_md, 0), tern_arg_host(&a->in[0])),
        argument(b, DNNL_ARG_WEIGHTS, b->primitive_desc_query_md(pd, dnnl_query_weights_md, 0), tern_arg_host(&a->packed)),
        argument(b, DNNL_ARG_DST, b->primitive_desc_query_md(pd, dnnl_query_dst_md, 0), tern_arg_host(&a->out)),
    };
    if (a->desc->present[2])
        args[3] = argument(b, DNNL_ARG_BIAS, b->primitive_desc_query_md(pd, dnnl_query_weights_md, 1), tern_arg_host(&a->in[2]));
    st = execute(b, pd, args, a->desc->present[2] ? 4 : 3);
    b->primitive_desc_destroy(pd);
    return st ? failed(a->ctx, "a convolution", st) : TERN_OK;
}

#else /* without headers */

struct cpu_onednn *tern_cpu_onednn_open(struct tern_device *device) { return NULL; }
void tern_cpu_onednn_close(struct cpu_device *d) {}
static uint64_t library(struct tern_device *device) { return 0; }
static bool supports(struct tern_device *device, const struct tern_op_desc *d) { return tern_cpu_onednn_open(device) != NULL; }
static size_t packed_size(struct tern_context *ctx, const struct tern_op_desc *d) { return 0; }
static uint64_t pack_key(const struct tern_op_desc *d) { return 0; }
static enum tern_status pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst)
{
    return TERN_E_UNSUPPORTED;
}
static enum tern_status run(const struct tern_kernel_args *a) { return TERN_E_UNSUPPORTED; }

#endif

static double cost(const struct tern_device *device, const struct tern_op_desc *d) { return 2; }

const struct tern_kernel tern_cpu_conv2d_f32_onednn = {
    .name = "conv2d_f32_onednn",
    .op = TERN_OP_conv2d,
    .library = library,
    .supports = supports,
    .cost = cost,
    .pack_input = 1,
    .packed_size = packed_size,
    .pack_key = pack_key,
    .pack = pack,
    .run = run,
};

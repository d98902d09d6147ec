/* conv2d and sdpa by cuDNN, when it is there: the library, the plans of the descriptions that were met, and the kernels. What cuDNN does
 * not take, or fails at, goes to the texts. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/dnn.h"
#include "core/context.h"
#include "ops/kernel.h"

struct cuda_dnn_plan {
    struct cuda_dnn_plan *next;
    struct tern_op_desc desc;
    int alignment;
    bool works;
    struct cuda_dnn_graph graph;
    cudnnBackendDescriptor_t pack; /* of the pointers of the last run; NULL: none yet */
    void *pointers[CUDA_DNN_MOST_IDS], *workspace;
};

struct cuda_dnn {
    struct cudnn_api api;
    struct cuda_dnn_target target; /* its handle: NULL when cuDNN does not work here */
    size_t version;
    char why[200]; /* it does not */
    bool warned;
    struct cuda_dnn_plan *plans[CUDA_DNN_TABLE]; /* chains, by description */
};

/* ---- the library ---- */

static void print_version(size_t v, char out[32])
{
    if (v >= 90000)
        snprintf(out, 32, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    else
        snprintf(out, 32, "%zu.%zu.%zu", v / 1000, v / 100 % 10, v % 100);
}

static bool load(struct cuda_dnn *s)
{
    static const char *const names[] = {"libcudnn.so.9", "libcudnn.so.8"};
    const char *missing = NULL, *given = getenv("TERN_CUDNN_LIBRARY");
    bool none = given && !strcmp(given, "none");
    for (int i = 0; i < 2 && !none && !s->api.library; i += given ? 2 : 1)
        s->api.library = tern_cuda_dlopen(given ? given : names[i]);
    if (!s->api.library) {
        snprintf(s->why, sizeof(s->why), none ? "TERN_CUDNN_LIBRARY=none" : "%.100s cannot be opened",
                 given ? given : "libcudnn.so.9 or .8");
        return false;
    }
#define LOAD(type, name, arguments)                                \
    *(void **)(void *)&s->api.name = dlsym(s->api.library, #name); \
    missing = s->api.name ? missing : #name;
    CUDNN_FUNCTIONS(LOAD)
#undef LOAD
    if (missing)
        snprintf(s->why, sizeof(s->why), "it has no function %s; cuDNN 8.3 or later has", missing);
    return !missing;
}

/* The versions whose values cudnn.h has; the heuristics came with 8.3. */
static bool is_known(struct cuda_dnn *s)
{
    char version[32], missing[CUDA_DNN_PART];
    if (!tern_cuda_dnn_is_complete(&s->api, missing)) {
        snprintf(s->why, sizeof(s->why), "it would end the process, for it finds no %s", missing);
        return false;
    }
    s->version = s->api.cudnnGetVersion();
    print_version(s->version, version);
    if (s->version < 8300 || s->version >= 100000)
        snprintf(s->why, sizeof(s->why), "it is cuDNN %s: expected 8.3 to 9", version);
    return !s->why[0];
}

/* It takes the context that is current, which is the device's. */
static void open_handle(struct cuda_device *d, struct cuda_dnn *s)
{
    char version[32];
    cudnnHandle_t handle = NULL;
    const char *what = "a handle";
    cudnnStatus_t error = s->api.cudnnCreate(&handle);
    if (!error) {
        what = "its stream";
        error = s->api.cudnnSetStream(handle, d->stream);
    }
    s->target = (struct cuda_dnn_target){&s->api, error ? NULL : handle, NULL};
    if (!error)
        return;
    print_version(s->version, version);
    const char *text = s->api.cudnnGetErrorString(error);
    snprintf(s->why, sizeof(s->why), "cuDNN %s fails to make %s: %.60s (%d); one of the driver's CUDA would help", version, what,
             text ? text : "", error);
    if (handle)
        s->api.cudnnDestroy(handle);
}

/* Opened when it is first asked for. NULL without memory (recorded); without a handle when texts have to serve. The device is entered. */
static struct cuda_dnn *dnn_of(struct cuda_device *d)
{
    if (d->dnn || !(d->dnn = tern_calloc(d->gpu.base.ctx, 1, sizeof(*d->dnn))))
        return d->dnn;
    struct cuda_dnn *s = d->dnn;
    if (load(s) && is_known(s))
        open_handle(d, s);
    if (s->why[0] && s->api.library)
        tern_message(d->gpu.base.ctx, TERN_LOG_INFO, "cuda: %s: no cuDNN: %s", d->name, s->why);
    return s;
}

void tern_cuda_dnn_describe(struct cuda_device *d, char *out, size_t size)
{
    char version[32];
    if (tern_cuda_enter(d, NULL)) {
        snprintf(out, size, "no cuDNN (the device is lost)");
        return;
    }
    const struct cuda_dnn *s = dnn_of(d);
    if (s && s->target.handle) {
        print_version(s->version, version);
        snprintf(out, size, "cuDNN %s", version);
    } else {
        snprintf(out, size, "no cuDNN (%s)", s ? s->why : "no memory");
    }
    tern_cuda_leave(d);
}

static void drop_pack(struct cuda_dnn *s, struct cuda_dnn_plan *p)
{
    if (p->pack)
        s->api.cudnnBackendDestroyDescriptor(p->pack);
    p->pack = NULL;
}

void tern_cuda_dnn_close(struct cuda_device *d)
{
    struct cuda_dnn *s = d->dnn;
    for (int i = 0; s && i < CUDA_DNN_TABLE; i++)
        while (s->plans[i]) {
            struct cuda_dnn_plan *p = s->plans[i];
            s->plans[i] = p->next;
            if (!d->gone) {
                drop_pack(s, p);
                tern_cuda_dnn_drop(&s->target, &p->graph);
            }
            tern_free(d->gpu.base.ctx, p);
        }
    if (s && s->target.handle && !d->gone)
        s->api.cudnnDestroy(s->target.handle);
    if (s && s->api.library)
        dlclose(s->api.library);
    tern_free(d->gpu.base.ctx, s);
    d->dnn = NULL;
}

/* ---- plans ---- */

/* The plan of a description, found or made. NULL without memory (recorded), or without cuDNN. The device is entered. Of memory that is
 * aligned to less than 16 bytes no more workspace may be needed than the description was given. */
static struct cuda_dnn_plan *plan_of(struct cuda_device *d, const struct tern_op_desc *desc, int alignment)
{
    struct cuda_dnn *s = dnn_of(d);
    if (!s || !s->target.handle)
        return NULL;
    struct cuda_dnn_plan **chain = &s->plans[tern_gpu_hash((uint64_t)alignment, desc, sizeof(*desc)) % CUDA_DNN_TABLE], *p = *chain;
    while (p && (p->alignment != alignment || memcmp(&p->desc, desc, sizeof(*desc))))
        p = p->next;
    if (p)
        return p;
    struct cuda_dnn_plan *plain = alignment < 16 ? plan_of(d, desc, 16) : NULL;
    if ((alignment < 16 && !plain) || !(p = tern_calloc(d->gpu.base.ctx, 1, sizeof(*p))))
        return NULL;
    p->desc = *desc;
    p->alignment = alignment;
    p->works = tern_cuda_dnn_find(d, &s->target, desc, alignment, plain ? plain->graph.workspace : CUDA_DNN_WORKSPACE, &p->graph);
    chain = &s->plans[tern_gpu_hash((uint64_t)alignment, desc, sizeof(*desc)) % CUDA_DNN_TABLE];
    p->next = *chain;
    return *chain = p;
}

static void *pointer(const struct tern_arg *a)
{
    return a->buffer ? (void *)(uintptr_t)(((const struct cuda_buffer *)a->buffer)->at + a->offset) : NULL;
}

static void *aligned(void *workspace) { return (void *)(uintptr_t)cuda_workspace_at((uintptr_t)workspace); }

/* The pack of a run's pointers: that of the last run when they are the same, which they are in plans. */
static cudnnStatus_t pack_of(struct cuda_dnn *s, struct cuda_dnn_plan *p, const struct tern_kernel_args *a)
{
    struct cuda_dnn_graph *g = &p->graph;
    void *pointers[CUDA_DNN_MOST_IDS] = {NULL}, *workspace = g->workspace ? aligned(pointer(&a->workspace)) : NULL;
    for (int i = 0; i < g->n_ids; i++)
        pointers[i] = g->ids[i] == CUDA_DNN_OUT     ? pointer(&a->out)
                      : g->ids[i] == CUDA_DNN_SCALE ? (void *)&g->scale
                                                    : pointer(&a->in[g->ids[i] - CUDA_DNN_INPUT(0)]);
    if (p->pack && workspace == p->workspace && !memcmp(pointers, p->pointers, sizeof(pointers)))
        return CUDNN_STATUS_SUCCESS;
    drop_pack(s, p);
    cudnnStatus_t error = s->api.cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &p->pack);
    if (error) {
        p->pack = NULL;
        return error;
    }
    error = s->api.cudnnBackendSetAttribute(p->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, g->n_ids, g->ids);
    error = error
                ? error
                : s->api.cudnnBackendSetAttribute(p->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, g->n_ids, pointers);
    error = error ? error : s->api.cudnnBackendSetAttribute(p->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    error = error ? error : s->api.cudnnBackendFinalize(p->pack);
    if (error)
        drop_pack(s, p);
    memcpy(p->pointers, pointers, sizeof(pointers));
    p->workspace = workspace;
    return error;
}

static void warn(struct cuda_device *d, const struct tern_op_desc *desc, cudnnStatus_t error)
{
    char shape[TERN_META_TEXT];
    const char *text = d->dnn->api.cudnnGetErrorString(error);
    if (!d->dnn->warned)
        tern_message(
            d->gpu.base.ctx, TERN_LOG_WARN,
            "cuda: %s %s: cuDNN failed with %s (%d); what it fails at runs by our own kernels. TERN_CUDNN_LIBRARY=none leaves it out",
            tern_op_get(desc->op).name, tern_meta_text(&desc->in[0], shape), text ? text : "an error", error);
    d->dnn->warned = true;
}

/* False when the text has to run; a description that failed is not tried again. */
static bool execute(struct cuda_device *d, struct cuda_dnn_plan *p, const struct tern_kernel_args *a)
{
    if (!p->works)
        return false;
    cudnnStatus_t error = pack_of(d->dnn, p, a);
    error = error ? error : d->dnn->api.cudnnBackendExecute(d->dnn->target.handle, p->graph.plan, p->pack);
    if (error)
        warn(d, a->desc, error);
    p->works = !error;
    return !error;
}

/* ---- kernels ---- */

/* What the text does not take is left to the ladder, so that there is always a way back. */
static bool supports(struct tern_device *device, const struct tern_op_desc *desc)
{
    struct cuda_device *d = (struct cuda_device *)device;
    if (!tern_cuda_dnn_takes(desc) || (d->dnn && !d->dnn->target.handle) || !tern_gpu_kernels[desc->op]->supports(device, desc) ||
        tern_cuda_enter(d, NULL))
        return false;
    struct cuda_dnn_plan *p = plan_of(d, desc, 16);
    bool works = p && p->works;
    tern_cuda_leave(d);
    return works;
}

/* As much as the plan, or the text in its place, needs. */
static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *desc)
{
    struct cuda_device *d = (struct cuda_device *)ctx->device;
    size_t size = tern_gpu_kernels[desc->op]->workspace(ctx, desc);
    if (tern_cuda_enter(d, NULL))
        return size;
    struct cuda_dnn_plan *p = plan_of(d, desc, 16);
    if (p && p->graph.workspace && (size_t)p->graph.workspace + CUDA_WORKSPACE_ALIGNMENT > size)
        size = (size_t)p->graph.workspace + CUDA_WORKSPACE_ALIGNMENT;
    tern_cuda_leave(d);
    return size;
}

/* Of the texts: 1. */
static double cost(const struct tern_device *device, const struct tern_op_desc *d) { return 0.5; }

/* 16 when all that is touched begins at such a multiple, else one element. */
static int alignment_of(const struct tern_kernel_args *a)
{
    uintptr_t bits = (uintptr_t)pointer(&a->out);
    for (int i = 0; i < a->desc->n_in; i++)
        bits |= a->desc->present[i] ? (uintptr_t)pointer(&a->in[i]) : 0;
    return bits % 16 ? (int)tern_dtype_size(a->desc->out.dtype) : 16;
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    struct cuda_device *d = (struct cuda_device *)a->out.buffer->device;
    if (tern_cuda_enter(d, "cuDNN"))
        return TERN_E_DEVICE;
    struct cuda_dnn_plan *p = plan_of(d, a->desc, alignment_of(a));
    bool done = p && execute(d, p, a), failed = !p && tern_failed(a->ctx);
    d->captured += d->capturing && done;
    tern_cuda_leave(d);
    return done ? TERN_OK : failed ? tern_error_status(a->ctx) : tern_gpu_kernels[a->desc->op]->run(a);
}

const struct tern_kernel tern_cuda_conv2d_cudnn = {.name = "conv2d_cudnn",
                                                   .op = TERN_OP_conv2d,
                                                   .cost = cost,
                                                   .supports = supports,
                                                   .post = tern_cuda_dnn_takes_posts,
                                                   .workspace = workspace,
                                                   .run = run};
const struct tern_kernel tern_cuda_sdpa_cudnn = {.name = "sdpa_cudnn",
                                                 .op = TERN_OP_sdpa,
                                                 .cost = cost,
                                                 .supports = supports,
                                                 .post = tern_cuda_dnn_takes_posts,
                                                 .workspace = workspace,
                                                 .run = run};

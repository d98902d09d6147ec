/* A stand-in for cuDNN: descriptors whose attributes are checked by name, type and count; heuristics whose first engines nobody may take;
 * and graphs that run on the host, in the order of the stream. */
#include <dlfcn.h>
#include <stdlib.h>

#include "tests/cuda/dnn.h"

#define DECLARE(type, name, arguments) STANDIN_API type name arguments;
CUDNN_FUNCTIONS(DECLARE)
#undef DECLARE

enum { MOST = 8192 };
static struct descriptor *all[MOST];
static int live, runs, plans_made, plans_read;
static size_t claimed = 91900;
int64_t dnn_workspace = 4096;
static struct {
    const char *function;
    int nth, error;
} fault;

int standin_dnn_live(void) { return live; }
int standin_dnn_runs(void) { return runs; }
int standin_dnn_plans_made(void) { return plans_made; }
int standin_dnn_plans_read(void) { return plans_read; }
int standin_dnn_pending(void) { return fault.nth > 0; }

void standin_dnn_fail(const char *function, int nth, int error)
{
    fault.function = function;
    fault.nth = nth;
    fault.error = error;
}

void standin_dnn_set(size_t version, int64_t workspace)
{
    claimed = version;
    dnn_workspace = workspace;
}

static cudnnStatus_t injected(const char *function)
{
    if (fault.nth <= 0 || strcmp(fault.function, function))
        return CUDNN_STATUS_SUCCESS;
    return --fault.nth ? CUDNN_STATUS_SUCCESS : fault.error;
}
#define INJECT()                                  \
    cudnnStatus_t injected_ = injected(__func__); \
    if (injected_)                                \
    return injected_

/* ---- the library ---- */

size_t cudnnGetVersion(void) { return claimed; }
size_t cudnnGetCudartVersion(void) { return 13000; }
const char *cudnnGetErrorString(cudnnStatus_t status) { return status ? "a failure of the stand-in" : "success"; }

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    INJECT();
    const char *path = getenv("TERN_CUDA_LIBRARY");
    void *driver = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (!driver)
        return CUDNN_STATUS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof(**handle));
    live++;
    *(void **)(void *)&(*handle)->launch = dlsym(driver, "standin_launch_host");
    *(void **)(void *)&(*handle)->holds = dlsym(driver, "standin_holds");
    dlclose(driver);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    live--;
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    INJECT();
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- descriptors ---- */

struct descriptor *dnn_get(const void *descriptor, int kind)
{
    for (int i = 0; descriptor && i < MOST; i++)
        if (all[i] == descriptor)
            return kind < 0 || all[i]->kind == kind ? all[i] : NULL;
    return NULL;
}

const struct attribute *dnn_attribute(const struct descriptor *d, int name)
{
    for (int i = 0; i < d->n; i++)
        if (d->attributes[i].name == name)
            return &d->attributes[i];
    return NULL;
}

struct descriptor *dnn_part(const struct descriptor *d, int name)
{
    const struct attribute *a = dnn_attribute(d, name);
    return a ? dnn_get(a->v.address[0], -1) : NULL;
}

void dnn_numbers(const struct descriptor *d, int name, int n, int64_t *to)
{
    const struct attribute *a = dnn_attribute(d, name);
    for (int i = 0; i < n; i++)
        to[i] = a ? a->v.number[i] : 0;
}

static bool truth(const struct descriptor *d, int name)
{
    const struct attribute *a = dnn_attribute(d, name);
    return a && a->v.truth[0];
}

struct dnn_tensor dnn_tensor_of(const struct descriptor *d)
{
    const struct attribute *type = dnn_attribute(d, CUDNN_ATTR_TENSOR_DATA_TYPE);
    int code = type ? type->v.code[0] : CUDNN_DATA_FLOAT;
    struct dnn_tensor t = {.type = code == CUDNN_DATA_FLOAT  ? ELEMENT_F32
                                   : code == CUDNN_DATA_HALF ? ELEMENT_F16
                                                             : ELEMENT_BF16,
                           .is_virtual = truth(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL),
                           .by_value = truth(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE)};
    dnn_numbers(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &t.id);
    dnn_numbers(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &t.alignment);
    dnn_numbers(d, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, t.dims);
    dnn_numbers(d, CUDNN_ATTR_TENSOR_STRIDES, 4, t.strides);
    return t;
}

static bool exists(int kind)
{
    return kind == CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR ? claimed >= 91300 : kind <= CUDNN_BACKEND_TENSOR_DESCRIPTOR && kind >= 0;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor)
{
    INJECT();
    int i = 0;
    while (i < MOST && all[i])
        i++;
    if (i == MOST || !exists(type))
        return CUDNN_STATUS_NOT_SUPPORTED;
    *descriptor = all[i] = calloc(1, sizeof(*all[i]));
    all[i]->kind = type;
    live++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    for (int i = 0; descriptor && i < MOST; i++)
        if (all[i] == descriptor) {
            free(all[i]);
            all[i] = NULL;
            live--;
            return CUDNN_STATUS_SUCCESS;
        }
    return CUDNN_STATUS_BAD_PARAM;
}

static size_t size_of(int type)
{
    return type == CUDNN_TYPE_BOOLEAN ? sizeof(bool)
           : type == CUDNN_TYPE_CHAR  ? 1
           : type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_VOID_PTR || type == CUDNN_TYPE_BACKEND_DESCRIPTOR || type == CUDNN_TYPE_HANDLE
               ? 8
               : 4;
}

/* The kind that an attribute belongs to (all attributes of a hundred do), its type, and how many values it has. */
static const struct schema {
    int name, kind, type;
    int64_t least, most;
} schemas[] = {
#define T CUDNN_BACKEND_TENSOR_DESCRIPTOR
    {CUDNN_ATTR_TENSOR_UNIQUE_ID, T, CUDNN_TYPE_INT64, 1, 1},
    {CUDNN_ATTR_TENSOR_DATA_TYPE, T, CUDNN_TYPE_DATA_TYPE, 1, 1},
    {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, T, CUDNN_TYPE_INT64, 1, 1},
    {CUDNN_ATTR_TENSOR_DIMENSIONS, T, CUDNN_TYPE_INT64, 4, 4},
    {CUDNN_ATTR_TENSOR_STRIDES, T, CUDNN_TYPE_INT64, 4, 4},
    {CUDNN_ATTR_TENSOR_IS_VIRTUAL, T, CUDNN_TYPE_BOOLEAN, 1, 1},
    {CUDNN_ATTR_TENSOR_IS_BY_VALUE, T, CUDNN_TYPE_BOOLEAN, 1, 1},
#undef T
#define C CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR
    {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, C, CUDNN_TYPE_DATA_TYPE, 1, 1},
    {CUDNN_ATTR_CONVOLUTION_CONV_MODE, C, CUDNN_TYPE_CONVOLUTION_MODE, 1, 1},
    {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, C, CUDNN_TYPE_INT64, 1, 1},
    {CUDNN_ATTR_CONVOLUTION_DILATIONS, C, CUDNN_TYPE_INT64, 2, 2},
    {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, C, CUDNN_TYPE_INT64, 2, 2},
    {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, C, CUDNN_TYPE_INT64, 2, 2},
    {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, C, CUDNN_TYPE_INT64, 2, 2},
#undef C
#define O CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, O, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, O, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, O, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, O, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, O, CUDNN_TYPE_FLOAT, 1, 1},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, O, CUDNN_TYPE_FLOAT, 1, 1},
#undef O
    {CUDNN_ATTR_POINTWISE_MODE, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_TYPE_POINTWISE_MODE, 1, 1},
    {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_TYPE_DATA_TYPE, 1, 1},
    {CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_TYPE_NAN_PROPOGATION, 1, 1},
    {CUDNN_ATTR_POINTWISE_SWISH_BETA, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_TYPE_FLOAT, 1, 1},
#define P CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR
    {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, P, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, P, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, P, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, P, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
#undef P
#define A CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR
    {CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, A, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, A, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, A, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, A, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, A, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
#undef A
    {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_TYPE_HANDLE, 1, 1},
    {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, DNN_STEPS},
    {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_TYPE_HEUR_MODE, 1, 1},
    {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_TYPE_HANDLE, 1, 1},
    {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_TYPE_CHAR, 1,
     sizeof(struct dnn_written)},
    {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_TYPE_INT64, 1, DNN_VALUES},
    {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_TYPE_VOID_PTR, 1, DNN_VALUES},
    {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_TYPE_VOID_PTR, 1, 1},
};

/* What an operation, a graph or a plan is made of is finalised before. */
static cudnnStatus_t check_parts(int64_t count, const void *const *parts)
{
    for (int64_t i = 0; i < count; i++) {
        const struct descriptor *part = dnn_get(parts[i], -1);
        if (!part)
            return CUDNN_STATUS_BAD_PARAM;
        if (!part->finalised)
            return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    INJECT();
    struct descriptor *d = dnn_get(descriptor, -1);
    if (!d || !values)
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    if (d->finalised || d->n == DNN_ATTRIBUTES)
        return CUDNN_STATUS_NOT_SUPPORTED;
    for (size_t i = 0; i < sizeof(schemas) / sizeof(*schemas); i++) {
        const struct schema *s = &schemas[i];
        if (s->name != name || s->kind != d->kind)
            continue;
        if (s->type != type)
            return CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
        if (count < s->least || count > s->most || dnn_attribute(d, name))
            return CUDNN_STATUS_BAD_PARAM;
        cudnnStatus_t error = type == CUDNN_TYPE_BACKEND_DESCRIPTOR ? check_parts(count, values) : CUDNN_STATUS_SUCCESS;
        if (error)
            return error;
        struct attribute *a = &d->attributes[d->n++];
        *a = (struct attribute){.name = name, .type = type, .count = count};
        memcpy(&a->v, values, (size_t)count * size_of(type));
        return CUDNN_STATUS_SUCCESS;
    }
    return CUDNN_STATUS_BAD_PARAM;
}

static uint64_t mix(uint64_t h, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        h = (h ^ ((const unsigned char *)data)[i]) * 1099511628211u; /* FNV-1a */
    return h;
}

/* Of a graph and its parts, but not of the handle. */
static uint64_t hash_of(uint64_t h, const struct descriptor *d)
{
    h = mix(h, &d->kind, sizeof(d->kind));
    for (int i = 0; i < d->n; i++) {
        const struct attribute *a = &d->attributes[i];
        h = mix(h, &a->name, sizeof(a->name));
        for (int64_t k = 0; a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && k < a->count; k++)
            h = hash_of(h, a->v.address[k]);
        if (a->type != CUDNN_TYPE_BACKEND_DESCRIPTOR && a->type != CUDNN_TYPE_HANDLE)
            h = mix(h, &a->v, (size_t)a->count * size_of(a->type));
    }
    return h;
}

/* Engine and graph of a plan that was written. */
static cudnnStatus_t read_plan(struct descriptor *plan, const struct attribute *text)
{
    struct dnn_written w = {.engine = ENGINES};
    if (text->count == sizeof(w))
        memcpy(&w, &text->v, sizeof(w));
    for (int i = 0; !memcmp(w.magic, DNN_MAGIC, sizeof(w.magic)) && w.engine < ENGINES && i < MOST; i++)
        if (all[i] && all[i]->kind == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR && all[i]->finalised && hash_of(1, all[i]) == w.graph) {
            plan->engine = (int)w.engine;
            plan->graph = all[i];
            plans_read++;
            return CUDNN_STATUS_SUCCESS;
        }
    return CUDNN_STATUS_NOT_SUPPORTED;
}

static cudnnStatus_t write_plan(const struct descriptor *plan, int64_t wanted, int64_t *count, void *values)
{
    struct dnn_written w = {DNN_MAGIC, plan->engine, hash_of(1, plan->graph)};
    *count = sizeof(w);
    if (wanted >= (int64_t)sizeof(w))
        memcpy(values, &w, sizeof(w));
    return wanted && wanted < (int64_t)sizeof(w) ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    INJECT();
    struct descriptor *d = dnn_get(descriptor, -1);
    if (!d || d->finalised)
        return CUDNN_STATUS_BAD_PARAM;
    cudnnStatus_t error = dnn_check(d);
    if (error)
        return error;
    const struct attribute *text = dnn_attribute(d, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
    if (text && (error = read_plan(d, text)))
        return error;
    d->finalised = true;
    if (d->kind == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && !text) {
        plans_made++;
        const struct descriptor *config = dnn_part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
        d->engine = config->engine;
        d->graph = config->graph;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- what is asked of them ---- */

static cudnnStatus_t results(const struct descriptor *heuristic, int64_t wanted, int64_t *count, void *const *configs)
{
    *count = ENGINES;
    for (int64_t i = 0; i < wanted && i < ENGINES; i++) {
        struct descriptor *config = dnn_get(configs[i], CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        if (!config)
            return CUDNN_STATUS_BAD_PARAM;
        config->finalised = true;
        config->engine = (int)i;
        config->graph = dnn_part(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t notes(const struct descriptor *engine, int64_t wanted, int64_t *count, int *values)
{
    *count = engine->engine == ENGINE_WINOGRAD || engine->engine == ENGINE_TENSOR;
    if (*count && wanted > 0)
        values[0] = engine->engine == ENGINE_WINOGRAD ? CUDNN_NUMERICAL_NOTE_WINOGRAD : CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count, void *values)
{
    INJECT();
    const struct descriptor *d = dnn_get(descriptor, -1);
    if (!d || !d->finalised)
        return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return results(d, wanted, count, values);
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE)
        return notes(d, wanted, count, values);
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE && type == CUDNN_TYPE_BACKEND_DESCRIPTOR && wanted == 1) {
        struct descriptor *engine = dnn_get(*(void **)values, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
        if (!engine)
            return CUDNN_STATUS_BAD_PARAM;
        engine->finalised = true;
        engine->engine = d->engine;
        *count = 1;
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION && type == CUDNN_TYPE_CHAR && d->graph)
        return write_plan(d, wanted, count, values);
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64 && wanted == 1) {
        *(int64_t *)values = d->engine == ENGINE_LARGE ? INT64_MAX / 2 : dnn_workspace;
        *count = 1;
        return CUDNN_STATUS_SUCCESS;
    }
    return CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    INJECT();
    const struct descriptor *p = dnn_get(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
                            *k = dnn_get(pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    if (!p || !k || !p->finalised || !k->finalised || !handle->stream)
        return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    cudnnStatus_t error = dnn_run(handle, p, k);
    runs += !error;
    return error;
}

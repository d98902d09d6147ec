/* The engine for a graph of cuDNN: what its heuristics propose, best first, until one keeps to our numbers and our memory. */
#include <string.h>

#include "backends/cuda/dnn.h"

/* Tries: plans for each heuristic; one may compile a kernel, for a second or two. */
enum { MOST_CONFIGS = 64, MOST_NOTES = 32, MOST_TRIES = 8 };

struct choice {
    const struct cuda_dnn_target *target;
    const struct cudnn_api *api;
    struct cuda_dnn_graph *graph;
    bool f32;
    int64_t workspace; /* bytes at most */
    int tries;
};

/* Reductions in f32 alone: no TF32, no sums in f16, no transforms whose errors are larger (Winograd, FFT), the same result each time.
 * An engine without notes is one of plain products. */
static bool exact(struct choice *c, cudnnBackendDescriptor_t config)
{
    cudnnBackendDescriptor_t engine = NULL;
    int notes[MOST_NOTES];
    int64_t n = 0;
    if (c->api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine))
        return false;
    bool good =
        !c->api->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine) &&
        !c->api->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, MOST_NOTES, &n, notes) &&
        n <= MOST_NOTES;
    for (int i = 0; i < n && good; i++)
        good = notes[i] == CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP || (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && !c->f32);
    c->api->cudnnBackendDestroyDescriptor(engine);
    return good;
}

cudnnBackendDescriptor_t tern_cuda_dnn_plan(const struct cuda_dnn_target *t, int name, int type, int64_t count, const void *value,
                                            int64_t *workspace)
{
    const struct cudnn_api *api = t->api;
    cudnnBackendDescriptor_t plan = NULL;
    int64_t n = 0;
    if (api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan))
        return NULL;
    cudnnStatus_t error = CUDNN_STATUS_SUCCESS;
    if (t->handle)
        error = api->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &t->handle);
    if (!error && t->device)
        error = api->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t->device);
    error = error ? error : api->cudnnBackendSetAttribute(plan, name, type, count, value);
    error = error ? error : api->cudnnBackendFinalize(plan);
    if (!error)
        error = api->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, workspace);
    if (!error && n == 1 && *workspace >= 0)
        return plan;
    api->cudnnBackendDestroyDescriptor(plan);
    return NULL;
}

/* The plan of a configuration, or NULL. */
static cudnnBackendDescriptor_t plan_of(struct choice *c, cudnnBackendDescriptor_t config)
{
    int64_t workspace = 0;
    c->tries++;
    cudnnBackendDescriptor_t plan =
        tern_cuda_dnn_plan(c->target, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config, &workspace);
    if (plan && workspace > c->workspace) {
        c->api->cudnnBackendDestroyDescriptor(plan);
        return NULL;
    }
    if (plan)
        c->graph->workspace = workspace;
    return plan;
}

/* The first of a heuristic's configurations that will do becomes the graph's plan; the others go. */
static void take_first(struct choice *c, int64_t n, cudnnBackendDescriptor_t *configs)
{
    struct cuda_dnn_graph *g = c->graph;
    for (int64_t i = 0; i < n; i++) {
        if (!g->plan && c->tries < MOST_TRIES && g->n_made + 2 <= CUDA_DNN_DESCRIPTORS && exact(c, configs[i]) &&
            (g->plan = plan_of(c, configs[i]))) {
            g->made[g->n_made++] = configs[i];
            g->made[g->n_made++] = g->plan;
        } else {
            c->api->cudnnBackendDestroyDescriptor(configs[i]);
        }
    }
}

/* As many configurations as there are, at most MOST_CONFIGS, the best first. */
static void ask(struct choice *c, cudnnBackendDescriptor_t graph, int mode)
{
    cudnnBackendDescriptor_t heuristic = NULL, configs[MOST_CONFIGS];
    const struct cudnn_api *api = c->api;
    int64_t wanted = 0, made = 0, found = 0;
    c->tries = 0;
    if (api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic))
        return;
    cudnnStatus_t error =
        api->cudnnBackendSetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    error = error ? error : api->cudnnBackendSetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!error && c->target->device)
        error = api->cudnnBackendSetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                              &c->target->device);
    error = error ? error : api->cudnnBackendFinalize(heuristic);
    if (!error)
        error = api->cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &wanted, NULL);
    for (wanted = wanted < MOST_CONFIGS ? wanted : MOST_CONFIGS; !error && made < wanted; made += !error)
        error = api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[made]);
    if (!error && made)
        error =
            api->cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &found, configs);
    found = error ? 0 : found < made ? found : made;
    api->cudnnBackendDestroyDescriptor(heuristic);
    take_first(c, found, configs);
    for (int64_t i = found; i < made; i++)
        api->cudnnBackendDestroyDescriptor(configs[i]);
}

bool tern_cuda_dnn_make(const struct cuda_dnn_target *t, const struct tern_op_desc *d, int64_t alignment, int64_t workspace,
                        struct cuda_dnn_graph *g)
{
    static const int modes[] = {CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    struct choice c = {.target = t, .api = t->api, .graph = g, .f32 = d->out.dtype == TERN_F32, .workspace = workspace};
    memset(g, 0, sizeof(*g));
    cudnnBackendDescriptor_t graph = tern_cuda_dnn_graph_make(t, d, alignment, g);
    for (int i = 0; i < 3 && graph && !g->plan; i++)
        ask(&c, graph, modes[i]);
    if (!g->plan)
        tern_cuda_dnn_drop(t, g);
    return g->plan != NULL;
}

/* The last first: plans before what they were made of. */
void tern_cuda_dnn_drop(const struct cuda_dnn_target *t, struct cuda_dnn_graph *g)
{
    while (g->n_made)
        t->api->cudnnBackendDestroyDescriptor(g->made[--g->n_made]);
    memset(g, 0, sizeof(*g));
}

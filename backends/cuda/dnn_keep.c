/* Plans of cuDNN in the cache folder, as cuDNN writes them: an engine may compile a kernel for a second or two, and what it made is read
 * in a millisecond. */
#include <stdio.h>
#include <string.h>

#include "backends/cuda/dnn.h"
#include "core/context.h"

/* Raised when other engines are chosen for the same description, or it becomes another graph. */
#define RULES 1

/* The file of a plan: by all that it depends on. NULL where there is no cache folder. */
static char *path_of(const struct cuda_device *d, const struct cuda_dnn_target *t, const struct tern_op_desc *desc, int64_t alignment,
                     int64_t workspace)
{
    char facts[200], source[80];
    snprintf(facts, sizeof(facts), "tern " TERN_VERSION " %.100s sm_%d driver %d cuDNN %zu of CUDA %zu rules %d", d->name, d->capability,
             d->driver, t->api->cudnnGetVersion(), t->api->cudnnGetCudartVersion(), RULES);
    snprintf(source, sizeof(source), "plan of %016llx%016llx by %lld in %lld",
             (unsigned long long)tern_gpu_hash(0xcbf29ce484222325u, desc, sizeof(*desc)),
             (unsigned long long)tern_gpu_hash(0x9e3779b97f4a7c15u, desc, sizeof(*desc)), (long long)alignment, (long long)workspace);
    return tern_gpu_binary_path(d->gpu.base.ctx, "cuda", facts, source);
}

char *tern_cuda_dnn_write(struct tern_context *ctx, const struct cuda_dnn_target *t, const struct cuda_dnn_graph *g, size_t *size)
{
    int64_t n = 0, told = 0;
    const cudnnBackendAttributeName_t name = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    if (t->api->cudnnBackendGetAttribute(g->plan, name, CUDNN_TYPE_CHAR, 0, &n, NULL) || n < 1 || n > INT32_MAX)
        return NULL;
    char *text = tern_alloc(ctx, (size_t)n);
    if (text && !t->api->cudnnBackendGetAttribute(g->plan, name, CUDNN_TYPE_CHAR, n, &told, text) && told > 0 && told <= n) {
        *size = (size_t)told;
        return text;
    }
    tern_free(ctx, text);
    return NULL;
}

bool tern_cuda_dnn_read(const struct cuda_dnn_target *t, const struct tern_op_desc *d, int64_t alignment, int64_t workspace,
                        const char *text, size_t size, struct cuda_dnn_graph *g)
{
    memset(g, 0, sizeof(*g));
    if (tern_cuda_dnn_graph_make(t, d, alignment, g) && g->n_made < CUDA_DNN_DESCRIPTORS &&
        (g->plan =
             tern_cuda_dnn_plan(t, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)size, text, &g->workspace)))
        g->made[g->n_made++] = g->plan;
    if (g->plan && g->workspace <= workspace)
        return true;
    tern_cuda_dnn_drop(t, g);
    return false;
}

bool tern_cuda_dnn_find(struct cuda_device *d, const struct cuda_dnn_target *t, const struct tern_op_desc *desc, int64_t alignment,
                        int64_t workspace, struct cuda_dnn_graph *g)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    const bool failed = tern_failed(ctx);
    char *path = failed ? NULL : path_of(d, t, desc, alignment, workspace);
    size_t size = 0;
    char *text = tern_gpu_binary_read(ctx, path, "the plan of cuDNN is made again", &size);
    bool found = text && tern_cuda_dnn_read(t, desc, alignment, workspace, text, size, g);
    tern_free(ctx, text);
    if (!found && (found = tern_cuda_dnn_make(t, desc, alignment, workspace, g)) && path &&
        (text = tern_cuda_dnn_write(ctx, t, g, &size))) {
        tern_gpu_binary_keep(ctx, path, text, size);
        tern_free(ctx, text);
    }
    if (!failed) /* without memory for a file there is a plan all the same */
        tern_error_clear_own(ctx);
    tern_free(ctx, path);
    return found;
}

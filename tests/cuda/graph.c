/* Captures and graphs of the stand-in driver: launches that are kept, and checked anew with each replay. */
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/inside.h"

void standin_graph_add(struct graph *g, const struct launch *l)
{
    if (g->n == g->capacity) {
        g->capacity = g->capacity ? 2 * g->capacity : 64;
        g->nodes = realloc(g->nodes, (size_t)g->capacity * sizeof(*g->nodes));
        if (!g->nodes)
            abort();
    }
    g->nodes[g->n++] = standin_copy_launch(l);
}

static void clear(struct graph *g)
{
    for (int i = 0; i < g->n; i++)
        free(g->nodes[i].memory);
    free(g->nodes);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    ENTER(true);
    struct stream *s = standin_get(KIND_STREAM, stream, __func__);
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture)
        return standin_misuse(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "a capture begins on a stream that captures");
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return standin_misuse(CUDA_ERROR_NOT_SUPPORTED, "capture mode %d, of which the stand-in does not know the rules", mode);
    s->capture = calloc(1, sizeof(*s->capture));
    s->broken = false;
    return s->capture ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Ends the capture when it fails, too. */
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    __attribute__((cleanup(standin_leave))) int held = 0;
    CUresult error = standin_enter(__func__, true, &held);
    struct stream *s = standin_get(KIND_STREAM, stream, __func__);
    *graph = NULL;
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!s->capture)
        return standin_misuse(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "a capture ends on a stream that does not capture");
    struct graph *captured = s->capture;
    s->capture = NULL;
    if (!s->broken && !error) {
        struct graph *g = standin_new(KIND_GRAPH, sizeof(*g), (void **)graph);
        *g = *captured;
    } else {
        clear(captured);
    }
    free(captured);
    return error ? error : s->broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    ENTER(true);
    struct graph *g = standin_get(KIND_GRAPH, graph, __func__);
    if (!g)
        return CUDA_ERROR_INVALID_HANDLE;
    struct graph *e = standin_new(KIND_EXEC, sizeof(*e), (void **)exec);
    for (int i = 0; i < g->n; i++)
        standin_graph_add(e, &g->nodes[i]);
    return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    ENTER(true);
    struct graph *e = standin_get(KIND_EXEC, exec, __func__);
    struct stream *s = e ? standin_get(KIND_STREAM, stream, __func__) : NULL;
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture)
        return standin_misuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a graph is launched on a stream that captures");
    CUresult error = CUDA_SUCCESS;
    for (int i = 0; i < e->n && !error; i++)
        error = standin_launch(s, &e->nodes[i], "cuGraphLaunch");
    e->last = s;
    e->index = s->index;
    e->number = s->next - 1;
    standin.counts.graph_launches++;
    standin.counts.graph_kernels += (uint64_t)e->n;
    return error;
}

/* While it runs it may not go: nobody promises that it would be kept. */
CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    ENTER(true);
    struct graph *e = standin_get(KIND_EXEC, exec, __func__);
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    if (e->last && standin.host.over[e->index] < e->number)
        standin_misuse(CUDA_ERROR_INVALID_VALUE, "a graph is destroyed that may run yet");
    clear(e);
    return standin_delete(KIND_EXEC, exec, __func__);
}

CUresult cuGraphDestroy(CUgraph graph)
{
    ENTER(true);
    struct graph *g = standin_get(KIND_GRAPH, graph, __func__);
    if (!g)
        return CUDA_ERROR_INVALID_HANDLE;
    clear(g);
    return standin_delete(KIND_GRAPH, graph, __func__);
}

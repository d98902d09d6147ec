/* cuDNN as a candidate for convolution and attention. */
#ifndef TERN_BACKENDS_CUDA_DNN_H
#define TERN_BACKENDS_CUDA_DNN_H

#include "backends/cuda/cuda.h"
#include "backends/cuda/cudnn.h"

/* Workspace: bytes at most. */
enum { CUDA_DNN_TABLE = 256, CUDA_DNN_WORKSPACE = 128 << 20, CUDA_DNN_DESCRIPTORS = 40 };

/* What graphs are planned with: a handle; or without a device, as tests do, a description of one (cuDNN 9.8). */
struct cuda_dnn_target {
    const struct cudnn_api *api;
    cudnnHandle_t handle;            /* NULL: */
    cudnnBackendDescriptor_t device; /* finalised; NULL: the handle's */
};

/* Unique ids of tensors: of input i, of the result, of attention's scale, and from which on those that are never stored. */
#define CUDA_DNN_INPUT(i) (1 + (i))
enum { CUDA_DNN_OUT = 1 + TERN_MAX_INPUTS, CUDA_DNN_SCALE, CUDA_DNN_VIRTUAL, CUDA_DNN_MOST_IDS = CUDA_DNN_SCALE };

/* A description as cuDNN's graph, and the plan that its heuristics gave. Its descriptors live as long as the plan. */
struct cuda_dnn_graph {
    cudnnBackendDescriptor_t made[CUDA_DNN_DESCRIPTORS];
    int n_made, n_ids;
    int64_t ids[CUDA_DNN_MOST_IDS]; /* of the tensors that have memory */
    cudnnBackendDescriptor_t plan;  /* NULL: there is none */
    int64_t workspace;              /* bytes */
    float scale;
};

/* dnn_parts.c: whether cuDNN finds the libraries without which it ends the process; else the name of one that is missing. Before this is
 * asked no other function may be called. */
enum { CUDA_DNN_PART = 40 };
bool tern_cuda_dnn_is_complete(const struct cudnn_api *api, char missing[CUDA_DNN_PART]);
/* dnn_graph.c: whether the description can be such a graph: conv2d of pictures in channels-last, sdpa without a mask. */
bool tern_cuda_dnn_takes(const struct tern_op_desc *d);
/* Whether its posts can. */
bool tern_cuda_dnn_takes_posts(const struct tern_op_desc *d);
/* The operation graph, or NULL with its error lost; g->made has what was made of it in either case. */
cudnnBackendDescriptor_t tern_cuda_dnn_graph_make(const struct cuda_dnn_target *t, const struct tern_op_desc *d, int64_t alignment,
                                                  struct cuda_dnn_graph *g);
/* dnn_engine.c: makes graph and plan: sums in f32, never TF32. alignment: of all its memory, bytes. False when cuDNN has no engine for it
 * that needs at most that workspace; then nothing is left. Nothing is recorded. */
bool tern_cuda_dnn_make(const struct cuda_dnn_target *t, const struct tern_op_desc *d, int64_t alignment, int64_t workspace,
                        struct cuda_dnn_graph *g);
/* The plan that has the attribute: a configuration, or what cuDNN wrote of one. Its workspace in bytes. NULL when cuDNN refuses. */
cudnnBackendDescriptor_t tern_cuda_dnn_plan(const struct cuda_dnn_target *t, int name, int type, int64_t count, const void *value,
                                            int64_t *workspace);
void tern_cuda_dnn_drop(const struct cuda_dnn_target *t, struct cuda_dnn_graph *g);
/* dnn_keep.c: the same, from the cache folder if it is there, and else kept there. The device is entered. */
bool tern_cuda_dnn_find(struct cuda_device *d, const struct cuda_dnn_target *t, const struct tern_op_desc *desc, int64_t alignment,
                        int64_t workspace, struct cuda_dnn_graph *g);
/* The plan as cuDNN writes it, tern_free; NULL when it does not, or without memory (recorded). */
char *tern_cuda_dnn_write(struct tern_context *ctx, const struct cuda_dnn_target *t, const struct cuda_dnn_graph *g, size_t *size);
/* What was written, as tern_cuda_dnn_make would have made it of the same. False when cuDNN does not take it; then nothing is left. */
bool tern_cuda_dnn_read(const struct cuda_dnn_target *t, const struct tern_op_desc *d, int64_t alignment, int64_t workspace,
                        const char *text, size_t size, struct cuda_dnn_graph *g);

/* dnn.c: "cuDNN 9.26.0", or "no cuDNN" and why. Opens it. */
void tern_cuda_dnn_describe(struct cuda_device *d, char *out, size_t size);

extern const struct tern_kernel tern_cuda_conv2d_cudnn, tern_cuda_sdpa_cudnn;

#endif

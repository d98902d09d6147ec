/* The inside of the stand-in for cuDNN: descriptors as lists of attributes. */
#ifndef TERN_TESTS_CUDA_DNN_H
#define TERN_TESTS_CUDA_DNN_H

#include <stdbool.h>

#include "backends/cuda/cudnn.h"
#include "tests/cuda/element.h"
#include "tests/cuda/inside.h"

enum { DNN_VALUES = 16, DNN_ATTRIBUTES = 12, DNN_STEPS = 6 };

struct attribute {
    int name, type;
    int64_t count;
    union {
        int64_t number[DNN_VALUES];
        int code[DNN_VALUES];
        float real[DNN_VALUES];
        bool truth[DNN_VALUES];
        void *address[DNN_VALUES]; /* descriptors, too */
    } v;
};

struct descriptor {
    int kind;
    bool finalised;
    int n;
    struct attribute attributes[DNN_ATTRIBUTES];
    int engine;               /* of configurations, engines and plans: its number */
    struct descriptor *graph; /* of configurations and plans */
};

struct cudnnContext {
    CUstream stream;
    __typeof__(standin_launch_host) *launch;
    __typeof__(standin_holds) *holds;
};

/* What engines do, in the order in which heuristics propose them. */
enum { ENGINE_WINOGRAD, ENGINE_LARGE, ENGINE_TENSOR, ENGINE_PLAIN, ENGINES };

/* A plan as it is written: cuDNN's has all that it needs, this one a hash of the operation graph, of which the same has to be there when it
 * is read. */
struct dnn_written {
    char magic[8];
    int64_t engine;
    uint64_t graph;
};
#define DNN_MAGIC "{\"plan\""

struct dnn_tensor {
    int64_t id, alignment;
    enum element type;
    bool is_virtual, by_value;
    int64_t dims[4], strides[4];
};

/* cudnn.c. NULL: there is no such descriptor (any more), or it is of another kind (-1: any). */
struct descriptor *dnn_get(const void *descriptor, int kind);
const struct attribute *dnn_attribute(const struct descriptor *d, int name);
/* n integers of an attribute; zeros where it is not set. */
void dnn_numbers(const struct descriptor *d, int name, int n, int64_t *to);
/* The descriptor that is the attribute's value. */
struct descriptor *dnn_part(const struct descriptor *d, int name);
struct dnn_tensor dnn_tensor_of(const struct descriptor *d);
extern int64_t dnn_workspace;

/* cudnn_check.c: what is wrong with a descriptor that is to be finalised. */
cudnnStatus_t dnn_check(const struct descriptor *d);

/* cudnn_run.c */
cudnnStatus_t dnn_run(cudnnHandle_t handle, const struct descriptor *plan, const struct descriptor *pack);

#endif

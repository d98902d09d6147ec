/* From a description of an op to launches of kernel texts: which text, its macros, parameters, buffers and number of groups. The
 * same for every GPU backend, which compiles the source, binds the buffers and enqueues. Nothing here touches a device. */
#ifndef TERN_OPS_KERNELS_LAUNCH_H
#define TERN_OPS_KERNELS_LAUNCH_H

#include "ops/kernel.h"
#include "ops/kernels/params.h"

/* The parameter structs of the host, from the lists that make those of the devices. */
#define TERN_MEMBER_INT(name) int32_t name;
#define TERN_MEMBER_INTS(name, n) int32_t name[n];
#define TERN_MEMBER_UINT(name) uint32_t name;
#define TERN_MEMBER_FLOAT(name) float name;
#define TERN_MEMBER_FLOATS(name, n) float name[n];
#define TERN_PARAMS_STRUCT(name, list)                                                                               \
    struct tern_params_##name {                                                                                      \
        TERN_PARAMS_HEAD(TERN_MEMBER_INT, TERN_MEMBER_INTS, TERN_MEMBER_UINT, TERN_MEMBER_FLOAT, TERN_MEMBER_FLOATS) \
        list(TERN_MEMBER_INT, TERN_MEMBER_INTS, TERN_MEMBER_UINT, TERN_MEMBER_FLOAT, TERN_MEMBER_FLOATS)             \
    };
#define TERN_PARAMS_NONE(I, IV, U, F, FV)
TERN_PARAMS_STRUCT(head, TERN_PARAMS_NONE)
TERN_PARAMS_STRUCT(elementwise, TERN_PARAMS_ELEMENTWISE)
TERN_PARAMS_STRUCT(copy, TERN_PARAMS_COPY)
TERN_PARAMS_STRUCT(reduce, TERN_PARAMS_REDUCE)
TERN_PARAMS_STRUCT(matmul, TERN_PARAMS_MATMUL)
TERN_PARAMS_STRUCT(split_sum, TERN_PARAMS_SPLIT_SUM)
TERN_PARAMS_STRUCT(conv2d, TERN_PARAMS_CONV2D)
TERN_PARAMS_STRUCT(quantize_pack, TERN_PARAMS_QUANTIZE_PACK)
TERN_PARAMS_STRUCT(quantized_product, TERN_PARAMS_QUANTIZED_PRODUCT)
TERN_PARAMS_STRUCT(packed_weight, TERN_PARAMS_PACKED_WEIGHT)
TERN_PARAMS_STRUCT(rows, TERN_PARAMS_ROWS)
TERN_PARAMS_STRUCT(group_norm, TERN_PARAMS_GROUP_NORM)
TERN_PARAMS_STRUCT(sdpa, TERN_PARAMS_SDPA)
TERN_PARAMS_STRUCT(embedding, TERN_PARAMS_EMBEDDING)
TERN_PARAMS_STRUCT(gather, TERN_PARAMS_GATHER)
TERN_PARAMS_STRUCT(interpolate, TERN_PARAMS_INTERPOLATE)
TERN_PARAMS_STRUCT(pool2d, TERN_PARAMS_POOL2D)
TERN_PARAMS_STRUCT(fill, TERN_PARAMS_FILL)

union tern_launch_params {
    struct tern_params_head head; /* every struct begins with it */
    struct tern_params_elementwise elementwise;
    struct tern_params_copy copy;
    struct tern_params_reduce reduce;
    struct tern_params_matmul matmul;
    struct tern_params_split_sum split_sum;
    struct tern_params_conv2d conv2d;
    struct tern_params_quantize_pack quantize_pack;
    struct tern_params_quantized_product quantized_product;
    struct tern_params_packed_weight packed_weight;
    struct tern_params_rows rows;
    struct tern_params_group_norm group_norm;
    struct tern_params_sdpa sdpa;
    struct tern_params_embedding embedding;
    struct tern_params_gather gather;
    struct tern_params_interpolate interpolate;
    struct tern_params_pool2d pool2d;
    struct tern_params_fill fill;
};

/* Sizes and spans at which indices of 32 bits are safe, sums of them too. */
#define TERN_LAUNCH_MAX_ELEMENTS ((int64_t)1 << 30)

/* Facts of a device that choose a variant. */
struct tern_launch_limits {
    int max_group;       /* items of a group: a power of two, at least 64 */
    size_t shared_bytes; /* at least 16 KiB */
    int max_groups;      /* of a launch in each direction: at least 65535 */
    bool storage16;      /* f16 and bf16 can be stored; they can be loaded anyway */
    bool storage8;       /* i8, u8 and bool can be stored */
    bool vectors;        /* every argument begins at a multiple of 16 bytes of a buffer that does, too */
    int subgroup;        /* items that exchange values without a barrier: a power of two; 0: none do */
    /* Matrix units that multiply 16 x 16 x 16 of a kind and sum in f32, or in 32 bits of int8, for a subgroup of that many items (0: none).
     * Those of floats want storage16. */
    int matrix_subgroup;
    bool matrix_f16, matrix_bf16, matrix_i8;
    bool dot_product; /* an instruction for four products of int8 */
};

/* Rows of a product, or pixels of a convolution's result, that every tile for them reaches. */
int64_t tern_launch_most_rows(const struct tern_launch_limits *limits);

/* What a slot of a kernel is bound to: an input by its index, or one of these. */
enum { TERN_SLOT_OUT = TERN_MAX_INPUTS, TERN_SLOT_WORKSPACE };

struct tern_launch {
    const char *text;
    int group_size[2], groups[3];
    bool subgroups;      /* a group is made of whole subgroups of limits->subgroup items */
    int matrix_subgroup; /* items that subgroups have to have, for matrix units; 0: none are used */
    bool dot_product;    /* the text uses them */
    bool separable;      /* no group asks how many there are: some of them are a launch of their own */
    double flops;        /* of the whole op; backends/gpu fills it in */
    int n_slots;
    struct {
        int what;     /* input, TERN_SLOT_OUT or TERN_SLOT_WORKSPACE */
        size_t size;  /* bytes of an element, in which params.head.offset counts */
        size_t bytes; /* of the argument, from its offset on; backends/gpu fills it in */
    } slot[TERN_MAX_SLOTS];
    size_t params_size;
    /* params.head.offset[s] is where the kernel begins in the argument, in elements. What the backend's binding leaves of the
     * argument's own offset is added to it. */
    union tern_launch_params params;
};

#define TERN_LAUNCH_DEFINES 2048
/* The launches of one op, one behind the other; each sees what those before it wrote. */
struct tern_launches {
    int n; /* 0: there is nothing to do (an empty result) */
    struct tern_launch launch[TERN_MAX_INPUTS];
    char defines[TERN_MAX_INPUTS][TERN_LAUNCH_DEFINES]; /* of each, for tern_text_source; with `text` they are the key of the program */
    size_t workspace;                                   /* bytes */
};

/* False when no text runs the description under these limits (dtypes, sizes of 2^30 elements and more, too many dimensions). */
bool tern_launches_make(const struct tern_op_desc *d, const struct tern_launch_limits *limits, struct tern_launches *out);

#endif

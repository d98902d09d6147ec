/* What a kernel is: a candidate that can run some descriptions of an op on a device. */
#ifndef TERN_OPS_KERNEL_H
#define TERN_OPS_KERNEL_H

#include "core/hal.h"
#include "ops/op.h"

struct tern_arg {
    struct tern_buffer *buffer;
    size_t offset; /* bytes */
};

struct tern_kernel_args {
    const struct tern_op_desc *desc;
    struct tern_context *ctx;
    tern_tensor *const *tensors; /* the inputs themselves, for queues that only count; kernels read `in` */
    struct tern_arg in[TERN_MAX_INPUTS];
    struct tern_arg out;
    struct tern_arg packed;    /* the packed input, when the kernel packs one */
    struct tern_arg workspace; /* workspace() bytes, not cleared */
};

/* Address of an argument in host memory; NULL when there is none (an empty workspace, a weight that is expanded where it is read). */
static inline void *tern_arg_host(const struct tern_arg *a)
{
    return a->buffer && a->buffer->host ? (char *)a->buffer->host + a->offset : NULL;
}

struct tern_kernel {
    const char *name; /* op_dtype_variant_isa */
    enum tern_op op;
    /* Raised when its time changes for some description: what was measured before no longer counts. */
    int revision;
    /* Version of the vendor's library that it runs on, which counts likewise; NULL: there is none. 0: the library is not there. */
    uint64_t (*library)(struct tern_device *device);
    /* Only plans choose it, by cost like the others: more prepared memory and other rounding than the eager kernel. */
    bool planned;
    /* Estimated time relative to other candidates of the op, for choosing among them; asked for any description, before
     * supports. NULL: 1. */
    double (*cost)(const struct tern_device *device, const struct tern_op_desc *d);
    /* Whether it can run the description (dtypes, strides, attributes) on this device. A candidate of a vendor's library
     * opens the library here, so that it is not even looked for where something cheaper serves. */
    bool (*supports)(struct tern_device *device, const struct tern_op_desc *d);
    /* Whether it applies the posts of a description that it supports; NULL: it applies none. */
    bool (*post)(const struct tern_op_desc *d);
    /* Whether it reads its input through what is in front of it (tern_pre), likewise; NULL: never. */
    bool (*pre)(struct tern_device *device, const struct tern_op_desc *d);
    /* The result may lie where the op's first input does, if both are laid out alike: each task reads what it writes over before, and no
     * other task reads that. True of all element-wise kernels without saying so. */
    bool in_place;
    /* Bytes of workspace; NULL: none. */
    size_t (*workspace)(struct tern_context *ctx, const struct tern_op_desc *d);
    /* Input `pack_input` is wanted in a form of its own: its size in bytes, and the function that makes it.
     * A constant input is packed once, any other for each run. NULL: nothing to pack. */
    int pack_input;
    size_t (*packed_size)(struct tern_context *ctx, const struct tern_op_desc *d);
    uint64_t (*pack_key)(const struct tern_op_desc *d); /* descriptions with equal keys share a packed form; NULL: always 0 */
    enum tern_status (*pack)(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst);
    enum tern_status (*run)(const struct tern_kernel_args *a);
};

/* What selection goes by; 1 where a kernel says nothing. */
static inline double tern_kernel_cost(const struct tern_device *device, const struct tern_kernel *k, const struct tern_op_desc *d)
{
    return k->cost ? k->cost(device, d) : 1;
}

#endif

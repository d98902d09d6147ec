/* Tensors whose memory is not where they are needed: weights that lie in the host's memory, and the reference on the host for
 * tensors of a device. */
#ifndef TERN_OPS_RESIDENT_H
#define TERN_OPS_RESIDENT_H

#include "ops/kernel.h"

/* Whether kernels of the device cannot read the tensor where it lies. */
static inline bool tern_is_elsewhere(const struct tern_device *device, const tern_tensor *t)
{
    const struct tern_buffer *b = t->buffer;
    return b && (device->caps.host_memory ? !b->host && b->size : b->device != device);
}

/* Where the device finds the tensor: its own memory, or a copy. A constant tensor keeps its copy as long as it lives; that of any
 * other, and of a constant one while weights are not kept (tern_context_keep_weights), is handed to *copy, to be unreferenced behind the
 * launch. copy NULL: the tensor is constant, and keeps it. NULL arg->buffer with the error recorded. Thread safe. */
enum tern_status tern_resident(struct tern_device *device, tern_tensor *t, struct tern_arg *arg, struct tern_buffer **copy);
/* Bytes of that copy if it is not there yet, else 0. Thread safe. */
size_t tern_resident_bytes(const struct tern_device *device, const tern_tensor *t);

/* The elements of a tensor, from the first on: where they lie on the host, or in *copy, for tern_free. NULL with the error recorded. */
const void *tern_host_elements(const tern_tensor *t, void **copy);

/* Gives such a copy of a constant tensor back, when nothing will read it again. */
void tern_resident_drop(struct tern_device *device, tern_tensor *t);

/* The op's reference, with operands and result brought to the host and back where its device's memory is not the host's. */
enum tern_status tern_reference_run(const struct tern_kernel_args *a);

#endif

/* Rows of a table, any dtype. */
#include <string.h>

#include "backends/cpu/kernels.h"
#include "ops/reference.h"

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return tern_meta_is_contiguous(&d->in[0]) && tern_meta_is_contiguous(&d->in[1]) && tern_meta_is_contiguous(&d->out);
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    int64_t n = tern_meta_numel(&d->in[0]), rows = d->in[1].shape[0];
    size_t size = (size_t)d->in[1].shape[1] * tern_dtype_size(d->in[1].dtype);
    const char *table = tern_arg_host(&a->in[1]);
    char *y = tern_arg_host(&a->out);
    for (int64_t i = 0; i < n; i++) {
        int64_t id = tern_load_i64(d->in[0].dtype, tern_arg_host(&a->in[0]), i);
        if (id >= 0 && id < rows)
            memcpy(y + (size_t)i * size, table + (size_t)id * size, size);
        else
            memset(y + (size_t)i * size, 0, size);
    }
    return TERN_OK;
}

const struct tern_kernel tern_cpu_embedding_copy = {.name = "embedding_copy", .op = TERN_OP_embedding, .supports = supports, .run = run};

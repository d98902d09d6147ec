/* The safetensors format: [u64 header length, little endian] [JSON header] [data].
 * https://github.com/huggingface/safetensors */
#ifndef TERN_MODELS_FILES_SAFETENSORS_H
#define TERN_MODELS_FILES_SAFETENSORS_H

#include <tern/weights.h>

#include "core/files.h"
#include "core/shape.h"

/* Adds the tensors and metadata of a mapped file to a set. The tensors keep the mapping. */
enum tern_status tern_safetensors_read(struct tern_weights *w, struct tern_mapping *m);

/* Writing tensor by tensor, for files that are larger than memory: first all names, dtypes and shapes, then the data in
 * the same order, then commit. */
struct tern_safetensors_entry {
    const char *name;
    enum tern_dtype dtype;
    int ndim;
    int64_t shape[TERN_MAX_DIMS];
};

struct tern_safetensors_writer;

/* `entries` may be freed after the call; names must be different. `metadata`: pairs key, value …; may be NULL.
 * Data is laid out in the order of the entries. NULL with the error recorded. */
struct tern_safetensors_writer *tern_safetensors_writer_open(struct tern_context *ctx, const char *path,
                                                             const struct tern_safetensors_entry *entries, int64_t count,
                                                             const char *const *metadata, int64_t metadata_count);
/* The next tensor's elements, contiguous, in its dtype; size must be exactly its bytes. */
enum tern_status tern_safetensors_writer_add(struct tern_safetensors_writer *w, const void *data, size_t size);
/* The same with a tensor's elements, wherever they lie. */
enum tern_status tern_safetensors_writer_add_tensor(struct tern_safetensors_writer *w, const tern_tensor *t);
/* Commit fails when tensors are missing. Both free the writer and set it to NULL. */
enum tern_status tern_safetensors_writer_commit(struct tern_safetensors_writer **w);
void tern_safetensors_writer_discard(struct tern_safetensors_writer **w);

#endif

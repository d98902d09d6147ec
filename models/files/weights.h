/* The inside of a weight set, and what the file readers share: mapped tensors, names in messages. */
#ifndef TERN_MODELS_FILES_WEIGHTS_H
#define TERN_MODELS_FILES_WEIGHTS_H

#include <tern/weights.h>

#include "core/files.h"
#include "core/shape.h"

struct tern_weights_entry {
    char *name;
    tern_tensor *tensor;
};

struct tern_weights {
    int refs; /* atomic */
    struct tern_context *ctx;
    const char *format;                 /* what kind of file it came from, for people; static */
    struct tern_weights_entry *entries; /* by name, once finished */
    int64_t count, capacity;
    char **metadata; /* key, value, key, value … */
    int64_t metadata_count, metadata_capacity;
};

/* Readers append in any order, then finish once: sorts and refuses names that occur twice. Append takes over the
 * tensor's reference, also on failure; NULL (a tensor that could not be made) is a failure. */
enum tern_status tern_weights_append(struct tern_weights *w, const char *name, tern_tensor *t);
enum tern_status tern_weights_finish(struct tern_weights *w, const char *where);
enum tern_status tern_weights_add_metadata(struct tern_weights *w, const char *key, const char *value);

/* An empty set with the format and metadata of another; NULL with the error recorded. */
struct tern_weights *tern_weights_like(struct tern_context *ctx, const struct tern_weights *w);

/* The readers behind tern_weights_open: they fill an empty set and leave it finished. */
enum tern_status tern_torch_zip_read(struct tern_weights *w, struct tern_mapping *m);
enum tern_status tern_torch_legacy_read(struct tern_weights *w, struct tern_mapping *m);
enum tern_status tern_sharded_read(struct tern_weights *w, struct tern_mapping *m);
/* Tells by content which of them it is; shards may not be an index themselves. */
enum tern_status tern_weights_read(struct tern_weights *w, struct tern_mapping *m, bool index_allowed);

/* Bytes that a reader may copy instead of map, in all, so that a small file cannot make a large memory. */
struct tern_copy_limit {
    size_t used, limit;
};
struct tern_copy_limit tern_copy_limit_for(size_t file_size);
/* TERN_E_FORMAT, with `where` and `name` in the message, when `size` more bytes are too many. */
enum tern_status tern_copy_limit_take(struct tern_context *ctx, struct tern_copy_limit *l, size_t size, const char *where,
                                      const char *name);

/* Element types of files that tern converts when it loads them: f64 to f32, bytes to 0 or 1, 16-bit integers to i32, u32 to i64. */
enum tern_file_dtype { TERN_FILE_NATIVE, TERN_FILE_F64, TERN_FILE_BOOL, TERN_FILE_I16, TERN_FILE_U16, TERN_FILE_U32 };

/* A constant tensor over `meta`'s elements at data[0] of a mapping: mapped when it is contiguous, aligned and of a dtype that tern
 * has, else a contiguous copy. meta->dtype is what comes out; the strides count elements. The caller has checked
 * that every element lies inside the mapping. Never belongs to a scope. */
tern_tensor *tern_mapped_tensor(struct tern_mapping *m, const uint8_t *data, enum tern_file_dtype file_dtype, const struct tern_meta *meta);
/* The same copied from memory that goes away. */
tern_tensor *tern_copied_tensor(struct tern_context *ctx, const uint8_t *data, enum tern_file_dtype file_dtype,
                                const struct tern_meta *meta);
/* True when tern_mapped_tensor would copy. */
bool tern_mapped_needs_copy(const uint8_t *data, enum tern_file_dtype file_dtype, const struct tern_meta *meta);
/* A contiguous constant tensor over a part of another's host memory, which it keeps alive; never belongs to a scope. Of a quantised weight
 * whole rows, as f32. */
tern_tensor *tern_alias_tensor(tern_tensor *t, enum tern_dtype dtype, int ndim, const int64_t *shape, size_t first_byte);
/* Uninitialised bytes (n) u8 that one tensor owns, to be filled through tern_tensor_host before it is shared. */
tern_tensor *tern_owned_bytes(struct tern_context *ctx, size_t n);

/* Text from a file made fit for a message: printable ASCII, the rest as '?', at most TERN_PRINTABLE - 1 characters. */
#define TERN_PRINTABLE 120
const char *tern_printable(const char *s, size_t n, char out[TERN_PRINTABLE]);

#endif

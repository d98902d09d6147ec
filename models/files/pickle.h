/* Python's pickle, as far as torch.save needs it: plain containers and tensors, nothing else. No name of a pickle is ever
 * called or imported; those of a short list build the values below, every other one is refused and named.
 * https://docs.python.org/3/library/pickletools.html */
#ifndef TERN_MODELS_FILES_PICKLE_H
#define TERN_MODELS_FILES_PICKLE_H

#include <tern/base.h>

enum tern_pickle_type {
    TERN_PICKLE_NONE,
    TERN_PICKLE_BOOL,    /* integer */
    TERN_PICKLE_INT,     /* integer */
    TERN_PICKLE_BIG_INT, /* text: two's complement, little endian, more than 8 bytes */
    TERN_PICKLE_FLOAT,
    TERN_PICKLE_STR,   /* text, UTF-8 */
    TERN_PICKLE_BYTES, /* text */
    TERN_PICKLE_TUPLE, /* items */
    TERN_PICKLE_LIST,  /* items */
    TERN_PICKLE_SET,   /* items */
    TERN_PICKLE_DICT,  /* items: key, value, key, value … in the order of their insertion; a key may be there twice */
    TERN_PICKLE_GLOBAL,
    TERN_PICKLE_STORAGE,
    TERN_PICKLE_TENSOR,
    TERN_PICKLE_OPAQUE /* a device, a number of NumPy or the like, of no interest */
};

/* Element types of torch storages; what tern makes of them is told in torch_tensors.c. */
enum tern_torch_dtype {
    TERN_TORCH_F32,
    TERN_TORCH_F64,
    TERN_TORCH_F16,
    TERN_TORCH_BF16,
    TERN_TORCH_I64,
    TERN_TORCH_I32,
    TERN_TORCH_I16,
    TERN_TORCH_U16,
    TERN_TORCH_U32,
    TERN_TORCH_I8,
    TERN_TORCH_U8,
    TERN_TORCH_BOOL,
    TERN_TORCH_UNTYPED, /* bytes */
    TERN_TORCH_FOREIGN  /* known to torch, not to tern: uint64, complex, float8 … */
};

struct tern_pickle_storage {
    enum tern_torch_dtype dtype;
    const char *type_name; /* "FloatStorage", static */
    size_t element;        /* bytes of one, 1 when untyped */
    const char *key;       /* not NUL-terminated */
    size_t key_size;
    int64_t numel; /* of the dtype; bytes when untyped */
};

struct tern_pickle_value;

struct tern_pickle_tensor {
    const struct tern_pickle_value *storage;
    enum tern_torch_dtype dtype;
    const char *type_name; /* "FloatStorage" or "float32", static */
    size_t element;        /* bytes of one in the file */
    int ndim;
    int64_t offset; /* elements into the storage */
    int64_t shape[TERN_MAX_DIMS], stride[TERN_MAX_DIMS];
};

struct tern_pickle_value {
    enum tern_pickle_type type;
    union {
        int64_t integer;
        double number;
        struct {
            const char *data; /* inside the pickle */
            size_t size;
        } text;
        struct {
            struct tern_pickle_value **at;
            size_t count, capacity;
        } items;
        int global; /* row of the table in pickle_build.c */
        struct tern_pickle_storage storage;
        struct tern_pickle_tensor *tensor;
    };
};

/* Everything that a pickle built; values live until it is freed. Values point into the pickle's bytes, which must stay. */
struct tern_pickle;

/* Runs one pickle from data[*at] and moves *at behind its STOP. `where` names it in messages and must stay. NULL with the error recorded.
 */
struct tern_pickle *tern_pickle_load(struct tern_context *ctx, const uint8_t *data, size_t size, size_t *at, const char *where);
void tern_pickle_free(struct tern_pickle **p);
const struct tern_pickle_value *tern_pickle_root(const struct tern_pickle *p);

/* The i-th storage that the pickle names (the same key may come several times); NULL behind the last. */
const struct tern_pickle_storage *tern_pickle_storage_at(const struct tern_pickle *p, size_t i);

/* True for a str of exactly that text. */
bool tern_pickle_is(const struct tern_pickle_value *v, const char *text);
/* Value of a str key of a dict (the last one, as in Python), NULL when there is none or it is no dict. */
const struct tern_pickle_value *tern_pickle_get(const struct tern_pickle_value *dict, const char *key);

#endif

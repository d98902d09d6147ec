/* From the objects of a pickle to named tensors: what the zip and the legacy form of torch.save share. */
#ifndef TERN_MODELS_FILES_TORCH_TENSORS_H
#define TERN_MODELS_FILES_TORCH_TENSORS_H

#include "models/files/pickle.h"
#include "models/files/weights.h"

/* The bytes of a storage. */
struct tern_torch_storage {
    const char *key; /* not NUL-terminated */
    size_t key_size;
    uint64_t size;       /* bytes, unpacked */
    const uint8_t *data; /* in the mapping; NULL: not there yet */
    tern_tensor *owner;  /* of unpacked bytes; NULL: not unpacked */
    uint64_t need;       /* bytes that the tensors use, counted before the first is loaded */
    size_t place;        /* for load() */
};

struct tern_torch_file {
    struct tern_weights *w;
    struct tern_mapping *m;
    struct tern_torch_storage *storages; /* by key */
    size_t count;
    struct tern_copy_limit copies;
    /* Sets data or owner of a storage; `tensor` is for messages. NULL: all are there. */
    enum tern_status (*load)(struct tern_torch_file *f, struct tern_torch_storage *s, const char *tensor);
    void *user;
};

/* Sorts the storages by key; the second refuses keys that occur twice. */
void tern_torch_order(struct tern_torch_file *f);
enum tern_status tern_torch_sort(struct tern_torch_file *f);
struct tern_torch_storage *tern_torch_find(const struct tern_torch_file *f, const char *key, size_t key_size);
/* Releases the storages; the file itself is the caller's. */
void tern_torch_release(struct tern_torch_file *f);

/* Adds the tensors below the root: keys of nested dicts are joined with dots, "state_dict" at the top is left out of the names,
 * everything that is neither a dict nor a tensor is ignored. Finishes the set. */
enum tern_status tern_torch_add(struct tern_torch_file *f, const struct tern_pickle_value *root);

#endif

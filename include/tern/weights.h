/* Weight files: safetensors, sharded safetensors, PyTorch .bin/.pt/.ckpt. A weight set is a
 * reference-counted, immutable table of named tensors. */
#ifndef TERN_WEIGHTS_H
#define TERN_WEIGHTS_H

#include <tern/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tern_weights;

/* Opens a weight file by its content: a .safetensors file, its *.safetensors.index.json, a torch.save
 * archive (zip) or a legacy torch.save file. Contiguous tensors of safetensors and of stored (not
 * deflated) zip members are mapped, not copied: a file that is shortened while they are used ends the process (SIGBUS); one that
 * another replaces under its name does no harm. A pickle may build tensors and plain containers and
 * nothing else. NULL with the error recorded: missing, truncated, overlapping, unknown dtype, foreign
 * global (named) … */
TERN_API struct tern_weights *tern_weights_open(struct tern_context *ctx, const char *path);

/* An empty set, and adding to it (before it is shared): the name is copied, the tensor referenced. What a plan is bound to is not written
 * to any more (tern_plan_bind). */
TERN_API struct tern_weights *tern_weights_create(struct tern_context *ctx);
TERN_API enum tern_status tern_weights_add(struct tern_weights *w, const char *name, tern_tensor *t);

TERN_API struct tern_weights *tern_weights_ref(struct tern_weights *w);
TERN_API void tern_weights_unref(struct tern_weights **w);

/* One tensor of a set that becomes another one. */
struct tern_weights_change {
    const char *name;
    tern_tensor *tensor; /* of the same dtype and shape */
};
/* A new set with the changed tensors in place of those of that name. All others are the very tensors of `base`, with whatever
 * kernels have prepared of them; metadata is copied. `base` stays as it is. n = 0: base itself, one more reference. The
 * caller owns the result. NULL with the error recorded: a name that base does not have or that comes twice, another
 * dtype or shape (both are told), n below 0, changes NULL while n is not 0, no memory. Thread safe. */
TERN_API struct tern_weights *tern_weights_derive(struct tern_weights *base, const struct tern_weights_change *changes, int64_t n);

/* Number of tensors, and the i-th in order of their names (borrowed). */
TERN_API int64_t tern_weights_count(const struct tern_weights *w);
TERN_API const char *tern_weights_name(const struct tern_weights *w, int64_t i);
TERN_API tern_tensor *tern_weights_at(const struct tern_weights *w, int64_t i);

/* The tensor of that name (borrowed), NULL when there is none (no error recorded). */
TERN_API tern_tensor *tern_weights_get(const struct tern_weights *w, const char *name);

/* Value of a key of the safetensors "__metadata__", NULL when absent; i-th pair for listing. */
TERN_API const char *tern_weights_metadata(const struct tern_weights *w, const char *key);
TERN_API int64_t tern_weights_metadata_count(const struct tern_weights *w);
TERN_API void tern_weights_metadata_at(const struct tern_weights *w, int64_t i, const char **key, const char **value);

/* Writes a safetensors file; complete or not at all. Tensors keep their dtype. */
TERN_API enum tern_status tern_weights_save(const struct tern_weights *w, const char *path);

#ifdef __cplusplus
}
#endif
#endif

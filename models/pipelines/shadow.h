/* A shadow of the context's device: the same kernels are chosen and the same memory is counted, but none is taken and
 * nothing is computed. What runs on it tells how much memory the same would need. */
#ifndef TERN_MODELS_SHADOW_H
#define TERN_MODELS_SHADOW_H

#include <tern/base.h>

struct tern_shadow;

/* From here to tern_shadow_end the context runs on the shadow, without a budget: whatever is made in between must be gone
 * at the end. NULL with the error recorded. */
struct tern_shadow *tern_shadow_begin(struct tern_context *ctx);
/* Gives back all that was counted. Returns the most bytes that were in use; 0 for NULL. */
size_t tern_shadow_end(struct tern_shadow **s);

/* Counts memory that is not a tensor's, and gives it back. NULL is allowed. */
void tern_shadow_hold(struct tern_shadow *s, size_t size);
void tern_shadow_release(struct tern_shadow *s, size_t size);
/* Bytes of packed weights that are counted since the beginning; they stay counted until they are forgotten. */
size_t tern_shadow_packed(const struct tern_shadow *s);
/* Forgets what was packed behind the first `size` bytes: its weights are dropped. */
void tern_shadow_forget(struct tern_shadow *s, size_t size);

#endif

/* Binding: from a weight set to the tensors of a module, each with its expected shape. */
#ifndef TERN_MODELS_BIND_H
#define TERN_MODELS_BIND_H

#include <tern/weights.h>

/* One module under construction. Names are relative to the prefix. The first misfit is recorded in the context; all that
 * follows is then NULL, so that builders read as straight-line code. */
struct tern_bind {
    struct tern_context *ctx;
    const struct tern_weights *weights;
    const char *component; /* for messages: "unet" */
    char prefix[256];
    bool *used;                 /* by index in the weight set */
    struct tern_weights *bound; /* the module's tensors by name, as it holds them */
    /* Instead of binding: called for every tensor that the module would bind, with its full name. */
    void (*visit)(void *user, const char *name, int ndim, const int64_t *shape);
    void *user;
};

/* TERN_OK, or no memory. */
enum tern_status tern_bind_begin(struct tern_bind *b, struct tern_context *ctx, const struct tern_weights *w, const char *component);
/* Lists what a module would bind. Nothing to end. */
void tern_bind_begin_visit(struct tern_bind *b, struct tern_context *ctx, const char *component,
                           void (*visit)(void *user, const char *name, int ndim, const int64_t *shape), void *user);
/* Checks that every tensor of the set was taken; frees what begin took. Returns the context's status. `bound` gets the set of
 * the module's tensors, which its graphs are traced with and bound to; NULL on an error. */
enum tern_status tern_bind_end(struct tern_bind *b, struct tern_weights **bound);

/* Goes into "name." (printf-like); returns what tern_bind_leave needs to come back. */
size_t tern_bind_enter(struct tern_bind *b, const char *fmt, ...) TERN_PRINTF(2, 3);
void tern_bind_leave(struct tern_bind *b, size_t length);

/* The tensor of that name, an owned reference. Vectors are widened to f32 (they are small and every kernel wants
 * them so); others keep their stored dtype, which must be floating point. */
tern_tensor *tern_bind_tensor(struct tern_bind *b, const char *name, int ndim, const int64_t *shape);
/* Whether the set has it; for weights that an architecture may leave out. `listed`: the answer while visiting. */
bool tern_bind_has(const struct tern_bind *b, const char *name, bool listed);
/* It may be there, and is of no use. */
void tern_bind_pass_over(struct tern_bind *b, const char *name);

#endif

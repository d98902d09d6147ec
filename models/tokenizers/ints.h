/* A growing list of 32-bit integers: code points of a text on the way, ids at its end. */
#ifndef TERN_TOKENIZERS_INTS_H
#define TERN_TOKENIZERS_INTS_H

#include <tern/base.h>

/* Start with {.ctx = ctx}; not thread safe. */
struct tern_ints {
    struct tern_context *ctx;
    int32_t *at;
    size_t count, capacity;
};

/* Makes room for n more; false (error recorded) when there is no memory. */
bool tern_ints_reserve(struct tern_ints *l, size_t n);
void tern_ints_free(struct tern_ints *l);
/* The status of the failure that was recorded. */
enum tern_status tern_ints_error(const struct tern_ints *l);

static inline bool tern_ints_push(struct tern_ints *l, int32_t x)
{
    if (l->count == l->capacity && !tern_ints_reserve(l, 1))
        return false;
    l->at[l->count++] = x;
    return true;
}

/* n > 0 values, which are not in this list. */
bool tern_ints_append(struct tern_ints *l, const int32_t *x, size_t n);

#endif

/* Growth of integer lists: by half, so that n pushes cost O(n). */
#include "models/tokenizers/ints.h"

#include <string.h>
#include <tern/context.h>

#include "core/memory.h"
#include "core/status.h"

bool tern_ints_reserve(struct tern_ints *l, size_t n)
{
    if (n <= l->capacity - l->count)
        return true;
    size_t want, bytes;
    if (__builtin_add_overflow(l->count, n, &want) || !tern_mul_size(want, 2 * sizeof(int32_t), &bytes)) {
        tern_fail(l->ctx, TERN_E_NO_MEMORY, "tokenizer: a list of %zu + %zu values is too long", l->count, n);
        return false;
    }
    size_t capacity = l->capacity + l->capacity / 2 + 16;
    if (capacity < want)
        capacity = want;
    int32_t *at = l->at ? tern_realloc(l->ctx, l->at, capacity * sizeof(*at)) : tern_alloc(l->ctx, capacity * sizeof(*at));
    if (!at)
        return false;
    l->at = at;
    l->capacity = capacity;
    return true;
}

bool tern_ints_append(struct tern_ints *l, const int32_t *x, size_t n)
{
    if (!tern_ints_reserve(l, n))
        return false;
    memcpy(l->at + l->count, x, n * sizeof(*x));
    l->count += n;
    return true;
}

void tern_ints_free(struct tern_ints *l)
{
    tern_free(l->ctx, l->at);
    l->at = NULL;
    l->count = l->capacity = 0;
}

enum tern_status tern_ints_error(const struct tern_ints *l) { return tern_error_status(l->ctx); }

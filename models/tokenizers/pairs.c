/* Open addressing with linear probing. */
#include "models/tokenizers/pairs.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"

static struct tern_pair *slot_for(const struct tern_pairs *p, uint32_t a, uint32_t b)
{
    size_t i = tern_pair_hash(a, b) & p->mask;
    while (p->slots[i].a != TERN_PAIR_NONE && (p->slots[i].a != a || p->slots[i].b != b))
        i = (i + 1) & p->mask;
    return &p->slots[i];
}

bool tern_pairs_reserve(struct tern_pairs *p, size_t n)
{
    size_t slots = 16, bytes;
    while (slots / 4 * 3 < n && slots <= SIZE_MAX / 4)
        slots *= 2;
    if (p->slots && slots <= p->mask + 1)
        return true;
    if (slots / 4 * 3 < n || !tern_mul_size(slots, sizeof(*p->slots), &bytes)) {
        tern_fail(p->ctx, TERN_E_NO_MEMORY, "tokenizer: a table of %zu pairs is too big", n);
        return false;
    }
    struct tern_pairs grown = {.ctx = p->ctx, .slots = tern_alloc(p->ctx, bytes), .mask = slots - 1, .count = p->count};
    if (!grown.slots)
        return false;
    memset(grown.slots, 0xff, bytes); /* every key TERN_PAIR_NONE */
    for (size_t i = 0; p->slots && i <= p->mask; i++)
        if (p->slots[i].a != TERN_PAIR_NONE)
            *slot_for(&grown, p->slots[i].a, p->slots[i].b) = p->slots[i];
    tern_free(p->ctx, p->slots);
    *p = grown;
    return true;
}

bool tern_pairs_put(struct tern_pairs *p, uint32_t a, uint32_t b, uint32_t x, uint32_t y)
{
    if (!tern_pairs_reserve(p, p->count + 1))
        return false;
    struct tern_pair *s = slot_for(p, a, b);
    p->count += s->a == TERN_PAIR_NONE;
    *s = (struct tern_pair){a, b, x, y};
    return true;
}

void tern_pairs_free(struct tern_pairs *p)
{
    tern_free(p->ctx, p->slots);
    p->slots = NULL;
    p->count = p->mask = 0;
}

/* A hash table of texts that lie one behind the other in one block. */
#include "models/tokenizers/vocab.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"

bool tern_vocab_reserve(struct tern_vocab *v, size_t n, size_t bytes)
{
    if (n > TERN_VOCAB_LIMIT || bytes > UINT32_MAX) {
        tern_fail(v->ctx, TERN_E_FORMAT, "tokenizer: a vocabulary of %zu pieces and %zu bytes; at most %zu pieces and 4 GiB are read", n,
                  bytes, TERN_VOCAB_LIMIT);
        return false;
    }
    size_t slots = 16;
    while (slots / 2 < n)
        slots *= 2;
    v->pieces = tern_calloc(v->ctx, n + 1, sizeof(*v->pieces));
    v->slots = tern_calloc(v->ctx, slots, sizeof(*v->slots));
    v->texts = tern_alloc(v->ctx, bytes);
    v->mask = slots - 1;
    v->capacity = n;
    v->texts_capacity = bytes;
    return v->pieces && v->slots && v->texts;
}

/* Slots that are looked at for a text. The longest way in a table that is half full grows as the logarithm of its size: some 70 of a
 * million pieces. Pieces that were made to collide would take time as the square of their number. */
#define MOST_PROBES 1000

static size_t first_slot(const struct tern_vocab *v, uint32_t hash) { return (hash ^ hash >> 15) & v->mask; }

/* The slot that holds the text, or the empty one where it belongs. */
static size_t slot_of(const struct tern_vocab *v, uint32_t hash, const char *a, size_t a_size, const char *b, size_t b_size)
{
    size_t i = first_slot(v, hash);
    for (; v->slots[i]; i = (i + 1) & v->mask) {
        const struct tern_piece *p = &v->pieces[v->slots[i] - 1];
        const char *text = v->texts + p->text;
        if (p->hash == hash && p->size == a_size + b_size && !memcmp(text, a, a_size) && !memcmp(text + a_size, b, b_size))
            break;
    }
    return i;
}

bool tern_vocab_put(struct tern_vocab *v, const char *text, size_t size, int32_t id)
{
    uint32_t hash = tern_hash(TERN_HASH_START, text, size);
    size_t i = slot_of(v, hash, text, size, "", 0);
    if (v->slots[i]) {
        v->pieces[v->slots[i] - 1].id = id;
        return true;
    }
    if (v->count == v->capacity || size > v->texts_capacity - v->used) {
        tern_fail(v->ctx, TERN_E_INTERNAL, "tokenizer: more pieces than were counted (%zu)", v->capacity);
        return false;
    }
    v->pieces[v->count] = (struct tern_piece){.text = v->used, .size = (uint32_t)size, .hash = hash, .id = id};
    if (((i - first_slot(v, hash)) & v->mask) > MOST_PROBES) {
        tern_fail(v->ctx, TERN_E_FORMAT,
                  "tokenizer: more than %d pieces of the vocabulary hash to one place: expected pieces of texts, found some that were made "
                  "to collide",
                  MOST_PROBES);
        return false;
    }
    memcpy(v->texts + v->used, text, size);
    v->used += size;
    v->slots[i] = (uint32_t)++v->count;
    if (size > v->longest)
        v->longest = size;
    return true;
}

int32_t tern_vocab_find_hashed(const struct tern_vocab *v, uint32_t hash, const char *prefix, size_t prefix_size, const char *text,
                               size_t size)
{
    if (!v->count)
        return -1;
    size_t i = slot_of(v, hash, prefix, prefix_size, text, size);
    return v->slots[i] ? v->pieces[v->slots[i] - 1].id : -1;
}

int32_t tern_vocab_find2(const struct tern_vocab *v, const char *a, size_t a_size, const char *b, size_t b_size)
{
    return tern_vocab_find_hashed(v, tern_hash(tern_hash(TERN_HASH_START, a, a_size), b, b_size), a, a_size, b, b_size);
}

int32_t tern_vocab_find(const struct tern_vocab *v, const char *text, size_t size) { return tern_vocab_find2(v, text, size, "", 0); }

void tern_vocab_free(struct tern_vocab *v)
{
    tern_free(v->ctx, v->pieces);
    tern_free(v->ctx, v->slots);
    tern_free(v->ctx, v->texts);
    *v = (struct tern_vocab){.ctx = v->ctx};
}

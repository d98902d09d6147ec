/* Values of a pickle: their memory is one arena, freed at once, with a limit. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "models/files/pickle_machine.h"
#include "models/files/weights.h"

#define BLOCK_SIZE ((size_t)64 << 10)
/* One opcode makes at most one value (48 bytes) or doubles a list, so this much per byte of pickle is never needed. */
#define ARENA_FACTOR 128
#define ARENA_LIMIT ((size_t)1 << 30)

struct tern_pickle_block {
    struct tern_pickle_block *next;
    size_t used, size;
};
#define BLOCK_HEADER ((size_t)64)

enum tern_status tern_pickle_fail(struct tern_pickle *p, const char *fmt, ...)
{
    char problem[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(problem, sizeof(problem), fmt, ap);
    va_end(ap);
    return tern_fail(p->ctx, TERN_E_FORMAT, "%s: pickle, byte %zu: %s", p->where, p->op, problem);
}

void *tern_pickle_alloc(struct tern_pickle *p, size_t size)
{
    size_t limit = p->size - p->start < ARENA_LIMIT / ARENA_FACTOR ? (p->size - p->start) * ARENA_FACTOR + BLOCK_SIZE : ARENA_LIMIT;
    size = (size + 15) / 16 * 16;
    struct tern_pickle_block *b = p->blocks;
    if (!b || size > b->size - b->used) {
        size_t want = size > BLOCK_SIZE ? size : BLOCK_SIZE;
        if (want > limit || p->allocated > limit - want) {
            tern_pickle_fail(p, "its objects take more than %zu bytes", limit);
            return NULL;
        }
        b = tern_alloc(p->ctx, BLOCK_HEADER + want);
        if (!b)
            return NULL;
        *b = (struct tern_pickle_block){p->blocks, 0, want};
        p->blocks = b;
        p->allocated += want;
    }
    void *out = (char *)b + BLOCK_HEADER + b->used;
    b->used += size;
    return out;
}

void tern_pickle_free(struct tern_pickle **pickle)
{
    struct tern_pickle *p = *pickle;
    *pickle = NULL;
    if (!p)
        return;
    while (p->blocks) {
        struct tern_pickle_block *next = p->blocks->next;
        tern_free(p->ctx, p->blocks);
        p->blocks = next;
    }
    tern_free(p->ctx, p->stack);
    tern_free(p->ctx, p->marks);
    tern_free(p->ctx, p->memo);
    tern_free(p->ctx, p->storages);
    tern_free(p->ctx, p);
}

value *tern_pickle_value_new(struct tern_pickle *p, enum tern_pickle_type type)
{
    value *v = tern_pickle_alloc(p, sizeof(*v));
    if (v)
        *v = (value){.type = type};
    return v;
}

value *tern_pickle_text_new(struct tern_pickle *p, enum tern_pickle_type type, const uint8_t *data, size_t size)
{
    value *v = tern_pickle_value_new(p, type);
    if (v) {
        v->text.data = (const char *)data;
        v->text.size = size;
    }
    return v;
}

enum tern_status tern_pickle_items_add(struct tern_pickle *p, value *v, value **items, size_t n)
{
    if (n > v->items.capacity - v->items.count) {
        size_t capacity = v->items.count + n;
        capacity = v->items.count ? 2 * capacity : capacity;
        value **at = tern_pickle_alloc(p, capacity * sizeof(*at));
        if (!at)
            return TERN_E_NO_MEMORY;
        if (v->items.count)
            memcpy(at, v->items.at, v->items.count * sizeof(*at));
        v->items.at = at;
        v->items.capacity = capacity;
    }
    if (n)
        memcpy(v->items.at + v->items.count, items, n * sizeof(*items));
    v->items.count += n;
    return TERN_OK;
}

value *tern_pickle_items_new(struct tern_pickle *p, enum tern_pickle_type type, value **items, size_t n)
{
    value *v = tern_pickle_value_new(p, type);
    return v && !tern_pickle_items_add(p, v, items, n) ? v : NULL;
}

const value *tern_pickle_root(const struct tern_pickle *p) { return p->root; }

const struct tern_pickle_storage *tern_pickle_storage_at(const struct tern_pickle *p, size_t i)
{
    return i < p->storage_count ? &p->storages[i]->storage : NULL;
}

bool tern_pickle_is(const value *v, const char *text)
{
    return v && v->type == TERN_PICKLE_STR && v->text.size == strlen(text) && !memcmp(v->text.data, text, v->text.size);
}

const value *tern_pickle_get(const value *dict, const char *key)
{
    if (!dict || dict->type != TERN_PICKLE_DICT)
        return NULL;
    for (size_t i = dict->items.count; i >= 2; i -= 2)
        if (tern_pickle_is(dict->items.at[i - 2], key))
            return dict->items.at[i - 1];
    return NULL;
}

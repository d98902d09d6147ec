/* Guarded memory: [block header][guard][payload][guard]. A payload begins with the header of tern_alloc, whose caller gets what lies
 * behind: what is written before a buffer is written there. */
#include "conformance/guard.h"

#include <stdlib.h>
#include <string.h>

#include "core/context.h"

#define GUARD 128
#define GUARD_BYTE 0xA5
#define FRESH_BYTE 0xFF /* NaN as f32, f16 and bf16; -1 as an integer */

struct tern_guard_block {
    struct tern_guard_block *next, **link;
    size_t size;
    void *raw;
};

static bool intact(const unsigned char *p)
{
    for (int i = 0; i < GUARD; i++)
        if (p[i] != GUARD_BYTE)
            return false;
    return true;
}

/* The size, not yet in a block that is just being made, and bytes that nobody has a use for. That of a context has no header. */
static bool header_intact(const unsigned char *payload, size_t size)
{
    size_t told;
    if (size < TERN_MEMORY_HEADER || size == sizeof(struct tern_context))
        return true;
    memcpy(&told, payload, sizeof(told));
    bool good = told == size || told == SIZE_MAX;
    for (size_t i = sizeof(told); i < TERN_MEMORY_HEADER; i++)
        good &= payload[i] == FRESH_BYTE;
    return good;
}

static bool block_intact(const struct tern_guard_block *b)
{
    const unsigned char *front = (const unsigned char *)(b + 1), *payload = front + GUARD;
    return intact(front) && header_intact(payload, b->size) && intact(payload + b->size);
}

static void *guard_alloc(size_t size, size_t alignment, void *user)
{
    struct tern_guard *g = user;
    size_t front = sizeof(struct tern_guard_block) + GUARD;
    if (size > SIZE_MAX / 2)
        return NULL;
    unsigned char *raw = malloc(size + front + GUARD + alignment);
    if (!raw)
        return NULL;
    unsigned char *payload = raw + front;
    payload += (alignment - (uintptr_t)payload % alignment) % alignment;
    struct tern_guard_block *b = (struct tern_guard_block *)(payload - front);
    memset(payload - GUARD, GUARD_BYTE, GUARD);
    memset(payload, FRESH_BYTE, size);
    memset(payload + size, GUARD_BYTE, GUARD);
    pthread_mutex_lock(&g->lock);
    *b = (struct tern_guard_block){g->blocks, &g->blocks, size, raw};
    if (g->blocks)
        g->blocks->link = &b->next;
    g->blocks = b;
    pthread_mutex_unlock(&g->lock);
    return payload;
}

static void guard_free(void *ptr, size_t size, void *user)
{
    struct tern_guard *g = user;
    struct tern_guard_block *b = (struct tern_guard_block *)((unsigned char *)ptr - GUARD) - 1;
    (void)size;
    pthread_mutex_lock(&g->lock);
    g->damaged += !block_intact(b);
    *b->link = b->next;
    if (b->next)
        b->next->link = b->link;
    pthread_mutex_unlock(&g->lock);
    free(b->raw);
}

void tern_guard_init(struct tern_guard *g)
{
    *g = (struct tern_guard){.blocks = NULL};
    pthread_mutex_init(&g->lock, NULL);
}

void tern_guard_close(struct tern_guard *g) { pthread_mutex_destroy(&g->lock); }

struct tern_allocator tern_guard_allocator(struct tern_guard *g) { return (struct tern_allocator){guard_alloc, guard_free, g}; }

uint64_t tern_guard_damage(struct tern_guard *g)
{
    pthread_mutex_lock(&g->lock);
    uint64_t n = g->damaged;
    for (const struct tern_guard_block *b = g->blocks; b; b = b->next)
        n += !block_intact(b);
    pthread_mutex_unlock(&g->lock);
    return n;
}

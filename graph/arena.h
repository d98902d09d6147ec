/* Fixed places for what lives at the same time. */
#ifndef TERN_GRAPH_ARENA_H
#define TERN_GRAPH_ARENA_H

#include <tern/base.h>

/* A piece of memory that is used from step `first` to step `last`, both included. */
struct tern_block {
    size_t size;
    int first, last;
    size_t offset; /* the result, a multiple of 64 */
};

/* Gives every block its offset: no two that live at once overlap. The arena's size in bytes; SIZE_MAX without memory,
 * with the error recorded. `least`: the largest sum of sizes at one step, which no placement can go below. `window`, a multiple of 64: the
 * arena is made of buffers of that size, and no block lies in two; one that is larger has no place: SIZE_MAX, too. 0: one buffer. */
size_t tern_arena_place(struct tern_context *ctx, struct tern_block *blocks, int n, size_t window, size_t *least);
/* Blocks that have their offsets already: the arena's size as above; SIZE_MAX when an offset is no multiple of 64, two
 * blocks that live at once overlap, or one lies in two windows. */
size_t tern_arena_check(const struct tern_block *blocks, int n, size_t window, size_t *least);
/* The window of a device that allows buffers of at most so many bytes; 0: any. */
size_t tern_arena_window(size_t max_buffer);
/* The same where nothing may begin behind max_start bytes of a buffer (0: anywhere): no larger than that, unless a block is. */
size_t tern_arena_window_for(const struct tern_block *blocks, int n, size_t max_buffer, size_t max_start);

#endif

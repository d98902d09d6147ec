/* Fixed places for what lives at the same time. */
#ifndef TERN_GRAPH_ARENA_H
#define TERN_GRAPH_ARENA_H

#include <tern/base.h>

/* A piece of memory that is used from step `first` to step `last`, both included. */
struct tern_block {
    size_t size; /* 1 and more */
    int first, last;
    size_t offset; /* the result, a multiple of 64 */
};

/* The arena is made of buffers of at most `window` bytes, a multiple of 64, and no block lies in two; 0: it is one buffer. A block
 * begins where its buffer does, or ends at most `reach` bytes behind that, so that kernels can count to every place in it; 0: anywhere. The
 * offset of a block is its buffer's number times the window, and where it lies in there. */
struct tern_arena_limits {
    size_t window, reach;
};
/* Of a device, by its limits of buffers (tern_device_caps). */
struct tern_arena_limits tern_arena_limits(size_t max_buffer, size_t reach);
/* The window of a device that allows buffers of at most so many bytes; 0: any. */
size_t tern_arena_window(size_t max_buffer);

/* Gives every block its offset: no two that live at once overlap. The arena's size in bytes; SIZE_MAX without memory, with the error
 * recorded, and when a block is larger than a window. `used`, n of them: the size of each buffer, 0 behind the last; their sum is the
 * arena's. `least`: the largest sum of sizes at one step, which no placement can go below. */
size_t tern_arena_place(struct tern_context *ctx, struct tern_block *blocks, int n, struct tern_arena_limits l, size_t *used,
                        size_t *least);
/* Blocks that have their offsets already: the arena's size as above; SIZE_MAX when an offset is no multiple of 64, two
 * blocks that live at once overlap, one lies in two windows or out of reach, or a window between others is empty. */
size_t tern_arena_check(const struct tern_block *blocks, int n, struct tern_arena_limits l, size_t *used, size_t *least);

#endif

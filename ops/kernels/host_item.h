/* What a kernel text that was expanded to host C wants from whoever runs it: one item of a group, which is a coroutine.
 * Part of the expanded source, and included by its runner. */
#ifndef TERN_OPS_KERNELS_HOST_ITEM_H
#define TERN_OPS_KERNELS_HOST_ITEM_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A word of a text for its matrix units. The values of a matrix are the runner's, and a subgroup's; an item has their number in *x, which
 * is 0 until it was filled. */
enum { TERN_HOST_ZERO, TERN_HOST_LOAD_A, TERN_HOST_LOAD_B, TERN_HOST_LOAD_SUM, TERN_HOST_MULTIPLY, TERN_HOST_STORE };
enum { TERN_HOST_COLUMNS = 1, TERN_HOST_BF16 = 2, TERN_HOST_I8 = 4 };
struct tern_host_matrix {
    int word;
    int *x;             /* what is filled, added to or stored */
    int a, b;           /* factors */
    int kind, b_kind;   /* of what is loaded, or of the factors */
    void *tile;         /* in shared memory: of 16-bit elements or of f32 for sums; of int8, and of int32 for sums */
    int i, pitch, line; /* i: where the matrix begins, in elements */
};

struct tern_host_item {
    int local[2], group[3], groups[3];
    void *runner;
    /* Goes on when all items of the group have come to a barrier, which must be the one in this line. */
    void (*barrier)(struct tern_host_item *item, int line);
    /* The bits of the item whose number differs from this one's by the bits of `mask`, when all items of the subgroup have come to the
     * exchange in this line. */
    uint32_t (*exchange)(struct tern_host_item *item, uint32_t bits, int mask, int subgroup, int line);
    /* The group's array number `index` in shared memory: made by the item that asks first, filled with NaN. */
    void *(*shared)(struct tern_host_item *item, int index, size_t size);
    /* Whether element `index` of `size` bytes lies in the buffer of the slot; counts and reports when it does not. */
    int (*inside)(struct tern_host_item *item, int slot, int64_t index, size_t size, int line);
    /* What the items of a subgroup do together: all come by, with the same arguments. */
    void (*matrix)(struct tern_host_item *item, const struct tern_host_matrix *m);
    int n_shared;
};

/* Exported by the expanded source beside tern_kernel. */
struct tern_host_info {
    int group_size[2];
    size_t params_size;
    int subgroup; /* items; 0: the text knows none */
};

typedef void (*tern_host_kernel)(struct tern_host_item *item, const void *params, void *const *buffers);

#endif

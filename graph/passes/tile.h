/* Tiling: which results of a graph are computed in bands of rows, and which of them never lie in memory whole. For tile.c (the rewrite),
 * tile_choose.c (the choice) and tile_ops.c (what ops allow). */
#ifndef TERN_GRAPH_TILE_H
#define TERN_GRAPH_TILE_H

#include "graph/passes/again.h"

/* Whether the rows of a node's result need only rows nearby of its operands (and, for group_norm, the statistics of all rows): one
 * picture, channels-last, so that a band of rows is one piece of memory. */
bool tern_tile_is_local(const struct tern_graph *g, const struct tern_node *n);
/* Whether input k of a local node has rows as the result has; else all of it belongs to every band. */
bool tern_tile_has_rows(const struct tern_node *n, int k);
/* Rows of operand 0 that the node reads around those of a band, where so many are wanted around its own. */
int64_t tern_tile_around(const struct tern_node *n, int64_t around);

/* Sets inner[value] for results that are to exist in bands alone, so that what lives at once needs about `limit` bytes. A result that
 * only one local node reads costs little. One that more read, or whose statistics are needed first, is computed anew for each of
 * them; that goes on while the whole does not compute more than half as much again as without. Without a limit (0) those that cost little
 * and that kernels do not make whole. Returns whether there is any. */
bool tern_tiling_choose(const struct tern_graph *g, size_t limit, bool *inner);

struct tern_rows {
    int64_t from, to;
};

/* Rows of an inner result that the band at hand has computed. */
struct tern_piece {
    int value;
    struct tern_rows rows;
    tern_tensor *t;
};

struct tern_tiling {
    struct tern_again again;             /* first; map is NULL for inner ones */
    size_t limit;                        /* for what lives at once; 0: none */
    const struct tern_device_caps *caps; /* what its kernels take at once */
    bool *inner;
    size_t *row;         /* by value of the old graph: bytes, for each row, of the widest tensor that a band of it needs */
    int64_t *pixels;     /* likewise pixels of the largest product; 0: there is none */
    tern_tensor **stats; /* by value of the old graph that a tiled group_norm makes: the statistics of its operand */
    struct tern_piece *piece;
    int n_pieces, piece_capacity;
};

/* tile_rows.c: rows of any value of the old graph, as a tensor of the new one: of a whole one a view, of an inner one what this band has
 * already, or has computed now. */
tern_tensor *tern_tile_rows(struct tern_tiling *t, int value, struct tern_rows r);
/* Rows of a node's result, computed now. */
tern_tensor *tern_tile_node_rows(struct tern_tiling *t, const struct tern_node *n, struct tern_rows r);
static inline int64_t tern_tile_height(const struct tern_tiling *t, int value)
{
    const struct tern_meta *m = &t->again.from->values[value].meta;
    return m->shape[m->ndim - 2];
}

#endif

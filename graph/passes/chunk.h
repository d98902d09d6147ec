/* Chunking: which nodes of a graph are computed for one part of the batch, or of the rows, behind the other. For chunk.c (the rewrite),
 * chunk_choose.c (the choice) and chunk_ops.c (what ops allow). */
#ifndef TERN_GRAPH_CHUNK_H
#define TERN_GRAPH_CHUNK_H

#include "graph/passes/again.h"

#define TERN_CHUNKS TERN_MAX_INPUTS /* at most: what is joined is one cat */

/* From which sizes on chunks cost little, or from which on they have to be. */
struct tern_chunk_limits {
    /* Only nodes that these kernels do not compute whole are cut, and what can be with them, whatever it costs; NULL: none has to be. */
    const struct tern_device_caps *caps;
    size_t large;          /* bytes of a picture's result that a region begins with */
    int64_t picture_rows;  /* rows or pixels of a picture that is a chunk: least that a weight is to serve before it is read again */
    int64_t rows;          /* likewise of a chunk of rows */
    int64_t rows_of_chunk; /* where the rows of one picture are cut */
    int64_t nodes;         /* of the graph, at most: fewer chunks are made, or none, where they would be more */
};
/* What the pass does, within limits of its own. */
enum tern_status tern_chunk_graph(struct tern_graph *g, const struct tern_chunk_limits *limits);

struct tern_chunking {
    struct tern_again again; /* first */
    const struct tern_chunk_limits *limits;
    int most;            /* chunks of a region */
    int dim;             /* that is cut: 0, the batch; 1, the rows of (1, rows, channels) */
    bool by_row;         /* where each row of (N, rows, channels) is for itself: feed-forward layers; else where each picture is */
    int *region;         /* by node of the old graph: the last node of its region; -1: in none */
    bool *outside;       /* by value that a region makes: read outside of it */
    int *end;            /* by value with memory of its own: the last node that reads that memory; -1 once chunk_choose.c has counted it */
    tern_tensor **slice; /* by value that a region reads: the chunk at hand of it, or NULL */
    tern_tensor **made;  /* by value that a region makes: TERN_CHUNKS of them */
};

/* Sets region, outside and end. A region's nodes can run chunk by chunk, all of a chunk before the next; those between them that are in no
 * region read nothing of it. Returns whether there is any. */
bool tern_chunking_choose(struct tern_chunking *c);
/* Whether kernels (limits->caps) do not take what can be cut of it, or do not make it, whole. */
bool tern_chunking_must_cut(const struct tern_chunking *c, const struct tern_node *n);
/* chunk_ops.c: chunks of a region, by a node of it. */
int64_t tern_chunk_count(const struct tern_chunking *c, const struct tern_node *n);
/* Whether operand k of a node is cut as its result is; else all of it belongs to every chunk. */
bool tern_chunk_cuts(const struct tern_chunking *c, const struct tern_node *n, int k);
/* Whether a chunk of the result needs that chunk of the operands that are cut alone. */
bool tern_chunk_fits(const struct tern_chunking *c, const struct tern_node *n);

#endif

/* Recording a graph anew: for passes that change shapes, strides or places, so that every rule of every op is asked again. */
#ifndef TERN_GRAPH_AGAIN_H
#define TERN_GRAPH_AGAIN_H

#include "graph/graph.h"

struct tern_again {
    struct tern_context *ctx;
    const struct tern_graph *from;
    struct tern_graph *to;
    int *number;       /* by value of `from` that no node makes: its number in `to` */
    tern_tensor **map; /* by value of `from`: what it is in `to`; NULL: not recorded (yet) */
    /* Records what a live node of `from` becomes, and sets map of its result. Errors are the context's. */
    void (*node)(struct tern_again *a, const struct tern_node *n);
};

/* Sets the graphs and makes the tables; tern_again_end frees them, also when this failed. */
enum tern_status tern_again_begin(struct tern_again *a, struct tern_graph *g);
/* Calls a->node for every live node in order; g is then the new graph. On an error (recorded) it is as it was. */
enum tern_status tern_again_record(struct tern_again *a, struct tern_graph *g);
void tern_again_end(struct tern_again *a);
/* What the map has of the node's result widens what had been rounded, if it did so before. tern_again_record does it behind every node. */
void tern_again_keep_wide(const struct tern_again *a, const struct tern_node *n);
/* The node as it was. */
tern_tensor *tern_again_same(const struct tern_again *a, const struct tern_node *n);

#endif

/* A graph in two: what follows from inputs that are known early, and the rest. */
#ifndef TERN_GRAPH_SPLIT_H
#define TERN_GRAPH_SPLIT_H

#include "graph/graph.h"

/* `early` has the known inputs, in the order of the graph's, and the values of the cut as its outputs; NULL: nothing that the rest needs
 * follows from known inputs alone. `late` has the other inputs, then known ones that it reads itself, then the cut; and the graph's
 * outputs. Where the cut is more than a graph can give nothing is known, and `late` is the graph. */
struct tern_graph_parts {
    struct tern_graph *early, *late;
    int kept; /* known inputs that `late` reads itself */
};

/* A graph as it was traced, before any pass. known: names of inputs; those that it does not have do not count. Nodes on weights alone go
 * where they are needed, to both if need be. What makes an output stays late. The graph stays as it is. */
enum tern_status tern_graph_split(const struct tern_graph *g, const char *const *known, int n_known, struct tern_graph_parts *parts);
void tern_graph_parts_destroy(struct tern_graph_parts *parts);

#endif

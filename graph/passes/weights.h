/* Nodes that are to read their weight in another form: what the passes `dtypes` and `filters` have in common. */
#ifndef TERN_GRAPH_PASSES_WEIGHTS_H
#define TERN_GRAPH_PASSES_WEIGHTS_H

#include "graph/graph.h"

/* A product of floats whose input [1] is its weight. */
static inline bool tern_is_layer(enum tern_op op) { return op == TERN_OP_conv2d || op == TERN_OP_linear || op == TERN_OP_linear_geglu; }

struct tern_weight_form {
    /* Whether a node, live and with a kernel, whose weight [1] depends on weights and constants alone, is to read another form of it. */
    bool (*wants)(const struct tern_graph *g, const struct tern_node *n);
    /* That form. Errors are the context's. */
    tern_tensor *(*make)(tern_tensor *weight, const struct tern_node *n);
    /* Whether one that was made for another node is that form. */
    bool (*serves)(const tern_tensor *made, const struct tern_node *n);
};

/* The form is made for the first of the nodes that want it, in front of that, and serves those behind it that want the same. */
enum tern_status tern_reform_weights(struct tern_graph *g, const struct tern_weight_form *form);

#endif

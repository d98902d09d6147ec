/* What a graph that comes from a file must obey before anything relies on it. */
#ifndef TERN_GRAPH_CHECK_H
#define TERN_GRAPH_CHECK_H

#include "graph/graph.h"

/* More than any network has (the UNet of SD 1.5: some thousand values, some hundred nodes); what is below cannot overflow, and
 * checking it, which takes the square of the nodes, takes seconds at most. */
#define TERN_FILE_VALUES (1 << 18)
#define TERN_FILE_NODES (1 << 14)
#define TERN_FILE_ELEMENTS ((int64_t)1 << 36) /* of a tensor, and between the first and the last of them */

bool tern_meta_is_sane(const struct tern_meta *m);

/* A node that reads values made before it: inputs, description, result, by the op's own rules. Sets a view's offset. */
enum tern_status tern_check_node(const struct tern_graph *g, struct tern_node *n);
/* Whether the kernel runs the node on the context's device. */
enum tern_status tern_check_kernel(struct tern_context *ctx, const struct tern_kernel *k, const struct tern_op_desc *d);
/* Each input is one of the graph's, each output has memory of its own that every run writes. All nodes are there. */
enum tern_status tern_check_ends(const struct tern_graph *g);

#endif

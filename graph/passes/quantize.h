/* What the halves of the pass `quantize` share. */
#ifndef TERN_GRAPH_QUANTIZE_H
#define TERN_GRAPH_QUANTIZE_H

#include "graph/passes/passes.h"

/* The op that a layer becomes; TERN_OP_COUNT: it is none. */
enum tern_op tern_quantize_counterpart(const struct tern_op_desc *d, enum tern_layer_format f);
/* How the node's layer is to be kept; PLAIN: as it is, or it is none. */
enum tern_layer_format tern_quantize_chosen(const struct tern_graph *g, const struct tern_node *n, const char *words);
/* The product of int8 that the node becomes, of a weight of floats: the bias moves behind the scale, which that has not. */
struct tern_op_desc tern_quantize_of_floats(const struct tern_node *n, enum tern_op op);

/* quantize_prepare.c: whether the device itself makes int8 of the weight of that product, and multiplies with it; whether it packs the
 * weight of a product in so many bits, and makes values of the words. */
bool tern_quantize_is_prepared(struct tern_context *ctx, const struct tern_op_desc *floats);
bool tern_quantize_is_unpacked(struct tern_context *ctx, const struct tern_op_desc *product, int bits);
/* Records the graph anew, with the ops that do so. */
enum tern_status tern_quantize_prepare(struct tern_graph *g, const char *words);

#endif

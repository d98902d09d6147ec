/* The passes, one file each. */
#ifndef TERN_GRAPH_PASSES_H
#define TERN_GRAPH_PASSES_H

#include "graph/graph.h"

extern const struct tern_pass tern_pass_dce, tern_pass_cse, tern_pass_fold, tern_pass_prepare, tern_pass_fuse, tern_pass_algorithm,
    tern_pass_concat, tern_pass_merge, tern_pass_quantize, tern_pass_tile, tern_pass_tune;

/* quantize_words.c: how a layer is kept and computed: as it is, in int8 with what comes in, or its weight alone in 8 or 4 bits. */
enum tern_layer_format { TERN_LAYER_PLAIN, TERN_LAYER_W8A8, TERN_LAYER_W8, TERN_LAYER_W4, TERN_LAYER_FORMATS };
/* What tern_plan_params.quantize says of a weight: the last word that fits decides. */
enum tern_layer_format tern_quantize_format(const char *words, const char *name);
/* The name in the word at *at, which goes on to the next, cut to what fits; "" of one that leaves layers out. False: there is no other. */
#define TERN_QUANTIZE_NAME 512
bool tern_quantize_next_name(const char **at, char name[TERN_QUANTIZE_NAME]);

#endif

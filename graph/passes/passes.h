/* The passes, one file each. */
#ifndef TERN_GRAPH_PASSES_H
#define TERN_GRAPH_PASSES_H

#include "graph/graph.h"

extern const struct tern_pass tern_pass_dce, tern_pass_cse, tern_pass_fold, tern_pass_prepare, tern_pass_fuse, tern_pass_algorithm,
    tern_pass_concat, tern_pass_merge, tern_pass_quantize, tern_pass_tile, tern_pass_tune;

/* quantize.c: whether tern_plan_params.quantize names the weight: the last word that fits decides. */
bool tern_quantize_names(const char *words, const char *name);

#endif

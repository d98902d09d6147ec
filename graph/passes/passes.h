/* The passes, one file each. */
#ifndef TERN_GRAPH_PASSES_H
#define TERN_GRAPH_PASSES_H

#include "graph/graph.h"

extern const struct tern_pass tern_pass_dce, tern_pass_cse, tern_pass_fold, tern_pass_prepare, tern_pass_fuse, tern_pass_algorithm,
    tern_pass_concat, tern_pass_merge, tern_pass_smooth, tern_pass_quantize, tern_pass_filters, tern_pass_tile, tern_pass_tune,
    tern_pass_pre, tern_pass_chunk, tern_pass_pieces, tern_pass_dtypes;

/* quantize_words.c: how a layer is kept and computed: as it is, in int8 with what comes in, or its weight alone in 8 or 4 bits. */
enum tern_layer_format { TERN_LAYER_PLAIN, TERN_LAYER_W8A8, TERN_LAYER_W8, TERN_LAYER_W4, TERN_LAYER_FORMATS };
/* What tern_plan_params.quantize says of a weight: the last word that fits decides. */
enum tern_layer_format tern_quantize_format(const char *words, const char *name);
/* The name in the word at *at, which goes on to the next, cut to what fits; "" of one that leaves layers out. False: there is no other. */
#define TERN_QUANTIZE_NAME 512
bool tern_quantize_next_name(const char **at, char name[TERN_QUANTIZE_NAME]);

/* quantize.c: what the words say of the value: of a weight, of what the pass `merge` made of several of which they say the same, or of what
 * the pass `smooth` made of either. */
enum tern_layer_format tern_quantize_format_of(const struct tern_graph *g, int value, const char *words);

/* Factors by channel are powers of 2^(1/4), each a letter: A is 2^(-26/4), Z is 2^(-1/4), a is 1, e is 2, z is 2^(25/4). */
#define TERN_FACTOR_LETTERS 52
/* The exponent of 2 that a letter is, and the letter next to one. */
double tern_quantize_factor_power(char letter);
char tern_quantize_factor_letter(double power);
/* Letters at the start of the text. */
size_t tern_quantize_factor_span(const char *letters);
/* What the words say of the norm with that weight: *count letters, of the last word that fits; NULL: nothing. */
const char *tern_quantize_factors(const char *words, const char *name, size_t *count);
/* smooth.c: the value that may be divided behind the node, a norm with weights of its own: its result, cast or not, or silu of it (*silu),
 * which linear layers alone read behind a layer norm, convolutions behind a group norm. -1: there is none. */
int tern_smooth_place(const struct tern_graph *g, int node, bool *silu);
/* The dimension of what such a norm gives that its channels are. */
int tern_smooth_channels(const struct tern_graph *g, int node);

#endif

/* 128-bit keys of what decides a plan. Not for strangers: equal keys can be made on purpose. */
#ifndef TERN_GRAPH_KEY_H
#define TERN_GRAPH_KEY_H

#include "graph/graph.h"

struct tern_key {
    uint64_t word[2];
};

static inline bool tern_key_equal(struct tern_key a, struct tern_key b) { return a.word[0] == b.word[0] && a.word[1] == b.word[1]; }
/* 32 hexadecimal digits into out; returns out. */
#define TERN_KEY_TEXT 33
const char *tern_key_text(struct tern_key key, char out[TERN_KEY_TEXT]);

/* The key of everything beside the graph that a plan depends on: this version, its ops and their attributes, the device and its
 * kernels. Plans of another fingerprint are foreign. */
struct tern_key tern_plan_fingerprint(struct tern_context *ctx);

/* The key of what tern_plan_compile(g, params) would make: kinds, metas, names, contents of constants, nodes, outputs, passes,
 * limit of resident weights, fingerprint. Traces of the same calls have the same key, in every context and process. */
enum tern_status tern_graph_key(const struct tern_graph *g, const struct tern_plan_params *params, struct tern_key *key);

#endif

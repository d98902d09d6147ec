/* Keys of what decides a plan. */
#ifndef TERN_GRAPH_KEY_H
#define TERN_GRAPH_KEY_H

#include "graph/graph.h"
#include "ops/key.h"

/* The key of everything beside the graph that a plan depends on: this version, its ops and their attributes, the device, its
 * libraries and its kernels. Plans of another fingerprint are foreign. */
struct tern_key tern_plan_fingerprint(struct tern_context *ctx);

/* Adds the passes of a NULL-terminated list that `without` (as in tern_plan_params) does not leave out. */
void tern_key_add_passes(struct tern_key *k, const struct tern_pass *const *passes, const char *without);

/* The key of what tern_plan_compile(g, params) would make: kinds, metas, names, contents of constants, nodes, outputs, passes with their
 * revisions, limit of resident weights, fingerprint. Traces of the same calls have the same key, in every context and process. */
enum tern_status tern_graph_key(const struct tern_graph *g, const struct tern_plan_params *params, struct tern_key *key);

#endif

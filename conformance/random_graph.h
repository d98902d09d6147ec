/* Random valid graphs: the same seed makes the same calls, whether they are run or recorded. */
#ifndef TERN_CONFORMANCE_RANDOM_GRAPH_H
#define TERN_CONFORMANCE_RANDOM_GRAPH_H

#include <tern/graph.h>

struct tern_random_graph {
    uint64_t seed;
    int calls; /* ops to make */
    int n_inputs, n_outputs;
    struct tern_graph_input inputs[4];
    struct tern_weights *weights; /* owned */
    struct tern_context *ctx;
};

/* Declares inputs and makes weights (what fails is recorded in ctx); `weight_seed` makes another set of the same shapes. */
struct tern_random_graph tern_random_graph_make(struct tern_context *ctx, uint64_t seed, uint64_t weight_seed);
void tern_random_graph_close(struct tern_random_graph *r);
/* Values for the inputs; belong to the open scope. */
void tern_random_graph_inputs(const struct tern_random_graph *r, uint64_t seed, tern_tensor **in);
/* A tern_graph_fn; user is the random_graph. */
enum tern_status tern_random_graph_fn(void *user, tern_tensor *const *in, tern_tensor **out);

#endif

/* The step of a plan at which most memory is alive, and what would lower it. Sums of block sizes, in bytes. */
#ifndef TERN_GRAPH_PEAK_H
#define TERN_GRAPH_PEAK_H

#include "graph/plan.h"

/* What would be alive at most if something were changed, and at which step. */
struct tern_peak {
    int step;
    size_t alive;
};

struct tern_relief {
    struct tern_peak now; /* the first of several equal steps; all zero for a plan without steps */
    size_t scratch;       /* workspace and packing at that step; 0: none */
    struct tern_peak without_scratch;
    int waiting;                      /* the largest block that is alive at that step and not used by it; -1: none */
    int from, until;                  /* the steps that use it before and after */
    struct tern_peak without_waiting; /* if it were not in memory between the two */
    struct tern_peak next;            /* the step that needs most beside that one: its number is -1 in a plan of one step */
};
struct tern_relief tern_plan_relief(const struct tern_plan *p);

static inline bool tern_block_lives(const struct tern_plan_block *b, int step) { return b->first <= step && step <= b->last; }

/* The name of a weight that the node reads, itself or prepared; NULL: none. */
const char *tern_node_weight(const struct tern_graph *g, const struct tern_node *n);
/* "conv2d_f32_igemm", or "reference". */
const char *tern_step_kernel(const struct tern_step *step);

#endif

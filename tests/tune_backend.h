/* A device for tests of tuning: the CPU with kernels of abs and neg that are as slow, as broken and as hungry as a test wants. */
#ifndef TERN_TESTS_TUNE_BACKEND_H
#define TERN_TESTS_TUNE_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/plan.h"

/* Kernels of abs, with their costs: what the model takes (1), another (2), one that it finds dear (8); of neg: 1 and 2. */
enum trial_kernel { TRIAL_USUAL, TRIAL_OTHER, TRIAL_DEAR, TRIAL_NEG, TRIAL_NEG_OTHER, TRIAL_COUNT };
struct trial {
    double seconds; /* of a call */
    bool fails;
    uint64_t library; /* version */
    size_t workspace;
    int calls; /* atomic */
};
extern struct trial trials[TRIAL_COUNT];
/* All quick and right, and not called yet. */
void trials_reset(void);
extern const char *const trial_names[TRIAL_COUNT];

#endif

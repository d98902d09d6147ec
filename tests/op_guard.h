/* An allocator that finds writes outside of what was asked for: guard bytes before and behind every block, fresh memory
 * filled with a pattern that is NaN in every floating-point dtype. For tests of kernels. */
#ifndef TERN_TESTS_OP_GUARD_H
#define TERN_TESTS_OP_GUARD_H

#include <pthread.h>
#include <tern/context.h>

struct op_guard_block;
struct op_guard {
    pthread_mutex_t lock;
    struct op_guard_block *blocks; /* that are in use */
    uint64_t damaged;              /* blocks found damaged when freed */
};

void op_guard_init(struct op_guard *g);
/* For tern_context_params.allocator; the guard must outlive the context. */
struct tern_allocator op_guard_allocator(struct op_guard *g);
/* Blocks with damaged guards so far, freed or in use. */
uint64_t op_guard_damage(struct op_guard *g);

#endif

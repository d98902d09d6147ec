/* An allocator that finds writes outside of what was asked for: guard bytes before and behind every block, fresh memory
 * filled with a pattern that is NaN in every floating-point dtype. */
#ifndef TERN_CONFORMANCE_GUARD_H
#define TERN_CONFORMANCE_GUARD_H

#include <pthread.h>
#include <tern/context.h>

struct tern_guard_block;
struct tern_guard {
    pthread_mutex_t lock;
    struct tern_guard_block *blocks; /* that are in use */
    uint64_t damaged;                /* blocks found damaged when freed */
};

void tern_guard_init(struct tern_guard *g);
/* When its context is gone. */
void tern_guard_close(struct tern_guard *g);
/* For tern_context_params.allocator; the guard must outlive the context. */
struct tern_allocator tern_guard_allocator(struct tern_guard *g);
/* Blocks with damaged guards so far, freed or in use. */
uint64_t tern_guard_damage(struct tern_guard *g);

#endif

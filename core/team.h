/* The threads of a context: one that calls, and workers that help it through one loop after the other. */
#ifndef TERN_CORE_TEAM_H
#define TERN_CORE_TEAM_H

#include <stdbool.h>

struct tern_team;

/* At most `threads` with the caller, as many as can be started; *error: why no more (errno.h), or 0. NULL: no memory. */
struct tern_team *tern_team_create(int threads, int *error);
/* NULL is fine. No loop may be running, so not from fn. */
void tern_team_destroy(struct tern_team *team);

int tern_team_size(const struct tern_team *team);

/* Calls fn(arg, 0) in the calling thread, and in workers that are there in time fn(arg, slot) with 1 <= slot < slots, each worker always
 * its own. Returns when all calls that began are done: who comes later finds the loop closed, and nobody waits for it. So what one call
 * leaves, another must do. Callers from several threads take turns, but with one slot; fn may not start a loop itself.
 *
 * awake: workers spin behind the loop until the next one, for two milliseconds. Else they sleep. */
void tern_team_run(struct tern_team *team, int slots, void (*fn)(void *arg, int slot), void *arg, bool awake);

/* Workers that spin go to sleep. */
void tern_team_rest(struct tern_team *team);

#endif

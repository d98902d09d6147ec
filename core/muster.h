/* Where the threads of a team are. */
#ifndef TERN_CORE_MUSTER_H
#define TERN_CORE_MUSTER_H

#include "core/team.h"

/* Wakes the workers and moves those that share a core with the calling thread, or with each other, to one that is left. Without it a worker
 * that is woken on the core of who woke it spins there, and the two take turns until the system moves one: milliseconds. For teams of no
 * more threads than cores. */
void tern_muster(struct tern_team *team);

#endif

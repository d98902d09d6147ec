/* Scratch memory of threads: a slot for each, one behind the other in a kernel's workspace. */
#ifndef TERN_CPU_SLOTS_H
#define TERN_CPU_SLOTS_H

#include <stddef.h>

#define CPU_SLOT_GAP ((size_t)64 << 10)

/* Bytes from one slot to the next, of which a thread uses so many; 0: nothing is needed. There is room between them: without
 * it threads disturb each other, it seems by what their processors fetch ahead (docs/kernels/where-time-goes.md). */
static inline size_t cpu_slot(size_t bytes) { return bytes ? (bytes + 63) / 64 * 64 + CPU_SLOT_GAP : 0; }

/* Bytes of all slots, of which the last one needs no gap. */
static inline size_t cpu_slots(size_t slot, int threads) { return slot ? slot * (size_t)threads - CPU_SLOT_GAP : 0; }

#endif

/* What the queues of all backends have alike: each device has one, inside of it. */
#ifndef TERN_BACKENDS_QUEUE_H
#define TERN_BACKENDS_QUEUE_H

#include "core/hal.h"

/* An entry of a queue's table. A launch is counted, and is what the kernel's `run` does: on devices that run beside the
 * host, enqueueing it. */
enum tern_status tern_queue_launch(struct tern_queue *q, const struct tern_kernel *k, const struct tern_kernel_args *a);

/* The table of devices whose launches are done when they return, so that every event has already happened. */
extern const struct tern_queue_fns tern_queue_at_once;

#endif

/* What the queues of all backends have alike: each device has one, inside of it, and all others are views of that one. */
#ifndef TERN_BACKENDS_QUEUE_H
#define TERN_BACKENDS_QUEUE_H

#include "core/hal.h"

/* The entries of a queue's and a device's table. A launch is counted, and is what the kernel's `run` does: on devices that run beside the
 * host, enqueueing it. */
struct tern_queue *tern_queue_view_create(struct tern_device *device);
void tern_queue_view_destroy(struct tern_queue *q);
enum tern_status tern_queue_launch(struct tern_queue *q, const struct tern_kernel *k, const struct tern_kernel_args *a);

/* The table of devices whose launches are done when they return, so that every event has already happened. */
extern const struct tern_queue_fns tern_queue_at_once;

#endif

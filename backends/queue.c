/* What the queues of all backends have alike, and the whole queue of those whose launches are done when they return. */
#include "backends/queue.h"

#include "core/memory.h"
#include "ops/kernel.h"

enum tern_status tern_queue_launch(struct tern_queue *q, const struct tern_kernel *k, const struct tern_kernel_args *a)
{
    __atomic_add_fetch(&q->launches, 1, __ATOMIC_RELAXED);
    return k->run(a);
}

static enum tern_status finish(struct tern_queue *q) { return TERN_OK; }

static void event_destroy(struct tern_event *e) { tern_free(e->queue->device->ctx, e); }
static enum tern_status event_wait(struct tern_event *e) { return TERN_OK; }
static const struct tern_event_fns event_fns = {event_destroy, event_wait};

static struct tern_event *record(struct tern_queue *q)
{
    struct tern_event *e = tern_calloc(q->device->ctx, 1, sizeof(*e));
    if (e)
        *e = (struct tern_event){&event_fns, q};
    return e;
}

const struct tern_queue_fns tern_queue_at_once = {tern_queue_launch, finish, record};

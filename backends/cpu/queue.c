/* The CPU queue: a launch is done when it returns, so every event has already happened. */
#include "backends/cpu/cpu.h"

static void queue_destroy(struct tern_queue *q)
{
    if (q != q->device->queue)
        tern_free(q->device->ctx, q);
}

static enum tern_status queue_launch(struct tern_queue *q, const struct tern_kernel *k, const struct tern_kernel_args *a)
{
    __atomic_add_fetch(&q->launches, 1, __ATOMIC_RELAXED);
    return k->run(a);
}

static enum tern_status queue_finish(struct tern_queue *q) { return TERN_OK; }

static void event_destroy(struct tern_event *e) { tern_free(e->queue->device->ctx, e); }
static enum tern_status event_wait(struct tern_event *e) { return TERN_OK; }
static const struct tern_event_fns event_fns = {event_destroy, event_wait};

static struct tern_event *queue_record(struct tern_queue *q)
{
    struct tern_event *e = tern_calloc(q->device->ctx, 1, sizeof(*e));
    if (e)
        *e = (struct tern_event){&event_fns, q};
    return e;
}

const struct tern_queue_fns cpu_queue_fns = {queue_destroy, queue_launch, queue_finish, queue_record};

struct tern_queue *cpu_queue_create(struct tern_device *device)
{
    struct tern_queue *q = tern_calloc(device->ctx, 1, sizeof(*q));
    if (q)
        *q = (struct tern_queue){.fns = &cpu_queue_fns, .device = device};
    return q;
}

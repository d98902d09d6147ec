/* Memory of runs: taken from an earlier one that has ended, or made; given back when a run ends. */
#include "core/context.h"
#include "graph/plan.h"

void tern_last_run_drop_capture(struct tern_last_run *l)
{
    if (l->capture)
        l->capture->fns->destroy(l->capture);
    l->capture = NULL;
}

static void free_memory(struct tern_context *ctx, struct tern_run_memory *m)
{
    if (m) {
        tern_last_run_drop_capture(&m->own);
        tern_last_run_drop_capture(&m->guest);
    }
    if (m && m->before)
        m->before->fns->destroy(m->before);
    for (int i = 0; m && i < m->n_arena; i++)
        tern_buffer_unref(&m->arena[i]);
    tern_free(ctx, m);
}

static struct tern_run_memory *make_memory(const struct tern_plan *p)
{
    const int n = p->n_buffers;
    struct tern_run_memory *m = tern_calloc(p->ctx, 1, sizeof(*m) + (size_t)n * sizeof(m->arena[0]));
    if (!m)
        return NULL;
    m->n_arena = n;
    for (int i = 0; i < n; i++)
        if (!(m->arena[i] = tern_buffer_create(p->device, p->buffers[i]))) {
            free_memory(p->ctx, m);
            return NULL;
        }
    return m;
}

/* What the binding reads comes to the device's own memory, beside the arena and before the weights of other plans. */
static enum tern_status use_weights(const struct tern_plan *p, const struct tern_binding *b)
{
    struct tern_device *d = p->device;
    int n = p->graph->n_values;
    if (!d->fns->weights_use)
        return TERN_OK;
    struct tern_buffer **buffers = tern_calloc(p->ctx, (size_t)n + 1, sizeof(*buffers));
    for (int i = 0; buffers && i < n; i++)
        buffers[i] = b->at[i].buffer;
    enum tern_status st = buffers ? d->fns->weights_use(d, buffers, n) : tern_error_status(p->ctx);
    tern_free(p->ctx, buffers);
    return st;
}

struct tern_run_memory *tern_run_memory_take(const struct tern_binding *b)
{
    struct tern_plan *p = b->plan;
    pthread_mutex_lock(&p->lock);
    struct tern_run_memory *m = p->idle;
    if (m)
        p->idle = m->next;
    pthread_mutex_unlock(&p->lock);
    if (m || !(m = make_memory(p)) || !use_weights(p, b))
        return m;
    free_memory(p->ctx, m);
    return NULL;
}

void tern_plan_trim(struct tern_plan *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    struct tern_run_memory *idle = p->idle;
    p->idle = NULL;
    pthread_mutex_unlock(&p->lock);
    while (idle) {
        struct tern_run_memory *m = idle;
        idle = m->next;
        free_memory(p->ctx, m);
    }
}

void tern_run_memory_give(struct tern_plan *p, struct tern_run_memory *m)
{
    pthread_mutex_lock(&p->lock);
    m->next = p->idle;
    p->idle = m;
    pthread_mutex_unlock(&p->lock);
}

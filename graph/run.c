/* Running a plan: one loop over its steps. Everything that could be decided before, was. */
#include <string.h>
#include <tern/ops.h>

#include "core/context.h"
#include "graph/plan.h"
#include "ops/resident.h"

struct run {
    const struct tern_plan *plan;
    const struct tern_binding *binding;
    tern_tensor *const *inputs, *const *outputs;
    struct tern_run_memory *memory;
    struct tern_last_run *last;                /* of the memory */
    const struct tern_step_observer *observer; /* NULL: nobody is told */
};

static void drop_capture(struct tern_last_run *l)
{
    if (l->capture)
        l->capture->fns->destroy(l->capture);
    l->capture = NULL;
}

static void free_memory(struct tern_context *ctx, struct tern_run_memory *m)
{
    if (m) {
        drop_capture(&m->own);
        drop_capture(&m->guest);
    }
    for (int i = 0; m && i < m->n_arena; i++)
        tern_buffer_unref(&m->arena[i]);
    tern_free(ctx, m);
}

/* A buffer for each window of the arena. */
static struct tern_run_memory *make_memory(const struct tern_plan *p)
{
    size_t size = p->facts.arena, window = p->window ? p->window : size;
    int n = size ? (int)((size + window - 1) / window) : 0;
    struct tern_run_memory *m = tern_calloc(p->ctx, 1, sizeof(*m) + (size_t)n * sizeof(m->arena[0]));
    if (!m)
        return NULL;
    m->n_arena = n;
    for (int i = 0; i < n; i++) {
        size_t rest = size - (size_t)i * window;
        if (!(m->arena[i] = tern_buffer_create(p->ctx->device, rest < window ? rest : window))) {
            free_memory(p->ctx, m);
            return NULL;
        }
    }
    return m;
}

/* What the binding reads comes to the device's own memory, beside the arena and before the weights of other plans. */
static enum tern_status use_weights(const struct tern_plan *p, const struct tern_binding *b)
{
    struct tern_device *d = p->ctx->device;
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

/* In whose memory a binding runs: its own, or that of the one beside it. */
static const struct tern_binding *host_of(const struct tern_binding *b)
{
    return b->beside && tern_plan_fits_beside(b->plan, b->beside->plan) ? b->beside : b;
}

/* Idle memory of an earlier run, or new one. NULL with the error recorded. */
static struct tern_run_memory *take_memory(const struct tern_binding *b)
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

static void give_memory(struct tern_plan *p, struct tern_run_memory *m)
{
    pthread_mutex_lock(&p->lock);
    m->next = p->idle;
    p->idle = m;
    pthread_mutex_unlock(&p->lock);
}

static struct tern_arg arg_of(const struct run *r, const struct tern_ref *ref)
{
    const tern_tensor *t = NULL;
    size_t window;
    switch (ref->place) {
    case TERN_PLACE_NONE:
        return (struct tern_arg){NULL, 0};
    case TERN_PLACE_ARENA:
        window = r->plan->window ? r->plan->window : SIZE_MAX;
        return (struct tern_arg){r->memory->arena[ref->offset / window], ref->offset % window};
    case TERN_PLACE_INPUT:
        t = r->inputs[ref->index];
        break;
    case TERN_PLACE_OUTPUT:
        t = r->outputs[ref->index];
        break;
    case TERN_PLACE_BOUND:
        return (struct tern_arg){r->binding->at[ref->index].buffer, r->binding->at[ref->index].offset + ref->offset};
    }
    return (struct tern_arg){t->buffer, t->offset + ref->offset};
}

/* Packs an input for this run alone, or reads what an earlier run has packed. A streamed weight's pages go when they are read, and those of
 * the next one are asked for. */
static enum tern_status pack_input(const struct run *r, const struct tern_step *s, struct tern_kernel_args *a)
{
    struct tern_context *ctx = r->plan->ctx;
    int k = s->kernel->pack_input, step = (int)(s - r->plan->steps);
    struct tern_spill *spill = s->in[k].place == TERN_PLACE_BOUND ? r->binding->spill : NULL;
    if (spill && tern_spill_find(spill, s, step, &a->packed))
        return TERN_OK;
    if (s->ahead >= 0)
        tern_tensor_advise(r->binding->bound[s->ahead], true);
    if (s->kernel->pack(ctx, s->desc, tern_arg_host(&a->in[k]), tern_arg_host(&a->packed)))
        return tern_error_status(ctx);
    if (s->in[k].place == TERN_PLACE_BOUND)
        tern_tensor_advise(r->binding->bound[s->in[k].index], false);
    if (spill)
        tern_spill_write(spill, s, step, a);
    return TERN_OK;
}

/* A weight on its way to its step: to the place it has there, or where it lies when the device has it already. Queues are in order, so the
 * copy waits for those who had that place before. */
static enum tern_status copy_input(const struct run *r, const struct tern_step *s, int k, struct tern_arg *arg)
{
    const struct tern_ref *from = &s->from[k];
    tern_tensor *t = r->binding->bound[from->index];
    if (!tern_is_elsewhere(r->plan->ctx->device, t)) {
        *arg = arg_of(r, from);
        return TERN_OK;
    }
    if (s->ahead >= 0)
        tern_tensor_advise(r->binding->bound[s->ahead], true);
    size_t size = (size_t)tern_meta_span(&t->meta) * tern_dtype_size(t->meta.dtype);
    enum tern_status st = tern_buffer_write(arg->buffer, arg->offset - from->offset, tern_tensor_host(t), size);
    tern_tensor_advise(t, false);
    return st;
}

/* `brought`: when a streamed weight was there; NULL: nobody asks. */
static enum tern_status run_step(const struct run *r, const struct tern_step *s, double *brought)
{
    struct tern_context *ctx = r->plan->ctx;
    struct tern_kernel_args a = {.desc = s->desc, .ctx = ctx};
    for (int k = 0; k < s->desc->n_in; k++)
        a.in[k] = arg_of(r, &s->in[k]);
    for (int k = 0; k < s->desc->n_in; k++)
        if (s->from[k].place != TERN_PLACE_NONE && copy_input(r, s, k, &a.in[k]))
            return tern_error_status(ctx);
    a.out = arg_of(r, &s->out);
    if (!s->kernel)
        return tern_reference_run(&a);
    a.workspace = arg_of(r, &s->workspace);
    a.packed = arg_of(r, &s->packed);
    if (s->packed_index >= 0)
        a.packed = (struct tern_arg){r->binding->packed[s->packed_index], 0};
    else if (s->packed.place != TERN_PLACE_NONE && pack_input(r, s, &a))
        return tern_error_status(ctx);
    if (brought && tern_step_streams(s))
        *brought = tern_now();
    enum tern_status st = ctx->device->queue->fns->launch(ctx->device->queue, s->kernel, &a);
    if (r->binding->spill)
        tern_spill_leave(r->binding->spill, s, &a);
    return st;
}

/* Whether an input cannot be read as it is: strided, or in memory that the device's kernels do not see. */
static bool needs_copy(const struct tern_plan *p, const tern_tensor *t)
{
    return !tern_meta_is_contiguous(&t->meta) || tern_is_elsewhere(p->ctx->device, t);
}

static tern_tensor *copy_of(const struct tern_plan *p, tern_tensor *t)
{
    const struct tern_meta *m = &t->meta;
    return tern_meta_is_contiguous(m) ? tern_tensor_create(p->ctx, m->dtype, m->ndim, m->shape, tern_tensor_host(t))
                                      : tern_contiguous(t, TERN_CONTIGUOUS);
}

/* The inputs as the trace declared them; what cannot be read as it is is copied into the open scope. */
static enum tern_status take_inputs(const struct tern_plan *p, tern_tensor *const *inputs, tern_tensor **taken)
{
    char expected[TERN_META_TEXT], found[TERN_META_TEXT];
    const struct tern_graph *g = p->graph;
    for (int i = 0; i < g->n_inputs; i++) {
        const struct tern_value *v = &g->values[g->inputs[i]];
        if (!inputs[i] || !tern_meta_same_shape(&inputs[i]->meta, &v->meta) || inputs[i]->meta.dtype != v->meta.dtype)
            return tern_fail(p->ctx, TERN_E_SHAPE, "plan: input \"%s\": expected %s, found %s", v->name, tern_meta_text(&v->meta, expected),
                             inputs[i] ? tern_meta_text(&inputs[i]->meta, found) : "none");
        taken[i] = needs_copy(p, inputs[i]) ? copy_of(p, inputs[i]) : inputs[i];
        if (!taken[i])
            return tern_error_status(p->ctx);
    }
    return TERN_OK;
}

static enum tern_status take_outputs(const struct tern_plan *p, tern_tensor *const *outputs, tern_tensor **taken)
{
    char expected[TERN_META_TEXT], found[TERN_META_TEXT];
    const struct tern_graph *g = p->graph;
    for (int i = 0; i < g->n_outputs; i++) {
        const struct tern_meta *m = &g->values[g->outputs[i]].meta;
        if (outputs[i] && (memcmp(&outputs[i]->meta, m, sizeof(*m)) || outputs[i]->constant || !outputs[i]->buffer))
            return tern_fail(p->ctx, TERN_E_INVALID, "plan: output %d: expected %s from an earlier run, found %s", i,
                             tern_meta_text(m, expected), tern_meta_text(&outputs[i]->meta, found));
        taken[i] = outputs[i] ? outputs[i] : tern_tensor_empty(p->ctx, m);
        if (!taken[i])
            return tern_error_status(p->ctx);
    }
    return TERN_OK;
}

/* Scopes belong to one thread at a time. A run with inputs that can be read as they are and given outputs needs none. */
static bool needs_scope(const struct tern_plan *p, tern_tensor *const *inputs, tern_tensor *const *outputs)
{
    for (int i = 0; i < p->graph->n_inputs; i++)
        if (inputs[i] && needs_copy(p, inputs[i]))
            return true;
    for (int i = 0; i < p->graph->n_outputs; i++)
        if (!outputs[i])
            return true;
    return false;
}

static enum tern_status run_steps(const struct run *r)
{
    const struct tern_plan *p = r->plan;
    enum tern_status st = TERN_OK;
    double start = r->observer ? tern_now() : 0;
    if (r->binding->spill)
        tern_spill_begin(p, r->binding->spill);
    tern_threads_begin(p->ctx);
    for (int s = 0; !st && s < p->n_steps; s++) {
        double begin = r->observer ? tern_now() : 0, brought = begin;
        st = tern_check_cancel(p->ctx) ? tern_error_status(p->ctx) : run_step(r, &p->steps[s], r->observer ? &brought : NULL);
        if (!st && r->observer && !(st = p->ctx->device->queue->fns->finish(p->ctx->device->queue)))
            tern_step_tell(r->observer, &p->steps[s], begin - start, brought - begin, tern_now() - start);
    }
    tern_threads_end(p->ctx);
    return st;
}

/* False when a tensor's memory is not the device's own, or there are too many: whether it is the same again cannot be told. */
static bool make_key(const struct run *r, struct tern_run_key *key)
{
    const struct tern_graph *g = r->plan->graph;
    memset(key, 0, sizeof(*key));
    key->binding = r->binding->id;
    if (g->n_inputs + g->n_outputs > TERN_CAPTURED_IO)
        return false;
    for (int i = 0; i < g->n_inputs + g->n_outputs; i++) {
        const tern_tensor *t = i < g->n_inputs ? r->inputs[i] : r->outputs[i - g->n_inputs];
        if (!t->buffer->id || t->buffer->device != r->plan->ctx->device)
            return false;
        key->at[i].buffer = t->buffer->id;
        key->at[i].offset = t->offset;
    }
    return true;
}

/* Writes the launches of this run down. What fails here fails in a plain run, too, and is told there. */
static void capture(const struct run *r)
{
    struct tern_queue *q = r->plan->ctx->device->queue;
    if (q->fns->capture_begin(q) == TERN_OK) {
        enum tern_status st = run_steps(r);
        r->last->capture = q->fns->capture_end(q);
        if (st)
            drop_capture(r->last);
    }
    if (!r->last->capture && tern_error_status(r->plan->ctx) != TERN_E_CANCELLED)
        tern_error_clear(r->plan->ctx);
}

/* The first run with a key is a plain one, which also compiles what is not yet; the second is captured, all further ones replay it. */
static enum tern_status run_or_replay(const struct run *r)
{
    struct tern_queue *q = r->plan->ctx->device->queue;
    struct tern_run_key key;
    if (!q->fns->capture_begin || !r->plan->same_launches || r->observer || !make_key(r, &key))
        return run_steps(r);
    struct tern_last_run *last = r->last;
    bool again = !memcmp(&key, &last->key, sizeof(key));
    if (!again)
        drop_capture(last);
    last->key = key;
    if (again && !last->capture)
        capture(r);
    if (tern_check_cancel(r->plan->ctx))
        return tern_error_status(r->plan->ctx);
    enum tern_status st = last->capture ? q->fns->replay(q, last->capture) : TERN_OK;
    if (last->capture && (st || !last->capture->stale))
        return st;
    drop_capture(last);
    return run_steps(r);
}

static enum tern_status run_in_memory(struct run *r, tern_tensor *const *inputs, tern_tensor *const *outputs, tern_tensor **in,
                                      tern_tensor **out)
{
    enum tern_status st = take_inputs(r->plan, inputs, in);
    st = st ? st : take_outputs(r->plan, outputs, out);
    return st ? st : run_or_replay(r);
}

static enum tern_status run(struct tern_binding *binding, tern_tensor *const *inputs, tern_tensor **outputs,
                            const struct tern_step_observer *observer)
{
    tern_tensor *in[TERN_GRAPH_MAX_IO] = {NULL}, *out[TERN_GRAPH_MAX_IO] = {NULL};
    if (!binding)
        return TERN_E_INVALID;
    struct tern_plan *p = binding->plan;
    struct tern_context *ctx = p->ctx;
    if (tern_failed(ctx))
        return tern_error_status(ctx);
    const struct tern_binding *host = host_of(binding);
    struct tern_run_memory *m = take_memory(host);
    if (!m)
        return tern_error_status(ctx);
    struct run r = {p, binding, in, out, m, host == binding ? &m->own : &m->guest, observer};
    bool scope = needs_scope(p, inputs, outputs);
    if (scope)
        tern_scope_begin(ctx);
    enum tern_status st = run_in_memory(&r, inputs, outputs, in, out);
    give_memory(host->plan, m);
    if (!scope)
        return st;
    for (int i = 0; i < p->graph->n_outputs; i++)
        if (st || outputs[i])
            out[i] = NULL; /* the caller's, or not to be kept */
    tern_scope_end_many(ctx, out, p->graph->n_outputs);
    for (int i = 0; i < p->graph->n_outputs; i++)
        if (out[i])
            outputs[i] = out[i];
    return st;
}

enum tern_status tern_plan_run(struct tern_binding *binding, tern_tensor *const *inputs, tern_tensor **outputs)
{
    return run(binding, inputs, outputs, NULL);
}

enum tern_status tern_plan_profile(struct tern_binding *binding, tern_tensor *const *inputs, tern_tensor **outputs,
                                   void (*tell)(void *user, const struct tern_step_profile *step), void *user)
{
    struct tern_step_observer o = {tell, user, {0}};
    if (!binding)
        return TERN_E_INVALID;
    enum tern_status st = tern_device_peak(binding->plan->ctx, &o.peak);
    return st ? st : run(binding, inputs, outputs, &o);
}

/* One loop over a plan's steps. Everything that could be decided before, was. */
#include "core/context.h"
#include "graph/plan.h"
#include "ops/resident.h"

static struct tern_arg arg_of(const struct tern_run *r, const struct tern_ref *ref)
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
static enum tern_status pack_input(const struct tern_run *r, const struct tern_step *s, struct tern_kernel_args *a)
{
    struct tern_context *ctx = r->plan->ctx;
    int k = s->kernel->pack_input, step = (int)(s - r->plan->steps);
    struct tern_spill *spill = s->spills ? r->binding->spill : NULL;
    if (spill && tern_spill_find(spill, s, step, &a->packed))
        return TERN_OK;
    if (s->ahead >= 0)
        tern_tensor_advise(r->binding->bound[s->ahead], true);
    void *copy = NULL;
    const char *from = tern_arg_host(&a->in[k]);
    if (!from) {
        from = tern_host_elements(r->binding->bound[s->in[k].index], &copy);
        from = from ? from + s->in[k].offset : NULL;
    }
    enum tern_status st = from ? s->kernel->pack(ctx, s->desc, from, tern_arg_host(&a->packed)) : tern_error_status(ctx);
    tern_free(ctx, copy);
    st = st ? st : tern_error_status(ctx);
    if (st)
        return st;
    if (s->in[k].place == TERN_PLACE_BOUND)
        tern_tensor_advise(r->binding->bound[s->in[k].index], false);
    return spill ? tern_spill_write(spill, s, step, a) : TERN_OK;
}

/* To the device, beside the launches where that may be. */
static enum tern_status bring(const struct tern_run *r, struct tern_buffer *to, size_t offset, const void *host, size_t size)
{
    return r->free ? tern_buffer_write_beside(to, r->free, offset, host, size) : tern_buffer_write(to, offset, host, size);
}

/* A weight on its way to its step: to the place it has there, or where it lies when the device has it already. Its place is its own from
 * the streamed step before on, so that it travels while that one and those between are computed; the first waits for all before it. */
static enum tern_status copy_input(const struct tern_run *r, const struct tern_step *s, int k, struct tern_arg *arg)
{
    const struct tern_ref *from = &s->from[k];
    tern_tensor *t = r->binding->bound[from->index];
    if (!tern_is_elsewhere(r->plan->device, t)) {
        *arg = arg_of(r, from);
        return TERN_OK;
    }
    if (s->ahead >= 0)
        tern_tensor_advise(r->binding->bound[s->ahead], true);
    size_t size = tern_meta_bytes(&t->meta);
    void *copy;
    const void *host = tern_host_elements(t, &copy);
    enum tern_status st = host ? bring(r, arg->buffer, arg->offset - from->offset, host, size) : tern_error_status(t->ctx);
    tern_free(t->ctx, copy);
    tern_tensor_advise(t, false);
    return st;
}

/* A streamed step comes next: from here on the weight of the next one may be written beside the launches. */
static enum tern_status mark(struct tern_run *r)
{
    struct tern_queue *q = r->plan->device->queue;
    struct tern_run_memory *m = r->memory;
    if (!q->fns->write_beside || r->binding->in_order)
        return TERN_OK;
    enum tern_status st = m->before ? m->before->fns->record(m->before) : TERN_OK;
    if (!m->before && !(m->before = q->fns->record(q)))
        st = tern_error_status(r->plan->ctx);
    r->free = m->before;
    return st;
}

/* Where the file has what the step would make of a streamed weight: it travels in the weight's place. *there: so it was. */
static enum tern_status bring_result(struct tern_run *r, const struct tern_step *s, bool *there)
{
    struct tern_spill *spill = r->binding->spill;
    struct tern_arg form;
    *there = s->spills && !s->kernel->pack && spill && tern_spill_find(spill, s, (int)(s - r->plan->steps), &form);
    if (!*there)
        return TERN_OK;
    const struct tern_arg out = arg_of(r, &s->out);
    enum tern_status st = bring(r, out.buffer, out.offset, tern_arg_host(&form), tern_step_spilled_size(r->plan->ctx, s));
    tern_spill_leave(spill, r->plan->ctx, s, &form);
    return st || s->ahead < 0 ? st : mark(r);
}

/* `brought`: when a streamed weight was there; NULL: nobody asks. */
static enum tern_status run_step(struct tern_run *r, const struct tern_step *s, double *brought)
{
    struct tern_context *ctx = r->plan->ctx;
    struct tern_kernel_args a = {.desc = s->desc, .ctx = ctx};
    bool there;
    enum tern_status st = bring_result(r, s, &there);
    if (st || there) {
        if (brought)
            *brought = tern_now();
        return st;
    }
    for (int k = 0; k < s->desc->n_in; k++)
        a.in[k] = arg_of(r, &s->in[k]);
    for (int k = 0; !st && k < s->desc->n_in; k++)
        st = s->from[k].place != TERN_PLACE_NONE ? copy_input(r, s, k, &a.in[k]) : TERN_OK;
    if (st)
        return st;
    a.out = arg_of(r, &s->out);
    if (!s->kernel)
        return tern_reference_run(&a);
    a.workspace = arg_of(r, &s->workspace);
    a.packed = arg_of(r, &s->packed);
    if (s->packed_index >= 0)
        a.packed = (struct tern_arg){r->binding->packed[s->packed_index], 0};
    else if (s->packed.place != TERN_PLACE_NONE)
        st = pack_input(r, s, &a);
    if (!st && s->ahead >= 0)
        st = mark(r);
    if (st)
        return st;
    if (brought && tern_step_streams(s))
        *brought = tern_now();
    struct tern_queue *q = r->plan->device->queue;
    st = q->fns->launch(q, s->kernel, &a);
    if (r->binding->spill && s->kernel->pack)
        tern_spill_leave(r->binding->spill, ctx, s, &a.packed);
    else if (r->binding->spill && s->spills && !st)
        st = tern_spill_write(r->binding->spill, s, (int)(s - r->plan->steps), &a);
    return st;
}

enum tern_status tern_run_steps(struct tern_run *r)
{
    const struct tern_plan *p = r->plan;
    enum tern_status st = TERN_OK;
    double start = r->observer ? tern_now() : 0;
    r->free = NULL;
    if (r->binding->spill)
        tern_spill_begin(p, r->binding->spill);
    tern_threads_begin(p->ctx);
    for (int s = 0; !st && s < p->n_steps; s++) {
        double begin = r->observer ? tern_now() : 0, brought = begin;
        st = r->captured ? TERN_OK : tern_check_cancel(p->ctx);
        st = st ? st : run_step(r, &p->steps[s], r->observer ? &brought : NULL);
        if (!st && r->observer && !(st = p->device->queue->fns->finish(p->device->queue))) {
            const double end = tern_now() - start;
            const struct tern_scope_stack scopes = tern_scopes_aside(p->ctx);
            tern_step_tell(r->observer, &p->steps[s], begin - start, brought - begin, end);
            tern_scopes_back(p->ctx, &scopes, "plan: a callback");
            st = tern_error_status(p->ctx); /* of the observer */
        }
    }
    tern_threads_end(p->ctx);
    return st;
}

/* Running a plan: its inputs and outputs as the trace declared them. */
#include <string.h>
#include <tern/ops.h>

#include "core/context.h"
#include "graph/plan.h"
#include "ops/resident.h"

/* Whether an input cannot be read as it is: strided, or in memory that the device's kernels do not see. */
static bool needs_copy(const struct tern_plan *p, const tern_tensor *t)
{
    return !tern_meta_is_contiguous(&t->meta) || tern_is_elsewhere(p->device, t);
}

static tern_tensor *copy_of(const struct tern_plan *p, tern_tensor *t)
{
    if (p->ctx->recorder) {
        tern_fail(p->ctx, TERN_E_INVALID, "plan: inputs that are not contiguous, or on another device, cannot be copied inside of a trace");
        return NULL;
    }
    if (!tern_meta_is_contiguous(&t->meta) && (!(t = tern_contiguous(t, TERN_CONTIGUOUS)) || !tern_is_elsewhere(p->device, t)))
        return t;
    const struct tern_meta *m = &t->meta;
    void *read; /* of a quantised weight, whose values lie nowhere */
    const void *values = tern_host_elements(t, &read);
    tern_tensor *own = values ? tern_tensor_empty_on(p->device, m) : NULL;
    const size_t size = tern_meta_bytes(m);
    if (own && size && tern_buffer_write(own->buffer, 0, values, size))
        own = NULL; /* the scope has it */
    tern_free(p->ctx, read);
    return own;
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
        if (inputs[i]->ctx != p->ctx)
            return tern_fail(p->ctx, TERN_E_INVALID, "plan: input \"%s\": expected a tensor of the plan's context, found one of another",
                             v->name);
        taken[i] = needs_copy(p, inputs[i]) ? copy_of(p, inputs[i]) : inputs[i];
        if (!taken[i])
            return tern_error_status(p->ctx);
        if (!taken[i]->buffer)
            return tern_fail(p->ctx, TERN_E_INVALID,
                             "plan: input \"%s\": expected values, found a tensor of a graph that is or was recorded", v->name);
    }
    return TERN_OK;
}

/* Whether a given output lies in the memory of one of n tensors: the run would write it over what it reads, or writes, too. */
static bool is_among(const tern_tensor *output, tern_tensor *const *tensors, int n)
{
    for (int k = 0; k < n; k++)
        if (output->buffer == tensors[k]->buffer)
            return true;
    return false;
}

static enum tern_status take_outputs(const struct tern_plan *p, tern_tensor *const *in, tern_tensor *const *outputs, tern_tensor **taken)
{
    char expected[TERN_META_TEXT], found[TERN_META_TEXT];
    const struct tern_graph *g = p->graph;
    for (int i = 0; i < g->n_outputs; i++) {
        const struct tern_meta *m = &g->values[g->outputs[i]].meta;
        const bool fixed = outputs[i] && outputs[i]->buffer && outputs[i]->buffer->constant;
        if (outputs[i] && (memcmp(&outputs[i]->meta, m, sizeof(*m)) || fixed || !outputs[i]->buffer))
            return tern_fail(p->ctx, TERN_E_INVALID, "plan: output %d: expected %s from an earlier run, found %s%s", i,
                             tern_meta_text(m, expected), tern_meta_text(&outputs[i]->meta, found), fixed ? " of a weight" : "");
        if (outputs[i] && outputs[i]->ctx != p->ctx)
            return tern_fail(p->ctx, TERN_E_INVALID, "plan: output %d: expected a tensor of the plan's context, found one of another", i);
        if (outputs[i] && (is_among(outputs[i], taken, i) || is_among(outputs[i], in, g->n_inputs)))
            return tern_fail(p->ctx, TERN_E_INVALID,
                             "plan: output %d: expected memory of its own, found that of another output or an input", i);
        if (outputs[i] && tern_is_elsewhere(p->device, outputs[i]))
            return tern_fail(p->ctx, TERN_E_INVALID, "plan: output %d: expected memory of the plan's device %s, found that of %s", i,
                             p->device->name, outputs[i]->buffer->device->name);
        taken[i] = outputs[i] ? outputs[i] : tern_tensor_empty_on(p->device, m);
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

/* In whose memory a binding runs: its own, or that of the one beside it. */
static const struct tern_binding *host_of(const struct tern_binding *b)
{
    return b->beside && tern_plan_fits_beside(b->plan, b->beside->plan) ? b->beside : b;
}

static enum tern_status run_in_memory(struct tern_run *r, tern_tensor *const *inputs, tern_tensor *const *outputs, tern_tensor **in,
                                      tern_tensor **out)
{
    enum tern_status st = take_inputs(r->plan, inputs, in);
    st = st ? st : take_outputs(r->plan, in, outputs, out);
    return st ? st : tern_run_or_replay(r);
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
    if (!outputs || (p->graph->n_inputs && !inputs))
        return tern_fail(ctx, TERN_E_INVALID, "plan: expected %d inputs and %d outputs, found NULL as the %s", p->graph->n_inputs,
                         p->graph->n_outputs, outputs ? "inputs" : "outputs");
    const struct tern_binding *host = host_of(binding);
    struct tern_run_memory *m = tern_run_memory_take(host);
    if (!m)
        return tern_error_status(ctx);
    struct tern_run r = {p, binding, in, out, m, host == binding ? &m->own : &m->guest, observer, NULL};
    bool scope = needs_scope(p, inputs, outputs);
    if (scope)
        tern_scope_begin(ctx);
    enum tern_status st = run_in_memory(&r, inputs, outputs, in, out);
    tern_run_memory_give(host->plan, m);
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
    if (!tern_can_tell(binding ? binding->plan->ctx : NULL, tell))
        return TERN_E_INVALID;
    enum tern_status st = tern_device_measure(binding->plan->device, &o.peak);
    return st ? st : run(binding, inputs, outputs, &o);
}

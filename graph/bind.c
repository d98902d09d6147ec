/* Binding: a weight set's tensors in the slots of a plan, and what is made of them once. */
#include <string.h>

#include "core/context.h"
#include "graph/plan.h"
#include "ops/resident.h"

/* The set's tensor for a slot, referenced; NULL with the error recorded. */
static tern_tensor *take_weight(struct tern_context *ctx, const struct tern_value *v, const struct tern_weights *weights)
{
    char expected[TERN_META_TEXT], found[TERN_META_TEXT];
    tern_tensor *t = weights ? tern_weights_get(weights, v->name) : NULL;
    if (!t) {
        tern_fail(ctx, TERN_E_NOT_FOUND, "plan: weight \"%s\" %s is not in the set", v->name, tern_meta_text(&v->meta, expected));
        return NULL;
    }
    if (t->ctx != ctx) {
        tern_fail(ctx, TERN_E_INVALID, "plan: weight \"%s\": expected a tensor of the plan's context, found one of another", v->name);
        return NULL;
    }
    if (memcmp(&t->meta, &v->meta, sizeof(t->meta))) {
        tern_fail(ctx, TERN_E_SHAPE, "plan: weight \"%s\": expected %s, found %s%s", v->name, tern_meta_text(&v->meta, expected),
                  tern_meta_text(&t->meta, found),
                  tern_meta_same_shape(&t->meta, &v->meta) ? " (dtypes and strides must be equal, too)" : "");
        return NULL;
    }
    return tern_tensor_ref(t);
}

/* Whether the step reads the value as it is: not an input that it wants packed. */
static bool reads(const struct tern_plan *p, const struct tern_step *s, int input)
{
    return s->in[input].place == TERN_PLACE_BOUND && !(s->kernel && s->kernel->pack && s->kernel->pack_input == input) &&
           input < p->graph->nodes[s->node].desc.n_in;
}

static bool reads_value(const struct tern_plan *p, int value)
{
    for (int s = 0; s < p->n_steps; s++)
        for (int k = 0; k < TERN_MAX_INPUTS; k++)
            if (p->steps[s].kernel && p->steps[s].in[k].index == value && reads(p, &p->steps[s], k))
                return true;
    return false;
}

static enum tern_status bind_values(struct tern_binding *b, const struct tern_weights *weights, const struct tern_binding *former)
{
    const struct tern_graph *g = b->plan->graph;
    for (int i = 0; i < g->n_values; i++) {
        const struct tern_value *v = &g->values[i];
        if (v->kind == TERN_VALUE_CONSTANT)
            b->bound[i] = tern_tensor_ref(v->tensor);
        else if (v->kind == TERN_VALUE_WEIGHT && v->uses && !(b->bound[i] = take_weight(g->ctx, v, weights)))
            return tern_error_status(g->ctx);
    }
    for (int i = 0; i < g->n_values; i++)
        if (g->values[i].kind == TERN_VALUE_WEIGHT && b->bound[i] &&
            !b->bound[i]->constant) /* kernels keep other forms of it from now on */
            tern_tensor_make_constant(b->bound[i]);
    return tern_binding_prepare(b, former);
}

/* Where kernels find what is bound: weights that lie in the host's memory are copied to a device that has its own. */
static enum tern_status place(struct tern_binding *b)
{
    const struct tern_plan *p = b->plan;
    for (int i = 0; i < p->graph->n_values; i++)
        if (b->bound[i])
            b->at[i] = (struct tern_arg){b->bound[i]->buffer, b->bound[i]->offset};
    for (int s = 0; s < p->n_steps; s++)
        for (int k = 0; k < TERN_MAX_INPUTS; k++) {
            int v = p->steps[s].in[k].index;
            if (p->steps[s].kernel && reads(p, &p->steps[s], k) && tern_resident(p->device, b->bound[v], &b->at[v], NULL))
                return tern_error_status(p->ctx);
        }
    return TERN_OK;
}

/* The tensor whose packed form a step reads; NULL: none. */
static tern_tensor *packed_from(const struct tern_binding *b, const struct tern_step *s)
{
    return s->packed_index < 0 ? NULL : b->bound[b->plan->graph->nodes[s->node].in[s->kernel->pack_input]];
}

/* The system maps a file's pages together with their neighbours, so those of weights that were packed before came back. */
static void drop_sources(const struct tern_binding *b)
{
    for (int s = 0; s < b->plan->n_steps; s++)
        if (packed_from(b, &b->plan->steps[s]))
            tern_tensor_advise(packed_from(b, &b->plan->steps[s]), false);
}

static enum tern_status pack(struct tern_binding *b)
{
    const struct tern_plan *p = b->plan;
    for (int s = 0; s < p->n_steps; s++) {
        const struct tern_step *step = &p->steps[s];
        tern_tensor *t = packed_from(b, step);
        if (!t)
            continue;
        if (tern_check_cancel(p->ctx)) /* all of a UNet take seconds */
            return tern_error_status(p->ctx);
        b->packed[step->packed_index] = tern_packed_form(p->ctx, p->device, step->kernel, step->desc, t);
        if (!b->packed[step->packed_index])
            return tern_error_status(p->ctx);
    }
    drop_sources(b);
    return TERN_OK;
}

/* What no order of allocations could place is refused before anything is copied. */
static enum tern_status check_room(const struct tern_plan *p, const struct tern_weights *weights, const struct tern_plan *beside)
{
    const struct tern_device_caps *c = &p->device->caps;
    size_t bound = c->memory ? tern_plan_bind_bytes_beside(p, beside, weights, true) : 0;
    if (!c->memory || bound + p->facts.arena <= c->memory || bound + p->facts.arena - c->memory <= c->host_share)
        return TERN_OK;
    return tern_fail(
        p->ctx, TERN_E_NO_MEMORY,
        "plan: %zu bytes of weights and %zu of results are needed on device %s, whose share of its memory is %zu bytes, with %zu "
        "of the host's; a smaller dtype or picture, or a larger device budget would help",
        bound, p->facts.arena, p->device->name, c->memory, c->host_share);
}

static struct tern_binding *bind(struct tern_plan *plan, const struct tern_weights *weights, struct tern_binding *beside,
                                 const struct tern_binding *former)
{
    if (!plan || tern_failed(plan->ctx))
        return NULL;
    struct tern_context *ctx = plan->ctx;
    if (ctx->recorder) {
        tern_fail(ctx, TERN_E_INVALID, "plan: cannot be bound inside of a trace");
        return NULL;
    }
    struct tern_binding *b = tern_calloc(ctx, 1, sizeof(*b));
    if (!b)
        return NULL;
    b->refs = 1;
    b->plan = tern_plan_ref(plan);
    b->beside = tern_binding_ref(beside);
    b->id = __atomic_add_fetch(&ctx->bindings, 1, __ATOMIC_RELAXED);
    b->bound = tern_calloc(ctx, (size_t)plan->graph->n_values + 1, sizeof(*b->bound));
    b->at = tern_calloc(ctx, (size_t)plan->graph->n_values + 1, sizeof(*b->at));
    b->packed = tern_calloc(ctx, (size_t)plan->n_packed + 1, sizeof(*b->packed));
    if (!b->bound || !b->at || !b->packed || check_room(plan, weights, beside ? beside->plan : NULL) || bind_values(b, weights, former) ||
        place(b) || pack(b) || (plan->facts.travels && !(b->spill = tern_spill_create(plan, true))))
        tern_binding_unref(&b);
    return b;
}

void tern_binding_set_streaming(struct tern_binding *b, enum tern_streaming streaming)
{
    if (!b || tern_failed(b->plan->ctx)) /* whose error it is could not be told from that of a folder that cannot be written */
        return;
    b->in_order = streaming != TERN_STREAMING_SPILL;
    if (!b->plan->facts.travels)
        return;
    tern_spill_destroy(b->plan->ctx, &b->spill);
    if (streaming != TERN_STREAMING_PREPARE)
        b->spill = tern_spill_create(b->plan, streaming == TERN_STREAMING_SPILL);
}

struct tern_binding *tern_plan_bind(struct tern_plan *plan, const struct tern_weights *weights) { return bind(plan, weights, NULL, NULL); }

struct tern_binding *tern_plan_bind_beside(struct tern_plan *plan, const struct tern_weights *weights, struct tern_binding *beside)
{
    return bind(plan, weights, beside, NULL);
}

struct tern_binding *tern_plan_bind_anew(struct tern_plan *plan, const struct tern_weights *weights, const struct tern_binding *former)
{
    return bind(plan, weights, NULL, former);
}

/* Buffers of devices with memory of their own know more: where they lie, their neighbours. */
size_t tern_bound_bytes(const struct tern_device *d, size_t size)
{
    size_t more = d->caps.host_memory ? 0 : 192;
    return size + 3 * 64 + sizeof(struct tern_prepared) + sizeof(struct tern_buffer) + sizeof(tern_tensor) + more;
}

/* Forms are added by whoever runs or binds. */
static bool has_form(struct tern_context *ctx, const tern_tensor *t, const struct tern_kernel *k, uint64_t key)
{
    bool has = false;
    pthread_mutex_lock(&ctx->lock);
    for (const struct tern_prepared *f = t ? t->prepared : NULL; f && !has; f = f->next)
        has = f->kernel == k && f->key == key;
    pthread_mutex_unlock(&ctx->lock);
    return has;
}

/* The tensor of a weight or constant; NULL for all else. */
static const tern_tensor *tensor_of(const struct tern_value *v, const struct tern_weights *weights)
{
    if (v->kind == TERN_VALUE_CONSTANT)
        return v->tensor;
    return v->kind == TERN_VALUE_WEIGHT && weights ? tern_weights_get(weights, v->name) : NULL;
}

/* What a device takes for a weight or constant that it reads as it is. The weights of a set that is not in memory now will come on the
 * host: a device with memory of its own copies them all. */
static size_t copy_bytes(const struct tern_device *d, const struct tern_value *v, const struct tern_weights *weights)
{
    if (v->kind == TERN_VALUE_WEIGHT && !weights && !d->caps.host_memory)
        return tern_meta_bytes(&v->meta);
    return tern_resident_bytes(d, tensor_of(v, weights));
}

/* What the largest weight takes that has to be expanded before it is packed. */
static size_t expanding_bytes(const struct tern_plan *p, const struct tern_weights *weights)
{
    size_t most = 0;
    for (int i = 0; i < p->n_steps; i++) {
        const struct tern_kernel *k = p->steps[i].kernel;
        const int v = k && k->pack ? p->graph->nodes[p->steps[i].node].in[k->pack_input] : -1;
        const tern_tensor *t = v >= 0 ? tensor_of(&p->graph->values[v], weights) : NULL;
        if (t && tern_is_elsewhere(p->ctx->host, t) && t->buffer->size > most)
            most = t->buffer->size;
    }
    return most ? tern_bound_bytes(p->ctx->host, most) : 0;
}

size_t tern_plan_bind_bytes(const struct tern_plan *p, const struct tern_weights *weights)
{
    return p ? tern_plan_bind_bytes_beside(p, NULL, weights, false) : 0;
}

size_t tern_plan_bind_bytes_beside(const struct tern_plan *p, const struct tern_plan *other, const struct tern_weights *weights,
                                   bool shares)
{
    const struct tern_graph *g = p->graph;
    size_t tables = ((size_t)g->n_values + 1) * (sizeof(void *) + sizeof(struct tern_arg)) + ((size_t)p->n_packed + 1) * sizeof(void *);
    size_t bytes = tables + sizeof(struct tern_binding) + 4 * 64 + (p->facts.travels ? tern_spill_bytes(p) : 0);
    size_t packs = 0;
    int *same = other && shares ? tern_plan_same_prepared(p, other) : NULL;
    for (int i = 0; i < p->n_steps; i++) {
        const struct tern_step *s = &p->steps[i];
        if (s->packed_index < 0 || tern_step_packed_before(p, i) || (other && tern_plan_same_packed(p, s, other, same)))
            continue;
        const tern_tensor *t = tensor_of(&g->values[g->nodes[s->node].in[s->kernel->pack_input]], weights);
        if (!has_form(p->ctx, t, s->kernel, tern_step_pack_key(s)))
            packs += tern_bound_bytes(p->device, s->kernel->packed_size(p->ctx, s->desc));
    }
    for (int i = 0; i < g->n_values; i++) { /* on a CPU: what is expanded and not packed */
        size_t copy = copy_bytes(p->device, &g->values[i], weights);
        int there = copy && other ? tern_plan_same_weight(p, i, other) : -1;
        bytes += copy && reads_value(p, i) && (there < 0 || !reads_value(other, there)) ? tern_bound_bytes(p->device, copy) : 0;
    }
    tern_free(p->ctx, same);
    return bytes + packs + tern_plan_prepared_bytes(p, shares ? other : NULL, packs) + expanding_bytes(p, weights);
}

struct tern_plan *tern_binding_plan(const struct tern_binding *binding) { return binding ? binding->plan : NULL; }

struct tern_binding *tern_binding_ref(struct tern_binding *binding)
{
    if (binding)
        __atomic_add_fetch(&binding->refs, 1, __ATOMIC_RELAXED);
    return binding;
}

void tern_binding_unref(struct tern_binding **binding)
{
    struct tern_binding *b = binding ? *binding : NULL;
    if (!b)
        return;
    *binding = NULL;
    if (__atomic_sub_fetch(&b->refs, 1, __ATOMIC_ACQ_REL))
        return;
    struct tern_context *ctx = b->plan->ctx;
    for (int i = 0; b->bound && i < b->plan->graph->n_values; i++)
        tern_tensor_unref(&b->bound[i]);
    tern_free(ctx, b->bound);
    tern_free(ctx, b->at);
    tern_free(ctx, b->packed);
    tern_spill_destroy(ctx, &b->spill);
    tern_binding_unref(&b->beside);
    struct tern_plan *plan = b->plan; /* may be all that holds the context */
    tern_free(ctx, b);
    tern_plan_unref(&plan);
}

/* Where everything lies: lifetimes of results, results in the place of an operand that ends, fixed offsets in the arena. */
#include <string.h>

#include "core/context.h"
#include "graph/arena.h"
#include "graph/plan.h"

struct layout {
    struct tern_plan *plan;
    const struct tern_graph *graph;
    struct tern_block *blocks;
    int n_blocks;
    int *block_of; /* by root value; -1: not in the arena */
    int *last;     /* by root value: the last step that reads it */
    int *output;   /* by root value: the output whose memory it is; -1 */
    int *copied;   /* by root value: whether a weight is copied to the device at every run; -1: not decided */
    int streamed;  /* the last step so far whose weights are prepared at every run; -1 */
};

#define SPILL_ALIGN ((size_t)4096) /* pages of files */

/* Bytes from the start of the root to the first element of a view or part. A prepared view is bound itself. */
static size_t offset_of(const struct tern_graph *g, int value, int *root)
{
    size_t offset = 0;
    for (;;) {
        const struct tern_value *v = &g->values[value];
        const struct tern_node *n = v->kind == TERN_VALUE_RESULT ? &g->nodes[v->node] : NULL;
        if (n && n->kind == TERN_CALL_VIEW && !tern_graph_is_fixed(g, value)) {
            offset += (size_t)n->offset * tern_dtype_size(n->desc.out.dtype);
            value = n->in[0];
        } else if (v->whole >= 0) {
            offset += (size_t)v->whole_offset * tern_dtype_size(v->meta.dtype);
            value = v->whole;
        } else {
            *root = value;
            return offset;
        }
    }
}

static struct tern_ref ref_of(const struct layout *l, int value)
{
    const struct tern_graph *g = l->graph;
    int root;
    size_t offset = offset_of(g, value, &root);
    if (tern_graph_is_fixed(g, root))
        return (struct tern_ref){TERN_PLACE_BOUND, root, offset};
    if (l->output[root] >= 0)
        return (struct tern_ref){TERN_PLACE_OUTPUT, l->output[root], offset};
    if (g->values[root].kind == TERN_VALUE_RESULT)
        return (struct tern_ref){TERN_PLACE_ARENA, l->block_of[root], offset}; /* the block's offset comes later */
    for (int i = 0; i < g->n_inputs; i++)
        if (g->inputs[i] == root)
            return (struct tern_ref){TERN_PLACE_INPUT, i, offset};
    return (struct tern_ref){TERN_PLACE_NONE, 0, 0};
}

static int add_block(struct layout *l, size_t size, int first, int last)
{
    l->plan->blocks[l->n_blocks] = (struct tern_plan_block){.node = l->plan->steps[first].node};
    l->blocks[l->n_blocks] =
        (struct tern_block){.size = size ? size : 1, .first = first, .last = last}; /* what is empty lies somewhere, too */
    return l->n_blocks++;
}

static struct tern_ref scratch(struct layout *l, size_t size, int step)
{
    if (!size)
        return (struct tern_ref){TERN_PLACE_NONE, 0, 0};
    int block = add_block(l, size, step, step);
    l->plan->blocks[block].scratch = true;
    return (struct tern_ref){TERN_PLACE_ARENA, block, 0};
}

static void find_last_uses(struct layout *l)
{
    int root;
    for (int s = 0; s < l->plan->n_steps; s++) {
        const struct tern_node *n = &l->graph->nodes[l->plan->steps[s].node];
        for (int k = 0; k < TERN_MAX_INPUTS; k++)
            if (n->in[k] >= 0) {
                offset_of(l->graph, n->in[k], &root);
                l->last[root] = s;
            }
        offset_of(l->graph, n->out, &root);
        l->last[root] = s;
    }
}

/* The arena block of an operand that ends at this step, of which the result may take the place: each element is read before
 * the same element is written, or all that a task writes is read by it before, and by no other. -1: none. */
static int place_of_operand(const struct layout *l, const struct tern_step *step, int s)
{
    const struct tern_graph *g = l->graph;
    const struct tern_node *n = &g->nodes[step->node];
    const bool by_element = tern_op_is_elementwise(n->desc.op);
    if (!step->kernel || !l->plan->device->caps.in_place || !(by_element || step->kernel->in_place) || g->values[n->out].whole >= 0)
        return -1;
    const int own = by_element ? tern_op_get(n->desc.op).max_inputs : 1; /* the others are of posts, or read at other places */
    for (int k = 0; k < n->desc.n_in && k < own; k++) {
        int root, other;
        if (n->in[k] < 0 || offset_of(g, n->in[k], &root) || tern_graph_is_fixed(g, root) || g->values[root].kind != TERN_VALUE_RESULT ||
            l->output[root] >= 0 || l->last[root] != s || memcmp(&n->desc.in[k], &n->desc.out, sizeof(n->desc.out)) ||
            tern_meta_bytes(&n->desc.out) != tern_meta_bytes(&g->values[root].meta))
            continue;
        bool alone = true; /* another operand in the same memory, or a post's, would be read where it is already written */
        for (int i = 0; i < n->desc.n_in; i++)
            if (i != k && n->in[i] >= 0 && (i >= own || n->in[i] != n->in[k])) {
                offset_of(g, n->in[i], &other);
                alone = alone && other != root;
            }
        if (alone)
            return l->block_of[root];
    }
    return -1;
}

/* Whether prepared weights of that size are kept by the binding. */
static bool stays(const struct tern_plan *p, size_t size) { return !p->resident_limit || p->facts.resident + size <= p->resident_limit; }

/* A block of its own, that of an operand, or that of the whole, which its first part brings into being. */
static void place_result(struct layout *l, const struct tern_step *step, int s)
{
    int root;
    offset_of(l->graph, l->graph->nodes[step->node].out, &root);
    if (l->output[root] >= 0 || l->block_of[root] >= 0)
        return;
    int shared = place_of_operand(l, step, s);
    if (shared >= 0) {
        l->blocks[shared].last = l->last[root];
        l->block_of[root] = shared;
        return;
    }
    l->block_of[root] = add_block(l, tern_meta_bytes(&l->graph->values[root].meta), s, l->last[root]);
    l->plan->blocks[l->block_of[root]].node = l->graph->values[root].node;
}

bool tern_step_packed_before(const struct tern_plan *p, int step)
{
    const struct tern_step *s = &p->steps[step];
    int value = p->graph->nodes[s->node].in[s->kernel->pack_input];
    for (int i = 0; i < step; i++) {
        const struct tern_step *o = &p->steps[i];
        if (o->packed_index >= 0 && o->kernel == s->kernel && p->graph->nodes[o->node].in[o->kernel->pack_input] == value &&
            tern_step_pack_key(o) == tern_step_pack_key(s))
            return true;
    }
    return false;
}

/* Weights that lie in the host's memory, on a device that has its own: as they are or seen in another way. */
static bool is_copied(struct layout *l, int root)
{
    const struct tern_plan *p = l->plan;
    const struct tern_value *v = &l->graph->values[root];
    if (!p->resident_limit || p->device->caps.host_memory || !tern_graph_is_fixed(l->graph, root) ||
        !(v->kind == TERN_VALUE_WEIGHT || (v->kind == TERN_VALUE_RESULT && l->graph->nodes[v->node].kind == TERN_CALL_VIEW)))
        return false;
    if (l->copied[root] < 0) {
        l->copied[root] = !stays(p, tern_meta_bytes(&v->meta));
        l->plan->facts.resident += l->copied[root] ? 0 : tern_meta_bytes(&v->meta);
    }
    return l->copied[root] == 1 && tern_meta_bytes(&v->meta);
}

/* A weight is read anew at every run of the step; the streamed step before asks the system for it. */
static void stream(struct layout *l, int s, int value)
{
    if (l->streamed != s)
        l->plan->facts.streamed++;
    if (l->streamed >= 0 && l->streamed != s)
        l->plan->steps[l->streamed].ahead = value;
    l->streamed = s;
}

/* Gives a weight that is not kept a place for this step, and from the streamed step before on where it can be written meanwhile. */
static void copy_weights(struct layout *l, int s)
{
    struct tern_step *step = &l->plan->steps[s];
    const bool beside = l->plan->device->queue->fns->write_beside && l->streamed >= 0;
    const int first = beside ? l->streamed : s;
    for (int k = 0; k < l->graph->nodes[step->node].desc.n_in; k++) {
        const struct tern_ref from = step->in[k];
        bool packs = step->kernel->pack && step->kernel->pack_input == k;
        if (from.place != TERN_PLACE_BOUND || packs || !is_copied(l, from.index))
            continue;
        step->from[k] = from;
        step->in[k] = scratch(l, tern_meta_bytes(&l->graph->values[from.index].meta), s);
        l->blocks[step->in[k].index].first = first;
        step->in[k].offset = from.offset;
        stream(l, s, from.index);
    }
}

/* The prepared form of a streamed weight, in a file from the second run on. */
static void spill(struct layout *l, struct tern_step *step)
{
    const size_t size = tern_step_spilled_size(l->plan->ctx, step);
    step->spills = true;
    step->spilled = l->plan->facts.travels;
    l->plan->facts.travels += (size + SPILL_ALIGN - 1) / SPILL_ALIGN * SPILL_ALIGN;
}

/* Whether a node reads weights and constants alone: what it makes is the same at every run. */
static bool is_of_weights(const struct tern_graph *g, const struct tern_node *n)
{
    bool fixed = true;
    for (int k = 0, root; k < n->desc.n_in; k++)
        if (n->in[k] >= 0) {
            offset_of(g, n->in[k], &root);
            fixed = fixed && tern_graph_is_fixed(g, root);
        }
    return fixed;
}

/* What a step makes of a streamed weight alone travels in its place, once it is in the file: to where the result lies, which is its own
 * from the streamed step before on. */
static void spill_result(struct layout *l, int s, int before)
{
    struct tern_step *step = &l->plan->steps[s];
    const struct tern_node *n = &l->graph->nodes[step->node];
    int root;
    if (!tern_op_prepares(n->desc.op) || step->from[0].place == TERN_PLACE_NONE || !is_of_weights(l->graph, n) ||
        offset_of(l->graph, n->out, &root) || l->block_of[root] < 0)
        return;
    spill(l, step);
    struct tern_block *block = &l->blocks[l->block_of[root]];
    if (before >= 0 && before < block->first && l->plan->device->queue->fns->write_beside)
        block->first = before;
}

static void place_step(struct layout *l, int s)
{
    struct tern_step *step = &l->plan->steps[s];
    const struct tern_node *n = &l->graph->nodes[step->node];
    struct tern_context *ctx = l->plan->ctx;
    place_result(l, step, s);
    for (int k = 0; k < n->desc.n_in; k++)
        if (n->in[k] >= 0)
            step->in[k] = ref_of(l, n->in[k]);
    step->out = ref_of(l, n->out);
    const struct tern_kernel *kernel = step->kernel;
    if (!kernel)
        return;
    const int before = l->streamed;
    copy_weights(l, s);
    spill_result(l, s, before);
    step->workspace = scratch(l, kernel->workspace ? kernel->workspace(ctx, step->desc) : 0, s);
    if (!kernel->pack)
        return;
    int packed = n->in[kernel->pack_input];
    bool fixed = packed >= 0 && tern_graph_is_fixed(l->graph, packed);
    size_t size = kernel->packed_size(ctx, step->desc);
    bool there = fixed && tern_step_packed_before(l->plan, s);
    if (there || (fixed && stays(l->plan, size))) {
        l->plan->facts.resident += there ? 0 : size;
        step->packed_index = l->plan->n_packed++;
        return;
    }
    step->packed = scratch(l, size, s);
    if (!fixed)
        return;
    stream(l, s, packed);
    spill(l, step);
}

static void resolve(const struct layout *l, struct tern_ref *r)
{
    if (r->place == TERN_PLACE_ARENA) {
        r->offset += l->blocks[r->index].offset;
        r->index = 0;
    }
}

static void resolve_all(const struct layout *l)
{
    for (int s = 0; s < l->plan->n_steps; s++) {
        struct tern_step *step = &l->plan->steps[s];
        for (int k = 0; k < TERN_MAX_INPUTS; k++)
            resolve(l, &step->in[k]);
        resolve(l, &step->out);
        resolve(l, &step->workspace);
        resolve(l, &step->packed);
    }
}

static void keep_blocks(struct layout *l)
{
    struct tern_plan *p = l->plan;
    p->n_blocks = l->n_blocks;
    for (int i = 0; i < l->n_blocks; i++) {
        p->blocks[i].size = l->blocks[i].size;
        p->blocks[i].offset = p->blocks[i].at = l->blocks[i].offset;
        for (size_t k = 0; p->window && k < l->blocks[i].offset / p->window; k++)
            p->blocks[i].at -= p->window - p->buffers[k];
        p->blocks[i].first = l->blocks[i].first;
        p->blocks[i].last = l->blocks[i].last;
    }
}

static bool has_sizes(const struct layout *l, const struct tern_placement *given)
{
    bool same = given && given->n_blocks == l->n_blocks;
    for (int i = 0; same && i < l->n_blocks; i++)
        same = given->blocks[i].size == l->blocks[i].size;
    return same;
}

static enum tern_status place_blocks(struct layout *l, const struct tern_placement *given)
{
    struct tern_plan *p = l->plan;
    const struct tern_arena_limits limits = tern_arena_limits(p->device->caps.max_buffer, p->device->caps.reach);
    const bool placed = has_sizes(l, given);
    const int n = l->n_blocks;
    p->window = limits.window;
    if (!(p->buffers = tern_calloc(p->ctx, (size_t)n + 1, sizeof(*p->buffers))))
        return tern_error_status(p->ctx);
    for (int i = 0; placed && i < n; i++)
        l->blocks[i].offset = given->blocks[i].offset;
    p->facts.arena = placed ? tern_arena_check(l->blocks, n, limits, p->buffers, &p->facts.least_arena)
                            : tern_arena_place(p->ctx, l->blocks, n, limits, p->buffers, &p->facts.least_arena);
    while (p->facts.arena != SIZE_MAX && p->buffers[p->n_buffers])
        p->n_buffers++;
    if (!placed)
        return tern_error_status(p->ctx);
    if (p->facts.arena == given->arena && p->facts.arena != SIZE_MAX)
        return TERN_OK;
    return tern_fail(p->ctx, TERN_E_FORMAT, "arena of %zu bytes: expected blocks that fill it and share no memory while they live",
                     given->arena);
}

static bool copies(const struct tern_step *s)
{
    bool copies = false;
    for (int k = 0; k < TERN_MAX_INPUTS; k++)
        copies = copies || s->from[k].place != TERN_PLACE_NONE;
    return copies;
}

bool tern_step_streams(const struct tern_step *s)
{
    return copies(s) || (s->packed.place != TERN_PLACE_NONE && s->in[s->kernel->pack_input].place == TERN_PLACE_BOUND);
}

static bool has_same_launches(const struct tern_plan *p)
{
    bool same = true;
    for (int s = 0; s < p->n_steps; s++)
        same = same && p->steps[s].kernel && (p->steps[s].packed_index >= 0 || !p->steps[s].kernel->pack) && !copies(&p->steps[s]);
    return same;
}

enum tern_status tern_plan_layout(struct tern_plan *p, const struct tern_placement *given)
{
    struct tern_context *ctx = p->ctx;
    const struct tern_graph *g = p->graph;
    size_t values = (size_t)g->n_values;
    struct layout l = {.plan = p, .graph = g, .streamed = -1};
    size_t each = 3 + (p->resident_limit ? TERN_MAX_INPUTS : 0); /* of a step: result, workspace, packed form, copies */
    l.blocks = tern_calloc(ctx, each * (size_t)p->n_steps + 1, sizeof(*l.blocks));
    l.block_of = tern_calloc(ctx, 4 * values + 1, sizeof(int));
    p->blocks = tern_calloc(ctx, each * (size_t)p->n_steps + 1, sizeof(*p->blocks));
    if (l.blocks && l.block_of && p->blocks) {
        memset(l.block_of, 0xff, 4 * values * sizeof(int)); /* -1 */
        l.last = l.block_of + values;
        l.output = l.last + values;
        l.copied = l.output + values;
        for (int i = 0; i < g->n_outputs; i++)
            l.output[tern_graph_root(g, g->outputs[i])] = i;
        for (int i = 0; i < g->n_outputs; i++)
            p->facts.outputs += tern_meta_bytes(&g->values[g->outputs[i]].meta);
        find_last_uses(&l);
        for (int s = 0; s < p->n_steps; s++)
            place_step(&l, s);
        if (!tern_failed(ctx) && !place_blocks(&l, given)) {
            p->same_launches = has_same_launches(p);
            keep_blocks(&l);
            resolve_all(&l);
        }
    }
    tern_free(ctx, l.blocks);
    tern_free(ctx, l.block_of);
    return tern_error_status(ctx);
}

/* Compiling: passes over a copy of the graph, a kernel for every node that is left, a place for every operand. */
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "graph/arena.h"
#include "graph/passes/passes.h"
#include "graph/plan.h"
#include "ops/tuner.h"

#define TRIES 6 /* of plans that are to keep to a limit */

const struct tern_pass *const tern_passes[] = {
    &tern_pass_fold,  &tern_pass_cse,  &tern_pass_dce,     &tern_pass_merge,     &tern_pass_smooth, &tern_pass_quantize,
    &tern_pass_chunk, &tern_pass_tile, &tern_pass_filters, &tern_pass_dtypes,    &tern_pass_pieces, &tern_pass_prepare,
    &tern_pass_fuse,  &tern_pass_pre,  &tern_pass_tune,    &tern_pass_algorithm, &tern_pass_concat, NULL};

/* Whether the list "a,b" has the word. */
static bool has_word(const char *list, const char *word, size_t length)
{
    for (const char *at = list; at;) {
        size_t n = strcspn(at, ",");
        if (n == length && !strncmp(at, word, n))
            return true;
        at = at[n] ? at + n + 1 : NULL;
    }
    return false;
}

bool tern_pass_is_out(const char *without, const char *pass)
{
    return without && (has_word(without, pass, strlen(pass)) || has_word(without, "all", 3));
}

enum tern_status tern_plan_check(struct tern_context *ctx, const struct tern_plan_params *params)
{
    const char *without = params ? params->without : NULL;
    char known[256] = "all";
    if (ctx->recorder)
        return tern_fail(ctx, TERN_E_INVALID, "plan: cannot be compiled inside of a trace");
    for (int i = 0; tern_passes[i]; i++)
        snprintf(known + strlen(known), sizeof(known) - strlen(known), ",%s", tern_passes[i]->name);
    for (const char *at = without; at;) {
        size_t n = strcspn(at, ",");
        if (!has_word(known, at, n))
            return tern_fail(ctx, TERN_E_INVALID, "plan: no pass has the name \"%.*s\"; there are %s", n > 40 ? 40 : (int)n, at, known);
        at = at[n] ? at + n + 1 : NULL;
    }
    return tern_quantize_check(ctx, "plan: quantize", params ? params->quantize : NULL);
}

static enum tern_status run_passes(struct tern_graph *g, const struct tern_plan_params *q)
{
    if (q->after)
        q->after(q->user, "trace", g);
    for (int i = 0; tern_passes[i]; i++) {
        const char *name = tern_passes[i]->name;
        if (tern_pass_is_out(q->without, name))
            continue;
        if (tern_passes[i]->run(g, q))
            return tern_error_status(g->ctx);
        if (q->after)
            q->after(q->user, name, g);
    }
    return TERN_OK;
}

static bool is_step(const struct tern_node *n) { return !n->dead && !n->prepare && n->kind != TERN_CALL_VIEW && n->kind != TERN_CALL_JOIN; }

enum tern_status tern_plan_steps(struct tern_plan *p, const struct tern_kernel *const *kernels)
{
    struct tern_graph *g = p->graph;
    size_t count = 0;
    for (int i = 0; i < g->n_nodes; i++)
        count += is_step(&g->nodes[i]);
    p->steps = tern_calloc(p->ctx, count + 1, sizeof(*p->steps));
    if (!p->steps)
        return tern_error_status(p->ctx);
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_node *n = &g->nodes[i];
        p->facts.prepared += !n->dead && n->prepare;
        if (!is_step(n))
            continue;
        struct tern_step *s = &p->steps[p->n_steps++];
        *s = (struct tern_step){.node = i, .desc = &n->desc, .packed_index = -1, .ahead = -1};
        if (n->kind == TERN_CALL_LAUNCH)
            s->kernel = kernels ? kernels[i] : n->kernel ? n->kernel : tern_kernel_choose(p->ctx, p->device, s->desc);
        if (n->kind == TERN_CALL_LAUNCH && !s->kernel)
            return tern_fail(p->ctx, TERN_E_UNSUPPORTED, "plan: %s: no kernel of %s fits any more", tern_op_get(n->desc.op).name,
                             p->device->name);
    }
    p->facts.launches = p->n_steps;
    return TERN_OK;
}

struct tern_plan *tern_plan_create(struct tern_context *ctx)
{
    struct tern_plan *p = tern_calloc(ctx, 1, sizeof(*p));
    if (!p)
        return NULL;
    tern_context_ref(ctx);
    p->ctx = ctx;
    p->device = ctx->device;
    p->refs = 1;
    p->window = tern_arena_window(ctx->device->caps.max_buffer);
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

/* Whatever arena comes out. */
static struct tern_plan *compile_once(struct tern_graph **graph, const struct tern_plan_params *q)
{
    struct tern_context *ctx = *graph ? (*graph)->ctx : NULL;
    struct tern_plan *p = ctx && !tern_plan_check(ctx, q) ? tern_plan_create(ctx) : NULL;
    if (!p) {
        tern_graph_destroy(graph);
        return NULL;
    }
    p->resident_limit = q->resident;
    p->graph = *graph;
    p->graph->done = true;
    *graph = NULL;
    if (run_passes(p->graph, q)) {
        tern_plan_unref(&p);
        return NULL;
    }
    tern_graph_compact(p->graph);
    tern_graph_shrink(p->graph);
    if (tern_failed(ctx) || tern_plan_steps(p, NULL) || tern_plan_layout(p, NULL)) {
        tern_plan_unref(&p);
        return NULL;
    }
    tern_graph_count_uses(p->graph); /* for bind: which weights are needed. Nothing changes the graph from here on. */
    if (tern_graph_settle(p->graph))
        tern_plan_unref(&p);
    return p;
}

enum tern_status tern_plan_check_window(const struct tern_plan *p)
{
    for (int i = 0; p->facts.arena == SIZE_MAX && i < p->n_blocks; i++)
        if (p->blocks[i].size > p->window)
            return tern_fail(
                p->ctx, TERN_E_NO_MEMORY,
                "plan: a result of %zu bytes at step %d, and the device has buffers of at most %zu; a smaller picture would help",
                p->blocks[i].size, p->blocks[i].first, p->window);
    return TERN_OK;
}

/* Tries until the arena keeps to the limit, if there is one, and each result to the device's buffers: without tiling, then with smaller and
 * smaller limits for the pass, whose estimate leaves out what is found later. The smallest plan. */
static struct tern_plan *compile_within(struct tern_graph **graph, const struct tern_plan_params *q)
{
    struct tern_context *ctx = *graph ? (*graph)->ctx : NULL;
    struct tern_plan_params p = *q;
    struct tern_plan *best = NULL;
    const size_t window = ctx ? tern_arena_window(ctx->device->caps.max_buffer) : 0;
    size_t limit = q->arena ? q->arena : SIZE_MAX - 1, next = q->arena ? q->arena : window, over = 0;
    for (int i = 0; i < TRIES && ctx && !tern_failed(ctx) && !(best && best->facts.arena <= limit); i++) {
        struct tern_graph *copy = tern_graph_copy(*graph);
        p.arena = i == 0 ? 0 : next;
        struct tern_plan *plan = compile_once(&copy, &p);
        if (plan && i > 0 && plan->facts.arena == SIZE_MAX) {
            next = next > window ? window : 1;
        } else if (plan && i > 0 && plan->facts.arena > limit) {
            over += plan->facts.arena - limit;
            next = limit / 2 > over ? limit - 2 * over : 1;
        }
        if (best && plan && plan->facts.arena >= best->facts.arena)
            tern_plan_unref(&plan);
        if (plan) {
            tern_plan_unref(&best);
            best = plan;
        }
        if (p.arena == 1)
            break;
    }
    tern_graph_destroy(graph);
    if (best && tern_failed(ctx))
        tern_plan_unref(&best);
    return best;
}

struct tern_plan *tern_plan_compile_owned(struct tern_graph **graph, const struct tern_plan_params *params)
{
    const struct tern_plan_params none = {0}, *q = params ? params : &none;
    double start = tern_now();
    struct tern_context *ctx = *graph ? (*graph)->ctx : NULL;
    struct tern_device *former = ctx ? tern_device_go(ctx, (*graph)->device) : NULL;
    struct tern_tuner *tuner = ctx && !tern_pass_is_out(q->without, tern_pass_tune.name) ? tern_tuner_get(ctx) : NULL;
    const struct tern_tuner_time around = tuner ? tern_tuner_begin(tuner) : (struct tern_tuner_time){0};
    struct tern_plan *p = q->arena || (ctx && ctx->device->caps.max_buffer) ? compile_within(graph, q) : compile_once(graph, q);
    if (p && tern_plan_check_window(p))
        tern_plan_unref(&p);
    if (tuner)
        tern_tuner_end(ctx, tuner);
    if (p && tuner) {
        p->tuning = tern_plan_tuned(p);
        p->tuning_cut = tuner->time.cut;
    }
    if (tuner)
        tuner->time = around;
    if (p)
        p->facts.compile_time = tern_now() - start;
    if (ctx)
        tern_device_go(ctx, former);
    return p;
}

struct tern_graph *tern_graph_to_compile(const struct tern_graph *graph)
{
    if (graph && graph->done)
        tern_fail(graph->ctx, TERN_E_INVALID, "compile: expected a graph that was traced, found that of a plan");
    return graph && !tern_failed(graph->ctx) ? tern_graph_copy(graph) : NULL;
}

struct tern_plan *tern_plan_compile(const struct tern_graph *graph, const struct tern_plan_params *params)
{
    struct tern_graph *copy = tern_graph_to_compile(graph);
    return tern_plan_compile_owned(&copy, params);
}

struct tern_plan *tern_plan_ref(struct tern_plan *plan)
{
    if (plan)
        __atomic_add_fetch(&plan->refs, 1, __ATOMIC_RELAXED);
    return plan;
}

void tern_plan_unref(struct tern_plan **plan)
{
    struct tern_plan *p = plan ? *plan : NULL;
    if (!p)
        return;
    *plan = NULL;
    if (__atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL))
        return;
    struct tern_context *ctx = p->ctx;
    tern_plan_trim(p);
    tern_graph_destroy(&p->graph);
    tern_free(ctx, p->steps);
    tern_free(ctx, p->blocks);
    tern_free(ctx, p->buffers);
    pthread_mutex_destroy(&p->lock);
    tern_free(ctx, p);
    tern_context_unref(ctx);
}

struct tern_plan_facts tern_plan_facts(const struct tern_plan *plan)
{
    struct tern_plan_facts facts = plan ? plan->facts : (struct tern_plan_facts){0};
    facts.flops = 0;
    for (int i = 0; plan && i < plan->n_steps; i++)
        facts.flops += tern_desc_flops(plan->steps[i].desc);
    return facts;
}

const struct tern_graph *tern_plan_graph(const struct tern_plan *plan) { return plan ? plan->graph : NULL; }

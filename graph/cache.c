/* Plans that were made before: in memory, the one that was not used for the longest time goes first; and on disk. */
#include <stdio.h>
#include <string.h>

#include "core/cache.h"
#include "core/context.h"
#include "core/files.h"
#include "graph/key.h"
#include "graph/passes/passes.h"
#include "graph/plan.h"
#include "ops/tuner.h"

#define WORTH 128 /* steps: fewer are compiled in less time than the file system takes to keep them */

struct entry {
    struct tern_key key;
    struct tern_plan *plan;
    uint64_t used; /* by clock */
};

struct tern_plan_cache {
    struct entry entry[TERN_PLAN_CACHE];
    uint64_t clock;
};

/* The plans hold the context, so they go when its owner lets go of it. */
static void destroy(struct tern_context *ctx)
{
    struct tern_plan_cache *c = ctx->plans;
    ctx->plans = NULL;
    ctx->plans_destroy = NULL;
    for (int i = 0; i < TERN_PLAN_CACHE; i++)
        tern_plan_unref(&c->entry[i].plan);
    tern_free(ctx, c);
}

void tern_plan_cache_drop(struct tern_context *ctx)
{
    if (ctx->plans)
        destroy(ctx);
}

/* False without memory, and when the context is only held by what was made of it. */
static bool open_cache(struct tern_context *ctx)
{
    if (!ctx->plans && !ctx->closed && (ctx->plans = tern_calloc(ctx, 1, sizeof(*ctx->plans))))
        ctx->plans_destroy = destroy;
    return ctx->plans;
}

/* Whether what was measured since the plan was made would make it otherwise. */
static bool is_stale(const struct tern_plan *p, const struct tern_plan_params *q)
{
    return !tern_pass_is_out(q ? q->without : NULL, tern_pass_tune.name) && tern_plan_tuned(p) != p->tuning;
}

static struct tern_plan *find(struct tern_context *ctx, struct tern_key key, const struct tern_plan_params *q)
{
    struct tern_plan_cache *c = ctx->plans;
    for (int i = 0; c && i < TERN_PLAN_CACHE; i++) {
        if (!c->entry[i].plan || !tern_key_equal(c->entry[i].key, key))
            continue;
        if (is_stale(c->entry[i].plan, q)) {
            tern_plan_unref(&c->entry[i].plan);
            continue;
        }
        c->entry[i].used = ++c->clock;
        return tern_plan_ref(c->entry[i].plan);
    }
    return NULL;
}

/* What is asked or told while a plan is made may have dropped all of them: then it is not kept. */
static void keep(struct tern_context *ctx, struct tern_key key, struct tern_plan *plan)
{
    struct tern_plan_cache *c = ctx->plans;
    struct entry *e = c ? &c->entry[0] : NULL;
    if (!c)
        return;
    for (int i = 0; i < TERN_PLAN_CACHE && e->plan; i++)
        if (!c->entry[i].plan || c->entry[i].used < e->used)
            e = &c->entry[i];
    tern_plan_unref(&e->plan);
    *e = (struct entry){key, tern_plan_ref(plan), ++c->clock};
}

/* Path of the plan's file; NULL where there is no cache folder. */
static char *path_of(struct tern_context *ctx, struct tern_key key)
{
    char name[TERN_KEY_TEXT + 8], text[TERN_KEY_TEXT];
    snprintf(name, sizeof(name), "%s.plan", tern_key_text(key, text));
    return tern_cache_path(ctx, "plans", name);
}

static bool same_values(const struct tern_graph *a, const int *of_a, int n_a, const struct tern_graph *b, const int *of_b, int n_b)
{
    bool same = n_a == n_b;
    for (int i = 0; same && i < n_a; i++) {
        const struct tern_meta *m = &a->values[of_a[i]].meta, *n = &b->values[of_b[i]].meta;
        same = m->dtype == n->dtype && tern_meta_same_shape(m, n);
    }
    return same;
}

/* Whether a file has the plan that its name says: callers give and take what the graph does. */
static enum tern_status check_loaded(const struct tern_plan *p, const struct tern_graph *g, struct tern_key key, const char *path)
{
    const struct tern_graph *own = p->graph;
    if (tern_key_equal(p->key, key) && same_values(own, own->inputs, own->n_inputs, g, g->inputs, g->n_inputs) &&
        same_values(own, own->outputs, own->n_outputs, g, g->outputs, g->n_outputs))
        return TERN_OK;
    return tern_fail(g->ctx, TERN_E_FORMAT, "%s: the plan is that of another graph, compile it again", path);
}

/* A file that cannot be used is as good as none. That there is none is no error even for a moment: plans that run in other threads would
 * see it. */
static struct tern_plan *load(const struct tern_graph *g, struct tern_key key, const char *path)
{
    struct tern_context *ctx = g->ctx;
    if (tern_path_kind(path) == TERN_PATH_MISSING)
        return NULL;
    struct tern_plan *p = tern_plan_load(ctx, path);
    if (p && check_loaded(p, g, key, path))
        tern_plan_unref(&p);
    enum tern_status st = tern_error_status(ctx);
    if (p || st == TERN_E_NO_MEMORY || st == TERN_E_BUDGET || st == TERN_E_DEVICE || st == TERN_E_CANCELLED)
        return p;
    if (st != TERN_E_NOT_FOUND)
        tern_message(ctx, TERN_LOG_WARN, "%s", tern_error(ctx));
    tern_error_clear_own(ctx);
    return NULL;
}

static void save(struct tern_context *ctx, const struct tern_plan *p, const char *path)
{
    if (p->n_steps < WORTH || p->tuning_cut || p->graph->warned ||
        (tern_cache_prepare(ctx, path) == TERN_OK && tern_plan_save(p, path) == TERN_OK))
        return;
    tern_message(ctx, TERN_LOG_INFO, "a plan was not kept on disk: %s", tern_error(ctx));
    tern_error_clear_own(ctx);
}

static struct tern_plan *cached(struct tern_graph **graph, const struct tern_plan_params *params)
{
    struct tern_context *ctx = *graph ? (*graph)->ctx : NULL;
    const bool keeps = ctx && !tern_failed(ctx) && open_cache(ctx);
    struct tern_key key;
    if (keeps && !tern_pass_is_out(params ? params->without : NULL, tern_pass_tune.name))
        tern_tuner_get(ctx); /* its file is read now, and what fails is told once */
    if (!keeps || tern_failed(ctx) || tern_plan_check(ctx, params) || tern_graph_key(*graph, params, &key))
        return tern_plan_compile_owned(graph, params);
    struct tern_plan *p = find(ctx, key, params);
    char *path = p ? NULL : path_of(ctx, key);
    if (!p && path && (p = load(*graph, key, path)) && is_stale(p, params))
        tern_plan_unref(&p);
    else if (p && path)
        keep(ctx, key, p);
    if (!p && !tern_failed(ctx) && (p = tern_plan_compile_owned(graph, params))) {
        p->key = key;
        keep(ctx, key, p);
        if (path)
            save(ctx, p, path);
    }
    tern_free(ctx, path);
    tern_graph_destroy(graph);
    return p;
}

struct tern_plan *tern_plan_cached_owned(struct tern_graph **graph, const struct tern_plan_params *params)
{
    struct tern_context *ctx = *graph ? (*graph)->ctx : NULL;
    struct tern_device *former = ctx ? tern_device_go(ctx, (*graph)->device) : NULL;
    struct tern_plan *p = cached(graph, params);
    if (ctx)
        tern_device_go(ctx, former);
    return p;
}

struct tern_plan *tern_plan_cached(const struct tern_graph *graph, const struct tern_plan_params *params)
{
    struct tern_graph *copy = tern_graph_to_compile(graph);
    return tern_plan_cached_owned(&copy, params);
}

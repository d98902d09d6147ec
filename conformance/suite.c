/* A suite: its list of checks, and the running of one under guarded memory. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "conformance/suite.h"
#include "models/pipelines/pipeline.h"

const char *tern_conformance_stage_name(enum tern_conformance_stage stage)
{
    static const char *const names[] = {"ops", "graphs", "models", "pictures"};
    return (size_t)stage < sizeof(names) / sizeof(*names) ? names[stage] : "?";
}

bool tern_verdict_fail(struct tern_verdict *v, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(v->message, sizeof(v->message), fmt, ap);
    va_end(ap);
    v->result = TERN_CONFORMANCE_FAILED;
    return false;
}

bool tern_verdict_skip(struct tern_verdict *v, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(v->message, sizeof(v->message), fmt, ap);
    va_end(ap);
    v->result = TERN_CONFORMANCE_SKIPPED;
    return false;
}

bool tern_suite_add(struct tern_conformance *c, const struct tern_check *check)
{
    if (!tern_grow(c->ctx, (void **)&c->checks, c->count, &c->capacity, sizeof(*c->checks)))
        return false;
    c->checks[c->count++] = *check;
    return true;
}

const char *tern_suite_keep(struct tern_conformance *c, const char *text)
{
    if (!tern_grow(c->ctx, (void **)&c->kept, c->n_kept, &c->kept_capacity, sizeof(*c->kept)))
        return NULL;
    char *copy = tern_strdup(c->ctx, text);
    if (copy)
        c->kept[c->n_kept++] = copy;
    return copy;
}

/* A context like the caller's, under guard, and silent about progress. */
static struct tern_context *open_like(struct tern_conformance *c, const char *device)
{
    struct tern_context_params p = c->ctx->params;
    p.device = device;
    p.progress = NULL;
    p.allocator = tern_guard_allocator(&c->guard);
    struct tern_context *ctx = tern_context_create(&p);
    if (!ctx)
        tern_fail(c->ctx, tern_create_status(), "%s", tern_create_error());
    return ctx;
}

static bool open_contexts(struct tern_conformance *c, const char *device)
{
    c->own = open_like(c, device ? device : c->ctx->params.device);
    if (!c->own)
        return false;
    c->judge = c->own->device->caps.host_memory ? c->own : open_like(c, "cpu");
    if (!c->judge)
        return false;
    c->own->device->fns->describe(c->own->device, c->description, sizeof(c->description));
    return true;
}

/* The stage of that name; TERN_CONFORMANCE_STAGES when there is none. */
static int find_stage(const char *name, size_t n)
{
    int stage = 0;
    for (; stage < TERN_CONFORMANCE_STAGES; stage++) {
        const char *known = tern_conformance_stage_name((enum tern_conformance_stage)stage);
        if (strlen(known) == n && !memcmp(known, name, n))
            break;
    }
    return stage;
}

/* A list of stages as bits. Ops and kernels are of the first stage: who names one wants no other, unless it is named, too. */
static bool read_stages(struct tern_context *ctx, const struct tern_conformance_params *p, unsigned *wanted)
{
    const char *list = p->stages ? p->stages : p->op || p->kernel ? "ops" : "ops,graphs,models,pictures", *entry = list;
    *wanted = 0;
    for (size_t n; entry; entry = entry[n] ? entry + n + 1 : NULL) {
        n = strcspn(entry, ",");
        int stage = find_stage(entry, n);
        if (stage == TERN_CONFORMANCE_STAGES) {
            tern_fail(ctx, TERN_E_NOT_FOUND, "there is no stage \"%.*s\" of conformance; there are ops, graphs, models, pictures",
                      n < 40 ? (int)n : 40, entry);
            return false;
        }
        *wanted |= 1u << stage;
    }
    if (!(p->op || p->kernel) || *wanted & 1u << TERN_CONFORMANCE_OPS)
        return true;
    tern_fail(ctx, TERN_E_INVALID, "conformance of %s \"%.60s\": expected the stage ops among \"%.80s\"", p->op ? "op" : "kernel",
              p->op ? p->op : p->kernel, list);
    return false;
}

static bool add_checks(struct tern_conformance *c, const struct tern_conformance_params *p, unsigned wanted)
{
    bool (*const add[])(struct tern_conformance *) = {tern_graphs_add, tern_models_add, tern_pictures_add};
    bool good = !(wanted & 1u << TERN_CONFORMANCE_OPS) || tern_ops_add(c, p);
    for (int i = 0; i < 3 && good; i++)
        good = !(wanted >> (TERN_CONFORMANCE_GRAPHS + i) & 1) || add[i](c);
    return good;
}

static bool fill(struct tern_conformance *c, const struct tern_conformance_params *p)
{
    unsigned wanted;
    if (!read_stages(c->ctx, p, &wanted))
        return false;
    c->data = p->data ? tern_strdup(c->ctx, p->data) : tern_data_path(c->ctx, "conformance", "ops/cases.json", TERN_SOURCE_CASES);
    if (!c->data)
        tern_fail(c->ctx, TERN_E_NOT_FOUND,
                  "the case table that ships with tern was not found in %s/conformance or %s; TERN_DATA_DIR can name the folder above it",
                  TERN_DATADIR, TERN_SOURCE_CASES);
    char *ops = c->data ? tern_path_join(c->ctx, c->data, "ops") : NULL;
    bool good = ops && open_contexts(c, p->device) && tern_table_load(c->ctx, ops, &c->table) && add_checks(c, p, wanted);
    tern_free(c->ctx, ops);
    return good;
}

struct tern_conformance *tern_conformance_create(struct tern_context *ctx, const struct tern_conformance_params *params)
{
    static const struct tern_conformance_params defaults;
    if (!ctx || tern_failed(ctx))
        return NULL;
    struct tern_conformance *c = tern_calloc(ctx, 1, sizeof(*c));
    if (!c)
        return NULL;
    tern_context_ref(ctx);
    c->ctx = ctx;
    tern_guard_init(&c->guard);
    if (!fill(c, params ? params : &defaults))
        tern_conformance_destroy(&c);
    return c;
}

void tern_conformance_destroy(struct tern_conformance **suite)
{
    struct tern_conformance *c = suite ? *suite : NULL;
    if (!c)
        return;
    *suite = NULL;
    tern_pipeline_destroy(&c->pipeline);
    json_decref(c->demo);
    tern_table_close(&c->table);
    if (c->judge != c->own)
        tern_context_destroy(&c->judge);
    tern_context_destroy(&c->own);
    tern_guard_close(&c->guard);
    for (int i = 0; i < c->n_kept; i++)
        tern_free(c->ctx, c->kept[i]);
    tern_free(c->ctx, c->kept);
    tern_free(c->ctx, c->checks);
    tern_free(c->ctx, c->data);
    struct tern_context *ctx = c->ctx;
    tern_free(ctx, c);
    tern_context_unref(ctx);
}

struct tern_conformance_facts tern_conformance_facts(const struct tern_conformance *c)
{
    if (!c)
        return (struct tern_conformance_facts){"", "", "", 0, 0};
    const struct tern_device *d = c->own->device;
    return (struct tern_conformance_facts){d->name, d->level ? d->level : "", c->description, c->cases, c->count};
}

struct tern_conformance_check tern_conformance_get(const struct tern_conformance *c, int i)
{
    static const struct tern_conformance_check none = {TERN_CONFORMANCE_OPS, "", "", ""};
    if (!c || i < 0 || i >= c->count)
        return none;
    const struct tern_check *k = &c->checks[i];
    return (struct tern_conformance_check){k->stage, k->group, k->name, k->way};
}

enum tern_status tern_conformance_run(struct tern_conformance *c, int i, struct tern_conformance_outcome *out)
{
    static void (*const run_stage[])(struct tern_conformance * c, const struct tern_check *check) = {tern_ops_run, tern_graphs_run,
                                                                                                     tern_models_run, tern_pictures_run};
    if (!c || !out)
        return tern_fail(c ? c->ctx : NULL, TERN_E_INVALID, "tern_conformance_run: expected a place for the outcome, found NULL");
    struct tern_verdict *v = &c->verdict;
    double start = tern_now();
    if (i < 0 || i >= c->count)
        return tern_fail(c->ctx, TERN_E_INVALID, "tern_conformance_run: expected a check from 0 to %d, found %d", c->count - 1, i);
    if (tern_check_cancel(c->ctx))
        return TERN_E_CANCELLED;
    uint64_t damage = tern_guard_damage(&c->guard);
    *v = (struct tern_verdict){.result = TERN_CONFORMANCE_PASSED};
    run_stage[c->checks[i].stage](c, &c->checks[i]);
    tern_memory_trim(c->own);
    if (tern_guard_damage(&c->guard) != damage)
        tern_verdict_fail(v, "memory outside of a buffer was written");
    if (tern_check_cancel(c->ctx)) /* it may have been cut short */
        return TERN_E_CANCELLED;
    *out = (struct tern_conformance_outcome){v->result, v->error, tern_now() - start, v->message};
    return TERN_OK;
}

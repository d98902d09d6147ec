/* What is computed before the steps: which of it is worth it, and its values. */
#include "models/pipelines/hoist.h"

#include <string.h>

#include "graph/plan.h"
#include "graph/split.h"
#include "models/pipelines/conditions.h"
#include "models/schedulers/scheduler.h"

/* Inputs of the UNet's graph that are known together: those of TERN_KNOWN_TEXT and of TERN_KNOWN_TIME. */
static const char *const inputs[TERN_KNOWN_KINDS][2] = {{"encoder_hidden_states", ""}, {"time", "added"}};

struct tern_graph *tern_hoist_part(struct tern_graph **graph, const struct tern_stage *stage)
{
    struct tern_graph *g = *graph;
    struct tern_graph_parts parts;
    *graph = NULL;
    for (int i = 0; i < TERN_KNOWN_KINDS && g; i++) {
        if (!((stage->early | stage->known) >> i & 1))
            continue;
        tern_graph_split(g, inputs[i], 2, &parts);
        tern_graph_destroy(&g);
        g = stage->early ? parts.early : parts.late;
        tern_graph_destroy(stage->early ? &parts.late : &parts.early);
    }
    return g;
}

/* ---- which part: of the UNet's plan, 0, or of the shallow one, 1 */

static struct tern_stage part_stage(const struct tern_job *j, int part)
{
    return part ? tern_job_shallow_stage(j) : tern_job_stage(j, "unet");
}

/* The stage that computes a kind of what that plan is given. */
static struct tern_stage early_stage(const struct tern_job *j, int part, int kind)
{
    struct tern_stage s = part_stage(j, part);
    s.known = 0;
    s.early = 1u << kind;
    return s;
}

/* NULL without an error: the plan is given nothing of that kind. */
static struct tern_plan *early_plan(const struct tern_job *j, int part, int kind)
{
    const struct tern_stage stage = early_stage(j, part, kind);
    return tern_pipeline_plan(j->p, &stage);
}

static bool makes_call(const struct tern_job *j, int part, int call) { return tern_job_is_shallow(j, call) == (part == 1); }

/* What follows from the timestep differs from group to group where it follows from the text, too. */
static int groups_of(const struct tern_job *j, int kind)
{
    return kind && !j->p->unet_config.pooled ? 1 : j->params.count / tern_job_group(j);
}

static int calls_of(const struct tern_job *j, int kind) { return kind ? tern_job_calls(j) - j->begin : 1; }

/* Where the values for a call and a group begin. */
static size_t place_of(const struct tern_job *j, const struct tern_known *k, int kind, int call, int group)
{
    const int groups = groups_of(j, kind);
    return ((size_t)(kind ? call - j->begin : 0) * (size_t)groups + (size_t)(groups > 1 ? group : 0)) * (size_t)k->n[kind];
}

/* ---- what they take */

static size_t output_bytes(const struct tern_plan *p)
{
    size_t bytes = 0;
    for (int i = 0; i < p->graph->n_outputs; i++) {
        const struct tern_meta *m = &p->graph->values[p->graph->outputs[i]].meta;
        bytes += tern_bound_bytes(p->device, tern_meta_bytes(m));
    }
    return bytes;
}

static size_t value_bytes(const struct tern_job *j, int part, int kind)
{
    const struct tern_plan *p = early_plan(j, part, kind);
    size_t runs = 0;
    for (int i = 0; p && i < calls_of(j, kind); i++)
        runs += !kind || makes_call(j, part, j->begin + i);
    const size_t places = p ? (size_t)calls_of(j, kind) * (size_t)p->graph->n_outputs : 0;
    return p ? (size_t)groups_of(j, kind) * (runs * output_bytes(p) + places * sizeof(tern_tensor *)) + 64 : 0;
}

/* The weights that the plan packs, as tensors of their own. */
static size_t making_bytes(const struct tern_plan *p)
{
    size_t bytes = tern_plan_bind_bytes(p, NULL) + tern_plan_facts(p).arena;
    for (int i = 0; i < p->graph->n_values; i++) {
        const struct tern_value *v = &p->graph->values[i];
        bytes += v->kind == TERN_VALUE_WEIGHT && v->uses ? tern_bound_bytes(p->device, strlen(v->name) + 1) : 0;
    }
    return bytes;
}

size_t tern_job_known_bytes(const struct tern_job *j, size_t *making)
{
    const unsigned known = tern_job_stage(j, "unet").known;
    size_t bytes = 0;
    *making = 0;
    for (int i = 0; i < TERN_KNOWN_KINDS; i++)
        for (int part = 0; part <= j->caches && known >> i & 1; part++) {
            const struct tern_plan *p = early_plan(j, part, i);
            const size_t most = p ? making_bytes(p) : 0;
            bytes += value_bytes(j, part, i);
            *making = most > *making ? most : *making;
        }
    return bytes;
}

/* ---- which are worth it */

/* The texts of all calls are those of the first. */
static bool texts_stay(const struct tern_job *j)
{
    for (int i = 0; j->conditions && i < j->conditions->count; i++)
        if (j->conditions->at[i].schedule.n_texts > 1)
            return false;
    return true;
}

/* Whether it is known before the first call. */
static bool is_known(const struct tern_job *j, int kind)
{
    const bool timed = !j->scheduler->fns->extend;
    return kind ? timed && (!j->p->unet_config.pooled || texts_stay(j)) : texts_stay(j);
}

/* Whether the UNet's plans need those inputs for nothing else. When the plan that computes from them is there, that was found before. */
static bool splits(const struct tern_job *j, int kind)
{
    const struct tern_stage early = early_stage(j, 0, kind);
    bool good = true;
    if (tern_pipeline_has_plan(j->p, &early))
        return true;
    for (int part = 0; part <= j->caches && good; part++) {
        const struct tern_stage stage = part_stage(j, part);
        struct tern_graph_parts parts;
        struct tern_graph *g = tern_pipeline_stage_graph(j->p, &stage);
        good = g && tern_graph_split(g, inputs[kind], 2, &parts) == TERN_OK;
        if (good) {
            good = !parts.kept && (part || parts.early);
            tern_graph_parts_destroy(&parts);
        }
        tern_graph_destroy(&g);
    }
    return good;
}

/* Of the shallow part, too, which is asked last: what it lacks is not kept, but found anew. */
static bool pays(const struct tern_job *j, int kind)
{
    const struct tern_plan *p = early_plan(j, 0, kind);
    int64_t saved = p ? (int64_t)tern_plan_bind_bytes(p, NULL) : 0;
    for (int part = 0; p && part <= j->caches && saved >= j->p->hoist_least; part++)
        saved -= (int64_t)value_bytes(j, part, kind);
    return p && saved >= j->p->hoist_least;
}

/* Whether plans that are given that kind, too, have no more inputs than a graph may have. The shallow part has no more than the other. */
static bool fits(const struct tern_job *j, unsigned known, int kind)
{
    int left = j->p->hoist_inputs - TERN_UNET_INPUTS;
    for (int i = 0; i < TERN_KNOWN_KINDS; i++) {
        const struct tern_plan *p = (known | 1u << kind) >> i & 1 ? early_plan(j, 0, i) : NULL;
        left -= p ? p->graph->n_outputs : 0;
    }
    return left >= 0;
}

unsigned tern_job_may_know(const struct tern_job *j)
{
    unsigned kinds = 0;
    for (int i = 0; i < TERN_KNOWN_KINDS; i++)
        kinds |= (unsigned)is_known(j, i) << i;
    return kinds;
}

enum tern_status tern_job_choose_known(struct tern_job *j)
{
    struct tern_context *ctx = j->p->ctx;
    unsigned known = 0;
    j->known = 0;
    if (!tern_pipeline_device(j->p, "unet")->caps.host_memory)
        return TERN_OK;
    for (int i = 0; i < TERN_KNOWN_KINDS && !tern_failed(ctx); i++)
        if (is_known(j, i) && splits(j, i) && pays(j, i) && fits(j, known, i))
            known |= 1u << i;
    j->known = known;
    return tern_error_status(ctx);
}

void tern_job_drop_early(struct tern_job *j, unsigned kinds)
{
    for (int i = 0; i < TERN_KNOWN_KINDS; i++)
        for (int part = 0; part <= j->caches && kinds >> i & 1; part++) {
            const struct tern_stage early = early_stage(j, part, i);
            tern_pipeline_drop_plan(j->p, &early);
        }
}

/* ---- the values */

/* The weights of a plan as other tensors over the same memory: what is packed of them goes when they go. */
static struct tern_weights *weights_apart(const struct tern_plan *p, const struct tern_weights *weights)
{
    struct tern_weights *apart = tern_weights_create(p->ctx);
    tern_scope_begin(p->ctx);
    for (int i = 0; i < p->graph->n_values && !tern_failed(p->ctx); i++) {
        const struct tern_value *v = &p->graph->values[i];
        const tern_tensor *t = v->kind == TERN_VALUE_WEIGHT && v->uses ? tern_weights_get(weights, v->name) : NULL;
        tern_tensor *view = t ? tern_tensor_view(t, &t->meta, t->offset) : NULL;
        if (view) {
            view->advise = t->advise;
            tern_weights_add(apart, v->name, view);
        }
    }
    tern_scope_end(p->ctx, NULL);
    if (tern_failed(p->ctx))
        tern_weights_unref(&apart);
    return apart;
}

static enum tern_status run(const struct tern_job *j, struct tern_binding *b, tern_tensor *const *in, tern_tensor **values, int n)
{
    struct tern_context *ctx = j->p->ctx;
    tern_tensor *out[TERN_GRAPH_MAX_IO] = {NULL};
    tern_scope_begin(ctx);
    if (tern_job_run_plan(j, "unet", b, in, out) == TERN_OK)
        for (int i = 0; i < n; i++)
            values[i] = tern_tensor_ref(out[i]);
    tern_scope_end(ctx, NULL);
    return tern_error_status(ctx);
}

static enum tern_status run_all(const struct tern_job *j, const struct tern_predictor *s, struct tern_binding *b, int part, int kind)
{
    const struct tern_unet *unet = tern_pipeline_unet(j->p);
    const struct tern_known *k = &s->known[part];
    for (int i = j->begin; unet && i < j->begin + calls_of(j, kind); i++) {
        const double t = tern_scheduler_timestep(j->scheduler, i);
        if (kind && !makes_call(j, part, i))
            continue;
        if (kind && tern_unet_set_time(unet, &t, 1, j->params.cfg, s->in[0][TERN_UNET_TIME]))
            return tern_error_status(j->p->ctx);
        for (int g = 0; g < groups_of(j, kind); g++) {
            tern_tensor *const *in = s->in[g], *given[] = {in[TERN_UNET_TIME], in[TERN_UNET_ADDED]};
            if (run(j, b, kind ? given : in + TERN_UNET_CONTEXT, k->values[kind] + place_of(j, k, kind, i, g), k->n[kind]))
                return tern_error_status(j->p->ctx);
        }
    }
    return tern_error_status(j->p->ctx);
}

/* One kind of one part. Nothing of its plan stays but the values. */
static enum tern_status compute(const struct tern_job *j, struct tern_predictor *s, int part, int kind)
{
    struct tern_context *ctx = j->p->ctx;
    struct tern_known *k = &s->known[part];
    struct tern_plan *plan = early_plan(j, part, kind);
    if (!plan)
        return tern_error_status(ctx);
    k->n[kind] = plan->graph->n_outputs;
    k->values[kind] = tern_calloc(ctx, (size_t)(calls_of(j, kind) * groups_of(j, kind)) * (size_t)k->n[kind], sizeof(*k->values[kind]));
    struct tern_weights *weights = k->values[kind] ? weights_apart(plan, tern_pipeline_module_weights(j->p, "unet")) : NULL;
    struct tern_binding *b = weights ? tern_plan_bind(plan, weights) : NULL;
    tern_weights_unref(&weights);
    if (b)
        run_all(j, s, b, part, kind);
    tern_job_end_runs(&b);
    tern_memory_trim_devices(ctx); /* blocks that were packed here would be taken for smaller ones of the UNet */
    return tern_error_status(ctx);
}

enum tern_status tern_known_open(const struct tern_job *j, struct tern_predictor *s)
{
    const unsigned known = tern_job_stage(j, "unet").known;
    for (int i = 0; i < TERN_KNOWN_KINDS; i++)
        for (int part = 0; part <= j->caches && known >> i & 1; part++)
            if (compute(j, s, part, i))
                return tern_error_status(j->p->ctx);
    return TERN_OK;
}

void tern_known_close(const struct tern_job *j, struct tern_predictor *s)
{
    for (int part = 0; part < 2; part++)
        for (int i = 0; i < TERN_KNOWN_KINDS; i++) {
            struct tern_known *k = &s->known[part];
            const size_t n = (size_t)(calls_of(j, i) * groups_of(j, i)) * (size_t)k->n[i];
            for (size_t v = 0; k->values[i] && v < n; v++)
                tern_tensor_unref(&k->values[i][v]);
            tern_free(j->p->ctx, k->values[i]);
            k->values[i] = NULL;
        }
}

void tern_known_give(const struct tern_job *j, const struct tern_predictor *s, int call, int group, tern_tensor **in)
{
    const struct tern_known *k = &s->known[tern_job_is_shallow(j, call)];
    for (int i = 0; i < TERN_KNOWN_KINDS; i++)
        for (int v = 0; v < k->n[i]; v++)
            *in++ = k->values[i][place_of(j, k, i, call, group) + (size_t)v];
}

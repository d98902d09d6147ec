/* Keys of graphs, for finding a plan again. Field by field: padding and addresses differ between processes. */
#include "graph/key.h"

#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "graph/passes/passes.h"
#include "ops/reference.h"
#include "ops/select.h"
#include "ops/tuner.h"

struct tern_key tern_plan_fingerprint(struct tern_context *ctx)
{
    struct tern_key k = {{1, 2}};
    struct tern_device *device = ctx->device;
    const char *forced = tern_dispatch_forced(ctx);
    tern_key_add_text(&k, TERN_VERSION);
    tern_key_add(&k, sizeof(struct tern_op_desc));
    for (int op = 0; op < TERN_OP_COUNT; op++) {
        struct tern_op_info info = tern_op_get((enum tern_op)op);
        tern_key_add_text(&k, info.name);
        tern_key_add_text(&k, info.inputs);
        for (int i = 0; i < info.n_attrs; i++) {
            tern_key_add_text(&k, info.attrs[i].name);
            tern_key_add(&k, (uint64_t)info.attrs[i].kind << 32 | (uint64_t)info.attrs[i].count);
        }
    }
    tern_key_add_text(&k, device->name);
    tern_key_add_text(&k, tern_device_identity(device)); /* another GPU or driver, or a library that came: other kernels are best */
    for (int i = 0; device->kernels[i]; i++) {
        tern_key_add_text(&k, device->kernels[i]->name);
        tern_key_add(&k, (uint64_t)device->kernels[i]->revision);
    }
    tern_key_add_text(&k, device->level);
    tern_key_add(&k, device->caps.max_buffer);
    tern_key_add(&k, device->caps.max_argument);
    tern_key_add(&k, (uint64_t)device->caps.max_rows);
    tern_key_add(&k, device->caps.reach);
    tern_key_add_text(&k, forced);
    return tern_key_finish(k);
}

static enum tern_status add_value(struct tern_key *k, struct tern_context *ctx, const struct tern_value *v)
{
    void *copy = NULL;
    size_t size;
    tern_key_add(k, (uint64_t)v->kind);
    tern_key_add_meta(k, &v->meta);
    tern_key_add_text(k, v->name);
    tern_key_add(k, (uint64_t)v->wide);
    if (v->kind != TERN_VALUE_CONSTANT)
        return TERN_OK;
    const void *data = tern_constant_bytes(ctx, v->tensor, &size, &copy);
    if (data) {
        tern_key_add(k, v->tensor->constant);
        tern_key_add_bytes(k, data, size);
    }
    tern_free(ctx, copy);
    return data ? TERN_OK : tern_error_status(ctx);
}

static void add_node(struct tern_key *k, const struct tern_node *n)
{
    tern_key_add(k, (uint64_t)n->kind << 2 | (uint64_t)n->dead << 1 | n->prepare);
    for (int i = 0; i < TERN_MAX_INPUTS; i++)
        tern_key_add(k, (uint64_t)n->in[i]);
    tern_key_add(k, (uint64_t)n->out);
    tern_key_add(k, (uint64_t)n->offset);
    tern_key_add_desc(k, &n->desc);
}

void tern_key_add_passes(struct tern_key *k, const struct tern_pass *const *passes, const char *without)
{
    for (int i = 0; passes[i]; i++)
        if (!tern_pass_is_out(without, passes[i]->name)) {
            tern_key_add_text(k, passes[i]->name);
            tern_key_add(k, (uint64_t)passes[i]->revision);
        }
}

enum tern_status tern_graph_key(const struct tern_graph *g, const struct tern_plan_params *params, struct tern_key *key)
{
    struct tern_key k = tern_plan_fingerprint(g->ctx);
    enum tern_status st = TERN_OK;
    tern_key_add_passes(&k, tern_passes, params ? params->without : NULL);
    if (!params || !tern_pass_is_out(params->without, tern_pass_tune.name))
        tern_key_add(&k, tern_tuner_mode(g->ctx));
    tern_key_add_text(&k, params ? params->quantize : NULL);
    tern_key_add(&k, params ? params->resident : 0);
    tern_key_add(&k, params ? params->arena : 0);
    if (params && params->arena) /* what fits it depends on the scratch of threads */
        tern_key_add(&k, (uint64_t)tern_thread_count(g->ctx));
    tern_key_add(&k, params ? params->algorithm_bytes : 0);
    tern_key_add(&k, (uint64_t)g->n_values);
    for (int i = 0; i < g->n_values && !st; i++)
        st = add_value(&k, g->ctx, &g->values[i]);
    tern_key_add(&k, (uint64_t)g->n_nodes);
    for (int i = 0; i < g->n_nodes; i++)
        add_node(&k, &g->nodes[i]);
    tern_key_add(&k, (uint64_t)g->n_inputs << 32 | (uint64_t)g->n_outputs);
    for (int i = 0; i < g->n_inputs; i++)
        tern_key_add(&k, (uint64_t)g->inputs[i]);
    for (int i = 0; i < g->n_outputs; i++)
        tern_key_add(&k, (uint64_t)g->outputs[i]);
    *key = tern_key_finish(k);
    return st;
}

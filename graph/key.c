/* Keys of graphs, for finding a plan again. Field by field: padding and addresses differ between processes. */
#include "graph/key.h"

#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "ops/reference.h"
#include "ops/select.h"

static uint64_t rotate(uint64_t x, int n) { return x << n | x >> (64 - n); }

/* For each x a bijection of the two words: what differed before differs afterwards. */
static void add(struct tern_key *k, uint64_t x)
{
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    k->word[0] = rotate(k->word[0] ^ x, 23) * 0xd1342543de82ef95u;
    k->word[1] = rotate(k->word[1] + x, 41) * 0xff51afd7ed558ccdu + k->word[0];
}

static void add_bytes(struct tern_key *k, const void *data, size_t size)
{
    const char *p = data;
    uint64_t x;
    add(k, size);
    for (; size >= sizeof(x); size -= sizeof(x), p += sizeof(x)) {
        memcpy(&x, p, sizeof(x));
        add(k, x);
    }
    x = 0;
    if (size)
        memcpy(&x, p, size);
    add(k, x);
}

static void add_text(struct tern_key *k, const char *s) { add_bytes(k, s ? s : "", s ? strlen(s) : 0); }

static struct tern_key finish(struct tern_key k)
{
    for (int i = 0; i < 4; i++) {
        add(&k, (uint64_t)i);
        k.word[0] ^= k.word[1] >> 32;
        k.word[1] ^= k.word[0] >> 32;
    }
    return k;
}

const char *tern_key_text(struct tern_key key, char out[TERN_KEY_TEXT])
{
    snprintf(out, TERN_KEY_TEXT, "%016llx%016llx", (unsigned long long)key.word[0], (unsigned long long)key.word[1]);
    return out;
}

struct tern_key tern_plan_fingerprint(struct tern_context *ctx)
{
    struct tern_key k = {{1, 2}};
    const struct tern_device *device = ctx->device;
    const char *forced = tern_dispatch_forced(ctx);
    add_text(&k, TERN_VERSION);
    add(&k, sizeof(struct tern_op_desc));
    for (int op = 0; op < TERN_OP_COUNT; op++) {
        struct tern_op_info info = tern_op_get((enum tern_op)op);
        add_text(&k, info.name);
        add_text(&k, info.inputs);
        for (int i = 0; i < info.n_attrs; i++) {
            add_text(&k, info.attrs[i].name);
            add(&k, (uint64_t)info.attrs[i].kind << 32 | (uint64_t)info.attrs[i].count);
        }
    }
    add_text(&k, device->name);
    for (int i = 0; device->kernels[i]; i++)
        add_text(&k, device->kernels[i]->name);
    add_text(&k, device->level);
    add(&k, device->caps.max_buffer);
    add_text(&k, forced);
    return finish(k);
}

static void add_meta(struct tern_key *k, const struct tern_meta *m)
{
    add(k, (uint64_t)m->dtype << 32 | (uint64_t)m->ndim);
    for (int i = 0; i < m->ndim; i++) {
        add(k, (uint64_t)m->shape[i]);
        add(k, (uint64_t)m->stride[i]);
    }
}

static enum tern_status add_value(struct tern_key *k, struct tern_context *ctx, const struct tern_value *v)
{
    void *copy = NULL;
    size_t size;
    add(k, (uint64_t)v->kind);
    add_meta(k, &v->meta);
    add_text(k, v->name);
    if (v->kind != TERN_VALUE_CONSTANT)
        return TERN_OK;
    const void *data = tern_constant_bytes(ctx, v->tensor, &size, &copy);
    if (data) {
        add(k, v->tensor->constant);
        add_bytes(k, data, size);
    }
    tern_free(ctx, copy);
    return data ? TERN_OK : tern_error_status(ctx);
}

static void add_desc(struct tern_key *k, const struct tern_op_desc *d)
{
    add(k, (uint64_t)d->op << 32 | (uint64_t)d->n_in);
    for (int i = 0; i < d->n_in; i++) {
        add(k, (uint64_t)d->present[i] << 1 | d->constant[i]);
        if (d->present[i])
            add_meta(k, &d->in[i]);
    }
    add_meta(k, &d->out);
    add_bytes(k, &d->attrs, tern_op_get(d->op).attrs_size); /* 8-byte fields */
    add(k, (uint64_t)d->n_post);
    for (int i = 0; i < d->n_post; i++) {
        add(k, (uint64_t)d->post[i].op);
        add(k, (uint64_t)d->post[i].input);
        add_bytes(k, &d->post[i].value, sizeof(d->post[i].value));
    }
}

static void add_node(struct tern_key *k, const struct tern_node *n)
{
    add(k, (uint64_t)n->kind << 2 | (uint64_t)n->dead << 1 | n->prepare);
    for (int i = 0; i < TERN_MAX_INPUTS; i++)
        add(k, (uint64_t)n->in[i]);
    add(k, (uint64_t)n->out);
    add(k, (uint64_t)n->offset);
    add_desc(k, &n->desc);
}

enum tern_status tern_graph_key(const struct tern_graph *g, const struct tern_plan_params *params, struct tern_key *key)
{
    struct tern_key k = tern_plan_fingerprint(g->ctx);
    enum tern_status st = TERN_OK;
    for (int i = 0; tern_passes[i]; i++)
        if (!params || !tern_pass_is_out(params->without, tern_passes[i]->name))
            add_text(&k, tern_passes[i]->name);
    add(&k, params ? params->resident : 0);
    add(&k, params ? params->arena : 0);
    add(&k, params ? params->algorithm_bytes : 0);
    add(&k, (uint64_t)g->n_values);
    for (int i = 0; i < g->n_values && !st; i++)
        st = add_value(&k, g->ctx, &g->values[i]);
    add(&k, (uint64_t)g->n_nodes);
    for (int i = 0; i < g->n_nodes; i++)
        add_node(&k, &g->nodes[i]);
    add(&k, (uint64_t)g->n_inputs << 32 | (uint64_t)g->n_outputs);
    for (int i = 0; i < g->n_inputs; i++)
        add(&k, (uint64_t)g->inputs[i]);
    for (int i = 0; i < g->n_outputs; i++)
        add(&k, (uint64_t)g->outputs[i]);
    *key = finish(k);
    return st;
}

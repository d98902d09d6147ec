/* Plans on disk: writing. Stored is what compiling finds out; what follows from it is made anew when it is read. */
#include "graph/file.h"

#include <string.h>
#include <zlib.h>

#include "core/context.h"
#include "core/files.h"

struct out {
    FILE *file;
    uLong crc;
};

/* A failed write is found when the file is committed. */
static void put(struct out *o, const void *data, size_t size)
{
    fwrite(data, 1, size, o->file);
    o->crc = crc32_z(o->crc, data, size);
}

static void put_number(struct out *o, uint64_t x, size_t size)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(x >> 8 * i);
    put(o, bytes, size);
}

static void put_text(struct out *o, const char *s, size_t length_size)
{
    put_number(o, strlen(s), length_size);
    put(o, s, strlen(s));
}

static void put_double(struct out *o, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    put_number(o, bits, 8);
}

static void put_meta(struct out *o, const struct tern_meta *m)
{
    put_number(o, m->dtype, 1);
    put_number(o, (uint64_t)m->ndim, 1);
    for (int i = 0; i < m->ndim; i++)
        put_number(o, (uint64_t)m->shape[i], 8);
    for (int i = 0; i < m->ndim; i++)
        put_number(o, (uint64_t)m->stride[i], 8);
}

/* Inputs stay also when nothing reads them: the caller gives them. */
static int stored_kind(const struct tern_graph *g, const struct tern_value *v)
{
    bool kept = v->kind == TERN_VALUE_RESULT ? v->node >= 0 && !g->nodes[v->node].dead && g->nodes[v->node].out == v - g->values
                                             : v->kind == TERN_VALUE_INPUT || v->uses;
    return kept ? (int)v->kind : TERN_FILE_UNUSED;
}

static enum tern_status put_constant(struct out *o, struct tern_context *ctx, const tern_tensor *t)
{
    void *copy = NULL;
    size_t size;
    const void *data = tern_constant_bytes(ctx, t, &size, &copy);
    if (data) {
        put_number(o, t->constant, 1);
        put_number(o, size, 8);
        put(o, data, size);
    }
    tern_free(ctx, copy);
    return data ? TERN_OK : tern_error_status(ctx);
}

static enum tern_status put_value(struct out *o, const struct tern_graph *g, const struct tern_value *v)
{
    int kind = stored_kind(g, v);
    put_number(o, (uint64_t)kind, 1);
    if (kind == TERN_VALUE_RESULT || kind == TERN_FILE_UNUSED)
        return TERN_OK; /* a result's is its node's */
    put_meta(o, &v->meta);
    if (kind == TERN_VALUE_CONSTANT)
        return put_constant(o, g->ctx, v->tensor);
    put_text(o, v->name, 2);
    return TERN_OK;
}

static void put_desc(struct out *o, const struct tern_op_desc *d)
{
    struct tern_op_info info = tern_op_get(d->op);
    put_meta(o, &d->out);
    for (size_t i = 0; i < info.attrs_size; i += 8) {
        uint64_t word;
        memcpy(&word, (const char *)&d->attrs + i, sizeof(word));
        put_number(o, word, 8);
    }
    put_number(o, (uint64_t)d->n_post, 1);
    for (int i = 0; i < d->n_post; i++) {
        put_number(o, (uint64_t)d->post[i].op, 2);
        put_number(o, (uint64_t)d->post[i].input, 1);
        put_double(o, d->post[i].value);
    }
    put_number(o, (uint64_t)d->pre.num_groups, 4);
    if (!d->pre.num_groups)
        return;
    put_number(o, (uint64_t)d->pre.silu, 1);
    put_number(o, (uint64_t)d->pre.input, 1);
    put_double(o, d->pre.eps);
}

/* Metas of inputs are those of their values. */
static void put_node(struct out *o, const struct tern_node *n, const struct tern_kernel *kernel)
{
    unsigned constant = 0;
    for (int k = 0; k < n->desc.n_in; k++)
        constant |= (unsigned)n->desc.constant[k] << k;
    put_number(o, (uint64_t)n->kind, 1);
    put_number(o, n->prepare ? TERN_FILE_FLAG_PREPARE : 0, 1);
    put_number(o, (uint64_t)n->desc.op, 2);
    put_number(o, (uint64_t)n->desc.n_in, 1);
    put_number(o, constant, 1);
    for (int k = 0; k < n->desc.n_in; k++)
        put_number(o, (uint64_t)n->in[k], 4);
    put_number(o, (uint64_t)n->out, 4);
    put_desc(o, &n->desc);
    if (tern_node_has_kernel(n))
        put_text(o, kernel->name, 1);
}

static enum tern_status put_plan(struct out *o, const struct tern_plan *p, int n_live)
{
    const struct tern_graph *g = p->graph;
    struct tern_device *former = tern_device_go(p->ctx, p->device);
    const struct tern_key fingerprint = tern_plan_fingerprint(p->ctx);
    tern_device_go(p->ctx, former);
    enum tern_status st = TERN_OK;
    put(o, TERN_FILE_MAGIC, strlen(TERN_FILE_MAGIC));
    put_number(o, TERN_FILE_VERSION, 4);
    for (int i = 0; i < 2; i++)
        put_number(o, fingerprint.word[i], 8);
    const int counts[] = {g->n_values, n_live, g->n_inputs, g->n_outputs, p->n_blocks};
    for (int i = 0; i < 5; i++)
        put_number(o, (uint64_t)counts[i], 4);
    put_number(o, p->facts.arena, 8);
    put_number(o, p->resident_limit, 8);
    put_number(o, p->tuning, 8);
    for (int i = 0; i < 2; i++)
        put_number(o, p->key.word[i], 8);
    for (int i = 0; i < g->n_values && !st; i++)
        st = put_value(o, g, &g->values[i]);
    for (int i = 0; i < g->n_inputs; i++)
        put_number(o, (uint64_t)g->inputs[i], 4);
    for (int i = 0; i < g->n_outputs; i++)
        put_number(o, (uint64_t)g->outputs[i], 4);
    const struct tern_step *s = p->steps; /* in the order of their nodes */
    for (int i = 0; i < g->n_nodes; i++) {
        while (s < p->steps + p->n_steps && s->node < i)
            s++;
        if (!g->nodes[i].dead)
            put_node(o, &g->nodes[i], tern_node_has_kernel(&g->nodes[i]) ? s->kernel : NULL);
    }
    for (int i = 0; i < p->n_blocks; i++) {
        put_number(o, p->blocks[i].size, 8);
        put_number(o, p->blocks[i].offset, 8);
    }
    put_number(o, o->crc, 4);
    return st;
}

/* What a reader would refuse is not written. */
static enum tern_status check_sizes(const struct tern_plan *p, int *n_live)
{
    const struct tern_graph *g = p->graph;
    size_t constants = 0;
    *n_live = 0;
    for (int i = 0; i < g->n_values; i++) {
        const struct tern_value *v = &g->values[i];
        int kind = stored_kind(g, v);
        if (kind != TERN_FILE_UNUSED && (!tern_meta_is_sane(&v->meta) || (v->name && strlen(v->name) > TERN_FILE_NAME)))
            return tern_fail(g->ctx, TERN_E_UNSUPPORTED, "plan: value %d is too large, or its name is, to be saved", i);
        if (kind == TERN_VALUE_CONSTANT)
            constants += tern_meta_bytes(&v->meta);
        if (constants > TERN_FILE_CONSTANTS)
            return tern_fail(g->ctx, TERN_E_UNSUPPORTED,
                             "plan: its constants have more than %zu bytes: it is not saved; what is large "
                             "belongs to the weights",
                             TERN_FILE_CONSTANTS);
    }
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_node *n = &g->nodes[i];
        *n_live += !n->dead;
        for (int k = 0; !n->dead && k < n->desc.n_in; k++)
            if (n->in[k] >= 0 && memcmp(&n->desc.in[k], &g->values[n->in[k]].meta, sizeof(n->desc.in[k])))
                return tern_fail(g->ctx, TERN_E_INTERNAL, "plan: node %d reads value %d as another", i, n->in[k]);
    }
    if (g->n_values > TERN_FILE_VALUES || *n_live > TERN_FILE_NODES)
        return tern_fail(g->ctx, TERN_E_UNSUPPORTED, "plan: %d values and %d nodes are too many to be saved", g->n_values, *n_live);
    return TERN_OK;
}

enum tern_status tern_plan_save(const struct tern_plan *plan, const char *path)
{
    int n_live;
    if (!plan || !path)
        return tern_fail(plan ? plan->ctx : NULL, TERN_E_INVALID, "plan: no path to save to");
    if (tern_failed(plan->ctx) || check_sizes(plan, &n_live))
        return tern_error_status(plan->ctx);
    struct tern_writer *w = tern_writer_open(plan->ctx, path);
    if (!w)
        return tern_error_status(plan->ctx);
    struct out o = {w->file, crc32_z(0, NULL, 0)};
    enum tern_status st = put_plan(&o, plan, n_live);
    if (st)
        tern_writer_discard(&w);
    else
        st = tern_writer_commit(&w);
    return st;
}

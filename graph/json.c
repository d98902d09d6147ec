/* A graph as JSON: values by number, as in the text, with what programs want to know of each node. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/json.h"
#include "graph/peak.h"
#include "graph/report.h"

static json_t *shape_json(const struct tern_meta *m)
{
    json_t *shape = json_array();
    for (int i = 0; shape && i < m->ndim; i++)
        if (json_array_append_new(shape, json_integer(m->shape[i]))) {
            json_decref(shape);
            return NULL;
        }
    return shape;
}

int tern_report_meta(json_t *o, const struct tern_meta *m)
{
    return json_object_set_new(o, "shape", shape_json(m)) | json_object_set_new(o, "dtype", json_string(tern_dtype_name(m->dtype)));
}

/* JSON has no infinities: they are strings. */
static json_t *number_json(double x) { return isfinite(x) ? json_real(x) : json_string(isnan(x) ? "nan" : x > 0 ? "inf" : "-inf"); }

static json_t *attr_json(const struct tern_attr_info *a, const char *at, int count)
{
    const int64_t *whole = (const int64_t *)(const void *)at;
    const double *real = (const double *)(const void *)at;
    if (a->count == 1)
        return a->kind == TERN_ATTR_INT ? json_integer(whole[0]) : number_json(real[0]);
    json_t *list = json_array();
    int bad = !list;
    for (int k = 0; k < count && k < a->count; k++)
        bad |= json_array_append_new(list, a->kind == TERN_ATTR_INT ? json_integer(whole[k]) : number_json(real[k]));
    if (bad)
        json_decref(list);
    return bad ? NULL : list;
}

/* A list has its length before it, in an attribute of the same name and "_n". */
static bool is_length_of(const struct tern_attr_info *a, const struct tern_attr_info *list)
{
    size_t n = strlen(list->name);
    return list->count > 1 && !strncmp(a->name, list->name, n) && !strcmp(a->name + n, "_n");
}

static json_t *attrs_json(const struct tern_op_desc *d)
{
    struct tern_op_info info = tern_op_get(d->op);
    json_t *attrs = json_object();
    int bad = !attrs;
    for (int i = 0; i < info.n_attrs; i++) {
        const struct tern_attr_info *a = &info.attrs[i];
        const char *at = (const char *)&d->attrs + a->offset;
        int count = a->count;
        if (i + 1 < info.n_attrs && is_length_of(a, a + 1)) {
            count = (int)*(const int64_t *)(const void *)at;
            a = &info.attrs[++i];
            at = (const char *)&d->attrs + a->offset;
        }
        bad |= json_object_set_new(attrs, a->name, attr_json(a, at, count));
    }
    if (bad)
        json_decref(attrs);
    return bad ? NULL : attrs;
}

static json_t *posts_json(const struct tern_node *n)
{
    json_t *posts = json_array();
    int bad = !posts;
    for (int i = 0; i < n->desc.n_post; i++) {
        const struct tern_post *p = &n->desc.post[i];
        json_t *post = json_object();
        bad |= json_object_set_new(post, "op", json_string(tern_op_get((enum tern_op)p->op).name));
        if (p->input >= 0)
            bad |= json_object_set_new(post, "input", json_integer(n->in[p->input]));
        else if (p->op == TERN_OP_cast)
            bad |= json_object_set_new(post, "dtype", json_string(tern_dtype_name((enum tern_dtype)p->value)));
        else if (p->value != 0)
            bad |= json_object_set_new(post, "value", number_json(p->value));
        bad |= json_array_append_new(posts, post);
    }
    if (bad)
        json_decref(posts);
    return bad ? NULL : posts;
}

static json_t *pre_json(const struct tern_node *n)
{
    const struct tern_pre *p = &n->desc.pre;
    json_t *o = json_object();
    int bad = !o;
    bad |= json_object_set_new(o, "op", json_string("group_norm"));
    bad |= json_object_set_new(o, "num_groups", json_integer(p->num_groups));
    bad |= json_object_set_new(o, "eps", number_json(p->eps));
    bad |= json_object_set_new(o, "silu", json_boolean(p->silu));
    bad |= json_object_set_new(o, "weight", n->in[p->input] >= 0 ? json_integer(n->in[p->input]) : json_null());
    bad |= json_object_set_new(o, "bias", n->in[p->input + 1] >= 0 ? json_integer(n->in[p->input + 1]) : json_null());
    if (bad)
        json_decref(o);
    return bad ? NULL : o;
}

static json_t *inputs_json(const struct tern_node *n)
{
    json_t *inputs = json_array();
    int bad = !inputs;
    for (int k = 0; k < n->desc.n_in; k++)
        bad |= json_array_append_new(inputs, n->in[k] >= 0 ? json_integer(n->in[k]) : json_null());
    if (bad)
        json_decref(inputs);
    return bad ? NULL : inputs;
}

/* `step`: of the plan, and its number; NULL: not planned, or nothing runs. */
static json_t *node_json(const struct tern_node *n, const struct tern_step *step, int number)
{
    static const char *const kinds[] = {
        [TERN_CALL_LAUNCH] = "launch", [TERN_CALL_REFERENCE] = "reference", [TERN_CALL_VIEW] = "view", [TERN_CALL_JOIN] = "join"};
    json_t *o = json_object();
    int bad = !o;
    bad |= json_object_set_new(o, "output", json_integer(n->out));
    bad |= json_object_set_new(o, "op", json_string(tern_op_get(n->desc.op).name));
    bad |= json_object_set_new(o, "inputs", inputs_json(n)) | tern_report_meta(o, &n->desc.out);
    bad |= json_object_set_new(o, "attributes", attrs_json(&n->desc));
    bad |= json_object_set_new(o, "posts", posts_json(n));
    if (n->desc.pre.num_groups)
        bad |= json_object_set_new(o, "pre", pre_json(n));
    bad |= json_object_set_new(o, "kind", json_string(kinds[n->kind]));
    if (n->kind == TERN_CALL_VIEW)
        bad |= json_object_set_new(o, "offset", json_integer(n->offset));
    bad |= json_object_set_new(o, "prepare", json_boolean(n->prepare));
    if (step) {
        bad |= json_object_set_new(o, "step", json_integer(number));
        bad |= json_object_set_new(o, "kernel", json_string(tern_step_kernel(step)));
    }
    if (bad)
        json_decref(o);
    return bad ? NULL : o;
}

static json_t *value_json(const struct tern_graph *g, int value)
{
    const struct tern_value *v = &g->values[value];
    json_t *o = json_object();
    int bad = json_object_set_new(o, "value", json_integer(value));
    if (v->name)
        bad |= json_object_set_new(o, "name", tern_json_text(g->ctx, v->name));
    if (bad | tern_report_meta(o, &v->meta)) {
        json_decref(o);
        return NULL;
    }
    return o;
}

/* Weights and constants that a living node or an output reads. */
static int add_values(const struct tern_graph *g, bool *used, json_t *weights, json_t *constants)
{
    int bad = 0;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; !g->nodes[i].dead && k < TERN_MAX_INPUTS; k++)
            if (g->nodes[i].in[k] >= 0)
                used[g->nodes[i].in[k]] = true;
    for (int i = 0; i < g->n_outputs; i++)
        used[g->outputs[i]] = true;
    for (int i = 0; i < g->n_values; i++) {
        enum tern_value_kind kind = g->values[i].kind;
        if (used[i] && (kind == TERN_VALUE_WEIGHT || kind == TERN_VALUE_CONSTANT))
            bad |= json_array_append_new(kind == TERN_VALUE_WEIGHT ? weights : constants, value_json(g, i));
    }
    return bad;
}

/* `p`: the plan of the graph; NULL: none. */
static int fill(json_t *o, const struct tern_graph *g, const struct tern_plan *p, bool *used)
{
    json_t *inputs = json_array(), *weights = json_array(), *constants = json_array(), *nodes = json_array(), *outputs = json_array();
    int bad = json_object_set_new(o, "inputs", inputs) | json_object_set_new(o, "weights", weights) |
              json_object_set_new(o, "constants", constants) | json_object_set_new(o, "nodes", nodes) |
              json_object_set_new(o, "outputs", outputs);
    if (bad)
        return bad;
    for (int i = 0; i < g->n_inputs; i++)
        bad |= json_array_append_new(inputs, value_json(g, g->inputs[i]));
    bad |= add_values(g, used, weights, constants);
    for (int i = 0, s = 0; i < g->n_nodes; i++) {
        bool runs = p && s < p->n_steps && p->steps[s].node == i; /* steps are in the order of nodes */
        if (!g->nodes[i].dead)
            bad |= json_array_append_new(nodes, node_json(&g->nodes[i], runs ? &p->steps[s] : NULL, s));
        s += runs;
    }
    for (int i = 0; i < g->n_outputs; i++)
        bad |= json_array_append_new(outputs, json_integer(g->outputs[i]));
    return bad;
}

enum tern_status tern_report_send(struct tern_context *ctx, json_t *o, int bad, void (*write)(void *, const char *), void *user)
{
    char *text = bad ? NULL : tern_json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(o);
    if (!text)
        return tern_fail(ctx, TERN_E_NO_MEMORY, "report: out of memory");
    write(user, text);
    free(text); /* of jansson */
    return TERN_OK;
}

static enum tern_status print(const struct tern_graph *g, const struct tern_plan *p, const char *pass, void (*write)(void *, const char *),
                              void *user)
{
    bool *used = tern_calloc(g->ctx, (size_t)g->n_values + 1, sizeof(*used));
    if (!used)
        return tern_error_status(g->ctx);
    json_t *o = json_object();
    int bad = json_object_set_new(o, "pass", pass ? tern_json_text(g->ctx, pass) : json_null()) | fill(o, g, p, used);
    tern_free(g->ctx, used);
    return tern_report_send(g->ctx, o, bad, write, user);
}

enum tern_status tern_graph_print_json(const struct tern_graph *g, const char *pass, void (*write)(void *user, const char *line),
                                       void *user)
{
    return tern_can_tell(g ? g->ctx : NULL, write) ? print(g, NULL, pass, write, user) : TERN_E_INVALID;
}

enum tern_status tern_plan_print_json(const struct tern_plan *p, void (*write)(void *user, const char *line), void *user)
{
    return tern_can_tell(p ? p->ctx : NULL, write) ? print(p->graph, p, NULL, write, user) : TERN_E_INVALID;
}

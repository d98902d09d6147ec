/* Checks of a graph from a file: nothing in it is believed that the ops' own rules can tell. */
#include "graph/check.h"

#include <string.h>

#include "core/context.h"
#include "ops/rules.h"
#include "ops/select.h"

bool tern_meta_is_sane(const struct tern_meta *m)
{
    int64_t numel = 1, span = 1, step;
    if ((unsigned)m->dtype >= TERN_DTYPE_COUNT || !tern_shape_valid(m->ndim, m->shape, NULL))
        return false;
    for (int i = 0; i < m->ndim; i++) {
        int64_t n = m->shape[i];
        if (n > TERN_FILE_ELEMENTS || m->stride[i] < 0 || m->stride[i] > TERN_FILE_ELEMENTS)
            return false;
        numel *= n ? n : 1; /* of a valid shape: fits */
        if (n && (__builtin_mul_overflow(n - 1, m->stride[i], &step) || __builtin_add_overflow(span, step, &span)))
            return false;
    }
    return numel <= TERN_FILE_ELEMENTS && span <= TERN_FILE_ELEMENTS;
}

static enum tern_status wrong(const struct tern_graph *g, const char *what) { return tern_fail(g->ctx, TERN_E_FORMAT, "%s", what); }

/* Inputs are as many as the op takes, and constant only where nothing changes them. */
static enum tern_status check_inputs(const struct tern_graph *g, const struct tern_node *n, const struct tern_op_info *info)
{
    const struct tern_op_desc *d = &n->desc;
    bool fixed = d->n_in > 0;
    if (d->n_in < info->min_inputs || (!d->n_post && !d->pre.num_groups && d->n_in > info->max_inputs))
        return wrong(g, "another number of inputs than the op takes");
    for (int k = 0; k < d->n_in; k++) {
        bool is_fixed = d->present[k] && tern_graph_is_fixed(g, n->in[k]);
        if (!d->present[k] && k < info->min_inputs)
            return wrong(g, "an input that the op needs is missing");
        if (d->constant[k] && !is_fixed)
            return wrong(g, "an input counts as constant that is not");
        fixed = fixed && (is_fixed || !d->present[k]);
    }
    return n->prepare && !fixed ? wrong(g, "prepared from what changes") : TERN_OK;
}

/* The dtype behind a post: a cast's own. false: it is no cast between floating dtypes. */
static bool cast_to(const struct tern_post *p, enum tern_dtype *dtype)
{
    if (!(p->value >= 0 && p->value < TERN_DTYPE_COUNT) || p->input >= 0 || !tern_dtype_is_float(*dtype))
        return false;
    *dtype = (enum tern_dtype)p->value;
    return (double)*dtype == p->value && tern_dtype_is_float(*dtype);
}

/* Posts of two operands have theirs behind the op's own inputs, in order. Whether they suit the result, the rule of the post's
 * op says; whether the kernel applies them, the kernel. */
static enum tern_status check_posts(const struct tern_graph *g, const struct tern_node *n, const struct tern_op_info *info,
                                    enum tern_dtype dtype)
{
    const int behind = n->desc.pre.num_groups ? (int)n->desc.pre.input : n->desc.n_in;
    int next = info->max_inputs;
    for (int i = 0; i < n->desc.n_post; i++) {
        const struct tern_post *p = &n->desc.post[i];
        if (p->op == TERN_OP_cast && !cast_to(p, &dtype))
            return wrong(g, "a post that casts to what is no floating dtype");
        if (p->op == TERN_OP_cast)
            continue;
        if (p->op < 0 || p->op >= TERN_OP_COUNT || !tern_op_is_elementwise((enum tern_op)p->op))
            return wrong(g, "a post of an op that is none");
        struct tern_op_info post = tern_op_get((enum tern_op)p->op);
        struct tern_op_desc d = {.op = (enum tern_op)p->op, .n_in = 1, .present = {true, true}};
        d.in[0] = n->desc.out;
        d.in[0].dtype = dtype;
        if (p->input >= 0) {
            if (p->input != next++ || p->input >= behind || !n->desc.present[p->input])
                return wrong(g, "the operand of a post is missing");
            d.in[d.n_in++] = n->desc.in[p->input];
        }
        if (d.n_in != post.max_inputs)
            return wrong(g, "a post with too few operands");
        if (post.shape(g->ctx, &d))
            return tern_error_status(g->ctx);
        if (!tern_meta_same_shape(&d.out, &n->desc.out) || d.out.dtype != dtype)
            return wrong(g, "a post changes the result's shape or dtype");
    }
    if (dtype != n->desc.out.dtype)
        return wrong(g, "a result of another dtype than the op and its posts make");
    return behind > next ? wrong(g, "an operand of no post") : TERN_OK;
}

/* What is in front of a convolution: a norm as its rule has it, whose weight and bias are the last inputs. */
static enum tern_status check_pre(const struct tern_graph *g, const struct tern_node *n, const struct tern_op_info *info)
{
    const struct tern_op_desc *d = &n->desc;
    const struct tern_pre *p = &d->pre;
    if (n->kind != TERN_CALL_LAUNCH || n->prepare || !tern_op_takes_pre(d->op) || (p->silu != 0 && p->silu != 1) ||
        p->input < info->max_inputs || p->input + 2 != d->n_in)
        return wrong(g, "a norm in front of what takes none");
    struct tern_op_desc norm = {.op = TERN_OP_group_norm, .n_in = 3};
    for (int k = 0; k < 3; k++) {
        const int64_t at = k ? p->input + k - 1 : 0;
        norm.present[k] = d->present[at];
        norm.in[k] = d->in[at];
    }
    norm.attrs.group_norm.num_groups = p->num_groups;
    norm.attrs.group_norm.eps = p->eps;
    return tern_op_get(TERN_OP_group_norm).shape(g->ctx, &norm);
}

/* What binding prepares has the meta that it has when the op is called. */
static enum tern_status check_prepared(const struct tern_graph *g, const struct tern_node *n, struct tern_op_desc *d)
{
    struct tern_meta view;
    int64_t offset;
    bool is_view = tern_op_view(d, &view, &offset);
    if (!is_view)
        tern_choose_format(g->ctx->device, d);
    if (is_view == (n->kind == TERN_CALL_VIEW) && !memcmp(is_view ? &view : &d->out, &n->desc.out, sizeof(view)))
        return TERN_OK;
    return wrong(g, "prepared in another order of memory than the op makes");
}

/* The result is what the op's rule makes of inputs and attributes; only the order in memory is free, and the dtype where posts may
 * change the op's own. */
static enum tern_status check_result(const struct tern_graph *g, struct tern_node *n, const struct tern_op_info *info,
                                     enum tern_dtype *dtype)
{
    struct tern_op_desc d = n->desc;
    struct tern_meta view;
    d.n_in = d.n_in < info->max_inputs ? d.n_in : info->max_inputs;
    d.n_post = 0;
    if (info->shape(g->ctx, &d))
        return tern_error_status(g->ctx);
    *dtype = d.out.dtype;
    if (n->desc.n_post)
        d.out.dtype = n->desc.out.dtype;
    if (memcmp(&d.attrs, &n->desc.attrs, sizeof(d.attrs)))
        return wrong(g, "attributes that the op would complete");
    n->offset = 0;
    if (n->kind == TERN_CALL_VIEW) {
        if (!tern_op_view(&d, &view, &n->offset) || memcmp(&view, &n->desc.out, sizeof(view)))
            return wrong(g, "not the view that the op makes");
    } else if (d.out.dtype != n->desc.out.dtype || !tern_meta_same_shape(&d.out, &n->desc.out) || !tern_meta_is_dense(&n->desc.out)) {
        char expected[TERN_META_TEXT], found[TERN_META_TEXT];
        return tern_fail(g->ctx, TERN_E_FORMAT, "result: expected %s without gaps, found %s", tern_meta_text(&d.out, expected),
                         tern_meta_text(&n->desc.out, found));
    }
    return n->prepare ? check_prepared(g, n, &d) : TERN_OK;
}

enum tern_status tern_check_node(const struct tern_graph *g, struct tern_node *n)
{
    const struct tern_op_info info = tern_op_get(n->desc.op);
    if (n->desc.n_post && (n->kind != TERN_CALL_LAUNCH || n->prepare))
        return wrong(g, "posts of a node that no kernel runs");
    enum tern_dtype dtype = TERN_F32;
    enum tern_status st = check_inputs(g, n, &info);
    st = st ? st : check_result(g, n, &info, &dtype);
    if (!st && n->kind == TERN_CALL_JOIN && !tern_join_fits(g, n))
        return wrong(g, "joined from what does not lie in the result's memory");
    if (!st && n->desc.pre.num_groups)
        st = check_pre(g, n, &info);
    return st || (!n->desc.n_post && !n->desc.pre.num_groups) ? st : check_posts(g, n, &info, dtype);
}

enum tern_status tern_check_kernel(struct tern_context *ctx, const struct tern_kernel *k, const struct tern_op_desc *d)
{
    if (tern_kernel_takes(k, ctx->device, d) && k->supports(ctx->device, d))
        return TERN_OK;
    return tern_fail(ctx, TERN_E_FORMAT, "kernel %s does not run this on device %s", k->name, ctx->device->name);
}

static int count(const int *list, int n, int value)
{
    int found = 0;
    for (int i = 0; i < n; i++)
        found += list[i] == value;
    return found;
}

enum tern_status tern_check_ends(const struct tern_graph *g)
{
    int roots[TERN_GRAPH_MAX_IO];
    for (int i = 0; i < g->n_values; i++)
        if (g->values[i].kind == TERN_VALUE_INPUT && count(g->inputs, g->n_inputs, i) != 1)
            return wrong(g, "an input that is not in the list of inputs once");
    for (int i = 0; i < g->n_inputs; i++)
        if (g->values[g->inputs[i]].kind != TERN_VALUE_INPUT)
            return wrong(g, "the list of inputs names another value");
    for (int i = 0; i < g->n_outputs; i++) {
        const struct tern_value *v = &g->values[g->outputs[i]];
        if (v->kind != TERN_VALUE_RESULT || v->node < 0)
            return wrong(g, "an output that no node makes");
        const struct tern_value *root = &g->values[roots[i] = tern_graph_root(g, g->outputs[i])];
        if (root->kind != TERN_VALUE_RESULT || g->nodes[root->node].prepare || count(roots, i, roots[i]) || !tern_meta_is_dense(&v->meta) ||
            tern_meta_span(&v->meta) != tern_meta_span(&root->meta))
            return wrong(g, "an output without memory of its own");
    }
    return TERN_OK;
}

/* Posts: every element-wise op of one or two inputs behind a layer, as a plan against the references. What the device fuses is found, not
 * listed here, so that a new post is tested as soon as it is one. The argument is the device. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/graph.h>
#include <tern/ops.h>

#include "core/context.h"
#include "ops/dispatch.h"
#include "ops/op.h"
#include "support.h"

/* NMSE. Products are sums in f32 against such in double, and functions are within a few units of the last place. */
#define LIMIT 1e-8

static const char *device;
static struct tern_context *judge; /* of references */

enum layer { NORM, PRODUCT, CONVOLUTION, LAYERS };
static const char *const layers[] = {"norm", "product", "convolution"};

/* The call of an op on what a layer gives. */
struct subject {
    enum tern_op op;
    union tern_op_attrs attrs;
    enum layer layer;
    const struct tern_weights *weights;
};

/* Whole numbers are `whole`, others 0.3, 0.6, …: also the least and the most of a clamp. */
static union tern_op_attrs attrs_of(const struct tern_op_info *info, int whole)
{
    union tern_op_attrs attrs;
    memset(&attrs, 0, sizeof(attrs));
    for (int i = 0; i < info->n_attrs; i++)
        for (int k = 0; k < info->attrs[i].count; k++) {
            char *at = (char *)&attrs + info->attrs[i].offset + 8 * (size_t)k;
            const double number = 0.3 * (i + k + 1);
            const int64_t integer = whole;
            memcpy(at, info->attrs[i].kind == TERN_ATTR_FLOAT ? (const void *)&number : (const void *)&integer, 8);
        }
    return attrs;
}

static enum tern_status layer_and_op(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct subject *s = user;
    tern_tensor *y = s->layer == NORM      ? tern_layer_norm(in[0], 1, tern_weights_get(s->weights, "norm"), NULL, 1e-5)
                     : s->layer == PRODUCT ? tern_linear(in[0], tern_weights_get(s->weights, "linear"), NULL)
                                           : tern_conv2d(in[0], tern_weights_get(s->weights, "conv"), NULL, .padding = 1);
    tern_tensor *operands[] = {y, in[1]};
    out[0] = y ? tern_op_call(y->ctx, s->op, operands, tern_op_get(s->op).min_inputs, &s->attrs) : NULL;
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

/* The inputs of a subject in a context: the layer's, and a second operand. */
static void make_inputs(struct tern_context *ctx, enum layer layer, tern_tensor **in, struct tern_graph_input *inputs)
{
    const struct tern_graph_input pictures[] = {{"x", TERN_F32, 4, {1, 4, 5, 6}}, {"other", TERN_F32, 4, {1, 8, 5, 6}}};
    const struct tern_graph_input rows[] = {{"x", TERN_F32, 2, {7, 12}}, {"other", TERN_F32, 2, {7, 12}}};
    memcpy(inputs, layer == CONVOLUTION ? pictures : rows, sizeof(rows));
    for (int i = 0; i < 2; i++)
        in[i] = support_noise(ctx, 3 + (uint64_t)i, inputs[i].ndim, inputs[i].shape, 1, TERN_F32);
}

static struct tern_weights *make_weights(struct tern_context *ctx)
{
    struct tern_weights *w = tern_weights_create(ctx);
    assert_int_equal(tern_weights_add(w, "conv", support_noise(ctx, 1, 4, (const int64_t[]){8, 4, 3, 3}, 0.2, TERN_F32)), TERN_OK);
    assert_int_equal(tern_weights_add(w, "linear", support_noise(ctx, 2, 2, (const int64_t[]){12, 12}, 0.3, TERN_F32)), TERN_OK);
    assert_int_equal(tern_weights_add(w, "norm", support_noise(ctx, 5, 1, (const int64_t[]){12}, 1, TERN_F32)), TERN_OK);
    return w;
}

/* NMSE; NaN and infinity have to be where they are expected. */
static double error_of(const tern_tensor *found, const tern_tensor *expected)
{
    int64_t n, m;
    float *a = support_values(found, &n), *b = support_values(expected, &m);
    double error = 0, power = 0;
    assert_int_equal(n, m);
    for (int64_t i = 0; i < n; i++) {
        if (a[i] == b[i] || (isnan(a[i]) && isnan(b[i])))
            continue;
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    }
    for (int64_t i = 0; i < n; i++)
        power += isfinite(b[i]) ? (double)b[i] * b[i] : 0;
    free(a);
    free(b);
    return error == 0 ? 0 : error / power;
}

static tern_tensor *by_references(struct subject s)
{
    struct tern_graph_input inputs[2];
    tern_tensor *in[2], *out = NULL;
    struct tern_weights *w = make_weights(judge);
    make_inputs(judge, s.layer, in, inputs);
    s.weights = w;
    assert_int_equal(tern_dispatch_force(judge, "reference"), TERN_OK);
    if (layer_and_op(&s, in, &out))
        fail_msg("%s: %s", tern_op_get(s.op).name, tern_error(judge));
    tern_weights_unref(&w);
    return out;
}

/* Compares, and says whether layer and op became one launch. */
static bool is_fused_and_agrees(struct tern_context *ctx, struct subject s)
{
    const char *name = tern_op_get(s.op).name;
    struct tern_graph_input inputs[2];
    tern_tensor *in[2], *out = NULL;
    tern_scope_begin(judge);
    tern_scope_begin(ctx);
    struct tern_weights *w = make_weights(ctx);
    make_inputs(ctx, s.layer, in, inputs);
    s.weights = w;
    struct tern_graph *g = tern_graph_trace(ctx, layer_and_op, &s, w, inputs, tern_op_get(s.op).min_inputs, 1);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    struct tern_binding *b = tern_plan_bind(plan, w);
    if (tern_plan_run(b, in, &out))
        fail_msg("%s: %s", name, tern_error(ctx));
    const double e = error_of(out, by_references(s));
    if (!(e <= LIMIT))
        fail_msg("%s behind a %s on %s: NMSE %g, expected at most %g", name, layers[s.layer], device, e, LIMIT);
    const bool fused = tern_plan_facts(plan).launches == 1;
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_weights_unref(&w);
    tern_scope_end(ctx, NULL);
    tern_scope_end(judge, NULL);
    return fused;
}

/* Logical ops and comparisons have no float as their result, and are no posts. */
static bool may_be_post(enum tern_op op)
{
    return tern_op_is_elementwise(op) && tern_op_get(op).max_inputs <= 2 && op != TERN_OP_logical_not &&
           (op < TERN_OP_eq || op > TERN_OP_logical_or);
}

static bool has_whole_number(const struct tern_op_info *info)
{
    for (int i = 0; i < info->n_attrs; i++)
        if (info->attrs[i].kind == TERN_ATTR_INT)
            return true;
    return false;
}

static void posts_agree(void **state)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = device, .threads = 1});
    char fused[1024] = " ";
    int ops = 0;
    if (!ctx && !strcmp(device, "cpu"))
        fail_msg("%s", tern_create_error());
    if (!ctx) {
        print_message("%s\n", tern_create_error());
        skip();
    }
    judge = support_context();
    /* kernel texts have one function for posts, and products take a second each to compile */
    const int n_layers = strcmp(ctx->device->name, "cpu") ? PRODUCT : LAYERS;
    for (int op = 0; op < TERN_OP_COUNT; op++) {
        const struct tern_op_info info = tern_op_get((enum tern_op)op);
        int posts = 0;
        if (!may_be_post((enum tern_op)op))
            continue;
        for (int whole = 0; whole <= has_whole_number(&info); whole++)
            for (int layer = 0; layer < n_layers; layer++)
                posts += is_fused_and_agrees(ctx, (struct subject){(enum tern_op)op, attrs_of(&info, whole), (enum layer)layer, NULL});
        ops++;
        if (posts)
            snprintf(fused + strlen(fused), sizeof(fused) - strlen(fused), "%s ", info.name);
    }
    print_message("%s: %d ops, as posts:%s\n", device, ops, fused);
    assert_non_null(strstr(fused, " silu ")); /* something is fused at all */
    assert_non_null(strstr(fused, " add "));
    tern_context_destroy(&judge);
    tern_context_destroy(&ctx);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(posts_agree)};
    device = argc > 1 ? argv[1] : "cpu";
    return cmocka_run_group_tests(tests, NULL, NULL);
}

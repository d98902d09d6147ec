/* Merging: layers of one input become one where the device wants it, and compute what they did. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "graph/plan.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "support.h"

static int count(const struct tern_plan *p, enum tern_op op)
{
    const struct tern_graph *g = tern_plan_graph(p);
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += !g->nodes[i].dead && !g->nodes[i].prepare && g->nodes[i].kind == TERN_CALL_LAUNCH && g->nodes[i].desc.op == op;
    return n;
}

/* ---- hand-made layers */

enum { ROWS = 5, IN = 7 };

static struct tern_weights *layers(struct tern_context *ctx)
{
    static const struct {
        const char *name;
        int64_t out, in;
    } of[] = {{"a", 3, IN}, {"b", 4, IN},     {"c", 9, IN},     {"d", 4, IN},    {"e", 4, IN},
              {"f", 4, IN}, {"a.bias", 3, 0}, {"d.bias", 4, 0}, {"e.bias", 4, 0}};
    struct tern_weights *w = tern_weights_create(ctx);
    float values[9 * IN];
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        for (int k = 0; k < 9 * IN; k++)
            values[k] = (float)(((int)i * 31 + k * 17) % 23 - 11) / 8;
        tern_tensor *t = of[i].in ? tern_tensor_create(ctx, TERN_F32, 2, (int64_t[]){of[i].out, of[i].in}, values)
                                  : tern_tensor_create(ctx, TERN_F32, 1, (int64_t[]){of[i].out}, values);
        assert_int_equal(tern_weights_add(w, of[i].name, t), TERN_OK);
        tern_tensor_unref(&t);
    }
    return w;
}

/* b and c go together, and d and e; a is alone with its bias and an odd one out, f is used twice. */
static enum tern_status use_layers(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct tern_weights *w = user;
    tern_tensor *(*of)(const struct tern_weights *, const char *) = tern_weights_get;
    tern_tensor *other = tern_relu(in[0]);
    out[0] = tern_linear(other, of(w, "a"), of(w, "a.bias"));
    tern_tensor *b = tern_linear(in[0], of(w, "b"), NULL), *c = tern_linear(in[0], of(w, "c"), NULL);
    tern_tensor *d = tern_linear(in[0], of(w, "d"), of(w, "d.bias")), *e = tern_linear(in[0], of(w, "e"), of(w, "e.bias"));
    tern_tensor *f = tern_linear(in[0], of(w, "f"), NULL), *g = tern_linear(other, of(w, "f"), NULL);
    const int last[] = {1};
    out[1] = tern_add(tern_mul(d, b), tern_sub(e, tern_sum(c, 1, last, true)));
    out[2] = tern_mul(f, g);
    return TERN_OK;
}

static struct tern_context *merging_context(bool merges)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cache_dir = "/proc/none"});
    ctx->device->caps.merges = merges;
    return ctx;
}

/* Biases of two dtypes cannot become one. */
static enum tern_status use_biases(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_add(tern_linear(in[0], tern_weights_get(user, "w"), tern_weights_get(user, "b")),
                      tern_linear(in[0], tern_weights_get(user, "v"), tern_weights_get(user, "c")));
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

static void biases_of_two_dtypes_stay(void **state)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = "null"}); /* takes every dtype */
    assert_non_null(ctx);
    ctx->device->caps.merges = true;
    struct tern_weights *w = tern_weights_create(ctx);
    const struct tern_graph_input input = {"x", TERN_F32, 2, {4, 8}};
    tern_scope_begin(ctx);
    tern_weights_add(w, "w", support_noise(ctx, 1, 2, (const int64_t[]){8, 8}, 1, TERN_F32));
    tern_weights_add(w, "v", support_noise(ctx, 2, 2, (const int64_t[]){8, 8}, 1, TERN_F32));
    tern_weights_add(w, "b", support_noise(ctx, 3, 1, (const int64_t[]){8}, 1, TERN_F32));
    tern_weights_add(w, "c", support_noise(ctx, 4, 1, (const int64_t[]){8}, 1, TERN_F16));
    tern_scope_end(ctx, NULL);
    struct tern_graph *g = tern_graph_trace(ctx, use_biases, w, w, &input, 1, 1);
    struct tern_plan *p = tern_plan_compile(g, NULL);
    if (!p)
        fail_msg("%s", tern_error(ctx));
    assert_int_equal(count(p, TERN_OP_linear), 2);
    tern_plan_unref(&p);
    tern_graph_destroy(&g);
    tern_weights_unref(&w);
    tern_context_destroy(&ctx);
}

/* Biases are cast behind each other's layers, for one layer each; that of the last two serves both. */
static enum tern_status use_cast_biases(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *(*of)(const struct tern_weights *, const char *) = tern_weights_get;
    tern_tensor *d = tern_linear(in[0], of(user, "d"), tern_cast(of(user, "d.half"), TERN_F32));
    tern_tensor *e = tern_linear(in[0], of(user, "e"), tern_cast(of(user, "e.half"), TERN_F32));
    tern_tensor *twice = tern_cast(of(user, "f.half"), TERN_F32);
    out[0] = tern_mul(d, e);
    out[1] = tern_add(tern_linear(in[0], of(user, "b"), twice), tern_linear(in[0], of(user, "f"), twice));
    return out[1] ? TERN_OK : TERN_E_INVALID;
}

static void layers_whose_biases_are_cast_become_one(void **state)
{
    float found[2][2][ROWS * 4];
    for (int merges = 0; merges < 2; merges++) {
        struct tern_context *ctx = merging_context(merges);
        struct tern_weights *w = layers(ctx);
        const struct tern_graph_input input = {"x", TERN_F32, 2, {ROWS, IN}};
        tern_scope_begin(ctx);
        tern_tensor *x = support_noise(ctx, 7, 2, (const int64_t[]){ROWS, IN}, 1, TERN_F32), *out[2] = {NULL};
        tern_weights_add(w, "d.half", support_noise(ctx, 8, 1, (const int64_t[]){4}, 1, TERN_F16));
        tern_weights_add(w, "e.half", support_noise(ctx, 9, 1, (const int64_t[]){4}, 1, TERN_F16));
        tern_weights_add(w, "f.half", support_noise(ctx, 10, 1, (const int64_t[]){4}, 1, TERN_F16));
        struct tern_graph *g = tern_graph_trace(ctx, use_cast_biases, w, w, &input, 1, 2);
        struct tern_plan *p = tern_plan_compile(g, NULL);
        if (!p)
            fail_msg("%s", tern_error(ctx));
        assert_int_equal(count(p, TERN_OP_linear), merges ? 3 : 4);
        assert_int_equal(tern_plan_facts(p).prepared, merges ? 5 : 3); /* three casts; a weight and a bias */
        struct tern_binding *b = tern_plan_bind(p, w);
        assert_int_equal(tern_plan_run(b, &x, out), TERN_OK);
        for (int i = 0; i < 2; i++)
            assert_int_equal(tern_tensor_read(out[i], TERN_F32, found[merges][i], sizeof(found[merges][i])), TERN_OK);
        tern_scope_end(ctx, NULL);
        tern_binding_unref(&b);
        tern_plan_unref(&p);
        tern_graph_destroy(&g);
        tern_weights_unref(&w);
        tern_context_destroy(&ctx);
    }
    for (int i = 0; i < 2; i++)
        assert_true(support_nmse(found[1][i], found[0][i], ROWS * 4) <= 1e-12);
}

/* a's result is wanted in f32; d and e become one. */
static enum tern_status use_halves(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *(*of)(const struct tern_weights *, const char *) = tern_weights_get;
    out[0] = tern_cast(tern_linear(tern_relu(in[0]), of(user, "a"), NULL), TERN_F32);
    out[1] = tern_add(tern_linear(in[0], of(user, "d"), NULL), tern_linear(in[0], of(user, "e"), NULL));
    return out[1] ? TERN_OK : TERN_E_INVALID;
}

/* Where bf16 is computed in f32 a layer that stays by itself gives f32 that was not rounded, merging or not. */
static void a_graph_that_is_recorded_anew_rounds_no_more(void **state)
{
    uint32_t found[2][ROWS * 3]; /* the bits of f32 */
    for (int merges = 0; merges < 2; merges++) {
        struct tern_context *ctx = model_context("scalar", 1);
        ctx->device->caps.merges = merges;
        struct tern_weights *w = layers(ctx);
        const struct tern_graph_input input = {"x", TERN_BF16, 2, {ROWS, IN}};
        tern_scope_begin(ctx);
        tern_tensor *x = support_noise(ctx, 7, 2, (const int64_t[]){ROWS, IN}, 1, TERN_BF16), *out[2] = {NULL};
        struct tern_graph *g = tern_graph_trace(ctx, use_halves, w, w, &input, 1, 2);
        struct tern_plan *p = tern_plan_compile(g, NULL);
        if (!p)
            fail_msg("%s", tern_error(ctx));
        assert_int_equal(count(p, TERN_OP_linear), merges ? 2 : 3);
        struct tern_binding *b = tern_plan_bind(p, w);
        assert_int_equal(tern_plan_run(b, &x, out), TERN_OK);
        assert_int_equal(tern_tensor_read(out[0], TERN_F32, found[merges], sizeof(found[merges])), TERN_OK);
        tern_scope_end(ctx, NULL);
        tern_binding_unref(&b);
        tern_plan_unref(&p);
        tern_graph_destroy(&g);
        tern_weights_unref(&w);
        tern_context_destroy(&ctx);
    }
    assert_memory_equal(found[1], found[0], sizeof(found[0]));
    uint32_t low = 0;
    for (int i = 0; i < ROWS * 3; i++)
        low |= found[0][i] & 0xffff;
    assert_int_not_equal(low, 0); /* bf16 has the upper half alone */
}

static void layers_of_one_input_become_one(void **state)
{
    float found[2][3][ROWS * 4];
    for (int merges = 0; merges < 2; merges++) {
        struct tern_context *ctx = merging_context(merges);
        struct tern_weights *w = layers(ctx);
        float x[ROWS * IN];
        for (int i = 0; i < ROWS * IN; i++)
            x[i] = (float)(i * 13 % 29 - 14) / 7;
        tern_tensor *in[] = {tern_tensor_create(ctx, TERN_F32, 2, (int64_t[]){ROWS, IN}, x)}, *out[3] = {NULL};
        const struct tern_graph_input input = {"x", TERN_F32, 2, {ROWS, IN}};
        struct tern_graph *g = tern_graph_trace(ctx, use_layers, w, w, &input, 1, 3);
        struct tern_plan *p = tern_plan_compile(g, NULL);
        if (!p)
            fail_msg("%s", tern_error(ctx));
        assert_int_equal(count(p, TERN_OP_linear), merges ? 5 : 7);
        assert_int_equal(tern_plan_facts(p).prepared, merges ? 3 : 0); /* two weights, one bias */
        struct tern_binding *b = tern_plan_bind(p, w);
        assert_int_equal(tern_plan_run(b, in, out), TERN_OK);
        for (int i = 0; i < 3; i++) {
            size_t n = (size_t)tern_tensor_numel(out[i]);
            assert_true(n <= ROWS * 4);
            memset(found[merges][i], 0, sizeof(found[merges][i]));
            assert_int_equal(tern_tensor_read(out[i], TERN_F32, found[merges][i], n * sizeof(float)), TERN_OK);
            tern_tensor_unref(&out[i]);
        }
        struct tern_plan *streamed = tern_plan_compile(g, &(struct tern_plan_params){.resident = 1});
        assert_int_equal(count(streamed, TERN_OP_linear), 7); /* weights that are read anew for every run stay as they are */
        tern_plan_unref(&streamed);
        ctx->device->caps.max_argument = ROWS * (4 + 9) * sizeof(float) - 1;
        struct tern_plan *narrow = tern_plan_compile(g, NULL);
        assert_int_equal(count(narrow, TERN_OP_linear), merges ? 6 : 7); /* b and c together are larger than kernels take */
        tern_plan_unref(&narrow);
        tern_tensor_unref(&in[0]);
        tern_binding_unref(&b);
        tern_plan_unref(&p);
        tern_graph_destroy(&g);
        tern_weights_unref(&w);
        tern_context_destroy(&ctx);
    }
    for (int i = 0; i < 3; i++)
        assert_true(support_nmse(found[1][i], found[0][i], ROWS * 4) <= 1e-12);
}

/* Every query, key and value of attention to itself, key and value of attention to the text, and the projections of the time, with fewer
 * launches and the same result. */
static void a_unet_computes_what_it_did(void **state)
{
    static float found[2][4 * 32 * 32];
    int launches[2], linears[2];
    char path[PATH_SIZE];
    for (int merges = 0; merges < 2; merges++) {
        struct tern_context *ctx = merging_context(merges);
        struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
        const struct tern_stage stage = {.component = "unet", .size = {1, 256, 256}};
        struct tern_binding *b = tern_pipeline_binding(p, &stage);
        if (!b)
            fail_msg("%s", tern_error(ctx));
        const struct tern_plan *plan = tern_binding_plan(b);
        launches[merges] = (int)tern_plan_facts(plan).launches;
        linears[merges] = count(plan, TERN_OP_linear);
        model_run(b, found[merges], sizeof(found[0]));
        tern_binding_unref(&b);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
    print_message("%d launches, %d of them linear; merged %d and %d\n", launches[0], linears[0], launches[1], linears[1]);
    assert_int_equal(launches[0] - launches[1], linears[0] - linears[1]); /* no copy took the place of a layer */
    assert_true(linears[1] * 10 <= linears[0] * 7);
    assert_true(support_nmse(found[1], found[0], 4 * 32 * 32) <= 1e-11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_whose_biases_are_cast_become_one),
        cmocka_unit_test(layers_of_one_input_become_one),
        cmocka_unit_test(a_graph_that_is_recorded_anew_rounds_no_more),
        cmocka_unit_test(biases_of_two_dtypes_stay),
        cmocka_unit_test(a_unet_computes_what_it_did),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

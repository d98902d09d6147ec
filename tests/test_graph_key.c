/* Keys of graphs: the same for the same calls, wherever they are traced; another one for any other graph. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "conformance/random_graph.h"
#include "core/context.h"
#include "graph/key.h"
#include "support.h"

#define GRAPHS 200

static struct tern_key key_of(const struct tern_graph *g, const char *without)
{
    struct tern_key key;
    assert_int_equal(tern_graph_key(g, &(struct tern_plan_params){.without = without}, &key), TERN_OK);
    return key;
}

static struct tern_key random_key(struct tern_context *ctx, uint64_t seed, uint64_t weight_seed)
{
    struct tern_random_graph r = tern_random_graph_make(ctx, seed, weight_seed);
    struct tern_graph *g = tern_graph_trace(ctx, tern_random_graph_fn, &r, r.weights, r.inputs, r.n_inputs, r.n_outputs);
    assert_non_null(g);
    struct tern_key key = key_of(g, NULL);
    tern_graph_destroy(&g);
    tern_random_graph_close(&r);
    return key;
}

/* In one line each: what the second process prints. */
static int print_keys(void)
{
    char text[TERN_KEY_TEXT];
    struct tern_context *ctx = support_context();
    for (uint64_t seed = 0; seed < GRAPHS; seed++)
        printf("%s\n", tern_key_text(random_key(ctx, seed, 3), text));
    tern_context_destroy(&ctx);
    return 0;
}

/* Two contexts, another number of threads, other values of weights; another process. Different graphs never share one. */
static void equal_traces_have_equal_keys(void **state)
{
    static struct tern_key keys[GRAPHS];
    struct tern_context *one = support_context(), *three = tern_context_create(&(struct tern_context_params){.threads = 3});
    char self[512] = "", command[600], line[64], text[TERN_KEY_TEXT];
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    snprintf(command, sizeof(command), "'%s' keys", self);
    FILE *other = popen(command, "r");
    assert_non_null(other);
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        keys[seed] = random_key(one, seed, 1);
        assert_true(tern_key_equal(keys[seed], random_key(three, seed, 2)));
        assert_non_null(fgets(line, sizeof(line), other));
        line[strcspn(line, "\n")] = 0;
        assert_string_equal(line, tern_key_text(keys[seed], text));
        for (uint64_t i = 0; i < seed; i++)
            assert_false(tern_key_equal(keys[i], keys[seed]));
    }
    assert_int_equal(pclose(other), 0);
    tern_context_destroy(&one);
    tern_context_destroy(&three);
}

/* What one graph is made of, to be changed one by one. */
struct recipe {
    const char *input_name;
    int64_t width, slice_to;
    int dim;
    double eps, other;
    const char *weight;
    float constant[6];
    bool strided, swapped, tanh_instead, exchanged;
    int n_outputs;
    struct tern_weights *weights;
    struct tern_context *ctx;
};

/* x (2, width): normed, plus the first three columns of a constant (2, 3), softmax */
static enum tern_status make(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct recipe *r = user;
    tern_tensor *y = tern_layer_norm(in[0], 1, tern_weights_get(r->weights, r->weight), NULL, r->eps);
    tern_tensor *c = tern_tensor_create(r->ctx, TERN_F32, 2, (const int64_t[]){2, 3}, r->constant);
    if (r->strided) /* (2, 2) with a gap that nothing may see */
        c = tern_slice(c, 1, 0, 2, 1);
    c = tern_mean(c, 1, (const int[]){1}, true);
    y = r->swapped ? tern_sub(c, y) : tern_sub(y, c);
    y = tern_mul_scalar(r->tanh_instead ? tern_tanh(y) : tern_sigmoid(y), r->other);
    out[r->exchanged] = tern_softmax(tern_slice(y, 1, 0, r->slice_to, 1), r->dim);
    out[!r->exchanged] = tern_neg(y);
    return tern_error_status(r->ctx);
}

static struct recipe recipe(struct tern_context *ctx)
{
    return (struct recipe){.input_name = "x",
                           .width = 4,
                           .slice_to = 3,
                           .dim = 1,
                           .eps = 1e-5,
                           .other = 2,
                           .weight = "a",
                           .constant = {1, 2, 3, 4, 5, 6},
                           .n_outputs = 2,
                           .ctx = ctx};
}

static struct tern_key key_with(struct recipe r, const char *without)
{
    const struct tern_graph_input input = {r.input_name, TERN_F32, 2, {2, r.width}};
    r.weights = tern_weights_create(r.ctx);
    tern_scope_begin(r.ctx);
    tern_weights_add(r.weights, r.weight, tern_tensor_create(r.ctx, TERN_F32, 1, &r.width, NULL));
    struct tern_graph *g = tern_graph_trace(r.ctx, make, &r, r.weights, &input, 1, r.n_outputs);
    assert_non_null(g);
    struct tern_key key = key_of(g, without);
    tern_scope_end(r.ctx, NULL);
    tern_graph_destroy(&g);
    tern_weights_unref(&r.weights);
    return key;
}

static void every_difference_changes_the_key(void **state)
{
    struct tern_context *ctx = support_context(), *null = tern_context_create(&(struct tern_context_params){.device = "null"});
    enum { N = 17 };
    struct recipe r[N];
    struct tern_key keys[N + 4];
    int n = 0;
    for (int i = 0; i < N; i++)
        r[i] = recipe(ctx);
    r[1].input_name = "y";
    r[2].width = 5;
    r[3].slice_to = 2;
    r[4].dim = 0;
    r[5].eps = 2e-5;
    r[6].other = 2.5;
    r[7].weight = "b";
    r[8].constant[5] = 7;
    r[9].constant[0] = -1;
    r[10].strided = true;
    r[11].swapped = true;
    r[12].tanh_instead = true;
    r[13].n_outputs = 1;
    r[14].constant[0] = 2; /* 1 and 2 change places */
    r[14].constant[1] = 1;
    r[15].ctx = null;
    r[16].exchanged = true;
    for (int i = 0; i < N; i++)
        keys[n++] = key_with(r[i], NULL);
    keys[n++] = key_with(r[0], "fuse");
    keys[n++] = key_with(r[0], "cse");
    keys[n++] = key_with(r[0], "fuse,cse");
    keys[n++] = key_with(r[0], "all");
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (tern_key_equal(keys[i], keys[k]))
                fail_msg("recipes %d and %d have one key", k, i);
    assert_true(tern_key_equal(keys[0], key_with(r[0], NULL)));
    assert_true(tern_key_equal(keys[0], key_with(r[0], "")));
    assert_true(tern_key_equal(keys[N + 2], key_with(r[0], "cse,fuse")));
    tern_context_destroy(&ctx);
    tern_context_destroy(&null);
}

struct gaps {
    tern_tensor *constant;
};

static enum tern_status add_gapped(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct gaps *u = user;
    out[0] = tern_add(in[0], u->constant);
    return tern_error_status(tern_tensor_context(in[0]));
}

/* A constant is its own elements, not what lies between them. */
/* Threads count where there is a limit that their scratch has to fit, and nowhere else. */
static void threads_count_with_a_limit(void **state)
{
    struct tern_key keys[2][2];
    for (int t = 0; t < 2; t++) {
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = "cpu", .threads = 1 + 2 * t});
        struct tern_random_graph r = tern_random_graph_make(ctx, 5, 3);
        struct tern_graph *g = tern_graph_trace(ctx, tern_random_graph_fn, &r, r.weights, r.inputs, r.n_inputs, r.n_outputs);
        assert_non_null(g);
        for (int limit = 0; limit < 2; limit++)
            assert_int_equal(tern_graph_key(g, &(struct tern_plan_params){.arena = limit ? 1 << 20 : 0}, &keys[t][limit]), TERN_OK);
        tern_graph_destroy(&g);
        tern_random_graph_close(&r);
        tern_context_destroy(&ctx);
    }
    assert_true(tern_key_equal(keys[0][0], keys[1][0]));
    assert_false(tern_key_equal(keys[0][1], keys[1][1]));
}

static void gaps_do_not_count(void **state)
{
    struct tern_context *ctx = support_context();
    const struct tern_graph_input input = {"x", TERN_F32, 2, {2, 2}};
    struct tern_key keys[3];
    tern_scope_begin(ctx);
    for (int i = 0; i < 3; i++) {
        const float values[] = {1, 2, i == 1 ? 9 : 3, i == 2 ? 9 : 4, 5, 6};
        tern_tensor *whole = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){2, 3}, values);
        struct gaps u = {tern_slice(whole, 1, 0, 2, 1)};
        struct tern_graph *g = tern_graph_trace(ctx, add_gapped, &u, NULL, &input, 1, 1);
        keys[i] = key_of(g, NULL);
        tern_graph_destroy(&g);
    }
    tern_scope_end(ctx, NULL);
    assert_true(tern_key_equal(keys[0], keys[1]));
    assert_false(tern_key_equal(keys[0], keys[2]));
    tern_context_destroy(&ctx);
}

/* A pass that was corrected makes other plans; one that is left out makes none. */
static void corrected_passes_change_the_key(void **state)
{
    static const struct tern_pass first = {"fold", NULL, 0}, before = {"fuse", NULL, 0}, corrected = {"fuse", NULL, 1};
    const struct tern_pass *const old[] = {&first, &before, NULL}, *const new[] = {&first, &corrected, NULL};
    struct tern_key keys[4] = {{{1, 2}}, {{1, 2}}, {{1, 2}}, {{1, 2}}};
    for (int i = 0; i < 4; i++) {
        tern_key_add_passes(&keys[i], i % 2 ? new : old, i < 2 ? NULL : "fuse");
        keys[i] = tern_key_finish(keys[i]);
    }
    assert_false(tern_key_equal(keys[0], keys[1]));
    assert_true(tern_key_equal(keys[2], keys[3]));
    assert_false(tern_key_equal(keys[0], keys[2]));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_traces_have_equal_keys),    cmocka_unit_test(every_difference_changes_the_key),
        cmocka_unit_test(threads_count_with_a_limit),      cmocka_unit_test(gaps_do_not_count),
        cmocka_unit_test(corrected_passes_change_the_key),
    };
    return argc > 1 ? print_keys() : cmocka_run_group_tests(tests, NULL, NULL);
}

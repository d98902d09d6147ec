/* Filters of convolutions lie as kernels of GPUs read them: the argument is the device, CUDA's stand-in where matrix units count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "backends/gpu/gpu.h"
#include "core/context.h"
#include "gpu_help.h"
#include "graph/plan.h"
#include "support.h"

enum { SIDE = 6, CHANNELS = 32, OUTPUTS = 40, VALUES = OUTPUTS * SIDE * SIDE };

static const char *device;

static struct tern_weights *make_weights(struct tern_context *ctx)
{
    struct tern_weights *w = tern_weights_create(ctx);
    tern_scope_begin(ctx);
    tern_weights_add(w, "twice", support_noise(ctx, 1, 4, (const int64_t[]){CHANNELS, CHANNELS, 3, 3}, 0.1f, TERN_F16));
    tern_weights_add(w, "point", support_noise(ctx, 2, 4, (const int64_t[]){CHANNELS, CHANNELS, 1, 1}, 0.2f, TERN_F16));
    tern_weights_add(w, "last", support_noise(ctx, 3, 4, (const int64_t[]){OUTPUTS, CHANNELS, 3, 3}, 0.1f, TERN_F16));
    tern_scope_end(ctx, NULL);
    return w;
}

/* The picture that comes in has its channels apart, behind the first layer they lie together. One filter is read twice, one has a single
 * tap. */
static enum tern_status use(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *(*of)(const struct tern_weights *, const char *) = tern_weights_get;
    tern_tensor *x = tern_conv2d(in[0], of(user, "point"), NULL);
    x = tern_conv2d(tern_silu(x), of(user, "twice"), NULL, .padding = 1);
    x = tern_conv2d(tern_silu(x), of(user, "twice"), NULL, .padding = 1);
    out[0] = tern_conv2d(tern_silu(x), of(user, "last"), NULL, .padding = 1);
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

struct net {
    struct tern_context *ctx;
    struct tern_weights *weights;
    struct tern_graph *graph;
    struct tern_plan *plan;
};

static struct net open_net(const char *name, enum tern_dtype dtype, struct tern_plan_params params)
{
    struct net n = {.ctx = gpu_open(name)};
    const struct tern_graph_input input = {"x", dtype, 4, {1, CHANNELS, SIDE, SIDE}};
    n.weights = make_weights(n.ctx);
    n.graph = tern_graph_trace(n.ctx, use, n.weights, n.weights, &input, 1, 1);
    n.plan = tern_plan_compile(n.graph, &params);
    if (!n.plan)
        fail_msg("%s", tern_error(n.ctx));
    return n;
}

static void close_net(struct net *n)
{
    tern_plan_unref(&n->plan);
    tern_graph_destroy(&n->graph);
    tern_weights_unref(&n->weights);
    tern_context_destroy(&n->ctx);
}

static void values_of(struct net *n, enum tern_dtype dtype, float *values)
{
    tern_scope_begin(n->ctx);
    tern_tensor *x = support_noise(n->ctx, 7, 4, (const int64_t[]){1, CHANNELS, SIDE, SIDE}, 1, dtype), *out = NULL;
    struct tern_binding *b = tern_plan_bind(n->plan, n->weights);
    if (!b || tern_plan_run(b, &x, &out) || tern_tensor_read(out, TERN_F32, values, VALUES * sizeof(*values)))
        fail_msg("%s", tern_error(n->ctx));
    tern_binding_unref(&b);
    tern_scope_end(n->ctx, NULL);
}

/* Nodes that lay a filter out: how many the prepare graph has, and how many each run. */
static void count_laid(const struct net *n, int counts[2])
{
    const struct tern_graph *g = tern_plan_graph(n->plan);
    counts[0] = counts[1] = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_op_desc *d = &g->nodes[i].desc;
        if (!g->nodes[i].dead && d->op == TERN_OP_contiguous && d->out.shape[2] == 3)
            counts[!g->nodes[i].prepare]++;
    }
}

static void check_steps(const struct net *n)
{
    for (int i = 0; i < n->plan->n_steps; i++)
        if (n->plan->steps[i].desc->op == TERN_OP_conv2d)
            assert_true(tern_meta_is_channels_last(&n->plan->steps[i].desc->in[1]));
}

static void compare(struct net *n, enum tern_dtype dtype, double error)
{
    static float found[VALUES], expected[VALUES];
    struct net cpu = open_net("cpu", TERN_F32, (struct tern_plan_params){.without = "all"});
    values_of(&cpu, TERN_F32, expected);
    values_of(n, dtype, found);
    const double nmse = support_nmse(found, expected, VALUES);
    if (!(nmse <= error))
        fail_msg("NMSE %g", nmse);
    close_net(&cpu);
}

/* The one that is read twice is laid out once for both. */
static void once_for_each_filter(void **state)
{
    int counts[2];
    (void)state;
    struct net n = open_net(device, TERN_F32, (struct tern_plan_params){NULL});
    count_laid(&n, counts);
    assert_int_equal(counts[0], 2);
    assert_int_equal(counts[1], 0);
    check_steps(&n);
    compare(&n, TERN_F32, 1e-11);
    close_net(&n);
}

/* Weights that may not stay are laid out at each run. */
static void at_each_run_of_what_streams(void **state)
{
    int counts[2];
    (void)state;
    struct net n = open_net(device, TERN_F32, (struct tern_plan_params){.resident = 1});
    count_laid(&n, counts);
    assert_int_equal(counts[0], 0);
    assert_int_equal(counts[1], 2);
    assert_int_equal(tern_plan_facts(n.plan).resident, 0);
    compare(&n, TERN_F32, 1e-11);
    close_net(&n);
}

/* Values of a weight that is kept as words are made as they are wanted. */
static void values_of_words(void **state)
{
    int counts[2];
    (void)state;
    struct net n = open_net(device, TERN_F32, (struct tern_plan_params){.quantize = "*:w8"});
    count_laid(&n, counts);
    assert_int_equal(counts[0] + counts[1], 0);
    check_steps(&n);
    compare(&n, TERN_F32, 1e-3);
    close_net(&n);
}

/* What it is for: matrix units, or several values at a time. */
static void the_kernels_that_read_them(void **state)
{
    (void)state;
    struct net n = open_net(device, TERN_F16, (struct tern_plan_params){NULL});
    const struct tern_launch_limits *limits = &((const struct tern_gpu *)n.ctx->device)->limits;
    struct tern_launches *all = calloc(1, sizeof(*all));
    int convolutions = 0;
    for (int i = 0; i < n.plan->n_steps; i++) {
        const struct tern_op_desc *d = n.plan->steps[i].desc;
        if (d->op != TERN_OP_conv2d || !tern_meta_is_channels_last(&d->in[0]))
            continue;
        struct tern_launch_limits whole = *limits;
        whole.vectors = true;
        assert_true(tern_launches_make(d, &whole, all));
        if (limits->matrix_f16)
            assert_string_equal(all->launch[0].text, "conv2d_matrix");
        else
            assert_non_null(strstr(all->defines[0], "WIDE 1\n"));
        convolutions++;
    }
    assert_int_equal(convolutions, 3);
    assert_true(limits->matrix_f16 || strcmp(device, "cuda") != 0); /* the stand-in has them */
    compare(&n, TERN_F16, 1e-5);
    free(all);
    close_net(&n);
}

/* Kernels of the CPU pack filters as the file has them. */
static void not_on_the_cpu(void **state)
{
    int counts[2];
    (void)state;
    struct net n = open_net("cpu", TERN_F32, (struct tern_plan_params){NULL});
    count_laid(&n, counts);
    assert_int_equal(counts[0] + counts[1], 0);
    close_net(&n);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(once_for_each_filter), cmocka_unit_test(at_each_run_of_what_streams),
                                       cmocka_unit_test(values_of_words), cmocka_unit_test(the_kernels_that_read_them),
                                       cmocka_unit_test(not_on_the_cpu)};
    if (argc != 2)
        return 2;
    device = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}

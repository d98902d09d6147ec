/* A plan of convolutions with other operations behind each, which the tests of cuDNN run on every device. */
#include "tests/dnn_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>
#include <tern/graph.h>

#include "core/context.h"
#include "core/tensor.h"
#include "cuda_help.h"
#include "graph/plan.h"

enum { BATCH = 2, CHANNELS = 8, HEIGHT = 5, WIDTH = 6 };
_Static_assert(BATCH *CHANNELS *HEIGHT *WIDTH == DNN_PICTURE, "values of the picture");

/* x (2, 8, 5, 6), e (2, 24, 1, 1), of which 8 are used: each convolution with other operations behind it. */
static enum tern_status block(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct tern_weights *w = user;
    tern_tensor *k = tern_weights_get(w, "weight"), *b = tern_weights_get(w, "bias"), *x = in[0];
    x = tern_contiguous(x, TERN_CHANNELS_LAST);
    x = tern_relu(tern_add(tern_conv2d(x, k, b, .padding = 1), x));
    x = tern_add(tern_conv2d(x, k, b, .padding = 1), tern_slice(in[1], 1, CHANNELS, 2 * CHANNELS, 1));
    x = tern_silu(tern_conv2d(x, k, NULL, .padding = 1));
    x = tern_gelu(tern_conv2d(x, k, b, .padding = 1), TERN_GELU_TANH);
    x = tern_mul(tern_quick_gelu(tern_conv2d(x, k, b, .padding = 1)), x);
    out[0] = tern_conv2d(x, k, b, .padding = 1);
    return TERN_OK;
}

static void fill(float *values, int n, int step, float scale)
{
    for (int i = 0; i < n; i++)
        values[i] = ((float)(i * step % 101) / 50 - 1) * scale;
}

static tern_tensor *make(struct tern_context *ctx, enum tern_dtype dtype, const float *values, int ndim, const int64_t *shape)
{
    tern_tensor *f32 = tern_tensor_create(ctx, TERN_F32, ndim, shape, values), *t = tern_cast(f32, dtype);
    tern_tensor_unref(&f32);
    return t;
}

/* A weight: over that memory, or a copy in another dtype. */
static void add(struct tern_context *ctx, struct tern_weights *w, const char *name, enum tern_dtype dtype, float *values, int ndim,
                const int64_t *shape)
{
    tern_tensor *t =
        dtype == TERN_F32 ? tern_tensor_wrap(ctx, TERN_F32, ndim, shape, values, NULL, NULL) : make(ctx, dtype, values, ndim, shape);
    assert_int_equal(t ? tern_weights_add(w, name, t) : TERN_E_NO_MEMORY, TERN_OK);
    tern_tensor_unref(&t);
}

/* steady: nothing is allocated, loaded or waited for any more. */
static bool run_once(struct tern_context *ctx, struct tern_binding *b, tern_tensor *const *in, tern_tensor **out, bool steady)
{
    struct standin_counts from = cuda_counts();
    uint64_t allocations = tern_memory_allocations(ctx);
    bool good = !tern_plan_run(b, in, out);
    struct standin_counts to = cuda_counts();
    if (steady && good) {
        assert_int_equal(tern_memory_allocations(ctx), allocations);
        assert_int_equal(to.allocations + to.frees + to.modules, from.allocations + from.frees + from.modules);
        assert_int_equal(to.synchronisations, from.synchronisations);
    }
    return good;
}

/* Biases have the dtype of the convolution. */
static void check_biases(const struct tern_plan *p, enum tern_dtype dtype)
{
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].desc->op == TERN_OP_conv2d && p->steps[i].desc->present[2])
            assert_int_equal(p->steps[i].desc->in[2].dtype, dtype);
}

bool dnn_run_plan(struct tern_context *ctx, enum tern_dtype dtype, int times, float *values)
{
    float weight[CHANNELS * CHANNELS * 9], bias[CHANNELS], x[DNN_PICTURE], e[BATCH * 3 * CHANNELS];
    const struct tern_graph_input inputs[] = {{"x", dtype, 4, {BATCH, CHANNELS, HEIGHT, WIDTH}},
                                              {"e", dtype, 4, {BATCH, 3 * CHANNELS, 1, 1}}};
    fill(weight, CHANNELS * CHANNELS * 9, 37, 0.3f);
    fill(bias, CHANNELS, 29, 0.5f);
    fill(x, DNN_PICTURE, 17, 1);
    fill(e, BATCH * 3 * CHANNELS, 41, 1);
    struct tern_weights *w = tern_weights_create(ctx);
    add(ctx, w, "weight", dtype, weight, 4, (const int64_t[]){CHANNELS, CHANNELS, 3, 3});
    add(ctx, w, "bias", TERN_F32, bias, 1, (const int64_t[]){CHANNELS});
    struct tern_graph *g = tern_graph_trace(ctx, block, w, w, inputs, 2, 1);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    struct tern_binding *b = plan ? tern_plan_bind(plan, w) : NULL;
    if (plan)
        check_biases(plan, dtype);
    tern_tensor *in[] = {make(ctx, dtype, x, 4, inputs[0].shape), make(ctx, dtype, e, 4, inputs[1].shape)};
    tern_tensor *out = NULL;
    bool good = b && in[0] && in[1];
    for (int i = 0; i < times && good; i++)
        good = run_once(ctx, b, in, &out, i > 1);
    good = good && !tern_tensor_read(out, TERN_F32, values, sizeof(x));
    tern_tensor_unref(&out);
    tern_tensor_unref(&in[0]);
    tern_tensor_unref(&in[1]);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_weights_unref(&w);
    return good;
}

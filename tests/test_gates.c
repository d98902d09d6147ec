/* Feed-forward layers with gates on GPUs: values and their gates are products of one launch. The argument is the device, CUDA's stand-in
 * with matrix units. */
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

enum { MOST = 1500 * 700 };

static const char *device;

/* Ends of tiles of 128, 64 and 16 rows or columns, where values and gates are half of them, and of vectors of 4 and 8. */
static const struct layer {
    int rows, outputs, depth;
    bool bias, turned; /* the weight's outputs are neighbours */
} layers[] = {{1, 24, 40, true, false},  {5, 7, 9, true, false},      {16, 33, 64, false, false},  {40, 40, 32, true, true},
              {70, 13, 70, true, true},  {150, 72, 104, true, false}, {150, 104, 72, false, true}, {64, 64, 320, true, false},
              {131, 65, 24, true, true}, {1500, 700, 24, true, false}};

static void run_layer(struct tern_context *ctx, const struct layer *l, enum tern_dtype dtype, bool pieces, float *values)
{
    tern_scope_begin(ctx);
    const int64_t x_shape[] = {l->rows, l->depth}, w_shape[] = {2 * l->outputs, l->depth}, turned[] = {l->depth, 2 * l->outputs};
    tern_tensor *x = support_noise(ctx, 1, 2, x_shape, 1, dtype), *w = support_noise(ctx, 2, 2, l->turned ? turned : w_shape, 0.3f, dtype),
                *bias = l->bias ? support_noise(ctx, 3, 1, (const int64_t[]){2 * l->outputs}, 1, dtype) : NULL;
    w = l->turned ? tern_permute(w, 2, (const int[]){1, 0}) : w;
    tern_tensor *y;
    if (pieces) {
        tern_tensor *h = tern_linear(tern_cast(x, TERN_F32), tern_cast(w, TERN_F32), bias ? tern_cast(bias, TERN_F32) : NULL);
        y = tern_mul(tern_slice(h, 1, 0, l->outputs, 1), tern_gelu(tern_slice(h, 1, l->outputs, 2L * l->outputs, 1), TERN_GELU_NONE));
    } else {
        y = tern_linear_geglu(x, w, bias);
    }
    if (!y || tern_tensor_read(y, TERN_F32, values, (size_t)(l->rows * l->outputs) * sizeof(*values)))
        fail_msg("%s", tern_error(ctx));
    tern_scope_end(ctx, NULL);
}

static void every_edge(void **state)
{
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};
    static const double errors[] = {1e-11, 3e-7, 2e-5};
    static float found[MOST], expected[MOST];
    (void)state;
    struct tern_context *cpu = gpu_open("cpu"), *ctx = gpu_open(device);
    for (size_t i = 0; i < sizeof(layers) / sizeof(*layers); i++)
        for (int k = 0; k < 3; k++) {
            const struct layer *l = &layers[i];
            run_layer(ctx, l, dtypes[k], false, found);
            run_layer(cpu, l, dtypes[k], true, expected);
            const double nmse = support_nmse(found, expected, (size_t)(l->rows * l->outputs));
            if (!(nmse <= errors[k]))
                fail_msg("%d x %d of %d, %s: NMSE %g", l->rows, l->outputs, l->depth, tern_dtype_name(dtypes[k]), nmse);
        }
    tern_context_destroy(&ctx);
    tern_context_destroy(&cpu);
}

/* ---- plans */

static enum tern_status use(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_add(tern_linear_geglu(in[0], tern_weights_get(user, "w"), tern_weights_get(user, "b")), in[1]);
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

static void check_plan(struct tern_context *ctx, enum tern_dtype dtype, const char *quantize, enum tern_op op)
{
    enum { ROWS = 32, DEPTH = 64, OUTPUTS = 48 };
    struct tern_weights *w = tern_weights_create(ctx);
    const struct tern_graph_input in[] = {{"x", dtype, 2, {ROWS, DEPTH}}, {"y", dtype, 2, {ROWS, OUTPUTS}}};
    tern_scope_begin(ctx);
    tern_weights_add(w, "w", support_noise(ctx, 1, 2, (const int64_t[]){2 * OUTPUTS, DEPTH}, 0.2f, dtype));
    tern_weights_add(w, "b", support_noise(ctx, 2, 1, (const int64_t[]){2 * OUTPUTS}, 1, TERN_F32));
    struct tern_graph *g = tern_graph_trace(ctx, use, w, w, in, 2, 1);
    struct tern_plan *p = tern_plan_compile(g, &(struct tern_plan_params){.quantize = quantize});
    if (!p)
        fail_msg("%s", tern_error(ctx));
    int layers_there = 0, activations = 0;
    for (int i = 0; i < p->n_steps; i++) {
        const struct tern_op_desc *d = p->steps[i].desc;
        layers_there += d->op == op && d->n_post > 0; /* what is added to the result is a post */
        activations += d->op == TERN_OP_gelu || d->op == TERN_OP_mul;
    }
    assert_int_equal(layers_there, 1);
    assert_int_equal(activations, 0);
    tern_scope_end(ctx, NULL);
    tern_plan_unref(&p);
    tern_graph_destroy(&g);
    tern_weights_unref(&w);
}

static void plans_keep_the_layer(void **state)
{
    (void)state;
    struct tern_context *ctx = gpu_open(device);
    check_plan(ctx, TERN_F32, NULL, TERN_OP_linear_geglu);
    if (((const struct tern_gpu *)ctx->device)->limits.storage16)
        check_plan(ctx, TERN_F16, NULL, TERN_OP_linear_geglu);
    check_plan(ctx, TERN_F32, "*:w8", TERN_OP_linear_geglu);
    check_plan(ctx, TERN_F32, "*", TERN_OP_quantized_linear_geglu);
    tern_context_destroy(&ctx);
}

/* Of a UNet's largest layer, by matrix units where they are. */
static void matrix_units_serve_it(void **state)
{
    (void)state;
    struct tern_context *ctx = gpu_open(device);
    const struct tern_launch_limits *limits = &((const struct tern_gpu *)ctx->device)->limits;
    struct tern_op_desc d = {.op = TERN_OP_linear_geglu, .n_in = 3, .present = {true, true, true}};
    d.in[0] = tern_meta_make(TERN_F16, 3, (const int64_t[]){2, 4096, 320});
    d.in[1] = tern_meta_make(TERN_F16, 2, (const int64_t[]){2560, 320});
    d.in[2] = tern_meta_make(TERN_F16, 1, (const int64_t[]){2560});
    d.out = tern_meta_make(TERN_F16, 3, (const int64_t[]){2, 4096, 1280});
    struct tern_launches *all = calloc(1, sizeof(*all));
    assert_true(tern_launches_make(&d, limits, all));
    assert_int_equal(all->n, 1);
    assert_string_equal(all->launch[0].text, limits->matrix_f16 ? "matmul_matrix" : "matmul");
    if (limits->matrix_f16)
        assert_int_equal(all->launch[0].groups[0] * all->launch[0].groups[1], 20 * 64); /* of 128 x 64 results each */
    assert_true(limits->matrix_f16 || strcmp(device, "cuda") != 0);                     /* the stand-in has them */
    free(all);
    tern_context_destroy(&ctx);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_edge), cmocka_unit_test(plans_keep_the_layer),
                                       cmocka_unit_test(matrix_units_serve_it)};
    device = argc > 1 ? argv[1] : "opencl";
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* NULL where a function has no use for it: a status, NULL, 0 or false as the headers say, and no crash. Every call is made in a process
 * of its own, so that one that crashes is one that fails. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/tern.h>

#include "support.h"

/* What calls are given in the places that are not NULL. */
static struct tern_context *ctx;
static tern_tensor *t, *picture;
static const int64_t shape[] = {2, 3};

/* cmocka's handlers would go on with the tests in the child. */
static void die_of_signals(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
        signal(signals[i], SIG_DFL);
}

static int failures;

static void judge(pid_t child, int line, const char *what)
{
    int status = -1;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
        print_error("line %d: crashes: %s\n", line, what);
    else if (WEXITSTATUS(status))
        print_error("line %d: does not hold: %s\n", line, what);
    failures += status != 0;
}

/* A condition that calls the function. */
#define HOLDS(...)                            \
    do {                                      \
        pid_t child = fork();                 \
        if (!child) {                         \
            die_of_signals();                 \
            _exit((__VA_ARGS__) ? 0 : 1);     \
        }                                     \
        judge(child, __LINE__, #__VA_ARGS__); \
    } while (0)

/* Likewise, and the error is recorded. */
#define REFUSED(...) HOLDS((__VA_ARGS__) && tern_error_status(ctx) == TERN_E_INVALID && tern_error(ctx)[0])
/* A function without a result returns. */
#define RETURNS(...) HOLDS((__VA_ARGS__, true))

static int open_things(void **state)
{
    ctx = support_context();
    t = tern_tensor_create(ctx, TERN_F32, 2, shape, NULL);
    picture = tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){1, 1, 4, 4}, NULL);
    return t && picture ? 0 : 1;
}

static int close_things(void **state)
{
    tern_tensor_unref(&t);
    tern_tensor_unref(&picture);
    tern_context_destroy(&ctx);
    return 0;
}

static void of_contexts(void **state)
{
    struct tern_device_peak peak;
    failures = 0;
    RETURNS(tern_context_destroy(NULL));
    HOLDS(!tern_error(NULL)[0]);
    HOLDS(tern_error_status(NULL) == TERN_E_INVALID);
    RETURNS(tern_error_clear(NULL));
    HOLDS(tern_memory_used(NULL) == 0);
    HOLDS(tern_memory_peak(NULL) == 0);
    RETURNS(tern_memory_reset_peak(NULL));
    HOLDS(tern_memory_allocations(NULL) == 0);
    RETURNS(tern_memory_trim(NULL));
    HOLDS(!tern_context_devices_behind(NULL));
    HOLDS(tern_context_fast_dtype(NULL) == TERN_F32);
    HOLDS(!tern_devices_describe(NULL));
    RETURNS(tern_free_text(NULL, NULL));
    RETURNS(tern_free_text(ctx, NULL));
    HOLDS(tern_device_peak(NULL, &peak) == TERN_E_INVALID && peak.flops == 0);
    REFUSED(tern_device_peak(ctx, NULL) == TERN_E_INVALID);
    HOLDS(tern_thread_count(NULL) == 0);
    HOLDS(tern_dtype_parse(NULL) == TERN_DTYPE_COUNT);
    assert_int_equal(failures, 0);
}

static void of_tensors(void **state)
{
    float values[6];
    failures = 0;
    HOLDS(!tern_tensor_create(NULL, TERN_F32, 2, shape, NULL));
    REFUSED(!tern_tensor_create(ctx, TERN_F32, 2, NULL, NULL));
    HOLDS(!tern_tensor_scalar(NULL, TERN_F32, 1));
    HOLDS(!tern_tensor_ref(NULL));
    RETURNS(tern_tensor_unref(NULL));
    HOLDS(!tern_tensor_context(NULL));
    HOLDS(tern_tensor_dtype(NULL) == TERN_DTYPE_COUNT);
    HOLDS(tern_tensor_ndim(NULL) == 0);
    HOLDS(tern_tensor_size(NULL, 0) == 0);
    HOLDS(tern_tensor_size(NULL, -1) == 0);
    HOLDS(!tern_tensor_shape(NULL));
    HOLDS(!tern_tensor_strides(NULL));
    HOLDS(tern_tensor_numel(NULL) == 0);
    HOLDS(tern_tensor_read(NULL, TERN_F32, values, sizeof(values)) == TERN_E_INVALID);
    REFUSED(tern_tensor_read(t, TERN_F32, NULL, sizeof(values)) == TERN_E_INVALID);
    REFUSED(tern_tensor_read(t, TERN_I64, NULL, 6 * sizeof(int64_t)) == TERN_E_INVALID);
    HOLDS(tern_tensor_write(NULL, TERN_F32, values, sizeof(values)) == TERN_E_INVALID);
    REFUSED(tern_tensor_write(t, TERN_F32, NULL, sizeof(values)) == TERN_E_INVALID);
    REFUSED(tern_tensor_write(t, TERN_I64, NULL, 6 * sizeof(int64_t)) == TERN_E_INVALID);
    RETURNS(tern_scope_begin(NULL));
    HOLDS(!tern_scope_end(NULL, NULL));
    HOLDS(!tern_scope_next(NULL, NULL));
    RETURNS(tern_scope_end_many(NULL, &t, 1));
    HOLDS((tern_scope_begin(ctx), !tern_scope_end(ctx, NULL)) && tern_error_status(ctx) == TERN_OK);
    REFUSED((tern_scope_begin(ctx), tern_scope_end_many(ctx, NULL, 1), tern_error_clear(ctx), tern_scope_end(ctx, NULL), true));
    assert_int_equal(failures, 0);
}

/* NULL among the tensors passes through, without an error. */
#define PASSES(...) HOLDS(!(__VA_ARGS__) && tern_error_status(ctx) == TERN_OK)

static void of_elementwise_ops(void **state)
{
    static tern_tensor *(*const one[])(tern_tensor *) = {tern_neg,     tern_abs,           tern_exp,    tern_log,        tern_sqrt,
                                                         tern_rsqrt,   tern_reciprocal,    tern_square, tern_sin,        tern_cos,
                                                         tern_tanh,    tern_erf,           tern_floor,  tern_ceil,       tern_round,
                                                         tern_sigmoid, tern_relu,          tern_silu,   tern_quick_gelu, tern_logical_not,
                                                         tern_as_nc11, tern_quantize_scale};
    static tern_tensor *(*const two[])(tern_tensor *, tern_tensor *) = {
        tern_add, tern_sub, tern_mul, tern_div, tern_pow,         tern_maximum,    tern_minimum, tern_eq,        tern_ne,
        tern_lt,  tern_le,  tern_gt,  tern_ge,  tern_logical_and, tern_logical_or, tern_matmul,  tern_embedding, tern_quantize};
    failures = 0;
    for (size_t i = 0; i < sizeof(one) / sizeof(*one); i++)
        PASSES(one[i](NULL));
    for (size_t i = 0; i < sizeof(two) / sizeof(*two); i++) {
        PASSES(two[i](NULL, t));
        PASSES(two[i](t, NULL));
    }
    PASSES(tern_gelu(NULL, TERN_GELU_NONE));
    PASSES(tern_clamp(NULL, 0, 1));
    PASSES(tern_add_scalar(NULL, 1));
    PASSES(tern_mul_scalar(NULL, 1));
    PASSES(tern_pow_scalar(NULL, 1));
    PASSES(tern_where(NULL, t, t));
    PASSES(tern_where(t, NULL, t));
    PASSES(tern_where(t, t, NULL));
    PASSES(tern_cast(NULL, TERN_F32));
    PASSES(tern_contiguous(NULL, TERN_CONTIGUOUS));
    assert_int_equal(failures, 0);
}

static void of_views_and_reductions(void **state)
{
    failures = 0;
    PASSES(tern_reshape(NULL, 2, shape));
    REFUSED(!tern_reshape(t, 2, NULL));
    PASSES(tern_permute(NULL, 0, NULL));
    REFUSED(!tern_permute(t, 2, NULL));
    PASSES(tern_transpose(NULL, 0, 1));
    PASSES(tern_unsqueeze(NULL, 0));
    PASSES(tern_squeeze(NULL, 0));
    PASSES(tern_flatten(NULL, 0, 1));
    PASSES(tern_expand(NULL, 2, shape));
    REFUSED(!tern_expand(t, 2, NULL));
    PASSES(tern_slice(NULL, 0, 0, 1, 1));
    PASSES(tern_cat(NULL, 2, 0));
    PASSES(tern_cat((tern_tensor *[]){t, NULL}, 2, 0));
    PASSES(tern_pad(NULL, 2, shape, 0));
    REFUSED(!tern_pad(t, 2, NULL, 0));
    PASSES(tern_sum(NULL, 0, NULL, false));
    PASSES(tern_mean(NULL, 0, NULL, false));
    PASSES(tern_amax(NULL, 0, NULL, false));
    HOLDS(tern_sum(t, 0, NULL, false));
    REFUSED(!tern_sum(t, 2, NULL, false));
    REFUSED(!tern_mean(t, 1, NULL, false));
    REFUSED(!tern_amax(t, 1, NULL, false));
    PASSES(tern_argmax(NULL, 0, false));
    PASSES(tern_softmax(NULL, 0));
    PASSES(tern_gather(NULL, 0, t));
    PASSES(tern_gather(t, 0, NULL));
    assert_int_equal(failures, 0);
}

/* Without params as with defaults. */
static void of_networks_ops(void **state)
{
    failures = 0;
    PASSES(tern_layer_norm(NULL, 1, t, t, 0));
    PASSES(tern_rms_norm(NULL, 1, t, 0));
    PASSES(tern_group_norm(NULL, 1, t, t, 0));
    PASSES(tern_group_norm_stats(NULL, 1));
    PASSES(tern_group_norm_apply(NULL, t, t, t, 0));
    PASSES(tern_group_norm_apply(t, NULL, t, t, 0));
    PASSES(tern_linear(NULL, t, t));
    PASSES(tern_linear(t, NULL, t));
    PASSES(tern_linear_geglu(NULL, t, t));
    PASSES(tern_quantized_linear(NULL, t, t, t));
    PASSES(tern_quantized_linear(t, NULL, t, t));
    PASSES(tern_quantized_linear_geglu(NULL, t, t, t));
    PASSES(tern_weight_only_linear(NULL, t, t, 8));
    PASSES(tern_weight_only_linear(t, NULL, t, 8));
    PASSES(tern_weight_only_linear_geglu(NULL, t, t, 8));
    PASSES(tern_conv2d(NULL, picture, NULL));
    PASSES(tern_conv2d_p(picture, NULL, NULL, NULL));
    HOLDS(tern_conv2d_p(picture, picture, NULL, NULL));
    HOLDS(tern_conv_transpose2d_p(picture, picture, NULL, NULL));
    PASSES(tern_conv_transpose2d_p(NULL, picture, NULL, NULL));
    HOLDS(tern_quantized_conv2d_p(picture, picture, NULL, NULL, NULL));
    PASSES(tern_quantized_conv2d_p(NULL, picture, NULL, NULL, NULL));
    HOLDS(tern_weight_only_conv2d_p(picture, picture, NULL, 8, NULL));
    PASSES(tern_weight_only_conv2d_p(NULL, picture, NULL, 8, NULL));
    HOLDS(tern_sdpa_p(t, t, t, NULL));
    PASSES(tern_sdpa_p(NULL, t, t, NULL));
    PASSES(tern_sdpa_p(t, NULL, t, NULL));
    PASSES(tern_sdpa_p(t, t, NULL, NULL));
    PASSES(tern_interpolate_p(NULL, NULL));
    PASSES(tern_avg_pool2d_p(NULL, NULL));
    PASSES(tern_max_pool2d_p(NULL, NULL));
    HOLDS(!tern_interpolate_p(picture, NULL) && tern_error_status(ctx)); /* a size is needed */
    HOLDS(!tern_avg_pool2d_p(picture, NULL) && tern_error_status(ctx));  /* kernel_size, likewise */
    HOLDS(!tern_max_pool2d_p(picture, NULL) && tern_error_status(ctx));
    assert_int_equal(failures, 0);
}

static void of_ops_of_contexts(void **state)
{
    failures = 0;
    HOLDS(!tern_full(NULL, TERN_F32, 2, shape, 1));
    REFUSED(!tern_full(ctx, TERN_F32, 2, NULL, 1));
    HOLDS(tern_full(ctx, TERN_F32, 0, NULL, 1));
    HOLDS(!tern_arange(NULL, TERN_F32, 0, 3, 1));
    HOLDS(!tern_randn(NULL, 2, shape, 0, 0));
    REFUSED(!tern_randn(ctx, 2, NULL, 0, 0));
    HOLDS(!tern_rand(NULL, 2, shape, 0, 0));
    REFUSED(!tern_rand(ctx, 2, NULL, 0, 0));
    HOLDS(!tern_op_kernel(NULL, "conv2d", 0));
    HOLDS(!tern_op_kernel(ctx, NULL, 0));
    HOLDS(tern_op_force(NULL, "reference") == TERN_E_INVALID);
    HOLDS(tern_op_force(ctx, NULL) == TERN_OK);
    assert_int_equal(failures, 0);
}

static enum tern_status negative(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_neg(in[0]);
    return TERN_OK;
}

static void hear_line(void *user, const char *line) {}
static void hear_tuned(void *user, const struct tern_tuned_step *step) {}
static void hear_step(void *user, const struct tern_step_profile *step) {}

static void of_graphs(void **state)
{
    const struct tern_graph_input input = {NULL, TERN_F32, 2, {2, 3}};
    struct tern_graph *g = tern_graph_trace(ctx, negative, NULL, NULL, &input, 1, 1);
    assert_non_null(g);
    failures = 0;
    HOLDS(!tern_graph_trace(NULL, negative, NULL, NULL, &input, 1, 1));
    REFUSED(!tern_graph_trace(ctx, NULL, NULL, NULL, &input, 1, 1));
    REFUSED(!tern_graph_trace(ctx, negative, NULL, NULL, NULL, 1, 1));
    RETURNS(tern_graph_destroy(NULL));
    RETURNS(tern_graph_print(NULL, hear_line, NULL));
    REFUSED((tern_graph_print(g, NULL, NULL), true));
    RETURNS(tern_graph_print_dot(NULL, hear_line, NULL));
    REFUSED((tern_graph_print_dot(g, NULL, NULL), true));
    HOLDS(tern_graph_print_json(NULL, NULL, hear_line, NULL) == TERN_E_INVALID);
    REFUSED(tern_graph_print_json(g, NULL, NULL, NULL) == TERN_E_INVALID);
    HOLDS(!tern_plan_compile(NULL, NULL));
    HOLDS(!tern_plan_cached(NULL, NULL));
    HOLDS(!tern_plan_load(NULL, "x"));
    REFUSED(!tern_plan_load(ctx, NULL));
    tern_graph_destroy(&g);
    assert_int_equal(failures, 0);
}

static void of_plans(void **state)
{
    const struct tern_graph_input input = {NULL, TERN_F32, 2, {2, 3}};
    struct tern_graph *g = tern_graph_trace(ctx, negative, NULL, NULL, &input, 1, 1);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    assert_non_null(plan);
    failures = 0;
    HOLDS(!tern_plan_ref(NULL));
    RETURNS(tern_plan_unref(NULL));
    HOLDS(tern_plan_save(NULL, "x") == TERN_E_INVALID);
    REFUSED(tern_plan_save(plan, NULL) == TERN_E_INVALID);
    HOLDS(!tern_plan_graph(NULL));
    HOLDS(tern_plan_print_json(NULL, hear_line, NULL) == TERN_E_INVALID);
    REFUSED(tern_plan_print_json(plan, NULL, NULL) == TERN_E_INVALID);
    HOLDS(tern_plan_facts(NULL).launches == 0 && tern_plan_facts(NULL).flops == 0);
    HOLDS(tern_plan_tuning(NULL, hear_tuned, NULL) == TERN_E_INVALID);
    REFUSED(tern_plan_tuning(plan, NULL, NULL) == TERN_E_INVALID);
    RETURNS(tern_plan_trim(NULL));
    RETURNS(tern_plan_print_memory(NULL, hear_line, NULL));
    REFUSED((tern_plan_print_memory(plan, NULL, NULL), true));
    HOLDS(tern_plan_print_memory_json(NULL, hear_line, NULL) == TERN_E_INVALID);
    REFUSED(tern_plan_print_memory_json(plan, NULL, NULL) == TERN_E_INVALID);
    RETURNS(tern_plan_draw_memory(NULL, hear_line, NULL));
    REFUSED((tern_plan_draw_memory(plan, NULL, NULL), true));
    HOLDS(!tern_plan_bind(NULL, NULL));
    HOLDS(tern_plan_bind(plan, NULL)); /* it has no weights */
    HOLDS(tern_plan_bind_bytes(NULL, NULL) == 0);
    HOLDS(tern_plan_bind_bytes(plan, NULL) > 0);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    assert_int_equal(failures, 0);
}

static void of_bindings(void **state)
{
    const struct tern_graph_input input = {NULL, TERN_F32, 2, {2, 3}};
    struct tern_graph *g = tern_graph_trace(ctx, negative, NULL, NULL, &input, 1, 1);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    struct tern_binding *b = tern_plan_bind(plan, NULL);
    tern_tensor *out = NULL, *none = NULL;
    assert_non_null(b);
    failures = 0;
    HOLDS(!tern_binding_plan(NULL));
    RETURNS(tern_binding_set_streaming(NULL, TERN_STREAMING_SPILL));
    HOLDS(!tern_binding_ref(NULL));
    RETURNS(tern_binding_unref(NULL));
    HOLDS(tern_plan_run(NULL, &t, &out) == TERN_E_INVALID);
    REFUSED(tern_plan_run(b, NULL, &out) == TERN_E_INVALID);
    REFUSED(tern_plan_run(b, &t, NULL) == TERN_E_INVALID);
    HOLDS(tern_plan_run(b, &none, &out) == TERN_E_SHAPE);
    HOLDS(tern_plan_profile(NULL, &t, &out, hear_step, NULL) == TERN_E_INVALID);
    REFUSED(tern_plan_profile(b, &t, &out, NULL, NULL) == TERN_E_INVALID);
    REFUSED(tern_plan_profile(b, NULL, &out, hear_step, NULL) == TERN_E_INVALID);
    REFUSED(tern_plan_profile(b, &t, NULL, hear_step, NULL) == TERN_E_INVALID);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    assert_int_equal(failures, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_contexts),        cmocka_unit_test(of_tensors),
        cmocka_unit_test(of_elementwise_ops), cmocka_unit_test(of_views_and_reductions),
        cmocka_unit_test(of_networks_ops),    cmocka_unit_test(of_ops_of_contexts),
        cmocka_unit_test(of_graphs),          cmocka_unit_test(of_plans),
        cmocka_unit_test(of_bindings),
    };
    return cmocka_run_group_tests(tests, open_things, close_things);
}

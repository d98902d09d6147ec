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

#include "model_help.h"
#include "models/quantize/recipe.h"
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
    HOLDS(tern_context_keep_weights(NULL, false));
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
    PASSES(tern_pack_weight(NULL, 8));
    PASSES(tern_unpack_weight(NULL, 2, NULL, TERN_F32, 8));
    HOLDS(!tern_unpack_weight(t, 2, NULL, TERN_F32, 8) && tern_error_status(ctx)); /* a shape is needed */
    tern_error_clear(ctx);
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

static void of_weights(void **state)
{
    const struct tern_weights_change nothing = {NULL, NULL};
    struct tern_weights *w = tern_weights_create(ctx);
    assert_int_equal(tern_weights_add(w, "t", t), TERN_OK);
    failures = 0;
    HOLDS(!tern_weights_open(NULL, "x"));
    REFUSED(!tern_weights_open(ctx, NULL));
    HOLDS(!tern_weights_create(NULL));
    HOLDS(tern_weights_add(NULL, "a", t) == TERN_E_INVALID);
    REFUSED(tern_weights_add(w, NULL, t) == TERN_E_INVALID);
    REFUSED(tern_weights_add(w, "a", NULL) == TERN_E_INVALID);
    HOLDS(!tern_weights_ref(NULL));
    RETURNS(tern_weights_unref(NULL));
    HOLDS(!tern_weights_derive(NULL, &nothing, 1));
    REFUSED(!tern_weights_derive(w, NULL, 1));
    REFUSED(!tern_weights_derive(w, &nothing, 1));
    HOLDS(tern_weights_count(NULL) == 0);
    HOLDS(!tern_weights_name(NULL, 0));
    HOLDS(!tern_weights_at(NULL, 0));
    HOLDS(!tern_weights_get(NULL, "t"));
    HOLDS(!tern_weights_get(w, NULL));
    HOLDS(!tern_weights_metadata(NULL, "a"));
    HOLDS(!tern_weights_metadata(w, NULL));
    HOLDS(tern_weights_metadata_count(NULL) == 0);
    RETURNS(tern_weights_metadata_at(NULL, 0, NULL, NULL));
    RETURNS(tern_weights_metadata_at(w, 0, NULL, NULL));
    HOLDS(tern_weights_save(NULL, "x") == TERN_E_INVALID);
    REFUSED(tern_weights_save(w, NULL) == TERN_E_INVALID);
    HOLDS(!tern_weights_describe(NULL, "x", false));
    REFUSED(!tern_weights_describe(ctx, NULL, true));
    tern_weights_unref(&w);
    assert_int_equal(failures, 0);
}

static void of_tokenizers(void **state)
{
    struct tern_tokenizer *k = tern_tokenizer_clip(ctx, 0);
    int32_t *ids;
    int64_t count, padded[77];
    assert_non_null(k);
    failures = 0;
    HOLDS(!tern_tokenizer_load(NULL, "x"));
    REFUSED(!tern_tokenizer_load(ctx, NULL));
    HOLDS(!tern_tokenizer_clip(NULL, 0));
    RETURNS(tern_tokenizer_destroy(NULL));
    HOLDS(tern_tokenize(NULL, "x", &ids, &count) == TERN_E_INVALID);
    REFUSED(tern_tokenize(k, NULL, &ids, &count) == TERN_E_INVALID);
    REFUSED(tern_tokenize(k, "x", NULL, &count) == TERN_E_INVALID);
    REFUSED(tern_tokenize(k, "x", &ids, NULL) == TERN_E_INVALID);
    RETURNS(tern_tokenizer_free_ids(NULL, NULL));
    RETURNS(tern_tokenizer_free_ids(k, NULL));
    HOLDS(tern_tokenize_padded(NULL, "x", padded) == TERN_E_INVALID);
    REFUSED(tern_tokenize_padded(k, NULL, padded) == TERN_E_INVALID);
    REFUSED(tern_tokenize_padded(k, "x", NULL) == TERN_E_INVALID);
    HOLDS(tern_tokenizer_max_length(NULL) == 0);
    HOLDS(tern_tokenizer_vocab_size(NULL) == 0);
    HOLDS(tern_tokenizer_begin_id(NULL) == -1);
    HOLDS(tern_tokenizer_end_id(NULL) == -1);
    HOLDS(tern_tokenizer_pad_id(NULL) == -1);
    tern_tokenizer_destroy(&k);
    assert_int_equal(failures, 0);
}

static void of_images(void **state)
{
    struct tern_image *img = tern_image_create(ctx, 16, 16, NULL);
    double ssim;
    assert_non_null(img);
    failures = 0;
    HOLDS(!tern_image_create(NULL, 1, 1, NULL));
    HOLDS(!tern_image_load(NULL, "x"));
    REFUSED(!tern_image_load(ctx, NULL));
    RETURNS(tern_image_destroy(NULL));
    HOLDS(tern_image_width(NULL) == 0);
    HOLDS(tern_image_height(NULL) == 0);
    HOLDS(!tern_image_data(NULL));
    HOLDS(tern_image_set_text(NULL, "a", "b") == TERN_E_INVALID);
    REFUSED(tern_image_set_text(img, NULL, "b") == TERN_E_INVALID);
    REFUSED(tern_image_set_text(img, "a", NULL) == TERN_E_INVALID);
    HOLDS(!tern_image_text(NULL, "a"));
    HOLDS(!tern_image_text(img, NULL));
    HOLDS(!tern_image_resize(NULL, 8, 8));
    HOLDS(tern_image_ssim(NULL, NULL, &ssim) == TERN_E_INVALID);
    REFUSED(tern_image_ssim(img, NULL, &ssim) == TERN_E_INVALID);
    REFUSED(tern_image_ssim(NULL, img, &ssim) == TERN_E_INVALID);
    REFUSED(tern_image_ssim(img, img, NULL) == TERN_E_INVALID);
    HOLDS(tern_image_save(NULL, "x.png") == TERN_E_INVALID);
    REFUSED(tern_image_save(img, NULL) == TERN_E_INVALID);
    tern_image_destroy(&img);
    assert_int_equal(failures, 0);
}

static void of_generators(void **state)
{
    struct tern_brownian *b = tern_brownian_create(ctx, TERN_GENERATOR_CPU, 0, 1, 4);
    struct tern_generator g;
    float x[4];
    assert_non_null(b);
    tern_generator_seed(&g, TERN_GENERATOR_CPU, 1);
    failures = 0;
    RETURNS(tern_generator_seed(NULL, TERN_GENERATOR_CPU, 1));
    RETURNS(tern_generator_randn(NULL, x, 4));
    RETURNS(tern_generator_randn(&g, NULL, 4));
    RETURNS(tern_generator_rand(NULL, x, 4));
    RETURNS(tern_generator_rand(&g, NULL, 4));
    HOLDS(!tern_brownian_create(NULL, TERN_GENERATOR_CPU, 0, 1, 4));
    RETURNS(tern_brownian_destroy(NULL));
    HOLDS(tern_brownian_noise(NULL, 1, 0, 1, x) == TERN_E_INVALID);
    REFUSED(tern_brownian_noise(b, 1, 0, 1, NULL) == TERN_E_INVALID);
    tern_brownian_destroy(&b);
    assert_int_equal(failures, 0);
}

static void of_schedulers_that_are_not_there(void **state)
{
    double a, b;
    float x[4] = {0}, y[4] = {0};
    failures = 0;
    HOLDS(tern_sampler_parse(NULL, NULL) == TERN_SAMPLER_COUNT);
    HOLDS(tern_schedule_parse(NULL) == TERN_SCHEDULE_COUNT);
    HOLDS(!tern_scheduler_create(NULL, NULL, TERN_SAMPLER_EULER, TERN_SCHEDULE_DEFAULT));
    RETURNS(tern_scheduler_destroy(NULL));
    HOLDS(tern_scheduler_sampler(NULL) == TERN_SAMPLER_DEFAULT);
    HOLDS(tern_scheduler_set_options(NULL, NULL) == TERN_E_INVALID);
    HOLDS(tern_scheduler_set_steps(NULL, 4) == TERN_E_INVALID);
    HOLDS(tern_scheduler_calls(NULL) == 0);
    HOLDS(tern_scheduler_expected_calls(NULL) == 0);
    HOLDS(tern_scheduler_timestep(NULL, 0) == 0);
    HOLDS(tern_scheduler_sigma_count(NULL) == 0);
    HOLDS(tern_scheduler_sigma(NULL, 0) == 0);
    HOLDS(tern_scheduler_init_noise_sigma(NULL) == 1);
    HOLDS(tern_scheduler_begin_at(NULL, 1) == -1);
    HOLDS(tern_scheduler_calls_until(NULL, 1) == 0);
    HOLDS(tern_scheduler_begin_behind(NULL, 1) == -1);
    HOLDS(tern_scheduler_set_batch(NULL, 1) == TERN_E_INVALID);
    RETURNS(tern_scheduler_scale_input(NULL, 0, x, y, 4));
    RETURNS(tern_scheduler_add_noise(NULL, 0, x, x, y, 4));
    HOLDS(!tern_scheduler_draws_noise(NULL, 0));
    HOLDS(!tern_scheduler_churns(NULL, 0));
    HOLDS(tern_scheduler_churn(NULL, 0, x, y, 4) == TERN_E_INVALID);
    HOLDS(!tern_scheduler_noise_range(NULL, &a, &b));
    HOLDS(!tern_scheduler_noise_span(NULL, 0, &a, &b));
    HOLDS(tern_scheduler_step(NULL, 0, x, x, y, 4) == TERN_E_INVALID);
    assert_int_equal(failures, 0);
}

static void of_schedulers(void **state)
{
    struct tern_scheduler *s = tern_scheduler_create(ctx, NULL, TERN_SAMPLER_DPMPP_SDE, TERN_SCHEDULE_DEFAULT);
    double level;
    float x[4] = {0};
    assert_int_equal(tern_scheduler_set_steps(s, 4), TERN_OK);
    failures = 0;
    HOLDS(tern_scheduler_set_options(s, NULL) == TERN_OK);
    RETURNS(tern_scheduler_scale_input(s, 0, NULL, x, 4));
    RETURNS(tern_scheduler_scale_input(s, 0, x, NULL, 4));
    RETURNS(tern_scheduler_add_noise(s, 0, NULL, x, x, 4));
    RETURNS(tern_scheduler_add_noise(s, 0, x, NULL, x, 4));
    RETURNS(tern_scheduler_add_noise(s, 0, x, x, NULL, 4));
    REFUSED(tern_scheduler_churn(s, 0, NULL, NULL, 4) == TERN_E_INVALID);
    REFUSED(!tern_scheduler_noise_range(s, NULL, &level));
    REFUSED(!tern_scheduler_noise_range(s, &level, NULL));
    REFUSED(!tern_scheduler_noise_span(s, 0, NULL, &level));
    REFUSED(!tern_scheduler_noise_span(s, 0, &level, NULL));
    REFUSED(tern_scheduler_step(s, 0, NULL, x, x, 4) == TERN_E_INVALID);
    REFUSED(tern_scheduler_step(s, 0, x, x, NULL, 4) == TERN_E_INVALID);
    REFUSED(tern_scheduler_step(s, 0, x, NULL, x, 4) == TERN_E_INVALID); /* it draws noise */
    tern_scheduler_destroy(&s);
    assert_int_equal(failures, 0);
}

/* The first lines of a program, where the context could not be made. */
static void of_pipelines_that_are_not_there(void **state)
{
    size_t peak;
    failures = 0;
    HOLDS(!tern_pipeline_load(NULL, "demo", NULL));
    HOLDS(!tern_txt2img(tern_pipeline_load(NULL, "demo", NULL), &tern_txt2img_params(.prompt = "x")));
    RETURNS(tern_pipeline_destroy(NULL));
    HOLDS(tern_pipeline_guidance(NULL) == 0);
    HOLDS(tern_pipeline_set_loras(NULL, NULL, 0) == TERN_E_INVALID);
    HOLDS(tern_pipeline_set_embeddings(NULL, NULL, 0) == TERN_E_INVALID);
    HOLDS(!tern_generate(NULL, NULL));
    HOLDS(tern_generate_check(NULL, NULL, &peak) == TERN_E_INVALID);
    HOLDS(tern_images_count(NULL) == 0);
    HOLDS(!tern_images_at(NULL, 0));
    HOLDS(!tern_images_latents(NULL));
    RETURNS(tern_images_destroy(NULL));
    HOLDS(!tern_pipeline_describe(NULL, false));
    HOLDS(!tern_pipeline_describe(NULL, true));
    HOLDS(!tern_pipeline_tokenizer(NULL, 0));
    HOLDS(!tern_pipeline_graph(NULL, "unet", NULL));
    HOLDS(!tern_pipeline_weights(NULL, "unet"));
    HOLDS(!tern_pipeline_exec(NULL, "unet", NULL));
    HOLDS(!tern_pipeline_layer_words(NULL, "unet"));
    HOLDS(!tern_pipeline_quantize(NULL, NULL));
    HOLDS(!tern_pipeline_optimize(NULL, "demo", NULL, NULL, NULL));
    REFUSED(!tern_pipeline_optimize(ctx, "demo", NULL, NULL, NULL));
    HOLDS(tern_synth(NULL, "x", NULL) == TERN_E_INVALID);
    REFUSED(tern_synth(ctx, NULL, NULL) == TERN_E_INVALID);
    HOLDS(tern_convert(NULL, "a", "b", NULL) == TERN_E_INVALID);
    REFUSED(tern_convert(ctx, NULL, "b", NULL) == TERN_E_INVALID);
    REFUSED(tern_convert(ctx, "a", NULL, NULL) == TERN_E_INVALID);
    assert_int_equal(failures, 0);
}

static void of_pipelines(void **state)
{
    char path[PATH_SIZE];
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    const struct tern_lora no_path = {0}, no_blocks = {.path = "x", .n_blocks = 1};
    const struct tern_prompt_embedding no_file = {0};
    failures = 0;
    HOLDS(tern_generate_check(p, NULL, NULL) == TERN_OK); /* the defaults */
    REFUSED(tern_pipeline_set_loras(p, NULL, 1) == TERN_E_INVALID);
    REFUSED(tern_pipeline_set_loras(p, &no_path, 1) == TERN_E_INVALID);
    REFUSED(tern_pipeline_set_loras(p, &no_blocks, 1) == TERN_E_INVALID);
    REFUSED(tern_pipeline_set_embeddings(p, NULL, 1) == TERN_E_INVALID);
    REFUSED(tern_pipeline_set_embeddings(p, &no_file, 1) == TERN_E_INVALID);
    HOLDS(!tern_pipeline_graph(p, NULL, NULL) && tern_error_status(ctx));
    HOLDS(!tern_pipeline_weights(p, NULL));
    HOLDS(!tern_pipeline_exec(p, NULL, NULL) && tern_error_status(ctx));
    REFUSED(!tern_pipeline_exec(p, "unet", NULL)); /* the inputs are missing */
    HOLDS(!tern_pipeline_layer_words(p, NULL));
    REFUSED(!tern_pipeline_quantize(p, NULL));
    REFUSED(tern_recipe_check(NULL, p) == TERN_E_INVALID);
    struct tern_recipe *recipe = tern_recipe_of_pipeline(p);
    assert_non_null(recipe);
    REFUSED(tern_recipe_check(recipe, NULL) == TERN_E_INVALID);
    REFUSED(tern_recipe_save(recipe, NULL) == TERN_E_INVALID);
    tern_recipe_destroy(&recipe);
    tern_pipeline_destroy(&p);
    assert_int_equal(failures, 0);
}

static void of_recipes(void **state)
{
    failures = 0;
    HOLDS(!tern_recipe_open(NULL, "x"));
    REFUSED(!tern_recipe_open(ctx, NULL));
    RETURNS(tern_recipe_destroy(NULL));
    HOLDS(tern_recipe_save(NULL, "x") == TERN_E_INVALID);
    HOLDS(!tern_recipe_architecture(NULL));
    HOLDS(tern_recipe_count(NULL) == 0);
    HOLDS(!tern_recipe_at(NULL, 0));
    HOLDS(tern_recipe_facts(NULL).trials == 0);
    HOLDS(tern_recipe_smoothed(NULL) == 0);
    HOLDS(!tern_recipe_words(NULL));
    HOLDS(tern_recipe_check(NULL, NULL) == TERN_E_INVALID);
    assert_int_equal(failures, 0);
}

static void of_texts(void **state)
{
    struct tern_prompt_loras l;
    struct tern_infotext i;
    failures = 0;
    HOLDS(tern_prompt_take_loras(NULL, "x", "y", &l) == TERN_E_INVALID && !l.prompt);
    REFUSED(tern_prompt_take_loras(ctx, NULL, "y", &l) == TERN_E_INVALID);
    REFUSED(tern_prompt_take_loras(ctx, "x", NULL, &l) == TERN_E_INVALID);
    REFUSED(tern_prompt_take_loras(ctx, "x", "y", NULL) == TERN_E_INVALID);
    RETURNS(tern_prompt_loras_free(NULL, NULL));
    RETURNS(tern_prompt_loras_free(ctx, NULL));
    HOLDS(tern_infotext_read(NULL, "a\nSteps: 1", &i) == TERN_E_INVALID && !i.model);
    REFUSED(tern_infotext_read(ctx, NULL, &i) == TERN_E_INVALID);
    REFUSED(tern_infotext_read(ctx, "a\nSteps: 1", NULL) == TERN_E_INVALID);
    RETURNS(tern_infotext_free(NULL, NULL));
    RETURNS(tern_infotext_free(ctx, NULL));
    assert_int_equal(failures, 0);
}

static void of_conformance(void **state)
{
    struct tern_conformance *c = tern_conformance_create(ctx, &(struct tern_conformance_params){.stages = "ops", .op = "neg"});
    struct tern_conformance_outcome out;
    if (!c)
        fail_msg("%s", tern_error(ctx));
    failures = 0;
    HOLDS(!tern_conformance_create(NULL, NULL));
    RETURNS(tern_conformance_destroy(NULL));
    HOLDS(tern_conformance_facts(NULL).checks == 0 && !tern_conformance_facts(NULL).device[0]);
    HOLDS(!tern_conformance_get(NULL, 0).name[0]);
    HOLDS(tern_conformance_run(NULL, 0, &out) == TERN_E_INVALID);
    REFUSED(tern_conformance_run(c, 0, NULL) == TERN_E_INVALID);
    tern_conformance_destroy(&c);
    assert_int_equal(failures, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_contexts),        cmocka_unit_test(of_tensors),
        cmocka_unit_test(of_elementwise_ops), cmocka_unit_test(of_views_and_reductions),
        cmocka_unit_test(of_networks_ops),    cmocka_unit_test(of_ops_of_contexts),
        cmocka_unit_test(of_graphs),          cmocka_unit_test(of_plans),
        cmocka_unit_test(of_bindings),        cmocka_unit_test(of_weights),
        cmocka_unit_test(of_tokenizers),      cmocka_unit_test(of_images),
        cmocka_unit_test(of_generators),      cmocka_unit_test(of_schedulers_that_are_not_there),
        cmocka_unit_test(of_schedulers),      cmocka_unit_test(of_pipelines_that_are_not_there),
        cmocka_unit_test(of_pipelines),       cmocka_unit_test(of_recipes),
        cmocka_unit_test(of_texts),           cmocka_unit_test(of_conformance),
    };
    return cmocka_run_group_tests(tests, open_things, close_things);
}

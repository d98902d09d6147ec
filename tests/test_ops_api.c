/* The public op functions: defaults of their params, views, identities, NULL, and conversions of every f16 and bf16. */
#include <dirent.h>
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "core/tensor.h"
#include "ops/dispatch.h"
#include "ops/reference.h"
#include "support.h"

static struct tern_context *ctx;

#define SHAPE(...) \
    (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }

static int setup(void **state)
{
    ctx = tern_context_create(NULL);
    if (ctx)
        tern_scope_begin(ctx);
    return !ctx;
}

static int teardown(void **state)
{
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
    return 0;
}

/* 0, 1, 2 … in that shape */
static tern_tensor *counting(int ndim, const int64_t *shape)
{
    struct tern_meta m = tern_meta_make(TERN_F32, ndim, shape);
    tern_tensor *x = tern_reshape(tern_arange(ctx, TERN_F32, 0, (double)tern_meta_numel(&m), 1), ndim, shape);
    assert_non_null(x);
    return x;
}

static void assert_shape(const tern_tensor *x, int ndim, const int64_t *shape)
{
    if (!x)
        print_error("%s\n", tern_error(ctx));
    assert_non_null(x);
    assert_int_equal(tern_tensor_ndim(x), ndim);
    for (int i = 0; i < ndim; i++)
        assert_int_equal(tern_tensor_size(x, i), shape[i]);
}

static void assert_strides(const tern_tensor *x, int ndim, const int64_t *stride)
{
    assert_int_equal(tern_tensor_ndim(x), ndim);
    for (int i = 0; i < ndim; i++)
        assert_int_equal(tern_tensor_strides(x)[i], stride[i]);
}

static void assert_values(const tern_tensor *x, int n, const double *expected)
{
    float found[64];
    assert_in_range(n, 1, 64);
    assert_int_equal(tern_tensor_read(x, TERN_F32, found, (size_t)n * sizeof(float)), TERN_OK);
    for (int i = 0; i < n; i++)
        assert_float_equal(found[i], expected[i], 1e-5);
}
#define ASSERT_VALUES(x, ...) assert_values(x, (int)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)), (const double[]){__VA_ARGS__})

static void assert_refused(const tern_tensor *x, enum tern_status status, const char *message)
{
    assert_null(x);
    assert_int_equal(tern_error_status(ctx), status);
    assert_string_equal(tern_error(ctx), message);
    tern_error_clear(ctx);
}

/* Views share the memory and have the strides that torch gives. */
static void test_views(void **state)
{
    tern_tensor *x = counting(SHAPE(2, 3, 4)), *y = tern_transpose(x, 0, -1);
    assert_shape(y, SHAPE(4, 3, 2));
    assert_strides(y, SHAPE(1, 4, 12));
    assert_ptr_equal(y->buffer, x->buffer);
    y = tern_unsqueeze(y, 1);
    assert_shape(y, SHAPE(4, 1, 3, 2));
    assert_ptr_equal(y->buffer, x->buffer);
    y = tern_squeeze(y, 1);
    assert_shape(y, SHAPE(4, 3, 2));
    assert_shape(tern_squeeze(y, 0), SHAPE(4, 3, 2));
    assert_shape(tern_unsqueeze(x, -1), SHAPE(2, 3, 4, 1));
    assert_shape(tern_flatten(x, 1, -1), SHAPE(2, 12));
    assert_shape(tern_flatten(x, 0, 1), SHAPE(6, 4));
    assert_shape(tern_flatten(tern_tensor_scalar(ctx, TERN_F32, 3), 0, -1), SHAPE(1));
    assert_shape(tern_as_nc11(counting(SHAPE(2, 3))), SHAPE(2, 3, 1, 1));
    assert_ptr_equal(tern_slice(x, 1, 1, INT64_MAX, 1)->buffer, x->buffer);
    ASSERT_VALUES(tern_slice(tern_slice(x, 1, -1, INT64_MAX, 1), 2, 1, 4, 2), 9, 11, 21, 23);
    y = tern_expand(counting(SHAPE(2, 1)), SHAPE(3, -1, 2));
    assert_strides(y, SHAPE(0, 1, 0));
}

/* A reshape is a view exactly where torch.Tensor.view works. */
static void test_reshape_views(void **state)
{
    tern_tensor *x = counting(SHAPE(2, 3, 4)), *heads = tern_permute(x, 3, (const int[]){2, 0, 1}), *y;
    y = tern_reshape(heads, SHAPE(2, 2, 6)); /* 4 splits, 2 and 3 are one run of stride 4 */
    assert_ptr_equal(y->buffer, x->buffer);
    assert_strides(y, SHAPE(2, 1, 4));
    assert_ptr_not_equal(tern_reshape(heads, SHAPE(8, 3))->buffer, x->buffer);
    assert_ptr_not_equal(tern_reshape(heads, SHAPE(24))->buffer, x->buffer);
    y = tern_slice(x, 2, 0, 4, 2); /* every second column: strides 12, 4, 2 are one run */
    assert_ptr_equal(tern_reshape(y, SHAPE(12))->buffer, x->buffer);
    assert_strides(tern_reshape(y, SHAPE(12)), SHAPE(2));
    y = tern_slice(x, 2, 1, 4, 1); /* three of four columns: gaps */
    assert_ptr_not_equal(tern_reshape(y, SHAPE(18))->buffer, x->buffer);
    assert_ptr_equal(tern_reshape(y, SHAPE(1, 6, 1, 3))->buffer, x->buffer);
    y = tern_expand(counting(SHAPE(1, 2)), SHAPE(3, 2));
    assert_ptr_not_equal(tern_reshape(y, SHAPE(6))->buffer, y->buffer);
    y = tern_expand(counting(SHAPE(1, 1)), SHAPE(3, 2));
    assert_strides(tern_reshape(y, SHAPE(6)), SHAPE(0));
}

/* What is so already is returned itself, with a reference more that the scope or the caller owns. */
static void test_identities(void **state)
{
    tern_tensor *x = counting(SHAPE(1, 2, 1, 3)), *y = tern_contiguous(tern_permute(x, 4, (const int[]){0, 3, 2, 1}), TERN_CHANNELS_LAST);
    int refs = x->refs;
    assert_ptr_equal(tern_cast(x, TERN_F32), x);
    assert_ptr_equal(tern_contiguous(x, TERN_CONTIGUOUS), x);
    assert_int_equal(x->refs, refs + 2);
    assert_shape(y, SHAPE(1, 3, 1, 2));
    assert_ptr_equal(tern_contiguous(y, TERN_CHANNELS_LAST), y);
    y = tern_contiguous(tern_expand(x, SHAPE(2, 2, 2, 3)), TERN_CHANNELS_LAST);
    assert_strides(y, SHAPE(12, 1, 6, 2));
    assert_strides(tern_contiguous(y, TERN_CONTIGUOUS), SHAPE(12, 6, 3, 1));
}

/* The params structs: zero means the default, one number sets both directions, the pair counts otherwise. */
static void test_convolution_params(void **state)
{
    tern_tensor *x = counting(SHAPE(1, 2, 5, 5)), *w = counting(SHAPE(4, 2, 3, 3)), *d = counting(SHAPE(2, 1, 3, 3));
    assert_shape(tern_conv2d(x, w, NULL), SHAPE(1, 4, 3, 3));
    assert_shape(tern_conv2d(x, w, NULL, .padding = 1), SHAPE(1, 4, 5, 5));
    assert_shape(tern_conv2d(x, w, NULL, .stride = 2, .padding_hw = {1, 0}), SHAPE(1, 4, 3, 2));
    assert_shape(tern_conv2d(x, w, NULL, .stride_hw = {1, 2}, .dilation = 2), SHAPE(1, 4, 1, 1));
    assert_shape(tern_conv2d(x, d, NULL, .groups = 2, .dilation_hw = {2, 1}), SHAPE(1, 2, 1, 3));
    tern_tensor *v = counting(SHAPE(2, 3, 3, 3));
    assert_shape(tern_conv_transpose2d(x, v, NULL), SHAPE(1, 3, 7, 7));
    assert_shape(tern_conv_transpose2d(x, v, NULL, .stride = 2, .padding = 1, .output_padding = 1), SHAPE(1, 3, 10, 10));
    assert_shape(tern_conv_transpose2d(x, v, NULL, .stride_hw = {2, 1}, .output_padding_hw = {1, 0}, .dilation_hw = {1, 2}),
                 SHAPE(1, 3, 12, 9));
    assert_shape(tern_conv_transpose2d(x, v, NULL, .groups = 2), SHAPE(1, 6, 7, 7));
}

static void test_picture_params(void **state)
{
    tern_tensor *x = counting(SHAPE(1, 1, 4, 6));
    ASSERT_VALUES(tern_avg_pool2d(x, .kernel_size = 2), 3.5, 5.5, 7.5, 15.5, 17.5, 19.5);
    ASSERT_VALUES(tern_avg_pool2d(x, .kernel_size_hw = {4, 2}, .stride = 4), 9.5, 13.5);
    ASSERT_VALUES(tern_avg_pool2d(x, .kernel_size = 2, .stride = 4, .padding = 1), 0, 1.75, 4.5, 10.75);
    ASSERT_VALUES(tern_avg_pool2d(x, .kernel_size = 2, .stride = 4, .padding = 1, .exclude_pad = true), 0, 3.5, 18, 21.5);
    assert_shape(tern_avg_pool2d(x, .kernel_size = 3, .stride = 2, .ceil_mode = true), SHAPE(1, 1, 2, 3));
    ASSERT_VALUES(tern_max_pool2d(x, .kernel_size = 2), 7, 9, 11, 19, 21, 23);
    ASSERT_VALUES(tern_max_pool2d(x, .kernel_size = 2, .stride_hw = {2, 3}, .dilation_hw = {1, 3}), 9, 21);
    assert_shape(tern_interpolate(x, .scale_factor = 2), SHAPE(1, 1, 8, 12));
    assert_shape(tern_interpolate(x, .size = {3, 5}, .mode = TERN_BILINEAR, .align_corners = true), SHAPE(1, 1, 3, 5));
    assert_shape(tern_interpolate(x, .scale_factor_hw = {0.5, 1.5}), SHAPE(1, 1, 2, 9));
    ASSERT_VALUES(tern_interpolate(x, .size = {1, 3}), 0, 2, 4);
}

static void test_other_params(void **state)
{
    tern_tensor *x = counting(SHAPE(2, 3)), *q = counting(SHAPE(1, 1, 2));
    ASSERT_VALUES(tern_sum(x, 0, NULL, false), 15);
    ASSERT_VALUES(tern_mean(x, 1, (const int[]){-1}, true), 1, 4);
    ASSERT_VALUES(tern_amax(x, 1, (const int[]){0}, false), 3, 4, 5);
    assert_int_equal(tern_tensor_dtype(tern_argmax(x, 1, false)), TERN_I64);
    ASSERT_VALUES(tern_pad(x, 2, (const int64_t[]){1, -1}, 9), 9, 0, 1, 9, 3, 4);
    ASSERT_VALUES(tern_clamp(x, -INFINITY, 2), 0, 1, 2, 2, 2, 2);
    ASSERT_VALUES(tern_gelu(tern_full(ctx, TERN_F32, SHAPE(1), 1), TERN_GELU_NONE), 0.84134475);
    ASSERT_VALUES(tern_gelu(tern_full(ctx, TERN_F32, SHAPE(1), 1), TERN_GELU_TANH), 0.84119199);
    ASSERT_VALUES(tern_sdpa(q, q, tern_add_scalar(q, 5)), 5, 6);
    tern_tensor *keep = tern_full(ctx, TERN_BOOL, SHAPE(1, 1), 0);
    ASSERT_VALUES(tern_sdpa(q, q, tern_add_scalar(q, 5), .attn_mask = keep, .scale = 2), 0, 0);
    tern_tensor *parts[] = {x, x, x};
    assert_shape(tern_cat(parts, 3, -1), SHAPE(2, 9));
    /* the first GPU value of torch.manual_seed(0); torch.randn(1, device="cuda") */
    ASSERT_VALUES(tern_randn(ctx, SHAPE(2), 0, 0), -0.92466259, -0.42534415);
}

/* What only the public functions can refuse. */
/* What PyTorch does, by its values (2.15). */
static void test_as_pytorch(void **state)
{
    tern_tensor *four = counting(SHAPE(1, 1, 2, 2)), *pair[] = {counting(SHAPE(0)), counting(SHAPE(1, 3)), counting(SHAPE(0))};
    /* a window larger than the picture, as long as it begins a stride before */
    ASSERT_VALUES(tern_max_pool2d(four, .kernel_size = 3, .stride = 2, .ceil_mode = true), 3);
    ASSERT_VALUES(tern_avg_pool2d(four, .kernel_size = 3, .stride = 2, .ceil_mode = true), 1.5);
    assert_null(tern_max_pool2d(four, .kernel_size = 4, .stride = 2, .ceil_mode = true));
    tern_error_clear(ctx);
    assert_null(tern_max_pool2d(four, .kernel_size = 3, .stride = 2));
    tern_error_clear(ctx);
    /* tensors of shape (0,) beside others */
    ASSERT_VALUES(tern_cat(pair, 3, 1), 0, 1, 2);
    ASSERT_VALUES(tern_cat(pair, 2, 0), 0, 1, 2);
    assert_shape(tern_cat(pair, 1, 0), SHAPE(0));
    for (int i = 0; i < 2; i++) {
        tern_tensor *mixed[] = {pair[i], tern_cast(pair[1 - i], TERN_F16)};
        assert_refused(tern_cat(mixed, 2, 0), TERN_E_DTYPE,
                       "cat: tensors[0] is f32, tensors[1] is f16: expected equal dtypes; cast one with tern_cast");
    }
    /* the same size and twice the size whatever the scale is, in every order of memory */
    for (int last = 0; last < 2; last++) {
        tern_tensor *rows = tern_contiguous(counting(SHAPE(1, 1, 3, 1)), last ? TERN_CHANNELS_LAST : TERN_CONTIGUOUS);
        ASSERT_VALUES(tern_interpolate(rows, .scale_factor_hw = {1.2, 1}), 0, 1, 2);
        ASSERT_VALUES(tern_interpolate(rows, .scale_factor_hw = {2.3, 1}), 0, 0, 1, 1, 2, 2);
        ASSERT_VALUES(tern_interpolate(rows, .scale_factor_hw = {1.7, 1}), 0, 0, 1, 1, 2);
    }
}

static void test_messages(void **state)
{
    tern_tensor *x = counting(SHAPE(2, 3)), *nine[9] = {x, x, x, x, x, x, x, x, x};
    assert_refused(tern_transpose(x, 0, 2), TERN_E_INVALID, "transpose: dim 2 is out of range: expected -2..1");
    assert_refused(tern_unsqueeze(x, 3), TERN_E_INVALID, "unsqueeze: dim 3 is out of range: expected -3..2");
    assert_refused(tern_squeeze(x, -3), TERN_E_INVALID, "squeeze: dim -3 is out of range: expected -2..1");
    assert_refused(tern_flatten(x, 0, 2), TERN_E_INVALID, "flatten: dim 2 is out of range: expected -2..1");
    assert_refused(tern_flatten(x, 1, 0), TERN_E_INVALID, "flatten: start_dim 1 is behind end_dim 0");
    assert_refused(tern_as_nc11(counting(SHAPE(2))), TERN_E_SHAPE, "as_nc11: x has 1 dimensions: expected (N, C), found (2,) f32");
    assert_refused(tern_cat(nine, 9, 0), TERN_E_INVALID, "cat: 9 tensors were given: expected 1..8");
    assert_refused(tern_reshape(x, 9, NULL), TERN_E_INVALID, "reshape: 9 dimensions were given: expected 0..8");
    assert_refused(tern_permute(x, -1, NULL), TERN_E_INVALID, "permute: -1 dimensions were given: expected 0..8");
    assert_refused(tern_expand(x, 9, NULL), TERN_E_INVALID, "expand: 9 dimensions were given: expected 0..8");
    assert_refused(tern_sum(x, 9, NULL, false), TERN_E_INVALID, "sum: 9 dimensions were given: expected 0..8");
    assert_refused(tern_full(ctx, TERN_F32, 9, NULL, 0), TERN_E_INVALID, "full: 9 dimensions were given: expected 0..8");
    assert_refused(tern_randn(ctx, -1, NULL, 0, 0), TERN_E_INVALID, "randn: -1 dimensions were given: expected 0..8");
    assert_refused(tern_pad(x, 17, NULL, 0), TERN_E_INVALID, "pad: 17 amounts were given: expected 0..16");
}

/* n values of x as f32 */
static void read_values(const tern_tensor *x, float *values, int64_t n)
{
    if (!x)
        print_error("%s\n", tern_error(ctx));
    assert_non_null(x);
    assert_int_equal(tern_tensor_numel(x), n);
    assert_int_equal(tern_tensor_read(x, TERN_F32, values, (size_t)n * sizeof(*values)), TERN_OK);
}

/* What the halves are for: together they are group_norm, and a band of a picture is normalised as it is in the whole. Vectors end
 * elsewhere in a band, and the rest may round otherwise: by two units of the last place of values up to 15. */
static void test_group_norm_halves(void **state)
{
    enum { N = 2, C = 8, H = 12, W = 10, CUT = 5, ALL = N * C * H * W };
    float whole[ALL], halves[ALL], bands[ALL];
    tern_tensor *w = tern_add_scalar(counting(SHAPE(C)), 0.5), *b = tern_mul_scalar(w, -0.25);
    for (int format = TERN_CONTIGUOUS; format <= TERN_CHANNELS_LAST; format++) {
        tern_tensor *x = tern_sin(tern_mul_scalar(counting(SHAPE(N, C, H, W)), 1.7));
        x = tern_contiguous(x, (enum tern_memory_format)format);
        tern_tensor *stats = tern_group_norm_stats(x, 4), *band[2];
        for (int i = 0; i < 2; i++)
            band[i] = tern_group_norm_apply(tern_slice(x, 2, i ? CUT : 0, i ? H : CUT, 1), stats, w, b, 1e-5);
        read_values(tern_group_norm(x, 4, w, b, 1e-5), whole, ALL);
        read_values(tern_group_norm_apply(x, stats, w, b, 1e-5), halves, ALL);
        read_values(tern_cat(band, 2, 2), bands, ALL);
        for (int i = 0; i < ALL; i++)
            if (fabs((double)bands[i] - (double)halves[i]) > 2e-6)
                fail_msg("format %d: value %d of a band is %.9g, of the whole %.9g", format, i, (double)bands[i], (double)halves[i]);
        for (int i = 0; i < ALL; i++)
            assert_true(fabs((double)whole[i] - (double)halves[i]) < 1e-5); /* of at most 15 */
        tern_tensor *half = tern_group_norm_stats(tern_cast(x, TERN_F16), 4);
        assert_shape(half, SHAPE(N, 4, 2));
        assert_int_equal(tern_tensor_dtype(half), TERN_F32);
        tern_tensor *y = tern_group_norm_apply(tern_cast(x, TERN_BF16), half, w, b, 1e-5);
        assert_int_equal(tern_tensor_dtype(y), TERN_BF16);
        for (int i = 0; i < 4; i++)
            assert_int_equal(tern_tensor_strides(y)[i], tern_tensor_strides(x)[i]);
    }
    const int dims[] = {2, 1, 0}; /* statistics are contiguous, even if x has their shape */
    assert_strides(tern_group_norm_stats(tern_permute(counting(SHAPE(2, C, N)), 3, dims), C), SHAPE(2 * C, 2, 1));
}

/* NULL goes through every function without an error. */
static void test_null(void **state)
{
    tern_tensor *x = counting(SHAPE(1, 1, 2, 2)), *pair[] = {x, NULL};
    const int dims[] = {0};
    const int64_t sizes[] = {1};
    tern_tensor *const results[] = {
        tern_neg(NULL),
        tern_gelu(NULL, TERN_GELU_NONE),
        tern_clamp(NULL, 0, 1),
        tern_add_scalar(NULL, 1),
        tern_add(x, NULL),
        tern_add(NULL, x),
        tern_where(x, x, NULL),
        tern_cast(NULL, TERN_F16),
        tern_contiguous(NULL, TERN_CONTIGUOUS),
        tern_reshape(NULL, 1, sizes),
        tern_permute(NULL, 1, dims),
        tern_transpose(NULL, 0, 1),
        tern_unsqueeze(NULL, 0),
        tern_squeeze(NULL, 0),
        tern_flatten(NULL, 0, 1),
        tern_expand(NULL, 1, sizes),
        tern_slice(NULL, 0, 0, 1, 1),
        tern_as_nc11(NULL),
        tern_cat(pair, 2, 0),
        tern_pad(NULL, 0, NULL, 0),
        tern_sum(NULL, 1, dims, false),
        tern_argmax(NULL, 0, false),
        tern_softmax(NULL, 0),
        tern_layer_norm(NULL, 1, x, x, 0),
        tern_rms_norm(NULL, 1, x, 0),
        tern_group_norm(NULL, 1, x, x, 0),
        tern_group_norm_stats(NULL, 1),
        tern_group_norm_apply(NULL, x, x, x, 0),
        tern_group_norm_apply(x, NULL, x, x, 0),
        tern_matmul(x, NULL),
        tern_linear(x, NULL, x),
        tern_linear_geglu(x, NULL, x),
        tern_quantize_scale(NULL),
        tern_quantize(x, NULL),
        tern_quantized_linear(x, NULL, x, x),
        tern_quantized_linear_geglu(x, NULL, x, x),
        tern_quantized_conv2d(NULL, x, x, x),
        tern_weight_only_linear(x, NULL, x, 8),
        tern_weight_only_linear_geglu(NULL, x, x, 4),
        tern_weight_only_conv2d(x, NULL, x, 8),
        tern_pack_weight(NULL, 8),
        tern_unpack_weight(NULL, 2, (const int64_t[]){1, 1}, TERN_F32, 8),
        tern_conv2d(NULL, x, NULL),
        tern_conv_transpose2d(x, NULL, NULL),
        tern_sdpa(x, x, NULL),
        tern_interpolate(NULL, .scale_factor = 2),
        tern_avg_pool2d(NULL, .kernel_size = 1),
        tern_max_pool2d(NULL, .kernel_size = 1),
        tern_embedding(NULL, x),
        tern_gather(x, 0, NULL),
    };
    for (size_t i = 0; i < sizeof(results) / sizeof(*results); i++)
        assert_null(results[i]);
    assert_int_equal(tern_error_status(ctx), TERN_OK);
}

/* Every f16 and bf16 is kept by load and store; NaN stays NaN; ties go to even. */
static void test_conversions(void **state)
{
    for (int d = TERN_F16; d <= TERN_BF16; d++) {
        int m = d == TERN_F16 ? 10 : 7;
        for (uint32_t bits = 0; bits < 65536; bits++) {
            uint16_t in = (uint16_t)bits, out = 0;
            double v = tern_load((enum tern_dtype)d, &in, 0);
            tern_store((enum tern_dtype)d, &out, 0, v);
            bool nan = (bits & 0x7fff) > (uint32_t)(((1 << (15 - m)) - 1) << m);
            assert_int_equal(isnan(v) != 0, nan);
            if (nan) /* quiet, the rest of the payload kept */
                assert_int_equal(out, bits | 1u << (m - 1));
            else
                assert_int_equal(out, bits);
            if (nan || isinf(v) || isinf(tern_load((enum tern_dtype)d, &(uint16_t){(uint16_t)(in + 1)}, 0)) || (bits & 0x7fff) == 0x7fff)
                continue;
            double next = tern_load((enum tern_dtype)d, &(uint16_t){(uint16_t)(in + 1)}, 0), middle = (v + next) / 2;
            if ((in + 1) & 0x7fff && !isnan(next)) {
                tern_store((enum tern_dtype)d, &out, 0, middle);
                assert_int_equal(out, in & 1 ? in + 1 : in);
                tern_store((enum tern_dtype)d, &out, 0, nextafter(middle, next));
                assert_int_equal(out, in + 1);
            }
        }
    }
}

/* 3 x 3 of ones by ones: 3 everywhere, whoever computes it. */
static void expect_threes(const char *kernel, enum tern_status status)
{
    const float ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    float y[9] = {0};
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, SHAPE(3, 3), ones);
    assert_int_equal(tern_op_force(ctx, kernel), TERN_OK);
    tern_tensor *out = tern_linear(x, x, NULL);
    assert_int_equal(tern_error_status(ctx), status);
    if (status == TERN_OK) {
        assert_int_equal(tern_tensor_read(out, TERN_F32, y, sizeof(y)), TERN_OK);
        for (int i = 0; i < 9; i++)
            assert_true(y[i] == 3);
    }
    tern_error_clear(ctx);
}

static void test_kernels_by_name(void **state)
{
    const char *name;
    int n = 0;
    for (; (name = tern_op_kernel(ctx, "linear", n)); n++) {
        assert_memory_equal(name, "linear_", 7);
        for (int i = 0; i < n; i++)
            assert_string_not_equal(name, tern_op_kernel(ctx, "linear", i));
    }
    assert_true(n > 0);
    assert_null(tern_op_kernel(ctx, "linear", -1));
    assert_null(tern_op_kernel(ctx, "linera", 0));
    assert_null(tern_op_kernel(ctx, NULL, 0));
    uint64_t before = tern_dispatch_count(ctx);
    expect_threes("reference", TERN_OK);
    assert_int_equal(tern_dispatch_count(ctx), before); /* no kernel ran */
    expect_threes("linear_f32_gemm", TERN_OK);
    assert_int_equal(tern_dispatch_count(ctx), before + 1);
    /* a kernel of another op leaves this one to be chosen */
    expect_threes("conv2d_f32_igemm", TERN_OK);
    assert_int_equal(tern_dispatch_count(ctx), before + 2);
    /* also where its inputs are made contiguous for it first */
    assert_int_equal(tern_op_force(ctx, "conv2d_f32_igemm"), TERN_OK);
    before = tern_dispatch_count(ctx);
    assert_non_null(tern_softmax(tern_transpose(tern_full(ctx, TERN_F32, SHAPE(3, 4), 1), 0, 1), 1));
    assert_int_equal(tern_dispatch_count(ctx), before + 2);
    assert_int_equal(tern_op_force(ctx, "linear_fast"), TERN_E_NOT_FOUND);
    assert_non_null(strstr(tern_error(ctx), "\"linear_fast\""));
    tern_error_clear(ctx);
    /* it takes no i64 */
    assert_int_equal(tern_op_force(ctx, tern_op_kernel(ctx, "add", 0)), TERN_OK);
    tern_tensor *whole = tern_full(ctx, TERN_I64, SHAPE(2), 1);
    assert_null(tern_add(whole, whole));
    assert_int_equal(tern_error_status(ctx), TERN_E_UNSUPPORTED);
    tern_error_clear(ctx);
    assert_int_equal(tern_op_force(ctx, NULL), TERN_OK);
    assert_non_null(tern_add(whole, whole));
}

/* NMSE of oneDNN's convolution, which keeps the size of x, from the reference's; -1: oneDNN is not there. */
static double convolved_apart(tern_tensor *x, tern_tensor *w, int dilation)
{
    tern_tensor *y[2];
    const int groups = (int)(tern_tensor_size(x, 1) / tern_tensor_size(w, 1));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tern_op_force(ctx, i ? "reference" : "conv2d_f32_onednn"), TERN_OK);
        y[i] = tern_conv2d(x, w, NULL, .padding = dilation, .dilation = dilation, .groups = groups);
        if (!y[i]) {
            assert_int_equal(tern_error_status(ctx), TERN_E_UNSUPPORTED);
            tern_error_clear(ctx);
            return -1;
        }
    }
    return support_tensor_nmse(y[0], y[1]);
}

static int tasks(void)
{
    DIR *folder = opendir("/proc/self/task");
    int n = 0;
    assert_non_null(folder);
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

/* A convolution by oneDNN and a product by OpenBLAS; how many of the two gave a result. */
static int use_libraries(struct tern_context *c)
{
    int n = 0;
    tern_scope_begin(c);
    tern_tensor *x = support_noise(c, 1, SHAPE(1, 64, 32, 32), 1, TERN_F32), *w = support_noise(c, 2, SHAPE(64, 8, 3, 3), 1, TERN_F32);
    tern_op_force(c, "conv2d_f32_onednn");
    n += tern_conv2d(tern_contiguous(x, TERN_CHANNELS_LAST), w, NULL, .padding = 1, .groups = 8) != NULL;
    tern_error_clear(c);
    tern_op_force(c, "matmul_f32_openblas");
    tern_tensor *square = tern_reshape(x, SHAPE(256, 256));
    n += tern_matmul(square, square) != NULL;
    tern_error_clear(c);
    tern_scope_end(c, NULL);
    return n;
}

/* Of the process, or of OpenMP in this thread; 0: the library is not there, or has no such function. */
static int library_threads(const char *file, const char *get, const char *set, int n)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    int (*get_threads)(void) = NULL;
    void (*set_threads)(int) = NULL;
    if (library) {
        *(void **)&get_threads = dlsym(library, get);
        *(void **)&set_threads = dlsym(library, set);
    }
    if (n && set_threads)
        set_threads(n);
    return get_threads ? get_threads() : 0;
}
#define BLAS_THREADS(n) library_threads("libopenblas.so.0", "openblas_get_num_threads", "openblas_set_num_threads", n)
#define OMP_THREADS(n) library_threads("libdnnl.so.2", "omp_get_max_threads", "omp_set_num_threads", n)

/* Libraries have as many threads as the context, and the program gets back what it had. */
static void test_threads_of_libraries(void **state)
{
    struct tern_context *one = tern_context_create(&(struct tern_context_params){.threads = 1});
    const int blas = BLAS_THREADS(2), omp = OMP_THREADS(2), before = tasks();
    if (!use_libraries(one)) {
        tern_context_destroy(&one);
        print_message("not run: neither oneDNN nor OpenBLAS is there\n");
        skip();
    }
    assert_true(tasks() == before || !omp); /* another runtime may start some */
    assert_int_equal(BLAS_THREADS(0), blas);
    assert_int_equal(OMP_THREADS(0), omp);
    tern_context_destroy(&one);
}

/* In a child of a process that has used them, with threads, they are not offered: those are not there. */
static void test_libraries_in_a_child(void **state)
{
    struct tern_context *two = tern_context_create(&(struct tern_context_params){.threads = 2});
    int status = 0;
    use_libraries(two);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        alarm(60);
        struct tern_context *own = tern_context_create(&(struct tern_context_params){.threads = 2});
        const bool good = own && use_libraries(own) == 0;
        tern_scope_begin(own);
        tern_tensor *x = tern_full(own, TERN_F32, SHAPE(2, 4, 8, 8), 1), *w = tern_full(own, TERN_F32, SHAPE(4, 2, 3, 3), 1);
        tern_op_force(own, NULL);
        float corner = 0;
        tern_tensor *y = tern_conv2d(x, w, NULL, .padding = 1, .groups = 2);
        const bool same =
            y && !tern_tensor_read(tern_slice(tern_reshape(y, SHAPE(512)), 0, 0, 1, 1), TERN_F32, &corner, sizeof(corner)) && corner == 8;
        _exit(!good || !same);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    tern_context_destroy(&two);
}

/* oneDNN lays a weight out by the dilation, too: with AVX-512 that of single channels, with AVX2 that of many. No call takes the form of
 * another. */
static void test_packed_for_each_dilation(void **state)
{
    for (int i = 0; i < 16; i++) {
        const int64_t of_group = i / 4 % 2 ? 64 : 1;
        tern_tensor *x = tern_contiguous(support_noise(ctx, 1, SHAPE(1, 64, 5, 5), 1, TERN_F32), TERN_CHANNELS_LAST);
        tern_tensor *w = support_noise(ctx, 2, SHAPE(64, of_group, 3, 3), 1, TERN_F32);
        tern_tensor_make_constant(w);
        for (int k = 0; k < 4; k++) {
            const int dilation = 1 + (i / 8 ? i + 3 * k : i + k) % 4; /* each comes first, up and down */
            const double e = convolved_apart(x, w, dilation);
            if (e < 0) {
                print_message("not run: oneDNN is not there\n");
                skip();
            }
            if (!(e <= 1e-12))
                fail_msg("%d channels in a group, dilation %d: NMSE %g", (int)of_group, dilation, e);
        }
    }
    assert_int_equal(tern_op_force(ctx, NULL), TERN_OK);
}

/* A cancel callback that has a result made, or ends a scope that is not its own. */
struct answering {
    struct tern_context *ctx;
    tern_tensor *x;
    bool ends;
    int asked, depth, deepest;
};

static bool answer(void *user)
{
    struct answering *a = user;
    a->asked++;
    a->depth++;
    a->deepest = a->depth > a->deepest ? a->depth : a->deepest;
    if (a->ends)
        tern_scope_end(a->ctx, NULL);
    else if (a->depth < 9)
        tern_tensor_unref(&(tern_tensor *){tern_neg(a->x)}); /* it is the callback's */
    a->depth--;
    return false;
}

/* It is not asked about what it calls itself, and asked again about what comes then. */
static void test_cancel_may_call_ops(void **state)
{
    struct answering a = {0};
    a.ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = answer, .user = &a});
    assert_non_null(a.ctx);
    tern_scope_begin(a.ctx);
    a.x = tern_tensor_scalar(a.ctx, TERN_F32, 3);
    for (int i = 1; i < 4; i++) {
        float found = 0;
        assert_int_equal(tern_tensor_read(tern_add(a.x, a.x), TERN_F32, &found, sizeof(found)), TERN_OK);
        assert_true(found == 6);
        assert_int_equal(a.asked, i);
        assert_int_equal(a.deepest, 1);
    }
    a.ends = true;
    assert_null(tern_add(a.x, a.x));
    assert_non_null(strstr(tern_error(a.ctx), "tern_scope_end without tern_scope_begin"));
    tern_error_clear(a.ctx);
    assert_int_equal(a.ctx->scopes.depth, 1);
    tern_scope_end(a.ctx, NULL);
    tern_context_destroy(&a.ctx);
}

/* Ops whose results lie in memory as their input does, in any order of its dimensions: all others are named in ops/format.c. */
static bool follows_its_input(enum tern_op op) { return tern_op_is_elementwise(op) || op == TERN_OP_cast || op == TERN_OP_quantize; }

static void test_formats(void **state)
{
    const int64_t shape[] = {2, 3, 4, 6}, stride[] = {12, 4, 1, 24};
    for (int op = 0; op < TERN_OP_COUNT; op++) {
        struct tern_op_desc d = {.op = (enum tern_op)op, .n_in = 1, .present = {true}};
        d.in[0] = d.out = tern_meta_make(TERN_F32, 4, shape);
        memcpy(d.in[0].stride, stride, sizeof(stride));
        tern_choose_format(ctx->device, &d);
        const bool follows = !memcmp(d.out.stride, stride, sizeof(stride));
        if (follows != follows_its_input(d.op))
            fail_msg("%s: its result %s; ops/format.c says how results lie", tern_op_get(d.op).name,
                     follows ? "follows its input" : "does not follow its input");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_of_libraries), /* before others let them start some */
        cmocka_unit_test(test_libraries_in_a_child),
        cmocka_unit_test_setup_teardown(test_views, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reshape_views, setup, teardown),
        cmocka_unit_test_setup_teardown(test_identities, setup, teardown),
        cmocka_unit_test_setup_teardown(test_convolution_params, setup, teardown),
        cmocka_unit_test_setup_teardown(test_picture_params, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_params, setup, teardown),
        cmocka_unit_test_setup_teardown(test_as_pytorch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_messages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_group_norm_halves, setup, teardown),
        cmocka_unit_test_setup_teardown(test_formats, setup, teardown),
        cmocka_unit_test_setup_teardown(test_null, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kernels_by_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_packed_for_each_dilation, setup, teardown),
        cmocka_unit_test(test_cancel_may_call_ops),
        cmocka_unit_test(test_conversions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

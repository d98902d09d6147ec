/* A picture's bits do not depend on how many pictures go with it: each op's results for the first n of a batch are those of the whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "support.h"

#define BATCH 18
#define MOST_TAKEN 11

/* of the dtype of x */
#define NOISE(seed, ...)                                                                                                                \
    support_noise(tern_tensor_context(x), seed, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}, 1, \
                  tern_tensor_dtype(x))

static tern_tensor *channels_last(tern_tensor *x) { return tern_contiguous(x, TERN_CHANNELS_LAST); }

static tern_tensor *conv2d_1x1(tern_tensor *x) { return tern_conv2d(channels_last(x), NOISE(2, 16, 8, 1, 1), NOISE(3, 16)); }

static tern_tensor *conv2d_3x3(tern_tensor *x) { return tern_conv2d(channels_last(x), NOISE(2, 16, 8, 3, 3), NOISE(3, 16), .padding = 1); }

static tern_tensor *conv2d_strided(tern_tensor *x)
{
    return tern_conv2d(channels_last(x), NOISE(2, 16, 8, 3, 3), NOISE(3, 16), .stride = 2, .padding = 1);
}

static tern_tensor *group_norm(tern_tensor *x) { return tern_group_norm(x, 4, NOISE(2, 8), NOISE(3, 8), 1e-5); }
static tern_tensor *group_norm_last(tern_tensor *x) { return group_norm(channels_last(x)); }
static tern_tensor *layer_norm(tern_tensor *x) { return tern_layer_norm(x, 1, NOISE(2, 9), NOISE(3, 9), 1e-5); }
static tern_tensor *silu(tern_tensor *x) { return tern_silu(x); }
static tern_tensor *softmax(tern_tensor *x) { return tern_softmax(x, -1); }
static tern_tensor *upsample(tern_tensor *x) { return tern_interpolate(channels_last(x), .size = {14, 18}, .mode = TERN_NEAREST); }
static tern_tensor *linear(tern_tensor *x) { return tern_linear(x, NOISE(2, 16, 9), NOISE(3, 16)); }
static tern_tensor *linear_row(tern_tensor *x) { return tern_linear(tern_flatten(x, 1, 3), NOISE(2, 16, 504), NOISE(3, 16)); }
static tern_tensor *linear_geglu(tern_tensor *x) { return tern_linear_geglu(x, NOISE(2, 64, 9), NOISE(3, 64)); }
static tern_tensor *sdpa(tern_tensor *x) { return tern_sdpa(x, x, x); }

static tern_tensor *sdpa_text(tern_tensor *x)
{
    tern_tensor *text = tern_slice(NOISE(2, BATCH, 8, 32, 9), 0, 0, tern_tensor_size(x, 0), 1);
    return tern_sdpa(x, text, text);
}

static tern_tensor *quantized_linear(tern_tensor *x) { return tern_quantized_linear(x, NOISE(2, 16, 9), NULL, NOISE(3, 16)); }

static tern_tensor *quantized_conv2d(tern_tensor *x)
{
    return tern_quantized_conv2d(channels_last(x), NOISE(2, 16, 8, 3, 3), NULL, NOISE(3, 16), .padding = 1);
}

static const struct {
    const char *name;
    tern_tensor *(*run)(tern_tensor *x);
} ops[] = {
    {"conv2d 1x1", conv2d_1x1},
    {"conv2d 3x3", conv2d_3x3},
    {"conv2d 3x3 strided", conv2d_strided},
    {"group_norm", group_norm},
    {"group_norm of channels last", group_norm_last},
    {"layer_norm", layer_norm},
    {"silu", silu},
    {"softmax", softmax},
    {"interpolate", upsample},
    {"linear", linear},
    {"linear of one row a picture", linear_row},
    {"linear_geglu", linear_geglu},
    {"quantized_conv2d", quantized_conv2d},
    {"quantized_linear", quantized_linear},
    {"sdpa", sdpa},
    {"sdpa with a text", sdpa_text},
};

static float *values_of(struct tern_context *ctx, tern_tensor *x, int64_t *n)
{
    if (!x)
        fail_msg("%s", tern_error(ctx));
    return support_values(x, n);
}

static void same_bits_in_any_batch(enum tern_dtype dtype)
{
    struct tern_context *ctx = support_context();
    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
        for (int taken = 1; taken <= MOST_TAKEN; taken++) {
            int64_t n_all, n;
            tern_scope_begin(ctx);
            tern_tensor *x = support_noise(ctx, 1, 4, (int64_t[]){BATCH, 8, 7, 9}, 1, dtype);
            tern_tensor *some = tern_contiguous(tern_slice(x, 0, 0, taken, 1), TERN_CONTIGUOUS);
            float *all = values_of(ctx, ops[i].run(x), &n_all), *first = values_of(ctx, ops[i].run(some), &n);
            assert_int_equal(n * BATCH, n_all * taken);
            for (int64_t k = 0; k < n; k++)
                if (memcmp(all + k, first + k, sizeof(*all)))
                    fail_msg("%s, %s: %d of %d pictures: value %lld is %.9g, expected %.9g", ops[i].name, tern_dtype_name(dtype), taken,
                             BATCH, (long long)k, (double)first[k], (double)all[k]);
            free(all);
            free(first);
            tern_scope_end(ctx, NULL);
        }
    tern_context_destroy(&ctx);
}

static void test_f32(void **state) { same_bits_in_any_batch(TERN_F32); }
static void test_bf16(void **state) { same_bits_in_any_batch(TERN_BF16); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Winograd's convolution by whole numbers of 16 bits: its functions against their rule, in whole numbers and in double; what a plan's layer
 * rounds; values near the ends of the range of bf16, and what is no number. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/graph.h>
#include <tern/ops.h>

#include "backends/cpu/cpu.h"
#include "core/context.h"
#include "ops/dispatch.h"
#include "ops/reference.h"
#include "support.h"

#define KERNEL "conv2d_bf16_winograd"
#define POINTS 36
#define DEPTH TERN_WINOGRAD_I16_DEPTH
#define NORM 32760.0

static const struct tern_cpu_level *level_with_it(void)
{
    const struct tern_cpu_level *found = NULL;
    for (int i = 0; tern_cpu_levels()[i]; i++)
        if (tern_cpu_levels()[i]->winograd_i16.multiply && tern_cpu_levels()[i]->available())
            found = tern_cpu_levels()[i];
    if (!found) {
        print_message("this machine has no instructions for it\n");
        skip();
    }
    return found;
}

static uint32_t seed = 1;
static int draw(int from, int to)
{
    seed = seed * 1664525u + 1013904223u;
    return from + (int)(seed >> 8) % (to - from + 1);
}

static double norm_of(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* ---- the input: what winograd_input gives, which its own test compares with double, in units of its norm */

/* n channels of pixels that are `size` large but for channel `odd`, which is as large as all others together and more. */
static void check_input(const struct tern_cpu_level *l, enum tern_dtype dtype, int n, double size, int odd)
{
    enum { STEP = DEPTH + 24, ROWS = 3 };
    static float pixels[POINTS][DEPTH], values[POINTS][DEPTH], unit[POINTS * ROWS];
    static int16_t v[POINTS * STEP];
    const void *x[POINTS];
    const int filled = (n + 31) / 32 * 32;
    for (int p = 0; p < POINTS; p++) {
        for (int c = 0; c < n; c++)
            tern_store(dtype, pixels[p], c, draw(-1000, 1000) * size / 1000 * (c == odd ? 300 : 1));
        x[p] = pixels[p];
    }
    memset(v, 0x55, sizeof(v));
    memset(unit, 0, sizeof(unit));
    l->winograd_input(dtype, n, x, values[0], DEPTH);
    l->winograd_i16.input(dtype, n, x, v, STEP, unit + 1, ROWS);
    for (int p = 0; p < POINTS; p++) {
        double exact[DEPTH], whole[DEPTH];
        for (int c = 0; c < n; c++) {
            exact[c] = values[p][c];
            whole[c] = v[p * STEP + c];
        }
        const double of = norm_of(exact, n), count = unit[p * ROWS + 1];
        assert_true(unit[p * ROWS] == 0 && fabs(count * NORM / of - 1) < 1e-5);
        assert_true(norm_of(whole, n) <= 32767);
        for (int c = 0; c < n; c++)
            if (!(fabs(whole[c] - exact[c] / count) <= 0.51))
                fail_msg("%d channels of %g: value %d of point %d is %g, expected %g", n, size, c, p, whole[c], exact[c] / count);
        for (int c = n; c < STEP; c++)
            assert_int_equal(v[p * STEP + c], c < filled ? 0 : 0x5555);
    }
}

static void test_input(void **state)
{
    const struct tern_cpu_level *l = level_with_it();
    for (int n = 1; n <= DEPTH; n++)
        check_input(l, TERN_F32 + n % 3, n, 1, n % 2 ? draw(0, n - 1) : -1);
    for (int power = -30; power <= 30; power += 4) /* squares of these leave the range of f32 */
        check_input(l, TERN_BF16, 1 + (power + 30) * 2, pow(10, power), 0);
}

/* A tile of zeros has none, and a value that is no number makes the row one. */
static void test_input_without_a_norm(void **state)
{
    static const float odd[] = {0, INFINITY, -INFINITY, NAN};
    const struct tern_cpu_level *l = level_with_it();
    for (int k = 0; k < 4; k++) {
        float pixels[POINTS] = {0}, unit[POINTS];
        static int16_t v[POINTS * 32];
        const void *x[POINTS];
        for (int p = 0; p < POINTS; p++)
            x[p] = &pixels[p];
        pixels[14] = odd[k];
        l->winograd_i16.input(TERN_F32, 1, x, v, 32, unit, 1);
        for (int p = 0; p < POINTS; p++)
            if (k == 0)
                assert_true(v[p * 32] == 0 && unit[p] > 0 && unit[p] < 1e-30);
        assert_true(k == 0 || isnan(unit[14]));
    }
}

/* ---- the weights */

static void check_filter(const struct tern_cpu_level *l, enum tern_dtype dtype, int n, int width, bool by_channel)
{
    enum { WIDTH = TERN_GEMM_MAX_NR, MOST = 8, STEP = MOST * WIDTH + 16 };
    static float w[MOST * 9 * WIDTH], u[POINTS * STEP], squares[POINTS * WIDTH], scale[POINTS * WIDTH];
    static int16_t whole[POINTS * STEP];
    const int channel = by_channel ? 9 * width : width, tap = by_channel ? width : n * width, pairs = (n + 1) / 2;
    for (int i = 0; i < n * 9 * width; i++)
        tern_store(dtype, w, i, draw(-127, 127) / 32.0);
    for (int i = 0; i < POINTS * width; i++) {
        squares[i] = (float)draw(0, 3);
        scale[i] = (float)draw(1, 2000);
    }
    memset(whole, 0x55, sizeof(whole));
    l->winograd_filter(dtype, n, width, w, channel, tap, u, STEP);
    l->winograd_i16.filter(dtype, n, width, w, channel, tap, scale, whole, STEP);
    float before[POINTS * WIDTH];
    memcpy(before, squares, sizeof(before));
    l->winograd_i16.squares(dtype, n, width, w, channel, tap, squares);
    for (int p = 0; p < POINTS; p++) {
        for (int j = 0; j < width; j++) {
            double sum = before[p * width + j];
            for (int i = 0; i < 2 * pairs; i++) {
                const double exact = i < n ? (double)u[p * STEP + i * width + j] : 0;
                const int16_t found = whole[p * STEP + (i / 2 * width + j) * 2 + i % 2];
                if (!(fabs(found - exact * scale[p * width + j]) <= 0.51))
                    fail_msg("%d channels: value %d, %d of point %d is %d, expected %g", n, i, j, p, found, exact * scale[p * width + j]);
                sum += exact * exact;
            }
            assert_true(fabs(squares[p * width + j] - sum) <= 1e-5 * (1 + sum));
        }
        for (int i = pairs * 2 * width; i < STEP; i++)
            assert_int_equal(whole[p * STEP + i], 0x5555);
    }
}

static void test_filter(void **state)
{
    const struct tern_cpu_level *l = level_with_it();
    for (int i = 0; i < 48; i++)
        check_filter(l, TERN_F32 + i % 3, 1 + i / 6, i / 3 % 2 ? l->nr : l->nr / 2, i % 4 < 2);
}

/* ---- the products: exact, in whole numbers, times what the row counts; a sum as large as two norms allow */

static void check_multiply(const struct tern_cpu_level *l, int rows, int depth, bool half, bool accumulate)
{
    enum { ROWS = 40, LDV = DEPTH + 32, LDM = TERN_GEMM_MAX_NR + 8 };
    static int16_t v[ROWS * LDV], u[DEPTH * TERN_GEMM_MAX_NR];
    static float m[ROWS * LDM], before[ROWS * LDM], unit[ROWS];
    const int width = half ? l->nr / 2 : l->nr, most = (int)(32767 / sqrt(depth));
    for (int i = 0; i < ROWS * LDV; i++)
        v[i] = (int16_t)draw(-most, most);
    for (int i = 0; i < depth * width; i++)
        u[i] = (int16_t)draw(-most, most);
    for (int i = 0; i < depth; i++) { /* row 0 and column 0 point the same way */
        v[i] = (int16_t)(i ? most : -most);
        u[i / 2 * width * 2 + i % 2] = v[i];
    }
    for (int i = 0; i < rows; i++)
        unit[i] = (float)draw(1, 999) / 4096;
    for (int i = 0; i < ROWS * LDM; i++)
        m[i] = before[i] = (float)draw(-999, 999) / 64;
    l->winograd_i16.multiply(rows, depth, v, LDV, u, half, unit, m, LDM, accumulate);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < LDM; j++) {
            int64_t sum = 0; /* exact; the largest is that of (0, 0) */
            for (int k = 0; k < depth && i < rows && j < width; k++)
                sum += v[i * LDV + k] * u[(k / 2 * width + j) * 2 + k % 2];
            const float exact = fmaf((float)sum, unit[i], accumulate ? before[i * LDM + j] : 0);
            const float wanted = i < rows && j < width ? exact : before[i * LDM + j];
            if (memcmp(&m[i * LDM + j], &wanted, sizeof(wanted)))
                fail_msg("%d rows, depth %d: (%d, %d) is %.9g, expected %.9g", rows, depth, i, j, m[i * LDM + j], wanted);
        }
}

static void test_multiply(void **state)
{
    const struct tern_cpu_level *l = level_with_it();
    for (int rows = 1; rows <= 40; rows++)
        check_multiply(l, rows, 2 * draw(1, DEPTH / 2), rows % 2, rows / 2 % 2);
    for (int i = 0; i < 4; i++) {
        check_multiply(l, 25, DEPTH, i % 2, i / 2);
        check_multiply(l, 13, 2, i % 2, i / 2);
    }
}

/* ---- layers */

struct layer {
    struct tern_context *ctx;
    struct tern_weights *weights;
};

static enum tern_status wide_layer(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct layer *b = user;
    out[0] = tern_cast(tern_conv2d(in[0], tern_weights_get(b->weights, "w"), NULL, .padding = 1), TERN_F32);
    return tern_error_status(b->ctx);
}

static void note_kernel(void *user, const struct tern_step_profile *step)
{
    if (!strcmp(step->op, "conv2d"))
        *(bool *)user = !strcmp(step->kernel, KERNEL);
}

/* A plan's layer, and the same by sums in double, both in f32. False: the plan takes another kernel. */
static bool run_layer(struct tern_context *ctx, tern_tensor *x, tern_tensor *w, tern_tensor **found, tern_tensor **exact)
{
    struct layer b = {ctx, tern_weights_create(ctx)};
    struct tern_graph_input input = {"x", TERN_BF16, 4, {x->meta.shape[0], x->meta.shape[1], x->meta.shape[2], x->meta.shape[3]}};
    bool taken = false;
    assert_int_equal(tern_weights_add(b.weights, "w", w), TERN_OK);
    struct tern_graph *g = tern_graph_trace(ctx, wide_layer, &b, b.weights, &input, 1, 1);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    struct tern_binding *binding = tern_plan_bind(plan, b.weights);
    *found = NULL;
    if (!binding || tern_plan_profile(binding, &x, found, note_kernel, &taken))
        fail_msg("%s", tern_error(ctx));
    assert_int_equal(tern_dispatch_force(ctx, "reference"), TERN_OK);
    *exact = tern_conv2d(tern_cast(x, TERN_F32), tern_cast(w, TERN_F32), NULL, .padding = 1);
    assert_int_equal(tern_dispatch_force(ctx, NULL), TERN_OK);
    tern_binding_unref(&binding);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_weights_unref(&b.weights);
    return taken;
}

static tern_tensor *rounded(struct tern_context *ctx, int64_t n, int64_t c, int64_t h, int64_t w, const float *values)
{
    return tern_cast(tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){n, c, h, w}, values), TERN_BF16);
}

/* A context whose level has it; plans of levels with tiles, which have it from the level below, multiply bf16 as it is. */
static struct tern_context *context(void)
{
    struct tern_context *ctx = support_context();
    if (!cpu_level(ctx)->winograd_i16.multiply || cpu_level(ctx)->bf16.gain != 2) {
        tern_context_destroy(&ctx);
        print_message("plans of this level do not take it\n");
        skip();
    }
    return ctx;
}

/* Variance 1, nothing rounds to bf16 behind it; that would be 2.8e-6. */
static void rounding_error(void **state)
{
    struct tern_context *ctx = context();
    for (int64_t channels = 64; channels <= 640; channels *= 10) {
        tern_tensor *found, *exact;
        tern_scope_begin(ctx);
        tern_tensor *x = support_noise(ctx, 2, 4, (const int64_t[]){1, channels, 32, 32}, 1, TERN_BF16);
        assert_true(run_layer(ctx, x, support_noise(ctx, 1, 4, (const int64_t[]){32, channels, 3, 3}, 1, TERN_BF16), &found, &exact));
        const double e = support_tensor_nmse(found, exact);
        print_message("%d channels: NMSE %.2g\n", (int)channels, e);
        assert_true(e >= 1e-8 && e <= 8e-7);
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
}

/* Pictures and weights of any size have the same relative error, and zeros give zeros. */
static void sizes_of_values(void **state)
{
    static const double sizes[][2] = {{1e-28, 1}, {1e-18, 1e-12}, {1, 1e-25}, {1e25, 1e-22}, {1e-12, 1e24}, {1e30, 1}, {0, 1}, {1, 0}};
    struct tern_context *ctx = context();
    for (int i = 0; i < 8; i++) {
        tern_tensor *found, *exact;
        tern_scope_begin(ctx);
        tern_tensor *x = support_noise(ctx, 2, 4, (const int64_t[]){1, 72, 24, 20}, sizes[i][0], TERN_BF16);
        assert_true(run_layer(ctx, x, support_noise(ctx, 1, 4, (const int64_t[]){40, 72, 3, 3}, sizes[i][1], TERN_BF16), &found, &exact));
        const double e = support_tensor_nmse(found, exact);
        if (!(e <= (i < 6 ? 8e-7 : 0)))
            fail_msg("pictures of %g, weights of %g: NMSE %g", sizes[i][0], sizes[i][1], e);
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
}

/* A row counts in its norm: of an input channel that is 100 times the others, with weights that are 1 / 100, the others have seven bits
 * fewer. */
static void one_large_channel(void **state)
{
    enum { C = 64, O = 32, H = 32, W = 32 };
    struct tern_context *ctx = context();
    for (int times = 1; times <= 100; times *= 10) {
        tern_tensor *found, *exact;
        int64_t n;
        tern_scope_begin(ctx);
        float *x = support_values(support_noise(ctx, 1, 4, (const int64_t[]){1, C, H, W}, 1, TERN_F32), &n);
        float *w = support_values(support_noise(ctx, 2, 4, (const int64_t[]){O, C, 3, 3}, 1, TERN_F32), &n);
        for (int i = 0; i < H * W; i++)
            x[5 * H * W + i] *= (float)times;
        for (int i = 0; i < O * 9; i++)
            w[(i / 9 * C + 5) * 9 + i % 9] /= (float)times;
        assert_true(run_layer(ctx, rounded(ctx, 1, C, H, W, x), rounded(ctx, O, C, 3, 3, w), &found, &exact));
        const double e = support_tensor_nmse(found, exact);
        print_message("a channel of %d times the others: NMSE %.2g\n", times, e);
        assert_true(e <= 4e-7 + 4e-9 * times * times);
        free(x);
        free(w);
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
}

/* Picture i of a batch has the bits of a run alone. */
static void bits_of_a_batch(void **state)
{
    enum { C = 200, O = 72, H = 24, W = 20 };
    struct tern_context *ctx = context();
    int64_t n, one = 0;
    tern_scope_begin(ctx);
    float *x = support_values(support_noise(ctx, 1, 4, (const int64_t[]){3, C, H, W}, 1, TERN_F32), &n);
    tern_tensor *w = support_noise(ctx, 2, 4, (const int64_t[]){O, C, 3, 3}, 1, TERN_BF16), *y[4], *exact;
    for (int i = 0; i < 4; i++) { /* all, then each */
        tern_tensor *in = i ? rounded(ctx, 1, C, H, W, x + (i - 1) * (C * H * W)) : rounded(ctx, 3, C, H, W, x);
        assert_true(run_layer(ctx, in, w, &y[i], &exact));
    }
    float *all = support_values(y[0], &n);
    for (int i = 1; i < 4; i++) {
        float *alone = support_values(y[i], &one);
        assert_int_equal(one * 3, n);
        assert_memory_equal(alone, all + (i - 1) * one, (size_t)one * sizeof(*alone));
        free(alone);
    }
    free(all);
    free(x);
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* An infinite weight gives no number in its output channel, an infinite pixel in the tiles that see it; nowhere else. */
static void what_is_no_number(void **state)
{
    enum { C = 64, O = 48, H = 24, W = 24 };
    struct tern_context *ctx = context();
    for (int i = 0; i < 2; i++) {
        tern_tensor *found, *exact;
        int64_t n;
        tern_scope_begin(ctx);
        float *x = support_values(support_noise(ctx, 1, 4, (const int64_t[]){1, C, H, W}, 1, TERN_F32), &n);
        float *w = support_values(support_noise(ctx, 2, 4, (const int64_t[]){O, C, 3, 3}, 1, TERN_F32), &n);
        *(i ? &x[(5 * H + 9) * W + 9] : &w[(7 * C + 3) * 9 + 4]) = INFINITY; /* channel 5, pixel (9, 9); filter 7, input channel 3 */
        assert_true(run_layer(ctx, rounded(ctx, 1, C, H, W, x), rounded(ctx, O, C, 3, 3, w), &found, &exact));
        float *y = support_values(found, &n);
        for (int64_t k = 0; k < n; k++) {
            const int64_t o = k / (H * W), row = k / W % H, col = k % W;
            const bool seen = i ? row >= 8 && row < 12 && col >= 8 && col < 12 : o == 7;
            assert_int_equal(isfinite(y[k]) != 0, !seen);
        }
        free(x);
        free(w);
        free(y);
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
}

int main(void)
{
    for (int i = 0; tern_cpu_levels()[i]; i++) { /* the lowest that has it, unless another one is named */
        const struct tern_cpu_level *l = tern_cpu_levels()[i];
        if (l->winograd_i16.multiply && l->available() && !l->emulated) {
            setenv("TERN_CPU_LEVEL", l->name, 0);
            break;
        }
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_input),        cmocka_unit_test(test_input_without_a_norm),
        cmocka_unit_test(test_filter),       cmocka_unit_test(test_multiply),
        cmocka_unit_test(rounding_error),    cmocka_unit_test(sizes_of_values),
        cmocka_unit_test(one_large_channel), cmocka_unit_test(bits_of_a_batch),
        cmocka_unit_test(what_is_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

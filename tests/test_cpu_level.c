/* The inner loops of every CPU level that this machine has, against double precision. The limits below are the stated
 * errors of the vector functions. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/cpu/level/level.h"
#include "ops/reference.h"

#define FOR_EACH_LEVEL(l)                                     \
    for (int level_ = 0; tern_cpu_levels()[level_]; level_++) \
        for (const struct tern_cpu_level *l = tern_cpu_levels()[level_]; l && l->available(); l = NULL)

struct function {
    enum tern_cpu_unary which;
    bool half; /* that for results of 16 bits */
    const char *name;
    double (*exact)(double);
    float from, to;
    double relative, absolute; /* an error may be relative * |exact| + absolute */
};

static double sigmoid_exact(double x) { return 1 / (1 + exp(-x)); }
static double silu_exact(double x) { return x * sigmoid_exact(x); }
static double gelu_exact(double x) { return 0.5 * x * erfc(-x * M_SQRT1_2); }
static double gelu_tanh_exact(double x) { return x * sigmoid_exact(2 * 0.79788456080286536 * (x + 0.044715 * x * x * x)); }
static double quick_gelu_exact(double x) { return x * sigmoid_exact(1.702 * x); }
static double rsqrt_exact(double x) { return 1 / sqrt(x); }

static const struct function functions[] = {
    {TERN_CPU_EXP, false, "exp", exp, -87, 88.7f, 2e-7, 0},
    {TERN_CPU_EXP, false, "exp of small results", exp, -103, -87, 0, 2e-45},
    {TERN_CPU_TANH, false, "tanh", tanh, -12, 12, 3e-7, 0},
    {TERN_CPU_SIGMOID, false, "sigmoid", sigmoid_exact, -80, 80, 4e-7, 0},
    {TERN_CPU_SILU, false, "silu", silu_exact, -80, 80, 5e-7, 0},
    {TERN_CPU_GELU, false, "gelu", gelu_exact, -12, 12, 3e-7, 3e-7},
    {TERN_CPU_GELU_TANH, false, "gelu_tanh", gelu_tanh_exact, -12, 12, 3e-7, 5e-7},
    {TERN_CPU_QUICK_GELU, false, "quick_gelu", quick_gelu_exact, -40, 40, 5e-6, 0}, /* 1.702 x is rounded */
    {TERN_CPU_SQRT, false, "sqrt", sqrt, 0, 1e6f, 1e-7, 0},
    {TERN_CPU_RSQRT, false, "rsqrt", rsqrt_exact, 1e-6f, 1e6f, 2e-7, 0},
    {TERN_CPU_SIGMOID, true, "sigmoid of 16 bits", sigmoid_exact, -80, 80, 1e-4, 0},
    {TERN_CPU_SILU, true, "silu of 16 bits", silu_exact, -80, 80, 1e-4, 0},
    {TERN_CPU_GELU, true, "gelu of 16 bits", gelu_exact, -12, 12, 1.5e-4, 0},
    {TERN_CPU_GELU_TANH, true, "gelu_tanh of 16 bits", gelu_tanh_exact, -9, 12, 1e-4, 0},
    {TERN_CPU_QUICK_GELU, true, "quick_gelu of 16 bits", quick_gelu_exact, -40, 40, 1e-4, 0},
};

static void test_functions(void **state)
{
    enum { COUNT = 100003 };
    float *x = malloc(COUNT * sizeof(*x)), *y = malloc(COUNT * sizeof(*y));
    assert_non_null(x);
    assert_non_null(y);
    FOR_EACH_LEVEL(l)
    for (size_t f = 0; f < sizeof(functions) / sizeof(*functions); f++) {
        const struct function *q = &functions[f];
        double worst = 0;
        for (int i = 0; i < COUNT; i++)
            x[i] = q->from + (q->to - q->from) * (float)i / (COUNT - 1);
        (q->half ? l->unary_half : l->unary)[q->which](COUNT, x, y, 0);
        for (int i = 0; i < COUNT; i++) {
            double exact = q->exact(x[i]), off = fabs(y[i] - exact), error = off == 0 ? 0 : off / (q->relative * fabs(exact) + q->absolute);
            if (!(error <= worst))
                worst = error;
            if (!(error <= 1))
                fail_msg("%s, %s: f(%.9g) is %.9g, expected %.9g", l->name, q->name, x[i], y[i], exact);
        }
        print_message("%s %s: %.2f of the limit\n", l->name, q->name, worst);
    }
    free(x);
    free(y);
}

static void test_special_values(void **state)
{
    const float x[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-40f, 200, -200, -3e38f};
    float y[9];
    FOR_EACH_LEVEL(l)
    {
        l->unary[TERN_CPU_EXP](8, x, y, 0);
        assert_true(isnan(y[0]) && isinf(y[1]) && y[1] > 0 && y[2] == 0 && y[3] == 1 && y[4] == 1 && y[5] == 1 && isinf(y[6]) && y[7] == 0);
        l->unary[TERN_CPU_TANH](8, x, y, 0);
        assert_true(isnan(y[0]) && y[1] == 1 && y[2] == -1 && y[3] == 0 && signbit(y[4]) && y[6] == 1 && y[7] == -1);
        l->unary[TERN_CPU_GELU](8, x, y, 0);
        assert_true(isnan(y[0]) && isinf(y[1]) && y[3] == 0 && y[6] == 200 && y[7] == 0);
        for (int half = 0; half < 2; half++) {
            tern_cpu_unary_fn *const *unary = half ? l->unary_half : l->unary;
            const float near = half ? 1e-4f : 1e-6f;
            unary[TERN_CPU_SIGMOID](9, x, y, 0);
            assert_true(isnan(y[0]) && fabsf(y[1] - 1) < near && y[2] >= 0 && y[2] < 1e-37f && fabsf(y[3] - 0.5f) < near &&
                        fabsf(y[6] - 1) < near && y[7] < 1e-37f && y[8] == 0);
            static const enum tern_cpu_unary alike[] = {TERN_CPU_SILU, TERN_CPU_GELU, TERN_CPU_GELU_TANH, TERN_CPU_QUICK_GELU};
            for (int i = 0; i < 4; i++) {
                unary[alike[i]](9, x, y, 0);
                assert_true(isnan(y[0]) && isinf(y[1]) && y[1] > 0 && y[3] == 0 && y[4] == 0 && fabsf(y[6] - 200) < 200 * near &&
                            fabsf(y[7]) < 1e-35f && fabsf(y[8]) < 1e-35f);
            }
        }
        l->unary[TERN_CPU_RELU](8, x, y, 0);
        assert_true(isnan(y[0]) && isinf(y[1]) && y[2] == 0 && y[6] == 200 && y[7] == 0);
    }
}

/* All 65536 halves, both kinds, there and back; and the roundings between neighbours. */
static void test_conversions(void **state)
{
    enum { COUNT = 65536 };
    uint16_t *h = malloc(COUNT * sizeof(*h)), *back = malloc(COUNT * sizeof(*back));
    float *f = malloc(COUNT * sizeof(*f));
    static const enum tern_dtype dtypes[] = {TERN_F16, TERN_BF16};
    for (int i = 0; i < COUNT; i++)
        h[i] = (uint16_t)i;
    FOR_EACH_LEVEL(l)
    for (int d = 0; d < 2; d++) {
        l->to_f32(dtypes[d], COUNT, h, f);
        l->from_f32(dtypes[d], COUNT, f, back);
        for (int i = 0; i < COUNT; i++) {
            double exact = tern_load(dtypes[d], h, i);
            if (isnan(exact)) {
                assert_true(isnan(f[i]) && isnan(tern_load(dtypes[d], back, i)));
                continue;
            }
            if ((double)f[i] != exact || back[i] != h[i])
                fail_msg("%s %s: %04x became %g and %04x", l->name, tern_dtype_name(dtypes[d]), h[i], f[i], back[i]);
        }
        for (uint32_t i = 0; i < COUNT; i++) { /* any f32 patterns */
            uint32_t bits = i * 65537u ^ i << 13;
            memcpy(&f[i], &bits, sizeof(bits));
        }
        l->from_f32(dtypes[d], COUNT, f, back);
        for (int i = 0; i < COUNT; i++) {
            uint16_t expected;
            tern_store(dtypes[d], &expected, 0, f[i]);
            if (!isnan(f[i]) && back[i] != expected)
                fail_msg("%s %s: %.9g became %04x, expected %04x", l->name, tern_dtype_name(dtypes[d]), f[i], back[i], expected);
        }
    }
    free(h);
    free(back);
    free(f);
}

static float value(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / 8388608.0f - 1;
}

/* One tile of `rows` x `cols`: every element against double; nothing behind the columns is written. */
static void check_tile(const struct tern_cpu_level *l, int rows, int cols, int k, enum tern_dtype dtype, bool accumulate, bool with_bias)
{
    float a[TERN_GEMM_MAX_MR * 40], c[TERN_GEMM_MAX_MR * 64], before[TERN_GEMM_MAX_MR * 64], bias[TERN_GEMM_MAX_NR];
    float wide[40 * TERN_GEMM_MAX_NR];
    uint16_t narrow[40 * TERN_GEMM_MAX_NR];
    uint32_t seed = (uint32_t)(rows * 1000 + cols * 10 + k);
    bool half = cols <= l->nr / 2;
    int width = half ? l->nr / 2 : l->nr;
    for (int i = 0; i < rows * 40; i++)
        a[i] = value(&seed);
    for (int i = 0; i < k * width; i++) {
        wide[i] = value(&seed);
        if (dtype != TERN_F32) {
            tern_store(dtype, narrow, i, wide[i]);
            wide[i] = (float)tern_load(dtype, narrow, i);
        }
    }
    for (int i = 0; i < l->nr; i++)
        bias[i] = value(&seed);
    for (int i = 0; i < rows * 64; i++)
        c[i] = before[i] = value(&seed);
    l->gemm_tile(rows, cols, k, a, 40, dtype == TERN_F32 ? (const void *)wide : narrow, dtype, half, c, 64, accumulate,
                 with_bias ? bias : NULL);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < 64; j++) {
            double exact = before[i * 64 + j];
            if (j < cols) {
                exact = accumulate ? exact : with_bias ? bias[j] : 0;
                for (int t = 0; t < k; t++)
                    exact += (double)a[i * 40 + t] * wide[t * width + j];
            }
            if (fabs(c[i * 64 + j] - exact) > 1e-5)
                fail_msg("%s: %d x %d, k %d, %s: element (%d, %d) is %g, expected %g", l->name, rows, cols, k, tern_dtype_name(dtype), i, j,
                         c[i * 64 + j], exact);
        }
}

static void test_gemm_tile(void **state)
{
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};
    FOR_EACH_LEVEL(l)
    for (int rows = 1; rows <= TERN_GEMM_MAX_MR; rows++) /* of a tile and more */
        for (int cols = 1; cols <= l->nr; cols++)
            for (int d = 0; d < 3; d++)
                for (int mode = 0; mode < 3; mode++)
                    check_tile(l, rows, cols, 1 + (rows + cols) % 37, dtypes[d], mode == 1, mode == 2);
}

static void test_rows(void **state)
{
    enum { COUNT = 9001 };
    float *x = malloc(COUNT * sizeof(*x)), *e = malloc(COUNT * sizeof(*e));
    uint32_t seed = 7;
    double sum, square, exact_sum = 0, exact_square = 0, exact_exp = 0;
    for (int i = 0; i < COUNT; i++) {
        x[i] = 1000 + value(&seed);
        exact_sum += (double)x[i] - 1000;
        exact_square += ((double)x[i] - 1000) * ((double)x[i] - 1000);
        exact_exp += exp((double)x[i] - 1001);
    }
    FOR_EACH_LEVEL(l)
    {
        l->moments(TERN_F32, COUNT, x, 1000, &sum, &square);
        assert_true(fabs(sum - exact_sum) < 1e-3 && fabs(square - exact_square) < 1e-6 * exact_square);
        assert_true(fabs(l->sum(COUNT, x) / (exact_sum + 1000.0 * COUNT) - 1) < 1e-6);
        for (int n = 0; n < 70; n++) { /* every length of tail */
            float m = -INFINITY;
            for (int i = 0; i < n; i++)
                m = fmaxf(m, x[i]);
            assert_true(l->max(n, x) == m);
        }
        memcpy(e, x, COUNT * sizeof(*x));
        assert_true(fabs(l->exp_sum(COUNT, e, 1001) / exact_exp - 1) < 1e-5);
        for (int i = 0; i < COUNT; i++)
            assert_true(fabs(e[i] - exp((double)x[i] - 1001)) < 1e-6);
    }
    free(x);
    free(e);
}

/* Exponentials below the largest: each and the sum, at every length of tail. What is no normal number may be zero, a score that is hidden
 * is, and no number stays none. */
static void test_exp_sum(void **state)
{
    enum { COUNT = 3001 };
    static float x[COUNT], y[COUNT];
    FOR_EACH_LEVEL(l)
    for (int n = COUNT; n > 0; n = n > 70 ? 70 : n - 1) {
        const float most = 3, from = -84, to = 88; /* of x - most */
        double sum = 0;
        for (int i = 0; i < n; i++)
            y[i] = x[i] = most + (i == 0 ? 0 : from + (to - from) * (float)i / (float)n);
        const double found = l->exp_sum(n, y, most);
        for (int i = 0; i < n; i++) {
            const double exact = exp((double)x[i] - most);
            sum += exact;
            if (!(fabs(y[i] - exact) <= 2e-7 * exact))
                fail_msg("%s: exp of %.9g is %.9g, expected %.9g", l->name, x[i] - most, y[i], exact);
        }
        assert_true(sum > FLT_MAX / 2 || fabs(found - sum) <= 1e-5 * sum);
        assert_true(y[0] == 1);
        const float special[] = {-INFINITY, -1e30f, NAN, most};
        memcpy(y, special, sizeof(special));
        assert_true(isnan(l->exp_sum(4, y, most)));
        assert_true(y[0] == 0 && y[1] == 0 && isnan(y[2]) && y[3] == 1);
    }
}

/* Powers of two in f32: of normal results within 1.7e-7 of each, 1 where the exponent is zero, and zero far below. What is too large, or
 * no number, is told. */
static void test_power_f32(void **state)
{
    enum { COUNT = 32 * 4000 };
    float *x = malloc(COUNT * sizeof(*x)), *y = malloc(COUNT * sizeof(*y));
    assert_true(x && y);
    FOR_EACH_LEVEL(l)
    {
        const float most = 1.5f;
        double worst = 0;
        for (int i = 0; i < COUNT; i++)
            x[i] = most + (float)(i - COUNT / 32 * 30) * 0x1p-9f; /* 2^-234 to 2^15 */
        assert_false(l->attention_f32.power(COUNT, x, 1, most, y));
        for (int i = 0; i < COUNT; i++) {
            const double exact = exp2((double)x[i] - most);
            if (exact >= FLT_MIN)
                worst = fmax(worst, fabs(y[i] / exact - 1));
            else
                assert_true(y[i] >= 0 && y[i] <= FLT_MIN);
        }
        print_message("%s: largest error of a power %.3g\n", l->name, worst);
        assert_true(worst <= 1.7e-7 && y[COUNT / 32 * 30] == 1 && y[0] == 0);
        for (int i = 0; i < 7; i++) {
            const float odd[] = {-INFINITY, -1e30f, 7.99f, 8.01f, 128, 3e38f, NAN};
            float row[32] = {0};
            row[i * 5] = odd[i];
            assert_int_equal(l->attention_f32.power(32, row, 1, 0, y), i < 3);
            assert_true(i > 1 || y[i * 5] == 0);
        }
    }
    free(x);
    free(y);
}

/* The finite points of Winograd's tiles; behind them there is infinity. */
static const double points[] = {0, 0.625, -0.625, 1.5, -1.5};

/* Coefficients of the product of (x - q) over the finite points q but `skip` (5: none), lowest power first. */
static void product_without(int skip, double out[6])
{
    double p[7] = {0, 1}; /* p[i + 1]: of x^i */
    for (int q = 0; q < 5; q++)
        for (int i = 6; q != skip && i > 0; i--)
            p[i] = p[i - 1] - points[q] * p[i];
    memcpy(out, p + 1, 6 * sizeof(*out));
}

/* Row j of the output's matrix: powers of the points; infinity counts for the highest. */
static double power(int row, int point) { return point == 5 ? row == 3 : pow(points[point], row); }

enum { WINOGRAD_STEP = 80 };
typedef float winograd_rows[WINOGRAD_STEP];

/* Both transforms of n channels as matrix products in double; nothing else is written. dtype: of the input's pixels. unit: of products, or
 * NULL. */
static void check_winograd(const struct tern_cpu_level *l, enum tern_dtype dtype, int n, bool back, winograd_rows *values,
                           winograd_rows *unit, const float *bias)
{
    static winograd_rows out[36], in[36], stored[36];
    const void *x[36];
    float *y[16];
    double b[6][6];
    const int side = back ? 4 : 6;
    memset(out, 0x7f, sizeof(out));
    for (int i = 0; i < 6; i++)
        product_without(i, b[i]);
    for (int i = 0; i < 36; i++) {
        x[i] = stored[i];
        for (int c = 0; c < WINOGRAD_STEP; c++) {
            tern_store(dtype, stored[i], c, values[i][c]);
            in[i][c] = (float)tern_load(dtype, stored[i], c);
        }
    }
    for (int i = 0; i < 16; i++)
        y[i] = i == 5 ? NULL : out[i]; /* an output outside of the picture */
    if (back)
        l->winograd_output(n, in[0], WINOGRAD_STEP, unit ? unit[0] : NULL, WINOGRAD_STEP, bias, y);
    else
        l->winograd_input(dtype, n, x, out[0], WINOGRAD_STEP);
    for (int i = 0; i < 36; i++)
        for (int c = 0; c < WINOGRAD_STEP; c++) {
            double exact = back && bias ? bias[c] : 0, size = fabs(exact) + 1;
            for (int k = 0; k < 36 && i < side * side; k++) {
                const double one = in[k][c] * (unit ? unit[k][c] : 1) *
                                   (back ? power(i / side, k / 6) * power(i % side, k % 6) : b[i / side][k / 6] * b[i % side][k % 6]);
                exact += one;
                size += fabs(one);
            }
            bool untouched = c >= n || i >= side * side || (back && i == 5);
            if (untouched ? memcmp(&out[i][c], &(uint32_t){0x7f7f7f7f}, 4) != 0 : !(fabs(out[i][c] - exact) <= 4e-7 * size))
                fail_msg("%s: %s of %d channels of %s: value %d of channel %d is %g, expected %g", l->name, back ? "output" : "input", n,
                         tern_dtype_name(dtype), i, c, out[i][c], exact);
        }
}

/* Every length of tail. */
static void test_winograd(void **state)
{
    static winograd_rows in[36], unit[36], bias;
    uint32_t seed = 9;
    for (int c = 0; c < WINOGRAD_STEP; c++) {
        bias[c] = value(&seed);
        for (int i = 0; i < 36; i++) {
            in[i][c] = value(&seed);
            unit[i][c] = value(&seed);
        }
    }
    FOR_EACH_LEVEL(l)
    for (int n = 1; n <= 70; n++) {
        for (enum tern_dtype dtype = TERN_F32; dtype <= TERN_BF16; dtype++)
            check_winograd(l, dtype, n, false, in, NULL, NULL);
        check_winograd(l, TERN_F32, n, true, in, n % 3 ? unit : NULL, n % 2 ? bias : NULL);
    }
}

/* G: 1, p, p^2 over the product of the distances to the other finite points; infinity counts for the highest. */
static double weight(int point, int tap)
{
    double b[6], distance = 0;
    product_without(point, b);
    for (int i = 0; i < 5; i++)
        distance += b[i] * power(i, point);
    return point == 5 ? tap == 2 : power(tap, point) / distance;
}

/* Filters of 3 channels for panels of one and two vectors, in values that all three dtypes hold, channel by channel or tap by tap; nothing
 * else is written. */
static void check_filter(const struct tern_cpu_level *l, enum tern_dtype dtype, int width, bool by_channel)
{
    enum { CHANNELS = 3, STEP = CHANNELS * TERN_GEMM_MAX_NR + 8 };
    static float w[CHANNELS * 9 * TERN_GEMM_MAX_NR], stored[CHANNELS * 9 * TERN_GEMM_MAX_NR], u[36 * STEP];
    const int channel = by_channel ? 9 * width : width, tap_step = by_channel ? width : CHANNELS * width;
    for (int i = 0; i < CHANNELS * 9 * TERN_GEMM_MAX_NR; i++)
        w[i] = (float)(i * 37 % 127 - 63) / 32;
    l->from_f32(dtype, CHANNELS * 9 * width, w, stored);
    memset(u, 0x7f, sizeof(u));
    l->winograd_filter(dtype, CHANNELS, width, stored, channel, tap_step, u, STEP);
    for (int point = 0; point < 36; point++)
        for (int i = 0; i < STEP; i++) {
            double exact = 0, size = 1e-3;
            for (int tap = 0; tap < 9 && i < CHANNELS * width; tap++) {
                const double one =
                    weight(point / 6, tap / 3) * weight(point % 6, tap % 3) * w[i / width * channel + tap * tap_step + i % width];
                exact += one;
                size += fabs(one);
            }
            const float *found = &u[point * STEP + i];
            if (i < CHANNELS * width ? !(fabs(*found - exact) <= 4e-7 * size) : memcmp(found, &(uint32_t){0x7f7f7f7f}, 4) != 0)
                fail_msg("%s: value %d of point %d is %g, expected %g", l->name, i, point, *found, exact);
        }
}

static void test_winograd_filter(void **state)
{
    FOR_EACH_LEVEL(l)
    for (enum tern_dtype dtype = TERN_F32; dtype <= TERN_BF16; dtype++)
        for (int at = 0; at < 4; at++)
            check_filter(l, dtype, at % 2 ? l->nr : l->nr / 2, at < 2);
}

/* Chain c starts from c and is x / 2 + 1 of itself in each round: after r rounds 2 + (c - 2) / 2^r, exact in f32. */
static void test_multiply_add(void **state)
{
    FOR_EACH_LEVEL(l)
    for (int rounds = 0; rounds < 5; rounds++) {
        float sum = -1;
        const int width = l->nr / (strncmp(l->name, "neon", 4) ? 2 : 4); /* a panel is two vectors wide, or four */
        double operations = l->multiply_add(rounds, &sum), expected = 0;
        int chains = (int)(l->multiply_add(1, &(float){0}) / (2 * width));
        assert_true(chains >= 8); /* two units, four cycles */
        for (int c = 0; c < chains; c++)
            expected += width * (2 + (c - 2) / pow(2, rounds));
        assert_true(operations == 2.0 * rounds * chains * width);
        if (sum != expected)
            fail_msg("%s: %d rounds of %d chains: %.9g, expected %.9g", l->name, rounds, chains, sum, expected);
    }
}

/* Two of the sums, each of which grows by 2 (a pair) or 32 (a row of a tile) in a round, exactly. */
static void test_multiply_add_bf16(void **state)
{
    FOR_EACH_LEVEL(l)
    for (int rounds = 0; rounds < 5 && l->bf16.dot.step; rounds++) {
        float sum = -1;
        double operations = l->bf16.multiply_add(rounds, &sum), one = l->bf16.multiply_add(1, &(float){0});
        assert_true(operations == rounds * one && one >= 6 * 2 * 32);
        assert_true(sum == 2.0f * (float)(rounds * l->bf16.dot.step));
    }
}

/* Every rest of a vector, of two rows, with and without what is added; nothing behind a row is written. */
static void test_store_rows(void **state)
{
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};
    enum { WIDTH = 70, ROWS = 2 };
    float x[ROWS * WIDTH];
    double more[ROWS * WIDTH], y[ROWS * WIDTH + 1]; /* of any dtype */
    uint32_t seed = 11;
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = value(&seed);
    FOR_EACH_LEVEL(l)
    for (int i = 0; i < 3 * 4 * WIDTH; i++) {
        const enum tern_dtype dtype = dtypes[i % 3], of = i / 3 % 4 ? dtypes[i / 3 % 4 - 1] : TERN_DTYPE_COUNT;
        const int n = i / 12;
        const size_t size = tern_dtype_size(dtype);
        memset(y, 0x7f, sizeof(y));
        for (int k = 0; k < ROWS * WIDTH && of != TERN_DTYPE_COUNT; k++)
            tern_store(of, more, k, (double)x[(k * 7) % (ROWS * WIDTH)]);
        const void *rows[ROWS] = {more, (const char *)more + WIDTH * tern_dtype_size(of != TERN_DTYPE_COUNT ? of : TERN_F32)};
        l->store_rows(dtype, ROWS, n, x, WIDTH, of != TERN_DTYPE_COUNT ? rows : NULL, of, y, WIDTH);
        for (int k = 0; k < ROWS * WIDTH; k++) {
            double expected;
            memset(&expected, 0x7f, sizeof(expected));
            const double added = of != TERN_DTYPE_COUNT ? tern_load(of, more, k) : 0;
            if (k % WIDTH < n)
                tern_store(dtype, &expected, 0, (double)(float)((double)x[k] + added));
            assert_memory_equal((const char *)y + (size_t)k * size, &expected, size);
        }
    }
}

/* Blocks of every height with whole numbers, whose sums are exact: they begin with zeros, with a row, or go on with what is there. Two
 * pieces of three rows of B, of which the one between them is left out. The second half of A lies behind the first, or elsewhere. The panel
 * is in L1, or streams from L2. */
static void test_blocks_bf16(void **state)
{
    enum { ROWS = TERN_DOT_ROWS, NR = TERN_DOT_NR, LDC = NR + 16, MOST = 64, LD = MOST + 32 };
    static uint16_t a[2][ROWS * LD], apart[2][ROWS / 2 * LD], panel[3 * MOST * NR];
    float start[NR], before[ROWS * LDC], c[ROWS * LDC];
    uint32_t seed = 5;
    for (int i = 0; i < NR; i++)
        start[i] = (float)(i - 9);
    for (int i = 0; i < ROWS * LDC; i++)
        before[i] = (float)(i % 37 - 18);
    for (int i = 0; i < 2 * ROWS * LD; i++)
        tern_store(TERN_BF16, a, i, (double)(int)(8 * value(&seed)));
    for (int i = 0; i < ROWS * LD; i++)
        tern_store(TERN_BF16, apart, i, (double)(int)(8 * value(&seed)));
    for (int i = 0; i < 3 * MOST * NR; i++)
        tern_store(TERN_BF16, panel, i, (double)(i % 11 - 5));
    FOR_EACH_LEVEL(l)
    for (int rows = 1; rows <= ROWS && l->bf16.dot.step; rows++)
        for (int mode = 0; mode < 24; mode++) {
            const int64_t depth = l->bf16.dot.step * (1 + rows % 2), width = mode % 2 ? NR / 2 : NR;
            const bool together = mode % 12 < 6;
            const uint16_t *half[2] = {together ? a[0] + ROWS / 2 * LD : apart[0], together ? a[1] + ROWS / 2 * LD : apart[1]};
            const struct tern_dot_piece pieces[] = {{{a[0], half[0]}, LD, 0, depth}, {{a[1], half[1]}, LD, 2 * depth, depth}};
            memcpy(c, before, sizeof(c));
            l->bf16.dot.begin();
            l->bf16.dot.block(&(struct tern_dot_block){.rows = rows,
                                                       .n = 2,
                                                       .half_panel = mode % 2,
                                                       .accumulate = mode / 2 % 3 == 2,
                                                       .stream = mode >= 12,
                                                       .pieces = pieces,
                                                       .panel = panel,
                                                       .next = panel,
                                                       .start = mode / 2 % 3 ? start : NULL,
                                                       .c = c,
                                                       .ldc = LDC});
            l->bf16.dot.end();
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < width; j++) {
                    double sum = mode / 2 % 3 == 2 ? before[i * LDC + j] : mode / 2 % 3 ? start[j] : 0;
                    for (int64_t t = 0; t < 2 * depth; t++) {
                        const int64_t k = t < depth ? t : t + depth;
                        const uint16_t *row = i < ROWS / 2 ? a[t / depth] + i * LD : half[t / depth] + (i - ROWS / 2) * LD;
                        sum += tern_load(TERN_BF16, row, t % depth) * tern_load(TERN_BF16, panel, (k / 2 * width + j) * 2 + k % 2);
                    }
                    if ((double)c[i * LDC + j] != sum)
                        fail_msg("%s: %d rows, mode %d: (%d, %d) is %g, expected %g", l->name, rows, mode, i, j, (double)c[i * LDC + j],
                                 sum);
                }
        }
}

/* Powers of two as bf16: half a unit of it (2^-8 at most) and the 8e-5 of the polynomial. Of 32 values the first and the second half are
 * interleaved. What is too large, or no number, is told. */
static void test_power_bf16(void **state)
{
    enum { COUNT = 32 * 4000 };
    float *x = malloc(COUNT * sizeof(*x));
    uint16_t *y = malloc(COUNT * sizeof(*y));
    assert_true(x && y);
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)i * 140 / COUNT - 125; /* to 2^15 */
    FOR_EACH_LEVEL(l)
    for (int k = 0; k < 2 && l->attention_bf16.scratch; k++) {
        const float factor = k ? 0.5f : 1, most = k ? 1.25f : 0;
        double worst = 0;
        assert_true(l->attention_bf16.power(COUNT, x, factor, most, y));
        for (int i = 0; i < COUNT; i++) {
            double exact = exp2((double)x[i] * factor - most), power = tern_load(TERN_BF16, y, i / 32 * 32 + i % 16 * 2 + i / 16 % 2);
            worst = fmax(worst, fabs(power / exact - 1));
        }
        print_message("%s: largest error of a power %.3g\n", l->name, worst);
        assert_true(worst <= 1.0 / 256 + 8e-5);
        for (int i = 0; i < 4; i++) {
            float row[32] = {0};
            row[i * 9] = i == 0 ? 17 : i == 1 ? NAN : i == 2 ? INFINITY : -INFINITY;
            assert_int_equal(l->attention_bf16.power(32, row, 1, 0, y), i == 3);
            if (i == 3)
                assert_int_equal(y[27 % 16 * 2 + 1], 0);
        }
    }
    free(x);
    free(y);
}

/* Those of a whole block of keys, by a table: what x counts in (2^-9 of it at most is lost), a table's step (2^-7 of the slope of 2^f - f,
 * which is 0.39 at most) and bf16. Together no more than 0.6 %, 0.2 % in the mean square, and nothing in the mean. */
static void test_quick_power_bf16(void **state)
{
    (void)state;
    FOR_EACH_LEVEL(l)
    {
        const int block = l->attention_bf16.block, rounds = 2000;
        if (!l->attention_bf16.quick_power)
            continue;
        float *x = calloc((size_t)block, sizeof(*x));
        uint16_t *y = malloc((size_t)block * sizeof(*y));
        assert_true(x && y);
        for (int k = 0; k < 2; k++) {
            const float factor = k ? 0.5f : 1, most = k ? 1.25f : 0;
            double worst = 0, sum = 0, squares = 0;
            for (int r = 0; r < rounds; r++) {
                for (int i = 0; i < block; i++)
                    x[i] = ((float)(r * block + i) * 127.8f / (float)(rounds * block) - 110.95f + most) / factor;
                assert_true(l->attention_bf16.quick_power(x, factor, most, y));
                for (int i = 0; i < block; i++) {
                    const double exact = exp2((double)x[i] * factor - most);
                    const double error = tern_load(TERN_BF16, y, i / 32 * 32 + i % 16 * 2 + i / 16 % 2) / exact - 1;
                    worst = fmax(worst, fabs(error));
                    sum += error;
                    squares += error * error;
                }
            }
            const double n = (double)rounds * block;
            print_message("%s: quick powers: largest error %.3g, mean %.2g, root of the mean square %.3g\n", l->name, worst, sum / n,
                          sqrt(squares / n));
            assert_true(worst <= 6e-3 && fabs(sum / n) <= 1e-4 && sqrt(squares / n) <= 2e-3);
        }
        const float other[] = {17, 1e5f, -111.1f, -300, -32768, -40000, 1e30f, -1e30f, INFINITY, -INFINITY, NAN, -NAN};
        for (size_t i = 0; i < sizeof(other) / sizeof(*other); i++)
            for (int at = 0; at < block; at += 13) {
                memset(x, 0, (size_t)block * sizeof(*x));
                x[at] = other[i];
                assert_false(l->attention_bf16.quick_power(x, 1, 0, y));
            }
        memset(x, 0, (size_t)block * sizeof(*x));
        assert_true(l->attention_bf16.quick_power(x, 1, 0, y));
        assert_int_equal(y[0], 0x3f80); /* the power of a row's largest score */
        assert_false(l->attention_bf16.quick_power(x, 1, -INFINITY, y));
        free(x);
        free(y);
    }
}

static const struct tern_cpu_level *level_named(const char *name)
{
    for (int i = 0; tern_cpu_levels()[i]; i++)
        if (!strcmp(tern_cpu_levels()[i]->name, name))
            return tern_cpu_levels()[i];
    return NULL;
}

/* Those that are compiled as what their instructions change have that, and all else of the level below, whether the machine has them or
 * not. */
static void test_levels_over_others(void **state)
{
    static const char *const pairs[][2] = {{"avxvnni", "avx2"}, {"avx512vnni", "avx512"}, {"amx", "avx512bf16"}, {"neondot", "neon"}};
    int found = 0;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
        const struct tern_cpu_level *l = level_named(pairs[i][0]), *below = level_named(pairs[i][1]);
        if (!l || !below)
            continue;
        assert_null(l->over);
        assert_true(l->available != below->available);
        assert_true(l->i8.dot.block != below->i8.dot.block);
        assert_true(l->gemm_tile == below->gemm_tile && l->unary[TERN_CPU_EXP] == below->unary[TERN_CPU_EXP]);
        assert_true(l->attention_f32.attend == below->attention_f32.attend && l->winograd_i8.input == below->winograd_i8.input);
        assert_int_equal(l->mr, below->mr);
        assert_int_equal(l->bf16.dot.step > 0, below->bf16.dot.step > 0);
        if (l->bf16.dot.step) {
            assert_true(l->bf16.dot.block != below->bf16.dot.block && l->attention_bf16.attend != below->attention_bf16.attend);
            assert_true(l->attention_i8.attend != below->attention_i8.attend);
        }
        found++;
    }
    if (!found) {
        print_message("built without a level that is one above another\n");
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_functions),
                                       cmocka_unit_test(test_special_values),
                                       cmocka_unit_test(test_conversions),
                                       cmocka_unit_test(test_gemm_tile),
                                       cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_exp_sum),
                                       cmocka_unit_test(test_power_f32),
                                       cmocka_unit_test(test_winograd),
                                       cmocka_unit_test(test_winograd_filter),
                                       cmocka_unit_test(test_multiply_add),
                                       cmocka_unit_test(test_multiply_add_bf16),
                                       cmocka_unit_test(test_store_rows),
                                       cmocka_unit_test(test_blocks_bf16),
                                       cmocka_unit_test(test_power_bf16),
                                       cmocka_unit_test(test_quick_power_bf16),
                                       cmocka_unit_test(test_levels_over_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

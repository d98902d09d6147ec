/* The inner loops of every CPU level that this machine has, on f16 and bf16: functions of all halves bit by bit, norms against double. */
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

static float value(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / 8388608.0f - 1;
}

static const enum tern_dtype halves[] = {TERN_F16, TERN_BF16};

/* Equal bits, or both NaN. */
static bool same_half(enum tern_dtype dtype, uint16_t a, uint16_t b)
{
    return a == b || (isnan(tern_load(dtype, &a, 0)) && isnan(tern_load(dtype, &b, 0)));
}

/* Every half of both kinds, so NaN, -0, denormals and the largest: what the function of f32 gives that is there for results of 16 bits,
 * rounded once. */
static void test_functions_of_halves(void **state)
{
    enum { COUNT = 65536 };
    uint16_t *h = malloc(COUNT * sizeof(*h)), *y = malloc(COUNT * sizeof(*y)), expected;
    float *x = malloc(COUNT * sizeof(*x)), *wide = malloc(COUNT * sizeof(*wide));
    assert_true(h && y && x && wide);
    FOR_EACH_LEVEL(l)
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < COUNT; i++) {
            h[i] = (uint16_t)i;
            x[i] = (float)tern_load(halves[d], h, i);
        }
        for (int f = 0; f < TERN_CPU_UNARY_COUNT; f++) {
            l->unary_half[f](COUNT, x, wide, 0.3f);
            l->unary_of[f](halves[d], COUNT, h, y, 0.3f);
            for (int i = 0; i < COUNT; i++) {
                tern_store(halves[d], &expected, 0, wide[i]);
                if (!same_half(halves[d], y[i], expected))
                    fail_msg("%s, %s, function %d of %04x: %04x, expected %04x", l->name, tern_dtype_name(halves[d]), f, h[i], y[i],
                             expected);
            }
        }
    }
    free(h);
    free(y);
    free(x);
    free(wide);
}

static double combine(int f, double x, double y)
{
    return f == TERN_CPU_ADD ? x + y : f == TERN_CPU_SUB ? x - y : f == TERN_CPU_MUL ? x * y : x / y;
}

/* Pairs of any halves, in arrays and as single values; every length of tail; nothing behind it is written. */
static void test_pairs_of_halves(void **state)
{
    enum { COUNT = 70 };
    uint16_t x[COUNT], y[COUNT], out[COUNT], expected;
    FOR_EACH_LEVEL(l)
    for (int test = 0; test < 4 * 2 * 4 * COUNT * 8; test++) {
        const int f = test % 4, d = test / 4 % 2, x_step = test / 8 % 2, y_step = test / 16 % 2, n = test / 32 % COUNT;
        for (int i = 0; i < COUNT; i++) {
            uint32_t bits = (uint32_t)(test * COUNT + i) * 2654435761u;
            x[i] = (uint16_t)(bits >> 16);
            y[i] = (uint16_t)(bits >> 3);
        }
        memset(out, 0x5a, sizeof(out));
        l->binary_of[f](halves[d], n, x, x_step, y, y_step, out);
        for (int i = 0; i < COUNT; i++) {
            double exact = combine(f, tern_load(halves[d], x, i * x_step), tern_load(halves[d], y, i * y_step));
            tern_store(halves[d], &expected, 0, (double)(float)exact);
            if (i >= n ? out[i] != 0x5a5a : !same_half(halves[d], out[i], expected))
                fail_msg("%s, %s, function %d of %04x and %04x, %d of %d: %04x, expected %04x", l->name, tern_dtype_name(halves[d]), f,
                         x[i * x_step], y[i * y_step], i, n, out[i], expected);
        }
    }
}

enum { NORM_ROWS = 5, NORM_COLUMNS = 150, NORM_STEP = 160, MOST_STEP = 1072, MOST_INPUT = NORM_ROWS * MOST_STEP };

/* From a row of n values to the next. */
static int step_of(int n) { return n <= NORM_COLUMNS ? NORM_STEP : MOST_STEP; }

/* As many values about 3 as rows of n take, as that dtype and exactly. */
static void norm_input(enum tern_dtype dtype, int n, void *x, double exact[MOST_INPUT])
{
    uint32_t seed = (uint32_t)n;
    for (int i = 0; i < NORM_ROWS * step_of(n); i++) {
        tern_store(dtype, x, i, 3 + value(&seed));
        exact[i] = tern_load(dtype, x, i);
    }
}

static void check_moments(const struct tern_cpu_level *l, enum tern_dtype dtype, int n, bool near)
{
    const int step = step_of(n);
    float x[MOST_INPUT], shift[MOST_STEP], sum[MOST_STEP], square[MOST_STEP];
    double exact[MOST_INPUT], s, q, exact_s = 0, exact_q = 0;
    norm_input(dtype, n, x, exact);
    for (int c = 0; c < step; c++)
        sum[c] = square[c] = 1;
    for (int c = 0; c < n; c++)
        shift[c] = 2.5f + 0.01f * (float)(c % NORM_COLUMNS);
    l->moments(dtype, n, x, 2.5f, &s, &q);
    for (int c = 0; c < n; c++) {
        exact_s += exact[c] - 2.5;
        exact_q += (exact[c] - 2.5) * (exact[c] - 2.5);
    }
    assert_true(fabs(s - exact_s) < 1e-6 * fmax(n, 100) && fabs(q - exact_q) < 1e-6 * fmax(n, 100));
    l->moments_by_column(dtype, NORM_ROWS, n, x, step, near, shift, sum, square);
    for (int c = 0; c < step; c++) {
        exact_s = exact_q = 1;
        for (int r = 0; r < NORM_ROWS && c < n; r++) {
            exact_s += exact[r * step + c] - shift[c];
            exact_q += (exact[r * step + c] - shift[c]) * (exact[r * step + c] - shift[c]);
        }
        assert_true(fabs(sum[c] - exact_s) < 1e-5 && fabs(square[c] - exact_q) < 1e-5);
    }
}

/* Off by one rounding of the dtype at most, behind that of f32 and, of silu, its own error for 16 bits. */
static bool is_near(enum tern_dtype dtype, bool silu, double found, double exact)
{
    const double relative = dtype == TERN_F32 ? 1e-6 : (dtype == TERN_F16 ? 0x1.1p-11 : 0x1.1p-8) + (silu ? 1e-4 : 0);
    return fabs(found - exact) <= relative * fabs(exact) + 2e-6;
}

/* NORM_ROWS rows are more than are gone through together. What lies behind a row is not written. */
static void check_affine(const struct tern_cpu_level *l, enum tern_dtype from, enum tern_dtype to, int n)
{
    const int step = step_of(n);
    float x[MOST_INPUT], y[MOST_INPUT], by[3][MOST_STEP];
    double exact[MOST_INPUT];
    uint32_t seed = 3;
    norm_input(from, n, x, exact);
    for (int i = 0; i < 3 * step; i++)
        by[i / step][i % step] = value(&seed);
    for (int mode = 0; mode < 8; mode++) {
        const bool vectors = mode & 1, near = mode & 2, silu = mode & 4;
        const struct tern_cpu_affine a = {by[0], by[1], by[2], silu};
        memset(y, 0x5a, sizeof(y));
        l->affine(from, to, NORM_ROWS, n, x, step, &a, vectors, near, y, step);
        for (int i = 0; i < NORM_ROWS * step; i++) {
            const int r = i / step, c = i % step, at = vectors ? c : 0;
            const double x_scaled = (exact[i] - by[0][at]) * by[1][at] + by[2][at], v = silu ? x_scaled / (1 + exp(-x_scaled)) : x_scaled;
            const double found = tern_load(to, y, i);
            if (c < n ? !is_near(to, silu, found, v) : memcmp((char *)y + i * (int)tern_dtype_size(to), "ZZZZ", tern_dtype_size(to)) != 0)
                fail_msg("%s, %s to %s, mode %d, row %d, %d of %d: %g, expected %g", l->name, tern_dtype_name(from), tern_dtype_name(to),
                         mode, r, c, n, found, v);
        }
    }
}

static void check_normalize(const struct tern_cpu_level *l, enum tern_dtype from, enum tern_dtype to, int n)
{
    float x[NORM_ROWS * NORM_STEP], y[NORM_ROWS * NORM_STEP], weight[NORM_STEP], bias[NORM_STEP];
    double exact[MOST_INPUT];
    uint32_t seed = 5;
    for (int c = 0; c < NORM_STEP; c++) {
        weight[c] = value(&seed);
        bias[c] = value(&seed);
    }
    norm_input(from, n, x, exact);
    for (int mode = 0; mode < 8; mode++) {
        const struct tern_cpu_norm p = {mode & 1 ? weight : NULL, mode & 2 ? bias : NULL, 1e-3, mode & 4};
        memset(y, 0x5a, sizeof(y));
        l->normalize(from, to, NORM_ROWS, n, x, &p, y);
        assert_memory_equal((char *)y + (size_t)(NORM_ROWS * n) * tern_dtype_size(to), "ZZZZ", 4);
        for (int r = 0; r < NORM_ROWS; r++) {
            double mean = 0, square = 0;
            const double *row = &exact[r * n]; /* rows lie together */
            for (int c = 0; c < n; c++)
                mean += p.center ? row[c] / n : 0;
            for (int c = 0; c < n; c++)
                square += (row[c] - mean) * (row[c] - mean) / n;
            for (int c = 0; c < n; c++) {
                double v = (row[c] - mean) / sqrt(square + p.eps) * (p.weight ? weight[c] : 1) + (p.bias ? bias[c] : 0);
                double found = tern_load(to, y, r * n + c);
                if (!is_near(to, false, found, v))
                    fail_msg("%s, %s to %s, mode %d, row %d, %d of %d: %g, expected %g", l->name, tern_dtype_name(from),
                             tern_dtype_name(to), mode, r, c, n, found, v);
            }
        }
    }
}

static void check_columns(const struct tern_cpu_level *l, enum tern_dtype dtype, int n)
{
    for (int near = 0; near < 2; near++)
        check_moments(l, dtype, n, near);
    check_affine(l, dtype, dtype, n);
    check_affine(l, dtype, TERN_F32, n);
    check_affine(l, TERN_F32, dtype, n);
}

/* Every length of tail, in every dtype; of wide rows, which are gone through several at once, some. */
static void test_normalisations(void **state)
{
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};
    static const int wide[] = {1024, 1025, 1031, 1040, 1055};
    FOR_EACH_LEVEL(l)
    for (int d = 0; d < 3; d++) {
        for (int n = 1; n <= NORM_COLUMNS; n++) {
            check_columns(l, dtypes[d], n);
            check_normalize(l, dtypes[d], dtypes[d], n);
            check_normalize(l, TERN_F32, dtypes[d], n);
        }
        for (size_t i = 0; i < sizeof(wide) / sizeof(*wide); i++)
            check_columns(l, dtypes[d], wide[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_functions_of_halves), cmocka_unit_test(test_pairs_of_halves),
                                       cmocka_unit_test(test_normalisations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

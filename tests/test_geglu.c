/* x * gelu(gate) of every CPU level that this machine has: against double, and of sums of int8 as of the values that these are. */
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

static double gelu(double x) { return 0.5 * x * erfc(-x * M_SQRT1_2); }
static double gelu_slope(double x) { return 0.5 * erfc(-x * M_SQRT1_2) + x * exp(-x * x / 2) * 0.3989422804014327; }

/* What a result may be wrong by before it is rounded: of f16 of itself, of bf16 as if by a gate that is wrong by so much. */
static double allowed(enum tern_dtype dtype, double gate)
{
    if (dtype == TERN_BF16)
        return 2.7e-4 * fmax(fabs(gelu(gate)), fabs(gate * gelu_slope(gate)));
    return dtype == TERN_F16 ? 1.5e-4 * fabs(gelu(gate)) : 3e-7 * fabs(gelu(gate)) + 3e-7;
}

static double rounded(enum tern_dtype dtype, double x)
{
    float word;
    tern_store(dtype, &word, 0, (float)x);
    return tern_load(dtype, &word, 0);
}

/* Gates from -8 to 8, half a million of them: so many lie near where rounding changes that an error of the gelu shows. Below, where results
 * of bf16 are less than 1e-14 and may be wrong by more, by none above it. */
static void test_gates(void **state)
{
    enum { COLUMNS = 1000, ROWS = 500 };
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};
    float *gate = malloc(sizeof(float) * ROWS * COLUMNS), *x = malloc(sizeof(float) * ROWS * COLUMNS);
    char *y = malloc(sizeof(float) * ROWS * COLUMNS);
    assert_true(gate && x && y);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        gate[i] = -8 + 16.0f * (float)i / (ROWS * COLUMNS - 1);
        x[i] = 1;
    }
    FOR_EACH_LEVEL(l)
    for (int d = 0; d < 3; d++) {
        l->geglu(dtypes[d], ROWS, COLUMNS, x, gate, COLUMNS, y, COLUMNS);
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            const double exact = gelu(gate[i]), off = allowed(dtypes[d], gate[i]), got = tern_load(dtypes[d], y, i);
            if (!(got >= rounded(dtypes[d], exact - off) && got <= rounded(dtypes[d], exact + off)))
                fail_msg("%s, %s: gelu(%.9g) is %.9g, expected %.9g", l->name, tern_dtype_name(dtypes[d]), gate[i], got, exact);
        }
    }
    FOR_EACH_LEVEL(l)
    {
        for (int i = 0; i < COLUMNS; i++)
            gate[i] = -8 - 0.01f * (float)i;
        l->geglu(TERN_BF16, 1, COLUMNS, x, gate, COLUMNS, y, COLUMNS);
        for (int i = 0; i < COLUMNS; i++)
            assert_true(tern_load(TERN_BF16, y, i) <= 0 && tern_load(TERN_BF16, y, i) > -1e-14);
    }
    free(gate);
    free(x);
    free(y);
}

static void test_special_values(void **state)
{
    const float gate[] = {NAN, INFINITY, -INFINITY, 0, -0.0f, 1e-40f, 200, -200, 3e38f, -3e38f};
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};
    float ones[10];
    double y[10];
    for (int i = 0; i < 10; i++)
        ones[i] = 1;
    FOR_EACH_LEVEL(l)
    for (int d = 0; d < 3; d++) {
        float to[10];
        l->geglu(dtypes[d], 1, 10, ones, gate, 10, to, 10);
        for (int i = 0; i < 10; i++)
            y[i] = tern_load(dtypes[d], to, i);
        assert_true(isnan(y[0]) && isinf(y[1]) && y[1] > 0 && (isnan(y[2]) || y[2] == 0));
        assert_true(y[3] == 0 && y[4] == 0 && fabs(y[5]) < 1e-38);
        assert_true(y[6] == 200 && y[7] == 0 && y[8] > 6e4 && y[9] == 0);
    }
}

/* In steps of the dtype, or what compilers may round otherwise in one function and another. */
static void expect_near(const struct tern_cpu_level *l, enum tern_dtype dtype, double got, double expected)
{
    const double off = (dtype == TERN_F32   ? 2e-5
                        : dtype == TERN_F16 ? 0x1p-10
                                            : 0x1p-7) *
                           fabs(expected) +
                       (dtype == TERN_F16 ? 0x1p-24 : 1e-37);
    if (!(fabs(got - expected) <= off))
        fail_msg("%s, %s: %.9g, expected %.9g", l->name, tern_dtype_name(dtype), got, expected);
}

/* Sums of int8 become the values that `scale` makes of them, and no more columns or rows than there are. */
static void test_sums_of_int8(void **state)
{
    enum { ROWS = 5, MOST = 75, LD = 80 };
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};
    static const int widths[] = {1, 7, 8, 15, 16, 17, 31, 32, 33, 48, 64, 75};
    static const int32_t none[MOST];
    int32_t x[ROWS * LD], gate[ROWS * LD], offset[2][MOST];
    float scale[2][MOST], bias[2][MOST], factor[ROWS], wide[2][ROWS * LD];
    char expected[ROWS * LD * 4], y[ROWS * LD * 4];
    uint32_t seed = 7;
#define NEXT() ((int32_t)((seed = seed * 1664525u + 1013904223u) >> 8 & 0xffff) - 0x8000)
    for (int i = 0; i < ROWS * LD; i++) {
        x[i] = NEXT();
        gate[i] = NEXT();
    }
    for (int i = 0; i < 2 * MOST; i++) {
        offset[i / MOST][i % MOST] = NEXT() / 16;
        scale[i / MOST][i % MOST] = (float)(NEXT() + 0x8001) * 1e-5f;
        bias[i / MOST][i % MOST] = (float)NEXT() * 1e-4f;
    }
    for (int r = 0; r < ROWS; r++)
        factor[r] = (float)(NEXT() + 0x8001) * 1e-8f;
    FOR_EACH_LEVEL(l)
    for (int d = 0; d < 3; d++)
        for (size_t w = 0; w < sizeof(widths) / sizeof(*widths); w++)
            for (int with = 0; with < 2; with++) {
                struct tern_i8_values v[2];
                for (int k = 0; k < 2; k++) {
                    v[k] = (struct tern_i8_values){l->i8.zero ? offset[k] : none, scale[k], factor,
                                                   with ? bias[k] : NULL,         NULL,     TERN_DTYPE_COUNT};
                    l->i8.scale(TERN_F32, ROWS, widths[w], k ? gate : x, LD, &v[k], wide[k], LD);
                }
                memset(y, 'Z', sizeof(y));
                l->geglu(dtypes[d], ROWS, widths[w], wide[0], wide[1], LD, expected, LD - 3);
                l->i8.geglu(dtypes[d], ROWS, widths[w], x, gate, LD, &v[0], &v[1], y, LD - 3);
                for (int i = 0; i < (ROWS - 1) * (LD - 3) + widths[w]; i++)
                    if (i % (LD - 3) < widths[w])
                        expect_near(l, dtypes[d], tern_load(dtypes[d], y, i), tern_load(dtypes[d], expected, i));
                    else
                        assert_memory_equal(y + (size_t)i * tern_dtype_size(dtypes[d]), "ZZZZ", tern_dtype_size(dtypes[d]));
                assert_true(y[(size_t)((ROWS - 1) * (LD - 3) + widths[w]) * tern_dtype_size(dtypes[d])] == 'Z');
            }
#undef NEXT
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gates), cmocka_unit_test(test_special_values),
                                       cmocka_unit_test(test_sums_of_int8)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The inner loops of int8 of every CPU level that this machine has: sums exactly, values to one rounding. */
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

#define NR TERN_DOT_NR
#define ROWS TERN_DOT_ROWS
#define LDC (NR + 16)
#define PIECES 3

static uint32_t seed = 1;
static int random_byte(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)(seed >> 24);
}

/* ---- products */

struct block {
    int rows, width, n;               /* n: pieces */
    int64_t depth;                    /* of each piece, in bytes; between them in B lie as many that are not read */
    bool starts, accumulate, extreme; /* starts: each row of sums with a given one */
    bool apart;                       /* the second half of A does not lie behind the first */
    bool stream;                      /* the panel comes from L2 */
};

/* Bytes of A are unsigned where the level has a zero, and the sums are those of the bytes as they are. */
static void check_block(const struct tern_cpu_level *l, const struct block *b)
{
    static uint8_t a[PIECES * ROWS * 2048];
    static int8_t panel[2 * PIECES * 2048 * NR];
    static int32_t c[ROWS * LDC], before[ROWS * LDC], start[NR];
    const int64_t ld = b->depth + 64, k = 2 * b->n * b->depth, gap = b->apart ? 3 * ld : 0;
    struct tern_dot_piece pieces[PIECES];
    assert_true(b->n * (ROWS * ld + gap) <= (int64_t)sizeof(a) && k * b->width <= (int64_t)sizeof(panel));
    for (size_t i = 0; i < sizeof(a); i++)
        a[i] = (uint8_t)((b->extreme ? (random_byte() & 1 ? 127 : -127) : random_byte() % 255 - 127) + l->i8.zero);
    for (int64_t i = 0; i < k * b->width; i++)
        panel[i] = (int8_t)(b->extreme ? (random_byte() & 1 ? 127 : -127) : random_byte() % 255 - 127);
    for (int i = 0; i < ROWS * LDC; i++)
        c[i] = before[i] = random_byte() * 65537 - 8000000;
    for (int i = 0; i < NR; i++)
        start[i] = random_byte() * 65537 - 8000000;
    for (int p = 0; p < b->n; p++) {
        const uint16_t *at = (const uint16_t *)(const void *)(a + p * (ROWS * ld + gap));
        pieces[p] = (struct tern_dot_piece){{at, at + (ROWS / 2 * ld + gap) / 2}, ld / 2, 2 * p * b->depth / 2, b->depth / 2};
    }
    l->i8.dot.begin();
    const uint16_t *words = (const uint16_t *)(const void *)panel;
    l->i8.dot.block(&(struct tern_dot_block){.rows = b->rows,
                                             .n = b->n,
                                             .half_panel = b->width < NR,
                                             .accumulate = b->accumulate,
                                             .stream = b->stream,
                                             .pieces = pieces,
                                             .panel = words,
                                             .next = words,
                                             .start = b->starts ? start : NULL,
                                             .c = c,
                                             .ldc = LDC});
    l->i8.dot.end();
    for (int i = 0; i < b->rows; i++)
        for (int j = 0; j < b->width; j++) {
            int64_t sum = b->accumulate ? before[i * LDC + j] : b->starts ? start[j] : 0;
            for (int p = 0; p < b->n; p++)
                for (int64_t t = 0; t < b->depth; t++) {
                    const int64_t row = 2 * p * b->depth + t;
                    const uint8_t byte = a[p * (ROWS * ld + gap) + i * ld + (i < ROWS / 2 ? 0 : gap) + t];
                    sum += (l->i8.zero ? byte : (int8_t)byte) * panel[(row / 4 * b->width + j) * 4 + row % 4];
                }
            if (c[i * LDC + j] != sum)
                fail_msg("%s: %d rows, %d columns, %d pieces of %lld: (%d, %d) is %d, expected %lld", l->name, b->rows, b->width, b->n,
                         (long long)b->depth, i, j, c[i * LDC + j], (long long)sum);
        }
}

static void sums_are_exact(void **state)
{
    FOR_EACH_LEVEL(l)
    for (int rows = 1; rows <= ROWS; rows++)
        for (int mode = 0; mode < 64; mode++) {
            const int64_t step = 2 * l->i8.dot.step;
            const struct block b = {.rows = rows,
                                    .width = mode & 1 ? NR / 2 : NR,
                                    .n = mode & 2 ? 3 : 1,
                                    .depth = step * (1 + rows % 3),
                                    .accumulate = (mode & 4) != 0,
                                    .starts = (mode & 8) != 0,
                                    .apart = (mode & 16) != 0,
                                    .stream = (mode & 32) != 0,
                                    .extreme = rows % 4 == 0};
            check_block(l, &b);
        }
}

/* As deep as a part of a product is. */
static void deep_sums_are_exact(void **state)
{
    FOR_EACH_LEVEL(l)
    for (int extreme = 0; extreme < 2; extreme++)
        for (int mode = 0; mode < 32; mode++)
            check_block(l, &(struct block){.rows = mode & 1 ? ROWS / 2 : ROWS,
                                           .width = mode & 2 ? NR / 2 : NR,
                                           .n = 2,
                                           .depth = 1024,
                                           .accumulate = (mode & 4) != 0,
                                           .starts = (mode & 8) != 0,
                                           .stream = (mode & 16) != 0,
                                           .extreme = extreme});
}

/* ---- values */

static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};

static float value(void) { return (float)(random_byte() * 256 + random_byte() - 32768) / 977.0f; }

static void values_to_bytes(void **state)
{
    FOR_EACH_LEVEL(l)
    for (int d = 0; d < 3; d++)
        for (int n = 0; n <= 150; n++) {
            float x[150], most = 0;
            uint16_t narrow[150];
            uint8_t y[151];
            for (int i = 0; i < n; i++) {
                x[i] = value();
                if (d) {
                    tern_store(dtypes[d], narrow, i, x[i]);
                    x[i] = (float)tern_load(dtypes[d], narrow, i);
                }
                most = fmaxf(most, fabsf(x[i]));
            }
            const void *from = d ? (const void *)narrow : x;
            assert_true(l->i8.most(dtypes[d], n, from) == most);
            y[n] = 77;
            l->i8.quantize(dtypes[d], n, from, 127 / most, y);
            for (int i = 0; i < n; i++)
                assert_int_equal(y[i], (uint8_t)((int)nearbyintf(x[i] * (127 / most)) + l->i8.zero));
            assert_int_equal(y[n], 77);
        }
}

/* Ties, and quotients beyond 127 of scales that were rounded. Nothing behind the last value is written. */
static void weights_to_bytes(void **state)
{
    static const float scales[] = {0.5f, 1.0f / 3, 0.0078125f};
    FOR_EACH_LEVEL(l)
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < 3; s++)
            for (int n = 0; n <= 150; n++) {
                uint32_t x[150];
                int8_t y[151];
                y[n] = 77;
                for (int i = 0; i < n; i++)
                    tern_store(dtypes[d], x, i, i % 3 ? value() : 0.25 * (random_byte() - 128));
                l->i8.weights(dtypes[d], n, x, scales[s], y);
                for (int i = 0; i < n; i++)
                    assert_int_equal(y[i], (int)nearbyintf(fminf(127, fmaxf(-127, (float)tern_load(dtypes[d], x, i) / scales[s]))));
                assert_int_equal(y[n], 77);
            }
}

/* Wherever it stands, it is found. */
static void no_number_is_found(void **state)
{
    uint32_t x[100];
    FOR_EACH_LEVEL(l)
    for (int d = 0; d < 3; d++)
        for (int n = 1; n <= 100; n++)
            for (int at = 0; at < n; at++)
                for (int inf = 0; inf < 2; inf++) {
                    for (int i = 0; i < n; i++)
                        tern_store(dtypes[d], x, i, -3);
                    tern_store(dtypes[d], x, at, inf ? -(double)INFINITY : (double)NAN);
                    const float most = l->i8.most(dtypes[d], n, x);
                    assert_true(inf ? most == INFINITY : isnan(most));
                }
}

#define VALUE_ROWS 3
#define MOST_VALUES 70

/* more: a dtype, or -1 for none. Nothing behind the last value of a row is read or written. */
static void check_values(const struct tern_cpu_level *l, enum tern_dtype dtype, int n, bool with, int more)
{
    int32_t x[VALUE_ROWS * (MOST_VALUES + 5)], offset[MOST_VALUES];
    float scale[MOST_VALUES], bias[MOST_VALUES], factor[VALUE_ROWS] = {0.75f, -2, 3};
    uint8_t y[VALUE_ROWS * (MOST_VALUES + 3) * 4], end[VALUE_ROWS][MOST_VALUES * 4];
    const enum tern_dtype more_dtype = more < 0 ? TERN_F32 : dtypes[more];
    const size_t size = tern_dtype_size(dtype);
    const void *sums[VALUE_ROWS];
    for (int i = 0; i < VALUE_ROWS * (MOST_VALUES + 5); i++)
        x[i] = random_byte() * 20000 - 2500000;
    for (int i = 0; i < n; i++) {
        offset[i] = l->i8.zero ? random_byte() * 128 : 0;
        scale[i] = 1e-6f * fabsf(value());
        bias[i] = value();
    }
    for (int r = 0; r < VALUE_ROWS; r++) {
        char *sum = (char *)end[r] + sizeof(end[r]) - (size_t)n * tern_dtype_size(more_dtype);
        for (int i = 0; i < n; i++)
            tern_store(more_dtype, sum, i, (double)value());
        sums[r] = sum;
    }
    memset(y, 0x5a, sizeof(y));
    const struct tern_i8_values v = {offset, scale, factor, with ? bias : NULL, more < 0 ? NULL : sums, more_dtype};
    l->i8.scale(dtype, VALUE_ROWS, n, x, MOST_VALUES + 5, &v, y, MOST_VALUES + 3);
    for (int r = 0; r < VALUE_ROWS; r++) {
        const uint8_t *row = y + (size_t)(r * (MOST_VALUES + 3)) * size;
        for (int i = 0; i < n; i++) {
            const double sum = (double)(x[r * (MOST_VALUES + 5) + i] - offset[i]) * (scale[i] * factor[r]);
            const double terms[] = {with ? bias[i] : 0, more < 0 ? 0 : tern_load(more_dtype, sums[r], i)};
            const double exact = sum + terms[0] + terms[1], most = fabs(exact) + fabs(terms[0]) + fabs(terms[1]);
            const double found = tern_load(dtype, row, i), unit = dtype == TERN_F32 ? 0x1p-22 : dtype == TERN_F16 ? 0x1p-11 : 0x1p-8;
            if (fabs(found - exact) > unit * most + 1e-7)
                fail_msg("%s %s: value %d of %d is %g, expected %g", l->name, tern_dtype_name(dtype), i, n, found, exact);
        }
        for (size_t i = (size_t)n * size; i < (MOST_VALUES + 3) * size; i++)
            assert_int_equal(row[i], 0x5a);
    }
}

static void sums_to_values(void **state)
{
    FOR_EACH_LEVEL(l)
    for (int d = 0; d < 3; d++)
        for (int n = 0; n <= MOST_VALUES; n++)
            for (int with = 0; with < 2; with++)
                for (int more = -1; more < 3; more++)
                    check_values(l, dtypes[d], n, with, more);
}

/* Two of the sums, each of which grows by 4 (a word) or 64 (a row of a tile) in a round, exactly. */
static void peak_counts(void **state)
{
    FOR_EACH_LEVEL(l)
    for (int rounds = 0; rounds < 5 && l->i8.multiply_add; rounds++) {
        float sum = -1;
        double operations = l->i8.multiply_add(rounds, &sum), one = l->i8.multiply_add(1, &(float){0});
        assert_true(operations == rounds * one && one >= 6 * 4 * 32);
        assert_true(sum == 4.0f * (float)(rounds * l->i8.dot.step));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_exact),     cmocka_unit_test(deep_sums_are_exact),
                                       cmocka_unit_test(values_to_bytes),    cmocka_unit_test(weights_to_bytes),
                                       cmocka_unit_test(no_number_is_found), cmocka_unit_test(sums_to_values),
                                       cmocka_unit_test(peak_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

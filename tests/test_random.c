/* The generators against PyTorch's numbers (tests/data/random, see its README). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "models/random/random.h"
#include "ops/philox.h"
#include "support.h"

/* Distance in units in the last place, through zero. */
static int64_t ulps(float a, float b)
{
    int32_t x, y;
    memcpy(&x, &a, sizeof(x));
    memcpy(&y, &b, sizeof(y));
    int64_t p = x < 0 ? INT32_MIN - (int64_t)x : x, q = y < 0 ? INT32_MIN - (int64_t)y : y;
    return llabs(p - q);
}

static void assert_close(const char *name, const float *found, const float *expected, int64_t n, int64_t most)
{
    for (int64_t i = 0; i < n; i++)
        if (isnan(found[i]) || ulps(found[i], expected[i]) > most)
            fail_msg("%s[%lld]: expected %.9g, found %.9g", name, (long long)i, (double)expected[i], (double)found[i]);
}

static void draw(struct tern_generator *g, const char *kind, float *out, int64_t n)
{
    if (strcmp(kind, "rand") == 0)
        tern_generator_rand(g, out, n);
    else
        tern_generator_randn(g, out, n);
}

/* One row: `kept` values from each end and the sums of all, or all values. */
static void check_row(const json_t *row, const struct tern_weights *w, const float *found, int64_t most)
{
    const char *name = json_string_value(json_object_get(row, "name"));
    int64_t count = json_integer_value(json_object_get(row, "count")), kept = json_integer_value(json_object_get(row, "kept")), n;
    float *expected = support_f32(w, name, &n);
    if (!kept) {
        assert_int_equal(n, count);
        assert_close(name, found, expected, n, most);
    } else {
        double sum = 0, sum_abs = 0;
        for (int64_t i = 0; i < count; i++) {
            sum += (double)found[i];
            sum_abs += fabs((double)found[i]);
        }
        assert_int_equal(n, 2 * kept);
        assert_close(name, found, expected, kept, most);
        assert_close(name, found + count - kept, expected + kept, kept, most);
        assert_true(fabs(sum - json_number_value(json_object_get(row, "sum"))) <= 1e-7 * sum_abs);
        assert_true(fabs(sum_abs - json_number_value(json_object_get(row, "sum_abs"))) <= 1e-7 * sum_abs);
    }
    free(expected);
}

/* rand: every bit. randn from 16 values on: every bit, too. Under 16: f64 arithmetic of the C library, rounded to f32. */
static void test_cpu_single(void **state)
{
    struct tern_context *ctx = *state;
    json_t *file = support_json("random/cpu.json"), *row;
    struct tern_weights *w = support_tensors(ctx, "random/cpu");
    size_t i;
    json_array_foreach(json_object_get(file, "single"), i, row) {
        int64_t count = json_integer_value(json_object_get(row, "count"));
        const char *kind = json_string_value(json_object_get(row, "kind"));
        float *found = malloc((size_t)count * sizeof(float));
        struct tern_generator g;
        tern_generator_seed(&g, TERN_GENERATOR_CPU, (uint64_t)json_integer_value(json_object_get(row, "seed")));
        draw(&g, kind, found, count);
        check_row(row, w, found, strcmp(kind, "randn") == 0 && count < 16 ? 1 : 0);
        free(found);
    }
    assert_true(i > 300);
    tern_weights_unref(&w);
    json_decref(file);
}

/* A million values from seed 42, as FNV-1a over their 32-bit words; the number was computed from torch 2.15's. */
static void test_every_bit_of_a_million(void **state)
{
    (void)state;
    enum { MILLION = 1000000 };
    float *x = malloc(MILLION * sizeof(float));
    assert_non_null(x);
    struct tern_generator g;
    tern_generator_seed(&g, TERN_GENERATOR_CPU, 42);
    tern_generator_randn(&g, x, MILLION);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < MILLION; i++) {
        uint32_t word;
        memcpy(&word, x + i, sizeof(word));
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
    }
    free(x);
    assert_true(hash == UINT64_C(0xefa1649158a14580));
}

/* Draws of several lengths from one generator: what is kept between them. */
static void test_cpu_sequences(void **state)
{
    struct tern_context *ctx = *state;
    json_t *file = support_json("random/cpu.json"), *row, *step;
    struct tern_weights *w = support_tensors(ctx, "random/cpu");
    size_t i, j;
    json_array_foreach(json_object_get(file, "sequences"), i, row) {
        const char *name = json_string_value(json_object_get(row, "name"));
        int64_t n, used = 0;
        float *expected = support_f32(w, name, &n), *found = malloc((size_t)n * sizeof(float));
        struct tern_generator g;
        tern_generator_seed(&g, TERN_GENERATOR_CPU, (uint64_t)json_integer_value(json_object_get(row, "seed")));
        json_array_foreach(json_object_get(row, "draws"), j, step) {
            int64_t count = json_integer_value(json_array_get(step, 1));
            assert_true(used + count <= n);
            draw(&g, json_string_value(json_array_get(step, 0)), found + used, count);
            used += count;
        }
        assert_int_equal(used, n);
        assert_close(name, found, expected, n, 1);
        free(found);
        free(expected);
    }
    assert_true(i >= 10);
    tern_weights_unref(&w);
    json_decref(file);
}

static void test_philox_known_answers(void **state)
{
    (void)state;
    json_t *file = support_json("random/philox.json"), *row;
    size_t i;
    json_array_foreach(json_object_get(file, "philox4x32_10"), i, row) {
        uint32_t counter[4], key[2], out[4];
        for (size_t k = 0; k < 4; k++)
            counter[k] = (uint32_t)json_integer_value(json_array_get(json_object_get(row, "counter"), k));
        for (size_t k = 0; k < 2; k++)
            key[k] = (uint32_t)json_integer_value(json_array_get(json_object_get(row, "key"), k));
        tern_philox4x32(counter, key, out);
        for (size_t k = 0; k < 4; k++)
            assert_int_equal(out[k], json_integer_value(json_array_get(json_object_get(row, "result"), k)));
    }
    assert_int_equal(i, 3);
    json_decref(file);
}

static void test_cuda_randn(void **state)
{
    struct tern_context *ctx = *state;
    json_t *file = support_json("random/philox.json"), *row;
    struct tern_weights *w = support_tensors(ctx, "random/philox");
    size_t i;
    json_array_foreach(json_object_get(file, "randn"), i, row) {
        int64_t count = json_integer_value(json_object_get(row, "count")), offset = json_integer_value(json_object_get(row, "offset"));
        float *found = malloc((size_t)count * sizeof(float));
        struct tern_generator g;
        tern_generator_seed(&g, TERN_GENERATOR_CUDA, (uint64_t)json_integer_value(json_object_get(row, "seed")));
        for (int64_t k = 0; k <= offset; k++) /* draw number `offset`, whatever the sizes before it */
            tern_generator_randn(&g, found, k < offset ? 1 : count);
        check_row(row, w, found, 1);
        free(found);
    }
    assert_true(i > 30);
    tern_weights_unref(&w);
    json_decref(file);
}

/* Value i is the middle of the interval that the first word of block i stands for: (word + 1/2) 2^-32. The first word of
 * key 0, counter 0 is known: 0x6627e8d5. */
static void test_cuda_rand(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    struct tern_generator g;
    float *x = malloc(COUNT * sizeof(float));
    assert_non_null(x);
    tern_generator_seed(&g, TERN_GENERATOR_CUDA, 0);
    tern_generator_rand(&g, x, COUNT);
    assert_true(x[0] == (float)(0x6627e8d5 / 4294967296.0));
    assert_int_equal(g.offset, 1);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t word[4];
        tern_philox4x32((const uint32_t[4]){0, 0, i, 0}, (const uint32_t[2]){0, 0}, word);
        double expected = (word[0] + 0.5) / 4294967296.0;
        assert_true(x[i] >= 0 && x[i] < 1);
        assert_true(fabs((double)x[i] - expected) <= 1.3e-7 * expected); /* two roundings to f32 */
    }
    free(x);
}

static void test_only_low_seed_bits_count(void **state)
{
    (void)state;
    struct tern_generator a, b;
    float x[20], y[20];
    tern_generator_seed(&a, TERN_GENERATOR_CPU, 5);
    tern_generator_seed(&b, TERN_GENERATOR_CPU, 5 + (UINT64_C(7) << 32));
    tern_generator_randn(&a, x, 20);
    tern_generator_randn(&b, y, 20);
    assert_memory_equal(x, y, sizeof(x));
    tern_generator_seed(&a, TERN_GENERATOR_CUDA, 5);
    tern_generator_seed(&b, TERN_GENERATOR_CUDA, 5 + (UINT64_C(7) << 32));
    tern_generator_randn(&a, x, 20);
    tern_generator_randn(&b, y, 20);
    assert_memory_not_equal(x, y, sizeof(x));
}

static void test_copy_forks(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct tern_generator g, fork;
        float x[33], y[33];
        tern_generator_seed(&g, (enum tern_generator_kind)kind, 42);
        tern_generator_randn(&g, x, 7);
        fork = g;
        tern_generator_randn(&g, x, 33);
        tern_generator_randn(&fork, y, 33);
        assert_memory_equal(x, y, sizeof(x));
    }
}

/* The ends of the uniform range: u = 0 (logarithm of 1) and the largest u below 1. */
static void test_box_muller_ends(void **state)
{
    (void)state;
    float x[16];
    for (int i = 0; i < 8; i++) {
        x[i] = i % 2 ? 0 : 0x1.fffffep-1f;
        x[i + 8] = i < 4 ? 0 : 0x1.fffffep-1f;
    }
    tern_box_muller_16(x);
    for (int i = 0; i < 16; i++)
        assert_true(isfinite(x[i]));
    assert_true(x[1] == 0 && fabsf(x[0] - 5.76813f) < 1e-4f); /* sqrt(-2 ln 2^-24) */
}

static void test_nothing_to_draw(void **state)
{
    (void)state;
    struct tern_generator g, before;
    float x[1] = {3};
    for (int kind = 0; kind < 2; kind++) {
        tern_generator_seed(&g, (enum tern_generator_kind)kind, 1);
        before = g;
        tern_generator_randn(&g, x, 0);
        tern_generator_randn(&g, x, -5);
        tern_generator_rand(&g, NULL, 5);
        tern_generator_randn(NULL, x, 1);
        assert_memory_equal(&g, &before, sizeof(g));
        assert_true(x[0] == 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_single),
        cmocka_unit_test(test_every_bit_of_a_million),
        cmocka_unit_test(test_cpu_sequences),
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_cuda_randn),
        cmocka_unit_test(test_cuda_rand),
        cmocka_unit_test(test_only_low_seed_bits_count),
        cmocka_unit_test(test_copy_forks),
        cmocka_unit_test(test_box_muller_ends),
        cmocka_unit_test(test_nothing_to_draw),
    };
    return cmocka_run_group_tests(tests, support_setup, support_teardown);
}

/* The Brownian tree against torchsde's numbers (tests/data/ksamplers/brownian), and its properties. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "models/random/random.h"
#include "support.h"

static uint64_t number(const json_t *row, const char *key) { return strtoull(json_string_value(json_object_get(row, key)), NULL, 10); }
static double real(const json_t *row, const char *key) { return json_number_value(json_object_get(row, key)); }

static void test_seed_sequence(void **state)
{
    (void)state;
    json_t *file = support_json("ksamplers/brownian.json"), *row, *v;
    size_t rows, i;
    json_array_foreach(json_object_get(file, "seed_sequence"), rows, row) {
        uint64_t key[TERN_SEED_MAX_KEYS] = {0};
        uint32_t words[4];
        json_array_foreach(json_object_get(row, "spawn_key"), i, v)
            key[i] = (uint64_t)json_integer_value(v);
        tern_seed_sequence(number(row, "entropy"), key, (int)i, words, 4);
        json_array_foreach(json_object_get(row, "state"), i, v)
            assert_int_equal(words[i], json_integer_value(v));
        assert_int_equal(i, 4);
    }
    assert_int_equal(rows, 5);
    json_decref(file);
}

/* Every bit of 16 values or more of the CPU's generator; of the others the last one may differ where they are made, as in test_random. */
static void check_row(struct tern_context *ctx, const json_t *row, const float *expected, int64_t n)
{
    bool exact = strcmp(json_string_value(json_object_get(row, "kind")), "cpu") == 0 && n >= 16;
    enum tern_generator_kind kind = json_string_value(json_object_get(row, "kind"))[1] == 'u' ? TERN_GENERATOR_CUDA : TERN_GENERATOR_CPU;
    const json_t *spans = json_object_get(row, "spans");
    float *found = malloc((size_t)n * sizeof(float));
    struct tern_brownian *b = tern_brownian_create(ctx, kind, real(row, "low"), real(row, "high"), n);
    assert_non_null(b);
    /* twice, and backwards then: what was asked before changes nothing */
    for (size_t k = 0; k < 2 * json_array_size(spans); k++) {
        size_t i = k < json_array_size(spans) ? k : 2 * json_array_size(spans) - 1 - k;
        const json_t *span = json_array_get(spans, i);
        assert_int_equal(tern_brownian_noise(b, number(row, "seed"), json_number_value(json_array_get(span, 0)),
                                             json_number_value(json_array_get(span, 1)), found),
                         TERN_OK);
        for (int64_t j = 0; j < n; j++) {
            float want = expected[(int64_t)i * n + j];
            if (exact ? found[j] != want : !(fabsf(found[j] - want) <= 2e-6f))
                fail_msg("seed %llu, span %zu, value %lld: expected %.9g, found %.9g", (unsigned long long)number(row, "seed"), i,
                         (long long)j, (double)want, (double)found[j]);
        }
    }
    tern_brownian_destroy(&b);
    free(found);
}

static void test_torchsde(void **state)
{
    struct tern_context *ctx = *state;
    json_t *file = support_json("ksamplers/brownian.json"), *row;
    struct tern_weights *w = support_tensors(ctx, "ksamplers/brownian");
    size_t i;
    json_array_foreach(json_object_get(file, "rows"), i, row) {
        char name[32];
        int64_t n;
        snprintf(name, sizeof(name), "noise.%zu", i);
        float *expected = support_f32(w, name, &n);
        check_row(ctx, row, expected, n / (int64_t)json_array_size(json_object_get(row, "spans")));
        free(expected);
    }
    assert_int_equal(i, 7);
    tern_weights_unref(&w);
    json_decref(file);
}

enum { MANY = 4096 };

/* W(from) - W(to) */
static void fall(struct tern_brownian *b, uint64_t seed, double from, double to, float *out)
{
    assert_int_equal(tern_brownian_noise(b, seed, from, to, out), TERN_OK);
    for (int j = 0; j < MANY; j++)
        out[j] *= -sqrtf((float)(from - to));
}

static double mean_product(const float *a, const float *b)
{
    double sum = 0;
    for (int j = 0; j < MANY; j++)
        sum += (double)a[j] * (double)b[j];
    return sum / MANY;
}

/* Parts add up to the whole; the variance is the length; what does not overlap is independent, as other seeds are. */
static void test_properties(void **state)
{
    static const double levels[] = {14.6, 9.7, 3.2, 1, 0.31, 0.0303};
    enum { PARTS = sizeof(levels) / sizeof(levels[0]) - 1 };
    struct tern_context *ctx = *state;
    static float part[PARTS][MANY], whole[MANY], other[MANY];
    struct tern_brownian *b = tern_brownian_create(ctx, TERN_GENERATOR_CPU, 0.0303, 14.6, MANY);
    assert_non_null(b);
    for (int i = 0; i < PARTS; i++) {
        fall(b, 3, levels[i], levels[i + 1], part[i]);
        double length = levels[i] - levels[i + 1], variance = mean_product(part[i], part[i]);
        assert_true(fabs(variance / length - 1) < 0.1); /* 4.5 standard deviations of 4096 squares */
        for (int k = 0; k < i; k++)
            assert_true(fabs(mean_product(part[i], part[k])) < 0.07 * sqrt(length * (levels[k] - levels[k + 1])));
    }
    fall(b, 3, levels[0], levels[PARTS], whole);
    for (int j = 0; j < MANY; j++) {
        double sum = 0;
        for (int i = 0; i < PARTS; i++)
            sum += (double)part[i][j];
        assert_true(fabs(sum - (double)whole[j]) < 1e-5);
    }
    fall(b, 4, levels[0], levels[PARTS], other);
    assert_true(fabs(mean_product(whole, other)) < 0.07 * (levels[0] - levels[PARTS]));
    tern_brownian_destroy(&b);
}

/* What is too long for a motion is told by create; the memory of it is a number all the same. */
static void test_endless_lengths(void **state)
{
    const size_t most = tern_brownian_bytes(0, 0x1p30, 20);
    assert_true(most > tern_brownian_bytes(0, 1, 20));
    assert_true(tern_brownian_bytes(0, INFINITY, 20) == most && tern_brownian_bytes(0, 1e300, 20) == most);
    assert_null(tern_brownian_create(*state, TERN_GENERATOR_CPU, 0, INFINITY, 20));
    support_error(*state, TERN_E_INVALID, "brownian: expected noise levels");
}

/* Upwards is downwards negated, the same level twice is nothing, and what lies outside counts as the end. */
static void test_directions(void **state)
{
    struct tern_context *ctx = *state;
    float up[20], down[20], inside[20];
    struct tern_brownian *b = tern_brownian_create(ctx, TERN_GENERATOR_CPU, 1, 5, 20);
    assert_int_equal(tern_brownian_noise(b, 9, 2, 3, up), TERN_OK);
    assert_int_equal(tern_brownian_noise(b, 9, 3, 2, down), TERN_OK);
    for (int j = 0; j < 20; j++)
        assert_true(up[j] == -down[j] && up[j] != 0);
    assert_int_equal(tern_brownian_noise(b, 9, 2, 2.0000001, up), TERN_OK);
    for (int j = 0; j < 20; j++)
        assert_true(up[j] == 0);
    assert_int_equal(tern_brownian_noise(b, 9, -INFINITY, INFINITY, up), TERN_OK); /* divided by infinity */
    assert_int_equal(tern_brownian_noise(b, 9, 0, 9, up), TERN_OK);
    assert_int_equal(tern_brownian_noise(b, 9, 1, 5, inside), TERN_OK);
    for (int j = 0; j < 20; j++)
        assert_true(fabsf(up[j] * 3 - inside[j] * 2) < 1e-5f); /* sqrt of 9 and of 4 */
    assert_int_equal(tern_brownian_noise(b, 9, 7, 6, up), TERN_OK);
    assert_true(up[0] == 0);
    tern_brownian_destroy(&b);
    assert_null(b);
}

static void test_wrong_use(void **state)
{
    static const struct {
        double low, high;
        int64_t n;
        enum tern_status status;
    } cases[] = {{-1, 1, 4, TERN_E_INVALID},     {2, 1, 4, TERN_E_INVALID}, {NAN, 1, 4, TERN_E_INVALID},        {0, NAN, 4, TERN_E_INVALID},
                 {0, 0x1p31, 4, TERN_E_INVALID}, {0, 1, 0, TERN_E_INVALID}, {0, 1, INT64_MAX, TERN_E_NO_MEMORY}};
    struct tern_context *ctx = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_null(tern_brownian_create(ctx, TERN_GENERATOR_CPU, cases[i].low, cases[i].high, cases[i].n));
        support_error(ctx, cases[i].status, "");
    }
    float x[4];
    struct tern_brownian *b = tern_brownian_create(ctx, TERN_GENERATOR_CPU, 0, 0x1p30, 4); /* the deepest tree */
    assert_int_equal(tern_brownian_noise(b, 1, 1e-6, 0, x), TERN_OK);
    assert_true(isfinite(x[0]) && x[0] != 0);
    assert_int_equal(tern_brownian_noise(b, 1, NAN, 1, x), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "noise levels");
    assert_int_equal(tern_brownian_noise(b, 1, 2, 1, NULL), TERN_E_INVALID);
    assert_int_equal(tern_brownian_noise(NULL, 1, 2, 1, x), TERN_E_INVALID);
    tern_brownian_destroy(&b);
    tern_brownian_destroy(NULL);
    b = tern_brownian_create(ctx, TERN_GENERATOR_CPU, 3, 3, 4); /* one level */
    assert_int_equal(tern_brownian_noise(b, 1, 3, 0, x), TERN_OK);
    assert_true(x[0] == 0);
    tern_brownian_destroy(&b);
    assert_null(tern_brownian_create(NULL, TERN_GENERATOR_CPU, 0, 1, 4));
}

/* Each allocation fails once: an error, nothing left over. */
static void test_out_of_memory(void **state)
{
    (void)state;
    for (long fail_at = 1; fail_at <= 3; fail_at++) {
        struct support_allocator memory = {0};
        struct tern_context_params params = {.threads = 1, .allocator = support_failing(&memory)};
        struct tern_context *ctx = tern_context_create(&params);
        memory.fail_at = memory.count + fail_at;
        struct tern_brownian *b = tern_brownian_create(ctx, TERN_GENERATOR_CPU, 0, 1, 8);
        assert_int_equal(tern_error_status(ctx), b ? TERN_OK : TERN_E_NO_MEMORY);
        assert_true(fail_at <= 2 ? !b : b != NULL);
        tern_brownian_destroy(&b);
        tern_context_destroy(&ctx);
        assert_int_equal(memory.live, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seed_sequence),   cmocka_unit_test(test_torchsde),   cmocka_unit_test(test_properties),
        cmocka_unit_test(test_endless_lengths), cmocka_unit_test(test_directions), cmocka_unit_test(test_wrong_use),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, support_setup, support_teardown);
}

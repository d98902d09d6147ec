/* Attention that may compute in int8 against attention in f32: how near it is, what is no number, and that threads change nothing. Where
 * the processor has no kernel for it, that of bf16 is what is tested. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "backends/cpu/cpu.h"
#include "support.h"

struct sizes {
    int64_t n, h, l, s, e, ev;
};

/* Values of a head's matrix: (n, h, rows, width), to be freed. */
static float *noise(uint32_t seed, const struct sizes *z, int64_t rows, int64_t width)
{
    const int64_t count = z->n * z->h * rows * width;
    float *x = malloc((size_t)count * sizeof(*x) + 1);
    for (int64_t i = 0; i < count; i++) { /* of twelve even ones, about normal */
        float sum = -6;
        for (int k = 0; k < 12; k++) {
            seed = seed * 1664525u + 1013904223u;
            sum += (float)(seed >> 8) / 16777216.0f;
        }
        x[i] = sum;
    }
    return x;
}

static tern_tensor *tensor(struct tern_context *ctx, const struct sizes *z, int64_t rows, int64_t width, const float *x)
{
    const int64_t shape[] = {z->n, z->h, rows, width};
    return tern_cast(tern_tensor_create(ctx, TERN_F32, 4, shape, x), TERN_BF16);
}

/* Both results, (n, h, l, ev), to be freed. The values are rounded to bf16 in both. halves: as on a processor that computes vectors so. */
static void attend(int threads, bool halves, const struct sizes *z, const float *q, const float *k, const float *v, double scale,
                   float **exact, float **found)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = threads});
    cpu_device_of(ctx)->halves = halves;
    int64_t n;
    tern_scope_begin(ctx);
    tern_tensor *in[] = {tensor(ctx, z, z->l, z->e, q), tensor(ctx, z, z->s, z->e, k), tensor(ctx, z, z->s, z->ev, v)};
    tern_tensor *y = tern_sdpa(in[0], in[1], in[2], .scale = scale, .int8 = true);
    if (!y)
        fail_msg("%s", tern_error(ctx));
    *found = support_values(tern_cast(y, TERN_F32), &n);
    assert_int_equal(n, z->n * z->h * z->l * z->ev);
    for (int i = 0; i < 3; i++)
        in[i] = tern_cast(in[i], TERN_F32);
    if (exact)
        *exact = support_values(tern_sdpa(in[0], in[1], in[2], .scale = scale, .int8 = true), &n);
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

static double error_of(const struct sizes *z, const float *q, const float *k, const float *v, double scale)
{
    double errors[2];
    for (int halves = 0; halves < 2; halves++) {
        float *exact, *found;
        attend(2, halves, z, q, k, v, scale, &exact, &found);
        errors[halves] = support_nmse(found, exact, z->n * z->h * z->l * z->ev);
        assert_false(isnan(errors[halves]));
        free(exact);
        free(found);
    }
    return fmax(errors[0], errors[1]);
}

/* Every rest of a group, of a block, of a word and of a vector. */
static void sizes_agree(void **state)
{
    static const struct sizes sizes[] = {{2, 3, 70, 300, 40, 40},  {1, 2, 64, 256, 80, 80}, {1, 2, 33, 512, 160, 160},
                                         {1, 1, 17, 319, 33, 17},  {1, 1, 1, 257, 1, 1},    {1, 1, 5, 1000, 64, 36},
                                         {1, 2, 16, 260, 255, 99}, {1, 1, 130, 70, 40, 40}, {2, 1, 15, 384, 96, 33},
                                         {1, 1, 40, 4096, 40, 47}, {1, 2, 40, 320, 64, 64}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        const struct sizes *z = &sizes[i];
        float *q = noise(1, z, z->l, z->e), *k = noise(2, z, z->s, z->e), *v = noise(3, z, z->s, z->ev);
        const double error = error_of(z, q, k, v, 0);
        if (!(error <= 2e-3))
            fail_msg("queries %lld, keys %lld, %lld wide, values %lld: NMSE %.2e", (long long)z->l, (long long)z->s, (long long)z->e,
                     (long long)z->ev, error);
        free(q);
        free(k);
        free(v);
    }
}

/* Scores of every spread, keys and values far from zero, a scale below it; where few keys count, errors of scores count more. */
static void distributions_agree(void **state)
{
    const struct sizes z = {1, 2, 64, 1024, 40, 40};
    static const struct {
        double scale;
        float k_mean, v_mean;
        double most;
    } rows[] = {{0, 0, 0, 2e-3},     {0.01, 0, 0, 2e-3},  {0.5, 0, 0, 2e-3}, {2, 0, 0, 2e-3},  {0.16, 30, 0, 2e-3},
                {0.16, 0, 30, 2e-3}, {-0.16, 0, 0, 2e-3}, {8, 0, 0, 7e-3},   {500, 0, 0, 3e-2}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        float *q = noise(4, &z, z.l, z.e), *k = noise(5, &z, z.s, z.e), *v = noise(6, &z, z.s, z.ev);
        for (int64_t j = 0; j < z.h * z.s * z.e; j++)
            k[j] += rows[i].k_mean;
        for (int64_t j = 0; j < z.h * z.s * z.ev; j++)
            v[j] += rows[i].v_mean;
        const double error = error_of(&z, q, k, v, rows[i].scale);
        print_message("scale %g, keys about %g, values about %g: NMSE %.2e\n", rows[i].scale, rows[i].k_mean, rows[i].v_mean, error);
        assert_true(error <= rows[i].most);
        free(q);
        free(k);
        free(v);
    }
}

/* Scores that grow from key to key, so that each block needs another reference; and fall. */
static void scores_may_grow(void **state)
{
    const struct sizes z = {1, 1, 32, 1024, 16, 24};
    for (int falls = 0; falls < 2; falls++)
        for (int slope = 1; slope <= 64; slope *= 4) {
            float *q = noise(7, &z, z.l, z.e), *k = noise(8, &z, z.s, z.e), *v = noise(9, &z, z.s, z.ev);
            for (int64_t i = 0; i < z.l; i++)
                q[i * z.e] = 4;
            for (int64_t j = 0; j < z.s; j++)
                k[j * z.e] = (float)(falls ? z.s - j : j) / (float)z.s * (float)slope;
            const double error = error_of(&z, q, k, v, 0);
            print_message("scores that %s by %d: NMSE %.2e\n", falls ? "fall" : "grow", slope, error);
            assert_true(error <= 1e-2);
            free(q);
            free(k);
            free(v);
        }
}

/* However large scores are, keys that are alike count alike wherever they stand, and what is finite stays so. */
static void scores_may_be_huge(void **state)
{
    const struct sizes z = {1, 1, 20, 1088, 8, 8};
    float *q = calloc((size_t)(z.l * z.e), sizeof(*q)), *k = calloc((size_t)(z.s * z.e), sizeof(*k)), *v = noise(14, &z, z.s, z.ev), *found;
    for (int64_t i = 0; i < z.l; i++)
        q[i * z.e] = 1;
    for (int64_t j = 0; j < z.s; j++)
        k[j * z.e] = j % 2 ? 2 : 1;
    for (int64_t j = 0; j < z.s * z.ev; j++)
        v[j] = j < z.s * z.ev / 2;
    float *noise_q = noise(15, &z, z.l, z.e), *noise_k = noise(16, &z, z.s, z.e);
    for (int power = 0; power < 120; power++) {
        const double scale = ldexp(1.37, power / 2);
        attend(1, power % 2, &z, q, k, v, scale, NULL, &found);
        for (int64_t i = 0; i < z.l * z.ev; i++)
            if (!(fabsf(found[i] - 0.5f) <= 0.01f))
                fail_msg("scale %g: value %lld is %g", scale, (long long)i, found[i]);
        free(found);
        attend(1, power % 2, &z, noise_q, noise_k, v, scale, NULL, &found);
        for (int64_t i = 0; i < z.l * z.ev; i++)
            if (!isfinite(found[i]))
                fail_msg("noise, scale %g: value %lld is %g", scale, (long long)i, found[i]);
        free(found);
    }
    free(q);
    free(k);
    free(v);
    free(noise_q);
    free(noise_k);
}

/* No queries, of more heads than anybody could pack. */
static void nothing_takes_no_time(void **state)
{
    const int64_t many = (int64_t)1 << 20;
    struct tern_context *ctx = support_context();
    if (!cpu_level(ctx)->attention_i8.scratch) { /* what has no kernel of bf16 makes keys of another dtype first */
        print_message("no attention in int8 at this level: keys become another dtype first, all of them\n");
        tern_context_destroy(&ctx);
        skip();
    }
    tern_scope_begin(ctx);
    tern_tensor *x = tern_cast(tern_full(ctx, TERN_F32, 4, (const int64_t[]){1, 1, 256, 64}, 1), TERN_BF16);
    tern_tensor *k = tern_expand(x, 4, (const int64_t[]){many, many, 256, 64});
    tern_tensor *q = tern_tensor_create(ctx, TERN_BF16, 4, (const int64_t[]){many, many, 0, 64}, NULL);
    tern_tensor *y = tern_sdpa(q, k, k, .int8 = true);
    if (!y)
        fail_msg("%s", tern_error(ctx));
    assert_int_equal(tern_tensor_size(y, 0), many);
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* Queries of ones, keys whose scores are up to 2^from .. 2^to, every `step`. They are freed. */
static void check_exponents(const struct sizes *z, float *k, int from, int to, int step)
{
    float *q = malloc((size_t)(z->l * z->e) * sizeof(*q)), *v = noise(11, z, z->s, z->ev);
    for (int64_t i = 0; i < z->l * z->e; i++)
        q[i] = 1;
    for (int exponent = from; exponent <= to; exponent += step) {
        const double error = error_of(z, q, k, v, exponent * M_LN2 / (double)z->e);
        if (!(error <= 1e-3))
            fail_msg("keys of 2^%d: NMSE %.2e", exponent, error);
    }
    free(q);
    free(k);
    free(v);
}

/* One key outweighs all that came before it, however far it is. */
static void a_key_may_be_far(void **state)
{
    const struct sizes z = {1, 1, 16, 320, 40, 16};
    float *k = calloc((size_t)(z.s * z.e), sizeof(*k));
    for (int64_t c = 0; c < z.e; c++)
        k[200 * z.e + c] = -(k[c] = -1); /* their mean is zero */
    check_exponents(&z, k, 20000, 40000, 32);
}

/* Of deep rows scores go from one end of their range to the other, first at some keys of a block. The keys have no mean. */
static void all_keys_may_turn(void **state)
{
    const struct sizes z = {1, 1, 16, 768, 256, 16};
    float *k = malloc((size_t)(z.s * z.e) * sizeof(*k));
    for (int64_t i = 0; i < z.s * z.e; i++)
        k[i] = i < 256 * z.e || (i < 512 * z.e && i / z.e / 16 % 2) ? -1 : 1;
    check_exponents(&z, k, 12000, 12600, 4);
}

/* One key is worth 500 others each; together these are worth more: what is below one unit of a byte is not lost. */
static void many_small_powers_count(void **state)
{
    const struct sizes z = {1, 1, 16, 8192, 4, 8};
    float *q = calloc((size_t)(z.l * z.e), sizeof(*q)), *k = calloc((size_t)(z.s * z.e), sizeof(*k)), *v = noise(10, &z, z.s, z.ev);
    for (int64_t i = 0; i < z.l; i++)
        q[i * z.e] = 1;
    k[37 * z.e] = logf(500);
    for (int64_t j = 0; j < z.s * z.ev; j++)
        v[j] = j / z.ev == 37 ? -10 : 1 + 0.1f * v[j];
    const double error = error_of(&z, q, k, v, 1);
    print_message("8,191 keys of 1/500: NMSE %.2e\n", error);
    assert_true(error <= 2e-3);
    free(q);
    free(k);
    free(v);
}

/* A key of infinity is worth nothing to a query of another sign there: kernels of floats say so, in int8 the query is lost, too. */
static void what_is_no_number(void **state)
{
    const struct sizes z = {1, 2, 20, 300, 8, 10};
    const int64_t rows = z.l * z.ev;
    for (int way = 0; way < 12; way++) {
        const int where = way / 2, of = where % 3;
        float *x[] = {noise(11, &z, z.l, z.e), noise(12, &z, z.s, z.e), noise(13, &z, z.s, z.ev)}, *found;
        x[of][of == 2 ? 7 * z.ev + 3 : 7 * z.e + 3] = where < 3 ? NAN : INFINITY; /* row 7 of the first head */
        attend(1, way % 2, &z, x[0], x[1], x[2], 0, NULL, &found);
        for (int64_t i = 0; i < 2 * rows; i++) {
            const bool hit = i < rows && (of == 0 ? i / z.ev == 7 : of == 1 || i % z.ev == 3);
            const bool worth_nothing = where == 4 && i < rows && x[0][i / z.ev * z.e + 3] < 0;
            if (worth_nothing ? isinf(found[i]) : isfinite(found[i]) == hit)
                fail_msg("%s in %s: value %lld is %g", where < 3 ? "NaN" : "infinity", (const char *[]){"query", "key", "value"}[of],
                         (long long)i, found[i]);
        }
        for (int i = 0; i < 3; i++)
            free(x[i]);
        free(found);
    }
}

static void threads_change_nothing(void **state)
{
    const struct sizes z = {1, 3, 150, 700, 40, 40};
    float *q = noise(14, &z, z.l, z.e), *k = noise(15, &z, z.s, z.e), *v = noise(16, &z, z.s, z.ev), *first = NULL;
    for (int way = 0; way < 6; way++) { /* nor does how vectors are computed */
        float *found;
        attend(way / 2 * 2 + 1, way % 2, &z, q, k, v, 0, NULL, &found);
        if (first)
            assert_memory_equal(found, first, (size_t)(z.h * z.l * z.ev) * sizeof(*found));
        if (first)
            free(found);
        else
            first = found;
    }
    free(first);
    free(q);
    free(k);
    free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_agree),        cmocka_unit_test(distributions_agree),
                                       cmocka_unit_test(scores_may_be_huge), cmocka_unit_test(nothing_takes_no_time),
                                       cmocka_unit_test(scores_may_grow),    cmocka_unit_test(many_small_powers_count),
                                       cmocka_unit_test(what_is_no_number),  cmocka_unit_test(threads_change_nothing),
                                       cmocka_unit_test(a_key_may_be_far),   cmocka_unit_test(all_keys_may_turn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Products of int8 with what follows them: posts that are added where sums become values and those that come later, rows that tasks make
 * bytes of and rows that are made before, of linear layers and of convolutions of 1 x 1. Against the reference in f32. And where packed
 * weights have their bytes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "backends/cpu/gemm_i8.h"
#include "backends/cpu/level/level.h"
#include "conformance/guard.h"
#include "core/context.h"
#include "kernel_help.h"
#include "ops/dispatch.h"
#include "ops/reference.h"
#include "support.h"

enum { ALIKE, OF_COLUMNS, OF_PICTURES, OF_ROWS }; /* what a residual has values for */

struct after {
    const char *name;
    int residual;     /* -1: none */
    bool first, last; /* silu in front of the sum, behind it */
};
static const struct after afters[] = {{"nothing", -1, false, false},
                                      {"silu", -1, true, false},
                                      {"a sum", ALIKE, false, false},
                                      {"a sum and silu", ALIKE, false, true},
                                      {"silu and a sum", ALIKE, true, false},
                                      {"a value for each column", OF_COLUMNS, false, false},
                                      {"a value for each picture and column", OF_PICTURES, false, true},
                                      {"a value for each row", OF_ROWS, false, false}};

/* m rows of k values, in two pictures of 1 x m / 2, to n. */
struct size {
    int64_t m, n, k;
};

static tern_tensor *residual_of(struct tern_context *ctx, const struct size *s, int which, bool conv, enum tern_dtype dtype)
{
    const int64_t rows = which == ALIKE || which == OF_ROWS ? s->m / 2 : 1, pictures = which == OF_COLUMNS ? 1 : 2,
                  n = which == OF_ROWS ? 1 : s->n;
    tern_tensor *r =
        support_noise(ctx, 9, 4, conv ? (const int64_t[]){pictures, n, 1, rows} : (const int64_t[]){pictures, 1, rows, n}, 1, dtype);
    return conv ? tern_contiguous(r, TERN_CHANNELS_LAST) : r;
}

/* A product of bf16 rows, and what the reference makes of it in f32. */
struct operands {
    struct size s;
    bool conv;
    tern_tensor *x, *w, *bias, *exact;
};

static struct operands make(struct tern_context *ctx, const struct size *s, bool conv)
{
    struct operands p = {.s = *s, .conv = conv};
    const int64_t rows[] = {2, 1, s->m / 2, s->k}, pixels[] = {2, s->k, 1, s->m / 2}, weight[] = {s->n, s->k, 1, 1};
    p.x = tern_contiguous(support_noise(ctx, 1, 4, conv ? pixels : rows, 1, TERN_BF16), conv ? TERN_CHANNELS_LAST : TERN_CONTIGUOUS);
    p.w = support_noise(ctx, 2, conv ? 4 : 2, weight, 1, TERN_F32);
    p.bias = support_noise(ctx, 3, 1, &s->n, 1, TERN_F32);
    tern_tensor *wide = tern_cast(p.x, TERN_F32);
    assert_int_equal(tern_dispatch_force(ctx, "reference"), TERN_OK);
    p.exact = conv ? tern_quantized_conv2d(wide, p.w, NULL, p.bias, .stride = 1) : tern_quantized_linear(wide, p.w, NULL, p.bias);
    assert_int_equal(tern_dispatch_force(ctx, NULL), TERN_OK);
    return p;
}

static void check(struct tern_context *ctx, const struct operands *p, const struct after *after, enum tern_dtype out, enum tern_dtype more)
{
    tern_scope_begin(ctx);
    tern_tensor *r = after->residual < 0 ? NULL : residual_of(ctx, &p->s, after->residual, p->conv, more), *y = p->exact;
    struct tern_op_desc d = {.op = p->conv ? TERN_OP_quantized_conv2d : TERN_OP_quantized_linear, .n_in = r ? 5 : 4};
    if (p->conv)
        d.attrs = (union tern_op_attrs){.quantized_conv2d = {.stride = {1, 1}, .dilation = {1, 1}, .groups = 1}};
    if (after->first) {
        kernel_post(&d, TERN_OP_silu, -1);
        y = tern_silu(y);
    }
    if (r) {
        kernel_post(&d, TERN_OP_add, 4);
        y = tern_add(y, tern_cast(r, TERN_F32));
    }
    if (after->last) {
        kernel_post(&d, TERN_OP_silu, -1);
        y = tern_silu(y);
    }
    if (out == TERN_F32)
        kernel_post(&d, TERN_OP_cast, -1);
    d.out = tern_contiguous(tern_cast(y, out), p->conv ? TERN_CHANNELS_LAST : TERN_CONTIGUOUS)->meta;
    tern_tensor *const in[] = {p->x, p->w, NULL, p->bias, r};
    tern_tensor *found = kernel_run(ctx, &d, in, p->conv ? "quantized_conv2d_i8_igemm" : "quantized_linear_i8_gemm");
    const double e = support_tensor_nmse(tern_cast(found, TERN_F32), y);
    if (!(e <= (out == TERN_F32 ? 1e-12 : 1e-5)))
        fail_msg("%s of %d x %d x %d to %s, %s of %s: NMSE %g", p->conv ? "conv2d" : "linear", (int)p->s.m, (int)p->s.n, (int)p->s.k,
                 tern_dtype_name(out), after->name, tern_dtype_name(more), e);
    tern_scope_end(ctx, NULL);
}

/* Few rows for many columns are made bytes before, many rows by tasks; rests of rows, columns and depth; several parts of the depth. */
static void what_follows_a_product(void **state)
{
    static const struct size sizes[] = {{2, 1, 3},       {6, 130, 70},   {70, 33, 130},  {700, 160, 64},
                                        {600, 48, 1500}, {90, 700, 200}, {64, 130, 2500}};
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};
    struct tern_guard guard;
    struct tern_context *ctx = support_guarded(&guard, 2);
    for (size_t s = 0; s < 2 * sizeof(sizes) / sizeof(*sizes); s++) {
        tern_scope_begin(ctx);
        const struct operands p = make(ctx, &sizes[s / 2], s % 2);
        for (size_t i = 0; i < sizeof(afters) / sizeof(*afters); i++)
            for (int d = 0; d < 3; d++)
                for (int o = 0; o < 2 && (d == 0 || afters[i].residual >= 0); o++)
                    check(ctx, &p, &afters[i], o ? TERN_F32 : TERN_BF16, dtypes[d]);
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* A pixel of 64 ones under a filter of 64 ones with the scale 1/2, and 3: 35 where it meets the filter, else 3. Padding that no memory
 * holds is not laid out; at worst the bytes of the padded picture are 64 modulo 2^64. */
static void padding_beyond_memory(void **state)
{
    static const struct {
        int64_t padding[2], stride, rows, columns;
    } rows[] = {{{268451840, 268419072}, 536870912, 2, 1}, {{200000, 200000}, 200000, 3, 3}, {{60000, 0}, 60000, 3, 1}};
    const int64_t one[] = {1, 64, 1, 1};
    float ones[64], half = 0.5f, three = 3;
    int8_t filter[64];
    for (int i = 0; i < 64; i++)
        ones[i] = filter[i] = 1;
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.budget = (size_t)64 << 20});
    assert_non_null(ctx);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        int64_t n;
        tern_scope_begin(ctx);
        tern_tensor *y =
            tern_quantized_conv2d(tern_tensor_create(ctx, TERN_F32, 4, one, ones), tern_tensor_create(ctx, TERN_I8, 4, one, filter),
                                  tern_tensor_create(ctx, TERN_F32, 1, one, &half), tern_tensor_create(ctx, TERN_F32, 1, one, &three),
                                  .padding_hw = {rows[i].padding[0], rows[i].padding[1]}, .stride = rows[i].stride);
        if (!y)
            fail_msg("%s", tern_error(ctx));
        assert_int_equal(tern_tensor_size(y, 2), rows[i].rows);
        assert_int_equal(tern_tensor_size(y, 3), rows[i].columns);
        float *found = support_values(y, &n);
        for (int64_t k = 0; k < n; k++) /* the pixel lies in the middle; of two rows, in none */
            assert_float_equal(found[k], (n % 2 && k == n / 2) ? 35 : 3, 1e-4);
        free(found);
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
}

/* Byte `row` of column j: panels of 32 columns, or of 16 where the last has no more, in words of four rows. */
static int8_t packed_at(const int8_t *panels, int64_t n, int64_t rows, int64_t row, int64_t j)
{
    const int64_t first = j / TERN_DOT_NR * TERN_DOT_NR, width = n - first <= TERN_DOT_NR / 2 ? TERN_DOT_NR / 2 : TERN_DOT_NR;
    return panels[first * rows + (row / 4 * width + j - first) * 4 + row % 4];
}

/* Where a weight has its largest value, and those that have none. */
enum { NO_SCALE = 2, INFINITE };
static float filter_value(int64_t j, int64_t i)
{
    return j == NO_SCALE ? 0 : j == INFINITE && i == 1 ? INFINITY : (float)((37 * i + 11 * j) % 255 - 127) / 127;
}

static void check_packed(struct tern_context *ctx, const int64_t *shape, enum tern_dtype dtype)
{
    const int64_t n = shape[0], c = shape[1], taps = shape[2] * shape[3], k = c * taps, depth = (c + 63) / 64 * 64;
    const struct tern_meta weight = tern_meta_make(dtype, 4, shape);
    char *from = malloc((size_t)(n * k) * tern_dtype_size(dtype)), *to = malloc(tern_cpu_i8_packed_size(&weight, depth * taps, false));
    int8_t *q = malloc((size_t)(n * k));
    assert_true(from && to && q);
    const struct cpu_i8_packed p = tern_cpu_i8_parts(&weight, depth * taps, false, to);
    for (int64_t j = 0; j < n; j++) {
        float most = 0;
        for (int64_t i = 0; i < k; i++) {
            tern_store(dtype, from, j * k + i, dtype == TERN_I8 ? (double)((37 * i + 11 * j) % 255 - 127) : (double)filter_value(j, i));
            most = fmaxf(most, fabsf((float)tern_load(dtype, from, j * k + i)));
        }
        for (int64_t i = 0; i < k; i++) {
            const float x = (float)tern_load(dtype, from, j * k + i);
            q[j * k + i] = (int8_t)(dtype == TERN_I8 ? x : most > 0 && most < INFINITY ? nearbyintf(x / (most / 127)) : 0);
        }
    }
    memset(to, 77, tern_cpu_i8_packed_size(&weight, depth * taps, false));
    tern_cpu_i8_pack(ctx, &weight, false, from, to, NULL, NULL);
    for (int64_t j = 0; j < n; j++)
        for (int64_t tap = 0; tap < taps; tap++)
            for (int64_t i = 0; i < depth; i++)
                if (packed_at(p.panels, n, depth * taps, tap * depth + i, j) != (i < c ? q[j * k + i * taps + tap] : 0))
                    fail_msg("%d x %d x %d x %d of %s: column %d, tap %d, channel %d", (int)n, (int)c, (int)shape[2], (int)shape[3],
                             tern_dtype_name(dtype), (int)j, (int)tap, (int)i);
    free(from);
    free(to);
    free(q);
}

/* Rows that are read in one piece and in several, whole words of four channels and others; more taps than a piece has values. */
static void weights_have_their_places(void **state)
{
    static const int64_t shapes[][4] = {{5, 3, 1, 1}, {40, 1030, 1, 1}, {33, 130, 3, 3}, {16, 28, 3, 3},
                                        {4, 9, 5, 1}, {2, 5, 16, 16},   {3, 6, 17, 17},  {2, 2, 33, 33}};
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16, TERN_I8};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1});
    assert_non_null(ctx);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        for (int d = 0; d < 4; d++)
            check_packed(ctx, shapes[i], dtypes[d]);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_follows_a_product), cmocka_unit_test(padding_beyond_memory),
                                       cmocka_unit_test(weights_have_their_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

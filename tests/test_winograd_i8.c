/* Winograd's convolution in int8: against its rule in whole numbers, which stands here once more; every shape of edge; what is no number;
 * threads and batches; its rounding beside that of the direct one; and when a plan takes it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/graph.h>
#include <tern/ops.h>

#include "backends/cpu/cpu.h"
#include "conformance/guard.h"
#include "core/context.h"
#include "ops/dispatch.h"
#include "support.h"

#define WINOGRAD "quantized_conv2d_i8_winograd"
#define DIRECT "quantized_conv2d_i8_igemm"

struct shape {
    int64_t n, c, h, w, o;
    int pad_h, pad_w;
    enum tern_dtype dtype; /* of the pictures */
    bool bias, bytes;      /* weights are int8 with scales */
};

/* Operands on the host, (N, C, H, W), (O, C, 3, 3), (O). */
struct operands {
    struct shape s;
    float *x, *w, *scale, *bias;
};

static uint32_t seed = 1;
static int draw(int from, int to)
{
    seed = seed * 1664525u + 1013904223u;
    return from + (int)(seed >> 8) % (to - from + 1);
}

/* Sixteenths of up to 7 bits: exact in every dtype, and so are sums of a few. */
static float *values(int64_t n)
{
    float *x = malloc((size_t)n * sizeof(*x) + 1);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)draw(-100, 100) / 16;
    return x;
}

static struct operands make(struct shape s)
{
    struct operands a = {s, values(s.n * s.c * s.h * s.w), values(s.o * s.c * 9), values(s.o), values(s.o)};
    for (int64_t i = 0; s.bytes && i < s.o * s.c * 9; i++)
        a.w[i] = (float)draw(-127, 127);
    for (int64_t i = 0; i < s.o; i++)
        a.scale[i] = fabsf(a.scale[i]) / 64;
    return a;
}

static void drop(struct operands *a)
{
    free(a->x);
    free(a->w);
    free(a->scale);
    free(a->bias);
}

static struct tern_context *context(int threads, struct tern_guard *guard)
{
    struct tern_context_params params = {.threads = threads};
    if (guard) {
        tern_guard_init(guard);
        params.allocator = tern_guard_allocator(guard);
    }
    struct tern_context *ctx = tern_context_create(&params);
    assert_non_null(ctx);
    return ctx;
}

/* The result in f32, to be freed. */
static float *convolve(struct tern_context *ctx, const struct operands *a, const char *kernel, int64_t *n)
{
    const struct shape *s = &a->s;
    union tern_op_attrs attrs = {
        .quantized_conv2d = {.stride = {1, 1}, .padding = {s->pad_h, s->pad_w}, .dilation = {1, 1}, .groups = 1, .winograd = 1}};
    tern_scope_begin(ctx);
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){s->n, s->c, s->h, s->w}, a->x);
    tern_tensor *w = tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){s->o, s->c, 3, 3}, a->w);
    tern_tensor *in[] = {tern_contiguous(tern_cast(x, s->dtype), TERN_CHANNELS_LAST), s->bytes ? tern_cast(w, TERN_I8) : w,
                         s->bytes ? tern_tensor_create(ctx, TERN_F32, 1, &s->o, a->scale) : NULL,
                         s->bias ? tern_tensor_create(ctx, TERN_F32, 1, &s->o, a->bias) : NULL};
    in[1]->constant = true;
    assert_int_equal(tern_dispatch_force(ctx, kernel), TERN_OK);
    tern_tensor *y = tern_op_call(ctx, TERN_OP_quantized_conv2d, in, 4, &attrs);
    if (!y)
        fail_msg("%s", tern_error(ctx));
    float *found = support_values(tern_cast(y, TERN_F32), n);
    assert_int_equal(tern_dispatch_force(ctx, NULL), TERN_OK);
    tern_scope_end(ctx, NULL);
    return found;
}

/* ---- the rule: transforms of Lavin and Gray, in double, down for points 0, 1, -1 and infinity, across for 0, 2/3, -2/3, 3/2, -3/2 and
 * infinity. Rows of the input's and of the weights' have factors, which `UNIT` takes back: G is of whole numbers. */

static const double BT_DOWN[4][4] = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}};
static const double G_DOWN[4][3] = {{1, 0, 0}, {1, 1, 1}, {1, -1, 1}, {0, 0, 1}};
static const double AT_DOWN[2][4] = {{1, 1, 1, 0}, {0, 1, -1, -1}};
static const double UNIT_DOWN[4] = {1, 0.5, 0.5, 1};

static const double BT_ACROSS[6][6] = {{36, 0, -97, 0, 36, 0},  {0, 18, 27, -8, -12, 0}, {0, -18, 27, 8, -12, 0},
                                       {0, -12, -8, 27, 18, 0}, {0, 12, -8, -27, 18, 0}, {0, 36, 0, -97, 0, 36}};
static const double G_ACROSS[6][3] = {{1, 0, 0}, {9, 6, 4}, {9, -6, 4}, {4, 6, 9}, {4, -6, 9}, {0, 0, 1}};
static const double AT_ACROSS[4][6] = {{1, 1, 1, 1, 1, 0},
                                       {0, 2.0 / 3, -2.0 / 3, 3.0 / 2, -3.0 / 2, 0},
                                       {0, 4.0 / 9, 4.0 / 9, 9.0 / 4, 9.0 / 4, 0},
                                       {0, 8.0 / 27, -8.0 / 27, 27.0 / 8, -27.0 / 8, 1}};
static const double UNIT_ACROSS[6] = {1.0 / 36, 3.0 / 520, 3.0 / 520, 1.0 / 585, 1.0 / 585, 1.0 / 36};

#define HIGH 2
#define WIDE 4
#define POINTS 24

/* What the tables say: they are of a filter's minimal algorithm, whatever its taps and pixels. */
static void the_rule_is_a_convolution(void **state)
{
    for (int i = 0; i < HIGH; i++)
        for (int t = 0; t < 3; t++)
            for (int j = 0; j < 4; j++) {
                double sum = 0;
                for (int p = 0; p < 4; p++)
                    sum += AT_DOWN[i][p] * G_DOWN[p][t] * BT_DOWN[p][j] * UNIT_DOWN[p];
                assert_true(fabs(sum - (j == i + t)) < 1e-12);
            }
    for (int i = 0; i < WIDE; i++)
        for (int t = 0; t < 3; t++)
            for (int j = 0; j < 6; j++) {
                double sum = 0;
                for (int p = 0; p < 6; p++)
                    sum += AT_ACROSS[i][p] * G_ACROSS[p][t] * BT_ACROSS[p][j] * UNIT_ACROSS[p];
                assert_true(fabs(sum - (j == i + t)) < 1e-12);
            }
}

/* Bytes of the points of all filters, (O, 24, C), and what each counts, (O, 24). */
static void transform_weights(const struct operands *a, double *u, double *unit)
{
    const int64_t c = a->s.c;
    for (int64_t o = 0; o < a->s.o; o++) {
        const float *w = a->w + o * c * 9;
        float scale = a->scale[o], most = 0;
        for (int64_t i = 0; i < c * 9; i++)
            most = fmaxf(most, fabsf(w[i]));
        if (!a->s.bytes)
            scale = most / 127;
        for (int p = 0; p < POINTS; p++) {
            double *to = u + (o * POINTS + p) * c, largest = 127;
            for (int64_t k = 0; k < c; k++) {
                to[k] = 0;
                for (int t = 0; t < 9; t++) {
                    const double byte = a->s.bytes ? (double)w[k * 9 + t] : nearbyint((double)(w[k * 9 + t] / scale));
                    to[k] += G_DOWN[p / 6][t / 3] * G_ACROSS[p % 6][t % 3] * byte;
                }
                largest = fmax(largest, fabs(to[k]));
            }
            const double factor = fmin(32767, floor(127 * 32768 / largest));
            for (int64_t k = 0; k < c; k++)
                to[k] = floor(to[k] * factor / 32768 + 0.5);
            unit[o * POINTS + p] = (double)scale * UNIT_DOWN[p / 6] * UNIT_ACROSS[p % 6] * (factor < 32767 ? 32768 / factor : 1);
        }
    }
}

/* Of a tile whose first output pixel is (y, x) of picture n: bytes (24, C), and what each counts. */
static void transform_tile(const struct operands *a, int64_t n, int64_t y, int64_t x, double *v, float *unit)
{
    const struct shape *s = &a->s;
    for (int p = 0; p < POINTS; p++) {
        float most = 0;
        for (int64_t k = 0; k < s->c; k++) {
            double sum = 0;
            for (int i = 0; i < POINTS; i++) {
                const int64_t h = y - s->pad_h + i / 6, w = x - s->pad_w + i % 6;
                if (h >= 0 && h < s->h && w >= 0 && w < s->w)
                    sum += BT_DOWN[p / 6][i / 6] * BT_ACROSS[p % 6][i % 6] * (double)a->x[((n * s->c + k) * s->h + h) * s->w + w];
            }
            v[p * s->c + k] = sum;
            most = fmaxf(most, fabsf((float)sum));
        }
        for (int64_t k = 0; k < s->c; k++)
            v[p * s->c + k] = most > 0 ? (double)nearbyintf((float)v[p * s->c + k] * (127 / most)) : 0;
        unit[p] = most / 127;
    }
}

static void products_of(int64_t c, const double *v, const double *u, double product[POINTS])
{
    for (int p = 0; p < POINTS; p++) {
        product[p] = 0;
        for (int64_t k = 0; k < c; k++)
            product[p] += v[p * c + k] * u[p * c + k];
    }
}

static float *rule(const struct operands *a)
{
    const struct shape *s = &a->s;
    const int64_t oh = s->h + 2 * s->pad_h - 2, ow = s->w + 2 * s->pad_w - 2;
    double *u = malloc((size_t)(s->o * POINTS * s->c) * sizeof(*u)), *unit = malloc((size_t)(s->o * POINTS) * sizeof(*unit)),
           *v = malloc((size_t)(POINTS * s->c) * sizeof(*v)), product[POINTS];
    float *out = malloc((size_t)(s->n * s->o * oh * ow) * sizeof(*out) + 1), tile[POINTS];
    transform_weights(a, u, unit);
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t y = 0; y < oh; y += HIGH)
            for (int64_t x = 0; x < ow; x += WIDE) {
                transform_tile(a, n, y, x, v, tile);
                for (int64_t o = 0; o < s->o; o++) {
                    products_of(s->c, v, u + o * POINTS * s->c, product);
                    for (int i = 0; i < HIGH * WIDE; i++) {
                        double sum = s->bias ? (double)a->bias[o] : 0;
                        if (y + i / WIDE >= oh || x + i % WIDE >= ow)
                            continue;
                        for (int p = 0; p < POINTS; p++)
                            sum +=
                                AT_DOWN[i / WIDE][p / 6] * AT_ACROSS[i % WIDE][p % 6] * product[p] * (double)tile[p] * unit[o * POINTS + p];
                        out[((n * s->o + o) * oh + y + i / WIDE) * ow + x + i % WIDE] = (float)sum;
                    }
                }
            }
    free(u);
    free(unit);
    free(v);
    return out;
}

static void check(struct tern_context *ctx, const struct shape *s)
{
    struct operands a = make(*s);
    int64_t n;
    float *found = convolve(ctx, &a, WINOGRAD, &n), *expected = rule(&a);
    const double e = support_nmse(found, expected, n), most = s->dtype == TERN_F32 ? 1e-12 : s->dtype == TERN_F16 ? 1e-6 : 1e-5;
    if (!(e <= most))
        fail_msg("(%d, %d, %d, %d) to %d, padding %d, %d, %s: NMSE %g", (int)s->n, (int)s->c, (int)s->h, (int)s->w, (int)s->o, s->pad_h,
                 s->pad_w, tern_dtype_name(s->dtype), e);
    free(found);
    free(expected);
    drop(&a);
}

/* Pictures below a tile and with every rest, channels and panels with every rest, paddings, dtypes. */
static void every_edge(void **state)
{
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};
    struct tern_guard guard;
    struct tern_context *ctx = context(2, &guard);
    for (int i = 0; i < 200; i++) {
        struct shape s = {.n = draw(1, 2), .dtype = dtypes[draw(0, 2)]}; /* one draw a statement: they have an order */
        s.c = draw(1, 140);
        s.o = draw(1, 140);
        s.pad_h = draw(0, 2);
        s.pad_w = draw(0, 2);
        s.h = draw(s.pad_h ? 1 : 3, 9);
        s.w = draw(s.pad_w ? 1 : 3, 9);
        s.bias = draw(0, 1);
        s.bytes = draw(0, 1);
        check(ctx, &s);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* Channels in several parts, tiles of more groups than one, in rows for several tasks; more threads than there are products. */
static void large_ones(void **state)
{
    static const struct shape shapes[] = {{1, 1450, 5, 6, 40, 1, 1, TERN_F32, true, true},
                                          {2, 900, 14, 13, 33, 1, 1, TERN_F32, false, false},
                                          {1, 64, 66, 50, 70, 1, 1, TERN_F32, true, true}};
    struct tern_guard guard;
    struct tern_context *ctx = context(24, &guard);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        check(ctx, &shapes[i]);
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* Pictures whose transformed tiles do not fit into one chunk: as those of which each is a call by itself. */
static void many_chunks(void **state)
{
    struct tern_context *ctx = context(2, NULL);
    struct operands two = make((struct shape){2, 320, 66, 70, 33, 1, 1, TERN_BF16, true, true}), one = two;
    int64_t n, m;
    float *both = convolve(ctx, &two, WINOGRAD, &n);
    one.s.n = 1;
    for (int i = 0; i < 2; i++) {
        one.x = two.x + i * 320 * 66 * 70;
        float *alone = convolve(ctx, &one, WINOGRAD, &m);
        assert_int_equal(2 * m, n);
        assert_memory_equal(alone, both + i * m, (size_t)m * sizeof(*alone));
        free(alone);
    }
    free(both);
    drop(&two);
    tern_context_destroy(&ctx);
}

static void bits_of_any_number_of_threads(void **state)
{
    static const int threads[] = {1, 2, 5};
    struct operands a = make((struct shape){1, 200, 17, 30, 330, 1, 1, TERN_BF16, true, false});
    float *first = NULL;
    for (int i = 0; i < 3; i++) {
        struct tern_context *ctx = context(threads[i], NULL);
        int64_t n;
        float *y = convolve(ctx, &a, WINOGRAD, &n);
        tern_context_destroy(&ctx);
        if (i)
            assert_memory_equal(y, first, (size_t)n * sizeof(*y));
        free(i ? y : NULL);
        first = i ? first : y;
    }
    free(first);
    drop(&a);
}

/* ---- numbers */

/* What reads the value is no number, and what lies two tiles away is what it was. A weight that is none spoils its channel alone. */
static void no_number_spoils_what_reads_it(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct tern_context *ctx = context(1, NULL);
    for (int b = 0; b < 3; b++) {
        struct operands a = make((struct shape){1, 20, 12, 12, 8, 1, 1, TERN_F32, true, false});
        int64_t n;
        float *plain = convolve(ctx, &a, WINOGRAD, &n);
        a.x[7 * 144 + 5 * 12 + 6] = bad[b];
        float *found = convolve(ctx, &a, WINOGRAD, &n);
        for (int64_t i = 0; i < n; i++) {
            const int64_t dy = llabs(i / 12 % 12 - 5), dx = llabs(i % 12 - 6);
            if (dy <= 1 && dx <= 1)
                assert_true(isnan(found[i]));
            if (dy > 3 || dx > 5)
                assert_true(found[i] == plain[i]);
        }
        free(found);
        a.x[7 * 144 + 5 * 12 + 6] = 1;
        a.w[3 * 20 * 9 + 11] = bad[b];
        found = convolve(ctx, &a, WINOGRAD, &n);
        for (int64_t i = 0; i < n; i++)
            assert_true(isnan(found[i]) == (i / 144 == 3));
        free(found);
        free(plain);
        drop(&a);
    }
    tern_context_destroy(&ctx);
}

/* Zeros give the bias, weights of zeros too; the largest bytes everywhere give no sum that does not fit. */
static void extremes(void **state)
{
    struct tern_context *ctx = context(1, NULL);
    struct operands a = make((struct shape){1, 640, 6, 6, 40, 1, 1, TERN_F32, true, true});
    int64_t n;
    for (int i = 0; i < 640 * 36; i++)
        a.x[i] = 6;
    for (int i = 0; i < 40 * 640 * 9; i++)
        a.w[i] = i / (640 * 9) % 2 ? -127 : 127;
    float *found = convolve(ctx, &a, WINOGRAD, &n), *expected = rule(&a);
    assert_true(support_nmse(found, expected, n) <= 1e-12);
    free(found);
    free(expected);
    for (int turn = 0; turn < 2; turn++) {
        memset(turn ? a.w : a.x, 0, turn ? sizeof(float) * 40 * 640 * 9 : sizeof(float) * 640 * 36);
        found = convolve(ctx, &a, WINOGRAD, &n);
        for (int64_t i = 0; i < n; i++)
            assert_true(found[i] == a.bias[i / 36]);
        free(found);
        for (int i = 0; i < 640 * 36; i++)
            a.x[i] = (float)(i % 7);
    }
    drop(&a);
    tern_context_destroy(&ctx);
}

/* Of white noise the transforms leave 4.3 times the direct one's squared error: 7.9 by theory, less what scales of each point of a
 * tile save. */
static void rounds_no_more_than_the_points_do(void **state)
{
    struct tern_context *ctx = context(2, NULL);
    struct operands a = make((struct shape){1, 128, 32, 32, 64, 1, 1, TERN_F32, false, false});
    int64_t n;
    for (int turn = 0; turn < 2; turn++) {
        const int64_t count = turn ? 64 * 128 * 9 : 128 * 1024;
        tern_scope_begin(ctx);
        float *drawn = support_values(support_noise(ctx, 5 + (uint64_t)turn, 1, &count, 1, TERN_F32), &n);
        tern_scope_end(ctx, NULL);
        memcpy(turn ? a.w : a.x, drawn, (size_t)count * sizeof(float));
        free(drawn);
    }
    float *winograd = convolve(ctx, &a, WINOGRAD, &n), *direct = convolve(ctx, &a, DIRECT, &n);
    tern_scope_begin(ctx);
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){1, 128, 32, 32}, a.x);
    tern_tensor *w = tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){64, 128, 3, 3}, a.w);
    float *exact = support_values(tern_conv2d(x, w, NULL, .padding = 1), &n);
    tern_scope_end(ctx, NULL);
    const double off = support_nmse(winograd, exact, n), least = support_nmse(direct, exact, n);
    if (!(off <= 5 * least))
        fail_msg("NMSE %g, of the direct one %g", off, least);
    free(winograd);
    free(direct);
    free(exact);
    drop(&a);
    tern_context_destroy(&ctx);
}

/* ---- the choice */

struct block {
    struct tern_context *ctx;
    struct tern_weights *weights;
    bool sum_first;
};

static enum tern_status layer_with_posts(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct block *b = user;
    tern_tensor *x = tern_contiguous(in[0], TERN_CHANNELS_LAST);
    tern_tensor *y = tern_conv2d(x, tern_weights_get(b->weights, "wide"), tern_weights_get(b->weights, "bias"), .padding = 1);
    tern_tensor *after = b->sum_first ? tern_silu(tern_add(y, x)) : tern_add(tern_silu(y), x);
    out[0] = tern_conv2d(after, tern_weights_get(b->weights, "few"), NULL, .padding = 1);
    return tern_error_status(b->ctx);
}

struct kernels {
    int winograd, direct;
};

static void note_kernel(void *user, const struct tern_step_profile *step)
{
    struct kernels *k = user;
    k->winograd += !strcmp(step->kernel, WINOGRAD);
    k->direct += !strcmp(step->kernel, DIRECT);
}

static struct kernels run_plan(const struct block *b, const struct tern_graph *g, const char *words, tern_tensor *in, float **y, int64_t *n)
{
    struct kernels k = {0};
    tern_tensor *out = NULL;
    struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.quantize = words});
    struct tern_binding *binding = tern_plan_bind(plan, b->weights);
    if (!binding || tern_plan_profile(binding, &in, &out, note_kernel, &k))
        fail_msg("%s", tern_error(b->ctx));
    *y = support_values(out, n);
    tern_binding_unref(&binding);
    tern_plan_unref(&plan);
    return k;
}

/* Where products take most of the time, if the words allow it; not for four outputs, for which the picture would be transformed. Tiles of
 * AMX multiply so fast that the transforms of this size are not worth it. */
static void plans_choose_by_cost_and_words(void **state)
{
    static const int64_t picture[] = {2, 320, 32, 32}, wide[] = {320, 320, 3, 3}, few[] = {4, 320, 3, 3};
    struct tern_context *ctx = context(2, NULL);
    const bool pays = cpu_level(ctx)->bf16.gain <= 4;
    struct block b = {ctx, tern_weights_create(ctx)};
    const struct tern_graph_input input = {"x", TERN_F32, 4, {2, 320, 32, 32}};
    float *y[4];
    int64_t n;
    tern_scope_begin(ctx);
    assert_int_equal(tern_weights_add(b.weights, "wide", support_noise(ctx, 1, 4, wide, 0.02, TERN_F32)), TERN_OK);
    assert_int_equal(tern_weights_add(b.weights, "few", support_noise(ctx, 2, 4, few, 0.02, TERN_F32)), TERN_OK);
    assert_int_equal(tern_weights_add(b.weights, "bias", support_noise(ctx, 3, 1, &picture[1], 1, TERN_F32)), TERN_OK);
    tern_tensor *x = support_noise(ctx, 4, 4, picture, 1, TERN_F32);
    for (int first = 0; first < 2; first++) {
        b.sum_first = first;
        struct tern_graph *g = tern_graph_trace(ctx, layer_with_posts, &b, b.weights, &input, 1, 1);
        const struct kernels any = run_plan(&b, g, "*", x, &y[0], &n), direct = run_plan(&b, g, "* !winograd", x, &y[1], &n),
                             none = run_plan(&b, g, NULL, x, &y[2], &n);
        assert_int_equal(any.winograd, pays);
        assert_int_equal(any.direct, 2 - pays);
        assert_true(direct.winograd == 0 && direct.direct == 2);
        assert_true(none.winograd == 0 && none.direct == 0);
        assert_int_equal(tern_op_force(ctx, WINOGRAD), TERN_OK);
        const struct kernels forced = run_plan(&b, g, "*", x, &y[3], &n);
        assert_int_equal(tern_op_force(ctx, NULL), TERN_OK);
        assert_int_equal(forced.winograd, 2);
        for (int i = 0; i < 2; i++)
            assert_true(support_nmse(y[i], y[2], n) <= 1e-3);
        assert_true(support_nmse(y[3], y[2], n) <= 4.3 * support_nmse(y[1], y[2], n)); /* docs/kernels/int8.md */
        for (int i = 0; i < 4; i++)
            free(y[i]);
        tern_graph_destroy(&g);
    }
    tern_scope_end(ctx, NULL);
    tern_weights_unref(&b.weights);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rule_is_a_convolution),
        cmocka_unit_test(every_edge),
        cmocka_unit_test(large_ones),
        cmocka_unit_test(many_chunks),
        cmocka_unit_test(bits_of_any_number_of_threads),
        cmocka_unit_test(no_number_spoils_what_reads_it),
        cmocka_unit_test(extremes),
        cmocka_unit_test(rounds_no_more_than_the_points_do),
        cmocka_unit_test(plans_choose_by_cost_and_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Winograd's convolution: every shape of edge against the reference, its rounding error, its posts, and when a plan takes
 * it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
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

#define WINOGRAD "conv2d_f32_winograd"
#define WINOGRAD_BF16 "conv2d_bf16_winograd"
#define HUNGRY "conv2d_hungry" /* the f32 one with weights of four times the size */
/* NMSE of two results in bf16, one of products of 16 bits: what is off by 1 / 1500 is the next bf16 in one of ten cases. */
#define MOST_BF16 5e-6

struct shape {
    int64_t n, c, h, w, o;
    int pad_h, pad_w;
    enum tern_dtype weights;
    bool bias;
    enum tern_dtype dtype; /* of the pictures */
    int bits;              /* of the weights; 0: they are of a dtype */
};

/* The NMSE of a kernel against another one ("reference": sums in double). A kernel of f32 gets the values of narrower pictures in f32; its
 * result is rounded as that of the other is. */
static double error_of(struct tern_context *ctx, const struct shape *s, const char *kernel, const char *other)
{
    tern_scope_begin(ctx);
    tern_tensor *x = tern_contiguous(support_noise(ctx, 1, 4, (const int64_t[]){s->n, s->c, s->h, s->w}, 1, s->dtype), TERN_CHANNELS_LAST);
    tern_tensor *w = tern_cast(support_noise(ctx, 2, 4, (const int64_t[]){s->o, s->c, 3, 3}, 1, TERN_F32), s->weights);
    tern_tensor *b = s->bias ? support_noise(ctx, 3, 1, &s->o, 1, TERN_F32) : NULL, *y[2];
    tern_tensor *from[] = {x, strstr(other, "_f32_") ? tern_cast(x, TERN_F32) : x};
    w->constant = true;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tern_dispatch_force(ctx, i ? other : kernel), TERN_OK);
        y[i] = s->bits ? tern_weight_only_conv2d(from[i], w, b, s->bits, .padding_hw = {s->pad_h, s->pad_w})
                       : tern_conv2d(from[i], w, b, .padding_hw = {s->pad_h, s->pad_w});
    }
    assert_int_equal(tern_dispatch_force(ctx, NULL), TERN_OK);
    y[1] = y[1] ? tern_cast(y[1], s->dtype) : NULL;
    if (!y[0] || !y[1])
        fail_msg("%s", tern_error(ctx));
    double e = support_tensor_nmse(y[0], y[1]);
    tern_scope_end(ctx, NULL);
    return e;
}

static bool has(const char *kernel)
{
    struct tern_context *ctx = support_context();
    bool found = tern_kernel_find(ctx->device, kernel) != NULL;
    tern_context_destroy(&ctx);
    return found;
}

/* Pictures of up to 13 pixels, below a tile and with every rest, channels and panels with every rest, paddings, dtypes. */
static void check_edges(enum tern_dtype dtype, const char *kernel, bool few_bits, double most)
{
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};
    struct tern_guard guard;
    struct tern_context *ctx = support_guarded(&guard, 2);
    uint32_t r = 1;
#define DRAW(from, to) ((from) + (int)((r = r * 1664525u + 1013904223u) >> 8) % ((to) - (from) + 1))
    for (int i = 0; i < 200; i++) {
        struct shape s = {.n = DRAW(1, 2), .dtype = dtype};          /* one draw a statement: they have an order */
        s.c = DRAW(1, dtype == TERN_BF16 && i % 16 == 0 ? 400 : 40); /* parts of 160 */
        s.o = DRAW(1, dtype == TERN_F32 ? 70 : 200);                 /* results in bf16 are finished some channels at a time */
        s.pad_h = DRAW(0, 2);
        s.pad_w = DRAW(0, 2);
        s.h = DRAW(s.pad_h ? 1 : 3, 13);
        s.w = DRAW(s.pad_w ? 1 : 3, 13);
        s.weights = dtypes[DRAW(0, 2)];
        s.bias = DRAW(0, 2);
        s.bits = few_bits ? 4 + 4 * DRAW(0, 1) : 0;
        double e = error_of(ctx, &s, kernel, "reference");
        if (!(e <= most) || tern_guard_damage(&guard))
            fail_msg("%s, (%d, %d, %d, %d) to %d, padding %d, %d, %s, %d bits: NMSE %g, %d damages", kernel, (int)s.n, (int)s.c, (int)s.h,
                     (int)s.w, (int)s.o, s.pad_h, s.pad_w, tern_dtype_name(s.weights), s.bits, e, (int)tern_guard_damage(&guard));
    }
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

static void every_edge(void **state)
{
    check_edges(TERN_F32, WINOGRAD, false, 2e-12);
    check_edges(TERN_F32, "weight_only_" WINOGRAD, true, 2e-12);
}

static void every_edge_in_bf16(void **state)
{
    if (!has(WINOGRAD_BF16)) {
        print_message("this level has no instructions for it\n");
        skip();
    }
    check_edges(TERN_BF16, WINOGRAD_BF16, false, MOST_BF16);
    check_edges(TERN_BF16, "weight_only_" WINOGRAD_BF16, true, MOST_BF16);
}

/* Tasks and regions are cut by the number of threads, sums are not. */
static void same_bits(enum tern_dtype dtype, const char *kernel, const int64_t *x_shape, const int64_t *w_shape)
{
    static const int threads[] = {1, 2, 4, 5};
    float *first = NULL;
    for (int i = 0; i < 4; i++) {
        struct tern_guard guard;
        struct tern_context *ctx = support_guarded(&guard, threads[i]);
        int64_t n;
        tern_scope_begin(ctx);
        tern_tensor *x = tern_contiguous(support_noise(ctx, 1, 4, x_shape, 1, dtype), TERN_CHANNELS_LAST);
        assert_int_equal(tern_dispatch_force(ctx, kernel), TERN_OK);
        float *y = support_values(tern_conv2d(x, support_noise(ctx, 2, 4, w_shape, 1, TERN_F32), NULL, .padding = 1), &n);
        tern_scope_end(ctx, NULL);
        tern_context_destroy(&ctx);
        assert_int_equal(tern_guard_damage(&guard), 0);
        if (i)
            assert_memory_equal(y, first, (size_t)n * sizeof(*y));
        free(i ? y : NULL);
        first = i ? first : y;
    }
    free(first);
}

static void bits_of_any_number_of_threads(void **state)
{
    static const int64_t shapes[][2][4] = {
        {{1, 200, 17, 30}, {330, 200, 3, 3}},
        {{1, 20, 146, 102}, {40, 20, 3, 3}},  /* 962 tiles: regions do not divide them */
        {{1, 500, 80, 118}, {33, 500, 3, 3}}, /* chunks of a region, one of them short */
    };
    for (int i = 0; i < 3; i++) {
        same_bits(TERN_F32, WINOGRAD, shapes[i][0], shapes[i][1]);
        if (has(WINOGRAD_BF16))
            same_bits(TERN_BF16, WINOGRAD_BF16, shapes[i][0], shapes[i][1]);
    }
}

/* More tiles than one chunk holds: of 24 regions each has 169, and room for 151. More threads than there are products. */
static void many_chunks_and_threads(void **state)
{
    struct tern_guard guard;
    struct tern_context *ctx = support_guarded(&guard, 24);
    const struct shape large = {2, 24, 178, 177, 40, 1, 1, TERN_F32, true}, small = {1, 96, 12, 20, 130, 1, 1, TERN_F16, false};
    assert_true(error_of(ctx, &large, WINOGRAD, "conv2d_f32_igemm") <= 2e-12);
    assert_true(error_of(ctx, &small, WINOGRAD, "conv2d_f32_igemm") <= 2e-12);
    if (has(WINOGRAD_BF16)) {
        struct shape whole = large;
        whole.dtype = TERN_BF16; /* half the bytes: twice the tiles */
        whole.h = 356;
        assert_true(error_of(ctx, &whole, WINOGRAD_BF16, "conv2d_f32_igemm") <= MOST_BF16);
    }
    for (int bits = 4; bits <= 8; bits += 4) {
        const struct shape parts = {
            .n = 1, .c = 300, .h = 20, .w = 18, .o = 200, .pad_h = 1, .pad_w = 1, .weights = TERN_BF16, .bits = bits};
        const double e = error_of(ctx, &parts, "weight_only_" WINOGRAD, "reference");
        if (!(e <= 1e-11)) /* as of rounding_error: sums are long */
            fail_msg("%d bits: NMSE %g", bits, e);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* Inputs and weights of variance 1; the last two are the sizes of Stable Diffusion. */
static void rounding_error(void **state)
{
    static const struct shape shapes[] = {{1, 64, 16, 16, 32, 1, 1, TERN_F32, false},
                                          {1, 320, 16, 16, 32, 1, 1, TERN_F32, false},
                                          {1, 640, 16, 16, 32, 1, 1, TERN_F32, false},
                                          {1, 640, 16, 16, 32, 1, 1, TERN_F16, false}};
    struct tern_context *ctx = support_context();
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        double e = error_of(ctx, &shapes[i], WINOGRAD, "reference");
        print_message("%d channels, %s weights: NMSE %.2g\n", (int)shapes[i].c, tern_dtype_name(shapes[i].weights), e);
        assert_true(e <= 1e-11);
    }
    tern_context_destroy(&ctx);
}

/* ---- plans */

struct block {
    struct tern_context *ctx;
    struct tern_weights *weights;
    int posts; /* of layer_with_posts */
};

/* What a residual block does with its convolutions: picture, time (N, O), another picture (N, O, H, W). */
static enum tern_status forward(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct block *b = user;
    tern_tensor *w = tern_weights_get(b->weights, "w"), *bias = tern_weights_get(b->weights, "b");
    tern_tensor *y = tern_contiguous(in[2], TERN_CHANNELS_LAST);
    out[0] = tern_add(tern_conv2d(in[0], w, bias, .padding = 1), tern_as_nc11(in[1]));
    out[1] = tern_mul_scalar(tern_add(tern_silu(tern_conv2d(in[0], w, NULL, .padding = 1)), y), 0.5);
    return tern_error_status(b->ctx);
}

struct steps {
    int winograd, hungry, other, launches;
};

static void count_steps(void *user, const struct tern_step_profile *step)
{
    struct steps *s = user;
    s->winograd += !strcmp(step->kernel, WINOGRAD);
    s->hungry += !strcmp(step->kernel, HUNGRY);
    s->other += !strcmp(step->op, "conv2d") && strcmp(step->kernel, WINOGRAD) && strcmp(step->kernel, HUNGRY);
    s->launches++;
}

/* Runs the block as a plan; its worst NMSE against the eager call. */
static double run_block(struct tern_context *ctx, const struct shape *s, const char *without, struct steps *steps)
{
    struct block b = {ctx, tern_weights_create(ctx)};
    const struct tern_graph_input inputs[] = {{"x", TERN_F32, 4, {s->n, s->c, s->h, s->w}},
                                              {"t", TERN_F32, 2, {s->n, s->o}},
                                              {"y", TERN_F32, 4, {s->n, s->o, s->h, s->w}}};
    tern_tensor *in[3], *eager[2], *out[2] = {NULL};
    double worst = 0;
    tern_scope_begin(ctx);
    for (int i = 0; i < 3; i++)
        in[i] = support_noise(ctx, 10 + (uint64_t)i, inputs[i].ndim, inputs[i].shape, 1, TERN_F32);
    tern_tensor *w = tern_cast(support_noise(ctx, 20, 4, (const int64_t[]){s->o, s->c, 3, 3}, 0.05, TERN_F32), s->weights);
    assert_int_equal(tern_weights_add(b.weights, "w", w), TERN_OK);
    assert_int_equal(tern_weights_add(b.weights, "b", support_noise(ctx, 21, 1, &s->o, 1, TERN_F32)), TERN_OK);
    assert_int_equal(forward(&b, in, eager), TERN_OK);
    struct tern_graph *g = tern_graph_trace(ctx, forward, &b, b.weights, inputs, 3, 2);
    struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.without = without});
    struct tern_binding *binding = tern_plan_bind(plan, b.weights);
    for (int again = 0; again < 2; again++) { /* the second run has the memory of the first */
        *steps = (struct steps){0};
        if (tern_plan_profile(binding, in, out, count_steps, steps))
            fail_msg("%s", tern_error(ctx));
        for (int i = 0; i < 2; i++) {
            double e = support_tensor_nmse(out[i], eager[i]);
            worst = e > worst ? e : worst;
        }
    }
    tern_scope_end(ctx, NULL);
    tern_binding_unref(&binding);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_weights_unref(&b.weights);
    return worst;
}

static void plans_take_it_with_posts(void **state)
{
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};
    struct tern_guard guard;
    struct tern_context *ctx = support_guarded(&guard, 2);
    for (int i = 0; i < 3; i++) {
        const struct shape s = {.n = 2, .c = 48, .h = 43, .w = 35, .o = 72, .weights = dtypes[i]};
        struct steps steps, plain;
        double e = run_block(ctx, &s, NULL, &steps);
        assert_true(e > 0 && e <= 1e-11);
        assert_int_equal(steps.winograd, 2);
        assert_int_equal(steps.other, 0);
        assert_true(run_block(ctx, &s, "fuse", &plain) <= 1e-11);
        assert_int_equal(plain.winograd, 2);
        assert_int_equal(plain.launches - steps.launches, 4); /* the posts: add; silu, add, mul_scalar */
        assert_true(run_block(ctx, &s, "algorithm", &steps) == 0);
        assert_int_equal(steps.winograd, 0);
        assert_true(run_block(ctx, &s, "fuse,algorithm", &steps) == 0);
        assert_true(run_block(ctx, &s, "all", &steps) == 0);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* Few tiles, few channels: the eager kernel. */
static void small_ones_keep_the_eager_kernel(void **state)
{
    static const struct shape shapes[] = {{.n = 1, .c = 48, .h = 4, .w = 8, .o = 48},
                                          {.n = 1, .c = 4, .h = 64, .w = 64, .o = 32},
                                          {.n = 1, .c = 16, .h = 64, .w = 64, .o = 32}};
    struct tern_context *ctx = support_context();
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        struct steps steps;
        assert_true(run_block(ctx, &shapes[i], NULL, &steps) == 0);
        assert_int_equal(steps.winograd, 0);
        assert_int_equal(steps.other, 2);
    }
    tern_context_destroy(&ctx);
}

static enum tern_status one_layer(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct block *b = user;
    out[0] = tern_conv2d(in[0], tern_weights_get(b->weights, "w"), NULL, .padding = 1);
    return tern_error_status(b->ctx);
}

static size_t four_times(struct tern_context *ctx, const struct tern_op_desc *d)
{
    return 4 * tern_kernel_find(ctx->device, WINOGRAD)->packed_size(ctx, d);
}

static double cheapest(const struct tern_device *device, const struct tern_op_desc *d) { return 0.1; }

/* A context whose device has the hungry kernel, too, and would rather take it than any other. Good until the next one is made. */
static struct tern_context *hungry_context(void)
{
    static struct tern_kernel hungry;
    static const struct tern_kernel *kernels[256] = {&hungry};
    struct tern_context *ctx = support_context();
    int n = 0;
    hungry = *tern_kernel_find(ctx->device, WINOGRAD);
    hungry.name = HUNGRY;
    hungry.packed_size = four_times;
    hungry.cost = cheapest;
    for (; ctx->device->kernels[n] && n < 254; n++)
        kernels[n + 1] = ctx->device->kernels[n];
    assert_null(ctx->device->kernels[n]);
    kernels[n + 1] = NULL;
    ctx->device->kernels = kernels;
    return ctx;
}

/* 448 x 448 channels: 28.9 MB of weights in place of 7.2. One row of pixels has few of them for its tiles: in two pictures of 304 pixels
 * are 101 operations for each byte more, in two of 608 it is 203. */
static void memory_has_to_pay(void **state)
{
    static const int64_t pixels[] = {304, 608}, filter[] = {448, 448, 3, 3};
    struct tern_context *ctx = hungry_context();
    struct block b = {ctx, tern_weights_create(ctx)};
    tern_scope_begin(ctx);
    assert_int_equal(tern_weights_add(b.weights, "w", support_noise(ctx, 1, 4, filter, 1, TERN_F32)), TERN_OK);
    for (int i = 0; i < 2; i++) {
        const struct tern_graph_input input = {"x", TERN_F32, 4, {1, 448, 1, pixels[i]}};
        tern_tensor *in = support_noise(ctx, 3, 4, input.shape, 1, TERN_F32), *out[1] = {NULL};
        struct steps steps = {0};
        struct tern_graph *g = tern_graph_trace(ctx, one_layer, &b, b.weights, &input, 1, 1);
        struct tern_plan *plan = tern_plan_compile(g, NULL);
        struct tern_binding *binding = tern_plan_bind(plan, b.weights);
        assert_int_equal(tern_plan_profile(binding, &in, out, count_steps, &steps), TERN_OK);
        assert_int_equal(steps.hungry, i);
        assert_int_equal(steps.other, 1 - i);
        tern_binding_unref(&binding);
        tern_plan_unref(&plan);
        tern_graph_destroy(&g);
    }
    tern_scope_end(ctx, NULL);
    tern_weights_unref(&b.weights);
    tern_context_destroy(&ctx);
}

/* A layer of bf16 and what a block may do with its result: activation and sum, sum, sum and activation; the same in f32 of inputs that were
 * rounded to bf16. */
static enum tern_status layer_with_posts(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct block *b = user;
    tern_tensor *y = tern_conv2d(in[0], tern_weights_get(b->weights, "w"), tern_weights_get(b->weights, "b"), .padding = 1);
    tern_tensor *more = tern_contiguous(in[1], TERN_CHANNELS_LAST);
    out[0] = b->posts == 0 ? tern_add(tern_silu(y), more) : b->posts == 1 ? tern_add(y, more) : tern_silu(tern_add(y, more));
    return tern_error_status(b->ctx);
}

static void note_kernel(void *user, const struct tern_step_profile *step)
{
    if (!strcmp(step->op, "conv2d"))
        snprintf(user, 64, "%s", step->kernel);
}

/* Products of 16 bits are a quarter as many: they beat those of bf16 where these are as fast, and not where they are eight times. A result
 * is rounded once, behind its posts. */
static void bf16_goes_by_the_levels_instructions(void **state)
{
    static const int64_t picture[] = {2, 64, 32, 32}, filter[] = {64, 64, 3, 3};
    struct tern_context *ctx = support_context();
    const int gain = cpu_level(ctx)->bf16.gain;
    if (!gain) {
        tern_context_destroy(&ctx);
        print_message("this level has no instructions for bf16\n");
        skip();
    }
    struct block b = {ctx, tern_weights_create(ctx)};
    const struct tern_graph_input inputs[] = {{"x", TERN_BF16, 4, {2, 64, 32, 32}}, {"y", TERN_BF16, 4, {2, 64, 32, 32}}};
    char kernel[64] = "";
    tern_scope_begin(ctx);
    assert_int_equal(tern_weights_add(b.weights, "w", support_noise(ctx, 1, 4, filter, 0.1, TERN_BF16)), TERN_OK);
    assert_int_equal(tern_weights_add(b.weights, "b", support_noise(ctx, 2, 1, &picture[1], 1, TERN_F32)), TERN_OK);
    tern_tensor *in[] = {support_noise(ctx, 3, 4, picture, 1, TERN_BF16), support_noise(ctx, 4, 4, picture, 1, TERN_BF16)},
                *out[1] = {NULL};
    for (b.posts = 0; b.posts < 3; b.posts++) {
        struct tern_graph *g = tern_graph_trace(ctx, layer_with_posts, &b, b.weights, inputs, 2, 1);
        struct tern_plan *plan = tern_plan_compile(g, NULL);
        struct tern_binding *binding = tern_plan_bind(plan, b.weights);
        if (!binding || tern_plan_profile(binding, in, out, note_kernel, kernel))
            fail_msg("%s", tern_error(ctx));
        assert_string_equal(kernel, gain == 2 ? WINOGRAD_BF16 : "conv2d_bf16_igemm");
        tern_tensor *wide[] = {tern_cast(in[0], TERN_F32), tern_cast(in[1], TERN_F32)}, *exact[1];
        assert_int_equal(layer_with_posts(&b, wide, exact), TERN_OK);
        assert_true(support_tensor_nmse(out[0], tern_cast(exact[0], TERN_BF16)) <= MOST_BF16);
        tern_binding_unref(&binding);
        tern_plan_unref(&plan);
        tern_graph_destroy(&g);
    }
    tern_scope_end(ctx, NULL);
    tern_weights_unref(&b.weights);
    tern_context_destroy(&ctx);
}

/* Two layers of equal weights, on a picture and on half of it, twice. */
static enum tern_status two_sizes(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct block *b = user;
    tern_tensor *half = tern_conv2d(tern_slice(in[0], 2, 0, 64, 1), tern_weights_get(b->weights, "half"), NULL, .padding = 1);
    out[0] = tern_conv2d(in[0], tern_weights_get(b->weights, "whole"), NULL, .padding = 1);
    out[1] = tern_conv2d(half, tern_weights_get(b->weights, "half"), NULL, .padding = 1);
    return tern_error_status(b->ctx);
}

static void note_height(void *user, const struct tern_step_profile *step)
{
    int *found = user;
    if (!strcmp(step->kernel, HUNGRY))
        found[strstr(step->output, "160, 64)") ? 0 : 1]++;
}

/* A limit for its weights gives them to the layer that does most work with them; two nodes of one weight share it. */
static void a_limit_goes_to_the_largest(void **state)
{
    static const int64_t filter[] = {32, 32, 3, 3};
    struct tern_context *ctx = hungry_context();
    struct block b = {ctx, tern_weights_create(ctx)};
    const struct tern_graph_input input = {"x", TERN_F32, 4, {1, 32, 160, 64}};
    tern_scope_begin(ctx);
    assert_int_equal(tern_weights_add(b.weights, "whole", support_noise(ctx, 1, 4, filter, 1, TERN_F32)), TERN_OK);
    assert_int_equal(tern_weights_add(b.weights, "half", support_noise(ctx, 2, 4, filter, 1, TERN_F32)), TERN_OK);
    tern_tensor *in = support_noise(ctx, 3, 4, input.shape, 1, TERN_F32);
    struct tern_graph *g = tern_graph_trace(ctx, two_sizes, &b, b.weights, &input, 1, 2);
    struct tern_plan *all = tern_plan_compile(g, NULL), *none = tern_plan_compile(g, &(struct tern_plan_params){.algorithm_bytes = 1});
    size_t extra = (tern_plan_facts(all).resident - tern_plan_facts(none).resident) / 2; /* of one weight */
    assert_true(extra > 0);
    const struct {
        size_t limit;
        int whole, half;
    } cases[] = {{1, 0, 0}, {extra - 1, 0, 0}, {extra, 1, 0}, {2 * extra - 1, 1, 0}, {2 * extra, 1, 2}, {0, 1, 2}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int found[2] = {0, 0};
        tern_tensor *out[2] = {NULL};
        struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.algorithm_bytes = cases[i].limit});
        struct tern_binding *binding = tern_plan_bind(plan, b.weights);
        assert_int_equal(tern_plan_profile(binding, &in, out, note_height, found), TERN_OK);
        assert_int_equal(found[0], cases[i].whole);
        assert_int_equal(found[1], cases[i].half);
        tern_binding_unref(&binding);
        tern_plan_unref(&plan);
    }
    tern_scope_end(ctx, NULL);
    tern_plan_unref(&all);
    tern_plan_unref(&none);
    tern_graph_destroy(&g);
    tern_weights_unref(&b.weights);
    tern_context_destroy(&ctx);
}

/* Only plans choose it, never with few channels, strides, or weights that change. */
static void the_choice(void **state)
{
    struct tern_context *ctx = support_context();
    struct tern_op_desc d, fit;
    memset(&fit, 0, sizeof(fit));
    fit = (struct tern_op_desc){.op = TERN_OP_conv2d, .n_in = 2, .present = {true, true}, .constant = {false, true}};
    fit.in[0] = (struct tern_meta){.dtype = TERN_F32, .ndim = 4, .shape = {2, 640, 64, 64}};
    fit.in[1] = (struct tern_meta){.dtype = TERN_F16, .ndim = 4, .shape = {640, 640, 3, 3}};
    fit.attrs.conv2d = (struct tern_conv2d_attrs){.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .groups = 1};
    for (int i = 0; i < 6; i++) {
        d = fit;
        d.constant[1] = i != 1;
        d.attrs.conv2d.stride[1] = i == 2 ? 2 : 1;
        d.attrs.conv2d.dilation[0] = i == 3 ? 2 : 1;
        d.in[1].shape[3] = i == 4 ? 1 : 3;
        d.in[1].shape[1] = d.in[0].shape[1] = i == 5 ? 31 : 640;
        assert_int_equal(tern_op_get(d.op).shape(ctx, &d), TERN_OK);
        tern_meta_contiguous(&d.in[1]);
        for (int k = 0; k < 2; k++) {
            struct tern_meta *m = k ? &d.out : &d.in[0];
            m->stride[1] = 1;
            m->stride[3] = m->shape[1];
            m->stride[2] = m->stride[3] * m->shape[3];
            m->stride[0] = m->stride[2] * m->shape[2];
        }
        const char *other = cpu_level(ctx)->bf16x3.dot.step ? "conv2d_f32_bf16x3" : "conv2d_f32_igemm";
        assert_string_equal(tern_kernel_choose(ctx, ctx->device, &d)->name, other);
        assert_string_equal(tern_kernel_choose_planned(ctx, ctx->device, &d)->name, i ? other : WINOGRAD);
    }
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_edge),
        cmocka_unit_test(every_edge_in_bf16),
        cmocka_unit_test(bf16_goes_by_the_levels_instructions),
        cmocka_unit_test(bits_of_any_number_of_threads),
        cmocka_unit_test(many_chunks_and_threads),
        cmocka_unit_test(rounding_error),
        cmocka_unit_test(plans_take_it_with_posts),
        cmocka_unit_test(small_ones_keep_the_eager_kernel),
        cmocka_unit_test(memory_has_to_pay),
        cmocka_unit_test(a_limit_goes_to_the_largest),
        cmocka_unit_test(the_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

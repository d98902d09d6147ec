/* Regressions of speed without a clock's absolute time: pairs of ways to compute the same, in turns, of which one must be so many times
 * faster. usage: bench_order. Public headers only. Factors are generous; a pair that misses is measured again, twice, since a machine may
 * be busy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tern/tern.h>

#include "timing.h"

#define RUNS 5
#define TRIES 3

/* How a side computes. */
struct way {
    const char *name;
    const char *kernel;  /* NULL: chosen */
    const char *without; /* passes of the plan that are left out */
    enum tern_dtype dtype;
};
static const struct way chosen = {"chosen"}, reference = {"reference", .kernel = "reference"}, in_bf16 = {"bf16", .dtype = TERN_BF16};
static const struct way eager = {"without Winograd", .without = "algorithm"}, unfused = {"not fused", .without = "fuse"};

/* x (shape), w and b as the op wants them. */
struct work {
    const char *name;
    int ndim;
    int64_t shape[4];
    int w_ndim;
    int64_t w_shape[4];
    tern_tensor *(*call)(tern_tensor *x, tern_tensor *w, tern_tensor *b);
};

static tern_tensor *linear(tern_tensor *x, tern_tensor *w, tern_tensor *b) { return tern_linear(x, w, b); }
static tern_tensor *conv2d(tern_tensor *x, tern_tensor *w, tern_tensor *b) { return tern_conv2d(x, w, b, .padding = 1); }
static tern_tensor *sdpa(tern_tensor *x, tern_tensor *w, tern_tensor *b) { return tern_sdpa(x, x, x); }
static tern_tensor *layer_norm(tern_tensor *x, tern_tensor *w, tern_tensor *b) { return tern_layer_norm(x, 1, w, b, 1e-5); }
static tern_tensor *group_norm(tern_tensor *x, tern_tensor *w, tern_tensor *b) { return tern_group_norm(x, 32, w, b, 1e-5); }
static tern_tensor *norm_silu(tern_tensor *x, tern_tensor *w, tern_tensor *b) { return tern_silu(tern_group_norm(x, 32, w, b, 1e-5)); }
static tern_tensor *silu(tern_tensor *x, tern_tensor *w, tern_tensor *b) { return tern_silu(x); }
static tern_tensor *add(tern_tensor *x, tern_tensor *w, tern_tensor *b) { return tern_add(x, x); }

static const struct pair {
    struct work work;
    const struct way *fast, *slow;
    double factor; /* slow takes at least so many times the time of fast */
} pairs[] = {
    {{"linear 128 x 512, 512", 2, {128, 512}, 2, {512, 512}, linear}, &chosen, &reference, 2},
    {{"conv2d 3 x 3, 64 channels, 24 x 24", 4, {1, 64, 24, 24}, 4, {64, 64, 3, 3}, conv2d}, &chosen, &reference, 2},
    {{"sdpa 2 heads of 64, 256 x 256", 4, {1, 2, 256, 64}, 0, {0}, sdpa}, &chosen, &reference, 2},
    {{"layer_norm 512 x 640", 2, {512, 640}, 1, {640}, layer_norm}, &chosen, &reference, 1.5},
    {{"group_norm 64 channels, 64 x 64", 4, {1, 64, 64, 64}, 1, {64}, group_norm}, &chosen, &reference, 1.5},
    {{"silu 512 x 1280", 2, {512, 1280}, 0, {0}, silu}, &chosen, &reference, 1.5},
    {{"add 512 x 1280", 2, {512, 1280}, 0, {0}, add}, &chosen, &reference, 1.5},
    {{"group_norm and silu, 64 channels, 128 x 128", 4, {1, 64, 128, 128}, 1, {64}, norm_silu}, &chosen, &unfused, 0.8},
    {{"conv2d 3 x 3, 256 channels, 64 x 64", 4, {1, 256, 64, 64}, 4, {256, 256, 3, 3}, conv2d}, &chosen, &eager, 1.1},
    {{"linear 1024 x 640, 640", 2, {1024, 640}, 2, {640, 640}, linear}, &in_bf16, &chosen, 1.0},
};

/* One side: a plan that was run once. */
struct side {
    struct tern_context *ctx;
    const struct work *work;
    struct tern_weights *weights;
    struct tern_plan *plan;
    struct tern_binding *binding;
    tern_tensor *x;
};

static tern_tensor *values(struct tern_context *ctx, enum tern_dtype dtype, int ndim, const int64_t *shape)
{
    return tern_cast(tern_randn(ctx, ndim, shape, 1, 0), dtype);
}

static enum tern_status forward(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct side *s = user;
    out[0] = s->work->call(in[0], tern_weights_get(s->weights, "w"), tern_weights_get(s->weights, "b"));
    return tern_error_status(s->ctx);
}

static double seconds_of(struct side *s)
{
    struct timespec a, b;
    tern_tensor *out[1] = {NULL};
    tern_scope_begin(s->ctx);
    clock_gettime(CLOCK_MONOTONIC, &a);
    tern_plan_run(s->binding, &s->x, out);
    clock_gettime(CLOCK_MONOTONIC, &b);
    tern_scope_end(s->ctx, NULL);
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}

static bool prepare(struct side *s, const struct way *way)
{
    struct tern_context *ctx = s->ctx;
    struct tern_graph_input in = {.name = "x", .dtype = way->dtype, .ndim = s->work->ndim};
    memcpy(in.shape, s->work->shape, sizeof(s->work->shape));
    s->weights = tern_weights_create(ctx);
    s->x = values(ctx, way->dtype, in.ndim, in.shape);
    if (s->work->w_ndim) {
        tern_weights_add(s->weights, "w", values(ctx, s->work->w_ndim > 1 ? way->dtype : TERN_F32, s->work->w_ndim, s->work->w_shape));
        tern_weights_add(s->weights, "b", values(ctx, TERN_F32, 1, s->work->w_shape));
    }
    tern_op_force(ctx, way->kernel);
    struct tern_graph *g = tern_graph_trace(ctx, forward, s, s->weights, &in, 1, 1);
    s->plan = tern_plan_compile(g, &(struct tern_plan_params){.without = way->without});
    tern_graph_destroy(&g);
    tern_op_force(ctx, NULL);
    s->binding = tern_plan_bind(s->plan, s->weights);
    return s->binding && seconds_of(s) >= 0 && tern_error_status(ctx) == TERN_OK;
}

static void finish(struct side *s)
{
    tern_binding_unref(&s->binding);
    tern_plan_unref(&s->plan);
    tern_weights_unref(&s->weights);
}

/* Time of the slow side over that of the fast one: medians of runs in turns. Below 0: it failed. */
static double ratio_of(struct tern_context *ctx, const struct pair *p)
{
    double seconds[2][RUNS];
    struct side side[2] = {{.ctx = ctx, .work = &p->work}, {.ctx = ctx, .work = &p->work}};
    tern_scope_begin(ctx);
    bool ok = prepare(&side[0], p->fast) && prepare(&side[1], p->slow);
    for (int i = 0; ok && i < 2 * RUNS; i++)
        seconds[i % 2][i / 2] = seconds_of(&side[i % 2]);
    ok = ok && tern_error_status(ctx) == TERN_OK;
    tern_scope_end(ctx, NULL);
    for (int i = 0; i < 2; i++)
        finish(&side[i]);
    return ok ? median(seconds[1], RUNS) / median(seconds[0], RUNS) : -1;
}

/* Pairs that this device has not both ways of. */
static bool is_out(const struct pair *p, const struct tern_device_peak *peak)
{
    return p->fast == &in_bf16 && peak->flops_bf16 <= peak->flops; /* no instructions, or slower ones */
}

int main(void)
{
    struct tern_device_peak peak = {0};
    struct tern_context *ctx = tern_context_create(NULL);
    int missed = 0;
    if (!ctx || tern_device_peak(ctx, &peak)) {
        fprintf(stderr, "%s\n", ctx ? tern_error(ctx) : tern_create_error());
        tern_context_destroy(&ctx);
        return 1;
    }
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
        const struct pair *p = &pairs[i];
        double ratio = 0;
        if (is_out(p, &peak))
            continue;
        for (int k = 0; k < TRIES && ratio >= 0 && ratio < p->factor; k++)
            ratio = ratio_of(ctx, p);
        if (ratio < 0) {
            fprintf(stderr, "%s: %s\n", p->work.name, tern_error(ctx));
            missed++;
            break;
        }
        missed += ratio < p->factor;
        printf("%-45s %s over %s: %.1f, at least %.1f%s\n", p->work.name, p->slow->name, p->fast->name, ratio, p->factor,
               ratio < p->factor ? ": MISSED" : "");
    }
    tern_context_destroy(&ctx);
    return missed ? 1 : 0;
}

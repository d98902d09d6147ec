/* One call of an op, timed: a plan of that op for each kernel, and runs of them in turns. What lays rows and pictures out comes before it,
 * as in a model, where another op wrote them: threads are awake. The first run of each is not counted: it takes memory and compiles. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "clock.h"

/* What a call is made from. */
struct made {
    struct tern_context *ctx;
    const struct bench_shape *s;
    bool channels_last; /* how the device runs pictures */
    bool quantized;
    struct tern_weights *weights;
    struct tern_graph_input inputs[3];
    tern_tensor *in[3];
    int n_inputs;
};

/* Values from -1 to 1 that no cache or denormal makes cheap or dear. NULL with the error in the context, or without memory. */
static tern_tensor *values(struct tern_context *ctx, enum tern_dtype dtype, int ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    float *v = malloc((size_t)n * sizeof(*v));
    for (int64_t i = 0; v && i < n; i++)
        v[i] = (float)((int32_t)((uint32_t)i * 2654435761u >> 8 & 0x7ff) - 1024) * (1.0f / 1024);
    tern_tensor *t = v ? tern_tensor_create(ctx, TERN_F32, ndim, shape, v) : NULL;
    free(v);
    return tern_cast(t, dtype);
}

static bool add_input(struct made *m, const char *name, enum tern_dtype dtype, int ndim, const int64_t *shape)
{
    struct tern_graph_input *in = &m->inputs[m->n_inputs];
    *in = (struct tern_graph_input){.name = name, .dtype = dtype, .ndim = ndim};
    memcpy(in->shape, shape, (size_t)ndim * sizeof(*shape));
    return (m->in[m->n_inputs++] = values(m->ctx, dtype, ndim, shape)) != NULL;
}
#define INPUT(name, ndim, ...) add_input(m, name, dtype, ndim, (const int64_t[]){__VA_ARGS__})
#define ROWS(name) INPUT(name, 2, n[1], n[0]) /* that rows() lays out */

static bool add_weight(struct made *m, const char *name, enum tern_dtype dtype, int ndim, const int64_t *shape)
{
    tern_tensor *t = values(m->ctx, dtype, ndim, shape);
    return t && tern_weights_add(m->weights, name, t) == TERN_OK;
}
/* Models store matrices in f16, or in what they compute in if that has 16 bits too, and vectors in f32. */
#define MATRIX(ndim, ...) add_weight(m, "w", dtype == TERN_BF16 ? TERN_BF16 : TERN_F16, ndim, (const int64_t[]){__VA_ARGS__})
#define VECTOR(name, n) add_weight(m, name, TERN_F32, 1, (const int64_t[]){n})

static bool make(struct made *m, enum tern_dtype dtype)
{
    const int64_t *n = m->s->n;
    switch (m->s->kind) {
    case BENCH_CONV2D:
        return INPUT("x", 4, n[0], n[1], n[2], n[3]) && MATRIX(4, n[4], n[1], n[5], n[5]) && VECTOR("b", n[4]);
    case BENCH_LINEAR:
        return ROWS("x") && MATRIX(2, n[2], n[1]) && VECTOR("b", n[2]);
    case BENCH_LINEAR_GEGLU:
        return ROWS("x") && MATRIX(2, 2 * n[2], n[1]) && VECTOR("b", 2 * n[2]);
    case BENCH_MATMUL:
        return INPUT("x", 3, n[0], n[1], n[2]) && INPUT("y", 3, n[0], n[2], n[3]);
    case BENCH_SDPA:
        return INPUT("q", 3, n[0], n[2], n[1] * n[4]) && INPUT("k", 3, n[0], n[3], n[1] * n[4]) && INPUT("v", 3, n[0], n[3], n[1] * n[4]);
    case BENCH_GROUP_NORM:
        return INPUT("x", 4, n[0], n[1], n[2], n[3]) && VECTOR("w", n[1]) && VECTOR("b", n[1]);
    case BENCH_LAYER_NORM:
        return ROWS("x") && VECTOR("w", n[1]) && VECTOR("b", n[1]);
    case BENCH_ADD:
        return ROWS("x") && ROWS("y");
    case BENCH_INTERPOLATE:
        return INPUT("x", 4, n[0], n[1], n[2], n[3]);
    case BENCH_CAT:
        return INPUT("x", 4, n[0], n[1], n[3], n[4]) && INPUT("y", 4, n[0], n[2], n[3], n[4]);
    default:
        return ROWS("x");
    }
}

/* A picture as the device runs it. */
static tern_tensor *picture(const struct made *m, tern_tensor *x) { return m->channels_last ? tern_contiguous(x, TERN_CHANNELS_LAST) : x; }

/* Rows that another op wrote just before, as they are in a model: all threads are awake when the op begins. */
static tern_tensor *rows(tern_tensor *x) { return tern_contiguous(tern_permute(x, 2, (const int[]){1, 0}), TERN_CONTIGUOUS); }

/* (N, L, H E) -> (N, H, L, E) */
static tern_tensor *heads(const struct made *m, tern_tensor *x)
{
    const int64_t *n = m->s->n;
    x = tern_reshape(x, 4, (const int64_t[]){n[0], -1, n[1], n[4]});
    return tern_permute(x, 4, (const int[]){0, 2, 1, 3});
}

static enum tern_status forward(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct made *m = user;
    const int64_t *n = m->s->n;
    tern_tensor *w = tern_weights_get(m->weights, "w"), *b = tern_weights_get(m->weights, "b");
    switch (m->s->kind) {
    case BENCH_CONV2D:
        out[0] = tern_conv2d(picture(m, in[0]), w, b, .stride = (int)n[6], .padding = (int)n[5] / 2);
        break;
    case BENCH_LINEAR:
        out[0] = tern_linear(rows(in[0]), w, b);
        break;
    case BENCH_LINEAR_GEGLU:
        out[0] = tern_linear_geglu(rows(in[0]), w, b);
        break;
    case BENCH_MATMUL:
        out[0] = tern_matmul(in[0], in[1]);
        break;
    case BENCH_SDPA:
        out[0] = tern_sdpa(heads(m, in[0]), heads(m, in[1]), heads(m, in[2]));
        break;
    case BENCH_GROUP_NORM:
        out[0] = tern_group_norm(picture(m, in[0]), (int)n[4], w, b, 1e-5);
        break;
    case BENCH_LAYER_NORM:
        out[0] = tern_layer_norm(rows(in[0]), 1, w, b, 1e-5);
        break;
    case BENCH_SILU:
        out[0] = tern_silu(rows(in[0]));
        break;
    case BENCH_GELU:
        out[0] = tern_gelu(rows(in[0]), TERN_GELU_NONE);
        break;
    case BENCH_QUICK_GELU:
        out[0] = tern_quick_gelu(rows(in[0]));
        break;
    case BENCH_ADD:
        out[0] = tern_add(rows(in[0]), rows(in[1]));
        break;
    case BENCH_INTERPOLATE:
        out[0] = tern_interpolate(picture(m, in[0]), .scale_factor = 2);
        break;
    case BENCH_CAT:
        out[0] = tern_cat((tern_tensor *[]){picture(m, in[0]), picture(m, in[1])}, 2, 1);
        break;
    case BENCH_KINDS:
        break;
    }
    return tern_error_status(m->ctx);
}

/* Whether convolutions of the device give channels-last pictures. */
static bool wants_channels_last(struct tern_context *ctx)
{
    tern_scope_begin(ctx);
    tern_tensor *x = values(ctx, TERN_F32, 4, (const int64_t[]){1, 8, 8, 8}), *w = values(ctx, TERN_F32, 4, (const int64_t[]){8, 8, 1, 1});
    tern_tensor *y = tern_conv2d(x, w, NULL);
    bool last = y && tern_tensor_strides(y)[1] == 1;
    tern_scope_end(ctx, NULL);
    return last;
}

/* One run's steps together: what lays the input out comes before the op, and is not of it; casts around it are. The op may be more steps
 * than one (pass "chunk"). */
struct one_run {
    struct bench_call *call;
    char op[40];
    double seconds, flops, bytes;
};

static void tell(void *user, const struct tern_step_profile *step)
{
    struct one_run *r = user;
    if (strcmp(step->op, "contiguous") != 0)
        r->seconds += step->seconds;
    if (strcmp(step->op, r->op) != 0)
        return;
    strncpy(r->call->kernel, step->kernel, sizeof(r->call->kernel) - 1);
    r->flops += step->flops;
    r->bytes += step->bytes;
}

static void op_name(const struct made *m, char out[static 40])
{
    snprintf(out, 40, "%s%s", m->quantized && m->s->kind != BENCH_SDPA ? "quantized_" : "", bench_kind_name(m->s->kind));
}

/* Seconds; below 0: it failed. */
static double run_once(struct made *m, struct bench_call *c)
{
    struct one_run r = {.call = c};
    tern_tensor *made = NULL;
    op_name(m, r.op);
    tern_scope_begin(m->ctx);
    bool first = !c->out, ok = tern_plan_profile(c->binding, m->in, first ? &made : &c->out, tell, &r) == TERN_OK;
    made = tern_scope_end(m->ctx, ok ? made : NULL);
    if (first)
        c->out = made;
    c->flops = r.flops;
    c->bytes = r.bytes;
    return ok ? r.seconds : -1;
}

static void drop(struct bench_call *c)
{
    tern_binding_unref(&c->binding);
    tern_plan_unref(&c->plan);
}

/* The plan of the call by a kernel; NULL: by the library's choice. One run has gone well when it is true. */
static bool prepare(struct made *m, const char *kernel, struct bench_call *c)
{
    *c = (struct bench_call){.chosen = !kernel};
    bool ok = tern_op_force(m->ctx, kernel) == TERN_OK;
    struct tern_graph *g = ok ? tern_graph_trace(m->ctx, forward, m, m->weights, m->inputs, m->n_inputs, 1) : NULL;
    c->plan = g ? tern_plan_compile(g, &(struct tern_plan_params){.quantize = m->quantized ? "*" : NULL}) : NULL;
    tern_graph_destroy(&g);
    enum tern_status before = tern_error_status(m->ctx);
    if (before == TERN_OK)
        tern_op_force(m->ctx, NULL);
    c->binding = c->plan ? tern_plan_bind(c->plan, m->weights) : NULL;
    if (c->binding && run_once(m, c) >= 0 && *c->kernel) /* a layer that the kernel does not take stays one of floats */
        return true;
    drop(c);
    return false;
}

/* All that the device has and that take the call. */
static int prepare_all(struct made *m, struct bench_call *out, int most)
{
    const char *name;
    char op[40];
    int n = 1;
    op_name(m, op);
    for (int i = 0; n < most && (name = tern_op_kernel(m->ctx, op, i)); i++) {
        if (!strcmp(name, out[0].kernel))
            continue;
        if (prepare(m, name, &out[n])) {
            n++;
            continue;
        }
        enum tern_status why = tern_error_status(m->ctx);
        if (why == TERN_E_CANCELLED)
            return n;
        tern_error_clear(m->ctx); /* it does not take this call, or finds no memory: the others go on */
        tern_op_force(m->ctx, NULL);
    }
    return n;
}

static bool measure(struct made *m, const struct bench_settings *s, struct bench_call *calls, int n)
{
    double start = now();
    for (int i = 0; i < s->runs && (i < 3 || now() - start < s->limit); i++)
        for (int k = 0; k < n; k++) {
            struct bench_call *c = &calls[(k + i) % n]; /* which one is first changes */
            double seconds = run_once(m, c);
            if (seconds < 0)
                return false;
            c->seconds[c->runs++] = seconds;
        }
    return true;
}

int bench_call_measure(struct tern_context *ctx, const struct bench_shape *shape, enum tern_dtype dtype, const struct bench_settings *s,
                       struct bench_call *out, int most)
{
    struct made m = {.ctx = ctx,
                     .s = shape,
                     .channels_last = wants_channels_last(ctx),
                     .quantized = dtype == TERN_I8,
                     .weights = tern_weights_create(ctx)};
    int n = 0;
    if (m.quantized)
        dtype = tern_context_fast_dtype(ctx);
    tern_scope_begin(ctx);
    if (m.weights && make(&m, dtype) && prepare(&m, NULL, &out[0]))
        n = s->all_kernels ? prepare_all(&m, out, most) : 1;
    bool ok = n && tern_error_status(ctx) == TERN_OK && measure(&m, s, out, n);
    for (int i = 0; i < n; i++)
        drop(&out[i]);
    tern_scope_end(ctx, NULL);
    tern_weights_unref(&m.weights);
    return ok ? n : tern_error_status(ctx) == TERN_OK ? 0 : -1;
}

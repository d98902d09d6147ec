/* Chunks of the batch and of rows: what comes out is what comes out whole, in less memory; results that lie where queries did. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "conformance/random_graph.h"
#include "core/context.h"
#include "graph/passes/chunk.h"
#include "graph/plan.h"
#include "support.h"

#define NEAR 1e-12 /* NMSE in f32: other blocks of rows, the same sums */

/* Runs a plan, which is the test's own, into the open scope (out NULL: does not); its facts. */
static struct tern_plan_facts run(struct tern_context *ctx, struct tern_plan *plan, const struct tern_weights *w, tern_tensor *const *in,
                                  tern_tensor **out)
{
    struct tern_binding *b = out ? tern_plan_bind(plan, w) : NULL;
    if (!plan || (out && (!b || tern_plan_run(b, in, out))))
        fail_msg("%s", tern_error(ctx));
    const struct tern_plan_facts facts = tern_plan_facts(plan);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    return facts;
}

/* Batches of 2 to 10, so that chunks are of one picture and of more, with limits that let any node in; every third graph may not become
 * twice as large. */
static void random_graphs_agree(void **state)
{
    struct tern_chunk_limits none = {.large = 1, .picture_rows = 1, .rows = 1, .rows_of_chunk = 2};
    struct tern_context *ctx = support_context();
    int chunked = 0, within = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct tern_random_graph r = tern_random_graph_make(ctx, seed, 1);
        tern_tensor *in[4], *expected[TERN_GRAPH_MAX_IO] = {NULL}, *out[TERN_GRAPH_MAX_IO] = {NULL};
        for (int i = 0; i < r.n_inputs; i++)
            r.inputs[i].shape[0] = 2 + (int64_t)(seed % 9);
        tern_scope_begin(ctx);
        tern_random_graph_inputs(&r, seed, in);
        tern_random_graph_fn(&r, in, expected);
        struct tern_graph *g = tern_graph_trace(ctx, tern_random_graph_fn, &r, r.weights, r.inputs, r.n_inputs, r.n_outputs);
        if (!g)
            fail_msg("graph %llu: %s", (unsigned long long)seed, tern_error(ctx));
        const int before = g->n_nodes;
        none.nodes = seed % 3 ? INT64_MAX : 2 * before;
        if (tern_chunk_graph(g, &none))
            fail_msg("graph %llu: %s", (unsigned long long)seed, tern_error(ctx));
        chunked += g->n_nodes > before;
        within += g->n_nodes > before && seed % 3 == 0;
        assert_true(g->n_nodes <= none.nodes);
        run(ctx, tern_plan_compile(g, &(struct tern_plan_params){.without = "algorithm"}), r.weights, in, out);
        for (int i = 0; expected[i]; i++) {
            const double e = support_tensor_nmse(out[i], expected[i]);
            if (!(e <= NEAR))
                fail_msg("graph %llu, output %d: NMSE %g", (unsigned long long)seed, i, e);
        }
        tern_scope_end(ctx, NULL);
        tern_graph_destroy(&g);
        tern_random_graph_close(&r);
    }
    print_message("%d of 60 graphs have chunks, %d of 20 within their limit\n", chunked, within);
    assert_true(chunked > 30 && within > 5);
    tern_context_destroy(&ctx);
}

/* ---- a level of a UNet: a residual block, attention to itself and to a text, a feed-forward layer */

struct level {
    int64_t batch, channels, size, texts;
    enum tern_dtype dtype;
    bool runs;
    struct tern_weights *w;
};

static tern_tensor *weight(const struct level *l, const char *name) { return tern_weights_get(l->w, name); }

static tern_tensor *heads(tern_tensor *x)
{
    const int64_t *s = tern_tensor_shape(x);
    return tern_permute(tern_reshape(x, 4, (const int64_t[]){s[0], s[1], 2, s[2] / 2}), 4, (const int[]){0, 2, 1, 3});
}

static tern_tensor *attend(const struct level *l, tern_tensor *x, tern_tensor *to)
{
    const int64_t *s = tern_tensor_shape(x);
    tern_tensor *y = tern_sdpa(heads(tern_linear(x, weight(l, "q"), NULL)), heads(tern_linear(to, weight(l, "k"), NULL)),
                               heads(tern_linear(to, weight(l, "v"), NULL)));
    return tern_linear(tern_reshape(tern_permute(y, 4, (const int[]){0, 2, 1, 3}), 3, (const int64_t[]){s[0], s[1], s[2]}), weight(l, "o"),
                       NULL);
}

static enum tern_status level(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct level *l = user;
    tern_tensor *x = tern_conv2d(in[0], weight(l, "conv"), weight(l, "bias"), .padding = 1);
    tern_tensor *h = tern_silu(tern_group_norm(x, 4, weight(l, "bias"), weight(l, "bias"), 1e-5));
    out[0] = x = tern_add(tern_conv2d(h, weight(l, "conv.1"), NULL, .padding = 1), x);
    h = tern_reshape(tern_permute(x, 4, (const int[]){0, 2, 3, 1}), 3, (const int64_t[]){l->batch, l->size * l->size, l->channels});
    tern_tensor *normed = tern_layer_norm(h, 1, NULL, NULL, 1e-5);
    h = tern_add(attend(l, normed, normed), h);
    h = tern_add(attend(l, tern_layer_norm(h, 1, NULL, NULL, 1e-5), in[1]), h);
    h = tern_add(
        tern_linear(tern_linear_geglu(tern_layer_norm(h, 1, NULL, NULL, 1e-5), weight(l, "wide"), NULL), weight(l, "narrow"), NULL), h);
    h = tern_permute(tern_reshape(h, 4, (const int64_t[]){l->batch, l->size, l->size, l->channels}), 4, (const int[]){0, 3, 1, 2});
    out[1] = h;
    out[2] = tern_conv2d(tern_add(h, x), weight(l, "conv.2"), NULL, .padding = 1, .stride = 2);
    return TERN_OK;
}

static void add(struct tern_context *ctx, struct level *l, const char *name, int ndim, const int64_t *shape)
{
    int64_t from = 1;
    for (int i = 1; i < ndim; i++)
        from *= shape[i];
    const uint64_t seed = (uint64_t)tern_weights_count(l->w) + 1;
    tern_weights_add(l->w, name, support_noise(ctx, seed, ndim, shape, ndim == 1 ? 1 : 1.7 / sqrt((double)from), l->dtype));
}

static void add_weights(struct tern_context *ctx, struct level *l)
{
    const int64_t c = l->channels;
    static const char *const convs[] = {"conv", "conv.1", "conv.2"}, *const linears[] = {"q", "k", "v", "o"};
    l->w = tern_weights_create(ctx);
    for (int i = 0; i < 3; i++)
        add(ctx, l, convs[i], 4, (const int64_t[]){c, c, 3, 3});
    for (int i = 0; i < 4; i++)
        add(ctx, l, linears[i], 2, (const int64_t[]){c, c});
    add(ctx, l, "wide", 2, (const int64_t[]){8 * c, c});
    add(ctx, l, "narrow", 2, (const int64_t[]){c, 4 * c});
    add(ctx, l, "bias", 1, &c);
}

struct outcome {
    struct tern_plan_facts whole, chunked;
    double nmse;
};

/* The plan with chunks beside that without (large ones are not run: emulated tiles take long); by the pass, or, with limits, by what it
 * does. */
static struct outcome compare(struct tern_context *ctx, struct level l, const char *quantize, const struct tern_chunk_limits *limits)
{
    const struct tern_graph_input inputs[] = {{"x", l.dtype, 4, {l.batch, l.channels, l.size, l.size}},
                                              {"text", l.dtype, 3, {l.batch, l.texts, l.channels}}};
    struct tern_plan_params params = {.without = "algorithm,chunk", .quantize = quantize};
    struct outcome o = {.nmse = 0};
    tern_tensor *in[2], *expected[3] = {NULL}, *out[3] = {NULL};
    tern_scope_begin(ctx);
    add_weights(ctx, &l);
    struct tern_graph *g = tern_graph_trace(ctx, level, &l, l.w, inputs, 2, 3);
    if (!g)
        fail_msg("%s", tern_error(ctx));
    for (int i = 0; i < 2; i++)
        in[i] = support_noise(ctx, 100 + (uint64_t)i, inputs[i].ndim, inputs[i].shape, 1, l.dtype);
    o.whole = run(ctx, tern_plan_compile(g, &params), l.w, in, l.runs ? expected : NULL);
    if (limits && tern_chunk_graph(g, limits))
        fail_msg("%s", tern_error(ctx));
    params.without = limits ? params.without : "algorithm";
    o.chunked = run(ctx, tern_plan_compile(g, &params), l.w, in, l.runs ? out : NULL);
    for (int i = 0; l.runs && i < 3; i++) {
        const double e = support_tensor_nmse(tern_cast(out[i], TERN_F32), tern_cast(expected[i], TERN_F32));
        o.nmse = e > o.nmse ? e : o.nmse;
    }
    print_message("%lld x (%lld, %lld, %lld) %s%s: %d launches for %d, arena %.3f of %.3f MiB, NMSE %.2g\n", (long long)l.batch,
                  (long long)l.channels, (long long)l.size, (long long)l.size, tern_dtype_name(l.dtype), quantize ? " and int8" : "",
                  o.chunked.launches, o.whole.launches, (double)o.chunked.arena / 1048576, (double)o.whole.arena / 1048576, o.nmse);
    tern_scope_end(ctx, NULL);
    tern_weights_unref(&l.w);
    tern_graph_destroy(&g);
    return o;
}

/* Pictures of a batch, then rows, in f32, bf16 and int8, where pictures have scales of their own anyhow. */
static void a_level_takes_less_memory(void **state)
{
    static const struct tern_chunk_limits small = {
        .large = 8 << 10, .picture_rows = 256, .rows = 64, .rows_of_chunk = 128, .nodes = INT64_MAX};
    static const struct {
        struct level level;
        const char *quantize;
        const struct tern_chunk_limits *limits;
        double least; /* of the arena: at most; without cuts of regions the first has 0.59. Small ones are of scratch mostly */
    } cases[] = {
        {{2, 64, 64, 7, TERN_F32, false, NULL}, NULL, NULL, 0.5}, {{2, 32, 16, 7, TERN_F32, true, NULL}, NULL, &small, 1},
        {{3, 32, 16, 7, TERN_BF16, true, NULL}, NULL, &small, 1}, {{2, 32, 16, 7, TERN_BF16, true, NULL}, "*", &small, 1},
        {{9, 32, 16, 5, TERN_F32, true, NULL}, NULL, &small, 1},  {{1, 32, 17, 5, TERN_F32, true, NULL}, NULL, &small, 1},
    };
    struct tern_context *ctx = support_context();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const struct outcome o = compare(ctx, cases[i].level, cases[i].quantize, cases[i].limits);
        assert_true(o.chunked.launches > o.whole.launches);
        assert_true((double)o.chunked.arena <= cases[i].least * (double)o.whole.arena);
        assert_true(o.nmse <= (cases[i].level.dtype == TERN_F32 ? NEAR : 1e-4));
    }
    tern_context_destroy(&ctx);
}

/* Small pictures, and devices where launches are dear: nothing is changed. */
static void else_plans_stay(void **state)
{
    struct tern_context *ctx = support_context();
    struct level l = {.batch = 2, .channels = 64, .size = 24, .texts = 7, .dtype = TERN_F32};
    struct outcome o = compare(ctx, l, NULL, NULL);
    assert_int_equal(o.chunked.launches, o.whole.launches);
    assert_int_equal(o.chunked.arena, o.whole.arena);
    ctx->device->caps.merges = true;
    l.size = 64;
    o = compare(ctx, l, NULL, NULL);
    assert_int_equal(o.chunked.launches, o.whole.launches);
    tern_context_destroy(&ctx);
}

/* Between two layers, ops whose results need other pictures, or all of them. x is (4, 4, 4). */
enum mixing {
    SOFTMAX,
    WEIGHT,
    OTHER,
    PERMUTE,
    PICTURES_AS_ROWS,
    CAT,
    EXPAND,
    SLICE,
    LAYER_NORM,
    RMS_NORM,
    PAD,
    BROADCAST,
    ATTEND,
    VECTOR_FIRST,
    CAT_FIRST,
    MIXINGS
};

static tern_tensor *mix(enum mixing how, tern_tensor *x)
{
    const int64_t square[] = {4, 4}, cube[] = {4, 4, 4};
    tern_tensor *rows = how == WEIGHT || how == OTHER || how == EXPAND || how == BROADCAST || how == ATTEND
                            ? tern_reshape(tern_slice(x, 1, 0, 1, 1), 2, square)
                            : NULL;
    switch (how) {
    case SOFTMAX:
        return tern_softmax(x, 0);
    case WEIGHT:
        return tern_linear(x, rows, NULL);
    case OTHER:
        return tern_matmul(x, rows);
    case PERMUTE:
        return tern_permute(x, 3, (const int[]){1, 0, 2});
    case PICTURES_AS_ROWS:
        return tern_reshape(tern_permute(tern_reshape(x, 2, (const int64_t[]){16, 4}), 2, (const int[]){1, 0}), 3, cube);
    case CAT:
        return tern_cat((tern_tensor *[]){tern_slice(x, 0, 1, 4, 1), tern_slice(x, 0, 0, 1, 1)}, 2, 0);
    case EXPAND:
        return tern_expand(rows, 3, cube);
    case SLICE:
        return tern_slice(x, 0, 1, 4, 2);
    case LAYER_NORM:
        return tern_layer_norm(x, 3, NULL, NULL, 1e-5);
    case RMS_NORM:
        return tern_rms_norm(x, 3, NULL, 1e-5);
    case ATTEND:
        return tern_reshape(tern_sdpa(rows, rows, rows), 3, (const int64_t[]){4, 1, 4});
    case PAD:
        return tern_pad(x, 6, (const int64_t[]){0, 0, 0, 0, 2, -2}, 0);
    default:
        return tern_mul(x, rows);
    }
}

struct mixture {
    enum mixing how;
    tern_tensor *w, *vector;
};

static enum tern_status mixed(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct mixture *m = user;
    const bool first = m->how == CAT_FIRST || m->how == VECTOR_FIRST;
    tern_tensor *x = m->how == CAT_FIRST ? mix(CAT, in[0]) : in[0];
    if (m->how == VECTOR_FIRST)
        x = tern_matmul(tern_reshape(x, 4, (const int64_t[]){4, 2, 4, 2}), m->vector);
    x = tern_linear(tern_layer_norm(x, 1, NULL, NULL, 1e-5), m->w, NULL);
    out[0] = tern_linear(tern_silu(tern_linear(first ? x : mix(m->how, tern_silu(x)), m->w, NULL)), m->w, NULL);
    return TERN_OK;
}

/* Eager and in chunks fn of x is the same, also where what is added is a slice: that is a post. Whether there are chunks. */
static bool agrees(struct tern_context *ctx, tern_graph_fn fn, void *user, tern_tensor *x, const struct tern_chunk_limits *limits)
{
    struct tern_graph_input input = {"x", TERN_F32, 3, {0}};
    tern_tensor *expected = NULL, *out = NULL;
    memcpy(input.shape, tern_tensor_shape(x), 3 * sizeof(int64_t));
    fn(user, &x, &expected);
    struct tern_graph *g = tern_graph_trace(ctx, fn, user, NULL, &input, 1, 1);
    const int before = g ? g->n_nodes : 0;
    if (!g || tern_chunk_graph(g, limits))
        fail_msg("%s", tern_error(ctx));
    const bool chunked = g->n_nodes > before;
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    for (int i = 0; plan && i < plan->graph->n_nodes; i++)
        assert_true(plan->graph->nodes[i].desc.op != TERN_OP_add);
    run(ctx, plan, NULL, &x, &out);
    if (!(support_tensor_nmse(out, expected) <= NEAR))
        fail_msg("NMSE %g", support_tensor_nmse(out, expected));
    tern_graph_destroy(&g);
    return chunked;
}

static void what_mixes_pictures_is_whole(void **state)
{
    static const struct tern_chunk_limits none = {.large = 1, .picture_rows = 1, .rows = 1, .rows_of_chunk = 2, .nodes = INT64_MAX};
    struct tern_context *ctx = support_context();
    tern_scope_begin(ctx);
    struct mixture m = {.w = support_noise(ctx, 1, 2, (const int64_t[]){4, 4}, 1, TERN_F32),
                        .vector = support_noise(ctx, 5, 1, (const int64_t[]){2}, 1, TERN_F32)};
    tern_tensor *x = support_noise(ctx, 2, 3, (const int64_t[]){4, 4, 4}, 1, TERN_F32);
    for (m.how = 0; m.how < MIXINGS; m.how++) {
        print_message("mixing %d\n", m.how);
        assert_true(agrees(ctx, mixed, &m, x, &none));
    }
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* A feed-forward layer, in whose middle each row meets one of a tensor of two dimensions, or that of a picture. */
static enum tern_status wide(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *const *w = user; /* (16, 4), (4, 16), (64, 16) or (1, 64, 16) */
    out[0] = tern_add(in[0], tern_linear(tern_silu(tern_mul(tern_linear(in[0], w[0], NULL), w[2])), w[1], NULL));
    return TERN_OK;
}

static void rows_meet_their_rows(void **state)
{
    static const struct tern_chunk_limits small = {.large = 1, .picture_rows = 1, .rows = 1, .rows_of_chunk = 16, .nodes = INT64_MAX};
    struct tern_context *ctx = support_context();
    tern_scope_begin(ctx);
    tern_tensor *w[3] = {support_noise(ctx, 1, 2, (const int64_t[]){16, 4}, 1, TERN_F32),
                         support_noise(ctx, 2, 2, (const int64_t[]){4, 16}, 1, TERN_F32),
                         support_noise(ctx, 3, 2, (const int64_t[]){64, 16}, 1, TERN_F32)};
    tern_tensor *x = support_noise(ctx, 4, 3, (const int64_t[]){1, 64, 4}, 1, TERN_F32);
    assert_false(agrees(ctx, wide, w, x, &small));
    w[2] = tern_reshape(w[2], 3, (const int64_t[]){1, 64, 16});
    assert_true(agrees(ctx, wide, w, x, &small));
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

struct heads_out {
    tern_tensor *w;
    bool projected;
};

/* Attention whose result, which lies as its query does, is given out, or goes through one more linear layer before. */
static enum tern_status heads_given_out(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct heads_out *h = user;
    const int order[] = {0, 2, 1, 3};
    tern_tensor *x = tern_permute(tern_reshape(tern_linear(in[0], h->w, NULL), 4, (const int64_t[]){4, 4, 2, 2}), 4, order);
    x = tern_reshape(tern_permute(tern_sdpa(x, x, x), 4, order), 3, (const int64_t[]){4, 4, 4});
    out[0] = h->projected ? tern_linear(x, h->w, NULL) : x;
    return TERN_OK;
}

/* What a whole one has in another order than its chunks would have to be copied. */
static void what_joins_by_a_copy_is_whole(void **state)
{
    static const struct tern_chunk_limits none = {.large = 1, .picture_rows = 1, .rows = 1, .rows_of_chunk = 2, .nodes = INT64_MAX};
    struct tern_context *ctx = support_context();
    tern_scope_begin(ctx);
    struct heads_out h = {.w = support_noise(ctx, 1, 2, (const int64_t[]){4, 4}, 1, TERN_F32)};
    tern_tensor *x = support_noise(ctx, 2, 3, (const int64_t[]){4, 4, 4}, 1, TERN_F32);
    assert_false(agrees(ctx, heads_given_out, &h, x, &none));
    h.projected = true;
    assert_true(agrees(ctx, heads_given_out, &h, x, &none));
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* No pictures, no rows, no channels. */
static void nothing_has_no_chunks(void **state)
{
    static const struct tern_chunk_limits none = {.large = 0, .picture_rows = 0, .rows = 0, .rows_of_chunk = 1, .nodes = INT64_MAX};
    static const int64_t shapes[][3] = {{0, 4, 4}, {4, 0, 4}, {1, 0, 4}};
    struct tern_context *ctx = support_context();
    tern_scope_begin(ctx);
    struct mixture m = {.how = CAT_FIRST, .w = support_noise(ctx, 1, 2, (const int64_t[]){4, 4}, 1, TERN_F32)};
    for (int i = 0; i < 3; i++) {
        const struct tern_graph_input input = {"x", TERN_F32, 3, {shapes[i][0], shapes[i][1], shapes[i][2]}};
        struct tern_graph *g = tern_graph_trace(ctx, mixed, &m, NULL, &input, 1, 1);
        if (!g || tern_chunk_graph(g, &none))
            fail_msg("%d: %s", i, tern_error(ctx));
        tern_graph_destroy(&g);
    }
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* ---- in place */

enum reading { QUERY_ENDS, QUERY_GOES_ON, QUERY_IS_KEY, QUERY_IS_VIEWED, QUERY_IS_MASK, READINGS };

static enum tern_status attention(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const enum reading reading = *(const enum reading *)user;
    tern_tensor *q = tern_silu(in[0]), *k = reading == QUERY_IS_KEY ? q : tern_neg(in[0]), *v = tern_abs(in[0]);
    tern_tensor *mask = reading == QUERY_IS_MASK ? tern_slice(q, 3, 0, 1, 1) : NULL;
    tern_tensor *y = tern_sdpa(reading == QUERY_IS_VIEWED ? tern_slice(q, 2, 1, 50, 1) : q, k, v, .attn_mask = mask);
    out[0] = tern_softmax(y, 3);
    out[1] = tern_softmax(reading == QUERY_GOES_ON ? q : k, 3);
    return TERN_OK;
}

/* The result of attention lies where its query does, where nothing else reads that. */
static void attention_is_in_place(void **state)
{
    struct tern_context *ctx = support_context();
    const struct tern_graph_input input = {"x", TERN_F32, 4, {2, 3, 70, 24}};
    for (enum reading reading = 0; reading < READINGS; reading++) {
        tern_tensor *x, *expected[2], *out[2] = {NULL};
        tern_scope_begin(ctx);
        x = support_noise(ctx, 1, 4, input.shape, 1, TERN_F32);
        attention(&reading, &x, expected);
        struct tern_graph *g = tern_graph_trace(ctx, attention, &reading, NULL, &input, 1, 2);
        struct tern_plan *plan = tern_plan_compile(g, NULL);
        int results = 0;
        for (int i = 0; plan && i < plan->n_blocks; i++)
            results += !plan->blocks[i].scratch;
        run(ctx, plan, NULL, &x, out);
        for (int i = 0; i < 2; i++)
            assert_true(support_tensor_nmse(out[i], expected[i]) == 0);
        assert_int_equal(results, reading == QUERY_ENDS ? 3 : reading == QUERY_IS_KEY ? 3 : 4);
        tern_scope_end(ctx, NULL);
        tern_graph_destroy(&g);
    }
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_graphs_agree),   cmocka_unit_test(a_level_takes_less_memory),
                                       cmocka_unit_test(else_plans_stay),       cmocka_unit_test(what_mixes_pictures_is_whole),
                                       cmocka_unit_test(rows_meet_their_rows),  cmocka_unit_test(what_joins_by_a_copy_is_whole),
                                       cmocka_unit_test(nothing_has_no_chunks), cmocka_unit_test(attention_is_in_place)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

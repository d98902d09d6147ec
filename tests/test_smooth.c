/* SmoothQuant: factors of norms in the words of tern_plan_params.quantize, and what the pass makes of them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "graph/passes/passes.h"
#include "graph/plan.h"
#include "lora_help.h"
#include "model_help.h"
#include "quantize_help.h"
#include "support.h"

#define CHANNELS 64

/* ---- a small network: group_norm, silu, conv2d, layer_norm, two linear layers of the same input and a gated one */

/* What a channel of the norms is multiplied by, and the weights behind it divided by; by hand in f32. */
typedef float (*channel_factor)(int channel);

static float one(int channel) { return 1; }
static float planted(int channel) { return channel % 16 == 5 ? 100 : 1; }
static float one_over_planted(int channel) { return 1 / planted(channel); }
static float quarter_to_four(int channel) { return (float)exp2(channel % 5 - 2); }
static float four_to_quarter(int channel) { return 1 / quarter_to_four(channel); }

static void add(struct tern_context *ctx, struct tern_weights *w, const char *name, const float *values, int ndim, const int64_t *shape)
{
    tern_tensor *t = tern_tensor_create(ctx, TERN_F32, ndim, shape, NULL);
    tern_tensor_write(t, TERN_F32, values, (size_t)tern_tensor_numel(t) * sizeof(float));
    tern_tensor_make_constant(t);
    assert_int_equal(tern_weights_add(w, name, t), TERN_OK);
}

/* Channels lie `inner` values apart in the array, CHANNELS of them. */
static void put(struct tern_context *ctx, struct tern_weights *w, const char *name, int seed, int ndim, const int64_t *shape, int inner,
                channel_factor f, bool inverse)
{
    int64_t n;
    float *values = support_values(support_noise(ctx, seed, ndim, shape, 1, TERN_F32), &n);
    for (int64_t i = 0; i < n; i++) {
        const float by = f((int)(i / inner % CHANNELS));
        values[i] = (ndim == 1 && seed % 2 ? 1 + 0.25f * values[i] : values[i]) * (inverse ? 1 / by : by);
    }
    add(ctx, w, name, values, ndim, shape);
    free(values);
}

/* `ln`: the layer norm is multiplied by it, what reads it divided. `gn`, `conv`: the group norm, and the convolution behind it, are
 * multiplied by these. */
static struct tern_weights *network(struct tern_context *ctx, channel_factor ln, channel_factor gn, channel_factor conv)
{
    struct tern_weights *w = tern_weights_create(ctx);
    const int64_t c[] = {CHANNELS}, square[] = {CHANNELS, CHANNELS}, wide[] = {2 * CHANNELS, CHANNELS},
                  filter[] = {CHANNELS, CHANNELS, 3, 3};
    tern_scope_begin(ctx);
    put(ctx, w, "gn.weight", 1, 1, c, 1, gn, false);
    put(ctx, w, "gn.bias", 2, 1, c, 1, gn, false);
    put(ctx, w, "conv.weight", 4, 4, filter, 9, conv, false);
    put(ctx, w, "ln.weight", 3, 1, c, 1, ln, false);
    put(ctx, w, "ln.bias", 6, 1, c, 1, ln, false);
    put(ctx, w, "q.weight", 8, 2, square, 1, ln, true);
    put(ctx, w, "k.weight", 10, 2, square, 1, ln, true);
    put(ctx, w, "ff.weight", 12, 2, wide, 1, ln, true);
    tern_scope_end(ctx, NULL);
    return w;
}

struct use {
    const struct tern_weights *w;
    const float *divide; /* by channel, behind silu; NULL: nothing is */
    bool leak;           /* an add reads the layer norm, too */
    bool without_k;      /* what k gives counts 0 times */
};

/* (2, CHANNELS, 4, 4) */
static enum tern_status forward(void *user, tern_tensor *const *x, tern_tensor **out)
{
    const struct use *u = user;
    struct tern_context *ctx = tern_tensor_context(x[0]);
    tern_tensor *(*of)(const struct tern_weights *, const char *) = tern_weights_get;
    tern_tensor *h =
        tern_silu(tern_group_norm(tern_contiguous(x[0], TERN_CHANNELS_LAST), 8, of(u->w, "gn.weight"), of(u->w, "gn.bias"), 1e-5));
    if (u->divide) {
        tern_tensor *by = tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){1, CHANNELS, 1, 1}, NULL);
        tern_tensor_write(by, TERN_F32, u->divide, CHANNELS * sizeof(float));
        h = tern_mul(h, by);
    }
    h = tern_conv2d(h, of(u->w, "conv.weight"), NULL, .padding = 1);
    h = tern_reshape(tern_permute(h, 4, (const int[]){0, 2, 3, 1}), 3, (const int64_t[]){2, 16, CHANNELS});
    h = tern_layer_norm(h, 1, of(u->w, "ln.weight"), of(u->w, "ln.bias"), 1e-5);
    tern_tensor *q = tern_linear(h, of(u->w, "q.weight"), NULL), *k = tern_linear(h, of(u->w, "k.weight"), NULL);
    k = u->without_k ? tern_mul_scalar(k, 0) : k;
    out[0] = tern_add(u->without_k ? tern_add(q, k) : tern_mul(q, k), tern_linear_geglu(h, of(u->w, "ff.weight"), NULL));
    if (u->leak)
        out[0] = tern_add(out[0], h);
    return tern_error_status(ctx);
}

static struct tern_graph *trace(struct tern_context *ctx, struct use *u)
{
    const struct tern_graph_input input = {"x", TERN_F32, 4, {2, CHANNELS, 4, 4}};
    return tern_graph_trace(ctx, forward, u, (struct tern_weights *)u->w, &input, 1, 1);
}

/* free() */
static float *run(struct tern_context *ctx, struct use *u, struct tern_plan_params params, int64_t *n)
{
    struct tern_graph *g = trace(ctx, u);
    struct tern_plan *p = tern_plan_compile(g, &params);
    struct tern_binding *b = p ? tern_plan_bind(p, u->w) : NULL;
    tern_tensor *x, *out = NULL;
    tern_scope_begin(ctx);
    x = support_noise(ctx, 77, 4, (const int64_t[]){2, CHANNELS, 4, 4}, 1, TERN_F32);
    if (!b || tern_plan_run(b, &x, &out))
        fail_msg("%s", tern_error(ctx));
    float *values = support_values(out, n);
    tern_scope_end(ctx, NULL);
    tern_binding_unref(&b);
    tern_plan_unref(&p);
    tern_graph_destroy(&g);
    return values;
}

/* " gn.weight^..." of factors that are powers of 2^(1/4). */
static void add_word(char *words, const char *norm, channel_factor f)
{
    sprintf(words + strlen(words), " %s^", norm);
    for (int c = 0; c < CHANNELS; c++) {
        const char letter[] = {tern_quantize_factor_letter(log2(f(c))), 0};
        strcat(words, letter);
    }
}

/* ---- letters */

static void letters_are_powers(void **state)
{
    static const struct {
        char letter;
        double power;
    } rows[] = {{'A', -6.5}, {'B', -6.25}, {'Z', -0.25}, {'a', 0}, {'b', 0.25}, {'e', 1}, {'W', -1}, {'z', 6.25}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_true(tern_quantize_factor_power(rows[i].letter) == rows[i].power);
        assert_int_equal(tern_quantize_factor_letter(rows[i].power + 0.12), rows[i].letter);
        assert_int_equal(tern_quantize_factor_letter(rows[i].power - 0.12), rows[i].letter);
    }
    assert_int_equal(tern_quantize_factor_letter(1e9), 'z');
    assert_int_equal(tern_quantize_factor_letter(-1e9), 'A');
    assert_int_equal(tern_quantize_factor_letter(NAN), 'A');
}

static void words_are_checked(void **state)
{
    static const struct {
        const char *words, *message;
    } rows[] = {
        {"ln.weight^", "found none"},
        {"* ln.weight^ab.c", "found another character"},
        {"ln.weight^ab1", "found another character"},
        {"ln.weight^ab:w4", "found another character"},
        {"!ln.weight^ab", "expected its weight's name before ^"},
        {"^ab", "expected its weight's name before ^"},
        {"ln.weight^abc", "has 3 factors: expected 64, one for each channel"},
    };
    struct tern_context *ctx = support_context();
    struct use u = {.w = network(ctx, one, one, one)};
    struct tern_graph *g = trace(ctx, &u);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_null(tern_plan_compile(g, &(struct tern_plan_params){.quantize = rows[i].words}));
        assert_non_null(strstr(tern_error(ctx), rows[i].message));
        tern_error_clear(ctx);
    }
    tern_graph_destroy(&g);
    u.leak = true;
    g = trace(ctx, &u);
    char words[256] = "*";
    add_word(words, "ln.weight", quarter_to_four);
    assert_null(tern_plan_compile(g, &(struct tern_plan_params){.quantize = words}));
    support_error(ctx, TERN_E_INVALID, "is not read by linear layers and convolutions alone");
    tern_graph_destroy(&g);
    tern_weights_unref((struct tern_weights **)&u.w);
    tern_context_destroy(&ctx);
}

/* ---- values */

/* Powers of two change no bit of layers of floats that read the same norm as one of int8, which is left out of the result. Of a norm that
 * no layer of int8 reads factors do nothing. */
static void powers_of_two_change_no_float(void **state)
{
    struct tern_context *ctx = support_context();
    struct use u = {.w = network(ctx, one, one, one), .without_k = true};
    char words[512] = "k.weight", odd[512] = "conv.weight";
    int64_t n;
    add_word(words, "ln.weight", quarter_to_four);
    add_word(odd, "ln.weight", planted);
    float *plain = run(ctx, &u, (struct tern_plan_params){.quantize = NULL}, &n);
    float *found = run(ctx, &u, (struct tern_plan_params){.quantize = words}, &n);
    float *streamed = run(ctx, &u, (struct tern_plan_params){.quantize = words, .resident = 1}, &n);
    assert_memory_equal(found, plain, (size_t)n * sizeof(float));
    assert_memory_equal(streamed, plain, (size_t)n * sizeof(float));
    float *conv = run(ctx, &u, (struct tern_plan_params){.quantize = "conv.weight"}, &n);
    float *ignored = run(ctx, &u, (struct tern_plan_params){.quantize = odd}, &n);
    assert_memory_equal(ignored, conv, (size_t)n * sizeof(float));
    void *all[] = {plain, found, streamed, conv, ignored};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]);
    tern_weights_unref((struct tern_weights **)&u.w);
    tern_context_destroy(&ctx);
}

/* In int8 the words give what weights that were divided and multiplied by hand give, bit by bit. */
static void words_are_weights_by_hand(void **state)
{
    struct tern_context *ctx = support_context();
    float divide[CHANNELS];
    struct use u = {.w = network(ctx, one, one, one)}, hand = {network(ctx, four_to_quarter, one, quarter_to_four), divide, false, false};
    char words[512] = "*";
    int64_t n;
    for (int c = 0; c < CHANNELS; c++)
        divide[c] = four_to_quarter(c);
    add_word(words, "gn.weight", quarter_to_four);
    add_word(words, "ln.weight", quarter_to_four);
    float *plain = run(ctx, &u, (struct tern_plan_params){.quantize = "*"}, &n);
    float *expected = run(ctx, &hand, (struct tern_plan_params){.quantize = "*"}, &n);
    float *found = run(ctx, &u, (struct tern_plan_params){.quantize = words}, &n);
    float *streamed = run(ctx, &u, (struct tern_plan_params){.quantize = words, .resident = 1}, &n);
    assert_memory_equal(found, expected, (size_t)n * sizeof(float));
    assert_memory_equal(streamed, expected, (size_t)n * sizeof(float));
    assert_memory_not_equal(found, plain, (size_t)n * sizeof(float));
    free(plain);
    free(expected);
    free(found);
    free(streamed);
    tern_weights_unref((struct tern_weights **)&u.w);
    tern_weights_unref((struct tern_weights **)&hand.w);
    tern_context_destroy(&ctx);
}

/* Where weights are streamed, the product of a large one (here of 147,456 bytes) is not kept either. */
static void streamed_products_are_not_kept(void **state)
{
    struct tern_context *ctx = support_context();
    struct use u = {.w = network(ctx, one, one, one)};
    struct tern_graph *g = trace(ctx, &u);
    char words[2][256] = {"conv.weight", "conv.weight"};
    size_t bytes[2];
    add_word(words[1], "gn.weight", quarter_to_four);
    for (int i = 0; i < 2; i++) {
        struct tern_plan *p = tern_plan_compile(g, &(struct tern_plan_params){.quantize = words[i], .resident = 1});
        bytes[i] = tern_plan_bind_bytes(p, u.w);
        tern_plan_unref(&p);
    }
    assert_true(bytes[1] < bytes[0] + 16384);
    tern_graph_destroy(&g);
    tern_weights_unref((struct tern_weights **)&u.w);
    tern_context_destroy(&ctx);
}

static enum tern_status add_in_f32(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_add(in[0], tern_cast(tern_weights_get(user, "w"), TERN_F32));
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

/* Nor is a large one in f32, which a product is made of where kernels lack its dtype. */
static void streamed_casts_are_not_kept(void **state)
{
    struct tern_context *ctx = support_context();
    struct tern_weights *w = tern_weights_create(ctx);
    const struct tern_graph_input input = {"x", TERN_F32, 2, {256, 256}};
    tern_scope_begin(ctx);
    tern_tensor *t = support_noise(ctx, 1, 2, input.shape, 1, TERN_F16);
    tern_tensor_make_constant(t);
    assert_int_equal(tern_weights_add(w, "w", t), TERN_OK);
    tern_scope_end(ctx, NULL);
    struct tern_graph *g = tern_graph_trace(ctx, add_in_f32, w, w, &input, 1, 1);
    size_t bytes[2];
    for (int streams = 0; streams < 2; streams++) {
        struct tern_plan *p = tern_plan_compile(g, &(struct tern_plan_params){.resident = streams ? 1 : 0});
        if (!p)
            fail_msg("%s", tern_error(ctx));
        bytes[streams] = tern_plan_bind_bytes(p, w);
        tern_plan_unref(&p);
    }
    assert_true(bytes[0] > 256 * 256 * sizeof(float) && bytes[1] < 16384);
    tern_graph_destroy(&g);
    tern_weights_unref(&w);
    tern_context_destroy(&ctx);
}

static double error_of(struct tern_context *ctx, struct use *u, const char *words)
{
    int64_t n;
    float *exact = run(ctx, u, (struct tern_plan_params){.quantize = NULL}, &n);
    float *found = run(ctx, u, (struct tern_plan_params){.quantize = words}, &n);
    const double error = support_nmse(found, exact, n);
    free(exact);
    free(found);
    return error;
}

/* Some channels are 100 times as large, their weights as much smaller. The step of a row is then 100 times as wide as the other channels
 * need; factors of 76 (z is the most there is) leave 1.3. The error falls by 1e4 as far as it is that of the steps; the weights' own is
 * what the network without outliers has. */
static void factors_repair_outliers(void **state)
{
    struct tern_context *ctx = support_context();
    struct use of[] = {{.w = network(ctx, one, one, one)},
                       {.w = network(ctx, planted, one, one)},
                       {.w = network(ctx, one, planted, one_over_planted)}};
    char words[2][256] = {"*", "*"};
    add_word(words[0], "ln.weight", planted);
    add_word(words[1], "gn.weight", planted);
    const double least = error_of(ctx, &of[0], "*");
    assert_true(least < 1e-3);
    for (int i = 0; i < 2; i++) {
        const double plain = error_of(ctx, &of[i + 1], "*"), smooth = error_of(ctx, &of[i + 1], words[i]);
        print_message("NMSE without outliers %.1e; with them behind a %s norm %.1e, and factors %.1e\n", least, i ? "group" : "layer",
                      plain, smooth);
        assert_true(plain > 0.05 && smooth < 2 * least);
    }
    for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++)
        tern_weights_unref((struct tern_weights **)&of[i].w);
    tern_context_destroy(&ctx);
}

/* ---- a UNet */

/* "*", and factors of 0.7 to 1.4 of every norm that may have some; free(). */
static char *words_of(struct tern_pipeline *p, int *norms)
{
    struct tern_graph *g = tern_pipeline_graph(p, "unet", NULL);
    char *words = calloc(1, 1 << 20), *to = words + sprintf(words, "*");
    bool silu;
    *norms = 0;
    for (int i = 0; i < g->n_nodes; i++)
        if (tern_smooth_place(g, i, &silu) >= 0) {
            const struct tern_value *w = &g->values[g->nodes[i].in[1]];
            to += sprintf(to, " %s^", w->name);
            for (int64_t c = 0; c < w->meta.shape[0]; c++)
                *to++ = "YZabc"[(c + i) % 5];
            ++*norms;
        }
    tern_graph_destroy(&g);
    return words;
}

/* A pipeline by words: the same latents streamed, and behind a LoRA; with it the change is what it is without factors. */
static void streams_and_loras(void **state)
{
    struct tern_context *ctx = model_context(NULL, 2);
    struct tern_pipeline *floats = quantize_load(ctx, NULL, NULL, TERN_OFFLOAD_NONE);
    const struct lora_spec lora = {.file = "a-kohya.safetensors", .scale = 1};
    int64_t n;
    int norms;
    char *words = words_of(floats, &norms);
    assert_true(norms > 30);
    struct tern_pipeline *p = quantize_load(ctx, words, NULL, TERN_OFFLOAD_NONE),
                         *streamed = quantize_load(ctx, words, NULL, TERN_OFFLOAD_STREAM);
    float *exact = quantize_latents(ctx, floats, &n), *first = quantize_latents(ctx, p, &n), *other = quantize_latents(ctx, streamed, &n);
    assert_memory_equal(other, first, (size_t)n * sizeof(float));
    lora_set(ctx, floats, &lora, 1);
    lora_set(ctx, p, &lora, 1);
    float *merged = quantize_latents(ctx, floats, &n), *with = quantize_latents(ctx, p, &n);
    print_message("NMSE of int8 with factors %.1e, with a LoRA %.1e, which changes %.1e\n", support_nmse(first, exact, n),
                  support_nmse(with, merged, n), support_nmse(merged, exact, n));
    assert_true(support_nmse(first, exact, n) < 1e-2 && support_nmse(with, merged, n) < 0.25 * support_nmse(merged, exact, n));
    lora_set(ctx, p, NULL, 0);
    float *again = quantize_latents(ctx, p, &n);
    assert_memory_equal(again, first, (size_t)n * sizeof(float));
    void *all[] = {exact, first, other, merged, with, again, words};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]);
    tern_pipeline_destroy(&floats);
    tern_pipeline_destroy(&p);
    tern_pipeline_destroy(&streamed);
    tern_context_destroy(&ctx);
}

/* Memory of the bindings of a UNet, and of its shallow part beside it; what was predicted is enough. */
static size_t bound_bytes(struct tern_context *ctx, const char *words, size_t *shallow)
{
    struct tern_pipeline *p = quantize_load(ctx, words, NULL, TERN_OFFLOAD_NONE);
    const struct tern_weights *w = tern_pipeline_weights(p, "unet");
    const struct tern_stage keeping = {.component = "unet", .size = {2, 64, 64}, .part = TERN_UNET_KEEPS},
                            part = {.component = "unet", .size = {2, 64, 64}, .part = TERN_UNET_SHALLOW};
    struct tern_plan *plans[] = {tern_pipeline_plan(p, &keeping), tern_pipeline_plan(p, &part)};
    const size_t predicted = tern_plan_bind_bytes(plans[0], w), before = tern_memory_used(ctx);
    tern_memory_reset_peak(ctx);
    struct tern_binding *b = tern_plan_bind(plans[0], w);
    const size_t bytes = tern_memory_used(ctx) - before;
    assert_true(tern_memory_peak(ctx) - before <= predicted && bytes <= predicted);
    struct tern_binding *beside = tern_plan_bind_beside(plans[1], w, b);
    *shallow = tern_memory_used(ctx) - before - bytes;
    tern_binding_unref(&beside);
    tern_binding_unref(&b);
    tern_pipeline_destroy(&p);
    return bytes;
}

/* Packed forms are all that stays of the weights that were multiplied, and two plans share them. */
static void memory_is_that_of_int8(void **state)
{
    struct tern_context *ctx = model_context(NULL, 2);
    struct tern_pipeline *p = quantize_load(ctx, NULL, NULL, TERN_OFFLOAD_NONE);
    int norms;
    char *words = words_of(p, &norms);
    size_t shallow[2], bytes[2] = {bound_bytes(ctx, "*", &shallow[0]), bound_bytes(ctx, words, &shallow[1])};
    print_message("bound: %zu bytes, with factors %zu; a shallow part beside it %zu and %zu\n", bytes[0], bytes[1], shallow[0], shallow[1]);
    assert_true(bytes[1] - bytes[0] < 4096 * (size_t)norms && shallow[1] - shallow[0] < 16 * 1024);
    free(words);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(letters_are_powers),
        cmocka_unit_test(words_are_checked),
        cmocka_unit_test(powers_of_two_change_no_float),
        cmocka_unit_test(words_are_weights_by_hand),
        cmocka_unit_test(streamed_products_are_not_kept),
        cmocka_unit_test(streamed_casts_are_not_kept),
        cmocka_unit_test(factors_repair_outliers),
        cmocka_unit_test(streams_and_loras),
        cmocka_unit_test(memory_is_that_of_int8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

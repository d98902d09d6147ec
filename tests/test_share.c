/* Texts that share a row of the sample: all rows of the UNet are those that it gives when each text has its own, bit for bit, for less
 * work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "damage.h"
#include "graph/plan.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "support.h"
#include "xl_help.h"

/* What a UNet is given: `samples` rows, each for `share` rows of the text. */
struct given {
    tern_tensor *sample, *each, *context; /* each: the sample's rows, one for each row of the text */
    struct tern_unet_conditions c;
};

static tern_tensor *noise(struct tern_context *ctx, uint64_t seed, int ndim, const int64_t *shape)
{
    return support_noise(ctx, seed, ndim, shape, 1, TERN_F32);
}

static struct given given(struct tern_pipeline *p, const struct tern_unet *m, int samples, int share, int times, int64_t tokens)
{
    static const double t[] = {500, 20, 3, 999, 1, 77};
    const struct tern_unet_config *u = &m->config;
    const int64_t rows = samples * share;
    tern_tensor *pooled = u->pooled ? noise(p->ctx, 3, 2, (const int64_t[]){rows, u->pooled - 6 * u->time_ids}) : NULL,
                *ids = u->pooled ? noise(p->ctx, 4, 2, (const int64_t[]){rows, 6}) : NULL;
    struct given g = {.sample = tern_cast(noise(p->ctx, 1, 4, (const int64_t[]){samples, u->in_channels, 8, 16}), p->params.dtype),
                      .context = tern_cast(noise(p->ctx, 2, 3, (const int64_t[]){rows, tokens, u->context[0]}), p->params.dtype)};
    tern_tensor *copies[] = {g.sample, g.sample, g.sample};
    g.each = tern_cat(copies, share, 0);
    assert_int_equal(tern_unet_conditions(m, t, times, 1, pooled, ids, &g.c), TERN_OK);
    return g;
}

static void same_bits(struct tern_context *ctx, const tern_tensor *found, const tern_tensor *expected, const char *what)
{
    int64_t n, m;
    if (!found || !expected)
        fail_msg("%s: %s", what, tern_error(ctx));
    float *x = support_values(found, &n), *y = support_values(expected, &m);
    assert_int_equal(n, m);
    for (int64_t i = 0; i < n; i++)
        if (memcmp(x + i, y + i, sizeof(*x)))
            fail_msg("%s: value %lld is %.9g, expected %.9g", what, (long long)i, (double)x[i], (double)y[i]);
    free(x);
    free(y);
}

static struct tern_pipeline *open_model(struct tern_context *ctx, const char *model, enum tern_dtype dtype)
{
    char path[PATH_SIZE];
    struct tern_pipeline *p = tern_pipeline_load(ctx, model_path(model, path), &(struct tern_pipeline_params){.dtype = dtype});
    if (!p)
        fail_msg("%s: %s", model, tern_error(ctx));
    return p;
}

static const char *const models[] = {"sd1", "sd1-heads", "sd1-inpaint", "sd2", "sdxl", "demo"};
#define MODELS (sizeof(models) / sizeof(*models))

/* What a whole pass keeps for shallow ones, and what these make of it, too. */
static void calls_agree(struct tern_pipeline *p, int samples, int share, int times, int step, const char *what)
{
    const struct tern_unet *m = tern_pipeline_unet(p);
    assert_non_null(m);
    for (int branch = 0; branch < TERN_UNET_BRANCHES * m->config.blocks; branch += step) {
        struct tern_unet_cache shared = {.branch = branch}, own = {.branch = branch};
        tern_scope_begin(p->ctx);
        struct given g = given(p, m, samples, share, times, 5);
        for (int pass = 0; pass < 2; pass++) {
            tern_tensor *found = tern_unet_forward(m, g.sample, &g.c, g.context, &shared);
            same_bits(p->ctx, found, tern_unet_forward(m, g.each, &g.c, g.context, &own), what);
            same_bits(p->ctx, shared.deep, own.deep, what);
        }
        tern_scope_end(p->ctx, NULL);
    }
}

static void every_model_agrees(enum tern_dtype dtype)
{
    static const struct {
        int samples, share, times;
    } cases[] = {{1, 2, 1}, {1, 3, 1}, {2, 3, 1}, {1, 2, 2}};
    struct tern_context *ctx = model_context(NULL, 1);
    for (size_t i = 0; i < MODELS; i++) {
        struct tern_pipeline *p = open_model(ctx, models[i], dtype);
        for (size_t k = 0; k < sizeof(cases) / sizeof(*cases); k++)
            calls_agree(p, cases[k].samples, cases[k].share, cases[k].times, k ? 4 : 1, models[i]);
        tern_pipeline_destroy(&p);
    }
    tern_context_destroy(&ctx);
}

/* Blocks without attention meet no text: what they keep has a row for each text all the same. */
static void blocks_without_attention(void **state)
{
    static const char *const ups[] = {"[\"UpBlock2D\", \"CrossAttnUpBlock2D\", \"CrossAttnUpBlock2D\"]",
                                      "[\"UpBlock2D\", \"UpBlock2D\", \"UpBlock2D\"]"};
    static const char *const transformers[] = {"down_blocks.0.att", "down_blocks.1.att", "up_blocks.1.att", "up_blocks.2.att"};
    static const char file[] = "unet/config.json", downs[] = "[\"DownBlock2D\", \"DownBlock2D\", \"DownBlock2D\"]";
    struct tern_context *ctx = model_context(NULL, 1);
    for (int i = 0; i < 2; i++) {
        char folder[PATH_SIZE];
        damage_copy("sd1", folder);
        xl_drop_mid_block(ctx, folder);
        for (int k = 0; k < (i ? 4 : 2); k++)
            xl_drop_tensors(ctx, folder, transformers[k]);
        damage_json(folder, file, "down_block_types", json_loads(downs, 0, NULL));
        damage_json(folder, file, "up_block_types", json_loads(ups[i], 0, NULL));
        struct tern_pipeline *p = tern_pipeline_load(ctx, folder, NULL);
        if (!p)
            fail_msg("%s", tern_error(ctx));
        calls_agree(p, 1, 2, 1, 1, ups[i]);
        tern_pipeline_destroy(&p);
        damage_remove(folder);
    }
    tern_context_destroy(&ctx);
}

static void calls_in_f32(void **state) { every_model_agrees(TERN_F32); }
static void calls_in_bf16(void **state) { every_model_agrees(TERN_BF16); }

/* The plans that jobs run. What SDXL is told of the text meets the first convolution's result, so there is nothing to share. */
static void plans(void **state)
{
    struct tern_context *ctx = model_context(NULL, 1);
    for (size_t i = 0; i < MODELS; i++) {
        struct tern_pipeline *p = open_model(ctx, models[i], TERN_F32);
        const int scale = tern_pipeline_scale(p);
        const struct tern_stage each = {.component = "unet", .size = {2, 16 * scale, 8 * scale}},
                                shared = {.component = "unet", .size = each.size, .share = 2};
        struct tern_binding *a = tern_pipeline_binding(p, &each), *b = tern_pipeline_binding(p, &shared);
        if (!a || !b)
            fail_msg("%s: %s", models[i], tern_error(ctx));
        const double less = tern_plan_facts(b->plan).flops / tern_plan_facts(a->plan).flops;
        if (p->unet_config.pooled ? less != 1 : less > 0.99)
            fail_msg("%s: %.4f of the work", models[i], less);
        tern_scope_begin(ctx);
        struct given g = given(p, tern_pipeline_unet(p), 1, 2, 1, tern_tokenizer_max_length(p->tokenizer));
        tern_tensor *of_each[] = {g.each, g.c.time, g.context, g.c.added}, *of_shared[] = {g.sample, g.c.time, g.context, g.c.added};
        tern_tensor *expected[] = {NULL}, *found[] = {NULL};
        if (tern_plan_run(a, of_each, expected) || tern_plan_run(b, of_shared, found))
            fail_msg("%s: %s", models[i], tern_error(ctx));
        same_bits(ctx, found[0], expected[0], models[i]);
        tern_scope_end(ctx, NULL);
        tern_binding_unref(&a);
        tern_binding_unref(&b);
        tern_pipeline_destroy(&p);
    }
    tern_context_destroy(&ctx);
}

static void texts_that_fit_no_row(void **state)
{
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = open_model(ctx, "sd1", TERN_F32);
    const struct tern_unet *m = tern_pipeline_unet(p);
    tern_scope_begin(ctx);
    struct given g = given(p, m, 2, 1, 1, 5);
    tern_tensor *three = noise(ctx, 2, 3, (const int64_t[]){3, 5, m->config.context[0]});
    assert_null(tern_unet_forward(m, g.sample, &g.c, three, NULL));
    support_error(ctx, TERN_E_SHAPE, "encoder_hidden_states: expected (2, L, 40), found (3, 5, 40) f32");
    tern_scope_end(ctx, NULL);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_in_f32), cmocka_unit_test(calls_in_bf16),         cmocka_unit_test(blocks_without_attention),
        cmocka_unit_test(plans),        cmocka_unit_test(texts_that_fit_no_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

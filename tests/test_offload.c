/* Pictures in less memory than the model takes: the same bits, within what was predicted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "graph/plan.h"
#include "job_cases.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "support.h"

struct fixture {
    struct tern_context *ctx;
    struct tern_pipeline *p;
};

static struct fixture open_typed(const char *model, size_t budget, enum tern_offload offload, enum tern_dtype dtype)
{
    struct fixture f;
    char path[PATH_SIZE];
    f.ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .budget = budget});
    assert_non_null(f.ctx);
    f.p = tern_pipeline_load(f.ctx, model_path(model, path), &(struct tern_pipeline_params){.offload = offload, .dtype = dtype});
    if (!f.p)
        fail_msg("%s: %s", model, tern_error(f.ctx));
    return f;
}

static struct fixture open_fixture(const char *model, size_t budget, enum tern_offload offload)
{
    return open_typed(model, budget, offload, TERN_F32);
}

static void close_fixture(struct fixture *f)
{
    tern_pipeline_destroy(&f->p);
    tern_context_destroy(&f->ctx);
}

static size_t need_of(struct fixture *f, const struct tern_txt2img_params *q)
{
    size_t need = 0;
    if (tern_generate_check(f->p, q, &need))
        fail_msg("check: %s", tern_error(f->ctx));
    return need;
}

/* The same bits, or with other kernels (`close`) latents to 1e-6 and values within 1 of 255. */
static void compare(const struct tern_images *expected, const struct tern_images *found, bool close)
{
    int64_t n, m;
    float *a = job_latents(expected, &n), *b = job_latents(found, &m);
    const struct tern_image *x = tern_images_at(expected, 0), *y = tern_images_at(found, 0);
    assert_int_equal(n, m);
    if (!close)
        assert_true(job_same(expected, 0, found));
    if (support_nmse(b, a, n) > 1e-6) /* the limit of whole pictures: guidance makes more of a difference between two passes */
        fail_msg("latents: NMSE %.3g", support_nmse(b, a, n));
    print_message("latents of other kernels: NMSE %.2g\n", support_nmse(b, a, n));
    for (int i = 0; i < 3 * tern_image_width(x) * tern_image_height(x); i++)
        assert_true(abs(tern_image_data(x)[i] - tern_image_data(y)[i]) <= 1);
    free(a);
    free(b);
}

/* A job's picture under an offload or budget is the expected one, and the peak is what was said. */
static void same_picture(struct fixture *f, const struct tern_txt2img_params *q, const struct tern_images *expected, bool close)
{
    for (int i = 0; i < 2; i++) { /* again with what the first job left */
        size_t need = need_of(f, q);
        tern_memory_trim(f->ctx);
        tern_memory_reset_peak(f->ctx);
        struct tern_images *images = job_run(f->ctx, f->p, q);
        double ratio = (double)tern_memory_peak(f->ctx) / (double)need;
        compare(expected, images, close);
        if (ratio > 1 || ratio < 0.97)
            fail_msg("predicted %zu bytes, the peak was %.4f of that", need, ratio);
        tern_images_destroy(&images);
    }
}

/* Large enough that tensors outweigh plans. */
static struct tern_txt2img_params job_of(const struct tern_image *init)
{
    return tern_txt2img_params(.prompt = "x", .width = 256, .height = 256, .steps = 2, .seed = 3, .init_image = init, .strength = 1);
}

static void every_offload_gives_the_same_bits(void **state)
{
    static const char *const models[] = {"sd1", "sd1", "demo", "sdxl"};
    for (int m = 0; m < 4; m++) {
        struct fixture base = open_fixture(models[m], 0, TERN_OFFLOAD_NONE);
        struct tern_image *init = m == 1 ? tern_image_create(base.ctx, 64, 64, NULL) : NULL;
        const struct tern_txt2img_params q = job_of(init);
        struct tern_images *expected = job_run(base.ctx, base.p, &q);
        size_t before = SIZE_MAX;
        for (enum tern_offload o = TERN_OFFLOAD_NONE; o <= TERN_OFFLOAD_STREAM; o++) {
            struct fixture f = open_fixture(models[m], 0, o);
            size_t need = need_of(&f, &q);
            if (before != SIZE_MAX && need > before + (1 << 20)) /* a plan from the disk is smaller than one that was compiled */
                fail_msg("%s: %zu bytes are predicted for offload %d, %zu for the one before", models[m], need, (int)o, before);
            before = need;
            same_picture(&f, &q, expected, false);
            assert_int_equal(f.p->unet == NULL, o != TERN_OFFLOAD_NONE); /* who left when the job was done */
            assert_int_equal(f.p->vae == NULL, o != TERN_OFFLOAD_NONE);
            assert_null(f.p->text);
            assert_null(f.p->text_2);
            close_fixture(&f);
        }
        tern_images_destroy(&expected);
        tern_image_destroy(&init);
        close_fixture(&base);
    }
}

/* The budget decides: each way is taken when the one before does not fit, and what cannot fit is refused with the least that can. */
static void the_budget_decides(void **state)
{
    char path[PATH_SIZE], text[64];
    struct tern_context *ctx = support_context();
    struct tern_pipeline *p = model_load(ctx, model_path("demo", path));
    const struct tern_txt2img_params q = job_of(NULL);
    struct tern_images *expected = job_run(ctx, p, &q);
    size_t need[TERN_OFFLOAD_STREAM + 1];
    for (enum tern_offload o = TERN_OFFLOAD_NONE; o <= TERN_OFFLOAD_STREAM; o++) {
        struct fixture f = open_fixture("demo", 0, o);
        need[o] = need_of(&f, &q);
        close_fixture(&f);
        f = open_fixture("demo", need[o] + (2 << 20), TERN_OFFLOAD_AUTO); /* 2 MiB: plans that were tried */
        struct tern_images *images = job_run(f.ctx, f.p, &q);
        compare(expected, images, true);
        assert_true(tern_memory_peak(f.ctx) <= need[o] + (2 << 20));
        assert_true(f.p->unet == NULL || o != TERN_OFFLOAD_STREAM);
        tern_images_destroy(&images);
        close_fixture(&f);
    }
    assert_true(need[TERN_OFFLOAD_STREAM] + (4 << 20) < need[TERN_OFFLOAD_NONE]);
    for (int part = 2; part <= 4; part *= 2) { /* a quarter does not even hold the plans that are tried */
        struct fixture f = open_fixture("demo", need[TERN_OFFLOAD_STREAM] / (size_t)part, TERN_OFFLOAD_AUTO);
        size_t least = need_of(&f, &q);
        assert_true(tern_memory_used(f.ctx) < need[TERN_OFFLOAD_STREAM] / (size_t)part); /* what was tried is gone */
        assert_null(tern_generate(f.p, &q));
        support_error(f.ctx, TERN_E_BUDGET, "needs at least");
        snprintf(text, sizeof(text), "(%zu bytes)", least);
        assert_null(tern_generate(f.p, &q));
        support_error(f.ctx, TERN_E_BUDGET, text);
        close_fixture(&f);
    }
    tern_images_destroy(&expected);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

struct told {
    int count;
    char offload[32], why[160], tiling[32];
};

static void keep_choice(const struct tern_choice *c, void *user)
{
    struct told *t = user;
    t->count++;
    if (!strcmp(c->what, "tiling"))
        snprintf(t->tiling, sizeof(t->tiling), "%s", c->value);
    if (strcmp(c->what, "offload") != 0)
        return;
    snprintf(t->offload, sizeof(t->offload), "%s", c->value);
    snprintf(t->why, sizeof(t->why), "%s", c->why);
}

/* How a job lives that has a budget is told, and that of one without is not. */
static void the_budget_is_told(void **state)
{
    static const size_t budgets[] = {0, 200, 25};
    static const char *const ways[] = {"", "none", "sequential"};
    for (int i = 0; i < 3; i++) {
        struct told t = {.count = 0};
        struct fixture f = open_fixture("demo", budgets[i] << 20, TERN_OFFLOAD_AUTO);
        struct tern_txt2img_params q = tern_txt2img_params(.prompt = "a cat", .width = 256, .height = 256, .steps = 2);
        char text[64];
        q.on_choice = keep_choice;
        q.on_choice_user = &t;
        struct tern_images *images = job_run(f.ctx, f.p, &q);
        assert_string_equal(t.offload, ways[i]);
        assert_string_equal(t.tiling, i == 2 ? "vae" : "");
        assert_int_equal(t.count, i);
        snprintf(text, sizeof(text), " MiB of %.1f; ", (double)budgets[i]);
        assert_true(i == 0 || strstr(t.why, text));
        tern_images_destroy(&images);
        close_fixture(&f);
    }
}

/* Whatever budget was refused, what it was told to be the least is accepted: of pictures whose bands leave no room for the UNet's plan, and
 * with DeepCache that is to be measured, which makes several jobs of one. */
static void the_least_is_accepted(void **state)
{
    const struct tern_txt2img_params jobs[] = {
        tern_txt2img_params(.prompt = "a cat", .width = 1280, .height = 1280, .steps = 4),
        tern_txt2img_params(.prompt = "a cat", .width = 512, .height = 384, .steps = 4, .count = 2),
        tern_txt2img_params(.prompt = "a cat", .width = 256, .height = 256, .steps = 4, .count = 4, .cache_quality = 0.9),
    };
    for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++)
        for (int typed = 0; typed < 2; typed++) {
            const enum tern_dtype dtype = typed ? TERN_BF16 : TERN_F32;
            const struct tern_txt2img_params q = jobs[i];
            struct fixture f = open_typed("demo", (size_t)8 << 20, TERN_OFFLOAD_AUTO, dtype);
            const size_t least = need_of(&f, &q);
            close_fixture(&f);
            f = open_typed("demo", least, TERN_OFFLOAD_AUTO, dtype);
            if (tern_generate_check(f.p, &q, NULL))
                fail_msg("job %d: told that %zu bytes are enough: %s", (int)i, least, tern_error(f.ctx));
            close_fixture(&f);
        }
}

/* A model whose weights are less than the plans that stream them: what is told to be the least is enough. */
static void the_least_is_enough(void **state)
{
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16};
    const struct tern_txt2img_params q = job_of(NULL);
    for (int i = 0; i < 2; i++) {
        struct fixture f = open_typed("sd1", (size_t)5 << 20, TERN_OFFLOAD_AUTO, dtypes[i]);
        const size_t least = need_of(&f, &q);
        assert_null(tern_generate(f.p, &q));
        support_error(f.ctx, TERN_E_BUDGET, "needs at least");
        close_fixture(&f);
        f = open_typed("sd1", least, TERN_OFFLOAD_AUTO, dtypes[i]);
        struct tern_images *images = tern_generate(f.p, &q);
        if (!images)
            fail_msg("%zu bytes: %s", least, tern_error(f.ctx));
        assert_true(tern_memory_peak(f.ctx) <= least);
        tern_images_destroy(&images);
        close_fixture(&f);
        f = open_typed("sd1", 0, TERN_OFFLOAD_AUTO, dtypes[i]);
        assert_true(least <= need_of(&f, &q));
        close_fixture(&f);
    }
}

/* What is enough for a picture is so however much more there is: between the ways, too. */
static void more_is_enough(void **state)
{
    const struct tern_txt2img_params q = {.prompt = "a", .width = 256, .height = 256, .steps = 1};
    bool enough = false;
    for (size_t budget = (size_t)16 << 20; budget <= (size_t)48 << 20; budget += (size_t)1 << 20) {
        struct fixture f = open_typed("demo", budget, TERN_OFFLOAD_AUTO, TERN_BF16);
        const bool good = tern_generate_check(f.p, &q, NULL) == TERN_OK;
        if (enough && !good)
            fail_msg("%zu MiB: %s", budget >> 20, tern_error(f.ctx));
        enough = good;
        close_fixture(&f);
    }
    assert_true(enough);
}

/* Each component lives as it is told, and the prediction knows. A text encoder that streams takes less, a component that stays more. */
/* Pictures of one kind have the same plans, one after the other: nothing is compiled anew, and nothing adds up. */
static void pictures_under_a_budget_add_nothing(void **state)
{
    struct fixture f = open_typed("demo", (size_t)124 << 20, TERN_OFFLOAD_STREAM, TERN_BF16); /* room for a part of the UNet */
    const struct tern_txt2img_params q = {.prompt = "a red circle", .width = 64, .height = 64, .steps = 2, .seed = 1, .cfg = 7};
    char path[PATH_SIZE];
    size_t used = 0;
    for (int i = 0; i < 4; i++) {
        struct tern_images *images = tern_generate(f.p, &q);
        if (!images)
            fail_msg("%s", tern_error(f.ctx));
        tern_images_destroy(&images);
        tern_pipeline_destroy(&f.p);
        tern_memory_trim(f.ctx);
        print_message("%zu bytes stay\n", tern_memory_used(f.ctx));
        if (i >= 2)
            assert_int_equal(tern_memory_used(f.ctx), used);
        used = tern_memory_used(f.ctx);
        f.p = tern_pipeline_load(f.ctx, model_path("demo", path),
                                 &(struct tern_pipeline_params){.offload = TERN_OFFLOAD_STREAM, .dtype = TERN_BF16});
        assert_non_null(f.p);
    }
    close_fixture(&f);
}

static void each_component_as_it_is_told(void **state)
{
    static const enum tern_offload ways[] = {TERN_OFFLOAD_AUTO, TERN_OFFLOAD_NONE, TERN_OFFLOAD_SEQUENTIAL, TERN_OFFLOAD_STREAM};
    char path[PATH_SIZE];
    struct fixture base = open_fixture("sdxl", 0, TERN_OFFLOAD_NONE);
    const struct tern_txt2img_params q = job_of(NULL);
    struct tern_images *expected = job_run(base.ctx, base.p, &q);
    for (int i = 0; i < 12; i++) {
        const struct tern_offload_components c = {ways[i % 4], ways[(i + 1) % 4], ways[i / 3], ways[(i / 2 + 2) % 4]};
        struct fixture f = {.ctx = tern_context_create(&(struct tern_context_params){.threads = 1})};
        f.p = tern_pipeline_load(f.ctx, model_path("sdxl", path),
                                 &(struct tern_pipeline_params){.offload = ways[1 + i % 3], .offload_components = c});
        same_picture(&f, &q, expected, true);
        const enum tern_offload unet = c.unet ? c.unet : ways[1 + i % 3], vae = c.vae ? c.vae : ways[1 + i % 3];
        assert_int_equal(f.p->text != NULL, c.text_encoder == TERN_OFFLOAD_NONE);
        assert_int_equal(f.p->text_2 != NULL, c.text_encoder_2 == TERN_OFFLOAD_NONE);
        assert_int_equal(f.p->unet != NULL, unet == TERN_OFFLOAD_NONE);
        assert_int_equal(f.p->vae != NULL, vae == TERN_OFFLOAD_NONE);
        for (int k = 0; k < TERN_MAX_PLANNED; k++) {
            const struct tern_planned *e = &f.p->planned[k];
            const enum tern_offload own = e->plan ? tern_pipeline_offload(f.p, e->stage.component) : TERN_OFFLOAD_AUTO;
            if (e->plan && own)
                assert_int_equal(tern_plan_facts(e->plan).streamed > 0, own == TERN_OFFLOAD_STREAM);
        }
        close_fixture(&f);
    }
    tern_images_destroy(&expected);
    close_fixture(&base);
    struct tern_context *ctx = support_context();
    assert_null(
        tern_pipeline_load(ctx, model_path("sdxl", path), &(struct tern_pipeline_params){.offload_components.vae = (enum tern_offload)7}));
    support_error(ctx, TERN_E_INVALID, "offload: 7");
    tern_context_destroy(&ctx);
}

/* Steps of the UNet's plan by kernels that only plans choose (Winograd), and those whose weights stream. */
struct chosen {
    int planned, streamed;
    size_t peak;
};

static struct chosen choose(enum tern_offload offload, size_t budget, enum tern_dtype dtype)
{
    const struct tern_txt2img_params q = {.prompt = "x", .width = 128, .height = 128, .steps = 1, .seed = 3};
    struct fixture f = open_typed("demo", budget, offload, dtype);
    struct tern_job j;
    struct chosen c = {0, 0, need_of(&f, &q)};
    assert_int_equal(tern_job_prepare(&j, f.p, &q), TERN_OK);
    if (tern_job_choose_offload(&j, NULL))
        fail_msg("%s", tern_error(f.ctx));
    const struct tern_stage stage = tern_job_stage(&j, "unet");
    const struct tern_plan *plan = tern_pipeline_plan(f.p, &stage);
    for (int i = 0; i < plan->n_steps; i++)
        c.planned += plan->steps[i].kernel && plan->steps[i].kernel->planned;
    c.streamed = tern_plan_facts(plan).streamed;
    tern_job_destroy(&j);
    close_fixture(&f);
    print_message("budget %zu: %d steps by planned kernels, %d streamed, peak %zu\n", budget, c.planned, c.streamed, c.peak);
    return c;
}

/* A UNet that streams has the kernels of one that does not, but where the budget has no room for their scratch. */
static void what_streams_is_as_fast(void **state)
{
    for (int i = 0; i < 2; i++) { /* of bf16 few levels have such kernels, which want a little memory beside their weights */
        const enum tern_dtype dtype = i ? TERN_BF16 : TERN_F32;
        const struct chosen kept = choose(TERN_OFFLOAD_NONE, 0, dtype), streamed = choose(TERN_OFFLOAD_STREAM, 0, dtype);
        assert_true((i || kept.planned > 0) && kept.streamed == 0);
        assert_true(streamed.streamed > 0);
        assert_int_equal(streamed.planned, kept.planned);
        const struct chosen wide = choose(TERN_OFFLOAD_STREAM, streamed.peak + (1 << 20), dtype);
        assert_int_equal(wide.planned, kept.planned);
    }
}

/* Where the text encoder is the peak, a budget below it has it streamed. */
static void a_budget_streams_the_text_encoder(void **state)
{
    const struct tern_txt2img_params q = {.prompt = "x", .width = 32, .height = 32, .steps = 1, .seed = 3};
    struct tern_job_peak peak[3];
    struct tern_images *expected = NULL;
    for (int i = 0; i < 3; i++) { /* as it is, streamed, as the budget says */
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 2});
        struct tern_pipeline *p = tern_pipeline_load(
            ctx, "demo-zh",
            &(struct tern_pipeline_params){.offload = TERN_OFFLOAD_STREAM,
                                           .offload_components = {.vae = TERN_OFFLOAD_STREAM,
                                                                  .text_encoder = i == 1 ? TERN_OFFLOAD_STREAM : TERN_OFFLOAD_AUTO}});
        ctx->params.budget = i < 2 ? 0 : peak[0].encode - (128 << 10);
        struct tern_job j;
        assert_int_equal(tern_job_prepare(&j, p, &q), TERN_OK);
        if (tern_job_choose_offload(&j, NULL))
            fail_msg("%s", tern_error(ctx));
        assert_int_equal(j.streams_text, i == 2);
        assert_int_equal(tern_job_predict_peak(&j, &peak[i]), TERN_OK);
        tern_job_destroy(&j);
        tern_memory_reset_peak(ctx);
        struct tern_images *images = job_run(ctx, p, &q);
        assert_true(tern_memory_peak(ctx) <= peak[i].most);
        expected = expected ? expected : images;
        assert_true(job_same(expected, 0, images));
        if (images != expected)
            tern_images_destroy(&images);
        if (i == 2)
            tern_images_destroy(&expected);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
    assert_true(peak[0].encode == peak[0].most && peak[2].most < peak[0].most && peak[1].encode + (512 << 10) < peak[0].encode);
}

static size_t arena_limit(const struct tern_pipeline *p, const char *component)
{
    for (int i = 0; i < TERN_MAX_PLANNED; i++)
        if (p->planned[i].plan && !strcmp(p->planned[i].stage.component, component))
            return p->planned[i].stage.arena;
    return 0;
}

/* Large pictures: what the VAE takes is the peak, and the budget is below it. Both halves are tiled. */
static void the_vae_is_tiled(void **state)
{
    struct fixture base = open_fixture("demo", 0, TERN_OFFLOAD_SEQUENTIAL);
    struct tern_image *init = tern_image_create(base.ctx, 64, 64, NULL);
    const struct tern_txt2img_params q =
        tern_txt2img_params(.prompt = "x", .width = 512, .height = 448, .steps = 1, .seed = 3, .init_image = init, .strength = 1);
    struct tern_images *expected = job_run(base.ctx, base.p, &q);
    size_t whole = need_of(&base, &q);
    for (int part = 92; part >= 84; part -= 8) {
        struct fixture f = open_fixture("demo", whole / 100 * (size_t)part, TERN_OFFLOAD_AUTO);
        same_picture(&f, &q, expected, true);
        assert_true(arena_limit(f.p, "vae_decoder") > 0 && arena_limit(f.p, "vae_encoder") > 0);
        assert_true(tern_memory_peak(f.ctx) <= whole / 100 * (size_t)part);
        close_fixture(&f);
    }
    tern_images_destroy(&expected);
    tern_image_destroy(&init);
    close_fixture(&base);
}

/* A pipeline whose UNet and VAE an earlier job has left in memory. */
static struct fixture open_used(size_t budget, enum tern_offload offload)
{
    struct fixture f = open_fixture("demo", budget, TERN_OFFLOAD_NONE);
    struct tern_images *images = job_run(f.ctx, f.p, &tern_txt2img_params(.prompt = "a", .width = 64, .height = 64, .steps = 1));
    tern_images_destroy(&images);
    assert_true(f.p->unet && f.p->vae);
    f.p->params.offload = offload;
    return f;
}

/* They go before a job whose components leave, which takes what it does in a new pipeline, but for the plans of the earlier one (1.2 MB).
 * A budget that is enough there needs no tiles and no streaming here. */
static void what_is_left_is_put_out(void **state)
{
    const size_t plans = (size_t)3 << 19;
    const struct tern_txt2img_params q = {.prompt = "x", .width = 256, .height = 256, .steps = 1};
    size_t need = 0;
    for (enum tern_offload o = TERN_OFFLOAD_STREAM; o >= TERN_OFFLOAD_SEQUENTIAL; o--) {
        struct fixture f = open_fixture("demo", 0, o), used = open_used(0, o);
        need = need_of(&f, &q);
        const size_t found = need_of(&used, &q);
        if (found > need + plans)
            fail_msg("offload %d: %zu bytes in a new pipeline, %zu in one that was used", (int)o, need, found);
        close_fixture(&f);
        close_fixture(&used);
    }
    struct fixture f = open_used(need + 2 * plans, TERN_OFFLOAD_AUTO); /* and those of ways that were tried */
    struct tern_job j;
    assert_int_equal(tern_job_prepare(&j, f.p, &q), TERN_OK);
    assert_int_equal(tern_job_choose_offload(&j, NULL), TERN_OK);
    assert_true(j.sequential && !j.resident && !j.arena);
    tern_job_destroy(&j);
    struct tern_images *images = job_run(f.ctx, f.p, &q);
    tern_images_destroy(&images);
    close_fixture(&f);
}

/* A plan keeps as many prepared weights as it may, and its runs are the same bits without a new allocation. */
static void limits_of_resident_weights(void **state)
{
    struct fixture f = open_fixture("demo", 0, TERN_OFFLOAD_NONE);
    const struct tern_graph_size size = {1, 64, 64};
    struct tern_graph *g = tern_pipeline_graph(f.p, "vae_decoder", &size);
    assert_non_null(g);
    struct tern_plan *all = tern_plan_compile(g, &(struct tern_plan_params){.without = "algorithm"});
    struct tern_plan_facts whole = tern_plan_facts(all);
    struct tern_binding *b = tern_plan_bind(all, tern_pipeline_weights(f.p, "vae_decoder"));
    float noise[4 * 8 * 8];
    struct tern_generator random;
    tern_generator_seed(&random, TERN_GENERATOR_CPU, 1);
    tern_generator_randn(&random, noise, 4 * 8 * 8);
    tern_scope_begin(f.ctx);
    tern_tensor *in = tern_tensor_create(f.ctx, TERN_F32, 4, (const int64_t[]){1, 4, 8, 8}, noise), *expected[] = {NULL};
    assert_int_equal(tern_plan_run(b, &in, expected), TERN_OK);
    assert_int_equal(whole.streamed, 0);
    const size_t limits[] = {1, whole.resident / 2, whole.resident};
    for (int i = 0; i < 3; i++) {
        struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.without = "algorithm", .resident = limits[i]});
        struct tern_plan_facts facts = tern_plan_facts(plan);
        assert_int_equal(facts.streamed == 0, i == 2);
        assert_int_equal(facts.resident == 0, i == 0);
        assert_true(facts.resident <= limits[i]);
        struct tern_binding *own = tern_plan_bind(plan, tern_pipeline_weights(f.p, "vae_decoder"));
        tern_tensor *out[] = {NULL};
        assert_int_equal(tern_plan_run(own, &in, out), TERN_OK);
        uint64_t allocations = tern_memory_allocations(f.ctx);
        assert_int_equal(tern_plan_run(own, &in, out), TERN_OK);
        assert_int_equal(tern_memory_allocations(f.ctx), allocations);
        assert_memory_equal(tern_tensor_host(out[0]), tern_tensor_host(expected[0]), (size_t)tern_tensor_numel(out[0]) * sizeof(float));
        tern_binding_unref(&own);
        tern_plan_unref(&plan);
    }
    tern_scope_end(f.ctx, NULL);
    tern_binding_unref(&b);
    tern_plan_unref(&all);
    tern_graph_destroy(&g);
    close_fixture(&f);
}

/* What binding takes is told before: when nothing is prepared, when all is, and for weights that are streamed. */
static void binding_takes_what_was_told(void **state)
{
    struct fixture f = open_fixture("sd1", 0, TERN_OFFLOAD_NONE);
    const struct tern_graph_size size = {2, 64, 64};
    struct tern_graph *g = tern_pipeline_graph(f.p, "unet", &size);
    const struct tern_weights *w = tern_pipeline_weights(f.p, "unet");
    for (int i = 0; i < 3; i++) {
        struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.resident = i == 2});
        size_t told = tern_plan_bind_bytes(plan, w), before = tern_memory_used(f.ctx);
        struct tern_binding *b = tern_plan_bind(plan, w);
        assert_non_null(b);
        double ratio = (double)(tern_memory_used(f.ctx) - before) / (double)told;
        if (ratio > 1 || ratio < 0.9)
            fail_msg("told %zu bytes, taken %.3f of that", told, ratio);
        tern_binding_unref(&b);
        tern_plan_unref(&plan);
    }
    tern_graph_destroy(&g);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_offload_gives_the_same_bits),
        cmocka_unit_test(the_budget_decides),
        cmocka_unit_test(the_budget_is_told),
        cmocka_unit_test(the_least_is_accepted),
        cmocka_unit_test(the_least_is_enough),
        cmocka_unit_test(more_is_enough),
        cmocka_unit_test(each_component_as_it_is_told),
        cmocka_unit_test(pictures_under_a_budget_add_nothing),
        cmocka_unit_test(what_streams_is_as_fast),
        cmocka_unit_test(a_budget_streams_the_text_encoder),
        cmocka_unit_test(the_vae_is_tiled),
        cmocka_unit_test(what_is_left_is_put_out),
        cmocka_unit_test(limits_of_resident_weights),
        cmocka_unit_test(binding_takes_what_was_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

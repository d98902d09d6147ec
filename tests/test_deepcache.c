/* DeepCache: whole pictures against the reference's helper around diffusers, which calls are whole, and that two plans of one UNet take the
 * memory of one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "damage.h"
#include "graph/plan.h"
#include "job_cases.h"
#include "lora_help.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "support.h"

struct fixture {
    struct tern_context *ctx;
    struct tern_pipeline *p;
};

static struct fixture open_model(const char *model, int threads)
{
    char path[PATH_SIZE];
    struct fixture f = {.ctx = model_context(NULL, threads)};
    f.p = model_load(f.ctx, model_path(model, path));
    return f;
}

static void close_model(struct fixture *f)
{
    tern_pipeline_destroy(&f->p);
    tern_context_destroy(&f->ctx);
}

static struct tern_txt2img_params job_of(int interval, int branch)
{
    return tern_txt2img_params(.prompt = "a cat", .negative_prompt = "x", .width = 48, .height = 40, .steps = 5, .seed = 3,
                               .sampler = TERN_SAMPLER_EULER_A, .cache_interval = interval, .cache_branch_id = branch);
}

/* ---- against the reference */

static void model_agrees(const char *model, int expected)
{
    size_t i;
    json_t *rows = support_json("deepcache/cases.json"), *row;
    struct fixture f = open_model(model, 2);
    struct tern_weights *latents = support_tensors(f.ctx, "deepcache/latents");
    struct job_worst w = {0};
    json_array_foreach(rows, i, row) {
        struct job_case c = job_case_read(f.ctx, row, "pipelines");
        if (!strcmp(c.model, model)) {
            struct tern_images *images = job_run(f.ctx, f.p, &c.params);
            job_check_latents(images, latents, c.name, &w);
            tern_images_destroy(&images);
            w.cases++;
        }
        job_case_close(&c);
    }
    assert_int_equal(w.cases, expected);
    job_print_worst(&w);
    tern_weights_unref(&latents);
    json_decref(rows);
    close_model(&f);
}

static void pictures_agree(void **state)
{
    model_agrees("sd1", 23);
    model_agrees("sd1-inpaint", 1);
    model_agrees("sd2", 6);
    model_agrees("sdxl", 7);
}

static void whole_calls_are_the_references(void **state)
{
    size_t i, k;
    json_t *rows = support_json("deepcache/distances.json"), *row;
    struct fixture f = open_model("sd1", 1);
    json_array_foreach(rows, i, row) {
        struct tern_txt2img_params q = tern_txt2img_params(.prompt = "x", .width = 16, .height = 16, .sampler = TERN_SAMPLER_EULER);
        q.steps = (int)json_integer_value(json_array_get(row, 0));
        q.cache_interval = (int)json_integer_value(json_array_get(row, 1));
        q.cache_center = (int)json_integer_value(json_array_get(row, 2));
        q.cache_pow = json_real_value(json_array_get(row, 3));
        const json_t *list = json_array_get(row, 4);
        struct tern_job j;
        enum tern_status st = tern_job_prepare(&j, f.p, &q);
        if (json_is_null(list))
            support_error(f.ctx, TERN_E_INVALID, "no power up to that gives");
        else if (st)
            fail_msg("%d steps, interval %d, center %d, pow %g: %s", q.steps, q.cache_interval, q.cache_center, q.cache_pow,
                     tern_error(f.ctx));
        for (int call = 0; !st && call < q.steps; call++) {
            bool whole = false;
            for (k = 0; k < json_array_size(list); k++)
                whole = whole || json_integer_value(json_array_get(list, k)) == call;
            if (tern_job_is_shallow(&j, call) == whole)
                fail_msg("%d steps, interval %d, center %d, pow %g: call %d is %s", q.steps, q.cache_interval, q.cache_center, q.cache_pow,
                         call, whole ? "shallow" : "whole");
        }
        tern_job_destroy(&j);
    }
    json_decref(rows);
    close_model(&f);
}

/* Where the reference says nothing: samplers of two calls a step, steps that are left out, more calls than were expected. '1': whole. */
static void whole_calls_by_hand(void **state)
{
    static const struct {
        enum tern_sampler sampler;
        int steps, interval, center;
        double pow, strength;
        const char *calls;
    } rows[] = {
        {TERN_SAMPLER_DDIM, 7, 3, 0, 0, 0, "1001001"},
        {TERN_SAMPLER_PNDM, 5, 2, 0, 0, 0, "100010"}, /* the third call has the second's timestep, and its number */
        {TERN_SAMPLER_HEUN, 4, 3, 0, 0, 0, "1001100"},
        {TERN_SAMPLER_HEUN, 4, 2, 0, 0, 0, "1000000"},
        {TERN_SAMPLER_DPM2, 4, 2, 0, 0, 0, "1010101"},
        {TERN_SAMPLER_DPMPP_SDE, 4, 3, 0, 0, 0, "1001001"},
        {TERN_SAMPLER_DDIM, 8, 3, 0, 0, 0.5, "....1001"},
        {TERN_SAMPLER_HEUN, 4, 2, 0, 0, 0.5, "....111"}, /* begins with the second call of a step: all numbers are odd */
        {TERN_SAMPLER_PNDM, 10, 5, 3, 1.4, 0, "10001000000"},
        {TERN_SAMPLER_HEUN, 6, 3, 5, 1.2, 0, "10010100100"},
    };
    struct fixture f = open_model("sd1", 1);
    struct tern_image *init = tern_image_create(f.ctx, 16, 16, NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct tern_txt2img_params q =
            tern_txt2img_params(.prompt = "x", .width = 16, .height = 16, .sampler = rows[i].sampler, .steps = rows[i].steps,
                                .strength = rows[i].strength, .init_image = rows[i].strength > 0 ? init : NULL,
                                .cache_interval = rows[i].interval, .cache_center = rows[i].center, .cache_pow = rows[i].pow);
        struct tern_job j;
        char calls[32] = "";
        assert_int_equal(tern_job_prepare(&j, f.p, &q), TERN_OK);
        for (int k = 0; k < tern_job_calls(&j); k++)
            strcat(calls, k < j.begin ? "." : tern_job_is_shallow(&j, k) ? "0" : "1");
        if (strcmp(calls, rows[i].calls))
            fail_msg("row %zu: %s, expected %s", i, calls, rows[i].calls);
        tern_job_destroy(&j);
    }
    tern_image_destroy(&init);
    close_model(&f);
}

/* ---- two passes, eagerly and as plans */

static tern_tensor *noise(struct tern_context *ctx, uint64_t seed, int ndim, const int64_t *shape)
{
    return support_noise(ctx, seed, ndim, shape, 1, TERN_F32);
}

static struct tern_planned *planned(struct tern_pipeline *p, const struct tern_stage *stage)
{
    for (int i = 0; i < TERN_MAX_PLANNED; i++)
        if (p->planned[i].plan && p->planned[i].stage.part == stage->part && !strcmp(p->planned[i].stage.component, "unet"))
            return &p->planned[i];
    fail_msg("no such plan");
    return NULL;
}

static struct tern_stage part_stage(const struct tern_pipeline *p, enum tern_unet_part part, int branch)
{
    const int scale = tern_pipeline_scale(p);
    return (struct tern_stage){.component = "unet", .size = {2, 9 * scale, 5 * scale}, .part = part, .branch = branch};
}

static double distance(const tern_tensor *a, const tern_tensor *b)
{
    int64_t n, m;
    float *x = support_values(a, &n), *y = support_values(b, &m);
    assert_int_equal(n, m);
    double e = support_nmse(x, y, n);
    free(x);
    free(y);
    return e;
}

/* What a shallow pass takes from a whole one on the same inputs makes no difference, and its plan computes what it computes eagerly. */
static void check_branch(struct fixture *f, int branch)
{
    const struct tern_unet_config *u = &f->p->unet_config;
    const struct tern_stage stages[] = {part_stage(f->p, TERN_UNET_KEEPS, branch), part_stage(f->p, TERN_UNET_SHALLOW, branch)};
    const double t = 500;
    struct tern_unet_conditions c;
    struct tern_unet_cache cache = {.branch = branch};
    struct tern_binding *whole = tern_pipeline_binding(f->p, &stages[0]), *less = tern_pipeline_binding(f->p, &stages[1]);
    const struct tern_unet *m = tern_pipeline_unet(f->p);
    const int64_t length = tern_tokenizer_max_length(f->p->tokenizer);
    tern_scope_begin(f->ctx);
    tern_tensor *sample = noise(f->ctx, 1, 4, (const int64_t[]){2, u->in_channels, 5, 9}),
                *context = noise(f->ctx, 2, 3, (const int64_t[]){2, length, u->context[0]}),
                *pooled = u->pooled ? noise(f->ctx, 3, 2, (const int64_t[]){2, u->pooled - 6 * u->time_ids}) : NULL,
                *ids = u->pooled ? noise(f->ctx, 4, 2, (const int64_t[]){2, 6}) : NULL;
    assert_int_equal(tern_unet_conditions(m, &t, 1, 1, pooled, ids, &c), TERN_OK);
    tern_tensor *plain = tern_unet_forward(m, sample, &c, context, NULL), *kept = tern_unet_forward(m, sample, &c, context, &cache);
    tern_tensor *shallow = tern_unet_forward(m, sample, &c, context, &cache);
    if (!shallow)
        fail_msg("branch %d: %s", branch, tern_error(f->ctx));
    assert_true(distance(kept, plain) == 0);
    assert_true(distance(shallow, plain) == 0);
    tern_tensor *in[] = {sample, c.time, context, c.added, NULL}, *out[2] = {NULL};
    if (tern_plan_run(whole, in, out))
        fail_msg("branch %d: %s", branch, tern_error(f->ctx));
    in[c.added ? 4 : 3] = out[1];
    tern_tensor *other[] = {NULL};
    assert_int_equal(tern_plan_run(less, in, other), TERN_OK);
    assert_true(distance(out[0], plain) < 1e-10);
    assert_true(distance(other[0], plain) < 1e-10);
    assert_true(distance(tern_permute(out[1], 4, (const int[]){0, 3, 1, 2}), cache.deep) < 1e-10);
    /* one memory for the runs of both, unless the planner packed the whole one better: with kernels of AMX one branch needs 64 bytes more */
    const bool beside = tern_plan_fits_beside(less->plan, whole->plan);
    assert_true(whole->plan->idle && !whole->plan->idle->next && !less->plan->idle == beside);
    assert_true(beside || (double)less->plan->buffers[0] <= 1.001 * (double)whole->plan->buffers[0]);
    tern_scope_end(f->ctx, NULL);
    tern_binding_unref(&less);
    tern_binding_unref(&whole);
    tern_pipeline_drop_plans(f->p);
}

static void every_branch_of_every_model(void **state)
{
    static const char *const models[] = {"sd1", "sd1-heads", "sd1-inpaint", "sd2", "sdxl", "demo"};
    for (int i = 0; i < 6; i++) {
        struct fixture f = open_model(models[i], 1);
        for (int branch = 0; branch < 3 * f.p->unet_config.blocks; branch++)
            check_branch(&f, branch);
        close_model(&f);
    }
}

static void wrong_features_are_refused(void **state)
{
    struct fixture f = open_model("sd1", 1);
    const struct tern_unet *m = tern_pipeline_unet(f.p);
    const double t = 1;
    struct tern_unet_conditions c;
    tern_scope_begin(f.ctx);
    tern_tensor *x = noise(f.ctx, 1, 4, (const int64_t[]){1, 4, 8, 8}),
                *context = noise(f.ctx, 2, 3, (const int64_t[]){1, 4, m->config.context[0]});
    assert_int_equal(tern_unet_conditions(m, &t, 1, 1, NULL, NULL, &c), TERN_OK);
    struct tern_unet_cache wrong = {0, x}, none = {9, NULL};
    assert_null(tern_unet_forward(m, x, &c, context, &wrong));
    support_error(f.ctx, TERN_E_SHAPE, "deeper than branch 0: expected (1, 8, 8, 8) f32");
    assert_null(tern_unet_forward(m, x, &c, context, &none));
    support_error(f.ctx, TERN_E_INVALID, "branch: expected 0..8, found 9");
    tern_scope_end(f.ctx, NULL);
    close_model(&f);
}

/* ---- memory */

/* Packed weights, results of prepare nodes and memory of runs are there once. */
static void two_plans_share_what_they_have(void **state)
{
    struct fixture f = open_model("demo", 1);
    for (int branch = 0; branch < 9; branch += 4) {
        const struct tern_stage keeps = part_stage(f.p, TERN_UNET_KEEPS, branch), shallow = part_stage(f.p, TERN_UNET_SHALLOW, branch);
        struct tern_binding *a = tern_pipeline_binding(f.p, &keeps);
        tern_pipeline_plan(f.p, &shallow);
        const size_t told = tern_pipeline_bind_bytes(f.p, &shallow, &keeps), before = tern_memory_used(f.ctx);
        struct tern_binding *b = tern_pipeline_binding(f.p, &shallow);
        const size_t taken = tern_memory_used(f.ctx) - before;
        print_message("branch %d: binding takes %zu bytes, told were %zu; the plans keep %zu and %zu bytes of weights\n", branch, taken,
                      told, tern_plan_facts(a->plan).resident, tern_plan_facts(b->plan).resident);
        assert_true(taken <= told && told - taken < 4096);
        assert_true(taken < 64 << 10); /* tables alone */
        int forms = 0;
        for (int i = 0; i < b->plan->n_packed; i++)
            for (int k = 0; k < a->plan->n_packed; k++)
                if (a->packed[k] == b->packed[i]) {
                    forms++;
                    break;
                }
        assert_true(forms > 5 && forms == b->plan->n_packed);
        assert_true(tern_plan_fits_beside(b->plan, a->plan));
        tern_binding_unref(&b);
        tern_binding_unref(&a);
        tern_pipeline_drop_plans(f.p);
    }
    close_model(&f);
}

/* Where launches are dear, layers of one input are merged: what is made for that is there once, too, but for groups that differ. */
static void merged_layers_are_shared(void **state)
{
    struct fixture f = open_model("demo", 1);
    const struct tern_stage keeps = part_stage(f.p, TERN_UNET_KEEPS, 4), shallow = part_stage(f.p, TERN_UNET_SHALLOW, 4);
    f.ctx->device->caps.merges = true;
    struct tern_graph *whole = tern_pipeline_stage_graph(f.p, &keeps), *part = tern_pipeline_stage_graph(f.p, &shallow);
    struct tern_plan *plans[] = {tern_plan_compile(whole, NULL), tern_plan_compile(part, NULL)}; /* not those of the cache folder */
    struct tern_binding *a = tern_plan_bind(plans[0], f.p->unet->weights);
    const size_t told = tern_plan_bind_bytes_beside(plans[1], plans[0], f.p->unet->weights, true), before = tern_memory_used(f.ctx);
    struct tern_binding *b = tern_plan_bind_beside(plans[1], f.p->unet->weights, a);
    const size_t taken = tern_memory_used(f.ctx) - before;
    int prepared = 0, shared = 0;
    for (int i = 0; i < b->plan->graph->n_nodes; i++) {
        const struct tern_node *n = &b->plan->graph->nodes[i];
        prepared += !n->dead && n->prepare;
        for (int k = 0; !n->dead && n->prepare && k < a->plan->graph->n_values; k++)
            if (a->bound[k] == b->bound[n->out]) {
                shared++;
                break;
            }
    }
    print_message("%d of %d prepared weights are shared; binding takes %zu bytes, told were %zu\n", shared, prepared, taken, told);
    assert_true(shared > 0 && prepared - shared <= 4);
    assert_true(taken <= told && told - taken < 4096);
    tern_binding_unref(&b);
    tern_binding_unref(&a);
    for (int i = 0; i < 2; i++)
        tern_plan_unref(&plans[i]);
    tern_graph_destroy(&whole);
    tern_graph_destroy(&part);
    close_model(&f);
}

/* What of two plans is not bound yet is told as what both take together. */
static void what_is_told_is_the_sum_without_doubles(void **state)
{
    struct fixture f = open_model("demo", 1);
    const struct tern_stage keeps = part_stage(f.p, TERN_UNET_KEEPS, 5), shallow = part_stage(f.p, TERN_UNET_SHALLOW, 5);
    const size_t whole = tern_pipeline_bind_bytes(f.p, &keeps, NULL), more = tern_pipeline_bind_bytes(f.p, &shallow, &keeps);
    assert_true(whole > 10 * more);
    const size_t alone = tern_plan_bind_bytes(planned(f.p, &shallow)->plan, f.p->unet->weights);
    assert_true(alone > 10 * more);
    close_model(&f);
}

static bool matches(struct fixture *f, const struct tern_txt2img_params *q, struct tern_images *expected)
{
    struct tern_images *images = job_run(f->ctx, f->p, q);
    bool same = job_same(expected, 0, images);
    tern_images_destroy(&images);
    return same;
}

/* Large enough that tensors outweigh plans; two pictures, in two groups or in one. */
static void the_peak_is_predicted(void **state)
{
    for (int i = 0; i < 6; i++) {
        const enum tern_offload offload = (enum tern_offload)(TERN_OFFLOAD_NONE + i % 3);
        char path[PATH_SIZE];
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1});
        struct fixture f = {ctx, tern_pipeline_load(ctx, model_path("demo", path), &(struct tern_pipeline_params){.offload = offload})};
        struct tern_txt2img_params q = job_of(2, i / 3 * 3);
        size_t need = 0;
        q.width = q.height = 256;
        q.count = q.steps = 2;
        ctx->device->caps.cache = (size_t)(4 << i / 3) * 2 * (size_t)f.p->unet_config.channels[0] * 32 * 32 * sizeof(float);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(tern_generate_check(f.p, &q, &need), TERN_OK);
            tern_memory_trim(ctx);
            tern_memory_reset_peak(ctx);
            struct tern_images *images = job_run(ctx, f.p, &q);
            const double ratio = (double)tern_memory_peak(ctx) / (double)need;
            tern_images_destroy(&images);
            if (ratio > 1 || ratio < 0.95)
                fail_msg("offload %d, branch %d: predicted %zu bytes, the peak was %.4f of that", (int)offload, q.cache_branch_id, need,
                         ratio);
        }
        close_model(&f);
    }
}

/* The UNet is what takes most here, and what is predicted is enough. In a cache folder of its own where layers are merged: that is no
 * part of a plan's key. */
static size_t run_within_prediction(int interval, int branch, bool merges)
{
    size_t need = 0;
    char folder[PATH_SIZE], path[PATH_SIZE];
    lora_temporary(folder);
    for (int k = 0; k < 3; k++) { /* the second time the plans are read from disk, and so the third */
        struct tern_context *ctx =
            tern_context_create(&(struct tern_context_params){.threads = 1, .budget = k == 2 ? need : 0, .cache_dir = folder});
        struct tern_pipeline_params params = {.vae = TERN_TEST_DATA "/taesd/vae"};
        struct fixture f = {ctx, tern_pipeline_load(ctx, model_path("demo", path), &params)};
        struct tern_txt2img_params q = job_of(interval, branch);
        q.width = q.height = 256;
        ctx->device->caps.merges = merges;
        if (k < 2) {
            assert_int_equal(tern_generate_check(f.p, &q, &need), TERN_OK);
        } else {
            struct tern_images *images = job_run(ctx, f.p, &q);
            const double ratio = (double)tern_memory_peak(ctx) / (double)need;
            if (ratio > 1 || ratio < 0.97)
                fail_msg("interval %d, branch %d: predicted %zu bytes, the peak was %.4f of that", interval, branch, need, ratio);
            tern_images_destroy(&images);
        }
        close_model(&f);
    }
    damage_remove(folder);
    return need;
}

static void the_predicted_budget_is_enough(void **state)
{
    for (int merges = 0; merges < 2; merges++) {
        const size_t without = run_within_prediction(1, 0, merges), with = run_within_prediction(3, 0, merges),
                     deep = run_within_prediction(3, 8, merges);
        print_message("predicted: %zu bytes, with a cache %zu, of the innermost branch %zu\n", without, with, deep);
        assert_true(with - without < without / 100);
    }
}

/* ---- jobs */

static void an_interval_of_one_is_none(void **state)
{
    struct fixture f = open_model("sd1", 1);
    struct tern_txt2img_params q = job_of(0, 0), one = job_of(1, 4), two = job_of(2, 0);
    struct tern_images *plain = job_run(f.ctx, f.p, &q);
    assert_true(matches(&f, &one, plain));
    assert_false(matches(&f, &two, plain));
    two.steps = q.steps = one.steps = 1; /* the first call is whole */
    struct tern_images *step = job_run(f.ctx, f.p, &q);
    assert_true(matches(&f, &two, step));
    tern_images_destroy(&step);
    tern_images_destroy(&plain);
    close_model(&f);
}

/* Each picture has its own features: alone, in any group, and with texts that change and are joined. */
static void groups_do_not_matter(void **state)
{
    static const char *const models[] = {"sd1", "sdxl", "sd1-inpaint"};
    for (int m = 0; m < 3; m++) {
        struct fixture f = open_model(models[m], 1);
        struct tern_txt2img_params q = job_of(3, 1);
        uint8_t rgb[3 * 48 * 40] = {0};
        memset(rgb, 0xc0, sizeof(rgb) / 2);
        struct tern_image *picture = tern_image_create(f.ctx, q.width, q.height, rgb);
        q.count = 4;
        if (m == 0) {
            q.prompt_syntax = TERN_PROMPT_A1111;
            q.prompt = "a [red:blue:0.5] boat AND the sea :0.5";
        }
        if (m == 2)
            q.init_image = q.mask_image = picture;
        f.ctx->device->caps.cache = 0;
        struct tern_images *all = job_run(f.ctx, f.p, &q);
        for (int pictures = 1; pictures < 4; pictures++) {
            f.ctx->device->caps.cache = 4 * (size_t)pictures * (m ? 2 : 3) * (size_t)f.p->unet_config.channels[0] * 6 * 5 * sizeof(float);
            assert_true(matches(&f, &q, all));
        }
        tern_images_destroy(&all);
        tern_image_destroy(&picture);
        close_model(&f);
    }
}

/* LoRAs count in both plans, and without them both have the checkpoint's weights again. */
static void both_plans_have_the_weights_that_are_set(void **state)
{
    static const struct lora_spec lora = {"a.safetensors", 1, NULL, 0};
    struct fixture f = open_model("sd1", 1), other = open_model("sd1", 1);
    struct tern_txt2img_params q = job_of(2, 1), whole = job_of(1, 1);
    struct tern_images *base = job_run(f.ctx, f.p, &q), *more = job_run(f.ctx, f.p, &whole);
    lora_set(other.ctx, other.p, &lora, 1);
    struct tern_images *expected = job_run(other.ctx, other.p, &q);
    assert_false(job_same(base, 0, expected));
    for (int i = 0; i < 2; i++) {
        lora_set(f.ctx, f.p, &lora, 1);
        assert_true(matches(&f, &q, expected));
        lora_set(f.ctx, f.p, NULL, 0);
        assert_true(matches(&f, &q, base));
        assert_true(matches(&f, &whole, more));
    }
    tern_images_destroy(&expected);
    tern_images_destroy(&more);
    tern_images_destroy(&base);
    close_model(&other);
    close_model(&f);
}

static void look(int step, int steps, int index, const struct tern_image *picture, void *user) { ++*(int *)user; }

/* Jobs of their own between the steps take the plans and their memory. */
struct between {
    struct tern_pipeline *p;
    int jobs;
};

static void paint_between(int step, int steps, const float *latents, int64_t count, void *user)
{
    struct between *b = user;
    struct tern_txt2img_params q = job_of(2, 0);
    q.seed = 99;
    q.steps = 3;
    struct tern_images *images = b->jobs++ < 2 ? tern_generate(b->p, &q) : NULL;
    tern_images_destroy(&images);
}

static void what_happens_between_steps_changes_nothing(void **state)
{
    struct fixture f = open_model("sd1", 1);
    struct tern_txt2img_params q = job_of(2, 0);
    int looks = 0;
    struct between b = {f.p, 0};
    struct tern_images *plain = job_run(f.ctx, f.p, &q);
    q.on_preview = look;
    q.on_preview_user = &looks;
    q.on_step = paint_between;
    q.on_step_user = &b;
    assert_true(matches(&f, &q, plain));
    assert_int_equal(looks, 5);
    assert_int_equal(b.jobs, 5);
    tern_images_destroy(&plain);
    close_model(&f);
}

static void every_sampler_runs(void **state)
{
    struct fixture f = open_model("sd1", 1);
    for (int s = TERN_SAMPLER_DEFAULT + 1; s < TERN_SAMPLER_COUNT; s++)
        for (int uneven = 0; uneven < 2; uneven++) {
            struct tern_txt2img_params q = job_of(3, 1), plain = job_of(0, 0);
            q.sampler = plain.sampler = (enum tern_sampler)s;
            q.width = q.height = plain.width = plain.height = 16;
            q.steps = plain.steps = 8;
            q.cache_pow = uneven ? 1.4 : 0;
            q.cache_center = 2;
            struct tern_images *a = job_run(f.ctx, f.p, &q), *b = job_run(f.ctx, f.p, &plain);
            int64_t n, m;
            float *x = job_latents(a, &n), *y = job_latents(b, &m);
            const double e = support_nmse(x, y, n);
            if (!(e > 0 && e < 100))
                fail_msg("%s: NMSE %g", tern_sampler_name((enum tern_sampler)s), e);
            free(x);
            free(y);
            tern_images_destroy(&a);
            tern_images_destroy(&b);
        }
    close_model(&f);
}

static void refused(struct fixture *f, struct tern_txt2img_params q, const char *text)
{
    assert_null(tern_generate(f->p, &q));
    support_error(f->ctx, TERN_E_INVALID, text);
}

static void bad_values_are_refused(void **state)
{
    struct fixture f = open_model("sd1", 1);
    refused(&f, tern_txt2img_params(.cache_interval = -1), "cache_interval: expected 1 (no call of the UNet is cut short)..1000, found -1");
    refused(&f, tern_txt2img_params(.cache_interval = 1001), "found 1001");
    refused(&f, tern_txt2img_params(.cache_interval = 2, .cache_branch_id = 9), "the UNet of sd1 has the branches 0..8, found 9");
    refused(&f, tern_txt2img_params(.cache_interval = 2, .cache_branch_id = -1), "found -1");
    refused(&f, tern_txt2img_params(.cache_interval = 2, .cache_pow = 1), "cache_pow: expected a number above 1 and at most 10, or 0");
    refused(&f, tern_txt2img_params(.cache_interval = 2, .cache_pow = 0.0 / 0.0), "cache_pow");
    refused(&f, tern_txt2img_params(.cache_interval = 2, .cache_pow = 1e300), "found 1e+300");
    refused(&f, tern_txt2img_params(.steps = 9, .cache_interval = 2, .cache_pow = 1.4, .cache_center = 10), "cache_center: expected 0..9");
    refused(&f, tern_txt2img_params(.cache_center = -1), "cache_center");
    refused(&f, tern_txt2img_params(.steps = 30, .cache_interval = 2, .cache_pow = 1.4, .cache_center = 15), "gives 15 whole calls of 30");
    close_model(&f);
}

static void infotexts_tell_it(void **state)
{
    struct fixture f = open_model("sd1", 1);
    struct tern_txt2img_params q = job_of(3, 2);
    q.cache_center = 2;
    q.cache_pow = 1.35;
    struct tern_image *image = tern_txt2img(f.p, &q);
    const char *text = tern_image_text(image, "parameters");
    assert_non_null(strstr(text, ", DeepCache interval: 3, DeepCache branch: 2, DeepCache center: 2, DeepCache pow: 1.35, Version"));
    struct tern_infotext t;
    assert_int_equal(tern_infotext_read(f.ctx, text, &t), TERN_OK);
    assert_true(t.params.cache_interval == 3 && t.params.cache_branch_id == 2 && t.params.cache_center == 2 && t.params.cache_pow == 1.35);
    assert_string_equal(t.ignored, "");
    tern_infotext_free(f.ctx, &t);
    tern_image_destroy(&image);
    assert_int_equal(tern_infotext_read(f.ctx, "a\nSteps: 2, Seed: 1, DeepCache interval: 0, DeepCache pow: 1, DeepCache branch: -1", &t),
                     TERN_OK);
    assert_string_equal(t.ignored, "DeepCache interval: 0, DeepCache branch: -1, DeepCache pow: 1");
    assert_true(t.params.cache_interval == 0 && t.params.cache_pow == 0);
    tern_infotext_free(f.ctx, &t);
    close_model(&f);
}

/* ---- jobs that end early */

static struct tern_txt2img_params small(void)
{
    struct tern_txt2img_params q = job_of(2, 1);
    q.width = q.height = 16;
    q.steps = 3;
    q.count = 2;
    q.cache_pow = 1.4;
    q.cache_center = 1;
    return q;
}

static void every_failed_allocation_is_reported(void **state)
{
    char path[PATH_SIZE];
    struct support_allocator a = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&a)});
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    struct tern_txt2img_params q = small();
    ctx->device->caps.cache = 1; /* two groups */
    struct tern_images *images = NULL;
    int failures = 0;
    for (long at = 1; !images; at += 1 + at / 40) {
        tern_pipeline_drop_plans(p); /* their bindings are made anew */
        tern_memory_trim(ctx);
        a.fail_at = a.count + at;
        images = tern_generate(p, &q);
        a.fail_at = 0;
        failures += !images;
        if (tern_error_status(ctx) != (images ? TERN_OK : TERN_E_NO_MEMORY))
            fail_msg("allocation %ld: %s", at, tern_error(ctx));
        tern_error_clear(ctx);
    }
    assert_true(failures > 60);
    print_message("%d allocations failed in turn\n", failures);
    tern_images_destroy(&images);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    assert_int_equal(a.live, 0);
}

struct cancel {
    long asked, at;
};

static bool answer(void *user)
{
    struct cancel *c = user;
    return ++c->asked == c->at;
}

static void cancelled_anywhere(void **state)
{
    char path[PATH_SIZE];
    struct cancel c = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = answer, .user = &c});
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    const struct tern_txt2img_params q = small();
    struct tern_images *whole = job_run(ctx, p, &q), *again = job_run(ctx, p, &q);
    tern_images_destroy(&again);
    tern_memory_trim(ctx);
    const size_t used = tern_memory_used(ctx);
    c.asked = 0;
    again = job_run(ctx, p, &q);
    const long total = c.asked;
    tern_images_destroy(&again);
    for (long n = 1; n <= total; n += 1 + n / 20) {
        c = (struct cancel){.at = n};
        assert_null(tern_generate(p, &q));
        support_error(ctx, TERN_E_CANCELLED, "cancelled");
        tern_memory_trim(ctx);
        assert_int_equal(tern_memory_used(ctx), used);
    }
    c = (struct cancel){0};
    again = job_run(ctx, p, &q);
    assert_true(job_same(whole, 0, again));
    tern_images_destroy(&again);
    tern_images_destroy(&whole);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_agree),
        cmocka_unit_test(whole_calls_are_the_references),
        cmocka_unit_test(whole_calls_by_hand),
        cmocka_unit_test(every_branch_of_every_model),
        cmocka_unit_test(wrong_features_are_refused),
        cmocka_unit_test(two_plans_share_what_they_have),
        cmocka_unit_test(merged_layers_are_shared),
        cmocka_unit_test(what_is_told_is_the_sum_without_doubles),
        cmocka_unit_test(the_peak_is_predicted),
        cmocka_unit_test(the_predicted_budget_is_enough),
        cmocka_unit_test(an_interval_of_one_is_none),
        cmocka_unit_test(groups_do_not_matter),
        cmocka_unit_test(both_plans_have_the_weights_that_are_set),
        cmocka_unit_test(what_happens_between_steps_changes_nothing),
        cmocka_unit_test(every_sampler_runs),
        cmocka_unit_test(bad_values_are_refused),
        cmocka_unit_test(infotexts_tell_it),
        cmocka_unit_test(every_failed_allocation_is_reported),
        cmocka_unit_test(cancelled_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

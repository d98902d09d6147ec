/* Jobs that are made in a callback of another one, by the same pipeline: anywhere in it. Both give their pictures, and what either of them
 * takes out of memory is not what the other one uses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "job_cases.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "support.h"

struct nest {
    long asked, at; /* number of kernels of the outer job so far; the one behind which the inner job is made, 0: none */
    struct tern_context *ctx;
    struct tern_pipeline *p;
    struct tern_txt2img_params inner;
    struct tern_images *expected; /* of the inner job */
};

static void make(struct nest *n)
{
    if (++n->asked != n->at)
        return;
    struct tern_images *images = job_run(n->ctx, n->p, &n->inner);
    assert_true(job_same(n->expected, 0, images));
    tern_images_destroy(&images);
}

static void make_another(const char *component, const struct tern_step_profile *step, void *user) { make(user); }

static long next(long n) { return n + 1 + n / 10; }

static void nest_everywhere(struct nest *n, const struct tern_txt2img_params *q)
{
    struct tern_images *whole = job_run(n->ctx, n->p, q), *again;
    n->expected = job_run(n->ctx, n->p, &n->inner);
    again = job_run(n->ctx, n->p, q);
    tern_images_destroy(&again);
    tern_memory_trim(n->ctx);
    const size_t used = tern_memory_used(n->ctx);
    n->asked = 0;
    again = job_run(n->ctx, n->p, q);
    tern_images_destroy(&again);
    const long total = n->asked;
    int runs = 0;
    assert_true(total > 200);
    for (long at = 1; at <= total; at = next(at), runs++) {
        n->asked = 0;
        n->at = at;
        again = job_run(n->ctx, n->p, q);
        n->at = 0;
        assert_true(n->asked >= at);
        if (!job_same(whole, 0, again))
            fail_msg("another picture when a job is made behind kernel %ld of %ld", at, total);
        tern_images_destroy(&again);
        tern_memory_trim(n->ctx);
        if (tern_memory_used(n->ctx) != used)
            fail_msg("kernel %ld of %ld: %zu bytes stay, %zu before", at, total, tern_memory_used(n->ctx), used);
    }
    tern_images_destroy(&n->expected);
    tern_images_destroy(&whole);
    print_message("%d of %ld places\n", runs, total);
}

static void jobs_within_jobs(void **state)
{
    static const enum tern_offload ways[] = {TERN_OFFLOAD_AUTO, TERN_OFFLOAD_SEQUENTIAL};
    char path[PATH_SIZE];
    for (int i = 0; i < 2; i++) {
        struct nest n = {.inner =
                             tern_txt2img_params(.prompt = "y", .width = i ? 16 : 24, .height = 16, .steps = 1, .seed = 2, .count = 2)};
        n.ctx = tern_context_create(&(struct tern_context_params){.threads = 1});
        assert_non_null(n.ctx);
        n.p = tern_pipeline_load(n.ctx, model_path("sd1", path), &(struct tern_pipeline_params){.offload = ways[i]});
        assert_non_null(n.p);
        struct tern_image *init = tern_image_create(n.ctx, 16, 16, NULL);
        struct tern_txt2img_params q = {.prompt = "(x:1.2) z", .width = 16, .height = 16, .steps = 2, .seed = 3, .count = 2, .strength = 1};
        q.prompt_syntax = i ? TERN_PROMPT_A1111 : TERN_PROMPT_PLAIN;
        q.init_image = init;
        q.on_kernel = make_another;
        q.on_kernel_user = &n;
        nest_everywhere(&n, &q);
        tern_image_destroy(&init);
        tern_pipeline_destroy(&n.p);
        tern_context_destroy(&n.ctx);
    }
}

static bool make_elsewhere(void *user)
{
    make(user);
    return false;
}

/* Another pipeline is not at work. */
static void jobs_of_others_where_it_is_asked_to_cancel(void **state)
{
    char path[PATH_SIZE];
    struct nest n = {.inner = tern_txt2img_params(.prompt = "y", .width = 24, .height = 16, .steps = 1, .seed = 2)};
    const struct tern_txt2img_params q = {.prompt = "z", .width = 16, .height = 16, .steps = 1, .seed = 3};
    n.ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = make_elsewhere, .user = &n});
    struct tern_pipeline *p = tern_pipeline_load(n.ctx, model_path("sd1", path), NULL);
    n.p = tern_pipeline_load(n.ctx, path, NULL);
    n.expected = job_run(n.ctx, n.p, &n.inner);
    struct tern_images *expected = job_run(n.ctx, p, &q), *again;
    for (n.at = 1, n.asked = 1; n.asked >= n.at; n.at *= 2) {
        n.asked = 0;
        again = job_run(n.ctx, p, &q);
        assert_true(job_same(expected, 0, again));
        tern_images_destroy(&again);
    }
    assert_true(n.at > 100);
    n.at = 0;
    tern_images_destroy(&n.expected);
    tern_images_destroy(&expected);
    tern_pipeline_destroy(&p);
    tern_pipeline_destroy(&n.p);
    tern_context_destroy(&n.ctx);
}

static bool make_in_little(void *user)
{
    struct nest *n = user;
    if (n->asked++ == n->at) {
        assert_int_equal(tern_memory_limit(n->ctx), n->ctx->params.budget);
        assert_null(tern_generate(n->p, &n->inner));
        support_error(n->ctx, TERN_E_BUDGET, "memory budget: this picture needs at least");
    }
    return false;
}

/* The budget does not hold for the plans that a job tries, but for the job that another pipeline makes meanwhile. */
static void the_budget_holds_within_a_choice(void **state)
{
    char path[PATH_SIZE];
    size_t peak;
    struct nest n = {.at = -1, .inner = tern_txt2img_params(.prompt = "y", .width = 16, .height = 16, .steps = 1)};
    n.ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = make_in_little, .user = &n});
    struct tern_pipeline *p = tern_pipeline_load(n.ctx, model_path("sd1", path), NULL);
    n.p = tern_pipeline_load(n.ctx, path, NULL);
    n.ctx->params.budget = tern_memory_used(n.ctx) + (256 << 10);
    n.at = n.asked;
    assert_int_equal(tern_generate_check(p, &n.inner, &peak), TERN_OK);
    assert_true(n.asked > n.at);
    n.ctx->params.budget = 0;
    tern_pipeline_destroy(&p);
    tern_pipeline_destroy(&n.p);
    tern_context_destroy(&n.ctx);
}

/* In a job whose components leave: a check, and a job that would keep its own, as AUTO has it of a small one. */
static void call_another(int step, int steps, const float *latents, int64_t count, void *user)
{
    struct nest *n = user;
    size_t peak;
    const unsigned before = tern_pipeline_modules(n->p);
    const enum tern_offload way = n->p->params.offload;
    assert_int_equal(before, TERN_MODULE_UNET);
    assert_int_equal(tern_generate_check(n->p, &n->inner, &peak), TERN_OK);
    assert_int_equal(tern_pipeline_modules(n->p), before);
    n->p->params.offload = TERN_OFFLOAD_NONE;
    struct tern_images *images = job_run(n->ctx, n->p, &n->inner);
    n->p->params.offload = way;
    tern_images_destroy(&images);
    assert_int_equal(tern_pipeline_modules(n->p), before);
    n->asked++;
}

/* The components that a call brings into memory go again: a job that lets its own go has no room for them. */
static void a_call_within_a_job_leaves_nothing(void **state)
{
    char path[PATH_SIZE];
    struct nest n = {.inner = tern_txt2img_params(.prompt = "y", .width = 24, .height = 16, .steps = 1, .count = 2)};
    const struct tern_pipeline_params sequential = {.offload = TERN_OFFLOAD_SEQUENTIAL};
    n.ctx = support_context();
    n.p = tern_pipeline_load(n.ctx, model_path("sd1", path), &sequential);
    const struct tern_txt2img_params q = {.width = 16, .height = 16, .steps = 2, .on_step = call_another, .on_step_user = &n};
    struct tern_images *images = job_run(n.ctx, n.p, &q);
    assert_true(n.asked > 1);
    tern_images_destroy(&images);
    tern_pipeline_destroy(&n.p);
    tern_context_destroy(&n.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_within_jobs),
        cmocka_unit_test(jobs_of_others_where_it_is_asked_to_cancel),
        cmocka_unit_test(the_budget_holds_within_a_choice),
        cmocka_unit_test(a_call_within_a_job_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

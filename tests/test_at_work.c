/* What a pipeline that is at work refuses: jobs where it is asked whether to cancel or where something is half made, and its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "job_cases.h"
#include "lora_help.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "support.h"

struct nest {
    long asked, at; /* calls of the callback so far; the one in which another job is tried, 0: none */
    struct tern_context *ctx;
    struct tern_pipeline *p;
    struct tern_txt2img_params inner;
};

static long next(long n) { return n + 1 + n / 10; }

/* Where to cancel is asked, modules and plans may be half made. */
static bool try_another(void *user)
{
    struct nest *n = user;
    if (++n->asked == n->at)
        assert_null(n->p ? tern_generate(n->p, &n->inner) : NULL);
    return false;
}

static void no_job_where_it_is_asked_to_cancel(void **state)
{
    char path[PATH_SIZE];
    struct nest n = {.inner = tern_txt2img_params(.prompt = "y", .width = 16, .height = 16, .steps = 1)};
    n.ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = try_another, .user = &n});
    n.p = tern_pipeline_load(n.ctx, model_path("sd1", path), NULL);
    struct tern_images *expected = job_run(n.ctx, n.p, &n.inner), *again = job_run(n.ctx, n.p, &n.inner);
    tern_images_destroy(&again);
    n.asked = 0;
    again = job_run(n.ctx, n.p, &n.inner);
    tern_images_destroy(&again);
    const long total = n.asked;
    assert_true(total > 100);
    for (n.at = 1; n.at < total; n.at = next(n.at)) {
        n.asked = 0;
        if (tern_generate(n.p, &n.inner))
            fail_msg("made where it was asked the %ldth of %ld times", n.at, total);
        support_error(n.ctx, TERN_E_INVALID, "found one from the callback that is asked whether to cancel");
    }
    n.at = 0;
    again = job_run(n.ctx, n.p, &n.inner);
    assert_true(job_same(expected, 0, again));
    tern_images_destroy(&again);
    tern_images_destroy(&expected);
    tern_pipeline_destroy(&n.p);
    tern_context_destroy(&n.ctx);
}

/* Its modules are used while a graph is made of them. */
static void no_job_while_a_graph_is_made(void **state)
{
    char path[PATH_SIZE];
    struct nest n = {.inner = tern_txt2img_params(.prompt = "y", .width = 16, .height = 16, .steps = 1)};
    n.ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = try_another, .user = &n});
    n.p = tern_pipeline_load(n.ctx, model_path("sd1", path), NULL);
    assert_non_null(tern_pipeline_weights(n.p, "text_encoder"));
    n.asked = 0;
    struct tern_graph *g = tern_pipeline_graph(n.p, "text_encoder", NULL);
    const long total = n.asked;
    assert_non_null(g);
    assert_true(total > 10);
    tern_graph_destroy(&g);
    for (n.at = 1; n.at <= total; n.at = next(n.at)) {
        n.asked = 0;
        assert_null(tern_pipeline_graph(n.p, "text_encoder", NULL));
        support_error(n.ctx, TERN_E_INVALID, "found one from the callback that is asked whether to cancel");
    }
    tern_pipeline_destroy(&n.p);
    tern_context_destroy(&n.ctx);
}

static void make_from_log(enum tern_log_level level, const char *message, void *user)
{
    struct nest *n = user;
    if (!strstr(message, "what was measured before is not used"))
        return;
    tern_error_clear(n->ctx);
    n->asked++;
    if (tern_generate(n->p, &n->inner))
        fail_msg("made in call %ld", n->at);
    support_error(n->ctx, TERN_E_INVALID, "found one from a callback while a module or a plan is made");
}

/* The log tells something in the middle of an exchange of LoRAs, of a module, of a plan: of a file that is no tuning. */
static void no_job_where_something_is_half_made(void **state)
{
    char path[PATH_SIZE];
    const struct lora_spec lora = {.file = "a.safetensors", .scale = 1};
    for (int i = 0; i < 3; i++) {
        struct nest n = {.at = i, .inner = tern_txt2img_params(.prompt = "y", .width = 16, .height = 16, .steps = 1)};
        n.ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .log = make_from_log, .user = &n});
        n.p = tern_pipeline_load(n.ctx, model_path("sd1", path), &(struct tern_pipeline_params){.keep_text_encoder = true});
        if (i == 1)
            lora_set(n.ctx, n.p, &lora, 1);
        tern_pipeline_drop_text(n.p);
        n.ctx->params.tune.cache = TERN_TEST_DATA "/lora/a.safetensors";
        if (i == 0)
            lora_set(n.ctx, n.p, &lora, 1);
        else if (i == 1)
            assert_non_null(tern_pipeline_weights(n.p, "text_encoder"));
        else
            assert_int_equal(tern_generate_check(n.p, &n.inner, NULL), TERN_OK);
        assert_int_equal(n.asked, 1);
        struct tern_images *images = job_run(n.ctx, n.p, &n.inner);
        tern_images_destroy(&images);
        tern_pipeline_destroy(&n.p);
        tern_context_destroy(&n.ctx);
    }
}

static void destroy(const char *component, const struct tern_step_profile *step, void *user)
{
    struct nest *n = user;
    tern_pipeline_destroy(&n->p);
}

static void a_pipeline_at_work_stays(void **state)
{
    char path[PATH_SIZE];
    struct nest n = {.inner = tern_txt2img_params(.prompt = "y", .width = 16, .height = 16, .steps = 1)};
    n.ctx = support_context();
    n.p = tern_pipeline_load(n.ctx, model_path("sd1", path), NULL);
    struct tern_pipeline *p = n.p;
    struct tern_txt2img_params q = n.inner;
    q.on_kernel = destroy;
    q.on_kernel_user = &n;
    assert_null(tern_generate(p, &q));
    assert_ptr_equal(n.p, p);
    support_error(n.ctx, TERN_E_INVALID, "tern_pipeline_destroy: the pipeline is at work");
    struct tern_images *images = job_run(n.ctx, n.p, &n.inner);
    tern_images_destroy(&images);
    tern_pipeline_destroy(&n.p);
    assert_null(n.p);
    tern_context_destroy(&n.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_job_where_it_is_asked_to_cancel),
        cmocka_unit_test(no_job_while_a_graph_is_made),
        cmocka_unit_test(no_job_where_something_is_half_made),
        cmocka_unit_test(a_pipeline_at_work_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Jobs that end early: cancelled at any op, out of memory at any allocation. Each gives a status, leaks nothing, and
 * leaves a context that works. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "job_cases.h"
#include "model_help.h"
#include "support.h"

/* Every stage of every kind of job: encoding of a picture, guidance, noise at each step, two pictures. */
static struct tern_txt2img_params tiny(const struct tern_image *init)
{
    return tern_txt2img_params(.prompt = "x", .negative_prompt = "y", .width = 16, .height = 16, .steps = 2, .seed = 3, .count = 2,
                               .sampler = TERN_SAMPLER_EULER_A, .init_image = init, .strength = 1);
}

/* ---- cancel */

struct cancel {
    long asked, at; /* number of questions so far; the one that is answered with yes, 0: none */
};

static bool answer(void *user)
{
    struct cancel *c = user;
    return ++c->asked == c->at;
}

/* 1, 2, 3 … first, then in growing strides: the ops of a step are many and alike. */
static long next(long n) { return n + 1 + n / 12; }

static void cancel_everywhere(struct tern_context *ctx, struct tern_pipeline *p, struct cancel *c, const struct tern_image *init)
{
    struct tern_txt2img_params q = tiny(init);
    struct tern_images *whole = job_run(ctx, p, &q), *again = job_run(ctx, p, &q); /* all that is kept for good is there now */
    tern_images_destroy(&again);
    tern_memory_trim(ctx);
    size_t used = tern_memory_used(ctx);
    int runs = 0;
    c->asked = 0;
    again = job_run(ctx, p, &q);
    long total = c->asked;
    assert_true(total > 300);
    tern_images_destroy(&again);
    for (long n = 1; n <= total; n = next(n), runs++) {
        *c = (struct cancel){.at = n};
        assert_null(tern_generate(p, &q));
        support_error(ctx, TERN_E_CANCELLED, "cancelled");
        assert_int_equal(c->asked, n); /* nothing goes on after it */
        tern_memory_trim(ctx);
        assert_int_equal(tern_memory_used(ctx), used);
    }
    *c = (struct cancel){0};
    again = job_run(ctx, p, &q);
    assert_true(job_same(whole, 0, again));
    tern_images_destroy(&whole);
    tern_images_destroy(&again);
    print_message("%d of %ld places\n", runs, total);
}

static void cancelled_jobs_leave_nothing(void **state)
{
    struct cancel c = {0};
    char path[PATH_SIZE];
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = answer, .user = &c});
    assert_non_null(ctx);
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    struct tern_image *init = tern_image_create(ctx, 16, 16, NULL);
    cancel_everywhere(ctx, p, &c, NULL);
    cancel_everywhere(ctx, p, &c, init);
    tern_image_destroy(&init);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* What leaves memory with its stage does so, too, when the job ends within it. */
static void what_is_to_leave_does(void **state)
{
    struct cancel c = {0};
    char path[PATH_SIZE];
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = answer, .user = &c});
    assert_non_null(ctx);
    struct tern_pipeline *p =
        tern_pipeline_load(ctx, model_path("sd1", path), &(struct tern_pipeline_params){.offload = TERN_OFFLOAD_SEQUENTIAL});
    assert_non_null(p);
    struct tern_image *init = tern_image_create(ctx, 16, 16, NULL);
    cancel_everywhere(ctx, p, &c, init);
    tern_image_destroy(&init);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* Also while the memory is predicted and while a component runs. */
static void cancelled_checks_and_components(void **state)
{
    struct cancel c = {0};
    char path[PATH_SIZE];
    size_t bytes;
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = answer, .user = &c});
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    struct tern_txt2img_params q = tiny(NULL);
    snprintf(path, sizeof(path), "%s/components/sd1/vae_decoder.square.safetensors", TERN_TEST_DATA);
    struct golden g = golden_open(ctx, path);
    assert_true(golden_error(p, "vae_decoder", &g, "vae_decoder") < 1e-8);
    assert_int_equal(tern_generate_check(p, &q, &bytes), TERN_OK);
    tern_memory_trim(ctx);
    size_t used = tern_memory_used(ctx);
    for (long n = 1; n < 300; n = next(n)) {
        c = (struct cancel){.at = n};
        if (tern_generate_check(p, &q, &bytes)) /* it asks once, before it begins */
            support_error(ctx, TERN_E_CANCELLED, "cancelled");
        else
            assert_true(n > 1);
        assert_int_equal(tern_memory_used(ctx), used);
        c = (struct cancel){.at = n};
        struct tern_weights *out = tern_pipeline_exec(p, "vae_decoder", g.inputs);
        if (!out)
            support_error(ctx, TERN_E_CANCELLED, "cancelled");
        assert_true(out || n < 200);
        tern_weights_unref(&out);
        tern_memory_trim(ctx);
        assert_int_equal(tern_memory_used(ctx), used);
    }
    c = (struct cancel){0};
    assert_true(golden_error(p, "vae_decoder", &g, "vae_decoder") < 1e-8);
    golden_close(&g);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* Weights are prepared one by one: of a whole UNet that takes seconds. */
static void cancelled_bindings_can_be_made_later(void **state)
{
    struct cancel c = {0};
    char path[PATH_SIZE];
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = answer, .user = &c});
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    struct tern_graph *g = tern_pipeline_graph(p, "unet", &(struct tern_graph_size){1, 16, 16});
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    const struct tern_weights *weights = tern_pipeline_weights(p, "unet");
    assert_non_null(weights);
    for (int n = 1; n <= 40; n++) {
        c = (struct cancel){.at = n};
        assert_null(tern_plan_bind(plan, weights));
        support_error(ctx, TERN_E_CANCELLED, "cancelled");
        assert_int_equal(c.asked, n);
    }
    c = (struct cancel){0};
    tern_memory_trim(ctx);
    size_t before = tern_memory_used(ctx), left = tern_plan_bind_bytes(plan, weights); /* what was prepared stays with the weights */
    struct tern_binding *b = tern_plan_bind(plan, weights);
    assert_non_null(b);
    assert_true(tern_memory_used(ctx) - before <= left);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* ---- out of memory */

/* Allocations number `from` to `to - 1` fail. */
struct memory {
    long count, from, to, live;
};

static void *take(size_t size, size_t alignment, void *user)
{
    struct memory *m = user;
    m->count++;
    if (m->count >= m->from && m->count < m->to)
        return NULL;
    void *p = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    m->live += p != NULL;
    return p;
}

static void give(void *ptr, size_t size, void *user)
{
    struct memory *m = user;
    m->live -= ptr != NULL;
    free(ptr);
}

static struct tern_context *memory_context(struct memory *m)
{
    return tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = {.alloc = take, .free = give, .user = m}});
}

/* Loading and a picture. NULL with an error in the context. */
static struct tern_images *load_and_paint(struct tern_context *ctx)
{
    char path[PATH_SIZE];
    struct tern_pipeline *p = tern_pipeline_load(ctx, model_path("sd1", path), NULL);
    struct tern_image *init = p ? tern_image_create(ctx, 24, 16, NULL) : NULL;
    struct tern_txt2img_params q = tiny(init);
    struct tern_images *images = init ? tern_generate(p, &q) : NULL;
    tern_image_destroy(&init);
    tern_pipeline_destroy(&p);
    return images;
}

/* Number of allocations of load_and_paint in a fresh context. */
static long count_allocations(void)
{
    struct memory m = {0};
    struct tern_context *ctx = memory_context(&m);
    long before = m.count;
    struct tern_images *images = load_and_paint(ctx);
    assert_non_null(images);
    long n = m.count - before;
    tern_images_destroy(&images);
    tern_context_destroy(&ctx);
    assert_int_equal(m.live, 0);
    return n;
}

/* Fails `length` allocations from the n-th on; whatever comes of it, a later run in the same context works. */
static bool fail_at(long n, long length, const struct tern_images *expected)
{
    struct memory m = {0};
    struct tern_context *ctx = memory_context(&m);
    assert_non_null(ctx);
    m.from = m.count + n;
    m.to = m.from + length;
    struct tern_images *images = load_and_paint(ctx);
    bool survived = images != NULL;
    if (survived)
        assert_true(job_same(expected, 0, images));
    else
        support_error(ctx, TERN_E_NO_MEMORY, "out of memory");
    tern_images_destroy(&images);
    m.from = m.to = 0;
    images = load_and_paint(ctx);
    if (!images)
        fail_msg("after allocation %ld failed: %s", n, tern_error(ctx));
    assert_true(job_same(expected, 0, images));
    tern_images_destroy(&images);
    tern_context_destroy(&ctx);
    if (m.live)
        fail_msg("allocation %ld: %ld blocks are left", n, m.live);
    return survived;
}

static void failing_allocations(long length, bool must_survive)
{
    struct memory m = {0};
    struct tern_context *ctx = memory_context(&m);
    struct tern_images *expected = load_and_paint(ctx);
    long total = count_allocations();
    int runs = 0, survived = 0;
    for (long n = 1; n <= total; n += 1 + total / 120, runs++)
        survived += fail_at(n, length, expected);
    print_message("%d of %ld allocations, %d times the job went on\n", runs, total, survived);
    if (must_survive)
        assert_int_equal(survived, runs);
    else
        assert_true(survived < runs / 4); /* what is left out of need, a cache, is no error */
    tern_images_destroy(&expected);
    tern_context_destroy(&ctx);
}

/* One failure: caches are freed, and the second try helps. */
static void one_failure_is_survived(void **state) { failing_allocations(1, true); }
/* The second try fails, too. */
static void two_failures_are_an_error(void **state) { failing_allocations(2, false); }
/* There is no memory any more, until the job has ended. */
static void lasting_failure_is_an_error(void **state) { failing_allocations(1L << 40, false); }

static void contexts_say_that_there_is_no_memory(void **state)
{
    struct memory m = {0};
    struct tern_context *ctx = memory_context(&m);
    long total = m.count;
    tern_context_destroy(&ctx);
    assert_true(total >= 2);
    for (long n = 1; n <= total; n++) {
        m = (struct memory){.from = n, .to = n + 2};
        assert_null(memory_context(&m));
        assert_non_null(strstr(tern_create_error(), "out of memory"));
        assert_int_equal(m.live, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancelled_jobs_leave_nothing),    cmocka_unit_test(what_is_to_leave_does),
        cmocka_unit_test(cancelled_checks_and_components), cmocka_unit_test(cancelled_bindings_can_be_made_later),
        cmocka_unit_test(one_failure_is_survived),         cmocka_unit_test(two_failures_are_an_error),
        cmocka_unit_test(lasting_failure_is_an_error),     cmocka_unit_test(contexts_say_that_there_is_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The device's peak, and each step's share of the roofline: the definition, once for a context, with little memory and without,
 * and where nothing computes. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <tern/graph.h>
#include <tern/ops.h>

#include "support.h"

/* A plan of one convolution, one activation and one product. */
struct small {
    struct tern_context *ctx;
    struct tern_weights *weights;
    struct tern_plan *plan;
    struct tern_binding *binding;
};

/* x (1, 4, 24, 24) by a filter of 3 x 3 to 8 channels, rows of 24 by y (24, 24) */
static enum tern_status forward(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct small *s = user;
    tern_tensor *h = tern_conv2d(in[0], tern_weights_get(s->weights, "w"), NULL, .padding = 1);
    out[0] = tern_matmul(tern_reshape(tern_softmax(h, -1), 2, (const int64_t[]){-1, 24}), in[1]);
    return tern_error_status(s->ctx);
}

static const struct tern_graph_input inputs[] = {{"x", TERN_F32, 4, {1, 4, 24, 24}}, {"y", TERN_F32, 2, {24, 24}}};

static void small_open(struct small *s, struct tern_context *ctx)
{
    *s = (struct small){.ctx = ctx, .weights = tern_weights_create(ctx)};
    tern_scope_begin(ctx);
    tern_tensor *w = tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){8, 4, 3, 3}, NULL);
    assert_int_equal(tern_weights_add(s->weights, "w", w), TERN_OK);
    struct tern_graph *g = tern_graph_trace(ctx, forward, s, s->weights, inputs, 2, 1);
    s->plan = tern_plan_compile(g, NULL);
    s->binding = tern_plan_bind(s->plan, s->weights);
    tern_scope_end(ctx, NULL);
    tern_graph_destroy(&g);
    if (!s->binding)
        fail_msg("%s", tern_error(ctx));
}

static void small_close(struct small *s)
{
    tern_binding_unref(&s->binding);
    tern_plan_unref(&s->plan);
    tern_weights_unref(&s->weights);
}

struct told {
    struct tern_device_peak peak;
    int steps, products;
    double least; /* share of all steps */
};

static void tell(void *user, const struct tern_step_profile *step)
{
    struct told *t = user;
    double share = t->peak.flops > 0 ? fmax(step->flops / t->peak.flops, step->bytes / t->peak.bytes) / step->seconds : 0;
    assert_true(isfinite(step->roofline));
    if (fabs(step->roofline - share) > 1e-12 * share)
        fail_msg("%s: roofline %.17g, expected %.17g", step->op, step->roofline, share);
    t->least = step->roofline < t->least ? step->roofline : t->least;
    t->products += step->flops > 0;
    t->steps++;
}

static enum tern_status profile(struct small *s, struct told *t)
{
    tern_tensor *out[1] = {NULL};
    t->least = INFINITY;
    t->steps = t->products = 0;
    tern_scope_begin(s->ctx);
    tern_tensor *in[] = {tern_tensor_create(s->ctx, TERN_F32, 4, inputs[0].shape, NULL),
                         tern_tensor_create(s->ctx, TERN_F32, 2, inputs[1].shape, NULL)};
    enum tern_status st = tern_plan_profile(s->binding, in, out, tell, t);
    tern_scope_end(s->ctx, NULL);
    return st;
}

static void every_step_has_its_share(void **state)
{
    struct tern_context *ctx = support_context();
    struct small s;
    struct told told = {{0}};
    small_open(&s, ctx);
    assert_int_equal(tern_device_peak(ctx, &told.peak), TERN_OK);
    assert_true(told.peak.flops > 1e7 && told.peak.flops < 1e14); /* one thread of any processor */
    assert_true(told.peak.bytes > 1e7 && told.peak.bytes < 1e13);
    print_message("%.1f GFLOP/s, %.1f GB/s\n", told.peak.flops * 1e-9, told.peak.bytes * 1e-9);
    assert_int_equal(profile(&s, &told), TERN_OK);
    assert_int_equal(told.steps, tern_plan_facts(s.plan).launches);
    assert_int_equal(told.products, 2);
    assert_true(told.least > 0);
    small_close(&s);
    tern_context_destroy(&ctx);
}

/* The first profile measures, before its run; nothing measures again, and the buffer is neither kept nor counted. */
static void it_is_measured_once(void **state)
{
    struct tern_context *ctx = support_context();
    struct small s;
    struct told told = {{0}};
    struct tern_device_peak again = {0};
    tern_tensor *out[1] = {NULL}, *in[2];
    small_open(&s, ctx);
    tern_scope_begin(ctx);
    for (int i = 0; i < 2; i++)
        in[i] = tern_tensor_create(ctx, TERN_F32, inputs[i].ndim, inputs[i].shape, NULL);
    assert_int_equal(tern_plan_run(s.binding, in, out), TERN_OK);
    size_t used = tern_memory_used(ctx), peak = tern_memory_peak(ctx);
    uint64_t before = tern_memory_allocations(ctx);
    assert_int_equal(tern_device_peak(ctx, &told.peak), TERN_OK);
    assert_int_equal(tern_memory_allocations(ctx), before + 1);
    assert_int_equal(tern_memory_used(ctx), used);
    assert_int_equal(tern_memory_peak(ctx), peak);
    assert_int_equal(tern_device_peak(ctx, &again), TERN_OK);
    assert_int_equal(tern_plan_profile(s.binding, in, out, tell, &told), TERN_OK);
    assert_int_equal(tern_memory_allocations(ctx), before + 1);
    assert_true(again.flops == told.peak.flops && again.bytes == told.peak.bytes);
    tern_scope_end(ctx, NULL);
    small_close(&s);
    tern_context_destroy(&ctx);
}

struct asking {
    struct tern_context *ctx;
    struct tern_device_peak peak;
};

static void *ask(void *arg)
{
    struct asking *a = arg;
    tern_device_peak(a->ctx, &a->peak);
    return NULL;
}

static void threads_get_the_same(void **state)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 2});
    struct asking a[2] = {{ctx}, {ctx}};
    pthread_t thread[2];
    uint64_t before = tern_memory_allocations(ctx);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, ask, &a[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_true(a[0].peak.flops > 0 && a[0].peak.bytes > 0);
    assert_memory_equal(&a[0].peak, &a[1].peak, sizeof(a[0].peak));
    assert_int_equal(tern_memory_allocations(ctx), before + 1);
    tern_context_destroy(&ctx);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* A big product cannot be faster than the peak, nor a thousandth of it. The median of some runs: the machine may be busy. */
static void products_stay_below(void **state)
{
    const int64_t shape[] = {512, 512};
    struct tern_context *ctx = support_context();
    struct tern_device_peak peak;
    double seconds[9];
    assert_int_equal(tern_device_peak(ctx, &peak), TERN_OK);
    for (int i = 0; i < 9; i++) {
        tern_scope_begin(ctx);
        tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 2, shape, NULL);
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        assert_non_null(tern_matmul(x, x));
        clock_gettime(CLOCK_MONOTONIC, &to);
        seconds[i] = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
        tern_scope_end(ctx, NULL);
    }
    qsort(seconds, 9, sizeof(*seconds), compare);
    double share = 2.0 * 512 * 512 * 512 / peak.flops / seconds[4];
    print_message("512 x 512 x 512: %.3f of the peak\n", share);
    assert_true(share > 1e-3 && share < 1.1);
    tern_context_destroy(&ctx);
}

/* Without memory the peak has a status and leaves nothing; later it is measured. */
static void no_memory_is_a_status(void **state)
{
    struct support_allocator memory = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&memory)});
    struct small s;
    struct told told = {{0}};
    assert_non_null(ctx);
    small_open(&s, ctx);
    long live = memory.live;
    tern_tensor *in[2], *out[1] = {NULL};
    for (int i = 0; i < 2; i++)
        in[i] = tern_tensor_create(ctx, TERN_F32, inputs[i].ndim, inputs[i].shape, NULL);
    memory.fail_at = memory.count + 1;
    assert_int_equal(tern_device_peak(ctx, &told.peak), TERN_E_NO_MEMORY);
    assert_true(told.peak.flops == 0 && told.peak.bytes == 0);
    support_error(ctx, TERN_E_NO_MEMORY, "out of memory");
    memory.fail_at = memory.count + 1;
    assert_int_equal(tern_plan_profile(s.binding, in, out, tell, &told), TERN_E_NO_MEMORY);
    assert_int_equal(told.steps, 0);
    assert_null(out[0]);
    support_error(ctx, TERN_E_NO_MEMORY, "out of memory");
    for (int i = 0; i < 2; i++)
        tern_tensor_unref(&in[i]);
    tern_memory_trim(ctx);
    assert_int_equal(memory.live, live);
    memory.fail_at = 0;
    assert_int_equal(tern_device_peak(ctx, &told.peak), TERN_OK);
    assert_true(told.peak.flops > 0);
    assert_int_equal(memory.live, live);
    small_close(&s);
    tern_context_destroy(&ctx);
    assert_int_equal(memory.live, 0);
}

static void count_message(enum tern_log_level level, const char *message, void *user)
{
    *(int *)user += level == TERN_LOG_INFO && strstr(message, "peak of the CPU") && strstr(message, "16777216");
}

/* A budget that is too small for the buffer takes the shares, not the profile. */
static void budgets_go_first(void **state)
{
    int messages = 0;
    struct tern_context *ctx = tern_context_create(
        &(struct tern_context_params){.threads = 1, .budget = (size_t)16 << 20, .log = count_message, .user = &messages});
    struct small s;
    struct told told = {{0}};
    assert_non_null(ctx);
    small_open(&s, ctx);
    assert_int_equal(profile(&s, &told), TERN_OK);
    assert_int_equal(messages, 1);
    assert_true(told.steps >= 3 && told.least == 0);
    small_close(&s);
    tern_context_destroy(&ctx);
}

/* What is kept for reuse makes room. */
static void kept_memory_makes_room(void **state)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .budget = (size_t)300 << 20});
    struct tern_device_peak peak;
    const int64_t n = (int64_t)32 << 20;
    tern_tensor *t = tern_tensor_create(ctx, TERN_F32, 1, &n, NULL);
    assert_non_null(t);
    tern_tensor_unref(&t);
    assert_true(tern_memory_used(ctx) > (size_t)128 << 20);
    assert_int_equal(tern_device_peak(ctx, &peak), TERN_OK);
    assert_true(peak.flops > 0 && peak.bytes > 0);
    tern_context_destroy(&ctx);
}

static void the_null_device_has_none(void **state)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = "null", .threads = 1});
    struct small s;
    struct told told = {{1, 1}};
    assert_non_null(ctx);
    assert_int_equal(tern_device_peak(ctx, &told.peak), TERN_OK);
    assert_true(told.peak.flops == 0 && told.peak.bytes == 0);
    small_open(&s, ctx);
    assert_int_equal(profile(&s, &told), TERN_OK);
    assert_true(told.steps >= 3 && told.least == 0);
    small_close(&s);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_has_its_share), cmocka_unit_test(it_is_measured_once),      cmocka_unit_test(threads_get_the_same),
        cmocka_unit_test(products_stay_below),      cmocka_unit_test(no_memory_is_a_status),    cmocka_unit_test(budgets_go_first),
        cmocka_unit_test(kept_memory_makes_room),   cmocka_unit_test(the_null_device_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

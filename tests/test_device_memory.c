/* Weights that do not fit a GPU's memory: the same bits as when they fit, weights and never activations lie in the host's memory, whatever
 * came first, and what nobody can place is refused with the figures. The argument is the device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "backends/gpu/gpu.h"
#include "core/context.h"
#include "cuda_help.h"
#include "gpu_help.h"
#include "graph/plan.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "support.h"
#include "vulkan_help.h"

#define SIDE 64 /* of the picture */
#define VALUES (4 * SIDE / 8 * SIDE / 8)

static const char *device;
static char cache[64];
static char told[512]; /* the last message of memory, and how many there were */
static int times_told;
static const struct tern_graph_size size = {1, SIDE, SIDE};

static void log_message(enum tern_log_level level, const char *text, void *user)
{
    if (!strstr(text, "do not fit the device's memory"))
        return;
    times_told++;
    snprintf(told, sizeof(told), "%s", text);
}

static struct tern_context *try_open(size_t budget, const char *limits, const struct tern_allocator *allocator)
{
    struct tern_context_params params = {.device = device, .threads = 2, .device_budget = budget, .cache_dir = cache, .log = log_message};
    if (allocator)
        params.allocator = *allocator;
    if (limits)
        setenv("TERN_GPU_LIMITS", limits, 1);
    else
        unsetenv("TERN_GPU_LIMITS");
    times_told = 0;
    return tern_context_create(&params);
}

/* Skipped, with the reason, where there is no such device. */
static struct tern_context *open(size_t budget, const char *limits)
{
    struct tern_context *ctx = try_open(budget, limits, NULL);
    if (ctx)
        return ctx;
    print_message("%s (Debian's pocl-opencl-icd and mesa-vulkan-drivers have drivers)\n", tern_create_error());
    skip();
    return NULL;
}

static struct tern_gpu_memory *memory_of(struct tern_context *ctx) { return &((struct tern_gpu *)ctx->device)->memory; }

struct unet {
    struct tern_pipeline *p;
    struct tern_binding *b;
    size_t weights, arena; /* bytes */
};

static struct unet open_unet(struct tern_context *ctx)
{
    char path[PATH_SIZE];
    struct unet u = {.p = model_load(ctx, model_path("sd1", path))};
    const struct tern_stage stage = {.component = "unet", .size = size};
    u.arena = tern_plan_facts(tern_pipeline_plan(u.p, &stage)).arena;
    u.b = tern_pipeline_binding(u.p, &stage);
    if (!u.b)
        fail_msg("%s", tern_error(ctx));
    u.weights = memory_of(ctx)->on_device + memory_of(ctx)->on_host;
    return u;
}

static void close_unet(struct unet *u)
{
    tern_binding_unref(&u->b);
    tern_pipeline_destroy(&u->p);
}

/* Sums of all weights, by place. */
static void count_weights(struct tern_context *ctx, size_t at[2])
{
    at[0] = at[1] = 0;
    for (const struct tern_gpu_buffer *w = memory_of(ctx)->weights; w; w = w->next)
        at[w->on_host] += w->base.size;
}

/* All that lies in the host's memory is weights; the arena is on the device, and all sums are right. */
static void check_places(struct tern_context *ctx, const struct unet *u)
{
    const struct tern_gpu_memory *m = memory_of(ctx);
    const struct tern_run_memory *idle = tern_binding_plan(u->b)->idle;
    size_t at[2];
    count_weights(ctx, at);
    assert_int_equal(at[1], m->on_host);
    assert_int_equal(at[0] + at[1], u->weights);
    assert_int_equal(m->on_device, at[0] + u->arena);
    assert_true(!m->share || m->on_device <= m->share);
    for (int i = 0; idle && i < idle->n_arena; i++)
        assert_false(((const struct tern_gpu_buffer *)idle->arena[i])->on_host);
}

static float expected[VALUES];
static size_t all_weights, arena;

/* With room for all: what the others are compared with, computed once. */
static void compute_expected(void)
{
    if (all_weights)
        return;
    struct tern_context *ctx = open(0, NULL);
    struct unet u = open_unet(ctx);
    model_run(u.b, expected, sizeof(expected));
    check_places(ctx, &u);
    assert_int_equal(memory_of(ctx)->on_host, 0);
    assert_int_equal(times_told, 0);
    all_weights = u.weights;
    arena = u.arena;
    print_message("%zu bytes of weights, an arena of %zu\n", all_weights, arena);
    close_unet(&u);
    tern_context_destroy(&ctx);
}

/* The budget that leaves a part of the weights on the device. */
static size_t budget_for(int percent) { return arena + 64 * 1024 + all_weights / 100 * (size_t)percent; }

static void expect_bits(const struct unet *u)
{
    static float found[VALUES];
    memset(found, 0, sizeof(found));
    model_run(u->b, found, sizeof(found));
    assert_memory_equal(found, expected, sizeof(found));
}

static void weights_lie_where_there_is_room(void **state)
{
    compute_expected();
    for (int percent = 60; percent >= 0; percent -= 60) {
        struct tern_context *ctx = open(budget_for(percent), NULL);
        struct unet u = open_unet(ctx);
        assert_int_equal(u.weights, all_weights);
        for (int run = 0; run < 4; run++) { /* plain, captured, replayed */
            expect_bits(&u);
            check_places(ctx, &u);
        }
        size_t on_host = memory_of(ctx)->on_host, most = all_weights - all_weights / 100 * (size_t)percent;
        print_message("%d %%: %zu bytes on the host\n", percent, on_host);
        assert_true(on_host <= most && on_host + 96 * 1024 > most);
        assert_int_equal(times_told, 1);
        size_t said = strtoul(told + strlen(device) + 2, NULL, 10); /* before the result took its place */
        assert_true(said <= on_host && said + 32 * 1024 > on_host);
        close_unet(&u);
        assert_int_equal(memory_of(ctx)->on_host, 0);
        assert_int_equal(memory_of(ctx)->on_device, arena); /* of the plan that the context keeps */
        tern_context_destroy(&ctx);
    }
}

static void check_on_device(const struct tern_binding *b)
{
    for (int i = 0; i < b->plan->graph->n_values; i++)
        if (b->at[i].buffer && b->at[i].buffer->device == b->plan->ctx->device) /* not what only preparations read */
            assert_false(((struct tern_gpu_buffer *)b->at[i].buffer)->on_host);
}

/* A run on a device with that much memory, whose driver says so or not; what was open to the share then. */
static size_t run_in_little(size_t bytes, size_t budget)
{
    if (!strcmp(device, "cuda")) {
        struct standin_facts f = cuda_facts();
        f.memory = bytes;
        cuda.standin_set_facts(&f);
    } else {
        vulkan_shim()->local_bytes = bytes;
        vulkan_shim()->heap_bytes = budget ? 0 : bytes + bytes / 2;
        vulkan_shim()->free_bytes = budget ? 0 : bytes;
    }
    struct tern_context *ctx = open(budget, NULL);
    const size_t share = ctx->device->caps.memory;
    struct unet u = open_unet(ctx);
    for (int run = 0; run < 3; run++) {
        expect_bits(&u);
        check_places(ctx, &u);
    }
    assert_true(memory_of(ctx)->on_host > 0);
    print_message("%zu bytes on the device, %zu on the host\n", memory_of(ctx)->on_device, memory_of(ctx)->on_host);
    close_unet(&u);
    tern_context_destroy(&ctx);
    return share;
}

/* The share is what the driver has free, less a sixteenth; and where it has less than was given, that is found when it ends. */
static void the_driver_decides(void **state)
{
    compute_expected();
    const size_t bytes = budget_for(60), generous = (size_t)1 << 40;
    if (!strcmp(device, "opencl")) {
        print_message("drivers of OpenCL have no figure to lower\n");
        skip();
    }
    size_t share = run_in_little(bytes, 0);
    assert_int_equal(share, !strcmp(device, "cuda") || vulkan_shim()->tells_free ? bytes - bytes / 16 : (bytes + bytes / 2) / 4 * 3);
    assert_int_equal(run_in_little(bytes, generous), generous);
}

/* What comes later and runs has the device's memory: weights leave, captures notice, and weights come back when it has gone. */
static void activations_come_first(void **state)
{
    compute_expected();
    struct tern_context *ctx = open(budget_for(200), NULL);
    struct unet u = open_unet(ctx);
    for (int run = 0; run < 3; run++)
        expect_bits(&u);
    assert_int_equal(memory_of(ctx)->on_host, 0);
    const int64_t half = (int64_t)(all_weights / 10 * 14 / sizeof(float));
    tern_tensor *big = tern_tensor_create(ctx, TERN_F32, 1, &half, NULL);
    assert_non_null(big);
    assert_false(((struct tern_gpu_buffer *)big->buffer)->on_host);
    assert_true(memory_of(ctx)->on_host > all_weights / 10);
    for (int run = 0; run < 3; run++)
        expect_bits(&u);
    assert_true(memory_of(ctx)->on_host > all_weights / 10);
    tern_tensor_unref(&big);
    tern_plan_trim(tern_binding_plan(u.b)); /* the next run takes memory anew */
    expect_bits(&u);
    check_places(ctx, &u);
    check_on_device(u.b);
    close_unet(&u);
    tern_context_destroy(&ctx);
}

/* Runs with memory that stays are replayed. When weights were moved, the old launches are not run again. */
static void replays_notice(void **state)
{
    compute_expected();
    static float found[VALUES];
    struct tern_context *ctx = open(budget_for(200), NULL);
    struct tern_queue *q = ctx->device->queue;
    struct unet u = open_unet(ctx);
    tern_tensor *in[TERN_GRAPH_MAX_IO] = {NULL}, *out[TERN_GRAPH_MAX_IO] = {NULL}, *big = NULL;
    const int64_t most = (int64_t)(all_weights / 10 * 14 / sizeof(float)), few = 3;
    model_inputs(u.b, in);
    for (int run = 0; run < 10; run++) {
        if (run == 4)
            big = tern_tensor_create(ctx, TERN_F32, 1, &most, NULL);
        assert_int_equal(tern_plan_run(u.b, in, out), TERN_OK);
        assert_int_equal(tern_tensor_read(out[0], TERN_F32, found, sizeof(found)), TERN_OK);
        assert_memory_equal(found, expected, sizeof(found));
    }
    assert_true(memory_of(ctx)->on_host > 0);
    for (int i = 0; i < TERN_GRAPH_MAX_IO; i++) {
        tern_tensor_unref(&in[i]);
        tern_tensor_unref(&out[i]);
    }
    if (q->fns->capture_begin) { /* and by itself */
        tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 1, &few, NULL), *y = tern_exp(x), *z = NULL;
        assert_int_equal(q->fns->capture_begin(q), TERN_OK);
        z = tern_exp(y);
        struct tern_capture *c = q->fns->capture_end(q);
        assert_int_equal(q->fns->replay(q, c), TERN_OK);
        assert_false(c->stale);
        tern_tensor_unref(&big);
        tern_plan_trim(tern_binding_plan(u.b));
        expect_bits(&u); /* weights come back */
        const uint64_t launches = q->launches;
        assert_int_equal(q->fns->replay(q, c), TERN_OK);
        assert_true(c->stale);
        assert_int_equal(q->launches, launches);
        c->fns->destroy(c);
        tern_tensor_unref(&x);
        tern_tensor_unref(&y);
        tern_tensor_unref(&z);
    }
    tern_tensor_unref(&big);
    close_unet(&u);
    tern_context_destroy(&ctx);
}

/* Of two networks the one that runs has the device's memory. */
static void who_runs_comes_first(void **state)
{
    compute_expected();
    static float picture[3 * SIDE * SIDE];
    struct tern_context *ctx = open(0, NULL);
    struct unet u = open_unet(ctx);
    const struct tern_stage stage = {.component = "vae_decoder", .size = size};
    struct tern_binding *vae = tern_pipeline_binding(u.p, &stage);
    const size_t budget = all_weights + arena + tern_plan_facts(tern_binding_plan(vae)).arena;
    tern_binding_unref(&vae);
    close_unet(&u);
    tern_context_destroy(&ctx);
    ctx = open(budget, NULL); /* either fits beside its arena; both do not */
    u = open_unet(ctx);
    vae = tern_pipeline_binding(u.p, &stage);
    for (int turn = 0; turn < 2; turn++) {
        expect_bits(&u);
        check_on_device(u.b);
        tern_plan_trim(tern_binding_plan(u.b));
        model_run(vae, picture, sizeof(picture));
        check_on_device(vae);
        tern_plan_trim(tern_binding_plan(vae));
    }
    tern_binding_unref(&vae);
    close_unet(&u);
    tern_context_destroy(&ctx);
}

static void too_little_is_refused(void **state)
{
    char path[PATH_SIZE], text[100];
    compute_expected();
    struct tern_context *ctx = open(budget_for(20), "host=64K");
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    const struct tern_stage stage = {.component = "unet", .size = size};
    assert_non_null(tern_pipeline_plan(p, &stage));
    const size_t before = memory_of(ctx)->on_device;
    assert_null(tern_pipeline_binding(p, &stage));
    assert_int_equal(memory_of(ctx)->on_device, before); /* nothing was copied */
    snprintf(text, sizeof(text), "whose share of its memory is %zu bytes, with 65536 of the host's", budget_for(20));
    support_error(ctx, TERN_E_NO_MEMORY, text);
    /* a whole job, before its first stage */
    const struct tern_txt2img_params q = {.prompt = "x", .width = SIDE, .height = SIDE, .steps = 2};
    assert_null(tern_generate(p, &q));
    assert_int_equal(memory_of(ctx)->on_device, before);
    snprintf(text, sizeof(text), "is %zu and 65536 bytes; a smaller size", budget_for(20));
    support_error(ctx, TERN_E_NO_MEMORY, text);
    tern_pipeline_destroy(&p);
    /* an activation that neither has room for */
    const int64_t n = (int64_t)budget_for(20);
    assert_null(tern_tensor_create(ctx, TERN_F32, 1, &n, NULL));
    support_error(ctx, TERN_E_NO_MEMORY, "of the host's 0 of 65536; a smaller picture");
    tern_context_destroy(&ctx);
}

/* Weights that are not kept are copied for each step that reads them: as many bytes on the device as was asked for, the same bits, and
 * nothing allocated by a second run. */
static void weights_are_streamed(void **state)
{
    char path[PATH_SIZE];
    compute_expected();
    size_t whole = 0;
    for (int part = 1; part <= 3; part++) { /* all, half, none of what could be kept */
        struct tern_context *ctx = open(0, NULL);
        struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
        const struct tern_stage stage = {.component = "unet",
                                         .size = size,
                                         .resident = part == 1   ? SIZE_MAX / 2
                                                     : part == 2 ? whole / 2
                                                                 : 1};
        struct tern_binding *b = tern_pipeline_binding(p, &stage);
        if (!b)
            fail_msg("%s", tern_error(ctx));
        struct tern_plan_facts facts = tern_plan_facts(tern_binding_plan(b));
        static float found[VALUES];
        size_t at[2];
        model_run(b, found, sizeof(found));
        assert_true(support_nmse(found, expected, VALUES) < 1e-11); /* layers of one input are not made one: other sums */
        uint64_t allocations = tern_memory_allocations(ctx);
        tern_tensor *in[TERN_GRAPH_MAX_IO] = {NULL}, *out[TERN_GRAPH_MAX_IO] = {NULL};
        model_inputs(b, in);
        for (int run = 0; run < 3; run++) {
            assert_int_equal(tern_plan_run(b, in, out), TERN_OK);
            assert_true(run < 2 || tern_memory_allocations(ctx) == allocations); /* the second one is captured */
            allocations = tern_memory_allocations(ctx);
        }
        assert_int_equal(tern_tensor_read(out[0], TERN_F32, found, sizeof(found)), TERN_OK);
        assert_true(support_nmse(found, expected, VALUES) < 1e-11);
        count_weights(ctx, at);
        print_message("%zu bytes kept, %d steps streamed, %zu bytes of weights there, an arena of %zu\n", facts.resident, facts.streamed,
                      at[0], facts.arena);
        whole = part == 1 ? facts.resident : whole;
        assert_int_equal(facts.streamed == 0, part == 1);
        assert_true(facts.resident <= (part == 1 ? all_weights : part == 2 ? whole / 2 : 0));
        assert_true(at[0] <= facts.resident + 40 * 1024); /* vectors are the module's own, and there before */
        for (int i = 0; i < TERN_GRAPH_MAX_IO; i++) {
            tern_tensor_unref(&in[i]);
            tern_tensor_unref(&out[i]);
        }
        tern_binding_unref(&b);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
}

/* A picture by the demo model under a budget of the context; what it was predicted to need, and what it took. */
static struct tern_image *paint(size_t budget, enum tern_offload offload, size_t *need, size_t *peak)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = tern_context_create(
        &(const struct tern_context_params){.device = device, .threads = 2, .budget = budget, .cache_dir = cache, .log = log_message});
    struct tern_pipeline *p = tern_pipeline_load(ctx, model_path("demo", path), &(const struct tern_pipeline_params){.offload = offload});
    const struct tern_txt2img_params q = {.prompt = "a star", .width = 64, .height = 64, .steps = 1, .seed = 5};
    if (!p || tern_generate_check(p, &q, need))
        fail_msg("%s", tern_error(ctx));
    tern_memory_trim(ctx);
    tern_memory_reset_peak(ctx);
    struct tern_image *image = peak ? tern_txt2img(p, &q) : NULL;
    if (peak && !image)
        fail_msg("%s", tern_error(ctx));
    if (peak)
        *peak = tern_memory_peak(ctx);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return image;
}

/* A budget that does not hold the weights has them streamed. */
static void the_budget_streams(void **state)
{
    tern_context_destroy(&(struct tern_context *){open(0, NULL)});
    size_t sequential, streamed, need, peak, whole;
    paint(0, TERN_OFFLOAD_SEQUENTIAL, &sequential, NULL);
    paint(0, TERN_OFFLOAD_STREAM, &streamed, NULL);
    struct tern_image *a = paint(0, TERN_OFFLOAD_NONE, &need, &whole);
    print_message("predicted: %zu sequential, %zu streamed\n", sequential, streamed);
    assert_true(streamed + (4 << 20) < sequential);
    const size_t budget = streamed + (3 << 20); /* plans that were tried */
    struct tern_image *b = paint(budget, TERN_OFFLOAD_AUTO, &need, &peak);
    print_message("%zu bytes whole, %zu in %zu\n", whole, peak, budget);
    gpu_compare(a, b);
    assert_true(need <= budget && peak <= budget && peak < sequential); /* tables of kernels are not predicted */
    tern_image_destroy(&a);
    tern_image_destroy(&b);
}

/* Opens, binds and runs; true when all of it went well. */
static bool whole(size_t budget, const struct tern_allocator *a)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = try_open(budget, NULL, a);
    struct tern_pipeline *p = ctx ? tern_pipeline_load(ctx, model_path("sd1", path), NULL) : NULL;
    const struct tern_stage stage = {.component = "unet", .size = size};
    struct tern_binding *b = p ? tern_pipeline_binding(p, &stage) : NULL;
    static float found[VALUES];
    bool good = b && !tern_failed(ctx) && model_try_run(b, found, sizeof(found));
    if (good)
        assert_memory_equal(found, expected, sizeof(found));
    if (!good)
        snprintf(told, sizeof(told), "%s", ctx ? tern_error(ctx) : tern_create_error());
    assert_true(good || !ctx || tern_error_status(ctx) == TERN_E_NO_MEMORY || tern_error_status(ctx) == TERN_E_DEVICE);
    tern_binding_unref(&b);
    if (p)
        tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return good;
}

/* The driver has no host memory for weights, or has it only for the first. */
static void host_memory_fails(void **state)
{
    compute_expected();
    if (!strcmp(device, "cuda")) {
        static const char *const functions[] = {"cuMemHostAlloc", "cuMemHostGetDevicePointer_v2", "cuMemcpyDtoHAsync_v2",
                                                "cuMemcpyHtoDAsync_v2"};
        for (int f = 0; f < 4; f++)
            for (int nth = 1; nth < 12; nth += 5) {
                cuda.standin_fail(functions[f], nth, CUDA_ERROR_OUT_OF_MEMORY);
                whole(budget_for(50), NULL);
                char text[400];
                if (cuda.standin_misuses(text, sizeof(text)) || cuda.standin_leaks(text, sizeof(text)))
                    fail_msg("%s, call %d: %s", functions[f], nth, text);
                cuda_setup(NULL);
            }
    } else if (!strcmp(device, "vulkan")) {
        for (long nth = 1; nth < 12; nth += 2) {
            *vulkan_shim() = (struct vulkan_shim){.discrete = true,
                                                  .fail_at = nth,
                                                  .fail_of = "vkAllocateMemory",
                                                  .fail_with = VULKAN_SHIM_OUT_OF_MEMORY,
                                                  .stays_lost = nth % 4 == 1};
            whole(budget_for(50), NULL);
            assert_int_equal(vulkan_shim()->live, 0);
        }
    } else {
        print_message("the loader of OpenCL has no stand-in whose calls could fail\n");
        skip();
    }
}

/* Allocations of the library fail on the way. */
static void allocations_fail(void **state)
{
    compute_expected();
    struct support_allocator m = {0};
    struct tern_allocator a = support_failing(&m);
    if (!whole(budget_for(50), &a))
        fail_msg("%s", told);
    const long all = m.count;
    int failed = 0;
    for (long n = 1; n < all; n += all / 12) {
        m = (struct support_allocator){.fail_at = n};
        failed += !whole(budget_for(50), &a);
        assert_int_equal(m.live, 0);
    }
    assert_true(failed > 8); /* what fails while it closes fails nothing */
}

static bool is(const char *name) { return !strcmp(device, name); }

static int setup(void **state)
{
    unsetenv("TERN_GPU_LIMITS");
    if (is("vulkan")) {
        vulkan_reset(NULL);
        vulkan_shim()->discrete = true;
    }
    return is("cuda") ? cuda_setup(NULL) : 0;
}

static int teardown(void **state) { return is("cuda") ? cuda_teardown(NULL) : vulkan_shim()->live ? -1 : 0; }

static int group_setup(void **state)
{
    snprintf(cache, sizeof(cache), "/tmp/tern-test-memory-XXXXXX");
    if (!mkdtemp(cache))
        return -1;
    return is("cuda") ? cuda_group_setup(NULL) : is("vulkan") ? vulkan_setup(NULL) : 0;
}

static int group_teardown(void **state)
{
    char command[100];
    snprintf(command, sizeof(command), "rm -rf '%s'", cache);
    int st = is("cuda") ? cuda_group_teardown(NULL) : is("vulkan") ? vulkan_teardown(NULL) : 0;
    return system(command) || st;
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {CASE(weights_lie_where_there_is_room),
                                       CASE(the_driver_decides),
                                       CASE(activations_come_first),
                                       CASE(replays_notice),
                                       CASE(who_runs_comes_first),
                                       CASE(too_little_is_refused),
                                       CASE(weights_are_streamed),
                                       CASE(the_budget_streams),
                                       CASE(host_memory_fails),
                                       CASE(allocations_fail)};
    device = argc > 1 ? argv[1] : "cuda";
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}

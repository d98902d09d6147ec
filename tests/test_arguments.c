/* What is larger than kernels of a device take is read and written in parts: pictures in bands of rows, batches and rows in chunks. On
 * Vulkan by what is bound, on another device that is named by what its texts count; without a name on a CPU that says so of itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "conformance/random_graph.h"
#include "core/context.h"
#include "graph/plan.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "ops/kernels/launch.h"
#include "support.h"

#define NEAR 1e-12          /* NMSE: statistics are rounded once more */
#define NEAR_BY_TILES 1e-10 /* with Winograd, whose tiles begin elsewhere */
#define VALUES (3 * 192 * 280)

static const char *device;

/* Steps of a plan: the largest tensor that one reads or makes, but for weights; how many have one of more than `most` bytes, and how many
 * no kernel computes. */
struct steps {
    size_t largest;
    int all, wider, by_reference;
};

static struct steps steps_of(const struct tern_graph *g, size_t most)
{
    struct steps s = {0};
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_node *n = &g->nodes[i];
        if (n->dead || n->prepare || (n->kind != TERN_CALL_LAUNCH && n->kind != TERN_CALL_REFERENCE))
            continue;
        size_t here = tern_meta_bytes(&n->desc.out);
        for (int k = 0; k < n->desc.n_in; k++)
            if (n->desc.present[k] && !n->desc.constant[k] && tern_meta_bytes(&n->desc.in[k]) > here)
                here = tern_meta_bytes(&n->desc.in[k]);
        s.all++;
        s.wider += here > most;
        s.by_reference += n->kind == TERN_CALL_REFERENCE;
        s.largest = here > s.largest ? here : s.largest;
    }
    return s;
}

/* Tall pictures, batches of 1 to 3. Where a product of the last two dimensions of a picture or a permutation is too large nothing can be
 * cut. */
static void random_graphs_agree(void **state)
{
    struct tern_context *ctx = support_context();
    int cut = 0, whole = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct tern_random_graph r = tern_random_graph_make(ctx, seed, 1);
        tern_tensor *in[4], *expected[TERN_GRAPH_MAX_IO] = {NULL}, *out[TERN_GRAPH_MAX_IO] = {NULL};
        for (int i = 0; i < r.n_inputs; i++)
            r.inputs[i].shape[0] = 1 + (int64_t)(seed % 3);
        r.inputs[0].shape[2] = 33 + (int64_t)(seed % 20);
        tern_scope_begin(ctx);
        tern_random_graph_inputs(&r, seed, in);
        tern_random_graph_fn(&r, in, expected);
        struct tern_graph *g = tern_graph_trace(ctx, tern_random_graph_fn, &r, r.weights, r.inputs, r.n_inputs, r.n_outputs);
        const size_t most = steps_of(g, 0).largest / 2;
        const int before = steps_of(g, most).wider;
        ctx->device->caps.max_argument = most;
        struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.without = "algorithm"});
        ctx->device->caps.max_argument = 0;
        struct tern_binding *b = tern_plan_bind(plan, r.weights);
        if (tern_plan_run(b, in, out))
            fail_msg("graph %llu: %s", (unsigned long long)seed, tern_error(ctx));
        for (int i = 0; expected[i]; i++)
            if (!(support_tensor_nmse(out[i], expected[i]) <= NEAR))
                fail_msg("graph %llu, output %d: NMSE %g", (unsigned long long)seed, i, support_tensor_nmse(out[i], expected[i]));
        const int wider = steps_of(tern_plan_graph(plan), most).wider;
        cut += wider < before;
        whole += wider == before;
        tern_binding_unref(&b);
        tern_plan_unref(&plan);
        tern_scope_end(ctx, NULL);
        tern_graph_destroy(&g);
        tern_random_graph_close(&r);
    }
    print_message("%d of 300 graphs have fewer steps that are too large, %d as many\n", cut, whole);
    assert_true(cut > 200);
    tern_context_destroy(&ctx);
}

/* parts: of the largest tensor, what is left for kernels. A picture that comes in has rows of each colour for itself: the encoder's is
 * taken whole. */
static const struct part_of {
    struct tern_stage stage;
    size_t parts;
} stages[] = {{{.component = "vae_decoder", .size = {1, 192, 280}}, 16},
              {{.component = "vae_decoder", .size = {2, 128, 128}}, 16},
              {{.component = "vae_encoder", .size = {1, 192, 280}}, 4},
              {{.component = "unet", .size = {1, 192, 256}}, 4},
              {{.component = "unet", .size = {4, 128, 128}}, 4}};

static void run_into(struct tern_binding *b, float *found)
{
    const struct tern_graph *g = tern_plan_graph(tern_binding_plan(b));
    const size_t bytes = (size_t)tern_meta_numel(&g->values[g->outputs[0]].meta) * sizeof(*found);
    assert_true(bytes <= VALUES * sizeof(*found));
    memset(found, 0, VALUES * sizeof(*found));
    model_run(b, found, bytes);
}

static struct tern_context *open_context(const char *on)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = on, .threads = 2, .cache_dir = "/proc/none"});
    if (!ctx) {
        print_message("%s\n", tern_create_error());
        skip();
    }
    return ctx;
}

/* Runs a component. most: what kernels of a CPU are said to take, in bytes; 0: all. */
static struct steps run_stage(const char *on, const struct tern_stage *stage, size_t most, float *found)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = open_context(on);
    struct tern_pipeline *p = model_load(ctx, model_path("demo", path));
    if (most)
        ctx->device->caps.max_argument = most;
    struct tern_binding *b = tern_pipeline_binding(p, stage);
    if (!b)
        fail_msg("%s", tern_error(ctx));
    const struct steps s = steps_of(tern_plan_graph(tern_binding_plan(b)), most);
    run_into(b, found);
    tern_binding_unref(&b);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return s;
}

static void agree(const struct tern_stage *stage, const float *found, const float *expected, double limit)
{
    const double e = support_nmse(found, expected, VALUES);
    print_message("%s %d x %d x %d: NMSE %.2g\n", stage->component, stage->size.batch, stage->size.width, stage->size.height, e);
    assert_true(e <= limit);
}

static void components_fit(void **state)
{
    static float expected[VALUES], found[VALUES];
    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++) {
        const struct tern_stage *stage = &stages[i].stage;
        const size_t whole = run_stage("cpu", stage, 0, expected).largest;
        for (size_t part = 2; part <= stages[i].parts; part *= 2) {
            const struct steps s = run_stage("cpu", stage, whole / part, found);
            if (s.wider)
                fail_msg("%s %d x %d: %d steps with more than %zu bytes, up to %zu", stage->component, stage->size.width,
                         stage->size.height, s.wider, whole / part, s.largest);
            agree(stage, found, expected, NEAR_BY_TILES);
        }
    }
}

static void kernels_of_a_device_take_parts(void **state)
{
    static const struct tern_stage stage = {.component = "vae_decoder", .size = {1, 96, 128}};
    static float expected[VALUES], found[VALUES];
    const struct steps whole = run_stage("cpu", &stage, 0, expected);
    setenv("TERN_GPU_LIMITS", "buffer=1M", 1);
    const struct steps s = run_stage(device, &stage, 0, found);
    assert_true(whole.largest > 1 << 20 && s.largest < 1 << 20 && s.all > whole.all);
    assert_int_equal(s.by_reference, 0);
    agree(&stage, found, expected, NEAR_BY_TILES);
}

/* A picture of 2^30 pixels and more in all channels, which kernels count with 32 bits: planned, not computed. */
static void indices_suffice(void **state)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = open_context(device);
    struct tern_pipeline *p = model_load(ctx, model_path("demo", path));
    struct tern_graph *g = tern_pipeline_graph(p, "vae_decoder", &(struct tern_graph_size){1, 8192, 8192});
    const int64_t most = TERN_LAUNCH_MAX_ELEMENTS;
    assert_true(steps_of(g, (size_t)most * sizeof(float)).wider > 0 && steps_of(g, 0).by_reference > 0);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    if (!plan)
        fail_msg("%s", tern_error(ctx));
    const struct steps s = steps_of(tern_plan_graph(plan), (size_t)most * sizeof(float));
    assert_int_equal(s.wider, 0);
    assert_int_equal(s.by_reference, 0);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest on_cpu[] = {cmocka_unit_test(random_graphs_agree), cmocka_unit_test(components_fit)};
    const struct CMUnitTest bound[] = {cmocka_unit_test(kernels_of_a_device_take_parts)}, counted[] = {cmocka_unit_test(indices_suffice)};
    device = argc > 1 ? argv[1] : "cpu";
    return !strcmp(device, "vulkan") ? cmocka_run_group_tests(bound, NULL, NULL)
           : !strcmp(device, "cpu")  ? cmocka_run_group_tests(on_cpu, NULL, NULL)
                                     : cmocka_run_group_tests(counted, NULL, NULL);
}

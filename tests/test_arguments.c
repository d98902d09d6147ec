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

/* ---- nets of a few ops */

enum net { CONVS, DOWN, LAYERS, CASTS, NETS };

struct made {
    enum net net;
    int layers;
    tern_tensor *filter, *matrix, *back;
};

static enum tern_status make(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct made *m = user;
    tern_tensor *x = m->net == LAYERS ? in[0] : tern_contiguous(in[0], TERN_CHANNELS_LAST);
    for (int i = 0; i < m->layers; i++)
        switch (m->net) {
        case CONVS:
            x = tern_conv2d(x, m->filter, NULL, .padding = 1);
            break;
        case DOWN: /* the end of a level of an encoder */
            x = tern_conv2d(tern_silu(x), m->filter, NULL, .padding = 1);
            x = tern_conv2d(tern_pad(x, 4, (const int64_t[]){0, 1, 0, 1}, 0), m->filter, NULL, .stride = 2);
            break;
        case LAYERS: /* feed-forward */
            x = tern_add(x, tern_linear(tern_gelu(tern_linear(x, m->matrix, NULL), TERN_GELU_NONE), m->back, NULL));
            break;
        default:
            x = tern_cast(tern_cast(tern_conv2d(x, m->filter, NULL, .padding = 1), TERN_BF16), TERN_F32);
        }
    out[0] = m->net == LAYERS ? x : tern_contiguous(x, TERN_CONTIGUOUS);
    return tern_error_status(tern_tensor_context(x));
}

/* Kernels take so many hundredths of the largest tensor, and the arena, if not 0, is to; most: times the arithmetic of the whole. */
static void check_net(enum net net, int layers, int64_t batch, int64_t high, int hundredths, int arena, double most)
{
    struct tern_context *ctx = support_context();
    tern_scope_begin(ctx);
    struct made m = {.net = net,
                     .layers = layers,
                     .filter = support_noise(ctx, 1, 4, (const int64_t[]){8, 8, 3, 3}, 0.1, TERN_F32),
                     .matrix = support_noise(ctx, 2, 2, (const int64_t[]){64, 8}, 0.2, TERN_F32),
                     .back = support_noise(ctx, 3, 2, (const int64_t[]){8, 64}, 0.1, TERN_F32)};
    const struct tern_graph_input of_layers = {"x", TERN_F32, 3, {batch, high, 8}}, picture = {"x", TERN_F32, 4, {batch, 8, high, 12}};
    const struct tern_graph_input *input = net == LAYERS ? &of_layers : &picture;
    tern_tensor *x = support_noise(ctx, 4, input->ndim, input->shape, 1, TERN_F32), *expected = NULL, *out = NULL;
    make(&m, &x, &expected);
    struct tern_graph *g = tern_graph_trace(ctx, make, &m, NULL, input, 1, 1);
    const size_t largest = steps_of(g, 0).largest, limit = largest * (size_t)hundredths / 100;
    double work = 0, now = 0;
    for (int i = 0; i < g->n_nodes; i++)
        work += tern_desc_flops(&g->nodes[i].desc);
    ctx->device->caps.max_argument = limit;
    struct tern_plan *plan =
        tern_plan_compile(g, &(struct tern_plan_params){.without = "algorithm", .arena = largest * (size_t)arena / 100});
    ctx->device->caps.max_argument = 0;
    struct tern_binding *b = tern_plan_bind(plan, NULL);
    if (tern_plan_run(b, &x, &out))
        fail_msg("%s", tern_error(ctx));
    const struct tern_graph *made = tern_plan_graph(plan);
    for (int i = 0; i < made->n_nodes; i++)
        now += made->nodes[i].dead ? 0 : tern_desc_flops(&made->nodes[i].desc);
    int wider = 0; /* what comes in and goes out in rows of each channel is the caller's */
    for (int i = 0; i < made->n_nodes; i++)
        wider += !made->nodes[i].dead && tern_node_computes(&made->nodes[i]) && made->nodes[i].desc.op != TERN_OP_contiguous &&
                 tern_meta_bytes(&made->nodes[i].desc.out) > limit;
    print_message("net %d of %d, batch %d, %d rows, %d %%: %d of %d steps too large, %.2f of the work, NMSE %.1e\n", (int)net, layers,
                  (int)batch, (int)high, hundredths, wider, steps_of(made, limit).all, now / work, support_tensor_nmse(out, expected));
    assert_true(wider == 0 && now <= most * work && support_tensor_nmse(out, expected) <= NEAR);
    tern_scope_end(ctx, NULL);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_context_destroy(&ctx);
}

static void nets_fit(void **state)
{
    check_net(CONVS, 3, 1, 256, 40, 0, 1.1);
    check_net(CONVS, 3, 4, 24, 40, 0, 1.01); /* one picture and a half */
    check_net(CONVS, 3, 5, 24, 28, 0, 1.01);
    check_net(CONVS, 3, 16, 24, 10, 0, 1.01); /* more than a cat joins */
    check_net(CONVS, 100, 1, 512, 20, 0, 1.5);
    check_net(DOWN, 3, 1, 320, 45, 0, 1.3);
    check_net(DOWN, 1, 1, 320, 50, 0, 1.3); /* a band of half of it reads one row more */
    check_net(LAYERS, 2, 1, 999, 90, 0, 1.01);
    check_net(LAYERS, 2, 1, 999, 11, 0, 1.01);
    check_net(LAYERS, 2, 3, 100, 7, 0, 1.01);
    check_net(CASTS, 3, 1, 256, 40, 0, 1.2);
    check_net(CONVS, 24, 1, 512, 15, 100, 3);
    check_net(LAYERS, 99, 1, 999, 8, 0, 1.01);
}

/* A layer without outputs beside another of the same input. */
static enum tern_status trace_weights(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_linear(in[0], tern_weights_get(user, "none"), NULL);
    out[1] = tern_linear(in[0], tern_weights_get(user, "some"), NULL);
    return out[1] ? TERN_OK : TERN_E_INVALID;
}

static void layers_without_outputs_are_merged(void **state)
{
    struct tern_context *ctx = support_context();
    const struct tern_graph_input in[] = {{"x", TERN_F32, 2, {4, 8}}};
    struct tern_weights *w = tern_weights_create(ctx);
    tern_tensor *none = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){0, 8}, NULL),
                *some = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){3, 8}, NULL);
    assert_true(!tern_weights_add(w, "none", none) && !tern_weights_add(w, "some", some));
    ctx->device->caps.merges = true;
    ctx->device->caps.max_argument = 1 << 20;
    struct tern_graph *g = tern_graph_trace(ctx, trace_weights, w, w, in, 1, 2);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    if (!plan)
        fail_msg("%s", tern_error(ctx));
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_tensor_unref(&none);
    tern_tensor_unref(&some);
    tern_weights_unref(&w);
    tern_context_destroy(&ctx);
}

/* ---- components of the demo model */

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
    const struct CMUnitTest on_cpu[] = {cmocka_unit_test(random_graphs_agree), cmocka_unit_test(nets_fit),
                                        cmocka_unit_test(layers_without_outputs_are_merged), cmocka_unit_test(components_fit)};
    const struct CMUnitTest bound[] = {cmocka_unit_test(kernels_of_a_device_take_parts)}, counted[] = {cmocka_unit_test(indices_suffice)};
    device = argc > 1 ? argv[1] : "cpu";
    return !strcmp(device, "vulkan") ? cmocka_run_group_tests(bound, NULL, NULL)
           : !strcmp(device, "cpu")  ? cmocka_run_group_tests(on_cpu, NULL, NULL)
                                     : cmocka_run_group_tests(counted, NULL, NULL);
}

/* Whole networks as plans: the same bits as eagerly, or as near as another algorithm for convolutions comes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "damage.h"
#include "graph/graph.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "support.h"
#include "xl_help.h"

static tern_tensor *noise(struct tern_context *ctx, const struct tern_graph_input *in, uint64_t seed)
{
    struct tern_generator g;
    int64_t n = 1;
    for (int i = 0; i < in->ndim; i++)
        n *= in->shape[i];
    float *values = calloc((size_t)n, sizeof(*values));
    assert_non_null(values);
    tern_generator_seed(&g, TERN_GENERATOR_CPU, seed);
    tern_generator_randn(&g, values, n);
    for (int64_t i = 0; in->dtype == TERN_I64 && i < n; i++)
        values[i] = (float)(i * 7 % 90 + 3);
    tern_tensor *t = tern_cast(tern_tensor_create(ctx, TERN_F32, in->ndim, in->shape, values), in->dtype);
    free(values);
    return t;
}

/* The eager forward pass on the inputs of the graph. */
static void eager(struct tern_pipeline *p, const char *component, tern_tensor *const *in, tern_tensor **out)
{
    struct tern_text_output o;
    if (!strncmp(component, "text_encoder", 12)) {
        assert_int_equal(tern_text_forward(component[12] ? p->text_2 : p->text, &(struct tern_text_input){in[0], NULL}, &o), TERN_OK);
        out[0] = o.last_hidden_state;
        for (int i = 0; i < o.n_hidden; i++)
            out[i + 1] = o.hidden_states[i];
    } else if (!strcmp(component, "unet")) {
        out[0] = tern_unet_forward(p->unet, in[0], &(struct tern_unet_conditions){in[1], p->xl ? in[3] : NULL}, in[2], NULL);
    } else if (!strcmp(component, "vae_decoder")) {
        out[0] = tern_vae_decode(p->vae, in[0]);
    } else {
        tern_vae_encode(p->vae, in[0], &out[0], &out[1]);
    }
}

static void count_planned(void *user, const struct tern_step_profile *step)
{
    *(int *)user += !strcmp(step->kernel, "conv2d_f32_winograd");
}

/* Outputs of the plan without some passes ("": with all): the bits of the eager ones, or within the limit. How many convolutions took
 * the algorithm that only plans take. */
static int run_and_compare(struct tern_pipeline *p, const char *component, const struct tern_graph *g, const char *without,
                           tern_tensor *const *in, tern_tensor *const *expected)
{
    tern_tensor *out[TERN_GRAPH_MAX_IO] = {NULL};
    int planned = 0;
    struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.without = *without ? without : NULL});
    struct tern_binding *b = tern_plan_bind(plan, tern_pipeline_weights(p, component));
    if (!b || tern_plan_profile(b, in, out, count_planned, &planned))
        fail_msg("%s: %s", component, tern_error(p->ctx));
    for (int i = 0; i < g->n_outputs; i++) {
        int64_t n = tern_tensor_numel(expected[i]);
        float *x = calloc((size_t)n, sizeof(*x)), *y = calloc((size_t)n, sizeof(*y));
        assert_int_equal(tern_tensor_numel(out[i]), n);
        tern_tensor_read(expected[i], TERN_F32, x, (size_t)n * sizeof(*x));
        tern_tensor_read(out[i], TERN_F32, y, (size_t)n * sizeof(*y));
        const bool bf16 = p->params.dtype == TERN_BF16, fused = bf16 && !strstr(without, "fuse");
        const double limit = fused ? 2e-3 : bf16 ? 2e-4 : 1e-10; /* fused: a post spares a rounding; as far as bf16 may be from f32 */
        if (!planned && !fused)
            assert_memory_equal(x, y, (size_t)n * sizeof(*x));
        else if (!(support_nmse(y, x, n) <= limit))
            fail_msg("%s without \"%s\"%s: %g of %g", component, without, bf16 ? " in bf16" : "", support_nmse(y, x, n), limit);
        free(x);
        free(y);
    }
    struct tern_plan_facts f = tern_plan_facts(plan);
    assert_true(f.arena >= f.least_arena);
    if ((double)f.arena > 1.10 * (double)f.least_arena)
        fail_msg("%s: arena %zu, least %zu", component, f.arena, f.least_arena);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    return planned;
}

/* How many convolutions of the whole plan took the other algorithm. */
static int check(struct tern_pipeline *p, const char *component, const struct tern_graph_size *size)
{
    struct tern_context *ctx = p->ctx;
    tern_tensor *in[4] = {NULL}, *expected[TERN_GRAPH_MAX_IO] = {NULL};
    struct tern_graph *g = tern_pipeline_graph(p, component, size);
    if (!g)
        fail_msg("%s: %s", component, tern_error(ctx));
    tern_scope_begin(ctx);
    for (int i = 0; i < g->n_inputs; i++) {
        const struct tern_value *v = &g->values[g->inputs[i]];
        struct tern_graph_input like = {v->name, v->meta.dtype, v->meta.ndim, {0}};
        memcpy(like.shape, v->meta.shape, sizeof(like.shape));
        in[i] = noise(ctx, &like, (uint64_t)i);
    }
    eager(p, component, in, expected);
    assert_int_equal(run_and_compare(p, component, g, "algorithm", in, expected), 0);
    assert_int_equal(run_and_compare(p, component, g, "algorithm,fuse", in, expected), 0);
    int planned = run_and_compare(p, component, g, "", in, expected);
    tern_scope_end(ctx, NULL);
    tern_graph_destroy(&g);
    return planned;
}

static void plans_give_what_runs_eagerly(void **state)
{
    static const char *const components[] = {"text_encoder", "unet", "vae_decoder", "vae_encoder", "text_encoder_2"};
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_BF16};
    char path[PATH_SIZE];
    int planned = 0;
    bool made = !strncmp(*state, "sdxl-", 5) || !strcmp(*state, "sd1-pix2pix"); /* of differences */
    for (int d = 0; d < 2; d++) {
        struct tern_context *ctx = model_context(NULL, 1);
        if (made)
            xl_folder(ctx, *state, path);
        else
            model_path(*state, path);
        struct tern_pipeline *p = tern_pipeline_load(ctx, path, &(struct tern_pipeline_params){.dtype = dtypes[d]});
        assert_non_null(p);
        for (int i = p->second_only; i < (p->xl ? 5 : 4); i++) {
            planned += check(p, components[i], NULL);
            planned += check(p, components[i], &(struct tern_graph_size){3, 72, 56});
        }
        assert_null(tern_pipeline_graph(p, "unet", &(struct tern_graph_size){1, 71, 64}));
        support_error(ctx, TERN_E_INVALID, "multiples of");
        assert_null(tern_pipeline_graph(p, "controlnet", NULL));
        support_error(ctx, TERN_E_NOT_FOUND, "there are text_encoder, unet");
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
        if (made)
            damage_remove(path);
    }
    print_message("%d convolutions took the planned kernel\n", planned);
    assert_int_equal(planned > 10, !strcmp(*state, "demo")); /* the others have hardly a layer with enough channels */
}

/* SDXL's VAE leaves the range of f16. */
static void the_vae_of_sdxl_does_not_compute_in_f16(void **state)
{
    static const char *const models[] = {"sd1", "sdxl"};
    char path[PATH_SIZE];
    for (int i = 0; i < 2; i++) {
        struct tern_context *ctx = model_context(NULL, 1);
        struct tern_pipeline *p = tern_pipeline_load(ctx, model_path(models[i], path), &(struct tern_pipeline_params){.dtype = TERN_F16});
        struct tern_graph *vae = tern_pipeline_graph(p, "vae_decoder", NULL), *unet = tern_pipeline_graph(p, "unet", NULL);
        assert_int_equal(vae->values[vae->inputs[0]].meta.dtype, i ? TERN_F32 : TERN_F16);
        assert_int_equal(unet->values[unet->inputs[0]].meta.dtype, TERN_F16);
        tern_graph_destroy(&vae);
        tern_graph_destroy(&unet);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"sd1", plans_give_what_runs_eagerly, NULL, NULL, (void *)(uintptr_t) "sd1"},
        {"sd1-heads", plans_give_what_runs_eagerly, NULL, NULL, (void *)(uintptr_t) "sd1-heads"},
        {"sd2", plans_give_what_runs_eagerly, NULL, NULL, (void *)(uintptr_t) "sd2"},
        {"sdxl", plans_give_what_runs_eagerly, NULL, NULL, (void *)(uintptr_t) "sdxl"},
        {"sdxl-inpaint", plans_give_what_runs_eagerly, NULL, NULL, (void *)(uintptr_t) "sdxl-inpaint"},
        {"sd1-pix2pix", plans_give_what_runs_eagerly, NULL, NULL, (void *)(uintptr_t) "sd1-pix2pix"},
        {"sdxl-pix2pix", plans_give_what_runs_eagerly, NULL, NULL, (void *)(uintptr_t) "sdxl-pix2pix"},
        {"sdxl-refiner", plans_give_what_runs_eagerly, NULL, NULL, (void *)(uintptr_t) "sdxl-refiner"},
        cmocka_unit_test(the_vae_of_sdxl_does_not_compute_in_f16),
        {"demo", plans_give_what_runs_eagerly, NULL, NULL, (void *)(uintptr_t) "demo"},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

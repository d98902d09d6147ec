/* tern_pipeline_exec: what it takes and gives, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "model_help.h"
#include "support.h"

struct fixture {
    struct tern_context *ctx;
    struct tern_pipeline *p; /* sd1 */
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    char path[PATH_SIZE];
    f->ctx = model_context(NULL, 1);
    f->p = model_load(f->ctx, model_path("sd1", path));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    tern_pipeline_destroy(&f->p);
    tern_context_destroy(&f->ctx);
    free(f);
    return 0;
}

/* An input of zeros; name NULL ends a list. */
struct input {
    const char *name;
    enum tern_dtype dtype;
    int ndim;
    int64_t shape[5];
};

static struct tern_weights *make_inputs(struct fixture *f, const struct input *in)
{
    struct tern_weights *w = tern_weights_create(f->ctx);
    for (; in->name; in++) {
        tern_tensor *t = tern_tensor_create(f->ctx, in->dtype, in->ndim, in->shape, NULL);
        assert_int_equal(tern_weights_add(w, in->name, t), TERN_OK);
        tern_tensor_unref(&t);
    }
    return w;
}

static void refused(struct fixture *f, const char *component, const struct input *in, enum tern_status status, const char *part)
{
    struct tern_weights *w = make_inputs(f, in), *out = tern_pipeline_exec(f->p, component, w);
    if (out)
        fail_msg("%s: ran, expected \"%s\"", component, part);
    if (component)
        assert_non_null(strstr(tern_error(f->ctx), component[0] == 'v' ? "vae" : component));
    support_error(f->ctx, status, part);
    tern_weights_unref(&w);
}
#define REFUSED(f, component, status, part, ...) refused(f, component, (const struct input[]){__VA_ARGS__, {NULL, 0, 0, {0}}}, status, part)

#define SAMPLE                                \
    {                                         \
        "sample", TERN_F32, 4, { 1, 4, 4, 4 } \
    }
#define TIMESTEP                       \
    {                                  \
        "timestep", TERN_I64, 1, { 1 } \
    }
#define STATES                                             \
    {                                                      \
        "encoder_hidden_states", TERN_F32, 3, { 1, 5, 40 } \
    }
#define IDS                                \
    {                                      \
        "input_ids", TERN_I64, 2, { 1, 4 } \
    }

static void unknown_components(void **state)
{
    struct fixture *f = *state;
    REFUSED(f, "transformer", TERN_E_NOT_FOUND, "expected text_encoder, unet, vae_decoder or vae_encoder", SAMPLE);
    REFUSED(f, "", TERN_E_NOT_FOUND, "expected text_encoder, unet", SAMPLE);
    REFUSED(f, NULL, TERN_E_NOT_FOUND, "expected text_encoder, unet", SAMPLE);
}

/* A model with one text encoder has no second; SDXL's UNet wants what that gives. */
static void second_encoders_are_those_of_sdxl(void **state)
{
    struct fixture *f = *state;
    char path[PATH_SIZE];
    struct fixture xl = {f->ctx, model_load(f->ctx, model_path("sdxl", path))};
    REFUSED(f, "text_encoder_2", TERN_E_NOT_FOUND, "has no component \"text_encoder_2\"", IDS);
    REFUSED(&xl, "text_encoder_2", TERN_E_SHAPE, "text_encoder_2: input_ids: expected (N, L) i64", {"input_ids", TERN_I64, 1, {5}});
    REFUSED(&xl, "unet", TERN_E_INVALID, "input \"text_embeds\" is missing", SAMPLE, TIMESTEP, STATES);
    REFUSED(&xl, "unet", TERN_E_INVALID, "time_ids (N, K)", SAMPLE, TIMESTEP, STATES, {"text_embeds", TERN_F32, 2, {1, 20}},
            {"time_ids", TERN_F32, 2, {1, 5}});
    REFUSED(&xl, "unet", TERN_E_INVALID, "time_ids (N, K)", SAMPLE, TIMESTEP, STATES, {"text_embeds", TERN_F32, 1, {20}},
            {"time_ids", TERN_F32, 2, {1, 6}});
    REFUSED(&xl, "unet", TERN_E_INVALID, "time_ids (N, K)", SAMPLE, TIMESTEP, STATES, {"text_embeds", TERN_F32, 2, {1, 21}},
            {"time_ids", TERN_F32, 2, {1, 6}});
    REFUSED(&xl, "unet", TERN_E_INVALID, "time_ids (N, K)", SAMPLE, TIMESTEP, STATES, {"text_embeds", TERN_F32, 2, {2, 20}},
            {"time_ids", TERN_F32, 2, {1, 6}});
    tern_pipeline_destroy(&xl.p);
}

static void inputs_missing_and_left_over(void **state)
{
    struct fixture *f = *state;
    REFUSED(f, "unet", TERN_E_INVALID, "input \"timestep\" is missing", SAMPLE, STATES);
    REFUSED(f, "unet", TERN_E_INVALID, "expected sample, timestep and encoder_hidden_states, found another input, \"input_ids\"", SAMPLE,
            IDS, TIMESTEP, STATES);
    REFUSED(f, "unet", TERN_E_INVALID, "found another input, \"time_ids\"", SAMPLE, TIMESTEP, STATES,
            {"time_ids", TERN_F32, 2, {1, 6}}); /* SDXL's */
    REFUSED(f, "text_encoder", TERN_E_INVALID, "input \"input_ids\" is missing", {"attention_mask", TERN_I64, 2, {1, 4}});
    REFUSED(f, "vae_decoder", TERN_E_INVALID, "input \"latent\" is missing", SAMPLE);
    REFUSED(f, "vae_encoder", TERN_E_INVALID, "expected sample", {"sample", TERN_F32, 4, {1, 3, 8, 8}}, IDS);
    struct tern_weights *none = tern_weights_create(f->ctx);
    assert_null(tern_pipeline_exec(f->p, "unet", none));
    support_error(f->ctx, TERN_E_INVALID, "input \"sample\" is missing");
    tern_weights_unref(&none);
}

static void wrong_unet_inputs(void **state)
{
    struct fixture *f = *state;
    REFUSED(f, "unet", TERN_E_SHAPE, "sample: expected (N, 4, H, W), found (1, 3, 4, 4) f32", {"sample", TERN_F32, 4, {1, 3, 4, 4}},
            TIMESTEP, STATES);
    REFUSED(f, "unet", TERN_E_SHAPE, "found (4, 4, 4) f32", {"sample", TERN_F32, 3, {4, 4, 4}}, TIMESTEP, STATES);
    REFUSED(f, "unet", TERN_E_SHAPE, "found (1, 4, 0, 4) f32", {"sample", TERN_F32, 4, {1, 4, 0, 4}}, TIMESTEP, STATES);
    REFUSED(f, "unet", TERN_E_SHAPE, "found () f32", {"sample", TERN_F32, 0, {0}}, TIMESTEP, STATES);
    REFUSED(f, "unet", TERN_E_SHAPE, "timestep: expected 1 or 1 values, found 2", SAMPLE, {"timestep", TERN_F32, 1, {2}}, STATES);
    REFUSED(f, "unet", TERN_E_SHAPE, "timestep: expected 1..256 values, found 0", SAMPLE, {"timestep", TERN_F32, 1, {0}}, STATES);
    REFUSED(f, "unet", TERN_E_SHAPE, "timestep: expected 1..256 values, found 257", SAMPLE, {"timestep", TERN_F32, 1, {257}}, STATES);
    REFUSED(f, "unet", TERN_E_SHAPE, "encoder_hidden_states: expected (1, L, 40), found (1, 5, 39) f32", SAMPLE, TIMESTEP,
            {"encoder_hidden_states", TERN_F32, 3, {1, 5, 39}});
    REFUSED(f, "unet", TERN_E_SHAPE, "found (2, 5, 40) f32", SAMPLE, TIMESTEP, {"encoder_hidden_states", TERN_F32, 3, {2, 5, 40}});
    REFUSED(f, "unet", TERN_E_SHAPE, "found (1, 0, 40) f32", SAMPLE, TIMESTEP, {"encoder_hidden_states", TERN_F32, 3, {1, 0, 40}});
    REFUSED(f, "unet", TERN_E_SHAPE, "found (40,) f32", SAMPLE, TIMESTEP, {"encoder_hidden_states", TERN_F32, 1, {40}});
}

static void wrong_vae_inputs(void **state)
{
    struct fixture *f = *state;
    REFUSED(f, "vae_decoder", TERN_E_SHAPE, "latent: expected (N, 4, H, W), H and W at least 1, found (1, 16, 2, 2) f32",
            {"latent", TERN_F32, 4, {1, 16, 2, 2}});
    REFUSED(f, "vae_decoder", TERN_E_SHAPE, "found (0, 4, 2, 2) f32", {"latent", TERN_F32, 4, {0, 4, 2, 2}});
    REFUSED(f, "vae_encoder", TERN_E_SHAPE, "sample: expected (N, 3, H, W), H and W at least 8, found (1, 4, 8, 8) f32",
            {"sample", TERN_F32, 4, {1, 4, 8, 8}});
    REFUSED(f, "vae_encoder", TERN_E_SHAPE, "found (1, 3, 8, 0) f32", {"sample", TERN_F32, 4, {1, 3, 8, 0}});
    REFUSED(f, "vae_encoder", TERN_E_SHAPE, "found (1, 3, 7, 8) f32", {"sample", TERN_F32, 4, {1, 3, 7, 8}});
}

/* An error there would be none of the pipeline's. */
static void inputs_of_another_context(void **state)
{
    struct fixture *f = *state;
    struct tern_context *other = support_context();
    struct tern_weights *w = tern_weights_create(f->ctx);
    tern_tensor *t = tern_tensor_create(other, TERN_F32, 4, (const int64_t[]){1, 4, 2, 2}, NULL);
    assert_int_equal(tern_weights_add(w, "latent", t), TERN_OK);
    assert_null(tern_pipeline_exec(f->p, "vae_decoder", w));
    support_error(f->ctx, TERN_E_INVALID, "vae_decoder: input \"latent\": expected a tensor of the pipeline's context");
    assert_int_equal(tern_error_status(other), TERN_OK);
    tern_tensor_unref(&t);
    tern_weights_unref(&w);
    tern_context_destroy(&other);
}

static void refused_ids(struct fixture *f, const int64_t *ids, int64_t n, enum tern_status status, const char *part)
{
    struct tern_weights *w = tern_weights_create(f->ctx);
    tern_tensor *t = tern_tensor_create(f->ctx, TERN_I64, 2, (const int64_t[]){1, n}, ids);
    tern_weights_add(w, "input_ids", t);
    tern_tensor_unref(&t);
    assert_null(tern_pipeline_exec(f->p, "text_encoder", w));
    support_error(f->ctx, status, part);
    tern_weights_unref(&w);
}

static void wrong_text_inputs(void **state)
{
    struct fixture *f = *state;
    REFUSED(f, "text_encoder", TERN_E_SHAPE, "input_ids: expected (N, L) i64, found (4,) i64", {"input_ids", TERN_I64, 1, {4}});
    REFUSED(f, "text_encoder", TERN_E_SHAPE, "found (1, 4) f32", {"input_ids", TERN_F32, 2, {1, 4}});
    REFUSED(f, "text_encoder", TERN_E_SHAPE, "found (1, 0) i64", {"input_ids", TERN_I64, 2, {1, 0}});
    REFUSED(f, "text_encoder", TERN_E_SHAPE, "expected 1..32 ids a text, found 33", {"input_ids", TERN_I64, 2, {1, 33}});
    REFUSED(f, "text_encoder", TERN_E_SHAPE, "attention_mask: expected the shape of input_ids, (1, 4), found (1, 5)", IDS,
            {"attention_mask", TERN_I64, 2, {1, 5}});
    REFUSED(f, "text_encoder", TERN_E_SHAPE, "attention_mask: expected (N, L) i64, found (1, 4) f32", IDS,
            {"attention_mask", TERN_F32, 2, {1, 4}});
    refused_ids(f, (const int64_t[]){0, 663, 664}, 3, TERN_E_INVALID, "id 664 at position 2: expected 0..663");
    refused_ids(f, (const int64_t[]){0, -1}, 2, TERN_E_INVALID, "id -1 at position 1: expected 0..663");
    refused_ids(f, (const int64_t[]){INT64_MAX}, 1, TERN_E_INVALID, "id 9223372036854775807 at position 0");
}

/* Any dtype of the right kind is taken, and the result is contiguous f32. */
static void dtypes_are_converted(void **state)
{
    static const struct input ids[][2] = {{{"input_ids", TERN_I32, 2, {2, 6}}},
                                          {{"input_ids", TERN_U8, 2, {2, 6}}},
                                          {{"input_ids", TERN_I64, 2, {2, 6}}}};
    struct fixture *f = *state;
    for (int i = 0; i < 3; i++) {
        struct tern_weights *w = make_inputs(f, ids[i]), *out = model_exec(f->p, "text_encoder", w);
        assert_int_equal(tern_weights_count(out), 2 + 4); /* last, pooled, three layers and the embedding */
        assert_int_equal(tern_tensor_dtype(tern_weights_get(out, "pooler_output")), TERN_F32);
        assert_memory_equal(tern_tensor_shape(tern_weights_get(out, "pooler_output")), ((const int64_t[]){2, 40}), 16);
        assert_memory_equal(tern_tensor_shape(tern_weights_get(out, "hidden_states.3")), ((const int64_t[]){2, 6, 40}), 24);
        tern_weights_unref(&w);
        tern_weights_unref(&out);
    }
    struct tern_weights *w = make_inputs(f, (const struct input[]){{"latent", TERN_F16, 4, {1, 4, 2, 2}}, {NULL, 0, 0, {0}}});
    struct tern_weights *out = model_exec(f->p, "vae_decoder", w);
    const tern_tensor *t = tern_weights_get(out, "sample");
    assert_memory_equal(tern_tensor_shape(t), ((const int64_t[]){1, 3, 16, 16}), 32);
    assert_memory_equal(tern_tensor_strides(t), ((const int64_t[]){768, 256, 16, 1}), 32);
    tern_weights_unref(&w);
    tern_weights_unref(&out);
}

/* Runs leave nothing behind but packed weights, which are made once. */
static void runs_do_not_leak(void **state)
{
    struct fixture *f = *state;
    struct tern_weights *w = make_inputs(f, (const struct input[]){SAMPLE, TIMESTEP, STATES, {NULL, 0, 0, {0}}});
    size_t used = 0;
    for (int i = 0; i < 4; i++) {
        struct tern_weights *out = model_exec(f->p, "unet", w);
        tern_weights_unref(&out);
        tern_memory_trim(f->ctx);
        if (i)
            assert_int_equal(tern_memory_used(f->ctx), used);
        used = tern_memory_used(f->ctx);
    }
    tern_weights_unref(&w);
}

/* The outputs of a component, and what stays in memory behind the run. `tight`: the budget holds one byte less than all its weights. */
static struct tern_weights *run_once(const struct tern_pipeline_params *params, bool tight, const char *component, const struct input *in,
                                     struct fixture *f, size_t *left)
{
    char path[PATH_SIZE];
    f->ctx = tern_context_create(&(struct tern_context_params){.threads = 2});
    f->p = tern_pipeline_load(f->ctx, model_path("demo", path), params);
    assert_non_null(f->p);
    struct tern_weights *w = make_inputs(f, in);
    const struct tern_weights *own = tern_pipeline_weights(f->p, component);
    size_t budget = tern_memory_used(f->ctx) - 1;
    for (int64_t k = 0; k < tern_weights_count(own); k++)
        budget += (size_t)tern_tensor_numel(tern_weights_at(own, k)) * sizeof(float);
    f->ctx->params.budget = tight ? budget : 0;
    struct tern_weights *out = tern_pipeline_exec(f->p, component, w);
    if (!out)
        fail_msg("%s: %s", component, tern_error(f->ctx));
    tern_memory_trim(f->ctx);
    *left = tern_memory_used(f->ctx);
    tern_weights_unref(&w);
    return out;
}

/* A pipeline of one use keeps no prepared weight, nor does one whose budget does not hold them all; the bits are the same. */
static void weights_that_only_pass(void **state)
{
    static const struct {
        const char *component;
        struct input in[8];
    } rows[] = {
        {"text_encoder", {{"input_ids", TERN_I64, 2, {1, 16}}, {0}}},
        {"unet",
         {{"sample", TERN_F32, 4, {1, 4, 8, 8}}, {"timestep", TERN_F32, 1, {1}}, {"encoder_hidden_states", TERN_F32, 3, {1, 16, 160}}, {0}}},
        {"vae_decoder", {{"latent", TERN_F32, 4, {1, 4, 4, 4}}, {0}}},
    };
    for (int r = 0; r < 6; r++) {
        const struct tern_pipeline_params kept = {.quantize = r > 2 ? "*" : NULL}, single = {.quantize = kept.quantize, .single_use = true};
        struct fixture f[3];
        struct tern_weights *out[3];
        size_t left[3];
        out[0] = run_once(&kept, false, rows[r % 3].component, rows[r % 3].in, &f[0], &left[0]);
        out[1] = run_once(&single, false, rows[r % 3].component, rows[r % 3].in, &f[1], &left[1]);
        out[2] = run_once(&kept, true, rows[r % 3].component, rows[r % 3].in, &f[2], &left[2]);
        print_message("%s: %zu bytes stay of what all take, %zu of one use, %zu under a budget\n", rows[r % 3].component, left[0], left[1],
                      left[2]);
        for (int i = 1; i < 3; i++) {
            assert_true(left[i] < left[0]);
            for (int64_t k = 0; k < tern_weights_count(out[0]); k++) {
                const tern_tensor *a = tern_weights_at(out[0], k), *b = tern_weights_at(out[i], k);
                const size_t bytes = (size_t)tern_tensor_numel(a) * sizeof(float);
                float *x = malloc(2 * bytes);
                assert_int_equal(tern_tensor_read(a, TERN_F32, x, bytes), TERN_OK);
                assert_int_equal(tern_tensor_read(b, TERN_F32, (char *)x + bytes, bytes), TERN_OK);
                assert_memory_equal(x, (char *)x + bytes, bytes);
                free(x);
            }
        }
        for (int i = 0; i < 3; i++) {
            tern_weights_unref(&out[i]);
            teardown(&(void *){memcpy(malloc(sizeof(*f)), &f[i], sizeof(*f))});
        }
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(unknown_components),
        TEST(second_encoders_are_those_of_sdxl),
        TEST(inputs_missing_and_left_over),
        TEST(wrong_unet_inputs),
        TEST(wrong_vae_inputs),
        TEST(wrong_text_inputs),
        TEST(dtypes_are_converted),
        TEST(runs_do_not_leak),
        TEST(inputs_of_another_context),
        cmocka_unit_test(weights_that_only_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

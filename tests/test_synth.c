/* Synthesised checkpoints: as many parameters as the published models, and single files that are recognised as them. Nothing is written:
 * full sizes are gigabytes. */
#include "weights_help.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tern/pipeline.h>

#include "core/tensor.h"
#include "models/files/weights.h"
#include "models/pipelines/synth.h"
#include "support.h"

static int64_t parameters(const struct tern_synth_list *l)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < l->count; i++) {
        int64_t n = 1;
        for (int k = 0; k < l->entry[i].ndim; k++)
            n *= l->entry[i].shape[k];
        sum += n;
    }
    return sum;
}

static struct tern_synth_list list(struct fixture *f, const struct tern_ldm_sizes *ldm)
{
    return (struct tern_synth_list){.ctx = f->ctx, .dtype = TERN_F16, .ldm = ldm};
}

/* As the model cards and diffusers count them. */
static void parameters_are_those_of_the_published_models(void **state)
{
    static const struct {
        const char *arch;
        int64_t components[TERN_SYNTH_COMPONENTS]; /* unet, vae, text encoders */
    } rows[] = {
        {"sd15", {859520964, 83653863, 123060480, 0}},
        {"sd2", {865910724, 83653863, 340387840, 0}},
        {"sdxl", {2567463684, 83653863, 123060480, 694659840}},
        {"taiyi", {859520964, 83653863, 102267648, 0}},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct tern_synth_arch *arch = tern_synth_arch_find(f->ctx, rows[i].arch);
        assert_non_null(arch);
        for (int k = 0; k < TERN_SYNTH_COMPONENTS && arch->components[k].name; k++) {
            struct tern_synth_list l = list(f, NULL);
            tern_synth_list_add(&l, &arch->components[k]);
            assert_int_equal(parameters(&l), rows[i].components[k]);
            tern_synth_list_free(&l);
        }
    }
    assert_null(tern_synth_arch_find(f->ctx, "sd99"));
    support_error(f->ctx, TERN_E_NOT_FOUND, "\"sd99\" is not known; expected sd15, sd2, sdxl or taiyi");
}

/* What the list would be as a file. */
static struct tern_weights *as_file(struct fixture *f, const struct tern_synth_list *l, const char *predicts)
{
    static const char zeros[2 * 1280 * 1280]; /* of the one matrix that is copied */
    struct tern_weights *w = tern_weights_create(f->ctx);
    for (int64_t i = 0; i < l->count; i++) {
        const struct tern_safetensors_entry *e = &l->entry[i];
        tern_tensor *t = tern_tensor_wrap(f->ctx, e->dtype, e->ndim, e->shape, zeros, NULL, NULL);
        assert_int_equal(tern_weights_add(w, e->name, t), TERN_OK);
        tern_tensor_unref(&t);
    }
    if (predicts)
        assert_int_equal(tern_weights_add_metadata(w, TERN_LDM_PREDICTION, predicts), TERN_OK);
    return w;
}

/* The component of the file has the tensors of the one in the folder. */
static void same_tensors(struct fixture *f, const struct tern_synth_component *written, const struct tern_weights *file,
                         const struct tern_ldm_sizes *sizes)
{
    struct tern_synth_list l = list(f, NULL);
    struct tern_weights *w = tern_ldm_component(f->ctx, file, sizes, written->name, "file");
    if (!w)
        fail_msg("%s: %s", written->name, tern_error(f->ctx));
    tern_synth_list_add(&l, written);
    assert_int_equal(l.count, tern_weights_count(w));
    for (int64_t i = 0; i < l.count; i++) {
        const struct tern_safetensors_entry *e = &l.entry[i];
        const tern_tensor *t = tern_weights_get(w, e->name);
        if (!t || tern_tensor_ndim(t) != e->ndim || memcmp(tern_tensor_shape(t), e->shape, (size_t)e->ndim * sizeof(*e->shape)))
            fail_msg("%s: %s", written->name, e->name);
    }
    tern_synth_list_free(&l);
    tern_weights_unref(&w);
}

/* Keys that shapes do not show. */
static void same_keys(const char *written, const char *found)
{
    static const char *const keys[] = {"attention_head_dim", "num_attention_heads", "hidden_act",  "use_linear_projection", "sample_size",
                                       "scaling_factor",     "prediction_type",     "_class_name", "timestep_spacing",      "steps_offset"};
    json_t *a = json_loads(written, 0, NULL), *b = json_loads(found, 0, NULL);
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (json_object_get(a, keys[i]) && !json_equal(json_object_get(a, keys[i]), json_object_get(b, keys[i])))
            fail_msg("%s: found %s", keys[i], found);
    json_decref(a);
    json_decref(b);
}

static void single_files_are_recognised(void **state)
{
    static const char *const archs[] = {"sd15", "sd2", "sdxl"};
    struct fixture *f = *state;
    for (int i = 0; i < 3; i++) {
        const struct tern_synth_arch *arch = tern_synth_arch_find(f->ctx, archs[i]);
        struct tern_synth_list l = list(f, arch->sizes);
        struct tern_detected d;
        for (int k = 0; k < TERN_SYNTH_COMPONENTS && arch->components[k].name; k++)
            tern_synth_list_add(&l, &arch->components[k]);
        struct tern_weights *w = as_file(f, &l, arch->predicts);
        if (tern_detect_sd(f->ctx, w, archs[i], &d))
            fail_msg("%s", tern_error(f->ctx));
        const char *const found[] = {d.unet, d.vae, d.text_encoder, d.text_encoder_2};
        for (int k = 0; k < TERN_SYNTH_COMPONENTS && arch->components[k].name; k++) {
            same_tensors(f, &arch->components[k], w, &d.sizes);
            if (k != 1) /* SD 2.1's VAE says 768, a file does not */
                same_keys(arch->components[k].config, found[k]);
        }
        same_keys(arch->scheduler, d.scheduler);
        assert_int_equal(d.sizes.family, arch->sizes->family);
        tern_detected_free(f->ctx, &d);
        tern_weights_unref(&w);
        tern_synth_list_free(&l);
    }
    assert_int_equal(tern_synth(f->ctx, help_path(f, "x"),
                                &(struct tern_synth_params){.arch = "taiyi", .dtype = TERN_F16, .single_file = true}),
                     TERN_E_UNSUPPORTED);
    support_error(f->ctx, TERN_E_UNSUPPORTED, "taiyi has no form as a single file");
}

/* As many pieces as the text encoder has ids, none twice. */
static void the_vocabulary_is_full(void **state)
{
    struct fixture *f = *state;
    char *text = tern_synth_vocabulary(f->ctx);
    int64_t lines = 0;
    json_t *seen = json_object();
    for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1, lines++) {
        *end = 0;
        if (json_object_get(seen, at) || json_object_set_new(seen, at, json_true()))
            fail_msg("line %lld: \"%s\" is there twice or no UTF-8", (long long)lines, at);
        if (!strcmp(at, "[UNK]"))
            assert_int_equal(lines, 100);
    }
    assert_int_equal(lines, 21128);
    assert_non_null(json_object_get(seen, "船"));
    assert_non_null(json_object_get(seen, "##z"));
    json_decref(seen);
    tern_free_text(f->ctx, text);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, help_setup, help_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(parameters_are_those_of_the_published_models),
        TEST(single_files_are_recognised),
        TEST(the_vocabulary_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

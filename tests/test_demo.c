/* Parity of the model that ships with tern: its English and its Chinese side against diffusers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "job_cases.h"
#include "model_help.h"
#include "support.h"

static void check_ids(struct tern_pipeline *p, const json_t *row)
{
    const json_t *expected = json_object_get(row, "ids");
    const struct tern_tokenizer *t = tern_pipeline_tokenizer(p, 0);
    int64_t ids[512];
    assert_true(json_array_size(expected) <= 512);
    assert_int_equal(tern_tokenizer_max_length(t), json_array_size(expected));
    assert_int_equal(tern_tokenize_padded(t, json_string_value(json_object_get(row, "prompt")), ids), TERN_OK);
    for (size_t i = 0; i < json_array_size(expected); i++)
        assert_int_equal(ids[i], json_integer_value(json_array_get(expected, i)));
}

static void check_case(struct tern_context *ctx, const json_t *row, const struct tern_weights *latents, struct job_worst *w)
{
    char path[PATH_SIZE];
    struct job_case c = job_case_read(ctx, row, "demo");
    struct tern_pipeline *p = model_load(ctx, c.model[0] ? "demo-zh" : "demo");
    check_ids(p, row);
    struct tern_images *images = job_run(ctx, p, &c.params);
    job_check_latents(images, latents, c.name, w);
    snprintf(path, sizeof(path), "%s/demo/%s", TERN_TEST_DATA, json_string_value(json_object_get(row, "picture")));
    struct tern_image *expected = tern_image_load(ctx, path);
    assert_non_null(expected);
    job_check_picture(tern_images_at(images, 0), tern_image_data(expected), tern_image_width(expected), tern_image_height(expected), c.name,
                      w);
    tern_image_destroy(&expected);
    tern_images_destroy(&images);
    tern_pipeline_destroy(&p);
    job_case_close(&c);
    w->cases++;
}

static void pictures_agree(void **state)
{
    struct job_worst w = {0};
    size_t i;
    json_t *rows = support_json("demo/cases.json"), *row;
    struct tern_context *ctx = model_context(NULL, 2);
    struct tern_weights *latents = support_tensors(ctx, "demo/latents");
    json_array_foreach(rows, i, row)
        check_case(ctx, row, latents, &w);
    assert_int_equal(w.cases, 4);
    job_print_worst(&w);
    tern_weights_unref(&latents);
    tern_context_destroy(&ctx);
    json_decref(rows);
}

/* The Chinese side has a text encoder and a tokenizer of its own and lends the rest from the English one. */
static void both_sides_are_described(void **state)
{
    static const struct {
        const char *model, *encoder;
    } rows[] = {{NULL, "CLIPTextModel"}, {"demo", "CLIPTextModel"}, {"demo-zh", "BertModel"}};
    struct tern_context *ctx = model_context(NULL, 1);
    for (int i = 0; i < 3; i++) {
        struct tern_pipeline *p = tern_pipeline_load(ctx, rows[i].model, NULL);
        assert_non_null(p);
        char *text = tern_pipeline_describe(p, true);
        json_t *o = json_loads(text, 0, NULL), *components = json_object_get(o, "components");
        assert_int_equal(json_array_size(components), 3);
        assert_string_equal(json_string_value(json_object_get(json_array_get(components, 0), "name")), "text_encoder");
        assert_string_equal(json_string_value(json_object_get(json_array_get(components, 0), "class")), rows[i].encoder);
        assert_string_equal(json_string_value(json_object_get(json_array_get(components, 1), "name")), "unet");
        assert_string_equal(json_string_value(json_object_get(json_array_get(components, 2), "name")), "vae");
        assert_true(json_is_object(json_object_get(o, "scheduler")));
        json_decref(o);
        tern_free_text(ctx, text);
        tern_pipeline_destroy(&p);
    }
    tern_context_destroy(&ctx);
}

/* TERN_DATA_DIR comes before the installation and the source tree. */
static void the_data_folder_can_be_named(void **state)
{
    char root[] = "/tmp/tern-demo-XXXXXX", folder[64], file[96], manifest[96];
    struct tern_context *ctx = model_context(NULL, 1);
    assert_non_null(mkdtemp(root));
    snprintf(folder, sizeof(folder), "%s/demo", root);
    snprintf(file, sizeof(file), "%s/model_index.json", folder);
    snprintf(manifest, sizeof(manifest), "%s/manifest.json", folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    FILE *index = fopen(file, "w");
    assert_non_null(index);
    fclose(index);
    setenv("TERN_DATA_DIR", root, 1);
    assert_null(tern_pipeline_load(ctx, "demo", NULL));
    support_error(ctx, TERN_E_NOT_FOUND, manifest); /* a folder without its list of files: it was this one that was read */
    setenv("TERN_DATA_DIR", TERN_SOURCE_ROOT "/models", 1);
    remove(file);
    remove(folder);
    remove(root);
    tern_context_destroy(&ctx);
}

int main(void)
{
    setenv("TERN_DATA_DIR", TERN_SOURCE_ROOT "/models", 1); /* where "demo" and "demo-zh" are */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_are_described),
        cmocka_unit_test(the_data_folder_can_be_named),
        cmocka_unit_test(pictures_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

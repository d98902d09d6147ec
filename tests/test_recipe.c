/* Recipes in files: what is refused and how it is told, which models take one, and that a picture by a recipe is that by its words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "damage.h"
#include "lora_help.h"
#include "model_help.h"
#include "models/quantize/recipe.h"
#include "quantize_help.h"
#include "support.h"

#define FILE_NAME "recipe.json"

/* The layers of the model "sd1", of which every second one is int8, in a new folder. */
static void make(struct tern_context *ctx, char *folder, char *path)
{
    char model[PATH_SIZE];
    lora_temporary(folder);
    snprintf(path, PATH_SIZE, "%.400s/" FILE_NAME, folder);
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", model));
    struct tern_recipe *r = tern_recipe_of_pipeline(p);
    assert_non_null(r);
    for (int i = 0; i < r->count; i += 2)
        r->layer[i].int8 = true;
    assert_int_equal(tern_recipe_smooth(r, "conv_norm_out.weight", "aabZaaXc"), TERN_OK);
    assert_int_equal(tern_recipe_save(r, path), TERN_OK);
    tern_recipe_destroy(&r);
    tern_pipeline_destroy(&p);
}

static struct tern_pipeline *load(struct tern_context *ctx, const char *model, const char *recipe, const char *words)
{
    return tern_pipeline_load(ctx, model, &(struct tern_pipeline_params){.recipe = recipe, .quantize = words});
}

/* ---- what is refused */

static const struct row {
    const char *part;  /* "" the whole, "architecture", "layer": the first one */
    const char *key;   /* of that */
    const char *value; /* JSON; NULL: it is taken away */
    const char *message;
} rows[] = {
    {"", "format", "\"other\"", "\"format\": expected \"tern recipe\", found \"other\""},
    {"", "format", NULL, "\"format\": expected a text of 1 to 64 bytes, found nothing"},
    {"", "format", "3", "\"format\": expected a string, found an integer"},
    {"", "version", "2", "\"version\": expected 1, found 2; another version of tern"},
    {"", "version", "-9223372036854775808", "\"version\": expected 1"},
    {"", "version", "\"1\"", "\"version\": expected an integer, found a string"},
    {"", "version", NULL, "\"version\": expected 1, found 0"},
    {"", "layers", NULL, "\"layers\": expected a list of layers, found nothing"},
    {"", "layers", "{}", "\"layers\": expected a list of layers, found something else"},
    {"", "layers", "[]", "\"layers\": expected 1 to 4096, found 0"},
    {"", "layers", "[1]", "layer 1: expected an object"},
    {"", "architecture", NULL, "\"architecture\": expected an object, found nothing"},
    {"", "options", "[]", "\"result\" and \"options\": expected objects"},
    {"", "result", "\"good\"", "\"result\" and \"options\": expected objects"},
    {"", "result", "{\"ssim\": \"x\"}", "\"ssim\": expected a finite number, found a string"},
    {"", "result", "{\"seconds\": -1}", "\"seconds\": expected a number of at least 0, found -1"},
    {"", "result", "{\"trials\": 99999999999}", "\"trials\": expected 0..16777216"},
    {"architecture", "name", "\"\"", "\"name\": expected a text of 1 to 128 bytes, found an empty one"},
    {"architecture", "fingerprint", "\"00000000000000000000000000000000\"", "layers were added, taken away or renamed"},
    {"architecture", "fingerprint", "7", "\"fingerprint\": expected a string"},
    {"", "smooth", "7", "\"smooth\": expected a list of norms, found something else"},
    {"", "smooth", "[0]", "norm 1: expected an object"},
    {"", "smooth", "[{\"factors\": \"a\"}]", "norm 1: \"norm\": expected a text of 1 to 256 bytes, found nothing"},
    {"", "smooth", "[{\"norm\": \"n*\", \"factors\": \"a\"}]", "norm 1: \"norm\": expected the name of a weight, found \"n*\""},
    {"", "smooth", "[{\"norm\": \"a^b\", \"factors\": \"a\"}]", "norm 1: \"norm\": expected the name of a weight"},
    {"", "smooth", "[{\"norm\": \"n\"}]", "norm 1: \"factors\": expected a text of 1 to 65536 bytes, found nothing"},
    {"", "smooth", "[{\"norm\": \"n\", \"factors\": \"\"}]", "\"factors\": expected a text of 1 to 65536 bytes, found an empty one"},
    {"", "smooth", "[{\"norm\": \"n\", \"factors\": [1, 2]}]", "\"factors\": expected a string, found an array"},
    {"", "smooth", "[{\"norm\": \"n\", \"factors\": \"aNaN 0\"}]", "\"factors\": expected letters, A to Z and a to z, found another"},
    {"", "smooth", "[{\"norm\": \"n\", \"factors\": \"a\"}, {\"norm\": \"n\", \"factors\": \"b\"}]", "norm 2: \"n\" stands there twice"},
    {"layer", "name", "\"a:w4\"", "expected the name of a weight"},
    {"layer", "name", NULL, "layer 1: \"name\": expected a text of 1 to 256 bytes, found nothing"},
    {"layer", "name", "\"*\"", "layer 1: \"name\": expected the name of a weight, found \"*\""},
    {"layer", "name", "\"!a\"", "expected the name of a weight"},
    {"layer", "name", "\"a b\"", "expected the name of a weight"},
    {"layer", "name", "\"a.weight\"", "layers were added, taken away or renamed"},
    {"layer", "name", "\"conv_in.weight\"", "\"conv_in.weight\" stands there twice"},
    {"layer", "name", "\"sdpa\"", "layer 1: \"name\": expected the name of a weight, found \"sdpa\""},
    {"layer", "kind", "\"norm\"", "layer 1: \"kind\": expected conv, linear or attention, found \"norm\""},
    {"layer", "kind", "\"attention\"", "layer 1: \"name\": expected sdpa, found \"time_embedding.linear_1.weight\""},
    {"attention", "name", "\"attn1\"", "layer 203: \"name\": expected sdpa, found \"attn1\""},
    {"attention", "kind", "\"linear\"", "layer 203: \"name\": expected the name of a weight, found \"sdpa\""},
    {"attention", "shape", "[1, 2]", "layer 203: \"shape\": expected an empty list, found 2"},
    {"attention", "shape", NULL, "layer 203: \"shape\": expected an empty list, found nothing"},
    {"layer", "int8", "1", "layer 1: \"int8\": expected true or false"},
    {"layer", "int8", NULL, "layer 1: \"int8\": expected true or false"},
    {"layer", "shape", "[1, 2, 3]", "\"shape\": expected a list of 2 or 4 numbers, found 3"},
    {"layer", "shape", "[1, -2]", "\"shape\": expected whole numbers of 1 to"},
    {"layer", "shape", "[1, 1e3]", "\"shape\": expected whole numbers of 1 to"},
    {"layer", "shape", "[1, 9223372036854775807]", "\"shape\": expected whole numbers of 1 to"},
    {"layer", "shape", "[32, 9]", "layers were added, taken away or renamed"},
    {"layer", "error", "-1", "\"error\": expected a number of at least 0, found -1"},
    {"layer", "error", "[]", "\"error\": expected a finite number, found an array"},
    {"layer", "measured_with", "5000", "\"measured_with\": expected 0..4096, found 5000"},
    {"layer", "decision", "{}", "\"decision\": expected a string, found an object"},
};

static void change(json_t *root, const struct row *row)
{
    json_t *layers = json_object_get(root, "layers"), *o = root;
    if (!strcmp(row->part, "layer"))
        o = json_array_get(layers, 0);
    else if (!strcmp(row->part, "attention"))
        o = json_array_get(layers, json_array_size(layers) - 1);
    else if (*row->part)
        o = json_object_get(root, row->part);
    if (row->value)
        assert_int_equal(json_object_set_new(o, row->key, json_loads(row->value, JSON_DECODE_ANY, NULL)), 0);
    else
        json_object_del(o, row->key);
}

static void wrong_values_are_told(void **state)
{
    char folder[PATH_SIZE], path[PATH_SIZE];
    struct tern_context *ctx = support_context();
    make(ctx, folder, path);
    json_t *good = json_load_file(path, 0, NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        json_t *bad = json_deep_copy(good);
        change(bad, &rows[i]);
        assert_int_equal(json_dump_file(bad, path, 0), 0);
        json_decref(bad);
        assert_null(tern_recipe_open(ctx, path));
        if (!strstr(tern_error(ctx), path))
            fail_msg("row %zu: no path in \"%s\"", i, tern_error(ctx));
        support_error(ctx, TERN_E_FORMAT, rows[i].message);
    }
    json_decref(good);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* More layers than any model has, texts that are too long, numbers beyond what JSON can say, nothing at all. */
static void files_that_are_no_recipe(void **state)
{
    static const struct {
        const char *text, *message;
    } texts[] = {
        {"", "not valid JSON"},
        {"null", "not valid JSON"},
        {"[]", "expected a recipe, a JSON object"},
        {"{\"format\": \"tern recipe\", \"format\": \"tern recipe\"}", "not valid JSON"},
        {"{\"format\": \"tern recipe\", \"version\": 1, \"result\": NaN}", "not valid JSON"},
        {"{\"format\": \"tern recipe\", \"version\": 1, \"layers\": [{\"error\": 1e999}]}", "not valid JSON"},
        {"{\"format\": \"tern\\u0000recipe\"}", "not valid JSON"},
    };
    char folder[PATH_SIZE];
    struct tern_context *ctx = support_context();
    lora_temporary(folder);
    char path[2 * PATH_SIZE];
    snprintf(path, sizeof(path), "%s/" FILE_NAME, folder);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        damage_text(folder, FILE_NAME, texts[i].text, strlen(texts[i].text));
        assert_null(tern_recipe_open(ctx, path));
        support_error(ctx, TERN_E_FORMAT, texts[i].message);
    }
    json_t *many = json_pack("{s:s, s:i, s:[]}", "format", TERN_RECIPE_FORMAT, "version", 1, "layers");
    for (int i = 0; i <= TERN_RECIPE_LAYERS; i++)
        json_array_append_new(json_object_get(many, "layers"), json_null());
    assert_int_equal(json_dump_file(many, path, 0), 0);
    json_decref(many);
    assert_null(tern_recipe_open(ctx, path));
    support_error(ctx, TERN_E_FORMAT, "\"layers\": expected 1 to 4096, found 4097");
    assert_null(tern_recipe_open(ctx, folder));
    support_error(ctx, TERN_E_IO, "found a folder");
    assert_null(tern_recipe_open(ctx, "/nowhere/recipe.json"));
    support_error(ctx, TERN_E_NOT_FOUND, "/nowhere/recipe.json");
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* Cut off anywhere, and with other bytes anywhere: refused, or a recipe that is one. */
static void damaged_files(void **state)
{
    char folder[PATH_SIZE], path[PATH_SIZE];
    size_t size;
    struct tern_context *ctx = support_context();
    make(ctx, folder, path);
    char *text = damage_read(folder, FILE_NAME, &size);
    uint32_t random = 1;
    for (int i = 0; i < 300; i++) {
        random = random * 1664525u + 1013904223u;
        const size_t at = random % size;
        char *copy = malloc(size);
        memcpy(copy, text, size);
        copy[at] = (char)(random >> 24);
        damage_text(folder, FILE_NAME, copy, i % 2 ? size : at);
        free(copy);
        struct tern_recipe *r = tern_recipe_open(ctx, path);
        if (r)
            assert_int_equal(tern_recipe_count(r), 203);
        else
            support_error(ctx, TERN_E_FORMAT, path);
        tern_recipe_destroy(&r);
    }
    free(text);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* ---- which models take one */

static void other_architectures_are_refused(void **state)
{
    char folder[PATH_SIZE], path[PATH_SIZE], model[PATH_SIZE];
    static const struct {
        const char *model, *name;
    } others[] = {{"sd2", "is Stable Diffusion 2 ("},
                  {"sdxl", "is Stable Diffusion XL ("},
                  {"demo", "is Stable Diffusion 1 (134 layers): layer 1 is"}};
    struct tern_context *ctx = support_context();
    make(ctx, folder, path);
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        assert_null(load(ctx, model_path(others[i].model, model), path, NULL));
        assert_non_null(strstr(tern_error(ctx), "a recipe for Stable Diffusion 1 (203 layers), the model "));
        assert_non_null(strstr(tern_error(ctx), " in the recipe, "));
        support_error(ctx, TERN_E_FORMAT, others[i].name);
    }
    assert_null(load(ctx, model_path("sd1", model), path, "*"));
    support_error(ctx, TERN_E_INVALID, "quantize and recipe: expected one of them");
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* Of models that are told a picture beside the latents the first layer alone has other inputs. */
static void kin_take_it(void **state)
{
    char folder[PATH_SIZE], path[PATH_SIZE], model[PATH_SIZE];
    struct tern_context *ctx = support_context();
    make(ctx, folder, path);
    struct tern_recipe *r = tern_recipe_open(ctx, path);
    int first = 0;
    while (strcmp(r->layer[first].name, "conv_in.weight") != 0)
        first++;
    assert_int_equal(r->layer[first].shape[1], 4);
    r->layer[first].shape[1] = 9; /* as if it had been made with a model for inpainting */
    tern_recipe_fingerprint(r, r->fingerprint);
    char *words = tern_recipe_words(r), *kin = tern_sprintf(ctx, "%s-kin", path);
    assert_int_equal(tern_recipe_save(r, kin), TERN_OK);
    struct tern_pipeline *p = load(ctx, model_path("sd1", model), kin, NULL);
    if (!p)
        fail_msg("%s", tern_error(ctx));
    assert_string_equal(tern_pipeline_layer_words(p, "unet"), words);
    r->layer[first + 1].shape[1]++; /* of no other */
    tern_recipe_fingerprint(r, r->fingerprint);
    assert_int_equal(tern_recipe_check(r, p), TERN_E_FORMAT);
    char *other = tern_sprintf(ctx, "layer %d is %s", first + 2, r->layer[first + 1].name);
    support_error(ctx, TERN_E_FORMAT, other);
    r->layer[first + 1].shape[1]--;
    r->layer[first].shape[2]++;
    tern_recipe_fingerprint(r, r->fingerprint);
    assert_int_equal(tern_recipe_check(r, p), TERN_E_FORMAT);
    support_error(ctx, TERN_E_FORMAT, "is conv_in.weight (8, 9, 4, 3) in the recipe");
    tern_free(ctx, other);
    tern_pipeline_destroy(&p);
    tern_free_text(ctx, words);
    tern_free(ctx, kin);
    tern_recipe_destroy(&r);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* Factors that the model has no norm for. */
static void factors_of_other_norms(void **state)
{
    static const struct {
        const char *norm, *factors, *message;
    } norms[] = {
        {"down_blocks.0.resnets.0.norm1.weight", "abc",
         "\"smooth\": \"down_blocks.0.resnets.0.norm1.weight\": expected 8 factors, found 3"},
        {"conv_norm_in.weight", "abc", "\"smooth\": the model sd1 has no norm \"conv_norm_in.weight\" that may be divided"},
        {"conv_in.weight", "abc", "has no norm \"conv_in.weight\""},
    };
    char folder[PATH_SIZE], path[PATH_SIZE], model[PATH_SIZE];
    struct tern_context *ctx = support_context();
    make(ctx, folder, path);
    for (size_t i = 0; i < sizeof(norms) / sizeof(*norms); i++) {
        struct tern_recipe *r = tern_recipe_open(ctx, path);
        const int before = r->norms;
        assert_int_equal(tern_recipe_smooth(r, norms[i].norm, norms[i].factors), TERN_OK);
        assert_int_equal(r->norms, before + 1);
        char *other = tern_sprintf(ctx, "%s-other", path);
        assert_int_equal(tern_recipe_save(r, other), TERN_OK);
        assert_null(load(ctx, model_path("sd1", model), other, NULL));
        support_error(ctx, TERN_E_FORMAT, norms[i].message);
        tern_free(ctx, other);
        tern_recipe_destroy(&r);
    }
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* The layer that differs is told, wherever it stands. */
static void the_layer_that_differs(void **state)
{
    char folder[PATH_SIZE], path[PATH_SIZE], model[PATH_SIZE], text[64];
    struct tern_context *ctx = support_context();
    make(ctx, folder, path);
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", model));
    for (int i = 0; i < 202; i += 67) {
        struct tern_recipe *r = tern_recipe_open(ctx, path);
        r->layer[i].shape[0]++;
        tern_recipe_fingerprint(r, r->fingerprint);
        assert_int_equal(tern_recipe_check(r, p), TERN_E_FORMAT);
        snprintf(text, sizeof(text), "layer %d is %.40s", i + 1, r->layer[i].name);
        support_error(ctx, TERN_E_FORMAT, text);
        if (i) {
            const int count = r->count;
            r->count = i;
            tern_recipe_fingerprint(r, r->fingerprint);
            assert_int_equal(tern_recipe_check(r, p), TERN_E_FORMAT);
            support_error(ctx, TERN_E_FORMAT, "is no layer in the recipe");
            r->count = count;
        }
        tern_recipe_destroy(&r);
    }
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

static bool destroy(void *user)
{
    tern_pipeline_destroy(user);
    return false;
}

/* Where it is asked whether to cancel, the model cannot be taken away from the check. */
static void the_model_stays_while_it_is_checked(void **state)
{
    char folder[PATH_SIZE], path[PATH_SIZE], model[PATH_SIZE];
    struct tern_pipeline *p = NULL;
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = destroy, .user = &p});
    make(ctx, folder, path);
    struct tern_recipe *r = tern_recipe_open(ctx, path);
    struct tern_pipeline *same = p = model_load(ctx, model_path("sd1", model));
    assert_int_equal(tern_recipe_check(r, same), TERN_E_INVALID);
    assert_ptr_equal(p, same);
    support_error(ctx, TERN_E_INVALID, "tern_pipeline_destroy: the pipeline is at work");
    tern_pipeline_destroy(&p);
    assert_null(p);
    tern_recipe_destroy(&r);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* ---- pictures */

static float *latents(struct tern_context *ctx, struct tern_pipeline *p, int64_t *n)
{
    if (!p)
        fail_msg("%s", tern_error(ctx));
    float *values = quantize_latents(ctx, p, n);
    tern_pipeline_destroy(&p);
    return values;
}

/* Every second layer by words, by recipe, and by the recipe as it is written again. Another checkpoint of the architecture takes it. */
static void a_recipe_is_its_words(void **state)
{
    char folder[PATH_SIZE], path[PATH_SIZE], model[PATH_SIZE], wide[PATH_SIZE];
    int64_t n;
    struct tern_context *ctx = support_context();
    make(ctx, folder, path);
    model_path("sd1", model);
    struct tern_recipe *r = tern_recipe_open(ctx, path);
    char *words = tern_recipe_words(r);
    assert_int_equal(strncmp(words, "winograd time_embedding.linear_1.weight conv_in.weight ", 55), 0);
    float *expected = latents(ctx, load(ctx, model, NULL, words), &n), *found = latents(ctx, load(ctx, model, path, NULL), &n),
          *plain = latents(ctx, load(ctx, model, NULL, NULL), &n);
    assert_memory_equal(found, expected, (size_t)n * sizeof(float));
    assert_true(support_nmse(found, plain, n) > 1e-8);
    char *before = damage_read(folder, FILE_NAME, &(size_t){0});
    assert_int_equal(tern_recipe_save(r, path), TERN_OK);
    char *after = damage_read(folder, FILE_NAME, &(size_t){0});
    assert_string_equal(before, after);
    lora_wide_model("sd1", wide);
    struct tern_pipeline *other = load(ctx, wide, path, NULL);
    assert_non_null(other);
    assert_string_equal(tern_pipeline_layer_words(other, "unet"), words);
    tern_pipeline_destroy(&other);
    damage_remove(wide);
    void *all[] = {expected, found, plain, before, after};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]);
    tern_free_text(ctx, words);
    tern_recipe_destroy(&r);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* Recipes that were made before attention was one of their layers: it stays as it is. */
static void recipes_without_attention(void **state)
{
    char folder[PATH_SIZE], path[PATH_SIZE], model[PATH_SIZE];
    struct tern_context *ctx = support_context();
    make(ctx, folder, path);
    json_t *root = json_load_file(path, 0, NULL), *layers = json_object_get(root, "layers");
    assert_int_equal(json_array_remove(layers, json_array_size(layers) - 1), 0);
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
    struct tern_pipeline *p = load(ctx, model_path("sd1", model), path, NULL);
    assert_non_null(p);
    assert_non_null(strstr(tern_pipeline_layer_words(p, "unet"), " conv_in.weight "));
    assert_null(strstr(tern_pipeline_layer_words(p, "unet"), "sdpa"));
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recipes_without_attention),       cmocka_unit_test(wrong_values_are_told),
        cmocka_unit_test(files_that_are_no_recipe),        cmocka_unit_test(damaged_files),
        cmocka_unit_test(other_architectures_are_refused), cmocka_unit_test(kin_take_it),
        cmocka_unit_test(the_layer_that_differs),          cmocka_unit_test(factors_of_other_norms),
        cmocka_unit_test(a_recipe_is_its_words),           cmocka_unit_test(the_model_stays_while_it_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

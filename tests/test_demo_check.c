/* What the demo model paints is what its prompt says; and the checker that says so is the one of tools/train-demo. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "demo_check.h"
#include "model_help.h"
#include "support.h"

static struct demo_answers judge_image(const json_t *table, const struct tern_image *image, const json_t *scene)
{
    assert_int_equal(tern_image_width(image), DEMO_SIDE);
    assert_int_equal(tern_image_height(image), DEMO_SIDE);
    return demo_judge(table, tern_image_data(image), scene);
}

static int answer(const struct demo_answers *a, const char *question)
{
    const struct {
        const char *name;
        int value;
    } rows[] = {{"time", a->time}, {"object", a->object}, {"place", a->place}, {"count", a->count}, {"pair", a->pair}};
    for (int i = 0; i < 5; i++)
        if (!strcmp(rows[i].name, question))
            return rows[i].value;
    fail_msg("no question \"%s\"", question);
    return -1;
}

/* "house yellow 1" -> boxes [x0, y0, x1, y1, area]; all that is not in the list was not found. */
static void check_found(const json_t *table, const uint8_t *rgb, const json_t *found, const char *kind, const char *color, int count)
{
    char key[64];
    size_t i;
    struct demo_blob blobs[16];
    const json_t *box;
    snprintf(key, sizeof(key), "%s %s %d", kind, color, count);
    const json_t *boxes = json_object_get(found, key);
    int n = demo_find(table, rgb, kind, color, count, blobs, 16);
    if (n != (int)json_array_size(boxes))
        fail_msg("%s: expected %zu, found %d", key, json_array_size(boxes), n);
    json_array_foreach(boxes, i, box) {
        int mine[5] = {blobs[i].x0, blobs[i].y0, blobs[i].x1, blobs[i].y1, blobs[i].area};
        for (size_t k = 0; k < 5; k++)
            assert_int_equal(mine[k], json_integer_value(json_array_get(box, k)));
    }
}

static void check_all_found(const json_t *table, const uint8_t *rgb, const json_t *found)
{
    static const char *const shapes[] = {"circle", "square", "triangle", "star", "ring"};
    const char *color, *kind;
    json_t *unused, *unused2;
    json_object_foreach(json_object_get(table, "colors"), color, unused) {
        json_object_foreach(json_object_get(table, "kinds"), kind, unused2) {
            check_found(table, rgb, found, kind, color, 1);
            check_found(table, rgb, found, kind, color, 3);
        }
        for (int i = 0; i < 5; i++)
            check_found(table, rgb, found, shapes[i], color, 1);
    }
}

/* Golden answers are those of the Python checker on the same pictures (check_goldens.py). */
static void both_checkers_agree(void **state)
{
    struct tern_context *ctx = support_context();
    json_t *table = demo_table(), *rows = support_json("demo-check/check.json"), *row, *question, *expected;
    size_t i, k;
    int asked = 0, yes = 0;
    json_array_foreach(rows, i, row) {
        char path[PATH_SIZE];
        const char *name;
        snprintf(path, sizeof(path), "%s/demo-check/%s", TERN_TEST_DATA, json_string_value(json_object_get(row, "picture")));
        struct tern_image *image = tern_image_load(ctx, path);
        assert_non_null(image);
        assert_string_equal(demo_time(table, tern_image_data(image)), json_string_value(json_object_get(row, "time")));
        json_array_foreach(json_object_get(row, "questions"), k, question) {
            struct demo_answers a = judge_image(table, image, json_object_get(question, "scene"));
            json_object_foreach(json_object_get(question, "answers"), name, expected) {
                assert_int_equal(answer(&a, name), json_is_true(expected));
                asked++;
                yes += json_is_true(expected);
            }
        }
        check_all_found(table, tern_image_data(image), json_object_get(row, "found"));
        tern_image_destroy(&image);
    }
    assert_true(asked >= 40 && yes >= 10);
    json_decref(rows);
    json_decref(table);
    tern_context_destroy(&ctx);
}

static void expect_answers(const json_t *table, const struct tern_image *image, const json_t *row, const char *scene, int expected)
{
    size_t i;
    const json_t *question;
    struct demo_answers a = judge_image(table, image, json_object_get(row, scene));
    json_array_foreach(json_object_get(row, "asked"), i, question)
        if (answer(&a, json_string_value(question)) != expected)
            fail_msg("%s, seed %d, %s: %s: expected %d, found %d", json_string_value(json_object_get(row, "prompt")),
                     (int)json_integer_value(json_object_get(row, "seed")), scene, json_string_value(question), expected,
                     answer(&a, json_string_value(question)));
}

/* prompts.json: what is asked is yes for the scene that the prompt names, and no for one that differs. */
static void pictures_show_their_prompts(void **state)
{
    struct tern_context *ctx = model_context(NULL, 2);
    struct tern_pipeline *models[2] = {model_load(ctx, "demo"), model_load(ctx, "demo-zh")};
    json_t *table = demo_table(), *rows = support_json("demo-check/prompts.json"), *row;
    size_t i;
    int painted[2] = {0, 0};
    json_array_foreach(rows, i, row) {
        int zh = json_is_true(json_object_get(row, "chinese"));
        struct tern_image *image =
            tern_txt2img(models[zh], &tern_txt2img_params(.prompt = json_string_value(json_object_get(row, "prompt")),
                                                          .seed = (uint64_t)json_integer_value(json_object_get(row, "seed"))));
        if (!image)
            fail_msg("%s", tern_error(ctx));
        expect_answers(table, image, row, "scene", 1);
        expect_answers(table, image, row, "other", 0);
        tern_image_destroy(&image);
        painted[zh]++;
    }
    assert_true(painted[0] >= 3 && painted[1] >= 2 && painted[0] + painted[1] == 6);
    json_decref(rows);
    json_decref(table);
    tern_pipeline_destroy(&models[0]);
    tern_pipeline_destroy(&models[1]);
    tern_context_destroy(&ctx);
}

int main(void)
{
    setenv("TERN_DATA_DIR", TERN_SOURCE_ROOT "/models", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_checkers_agree),
        cmocka_unit_test(pictures_show_their_prompts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Pictures: every file of tests/data/images against its pixels, texts, resampling against Pillow's, what is written and
 * read again. The data are made by tools/goldens_images.py. */
#include "images_help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Largest difference of a value from NAME.rgb. */
static int distance(const struct tern_image *img, const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), DATA "%s.rgb", name);
    size_t size;
    uint8_t *expected = read_bytes(path, &size);
    assert_int_equal(size, (size_t)tern_image_width(img) * (size_t)tern_image_height(img) * 3);
    int worst = 0;
    for (size_t i = 0; i < size; i++) {
        int d = abs(tern_image_data(img)[i] - expected[i]);
        worst = d > worst ? d : worst;
    }
    free(expected);
    return worst;
}

static struct tern_image *load(struct state *s, const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), DATA "%s", name);
    struct tern_image *img = tern_image_load(s->ctx, path);
    if (!img)
        fail_msg("%s", tern_error(s->ctx));
    return img;
}

static void expect_pixels(struct state *s, const char *file, int width, int height, int tolerance)
{
    char name[64];
    snprintf(name, sizeof(name), "%.*s", (int)(strrchr(file, '.') - file), file);
    struct tern_image *img = load(s, file);
    if (tern_image_width(img) != width || tern_image_height(img) != height)
        fail_msg("%s: %d x %d", file, tern_image_width(img), tern_image_height(img));
    int worst = distance(img, name);
    if (worst > tolerance)
        fail_msg("%s: a value is %d away", file, worst);
    tern_image_destroy(&img);
    assert_null(img);
}

static void test_every_kind_of_png(void **state)
{
    static const char *const files[] = {"gray1.png",        "gray1-adam7.png",        "gray2.png",       "gray2-adam7.png",
                                        "gray4.png",        "gray4-adam7.png",        "gray8.png",       "gray8-adam7.png",
                                        "gray16.png",       "gray16-adam7.png",       "rgb8.png",        "rgb8-adam7.png",
                                        "rgb16.png",        "rgb16-adam7.png",        "rgba8.png",       "rgba8-adam7.png",
                                        "rgba16.png",       "rgba16-adam7.png",       "gray-alpha8.png", "gray-alpha8-adam7.png",
                                        "gray-alpha16.png", "gray-alpha16-adam7.png", "palette1.png",    "palette2.png",
                                        "palette4.png",     "palette8.png",           "gray2-key.png",   "rgb8-key.png"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        expect_pixels(*state, files[i], 13, 9, 0);
}

/* Lossy files: decoders may differ by a rounding. */
static void test_jpeg_and_webp(void **state)
{
    static const struct {
        const char *file;
        int tolerance;
    } cases[] = {{"jpeg-444.jpg", 1},  {"jpeg-420.jpg", 2},       {"jpeg-progressive.jpg", 2}, {"jpeg-gray.jpg", 1},
                 {"jpeg-cmyk.jpg", 2}, {"webp-lossless.webp", 0}, {"webp-alpha.webp", 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_pixels(*state, cases[i].file, 40, 24, cases[i].tolerance);
    for (int orientation = 1; orientation <= 8; orientation++) {
        char file[32];
        snprintf(file, sizeof(file), "upright%d.jpg", orientation);
        expect_pixels(*state, file, orientation < 5 ? 40 : 24, orientation < 5 ? 24 : 40, 1);
    }
    expect_pixels(*state, "webp-lossy.webp", 24, 40, 2); /* turned by its EXIF */
}

/* Over white and over black, values are as far apart as alpha says. */
static void test_masks_lie_over_black(void **state)
{
    static const char *const files[] = {"rgba8.png", "rgba16-adam7.png", "gray-alpha8.png", "palette8.png", "webp-alpha.webp", "rgb8.png"};
    struct state *s = *state;
    for (size_t f = 0; f < sizeof(files) / sizeof(files[0]); f++) {
        char path[256];
        snprintf(path, sizeof(path), DATA "%s", files[f]);
        struct tern_image *img = load(s, files[f]), *mask = tern_image_load_mask(s->ctx, path);
        assert_non_null(mask);
        const uint8_t *white = tern_image_data(img), *black = tern_image_data(mask);
        int transparent = 0;
        for (int i = 0; i < tern_image_width(img) * tern_image_height(img); i++, white += 3, black += 3) {
            const int apart = white[0] - black[0];
            transparent += apart > 0;
            for (int c = 0; c < 3; c++)
                if (abs(white[c] - black[c] - apart) > 1 || white[c] < black[c] || black[c] > 255 - apart + 1)
                    fail_msg("%s, pixel %d: %d over white, %d over black", files[f], i, white[c], black[c]);
        }
        assert_int_equal(transparent > 0, strcmp(files[f], "rgb8.png") != 0);
        tern_image_destroy(&img);
        tern_image_destroy(&mask);
    }
    assert_null(tern_image_load_mask(s->ctx, NULL));
    assert_non_null(strstr(tern_error(s->ctx), "tern_image_load_mask"));
    tern_error_clear(s->ctx);
}

static void test_texts_are_read(void **state)
{
    struct state *s = *state;
    struct tern_image *img = load(s, "texts.png");
    assert_string_equal(tern_image_text(img, "latin"), "caf\u00e9 \u00bd");
    assert_memory_equal(tern_image_text(img, "packed"), "\u00fcber \u00fcber ", 12);
    assert_int_equal(strlen(tern_image_text(img, "packed")), 50 * 6);
    assert_string_equal(tern_image_text(img, "unicode"), infotext);
    assert_string_equal(tern_image_text(img, "parameters"), infotext); /* stands behind the pixels */
    assert_null(tern_image_text(img, "broken"));                       /* no UTF-8 */
    assert_null(tern_image_text(img, "absent"));
    assert_null(tern_image_text(img, NULL));
    tern_image_destroy(&img);

    static const struct {
        const char *file, *text;
    } cases[] = {
        {"jpeg-444.jpg", infotext}, {"jpeg-progressive.jpg", "little"}, {"jpeg-420.jpg", "a comment"},
        {"jpeg-gray.jpg", NULL},    {"webp-lossy.webp", infotext},      {"webp-lossless.webp", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        img = load(s, cases[i].file);
        const char *text = tern_image_text(img, "parameters");
        if (cases[i].text)
            assert_string_equal(text, cases[i].text);
        else
            assert_null(text);
        tern_image_destroy(&img);
    }
}

static void test_resize_is_pillows(void **state)
{
    static const struct {
        int width, height;
    } sizes[] = {{16, 16}, {64, 7}, {37, 50}, {5, 23}, {74, 46}, {1, 1}, {36, 24}, {2, 40}};
    struct state *s = *state;
    struct tern_image *img = load(s, "resize.png");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "resize-%dx%d", sizes[i].width, sizes[i].height);
        struct tern_image *out = tern_image_resize(img, sizes[i].width, sizes[i].height);
        assert_non_null(out);
        assert_int_equal(tern_image_width(out), sizes[i].width);
        if (distance(out, name))
            fail_msg("%s differs", name);
        tern_image_destroy(&out);
    }
    struct tern_image *same = tern_image_resize(img, 37, 23);
    assert_memory_equal(tern_image_data(same), tern_image_data(img), 37 * 23 * 3);
    tern_image_destroy(&same);

    static const int bad[][2] = {{0, 8}, {8, 0}, {-1, 8}, {8, -5}, {16385, 8}, {8, 16385}, {16384, 16384}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_null(tern_image_resize(img, bad[i][0], bad[i][1]));
        assert_int_equal(tern_error_status(s->ctx), TERN_E_INVALID);
        assert_non_null(strstr(tern_error(s->ctx), "16384"));
        tern_error_clear(s->ctx);
    }
    assert_null(tern_image_resize(NULL, 8, 8));
    tern_image_destroy(&img);
}

static void test_what_is_written_is_read(void **state)
{
    static const struct {
        const char *name;
        double mean_error; /* of a value, at most */
    } cases[] = {{"a.png", 0}, {"b.jpg", 2}, {"c.jpeg", 2}, {"d.webp", 4}, {"E.PNG", 0}, {"F.JpG", 2}, {"g.WEBP", 4}};
    static const char *const texts[] = {"plain ASCII", infotext, "\U0001F431", ""};
    struct state *s = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (size_t t = 0; t < sizeof(texts) / sizeof(texts[0]); t++) {
            struct tern_image *img = make(s, 61, 47);
            assert_int_equal(tern_image_set_text(img, "parameters", "old"), TERN_OK);
            assert_int_equal(tern_image_set_text(img, "parameters", texts[t]), TERN_OK);
            const char *path = out_path(s, cases[i].name);
            assert_int_equal(tern_image_save(img, path), TERN_OK);
            assert_int_equal(files_in(s->folder), 1);
            struct tern_image *back = tern_image_load(s->ctx, path);
            assert_non_null(back);
            assert_int_equal(tern_image_width(back), 61);
            assert_int_equal(tern_image_height(back), 47);
            double sum = 0;
            for (int k = 0; k < 61 * 47 * 3; k++)
                sum += abs(tern_image_data(img)[k] - tern_image_data(back)[k]);
            if (sum / (61 * 47 * 3) > cases[i].mean_error)
                fail_msg("%s: mean difference %g", cases[i].name, sum / (61 * 47 * 3));
            const char *text = tern_image_text(back, "parameters");
            if (texts[t][0] || text)
                assert_string_equal(text, texts[t]);
            tern_image_destroy(&back);
            tern_image_destroy(&img);
            assert_int_equal(unlink(path), 0);
        }
}

/* ASCII goes as tEXt, which every program reads, the rest as iTXt. */
static void test_png_chunk_kinds(void **state)
{
    struct state *s = *state;
    const char *path = out_path(s, "kinds.png");
    struct tern_image *img = make(s, 8, 8);
    assert_int_equal(tern_image_set_text(img, "parameters", "Steps: 20"), TERN_OK);
    assert_int_equal(tern_image_set_text(img, "Title", "caf\u00e9"), TERN_OK);
    assert_int_equal(tern_image_save(img, path), TERN_OK);
    size_t size;
    uint8_t *bytes = read_bytes(path, &size);
    assert_non_null(memmem(bytes, size, "\0\0\0\x14tEXtparameters\0Steps: 20", 8 + 20));
    assert_non_null(memmem(bytes, size, "iTXtTitle\0\0\0\0\0caf\xc3\xa9", 4 + 5 + 5 + 5));
    free(bytes);
    tern_image_destroy(&img);
    unlink(path);
}

static void test_create_and_text_are_checked(void **state)
{
    struct state *s = *state;
    static const int bad[][2] = {{0, 1}, {1, 0}, {-8, 8}, {16385, 1}, {1, 16385}, {16384, 8193}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_null(tern_image_create(s->ctx, bad[i][0], bad[i][1], NULL));
        assert_int_equal(tern_error_status(s->ctx), TERN_E_INVALID);
        tern_error_clear(s->ctx);
    }
    struct tern_image *img = tern_image_create(s->ctx, 2, 2, NULL);
    static const uint8_t black[12];
    assert_memory_equal(tern_image_data(img), black, 12);
    char long_key[81];
    memset(long_key, 'k', 80);
    long_key[80] = 0;
    const char *const keys[] = {"", " a", "a ", "a  b", "caf\u00e9", "a\nb", long_key};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        assert_int_equal(tern_image_set_text(img, keys[i], "x"), TERN_E_INVALID);
        tern_error_clear(s->ctx);
    }
    assert_int_equal(tern_image_set_text(img, "key", "ab\xffz"), TERN_E_INVALID);
    assert_non_null(strstr(tern_error(s->ctx), "byte 2"));
    tern_error_clear(s->ctx);
    assert_int_equal(tern_image_set_text(img, "key", NULL), TERN_E_INVALID);
    tern_error_clear(s->ctx);
    assert_int_equal(tern_image_set_text(img, long_key + 1, "79 characters"), TERN_OK);
    assert_string_equal(tern_image_text(img, long_key + 1), "79 characters");
    tern_image_destroy(&img);

    assert_null(tern_image_load(NULL, "x.png"));
    assert_null(tern_image_create(NULL, 1, 1, NULL));
    assert_int_equal(tern_image_save(NULL, "x.png"), TERN_E_INVALID);
    assert_int_equal(tern_image_width(NULL), 0);
    tern_image_destroy(NULL);
}

static void test_image_outlives_its_context_handle(void **state)
{
    struct tern_context *ctx = tern_context_create(NULL);
    struct tern_image *img = tern_image_create(ctx, 4, 4, NULL);
    tern_context_destroy(&ctx);
    struct tern_image *big = tern_image_resize(img, 8, 8);
    assert_non_null(big);
    tern_image_destroy(&img);
    tern_image_destroy(&big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_of_png),
        cmocka_unit_test(test_jpeg_and_webp),
        cmocka_unit_test(test_masks_lie_over_black),
        cmocka_unit_test(test_texts_are_read),
        cmocka_unit_test(test_resize_is_pillows),
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_png_chunk_kinds),
        cmocka_unit_test(test_create_and_text_are_checked),
        cmocka_unit_test(test_image_outlives_its_context_handle),
    };
    return cmocka_run_group_tests_name("images", tests, images_setup, images_teardown);
}

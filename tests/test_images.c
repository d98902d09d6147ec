/* Pictures: every file of tests/data/images against its pixels, texts, resampling against Pillow's, and what happens with
 * damaged files, full disks and no memory. The data are made by tools/goldens_images.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tern/context.h>
#include <tern/image.h>

#define DATA TERN_TEST_DATA "/images/"

/* The text that tools/goldens_images.py puts into the files. */
static const char infotext[] = "a caf\u00e9, \u4e00\u53ea\u732b \U0001F431\nNegative prompt: \"blurry\"\n"
                               "Steps: 20, Sampler: Euler a, CFG scale: 7.5, Seed: 42, Size: 512x512";

struct state {
    struct tern_context *ctx;
    char folder[64]; /* for output, removed at the end */
};

static int setup(void **state)
{
    struct state *s = calloc(1, sizeof(*s));
    strcpy(s->folder, "/tmp/tern-images-XXXXXX");
    if (!mkdtemp(s->folder) || !(s->ctx = tern_context_create(NULL)))
        return -1;
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct state *s = *state;
    int failed = tern_memory_used(s->ctx) > 1 << 20;
    tern_context_destroy(&s->ctx);
    failed |= rmdir(s->folder); /* every test removes its files: a stray one fails here */
    free(s);
    return failed;
}

static uint8_t *read_bytes(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*size + 1);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

static void write_bytes(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    fclose(f);
}

static const char *out_path(struct state *s, const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", s->folder, name);
    return path;
}

static int files_in(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

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

/* A picture that JPEG and WebP keep well. */
static struct tern_image *make(struct state *s, int width, int height)
{
    uint8_t *rgb = malloc((size_t)width * (size_t)height * 3);
    for (int i = 0; i < width * height; i++) {
        int x = i % width, y = i / width;
        rgb[3 * i] = (uint8_t)(x * 200 / width);
        rgb[3 * i + 1] = (uint8_t)(y * 200 / height);
        rgb[3 * i + 2] = (uint8_t)(128 + 60 * sin((x + y) / 10.0));
    }
    struct tern_image *img = tern_image_create(s->ctx, width, height, rgb);
    free(rgb);
    assert_non_null(img);
    return img;
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

static void expect_load_error(struct state *s, const char *path, enum tern_status status, const char *word)
{
    assert_null(tern_image_load(s->ctx, path));
    if (tern_error_status(s->ctx) != status || !strstr(tern_error(s->ctx), word) || !strstr(tern_error(s->ctx), path))
        fail_msg("%s: status %d, \"%s\" lacks \"%s\" or the path", path, tern_error_status(s->ctx), tern_error(s->ctx), word);
    tern_error_clear(s->ctx);
}

static void test_what_is_no_picture(void **state)
{
    struct state *s = *state;
    const char *path = out_path(s, "file.png");
    expect_load_error(s, path, TERN_E_NOT_FOUND, "");
    expect_load_error(s, s->folder, TERN_E_IO, "folder");
    write_bytes(path, "", 0);
    expect_load_error(s, path, TERN_E_FORMAT, "empty");
    write_bytes(path, "GIF89a", 6);
    expect_load_error(s, path, TERN_E_FORMAT, "47 49");
    write_bytes(path, "G", 1);
    expect_load_error(s, path, TERN_E_FORMAT, "PNG, JPEG or WebP");
    unlink(path);
    expect_load_error(s, DATA "webp-animated.webp", TERN_E_UNSUPPORTED, "animated");
}

/* A header may promise any size: it is refused before memory is taken. */
static void test_absurd_sizes(void **state)
{
    struct state *s = *state;
    size_t size;
    uint8_t *png = read_bytes(DATA "rgb8.png", &size);
    const char *path = out_path(s, "huge.png");
    static const uint32_t sides[][2] = {{16384, 16384}, {20000, 1}, {1, 0x7fffffff}, {0, 5}};
    for (size_t i = 0; i < sizeof(sides) / sizeof(sides[0]); i++) {
        for (int k = 0; k < 4; k++) {
            png[16 + k] = (uint8_t)(sides[i][0] >> (24 - 8 * k));
            png[20 + k] = (uint8_t)(sides[i][1] >> (24 - 8 * k));
        }
        /* CRC-32 of the header chunk, bit by bit */
        uint32_t crc = 0xffffffff;
        for (int k = 12; k < 29; k++) {
            crc ^= png[k];
            for (int b = 0; b < 8; b++)
                crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
        }
        for (int k = 0; k < 4; k++)
            png[29 + k] = (uint8_t)(~crc >> (24 - 8 * k));
        write_bytes(path, png, size);
        tern_memory_reset_peak(s->ctx);
        size_t before = tern_memory_used(s->ctx);
        assert_null(tern_image_load(s->ctx, path));
        assert_non_null(strstr(tern_error(s->ctx), path));
        assert_true(tern_memory_peak(s->ctx) - before < 100000);
        tern_error_clear(s->ctx);
    }
    free(png);
    unlink(path);
}

static const char *const damage_files[] = {"gray1-adam7.png",      "rgba16.png",    "palette4.png", "texts.png",       "jpeg-444.jpg",
                                           "jpeg-progressive.jpg", "jpeg-cmyk.jpg", "upright7.jpg", "webp-lossy.webp", "webp-alpha.webp"};

static void test_truncated_anywhere(void **state)
{
    struct state *s = *state;
    for (size_t f = 0; f < sizeof(damage_files) / sizeof(damage_files[0]); f++) {
        char source[256];
        size_t size;
        snprintf(source, sizeof(source), DATA "%s", damage_files[f]);
        uint8_t *bytes = read_bytes(source, &size);
        const char *path = out_path(s, "cut");
        write_bytes(path, bytes, size);
        for (size_t n = size; n-- > 0;) {
            assert_int_equal(truncate(path, (off_t)n), 0);
            struct tern_image *img = tern_image_load(s->ctx, path);
            /* only the end of the end mark may be missing: its checksum in PNG, itself in JPEG */
            bool behind = n >= size - 4 && !strstr(source, ".webp");
            if (img && !behind)
                fail_msg("%s cut to %zu of %zu bytes is taken for whole", source, n, size);
            if (!img && !strstr(tern_error(s->ctx), path))
                fail_msg("%s cut to %zu bytes: \"%s\"", source, n, tern_error(s->ctx));
            tern_image_destroy(&img);
            tern_error_clear(s->ctx);
        }
        free(bytes);
        unlink(path);
    }
}

/* Every byte damaged in four ways: an error with the path, or a picture; never a crash (the sanitizers watch). */
static void test_damaged_anywhere(void **state)
{
    static const uint8_t damage[] = {0xff, 0x01, 0x80, 0x10};
    struct state *s = *state;
    for (size_t f = 0; f < sizeof(damage_files) / sizeof(damage_files[0]); f++) {
        char source[256];
        size_t size, refused = 0;
        snprintf(source, sizeof(source), DATA "%s", damage_files[f]);
        uint8_t *bytes = read_bytes(source, &size);
        const char *path = out_path(s, "damaged");
        write_bytes(path, bytes, size);
        int fd = open(path, O_WRONLY);
        assert_true(fd >= 0);
        for (size_t n = 0; n < size * 4; n++) {
            uint8_t byte = bytes[n / 4] ^ damage[n % 4];
            assert_int_equal(pwrite(fd, &byte, 1, (off_t)(n / 4)), 1);
            struct tern_image *img = tern_image_load(s->ctx, path);
            if (!img && !strstr(tern_error(s->ctx), path))
                fail_msg("%s, byte %zu: \"%s\"", source, n / 4, tern_error(s->ctx));
            refused += !img;
            tern_image_destroy(&img);
            tern_error_clear(s->ctx);
            assert_int_equal(pwrite(fd, &bytes[n / 4], 1, (off_t)(n / 4)), 1);
        }
        close(fd);
        assert_true(refused > 20);
        free(bytes);
        unlink(path);
    }
}

static void test_output_that_fails(void **state)
{
    struct state *s = *state;
    struct tern_image *img = make(s, 300, 200);
    static const char *const endings[] = {"x", "x.bmp", ".png", "x.png.txt", "x.tiff", ""};
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        assert_int_equal(tern_image_save(img, endings[i]), TERN_E_INVALID);
        assert_non_null(strstr(tern_error(s->ctx), ".webp"));
        tern_error_clear(s->ctx);
    }
    assert_int_equal(tern_image_save(img, NULL), TERN_E_INVALID);
    tern_error_clear(s->ctx);
    assert_int_equal(tern_image_save(img, out_path(s, "absent/x.png")), TERN_E_IO);
    tern_error_clear(s->ctx);

    /* A disk that is full after 2 kB: the size limit of a process behaves the same. */
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 2048;
    signal(SIGXFSZ, SIG_IGN);
    static const char *const names[] = {"full.png", "full.jpg", "full.webp"};
    for (size_t i = 0; i < 3; i++) {
        const char *path = out_path(s, names[i]);
        write_bytes(path, "old", 3);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        enum tern_status status = tern_image_save(img, path);
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(status, TERN_E_IO);
        assert_non_null(strstr(tern_error(s->ctx), path));
        tern_error_clear(s->ctx);
        assert_int_equal(files_in(s->folder), 1); /* the old file stands, nothing else is left */
        size_t size;
        uint8_t *bytes = read_bytes(path, &size);
        assert_int_equal(size, 3);
        free(bytes);
        unlink(path);
    }
    signal(SIGXFSZ, SIG_DFL);

    /* A text that EXIF in JPEG cannot hold is refused, not lost. */
    char *text = malloc(40001);
    memset(text, 'x', 40000);
    text[40000] = 0;
    assert_int_equal(tern_image_set_text(img, "parameters", text), TERN_OK);
    assert_int_equal(tern_image_save(img, out_path(s, "text.jpg")), TERN_E_INVALID);
    assert_non_null(strstr(tern_error(s->ctx), "PNG"));
    tern_error_clear(s->ctx);
    assert_int_equal(tern_image_save(img, out_path(s, "text.png")), TERN_OK);
    assert_int_equal(unlink(out_path(s, "text.png")), 0);
    free(text);
    tern_image_destroy(&img);
}

/* An allocator that gives out so many blocks and counts what is not returned. */
struct meter {
    long left, live;
};

static void *meter_alloc(size_t size, size_t alignment, void *user)
{
    struct meter *m = user;
    void *p = NULL;
    if (m->left-- <= 0 || posix_memalign(&p, alignment, size))
        return NULL;
    m->live++;
    return p;
}

static void meter_free(void *ptr, size_t size, void *user)
{
    ((struct meter *)user)->live -= ptr != NULL;
    free(ptr);
}

/* Load, resize, text, save with n allocations, for every n until all of it works. */
static void test_no_memory_at_any_point(void **state)
{
    static const char *const files[] = {"texts.png", "rgba8.png", "webp-lossy.webp", "jpeg-cmyk.jpg", "jpeg-444.jpg", "upright5.jpg"};
    static const char *const outs[] = {"m.png", "m.jpg", "m.webp"};
    struct state *s = *state;
    for (size_t f = 0; f < sizeof(files) / sizeof(files[0]); f++) {
        char path[256];
        snprintf(path, sizeof(path), DATA "%s", files[f]);
        const char *out = out_path(s, outs[f % 3]);
        bool done = false;
        for (long n = 0; !done; n++) {
            assert_true(n < 200);
            struct meter m = {1000, 0};
            struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.allocator = {meter_alloc, meter_free, &m}});
            assert_non_null(ctx);
            m.left = n;
            struct tern_image *img = tern_image_load(ctx, path);
            struct tern_image *wide = tern_image_resize(img, 50, 50);
            done = wide && !tern_image_set_text(wide, "parameters", infotext) && !tern_image_save(wide, out);
            if (!done && tern_error_status(ctx) != TERN_E_NO_MEMORY)
                fail_msg("%s, %ld allocations: %d, %s", files[f], n, tern_error_status(ctx), tern_error(ctx));
            assert_int_equal(files_in(s->folder), done);
            tern_image_destroy(&wide);
            tern_image_destroy(&img);
            m.left = 1000;
            tern_context_destroy(&ctx);
            assert_int_equal(m.live, 0);
        }
        unlink(out);
    }
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
        cmocka_unit_test(test_texts_are_read),
        cmocka_unit_test(test_resize_is_pillows),
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_png_chunk_kinds),
        cmocka_unit_test(test_create_and_text_are_checked),
        cmocka_unit_test(test_what_is_no_picture),
        cmocka_unit_test(test_absurd_sizes),
        cmocka_unit_test(test_truncated_anywhere),
        cmocka_unit_test(test_damaged_anywhere),
        cmocka_unit_test(test_output_that_fails),
        cmocka_unit_test(test_no_memory_at_any_point),
        cmocka_unit_test(test_image_outlives_its_context_handle),
    };
    return cmocka_run_group_tests_name("images", tests, setup, teardown);
}

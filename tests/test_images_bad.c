/* Pictures that go wrong: damaged and absurd files, output that cannot be written, full disks, no memory. */
#include "images_help.h"

#include <arpa/inet.h>
#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "support.h"

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

    tern_image_destroy(&img);
}

/* EXIF in JPEG holds half a text of 65,533 bytes, a comment all of it. No picture is lost for a longer one. */
static void test_long_texts(void **state)
{
    static const struct {
        size_t size;
        bool jpeg;
    } rows[] = {{32000, true}, {40000, true}, {65533, true}, {65534, false}};
    struct state *s = *state;
    struct tern_image *img = make(s, 8, 8);
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
        const size_t size = rows[i / 2].size;
        const bool jpeg = i % 2;
        const char *path = out_path(s, jpeg ? "text.jpg" : "text.png");
        char *text = malloc(size + 1);
        memset(text, 'x', size);
        text[size] = 0;
        assert_int_equal(tern_image_set_text(img, "parameters", text), TERN_OK);
        assert_int_equal(tern_image_save(img, path), TERN_OK);
        struct tern_image *read = tern_image_load(s->ctx, path);
        const char *found = tern_image_text(read, "parameters");
        assert_non_null(read);
        assert_true(!jpeg || rows[i / 2].jpeg ? found && !strcmp(found, text) : !found);
        tern_image_destroy(&read);
        free(text);
        unlink(path);
    }
    tern_image_destroy(&img);
}

static void write_chunk(FILE *f, const uint8_t *chunk, size_t size)
{
    const uint32_t sum = (uint32_t)crc32(0, chunk, (uInt)size), fields[] = {htonl((uint32_t)size - 4), htonl(sum)};
    fwrite(&fields[0], 4, 1, f);
    fwrite(chunk, 1, size, f);
    fwrite(&fields[1], 4, 1, f);
}

/* A picture is not given up for its texts: one of 20 MiB, packed, and 2000. Its transparency is not among what is left out. */
static void test_texts_beyond_limits(void **state)
{
    static uint8_t text[20 << 20], chunk[1 << 16] = "zTXtk\0";
    struct state *s = *state;
    const char *path = out_path(s, "file.png");
    size_t size;
    uint8_t *png = read_bytes(DATA "palette8.png", &size);
    struct tern_image *plain = tern_image_load(s->ctx, DATA "palette8.png");
    uLongf packed = sizeof(chunk) - 7;
    memset(text, 'x', sizeof(text));
    assert_int_equal(compress(chunk + 7, &packed, text, sizeof(text)), Z_OK);
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(path, "wb");
        assert_int_equal(fwrite(png, 1, 33, f), 33); /* up to the header's end */
        for (int k = 0; k < (i ? 2000 : 1); k++)
            write_chunk(f, i ? (const uint8_t *)"tEXtk\0x" : chunk, i ? 7 : packed + 7);
        fwrite(png + 33, 1, size - 33, f);
        assert_int_equal(fclose(f), 0);
        struct tern_image *img = tern_image_load(s->ctx, path);
        if (!img)
            fail_msg("%s", tern_error(s->ctx));
        assert_null(tern_image_text(img, "k"));
        assert_int_equal(tern_image_width(img), tern_image_width(plain));
        assert_memory_equal(tern_image_data(img), tern_image_data(plain),
                            (size_t)tern_image_width(plain) * (size_t)tern_image_height(plain) * 3);
        tern_image_destroy(&img);
    }
    free(png);
    unlink(path);
    tern_image_destroy(&plain);
}

/* JFIF 2 does not exist; what says so is a JPEG none the less. */
static void test_other_jfif(void **state)
{
    struct state *s = *state;
    const char *path = out_path(s, "file.jpg");
    size_t size;
    uint8_t *jpeg = read_bytes(DATA "jpeg-444.jpg", &size);
    assert_memory_equal(jpeg + 6, "JFIF\0\1", 6);
    jpeg[11] = 2;
    write_bytes(path, jpeg, size);
    struct tern_image *img = tern_image_load(s->ctx, path);
    if (!img)
        fail_msg("%s", tern_error(s->ctx));
    tern_image_destroy(&img);
    unlink(path);
    free(jpeg);
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

/* ---- memory that ends inside a library */

#if defined(__GLIBC__)
/* Reads or writes the picture with so much more address space than there is: 0 when it worked, 1 when it was told, 2 else. */
static int in_little(struct state *s, const char *path, const struct tern_image *img, size_t more)
{
    if (!support_leave_space(more))
        return 2;
    struct tern_image *read = img ? NULL : tern_image_load(s->ctx, path);
    if (img ? tern_image_save(img, path) == TERN_OK : read != NULL)
        return 0;
    if (tern_error_status(s->ctx) == TERN_E_NO_MEMORY)
        return 1;
    fprintf(stderr, "%zu bytes more: %s\n", more, tern_error(s->ctx));
    return 2;
}

static void test_memory_that_ends_inside(void **state)
{
    support_skip_watched();
    static const char *const names[] = {"file.png", "file.jpg", "file.webp"};
    struct state *s = *state;
    struct tern_image *img = tern_image_create(s->ctx, 2000, 300, NULL);
    assert_int_equal(tern_image_set_text(img, "parameters", "a text"), TERN_OK);
    for (int i = 0; i < 6; i++) {
        const char *path = out_path(s, names[i / 2]);
        int told = 0, status = 1;
        if (i % 2) /* what is read was written before */
            assert_int_equal(tern_image_save(img, path), TERN_OK);
        for (size_t more = 0; status == 1; more += 64 << 10) {
            const pid_t child = fork();
            if (!child) {
                mallopt(M_MMAP_THRESHOLD, 4096); /* each block takes address space */
                mallopt(M_TOP_PAD, 0);
                malloc_trim(0);
                _exit(in_little(s, path, i % 2 ? NULL : img, more));
            }
            assert_int_equal(waitpid(child, &status, 0), child);
            status = WIFEXITED(status) ? WEXITSTATUS(status) : 2;
            told += status == 1;
        }
        if (status)
            fail_msg("%s: not told", path);
        assert_true(told > 1);
        print_message("%s %s: %d times\n", i % 2 ? "read" : "write", names[i / 2], told);
        unlink(path);
    }
    tern_image_destroy(&img);
}
#else
static void test_memory_that_ends_inside(void **state)
{
    print_message("not run: another C library takes memory in other ways\n");
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_no_picture),      cmocka_unit_test(test_absurd_sizes),
        cmocka_unit_test(test_truncated_anywhere),      cmocka_unit_test(test_damaged_anywhere),
        cmocka_unit_test(test_output_that_fails),       cmocka_unit_test(test_no_memory_at_any_point),
        cmocka_unit_test(test_memory_that_ends_inside), cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_texts_beyond_limits),     cmocka_unit_test(test_other_jfif),
    };
    return cmocka_run_group_tests_name("images_bad", tests, images_setup, images_teardown);
}

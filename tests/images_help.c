/* Context, folder and files of the tests of pictures. */
#include "images_help.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char infotext[] = "a caf\u00e9, \u4e00\u53ea\u732b \U0001F431\nNegative prompt: \"blurry\"\n"
                        "Steps: 20, Sampler: Euler a, CFG scale: 7.5, Seed: 42, Size: 512x512";

int images_setup(void **state)
{
    struct state *s = calloc(1, sizeof(*s));
    strcpy(s->folder, "/tmp/tern-images-XXXXXX");
    if (!mkdtemp(s->folder) || !(s->ctx = tern_context_create(NULL)))
        return -1;
    *state = s;
    return 0;
}

int images_teardown(void **state)
{
    struct state *s = *state;
    int failed = tern_memory_used(s->ctx) > 1 << 20;
    tern_context_destroy(&s->ctx);
    failed |= rmdir(s->folder); /* every test removes its files: a stray one fails here */
    free(s);
    return failed;
}

uint8_t *read_bytes(const char *path, size_t *size)
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

void write_bytes(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    fclose(f);
}

const char *out_path(struct state *s, const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", s->folder, name);
    return path;
}

int files_in(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

struct tern_image *make(struct state *s, int width, int height)
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

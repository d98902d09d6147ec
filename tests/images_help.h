/* What the tests of pictures share: a context, a folder for output, files as bytes. */
#ifndef TERN_TESTS_IMAGES_HELP_H
#define TERN_TESTS_IMAGES_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <tern/context.h>
#include <tern/image.h>

#define DATA TERN_TEST_DATA "/images/"

/* The text that tools/goldens_images.py puts into the files. */
extern const char infotext[];

struct state {
    struct tern_context *ctx;
    char folder[64]; /* for output, removed at the end */
};

/* Of a group: makes the state, and finds files that a test left behind. */
int images_setup(void **state);
int images_teardown(void **state);

/* The caller frees. */
uint8_t *read_bytes(const char *path, size_t *size);
void write_bytes(const char *path, const void *data, size_t size);
/* A path in the folder for output, valid until the next call. */
const char *out_path(struct state *s, const char *name);
int files_in(const char *folder);
/* A picture that JPEG and WebP keep well. */
struct tern_image *make(struct state *s, int width, int height);

#endif

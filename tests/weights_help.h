/* What the tests of weight files share: a context, a temporary folder, and files built byte by byte. */
#ifndef TERN_TESTS_WEIGHTS_HELP_H
#define TERN_TESTS_WEIGHTS_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <tern/context.h>
#include <tern/weights.h>

#define FORMATS TERN_TEST_DATA "/formats/"

/* cmocka fixtures: *state is a struct fixture. Teardown fails the test when memory of the context is left over. */
struct fixture {
    struct tern_context *ctx;
    size_t idle;     /* bytes that a fresh context uses */
    char folder[64]; /* temporary, removed with what is in it */
    char path[256];  /* result of file() */
};
int help_setup(void **state);
int help_teardown(void **state);

/* Path of a name in the temporary folder; valid until the next call. */
const char *help_path(struct fixture *f, const char *name);
/* Makes folder NAME in it. */
void help_folder(struct fixture *f, const char *name);
/* Writes a file there and returns its path. */
const char *help_file(struct fixture *f, const char *name, const void *data, size_t size);
/* Writes a text to a file, and asserts that a file holds one. */
void help_write(const char *path, const char *text);
void help_holds(const char *path, const char *text);
/* All bytes of a file; free(). */
uint8_t *help_read(const char *path, size_t *size);
void help_copy(struct fixture *f, const char *from, const char *name);

/* Opening must succeed. */
struct tern_weights *help_open(struct fixture *f, const char *path);
/* Opening must fail with this status and a message that names the file and holds `text`. */
void help_refused(struct fixture *f, const char *path, enum tern_status status, const char *text);
/* Every strict prefix of the file must be refused with a message, and nothing leak. `ending`: of the file's name. */
void help_truncate_everywhere(struct fixture *f, const char *path, const char *ending);
/* One byte changed, everywhere, to several values: whatever comes of it, no crash and no leak. Returns how many were refused. */
int help_mutate_everywhere(struct fixture *f, const char *path, const char *ending);

/* Same dtype, shape and bytes. */
void help_same_tensor(const tern_tensor *a, const tern_tensor *b, const char *name);
/* The same names with the same tensors. */
void help_same_weights(const struct tern_weights *a, const struct tern_weights *b);

/* Bytes that grow. */
struct bytes {
    uint8_t data[1 << 16];
    size_t size;
};
void put_raw(struct bytes *b, const void *data, size_t size);
void put_text(struct bytes *b, const char *text); /* without its NUL */
void put_u64(struct bytes *b, uint64_t x);

/* A safetensors file with that header and `data_size` zero bytes behind it. */
const char *help_safetensors(struct fixture *f, const char *header, size_t data_size);

/* Pickle: PROTO 2, then pieces, then STOP. */
void pickle_begin(struct bytes *b);
void pickle_global(struct bytes *b, const char *module, const char *name);
void pickle_str(struct bytes *b, const char *text);
void pickle_int(struct bytes *b, int64_t x);
void pickle_ints(struct bytes *b, int n, const int64_t *x); /* a tuple */
/* A tensor over storage KEY of `numel` floats, with this offset, shape and stride. */
void pickle_tensor(struct bytes *b, const char *key, int64_t numel, int64_t offset, int n, const int64_t *shape, const int64_t *stride);
/* A whole pickle of { "w": that tensor over storage "0" }. */
void pickle_w(struct bytes *b, int64_t numel, int64_t offset, int n, const int64_t *shape, const int64_t *stride);

/* A zip archive "a/…" with members added by pairs (name, bytes); deflated or stored. */
struct member {
    const char *name;
    const void *data;
    size_t size;
    int deflate;
};
const char *help_zip(struct fixture *f, const char *name, const struct member *members, int count);
/* A file of torch.save "w.pt" with that pickle and one storage "0" of `size` bytes. */
const char *help_zip_of(struct fixture *f, const struct bytes *pickle, const void *data, size_t size, int deflate);

#endif

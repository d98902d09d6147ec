/* Where the members of a zip archive lie in the file: libzip reads members, but does not tell their place, which
 * mapping them needs. PKWARE APPNOTE 6.3.10, sections 4.3.7, 4.3.12, 4.3.14 - 4.3.16, 4.5.3. */
#ifndef TERN_MODELS_FILES_ZIP_DIRECTORY_H
#define TERN_MODELS_FILES_ZIP_DIRECTORY_H

#include <tern/base.h>

struct tern_zip_member {
    const char *name; /* in the mapped file, not NUL-terminated */
    size_t name_size;
    int method; /* 0 stored, 8 deflated */
    bool encrypted;
    uint64_t packed, size; /* bytes in the file, and unpacked */
    uint64_t header;       /* offset of the local header */
    uint64_t index;        /* in the order of the central directory: libzip's index */
};

struct tern_zip_directory {
    struct tern_zip_member *members;
    size_t count;
};

/* Reads the central directory. `where` names the file in messages. members: tern_free. */
enum tern_status tern_zip_directory_read(struct tern_context *ctx, const uint8_t *data, size_t size, const char *where,
                                         struct tern_zip_directory *out);

/* First byte of a member's packed data, checked to lie in the file with its `packed` bytes. */
enum tern_status tern_zip_member_data(struct tern_context *ctx, const uint8_t *data, size_t size, const char *where,
                                      const struct tern_zip_member *m, const uint8_t **out);

#endif

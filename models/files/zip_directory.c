/* The central directory of a zip archive, every field checked against the file. */
#include "models/files/zip_directory.h"

#include <string.h>

#include "core/context.h"
#include "models/files/weights.h"

#define END_SIZE 22
#define LOCATOR_SIZE 20
#define END64_SIZE 56
#define CENTRAL_SIZE 46
#define LOCAL_SIZE 30
#define COMMENT_LIMIT 65535
#define MEMBER_LIMIT 1000000

static uint64_t little(const uint8_t *p, int n)
{
    uint64_t x = 0;
    while (n--)
        x = x << 8 | p[n];
    return x;
}

struct directory {
    uint64_t begin, size, count;
};

static bool end_of_zip64(const uint8_t *data, uint64_t end, struct directory *d)
{
    if (end < LOCATOR_SIZE || little(data + end - LOCATOR_SIZE, 4) != 0x07064b50)
        return false;
    uint64_t at = little(data + end - LOCATOR_SIZE + 8, 8);
    if (end - LOCATOR_SIZE < END64_SIZE || at > end - LOCATOR_SIZE - END64_SIZE || little(data + at, 4) != 0x06064b50)
        return false;
    d->count = little(data + at + 32, 8);
    d->size = little(data + at + 40, 8);
    d->begin = little(data + at + 48, 8);
    return true;
}

/* The end record is searched from the file's end: a comment may follow it. */
static bool find_directory(const uint8_t *data, size_t size, struct directory *d)
{
    if (size < END_SIZE)
        return false;
    uint64_t lowest = size - END_SIZE > COMMENT_LIMIT ? size - END_SIZE - COMMENT_LIMIT : 0;
    for (uint64_t at = size - END_SIZE + 1; at-- > lowest;) {
        const uint8_t *p = data + at;
        if (little(p, 4) != 0x06054b50 || little(p + 20, 2) != size - END_SIZE - at)
            continue;
        d->count = little(p + 10, 2);
        d->size = little(p + 12, 4);
        d->begin = little(p + 16, 4);
        if (d->count == 0xffff || d->size == 0xffffffff || d->begin == 0xffffffff)
            end_of_zip64(data, at, d);
        return d->begin <= at && d->size <= at - d->begin;
    }
    return false;
}

/* Sizes and offset that did not fit into 32 bits stand in the extra field 1, in this order, those alone. */
static bool read_zip64(const uint8_t *p, size_t n, struct tern_zip_member *m)
{
    uint64_t *fields[] = {&m->size, &m->packed, &m->header};
    bool wanted = false;
    for (int i = 0; i < 3; i++)
        wanted = wanted || *fields[i] == 0xffffffff;
    while (wanted && n >= 4) {
        uint64_t id = little(p, 2), length = little(p + 2, 2);
        if (length > n - 4)
            return false;
        p += 4;
        n -= 4;
        if (id == 1) {
            for (int i = 0; i < 3; i++)
                if (*fields[i] == 0xffffffff) {
                    if (length < 8)
                        return false;
                    *fields[i] = little(p, 8);
                    p += 8;
                    length -= 8;
                }
            return true;
        }
        p += length;
        n -= (size_t)length;
    }
    return !wanted;
}

/* One record of the central directory; its length, or 0 when it is damaged. */
static size_t read_member(const uint8_t *p, uint64_t left, struct tern_zip_member *m)
{
    if (left < CENTRAL_SIZE || little(p, 4) != 0x02014b50)
        return 0;
    size_t name = (size_t)little(p + 28, 2), extra = (size_t)little(p + 30, 2), comment = (size_t)little(p + 32, 2);
    if (CENTRAL_SIZE + name + extra + comment > left)
        return 0;
    m->encrypted = little(p + 8, 2) & 1;
    m->method = (int)little(p + 10, 2);
    m->packed = little(p + 20, 4);
    m->size = little(p + 24, 4);
    m->header = little(p + 42, 4);
    m->name = (const char *)p + CENTRAL_SIZE;
    m->name_size = name;
    return read_zip64(p + CENTRAL_SIZE + name, extra, m) ? CENTRAL_SIZE + name + extra + comment : 0;
}

enum tern_status tern_zip_directory_read(struct tern_context *ctx, const uint8_t *data, size_t size, const char *where,
                                         struct tern_zip_directory *out)
{
    struct directory d = {0};
    *out = (struct tern_zip_directory){0};
    if (!find_directory(data, size, &d))
        return tern_fail(ctx, TERN_E_FORMAT, "%s: the directory at the end of the zip archive is missing or damaged; the file is truncated",
                         where);
    if (d.count > MEMBER_LIMIT || d.count > d.size / CENTRAL_SIZE)
        return tern_fail(ctx, TERN_E_FORMAT, "%s: zip directory of %llu bytes cannot hold %llu members", where, (unsigned long long)d.size,
                         (unsigned long long)d.count);
    out->members = tern_calloc(ctx, (size_t)d.count, sizeof(*out->members));
    if (!out->members)
        return tern_error_status(ctx);
    uint64_t at = 0;
    for (; out->count < d.count; out->count++) {
        struct tern_zip_member *m = out->members + out->count;
        size_t n = read_member(data + d.begin + at, d.size - at, m);
        if (!n) {
            tern_free(ctx, out->members);
            out->members = NULL;
            return tern_fail(ctx, TERN_E_FORMAT, "%s: record %zu of the zip directory is damaged", where, out->count);
        }
        m->index = out->count;
        at += n;
    }
    return TERN_OK;
}

enum tern_status tern_zip_member_data(struct tern_context *ctx, const uint8_t *data, size_t size, const char *where,
                                      const struct tern_zip_member *m, const uint8_t **out)
{
    char text[TERN_PRINTABLE];
    if (m->header < size && size - m->header >= LOCAL_SIZE && little(data + m->header, 4) == 0x04034b50) {
        const uint8_t *p = data + m->header;
        uint64_t skip = LOCAL_SIZE + little(p + 26, 2) + little(p + 28, 2), left = size - m->header;
        bool same_name =
            little(p + 26, 2) == m->name_size && LOCAL_SIZE + m->name_size <= left && !memcmp(p + LOCAL_SIZE, m->name, m->name_size);
        if (same_name && skip <= left && m->packed <= left - skip) {
            *out = p + skip;
            return TERN_OK;
        }
    }
    return tern_fail(ctx, TERN_E_FORMAT, "%s: zip member \"%s\" does not lie in the file where the directory says", where,
                     tern_printable(m->name, m->name_size, text));
}

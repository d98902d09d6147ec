/* EXIF, as much as pictures need: the orientation a camera noted, and UserComment, where AUTOMATIC1111 keeps the infotext
 * of JPEG and WebP. EXIF is a TIFF header, a directory of 12-byte entries, and a second directory that one of them points to. */
#include <string.h>
#include <tern/context.h>
#include <utf8proc.h>

#include "core/memory.h"
#include "core/status.h"
#include "models/images/image.h"

enum { TAG_ORIENTATION = 0x0112, TAG_EXIF = 0x8769, TAG_USER_COMMENT = 0x9286 };
enum { TYPE_SHORT = 3, TYPE_LONG = 4, TYPE_UNDEFINED = 7 };

struct tiff {
    const uint8_t *data;
    size_t size;
    bool big_endian;
};

struct entry {
    unsigned type;
    uint32_t count;
    size_t at; /* of the value field, inside the block */
};

/* The caller has checked that the bytes are there. */
static unsigned u16(const struct tiff *t, size_t at)
{
    const uint8_t *d = t->data + at;
    return t->big_endian ? (unsigned)d[0] << 8 | d[1] : (unsigned)d[1] << 8 | d[0];
}

static uint32_t u32(const struct tiff *t, size_t at)
{
    return t->big_endian ? (uint32_t)u16(t, at) << 16 | u16(t, at + 2) : (uint32_t)u16(t, at + 2) << 16 | u16(t, at);
}

static bool inside(const struct tiff *t, size_t at, size_t n) { return at <= t->size && n <= t->size - at; }

static bool tiff_open(struct tiff *t, const uint8_t *data, size_t size)
{
    if (size >= 6 && !memcmp(data, "Exif\0", 6)) {
        data += 6;
        size -= 6;
    }
    if (size < 8 || (memcmp(data, "MM\0*", 4) && memcmp(data, "II*\0", 4)))
        return false;
    *t = (struct tiff){data, size, data[0] == 'M'};
    return true;
}

/* Looks for a tag in the directory at that offset. */
static bool find(const struct tiff *t, size_t directory, unsigned tag, struct entry *out)
{
    if (!inside(t, directory, 2))
        return false;
    unsigned n = u16(t, directory);
    for (size_t i = 0, at = directory + 2; i < n && inside(t, at, 12); i++, at += 12)
        if (u16(t, at) == tag) {
            *out = (struct entry){u16(t, at + 2), u32(t, at + 4), at + 8};
            return true;
        }
    return false;
}

/* UTF-16 to UTF-8; lone surrogates become U+FFFD. Returns bytes written; out has room for 3 per unit. */
static size_t utf16_to_utf8(const uint8_t *d, size_t units, bool big_endian, uint8_t *out)
{
    struct tiff t = {d, units * 2, big_endian};
    size_t n = 0;
    for (size_t i = 0; i < units; i++) {
        int32_t c = (int32_t)u16(&t, 2 * i);
        if (c >= 0xD800 && c < 0xDC00 && i + 1 < units && (u16(&t, 2 * i + 2) & 0xFC00) == 0xDC00) {
            c = 0x10000 + ((c - 0xD800) << 10) + (int32_t)(u16(&t, 2 * i + 2) - 0xDC00);
            i++;
        } else if (c >= 0xD800 && c < 0xE000) {
            c = 0xFFFD;
        }
        n += (size_t)utf8proc_encode_char(c, out + n);
    }
    return n;
}

/* The standard leaves the byte order of the text open, and writers differ: a mark decides, else where the zero bytes of
 * ASCII stand, else the block's own order. Skips the mark. */
static bool text_is_big_endian(const struct tiff *t, const uint8_t **d, size_t *units)
{
    if (*units && ((*d)[0] == 0xFE || (*d)[0] == 0xFF) && (*d)[0] + (*d)[1] == 0xFE + 0xFF) {
        bool big = (*d)[0] == 0xFE;
        *d += 2;
        (*units)--;
        return big;
    }
    size_t zeros[2] = {0, 0};
    for (size_t i = 0; i < *units * 2; i++)
        zeros[i & 1] += (*d)[i] == 0;
    return zeros[0] == zeros[1] ? t->big_endian : zeros[0] > zeros[1];
}

static enum tern_status keep_comment(struct tern_image *img, const char *path, const struct tiff *t)
{
    struct entry exif, comment;
    if (!find(t, u32(t, 4), TAG_EXIF, &exif) || exif.type != TYPE_LONG || !find(t, u32(t, exif.at), TAG_USER_COMMENT, &comment) ||
        comment.type != TYPE_UNDEFINED || comment.count <= 8)
        return TERN_OK;
    size_t at = u32(t, comment.at), size = comment.count - 8;
    if (!inside(t, at, comment.count))
        return TERN_OK;
    const uint8_t *code = t->data + at, *d = code + 8;
    if (memcmp(code, "UNICODE", 8))
        return tern_image_keep_text(img, path, TERN_IMAGE_PARAMETERS, (const char *)d, size);
    size_t units = size / 2;
    bool big_endian = text_is_big_endian(t, &d, &units);
    char *text = tern_alloc(img->ctx, units * 3 + 1);
    if (!text)
        return tern_error_status(img->ctx);
    size_t n = utf16_to_utf8(d, units, big_endian, (uint8_t *)text);
    enum tern_status status = n ? tern_image_keep_text(img, path, TERN_IMAGE_PARAMETERS, text, n) : TERN_OK;
    tern_free(img->ctx, text);
    return status;
}

/* EXIF 2.3, table of the tag: 2 mirrored, 3 half turn, 4 upside down mirrored, 5..8 the same with the axes exchanged. */
static enum tern_status turn(struct tern_image *img, unsigned orientation)
{
    bool exchange = orientation >= 5;
    bool flip_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    bool flip_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    int w = exchange ? img->height : img->width, h = exchange ? img->width : img->height;
    uint8_t *turned = tern_alloc(img->ctx, (size_t)w * (size_t)h * 3);
    if (!turned)
        return tern_error_status(img->ctx);
    uint8_t *dst = turned;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++, dst += 3) {
            int sx = exchange ? y : x, sy = exchange ? x : y;
            sx = flip_x ? img->width - 1 - sx : sx;
            sy = flip_y ? img->height - 1 - sy : sy;
            memcpy(dst, img->rgb + ((size_t)sy * (size_t)img->width + (size_t)sx) * 3, 3);
        }
    tern_free(img->ctx, img->rgb);
    img->rgb = turned;
    img->width = w;
    img->height = h;
    return TERN_OK;
}

enum tern_status tern_image_apply_exif(struct tern_image *img, const char *path, const uint8_t *exif, size_t size)
{
    struct tiff t;
    if (!tiff_open(&t, exif, size))
        return TERN_OK;
    struct entry orientation;
    if (find(&t, u32(&t, 4), TAG_ORIENTATION, &orientation) && orientation.type == TYPE_SHORT) {
        unsigned value = u16(&t, orientation.at);
        if (value >= 2 && value <= 8 && turn(img, value))
            return tern_error_status(img->ctx);
    }
    return keep_comment(img, path, &t);
}

static void put16(uint8_t **p, unsigned v)
{
    *(*p)++ = (uint8_t)(v >> 8);
    *(*p)++ = (uint8_t)v;
}

static void put32(uint8_t **p, uint32_t v)
{
    put16(p, v >> 16);
    put16(p, v & 0xFFFF);
}

static void put_entry(uint8_t **p, unsigned tag, unsigned type, uint32_t count, uint32_t value)
{
    put16(p, tag);
    put16(p, type);
    put32(p, count);
    put32(p, value);
}

uint8_t *tern_exif_make(struct tern_context *ctx, const char *text, size_t *size)
{
    /* header 8, directory 2 + 12 + 4, EXIF directory 2 + 12 + 4, then the comment */
    enum { FIRST = 8, SECOND = FIRST + 18, COMMENT = SECOND + 18 };
    size_t length = strlen(text); /* at most TERN_IMAGE_MAX_TEXT: the offsets fit */
    uint8_t *block = tern_alloc(ctx, COMMENT + 8 + 2 * length);
    if (!block)
        return NULL;
    uint8_t *p = block + COMMENT;
    memcpy(p, "UNICODE", 8);
    p += 8;
    for (size_t at = 0; at < length;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(length - at), &c);
        at += n > 0 ? (size_t)n : 1;
        if (c >= 0x10000) {
            put16(&p, 0xD800 + (unsigned)((c - 0x10000) >> 10));
            put16(&p, 0xDC00 + (unsigned)((c - 0x10000) & 0x3FF));
        } else {
            put16(&p, n > 0 ? (unsigned)c : 0xFFFD);
        }
    }
    *size = (size_t)(p - block);
    p = block;
    memcpy(p, "MM\0*", 4);
    p += 4;
    put32(&p, FIRST);
    put16(&p, 1);
    put_entry(&p, TAG_EXIF, TYPE_LONG, 1, SECOND);
    put32(&p, 0);
    put16(&p, 1);
    put_entry(&p, TAG_USER_COMMENT, TYPE_UNDEFINED, (uint32_t)(*size - COMMENT), COMMENT);
    put32(&p, 0);
    return block;
}

/* PNG through libspng: every colour type and depth is read as 8-bit RGB, RGB is written. Texts travel in tEXt, zTXt, iTXt. */
#include <errno.h>
#include <spng.h>
#include <string.h>
#include <utf8proc.h>

#include <tern/context.h>

#include "core/memory.h"
#include "core/status.h"
#include "models/images/image.h"

/* Most bytes of one chunk that is no picture data, and of all of them, unpacked. */
#define CHUNK_BYTES ((size_t)16 << 20)
#define CHUNKS_BYTES ((size_t)64 << 20)

static enum tern_status fail(const struct tern_image_file *file, int code)
{
    if (code == SPNG_EMEM || tern_errno_status(TERN_E_FORMAT) == TERN_E_NO_MEMORY) /* zlib's is told as damage */
        return tern_fail(file->ctx, TERN_E_NO_MEMORY, "%s: no memory to read the PNG", file->path);
    if (code == SPNG_IO_EOF || code == SPNG_EIDAT_TOO_SHORT)
        return tern_fail(file->ctx, TERN_E_FORMAT, "%s: the PNG is truncated (%zu bytes)", file->path, file->size);
    return tern_fail(file->ctx, TERN_E_FORMAT, "%s: the PNG is damaged: %s", file->path, spng_strerror(code));
}

/* tEXt and zTXt are Latin-1: at most two bytes of UTF-8 for each of theirs. */
static enum tern_status keep_latin1(struct tern_image *img, const char *path, const char *key, const char *text, size_t size)
{
    char *utf8 = tern_alloc(img->ctx, 2 * size + 1);
    if (!utf8)
        return tern_error_status(img->ctx);
    size_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += (size_t)utf8proc_encode_char((unsigned char)text[i], (utf8proc_uint8_t *)utf8 + n);
    enum tern_status status = tern_image_keep_text(img, path, key, utf8, n);
    tern_free(img->ctx, utf8);
    return status;
}

static enum tern_status read_texts(struct tern_image *img, const char *path, spng_ctx *png)
{
    uint32_t count = 0;
    if (spng_get_text(png, NULL, &count) || !count)
        return TERN_OK; /* SPNG_ECHUNKAVAIL: there are none */
    struct spng_text *texts = tern_calloc(img->ctx, count, sizeof(*texts));
    if (!texts)
        return tern_error_status(img->ctx);
    enum tern_status status = TERN_OK;
    if (!spng_get_text(png, texts, &count))
        for (uint32_t i = 0; i < count && !status; i++) {
            const struct spng_text *t = &texts[i];
            size_t size = strnlen(t->text, t->length);
            status = t->type == SPNG_ITXT ? tern_image_keep_text(img, path, t->keyword, t->text, size)
                                          : keep_latin1(img, path, t->keyword, t->text, size);
        }
    tern_free(img->ctx, texts);
    return status;
}

/* *limits: the file has too much beside the picture, and no error is recorded. */
static enum tern_status read_pixels(struct tern_image *img, const struct tern_image_file *file, spng_ctx *png, bool *limits)
{
    size_t pixels = (size_t)img->width * (size_t)img->height, size = 0;
    int code = spng_decoded_image_size(png, SPNG_FMT_RGBA8, &size);
    if (code)
        return fail(file, code);
    if (size != pixels * 4)
        return tern_fail(file->ctx, TERN_E_INTERNAL, "%s: libspng asks for %zu bytes for %zu pixels", file->path, size, pixels);
    uint8_t *rgba = tern_alloc(file->ctx, size);
    if (!rgba)
        return tern_error_status(file->ctx);
    errno = 0;
    code = spng_decode_image(png, rgba, size, SPNG_FMT_RGBA8, SPNG_DECODE_TRNS);
    if (!code)
        code = spng_decode_chunks(png); /* what stands behind the pixels, up to IEND */
    if (!code)
        tern_image_lay(file, img->rgb, rgba, pixels);
    tern_free(file->ctx, rgba);
    *limits = code == SPNG_ECHUNK_LIMITS;
    return *limits ? TERN_E_FORMAT : code ? fail(file, code) : TERN_OK;
}

static struct tern_image *read_png(const struct tern_image_file *file, bool *limits)
{
    errno = 0;
    spng_ctx *png = spng_ctx_new(0);
    if (!png) {
        fail(file, SPNG_EMEM);
        return NULL;
    }
    struct tern_image *img = NULL;
    struct spng_ihdr header;
    int code = spng_set_chunk_limits(png, CHUNK_BYTES, CHUNKS_BYTES);
    if (!code)
        code = spng_set_png_buffer(png, file->data, file->size);
    if (!code)
        code = spng_get_ihdr(png, &header);
    if (code)
        fail(file, code);
    else
        img = tern_image_empty(file->ctx, header.width, header.height, file->path);

    struct spng_exif exif;
    if (img && (read_pixels(img, file, png, limits) || read_texts(img, file->path, png) ||
                (!spng_get_exif(png, &exif) && tern_image_apply_exif(img, file->path, (const uint8_t *)exif.data, exif.length))))
        tern_image_destroy(&img);
    spng_ctx_free(png);
    return img;
}

/* Copies what the picture needs: critical chunks, transparency and which side is up. What is no chunk comes along. */
static size_t copy_plain(uint8_t *out, const uint8_t *data, size_t size)
{
    size_t at = 8, n = 8; /* the signature */
    memcpy(out, data, at);
    while (at < size) {
        const uint8_t *p = data + at, *type = p + 4;
        const size_t left = size - at,
                     length = left < 12 ? left : (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | (size_t)p[3],
                     chunk = left < 12 || length > left - 12 ? left : length + 12;
        if (chunk < 12 || !(type[0] & 0x20) || !memcmp(type, "tRNS", 4) || !memcmp(type, "eXIf", 4)) {
            memcpy(out + n, p, chunk);
            n += chunk;
        }
        at += chunk;
    }
    return n;
}

struct tern_image *tern_png_read(const struct tern_image_file *file)
{
    bool limits = false;
    struct tern_image *img = read_png(file, &limits);
    uint8_t *data = limits ? tern_alloc(file->ctx, file->size) : NULL;
    if (!data)
        return img;
    tern_message(file->ctx, TERN_LOG_WARN, "%s: has too many or too large texts beside the picture: they are left out", file->path);
    struct tern_image_file plain = *file;
    plain.size = copy_plain(data, file->data, file->size);
    plain.data = data;
    limits = false;
    img = read_png(&plain, &limits);
    if (limits)
        fail(file, SPNG_ECHUNK_LIMITS);
    tern_free(file->ctx, data);
    return img;
}

static bool is_ascii(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s > 0x7F)
            return false;
    return true;
}

/* Hands the texts to the encoder; *texts is needed until the picture is written. ASCII goes as tEXt, which every program
 * reads, the rest as iTXt. */
static int set_texts(const struct tern_image *img, spng_ctx *png, struct spng_text **texts)
{
    static char none[] = "";
    uint32_t count = 0;
    for (const struct tern_image_text *t = img->texts; t; t = t->next)
        count++;
    if (!count)
        return 0;
    *texts = tern_calloc(img->ctx, count, sizeof(**texts));
    if (!*texts)
        return SPNG_EMEM;
    struct spng_text *out = *texts;
    for (const struct tern_image_text *t = img->texts; t; t = t->next, out++) {
        memcpy(out->keyword, t->key, strlen(t->key) + 1);
        out->type = is_ascii(t->value) ? SPNG_TEXT : SPNG_ITXT;
        out->text = t->value;
        out->length = strlen(t->value);
        out->language_tag = out->translated_keyword = none;
    }
    return spng_set_text(png, *texts, count);
}

enum tern_status tern_png_write(const struct tern_image *img, FILE *out, const char *path)
{
    spng_ctx *png = spng_ctx_new(SPNG_CTX_ENCODER);
    if (!png)
        return tern_fail(img->ctx, TERN_E_NO_MEMORY, "%s: no memory to write the PNG", path);
    struct spng_ihdr header = {
        .width = (uint32_t)img->width, .height = (uint32_t)img->height, .bit_depth = 8, .color_type = SPNG_COLOR_TYPE_TRUECOLOR};
    struct spng_text *texts = NULL;
    errno = 0;
    int code = spng_set_png_file(png, out);
    if (!code)
        code = spng_set_ihdr(png, &header);
    if (!code)
        code = set_texts(img, png, &texts);
    if (!code)
        code = spng_encode_image(png, img->rgb, (size_t)img->width * (size_t)img->height * 3, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
    int reason = errno;
    spng_ctx_free(png);
    tern_free(img->ctx, texts);
    if (code == SPNG_EMEM)
        return tern_fail(img->ctx, TERN_E_NO_MEMORY, "%s: no memory to write the PNG", path);
    if (code)
        return tern_fail(img->ctx, reason == ENOMEM ? TERN_E_NO_MEMORY : TERN_E_IO, "%s: writing the PNG failed: %s", path,
                         reason ? strerror(reason) : spng_strerror(code));
    return TERN_OK;
}

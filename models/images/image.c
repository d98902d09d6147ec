/* Pictures: making, reading and writing them. The format of a file is recognised by its first bytes, that of a new
 * file by the ending of its name. */
#include <string.h>

#include "core/ascii.h"
#include "core/context.h"
#include "core/files.h"
#include "core/memory.h"
#include "core/status.h"
#include "models/images/image.h"

#define MAX_FILE_BYTES ((size_t)1 << 30)

struct format {
    const char *endings[2];
    struct tern_image *(*read)(const struct tern_image_file *file);
    enum tern_status (*write)(const struct tern_image *img, FILE *out, const char *path);
};

static const struct format png = {{".png", NULL}, tern_png_read, tern_png_write};
static const struct format jpeg = {{".jpg", ".jpeg"}, tern_jpeg_read, tern_jpeg_write};
static const struct format webp = {{".webp", NULL}, tern_webp_read, tern_webp_write};
static const struct format *const formats[] = {&png, &jpeg, &webp};

struct tern_image *tern_image_empty(struct tern_context *ctx, int64_t width, int64_t height, const char *where)
{
    if (width < 1 || height < 1 || width > TERN_IMAGE_MAX_SIDE || height > TERN_IMAGE_MAX_SIDE || width * height > TERN_IMAGE_MAX_PIXELS) {
        tern_fail(ctx, TERN_E_INVALID, "%s: a picture of %lld x %lld pixels; a side may have 1 to %d, the whole at most %d", where,
                  (long long)width, (long long)height, TERN_IMAGE_MAX_SIDE, TERN_IMAGE_MAX_PIXELS);
        return NULL;
    }
    struct tern_image *img = tern_calloc(ctx, 1, sizeof(*img));
    if (!img)
        return NULL;
    tern_context_ref(ctx);
    img->ctx = ctx;
    img->width = (int)width;
    img->height = (int)height;
    img->rgb = tern_alloc(ctx, (size_t)width * (size_t)height * 3);
    if (!img->rgb)
        tern_image_destroy(&img);
    return img;
}

struct tern_image *tern_image_create(struct tern_context *ctx, int width, int height, const uint8_t *rgb)
{
    if (!ctx)
        return NULL;
    struct tern_image *img = tern_image_empty(ctx, width, height, "tern_image_create");
    if (!img)
        return NULL;
    size_t size = (size_t)width * (size_t)height * 3;
    if (rgb)
        memcpy(img->rgb, rgb, size);
    else
        memset(img->rgb, 0, size);
    return img;
}

void tern_image_destroy(struct tern_image **img)
{
    if (!img || !*img)
        return;
    struct tern_image *i = *img;
    *img = NULL;
    while (i->texts) {
        struct tern_image_text *next = i->texts->next;
        tern_free(i->ctx, i->texts->key);
        tern_free(i->ctx, i->texts->value);
        tern_free(i->ctx, i->texts);
        i->texts = next;
    }
    struct tern_context *ctx = i->ctx;
    tern_free(ctx, i->rgb);
    tern_free(ctx, i);
    tern_context_unref(ctx);
}

int tern_image_width(const struct tern_image *img) { return img ? img->width : 0; }
int tern_image_height(const struct tern_image *img) { return img ? img->height : 0; }
const uint8_t *tern_image_data(const struct tern_image *img) { return img ? img->rgb : NULL; }

void tern_image_lay(const struct tern_image_file *file, uint8_t *dst, const uint8_t *rgba, size_t n)
{
    const unsigned behind = file->behind;
    for (size_t i = 0; i < n; i++, dst += 3, rgba += 4) {
        unsigned a = rgba[3];
        for (int c = 0; c < 3; c++)
            dst[c] = (uint8_t)((rgba[c] * a + behind * (255 - a) + 127) / 255);
    }
}

static const struct format *recognise(const uint8_t *d, size_t size)
{
    if (size >= 8 && !memcmp(d, "\x89PNG\r\n\x1a\n", 8))
        return &png;
    if (size >= 3 && d[0] == 0xFF && d[1] == 0xD8 && d[2] == 0xFF)
        return &jpeg;
    if (size >= 12 && !memcmp(d, "RIFF", 4) && !memcmp(d + 8, "WEBP", 4))
        return &webp;
    return NULL;
}

static struct tern_image *load(struct tern_context *ctx, const char *path, uint8_t behind, const char *where)
{
    if (!ctx)
        return NULL;
    if (!path) {
        tern_fail(ctx, TERN_E_INVALID, "%s: the path is NULL", where);
        return NULL;
    }
    size_t size = 0;
    char *data = tern_read_file(ctx, path, MAX_FILE_BYTES, &size);
    if (!data)
        return NULL;
    struct tern_image_file file = {ctx, path, (const uint8_t *)data, size, behind};
    struct tern_image *img = NULL;
    const struct format *format = recognise(file.data, size);
    if (format)
        img = format->read(&file);
    else if (size == 0)
        tern_fail(ctx, TERN_E_FORMAT, "%s: the file is empty; a PNG, JPEG or WebP picture is expected", path);
    else
        tern_fail(ctx, TERN_E_FORMAT,
                  "%s: no picture that can be read: PNG, JPEG or WebP is expected, the file begins with bytes %02x %02x", path,
                  file.data[0], size > 1 ? file.data[1] : 0);
    tern_free(ctx, data);
    return img;
}

struct tern_image *tern_image_load(struct tern_context *ctx, const char *path) { return load(ctx, path, 255, "tern_image_load"); }

struct tern_image *tern_image_load_mask(struct tern_context *ctx, const char *path) { return load(ctx, path, 0, "tern_image_load_mask"); }

static const struct format *format_of_name(const char *path)
{
    size_t length = strlen(path);
    for (size_t f = 0; f < sizeof(formats) / sizeof(formats[0]); f++)
        for (int e = 0; e < 2 && formats[f]->endings[e]; e++) {
            const char *ending = formats[f]->endings[e];
            if (length > strlen(ending) && tern_ascii_ends(path, ending))
                return formats[f];
        }
    return NULL;
}

enum tern_status tern_image_save(const struct tern_image *img, const char *path)
{
    if (!img)
        return TERN_E_INVALID;
    if (!path)
        return tern_fail(img->ctx, TERN_E_INVALID, "tern_image_save: the path is NULL");
    const struct format *format = format_of_name(path);
    if (!format)
        return tern_fail(img->ctx, TERN_E_INVALID, "%s: the ending of the name chooses the format: .png, .jpg, .jpeg or .webp", path);
    struct tern_writer *writer = tern_writer_open(img->ctx, path);
    if (!writer)
        return tern_error_status(img->ctx);
    enum tern_status status = format->write(img, writer->file, path);
    if (status) {
        tern_writer_discard(&writer);
        return status;
    }
    return tern_writer_commit(&writer);
}

/* WebP through libwebp; the infotext travels in an EXIF chunk, which libwebpmux puts around the picture. */
#include <errno.h>
#include <string.h>
#include <tern/context.h>
#include <webp/decode.h>
#include <webp/encode.h>
#include <webp/mux.h>

#include "core/memory.h"
#include "core/status.h"
#include "models/images/image.h"

#define QUALITY 90.0f

/* libwebp does not tell memory that ended from damage. errno is 0 before it is called. */
static enum tern_status damaged(const struct tern_image_file *file)
{
    if (tern_errno_status(TERN_E_FORMAT) == TERN_E_NO_MEMORY)
        return tern_fail(file->ctx, TERN_E_NO_MEMORY, "%s: no memory to read the WebP", file->path);
    return tern_fail(file->ctx, TERN_E_FORMAT, "%s: the WebP is damaged or truncated (%zu bytes)", file->path, file->size);
}

static enum tern_status read_exif(struct tern_image *img, const struct tern_image_file *file)
{
    WebPData data = {file->data, file->size}, exif;
    WebPMux *mux = WebPMuxCreate(&data, 0);
    if (!mux)
        return TERN_OK; /* no container around the picture: nothing but pixels */
    enum tern_status status = TERN_OK;
    if (WebPMuxGetChunk(mux, "EXIF", &exif) == WEBP_MUX_OK)
        status = tern_image_apply_exif(img, file->path, exif.bytes, exif.size);
    WebPMuxDelete(mux);
    return status;
}

static enum tern_status read_pixels(struct tern_image *img, const struct tern_image_file *file, bool alpha)
{
    size_t pixels = (size_t)img->width * (size_t)img->height;
    errno = 0;
    if (!alpha)
        return WebPDecodeRGBInto(file->data, file->size, img->rgb, pixels * 3, img->width * 3) ? TERN_OK : damaged(file);
    uint8_t *rgba = tern_alloc(file->ctx, pixels * 4);
    if (!rgba)
        return tern_error_status(file->ctx);
    errno = 0;
    enum tern_status status = WebPDecodeRGBAInto(file->data, file->size, rgba, pixels * 4, img->width * 4) ? TERN_OK : damaged(file);
    if (!status)
        tern_image_lay(file, img->rgb, rgba, pixels);
    tern_free(file->ctx, rgba);
    return status;
}

struct tern_image *tern_webp_read(const struct tern_image_file *file)
{
    WebPBitstreamFeatures features;
    errno = 0;
    if (WebPGetFeatures(file->data, file->size, &features) != VP8_STATUS_OK) {
        damaged(file);
        return NULL;
    }
    if (features.has_animation) {
        tern_fail(file->ctx, TERN_E_UNSUPPORTED, "%s: an animated WebP; a single picture is expected", file->path);
        return NULL;
    }
    struct tern_image *img = tern_image_empty(file->ctx, features.width, features.height, file->path);
    if (img && (read_pixels(img, file, features.has_alpha) || read_exif(img, file)))
        tern_image_destroy(&img);
    return img;
}

/* Puts the infotext beside the coded picture: *coded is replaced by a file that libwebp owns. */
static enum tern_status add_exif(const struct tern_image *img, const char *path, const char *text, WebPData *coded)
{
    WebPData exif = {NULL, 0}, all = {NULL, 0};
    uint8_t *block = tern_exif_make(img->ctx, text, &exif.size);
    if (!block)
        return tern_error_status(img->ctx);
    exif.bytes = block;
    WebPMux *mux = WebPMuxNew();
    bool ok = mux && WebPMuxSetImage(mux, coded, 0) == WEBP_MUX_OK && WebPMuxSetChunk(mux, "EXIF", &exif, 0) == WEBP_MUX_OK &&
              WebPMuxAssemble(mux, &all) == WEBP_MUX_OK;
    WebPMuxDelete(mux);
    tern_free(img->ctx, block);
    if (!ok)
        return tern_fail(img->ctx, TERN_E_NO_MEMORY, "%s: no memory to put the text into the WebP", path);
    WebPDataClear(coded);
    *coded = all;
    return TERN_OK;
}

enum tern_status tern_webp_write(const struct tern_image *img, FILE *out, const char *path)
{
    if (img->width > WEBP_MAX_DIMENSION || img->height > WEBP_MAX_DIMENSION)
        return tern_fail(img->ctx, TERN_E_INVALID, "%s: a WebP has at most %d pixels a side, the picture is %d x %d; PNG holds it", path,
                         WEBP_MAX_DIMENSION, img->width, img->height);
    uint8_t *bytes = NULL;
    size_t size = WebPEncodeRGB(img->rgb, img->width, img->height, img->width * 3, QUALITY, &bytes);
    if (!size)
        return tern_fail(img->ctx, TERN_E_NO_MEMORY, "%s: no memory to write the WebP", path);
    WebPData coded = {bytes, size};
    const char *text = tern_image_text(img, TERN_IMAGE_PARAMETERS);
    enum tern_status status = text ? add_exif(img, path, text, &coded) : TERN_OK;
    errno = 0;
    if (!status && fwrite(coded.bytes, 1, coded.size, out) != coded.size)
        status = tern_fail(img->ctx, TERN_E_IO, "%s: writing the WebP failed: %s", path, strerror(errno));
    WebPDataClear(&coded);
    return status;
}

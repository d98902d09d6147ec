/* The inside of a picture, and the codecs behind tern_image_load and tern_image_save. A codec sees one whole file
 * in memory, or an open output; format, limits and text are settled by image.c and text.c. */
#ifndef TERN_IMAGES_IMAGE_H
#define TERN_IMAGES_IMAGE_H

#include <stdio.h>
#include <tern/image.h>

/* Longest side, and most pixels, that are read or made: what one decoder may be made to allocate stays near 1 GiB. */
#define TERN_IMAGE_MAX_SIDE 16384
#define TERN_IMAGE_MAX_PIXELS (1 << 27)
/* Longest value of one text. */
#define TERN_IMAGE_MAX_TEXT (8u << 20)
/* Side of the windows of tern_image_ssim: smaller pictures have none. */
#define TERN_SSIM_SIDE 11
/* The key of AUTOMATIC1111's infotext: the one text that JPEG and WebP can hold (as EXIF UserComment). */
#define TERN_IMAGE_PARAMETERS "parameters"

struct tern_image_text {
    struct tern_image_text *next;
    char *key;   /* 1..79 printable ASCII characters, a PNG keyword */
    char *value; /* UTF-8 */
};

struct tern_image {
    struct tern_context *ctx;
    int width, height;
    uint8_t *rgb;                  /* height x width x 3 */
    struct tern_image_text *texts; /* in the order in which they were set */
};

/* A whole file in memory. */
struct tern_image_file {
    struct tern_context *ctx;
    const char *path; /* for messages */
    const uint8_t *data;
    size_t size;
    uint8_t behind; /* what alpha is laid over: a grey value */
};

/* A picture with undefined pixels. NULL with the error recorded when the size is out of range; `where` is the file or function. */
struct tern_image *tern_image_empty(struct tern_context *ctx, int64_t width, int64_t height, const char *where);

/* dst = the picture `rgba` laid over what is behind the file's alpha; n pixels. */
void tern_image_lay(const struct tern_image_file *file, uint8_t *dst, const uint8_t *rgba, size_t n);

/* Keeps a text that was found in a file, unless it cannot be kept: not UTF-8, too long, or a bad key (then logged). */
enum tern_status tern_image_keep_text(struct tern_image *img, const char *path, const char *key, const char *value, size_t size);

/* What an EXIF block says: turns the picture upright and keeps UserComment as "parameters". `exif` may begin with "Exif\0\0". */
enum tern_status tern_image_apply_exif(struct tern_image *img, const char *path, const uint8_t *exif, size_t size);

/* An EXIF block (TIFF, without "Exif\0\0") whose UserComment is the text, as AUTOMATIC1111 writes it. Free with tern_free. */
uint8_t *tern_exif_make(struct tern_context *ctx, const char *text, size_t *size);

struct tern_image *tern_png_read(const struct tern_image_file *file);
struct tern_image *tern_jpeg_read(const struct tern_image_file *file);
struct tern_image *tern_webp_read(const struct tern_image_file *file);

enum tern_status tern_png_write(const struct tern_image *img, FILE *out, const char *path);
enum tern_status tern_jpeg_write(const struct tern_image *img, FILE *out, const char *path);
enum tern_status tern_webp_write(const struct tern_image *img, FILE *out, const char *path);

#endif

/* Pictures: 8-bit RGB in memory, PNG, JPEG and WebP in files. */
#ifndef TERN_IMAGE_H
#define TERN_IMAGE_H

#include <tern/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tern_image;

/* Copies width x height x 3 bytes (NULL: black). A side has 1 to 16384 pixels, a picture at most 2^27. */
TERN_API struct tern_image *tern_image_create(struct tern_context *ctx, int width, int height, const uint8_t *rgb);
/* Reads PNG, JPEG or WebP, recognised by content; alpha is laid over white; grey becomes RGB; a photograph is turned
 * upright as its EXIF says. NULL with the error recorded: no picture, damaged, truncated, too large. */
TERN_API struct tern_image *tern_image_load(struct tern_context *ctx, const char *path);
/* The same for a mask, in which white is painted anew: alpha is laid over black, so that what is transparent is kept. */
TERN_API struct tern_image *tern_image_load_mask(struct tern_context *ctx, const char *path);
TERN_API void tern_image_destroy(struct tern_image **img);

TERN_API int tern_image_width(const struct tern_image *img);
TERN_API int tern_image_height(const struct tern_image *img);
/* width x height x 3 bytes, row-major, borrowed. */
TERN_API const uint8_t *tern_image_data(const struct tern_image *img);

/* Text that goes with the picture: a key of 1 to 79 printable ASCII characters, with single blanks between others alone, a value in
 * UTF-8 of at most 8 MiB ("" takes it away); others are TERN_E_INVALID. PNG holds
 * all (tEXt, iTXt); JPEG and WebP hold the one with the key "parameters", AUTOMATIC1111's infotext (EXIF UserComment). JPEG has room for
 * about 32,700 characters there, then for 65,533 bytes in a comment; of a longer text the picture is saved without it, and a warning is
 * logged. */
TERN_API enum tern_status tern_image_set_text(struct tern_image *img, const char *key, const char *value);
/* Borrowed until the text is set again; NULL when there is none. */
TERN_API const char *tern_image_text(const struct tern_image *img, const char *key);

/* Resampling to another size with the bytes that Pillow 13's LANCZOS gives; a new picture, without texts. */
TERN_API struct tern_image *tern_image_resize(const struct tern_image *img, int width, int height);

/* How alike two pictures of one size are: the mean structural similarity [Wang 2004] over all windows of 11 x 11 pixels that lie in the
 * picture (Gaussian, sigma 1.5; constants 0.01 and 0.03, values of 0..255; plain variances) and over red, green and blue, in f64. 1: they
 * are the same. scikit-image's structural_similarity with gaussian_weights, without use_sample_covariance. A side has at least 11 pixels.
 */
TERN_API enum tern_status tern_image_ssim(const struct tern_image *a, const struct tern_image *b, double *ssim);

/* Writes PNG, JPEG (quality 95) or WebP (quality 90) by the path's ending .png, .jpg, .jpeg or .webp; complete or not at all. */
TERN_API enum tern_status tern_image_save(const struct tern_image *img, const char *path);

#ifdef __cplusplus
}
#endif
#endif

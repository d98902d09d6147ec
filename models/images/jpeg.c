/* JPEG through libjpeg-turbo. Its errors come back by longjmp to the one function that called it; damage that the
 * library would only warn of, and paint over in grey, is an error here. */
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include <tern/context.h>

#include "core/memory.h"
#include "core/status.h"
#include "models/images/image.h"

#define QUALITY 95
/* A progressive file may repeat the whole picture this often; more is made to waste time. */
#define MAX_SCANS 200
/* Bytes of a marker segment behind its length. */
#define SEGMENT 65533

struct reader {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    struct tern_image *img;
    uint8_t *row; /* one line of CMYK */
};

struct writer {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf failed;
    int marker;
    uint8_t *segment; /* "Exif\0\0" and the block with the infotext, or a comment; NULL: none */
    size_t segment_size;
};

static void nothing_printed(j_common_ptr jpeg) {}

static void reader_error(j_common_ptr jpeg) { longjmp(((struct reader *)jpeg->client_data)->failed, 1); }
static void writer_error(j_common_ptr jpeg) { longjmp(((struct writer *)jpeg->client_data)->failed, 1); }

/* level < 0: the data are corrupt. Junk between segments and odd markers are common and harmless. */
static void reader_message(j_common_ptr jpeg, int level)
{
    int code = jpeg->err->msg_code;
    bool harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_BOGUS_PROGRESSION || code == JWRN_JFIF_MAJOR;
    if (level < 0 && !harmless)
        reader_error(jpeg);
}

static void writer_message(j_common_ptr jpeg, int level) {}

static void reader_progress(j_common_ptr jpeg)
{
    if (jpeg->is_decompressor && ((j_decompress_ptr)jpeg)->input_scan_number > MAX_SCANS)
        ERREXIT(jpeg, JERR_BAD_PROGRESSION);
}

/* Adobe's CMYK, the only one in use, is stored inverted: 255 is no ink. */
static void cmyk_to_rgb(uint8_t *dst, const uint8_t *cmyk, int n)
{
    for (int i = 0; i < n; i++, dst += 3, cmyk += 4)
        for (int c = 0; c < 3; c++)
            dst[c] = (uint8_t)((cmyk[c] * cmyk[3] + 127) / 255);
}

/* EXIF, and where it has no text, a comment segment. */
static enum tern_status read_texts(struct reader *r, const struct tern_image_file *file)
{
    enum tern_status status = TERN_OK;
    jpeg_saved_marker_ptr first = r->jpeg.marker_list;
    for (jpeg_saved_marker_ptr m = first; m && !status; m = m->next)
        if (m->marker == JPEG_APP0 + 1 && m->data_length > 6 && !memcmp(m->data, "Exif\0", 6)) {
            status = tern_image_apply_exif(r->img, file->path, m->data, m->data_length);
            break;
        }
    for (jpeg_saved_marker_ptr m = first; m && !status; m = m->next)
        if (m->marker == JPEG_COM && m->data_length && !tern_image_text(r->img, TERN_IMAGE_PARAMETERS))
            status = tern_image_keep_text(r->img, file->path, TERN_IMAGE_PARAMETERS, (const char *)m->data, m->data_length);
    return status;
}

/* Everything that may longjmp. */
static enum tern_status decode(struct reader *r, const struct tern_image_file *file)
{
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    jpeg_mem_src(jpeg, file->data, (unsigned long)file->size);
    jpeg_save_markers(jpeg, JPEG_APP0 + 1, 0xFFFF);
    jpeg_save_markers(jpeg, JPEG_COM, 0xFFFF);
    jpeg_read_header(jpeg, TRUE);
    r->img = tern_image_empty(file->ctx, jpeg->image_width, jpeg->image_height, file->path);
    if (!r->img)
        return TERN_E_INVALID;
    bool cmyk = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    jpeg->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    if (cmyk && !(r->row = tern_alloc(file->ctx, (size_t)r->img->width * 4)))
        return tern_error_status(file->ctx);
    jpeg_start_decompress(jpeg);
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *line = r->img->rgb + (size_t)jpeg->output_scanline * (size_t)r->img->width * 3;
        JSAMPROW target = cmyk ? r->row : line;
        if (jpeg_read_scanlines(jpeg, &target, 1) == 1 && cmyk)
            cmyk_to_rgb(line, r->row, r->img->width);
    }
    enum tern_status status = read_texts(r, file); /* the next call forgets the markers */
    jpeg_finish_decompress(jpeg);
    return status;
}

static void report(struct reader *r, const struct tern_image_file *file)
{
    char reason[JMSG_LENGTH_MAX];
    r->errors.format_message((j_common_ptr)&r->jpeg, reason);
    enum tern_status status = r->errors.msg_code == JERR_OUT_OF_MEMORY ? TERN_E_NO_MEMORY : TERN_E_FORMAT;
    tern_fail(file->ctx, status, "%s: the JPEG (%zu bytes) cannot be read: %s", file->path, file->size, reason);
}

struct tern_image *tern_jpeg_read(const struct tern_image_file *file)
{
    struct reader *r = tern_calloc(file->ctx, 1, sizeof(*r));
    if (!r)
        return NULL;
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->jpeg.client_data = r;
    r->errors.error_exit = reader_error;
    r->errors.emit_message = reader_message;
    r->errors.output_message = nothing_printed;
    r->progress.progress_monitor = reader_progress;
    if (setjmp(r->failed)) {
        report(r, file);
        tern_image_destroy(&r->img);
    } else {
        jpeg_create_decompress(&r->jpeg);
        r->jpeg.progress = &r->progress;
        if (decode(r, file))
            tern_image_destroy(&r->img);
    }
    struct tern_image *img = r->img;
    jpeg_destroy_decompress(&r->jpeg);
    tern_free(file->ctx, r->row);
    tern_free(file->ctx, r);
    return img;
}

/* Everything that may longjmp. */
static void encode(struct writer *w, const struct tern_image *img, FILE *out)
{
    struct jpeg_compress_struct *jpeg = &w->jpeg;
    jpeg_create_compress(jpeg);
    jpeg_stdio_dest(jpeg, out);
    jpeg->image_width = (JDIMENSION)img->width;
    jpeg->image_height = (JDIMENSION)img->height;
    jpeg->input_components = 3;
    jpeg->in_color_space = JCS_RGB;
    jpeg_set_defaults(jpeg);
    jpeg_set_quality(jpeg, QUALITY, TRUE);
    jpeg->optimize_coding = TRUE;
    jpeg_start_compress(jpeg, TRUE);
    if (w->segment)
        jpeg_write_marker(jpeg, w->marker, w->segment, (unsigned)w->segment_size);
    while (jpeg->next_scanline < jpeg->image_height) {
        JSAMPROW line = img->rgb + (size_t)jpeg->next_scanline * (size_t)img->width * 3;
        jpeg_write_scanlines(jpeg, &line, 1);
    }
    jpeg_finish_compress(jpeg);
}

static enum tern_status set_segment(struct writer *w, struct tern_context *ctx, int marker, size_t head, const void *bytes, size_t size)
{
    w->segment = tern_alloc(ctx, head + size);
    if (!w->segment)
        return tern_error_status(ctx);
    memcpy(w->segment, "Exif\0", head);
    memcpy(w->segment + head, bytes, size);
    w->segment_size = head + size;
    w->marker = marker;
    return TERN_OK;
}

/* Makes the marker segment with the infotext, if there is one: EXIF, and where its two bytes a letter are too many, a comment. A picture is
 * not given up for a longer one. */
static enum tern_status make_segment(struct writer *w, const struct tern_image *img, const char *path)
{
    const char *text = tern_image_text(img, TERN_IMAGE_PARAMETERS);
    if (!text)
        return TERN_OK;
    size_t size = 0, length = strlen(text);
    uint8_t *block = tern_exif_make(img->ctx, text, &size);
    if (!block)
        return tern_error_status(img->ctx);
    enum tern_status status = TERN_OK;
    if (size <= SEGMENT - 6)
        status = set_segment(w, img->ctx, JPEG_APP0 + 1, 6, block, size);
    else if (length <= SEGMENT)
        status = set_segment(w, img->ctx, JPEG_COM, 0, text, length);
    else
        tern_message(img->ctx, TERN_LOG_WARN,
                     "%s: the text of the picture is left out: it has %zu bytes, a JPEG holds %d; PNG or WebP hold it", path, length,
                     SEGMENT);
    tern_free(img->ctx, block);
    return status;
}

static enum tern_status run_encoder(struct writer *w, const struct tern_image *img, FILE *out, const char *path)
{
    w->jpeg.err = jpeg_std_error(&w->errors);
    w->jpeg.client_data = w;
    w->errors.error_exit = writer_error;
    w->errors.emit_message = writer_message;
    w->errors.output_message = nothing_printed;
    errno = 0;
    if (!setjmp(w->failed)) {
        encode(w, img, out);
        return TERN_OK;
    }
    int reason = errno;
    char message[JMSG_LENGTH_MAX];
    w->errors.format_message((j_common_ptr)&w->jpeg, message);
    return tern_fail(img->ctx, reason == ENOMEM ? TERN_E_NO_MEMORY : TERN_E_IO, "%s: writing the JPEG failed: %s", path,
                     reason ? strerror(reason) : message);
}

enum tern_status tern_jpeg_write(const struct tern_image *img, FILE *out, const char *path)
{
    struct writer *w = tern_calloc(img->ctx, 1, sizeof(*w));
    if (!w)
        return tern_error_status(img->ctx);
    enum tern_status status = make_segment(w, img, path);
    if (!status)
        status = run_encoder(w, img, out, path);
    jpeg_destroy_compress(&w->jpeg);
    tern_free(img->ctx, w->segment);
    tern_free(img->ctx, w);
    return status;
}

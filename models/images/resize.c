/* Resampling with Pillow's LANCZOS filter (a = 3), bit for bit: one pass along the rows, one along the columns, each with
 * fixed-point weights of 22 bits, and an 8-bit picture in between. */
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "models/images/image.h"

#define LOBES 3.0
/* 8 bits of value and 2 of headroom for the sums leave 22 of 32. */
#define WEIGHT_BITS 22

/* One axis: output i is the sum over k < count[i] of weight[i * most + k] * input[first[i] + k]. */
struct axis {
    int out, most;
    int *first, *count;
    int32_t *weight;
};

static double sinc(double x) { return x == 0.0 ? 1.0 : sin(x * M_PI) / (x * M_PI); }
static double lanczos(double x) { return x >= -LOBES && x < LOBES ? sinc(x) * sinc(x / LOBES) : 0.0; }

static void axis_free(struct tern_context *ctx, struct axis *a)
{
    tern_free(ctx, a->first);
    tern_free(ctx, a->count);
    tern_free(ctx, a->weight);
}

/* Weights of one output, which sum to one before they are rounded. */
static void weigh(struct axis *a, int i, int in, double scale, double stretch, double *w)
{
    double centre = (i + 0.5) * scale, reach = LOBES * stretch, sum = 0.0;
    int first = (int)(centre - reach + 0.5), end = (int)(centre + reach + 0.5);
    first = first < 0 ? 0 : first;
    end = end > in ? in : end;
    for (int k = 0; k < end - first; k++) {
        w[k] = lanczos((k + first - centre + 0.5) * (1.0 / stretch));
        sum += w[k];
    }
    for (int k = 0; k < end - first; k++) {
        double v = (sum != 0.0 ? w[k] / sum : w[k]) * (1 << WEIGHT_BITS);
        a->weight[(size_t)i * (size_t)a->most + (size_t)k] = (int32_t)(v < 0 ? v - 0.5 : v + 0.5);
    }
    a->first[i] = first;
    a->count[i] = end - first;
}

/* in, out: 1..TERN_IMAGE_MAX_SIDE, so that the table has at most about 7 * 16384 * 2 weights. */
static bool axis_make(struct tern_context *ctx, struct axis *a, int in, int out)
{
    double scale = (double)in / out, stretch = scale < 1.0 ? 1.0 : scale;
    *a = (struct axis){.out = out, .most = (int)ceil(LOBES * stretch) * 2 + 1};
    a->first = tern_alloc(ctx, (size_t)out * sizeof(*a->first));
    a->count = tern_alloc(ctx, (size_t)out * sizeof(*a->count));
    a->weight = tern_alloc(ctx, (size_t)out * (size_t)a->most * sizeof(*a->weight));
    double *w = tern_alloc(ctx, (size_t)a->most * sizeof(*w));
    bool ok = a->first && a->count && a->weight && w;
    for (int i = 0; ok && i < out; i++)
        weigh(a, i, in, scale, stretch, w);
    tern_free(ctx, w);
    if (!ok)
        axis_free(ctx, a);
    return ok;
}

static uint8_t to_byte(int64_t sum)
{
    sum = (sum + (1 << (WEIGHT_BITS - 1))) >> WEIGHT_BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* (rows, in, 3) -> (rows, out, 3) */
static void along_rows(const struct axis *a, const uint8_t *src, uint8_t *dst, int rows, int in)
{
    for (int y = 0; y < rows; y++, src += (size_t)in * 3)
        for (int x = 0; x < a->out; x++, dst += 3) {
            const uint8_t *s = src + (size_t)a->first[x] * 3;
            const int32_t *w = a->weight + (size_t)x * (size_t)a->most;
            int64_t sum[3] = {0, 0, 0};
            for (int k = 0; k < a->count[x]; k++, s += 3)
                for (int c = 0; c < 3; c++)
                    sum[c] += (int64_t)w[k] * s[c];
            for (int c = 0; c < 3; c++)
                dst[c] = to_byte(sum[c]);
        }
}

/* (in, n) -> (out, n): n is three times the width */
static void along_columns(const struct axis *a, const uint8_t *src, uint8_t *dst, size_t n, int64_t *sum)
{
    for (int y = 0; y < a->out; y++, dst += n) {
        const int32_t *w = a->weight + (size_t)y * (size_t)a->most;
        memset(sum, 0, n * sizeof(*sum));
        for (int k = 0; k < a->count[y]; k++) {
            const uint8_t *s = src + ((size_t)a->first[y] + (size_t)k) * n;
            for (size_t i = 0; i < n; i++)
                sum[i] += (int64_t)w[k] * s[i];
        }
        for (size_t i = 0; i < n; i++)
            dst[i] = to_byte(sum[i]);
    }
}

/* A copy of that width. */
static struct tern_image *resize_width(const struct tern_image *img, int width)
{
    struct axis a;
    struct tern_image *out = tern_image_empty(img->ctx, width, img->height, "tern_image_resize");
    if (!out)
        return NULL;
    if (axis_make(img->ctx, &a, img->width, width)) {
        along_rows(&a, img->rgb, out->rgb, img->height, img->width);
        axis_free(img->ctx, &a);
    } else {
        tern_image_destroy(&out);
    }
    return out;
}

/* A copy of that height. */
static struct tern_image *resize_height(const struct tern_image *img, int height)
{
    struct axis a;
    size_t n = (size_t)img->width * 3;
    struct tern_image *out = tern_image_empty(img->ctx, img->width, height, "tern_image_resize");
    int64_t *sum = out ? tern_alloc(img->ctx, n * sizeof(*sum)) : NULL;
    if (sum && axis_make(img->ctx, &a, img->height, height)) {
        along_columns(&a, img->rgb, out->rgb, n, sum);
        axis_free(img->ctx, &a);
    } else {
        tern_image_destroy(&out);
    }
    tern_free(img->ctx, sum);
    return out;
}

struct tern_image *tern_image_resize(const struct tern_image *img, int width, int height)
{
    if (!img)
        return NULL;
    if (width == img->width && height == img->height)
        return tern_image_create(img->ctx, width, height, img->rgb);
    if (width == img->width)
        return resize_height(img, height);
    if (height == img->height)
        return resize_width(img, width);
    /* Pillow 13 takes the columns first when the height loses more than twice what the width does; the rounding between
     * the passes makes the order visible. */
    int64_t less_width = (int64_t)img->width - width, less_height = (int64_t)img->height - height;
    bool columns_first = less_height > 0 && less_height > 2 * less_width;
    struct tern_image *half = columns_first ? resize_height(img, height) : resize_width(img, width);
    if (!half)
        return NULL;
    struct tern_image *out = columns_first ? resize_width(half, width) : resize_height(half, height);
    tern_image_destroy(&half);
    return out;
}

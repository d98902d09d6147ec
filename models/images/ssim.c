/* How like two pictures are: structural similarity [Wang 2004], with windows of 11 x 11 that lie inside the picture. */
#include <math.h>

#include "core/context.h"
#include "models/images/image.h"

#define SIDE 11
#define SIGMA 1.5

enum { MEAN_A, MEAN_B, SQUARE_A, SQUARE_B, PRODUCT, SUMS };

static void make_window(double g[SIDE])
{
    double sum = 0;
    for (int i = 0; i < SIDE; i++)
        sum += g[i] = exp(-(i - SIDE / 2) * (i - SIDE / 2) / (2 * SIGMA * SIGMA));
    for (int i = 0; i < SIDE; i++)
        g[i] /= sum;
}

/* Weighted sums down the columns of SIDE rows from y on, of one channel: rows[sum * width + x]. */
static void sum_columns(const struct tern_image *a, const struct tern_image *b, int channel, int y, const double *g, double *rows)
{
    const int w = tern_image_width(a);
    for (int x = 0; x < w; x++) {
        double s[SUMS] = {0};
        for (int k = 0; k < SIDE; k++) {
            const size_t at = ((size_t)(y + k) * (size_t)w + (size_t)x) * 3 + (size_t)channel;
            const double p = tern_image_data(a)[at], q = tern_image_data(b)[at];
            s[MEAN_A] += g[k] * p;
            s[MEAN_B] += g[k] * q;
            s[SQUARE_A] += g[k] * p * p;
            s[SQUARE_B] += g[k] * q * q;
            s[PRODUCT] += g[k] * p * q;
        }
        for (int i = 0; i < SUMS; i++)
            rows[i * w + x] = s[i];
    }
}

/* The sum over the windows of one row. */
static double sum_row(const double *rows, int w, const double *g)
{
    const double c1 = 0.01 * 255 * 0.01 * 255, c2 = 0.03 * 255 * 0.03 * 255;
    double sum = 0;
    for (int x = 0; x + SIDE <= w; x++) {
        double m[SUMS] = {0};
        for (int i = 0; i < SUMS; i++)
            for (int k = 0; k < SIDE; k++)
                m[i] += g[k] * rows[i * w + x + k];
        const double a = m[MEAN_A], b = m[MEAN_B], va = m[SQUARE_A] - a * a, vb = m[SQUARE_B] - b * b, cov = m[PRODUCT] - a * b;
        sum += (2 * a * b + c1) * (2 * cov + c2) / ((a * a + b * b + c1) * (va + vb + c2));
    }
    return sum;
}

enum tern_status tern_image_ssim(const struct tern_image *a, const struct tern_image *b, double *out)
{
    if (!a || !b)
        return TERN_E_INVALID;
    struct tern_context *ctx = a->ctx;
    const int w = tern_image_width(a), h = tern_image_height(a);
    double g[SIDE], sum = 0;
    if (w != tern_image_width(b) || h != tern_image_height(b) || w < SIDE || h < SIDE)
        return tern_fail(ctx, TERN_E_SHAPE, "ssim: expected two pictures of one size, at least %d x %d, found %d x %d and %d x %d", SIDE,
                         SIDE, w, h, tern_image_width(b), tern_image_height(b));
    double *rows = tern_alloc(ctx, SUMS * (size_t)w * sizeof(*rows));
    if (!rows)
        return tern_error_status(ctx);
    make_window(g);
    for (int channel = 0; channel < 3; channel++)
        for (int y = 0; y + SIDE <= h; y++) {
            sum_columns(a, b, channel, y, g, rows);
            sum += sum_row(rows, w, g);
        }
    tern_free(ctx, rows);
    *out = sum / (3.0 * (w - SIDE + 1) * (h - SIDE + 1));
    return TERN_OK;
}

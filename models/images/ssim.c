/* How alike two pictures are: the structural similarity index.        [Wang, Bovik, Sheikh, Simoncelli 2004: Image Quality Assessment: From
 * Error Visibility to Structural Similarity] */
#include <math.h>
#include <string.h>

#include "core/context.h"
#include "core/memory.h"
#include "core/status.h"
#include "models/images/image.h"

#define WINDOW TERN_SSIM_SIDE
#define SIGMA 1.5
/* (0.01 x 255)^2 and (0.03 x 255)^2 */
#define C1 6.5025
#define C2 58.5225

/* What is averaged in a window: a, b, a^2, b^2, a b. */
enum { A, B, AA, BB, AB, SUMS };

/* The last rows of one channel, averaged along x: (WINDOW, SUMS, columns). */
struct rows {
    double weight[WINDOW]; /* sum to one */
    double *at;
    size_t columns; /* windows in a row */
};

static void weigh(double *weight)
{
    double sum = 0;
    for (int i = 0; i < WINDOW; i++)
        sum += weight[i] = exp(-(i - WINDOW / 2) * (i - WINDOW / 2) / (2 * SIGMA * SIGMA));
    for (int i = 0; i < WINDOW; i++)
        weight[i] /= sum;
}

/* Row y of channel c of both pictures, into its place. */
static void average_row(struct rows *r, const struct tern_image *a, const struct tern_image *b, int y, int c)
{
    const size_t row = (size_t)y * (size_t)a->width;
    double *to = r->at + (size_t)(y % WINDOW) * SUMS * r->columns;
    for (size_t x = 0; x < r->columns; x++) {
        double sum[SUMS] = {0};
        for (size_t k = 0; k < WINDOW; k++) {
            const double w = r->weight[k], u = a->rgb[3 * (row + x + k) + (size_t)c], v = b->rgb[3 * (row + x + k) + (size_t)c];
            sum[A] += w * u;
            sum[B] += w * v;
            sum[AA] += w * u * u;
            sum[BB] += w * v * v;
            sum[AB] += w * u * v;
        }
        for (size_t i = 0; i < SUMS; i++)
            to[i * r->columns + x] = sum[i];
    }
}

/* Of all windows whose last row is y. */
static double sum_of_row(const struct rows *r, int y)
{
    double total = 0;
    for (size_t x = 0; x < r->columns; x++) {
        double m[SUMS] = {0};
        for (int k = 0; k < WINDOW; k++)
            for (size_t i = 0; i < SUMS; i++)
                m[i] += r->weight[k] * r->at[((size_t)((y + 1 + k) % WINDOW) * SUMS + i) * r->columns + x];
        const double va = m[AA] - m[A] * m[A], vb = m[BB] - m[B] * m[B], cov = m[AB] - m[A] * m[B];
        total += (2 * m[A] * m[B] + C1) * (2 * cov + C2) / ((m[A] * m[A] + m[B] * m[B] + C1) * (va + vb + C2));
    }
    return total;
}

enum tern_status tern_image_ssim(const struct tern_image *a, const struct tern_image *b, double *ssim)
{
    struct tern_context *ctx = a ? a->ctx : b ? b->ctx : NULL;
    if (!a || !b || !ssim)
        return ctx ? tern_fail(ctx, TERN_E_INVALID, "tern_image_ssim: expected two pictures and a place for the result, found NULL")
                   : TERN_E_INVALID;
    if (a->width != b->width || a->height != b->height)
        return tern_fail(ctx, TERN_E_INVALID, "tern_image_ssim: expected pictures of one size, found %d x %d and %d x %d", a->width,
                         a->height, b->width, b->height);
    if (a->width < WINDOW || a->height < WINDOW)
        return tern_fail(ctx, TERN_E_INVALID, "tern_image_ssim: expected pictures of %d x %d pixels or more, a window, found %d x %d",
                         WINDOW, WINDOW, a->width, a->height);
    struct rows r = {.columns = (size_t)(a->width - WINDOW + 1)};
    r.at = tern_alloc(ctx, WINDOW * SUMS * r.columns * sizeof(*r.at));
    if (!r.at)
        return tern_error_status(ctx);
    double total = 0;
    weigh(r.weight);
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < a->height; y++) {
            average_row(&r, a, b, y, c);
            total += y < WINDOW - 1 ? 0 : sum_of_row(&r, y);
        }
    tern_free(ctx, r.at);
    *ssim = total / (3.0 * (double)r.columns * (a->height - WINDOW + 1));
    return TERN_OK;
}

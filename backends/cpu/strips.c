/* Where the strips of a convolution lie. */
#include "backends/cpu/strips.h"

#include "backends/cpu/integers.h"

#define MOST_PIXELS 1024 /* of the strip of a half: strides and dilations may be of any size, what is copied of a strip not */

/* Pixels of the strip of n outputs. */
static int64_t strip(const struct cpu_picture *s, int64_t n) { return (n - 1) * s->stride_w + (s->kw - 1) * s->dilation_w + 1; }

bool tern_cpu_has_strips(const struct cpu_picture *s)
{
    return s->ow % TERN_DOT_HALF == 0 && s->c % 32 == 0 && s->kw <= TERN_DOT_PIECES && strip(s, TERN_DOT_HALF) <= MOST_PIXELS;
}

int64_t tern_cpu_strips_most(const struct cpu_picture *s) { return max64(2 * strip(s, TERN_DOT_HALF), strip(s, TERN_DOT_ROWS)); }

/* Channels of a part, but of the last one in each row of the filter. */
static int64_t channels_of(const struct cpu_dot_gemm *g) { return g->part_depth / ((const struct cpu_picture *)g->source)->kw; }

/* The row of the picture that tap row `ky` of an output reads; NULL in the padding. ix: of its first tap. */
static const char *row_of(const struct cpu_picture *s, int64_t output, int64_t ky, int64_t *ix)
{
    int64_t ox = output % s->ow, oy = output / s->ow % s->oh, n = output / s->ow / s->oh;
    int64_t iy = oy * s->stride_h - s->pad_h + ky * s->dilation_h;
    *ix = ox * s->stride_w - s->pad_w;
    return iy < 0 || iy >= s->h ? NULL : s->x + (n * s->h + iy) * s->w * s->c * s->element;
}

/* The rows of B that belong to a part: a range of channels of each tap. */
static int ranges(const struct cpu_dot_gemm *g, int part, struct tern_dot_piece *pieces)
{
    const struct cpu_picture *s = g->source;
    const int64_t most = channels_of(g), chunks = ceil_div(s->c, most), ky = part / chunks, c = part % chunks * most;
    for (int64_t kx = 0; kx < s->kw; kx++)
        pieces[kx] = (struct tern_dot_piece){.k0 = (ky * s->kw + kx) * s->c + c, .depth = min64(most, s->c - c)};
    return (int)s->kw;
}

void tern_cpu_strips_parts(struct cpu_dot_gemm *g, int64_t channels)
{
    const struct cpu_picture *s = g->source;
    g->parts = (int)(s->kh * ceil_div(s->c, channels));
    g->part_depth = s->kw * channels;
    g->rows = TERN_DOT_ROWS;
    g->ranges = ranges;
}

struct cpu_strips tern_cpu_strips_of(const struct cpu_dot_gemm *g, int64_t row0, int64_t rows, int part)
{
    const struct cpu_picture *s = g->source;
    const int64_t most = channels_of(g), chunks = ceil_div(s->c, most);
    const bool one = rows > TERN_DOT_HALF && s->ow % TERN_DOT_ROWS == 0;
    struct cpu_strips t = {
        .ky = part / chunks, .c = part % chunks * most, .count = one ? 1 : 2, .pixels = strip(s, one ? rows : TERN_DOT_HALF)};
    t.n = min64(most, s->c - t.c);
    for (int i = 0; i < 2; i++)
        t.row[i] = row_of(s, i && rows > TERN_DOT_HALF && !one ? row0 + TERN_DOT_HALF : row0, t.ky, &t.ix[i]);
    return t;
}

int tern_cpu_strips_pieces(const struct cpu_dot_gemm *g, const struct cpu_strips *t, const uint16_t *a, const uint16_t *b, int64_t pitch,
                           struct tern_dot_piece *pieces)
{
    const struct cpu_picture *s = g->source;
    if (t->count == 1)
        b = a + TERN_DOT_HALF * s->stride_w * pitch;
    for (int64_t kx = 0; kx < s->kw; kx++) {
        const int64_t at = kx * s->dilation_w * pitch;
        pieces[kx] = (struct tern_dot_piece){{a + at, b + at}, s->stride_w * pitch, (t->ky * s->kw + kx) * s->c + t->c, t->n};
    }
    return (int)s->kw;
}

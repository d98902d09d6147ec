/* Winograd's points and what they make of a line of pixels, of products and of a filter. Points are 0, pairs +-p, and infinity: what the
 * two of a pair share is computed once. */
#ifndef TERN_BACKENDS_CPU_WINOGRAD_POINTS_H
#define TERN_BACKENDS_CPU_WINOGRAD_POINTS_H

#include "backends/cpu/level/level.h"
#include "backends/cpu/level/vec.h"

#define MOST_PAIRS (TERN_WINOGRAD_MOST / 2)

/* A pair of points. The products are over the other pairs +-q. */
struct winograd_pair {
    float power[TERN_WINOGRAD_MOST]; /* of p */
    float rest[MOST_PAIRS - 1];      /* of (x - q^2): all coefficients but the highest, which is 1 */
    float weight;                    /* one over the distances of p to all other finite points */
};

struct winograd_points {
    struct winograd_pair pair[MOST_PAIRS];
    float all[MOST_PAIRS]; /* of (x - p^2) over all pairs, but the highest */
    float zero;            /* one over the distances of 0 to all other finite points */
};

#define SQ(a) ((a) * (a))
#define POWERS(p)                                                                                        \
    {                                                                                                    \
        1, p, SQ(p), SQ(p) * (p), SQ(SQ(p)), SQ(SQ(p)) * (p), SQ(SQ(p)) * SQ(p), SQ(SQ(p)) * SQ(p) * (p) \
    }
#define PAIR_OF_2(p, a)                                                 \
    {                                                                   \
        POWERS(p), {-SQ(a)}, (float)(1 / (2 * SQ(p) * (SQ(p) - SQ(a)))) \
    }
#define POINTS_OF_2(a, b)                                                                                    \
    {                                                                                                        \
        {PAIR_OF_2(a, b), PAIR_OF_2(b, a)}, {SQ(a) * SQ(b), -(SQ(a) + SQ(b))}, (float)(1 / (SQ(a) * SQ(b))), \
    }
#define PAIR_OF_4(p, a, b, c)                                                                                         \
    {                                                                                                                 \
        POWERS(p), {-SQ(a) * SQ(b) * SQ(c), SQ(a) * SQ(b) + SQ(a) * SQ(c) + SQ(b) * SQ(c), -(SQ(a) + SQ(b) + SQ(c))}, \
            (float)(1 / (2 * SQ(p) * (SQ(p) - SQ(a)) * (SQ(p) - SQ(b)) * (SQ(p) - SQ(c))))                            \
    }
#define POINTS_OF_4(a, b, c, d)                                                                                    \
    {                                                                                                              \
        {PAIR_OF_4(a, b, c, d), PAIR_OF_4(b, a, c, d), PAIR_OF_4(c, a, b, d), PAIR_OF_4(d, a, b, c)},              \
            {SQ(a) * SQ(b) * SQ(c) * SQ(d), -(SQ(a) * SQ(b) * (SQ(c) + SQ(d)) + (SQ(a) + SQ(b)) * SQ(c) * SQ(d)),  \
             SQ(a) * SQ(b) + (SQ(a) + SQ(b)) * (SQ(c) + SQ(d)) + SQ(c) * SQ(d), -(SQ(a) + SQ(b) + SQ(c) + SQ(d))}, \
            (float)(1 / (SQ(a) * SQ(b) * SQ(c) * SQ(d))),                                                          \
    }

/* For 4 pixels the squares are exact, and of ten pairs tried these round least, with (11/16, 3/2): a fifth of the squared error of (1, 2).
 * For 8 these round least of 1,831 sets tried. */
static const struct winograd_points winograd_points_4 = POINTS_OF_2(0.625, 1.5), winograd_points_8 = POINTS_OF_4(0.4, 0.8, 1.25, 2.0);

INLINE const struct winograd_points *winograd_points(const int edge) { return edge == 4 ? &winograd_points_4 : &winograd_points_8; }

/* Rows of B^T: the coefficients of the product of (x - q) over all other points q. */
INLINE void winograd_in(const int edge, const vf *d, vf *v)
{
    const struct winograd_points *k = winograd_points(edge);
    const int pairs = edge / 2;
    v[0] = d[edge];
    v[edge + 1] = d[edge + 1];
#pragma GCC unroll 4
    for (int i = pairs - 1; i >= 0; i--) {
        v[0] += k->all[i] * d[2 * i];
        v[edge + 1] += k->all[i] * d[2 * i + 1];
    }
#pragma GCC unroll 4
    for (int p = 0; p < pairs; p++) {
        vf even = d[edge], odd = d[edge - 1];
#pragma GCC unroll 4
        for (int i = pairs - 1; i > 0; i--) {
            even += k->pair[p].rest[i - 1] * d[2 * i];
            odd += k->pair[p].rest[i - 1] * d[2 * i - 1];
        }
        v[1 + 2 * p] = even + k->pair[p].power[1] * odd;
        v[2 + 2 * p] = even - k->pair[p].power[1] * odd;
    }
}

/* Rows of A^T: powers of the points. */
INLINE void winograd_out(const int edge, const vf *m, vf *y)
{
    const struct winograd_points *k = winograd_points(edge);
    vf both[2][MOST_PAIRS]; /* sums and differences of pairs */
#pragma GCC unroll 4
    for (int p = 0; p < edge / 2; p++) {
        both[0][p] = m[1 + 2 * p] + m[2 + 2 * p];
        both[1][p] = m[1 + 2 * p] - m[2 + 2 * p];
    }
#pragma GCC unroll 8
    for (int i = 0; i < edge; i++) {
        y[i] = k->pair[0].power[i] * both[i % 2][0];
#pragma GCC unroll 4
        for (int p = 1; p < edge / 2; p++)
            y[i] += k->pair[p].power[i] * both[i % 2][p];
    }
    y[0] += m[0];
    y[edge - 1] += m[edge + 1];
}

/* Rows of G: 1, p, p^2 over the product of the distances to the other finite points; (0, 0, 1) for infinity. */
INLINE void winograd_weight(const int edge, const vf g[3], vf *u)
{
    const struct winograd_points *k = winograd_points(edge);
    u[0] = k->zero * g[0];
    u[edge + 1] = g[2];
#pragma GCC unroll 4
    for (int p = 0; p < edge / 2; p++) {
        const struct winograd_pair *of = &k->pair[p];
        vf even = of->weight * g[0] + (of->weight * of->power[2]) * g[2], odd = (of->weight * of->power[1]) * g[1];
        u[1 + 2 * p] = even + odd;
        u[2 + 2 * p] = even - odd;
    }
}

#endif

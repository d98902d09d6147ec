/* Pictures that are copied with their padding, channels last, so that each tap of a filter is a shifted view of them: sixteen outputs that
 * follow each other read sixteen pixels that lie equally far apart. A copy is made band by band, of whole pictures or of rows of one. */
#ifndef TERN_BACKENDS_CPU_VIEWS_H
#define TERN_BACKENDS_CPU_VIEWS_H

#include "backends/cpu/gemm_dot.h"
#include "backends/cpu/patches.h"

struct cpu_views {
    struct cpu_picture s;
    int64_t words, pitch; /* halves of words: of a pixel that are multiplied, filled up to lines; between pixels, an odd number of lines */
    bool gathered;        /* no views: pixels are gathered from the copy */
    /* Rows of outputs are no multiple of sixteen, and go on in the next one: each column of the filter has a copy of its own, as wide as
     * they are. Else all share one, which is padded on both sides. */
    bool by_column;
    int64_t copies;
    int64_t taps;           /* of a part of the depth: a row of the filter, or all of it, whose views share most of what they read */
    int64_t n, h, w;        /* pictures in all; rows and pixels of a row of a copy */
    int64_t pictures, rows; /* of a band: pictures, rows of outputs in each */
    int64_t bands;
    int64_t first_n, first_y; /* of the band that is there */
    uint16_t *at;
};

/* Pixels of rows of outputs follow each other as views want it. */
bool tern_cpu_has_views(const struct cpu_picture *s);
/* Padding takes no memory in a call and may be of any size; in copies each pixel of it does. bytes: of a pixel. */
bool tern_cpu_views_fit(const struct tern_op_desc *d, int64_t bytes);
/* words: of a pixel. dot: what multiplies. */
struct cpu_views tern_cpu_views_make(struct tern_context *ctx, const struct tern_op_desc *d, const struct tern_cpu_dot *dot, int64_t words);
/* Of the copy of a band. */
size_t tern_cpu_views_bytes(const struct cpu_views *v);
/* Sets what the product of a convolution has of its views, whose band is g->first .. g->first + g->m: rows, apart, parts, part_depth,
 * scratch, stage, ranges. */
void tern_cpu_views_parts(struct tern_context *ctx, const struct cpu_views *v, struct cpu_dot_gemm *g);

/* Writes pixels ix .. ix + n of row iy of picture `picture`, v->pitch apart. */
typedef void cpu_views_fill(const void *arg, const struct cpu_views *v, int64_t picture, int64_t iy, int64_t ix, int64_t n, uint16_t *to);
/* Makes the copy of band i at v->at; zero: the byte that padding consists of. */
void tern_cpu_views_copy(struct tern_context *ctx, struct cpu_views *v, int64_t i, cpu_views_fill *fill, const void *arg, int zero);
/* Rows of C of band i, from *first on. */
int64_t tern_cpu_views_band(const struct cpu_views *v, int64_t i, int64_t *first);
/* Workspace of the product of any band. */
size_t tern_cpu_views_workspace(struct tern_context *ctx, const struct cpu_views *v, const struct cpu_dot_gemm *g);

#endif

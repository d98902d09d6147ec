/* Strips of pixels: where sixteen neighbouring outputs of a convolution lie in one row of the picture, the taps of a row of the filter are
 * shifted views of one strip. A part of the depth is a row of the filter and a range of channels. */
#ifndef TERN_BACKENDS_CPU_STRIPS_H
#define TERN_BACKENDS_CPU_STRIPS_H

#include "backends/cpu/gemm_dot.h"
#include "backends/cpu/patches.h"

bool tern_cpu_has_strips(const struct cpu_picture *s);
/* The most pixels that a block of rows needs, in one row of the picture or two. */
int64_t tern_cpu_strips_most(const struct cpu_picture *s);
/* Sets parts, part_depth and ranges of a product whose source is a picture. channels: of a part, a multiple of 32. */
void tern_cpu_strips_parts(struct cpu_dot_gemm *g, int64_t channels);

/* The strips that rows row0 .. row0 + rows read in a part. */
struct cpu_strips {
    int64_t ky, c, n;   /* channels c .. c + n */
    int count;          /* 1: the block does not leave its row of the picture; 2: one for each half */
    int64_t pixels;     /* of a strip */
    const char *row[2]; /* of the picture; NULL: in the padding. Both are there where count is 1, too */
    int64_t ix[2];      /* of the first pixel; it may lie beside the picture */
};
struct cpu_strips tern_cpu_strips_of(const struct cpu_dot_gemm *g, int64_t row0, int64_t rows, int part);
/* The pieces of that part, one for each tap. a, b: where the strips begin (b is not read where count is 1), pitch: values between pixels;
 * their number. */
int tern_cpu_strips_pieces(const struct cpu_dot_gemm *g, const struct cpu_strips *t, const uint16_t *a, const uint16_t *b, int64_t pitch,
                           struct tern_dot_piece *pieces);

#endif

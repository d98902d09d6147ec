/* Of Winograd's convolution: which calls it takes, the tiles of the pictures, and the weights before they are transformed. */
#ifndef TERN_BACKENDS_CPU_WINOGRAD_H
#define TERN_BACKENDS_CPU_WINOGRAD_H

#include "backends/cpu/gemm.h"

#define TERN_WINOGRAD_EDGE 4    /* of a tile of outputs, for products of floats and of 16 bits */
#define TERN_WINOGRAD_PIXELS 16 /* of such a tile, the largest one */
#define TERN_WINOGRAD_POINTS 36 /* and of its inputs */

struct cpu_winograd {
    int high, wide;                /* a tile of outputs, pixels; that of the input has 2 more each way */
    int pixels, points;            /* of a tile of outputs, of inputs */
    int64_t n, c, h, w, o, oh, ow; /* (N, C, H, W) to (N, O, OH, OW) */
    int64_t pad_h, pad_w;
    int64_t across, down, tiles; /* of a picture, of a picture, of all pictures */
    enum tern_dtype dtype;       /* of x */
    enum tern_dtype y_dtype;     /* that of x, or f32 */
    const char *x;
    const float *bias; /* or NULL */
    const float *unit; /* of products by whole numbers: what those of each point and output channel count, o for each point; else NULL */
    const void *zero;  /* c zeros: a pixel of the padding */
    char *y;
    const struct tern_cpu_level *level;
    const struct cpu_post *post; /* or NULL */
};

/* A filter of 3 x 3 and pictures that this is for, whatever their dtypes. */
bool tern_cpu_winograd_fits(const struct tern_op_desc *d);
bool tern_cpu_winograd_supports(struct tern_device *device, const struct tern_op_desc *d);
bool tern_cpu_winograd_supports_bf16(struct tern_device *device, const struct tern_op_desc *d);
bool tern_cpu_winograd_post(const struct tern_op_desc *d);
/* Sizes alone, without data, in tiles of so many outputs. */
struct cpu_winograd tern_cpu_winograd_sizes(const struct tern_op_desc *d, int high, int wide);
/* Products are of 16 bits: pictures are bf16. Else they are of f32. */
static inline bool cpu_winograd_is_i16(enum tern_dtype x) { return x == TERN_BF16; }
/* Tiles of 4 x 4 that the choice of a kernel goes by, those of two pictures. How many there are has no say in it: picture i of a batch has
 * the bits of a run alone. 0: no pictures, or weights that are no constants, which would be packed anew at every run. */
double tern_cpu_winograd_pair(const struct tern_op_desc *d);
/* And what a call of conv2d brings. */
struct cpu_winograd tern_cpu_winograd_call(const struct tern_kernel_args *a, const void *zero, const struct cpu_post *post);
/* The rows of the output pixels of tile t among those of all pictures; -1: beyond the edge. */
void tern_cpu_winograd_rows(const struct cpu_winograd *w, int64_t t, int64_t *row);
/* The input pixels of tile t, each of c channels. */
void tern_cpu_winograd_pixels(const struct cpu_winograd *w, int64_t t, const void *pixel[TERN_WINOGRAD_POINTS]);
/* Begins to fetch those of tile t that the tile before it has not, into L2: that has room for them at any number of channels. */
void tern_cpu_winograd_fetch_pixels(const struct cpu_winograd *w, int64_t t);
/* Begins to fetch where tile t will be written, and what its posts will read: channels col .. col + n. */
void tern_cpu_winograd_fetch_rows(const struct cpu_winograd *w, int64_t t, int64_t col, int64_t n);
/* Output channels col..col+n of tile t from its products, `step` values apart; bias and posts, too. */
void tern_cpu_winograd_finish(const struct cpu_winograd *w, int64_t t, int64_t col, int64_t n, const float *m, int64_t step);

#endif

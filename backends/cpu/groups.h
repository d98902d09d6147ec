/* Groups of channels of pictures: their moments, and what is scaled by them. The loops of group_norm and its two halves. */
#ifndef TERN_BACKENDS_CPU_GROUPS_H
#define TERN_BACKENDS_CPU_GROUPS_H

#include "backends/cpu/norm.h"
#include "backends/cpu/post.h"

#define CPU_GROUPS_BLOCK 256 /* pixels whose sums by channel are taken in f32 */
#define CPU_GROUPS_PIECE 64  /* pixels that are scaled at once */

struct groups {
    const struct tern_cpu_level *level;
    enum tern_dtype dtype, y_dtype; /* the same, or one of them is f32 */
    int64_t size;                   /* bytes of a value of x */
    const char *x;
    char *y;
    const float *weight, *bias;
    const float *given; /* (n, g, 2) means and variances; NULL: those of x */
    int64_t n, c, hw, g;
    double eps;
    bool channels_last;
    int64_t blocks, pieces;                /* channels-last: per picture */
    int64_t from, pictures, parts;         /* channels-last: what is done now, and by how many tasks */
    bool near;                             /* channels-last: what is done now is in L2 when it has been summed, or not far from it */
    float *sums;                           /* channels-last: (n, blocks, 2, c), of deviations and of their squares */
    float *first, *shift, *scale, *offset; /* channels-last: (n, c), the mean of the first pixels; the affine of each channel */
    bool backwards;                        /* channels-last: sums end with the first pixel, where what follows begins */
    struct cpu_post post;
    bool silu; /* what was its only step */
};

/* What a run has in its workspace. */
enum { CPU_GROUPS_SUMS = 1, CPU_GROUPS_AFFINES = 2 };
/* Bytes of it for groups of in[0]; and the groups with what lies there, without weight, bias and eps. */
size_t tern_cpu_groups_room(const struct tern_op_desc *d, int parts);
struct groups tern_cpu_groups_begin(const struct tern_kernel_args *a, int64_t num_groups, float *workspace, int parts);

/* y from x, posts included. */
void tern_cpu_groups_normalize(struct tern_context *ctx, struct groups *r);
/* y: (n, g, 2) means and variances of x, in f32. */
void tern_cpu_groups_stats(struct tern_context *ctx, struct groups *r);

/* Channels-last: shift, scale and offset of the channels of all pictures. y is not written. */
void tern_cpu_groups_affines(struct tern_context *ctx, struct groups *r);

#endif

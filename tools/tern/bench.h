/* What the files of `tern bench` share: its options, the ops that are timed, what was measured, and the three forms of a table. */
#ifndef TERN_TOOL_BENCH_H
#define TERN_TOOL_BENCH_H

#include <tern/ops.h>

#include "command.h"

#define BENCH_MOST 16 /* values of a list option */
#define BENCH_MOST_RUNS 101

/* An option that takes several numbers, "1,2,4". */
struct bench_list {
    int value[BENCH_MOST], count;
};

struct bench_settings {
    struct run_settings run;
    struct bench_list sizes, batches, threads;
    enum tern_dtype dtypes[BENCH_MOST]; /* TERN_I8: int8, as tern_plan_params.quantize has it; all else as fast as the device is */
    int n_dtypes;
    const char *op, *arch, *plot;
    int runs;
    double limit; /* seconds for the timed runs of one row */
    bool all_kernels, markdown, list;
};

const char *bench_dtype_name(enum tern_dtype dtype);

/* bench_shapes.c: one call of an op. Its numbers, by kind:
 *   conv2d       N C H W O k s    filters (O, C, k, k), stride s, padding k / 2; channels-last, as models run it
 *   linear       M K N            x (M, K), weight (N, K), bias
 *   linear_geglu M K N            x (M, K), weight (2 N, K), bias
 *   matmul       B M K N          (B, M, K) x (B, K, N)
 *   sdpa         N H L S E        queries (N, L, H E) and keys (N, S, H E), split into H heads
 *   group_norm   N C H W G        channels-last
 *   layer_norm   M C
 *   silu, gelu, quick_gelu, add  M C
 *   interpolate  N C H W          to twice the size
 *   cat          N C D H W        (N, C, H, W) and (N, D, H, W) along the channels */
enum bench_kind {
    BENCH_CONV2D,
    BENCH_LINEAR,
    BENCH_LINEAR_GEGLU,
    BENCH_MATMUL,
    BENCH_SDPA,
    BENCH_GROUP_NORM,
    BENCH_LAYER_NORM,
    BENCH_SILU,
    BENCH_GELU,
    BENCH_QUICK_GELU,
    BENCH_ADD,
    BENCH_INTERPOLATE,
    BENCH_CAT,
    BENCH_KINDS
};
struct bench_shape {
    enum bench_kind kind;
    int64_t n[7]; /* behind the kind's own: 0 */
    int count;    /* calls in one run of the component */
};
struct bench_shapes {
    struct bench_shape *at; /* free() */
    int count, capacity;
    bool bad; /* there was no memory */
};
/* The ops of an architecture's component, equal ones once, at a picture of size x size: "sd15" and "sdxl" (text encoders and a step of the
 * UNet with guidance, two rows), "vae" (encoder and decoder of one picture). False: no such name. */
bool bench_shapes_of(const char *arch, int size, struct bench_shapes *out);
extern const char *const bench_archs[]; /* ended by NULL */
/* The name of its op; the numbers as text. */
const char *bench_kind_name(enum bench_kind kind);
/* Whether its time counts in FLOP/s and not in bytes/s. */
bool bench_is_product(enum bench_kind kind);
/* Whether it is one of those that can be of int8. */
bool bench_is_quantizable(enum bench_kind kind);
bool bench_op_has_int8(const char *op);
#define BENCH_SHAPE_TEXT 96
const char *bench_shape_text(const struct bench_shape *s, char out[BENCH_SHAPE_TEXT]);

/* bench_call.c: one shape in one dtype by one kernel, timed. */
struct bench_call {
    char kernel[64]; /* that ran */
    double seconds[BENCH_MOST_RUNS];
    int runs;
    double flops, bytes;
    bool chosen; /* by the library, not forced */
    struct tern_plan *plan;
    struct tern_binding *binding;
    tern_tensor *out; /* of the first run, which the others write again: inside a model, too, results lie in memory that is there */
};
/* By the library's choice and, with all_kernels, by every kernel that supports it, in turns. At most `most` calls in `out`; their number,
 * -1 with the error in the context. The plans are gone when it returns. */
int bench_call_measure(struct tern_context *ctx, const struct bench_shape *shape, enum tern_dtype dtype, const struct bench_settings *s,
                       struct bench_call *out, int most);

/* bench_ops.c, bench_model.c, bench_peers.c: exit codes. */
int bench_ops(const struct bench_settings *s);
int bench_model(const struct bench_settings *s, const char *model);
int bench_peers(int argc, char **argv);

/* bench_table.c: rows as aligned text, as Markdown or, with --json, not at all: events are sent instead. */
struct bench_column {
    const char *title;
    int width; /* of text; below 0: to the left */
};
struct bench_table {
    const struct bench_column *columns; /* ended by a NULL title */
    bool markdown, silent;
};
void bench_table_head(const struct bench_table *t);
/* As many texts as columns. */
void bench_table_row(const struct bench_table *t, const char *const *cells);

struct bench_stat {
    double median, least, most;
};
/* Sorts the values. */
struct bench_stat bench_stat(double *values, int n);

/* bench_plot.c: lines over numbers, as SVG. */
struct bench_point {
    const char *line; /* its name; points of a line stand together, in the order of x */
    double x, y;
};
struct bench_plot {
    const char *title, *x_name;
    const struct bench_point *points;
    int count;
};
int bench_plot_write(const char *path, const struct bench_plot *plot);

#endif

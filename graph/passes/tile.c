/* Tiling: chains of convolutions, norms and element-wise ops on one large picture are computed in bands of rows, so that what lies
 * between them never exists whole, if a plan is to keep to a limit of memory (tern_plan_params.arena). Where tensors are larger than what
 * the device's kernels take (caps.max_argument, max_rows), they are read and written in bands, and lie there whole. Norms take the
 * statistics of the whole picture: there are no seams. The graph is recorded anew; tile_choose.c says what does not exist whole. */
#include <string.h>
#include <tern/ops.h>

#include "core/context.h"
#include "graph/passes/passes.h"
#include "graph/passes/tile.h"

#define BANDS 16      /* this part of the limit is what the widest result of a band may take */
#define LEAST_ROWS 16 /* fewer are computed twice too often: a band of a 3 x 3 convolution reads two rows more */
#define ROWS_STEP 4   /* the tiles of Winograd */
#define PARTS 2       /* this part of what a kernel takes is for the rows of a band; filters read some around them */
#define FAN TERN_MAX_INPUTS

/* ---- wholes from bands */

/* Whether kernels of the device take the node's rows in bands alone. */
static bool is_too_wide(const struct tern_tiling *t, const struct tern_node *n)
{
    bool whole = tern_desc_is_made_whole(&n->desc, t->caps);
    for (int k = 0; k < n->desc.n_in; k++) {
        const struct tern_meta *m = &n->desc.in[k];
        if (!tern_tile_has_rows(n, k) || tern_caps_take(t->caps, m))
            continue;
        if (m->ndim == 4 && !tern_meta_is_channels_last(m))
            return false; /* rows of each channel by itself: a band would span as much */
        whole = false;
    }
    return !whole && tern_tile_is_local(t->again.from, n);
}

/* Sets what a band of the node's result needs, for each of its rows: also of inner operands, of which it may read several rows. */
static void measure_rows(const struct tern_tiling *t, const struct tern_node *n)
{
    const struct tern_meta *m = &n->desc.out;
    const int64_t high = m->shape[2];
    size_t most = (size_t)(m->shape[1] * m->shape[3]) * tern_dtype_size(m->dtype);
    int64_t pixels = tern_desc_rows(&n->desc) ? m->shape[3] : 0;
    for (int k = 0; k < n->desc.n_in; k++) {
        const int v = n->in[k];
        size_t row = 0;
        if (v >= 0 && t->inner[v]) {
            const int64_t rows = (tern_tile_height(t, v) + high - 1) / high;
            row = t->row[v] * (size_t)rows;
            pixels = t->pixels[v] * rows > pixels ? t->pixels[v] * rows : pixels;
        } else if (t->caps->max_argument && tern_tile_has_rows(n, k)) {
            row = tern_meta_bytes(&n->desc.in[k]) / (size_t)high;
        }
        most = row > most ? row : most;
    }
    t->row[n->out] = most;
    t->pixels[n->out] = pixels;
}

/* As many rows as take `bytes`, but no fewer than `least`. */
static int64_t rows_in(size_t bytes, size_t row, int64_t least)
{
    const int64_t rows = (int64_t)(bytes / row) / ROWS_STEP * ROWS_STEP;
    return rows > least ? rows : least;
}

/* For bands of `height` rows that need so many bytes and pixels each; as high as each other. */
static int64_t band_height(const struct tern_tiling *t, int64_t height, size_t row, int64_t pixels)
{
    const int64_t in_limit = t->limit ? rows_in(t->limit / BANDS, row, LEAST_ROWS) : INT64_MAX;
    const int64_t in_argument = t->caps->max_argument ? rows_in(t->caps->max_argument / PARTS, row, ROWS_STEP) : INT64_MAX;
    const int64_t of_pixels =
        t->caps->max_rows && pixels ? rows_in((size_t)t->caps->max_rows / PARTS, (size_t)pixels, ROWS_STEP) : INT64_MAX;
    const int64_t in_one = in_argument < of_pixels ? in_argument : of_pixels, most = in_limit < in_one ? in_limit : in_one;
    const int64_t bands = most < height ? (height + most - 1) / most : 1;
    return (height + bands * ROWS_STEP - 1) / (bands * ROWS_STEP) * ROWS_STEP;
}

/* A cat of any number of tensors, as a tree; uses the list up. */
static tern_tensor *cat_all(tern_tensor **list, int64_t n, int dim)
{
    while (n > 1) {
        int64_t m = 0;
        for (int64_t i = 0; i < n; i += FAN, m++) {
            int part = (int)(n - i < FAN ? n - i : FAN);
            list[m] = part > 1 ? tern_cat(list + i, part, dim) : list[i];
            if (!list[m])
                return NULL;
        }
        n = m;
    }
    return list[0];
}

/* One tensor for each band of a value's rows, from `make`, joined along dim. */
static tern_tensor *in_bands(struct tern_tiling *t, int value, int64_t height,
                             tern_tensor *(*make)(struct tern_tiling *t, const struct tern_node *n, struct tern_rows r),
                             const struct tern_node *n, int dim)
{
    int64_t h = tern_tile_height(t, value), bands = (h + height - 1) / height;
    tern_tensor **list = tern_calloc(t->again.ctx, (size_t)bands, sizeof(tern_tensor *)), *whole = NULL;
    bool ok = list != NULL;
    for (int64_t b = 0; ok && b < bands; b++) {
        struct tern_rows r = {b * height, (b + 1) * height < h ? (b + 1) * height : h};
        t->n_pieces = 0;
        list[b] = make(t, n, r);
        ok = list[b] != NULL;
    }
    if (ok)
        whole = cat_all(list, bands, dim);
    tern_free(t->again.ctx, list);
    return whole;
}

static tern_tensor *band_stats(struct tern_tiling *t, const struct tern_node *n, struct tern_rows r)
{
    tern_tensor *x = tern_tile_rows(t, n->in[0], r);
    return x ? tern_group_norm_stats(x, n->desc.attrs.group_norm.num_groups) : NULL;
}

/* The part of all rows that each band has: (bands, 1, 1). */
static tern_tensor *shares(struct tern_tiling *t, int64_t h, int64_t height)
{
    int64_t bands = (h + height - 1) / height;
    float *share = tern_calloc(t->again.ctx, (size_t)bands, sizeof(*share));
    for (int64_t b = 0; share && b < bands; b++)
        share[b] = (float)((double)((b + 1) * height < h ? height : h - b * height) / (double)h);
    tern_tensor *x = share ? tern_tensor_create(t->again.ctx, TERN_F32, 3, (const int64_t[]){bands, 1, 1}, share) : NULL;
    tern_free(t->again.ctx, share);
    return x;
}

/* Statistics of an operand that is inner or too wide, band by band [Chan, Golub and LeVeque 1979]:
 * mean = sum of share mean_b, variance = sum of share (variance_b + (mean_b - mean)^2). */
static tern_tensor *stats_of_bands(struct tern_tiling *t, const struct tern_node *n)
{
    const struct tern_meta *m = &n->desc.in[0];
    const bool inner = t->inner[n->in[0]];
    const size_t row = inner ? t->row[n->in[0]] : (size_t)(m->shape[1] * m->shape[3]) * tern_dtype_size(m->dtype);
    const int64_t height = band_height(t, m->shape[2], row, inner ? t->pixels[n->in[0]] : 0);
    tern_tensor *all = in_bands(t, n->in[0], height, band_stats, n, 0); /* (bands, G, 2) */
    tern_tensor *share = shares(t, tern_tile_height(t, n->in[0]), height);
    if (!all || !share)
        return NULL;
    const int first[] = {0};
    tern_tensor *mean_b = tern_slice(all, 2, 0, 1, 1), *variance_b = tern_slice(all, 2, 1, 2, 1);
    tern_tensor *mean = tern_sum(tern_mul(mean_b, share), 1, first, true);
    tern_tensor *between = tern_square(tern_sub(mean_b, mean));
    tern_tensor *variance = tern_sum(tern_mul(tern_add(variance_b, between), share), 1, first, true);
    tern_tensor *const both[] = {mean, variance};
    return mean && variance ? tern_cat(both, 2, 2) : NULL;
}

static bool reads_inner(const struct tern_tiling *t, const struct tern_node *n)
{
    for (int k = 0; k < n->desc.n_in; k++)
        if (n->in[k] >= 0 && t->inner[n->in[k]])
            return true;
    return false;
}

/* One node of the old graph: as it was, in bands, or, when it exists in bands alone, at most its statistics. */
static void replay(struct tern_again *again, const struct tern_node *n)
{
    struct tern_tiling *t = (struct tern_tiling *)again; /* its first member */
    bool inner = t->inner[n->out], bands = reads_inner(t, n) || is_too_wide(t, n);
    if (inner || bands)
        measure_rows(t, n);
    if (n->desc.op == TERN_OP_group_norm && (inner || bands))
        t->stats[n->out] = t->inner[n->in[0]] || !tern_caps_take(t->caps, &n->desc.in[0])
                               ? stats_of_bands(t, n)
                               : tern_group_norm_stats(again->map[n->in[0]], n->desc.attrs.group_norm.num_groups);
    if (!inner)
        again->map[n->out] =
            bands ? in_bands(t, n->out, band_height(t, n->desc.out.shape[2], t->row[n->out], t->pixels[n->out]), tern_tile_node_rows, n, 2)
                  : tern_again_same(again, n);
}

static bool any_too_wide(const struct tern_tiling *t)
{
    const struct tern_graph *g = t->again.from;
    bool any = false;
    for (int i = 0; i < g->n_nodes && !any; i++)
        any = !g->nodes[i].dead && is_too_wide(t, &g->nodes[i]);
    return any;
}

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    size_t n = (size_t)g->n_values + 1;
    const struct tern_device_caps *caps = &g->ctx->device->caps;
    if (!params->arena && !caps->max_argument && !caps->max_rows)
        return TERN_OK;
    tern_graph_count_uses(g);
    struct tern_tiling t = {.again = {.node = replay}, .limit = params->arena, .caps = caps};
    enum tern_status st = tern_again_begin(&t.again, g);
    t.inner = tern_calloc(g->ctx, n, sizeof(*t.inner));
    t.row = tern_calloc(g->ctx, n, sizeof(*t.row));
    t.pixels = tern_calloc(g->ctx, n, sizeof(*t.pixels));
    t.stats = tern_calloc(g->ctx, n, sizeof(*t.stats));
    const bool ready = !st && t.inner && t.row && t.pixels && t.stats, less = ready && tern_tiling_choose(g, t.limit, t.inner);
    if (less || (ready && any_too_wide(&t)))
        tern_again_record(&t.again, g);
    tern_again_end(&t.again);
    tern_free(g->ctx, t.inner);
    tern_free(g->ctx, t.row);
    tern_free(g->ctx, t.pixels);
    tern_free(g->ctx, t.stats);
    tern_free(g->ctx, t.piece);
    return tern_error_status(g->ctx);
}

const struct tern_pass tern_pass_tile = {"tile", run, .revision = 1};

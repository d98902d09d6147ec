/* The loops around the gemm tile: blocks of A that fit in L2, panels of B that fit in L1. */
#include "backends/cpu/gemm.h"

#include <string.h>

#include "backends/cpu/integers.h"
#include "backends/cpu/slots.h"
#include "backends/cpu/tasks.h"
#include "backends/cpu/weights.h"
#include "core/threads.h"

#define PAD 16         /* values between the rows of a gathered block: rows do not share cache sets */
#define LEAST_TILES 16 /* rows of a block, in tiles: what a panel's way to L1, and its widening, is worth */
#define MOST_TILES 40  /* with more of them it is worth no more, and takes memory */

struct blocking {
    int64_t kc;                 /* of one sum */
    int64_t depth, mc;          /* block of A; the depth is a multiple of kc */
    int64_t tiles, panels;      /* of rows, and of C, in all */
    int64_t row_blocks, splits; /* tasks: row blocks x parts of the panels */
    size_t wide, sums, slot;    /* bytes of scratch for one thread: a part of a panel in f32, values and gates of a panel, all */
};

/* A panel of B in two thirds of L1; parts of about equal depth. */
int64_t tern_cpu_gemm_depth(struct tern_context *ctx, int64_t k)
{
    const struct cpu_device *d = cpu_device_of(ctx);
    int64_t kc = (int64_t)(d->l1 * 2 / 3) / (d->level->nr * 4) / 16 * 16;
    kc = kc < 64 ? 64 : kc > 512 ? 512 : kc;
    return equal_part(k, kc, 1);
}

/* Blocks of at most `most` rows, and of at least `least` if that makes enough tasks; as many for each thread. */
static int64_t share_rows(int64_t m, int64_t most, int64_t least, int64_t tasks, int64_t threads)
{
    int64_t few = ceil_div(m, most), many = min64(tasks, m / least), blocks = few > many ? few : many;
    return blocks > threads ? ceil_div(blocks, threads) * threads : blocks;
}

/* The first of those that share i of `shares` has: all about as many, and who has one more comes first, so that no thread ends late. */
static int64_t share_begin(int64_t total, int64_t shares, int64_t i) { return total / shares * i + min64(i, total % shares); }

/* Rows that would all fall into the same few sets of L1 are gathered. */
static bool in_place(const struct cpu_gemm *g) { return !g->gather && g->lda % 512; }

static void gather_rows(const struct cpu_gemm *g, int64_t row0, int64_t rows, int64_t k0, int64_t kc, float *dst, int64_t ld)
{
    for (int64_t i = 0; i < rows; i++)
        memcpy(dst + i * ld, (const float *)g->source + (row0 + i) * g->lda + k0, (size_t)kc * sizeof(float));
}

/* A block of A takes half of L2. It is as deep as the rows that it should have allow: while a panel of it goes by, all parts of a sum meet
 * in the same few lines of C. */
static struct blocking plan(struct tern_context *ctx, const struct cpu_gemm *g)
{
    const struct cpu_device *d = cpu_device_of(ctx);
    const int64_t mr = d->level->mr, room = (int64_t)(d->l2 / 2 / sizeof(float)), threads = tern_thread_count(ctx);
    const int64_t batch = max64(g->batch, 1), tasks = ceil_div(4 * threads, batch);
    struct blocking b;
    if (g->m < 1 || g->n < 1 || g->k < 1)
        return (struct blocking){0};
    b.kc = tern_cpu_gemm_depth(ctx, g->k);
    int64_t rows = min64(LEAST_TILES, ceil_div(g->m, mr)) * mr, parts = ceil_div(g->k, b.kc);
    int64_t most = g->gated ? parts : (room / rows - PAD) / b.kc; /* a gate has to be whole before it is used */
    b.depth = equal_part(parts, max64(most, 1), 1) * b.kc;
    b.mc = min64(room / (b.depth + PAD) / mr, MOST_TILES) * mr;
    b.mc = b.mc < mr ? mr : b.mc;
    b.tiles = ceil_div(g->m, mr);
    b.row_blocks = min64(b.tiles, share_rows(g->m, b.mc, LEAST_TILES * mr, tasks, threads));
    b.mc = ceil_div(b.tiles, b.row_blocks) * mr;
    b.panels = ceil_div(g->n, d->level->nr);
    b.splits = ceil_div(tasks, b.row_blocks);
    b.splits = min64(b.panels, b.splits + (batch * b.row_blocks * b.splits % threads != 0));
    b.wide = g->b_dtype == TERN_F32 && !g->kept ? 0 : (size_t)(b.kc * d->level->nr) * sizeof(float);
    b.sums = g->gated ? (size_t)(b.mc * 2 * d->level->nr) * sizeof(float) : 0;
    b.slot = cpu_slot(b.wide + b.sums + (in_place(g) ? 0 : (size_t)(b.mc * (b.depth + PAD)) * sizeof(float)));
    return b;
}

size_t tern_cpu_gemm_workspace(struct tern_context *ctx, const struct cpu_gemm *g)
{
    return cpu_slots(plan(ctx, g).slot, tern_thread_count(ctx));
}

struct run {
    const struct cpu_gemm *g;
    const struct tern_cpu_level *level;
    struct blocking b;
    char *workspace;
};

/* A block of A, gathered or where it lies: rows row0.., columns k0.. */
struct block {
    const float *a;
    int64_t lda, row0, rows, k0, depth;
    float *wide, *sums; /* of the thread */
    bool fresh;         /* no panel has met it yet: its rows are beyond L2 */
};

/* A panel of B and where its sums go: the first row of the block. */
struct sums {
    int64_t panel, cols;
    const float *bias;
    float *c;
    int64_t ldc;
    const void *next; /* of B: what is multiplied when all of the panel is */
};

/* Where the values of a panel that a block meets begin: row k of the block's depth. */
static const void *panel_at(const struct run *r, int64_t panel, int64_t k)
{
    const struct cpu_gemm *g = r->g;
    const int64_t nr = r->level->nr, cols = g->n - (g->gated ? panel / 2 : panel) * nr, width = cols <= nr / 2 ? nr / 2 : nr;
    if (g->kept)
        return tern_cpu_weights_panel(g->kept, g->b, panel).values + k * width * g->kept->bits / 8;
    return (const char *)g->b + (size_t)(panel * nr * g->k + k * width) * tern_dtype_size(g->b_dtype);
}

/* One sum: all rows of the block times columns k..k+kc of it and a panel. Each tile fetches its share of what is multiplied next. */
static void times_part(const struct run *r, const struct block *q, const struct sums *s, int64_t k, int64_t kc)
{
    const struct tern_cpu_level *l = r->level;
    const struct cpu_gemm *g = r->g;
    const bool half = s->cols <= l->nr / 2;
    const int64_t width = half ? l->nr / 2 : l->nr;
    const int64_t row = g->kept ? width * g->kept->bits / 8 : width * (int64_t)tern_dtype_size(g->b_dtype);
    const void *panel = panel_at(r, s->panel, q->k0 + k);
    const struct tern_gemm_ahead ahead = {.b = k + kc < q->depth ? (const char *)panel + kc * row : s->next,
                                          .step = ceil_div(row, ceil_div(q->rows, l->mr)),
                                          .a = q->fresh};
    enum tern_dtype dtype = g->b_dtype;
    if (g->kept) {
        const struct tern_cpu_weights_panel p = tern_cpu_weights_panel(g->kept, g->b, s->panel);
        l->expand_f32(g->kept->bits, p.values, p.scales, width, q->k0 + k, kc, q->wide);
        panel = q->wide;
        dtype = TERN_F32;
    } else if (dtype != TERN_F32 && q->rows > 2 * l->mr) { /* the tile would widen it once for each of them */
        l->to_f32(dtype, kc * width, panel, q->wide);
        panel = q->wide;
        dtype = TERN_F32;
    }
    l->gemm_tile_ahead((int)q->rows, (int)s->cols, kc, q->a + k, q->lda, panel, dtype, half, s->c, s->ldc, q->k0 + k > 0, s->bias, &ahead);
}

static void times_parts(const struct run *r, const struct block *q, const struct sums *s)
{
    for (int64_t k = 0; k < q->depth; k += r->b.kc)
        times_part(r, q, s, k, min64(r->b.kc, q->depth - k));
}

static void times_panel(const struct run *r, const struct block *q, int64_t p, const void *next)
{
    const struct cpu_gemm *g = r->g;
    const int64_t col = p * r->level->nr, cols = min64(r->level->nr, g->n - col);
    const struct sums s = {p, cols, g->bias ? g->bias + col : NULL, g->c + q->row0 * g->ldc + col, g->ldc, next};
    times_parts(r, q, &s);
    for (int64_t i = 0; g->post && q->k0 + q->depth == g->k && i < q->rows; i++) {
        if (i + CPU_POST_AHEAD < q->rows)
            tern_cpu_post_fetch(g->post, q->row0 + i + CPU_POST_AHEAD, col, cols);
        tern_cpu_post_apply(g->post, s.c + i * s.ldc, s.c + i * s.ldc, q->row0 + i, col, cols);
    }
}

/* The whole depth: panels of values and of gates, and the rows of C that they make. */
static void times_pair(const struct run *r, const struct block *q, int64_t p, const void *next)
{
    const struct tern_cpu_level *l = r->level;
    const struct cpu_gemm *g = r->g;
    const int64_t col = p * l->nr, cols = min64(l->nr, g->n - col);
    const struct sums value = {2 * p, cols, g->bias ? g->bias + col : NULL, q->sums, 2 * l->nr, panel_at(r, 2 * p + 1, q->k0)};
    const struct sums gate = {2 * p + 1, cols, g->bias ? g->bias + g->n + col : NULL, q->sums + l->nr, 2 * l->nr, next};
    times_parts(r, q, &value);
    times_parts(r, q, &gate);
    l->geglu(TERN_F32, q->rows, cols, value.c, gate.c, gate.ldc, g->c + q->row0 * g->ldc + col, g->ldc);
}

/* The block meets its panels; then, deeper, the first of them again. */
static void times_panels(const struct run *r, struct block *q, int64_t p0, int64_t p1)
{
    const struct cpu_gemm *g = r->g;
    const int64_t each = g->gated ? 2 : 1, deeper = q->k0 + q->depth < g->k ? q->k0 + q->depth : q->k0;
    q->fresh = in_place(g);
    for (int64_t p = p0; p < p1; p++) {
        const void *next = p + 1 < p1 ? panel_at(r, (p + 1) * each, q->k0) : panel_at(r, p0 * each, deeper);
        (g->gated ? times_pair : times_panel)(r, q, p, next);
        q->fresh = false;
    }
}

/* A task of a product. */
static void multiply(const struct run *r, int slot, int64_t task)
{
    const struct cpu_gemm *g = r->g;
    const struct blocking *b = &r->b;
    char *scratch = b->slot ? r->workspace + (size_t)slot * b->slot : NULL; /* where nothing is gathered or widened there is none */
    float *sums = scratch ? (float *)(void *)(scratch + b->wide) : NULL, *a = scratch ? sums + b->sums / sizeof(float) : NULL;
    const struct cpu_task_place at = cpu_task_place(task, b->row_blocks, b->splits, g->m, g->gated ? 2 * g->n : g->n);
    const int64_t p0 = share_begin(b->panels, b->splits, at.part), p1 = share_begin(b->panels, b->splits, at.part + 1);
    struct block q = {.a = a,
                      .lda = in_place(g) ? g->lda : b->depth + PAD,
                      .row0 = share_begin(b->tiles, b->row_blocks, at.block) * r->level->mr,
                      .wide = (float *)(void *)scratch,
                      .sums = sums};

    q.rows = min64(share_begin(b->tiles, b->row_blocks, at.block + 1) * r->level->mr, g->m) - q.row0;
    for (; q.k0 < g->k; q.k0 += b->depth) {
        q.depth = min64(b->depth, g->k - q.k0);
        if (in_place(g))
            q.a = (const float *)g->source + q.row0 * g->lda + q.k0;
        else
            (g->gather ? g->gather : gather_rows)(g, q.row0, q.rows, q.k0, q.depth, a, q.lda);
        times_panels(r, &q, p0, p1);
    }
}

static void run_task(void *arg, int slot, int64_t i)
{
    const struct run *r = arg;
    const int64_t tasks = r->b.row_blocks * r->b.splits;
    if (!r->g->batch) {
        multiply(r, slot, i);
        return;
    }
    struct cpu_gemm g = *r->g;
    struct run one = *r;
    one.g = &g;
    g.product(g.products, i / tasks, &g);
    multiply(&one, slot, i % tasks);
}

void tern_cpu_gemm_run(struct tern_context *ctx, const struct cpu_gemm *g, void *workspace)
{
    struct run r = {g, cpu_level(ctx), plan(ctx, g), workspace};
    if (g->m > 0 && g->n > 0)
        tern_parallel_slots(ctx, max64(g->batch, 1) * r.b.row_blocks * r.b.splits, run_task, &r);
}

enum tern_status tern_cpu_gemm_launch(const struct tern_kernel_args *a, const struct cpu_gemm *like, const struct cpu_rows *rows)
{
    struct cpu_gemm g = *like;
    struct cpu_post post = tern_cpu_post_make(a, rows);
    g.post = post.n ? &post : NULL;
    g.b = tern_arg_host(&a->packed);
    g.bias = a->desc->present[2] ? tern_arg_host(&a->in[2]) : NULL;
    g.c = tern_arg_host(&a->out);
    tern_cpu_gemm_run(a->ctx, &g, tern_arg_host(&a->workspace));
    return TERN_OK;
}

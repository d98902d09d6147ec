/* The loops around the gemm tile: blocks of A that fit in L2, panels of B that fit in L1. */
#include "backends/cpu/gemm.h"

#include <string.h>

#include "backends/cpu/integers.h"
#include "backends/cpu/slots.h"
#include "backends/cpu/tasks.h"
#include "backends/cpu/transpose.h"
#include "backends/cpu/weights.h"
#include "core/files.h"
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
int64_t cpu_gemm_depth(struct tern_context *ctx, int64_t k)
{
    const struct cpu_device *d = cpu_device_of(ctx);
    int64_t kc = (int64_t)(d->l1 * 2 / 3) / (d->level->nr * 4) / 16 * 16;
    kc = kc < 64 ? 64 : kc > 512 ? 512 : kc;
    return ceil_div(k, ceil_div(k, kc));
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
static bool in_place(const struct cpu_gemm *g) { return g->lda && g->lda % 512; }

/* A block of A takes half of L2. It is as deep as the rows that it should have allow: while a panel of it goes by, all parts of a sum meet
 * in the same few lines of C. */
static struct blocking plan(struct tern_context *ctx, const struct cpu_gemm *g)
{
    const struct cpu_device *d = cpu_device_of(ctx);
    const int64_t mr = d->level->mr, room = (int64_t)(d->l2 / 2 / sizeof(float)), threads = tern_thread_count(ctx), tasks = 4 * threads;
    struct blocking b;
    if (g->m < 1 || g->n < 1 || g->k < 1)
        return (struct blocking){0};
    b.kc = cpu_gemm_depth(ctx, g->k);
    int64_t rows = min64(LEAST_TILES, ceil_div(g->m, mr)) * mr, parts = ceil_div(g->k, b.kc);
    int64_t most = g->gated ? parts : (room / rows - PAD) / b.kc; /* a gate has to be whole before it is used */
    b.depth = ceil_div(parts, ceil_div(parts, most < 1 ? 1 : most)) * b.kc;
    b.mc = min64(room / (b.depth + PAD) / mr, MOST_TILES) * mr;
    b.mc = b.mc < mr ? mr : b.mc;
    b.tiles = ceil_div(g->m, mr);
    b.row_blocks = min64(b.tiles, share_rows(g->m, b.mc, LEAST_TILES * mr, tasks, threads));
    b.mc = ceil_div(b.tiles, b.row_blocks) * mr;
    b.panels = ceil_div(g->n, d->level->nr);
    b.splits = ceil_div(tasks, b.row_blocks);
    b.splits = min64(b.panels, b.splits + (b.row_blocks * b.splits % threads != 0));
    b.wide = g->b_dtype == TERN_F32 && !g->kept ? 0 : (size_t)(b.kc * d->level->nr) * sizeof(float);
    b.sums = g->gated ? (size_t)(b.mc * 2 * d->level->nr) * sizeof(float) : 0;
    b.slot = cpu_slot(b.wide + b.sums + (in_place(g) ? 0 : (size_t)(b.mc * (b.depth + PAD)) * sizeof(float)));
    return b;
}

size_t cpu_gemm_workspace(struct tern_context *ctx, const struct cpu_gemm *g)
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
        return cpu_weights_panel(g->kept, g->b, panel).values + k * width * g->kept->bits / 8;
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
        const struct cpu_weights_panel p = cpu_weights_panel(g->kept, g->b, s->panel);
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
            cpu_post_fetch(g->post, q->row0 + i + CPU_POST_AHEAD, col, cols);
        cpu_post_apply(g->post, s.c + i * s.ldc, s.c + i * s.ldc, q->row0 + i, col, cols);
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

static void run_task(void *arg, int slot, int64_t task)
{
    const struct run *r = arg;
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
            g->gather(g, q.row0, q.rows, q.k0, q.depth, a, q.lda);
        times_panels(r, &q, p0, p1);
    }
}

void cpu_gemm_run(struct tern_context *ctx, const struct cpu_gemm *g, void *workspace)
{
    struct run r = {g, cpu_level(ctx), plan(ctx, g), workspace};
    if (g->m > 0 && g->n > 0)
        tern_parallel_slots(ctx, r.b.row_blocks * r.b.splits, run_task, &r);
}

enum tern_status cpu_gemm_launch(const struct tern_kernel_args *a, const struct cpu_gemm *like, const struct cpu_rows *rows)
{
    struct cpu_gemm g = *like;
    struct cpu_post post = cpu_post_make(a, rows);
    g.post = post.n ? &post : NULL;
    g.b = tern_arg_host(&a->packed);
    g.bias = a->desc->present[2] ? tern_arg_host(&a->in[2]) : NULL;
    g.c = tern_arg_host(&a->out);
    cpu_gemm_run(a->ctx, &g, tern_arg_host(&a->workspace));
    return TERN_OK;
}

size_t cpu_packed_size(const struct tern_cpu_level *level, int64_t n, int64_t k, size_t element)
{
    int64_t rest = n % level->nr;
    int64_t width = n - rest + (rest == 0 ? 0 : rest <= level->nr / 2 ? level->nr / 2 : level->nr);
    return (size_t)(width * k) * element;
}

/* One panel, in blocks of up to a line of the weights of one inner run, so that both sides stay in cache and no index is divided inside. */
#define PACK_PANEL(type)                                                                                     \
    static void pack_panel_##type(const struct cpu_pack *p, const type *src, type *dst, int width, int cols) \
    {                                                                                                        \
        const int64_t line = 64 / sizeof(type);                                                              \
        for (int64_t i = 0, n; i < p->k; i += n) {                                                           \
            const type *from = src + i % p->inner * p->within + i / p->inner * p->between;                   \
            n = min64(line, p->inner - i % p->inner);                                                        \
            if (p->column == 1) {                                                                            \
                for (int64_t t = 0; t < n; t++)                                                              \
                    memcpy(dst + (i + t) * width, from + t * p->within, (size_t)cols * sizeof(type));        \
            } else if (p->within == 1) {                                                                     \
                cpu_transpose_##type(cols, n, from, p->column, dst + i * width, width);                      \
            } else {                                                                                         \
                for (int j = 0; j < cols; j++)                                                               \
                    for (int64_t t = 0; t < n; t++)                                                          \
                        dst[(i + t) * width + j] = from[j * p->column + t * p->within];                      \
            }                                                                                                \
            for (int64_t t = 0; cols < width && t < n; t++)                                                  \
                memset(dst + (i + t) * width + cols, 0, (size_t)(width - cols) * sizeof(type));              \
        }                                                                                                    \
    }
PACK_PANEL(uint16_t)
PACK_PANEL(uint32_t)

/* A panel of B: its columns, those that it has memory for, where it lies; it is `panel` whole ones behind the first. */
struct panel {
    int cols, width;
    size_t from, to; /* bytes */
};

static struct panel panel_of(const struct tern_cpu_level *level, const struct cpu_pack *p, int64_t panel)
{
    const int64_t col = (p->gated ? panel / 2 : panel) * level->nr, gates = p->gated && panel % 2 ? p->n : 0;
    const int cols = (int)min64(level->nr, p->n - col);
    return (struct panel){cols, cols <= level->nr / 2 ? level->nr / 2 : level->nr, (size_t)((gates + col) * p->column) * p->element,
                          (size_t)(panel * level->nr * p->k) * p->element};
}

static void pack_panel(const struct cpu_pack *p, const struct panel *q, const void *from, void *to)
{
    if (p->element == 2)
        pack_panel_uint16_t(p, from, to, q->width, q->cols);
    else
        pack_panel_uint32_t(p, from, to, q->width, q->cols);
}

void cpu_pack_panel(const struct tern_cpu_level *level, const struct cpu_pack *p, const void *src, void *dst, int64_t panel)
{
    const struct panel q = panel_of(level, p, panel);
    pack_panel(p, &q, (const char *)src + q.from, (char *)dst + q.to);
}

int64_t cpu_panel_count(const struct tern_cpu_level *level, int64_t n) { return ceil_div(n, level->nr); }

const void *cpu_panel_source(struct tern_context *ctx, const void *from, size_t size, void *room, size_t room_size)
{
    return size <= room_size && tern_mapping_read(ctx, from, size, room) ? room : from;
}

int64_t cpu_pack_tile(struct tern_context *ctx, int64_t panels) { return ceil_div(panels, 2 * tern_thread_count(ctx)); }

struct pack_run {
    struct tern_context *ctx;
    const struct cpu_pack *p;
    const char *src;
    char *dst;
};

static void pack_task(void *arg, int64_t begin, int64_t end)
{
    const struct pack_run *r = arg;
    const struct cpu_pack *p = r->p;
    const struct tern_cpu_level *level = cpu_level(r->ctx);
    const struct panel last = panel_of(level, p, end - 1);
    const size_t stop = last.to + (size_t)(last.width * p->k) * p->element;
    for (int64_t i = begin; i < end; i++) {
        const struct panel q = panel_of(level, p, i);
        const size_t size = (size_t)(q.cols * p->column) * p->element, next = i + 1 < end ? panel_of(level, p, i + 1).to : stop;
        const void *from = r->src + q.from;
        if (p->column == p->k) /* columns one behind the other */
            from = cpu_panel_source(r->ctx, from, size, r->dst + next, stop - next);
        pack_panel(p, &q, from, r->dst + q.to);
    }
}

void cpu_pack_b(struct tern_context *ctx, const struct cpu_pack *p, const void *src, void *dst)
{
    struct pack_run r = {ctx, p, src, dst};
    const int64_t panels = cpu_panel_count(cpu_level(ctx), p->n) * (p->gated ? 2 : 1);
    tern_parallel(ctx, panels, cpu_pack_tile(ctx, panels), pack_task, &r);
}

/* The loops around products of bf16: a block of rows of A in L1, the panels of a task in L2, sums in f32 in scratch until the depth is
 * through; then bias, posts and one rounding. */
#include <string.h>

#include "backends/cpu/gemm.h"
#include "core/threads.h"

#define PAD 32 /* values between gathered rows: an odd number of lines, so that rows do not share cache sets */
#define MOST_DEPTH 512

struct blocking {
    int64_t depth, kc;          /* filled up to the level's step; of a part */
    int64_t mc;                 /* rows of a task, whole blocks */
    int64_t panels, most;       /* in all; of a task */
    int64_t row_blocks, splits; /* tasks: row blocks x parts of the panels */
    int64_t lda, ldc;
    size_t a_bytes, c_bytes, slot; /* scratch of one thread: A, C, bias */
};

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* Parts of about equal depth, of which a block of rows takes two thirds of L1. Threads have no say in it: it decides the sums. */
static int64_t depth_of_part(const struct cpu_device *d, int64_t depth)
{
    const struct tern_cpu_bf16 *l = &d->level->bf16;
    int64_t most = min64(MOST_DEPTH, max64(64, (int64_t)(d->l1 * 2 / 3) / (l->rows * 2)));
    return round_up(ceil_div(depth, ceil_div(depth, most)), l->step);
}

static struct blocking plan(struct tern_context *ctx, const struct cpu_gemm *g)
{
    const struct cpu_device *d = cpu_device_of(ctx);
    const struct tern_cpu_bf16 *l = &d->level->bf16;
    const int64_t tasks = 4 * tern_thread_count(ctx), l2 = (int64_t)d->l2;
    struct blocking b = {0};
    if (g->m < 1 || g->n < 1 || g->k < 1)
        return b;
    b.depth = round_up(g->k, l->step);
    b.kc = depth_of_part(d, b.depth);
    b.panels = ceil_div(g->n, TERN_BF16_NR);
    b.splits = ceil_div(b.panels, max64(1, l2 / 3 / (b.kc * TERN_BF16_NR * 2))); /* B of a task: a third of L2 */
    b.most = ceil_div(b.panels, b.splits);
    b.ldc = b.most * TERN_BF16_NR + 16;
    b.mc = max64(1, l2 / 4 / (b.ldc * 4) / l->rows) * l->rows; /* sums: a quarter */
    b.mc = min64(b.mc, round_up(g->m, l->rows));
    while (b.mc > 2 * l->rows && ceil_div(g->m, b.mc) * b.splits < tasks)
        b.mc -= l->rows;
    b.row_blocks = ceil_div(g->m, b.mc);
    if (b.row_blocks * b.splits < tasks)
        b.splits = min64(b.panels, ceil_div(tasks, b.row_blocks));
    b.lda = b.kc + PAD;
    b.a_bytes = (size_t)round_up(l->rows * b.lda * 2, 64);
    b.c_bytes = (size_t)round_up(b.mc * b.ldc * 4, 64);
    b.slot = b.a_bytes + b.c_bytes + (size_t)round_up(b.ldc * 4, 64);
    return b;
}

size_t cpu_gemm_bf16_workspace(struct tern_context *ctx, const struct cpu_gemm *g)
{
    size_t slot = plan(ctx, g).slot;
    return slot ? slot * (size_t)tern_thread_count(ctx) + 64 : 0;
}

struct run {
    const struct cpu_gemm *g;
    const struct tern_cpu_level *level;
    struct blocking b;
    char *workspace;
};

/* The part of a task's panels and its scratch. */
struct task {
    int64_t row0, rows, p0, p1;
    int64_t col, cols;
    uint16_t *a;
    float *c, *bias;
};

static int64_t panel_width(const struct cpu_gemm *g, int64_t panel)
{
    return g->n - panel * TERN_BF16_NR <= TERN_BF16_NR / 2 ? TERN_BF16_NR / 2 : TERN_BF16_NR;
}

/* Rows i .. i + rows of the task are ready. */
static void finish_rows(const struct run *r, const struct task *t, int64_t i, int64_t rows)
{
    const struct cpu_gemm *g = r->g;
    for (int64_t end = i + rows; i < end; i++) {
        float *c = t->c + i * r->b.ldc;
        if (g->post) {
            if (t->bias)
                r->level->binary[TERN_CPU_ADD](t->cols, c, 1, t->bias, 1, c);
            cpu_post_apply(g->post, c, t->row0 + i, t->col, t->cols);
        }
        r->level->bf16.round(t->cols, c, g->post ? NULL : t->bias, (uint16_t *)g->c + (t->row0 + i) * g->ldc + t->col);
    }
}

/* Depth k0 .. k0 + kc of a block of rows, with all panels of the task. */
static void multiply(const struct run *r, const struct task *t, int64_t i, int64_t rows, int64_t k0, int64_t kc)
{
    const struct cpu_gemm *g = r->g;
    int64_t lda = r->b.lda, there = min64(kc, g->k - k0);
    g->gather(g, t->row0 + i, rows, k0, there, t->a, lda);
    for (int64_t j = 0; there < kc && j < rows; j++) /* the weights there are zero, but 0 x NaN is not */
        memset(t->a + j * lda + there, 0, (size_t)(kc - there) * sizeof(*t->a));
    for (int64_t p = t->p0; p < t->p1; p++) {
        int64_t width = panel_width(g, p);
        const uint16_t *b = (const uint16_t *)g->b + p * TERN_BF16_NR * r->b.depth + k0 * width;
        r->level->bf16.block((int)rows, kc, t->a, lda, b,
                             width<TERN_BF16_NR, t->c + i * r->b.ldc + (p - t->p0) * TERN_BF16_NR, r->b.ldc, k0> 0);
    }
}

static void run_task(void *arg, int slot, int64_t task)
{
    const struct run *r = arg;
    const struct cpu_gemm *g = r->g;
    const struct blocking *b = &r->b;
    const int64_t mr = r->level->bf16.rows, part = task % b->splits;
    char *scratch = r->workspace + (size_t)slot * b->slot;
    struct task t = {.row0 = task / b->splits * b->mc, .p0 = b->panels * part / b->splits, .p1 = b->panels * (part + 1) / b->splits};
    t.rows = min64(b->mc, g->m - t.row0);
    t.col = t.p0 * TERN_BF16_NR;
    t.cols = min64(t.p1 * TERN_BF16_NR, g->n) - t.col;
    t.a = (uint16_t *)(void *)scratch;
    t.c = (float *)(void *)(scratch + b->a_bytes);
    if (g->bias) {
        t.bias = (float *)(void *)(scratch + b->a_bytes + b->c_bytes);
        r->level->to_f32(g->bias_dtype, t.cols, (const char *)g->bias + (size_t)t.col * tern_dtype_size(g->bias_dtype), t.bias);
    }
    r->level->bf16.begin();
    for (int64_t k0 = 0; k0 < b->depth; k0 += b->kc) {
        int64_t kc = min64(b->kc, b->depth - k0);
        for (int64_t i = 0; i < t.rows; i += mr) {
            multiply(r, &t, i, min64(mr, t.rows - i), k0, kc);
            if (k0 + kc == b->depth)
                finish_rows(r, &t, i, min64(mr, t.rows - i));
        }
    }
    r->level->bf16.end();
}

void cpu_gemm_bf16_run(struct tern_context *ctx, const struct cpu_gemm *g, void *workspace)
{
    struct run r = {g, cpu_level(ctx), plan(ctx, g), (char *)workspace + (64 - (uintptr_t)workspace % 64) % 64};
    if (r.b.slot)
        tern_parallel_slots(ctx, r.b.row_blocks * r.b.splits, run_task, &r);
}

/* ---- weights */

size_t cpu_bf16_packed_size(const struct tern_cpu_level *level, int64_t n, int64_t k)
{
    int64_t rest = n % TERN_BF16_NR;
    int64_t width = n - rest + (rest == 0 ? 0 : rest <= TERN_BF16_NR / 2 ? TERN_BF16_NR / 2 : TERN_BF16_NR);
    return level->bf16.step ? (size_t)(width * round_up(k, level->bf16.step)) * 2 : 0;
}

struct pack_run {
    const struct tern_cpu_level *level;
    const struct cpu_pack *p;
    enum tern_dtype dtype;
    const char *src;
    uint16_t *dst;
};

/* n <= 16 values, `step` elements apart, as bf16. */
static void take(const struct pack_run *r, const char *from, int64_t n, int64_t step, uint16_t *to)
{
    const size_t element = r->p->element;
    char stored[16 * sizeof(float)];
    float wide[16];
    for (int64_t t = 0; t < n; t++)
        memcpy(stored + (size_t)t * element, from + (size_t)(t * step) * element, element);
    if (r->dtype == TERN_BF16) {
        memcpy(to, stored, (size_t)n * sizeof(*to));
        return;
    }
    r->level->to_f32(r->dtype, n, stored, wide);
    r->level->from_f32(TERN_BF16, n, wide, to);
}

/* In blocks of up to 16 of one inner run, column by column. */
static void pack_panel(const struct pack_run *r, int64_t panel)
{
    const struct cpu_pack *p = r->p;
    int64_t col = panel * TERN_BF16_NR, cols = min64(TERN_BF16_NR, p->n - col), depth = round_up(p->k, r->level->bf16.step);
    int64_t width = cols <= TERN_BF16_NR / 2 ? TERN_BF16_NR / 2 : TERN_BF16_NR;
    uint16_t *dst = r->dst + col * depth, block[16];
    if (cols < width || p->k < depth)
        memset(dst, 0, (size_t)(width * depth) * sizeof(*dst));
    for (int64_t i = 0, n; i < p->k; i += n) {
        const char *from = r->src + (size_t)(i % p->inner * p->within + i / p->inner * p->between) * p->element;
        n = min64(16, p->inner - i % p->inner);
        for (int64_t j = 0; j < cols; j++) {
            take(r, from + (size_t)((col + j) * p->column) * p->element, n, p->within, block);
            for (int64_t t = 0; t < n; t++)
                dst[((i + t) / 2 * width + j) * 2 + (i + t) % 2] = block[t];
        }
    }
}

static void pack_task(void *arg, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        pack_panel(arg, i);
}

void cpu_bf16_pack(struct tern_context *ctx, const struct cpu_pack *p, enum tern_dtype dtype, const void *src, void *dst)
{
    struct pack_run r = {cpu_level(ctx), p, dtype, src, dst};
    tern_parallel(ctx, ceil_div(p->n, TERN_BF16_NR), 1, pack_task, &r);
}

/* The loops around the gemm tile: blocks of A that fit in L2, panels of B that fit in L1. */
#include "backends/cpu/gemm.h"

#include <string.h>

#include "core/threads.h"

#define PAD 16 /* values between the rows of a gathered block: rows do not share cache sets */

struct blocking {
    int64_t kc, mc;             /* block of A */
    int64_t panels;             /* of B, in all */
    int64_t row_blocks, splits; /* tasks: row blocks x parts of the panels */
    size_t slot;                /* bytes of scratch for one thread */
};

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* A panel of B in two thirds of L1; blocks of about equal depth. */
int64_t cpu_gemm_depth(struct tern_context *ctx, int64_t k)
{
    const struct cpu_device *d = cpu_device_of(ctx);
    int64_t kc = (int64_t)(d->l1 * 2 / 3) / (d->level->nr * 4) / 16 * 16;
    kc = kc < 64 ? 64 : kc > 512 ? 512 : kc;
    return ceil_div(k, ceil_div(k, kc));
}

static struct blocking plan(struct tern_context *ctx, const struct cpu_gemm *g)
{
    const struct cpu_device *d = cpu_device_of(ctx);
    const struct tern_cpu_level *l = d->level;
    struct blocking b;
    int64_t tasks = 4 * tern_thread_count(ctx);
    if (g->m < 1 || g->n < 1 || g->k < 1)
        return (struct blocking){0};
    b.kc = cpu_gemm_depth(ctx, g->k);
    /* a block of A in a quarter of L2 */
    b.mc = (int64_t)(d->l2 / 4) / ((b.kc + PAD) * 4) / l->mr * l->mr;
    b.mc = b.mc < l->mr ? l->mr : b.mc;
    while (b.mc > 8 * l->mr && ceil_div(g->m, b.mc) < tasks)
        b.mc -= l->mr;
    b.mc = min64(b.mc, ceil_div(g->m, l->mr) * l->mr);
    b.panels = ceil_div(g->n, l->nr);
    b.row_blocks = ceil_div(g->m, b.mc);
    b.splits = min64(b.panels, ceil_div(tasks, b.row_blocks));
    b.slot = (size_t)(b.mc * (b.kc + PAD)) * sizeof(float);
    return b;
}

size_t cpu_gemm_workspace(struct tern_context *ctx, const struct cpu_gemm *g) { return plan(ctx, g).slot * (size_t)tern_thread_count(ctx); }

struct run {
    const struct cpu_gemm *g;
    const struct tern_cpu_level *level;
    struct blocking b;
    char *workspace;
};

void cpu_gemm_panels(const struct tern_cpu_level *l, const struct cpu_gemm *g, const float *a, int64_t lda, int64_t row0, int64_t rows,
                     int64_t k0, int64_t kc, int64_t p0, int64_t p1)
{
    const size_t element = tern_dtype_size(g->b_dtype);
    const float *bias = g->bias;
    float *c = g->c;
    for (int64_t p = p0; p < p1; p++) {
        int64_t col = p * l->nr, cols = min64(l->nr, g->n - col);
        bool half = cols <= l->nr / 2;
        int64_t width = half ? l->nr / 2 : l->nr;
        const char *panel = (const char *)g->b + (size_t)(p * l->nr * g->k + k0 * width) * element;
        for (int64_t i = 0; i < rows; i += l->mr)
            l->gemm_tile((int)min64(l->mr, rows - i), (int)cols, kc, a + i * lda, lda, panel, g->b_dtype, half,
                         c + (row0 + i) * g->ldc + col, g->ldc, k0 > 0, bias ? bias + col : NULL);
        for (int64_t i = 0; g->post && k0 + kc == g->k && i < rows; i++)
            cpu_post_apply(g->post, c + (row0 + i) * g->ldc + col, row0 + i, col, cols);
    }
}

static void run_task(void *arg, int slot, int64_t task)
{
    const struct run *r = arg;
    const struct cpu_gemm *g = r->g;
    const struct blocking *b = &r->b;
    int64_t row0 = task / b->splits * b->mc, rows = min64(b->mc, g->m - row0);
    int64_t part = task % b->splits, p0 = b->panels * part / b->splits, p1 = b->panels * (part + 1) / b->splits;
    float *a = (float *)(void *)(r->workspace + (size_t)slot * b->slot);
    int64_t lda = b->kc + PAD;

    for (int64_t k0 = 0; k0 < g->k; k0 += b->kc) {
        int64_t kc = min64(b->kc, g->k - k0);
        g->gather(g, row0, rows, k0, kc, a, lda);
        cpu_gemm_panels(r->level, g, a, lda, row0, rows, k0, kc, p0, p1);
    }
}

void cpu_gemm_run(struct tern_context *ctx, const struct cpu_gemm *g, void *workspace)
{
    struct run r = {g, cpu_level(ctx), plan(ctx, g), workspace};
    if (g->m > 0 && g->n > 0)
        tern_parallel_slots(ctx, r.b.row_blocks * r.b.splits, run_task, &r);
}

size_t cpu_packed_size(const struct tern_cpu_level *level, int64_t n, int64_t k, size_t element)
{
    int64_t rest = n % level->nr;
    int64_t width = n - rest + (rest == 0 ? 0 : rest <= level->nr / 2 ? level->nr / 2 : level->nr);
    return (size_t)(width * k) * element;
}

/* One panel, in blocks of up to 16 rows of one inner run, so that both sides stay in cache and no index is divided inside. */
#define PACK_PANEL(type)                                                                                     \
    static void pack_panel_##type(const struct cpu_pack *p, const type *src, type *dst, int width, int cols) \
    {                                                                                                        \
        for (int64_t i = 0, n; i < p->k; i += n) {                                                           \
            const type *from = src + i % p->inner * p->within + i / p->inner * p->between;                   \
            n = min64(16, p->inner - i % p->inner);                                                          \
            for (int j = 0; j < cols; j++)                                                                   \
                for (int64_t t = 0; t < n; t++)                                                              \
                    dst[(i + t) * width + j] = from[j * p->column + t * p->within];                          \
            for (int64_t t = 0; cols < width && t < n; t++)                                                  \
                memset(dst + (i + t) * width + cols, 0, (size_t)(width - cols) * sizeof(type));              \
        }                                                                                                    \
    }
PACK_PANEL(uint16_t)
PACK_PANEL(uint32_t)

void cpu_pack_panel(const struct tern_cpu_level *level, const struct cpu_pack *p, const void *src, void *dst, int64_t panel)
{
    int64_t col = panel * level->nr;
    int cols = (int)min64(level->nr, p->n - col), width = cols <= level->nr / 2 ? level->nr / 2 : level->nr;
    const char *from = (const char *)src + (size_t)(col * p->column) * p->element;
    char *to = (char *)dst + (size_t)(col * p->k) * p->element;
    if (p->element == 2)
        pack_panel_uint16_t(p, (const uint16_t *)(const void *)from, (uint16_t *)(void *)to, width, cols);
    else
        pack_panel_uint32_t(p, (const uint32_t *)(const void *)from, (uint32_t *)(void *)to, width, cols);
}

int64_t cpu_panel_count(const struct tern_cpu_level *level, int64_t n) { return ceil_div(n, level->nr); }

struct pack_run {
    const struct tern_cpu_level *level;
    const struct cpu_pack *p;
    const void *src;
    void *dst;
};

static void pack_task(void *arg, int64_t begin, int64_t end)
{
    const struct pack_run *r = arg;
    for (int64_t i = begin; i < end; i++)
        cpu_pack_panel(r->level, r->p, r->src, r->dst, i);
}

void cpu_pack_b(struct tern_context *ctx, const struct cpu_pack *p, const void *src, void *dst)
{
    struct pack_run r = {cpu_level(ctx), p, src, dst};
    tern_parallel(ctx, cpu_panel_count(r.level, p->n), 1, pack_task, &r);
}

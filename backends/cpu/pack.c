/* B packed for the gemm of f32: panels of the tile's width, in the dtype that it has. */
#include <string.h>

#include "backends/cpu/gemm.h"
#include "backends/cpu/integers.h"
#include "backends/cpu/panels.h"
#include "backends/cpu/transpose.h"

size_t tern_cpu_packed_size(const struct tern_cpu_level *level, int64_t n, int64_t k, size_t element)
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

void tern_cpu_pack_panel(const struct tern_cpu_level *level, const struct cpu_pack *p, const void *src, void *dst, int64_t panel)
{
    const struct panel q = panel_of(level, p, panel);
    pack_panel(p, &q, (const char *)src + q.from, (char *)dst + q.to);
}

int64_t tern_cpu_panel_count(const struct tern_cpu_level *level, int64_t n) { return ceil_div(n, level->nr); }

struct pack_run {
    const struct tern_cpu_level *level;
    const struct cpu_pack *p;
    const char *src;
    char *dst;
    void (*packed)(void *arg, int64_t panel);
    void *arg;
};

static void pack_task(void *arg, int64_t panel, const struct tern_cpu_room *room)
{
    const struct pack_run *r = arg;
    const struct cpu_pack *p = r->p;
    const struct panel q = panel_of(r->level, p, panel);
    const void *from = r->src + q.from;
    if (p->column == p->k) /* columns one behind the other */
        from = tern_cpu_panel_source(room, from, (size_t)(q.cols * p->column) * p->element);
    pack_panel(p, &q, from, r->dst + q.to);
    if (r->packed)
        r->packed(r->arg, panel);
}

void tern_cpu_pack_b(struct tern_context *ctx, const struct cpu_pack *p, const void *src, void *dst,
                     void (*packed)(void *arg, int64_t panel), void *arg)
{
    struct pack_run r = {cpu_level(ctx), p, src, dst, packed, arg};
    const int64_t n = tern_cpu_panel_count(r.level, p->n) * (p->gated ? 2 : 1);
    const size_t step = (size_t)(r.level->nr * p->k) * p->element;
    const struct panel last = panel_of(r.level, p, n - 1);
    const struct tern_cpu_panels panels = {ctx, n, dst, step, last.to + (size_t)(last.width * p->k) * p->element, step};
    tern_cpu_each_panel(&panels, pack_task, &r);
}

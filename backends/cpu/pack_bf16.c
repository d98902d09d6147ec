/* Weights packed for products of bf16: panels of pairs along the depth. */
#include <string.h>

#include "backends/cpu/gemm_bf16.h"
#include "backends/cpu/integers.h"
#include "core/threads.h"

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

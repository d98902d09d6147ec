/* Weights of Winograd's convolution in int8. What is kept is the filter's taps as bytes, as the implicit gemm has them: transformed weights
 * would be 24 bytes in place of 9. They are made from the taps while a kernel runs; how large they become is known here. */
#include <string.h>

#include "backends/cpu/integers.h"
#include "backends/cpu/winograd_i8.h"

#define NR TERN_DOT_NR
#define POINTS CPU_WINOGRAD_I8_POINTS
#define SUMS CPU_WINOGRAD_I8_SUMS
#define TAPS 9
#define PART CPU_I8_LINE /* channels whose sums are taken together */

int tern_cpu_winograd_i8_point(int point)
{
    static const int8_t of[POINTS] = {-1, 0, 1, 2, 3, -3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, -7, 16, 17, 18, 19, -9};
    return of[point];
}

struct tern_cpu_winograd_i8_weights tern_cpu_winograd_i8_weights(const struct tern_meta *weight, void *packed)
{
    struct tern_cpu_winograd_i8_weights w = {.n = weight->shape[0], .depth = round_up(weight->shape[1], CPU_I8_LINE)};
    const int64_t k = w.depth * TAPS;
    w.taps = tern_cpu_i8_parts(weight, k, false, packed);
    w.offset = (int32_t *)(void *)((char *)packed + tern_cpu_i8_packed_size(weight, k, false));
    w.factor = (int16_t *)(void *)(w.offset + w.n * POINTS);
    return w;
}

size_t tern_cpu_winograd_i8_packed_size(const struct tern_meta *weight)
{
    const int64_t k = round_up(weight->shape[1], CPU_I8_LINE) * TAPS;
    return tern_cpu_i8_packed_size(weight, k, false) + (size_t)weight->shape[0] * (POINTS * sizeof(int32_t) + SUMS * sizeof(int16_t));
}

struct tern_cpu_winograd_i8_panel tern_cpu_winograd_i8_panel(const struct tern_cpu_winograd_i8_weights *w, int64_t panel)
{
    const int64_t cols = min64(NR, w->n - panel * NR);
    return (struct tern_cpu_winograd_i8_panel){panel * NR, cols, cols <= NR / 2 ? NR / 2 : NR,
                                               w->taps.panels + panel * NR * w->depth * TAPS};
}

void tern_cpu_winograd_i8_factors(const struct tern_cpu_winograd_i8_weights *w, const struct tern_cpu_winograd_i8_panel *p, int16_t *to)
{
    memset(to, 0, (size_t)(SUMS * p->width * 4) * sizeof(*to));
    for (int s = 0; s < SUMS; s++)
        for (int64_t i = 0; i < p->cols * 4; i++)
            to[s * p->width * 4 + i] = w->factor[s * w->n + p->col + i / 4];
}

float tern_cpu_winograd_i8_unit(const struct tern_cpu_winograd_i8_weights *w, int point, int64_t col)
{
    static const float down[4] = {1, 1.0f / 2, 1.0f / 2, 1};
    static const float across[6] = {64.0f / 36, 64 * 3.0f / 520, 64 * 3.0f / 520, 64.0f / 585, 64.0f / 585, 64.0f / 36};
    const int sum = tern_cpu_winograd_i8_point(point);
    const int16_t factor = sum < 0 ? INT16_MAX : w->factor[sum * w->n + col];
    const float share = down[point / 6] * across[point % 6];
    return factor == INT16_MAX ? share : share * 32768.0f / (float)factor; /* the largest changes no byte */
}

/* ---- what the sums need */

struct pack_run {
    const struct tern_cpu_level *level;
    struct tern_cpu_winograd_i8_weights w;
};

/* The largest factor with which the largest sum of a column fits into 7 bits. */
static void find_factors(const struct pack_run *r, const struct tern_cpu_winograd_i8_panel *p)
{
    int16_t most[SUMS * NR * 4] = {0};
    const int64_t row = p->width * 4;
    r->level->winograd_i8.most(r->w.depth * p->width, row, p->taps, r->w.depth * p->width, most);
    for (int s = 0; s < SUMS; s++)
        for (int64_t j = 0; j < p->cols; j++) {
            int largest = 127;
            for (int64_t i = 0; i < 4; i++)
                largest = most[s * row + j * 4 + i] > largest ? most[s * row + j * 4 + i] : largest;
            r->w.factor[s * r->w.n + p->col + j] = (int16_t)min64(INT16_MAX, 127 * 32768 / largest);
        }
}

/* Sums over the depth of each point: products with ones. */
static void find_offsets(const struct pack_run *r, const struct tern_cpu_winograd_i8_panel *p)
{
    const struct tern_cpu_dot *dot = &r->level->i8.dot;
    const int64_t tap = r->w.depth * p->width;
    uint8_t ones[PART];
    int8_t u[SUMS * PART * NR];
    int16_t factors[SUMS * NR * 4];
    int32_t sums[NR * TERN_DOT_ROWS / 2], all[POINTS][NR] = {{0}}; /* of sums the first row is wanted */
    memset(ones, 1, sizeof(ones));
    tern_cpu_winograd_i8_factors(&r->w, p, factors);
    dot->begin();
    for (int64_t c = 0; c < r->w.depth; c += PART) {
        const struct tern_dot_piece piece = {{(const uint16_t *)(const void *)ones}, 0, 0, PART / 2};
        r->level->winograd_i8.filter(PART * p->width, p->width * 4, p->taps + c * p->width, tap, factors, u, PART * NR);
        for (int point = 0; point < POINTS; point++) {
            const int sum = tern_cpu_winograd_i8_point(point);
            const int8_t *b = sum < 0 ? p->taps + (-1 - sum) * tap + c * p->width : u + sum * PART * NR;
            const uint16_t *words = (const uint16_t *)(const void *)b;
            dot->block(&(struct tern_dot_block){
                .rows = 1, .n = 1, .half_panel = p->width < NR, .pieces = &piece, .panel = words, .next = words, .c = sums, .ldc = NR});
            for (int64_t j = 0; j < p->cols; j++)
                all[point][j] += sums[j];
        }
    }
    dot->end();
    for (int point = 0; point < POINTS; point++)
        for (int64_t j = 0; j < p->cols; j++)
            r->w.offset[point * r->w.n + p->col + j] = all[point][j] * r->level->i8.zero;
}

static void find_numbers(void *arg, int64_t panel)
{
    const struct pack_run *r = arg;
    const struct tern_cpu_winograd_i8_panel p = tern_cpu_winograd_i8_panel(&r->w, panel);
    find_factors(r, &p);
    find_offsets(r, &p);
}

enum tern_status tern_cpu_winograd_i8_pack(struct tern_context *ctx, const struct tern_meta *weight, const void *src, void *dst)
{
    struct pack_run r = {cpu_level(ctx), tern_cpu_winograd_i8_weights(weight, dst)};
    tern_cpu_i8_pack(ctx, weight, false, src, dst, find_numbers, &r);
    return TERN_OK;
}

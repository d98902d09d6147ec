/* Weights of 8 or 4 bits are made from floats, panel by panel. */
#include "backends/cpu/weights.h"

#include <string.h>

#include "backends/cpu/integers.h"
#include "core/memory.h"
#include "core/threads.h"
#include "ops/weight_only.h"

#define GROUP TERN_WEIGHT_GROUP

int tern_cpu_weight_bits(const struct tern_op_desc *d)
{
    if (!tern_op_is_weight_only(d->op))
        return 0;
    return (int)(d->op == TERN_OP_weight_only_conv2d ? d->attrs.weight_only_conv2d.bits : d->attrs.weight_only_linear.bits);
}

uint64_t tern_cpu_weight_key(const struct tern_op_desc *d) { return (uint64_t)tern_cpu_weight_bits(d); }

static struct cpu_weights weights_of(const struct tern_op_desc *d, int64_t width, int64_t step)
{
    const struct tern_meta *m = &d->in[1];
    const bool gated = d->op == TERN_OP_weight_only_linear_geglu;
    struct cpu_weights w = {tern_cpu_weight_bits(d), m->shape[0] / (gated ? 2 : 1), 1, width, 0, gated};
    for (int i = 1; i < m->ndim; i++)
        w.k *= m->shape[i];
    w.depth = round_up(w.k, step);
    return w;
}

struct cpu_weights tern_cpu_weights_f32(struct tern_context *ctx, const struct tern_op_desc *d)
{
    return weights_of(d, cpu_level(ctx)->nr, 2);
}

struct cpu_weights tern_cpu_weights_bf16(struct tern_context *ctx, const struct tern_op_desc *d)
{
    return weights_of(d, TERN_DOT_NR, cpu_level(ctx)->bf16.dot.step);
}

static size_t values_size(const struct cpu_weights *w, int64_t width) { return (size_t)(width * w->depth * w->bits / 8); }

static size_t panel_size(const struct cpu_weights *w, int64_t width)
{
    return values_size(w, width) + (size_t)width * (w->bits == 8 ? sizeof(float) : (size_t)ceil_div(w->depth, GROUP) * sizeof(uint16_t));
}

static int64_t panels_of(const struct cpu_weights *w) { return ceil_div(w->n, w->width) * (w->gated ? 2 : 1); }

/* Columns of a panel, of those of the weight from *first on. */
static int64_t columns_of(const struct cpu_weights *w, int64_t panel, int64_t *first)
{
    const int64_t turns = w->gated ? 2 : 1, col = panel / turns * w->width;
    *first = col + panel % turns * w->n;
    return min64(w->width, w->n - col);
}

/* Of its columns and of zeros behind them. */
static int64_t width_of(const struct cpu_weights *w, int64_t panel)
{
    int64_t first;
    return columns_of(w, panel, &first) <= w->width / 2 ? w->width / 2 : w->width;
}

struct tern_cpu_weights_panel tern_cpu_weights_panel(const struct cpu_weights *w, const void *packed, int64_t panel)
{
    struct tern_cpu_weights_panel p = {width_of(w, panel), NULL, NULL};
    p.values = (uint8_t *)(uintptr_t)packed + (size_t)panel * panel_size(w, w->width);
    p.scales = p.values + values_size(w, p.width);
    return p;
}

size_t tern_cpu_weights_size(const struct cpu_weights *w)
{
    const int64_t panels = panels_of(w);
    if (!panels)
        return 0;
    return (size_t)(panels - 1) * panel_size(w, w->width) + panel_size(w, w->gated ? w->width : width_of(w, panels - 1));
}

struct pack_run {
    struct tern_context *ctx;
    const struct tern_cpu_level *level;
    const struct cpu_weights *w;
    int64_t c, taps;
    enum tern_dtype dtype;
    const char *src;
    char *dst;
    float *rows; /* of each thread: one as it lies in the weight, one tap by tap */
};

/* A row of the weight in f32, tap by tap. */
static const float *read_row(const struct pack_run *r, int64_t row, float *scratch)
{
    const int64_t k = r->w->k;
    float *wide = scratch, *turned = scratch + k;
    r->level->to_f32(r->dtype, k, r->src + (size_t)(row * k) * tern_dtype_size(r->dtype), wide);
    if (r->taps == 1)
        return wide;
    for (int64_t c = 0; c < r->c; c++)
        for (int64_t t = 0; t < r->taps; t++)
            turned[t * r->c + c] = wide[c * r->taps + t];
    return turned;
}

static void pack_8(const struct pack_run *r, const float *row, const struct tern_cpu_weights_panel *p, int64_t j)
{
    const int64_t k = r->w->k;
    const float scale = tern_weight_scale(r->level->i8.most(TERN_F32, k, row) / 127);
    for (int64_t i = 0; i < k; i++)
        p->values[i * p->width + j] = (uint8_t)(int8_t)tern_weight_value(row[i], scale, -127, 127);
    ((float *)p->scales)[j] = scale;
}

static void pack_4(const struct pack_run *r, const float *row, const struct tern_cpu_weights_panel *p, int64_t j)
{
    const int64_t k = r->w->k;
    for (int64_t first = 0; first < k; first += GROUP) {
        const int64_t n = min64(GROUP, k - first);
        const float scale = tern_group_scale(n, row + first);
        uint32_t bits;
        memcpy(&bits, &scale, sizeof(bits));
        ((uint16_t *)p->scales)[first / GROUP * p->width + j] = (uint16_t)(bits >> 16);
        for (int64_t i = first; i < first + n; i++) { /* each is 0 so far */
            const int value = (int)tern_weight_value(row[i], scale, -8, 7) + 8;
            p->values[i / 2 * p->width + j] ^= (uint8_t)((value ^ 8) << i % 2 * 4);
        }
    }
}

static void pack_panel(void *arg, int slot, int64_t panel)
{
    const struct pack_run *r = arg;
    const struct cpu_weights *w = r->w;
    const struct tern_cpu_weights_panel p = tern_cpu_weights_panel(w, r->dst, panel);
    int64_t first;
    const int64_t cols = columns_of(w, panel, &first);
    memset(p.values, w->bits == 8 ? 0 : 0x88, values_size(w, p.width));
    memset(p.scales, 0, panel_size(w, p.width) - values_size(w, p.width));
    for (int64_t j = 0; j < cols; j++)
        (w->bits == 8 ? pack_8 : pack_4)(r, read_row(r, first + j, r->rows + slot * 2 * w->k), &p, j);
}

enum tern_status tern_cpu_weights_pack(struct tern_context *ctx, const struct cpu_weights *w, const struct tern_meta *weight,
                                       const void *src, void *dst)
{
    struct pack_run r = {.ctx = ctx,
                         .level = cpu_level(ctx),
                         .w = w,
                         .c = weight->shape[1],
                         .taps = weight->shape[1] ? w->k / weight->shape[1] : 0,
                         .dtype = weight->dtype,
                         .src = src,
                         .dst = dst};
    r.rows = tern_alloc(ctx, (size_t)(w->k * 2 * tern_thread_count(ctx)) * sizeof(float));
    if (!r.rows)
        return tern_error_status(ctx);
    tern_parallel_slots(ctx, panels_of(w), pack_panel, &r);
    tern_free(ctx, r.rows);
    return TERN_OK;
}

/* Attention without the L x S matrix: blocks of queries meet blocks of keys, the softmax is kept as a running sum of powers that refer to
 * about the maximum so far [Milakov 2018; Dao 2022]. Keys and values are packed once per head for the gemm tile. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "backends/cpu/gemm.h"
#include "backends/cpu/heads.h"
#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "core/threads.h"

#define KEYS 256 /* keys of a block; a multiple of every level's nr */
#define PAD 16
#define GROWTH 12 /* of a row's scores above what its powers refer to, before they refer to the new maximum: 2^12 costs no digits */
#define LOG2_E 1.44269504088896341

struct shape {
    int64_t n, h, l, s, e, ev;
    int64_t k_bytes, v_bytes; /* packed, of one head */
    int64_t rows;             /* queries of a block */
    int64_t ldq, ldo;
    size_t slot; /* scratch of a thread */
};

static struct shape shape_of(const struct tern_cpu_level *level, const struct tern_op_desc *d)
{
    const int64_t *q = d->in[0].shape, *v = d->in[2].shape;
    struct shape s = {.n = q[0], .h = q[1], .l = q[2], .e = q[3], .s = v[2], .ev = v[3]};
    s.k_bytes = round_up((int64_t)cpu_packed_size(level, s.s, s.e, 4), 64);
    s.v_bytes = round_up((int64_t)cpu_packed_size(level, s.ev, s.s, 4), 64);
    s.rows = 4 * level->mr;
    s.ldq = round_up(s.e, PAD) + PAD;
    s.ldo = round_up(s.ev, PAD) + PAD;
    s.slot = (size_t)round_up(s.rows * (s.ldq + s.ldo + KEYS + PAD + 2) * 4, 64);
    return s;
}

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    const struct tern_meta *q = &d->in[0];
    if (!cpu_heads_fit(q, q, TERN_F32) || !cpu_heads_fit(&d->in[1], q, TERN_F32) || !cpu_heads_fit(&d->in[2], q, TERN_F32) ||
        !cpu_heads_fit(&d->out, q, TERN_F32) || q->shape[3] == 0 || d->in[1].shape[2] == 0)
        return false;
    return !d->present[3] || d->in[3].dtype == TERN_F32 || d->in[3].dtype == TERN_BOOL;
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct shape s = shape_of(cpu_level(ctx), d);
    return (size_t)(s.n * s.h * (s.k_bytes + s.v_bytes)) + s.slot * (size_t)tern_thread_count(ctx);
}

struct run {
    const struct tern_op_desc *d;
    const struct tern_cpu_level *level;
    struct shape s;
    const float *q, *k, *v;
    const char *mask;
    int64_t mask_stride[TERN_MAX_DIMS]; /* under (n, h, l, s) */
    float *out;
    float scale; /* of queries: scores are exponents of two */
    char *packed, *scratch;
};

static const float *head(const struct tern_meta *m, const float *p, int64_t n, int64_t h)
{
    return p + n * m->stride[0] + h * m->stride[1];
}

/* One panel of keys or values of one head. */
static void pack_task(void *arg, int64_t begin, int64_t end)
{
    const struct run *r = arg;
    const struct shape *s = &r->s;
    int64_t k_panels = cpu_panel_count(r->level, s->s), v_panels = cpu_panel_count(r->level, s->ev), panels = k_panels + v_panels;
    for (int64_t i = begin; i < end; i++) {
        int64_t nh = i / panels, p = i % panels, n = nh / s->h, h = nh % s->h;
        char *to = r->packed + nh * (s->k_bytes + s->v_bytes);
        struct cpu_pack keys = {.n = s->s, .k = s->e, .inner = s->e, .column = r->d->in[1].stride[2], .within = 1, .element = 4};
        struct cpu_pack values = {.n = s->ev, .k = s->s, .inner = s->s, .column = 1, .within = r->d->in[2].stride[2], .element = 4};
        if (p < k_panels)
            cpu_pack_panel(r->level, &keys, head(&r->d->in[1], r->k, n, h), to, p);
        else
            cpu_pack_panel(r->level, &values, head(&r->d->in[2], r->v, n, h), to + s->k_bytes, p - k_panels);
    }
}

/* c (rows x n) = or += a (rows x k) times panels of a packed matrix of depth `depth`, from row k0 on. Columns are computed up to the width
 * of the last panel: there is memory for them in c, and what is stored there means nothing. */
static void times_panels(const struct run *r, int64_t rows, int64_t n, int64_t k, const float *a, int64_t lda, const char *packed,
                         int64_t depth, int64_t k0, float *c, int64_t ldc, bool accumulate)
{
    int64_t nr = r->level->nr;
    for (int64_t col = 0; col < n; col += nr) {
        int64_t width = n - col <= nr / 2 ? nr / 2 : nr;
        const char *panel = packed + (col * depth + k0 * width) * 4;
        r->level->gemm_tile((int)rows, (int)width, k, a, lda, panel, TERN_F32, width < nr, c + col, ldc, accumulate, NULL);
    }
}

/* A summand of scores as one of exponents of two. What is finite stays so: a row whose keys all have the least float sees them alike. */
static float as_exponent(float x)
{
    const float y = x * (float)LOG2_E;
    return isinf(y) && !isinf(x) ? copysignf(FLT_MAX, x) : y;
}

/* Mask and causality of one row of scores, for keys s0 .. s0+keys. */
static void mask_row(const struct run *r, int64_t n, int64_t h, int64_t l, int64_t s0, int64_t keys, float *x)
{
    const int64_t *t = r->mask_stride;
    if (r->d->attrs.sdpa.is_causal)
        for (int64_t j = l + 1 > s0 ? l + 1 - s0 : 0; j < keys; j++)
            x[j] = -INFINITY;
    if (!r->mask)
        return;
    int64_t base = n * t[0] + h * t[1] + l * t[2] + s0 * t[3];
    if (r->d->in[3].dtype == TERN_BOOL) {
        for (int64_t j = 0; j < keys; j++)
            if (!r->mask[base + j * t[3]])
                x[j] = -INFINITY;
    } else {
        for (int64_t j = 0; j < keys; j++)
            x[j] += as_exponent(((const float *)(const void *)r->mask)[base + j * t[3]]);
    }
}

struct block { /* scratch of a thread */
    float *q, *scores, *o, *max, *sum;
};

/* Folds a block of keys into the running result of `rows` queries. */
static void meet_keys(const struct run *r, const struct block *b, int64_t nh, int64_t l0, int64_t rows, int64_t s0, int64_t keys)
{
    const struct shape *s = &r->s;
    const char *k = r->packed + nh * (s->k_bytes + s->v_bytes), *v = k + s->k_bytes;
    int64_t lds = KEYS + PAD;
    times_panels(r, rows, keys, s->e, b->q, s->ldq, k + s0 * s->e * 4, s->e, 0, b->scores, lds, false);
    for (int64_t i = 0; i < rows; i++) {
        float *x = b->scores + i * lds;
        if (r->mask || r->d->attrs.sdpa.is_causal)
            mask_row(r, nh / s->h, nh % s->h, l0 + i, s0, keys, x);
        float m = r->level->max(keys, x);
        if (m == -INFINITY && b->max[i] == -INFINITY) { /* nothing visible so far, or what is no number, which the maximum passes over */
            for (int64_t j = 0; j < keys; j++)
                b->sum[i] = isnan(x[j]) ? x[j] : b->sum[i];
            memset(x, 0, (size_t)keys * sizeof(float));
            continue;
        }
        if (m > b->max[i] + GROWTH) {
            float shrink = exp2f(b->max[i] - m);
            b->sum[i] *= shrink;
            b->max[i] = m;
            r->level->unary[TERN_CPU_MUL_SCALAR](s->ev, b->o + i * s->ldo, b->o + i * s->ldo, shrink);
        }
        b->sum[i] += r->level->power_sum(keys, x, b->max[i]);
    }
    times_panels(r, rows, s->ev, keys, b->scores, lds, v, s->s, s0, b->o, s->ldo, true);
}

/* One block of queries of one head. */
static void query_task(void *arg, int slot, int64_t task)
{
    const struct run *r = arg;
    const struct shape *s = &r->s;
    int64_t blocks = ceil_div(s->l, s->rows), nh = task / blocks, l0 = task % blocks * s->rows, rows = min64(s->rows, s->l - l0);
    struct block b;
    b.q = (float *)(void *)(r->scratch + (size_t)slot * s->slot);
    b.o = b.q + s->rows * s->ldq;
    b.scores = b.o + s->rows * s->ldo;
    b.max = b.scores + s->rows * (KEYS + PAD);
    b.sum = b.max + s->rows;
    const struct tern_meta *qm = &r->d->in[0], *om = &r->d->out;
    const float *q = head(qm, r->q, nh / s->h, nh % s->h) + l0 * qm->stride[2];
    for (int64_t i = 0; i < rows; i++) {
        r->level->unary[TERN_CPU_MUL_SCALAR](s->e, q + i * qm->stride[2], b.q + i * s->ldq, r->scale);
        b.max[i] = -INFINITY;
        b.sum[i] = 0;
    }
    memset(b.o, 0, (size_t)(rows * s->ldo) * sizeof(float));
    int64_t end = r->d->attrs.sdpa.is_causal ? min64(s->s, l0 + rows) : s->s;
    for (int64_t s0 = 0; s0 < end; s0 += KEYS)
        meet_keys(r, &b, nh, l0, rows, s0, min64(KEYS, s->s - s0));
    float *out = r->out + nh / s->h * om->stride[0] + nh % s->h * om->stride[1] + l0 * om->stride[2];
    for (int64_t i = 0; i < rows; i++) /* a row that sees no key is zero, as in PyTorch */
        r->level->unary[TERN_CPU_MUL_SCALAR](s->ev, b.o + i * s->ldo, out + i * om->stride[2], b.sum[i] > 0 ? 1 / b.sum[i] : b.sum[i]);
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    struct run r = {.d = d, .level = cpu_level(a->ctx), .s = shape_of(cpu_level(a->ctx), d)};
    const struct shape *s = &r.s;
    r.q = tern_arg_host(&a->in[0]);
    r.k = tern_arg_host(&a->in[1]);
    r.v = tern_arg_host(&a->in[2]);
    r.out = tern_arg_host(&a->out);
    r.scale = (float)((d->attrs.sdpa.scale != 0 ? d->attrs.sdpa.scale : 1 / sqrt((double)s->e)) * LOG2_E);
    if (d->present[3]) {
        struct tern_meta scores = tern_meta_make(TERN_F32, 4, (const int64_t[]){s->n, s->h, s->l, s->s});
        tern_broadcast_strides(&d->in[3], &scores, r.mask_stride);
        r.mask = tern_arg_host(&a->in[3]);
    }
    r.packed = tern_arg_host(&a->workspace);
    r.scratch = r.packed + s->n * s->h * (s->k_bytes + s->v_bytes);
    int64_t panels = cpu_panel_count(r.level, s->s) + cpu_panel_count(r.level, s->ev);
    tern_parallel(a->ctx, s->n * s->h * panels, 4, pack_task, &r);
    tern_parallel_slots(a->ctx, s->n * s->h * ceil_div(s->l, s->rows), query_task, &r);
    return TERN_OK;
}

const struct tern_kernel cpu_sdpa_f32_flash = {
    .name = "sdpa_f32_flash", .op = TERN_OP_sdpa, .revision = 1, .supports = supports, .workspace = workspace, .run = run};

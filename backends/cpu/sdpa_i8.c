/* Attention that may compute in int8, on tensors of bf16: keys and values are quantised and packed once for each head, some heads at a
 * time, then a task takes some groups of queries of one head through level->attention_i8. With few keys, and masks, the kernels of floats
 * serve. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "backends/cpu/heads.h"
#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/post.h"
#include "backends/cpu/slots.h"
#include "core/threads.h"
#include "ops/quantize.h"

#define GROUP TERN_ATTENTION_ROWS
#define BLOCK TERN_ATTENTION_I8_KEYS
#define LEAST_KEYS 256        /* of fewer, each counts too much for bytes */
#define MOST_KEYS (1 << 16)   /* sums of 32 bits hold as many powers times values */
#define SOON 16               /* rows that are fetched before their turn */
#define MOST_PACKED (2 << 20) /* bytes of keys and values that a chunk of heads aims at */

struct shape {
    int64_t n, h, l, s, e, ev;
    int64_t depth, columns, keys; /* e, ev, s: filled up */
    int64_t ldq, ldo;
    int64_t rows;                           /* queries of a task */
    int64_t heads;                          /* of all n * h that are packed at a time */
    size_t head;                            /* bytes of a packed one */
    size_t o_bytes, q_bytes, f_bytes, slot; /* scratch of a thread */
};

static size_t head_bytes(const struct shape *s)
{
    return (size_t)(s->keys * (s->depth + s->columns + 4) + round_up(s->keys / BLOCK * 4, 64) + 2 * s->columns * 4);
}

static struct shape shape_of(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct tern_cpu_attention_i8 *level = &cpu_level(ctx)->attention_i8;
    const int64_t *q = d->in[0].shape, *v = d->in[2].shape, threads = tern_thread_count(ctx);
    struct shape s = {.n = q[0], .h = q[1], .l = q[2], .e = q[3], .s = v[2], .ev = v[3]};
    s.depth = round_up(s.e, level->e_step);
    s.columns = round_up(s.ev + level->ones, 16);
    s.keys = round_up(s.s, BLOCK);
    s.ldq = odd_lines(s.depth, 64);
    s.ldo = odd_lines(s.columns + (level->ones ? 0 : 16), 16);
    s.rows = min64(level->rows, round_up(s.l, GROUP));
    while (s.rows > GROUP && s.n * s.h * ceil_div(s.l, s.rows) < 4 * threads) /* some tasks for each thread */
        s.rows -= GROUP;
    s.rows = max64(s.rows, GROUP);
    s.head = head_bytes(&s);
    s.heads = round_up(max64(MOST_PACKED / (int64_t)s.head, ceil_div(4 * threads, max64(ceil_div(s.l, s.rows), 1))), threads);
    s.heads = min64(s.heads, s.n * s.h);
    s.o_bytes = (size_t)(s.rows * s.ldo) * sizeof(int32_t);
    s.q_bytes = (size_t)(s.rows * s.ldq);
    s.f_bytes = (size_t)round_up(s.rows * 4, 64);
    s.slot = cpu_slot(s.o_bytes + s.q_bytes + 3 * s.f_bytes + level->scratch);
    return s;
}

static bool fits(const struct tern_meta *m, const struct tern_meta *q)
{
    return cpu_heads_fit(m, q, TERN_BF16) && m->shape[3] > 0 && m->shape[3] <= TERN_ATTENTION_I8_WIDTH;
}

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    const struct tern_meta *q = &d->in[0];
    return ((const struct cpu_device *)device)->level->attention_i8.scratch && d->attrs.sdpa.int8 && !d->attrs.sdpa.is_causal &&
           !d->present[3] && fits(q, q) && fits(&d->in[1], q) && fits(&d->in[2], q) && fits(&d->out, q) &&
           d->in[1].shape[2] >= LEAST_KEYS && d->in[1].shape[2] <= MOST_KEYS;
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct shape s = shape_of(ctx, d);
    return !tern_meta_numel(&d->out) ? 0 : (size_t)s.heads * s.head + cpu_slots(s.slot, tern_thread_count(ctx)) + 64;
}

struct run {
    const struct tern_op_desc *d;
    const struct tern_cpu_level *level;
    bool halves;
    struct shape s;
    const uint16_t *q, *k, *v;
    uint16_t *out;
    char *packed, *scratch;
    int64_t head0; /* of this chunk */
};

/* The i-th head of the chunk. */
static struct tern_cpu_head_i8 head_of(const struct run *r, int64_t i)
{
    const struct shape *s = &r->s;
    struct tern_cpu_head_i8 h = {.keys = s->s, .e = s->e, .values = s->ev, .depth = s->depth, .columns = s->columns};
    char *at = r->packed + (size_t)i * s->head;
    h.k = (int8_t *)at;
    h.v = h.k + s->keys * s->depth;
    h.offset = (int32_t *)(void *)(h.v + s->keys * s->columns);
    h.k_scale = (float *)(void *)(h.offset + s->keys);
    h.v_scale = h.k_scale + round_up(s->keys / BLOCK, 16);
    h.v_mean = h.v_scale + s->columns;
    return h;
}

/* Keys of a head, or values. */
static void pack_task(void *arg, int64_t begin, int64_t end)
{
    const struct run *r = arg;
    for (int64_t i = begin; i < end; i++) {
        const struct tern_cpu_head_i8 h = head_of(r, i / 2);
        const struct tern_meta *m = &r->d->in[1 + i % 2];
        const int64_t nh = r->head0 + i / 2, at = cpu_head_at(m, nh / r->s.h, nh % r->s.h);
        if (i % 2)
            r->level->attention_i8.pack_values(&h, r->v + at, m->stride[2]);
        else
            r->level->attention_i8.pack_keys(&h, r->k + at, m->stride[2]);
    }
}

/* Rows of queries as bytes; what they lack is zero. */
static void quantize_rows(const struct run *r, const uint16_t *q, int64_t rows, uint8_t *to, float *factor)
{
    const struct tern_cpu_i8 *i8 = &r->level->i8;
    const int64_t e = r->s.e;
    const float scale = (float)fmax(fmin(r->d->attrs.sdpa.scale * M_LOG2E, FLT_MAX), -FLT_MAX);
    memset(to, i8->zero, r->s.q_bytes);
    memset(factor, 0, r->s.f_bytes);
    const int64_t step = r->d->in[0].stride[2];
    for (int64_t i = 0; i < rows; i++, q += step) {
        tern_cpu_fetch(q + min64(SOON, rows - 1 - i) * step, e * 2);
        const struct tern_quantize_factors f = tern_quantize_factors_of(i8->most(TERN_BF16, e, q));
        i8->quantize(TERN_BF16, e, q, f.in, to + i * r->s.ldq);
        factor[i] = f.out * scale;
    }
}

static void query_task(void *arg, int slot, int64_t i)
{
    static const int32_t no_offset[TERN_ATTENTION_I8_WIDTH];
    const struct run *r = arg;
    const struct shape *s = &r->s;
    const struct tern_meta *qm = &r->d->in[0], *om = &r->d->out;
    const int64_t tasks = ceil_div(s->l, s->rows), nh = r->head0 + i / tasks, n = nh / s->h, h = nh % s->h, l0 = i % tasks * s->rows;
    const struct tern_cpu_head_i8 head = head_of(r, i / tasks);
    char *o = r->scratch + (size_t)slot * s->slot, *q = o + s->o_bytes, *f = q + s->q_bytes;
    const struct tern_cpu_attend_i8 a = {.head = &head,
                                         .rows = min64(s->rows, s->l - l0),
                                         .q = (uint8_t *)q,
                                         .ldq = s->ldq,
                                         .halves = r->halves,
                                         .row = (float *)(void *)f,
                                         .o = (int32_t *)(void *)o,
                                         .ldo = s->ldo,
                                         .most = (float *)(void *)(f + s->f_bytes),
                                         .sum = (float *)(void *)(f + 2 * s->f_bytes),
                                         .scratch = f + 3 * s->f_bytes};
    quantize_rows(r, r->q + cpu_head_at(qm, n, h) + l0 * qm->stride[2], a.rows, (uint8_t *)q, (float *)(void *)f);
    memset(o, 0, s->o_bytes);
    r->level->attention_i8.attend(&a);
    uint16_t *out = r->out + cpu_head_at(om, n, h) + l0 * om->stride[2];
    for (int64_t j = 0; j < a.rows; j++) {
        tern_cpu_fetch_to_write(out + j * om->stride[2], s->ev * 2);
        a.sum[j] = 1 / a.sum[j];
    }
    const struct tern_i8_values values = {.offset = no_offset, .scale = head.v_scale, .factor = a.sum, .bias = head.v_mean};
    r->level->i8.scale(TERN_BF16, a.rows, s->ev, a.o, s->ldo, &values, out, om->stride[2]);
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    struct run r = {.d = a->desc, .level = cpu_level(a->ctx), .halves = cpu_device_of(a->ctx)->halves, .s = shape_of(a->ctx, a->desc)};
    const struct shape *s = &r.s;
    if (!tern_meta_numel(&a->desc->out)) /* expanded keys may be of any number of heads */
        return TERN_OK;
    r.q = tern_arg_host(&a->in[0]);
    r.k = tern_arg_host(&a->in[1]);
    r.v = tern_arg_host(&a->in[2]);
    r.out = tern_arg_host(&a->out);
    r.packed = tern_arg_host(&a->workspace);
    r.packed += (64 - (uintptr_t)r.packed % 64) % 64;
    r.scratch = r.packed + (size_t)s->heads * s->head;
    for (; r.head0 < s->n * s->h; r.head0 += s->heads) {
        const int64_t heads = min64(s->heads, s->n * s->h - r.head0);
        tern_parallel(a->ctx, 2 * heads, 1, pack_task, &r);
        tern_parallel_slots(a->ctx, heads * ceil_div(s->l, s->rows), query_task, &r);
    }
    return TERN_OK;
}

const struct tern_kernel tern_cpu_sdpa_i8_flash = {
    .name = "sdpa_i8_flash", .revision = 5, .op = TERN_OP_sdpa, .supports = supports, .in_place = true, .workspace = workspace, .run = run};

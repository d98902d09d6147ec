/* Attention in bf16 without the L x S matrix [Milakov 2018; Dao 2022]: keys and values are packed once for each head, some heads at a
 * time, then a task takes some groups of queries of one head through level->attention. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "backends/cpu/heads.h"
#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "core/threads.h"

#define GROUP TERN_ATTENTION_ROWS
#define BLOCK TERN_ATTENTION_KEYS
#define MOST_PACKED (4 << 20) /* bytes of keys and values that a chunk of heads aims at */

struct shape {
    int64_t n, h, l, s, e, ev;
    int64_t depth, columns, keys; /* e, ev or one more, s: filled up */
    int64_t ldq, ldo;
    int64_t rows;                  /* queries of a task */
    int64_t k_values, v_values;    /* packed, of one head */
    int64_t heads;                 /* of all n * h that are packed at a time */
    size_t o_bytes, q_bytes, slot; /* scratch of a thread */
};

static struct shape shape_of(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct cpu_device *device = cpu_device_of(ctx);
    const int64_t *q = d->in[0].shape, *v = d->in[2].shape;
    struct shape s = {.n = q[0], .h = q[1], .l = q[2], .e = q[3], .s = v[2], .ev = v[3]};
    s.depth = round_up(s.e, device->level->bf16.dot.step);
    s.columns = round_up(s.ev + device->level->attention.ones, 16);
    s.keys = round_up(s.s, 32);
    s.ldq = odd_lines(s.depth, 32);
    s.ldo = odd_lines(s.columns + !device->level->attention.ones * 16, 16);
    s.k_values = round_up(s.keys * s.depth, 32);
    s.v_values = s.keys * s.columns;
    /* Queries and results of a task: a quarter of L2. Some tasks for each thread. */
    int64_t most = min64(device->level->attention.rows, (int64_t)device->l2 / 4 / (s.ldq * 2 + s.ldo * 4)) / GROUP * GROUP;
    s.rows = min64(most, round_up(s.l, GROUP));
    while (s.rows > GROUP && s.n * s.h * ceil_div(s.l, s.rows) < 4 * tern_thread_count(ctx))
        s.rows -= GROUP;
    if (s.rows < GROUP)
        s.rows = GROUP;
    /* Some tasks for each thread here, too. */
    s.heads =
        max64(MOST_PACKED / 2 / max64(s.k_values + s.v_values, 1), ceil_div(4 * tern_thread_count(ctx), max64(ceil_div(s.l, s.rows), 1)));
    s.heads = min64(s.heads, s.n * s.h);
    s.o_bytes = (size_t)(s.rows * s.ldo) * sizeof(float);
    s.q_bytes = (size_t)(s.rows * s.ldq) * sizeof(uint16_t);
    s.slot = s.o_bytes + s.q_bytes + (size_t)s.rows * 2 * sizeof(float) + (size_t)round_up((int64_t)device->level->attention.scratch, 64);
    return s;
}

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    const struct tern_meta *q = &d->in[0];
    if (!((const struct cpu_device *)device)->level->attention.scratch)
        return false;
    if (!cpu_heads_fit(q, q, TERN_BF16) || !cpu_heads_fit(&d->in[1], q, TERN_BF16) || !cpu_heads_fit(&d->in[2], q, TERN_BF16) ||
        !cpu_heads_fit(&d->out, q, TERN_BF16) || q->shape[3] == 0 || d->in[1].shape[2] == 0)
        return false;
    return !d->present[3] || d->in[3].dtype == TERN_BF16 || d->in[3].dtype == TERN_BOOL;
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct shape s = shape_of(ctx, d);
    return (size_t)(s.heads * (s.k_values + s.v_values)) * sizeof(uint16_t) + s.slot * (size_t)tern_thread_count(ctx) + 64;
}

struct run {
    const struct tern_op_desc *d;
    const struct tern_cpu_level *level;
    struct shape s;
    const uint16_t *q, *k, *v;
    uint16_t *out;
    const char *mask;
    int64_t mask_stride[TERN_MAX_DIMS]; /* under (n, h, l, s) */
    float scale;
    uint16_t *packed;
    char *scratch;
    int64_t head0; /* of this chunk */
};

/* A block of keys of one head, and their values. */
static void pack_task(void *arg, int64_t begin, int64_t end)
{
    const struct run *r = arg;
    const struct shape *s = &r->s;
    const struct tern_meta *km = &r->d->in[1], *vm = &r->d->in[2];
    const int64_t blocks = ceil_div(s->s, BLOCK);
    for (int64_t i = begin; i < end; i++) {
        int64_t nh = r->head0 + i / blocks, first = i % blocks * BLOCK, last = min64(first + BLOCK, s->s);
        uint16_t *to = r->packed + i / blocks * (s->k_values + s->v_values);
        const uint16_t *k = r->k + cpu_head_at(km, nh / s->h, nh % s->h), *v = r->v + cpu_head_at(vm, nh / s->h, nh % s->h);
        for (int64_t j = first; j < last; j += TERN_DOT_NR)
            r->level->attention.pack_keys(min64(TERN_DOT_NR, last - j), s->e, k + j * km->stride[2], km->stride[2], s->depth,
                                          to + j * s->depth);
        r->level->attention.pack_values(first, last - first, s->ev, v + first * vm->stride[2], vm->stride[2], s->keys, to + s->k_values);
    }
}

struct task {
    const struct run *r;
    int64_t mask; /* offset of its first row */
};

/* Scores become scale * score + mask, or -infinity. */
static void apply_mask(const void *arg, int64_t row, int64_t key, int64_t keys, float *x)
{
    const struct task *t = arg;
    const struct run *r = t->r;
    const int64_t at = t->mask + row * r->mask_stride[2] + key * r->mask_stride[3], step = r->mask_stride[3];
    if (r->d->in[3].dtype == TERN_BOOL) {
        for (int64_t j = 0; j < keys; j++)
            if (!r->mask[at + j * step])
                x[j] = -INFINITY;
        return;
    }
    const uint16_t *mask = (const uint16_t *)(const void *)r->mask + at;
    for (int64_t j = 0; j < keys; j++) {
        uint32_t bits = (uint32_t)mask[j * step] << 16;
        float bias;
        memcpy(&bias, &bits, sizeof(bias));
        x[j] = x[j] * r->scale + bias;
    }
}

/* Rows of queries side by side; what they lack is zero. A scale below zero goes to their signs. */
static void gather(const struct run *r, const uint16_t *q, int64_t rows, uint16_t *to)
{
    const struct shape *s = &r->s;
    for (int64_t i = 0; i < round_up(rows, GROUP); i++, to += s->ldq) {
        memset(to, 0, (size_t)s->ldq * sizeof(*to));
        if (i < rows)
            memcpy(to, q + i * r->d->in[0].stride[2], (size_t)s->e * sizeof(*to));
        for (int64_t j = 0; r->d->attrs.sdpa.scale < 0 && j < s->e; j++)
            to[j] ^= 0x8000;
    }
}

static void query_task(void *arg, int slot, int64_t i)
{
    const struct run *r = arg;
    const struct shape *s = &r->s;
    const struct tern_meta *om = &r->d->out;
    int64_t tasks = ceil_div(s->l, s->rows), nh = r->head0 + i / tasks, n = nh / s->h, h = nh % s->h, l0 = i % tasks * s->rows;
    struct task t = {.r = r, .mask = n * r->mask_stride[0] + h * r->mask_stride[1] + l0 * r->mask_stride[2]};
    char *o = r->scratch + (size_t)slot * s->slot, *q = o + s->o_bytes, *most = q + s->q_bytes;
    struct tern_cpu_attend a = {.rows = min64(s->rows, s->l - l0),
                                .keys = s->s,
                                .depth = s->depth,
                                .values = s->ev,
                                .columns = s->columns,
                                .ldq = s->ldq,
                                .ldo = s->ldo,
                                .causal = r->d->attrs.sdpa.is_causal,
                                .first = l0};
    const bool biased = r->mask && r->d->in[3].dtype != TERN_BOOL;
    a.q = (uint16_t *)(void *)q;
    a.o = (float *)(void *)o;
    a.most = (float *)(void *)most;
    a.sum = a.most + s->rows;
    a.scratch = a.sum + s->rows;
    a.k = r->packed + i / tasks * (s->k_values + s->v_values);
    a.v = a.k + s->k_values;
    a.factor = fminf(fmaxf((float)M_LOG2E * (biased ? 1 : r->scale), FLT_MIN), FLT_MAX);
    a.mask = r->mask ? apply_mask : NULL;
    a.mask_arg = &t;
    gather(r, r->q + cpu_head_at(&r->d->in[0], n, h) + l0 * r->d->in[0].stride[2], a.rows, (uint16_t *)(void *)q);
    memset(o, 0, s->o_bytes);
    r->level->attention.attend(&a);
    uint16_t *out = r->out + cpu_head_at(om, n, h) + l0 * om->stride[2];
    for (int64_t j = 0; j < a.rows; j++) { /* a row that sees no key is zero, as in PyTorch */
        float *x = a.o + j * s->ldo, sum = a.sum[j];
        r->level->unary[TERN_CPU_MUL_SCALAR](s->ev, x, x, sum > 0 ? 1 / sum : sum);
        r->level->bf16.round(s->ev, x, out + j * om->stride[2]);
    }
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    struct run r = {.d = d, .level = cpu_level(a->ctx), .s = shape_of(a->ctx, d)};
    const struct shape *s = &r.s;
    r.q = tern_arg_host(&a->in[0]);
    r.k = tern_arg_host(&a->in[1]);
    r.v = tern_arg_host(&a->in[2]);
    r.out = tern_arg_host(&a->out);
    r.scale = (float)fabs(d->attrs.sdpa.scale);
    if (d->present[3]) {
        struct tern_meta scores = tern_meta_make(TERN_F32, 4, (const int64_t[]){s->n, s->h, s->l, s->s});
        tern_broadcast_strides(&d->in[3], &scores, r.mask_stride);
        r.mask = tern_arg_host(&a->in[3]);
    }
    char *memory = tern_arg_host(&a->workspace);
    memory += (64 - (uintptr_t)memory % 64) % 64;
    r.packed = (uint16_t *)(void *)memory;
    r.scratch = memory + (size_t)(s->heads * (s->k_values + s->v_values)) * sizeof(uint16_t);
    for (; r.head0 < s->n * s->h; r.head0 += s->heads) {
        const int64_t heads = min64(s->heads, s->n * s->h - r.head0);
        tern_parallel(a->ctx, heads * ceil_div(s->s, BLOCK), 1, pack_task, &r);
        tern_parallel_slots(a->ctx, heads * ceil_div(s->l, s->rows), query_task, &r);
    }
    return TERN_OK;
}

const struct tern_kernel cpu_sdpa_bf16_flash = {
    .name = "sdpa_bf16_flash", .op = TERN_OP_sdpa, .supports = supports, .workspace = workspace, .run = run};

/* Attention in f32 and in bf16 without the L x S matrix [Milakov 2018; Dao 2022]: keys and values are packed once for each head, some heads
 * at a time, then a task takes some groups of queries of one head through the level's attention. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "backends/cpu/heads.h"
#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/post.h"
#include "backends/cpu/slots.h"
#include "core/threads.h"

#define MOST_PACKED (1 << 20)           /* keys and values that a chunk of heads aims at */
#define SOON 16                         /* rows that are fetched before their turn: they lie too far apart to be seen coming */
#define MOST_OF_HEAD ((int64_t)1 << 47) /* of one head: more than memory has */

struct shape {
    int64_t n, h, l, s, e, ev;
    int64_t depth, columns, keys; /* e, ev or one more, s: filled up */
    int64_t ldq, ldo;
    int64_t rows;                                 /* queries of a task */
    size_t element, k_bytes, v_bytes;             /* packed, of one head */
    int64_t regions, region, heads;               /* one for each thread, or one; heads of each, in all and packed at a time */
    size_t o_bytes, q_bytes, most_bytes, scratch; /* of a thread */
    size_t slot;                                  /* all of them */
};

static const struct tern_cpu_attention *attention_of(const struct tern_cpu_level *level, enum tern_dtype dtype)
{
    return dtype == TERN_F32 ? &level->attention_f32 : &level->attention_bf16;
}

/* What does not depend on threads and caches, and is no product. */
static struct shape sizes_of(const struct tern_cpu_attention *at, const struct tern_op_desc *d)
{
    const int64_t *q = d->in[0].shape, *v = d->in[2].shape;
    struct shape s = {.n = q[0], .h = q[1], .l = q[2], .e = q[3], .s = v[2], .ev = v[3]};
    s.element = tern_dtype_size(d->out.dtype);
    s.depth = round_up(s.e, at->e_step);
    s.columns = round_up(s.ev + at->ones, at->column_step);
    s.keys = round_up(s.s, at->key_step);
    return s;
}

static struct shape shape_of(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct cpu_device *device = cpu_device_of(ctx);
    const struct tern_cpu_attention *at = attention_of(device->level, d->out.dtype);
    const int64_t group = at->group, tasks = 4 * tern_thread_count(ctx);
    struct shape s = sizes_of(at, d);
    s.ldq = odd_lines(s.depth, 64 / (int64_t)s.element);
    s.ldo = odd_lines(s.columns + at->sums, 16);
    s.k_bytes = s.element * (size_t)(round_up(s.s, 32) * s.depth);
    s.v_bytes = s.element * (size_t)(round_up(s.keys, 32) * s.columns);
    /* Queries and results of a task: a quarter of L2. Some tasks for each thread. */
    int64_t most = min64(at->rows, (int64_t)device->l2 / 4 / (s.ldq * (int64_t)s.element + s.ldo * 4)) / group * group;
    s.rows = min64(most, round_up(s.l, group));
    while (s.rows > group && s.n * s.h * ceil_div(s.l, s.rows) < tasks)
        s.rows -= group;
    if (s.rows < group)
        s.rows = group;
    /* Some tasks for each thread here, too. */
    const int64_t packed = (int64_t)((s.k_bytes + s.v_bytes) / s.element);
    const int64_t heads = max64(MOST_PACKED / max64(packed, 1), ceil_div(tasks, max64(ceil_div(s.l, s.rows), 1)));
    s.regions = heads < tern_thread_count(ctx) || s.n * s.h % tern_thread_count(ctx) ? 1 : tern_thread_count(ctx);
    s.region = s.n * s.h / s.regions;
    s.heads = min64(heads / s.regions, s.region);
    s.o_bytes = (size_t)(s.rows * s.ldo) * sizeof(float);
    s.q_bytes = (size_t)(s.rows * s.ldq) * s.element;
    s.most_bytes = (size_t)round_up(s.rows * 2 * (int64_t)sizeof(float), 64);
    s.scratch = (size_t)round_up((int64_t)at->scratch, 64);
    s.slot = cpu_slot(s.o_bytes + s.q_bytes + s.most_bytes + s.scratch);
    return s;
}

/* An expanded key lies in memory once, so there may be more of them than packed ones can be counted. */
static bool can_be_packed(const struct shape *s)
{
    int64_t values;
    return !__builtin_mul_overflow(round_up(s->keys, 32), s->depth + s->columns, &values) && values <= MOST_OF_HEAD;
}

static bool supports(struct tern_device *device, const struct tern_op_desc *d, enum tern_dtype dtype)
{
    const struct tern_meta *q = &d->in[0];
    const struct tern_cpu_attention *at = attention_of(((const struct cpu_device *)device)->level, dtype);
    if (!at->scratch)
        return false;
    if (!cpu_heads_fit(q, q, dtype) || !cpu_heads_fit(&d->in[1], q, dtype) || !cpu_heads_fit(&d->in[2], q, dtype) ||
        !cpu_heads_fit(&d->out, q, dtype) || q->shape[3] == 0 || d->in[1].shape[2] == 0)
        return false;
    const struct shape s = sizes_of(at, d);
    if (!can_be_packed(&s))
        return false;
    return !d->present[3] || d->in[3].dtype == dtype || d->in[3].dtype == TERN_BOOL;
}

static bool supports_f32(struct tern_device *device, const struct tern_op_desc *d) { return supports(device, d, TERN_F32); }
static bool supports_bf16(struct tern_device *device, const struct tern_op_desc *d) { return supports(device, d, TERN_BF16); }

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct shape s = shape_of(ctx, d);
    return !tern_meta_numel(&d->out)
               ? 0
               : (size_t)(s.regions * s.heads) * (s.k_bytes + s.v_bytes) + cpu_slots(s.slot, tern_thread_count(ctx)) + 64;
}

struct run {
    const struct tern_op_desc *d;
    const struct tern_cpu_level *level;
    const struct tern_cpu_attention *at;
    bool halves;
    struct shape s;
    const char *q, *k, *v, *mask;
    char *out;
    int64_t mask_stride[TERN_MAX_DIMS]; /* under (n, h, l, s) */
    float factor;                       /* of scores to exponents of two, without its sign */
    char *packed, *scratch;
    int64_t first, heads; /* of a chunk: heads first .. first + heads of each region */
};

/* Head i of a chunk. A thread has its own region, in all loops: it reads what it packed, and of few pictures its own. */
static int64_t head_of(const struct run *r, int64_t i) { return i / r->heads * r->s.region + r->first + i % r->heads; }

/* Row `row` of a head. */
static size_t row_at(const struct run *r, const struct tern_meta *m, int64_t nh, int64_t row)
{
    return r->s.element * (size_t)(cpu_head_at(m, nh / r->s.h, nh % r->s.h) + row * m->stride[2]);
}

/* A block of keys of one head, and their values. */
static void pack_task(void *arg, int64_t begin, int64_t end)
{
    const struct run *r = arg;
    const struct shape *s = &r->s;
    const struct tern_meta *km = &r->d->in[1], *vm = &r->d->in[2];
    const int64_t block = r->at->block, blocks = ceil_div(s->s, block);
    for (int64_t i = begin; i < end; i++) {
        const int64_t nh = head_of(r, i / blocks), first = i % blocks * block, keys = min64(block, s->s - first);
        char *to = r->packed + (size_t)(i / blocks) * (s->k_bytes + s->v_bytes);
        r->at->pack_keys(keys, s->e, r->k + row_at(r, km, nh, first), km->stride[2], s->depth,
                         to + (size_t)(first * s->depth) * s->element);
        r->at->pack_values(first, keys, s->ev, r->v + row_at(r, vm, nh, first), vm->stride[2], s->keys, to + s->k_bytes);
    }
}

struct task {
    const struct run *r;
    int64_t mask; /* offset of its first row */
};

/* A summand of scores as one of exponents of two. What is finite stays so: a row whose keys all have the least float sees them alike. */
static float as_exponent(float x)
{
    const float y = x * (float)M_LOG2E;
    return isinf(y) && !isinf(x) ? copysignf(FLT_MAX, x) : y;
}

/* Scores become -infinity where the mask says no, or exponents with the mask on top. */
static void apply_mask(const void *arg, int64_t row, int64_t key, int64_t keys, float *x)
{
    const struct task *t = arg;
    const struct run *r = t->r;
    const int64_t at = t->mask + row * r->mask_stride[2] + key * r->mask_stride[3], step = r->mask_stride[3];
    const float factor = r->at->scaled ? 1 : r->factor;
    if (r->d->in[3].dtype == TERN_BOOL) {
        for (int64_t j = 0; j < keys; j++)
            if (!r->mask[at + j * step])
                x[j] = -INFINITY;
        return;
    }
    for (int64_t j = 0; j < keys; j++) {
        float bias;
        if (r->d->in[3].dtype == TERN_F32) {
            bias = ((const float *)(const void *)r->mask)[at + j * step];
        } else {
            uint32_t bits = (uint32_t)((const uint16_t *)(const void *)r->mask)[at + j * step] << 16;
            memcpy(&bias, &bits, sizeof(bias));
        }
        x[j] = x[j] * factor + as_exponent(bias);
    }
}

/* A row of queries, with the factor of scores where the level wants it, else with its sign; filled up with zeros. */
static void gather(const struct run *r, const char *q, char *to)
{
    const struct shape *s = &r->s;
    const size_t size = (size_t)s->e * s->element;
    const bool negative = r->d->attrs.sdpa.scale < 0;
    if (r->at->scaled)
        r->level->unary[TERN_CPU_MUL_SCALAR](s->e, (const float *)(const void *)q, (float *)(void *)to, negative ? -r->factor : r->factor);
    else
        memcpy(to, q, size);
    for (size_t sign = s->element - 1; negative && !r->at->scaled && sign < size; sign += s->element)
        to[sign] = (char)(to[sign] ^ 0x80); /* in the last byte of a value */
    if (s->depth > s->e)
        memset(to + size, 0, (size_t)(s->depth - s->e) * s->element);
}

/* Rows of queries; rows up to a whole group are zero. */
static void gather_rows(const struct run *r, const char *q, int64_t rows, char *to)
{
    const struct shape *s = &r->s;
    const int64_t step = (int64_t)s->element * r->d->in[0].stride[2], ld = (int64_t)s->element * s->ldq;
    for (int64_t j = 0; j < rows; j++) {
        tern_cpu_fetch(q + min64(j + SOON, rows - 1) * step, s->e * (int64_t)s->element);
        gather(r, q + j * step, to + j * ld);
    }
    memset(to + rows * ld, 0, (size_t)((round_up(rows, r->at->group) - rows) * ld));
}

/* Sums of values over sums of powers; a row that sees no key is zero, as in PyTorch. */
static void write_rows(const struct run *r, const struct tern_cpu_attend *a, char *out)
{
    const int64_t step = (int64_t)r->s.element * r->d->out.stride[2];
    for (int64_t j = 0; j < a->rows; j++, out += step) {
        tern_cpu_fetch_to_write(out + min64(SOON, a->rows - 1 - j) * step, a->values * (int64_t)r->s.element);
        float *x = a->o + j * a->ldo, sum = a->sum[j];
        if (sum == 0) /* powers of zero times values that are infinite are no numbers */
            memset(x, 0, (size_t)a->values * sizeof(float));
        r->at->write(a->values, x, sum > 0 ? 1 / sum : sum, out);
    }
}

/* Queries that meet few keys, in whole groups and without anything to fill up or to change, are not worth a copy. */
static bool reads_in_place(const struct run *r, int64_t rows)
{
    const struct shape *s = &r->s;
    return s->s <= 2 * r->at->block && s->depth == s->e && rows % r->at->group == 0 && !r->at->scaled && r->d->attrs.sdpa.scale >= 0;
}

static void query_task(void *arg, int slot, int64_t i)
{
    const struct run *r = arg;
    const struct shape *s = &r->s;
    int64_t tasks = ceil_div(s->l, s->rows), nh = head_of(r, i / tasks), l0 = i % tasks * s->rows;
    struct task t = {.r = r, .mask = nh / s->h * r->mask_stride[0] + nh % s->h * r->mask_stride[1] + l0 * r->mask_stride[2]};
    char *o = r->scratch + (size_t)slot * s->slot, *q = o + s->o_bytes, *most = q + s->q_bytes;
    const bool biased = r->mask && r->d->in[3].dtype != TERN_BOOL;
    struct tern_cpu_attend a = {.rows = min64(s->rows, s->l - l0),
                                .keys = s->s,
                                .depth = s->depth,
                                .values = s->ev,
                                .columns = s->columns,
                                .q = q,
                                .ldq = s->ldq,
                                .k = r->packed + (size_t)(i / tasks) * (s->k_bytes + s->v_bytes),
                                .halves = r->halves,
                                .causal = r->d->attrs.sdpa.is_causal,
                                .first = l0,
                                .mask = r->mask ? apply_mask : NULL,
                                .mask_arg = &t,
                                .o = (float *)(void *)o,
                                .ldo = s->ldo,
                                .most = (float *)(void *)most,
                                .scratch = most + s->most_bytes};
    a.v = (const char *)a.k + s->k_bytes;
    a.sum = a.most + s->rows;
    a.factor = biased || r->at->scaled ? 1 : fminf(fmaxf(r->factor, FLT_MIN), FLT_MAX);
    const char *rows = r->q + row_at(r, &r->d->in[0], nh, l0);
    if (reads_in_place(r, a.rows)) {
        a.q = rows;
        a.ldq = r->d->in[0].stride[2];
    } else {
        gather_rows(r, rows, a.rows, q);
    }
    memset(o, 0, (size_t)(round_up(a.rows, r->at->group) * s->ldo) * sizeof(float));
    r->at->attend(&a);
    write_rows(r, &a, r->out + row_at(r, &r->d->out, nh, l0));
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    struct run r = {.d = d,
                    .level = cpu_level(a->ctx),
                    .at = attention_of(cpu_level(a->ctx), d->out.dtype),
                    .halves = cpu_device_of(a->ctx)->halves,
                    .s = shape_of(a->ctx, d)};
    const struct shape *s = &r.s;
    if (!tern_meta_numel(&d->out)) /* expanded queries may be any number */
        return TERN_OK;
    r.q = tern_arg_host(&a->in[0]);
    r.k = tern_arg_host(&a->in[1]);
    r.v = tern_arg_host(&a->in[2]);
    r.out = tern_arg_host(&a->out);
    r.factor = (float)fmin(fabs(d->attrs.sdpa.scale) * M_LOG2E, FLT_MAX); /* of infinity times zero there is no number */
    if (d->present[3]) {
        struct tern_meta scores = tern_meta_make(TERN_F32, 4, (const int64_t[]){s->n, s->h, s->l, s->s});
        tern_broadcast_strides(&d->in[3], &scores, r.mask_stride);
        r.mask = tern_arg_host(&a->in[3]);
    }
    r.packed = tern_arg_host(&a->workspace);
    r.packed += (64 - (uintptr_t)r.packed % 64) % 64;
    r.scratch = r.packed + (size_t)(s->regions * s->heads) * (s->k_bytes + s->v_bytes);
    for (; r.first < s->region; r.first += s->heads) {
        r.heads = min64(s->heads, s->region - r.first);
        tern_parallel(a->ctx, s->regions * r.heads * ceil_div(s->s, r.at->block), 1, pack_task, &r);
        tern_parallel_slots(a->ctx, s->regions * r.heads * ceil_div(s->l, s->rows), query_task, &r);
    }
    return TERN_OK;
}

const struct tern_kernel tern_cpu_sdpa_f32_flash = {.name = "sdpa_f32_flash",
                                                    .op = TERN_OP_sdpa,
                                                    .revision = 4,
                                                    .supports = supports_f32,
                                                    .in_place = true,
                                                    .workspace = workspace,
                                                    .run = run};
const struct tern_kernel tern_cpu_sdpa_bf16_flash = {.name = "sdpa_bf16_flash",
                                                     .op = TERN_OP_sdpa,
                                                     .revision = 9,
                                                     .supports = supports_bf16,
                                                     .in_place = true,
                                                     .workspace = workspace,
                                                     .run = run};

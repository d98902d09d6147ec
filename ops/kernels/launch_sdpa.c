/* Launches of attention. */
#include <string.h>

#include "ops/kernels/launch_internal.h"

enum { QUERY, KEY, VALUE, MASK, MAX_HEAD = 512, MAX_MATRIX_HEAD = 160, MATRIX_QUERIES = 64, WIDE_ITEMS = 256 };

/* The texts: sdpa.cl, sdpa_matrix.cl, sdpa_matrix_wide.cl. */
enum way { PLAIN, MATRIX, WIDE };

/* How a group of items cuts attention: x items along keys and columns of values, y along queries; four of each an item. */
struct cut {
    int x, y, widest; /* the largest head of values */
    int ec, kc;       /* elements and keys that go through shared memory at once */
};
static const struct cut cuts[] = {{8, 16, 80, 0, 0}, {16, 8, 160, 0, 0}, {32, 4, MAX_HEAD, 0, 0}, {8, 8, 80, 0, 0}, {16, 4, MAX_HEAD, 0, 0}};

/* The part of the heads' elements that leaves least over. */
static int part_of(int64_t e, int most)
{
    int best = 4;
    for (int ec = 8; ec <= most; ec += 4)
        if ((e + ec - 1) / ec * ec <= (e + best - 1) / best * best)
            best = ec;
    return best;
}

/* Bytes of shared memory, as the text asks for. */
static size_t shared_of(const struct cut *c, int64_t ev)
{
    size_t queries = (size_t)c->y, keys = (size_t)c->x, cols = (size_t)(ev + c->x - 1) / (size_t)c->x;
    size_t vectors = (size_t)c->ec * (queries + keys + 1) + keys * 4 * (queries + 1) + keys * queries;
    return vectors * 16 + (size_t)c->kc * cols * (size_t)c->x * sizeof(float);
}

static bool choose(const struct tern_launch_maker *m, int64_t e, int64_t ev, struct cut *out)
{
    for (size_t i = 0; i < sizeof(cuts) / sizeof(*cuts); i++)
        for (int most = 20, kc = 8; cuts[i].x * cuts[i].y <= m->limits->max_group && cuts[i].widest >= ev && kc >= 1; kc /= 2, most = 8) {
            *out = cuts[i];
            out->ec = part_of(e, most);
            out->kc = kc;
            if (shared_of(out, ev) <= m->limits->shared_bytes)
                return true;
        }
    return false;
}

static bool by_four(const int64_t *stride, int n)
{
    for (int i = 0; i < n; i++)
        if (stride[i] % 4)
            return false;
    return stride[n] == 1;
}

/* Shared memory of sdpa_matrix.cl, as it counts it. */
static size_t matrix_shared(int64_t e, int64_t ev, int items)
{
    size_t pitch_e = (size_t)(e + 15) / 16 * 16 + 8, pitch_v = (size_t)(ev + 15) / 16 * 16 + 8;
    size_t all = 32 * (pitch_e + pitch_v) + 64 * 40 + 2 * 64 * 36, queries = 64 * pitch_e;
    return 2 * (all > queries ? all : queries) + (64 + (size_t)items + 1) * 4;
}

/* By eight: elements of a head behind each other, rows and heads at multiples of 8 elements. */
static bool by_eight(const struct tern_meta *m)
{
    int last = m->ndim - 1;
    bool good = m->shape[last] % 8 == 0 && m->stride[last] == 1;
    for (int i = 0; i < last && good; i++)
        good = m->shape[i] == 1 || m->stride[i] % 8 == 0;
    return good;
}

/* Shared memory of sdpa_matrix_wide.cl with blocks of so many keys, as it counts it. */
static size_t wide_shared(int64_t ev, int keys, int subgroups)
{
    size_t matrices = (size_t)((ev + 15) / 16 + subgroups - 1) / (size_t)subgroups; /* of a subgroup, along the columns */
    size_t parts = 2 * (64 + (size_t)keys) * 40, scores = 2 * 64 * (size_t)(keys + 4), powers = 64 * (size_t)(keys + 8);
    size_t values = 2 * 16 * (16 * (size_t)(matrices % 2 ? 1 : 2) * (size_t)subgroups + 8), sums = 2 * 16 * 20 * (size_t)subgroups;
    size_t behind = powers + (values > sums ? values : sums), before = parts > scores ? parts : scores;
    return 2 * (before > behind ? before : behind) + (WIDE_ITEMS + 64 + 1) * 4;
}

/* Keys of a block of sdpa_matrix_wide.cl: the more of them, the seldomer are queries loaded; 0: it does not fit. Less than a block of
 * queries are few for it. An item keeps 128 sums of heads of 512 in registers, so subgroups of 16, four of which are 64 items, are too
 * small. */
static int wide_keys(const struct tern_launch_maker *m, int64_t ev)
{
    const struct tern_op_desc *d = m->d;
    const struct tern_launch_limits *l = m->limits;
    const struct tern_meta *q = &d->in[QUERY];
    int size = l->matrix_subgroup;
    if (d->present[MASK] || d->attrs.sdpa.is_causal || q->shape[q->ndim - 2] < MATRIX_QUERIES || (size != 32 && size != 64) ||
        l->max_group < WIDE_ITEMS)
        return 0;
    for (int keys = 128; keys >= 64; keys /= 2)
        if (wide_shared(ev, keys, WIDE_ITEMS / size) <= l->shared_bytes)
            return keys;
    return 0;
}

/* keys: of a block of WIDE. */
static enum way choose_way(const struct tern_launch_maker *m, int *keys)
{
    const struct tern_op_desc *d = m->d;
    const struct tern_launch_limits *l = m->limits;
    const struct tern_meta *q = &d->in[QUERY], *v = &d->in[VALUE];
    int64_t e = q->shape[q->ndim - 1], ev = v->shape[v->ndim - 1];
    int size = l->matrix_subgroup;
    if (!tern_matrix_has(m, q->dtype, d->in[KEY].dtype) || v->dtype != q->dtype || !l->vectors || !by_eight(q) || !by_eight(&d->in[KEY]) ||
        !by_eight(v) || e > MAX_HEAD || ev > MAX_HEAD)
        return PLAIN;
    if (e > MAX_MATRIX_HEAD || ev > MAX_MATRIX_HEAD) {
        *keys = wide_keys(m, ev);
        return *keys ? WIDE : PLAIN;
    }
    return (size == 16 || size == 32 || size == 64) && 4 * size <= l->max_group && matrix_shared(e, ev, 4 * size) <= l->shared_bytes
               ? MATRIX
               : PLAIN;
}

static struct tern_launch *begin(struct tern_launch_maker *m, enum way way, const struct cut *cut)
{
    const size_t size = sizeof(struct tern_params_sdpa);
    return way == WIDE     ? tern_launch_begin(m, "sdpa_matrix_wide", size, WIDE_ITEMS, 1)
           : way == MATRIX ? tern_launch_begin(m, "sdpa_matrix", size, 4 * m->limits->matrix_subgroup, 1)
                           : tern_launch_begin(m, "sdpa", size, cut->x, cut->y);
}

bool tern_launch_sdpa(struct tern_launch_maker *m)
{
    const struct tern_op_desc *d = m->d;
    const struct tern_meta *q = &d->in[QUERY], *k = &d->in[KEY], *v = &d->in[VALUE], *y = &d->out;
    int64_t stride[5][TERN_MAX_DIMS] = {{0}}, mask[TERN_MAX_DIMS] = {0}, batch = 1;
    struct tern_loop loop;
    struct cut cut = {.y = MATRIX_QUERIES / 4}; /* of a launch with matrix units */
    int keys = 0;
    if (d->op != TERN_OP_sdpa)
        return false;
    if (!tern_meta_numel(y))
        return true;
    int last = q->ndim - 1;
    int64_t e = q->shape[last], ev = v->shape[last];
    if (d->present[MASK]) {
        struct tern_meta scores = *q;
        scores.shape[last] = k->shape[last - 1];
        tern_broadcast_strides(&d->in[MASK], &scores, mask);
    }
    memcpy(stride[0], q->stride, sizeof(stride[0]));
    memcpy(stride[1], k->stride, sizeof(stride[1]));
    memcpy(stride[2], v->stride, sizeof(stride[2]));
    memcpy(stride[3], mask, sizeof(stride[3]));
    memcpy(stride[4], y->stride, sizeof(stride[4]));
    for (int i = 0; i < last - 1; i++)
        batch *= q->shape[i];
    const enum way way = choose_way(m, &keys);
    const bool matrix = way != PLAIN;
    if (e < 1 || batch > m->limits->max_groups || !(matrix || choose(m, e, ev, &cut)) ||
        !tern_loop_make(last - 1, q->shape, 5, (const int64_t(*)[TERN_MAX_DIMS])stride, false, &loop)) {
        m->failed = true;
        return true;
    }
    struct tern_launch *l = begin(m, way, &cut);
    struct tern_params_sdpa *p = &l->params.sdpa;
    *p = (struct tern_params_sdpa){.l = (int32_t)q->shape[last - 1],
                                   .s = (int32_t)k->shape[last - 1],
                                   .q_l = (int32_t)q->stride[last - 1],
                                   .q_e = (int32_t)q->stride[last],
                                   .key_s = (int32_t)k->stride[last - 1],
                                   .key_e = (int32_t)k->stride[last],
                                   .v_s = (int32_t)v->stride[last - 1],
                                   .v_e = (int32_t)v->stride[last],
                                   .mask_l = (int32_t)mask[last - 1],
                                   .mask_s = (int32_t)mask[last],
                                   .y_l = (int32_t)y->stride[last - 1],
                                   .y_e = (int32_t)y->stride[last],
                                   .scale = (float)d->attrs.sdpa.scale};
    memcpy(p->batch_shape, loop.shape, sizeof(p->batch_shape));
    memcpy(p->q_batch, loop.stride[0], sizeof(p->q_batch));
    memcpy(p->key_batch, loop.stride[1], sizeof(p->key_batch));
    memcpy(p->v_batch, loop.stride[2], sizeof(p->v_batch));
    memcpy(p->mask_batch, loop.stride[3], sizeof(p->mask_batch));
    memcpy(p->y_batch, loop.stride[4], sizeof(p->y_batch));
    bool wide = m->limits->vectors && e % 4 == 0 && by_four(q->stride, last) && by_four(k->stride, last);
    void (*read)(struct tern_launch_maker *, const char *, int) = matrix ? tern_launch_read8 : wide ? tern_launch_read4 : tern_launch_read;
    read(m, "query", QUERY);
    read(m, "key", KEY);
    matrix ? tern_launch_read8(m, "value", VALUE) : tern_launch_read(m, "value", VALUE);
    if (d->present[MASK]) {
        tern_launch_read(m, "mask", MASK);
        tern_launch_define(m, "MASK 1");
        if (d->in[MASK].dtype == TERN_BOOL)
            tern_launch_define(m, "MASK_BOOL 1");
    }
    bool wide_y = matrix && y->dtype == q->dtype && by_eight(y);
    wide_y ? tern_launch_read8(m, "y", TERN_SLOT_OUT) : tern_launch_write(m, "y", TERN_SLOT_OUT);
    if (way == MATRIX && m->limits->subgroup == m->limits->matrix_subgroup)
        tern_launch_subgroups(m);
    tern_launch_define(m, "E %d", (int)e);
    tern_launch_define(m, "EV %d", (int)ev);
    if (matrix) {
        tern_matrix_define(m, q->dtype);
        if (way == WIDE)
            tern_launch_define(m, "BK %d", keys);
        if (wide_y)
            tern_launch_define(m, "WIDE_Y 1");
    } else {
        tern_launch_define(m, "EC %d", cut.ec);
        tern_launch_define(m, "KC %d", cut.kc);
        if (wide)
            tern_launch_define(m, "WIDE 1");
    }
    tern_launch_define(m, "BATCH_NDIM %d", loop.ndim);
    if (d->attrs.sdpa.is_causal)
        tern_launch_define(m, "CAUSAL 1");
    l->groups[0] = tern_ceil_div(q->shape[last - 1], cut.y * 4);
    l->groups[1] = (int)batch;
    l->separable = true;
    m->failed = m->failed || l->groups[0] > m->limits->max_groups;
    tern_launch_posts(m, last);
    return true;
}

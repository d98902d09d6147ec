/* Launches of matmul, linear and linear_geglu. */
#include <string.h>

#include "ops/kernels/launch_internal.h"

int64_t tern_launch_most_rows(const struct tern_launch_limits *limits)
{
    return (int64_t)limits->max_groups * (limits->max_group < 256 ? 32 : 64);
}

/* The large tile wastes more of a few columns, but half as many groups go down: a picture of 2048 x 2048 has 65536 times 64 pixels, and
 * devices may count to 65535. */
struct tern_tile tern_tile_choose(const struct tern_launch_maker *m, int64_t rows, int64_t cols)
{
    if (m->limits->max_group < 256)
        return (rows >= 64 && cols >= 64) || tern_ceil_div(rows, 32) > m->limits->max_groups
                   ? (struct tern_tile){.tm = 64, .tn = 64, .tk = 16, .rm = 8, .rn = 8}
                   : (struct tern_tile){.tm = 32, .tn = 32, .tk = 16, .rm = 4, .rn = 4};
    if (rows <= 16)
        return (struct tern_tile){.tm = 16, .tn = 64, .tk = 16, .rm = 4, .rn = 4};
    if ((rows >= 512 && cols >= 128) || tern_ceil_div(rows, 64) > m->limits->max_groups)
        return (struct tern_tile){.tm = 128, .tn = 128, .tk = m->limits->shared_bytes < 20480 ? 8 : 16, .rm = 8, .rn = 8};
    return (struct tern_tile){.tm = 64, .tn = 64, .tk = 16, .rm = 4, .rn = 4};
}

void tern_tile_define(struct tern_launch_maker *m, const struct tern_tile *t, int64_t rows, int64_t cols, int64_t batch)
{
    tern_launch_define(m, "TM %d", t->tm);
    tern_launch_define(m, "TN %d", t->tn);
    tern_launch_define(m, "TK %d", t->tk);
    tern_launch_define(m, "RM %d", t->rm);
    tern_launch_define(m, "RN %d", t->rn);
    m->l->groups[0] = tern_ceil_div(cols, t->tn);
    m->l->groups[1] = tern_ceil_div(rows, t->tm);
    m->l->groups[2] = (int)batch;
    m->l->separable = true;
    for (int i = 0; i < 3; i++)
        m->failed = m->failed || m->l->groups[i] > m->limits->max_groups;
}

/* a (…, m, k) and b (…, k, n) with the strides of the leading dimensions and of m under each other's shape. */
struct product {
    int ndim;                                               /* leading dimensions, then m */
    int64_t shape[TERN_MAX_DIMS], stride[3][TERN_MAX_DIMS]; /* of a, b, y; b's along m is 0 */
    int64_t n, k, a_k, b_k, b_n, y_n;
};

/* Columns of the weight for one of the result: two where a value has a gate. */
static int columns_of_result(const struct tern_op_desc *d) { return d->op == TERN_OP_linear_geglu ? 2 : 1; }

static struct product product_of_linear(const struct tern_op_desc *d)
{
    const struct tern_meta *x = &d->in[0], *w = &d->in[1];
    int last = x->ndim - 1;
    struct product p = {.ndim = last,
                        .n = w->shape[0] / columns_of_result(d),
                        .k = w->shape[1],
                        .a_k = x->stride[last],
                        .b_k = w->stride[1],
                        .b_n = w->stride[0],
                        .y_n = d->out.stride[last]};
    for (int i = 0; i < last; i++) {
        p.shape[i] = x->shape[i];
        p.stride[0][i] = x->stride[i];
        p.stride[2][i] = d->out.stride[i];
    }
    return p;
}

/* Vectors are matrices of one row (x) or one column (other). */
static struct product product_of_matmul(const struct tern_op_desc *d)
{
    struct tern_meta a = d->in[0], b = d->in[1], batch = d->out;
    bool row = a.ndim == 1, column = b.ndim == 1;
    struct product p = {.n = column ? 1 : b.shape[b.ndim - 1],
                        .k = a.shape[a.ndim - 1],
                        .a_k = a.stride[a.ndim - 1],
                        .b_k = b.stride[column ? 0 : b.ndim - 2],
                        .b_n = column ? 0 : b.stride[b.ndim - 1],
                        .y_n = column ? 0 : d->out.stride[d->out.ndim - 1]};
    int64_t m = row ? 1 : a.shape[a.ndim - 2], a_m = row ? 0 : a.stride[a.ndim - 2];
    batch.ndim -= !row + !column;
    int64_t y_m = row ? 0 : d->out.stride[batch.ndim];
    a.ndim = row ? 0 : a.ndim - 2;
    b.ndim = column ? 0 : b.ndim - 2;
    tern_broadcast_strides(&a, &batch, p.stride[0]);
    tern_broadcast_strides(&b, &batch, p.stride[1]);
    memcpy(p.shape, batch.shape, sizeof(p.shape));
    memcpy(p.stride[2], batch.stride, sizeof(p.stride[2]));
    p.ndim = batch.ndim;
    if (p.ndim < TERN_MAX_DIMS) {
        p.shape[p.ndim] = m;
        p.stride[0][p.ndim] = a_m;
        p.stride[1][p.ndim] = 0;
        p.stride[2][p.ndim++] = y_m;
    }
    return p;
}

static bool multiples(const int32_t *stride, int n, int of)
{
    for (int i = 0; i < n; i++)
        if (stride[i] % of)
            return false;
    return true;
}

/* Which operands can be loaded (or stored) by so many neighbours. */
struct wide {
    bool a, b, y, along_n; /* b's neighbours are along n */
};

static struct wide wide_of(const struct tern_launch_maker *m, const struct tern_params_matmul *q, int n_batch, int by)
{
    struct wide w = {.along_n = q->b_n == 1 && q->b_k != 1};
    if (!m->limits->vectors)
        return w;
    w.a = q->a_k == 1 && q->k % by == 0 && q->a_m % by == 0 && multiples(q->a_batch, n_batch, by);
    w.b = multiples(q->b_batch, n_batch, by) &&
          (w.along_n ? q->n % by == 0 && q->b_k % by == 0 : q->b_k == 1 && q->k % by == 0 && q->b_n % by == 0);
    w.y = q->y_n == 1 && q->n % by == 0 && q->y_m % by == 0 && multiples(q->y_batch, n_batch, by);
    return w;
}

static void define(struct tern_launch_maker *m, const struct wide *w, int n_batch)
{
    tern_launch_define(m, "BATCH_NDIM %d", n_batch);
    if (columns_of_result(m->d) == 2)
        tern_launch_define(m, "GATED 1");
    if (w->a)
        tern_launch_define(m, "WIDE_A 1");
    if (w->b)
        tern_launch_define(m, "WIDE_B 1");
    if (w->along_n)
        tern_launch_define(m, "B_ALONG_N 1");
}

/* The output's dimension along n: none where b is a vector, whose output ends with m. */
static int channel_of(const struct tern_op_desc *d) { return d->op == TERN_OP_matmul && d->in[1].ndim == 1 ? -1 : d->out.ndim - 1; }

/* bias and output, in that order of slots, and what happens to results */
static void finish(struct tern_launch_maker *m, bool bias, bool wide_y)
{
    if (bias) {
        tern_launch_read(m, "bias", 2);
        tern_launch_define(m, "BIAS 1");
    }
    wide_y ? tern_launch_read8(m, "y", TERN_SLOT_OUT) : tern_launch_write(m, "y", TERN_SLOT_OUT);
    if (wide_y)
        tern_launch_define(m, "WIDE_Y 1");
    tern_launch_posts(m, channel_of(m->d));
}

static void begin_plain(struct tern_launch_maker *m, const struct tern_params_matmul *q, int n_batch, int64_t batch, bool bias)
{
    const int64_t columns = (int64_t)q->n * columns_of_result(m->d);
    struct tern_tile tile = tern_tile_choose(m, q->m, columns);
    struct wide w = wide_of(m, q, n_batch, 4);
    w.b = w.b && !(w.along_n && columns > q->n);
    tern_launch_begin(m, "matmul", sizeof(*q), tile.tn / tile.rn, tile.tm / tile.rm)->params.matmul = *q;
    w.a ? tern_launch_read4(m, "a", 0) : tern_launch_read(m, "a", 0);
    w.b ? tern_launch_read4(m, "b", 1) : tern_launch_read(m, "b", 1);
    tern_tile_define(m, &tile, q->m, columns, batch);
    define(m, &w, n_batch);
    finish(m, bias, false);
}

static void begin_matrix(struct tern_launch_maker *m, const struct tern_params_matmul *q, int n_batch, int64_t batch, bool bias,
                         const struct tern_matrix_tile *tile)
{
    struct wide w = wide_of(m, q, n_batch, 8);
    w.y = w.y && m->d->out.dtype == m->d->in[0].dtype;
    const int64_t columns = (int64_t)q->n * columns_of_result(m->d);
    int parts = batch == 1 && columns == q->n ? tern_matrix_parts(m, tile, q->m, q->n, q->k) : 1; /* parts of a gate have no gelu */
    struct tern_params_matmul *p = &tern_matrix_begin(m, "matmul_matrix", sizeof(*q), tile, q->m, columns, batch * parts)->params.matmul;
    *p = *q;
    w.a ? tern_launch_read8(m, "a", 0) : tern_launch_read(m, "a", 0);
    w.b ? tern_launch_read8(m, "b", 1) : tern_launch_read(m, "b", 1);
    if (parts == 1) {
        define(m, &w, n_batch);
        finish(m, bias, w.y);
        return;
    }
    /* the parts are a batch of products of the same factors */
    p->batch_shape[0] = parts;
    p->a_batch[0] = p->b_batch[0] = 0;
    p->y_batch[0] = q->m * q->n;
    p->y_m = q->n;
    p->y_n = 1;
    define(m, &w, 1);
    tern_matrix_sum_parts(m, parts, q->m, q->n, q->y_m, q->y_n, channel_of(m->d));
}

bool tern_launch_matmul(struct tern_launch_maker *m)
{
    const struct tern_op_desc *d = m->d;
    bool linear = d->op == TERN_OP_linear || d->op == TERN_OP_linear_geglu, bias = linear && d->present[2];
    struct tern_loop loop;
    if (!linear && d->op != TERN_OP_matmul)
        return false;
    struct product p = linear ? product_of_linear(d) : product_of_matmul(d);
    if (!tern_meta_numel(&d->out))
        return true;
    if (!tern_loop_make(p.ndim, p.shape, 3, (const int64_t(*)[TERN_MAX_DIMS])p.stride, false, &loop)) {
        m->failed = true;
        return true;
    }
    /* the last dimension is m unless b changes along it: then there is only one row */
    int last = loop.ndim - 1, n_batch = loop.stride[1][last] ? loop.ndim : last;
    int64_t rows = n_batch == last ? loop.shape[last] : 1, batch = 1;
    for (int i = 0; i < n_batch; i++)
        batch *= loop.shape[i];
    struct tern_params_matmul q = {.m = (int32_t)rows,
                                   .n = (int32_t)p.n,
                                   .k = (int32_t)p.k,
                                   .a_k = (int32_t)p.a_k,
                                   .b_k = (int32_t)p.b_k,
                                   .b_n = (int32_t)p.b_n,
                                   .y_n = (int32_t)p.y_n,
                                   .bias_n = bias ? (int32_t)d->in[2].stride[0] : 0};
    q.a_m = n_batch == last ? loop.stride[0][last] : 0;
    q.y_m = n_batch == last ? loop.stride[2][last] : 0;
    for (int i = 0; i < n_batch; i++) {
        q.batch_shape[i] = loop.shape[i];
        q.a_batch[i] = loop.stride[0][i];
        q.b_batch[i] = loop.stride[1][i];
        q.y_batch[i] = loop.stride[2][i];
    }
    struct tern_matrix_tile tile;
    if (tern_matrix_choose(m, d->in[0].dtype, d->in[1].dtype, rows, p.n * columns_of_result(d), batch, &tile))
        begin_matrix(m, &q, n_batch, batch, bias, &tile);
    else
        begin_plain(m, &q, n_batch, batch, bias);
    return true;
}

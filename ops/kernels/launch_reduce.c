/* Launches of reductions over some dimensions. */
#include <string.h>

#include "ops/kernels/launch_internal.h"

enum { ITEMS = 256 };

struct parts {
    int n_rows, n_cols;
    int64_t row[TERN_MAX_DIMS], row_stride[2][TERN_MAX_DIMS]; /* of x, then of the output */
    int64_t col[TERN_MAX_DIMS], col_stride[1][TERN_MAX_DIMS];
    int64_t rows;
};

static struct parts part(const struct tern_op_desc *d, const int64_t *dims, int64_t n, bool keepdim)
{
    const struct tern_meta *x = &d->in[0];
    struct parts p = {.rows = 1};
    for (int i = 0; i < x->ndim; i++) {
        if (p.n_cols < n && dims[p.n_cols] == i) {
            p.col_stride[0][p.n_cols] = x->stride[i];
            p.col[p.n_cols++] = x->shape[i];
        } else {
            p.row_stride[0][p.n_rows] = x->stride[i];
            p.row_stride[1][p.n_rows] = d->out.stride[keepdim ? i : p.n_rows];
            p.row[p.n_rows++] = x->shape[i];
            p.rows *= x->shape[i];
        }
    }
    return p;
}

/* Items for one output: enough for its elements, at most a group. */
static int lanes_of(int64_t cols, int items)
{
    int lanes = 1;
    while (lanes < items && lanes < cols / 4)
        lanes *= 2;
    return lanes;
}

void tern_launch_reduction(struct tern_launch_maker *m, const char *how, int input, bool by_four, const struct tern_loop *rows,
                           const struct tern_loop *cols)
{
    int64_t n_rows = 1, n_cols = 1;
    for (int i = 0; i < rows->ndim; i++)
        n_rows *= rows->shape[i];
    for (int i = 0; i < cols->ndim; i++)
        n_cols *= cols->shape[i];
    const bool integer = !tern_dtype_is_float(m->d->in[input].dtype);
    int items = m->limits->max_group < ITEMS ? m->limits->max_group : ITEMS, lanes = lanes_of(n_cols, items);
    struct tern_launch *l = tern_launch_begin(m, "reduce", sizeof(l->params.reduce), items, 1);
    struct tern_params_reduce *q = &l->params.reduce;
    by_four ? tern_launch_read4(m, "x", input) : tern_launch_read(m, "x", input);
    tern_launch_define(m, "REDUCE_%s 1", how);
    if (by_four)
        tern_launch_define(m, "WIDE 1");
    tern_launch_define(m, "LANES %d", lanes);
    tern_launch_define(m, "ROW_NDIM %d", rows->ndim);
    tern_launch_define(m, "COL_NDIM %d", cols->ndim);
    tern_launch_define(m, "VALUE %s", integer ? "int" : "float");
    if (integer)
        tern_launch_define(m, "INTEGER 1");
    tern_launch_subgroups(m);
    q->rows = (int32_t)n_rows;
    q->cols = (int32_t)n_cols;
    memcpy(q->row_shape, rows->shape, sizeof(q->row_shape));
    memcpy(q->x_row, rows->stride[0], sizeof(q->x_row));
    memcpy(q->y_row, rows->stride[1], sizeof(q->y_row));
    memcpy(q->col_shape, cols->shape, sizeof(q->col_shape));
    memcpy(q->x_col, cols->stride[0], sizeof(q->x_col));
    tern_launch_items(m, n_rows, items / lanes);
}

bool tern_launch_reduce(struct tern_launch_maker *m)
{
    const struct tern_op_desc *d = m->d;
    const struct tern_sum_attrs *a = &d->attrs.sum; /* mean's and amax's, too */
    bool integer = !tern_dtype_is_float(d->in[0].dtype), place = d->op == TERN_OP_argmax;
    struct tern_loop rows, cols;
    if (d->op != TERN_OP_sum && d->op != TERN_OP_mean && d->op != TERN_OP_amax && !place)
        return false;
    /* 32 bits are not enough for values and sums of i64; argmax over a scalar has no dimension */
    if (d->n_post || d->in[0].dtype == TERN_I64 || (integer && d->op == TERN_OP_sum) || (place && !d->in[0].ndim)) {
        m->failed = true;
        return true;
    }
    struct parts p = place ? part(d, &d->attrs.argmax.dim, 1, d->attrs.argmax.keepdim) : part(d, a->dim, a->dim_n, a->keepdim);
    if (!p.rows)
        return true;
    if (!tern_loop_make(p.n_rows, p.row, 2, (const int64_t(*)[TERN_MAX_DIMS])p.row_stride, false, &rows) ||
        !tern_loop_make(p.n_cols, p.col, 1, (const int64_t(*)[TERN_MAX_DIMS])p.col_stride, !place, &cols)) {
        m->failed = true;
        return true;
    }
    tern_launch_reduction(m,
                          d->op == TERN_OP_sum    ? "SUM"
                          : d->op == TERN_OP_mean ? "MEAN"
                          : place                 ? "ARGMAX"
                                                  : "AMAX",
                          0, false, &rows, &cols);
    tern_launch_write(m, "y", TERN_SLOT_OUT);
    return true;
}

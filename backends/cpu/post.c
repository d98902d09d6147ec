/* Posts on the CPU: the vector functions of the element-wise kernels, on pieces of rows that are still in cache. */
#include "backends/cpu/post.h"

#define LINE 64 /* bytes */

static const struct {
    enum tern_op op;
    enum tern_cpu_unary which;
} unary_table[] = {{TERN_OP_neg, TERN_CPU_NEG},
                   {TERN_OP_tanh, TERN_CPU_TANH},
                   {TERN_OP_sigmoid, TERN_CPU_SIGMOID},
                   {TERN_OP_relu, TERN_CPU_RELU},
                   {TERN_OP_silu, TERN_CPU_SILU},
                   {TERN_OP_gelu, TERN_CPU_GELU},
                   {TERN_OP_quick_gelu, TERN_CPU_QUICK_GELU},
                   {TERN_OP_add_scalar, TERN_CPU_ADD_SCALAR},
                   {TERN_OP_mul_scalar, TERN_CPU_MUL_SCALAR}};

/* -1: not among them */
static int unary_of(const struct tern_post *p)
{
    for (size_t i = 0; i < sizeof(unary_table) / sizeof(*unary_table); i++)
        if ((int64_t)unary_table[i].op == p->op)
            return p->op == TERN_OP_gelu && p->value != 0 ? TERN_CPU_GELU_TANH : (int)unary_table[i].which;
    return -1;
}

static int binary_of(const struct tern_post *p) { return p->op == TERN_OP_add ? TERN_CPU_ADD : p->op == TERN_OP_mul ? TERN_CPU_MUL : -1; }

struct cpu_rows tern_cpu_rows_contiguous(int ndim, int split)
{
    struct cpu_rows r = {.n_row = split, .n_col = ndim - split};
    for (int i = 0; i < ndim; i++)
        *(i < split ? &r.row[i] : &r.col[i - split]) = i;
    return r;
}

struct cpu_rows tern_cpu_rows_channels_last(void) { return (struct cpu_rows){.n_row = 3, .n_col = 1, .row = {0, 2, 3}, .col = {1}}; }

/* Dimensions, innermost first, that one step covers: strides of unit, unit x size, …; sizes of 1 do not matter. */
static int run_length(const int *dims, int n, const int64_t *shape, const int64_t *stride, int64_t unit)
{
    int i = n;
    while (i > 0 && (shape[dims[i - 1]] == 1 || stride[dims[i - 1]] == unit)) {
        i--;
        unit *= shape[dims[i]];
    }
    return n - i;
}

bool tern_cpu_operand_make(const struct tern_meta *m, const struct tern_meta *out, const struct cpu_rows *rows, struct cpu_operand *o)
{
    struct tern_meta both;
    int64_t stride[TERN_MAX_DIMS];
    if (!tern_dtype_is_float(m->dtype) || !tern_broadcast_shape(m, out, &both) || !tern_meta_same_shape(&both, out))
        return false;
    tern_broadcast_strides(m, out, stride);
    const int64_t *shape = out->shape;
    if (run_length(rows->col, rows->n_col, shape, stride, 0) == rows->n_col)
        o->step = 0;
    else if (run_length(rows->col, rows->n_col, shape, stride, 1) == rows->n_col)
        o->step = 1;
    else
        return false;
    int outer = rows->n_row - run_length(rows->row, rows->n_row, shape, stride, 0);
    o->inner = 1;
    o->ld = 0;
    for (int i = outer; i < rows->n_row; i++)
        o->inner *= shape[rows->row[i]];
    if (outer)
        o->ld = stride[rows->row[outer - 1]];
    return run_length(rows->row, outer, shape, stride, o->ld) == outer;
}

bool tern_cpu_post_fits(const struct tern_op_desc *d, enum tern_dtype dtype, const struct cpu_rows *rows)
{
    struct cpu_operand o;
    for (int i = 0; i < d->n_post; i++) {
        const struct tern_post *p = &d->post[i];
        if (p->op == TERN_OP_cast) /* values are f32 until they are stored */
            continue;
        bool fits = p->input < 0 ? unary_of(p) >= 0 : binary_of(p) >= 0 && tern_cpu_operand_make(&d->in[p->input], &d->out, rows, &o);
        if (!fits)
            return false;
    }
    return d->out.dtype == dtype || d->out.dtype == TERN_F32;
}

struct cpu_post tern_cpu_post_make(const struct tern_kernel_args *a, const struct cpu_rows *rows)
{
    const struct tern_op_desc *d = a->desc;
    const struct tern_cpu_level *l = cpu_level(a->ctx);
    struct cpu_post post = {.level = l};
    for (int i = 0; i < d->n_post; i++) {
        const struct tern_post *p = &d->post[i];
        if (p->op == TERN_OP_cast)
            continue;
        struct cpu_post_step *step = &post.step[post.n++];
        step->scalar = (float)p->value;
        if (p->input < 0) {
            step->unary = cpu_unary_for(l, d->out.dtype, (enum tern_cpu_unary)unary_of(p));
            continue;
        }
        step->binary = l->binary[binary_of(p)];
        step->data = tern_arg_host(&a->in[p->input]);
        step->dtype = d->in[p->input].dtype;
        step->size = (int64_t)tern_dtype_size(step->dtype);
        tern_cpu_operand_make(&d->in[p->input], &d->out, rows, &step->operand);
    }
    return post;
}

void tern_cpu_post_take_sum(struct cpu_post *p)
{
    p->taken = p->n > 0 && !p->step[0].unary && p->step[0].binary == p->level->binary[TERN_CPU_ADD] && p->step[0].operand.step == 1;
}

/* Bytes to where columns from col on of a row lie. */
static int64_t operand_at(const struct cpu_post_step *s, int64_t row, int64_t col)
{
    return (row / s->operand.inner * s->operand.ld + col * s->operand.step) * s->size;
}

const void *tern_cpu_post_taken(const struct cpu_post *p, int64_t row, int64_t col)
{
    return (const char *)p->step[0].data + operand_at(&p->step[0], row, col);
}

/* x and an operand that lies at `at`; f16 and bf16 are widened piece by piece. */
static void apply_binary(const struct cpu_post *p, int i, const float *x, float *y, int64_t at, int64_t n)
{
    int step = p->step[i].operand.step;
    float wide[256];
    if (p->step[i].dtype == TERN_F32) {
        p->step[i].binary(n, x, 1, (const float *)p->step[i].data + at, step, y);
        return;
    }
    const uint16_t *data = (const uint16_t *)p->step[i].data + at;
    for (int64_t j = 0, part; j < n; j += part) {
        part = n - j < 256 ? n - j : 256;
        p->level->to_f32(p->step[i].dtype, step ? part : 1, data + j * step, wide);
        p->step[i].binary(part, x + j, 1, wide, step, y + j);
    }
}

/* Step i: of `rows` rows, which lie behind each other at x and at y. */
static void apply_step(const struct cpu_post *p, int i, const float *x, float *y, int64_t row, int64_t rows, int64_t col, int64_t n)
{
    const struct cpu_operand *o = &p->step[i].operand;
    if (p->step[i].unary) {
        p->step[i].unary(rows * n, x, y, p->step[i].scalar);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        apply_binary(p, i, x + r * n, y + r * n, (row + r) / o->inner * o->ld + col * o->step, n);
}

void tern_cpu_post_apply(const struct cpu_post *p, const float *x, float *y, int64_t row, int64_t col, int64_t n)
{
    for (int i = p->taken; i < p->n; i++, x = y)
        apply_step(p, i, x, y, row, 1, col, n);
}

void tern_cpu_post_store(const struct tern_cpu_level *level, const struct cpu_post *p, enum tern_dtype dtype, int64_t row, int64_t col,
                         int64_t n, float *x, void *y)
{
    if (p && p->taken) {
        const void *more = tern_cpu_post_taken(p, row, col);
        const bool all = p->taken == p->n;
        level->store_rows(all ? dtype : TERN_F32, 1, n, x, 0, &more, p->step[0].dtype, all ? y : x, 0);
        if (all)
            return;
    }
    if (p)
        tern_cpu_post_apply(p, x, x, row, col, n);
    level->from_f32(dtype, n, x, y);
}

void tern_cpu_post_apply_rows(const struct cpu_post *p, float *y, int64_t row, int64_t rows, int64_t col, int64_t n)
{
    for (int i = p->taken; i < p->n; i++)
        apply_step(p, i, y, y, row, rows, col, n);
}

void tern_cpu_fetch(const void *x, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += LINE)
        __builtin_prefetch((const char *)x + i);
}

void tern_cpu_fetch_to_write(const void *y, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += LINE)
        __builtin_prefetch((const char *)y + i, 1);
}

void tern_cpu_post_fetch(const struct cpu_post *p, int64_t row, int64_t col, int64_t n)
{
    for (int i = 0; i < p->n; i++) {
        const struct cpu_post_step *s = &p->step[i];
        if (!s->unary && s->operand.step)
            tern_cpu_fetch((const char *)s->data + operand_at(s, row, col), n * s->size);
    }
}

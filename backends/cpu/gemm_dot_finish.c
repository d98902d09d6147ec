/* From sums of a product to values in C. */
#include "backends/cpu/gemm_dot_finish.h"

#include "backends/cpu/integers.h"

#define ROWS TERN_DOT_ROWS
#define NR TERN_DOT_NR

int64_t tern_cpu_dot_columns(const struct cpu_dot_call *r, int64_t p, int64_t *first)
{
    const int64_t col = p / r->b.turns * NR;
    *first = col + p % r->b.turns * r->g->n;
    return min64(NR, r->g->n - col);
}

/* Where the post that was taken has what is added to rows, from panel p on; its dtype, or TERN_DTYPE_COUNT: none was. */
static enum tern_dtype taken(const struct cpu_dot_call *r, int64_t row, int64_t rows, int64_t p, const void **more)
{
    const struct cpu_post *post = r->g->post;
    if (!post || !post->taken)
        return TERN_DTYPE_COUNT;
    for (int64_t i = 0; i < rows; i++)
        more[i] = tern_cpu_post_taken(post, row + i, p * NR);
    return post->step[0].dtype;
}

/* Factors of rows of sums of int8: where they lie, or in `room`. */
static const float *factors_of(const struct cpu_dot_call *r, const struct cpu_dot_task *t, int64_t row, int64_t rows, float *room)
{
    const struct cpu_dot_scales *s = r->g->scales;
    if (t->factor)
        return t->factor + row - t->row0;
    if (s->rows == 1)
        return s->row + row;
    for (int64_t i = 0; i < rows; i++)
        room[i] = s->row[(row + i) / s->rows];
    return room;
}

/* What makes values of sums of int8 in panels from p on, but for what is added to them. */
static struct tern_i8_values values_of(const struct cpu_dot_task *t, int64_t p, const float *factor)
{
    const int64_t at = (p - t->p0) * NR;
    return (struct tern_i8_values){t->offset + at, t->scale + at, factor, t->bias ? t->bias + at : NULL, NULL, TERN_DTYPE_COUNT};
}

/* Rows of `cols` sums of int8, from panel p on, to values with their bias and the post that was taken. y may be c. */
static void rescale(const struct cpu_dot_call *r, const struct cpu_dot_task *t, int64_t row, int64_t rows, int64_t p, int64_t cols,
                    const float *c, enum tern_dtype dtype, void *y, int64_t ldy)
{
    const void *more[ROWS];
    float room[ROWS];
    struct tern_i8_values v = values_of(t, p, factors_of(r, t, row, rows, room));
    v.more_dtype = taken(r, row, rows, p, more);
    v.more = v.more_dtype == TERN_DTYPE_COUNT ? NULL : more;
    r->level->i8.scale(dtype, rows, cols, (const int32_t *)(const void *)c, r->b.ldc, &v, y, ldy);
}

/* The same of f32, whose bias is there. */
static void store(const struct cpu_dot_call *r, int64_t row, int64_t rows, int64_t p, int64_t cols, const float *c, enum tern_dtype dtype,
                  void *y, int64_t ldy)
{
    const void *more[ROWS];
    const enum tern_dtype of = taken(r, row, rows, p, more);
    r->level->store_rows(dtype, rows, cols, c, r->b.ldc, of == TERN_DTYPE_COUNT ? NULL : more, of, y, ldy);
}

/* As finish_plain, where panels are of values and of gates by turns. */
static void finish_gated(const struct cpu_dot_call *r, const struct cpu_dot_task *t, int64_t row, int64_t rows, int64_t p, int64_t n,
                         const float *c)
{
    const struct cpu_dot_gemm *g = r->g;
    float room[ROWS];
    const float *factor = g->scales ? factors_of(r, t, row, rows, room) : NULL;
    for (int64_t q = 0; q < n; q += 2) {
        int64_t col, cols = tern_cpu_dot_columns(r, p + q, &col);
        const float *x = c + q * NR, *gate = c + (q + 1) * NR;
        char *y = (char *)g->c + (row * g->ldc + col) * r->c_size;
        if (!g->scales) {
            r->level->geglu(g->c_dtype, rows, cols, x, gate, r->b.ldc, y, g->ldc);
            continue;
        }
        const struct tern_i8_values x_values = values_of(t, p + q, factor), gate_values = values_of(t, p + q + 1, factor);
        r->level->i8.geglu(g->c_dtype, rows, cols, (const int32_t *)(const void *)x, (const int32_t *)(const void *)gate, r->b.ldc,
                           &x_values, &gate_values, y, g->ldc);
    }
}

void tern_cpu_dot_fetch(const struct cpu_dot_call *r, int64_t row, int64_t p, int64_t n)
{
    const struct cpu_dot_gemm *g = r->g;
    const int64_t col = p / r->b.turns * NR, cols = min64(n / r->b.turns * NR, g->n - col);
    tern_cpu_fetch_to_write((char *)g->c + (row * g->ldc + col) * r->c_size, cols * r->c_size);
    if (g->post)
        tern_cpu_post_fetch(g->post, row, col, cols);
}

static void finish_plain(const struct cpu_dot_call *r, const struct cpu_dot_task *t, int64_t row, int64_t rows, int64_t p, int64_t n,
                         float *c)
{
    const struct cpu_dot_gemm *g = r->g;
    const int64_t col = p * NR, cols = min64((p + n) * NR, g->n) - col;
    const bool posts = g->post && g->post->taken < g->post->n;
    char *to = (char *)g->c + (row * g->ldc + col) * r->c_size;
    void *y = posts ? (void *)c : to;
    const int64_t ldy = posts ? r->b.ldc : g->ldc;
    const enum tern_dtype dtype = posts ? TERN_F32 : g->c_dtype;
    if (g->scales)
        rescale(r, t, row, rows, p, cols, c, dtype, y, ldy);
    else if (!posts || g->post->taken)
        store(r, row, rows, p, cols, c, dtype, y, ldy);
    if (!posts)
        return;
    for (int64_t i = 0; i < rows; i++)
        tern_cpu_post_apply(g->post, c + i * r->b.ldc, c + i * r->b.ldc, row + i, col, cols);
    r->level->store_rows(g->c_dtype, rows, cols, c, r->b.ldc, NULL, TERN_F32, to, g->ldc);
}

void tern_cpu_dot_finish(const struct cpu_dot_call *r, const struct cpu_dot_task *t, int64_t row, int64_t rows, int64_t p, int64_t n,
                         float *c)
{
    if (r->g->gated)
        finish_gated(r, t, row, rows, p, n, c);
    else
        finish_plain(r, t, row, rows, p, n, c);
}

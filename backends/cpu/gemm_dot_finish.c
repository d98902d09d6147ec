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

/* Rows of `cols` sums of int8, from panel p on, to values with their bias and the post that was taken. y may be c. */
static void rescale(const struct cpu_dot_call *r, const struct cpu_dot_task *t, int64_t row, int64_t rows, int64_t p, int64_t cols,
                    const float *c, enum tern_dtype dtype, void *y, int64_t ldy)
{
    const struct cpu_dot_scales *s = r->g->scales;
    const int64_t at = (p - t->p0) * NR;
    const void *more[ROWS];
    float factor[ROWS];
    struct tern_i8_values v = {t->offset + at, t->scale + at, factor, t->bias ? t->bias + at : NULL};
    for (int64_t i = 0; i < rows; i++)
        factor[i] = t->factor ? t->factor[row + i - t->row0] : s->row[(row + i) / s->rows];
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
                         float *c)
{
    const struct cpu_dot_gemm *g = r->g;
    const struct tern_cpu_level *l = r->level;
    if (g->scales)
        rescale(r, t, row, rows, p, n * NR, c, TERN_F32, c, r->b.ldc);
    for (int64_t q = 0; q < n; q += 2) {
        int64_t col, cols = tern_cpu_dot_columns(r, p + q, &col);
        l->geglu(g->c_dtype, rows, cols, c + q * NR, c + (q + 1) * NR, r->b.ldc, (char *)g->c + (row * g->ldc + col) * r->c_size, g->ldc);
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
    (r->g->gated ? finish_gated : finish_plain)(r, t, row, rows, p, n, c);
}

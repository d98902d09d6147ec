/* The loops around products of bf16: a block of rows of A in L1, the panels of a task in L2. The sums of a product with several parts wait
 * in scratch; what is finished gets bias, posts and its one rounding while it is in L1. */
#include <string.h>

#include "backends/cpu/gemm_dot_finish.h"
#include "backends/cpu/gemm_i8.h"
#include "backends/cpu/integers.h"
#include "backends/cpu/slots.h"
#include "backends/cpu/tasks.h"
#include "backends/cpu/weights.h"
#include "core/threads.h"

#define NR TERN_DOT_NR

size_t tern_cpu_dot_workspace(struct tern_context *ctx, const struct cpu_dot_gemm *g)
{
    size_t slot = tern_cpu_dot_blocks(ctx, g).slot;
    return slot ? cpu_slots(slot, tern_thread_count(ctx)) + 64 : 0;
}

/* The rows of B of a part in a panel that is split, one range behind the other; ranges go to the end of the depth at most. */
static void split_panel(const struct cpu_dot_call *r, int64_t p, int n, const struct tern_dot_piece *ranges, uint16_t *to)
{
    const struct cpu_dot_gemm *g = r->g;
    const int64_t width = g->n - p / r->b.turns * NR <= NR / 2 ? NR / 2 : NR;
    for (int i = 0; i < n; i++, to += ranges[i - 1].depth * width) {
        const char *from = (const char *)g->b + (size_t)(p * NR * g->k + ranges[i].k0 * width) * tern_dtype_size(g->b_dtype);
        g->split->split_panel(g->b_dtype, min64(ranges[i].depth, g->k - ranges[i].k0), width, from, to, NR * r->b.part_rows);
    }
}

/* The same in all panels of a task. */
static void expand(const struct cpu_dot_call *r, const struct cpu_dot_task *t, int part)
{
    const struct cpu_dot_gemm *g = r->g;
    struct tern_dot_piece ranges[TERN_DOT_PIECES] = {{.depth = 0}};
    int n = 1;
    if (g->ranges)
        n = g->ranges(g, part, ranges);
    else
        ranges[0].depth = round_up(tern_cpu_dot_range(g, part, &ranges[0].k0), g->dot->step);
    for (int64_t p = t->p0; p < t->p1; p++) {
        uint16_t *to = t->b + (p - t->p0) * NR * r->b.part_rows * r->b.planes;
        if (g->split) {
            split_panel(r, p, n, ranges, to);
            continue;
        }
        const struct tern_cpu_weights_panel panel = tern_cpu_weights_panel(g->kept, g->b, p);
        for (int i = 0; i < n; i++, to += ranges[i - 1].depth * panel.width)
            r->level->expand_bf16(g->kept->bits, panel.values, panel.scales, panel.width, ranges[i].k0, ranges[i].depth, to);
    }
}

/* One part of the depth of a block of rows with all panels of the task; the last part finishes them. */
static void multiply(const struct cpu_dot_call *r, const struct cpu_dot_task *t, int64_t i, int64_t rows, int part)
{
    const struct cpu_dot_gemm *g = r->g;
    const bool last = part == g->parts - 1;
    struct tern_dot_piece pieces[TERN_DOT_PIECES];
    int n = g->values ? tern_cpu_dot_bytes(g, i, part, t->a, pieces) : g->stage(g, t->row0 + i, rows, part, t->a, pieces);
    const int64_t row = tern_cpu_dot_row(g, t->row0 + i), half = g->apart ? TERN_DOT_HALF : rows;
    const int64_t depth = t->b ? r->b.part_rows * r->b.planes : r->b.depth, ahead = t->b ? 0 : g->part_depth;
    const uint16_t *b = t->b ? t->b : (const uint16_t *)g->b + t->p0 * NR * depth;
    int64_t at = 0;
    for (int k = 0; t->b && k < n; at += pieces[k++].depth)
        pieces[k].k0 = at;
    for (int64_t p = t->p0, group; p < t->p1; p += group) {
        float *c = g->parts > 1 ? t->c + i * r->b.ldc + (p - t->p0) * NR : t->c;
        group = min64(r->b.group, t->p1 - p);
        for (int64_t q = p; q < p + group; q++) {
            /* as they will be finished, some in front of each product: all at once would wait */
            for (int64_t k = rows * (q - p) / group; last && r->fetch && k < rows * (q - p + 1) / group; k++)
                tern_cpu_dot_fetch(r, row + k, p, group);
            const uint16_t *panel = b + (q - t->p0) * NR * depth;
            g->dot->block(&(struct tern_dot_block){.rows = (int)rows,
                                                   .n = n,
                                                   .half_panel = g->n - q / r->b.turns * NR <= NR / 2,
                                                   .accumulate = part > 0,
                                                   .stream = g->stream,
                                                   .pieces = pieces,
                                                   .panel = panel,
                                                   .next = q + 1 < t->p1 ? panel + NR * depth : b + ahead * NR,
                                                   .start = t->bias && !g->scales ? t->bias + (q - t->p0) * NR : NULL,
                                                   .c = c + (q - p) * NR,
                                                   .ldc = r->b.ldc,
                                                   .planes = r->b.planes,
                                                   .a_plane = g->a_plane,
                                                   .b_plane = NR * r->b.part_rows});
        }
        for (int64_t k = 0; last && k < rows; k += half)
            tern_cpu_dot_finish(r, t, row + (k ? g->apart : 0), half, p, group, c + k * r->b.ldc);
    }
}

/* A narrow panel is finished whole: what lies behind its columns is zero. */
static void fill_columns(const struct cpu_dot_call *r, struct cpu_dot_task *t, char *scratch)
{
    const struct cpu_dot_gemm *g = r->g;
    const size_t size = (size_t)(t->p1 - t->p0) * NR * sizeof(float);
    if (g->bias)
        t->bias = memset(scratch, 0, size);
    if (g->scales) {
        t->scale = memset(scratch + r->b.columns, 0, size);
        t->offset = memset(scratch + 2 * r->b.columns, 0, size);
    }
    for (int64_t p = t->p0; (g->bias || g->scales) && p < t->p1; p++) {
        const int64_t at = (p - t->p0) * NR;
        int64_t first, cols = tern_cpu_dot_columns(r, p, &first);
        if (g->bias)
            r->level->to_f32(g->bias_dtype, cols, (const char *)g->bias + (size_t)first * tern_dtype_size(g->bias_dtype), t->bias + at);
        if (g->scales) {
            memcpy(t->scale + at, g->scales->column + first, (size_t)cols * sizeof(float));
            memcpy(t->offset + at, g->scales->offset + first, (size_t)cols * sizeof(int32_t));
        }
    }
}

static void do_task(const struct cpu_dot_call *r, int slot, int64_t task)
{
    const struct cpu_dot_gemm *g = r->g;
    const struct tern_cpu_dot_blocks *b = &r->b;
    const struct cpu_task_place at = cpu_task_place(task, b->row_blocks, b->splits, g->m, g->n * b->turns);
    char *scratch = r->workspace + (size_t)slot * b->slot;
    struct cpu_dot_task t = {.row0 = at.block * b->mc,
                             .p0 = b->panels * at.part / b->splits * b->turns,
                             .p1 = b->panels * (at.part + 1) / b->splits * b->turns};
    t.rows = min64(b->mc, g->m - t.row0);
    t.a = (uint16_t *)(void *)scratch;
    t.c = (float *)(void *)(scratch + b->a_bytes);
    fill_columns(r, &t, scratch + b->a_bytes + b->c_bytes);
    t.b = b->b_bytes ? (uint16_t *)(void *)(scratch + b->a_bytes + b->c_bytes + b->columns * 3) : NULL;
    if (g->values) {
        float *factor = (float *)(void *)(scratch + b->a_bytes - b->factors);
        tern_cpu_i8_quantize_rows(&r->level->i8, g->values, t.row0, t.rows, (uint8_t *)scratch, factor);
        t.factor = g->values->in ? NULL : factor;
    }
    g->dot->begin();
    for (int k = 0; k < g->parts; k++) {
        if (t.b)
            expand(r, &t, k);
        for (int64_t i = 0; i < t.rows; i += g->rows)
            multiply(r, &t, i, min64(g->rows, t.rows - i), k);
    }
    g->dot->end();
}

static void run_task(void *arg, int slot, int64_t i)
{
    const struct cpu_dot_call *r = arg;
    const int64_t tasks = r->b.row_blocks * r->b.splits;
    if (!r->g->batch) {
        do_task(r, slot, i);
        return;
    }
    struct cpu_dot_gemm g = *r->g;
    struct cpu_dot_call one = *r;
    one.g = &g;
    g.product(g.products, i / tasks, &g);
    do_task(&one, slot, i % tasks);
}

void tern_cpu_dot_run(struct tern_context *ctx, const struct cpu_dot_gemm *g, void *workspace)
{
    struct cpu_dot_call r = {g, cpu_level(ctx), tern_cpu_dot_blocks(ctx, g), workspace, (int64_t)tern_dtype_size(g->c_dtype)};
    if (!r.b.slot)
        return;
    r.fetch = !g->dot->past_l1 && max64(g->batch, 1) * g->m * g->n * r.c_size > (int64_t)cpu_device_of(ctx)->l2;
    r.workspace += (64 - (uintptr_t)r.workspace % 64) % 64;
    tern_parallel_slots(ctx, max64(g->batch, 1) * r.b.row_blocks * r.b.splits, run_task, &r);
}

enum tern_status tern_cpu_dot_launch(const struct tern_kernel_args *a, const struct cpu_dot_gemm *like, const struct cpu_rows *rows,
                                     void *workspace)
{
    struct cpu_dot_gemm g = *like;
    struct cpu_post post = tern_cpu_post_make(a, rows);
    tern_cpu_post_take_sum(&post);
    g.post = post.n ? &post : NULL;
    g.b = tern_arg_host(&a->packed);
    g.bias = a->desc->present[g.bias_input] ? tern_arg_host(&a->in[g.bias_input]) : NULL;
    g.bias_dtype = a->desc->in[g.bias_input].dtype;
    g.c = tern_arg_host(&a->out);
    g.c_dtype = a->desc->out.dtype;
    tern_cpu_dot_run(a->ctx, &g, workspace);
    return TERN_OK;
}

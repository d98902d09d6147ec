/* What launches for matrix units share: which tile, its macros. */
#include "ops/kernels/launch_internal.h"

/* Groups that fill a device: 108 units of an A100, 132 of an H100, with two groups or more each. */
enum { ENOUGH = 128, MOST_PARTS = 8, LEAST_STEPS = 32, STEPS_OF_PART = 8 };

static int items(const struct tern_launch_maker *m, const struct tern_matrix_tile *t) { return t->sm * t->sn * m->limits->matrix_subgroup; }
static int rows_of(const struct tern_matrix_tile *t) { return 16 * t->mm * t->sm; }
static int cols_of(const struct tern_matrix_tile *t) { return 16 * t->mn * t->sn; }

/* As the texts count it: two stages with padded rows, b's either way; or strips of results. */
static size_t shared(const struct tern_matrix_tile *t)
{
    size_t deep = (size_t)cols_of(t) * (size_t)(t->tk + 8), wide = (size_t)t->tk * (size_t)(cols_of(t) + 8);
    size_t stages = 2 * ((size_t)rows_of(t) * (size_t)(t->tk + 8) + (deep > wide ? deep : wide)) * 2;
    size_t strips = (size_t)(t->sm * t->sn) * 16 * (size_t)(16 * t->mn + 4) * sizeof(float);
    return stages > strips ? stages : strips;
}

static int64_t groups(const struct tern_matrix_tile *t, int64_t rows, int64_t cols, int64_t batch)
{
    return (int64_t)tern_ceil_div(rows, rows_of(t)) * tern_ceil_div(cols, cols_of(t)) * batch;
}

bool tern_matrix_has(const struct tern_launch_maker *m, enum tern_dtype a, enum tern_dtype b)
{
    const struct tern_launch_limits *l = m->limits;
    if (a != b || l->matrix_subgroup <= 0)
        return false;
    return a == TERN_I8 ? l->matrix_i8 : l->storage16 && (a == TERN_F16 ? l->matrix_f16 : a == TERN_BF16 && l->matrix_bf16);
}

void tern_matrix_define(struct tern_launch_maker *m, enum tern_dtype factors)
{
    m->l->matrix_subgroup = m->limits->matrix_subgroup;
    tern_launch_define(m, "MATRIX 1");
    tern_launch_define(m, "MATRIX_SUBGROUP %d", m->limits->matrix_subgroup);
    if (factors == TERN_BF16)
        tern_launch_define(m, "MATRIX_BF16 1");
    if (factors == TERN_I8)
        tern_launch_define(m, "MATRIX_I8 1");
}

bool tern_matrix_loads_whole(const struct tern_launch_maker *m, const struct tern_matrix_tile *t)
{
    return rows_of(t) * t->tk / 8 % items(m, t) == 0 && cols_of(t) * t->tk / 8 % items(m, t) == 0;
}

static bool fits(const struct tern_launch_maker *m, const struct tern_matrix_tile *t)
{
    return items(m, t) <= m->limits->max_group && shared(t) <= m->limits->shared_bytes;
}

/* Whether columns that are padding cost the large tile more than an eighth: as much more goes through shared memory for the tall one. */
static bool pads(const struct tern_matrix_tile *large, const struct tern_matrix_tile *tall, int64_t cols)
{
    return 8 * groups(large, 1, cols, 1) * cols_of(large) > 9 * groups(tall, 1, cols, 1) * cols_of(tall);
}

bool tern_matrix_choose(const struct tern_launch_maker *m, enum tern_dtype a, enum tern_dtype b, int64_t rows, int64_t cols, int64_t batch,
                        struct tern_matrix_tile *t)
{
    static const struct tern_matrix_tile large = {.tk = 32, .mm = 2, .mn = 4, .sm = 4, .sn = 2}, /* 128 x 128, 40 KiB */
        shallow = {.tk = 16, .mm = 4, .mn = 2, .sm = 2, .sn = 4},                                /* 128 x 128, 24 KiB */
        tall = {.tk = 32, .mm = 2, .mn = 4, .sm = 4, .sn = 1},                                   /* 128 x 64 */
        middle = {.tk = 32, .mm = 2, .mn = 2, .sm = 2, .sn = 2},                                 /* 64 x 64 */
        thin = {.tk = 64, .mm = 1, .mn = 1, .sm = 1, .sn = 4},                                   /* 16 x 64 */
        narrow = {.tk = 64, .mm = 1, .mn = 1, .sm = 4, .sn = 1};                                 /* 64 x 16 */
    const struct tern_launch_limits *l = m->limits;
    if (!tern_matrix_has(m, a, b))
        return false;
    bool fills = rows > 64 && (cols > 64 ? groups(&large, rows, cols, batch) >= ENOUGH : groups(&tall, rows, cols, batch) >= 2 * ENOUGH);
    fills = fills || tern_ceil_div(rows, rows_of(&middle)) > l->max_groups; /* as in tern_tile_choose */
    if (rows <= 16)
        *t = thin;
    else if (cols <= 16 && fits(m, &narrow) && tern_matrix_loads_whole(m, &narrow) &&
             tern_ceil_div(rows, rows_of(&narrow)) <= l->max_groups)
        *t = narrow;
    else if (fills && fits(m, &tall) && pads(&large, &tall, cols))
        *t = tall;
    else if (fills && fits(m, &large))
        *t = large;
    else if (fills && fits(m, &shallow) && tern_matrix_loads_whole(m, &shallow))
        *t = shallow;
    else
        *t = middle;
    t->factors = a;
    return fits(m, t) && tern_ceil_div(rows, rows_of(t)) <= l->max_groups;
}

struct tern_launch *tern_matrix_begin(struct tern_launch_maker *m, const char *text, size_t params_size, const struct tern_matrix_tile *t,
                                      int64_t rows, int64_t cols, int64_t batch)
{
    struct tern_launch *l = tern_launch_begin(m, text, params_size, items(m, t), 1);
    tern_matrix_define(m, t->factors);
    tern_launch_define(m, "TK %d", t->tk);
    tern_launch_define(m, "MM %d", t->mm);
    tern_launch_define(m, "MN %d", t->mn);
    tern_launch_define(m, "SM %d", t->sm);
    tern_launch_define(m, "SN %d", t->sn);
    l->groups[0] = tern_ceil_div(cols, cols_of(t));
    l->groups[1] = tern_ceil_div(rows, rows_of(t));
    l->groups[2] = (int)batch;
    l->separable = true;
    for (int i = 0; i < 3; i++)
        m->failed = m->failed || l->groups[i] > m->limits->max_groups;
    return l;
}

/* A second launch and a way through memory have to be worth it: long sums, and groups for less than half of a device. */
int tern_matrix_parts(const struct tern_launch_maker *m, const struct tern_matrix_tile *t, int64_t rows, int64_t cols, int64_t depth)
{
    int64_t n = groups(t, rows, cols, 1), steps = tern_ceil_div(depth, t->tk), parts = ENOUGH / n;
    if (2 * n > ENOUGH || steps < LEAST_STEPS || rows * cols * MOST_PARTS >= TERN_LAUNCH_MAX_ELEMENTS || m->limits->max_groups < MOST_PARTS)
        return 1;
    parts = parts < steps / STEPS_OF_PART ? parts : steps / STEPS_OF_PART;
    return (int)(parts < MOST_PARTS ? parts : MOST_PARTS);
}

void tern_matrix_sum_parts(struct tern_launch_maker *m, int parts, int64_t rows, int64_t cols, int64_t y_m, int64_t y_n, int channel)
{
    const struct tern_op_desc *d = m->d;
    bool bias = d->op != TERN_OP_matmul && d->present[2];
    int items = m->limits->max_group < 256 ? m->limits->max_group : 256;
    tern_launch_define(m, "PARTS %d", parts);
    tern_launch_write(m, "y", TERN_SLOT_WORKSPACE);
    m->out->workspace = (size_t)(parts * rows * cols) * sizeof(float);
    tern_launch_begin(m, "split_sum", sizeof(struct tern_params_split_sum), items, 1)->params.split_sum =
        (struct tern_params_split_sum){.size = (int32_t)(rows * cols),
                                       .n = (int32_t)cols,
                                       .parts = parts,
                                       .y_m = (int32_t)y_m,
                                       .y_n = (int32_t)y_n,
                                       .bias_n = bias ? (int32_t)d->in[2].stride[0] : 0};
    tern_launch_read(m, "x", TERN_SLOT_WORKSPACE);
    if (bias) {
        tern_launch_read(m, "bias", 2);
        tern_launch_define(m, "BIAS 1");
    }
    tern_launch_write(m, "y", TERN_SLOT_OUT);
    tern_launch_items(m, rows * cols, items);
    tern_launch_posts(m, channel);
}

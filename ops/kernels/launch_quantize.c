/* Launches that make int8: quantize_scale, and words of int8 for products. */
#include <string.h>

#include "ops/kernels/launch_internal.h"

enum { ITEMS = 256, MOST_PARTS = 64, PART_ELEMENTS = 4096 };

/* Elements of a slice of which one group of items finds the largest and makes the words: see launch_norm.c. */
#define ONE_PASS_MOST 20480

static int64_t slices_of(const struct tern_quantize_view *v) { return v->whole ? v->n : v->n * v->h * v->w; }
static int64_t pixels_of(const struct tern_quantize_view *v) { return v->whole ? v->h * v->w : 1; }
static int64_t elements_of(const struct tern_quantize_view *v) { return pixels_of(v) * v->groups * v->channels; }

/* The elements of a picture, as they lie in memory. */
static bool picture_loop(const struct tern_quantize_view *v, struct tern_loop *loop)
{
    const int64_t shape[TERN_MAX_DIMS] = {v->groups * v->channels, v->h, v->w};
    const int64_t stride[1][TERN_MAX_DIMS] = {{v->x_c, v->x_h, v->x_w}};
    return tern_loop_make(3, shape, 1, stride, true, loop);
}

int tern_quantize_parts(const struct tern_launch_maker *m, const struct tern_quantize_view *v)
{
    const int64_t n = elements_of(v);
    struct tern_loop loop;
    int parts = 1;
    if (!v->whole || n <= ONE_PASS_MOST)
        return 0;
    if (!picture_loop(v, &loop) || loop.ndim != 1 || loop.stride[0][0] != 1)
        return 1;
    while (parts < MOST_PARTS && n % (2 * parts) == 0 && n / (2 * parts) >= PART_ELEMENTS)
        parts *= 2;
    return parts;
}

/* The next slot: a part of the workspace. */
static void room_slot(struct tern_launch_maker *m, const char *name, const char *dtype, size_t begin)
{
    tern_launch_slot(m, name, TERN_SLOT_WORKSPACE, dtype, sizeof(float));
    m->l->params.head.offset[m->l->n_slots - 1] = (int32_t)(begin / sizeof(float));
}

/* Whether channels are loaded by four. */
static bool wide(const struct tern_launch_maker *m, const struct tern_quantize_view *v)
{
    return m->limits->vectors && tern_dtype_is_float(m->d->in[v->input].dtype) && v->x_c == 1 && v->channels % 4 == 0 && v->x_n % 4 == 0 &&
           v->x_h % 4 == 0 && v->x_w % 4 == 0;
}

/* The largest |value| of each part of each slice of pictures, to `begin` of the workspace; as a scale: divided by 127. */
static void find_most(struct tern_launch_maker *m, const struct tern_quantize_view *v, int parts, bool scale, size_t begin)
{
    const int64_t part = elements_of(v) / parts, shape[TERN_MAX_DIMS] = {v->n, parts};
    const int64_t stride[2][TERN_MAX_DIMS] = {{v->x_n, part}, {parts, 1}};
    struct tern_loop rows, cols;
    if (!tern_loop_make(2, shape, 2, stride, false, &rows) || !picture_loop(v, &cols)) {
        m->failed = true;
        return;
    }
    if (parts > 1) /* the picture is one row of memory */
        cols.shape[0] = (int32_t)part;
    const bool together = cols.ndim == 1 && cols.stride[0][0] == 1 && part % 4 == 0;
    tern_launch_reduction(m, "MOST", v->input, together && wide(m, v), &rows, &cols);
    room_slot(m, "y", "F32", begin);
    if (scale)
        tern_launch_define(m, "SCALE 1");
}

/* Whether a slice's words are its elements in the order of memory; *behind: from one slice to the next. */
static bool dense(const struct tern_launch_maker *m, const struct tern_quantize_view *v, int64_t *behind)
{
    const int64_t pixel = v->groups * v->channels;
    *behind = v->whole ? v->x_n : v->x_w;
    if (!wide(m, v) || v->channels != tern_quantize_deep(v->channels))
        return false;
    return v->whole ? (v->w == 1 || v->x_w == pixel) && (v->h == 1 || v->x_h == v->w * pixel) : v->n == 1 && v->h == 1 && v->groups == 1;
}

/* `how`: the macro of quantize_pack.cl that says where scales come from; NULL: none. The next slots are those behind x. */
static void begin_pack(struct tern_launch_maker *m, const struct tern_quantize_view *v, const char *how, int parts)
{
    const int64_t deep = tern_quantize_deep(v->channels), words = pixels_of(v) * v->groups * deep / 4;
    const bool found = how && !strcmp(how, "FOUND");
    const int most = m->limits->max_group < ITEMS ? m->limits->max_group : ITEMS;
    const int items = found ? tern_launch_row_items(m, elements_of(v)) : most, chunks = words ? tern_ceil_div(words, items * 4) : 1;
    tern_launch_begin(m, "quantize_pack", sizeof(struct tern_params_quantize_pack), items, 1)->params.quantize_pack =
        (struct tern_params_quantize_pack){.slices = (int32_t)slices_of(v),
                                           .pixels = (int32_t)pixels_of(v),
                                           .h = (int32_t)v->h,
                                           .w = (int32_t)v->w,
                                           .groups = (int32_t)v->groups,
                                           .channels = (int32_t)v->channels,
                                           .deep = (int32_t)deep,
                                           .parts = parts,
                                           .chunks = chunks,
                                           .x_n = (int32_t)v->x_n,
                                           .x_c = (int32_t)v->x_c,
                                           .x_h = (int32_t)v->x_h,
                                           .x_w = (int32_t)v->x_w,
                                           .scale_n = 1};
    if (how)
        tern_launch_define(m, "%s 1", how);
    int64_t behind;
    if (dense(m, v, &behind)) {
        m->l->params.quantize_pack.x_slice = (int32_t)behind;
        tern_launch_define(m, "DENSE 1");
    }
    if (wide(m, v)) {
        tern_launch_read4(m, "x", v->input);
        tern_launch_define(m, "WIDE 1");
    } else {
        tern_launch_read(m, "x", v->input);
    }
    tern_launch_items(m, slices_of(v) * (found ? 1 : chunks), 1);
    if (found)
        tern_launch_subgroups(m);
    m->failed = m->failed || slices_of(v) * chunks >= TERN_LAUNCH_MAX_ELEMENTS;
}

void tern_quantize_input(struct tern_launch_maker *m, const struct tern_quantize_view *v, const struct tern_quantize_room *room)
{
    const int parts = tern_quantize_parts(m, v);
    if (parts)
        find_most(m, v, parts, false, room->mosts);
    begin_pack(m, v, parts ? "PARTS" : "FOUND", parts);
    if (parts)
        room_slot(m, "mosts", "F32", room->mosts);
    room_slot(m, "factors", "F32", room->factors);
    room_slot(m, "y", "I32", room->words);
}

void tern_quantize_weight(struct tern_launch_maker *m, const struct tern_quantize_view *v, const struct tern_quantize_room *room)
{
    const bool floats = tern_dtype_is_float(m->d->in[v->input].dtype);
    if (floats)
        find_most(m, v, 1, true, room->factors);
    begin_pack(m, v, floats ? "SCALED" : NULL, 0);
    if (floats)
        room_slot(m, "scale", "F32", room->factors);
    room_slot(m, "y", "I32", room->words);
}

/* quantize_scale; quantize is an element-wise op. */
bool tern_launch_quantize(struct tern_launch_maker *m)
{
    const struct tern_meta *x = &m->d->in[0], *y = &m->d->out;
    if (m->d->op != TERN_OP_quantize_scale)
        return false;
    const int64_t stride[2][TERN_MAX_DIMS] = {{x->stride[0]}, {y->stride[0]}};
    int64_t slice[1][TERN_MAX_DIMS] = {{0}};
    struct tern_loop rows, cols;
    if (!tern_meta_numel(y))
        return true;
    memcpy(slice[0], x->stride + 1, sizeof(int64_t) * (size_t)(x->ndim - 1));
    if (!tern_loop_make(1, x->shape, 2, stride, false, &rows) ||
        !tern_loop_make(x->ndim - 1, x->shape + 1, 1, (const int64_t(*)[TERN_MAX_DIMS])slice, true, &cols)) {
        m->failed = true;
        return true;
    }
    m->failed = m->failed || m->d->n_post;
    tern_launch_reduction(m, "MOST", 0, false, &rows, &cols);
    tern_launch_write(m, "y", TERN_SLOT_OUT);
    tern_launch_define(m, "SCALE 1");
    return true;
}

/* Launches of pack_weight and unpack_weight. */
#include "ops/kernels/launch_internal.h"

/* One struct for both texts: the weight, and the words of its rows. */
static struct tern_params_packed_weight params_of(const struct tern_meta *w, const struct tern_meta *words)
{
    struct tern_params_packed_weight p = {.rows = (int32_t)w->shape[0],
                                          .channels = (int32_t)w->shape[1],
                                          .kernel_w = 1,
                                          .w_o = (int32_t)w->stride[0],
                                          .w_c = (int32_t)w->stride[1],
                                          .word_row = (int32_t)words->stride[0],
                                          .word_step = (int32_t)words->stride[1]};
    p.depth = p.channels;
    if (w->ndim == 4) {
        p.kernel_w = (int32_t)w->shape[3];
        p.depth *= (int32_t)(w->shape[2] * w->shape[3]);
        p.w_h = (int32_t)w->stride[2];
        p.w_w = (int32_t)w->stride[3];
    }
    return p;
}

/* Whether eight channels at a time can be stored. */
static bool stores_eight(const struct tern_launch_maker *m, const struct tern_params_packed_weight *p)
{
    return m->limits->vectors && m->limits->storage16 && tern_dtype_size(m->d->out.dtype) == 2 && p->w_c == 1 && p->channels % 8 == 0 &&
           p->w_o % 8 == 0 && p->w_h % 8 == 0 && p->w_w % 8 == 0;
}

static int most_items(const struct tern_launch_maker *m) { return m->limits->max_group < 256 ? m->limits->max_group : 256; }

static void begin(struct tern_launch_maker *m, const char *text, const struct tern_params_packed_weight *p, int64_t bits, int items)
{
    tern_launch_begin(m, text, sizeof(*p), items, 1)->params.packed_weight = *p;
    tern_launch_define(m, "WEIGHT_BITS %d", (int)bits);
}

/* Of 8 bits a group makes a row, of 4 an item what 64 values become. */
static void pack(struct tern_launch_maker *m)
{
    const struct tern_params_packed_weight p = params_of(&m->d->in[0], &m->d->out);
    const int64_t bits = m->d->attrs.pack_weight.bits;
    const int items = bits == 8 ? tern_launch_row_items(m, p.depth) : most_items(m);
    begin(m, "pack_weight", &p, bits, items);
    tern_launch_read(m, "weight", 0);
    tern_launch_write(m, "y", TERN_SLOT_OUT);
    if (bits == 8) {
        tern_launch_items(m, p.rows, 1);
        tern_launch_subgroups(m);
    } else {
        tern_launch_items(m, p.rows * (((int64_t)p.depth + 63) / 64), items);
    }
}

static void unpack(struct tern_launch_maker *m)
{
    const struct tern_params_packed_weight p = params_of(&m->d->out, &m->d->in[0]);
    const int items = most_items(m), width = stores_eight(m, &p) ? 8 : 1;
    begin(m, "unpack_weight", &p, m->d->attrs.unpack_weight.bits, items);
    tern_launch_read(m, "packed", 0);
    width > 1 ? tern_launch_read8(m, "y", TERN_SLOT_OUT) : tern_launch_write(m, "y", TERN_SLOT_OUT);
    if (width > 1)
        tern_launch_define(m, "WIDE_Y 1");
    tern_launch_items(m, (int64_t)p.rows * p.depth / width, items);
}

bool tern_launch_packed_weight(struct tern_launch_maker *m)
{
    const struct tern_op_desc *d = m->d;
    if (d->op != TERN_OP_pack_weight && d->op != TERN_OP_unpack_weight)
        return false;
    m->failed = m->failed || d->n_post;
    if (tern_meta_numel(&d->out))
        d->op == TERN_OP_pack_weight ? pack(m) : unpack(m);
    return true;
}

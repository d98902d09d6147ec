/* Launches of pack_weight and unpack_weight. */
#include <string.h>

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

bool tern_launch_packed_weight(struct tern_launch_maker *m)
{
    const struct tern_op_desc *d = m->d;
    const bool packs = d->op == TERN_OP_pack_weight;
    if (!packs && d->op != TERN_OP_unpack_weight)
        return false;
    m->failed = m->failed || d->n_post;
    if (!tern_meta_numel(&d->out))
        return true;
    const struct tern_params_packed_weight p = packs ? params_of(&d->in[0], &d->out) : params_of(&d->out, &d->in[0]);
    const int64_t bits = packs ? d->attrs.pack_weight.bits : d->attrs.unpack_weight.bits, pairs = (p.depth + 63) / 64;
    const bool by_row = packs && bits == 8, eight = !packs && stores_eight(m, &p);
    const int most = m->limits->max_group < 256 ? m->limits->max_group : 256;
    const int items = by_row ? tern_launch_row_items(m, p.depth) : most;
    tern_launch_begin(m, packs ? "pack_weight" : "unpack_weight", sizeof(p), items, 1)->params.packed_weight = p;
    tern_launch_define(m, "WEIGHT_BITS %d", (int)bits);
    tern_launch_read(m, packs ? "weight" : "packed", 0);
    eight ? tern_launch_read8(m, "y", TERN_SLOT_OUT) : tern_launch_write(m, "y", TERN_SLOT_OUT);
    if (eight)
        tern_launch_define(m, "WIDE_Y 1");
    tern_launch_items(m, p.rows * (by_row ? 1 : packs ? pairs : eight ? p.depth / 8 : p.depth), by_row ? 1 : items);
    if (by_row)
        tern_launch_subgroups(m);
    return true;
}

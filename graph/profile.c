/* What a step did, in numbers. */
#include "graph/plan.h"

static double numel(const struct tern_meta *m) { return (double)tern_meta_numel(m); }

double tern_desc_flops(const struct tern_op_desc *d)
{
    const struct tern_meta *x = &d->in[0], *w = &d->in[1];
    switch (d->op) {
    case TERN_OP_conv2d: /* (O, C / groups, kh, kw): each output value is a sum over a filter */
        return 2 * numel(&d->out) * (double)(w->shape[1] * w->shape[2] * w->shape[3]);
    case TERN_OP_conv_transpose2d: /* (C, O / groups, kh, kw): each input value is spread over a filter */
        return 2 * numel(x) * (double)(w->shape[1] * w->shape[2] * w->shape[3]);
    case TERN_OP_linear:
    case TERN_OP_matmul:
        return 2 * numel(&d->out) * (double)(x->ndim ? x->shape[x->ndim - 1] : 1);
    case TERN_OP_sdpa: /* q k' and p v: (…, L, E) with (…, S, E), (…, S, V) */
        return 2 * numel(x) * (double)w->shape[w->ndim - 2] + 2 * numel(&d->out) * (double)w->shape[w->ndim - 2];
    default:
        return 0;
    }
}

/* The least seconds that the peak allows, of those that were taken. */
static double roofline_of(const struct tern_device_peak *peak, enum tern_dtype dtype, double flops, double bytes, double seconds)
{
    double most = dtype == TERN_BF16 && peak->flops_bf16 > 0 ? peak->flops_bf16 : peak->flops;
    if (peak->flops <= 0 || peak->bytes <= 0 || seconds <= 0)
        return 0;
    double compute = flops / most, move = bytes / peak->bytes;
    return (compute > move ? compute : move) / seconds;
}

void tern_step_tell(const struct tern_step_observer *o, const struct tern_step *step, double begin, double end)
{
    char meta[TERN_META_TEXT];
    const struct tern_op_desc *d = step->desc;
    double flops = tern_desc_flops(d), bytes = numel(&d->out) * (double)tern_dtype_size(d->out.dtype);
    for (int i = 0; i < d->n_in; i++)
        if (d->present[i])
            bytes += numel(&d->in[i]) * (double)tern_dtype_size(d->in[i].dtype);
    o->tell(o->user, &(struct tern_step_profile){.op = tern_op_get(d->op).name,
                                                 .kernel = step->kernel ? step->kernel->name : "reference",
                                                 .output = tern_meta_text(&d->out, meta),
                                                 .start = begin,
                                                 .seconds = end - begin,
                                                 .flops = flops,
                                                 .bytes = bytes,
                                                 .roofline = roofline_of(&o->peak, d->in[0].dtype, flops, bytes, end - begin)});
}

/* What a step did, in numbers. */
#include "graph/plan.h"

/* The least seconds that the peak allows. */
static double least_of(const struct tern_device_peak *peak, const struct tern_op_desc *d, double flops, double bytes)
{
    double most = peak->flops;
    if (tern_op_is_quantized(d->op) && peak->ops_i8 > 0)
        most = peak->ops_i8;
    else if (d->in[0].dtype == TERN_BF16 && peak->flops_bf16 > 0)
        most = peak->flops_bf16;
    if (peak->flops <= 0 || peak->bytes <= 0)
        return 0;
    double compute = flops / most, move = bytes / peak->bytes;
    return compute > move ? compute : move;
}

double tern_plan_least_seconds(const struct tern_plan *p, const struct tern_device_peak *peak)
{
    double sum = 0;
    for (int i = 0; i < p->n_steps; i++)
        sum += least_of(peak, p->steps[i].desc, tern_desc_flops(p->steps[i].desc), tern_desc_bytes(p->steps[i].desc));
    return sum;
}

void tern_step_tell(const struct tern_step_observer *o, const struct tern_step *step, double begin, double bring, double end)
{
    char meta[TERN_META_TEXT];
    const struct tern_op_desc *d = step->desc;
    double flops = tern_desc_flops(d), bytes = tern_desc_bytes(d);
    o->tell(o->user, &(struct tern_step_profile){.op = tern_op_get(d->op).name,
                                                 .kernel = step->kernel ? step->kernel->name : "reference",
                                                 .output = tern_meta_text(&d->out, meta),
                                                 .start = begin,
                                                 .seconds = end - begin,
                                                 .bring = bring,
                                                 .flops = flops,
                                                 .bytes = bytes,
                                                 .roofline = end > begin ? least_of(&o->peak, d, flops, bytes) / (end - begin) : 0});
}

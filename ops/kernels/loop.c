/* Merges dimensions, so that kernels have few of them to go through. */
#include "ops/kernels/launch_internal.h"

struct dims {
    int n, order[TERN_MAX_DIMS];
};

/* Dimensions of more than one element, by the strides of `stride`, largest first, where it has strides. */
static struct dims choose(int ndim, const int64_t *shape, const int64_t *stride)
{
    struct dims d = {.n = 0};
    for (int i = 0; i < ndim; i++) {
        if (shape[i] == 1)
            continue;
        int at = d.n++;
        for (; stride && at > 0 && stride[d.order[at - 1]] < stride[i]; at--)
            d.order[at] = d.order[at - 1];
        d.order[at] = i;
    }
    return d;
}

bool tern_loop_make(int ndim, const int64_t *shape, int n, const int64_t (*stride)[TERN_MAX_DIMS], bool by_last, struct tern_loop *loop)
{
    struct dims d = choose(ndim, shape, by_last && n ? stride[n - 1] : NULL);
    *loop = (struct tern_loop){.ndim = 0};
    for (int i = 0; i < d.n; i++) {
        int from = d.order[i], last = loop->ndim - 1;
        bool merge = last >= 0;
        for (int k = 0; k < n && merge; k++)
            merge = loop->stride[k][last] == stride[k][from] * shape[from];
        if (!merge) {
            last = loop->ndim++;
            loop->shape[last] = 1;
        }
        loop->shape[last] *= (int32_t)shape[from];
        for (int k = 0; k < n; k++)
            loop->stride[k][last] = (int32_t)stride[k][from];
    }
    if (!loop->ndim)
        loop->shape[loop->ndim++] = 1;
    return loop->ndim <= TERN_LOOP_DIMS;
}

/* What the stand-in for cuDNN checks when a descriptor is finalised: all that is required is set, shapes fit together, tensors that are
 * not stored are made before they are read. */
#include "tests/cuda/dnn.h"

static bool has(const struct descriptor *d, int n, const int *names)
{
    for (int i = 0; i < n; i++)
        if (!dnn_attribute(d, names[i]))
            return false;
    return true;
}
#define HAS(d, ...) has(d, (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)), (const int[]){__VA_ARGS__})

/* A finalised tensor that is the attribute's value. */
static bool tensor_at(const struct descriptor *d, int name, struct dnn_tensor *t)
{
    const struct descriptor *part = dnn_part(d, name);
    if (!part || part->kind != CUDNN_BACKEND_TENSOR_DESCRIPTOR)
        return false;
    *t = dnn_tensor_of(part);
    return true;
}

static bool check_tensor(const struct descriptor *d)
{
    if (!HAS(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_ATTR_TENSOR_DIMENSIONS,
             CUDNN_ATTR_TENSOR_STRIDES))
        return false;
    struct dnn_tensor t = dnn_tensor_of(d);
    bool good = t.alignment > 0 && t.alignment % (int64_t)element_size(t.type) == 0 && !(t.is_virtual && t.by_value);
    for (int i = 0; i < 4; i++)
        good = good && t.dims[i] > 0 && t.strides[i] > 0;
    return good;
}

static bool check_convolution(const struct descriptor *d)
{
    return HAS(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS,
               CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS,
               CUDNN_ATTR_CONVOLUTION_POST_PADDINGS) &&
           dnn_attribute(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS)->v.number[0] == 2 &&
           dnn_attribute(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE)->v.code[0] == CUDNN_DATA_FLOAT &&
           dnn_attribute(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE)->v.code[0] == CUDNN_CROSS_CORRELATION;
}

/* The memory of pictures: channels or columns innermost, without gaps. Filters may lie the other way. */
static bool is_packed(const struct dnn_tensor *t, bool last_only)
{
    int64_t c = t->dims[1], hw = t->dims[2] * t->dims[3];
    bool last = t->strides[1] == 1 && t->strides[3] == c && t->strides[2] == c * t->dims[3] && t->strides[0] == c * hw;
    bool first = t->strides[3] == 1 && t->strides[2] == t->dims[3] && t->strides[1] == hw && t->strides[0] == c * hw;
    return last || (first && !last_only);
}

static bool check_conv_operation(const struct descriptor *d)
{
    struct dnn_tensor x, w, y;
    const struct descriptor *c = dnn_part(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
    const struct attribute *alpha = dnn_attribute(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA),
                           *beta = dnn_attribute(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
    if (!c || c->kind != CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR || !alpha || !beta || alpha->v.real[0] != 1 || beta->v.real[0] != 0 ||
        !tensor_at(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, &x) || !tensor_at(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, &w) ||
        !tensor_at(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, &y))
        return false;
    int64_t stride[2], dilation[2], before[2], behind[2];
    dnn_numbers(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, stride);
    dnn_numbers(c, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, dilation);
    dnn_numbers(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, before);
    dnn_numbers(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, behind);
    bool good = x.type == w.type && x.dims[1] % w.dims[1] == 0 && w.dims[0] % (x.dims[1] / w.dims[1]) == 0 && y.dims[0] == x.dims[0] &&
                y.dims[1] == w.dims[0] && is_packed(&x, true) && is_packed(&y, true) && is_packed(&w, false);
    for (int i = 0; i < 2; i++)
        good = good && y.dims[2 + i] == (x.dims[2 + i] + before[i] + behind[i] - dilation[i] * (w.dims[2 + i] - 1) - 1) / stride[i] + 1;
    return good;
}

static bool check_pointwise(const struct descriptor *d)
{
    return HAS(d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MATH_PREC) &&
           dnn_attribute(d, CUDNN_ATTR_POINTWISE_MATH_PREC)->v.code[0] == CUDNN_DATA_FLOAT;
}

static bool check_pointwise_operation(const struct descriptor *d)
{
    struct dnn_tensor x, y, b;
    const struct descriptor *p = dnn_part(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    if (!p || p->kind != CUDNN_BACKEND_POINTWISE_DESCRIPTOR || !tensor_at(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &x) ||
        !tensor_at(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &y))
        return false;
    int mode = dnn_attribute(p, CUDNN_ATTR_POINTWISE_MODE)->v.code[0];
    bool pair = mode == CUDNN_POINTWISE_ADD || mode == CUDNN_POINTWISE_MUL, good = !memcmp(x.dims, y.dims, sizeof(x.dims));
    if (pair != tensor_at(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &b))
        return false;
    for (int i = 0; i < 4 && pair; i++)
        good = good && (b.dims[i] == 1 || b.dims[i] == y.dims[i]);
    return good;
}

static bool check_attention(const struct descriptor *d)
{
    static const int names[] = {CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC,
                                CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC};
    struct dnn_tensor t[4], scale;
    bool good = tensor_at(d, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, &scale) && scale.by_value && scale.type == ELEMENT_F32;
    for (int i = 0; i < 4; i++)
        good = good && tensor_at(d, names[i], &t[i]) && t[i].type != ELEMENT_F32 && t[i].type == t[0].type &&
               t[i].dims[0] == t[0].dims[0] && t[i].dims[1] == t[0].dims[1] && t[i].strides[3] == 1 && t[i].dims[3] % 8 == 0;
    return good && t[1].dims[3] == t[0].dims[3] && t[2].dims[2] == t[1].dims[2] && t[3].dims[2] == t[0].dims[2] &&
           t[3].dims[3] == t[2].dims[3];
}

/* Operations in order: what one reads and is not stored was made by the one before; the last alone makes what is stored. */
static bool check_graph(const struct descriptor *d)
{
    const struct attribute *ops = dnn_attribute(d, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    struct dnn_tensor y = {.id = -1};
    if (!ops || !dnn_attribute(d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE))
        return false;
    for (int64_t i = 0; i < ops->count; i++) {
        const struct descriptor *op = dnn_get(ops->v.address[i], -1);
        bool pointwise = op && op->kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
        struct dnn_tensor x;
        if (!op || pointwise != (i > 0))
            return false;
        if (pointwise && (!tensor_at(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &x) || x.id != y.id || !x.is_virtual))
            return false;
        int out = pointwise                                                 ? CUDNN_ATTR_OPERATION_POINTWISE_YDESC
                  : op->kind == CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR ? CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC
                                                                            : CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y;
        if (!tensor_at(op, out, &y) || y.is_virtual != (i < ops->count - 1))
            return false;
    }
    return true;
}

static bool check_pack(const struct descriptor *d)
{
    const struct attribute *ids = dnn_attribute(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                           *pointers = dnn_attribute(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    bool good = ids && pointers && ids->count == pointers->count && dnn_attribute(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    for (int64_t i = 0; good && i < ids->count; i++)
        for (int64_t k = 0; k < i; k++)
            good = good && ids->v.number[i] != ids->v.number[k];
    return good;
}

static bool is_good(const struct descriptor *d)
{
    switch (d->kind) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return check_tensor(d);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        return check_convolution(d);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        return check_conv_operation(d);
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
        return check_pointwise(d);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return check_pointwise_operation(d);
    case CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR:
        return check_attention(d);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return check_graph(d);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        return HAS(d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return HAS(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) ||
               HAS(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        return check_pack(d);
    default: /* configurations and engines are given, not made */
        return false;
    }
}

cudnnStatus_t dnn_check(const struct descriptor *d) { return is_good(d) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM; }

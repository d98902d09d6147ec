/* Descriptions as graphs of cuDNN: conv2d with bias and posts, sdpa. One error stops all that follows, so that a graph reads as
 * straight-line code. */
#include <string.h>

#include "backends/cuda/dnn.h"
#include "core/shape.h"

enum { MOST_STEPS = 1 + TERN_MAX_POST };

struct maker {
    const struct cudnn_api *api;
    struct cuda_dnn_graph *graph;
    const struct tern_op_desc *d;
    int64_t alignment, next_virtual;
    cudnnStatus_t error;
};

/* An operation behind the convolution: y = mode(y), or y = mode(y, operand). */
struct step {
    int mode, input; /* -1: none */
    float beta;      /* of swish; 0: 1 */
};

/* ---- what can be a graph ---- */

static int type_of(enum tern_dtype dtype)
{
    return dtype == TERN_F32 ? CUDNN_DATA_FLOAT : dtype == TERN_F16 ? CUDNN_DATA_HALF : dtype == TERN_BF16 ? CUDNN_DATA_BFLOAT16 : -1;
}

static bool countable(const struct tern_meta *m) { return tern_meta_numel(m) > 0 && tern_meta_numel(m) <= INT32_MAX; }

/* Of a tensor with more channels, too: one that all layers' embeddings were computed into. */
static bool one_per_channel(const struct tern_meta *m)
{
    return m->shape[2] == 1 && m->shape[3] == 1 && (m->shape[1] == 1 || m->stride[1] == 1) &&
           (m->shape[0] == 1 || m->stride[0] >= m->shape[1]);
}

/* A tensor that lies as the result does, or one value per channel for each sample or for all. */
static bool operand_fits(const struct tern_op_desc *d, int input)
{
    const struct tern_meta *m = &d->in[input], *y = &d->out;
    if (type_of(m->dtype) < 0 || m->ndim != 4 || m->shape[1] != y->shape[1])
        return false;
    return (tern_meta_same_shape(m, y) && tern_meta_is_channels_last(m)) ||
           (one_per_channel(m) && (m->shape[0] == 1 || m->shape[0] == y->shape[0]));
}

static bool step_of(const struct tern_post *p, struct step *s)
{
    *s = (struct step){.mode = -1, .input = (int)p->input};
    switch ((enum tern_op)p->op) {
    case TERN_OP_relu:
        s->mode = CUDNN_POINTWISE_RELU_FWD;
        break;
    case TERN_OP_tanh:
        s->mode = CUDNN_POINTWISE_TANH_FWD;
        break;
    case TERN_OP_sigmoid:
        s->mode = CUDNN_POINTWISE_SIGMOID_FWD;
        break;
    case TERN_OP_silu:
        s->mode = CUDNN_POINTWISE_SWISH_FWD;
        break;
    case TERN_OP_quick_gelu: /* x sigmoid(1.702 x) */
        *s = (struct step){CUDNN_POINTWISE_SWISH_FWD, -1, 1.702f};
        break;
    case TERN_OP_gelu:
        s->mode = p->value != 0 ? CUDNN_POINTWISE_GELU_APPROX_TANH_FWD : CUDNN_POINTWISE_GELU_FWD;
        break;
    case TERN_OP_add:
    case TERN_OP_mul:
        s->mode = p->op == TERN_OP_add ? CUDNN_POINTWISE_ADD : CUDNN_POINTWISE_MUL;
        return p->input >= 0;
    default:
        break;
    }
    return s->mode >= 0 && p->input < 0;
}

/* The operations behind the convolution, or -1. A residual goes before the bias: cuDNN has that, and a relu behind it, compiled
 * already; all else is compiled when it is planned. */
static int steps_of(const struct tern_op_desc *d, struct step steps[MOST_STEPS])
{
    int n = 0;
    if (d->n_in > 2 && d->present[2])
        steps[n++] = (struct step){CUDNN_POINTWISE_ADD, 2, 0};
    for (int i = 0; i < d->n_post; i++) {
        struct step *s = &steps[n++];
        if (!step_of(&d->post[i], s) || (s->input >= 0 && !operand_fits(d, s->input)))
            return -1;
    }
    if (n > 1 && steps[0].input == 2 && steps[1].mode == CUDNN_POINTWISE_ADD && tern_meta_same_shape(&d->in[steps[1].input], &d->out)) {
        steps[0].input = steps[1].input;
        steps[1].input = 2;
    }
    return n;
}

static bool takes_conv(const struct tern_op_desc *d)
{
    const struct tern_meta *x = &d->in[0], *w = &d->in[1], *b = &d->in[2], *y = &d->out;
    struct step steps[MOST_STEPS];
    if (type_of(y->dtype) < 0 || x->dtype != y->dtype || w->dtype != y->dtype || !countable(x) || !countable(w) || !countable(y))
        return false;
    if (d->n_in > 2 && d->present[2] && (type_of(b->dtype) < 0 || (b->stride[0] != 1 && b->shape[0] > 1)))
        return false;
    return tern_meta_is_channels_last(x) && tern_meta_is_channels_last(y) &&
           (tern_meta_is_channels_last(w) || tern_meta_is_contiguous(w)) && steps_of(d, steps) >= 0;
}

/* (B, H, L, E), with dimensions before those that there are; rows begin at multiples of 16 bytes. */
struct heads {
    int64_t dims[4], strides[4];
};

static bool heads_of(const struct tern_meta *m, struct heads *h)
{
    int64_t span = tern_meta_span(m);
    for (int i = 3, k = m->ndim - 1; i >= 0; i--, k--) {
        h->dims[i] = k >= 0 ? m->shape[k] : 1;
        h->strides[i] = h->dims[i] > 1 ? m->stride[k] : i < 3 ? (span + 7) / 8 * 8 : 1;
        if (h->strides[i] < 1 || (i == 3 ? h->strides[i] != 1 : h->strides[i] % 8))
            return false;
    }
    return true;
}

static bool takes_sdpa(const struct tern_op_desc *d)
{
    struct heads h;
    const struct tern_meta *y = &d->out;
    int64_t e = d->in[0].shape[y->ndim - 1], ev = y->shape[y->ndim - 1];
    if ((y->dtype != TERN_F16 && y->dtype != TERN_BF16) || y->ndim < 3 || y->ndim > 4 || !countable(y) || d->n_post)
        return false;
    if (d->attrs.sdpa.is_causal || (d->n_in > 3 && d->present[3]) || e % 8 || ev % 8 || e < 8 || e > 128 || ev > 128)
        return false;
    for (int i = 0; i < 3; i++)
        if (d->in[i].dtype != y->dtype || !countable(&d->in[i]) || !heads_of(&d->in[i], &h))
            return false;
    return heads_of(y, &h);
}

bool tern_cuda_dnn_takes(const struct tern_op_desc *d) { return d->op == TERN_OP_sdpa ? takes_sdpa(d) : takes_conv(d); }

bool tern_cuda_dnn_takes_posts(const struct tern_op_desc *d)
{
    struct step steps[MOST_STEPS];
    return !d->n_post || (d->op == TERN_OP_conv2d && steps_of(d, steps) >= 0);
}

/* ---- descriptors ---- */

static cudnnBackendDescriptor_t make(struct maker *m, int type)
{
    struct cuda_dnn_graph *g = m->graph;
    cudnnBackendDescriptor_t made = NULL;
    if (!m->error && g->n_made == CUDA_DNN_DESCRIPTORS)
        m->error = CUDNN_STATUS_NOT_SUPPORTED;
    if (!m->error)
        m->error = m->api->cudnnBackendCreateDescriptor(type, &made);
    if (m->error)
        return NULL;
    return g->made[g->n_made++] = made;
}

static void set(struct maker *m, cudnnBackendDescriptor_t to, int name, int type, int64_t count, const void *values)
{
    if (!m->error)
        m->error = m->api->cudnnBackendSetAttribute(to, name, type, count, values);
}

/* Enumerators are as wide as an int. */
static void set_enum(struct maker *m, cudnnBackendDescriptor_t to, int name, int type, int value) { set(m, to, name, type, 1, &value); }

static void set_ints(struct maker *m, cudnnBackendDescriptor_t to, int name, int64_t count, const int64_t *values)
{
    set(m, to, name, CUDNN_TYPE_INT64, count, values);
}

static void set_float(struct maker *m, cudnnBackendDescriptor_t to, int name, float value)
{
    set(m, to, name, CUDNN_TYPE_FLOAT, 1, &value);
}

static void set_part(struct maker *m, cudnnBackendDescriptor_t to, int name, cudnnBackendDescriptor_t part)
{
    set(m, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

static cudnnBackendDescriptor_t finish(struct maker *m, cudnnBackendDescriptor_t made)
{
    if (!m->error)
        m->error = m->api->cudnnBackendFinalize(made);
    return made;
}

static cudnnBackendDescriptor_t begin_tensor(struct maker *m, int64_t id, int type, int64_t alignment, const int64_t dims[4],
                                             const int64_t strides[4])
{
    cudnnBackendDescriptor_t t = make(m, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set_ints(m, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id);
    set_enum(m, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    set_ints(m, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment);
    set_ints(m, t, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dims);
    set_ints(m, t, CUDNN_ATTR_TENSOR_STRIDES, 4, strides);
    return t;
}

/* One that has memory. What lies anywhere lies at a multiple of its own elements. */
static cudnnBackendDescriptor_t tensor(struct maker *m, int64_t id, enum tern_dtype dtype, const int64_t dims[4], const int64_t strides[4])
{
    int64_t element = (int64_t)tern_dtype_size(dtype);
    m->graph->ids[m->graph->n_ids++] = id;
    return finish(m, begin_tensor(m, id, type_of(dtype), m->alignment > element ? m->alignment : element, dims, strides));
}

/* Strides of dimensions of size 1 are anything in tern: here they are those of dense memory. */
static cudnnBackendDescriptor_t picture(struct maker *m, int64_t id, const struct tern_meta *meta)
{
    struct tern_meta t = tern_meta_make(meta->dtype, 4, meta->shape);
    if (tern_meta_is_channels_last(meta))
        tern_meta_channels_last(&t);
    return tensor(m, id, meta->dtype, t.shape, t.stride);
}

/* (N, C, 1, 1) that is added to, or multiplied with, each pixel. */
static cudnnBackendDescriptor_t channels(struct maker *m, int64_t id, const struct tern_meta *meta)
{
    int64_t c = meta->shape[1], step = meta->shape[0] > 1 ? meta->stride[0] : c;
    return tensor(m, id, meta->dtype, meta->shape, (const int64_t[]){step, 1, c, c});
}

/* (O): one value per channel of the result; models keep it in f32. */
static cudnnBackendDescriptor_t bias(struct maker *m)
{
    int64_t n = m->d->out.shape[1];
    return tensor(m, CUDA_DNN_INPUT(2), m->d->in[2].dtype, (const int64_t[]){1, n, 1, 1}, (const int64_t[]){n, 1, n, n});
}

/* ---- conv2d ---- */

/* What passes between operations, in f32, never stored; or, behind the last one, the result. */
static cudnnBackendDescriptor_t response(struct maker *m, bool last)
{
    const bool yes = true;
    struct tern_meta y = tern_meta_make(m->d->out.dtype, 4, m->d->out.shape);
    tern_meta_channels_last(&y);
    if (last)
        return tensor(m, CUDA_DNN_OUT, y.dtype, y.shape, y.stride);
    cudnnBackendDescriptor_t t = begin_tensor(m, m->next_virtual++, CUDNN_DATA_FLOAT, 16, y.shape, y.stride);
    set(m, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    return finish(m, t);
}

static cudnnBackendDescriptor_t convolution(struct maker *m, cudnnBackendDescriptor_t y)
{
    const struct tern_conv2d_attrs *p = &m->d->attrs.conv2d;
    const int64_t two = 2;
    cudnnBackendDescriptor_t c = make(m, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set_enum(m, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    set_enum(m, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
    set_ints(m, c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &two);
    set_ints(m, c, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, p->dilation);
    set_ints(m, c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, p->stride);
    set_ints(m, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, p->padding);
    set_ints(m, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, p->padding);
    finish(m, c);
    cudnnBackendDescriptor_t x = picture(m, CUDA_DNN_INPUT(0), &m->d->in[0]), w = picture(m, CUDA_DNN_INPUT(1), &m->d->in[1]);
    cudnnBackendDescriptor_t op = make(m, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    set_part(m, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, c);
    set_part(m, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
    set_part(m, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
    set_part(m, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
    set_float(m, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1);
    set_float(m, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0);
    return finish(m, op);
}

static cudnnBackendDescriptor_t pointwise(struct maker *m, const struct step *s, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y)
{
    cudnnBackendDescriptor_t p = make(m, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), operand = NULL;
    set_enum(m, p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, s->mode);
    set_enum(m, p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    if (s->mode == CUDNN_POINTWISE_RELU_FWD)
        set_enum(m, p, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, CUDNN_PROPAGATE_NAN);
    if (s->beta != 0)
        set_float(m, p, CUDNN_ATTR_POINTWISE_SWISH_BETA, s->beta);
    finish(m, p);
    if (s->input >= 0) {
        const struct tern_meta *in = &m->d->in[s->input];
        int64_t id = CUDA_DNN_INPUT(s->input);
        operand = s->input == 2 ? bias(m) : one_per_channel(in) ? channels(m, id, in) : picture(m, id, in);
    }
    cudnnBackendDescriptor_t op = make(m, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_part(m, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p);
    set_part(m, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (operand)
        set_part(m, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, operand);
    set_part(m, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    return finish(m, op);
}

static int conv_operations(struct maker *m, cudnnBackendDescriptor_t ops[1 + MOST_STEPS])
{
    struct step steps[MOST_STEPS];
    int n = steps_of(m->d, steps);
    cudnnBackendDescriptor_t y = response(m, n == 0);
    ops[0] = convolution(m, y);
    for (int i = 0; i < n; i++) {
        cudnnBackendDescriptor_t next = response(m, i == n - 1);
        ops[1 + i] = pointwise(m, &steps[i], y, next);
        y = next;
    }
    return 1 + n;
}

/* ---- sdpa ---- */

static cudnnBackendDescriptor_t heads(struct maker *m, int64_t id, const struct tern_meta *meta)
{
    struct heads h;
    if (!heads_of(meta, &h))
        m->error = CUDNN_STATUS_NOT_SUPPORTED;
    return tensor(m, id, meta->dtype, h.dims, h.strides);
}

/* The scale is a float of the host, which the pack of pointers names. */
static cudnnBackendDescriptor_t scale(struct maker *m)
{
    const int64_t ones[] = {1, 1, 1, 1};
    const bool yes = true;
    cudnnBackendDescriptor_t t = begin_tensor(m, CUDA_DNN_SCALE, CUDNN_DATA_FLOAT, sizeof(float), ones, ones);
    set(m, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    m->graph->ids[m->graph->n_ids++] = CUDA_DNN_SCALE;
    m->graph->scale = (float)m->d->attrs.sdpa.scale;
    return finish(m, t);
}

/* One node of cuDNN 9.13 and later. */
static int sdpa_operations(struct maker *m, cudnnBackendDescriptor_t *ops)
{
    static const int names[] = {CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC,
                                CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC};
    cudnnBackendDescriptor_t op = make(m, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
    for (int i = 0; i < 3; i++)
        set_part(m, op, names[i], heads(m, CUDA_DNN_INPUT(i), &m->d->in[i]));
    set_part(m, op, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, heads(m, CUDA_DNN_OUT, &m->d->out));
    set_part(m, op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, scale(m));
    ops[0] = finish(m, op);
    return 1;
}

cudnnBackendDescriptor_t tern_cuda_dnn_graph_make(const struct cuda_dnn_target *t, const struct tern_op_desc *d, int64_t alignment,
                                                  struct cuda_dnn_graph *g)
{
    struct maker m = {.api = t->api, .graph = g, .d = d, .alignment = alignment, .next_virtual = CUDA_DNN_VIRTUAL};
    cudnnBackendDescriptor_t ops[1 + MOST_STEPS] = {NULL};
    int n = d->op == TERN_OP_sdpa ? sdpa_operations(&m, ops) : conv_operations(&m, ops);
    cudnnBackendDescriptor_t graph = make(&m, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(&m, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, ops);
    if (t->handle)
        set(&m, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &t->handle);
    finish(&m, graph);
    return m.error ? NULL : graph;
}

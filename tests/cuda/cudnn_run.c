/* The graphs of the stand-in for cuDNN, computed on the host with sums in double; in f32 its tensor cores round factors as TF32 does. */
#include "tests/cuda/dnn.h"

enum { MOST_POINTERS = 12 };

struct step {
    int mode, argument; /* of its operand; 0: none */
    float beta;
    struct dnn_tensor operand;
};

/* What a launch gets by value: tensors are x, w, y; or query, key, value, result. Their arguments are 1 to n. */
struct call {
    bool attention, coarse;
    struct dnn_tensor t[4];
    int64_t stride[2], padding[2], dilation[2];
    float scale;
    int n_steps;
    struct step steps[DNN_STEPS];
    int n; /* tensors so far; the workspace is the argument behind them */
};

static const void *at(void **arguments, int i) { return *(void **)arguments[i]; }

static int64_t place(const struct dnn_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    int64_t index[] = {a, b, c, d}, sum = 0;
    for (int i = 0; i < 4; i++)
        sum += t->dims[i] > 1 ? index[i] * t->strides[i] : 0;
    return sum;
}

/* 10 bits of the fraction. */
static double factor(const struct call *q, const void *memory, const struct dnn_tensor *t, int64_t i)
{
    float f = element_load(memory, t->type, i);
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    bits &= q->coarse && t->type == ELEMENT_F32 ? ~0x1fffu : ~0u;
    memcpy(&f, &bits, sizeof(f));
    return (double)f;
}

static float apply(const struct step *s, float v, float operand)
{
    switch (s->mode) {
    case CUDNN_POINTWISE_ADD:
        return v + operand;
    case CUDNN_POINTWISE_MUL:
        return v * operand;
    case CUDNN_POINTWISE_RELU_FWD:
        return v > 0 || isnan(v) ? v : 0;
    case CUDNN_POINTWISE_TANH_FWD:
        return tanhf(v);
    case CUDNN_POINTWISE_SIGMOID_FWD:
        return 1 / (1 + expf(-v));
    case CUDNN_POINTWISE_GELU_FWD:
        return 0.5f * v * (1 + erff(v * 0.70710678f));
    case CUDNN_POINTWISE_GELU_APPROX_TANH_FWD:
        return 0.5f * v * (1 + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
    case CUDNN_POINTWISE_SWISH_FWD:
        return v / (1 + expf(-s->beta * v));
    default:
        return NAN;
    }
}

static double convolve(const struct call *q, void **arguments, int64_t n, int64_t o, int64_t oy, int64_t ox)
{
    const struct dnn_tensor *x = &q->t[0], *w = &q->t[1];
    int64_t group = o / (w->dims[0] / (x->dims[1] / w->dims[1]));
    double sum = 0;
    for (int64_t ky = 0; ky < w->dims[2]; ky++)
        for (int64_t kx = 0; kx < w->dims[3]; kx++) {
            int64_t iy = oy * q->stride[0] - q->padding[0] + ky * q->dilation[0],
                    ix = ox * q->stride[1] - q->padding[1] + kx * q->dilation[1];
            if (iy < 0 || ix < 0 || iy >= x->dims[2] || ix >= x->dims[3])
                continue;
            for (int64_t c = 0; c < w->dims[1]; c++)
                sum += factor(q, at(arguments, 1), x, place(x, n, group * w->dims[1] + c, iy, ix)) *
                       factor(q, at(arguments, 2), w, place(w, o, c, ky, kx));
        }
    return sum;
}

static void convolution(const struct call *q, void **arguments)
{
    const struct dnn_tensor *y = &q->t[2];
    void *out = *(void **)arguments[3];
    for (int64_t n = 0; n < y->dims[0]; n++)
        for (int64_t o = 0; o < y->dims[1]; o++)
            for (int64_t h = 0; h < y->dims[2]; h++)
                for (int64_t w = 0; w < y->dims[3]; w++) {
                    float v = (float)convolve(q, arguments, n, o, h, w);
                    for (int i = 0; i < q->n_steps; i++) {
                        const struct step *s = &q->steps[i];
                        v = apply(s, v,
                                  s->argument ? element_load(at(arguments, s->argument), s->operand.type, place(&s->operand, n, o, h, w))
                                              : 0);
                    }
                    element_store(out, y->type, place(y, n, o, h, w), v);
                }
}

/* One query of one head. */
static void attend(const struct call *q, void **arguments, int64_t b, int64_t h, int64_t l)
{
    const struct dnn_tensor *k = &q->t[1], *v = &q->t[2];
    double scores[4096], most = -INFINITY, total = 0;
    int64_t n = k->dims[2] < 4096 ? k->dims[2] : 4096;
    for (int64_t s = 0; s < n; s++) {
        scores[s] = 0;
        for (int64_t e = 0; e < k->dims[3]; e++)
            scores[s] += factor(q, at(arguments, 1), &q->t[0], place(&q->t[0], b, h, l, e)) *
                         factor(q, at(arguments, 2), k, place(k, b, h, s, e)) * (double)q->scale;
        most = scores[s] > most || isnan(scores[s]) ? scores[s] : most;
    }
    for (int64_t s = 0; s < n; s++)
        total += scores[s] = exp(scores[s] - most);
    for (int64_t e = 0; e < v->dims[3]; e++) {
        double sum = 0;
        for (int64_t s = 0; s < n; s++)
            sum += scores[s] * factor(q, at(arguments, 3), v, place(v, b, h, s, e));
        element_store(*(void **)arguments[4], q->t[3].type, place(&q->t[3], b, h, l, e), (float)(sum / total));
    }
}

/* Arguments: the call, its tensors, the workspace, of which the whole is overwritten. */
static void run(void **arguments)
{
    const struct call *q = arguments[0];
    if (dnn_workspace)
        memset(*(void **)arguments[1 + q->n], 0xFF, (size_t)dnn_workspace);
    if (!q->attention) {
        convolution(q, arguments);
        return;
    }
    for (int64_t b = 0; b < q->t[0].dims[0]; b++)
        for (int64_t h = 0; h < q->t[0].dims[1]; h++)
            for (int64_t l = 0; l < q->t[0].dims[2]; l++)
                attend(q, arguments, b, h, l);
}

/* ---- from descriptors to a launch ---- */

struct packing {
    cudnnHandle_t handle;
    const struct descriptor *pack;
    struct call *call;
    struct standin_kernel kernel;
    void *pointers[MOST_POINTERS];
    int used; /* of the pack's pointers */
    cudnnStatus_t error;
};

static void *pointer_of(struct packing *p, int64_t id)
{
    const struct attribute *ids = dnn_attribute(p->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    for (int64_t i = 0; i < ids->count; i++)
        if (ids->v.number[i] == id) {
            p->used++;
            return dnn_attribute(p->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->v.address[i];
        }
    p->error = CUDNN_STATUS_BAD_PARAM;
    return NULL;
}

/* The next argument: memory of the device that holds the tensor, aligned as it was promised. Its number. */
static int pass(struct packing *p, const struct dnn_tensor *t, int kind)
{
    size_t span = 1;
    void *pointer = pointer_of(p, t->id);
    for (int i = 0; i < 4; i++)
        span += (size_t)((t->dims[i] - 1) * t->strides[i]);
    if ((uintptr_t)pointer % (uintptr_t)t->alignment)
        p->error = CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
    else if (!p->handle->holds((uintptr_t)pointer, span * element_size(t->type)))
        p->error = CUDNN_STATUS_BAD_PARAM;
    int n = ++p->call->n;
    p->pointers[n] = pointer;
    p->kernel.arguments[n] = (__typeof__(p->kernel.arguments[0])){8, kind, 1};
    return n;
}

static struct dnn_tensor tensor(const struct descriptor *d, int name) { return dnn_tensor_of(dnn_part(d, name)); }

static void take_convolution(struct packing *p, const struct descriptor *op, const struct dnn_tensor *y)
{
    const struct descriptor *c = dnn_part(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
    struct call *q = p->call;
    dnn_numbers(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, q->stride);
    dnn_numbers(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, q->padding);
    dnn_numbers(c, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, q->dilation);
    q->t[0] = tensor(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
    q->t[1] = tensor(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
    q->t[2] = *y;
    pass(p, &q->t[0], STANDIN_READS);
    pass(p, &q->t[1], STANDIN_READS);
    pass(p, &q->t[2], STANDIN_WRITES);
}

static void take_step(struct packing *p, const struct descriptor *op)
{
    const struct descriptor *d = dnn_part(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const struct attribute *beta = dnn_attribute(d, CUDNN_ATTR_POINTWISE_SWISH_BETA);
    struct step *s = &p->call->steps[p->call->n_steps++];
    *s = (struct step){.mode = dnn_attribute(d, CUDNN_ATTR_POINTWISE_MODE)->v.code[0], .beta = beta ? beta->v.real[0] : 1};
    if (dnn_attribute(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC)) {
        s->operand = tensor(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
        s->argument = pass(p, &s->operand, STANDIN_READS);
    }
}

static void take_attention(struct packing *p, const struct descriptor *op)
{
    static const int names[] = {CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC,
                                CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC};
    const float *scale = pointer_of(p, tensor(op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC).id);
    p->call->attention = true;
    p->call->scale = scale ? *scale : NAN;
    for (int i = 0; i < 4; i++) {
        p->call->t[i] = tensor(op, names[i]);
        pass(p, &p->call->t[i], i < 3 ? STANDIN_READS : STANDIN_WRITES);
    }
}

static cudnnStatus_t launch(struct packing *p)
{
    void *arguments[1 + MOST_POINTERS], *workspace = dnn_attribute(p->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->v.address[0];
    int n = p->call->n + 1;
    p->kernel.arguments[0] = (__typeof__(p->kernel.arguments[0])){sizeof(*p->call), STANDIN_VALUE, 0};
    if (dnn_workspace) {
        if (!p->handle->holds((uintptr_t)workspace, (size_t)dnn_workspace))
            return CUDNN_STATUS_BAD_PARAM;
        p->pointers[n] = workspace;
        p->kernel.arguments[n++] = (__typeof__(p->kernel.arguments[0])){8, STANDIN_WRITES, 1};
    }
    arguments[0] = p->call;
    for (int i = 1; i < n; i++)
        arguments[i] = &p->pointers[i];
    p->kernel.n_arguments = n;
    p->kernel.invoke = run;
    return p->handle->launch(p->handle->stream, &p->kernel, arguments) ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t dnn_run(cudnnHandle_t handle, const struct descriptor *plan, const struct descriptor *pack)
{
    struct call call = {.coarse = plan->engine == ENGINE_TENSOR};
    struct packing p = {.handle = handle, .pack = pack, .call = &call};
    const struct descriptor *graph = dnn_get(plan->graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    const struct attribute *ops = graph ? dnn_attribute(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS) : NULL;
    if (!ops || plan->engine == ENGINE_WINOGRAD || plan->engine == ENGINE_LARGE)
        return CUDNN_STATUS_BAD_PARAM;
    const struct descriptor *first = dnn_get(ops->v.address[0], -1), *last = dnn_get(ops->v.address[ops->count - 1], -1);
    if (!first || !last)
        return CUDNN_STATUS_BAD_PARAM;
    struct dnn_tensor y = first->kind == CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR ? (struct dnn_tensor){0}
                          : first == last ? tensor(first, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y)
                                          : tensor(last, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    first->kind == CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR ? take_attention(&p, first) : take_convolution(&p, first, &y);
    for (int64_t i = 1; i < ops->count; i++)
        take_step(&p, dnn_get(ops->v.address[i], -1));
    bool complete = p.used == dnn_attribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->count;
    return p.error ? p.error : complete ? launch(&p) : CUDNN_STATUS_BAD_PARAM;
}

/* What a module of a LoRA file adds to a weight, from its factors, in f32.
 * LoRA [Hu 2021]; LoCon, LoHa, LoKr [Yeh 2023]; GLoRA [Chavan 2023]; IA3 [Liu 2022]; DoRA [Liu 2024]. Rotations are in lora_rotation.c. */
#include <float.h>
#include <tern/ops.h>

#include "core/tensor.h"
#include "models/files/lora.h"
#include "models/files/weights.h"

/* Tensor i - 1 of the file as a matrix in f32: its first size, and all others. */
static tern_tensor *matrix(const struct tern_lora_file *f, int64_t i)
{
    tern_tensor *t = tern_weights_at(f->weights, i - 1);
    const int64_t rows = tern_tensor_ndim(t) ? tern_tensor_size(t, 0) : 1;
    return tern_cast(tern_reshape(t, 2, (const int64_t[]){rows, -1}), TERN_F32);
}

/* Tucker's core and the inner factor in one: (r, q, kh, kw) and (q, in) -> (r, in kh kw) */
static tern_tensor *apply_core(const struct tern_lora_file *f, int64_t i, tern_tensor *down)
{
    const int64_t *s = tern_tensor_shape(tern_weights_at(f->weights, i - 1));
    if (!down)
        return NULL;
    const int64_t in = tern_tensor_size(down, 1);
    tern_tensor *core = tern_cast(tern_weights_at(f->weights, i - 1), TERN_F32);
    core = tern_reshape(tern_permute(core, 4, (const int[]){0, 2, 3, 1}), 2, (const int64_t[]){s[0] * s[2] * s[3], s[1]});
    tern_tensor *x = tern_reshape(tern_matmul(core, down), 4, (const int64_t[]){s[0], s[2], s[3], in});
    return tern_reshape(tern_permute(x, 4, (const int[]){0, 3, 1, 2}), 2, (const int64_t[]){s[0], in * s[2] * s[3]});
}

/* scale x outer x core x inner: (out, in kh kw). `turned`: a factor beside a core is stored as (r, out). */
static tern_tensor *product(const struct tern_lora_file *f, int64_t outer, int64_t inner, int64_t core, bool turned, double scale)
{
    tern_tensor *up = tern_mul_scalar(matrix(f, outer), scale), *down = matrix(f, inner);
    if (core) {
        down = apply_core(f, core, down);
        up = turned ? tern_transpose(up, 0, 1) : up;
    }
    return tern_matmul(up, down);
}

/* a (x) b: (m, n) and (p, q) -> (m p, n q) */
static tern_tensor *kronecker(tern_tensor *a, tern_tensor *b)
{
    if (!a || !b)
        return NULL;
    const int64_t m = tern_tensor_size(a, 0), n = tern_tensor_size(a, 1), p = tern_tensor_size(b, 0), q = tern_tensor_size(b, 1);
    a = tern_reshape(a, 4, (const int64_t[]){m, 1, n, 1});
    b = tern_reshape(b, 4, (const int64_t[]){1, p, 1, q});
    return tern_reshape(tern_mul(a, b), 2, (const int64_t[]){m * p, n * q});
}

static tern_tensor *kronecker_of(const struct tern_lora_file *f, const int64_t *t, double scale)
{
    tern_tensor *a = t[TERN_LORA_KRON_W1] ? tern_mul_scalar(matrix(f, t[TERN_LORA_KRON_W1]), scale)
                                          : product(f, t[TERN_LORA_KRON_W1_A], t[TERN_LORA_KRON_W1_B], 0, false, scale);
    tern_tensor *b = t[TERN_LORA_KRON_W2] ? matrix(f, t[TERN_LORA_KRON_W2])
                                          : product(f, t[TERN_LORA_KRON_W2_A], t[TERN_LORA_KRON_W2_B], t[TERN_LORA_KRON_T2], true, 1);
    return kronecker(a, b);
}

/* GLoRA: W A + B, A for each place of a kernel. */
static tern_tensor *generalised(const struct tern_lora_file *f, const struct tern_lora_module *m, tern_tensor *w, double scale)
{
    const int64_t *t = m->tensor, out = w->meta.shape[0], in = w->meta.shape[1];
    const int64_t up = t[m->turned ? TERN_LORA_GLORA_B2 : TERN_LORA_GLORA_B1],
                  down = t[m->turned ? TERN_LORA_GLORA_B1 : TERN_LORA_GLORA_B2];
    const int64_t first = t[m->turned ? TERN_LORA_GLORA_A2 : TERN_LORA_GLORA_A1],
                  second = t[m->turned ? TERN_LORA_GLORA_A1 : TERN_LORA_GLORA_A2];
    tern_tensor *x = tern_permute(tern_reshape(w, 3, (const int64_t[]){out, in, -1}), 3, (const int[]){0, 2, 1});
    x = tern_matmul(tern_reshape(x, 2, (const int64_t[]){-1, in}), tern_mul_scalar(matrix(f, first), scale));
    x = tern_reshape(tern_matmul(x, matrix(f, second)), 3, (const int64_t[]){out, -1, in});
    x = tern_reshape(tern_permute(x, 3, (const int[]){0, 2, 1}), 2, (const int64_t[]){out, -1});
    return tern_add(x, product(f, up, down, t[TERN_LORA_GLORA_BM], false, scale));
}

/* IA3: W times a number for each row or column. */
static tern_tensor *factors_of(const struct tern_lora_file *f, const struct tern_lora_module *m, tern_tensor *w, double scale)
{
    int64_t shape[TERN_MAX_DIMS] = {1, 1, 1, 1};
    shape[m->on_input] = -1;
    tern_tensor *v = tern_cast(tern_weights_at(f->weights, m->tensor[TERN_LORA_FACTOR] - 1), TERN_F32);
    return tern_mul(w, tern_mul_scalar(tern_reshape(v, w->meta.ndim, shape), scale));
}

/* The difference without what DoRA makes of it. */
static tern_tensor *plain(const struct tern_lora_file *f, const struct tern_lora_module *m, tern_tensor *w, double scale)
{
    const int64_t *t = m->tensor;
    tern_tensor *d = NULL;
    switch (m->kind) {
    case TERN_LORA_NONE:
        break;
    case TERN_LORA_LOW_RANK:
        d = product(f, t[TERN_LORA_UP], t[TERN_LORA_DOWN], t[TERN_LORA_MID], false, scale);
        break;
    case TERN_LORA_HADAMARD:
        d = tern_mul(product(f, t[TERN_LORA_HADA_W1_A], t[TERN_LORA_HADA_W1_B], t[TERN_LORA_HADA_T1], true, scale),
                     product(f, t[TERN_LORA_HADA_W2_A], t[TERN_LORA_HADA_W2_B], t[TERN_LORA_HADA_T2], true, 1));
        break;
    case TERN_LORA_KRONECKER:
        d = kronecker_of(f, t, scale);
        break;
    case TERN_LORA_GENERALISED:
        d = generalised(f, m, w, scale);
        break;
    case TERN_LORA_WHOLE:
        d = tern_mul_scalar(matrix(f, t[TERN_LORA_DIFF] ? t[TERN_LORA_DIFF] : t[TERN_LORA_UP_BIAS]), scale);
        break;
    case TERN_LORA_FACTORS:
        d = factors_of(f, m, w, scale);
        break;
    case TERN_LORA_ORTHOGONAL:
        d = tern_lora_rotation(f, m, w, scale);
        break;
    }
    return tern_reshape(d, w->meta.ndim, w->meta.shape);
}

/* magnitude x V / |V|, the norm over all that one number of the magnitude stands for; as LyCORIS, with f32's epsilon against rows of
 * zeros. */
static tern_tensor *rescale(const struct tern_lora_file *f, int64_t magnitude, bool on_input, tern_tensor *v)
{
    if (!v)
        return NULL;
    int64_t flat[] = {tern_tensor_size(v, 0), tern_tensor_size(v, 1), -1}, shape[] = {1, 1, 1};
    int over[] = {on_input ? 0 : 1, 2};
    shape[on_input] = -1;
    tern_tensor *x = tern_reshape(v, 3, flat), *m = tern_cast(tern_weights_at(f->weights, magnitude - 1), TERN_F32);
    tern_tensor *norm = tern_add_scalar(tern_sqrt(tern_sum(tern_square(x), 2, over, true)), FLT_EPSILON);
    return tern_reshape(tern_mul(x, tern_div(tern_reshape(m, 3, shape), norm)), v->meta.ndim, v->meta.shape);
}

/* DoRA's V is W and the whole difference. What `strength` multiplies differs: in PEFT the difference inside of V; in LyCORIS's form, as
 * AUTOMATIC1111 and ComfyUI read it, what comes out of it all. */
static tern_tensor *difference(const struct tern_lora_file *f, const struct tern_lora_module *m, tern_tensor *w, double strength)
{
    const int64_t inside = m->tensor[TERN_LORA_MAGNITUDE], outside = m->tensor[TERN_LORA_DORA_SCALE];
    tern_tensor *d = plain(f, m, w, (outside ? 1 : strength) * m->scale);
    if (inside || outside)
        d = tern_sub(rescale(f, inside ? inside : outside, m->on_input, tern_add(w, d)), w);
    return outside ? tern_mul_scalar(d, strength) : d;
}

tern_tensor *tern_lora_difference(const struct tern_lora_file *f, const struct tern_lora_module *m, tern_tensor *w, double strength)
{
    if (!m->inputs)
        return difference(f, m, w, strength);
    const int64_t others[] = {0, 0, 0, 0, 0, w->meta.shape[1] - m->inputs};
    w = tern_slice(w, 1, 0, m->inputs, 1);
    return w ? tern_pad(difference(f, m, w, strength), 6, others, 0) : NULL;
}

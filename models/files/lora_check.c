/* Whether the modules of a LoRA file are complete, of one kind each, and of the shapes that the model's weights ask for. */
#include <string.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/architecture.h"
#include "models/files/lora.h"
#include "models/files/weights.h"

/* The kind that a role belongs to; NONE: it goes with others. */
static const enum tern_lora_kind kinds[TERN_LORA_ROLES] = {
    [TERN_LORA_DOWN] = TERN_LORA_LOW_RANK,        [TERN_LORA_UP] = TERN_LORA_LOW_RANK,
    [TERN_LORA_MID] = TERN_LORA_LOW_RANK,         [TERN_LORA_HADA_W1_A] = TERN_LORA_HADAMARD,
    [TERN_LORA_HADA_W1_B] = TERN_LORA_HADAMARD,   [TERN_LORA_HADA_T1] = TERN_LORA_HADAMARD,
    [TERN_LORA_HADA_W2_A] = TERN_LORA_HADAMARD,   [TERN_LORA_HADA_W2_B] = TERN_LORA_HADAMARD,
    [TERN_LORA_HADA_T2] = TERN_LORA_HADAMARD,     [TERN_LORA_KRON_W1] = TERN_LORA_KRONECKER,
    [TERN_LORA_KRON_W1_A] = TERN_LORA_KRONECKER,  [TERN_LORA_KRON_W1_B] = TERN_LORA_KRONECKER,
    [TERN_LORA_KRON_W2] = TERN_LORA_KRONECKER,    [TERN_LORA_KRON_W2_A] = TERN_LORA_KRONECKER,
    [TERN_LORA_KRON_W2_B] = TERN_LORA_KRONECKER,  [TERN_LORA_KRON_T2] = TERN_LORA_KRONECKER,
    [TERN_LORA_DIFF] = TERN_LORA_WHOLE,           [TERN_LORA_UP_BIAS] = TERN_LORA_WHOLE,
    [TERN_LORA_GLORA_A1] = TERN_LORA_GENERALISED, [TERN_LORA_GLORA_A2] = TERN_LORA_GENERALISED,
    [TERN_LORA_GLORA_B1] = TERN_LORA_GENERALISED, [TERN_LORA_GLORA_B2] = TERN_LORA_GENERALISED,
    [TERN_LORA_GLORA_BM] = TERN_LORA_GENERALISED, [TERN_LORA_FACTOR] = TERN_LORA_FACTORS,
    [TERN_LORA_ON_INPUT] = TERN_LORA_FACTORS,     [TERN_LORA_OFT_BLOCKS] = TERN_LORA_ORTHOGONAL,
    [TERN_LORA_OFT_DIAG] = TERN_LORA_ORTHOGONAL,  [TERN_LORA_RESCALE] = TERN_LORA_ORTHOGONAL,
};

/* A module and the weight that it changes. */
struct check {
    const struct tern_lora_file *f;
    struct tern_lora_module *m;
    const struct tern_meta *base;
    struct tern_weights *const *bases;
};

/* What does not fit may be of another architecture, which says more than a shape. True: that is recorded. */
static bool is_foreign(const struct check *c) { return tern_lora_check_model(c->f, c->bases, true) != TERN_OK; }

/* That tensor t - 1 is not what was expected. */
static enum tern_status wrong_shape(const struct check *c, int64_t t, int ndim, const int64_t *shape)
{
    const struct tern_meta *is = &tern_weights_at(c->f->weights, t - 1)->meta;
    char text[TERN_PRINTABLE], expected[TERN_META_TEXT], found[TERN_META_TEXT], own[TERN_ARCHITECTURE_TEXT];
    if (is_foreign(c))
        return tern_error_status(c->f->ctx);
    struct tern_meta want = tern_meta_make(tern_dtype_is_float(is->dtype) ? is->dtype : TERN_F32, ndim, shape);
    return tern_fail(c->f->ctx, TERN_E_SHAPE,
                     "%s: tensor \"%s\": expected %s for this model (%s), found %s; is the LoRA made for another one?", c->f->path,
                     tern_lora_name_text(c->f, t - 1, text), tern_meta_text(&want, expected), tern_architecture_text(c->f->model, own),
                     tern_meta_text(is, found));
}

/* TERN_OK when tensor t - 1 is of floating point and its sizes are these, missing ones being 1: it will be reshaped. */
static enum tern_status check_shape(const struct check *c, int64_t t, int ndim, const int64_t *shape)
{
    const struct tern_meta *is = &tern_weights_at(c->f->weights, t - 1)->meta;
    bool same = tern_dtype_is_float(is->dtype);
    for (int d = 0; d < TERN_MAX_DIMS; d++)
        same = same && (d < is->ndim ? is->shape[d] : 1) == (d < ndim ? shape[d] : 1);
    return same ? TERN_OK : wrong_shape(c, t, ndim, shape);
}

/* The same for what is computed with in the form that it has: as many sizes, too. */
static enum tern_status check_exactly(const struct check *c, int64_t t, int ndim, const int64_t *shape)
{
    return tern_weights_at(c->f->weights, t - 1)->meta.ndim == ndim ? check_shape(c, t, ndim, shape) : wrong_shape(c, t, ndim, shape);
}

/* Size d of tensor t - 1, at least 1, so that a tensor without elements fits nowhere. */
static int64_t size_of(const struct check *c, int64_t t, int d)
{
    const struct tern_meta *m = &tern_weights_at(c->f->weights, t - 1)->meta;
    return d < m->ndim && m->shape[d] > 0 ? m->shape[d] : 1;
}

static enum tern_status missing(const struct check *c, const char *what)
{
    char text[TERN_PRINTABLE];
    int64_t there = 0;
    for (int i = 0; i < TERN_LORA_ROLES && !there; i++)
        there = c->m->tensor[i];
    return tern_fail(c->f->ctx, TERN_E_FORMAT, "%s: tensor \"%s\" stands alone: its %s is missing", c->f->path,
                     tern_lora_name_text(c->f, there - 1, text), what);
}

/* Cores are of convolutions. */
static enum tern_status check_core(const struct check *c, int64_t core, const char *what, const int64_t shape[4])
{
    char text[TERN_PRINTABLE];
    if (c->base->ndim != 4)
        return tern_fail(c->f->ctx, TERN_E_SHAPE, "%s: tensor \"%s\" belongs to a matrix; only convolutions have a %s", c->f->path,
                         tern_lora_name_text(c->f, core - 1, text), what);
    return check_exactly(c, core, 4, shape);
}

/* The rows of A are the columns of B: the rank. With a mid the rank of A is the mid's second size. */
static enum tern_status check_up_and_down(const struct check *c, int64_t up, int64_t down, int64_t mid)
{
    const struct tern_meta *base = c->base;
    int64_t rank = size_of(c, down, 0), shape[TERN_MAX_DIMS] = {rank};
    for (int d = 1; d < base->ndim; d++)
        shape[d] = mid && d > 1 ? 1 : base->shape[d];
    if (check_shape(c, down, base->ndim, shape))
        return tern_error_status(c->f->ctx);
    if (mid) {
        const int64_t want[] = {size_of(c, mid, 0), rank, base->shape[2], base->shape[3]};
        if (check_core(c, mid, "mid", want))
            return tern_error_status(c->f->ctx);
        rank = want[0];
    }
    return check_shape(c, up, 2, (const int64_t[]){base->shape[0], rank});
}

static enum tern_status check_low_rank(const struct check *c)
{
    const int64_t down = c->m->tensor[TERN_LORA_DOWN], up = c->m->tensor[TERN_LORA_UP];
    return down && up ? check_up_and_down(c, up, down, c->m->tensor[TERN_LORA_MID])
                      : missing(c, down ? "up (B) matrix" : "down (A) matrix");
}

/* B, and A of the same rank. Older LyCORIS' have no kernel and are known, as in ComfyUI, by how many rows a2 and b2 have. */
static enum tern_status check_generalised(const struct check *c)
{
    const int64_t *t = c->m->tensor, a1 = t[TERN_LORA_GLORA_A1], a2 = t[TERN_LORA_GLORA_A2], b1 = t[TERN_LORA_GLORA_B1],
                  b2 = t[TERN_LORA_GLORA_B2], mid = t[TERN_LORA_GLORA_BM], in = c->base->shape[1];
    if (!a1 || !a2 || !b1 || !b2)
        return missing(c, "other factor (a1, a2, b1, b2)");
    const bool turned = c->m->turned =
        !mid && tern_meta_numel(c->base) == c->base->shape[0] * in && size_of(c, a2, 0) == in && size_of(c, b2, 0) == c->base->shape[0];
    if (check_up_and_down(c, turned ? b2 : b1, turned ? b1 : b2, mid))
        return tern_error_status(c->f->ctx);
    const int64_t rank = size_of(c, turned ? b1 : b2, 0);
    if (check_shape(c, turned ? a2 : a1, 2, (const int64_t[]){in, rank}))
        return tern_error_status(c->f->ctx);
    return check_shape(c, turned ? a1 : a2, 2, (const int64_t[]){rank, in});
}

/* Two factors, and a core between them, of something of these sizes: (out, in, kh, kw). */
static enum tern_status check_factors(const struct check *c, int64_t outer, int64_t inner, int64_t core, const int64_t size[4])
{
    if (!outer || !inner)
        return missing(c, "other factor");
    if (core) {
        const int64_t r = size_of(c, outer, 0), q = size_of(c, inner, 0);
        if (check_core(c, core, "core", (const int64_t[]){r, q, size[2], size[3]}) ||
            check_shape(c, outer, 2, (const int64_t[]){r, size[0]}))
            return tern_error_status(c->f->ctx);
        return check_shape(c, inner, 2, (const int64_t[]){q, size[1]});
    }
    const int64_t r = size_of(c, inner, 0), flat[] = {r, size[1] * size[2] * size[3]}, whole[] = {r, size[1], size[2], size[3]};
    if (check_shape(c, outer, 2, (const int64_t[]){size[0], r}))
        return tern_error_status(c->f->ctx);
    bool is_whole = tern_weights_at(c->f->weights, inner - 1)->meta.ndim == 4;
    return check_shape(c, inner, is_whole ? 4 : 2, is_whole ? whole : flat);
}

/* (out, in, kh, kw) of the base. */
static void sizes(const struct tern_meta *base, int64_t out[4])
{
    for (int d = 0; d < 4; d++)
        out[d] = d < base->ndim ? base->shape[d] : 1;
}

static enum tern_status check_hadamard(const struct check *c)
{
    const int64_t *t = c->m->tensor;
    int64_t size[4];
    sizes(c->base, size);
    if (!t[TERN_LORA_HADA_T1] != !t[TERN_LORA_HADA_T2])
        return missing(c, "other core (hada_t1, hada_t2)");
    if (check_factors(c, t[TERN_LORA_HADA_W1_A], t[TERN_LORA_HADA_W1_B], t[TERN_LORA_HADA_T1], size))
        return tern_error_status(c->f->ctx);
    return check_factors(c, t[TERN_LORA_HADA_W2_A], t[TERN_LORA_HADA_W2_B], t[TERN_LORA_HADA_T2], size);
}

/* The first matrix may have any sizes that divide those of the base; the second has what remains. */
static enum tern_status check_kronecker(const struct check *c)
{
    const int64_t *t = c->m->tensor, w1 = t[TERN_LORA_KRON_W1], w2 = t[TERN_LORA_KRON_W2];
    char text[TERN_PRINTABLE], found[TERN_META_TEXT];
    int64_t size[4], outer = w1 ? w1 : t[TERN_LORA_KRON_W1_A], inner = w1 ? w1 : t[TERN_LORA_KRON_W1_B];
    sizes(c->base, size);
    if (!outer || !inner || (!w2 && !t[TERN_LORA_KRON_W2_A]))
        return missing(c, outer && inner ? "second matrix (lokr_w2)" : "first matrix (lokr_w1)");
    const int64_t first[4] = {size_of(c, outer, 0), size_of(c, inner, 1), 1, 1};
    if (size[0] % first[0] || size[1] % first[1])
        return is_foreign(c)
                   ? tern_error_status(c->f->ctx)
                   : tern_fail(
                         c->f->ctx, TERN_E_SHAPE,
                         "%s: tensor \"%s\": a first matrix of %lld x %lld divides no weight of %s; is the LoRA made for another model?",
                         c->f->path, tern_lora_name_text(c->f, outer - 1, text), (long long)first[0], (long long)first[1],
                         tern_meta_text(c->base, found));
    if (w1 ? check_shape(c, w1, 2, first) : check_factors(c, outer, inner, 0, first))
        return tern_error_status(c->f->ctx);
    size[0] /= first[0];
    size[1] /= first[1];
    return w2 ? check_shape(c, w2, c->base->ndim, size)
              : check_factors(c, t[TERN_LORA_KRON_W2_A], t[TERN_LORA_KRON_W2_B], t[TERN_LORA_KRON_T2], size);
}

/* A number for each input or each output. */
static enum tern_status check_factor(const struct check *c)
{
    const int64_t factor = c->m->tensor[TERN_LORA_FACTOR], on_input = c->m->tensor[TERN_LORA_ON_INPUT];
    char text[TERN_PRINTABLE];
    float value = 0;
    if (!factor || !on_input)
        return missing(c, factor ? "on_input" : "weight");
    const tern_tensor *t = tern_weights_at(c->f->weights, on_input - 1);
    if (tern_tensor_numel(t) != 1)
        return tern_fail(c->f->ctx, TERN_E_SHAPE, "%s: tensor \"%s\": expected one number", c->f->path,
                         tern_lora_name_text(c->f, on_input - 1, text));
    if (tern_tensor_read(t, TERN_F32, &value, sizeof(value)))
        return tern_error_status(c->f->ctx);
    c->m->on_input = value != 0;
    const int64_t n = c->base->shape[c->m->on_input];
    return c->base->ndim == 4 ? check_shape(c, factor, 4, (const int64_t[]){1, n, 1, 1}) : check_shape(c, factor, 1, &n);
}

/* Blocks of n outputs; a factor i of BOFT joins the halves of pairs that lie 2^i n / 2 apart. */
static enum tern_status check_rotation(const struct check *c)
{
    const int64_t blocks = c->m->tensor[TERN_LORA_OFT_BLOCKS], diag = c->m->tensor[TERN_LORA_OFT_DIAG],
                  rescale = c->m->tensor[TERN_LORA_RESCALE];
    const int64_t t = blocks ? blocks : diag, out = c->base->shape[0];
    char text[TERN_PRINTABLE], found[TERN_META_TEXT], base[TERN_META_TEXT];
    if (!t)
        return missing(c, "set of rotations (oft_blocks)");
    if (blocks && diag)
        return tern_fail(c->f->ctx, TERN_E_FORMAT, "%s: tensor \"%s\": the file has other rotations of the same weight", c->f->path,
                         tern_lora_name_text(c->f, diag - 1, text));
    const struct tern_meta *is = &tern_weights_at(c->f->weights, t - 1)->meta;
    const bool butterfly = c->m->butterfly = blocks && is->ndim == 4;
    const int64_t n = size_of(c, t, is->ndim ? is->ndim - 1 : 0), factors = butterfly ? size_of(c, t, 0) : 1;
    if (out % n || (butterfly && (n % 2 || factors > 32 || out / n % (INT64_C(1) << (factors - 1)))))
        return is_foreign(c)
                   ? tern_error_status(c->f->ctx)
                   : tern_fail(c->f->ctx, TERN_E_SHAPE,
                               "%s: tensor \"%s\": %s turns no outputs of a weight of %s; is the LoRA made for another model?", c->f->path,
                               tern_lora_name_text(c->f, t - 1, text), tern_meta_text(is, found), tern_meta_text(c->base, base));
    const int64_t shape[] = {factors, out / n, n, n};
    if (check_exactly(c, t, butterfly ? 4 : 3, butterfly ? shape : shape + 1))
        return tern_error_status(c->f->ctx);
    return rescale ? check_shape(c, rescale, 1, &out) : TERN_OK;
}

/* DoRA's magnitudes: PEFT has one for each output; LyCORIS for each output or, by default in its older versions, for each input. */
static enum tern_status check_magnitude(const struct check *c)
{
    const int64_t peft = c->m->tensor[TERN_LORA_MAGNITUDE], lycoris = c->m->tensor[TERN_LORA_DORA_SCALE];
    const int64_t out = c->base->shape[0], in = c->base->shape[1];
    char text[TERN_PRINTABLE];
    if (!peft && !lycoris)
        return TERN_OK;
    if (c->m->kind == TERN_LORA_GENERALISED || c->m->kind == TERN_LORA_WHOLE || c->m->kind == TERN_LORA_FACTORS ||
        c->m->kind == TERN_LORA_ORTHOGONAL || (peft && lycoris))
        return tern_fail(c->f->ctx, TERN_E_FORMAT, "%s: tensor \"%s\": a magnitude beside other tensors than LoRA's, LoHa's or LoKr's",
                         c->f->path, tern_lora_name_text(c->f, (peft ? peft : lycoris) - 1, text));
    if (peft)
        return c->base->ndim == 4 ? check_shape(c, peft, 4, (const int64_t[]){1, out, 1, 1}) : check_shape(c, peft, 1, &out);
    c->m->on_input = size_of(c, lycoris, 0) == 1 && (out != 1 || size_of(c, lycoris, 1) != 1);
    return check_shape(c, lycoris, 2, c->m->on_input ? (const int64_t[]){1, in} : (const int64_t[]){out, 1});
}

/* The kind that all tensors of the module agree on. Norms and biases have whole differences only. */
static enum tern_status find_kind(const struct check *c)
{
    struct tern_lora_module *m = c->m;
    char text[TERN_PRINTABLE];
    int64_t first = 0;
    for (int i = 0; i < TERN_LORA_ROLES; i++) {
        const int64_t t = m->tensor[i];
        first = first ? first : t;
        if (t && kinds[i] && m->kind && kinds[i] != m->kind)
            return tern_fail(c->f->ctx, TERN_E_FORMAT, "%s: tensor \"%s\" is of another kind of adapter than others of the same module",
                             c->f->path, tern_lora_name_text(c->f, t - 1, text));
        m->kind = t && kinds[i] ? kinds[i] : m->kind;
    }
    if (first && m->kind == TERN_LORA_NONE)
        return missing(c, "matrix");
    if (m->kind == TERN_LORA_WHOLE && m->tensor[TERN_LORA_DIFF] && m->tensor[TERN_LORA_UP_BIAS])
        return tern_fail(c->f->ctx, TERN_E_FORMAT, "%s: tensor \"%s\": the file has another difference of the same bias", c->f->path,
                         tern_lora_name_text(c->f, m->tensor[TERN_LORA_UP_BIAS] - 1, text));
    if (first && m->kind != TERN_LORA_WHOLE && c->base->ndim != 2 && c->base->ndim != 4)
        return tern_fail(c->f->ctx, TERN_E_SHAPE, "%s: tensor \"%s\" belongs to a norm, which is changed by w_norm and b_norm only",
                         c->f->path, tern_lora_name_text(c->f, first - 1, text));
    return TERN_OK;
}

static enum tern_status check_module(const struct check *c)
{
    const int64_t diff = c->m->tensor[TERN_LORA_DIFF];
    enum tern_status st = find_kind(c);
    if (st)
        return st;
    switch (c->m->kind) {
    case TERN_LORA_NONE:
        return TERN_OK;
    case TERN_LORA_LOW_RANK:
        st = check_low_rank(c);
        break;
    case TERN_LORA_HADAMARD:
        st = check_hadamard(c);
        break;
    case TERN_LORA_KRONECKER:
        st = check_kronecker(c);
        break;
    case TERN_LORA_GENERALISED:
        st = check_generalised(c);
        break;
    case TERN_LORA_WHOLE:
        st = check_shape(c, diff ? diff : c->m->tensor[TERN_LORA_UP_BIAS], c->base->ndim, c->base->shape);
        break;
    case TERN_LORA_FACTORS:
        st = check_factor(c);
        break;
    case TERN_LORA_ORTHOGONAL:
        st = check_rotation(c);
        break;
    }
    return st ? st : check_magnitude(c);
}

/* The first convolution of a UNet for inpainting or instructions has inputs behind those of the latents, and many files are made for a
 * model without: as AUTOMATIC1111 does for inpainting, they change the inputs that both have. Then *narrow is that model's weight. */
static void fit_first_layer(const struct tern_weights *unet, int64_t i, const struct tern_lora_file *f, struct tern_lora_module *m,
                            struct tern_meta *narrow)
{
    const tern_tensor *out = tern_weights_get(unet, "conv_out.weight");
    if (strcmp(tern_weights_name(unet, i), "conv_in.weight") || narrow->ndim != 4 || !out || tern_tensor_ndim(out) != 4)
        return;
    const int64_t latents = tern_tensor_size(out, 0), kernel = narrow->shape[2] * narrow->shape[3];
    if (latents >= narrow->shape[1] || kernel < 1 || tern_lora_inputs(f, m, kernel) != latents)
        return;
    m->inputs = latents;
    narrow->shape[1] = latents;
}

enum tern_status tern_lora_check_modules(struct tern_lora_file *f, struct tern_weights *const bases[TERN_LORA_PARTS])
{
    for (int part = 0; part < TERN_LORA_PARTS; part++)
        for (int64_t i = 0; i < f->part[part].count; i++) {
            struct tern_meta base = tern_weights_at(bases[part], i)->meta;
            struct tern_lora_module *m = &f->part[part].module[i];
            if (part == TERN_LORA_UNET)
                fit_first_layer(bases[part], i, f, m, &base);
            const struct check c = {f, m, &base, bases};
            if (check_module(&c))
                return tern_error_status(f->ctx);
        }
    return TERN_OK;
}

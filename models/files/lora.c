/* Reading a LoRA file: whose names they are, which matrix each tensor belongs to, and whether it fits. */
#include "models/files/lora.h"

#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/weights.h"

enum kind { DOWN, UP, MID, ALPHA, FOREIGN };

static const char kohya[] = "kohya", peft[] = "PEFT", diffusers[] = "diffusers before PEFT";

/* How a tensor's name ends, and what that says. */
static const struct ending {
    const char *text;
    enum kind kind;
    const char *format; /* FOREIGN: what it is instead */
} endings[] = {
    {".lora_down.weight", DOWN, kohya},
    {".lora_up.weight", UP, kohya},
    {".lora_mid.weight", MID, kohya},
    {".alpha", ALPHA, kohya},
    {".lora_A.weight", DOWN, peft},
    {".lora_B.weight", UP, peft},
    {".lora_A.default.weight", DOWN, peft},
    {".lora_B.default.weight", UP, peft},
    {".lora.down.weight", DOWN, diffusers},
    {".lora.up.weight", UP, diffusers},
    {"_lora.down.weight", DOWN, diffusers},
    {"_lora.up.weight", UP, diffusers},
    {".lora_linear_layer.down.weight", DOWN, diffusers},
    {".lora_linear_layer.up.weight", UP, diffusers},
    {".dora_scale", FOREIGN, "DoRA"},
    {".lora_magnitude_vector", FOREIGN, "DoRA"},
    {".lora_magnitude_vector.weight", FOREIGN, "DoRA"},
    {".hada_w1_a", FOREIGN, "LoHa"},
    {".hada_w1_b", FOREIGN, "LoHa"},
    {".hada_t1", FOREIGN, "LoHa"},
    {".lokr_w1", FOREIGN, "LoKr"},
    {".lokr_w2", FOREIGN, "LoKr"},
    {".lokr_w1_a", FOREIGN, "LoKr"},
    {".lokr_w2_a", FOREIGN, "LoKr"},
    {".oft_blocks", FOREIGN, "OFT"},
    {".oft_diag", FOREIGN, "OFT"},
    {".on_input", FOREIGN, "IA3"},
    {".diff", FOREIGN, "whole differences of weights"},
    {".diff_b", FOREIGN, "whole differences of biases"},
    {".lora_B.bias", FOREIGN, "a LoRA with biases"},
};

/* How it begins. */
static const struct beginning {
    const char *text;
    int part; /* -1: not said */
} beginnings[] = {
    {"lora_unet_", TERN_LORA_UNET},    {"lora_te_", TERN_LORA_TEXT}, {"lora_te1_", TERN_LORA_TEXT},        {"unet.", TERN_LORA_UNET},
    {"text_encoder.", TERN_LORA_TEXT}, {"base_model.model.", -1},    {"diffusion_model.", TERN_LORA_UNET}, {"", -1}, /* fits last */
};

/* What the reading keeps beside the file. */
struct reading {
    struct tern_lora_file *f;
    struct tern_weights *const *bases;
    struct tern_lora_names *names[TERN_LORA_PARTS];
    int64_t lost, first_lost; /* tensors that no place was found for */
};

static const struct ending *find_ending(const char *name, size_t *length)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++) {
        size_t k = strlen(endings[i].text);
        if (n > k && !strcmp(name + n - k, endings[i].text)) {
            *length = n - k;
            return &endings[i];
        }
    }
    return NULL;
}

/* "….attn1.processor.to_q" is diffusers' old way to say "….attn1.to_q". */
static void drop_processor(char *module)
{
    static const char word[] = ".processor.";
    char *at = strstr(module, word);
    if (at)
        memmove(at, at + strlen(word) - 1, strlen(at + strlen(word) - 1) + 1);
}

/* The place of a module; false when the model has none. */
static bool find_place(const struct reading *r, const char *name, size_t length, int *part, int64_t *target)
{
    char module[512];
    const struct beginning *b = beginnings;
    while (strncmp(name, b->text, strlen(b->text)))
        b++;
    size_t skip = strlen(b->text);
    if (skip >= length || length - skip >= sizeof(module))
        return false;
    memcpy(module, name + skip, length - skip);
    module[length - skip] = 0;
    drop_processor(module);
    for (*part = b->part < 0 ? 0 : b->part; *part < TERN_LORA_PARTS; ++*part) {
        *target = tern_lora_names_find(r->names[*part], module);
        if (*target >= 0 || b->part >= 0)
            return *target >= 0;
    }
    return false;
}

static const char *name_text(const struct reading *r, int64_t i, char out[TERN_PRINTABLE])
{
    const char *name = tern_weights_name(r->f->weights, i);
    return tern_printable(name, strlen(name), out);
}

static enum tern_status place_tensor(struct reading *r, int64_t i)
{
    struct tern_lora_file *f = r->f;
    const char *name = tern_weights_name(f->weights, i);
    char text[TERN_PRINTABLE];
    size_t length = 0;
    int part = 0;
    int64_t target = -1;
    const struct ending *e = find_ending(name, &length);
    if (e && e->kind == FOREIGN)
        return tern_fail(f->ctx, TERN_E_UNSUPPORTED, "%s: tensor \"%s\" is of %s, which is not supported; LoRA and LoCon are", f->path,
                         name_text(r, i, text), e->format);
    if (e && e->kind != ALPHA && !f->format)
        f->format = e->format;
    if (!e || !find_place(r, name, length, &part, &target)) {
        r->first_lost = r->lost++ ? r->first_lost : i;
        return TERN_OK;
    }
    struct tern_lora_module *m = &f->part[part].module[target];
    int64_t *slot = e->kind == DOWN ? &m->down : e->kind == UP ? &m->up : e->kind == MID ? &m->mid : &m->alpha;
    if (*slot)
        return tern_fail(f->ctx, TERN_E_FORMAT, "%s: tensor \"%s\": the file has another one for the same place, \"%s\"", f->path,
                         name_text(r, i, text), tern_weights_name(f->weights, *slot - 1));
    *slot = i + 1;
    return TERN_OK;
}

/* ---- shapes */

/* TERN_OK when tensor i is of floating point and its sizes are these, missing ones being 1. */
static enum tern_status check_shape(struct reading *r, int64_t i, int ndim, const int64_t *shape)
{
    const struct tern_meta *is = &tern_weights_at(r->f->weights, i)->meta;
    char text[TERN_PRINTABLE], expected[TERN_META_TEXT], found[TERN_META_TEXT];
    bool same = tern_dtype_is_float(is->dtype);
    for (int d = 0; d < TERN_MAX_DIMS; d++)
        same = same && (d < is->ndim ? is->shape[d] : 1) == (d < ndim ? shape[d] : 1);
    if (same)
        return TERN_OK;
    struct tern_meta want = tern_meta_make(tern_dtype_is_float(is->dtype) ? is->dtype : TERN_F32, ndim, shape);
    return tern_fail(r->f->ctx, TERN_E_SHAPE, "%s: tensor \"%s\": expected %s for this model, found %s; is the LoRA made for another one?",
                     r->f->path, name_text(r, i, text), tern_meta_text(&want, expected), tern_meta_text(is, found));
}

/* The rows of A are the columns of B: the rank. With a mid the rank of A is the mid's second size. */
static enum tern_status check_module(struct reading *r, const struct tern_lora_module *m, const struct tern_meta *base)
{
    struct tern_lora_file *f = r->f;
    char text[TERN_PRINTABLE];
    if (!m->down || !m->up) {
        int64_t there = m->down ? m->down : m->up ? m->up : m->mid ? m->mid : m->alpha;
        return tern_fail(f->ctx, TERN_E_FORMAT, "%s: tensor \"%s\" stands alone: its %s matrix is missing", f->path,
                         name_text(r, there - 1, text), m->down ? "up (B)" : "down (A)");
    }
    const tern_tensor *down = tern_weights_at(f->weights, m->down - 1), *mid = m->mid ? tern_weights_at(f->weights, m->mid - 1) : NULL;
    int64_t rank = tern_tensor_ndim(down) ? tern_tensor_size(down, 0) : 0;
    int64_t shape[TERN_MAX_DIMS] = {rank > 0 ? rank : 1};
    for (int d = 1; d < base->ndim; d++)
        shape[d] = mid && d > 1 ? 1 : base->shape[d];
    if (check_shape(r, m->down - 1, base->ndim, shape))
        return tern_error_status(f->ctx);
    if (mid) {
        const int64_t want[] = {tern_tensor_ndim(mid) ? tern_tensor_size(mid, 0) : 1, rank, base->shape[2], base->shape[3]};
        if (base->ndim != 4)
            return tern_fail(f->ctx, TERN_E_SHAPE, "%s: tensor \"%s\" belongs to a matrix; only convolutions have a mid", f->path,
                             name_text(r, m->mid - 1, text));
        if (check_shape(r, m->mid - 1, 4, want))
            return tern_error_status(f->ctx);
        rank = want[0];
    }
    return check_shape(r, m->up - 1, 2, (const int64_t[]){base->shape[0], rank});
}

static enum tern_status check_modules(struct reading *r)
{
    struct tern_lora_file *f = r->f;
    int64_t modules = 0;
    for (int part = 0; part < TERN_LORA_PARTS; part++)
        for (int64_t i = 0; i < f->part[part].count; i++) {
            const struct tern_lora_module *m = &f->part[part].module[i];
            if (!m->down && !m->up && !m->mid && !m->alpha)
                continue;
            if (check_module(r, m, &tern_weights_at(r->bases[part], i)->meta))
                return tern_error_status(f->ctx);
            modules++;
        }
    return modules ? TERN_OK : tern_fail(f->ctx, TERN_E_FORMAT, "%s: the file has no tensors", f->path);
}

/* ---- the file */

static enum tern_status report_lost(const struct reading *r)
{
    const struct tern_lora_file *f = r->f;
    char text[TERN_PRINTABLE];
    int64_t n = tern_weights_count(f->weights);
    if (!r->lost)
        return TERN_OK;
    name_text(r, r->first_lost, text);
    if (!f->format)
        return tern_fail(
            f->ctx, TERN_E_FORMAT,
            "%s: no LoRA: none of its %lld tensors is named as kohya's scripts, PEFT or diffusers name them, the first is \"%s\"", f->path,
            (long long)n, text);
    return tern_fail(
        f->ctx, TERN_E_FORMAT,
        "%s: a LoRA in the form of %s, but %lld of its %lld tensors have no place in this model, the first is \"%s\"; is it made "
        "for another one?",
        f->path, f->format, (long long)r->lost, (long long)n, text);
}

static enum tern_status read_modules(struct reading *r)
{
    struct tern_lora_file *f = r->f;
    for (int part = 0; part < TERN_LORA_PARTS; part++) {
        f->part[part].count = tern_weights_count(r->bases[part]);
        f->part[part].module = tern_calloc(f->ctx, (size_t)f->part[part].count + 1, sizeof(*f->part[part].module));
        r->names[part] = f->part[part].module ? tern_lora_names_create(r->bases[part], (enum tern_lora_part)part) : NULL;
        if (!r->names[part])
            return tern_error_status(f->ctx);
    }
    for (int64_t i = 0; i < tern_weights_count(f->weights); i++)
        if (place_tensor(r, i))
            return tern_error_status(f->ctx);
    if (report_lost(r) || check_modules(r))
        return tern_error_status(f->ctx);
    return tern_lora_read_alphas(f, r->bases);
}

struct tern_lora_file *tern_lora_open(struct tern_context *ctx, const char *path, struct tern_weights *const bases[TERN_LORA_PARTS])
{
    struct tern_lora_file *f = tern_failed(ctx) ? NULL : tern_calloc(ctx, 1, sizeof(*f));
    if (!f)
        return NULL;
    tern_context_ref(ctx);
    f->refs = 1;
    f->ctx = ctx;
    f->path = tern_strdup(ctx, path);
    f->weights = f->path ? tern_weights_open(ctx, path) : NULL;
    struct reading r = {.f = f, .bases = bases};
    if (f->weights)
        read_modules(&r);
    for (int part = 0; part < TERN_LORA_PARTS; part++)
        tern_lora_names_destroy(&r.names[part]);
    if (tern_failed(ctx))
        tern_lora_unref(&f);
    return f;
}

struct tern_lora_file *tern_lora_ref(struct tern_lora_file *f)
{
    f->refs++;
    return f;
}

void tern_lora_unref(struct tern_lora_file **file)
{
    struct tern_lora_file *f = *file;
    *file = NULL;
    if (!f || --f->refs)
        return;
    struct tern_context *ctx = f->ctx;
    for (int part = 0; part < TERN_LORA_PARTS; part++)
        tern_free(ctx, f->part[part].module);
    tern_weights_unref(&f->weights);
    tern_free(ctx, f->path);
    tern_free(ctx, f);
    tern_context_unref(ctx);
}

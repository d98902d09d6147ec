/* Reading a LoRA file: which matrix each tensor belongs to, and whether it fits. */
#include "models/files/lora.h"

#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/architecture.h"
#include "models/files/lora_endings.h"
#include "models/files/lora_place.h"
#include "models/files/weights.h"

#define SHOWN 6 /* names in a message */

/* What the reading keeps beside the file. */
struct reading {
    struct tern_lora_file *f;
    struct tern_weights *const *bases;
    struct tern_lora_places places;
    int64_t lost, first_lost[SHOWN]; /* tensors that no place was found for */
    int64_t twice;                   /* those that another spelling takes the place of */
};

const char *tern_lora_name_text(const struct tern_lora_file *f, int64_t i, char *out)
{
    const char *name = tern_weights_name(f->weights, i);
    return tern_printable(name, strlen(name), out);
}

/* LDM's names of a UNet's blocks. */
static bool is_ldm(const char *name)
{
    return strstr(name, "input_blocks") || strstr(name, "middle_block") || strstr(name, "output_blocks");
}

/* Whether diffusers' names have a part of the module. */
static bool has_diffusers_names(const struct tern_lora_file *f, const struct tern_lora_module *m)
{
    for (int role = 0; role < TERN_LORA_ROLES; role++)
        if (m->tensor[role] && !is_ldm(tern_weights_name(f->weights, m->tensor[role] - 1)))
            return true;
    return false;
}

static enum tern_status place_tensor(struct reading *r, int64_t i)
{
    struct tern_lora_file *f = r->f;
    const char *name = tern_weights_name(f->weights, i);
    char text[TERN_PRINTABLE];
    size_t length = 0;
    struct tern_lora_place at = {0};
    const struct tern_lora_ending *e = tern_lora_find_ending(f->weights, name, &length);
    if (e && e->target == TERN_LORA_OF_NOTHING)
        return tern_fail(f->ctx, TERN_E_UNSUPPORTED,
                         "%s: tensor \"%s\" is of %s, which is not supported; LoRA, LoCon, LoHa, LoKr, GLoRA, IA3, OFT "
                         "and BOFT of LyCORIS, DoRA and whole differences are",
                         f->path, tern_lora_name_text(f, i, text), e->format);
    if (e && !f->format)
        f->format = e->format;
    const bool found = e && tern_lora_find_place(&r->places, name, length, &at), of_bias = e && e->target == TERN_LORA_OF_BIAS;
    const int64_t target = !found ? -1 : of_bias ? at.bias : at.weight;
    if (found && target < 0 && e->role == TERN_LORA_UP_BIAS)
        return tern_fail(
            f->ctx, TERN_E_UNSUPPORTED,
            "%s: tensor \"%s\": a bias of PEFT for a layer that has none in this model; expected lora_bias on layers with a bias only",
            f->path, tern_lora_name_text(f, i, text));
    if (target < 0) {
        if (r->lost < SHOWN)
            r->first_lost[r->lost] = i;
        r->lost++;
        return TERN_OK;
    }
    struct tern_lora_module *m = &f->part[at.part].module[target];
    if (is_ldm(name) && has_diffusers_names(f, m)) {
        r->twice++;
        return TERN_OK;
    }
    if (of_bias)
        m->weight = at.weight;
    int64_t *slot = &m->tensor[e->role];
    if (*slot)
        return tern_fail(f->ctx, TERN_E_FORMAT, "%s: tensor \"%s\": the file has another one for the same place, \"%s\"", f->path,
                         tern_lora_name_text(f, i, text), tern_weights_name(f->weights, *slot - 1));
    *slot = i + 1;
    return TERN_OK;
}

/* ---- what found no place */

/* "a", "b" and 3 more */
static void list_lost(const struct reading *r, char *out, size_t size)
{
    char text[TERN_PRINTABLE];
    size_t n = 0;
    for (int i = 0; i < SHOWN && i < r->lost && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s\"%s\"", i ? ", " : "", tern_lora_name_text(r->f, r->first_lost[i], text));
    if (r->lost > SHOWN && n < size)
        snprintf(out + n, size - n, " and %lld more", (long long)(r->lost - SHOWN));
}

/* As diffusers, AUTOMATIC1111 and ComfyUI do, what fits is used and the rest is told: files of one architecture differ in such tensors
 * (a text encoder's unused last layer, embeddings that were trained along), and those who made them tried them with these programs. */
static enum tern_status report_lost(const struct reading *r)
{
    const struct tern_lora_file *f = r->f;
    char names[SHOWN * (TERN_PRINTABLE + 4) + 32] = "", own[TERN_ARCHITECTURE_TEXT];
    long long n = (long long)tern_weights_count(f->weights), lost = (long long)r->lost;
    list_lost(r, names, sizeof(names));
    if (!n)
        return tern_fail(f->ctx, TERN_E_FORMAT, "%s: the file has no tensors", f->path);
    if (lost && !f->format)
        return tern_fail(f->ctx, TERN_E_FORMAT,
                         "%s: no LoRA: none of its %lld tensors is named as kohya's scripts, LyCORIS, PEFT or diffusers name them: %s",
                         f->path, n, names);
    if (tern_lora_check_model(f, r->bases, lost))
        return tern_error_status(f->ctx);
    if (lost == n)
        return tern_fail(f->ctx, TERN_E_FORMAT,
                         "%s: a LoRA in the form of %s, but none of its %lld tensors has a place in this model (%s): %s; is it made for "
                         "another one?",
                         f->path, f->format, n, tern_architecture_text(f->model, own), names);
    if (lost)
        tern_message(f->ctx, TERN_LOG_WARN, "%s: %lld of its %lld tensors have no place in this model and are not used: %s", f->path, lost,
                     n, names);
    if (r->twice)
        tern_message(f->ctx, TERN_LOG_WARN,
                     "%s: %lld of its %lld tensors have LDM's names for layers that diffusers' names have, too, and are not used", f->path,
                     (long long)r->twice, n);
    return TERN_OK;
}

/* ---- the file */

static enum tern_status read_modules(struct reading *r)
{
    struct tern_lora_file *f = r->f;
    for (int part = 0; part < TERN_LORA_PARTS; part++) {
        if (!r->bases[part])
            continue;
        f->part[part].count = tern_weights_count(r->bases[part]);
        f->part[part].module = tern_calloc(f->ctx, (size_t)f->part[part].count + 1, sizeof(*f->part[part].module));
        if (!f->part[part].module)
            return tern_error_status(f->ctx);
    }
    if (tern_lora_places_open(&r->places, f->weights, r->bases))
        return tern_error_status(f->ctx);
    for (int ldm = 0; ldm < 2; ldm++) /* merged files may have a layer under both names: as in diffusers, LDM's do not count */
        for (int64_t i = 0; i < tern_weights_count(f->weights); i++)
            if (is_ldm(tern_weights_name(f->weights, i)) == ldm && place_tensor(r, i))
                return tern_error_status(f->ctx);
    if (report_lost(r) || tern_lora_check_modules(f, r->bases))
        return tern_error_status(f->ctx);
    return tern_lora_read_alphas(f, r->bases) ? tern_error_status(f->ctx) : tern_lora_warn_of_values(f);
}

struct tern_lora_file *tern_lora_open(struct tern_context *ctx, const char *path, unsigned model,
                                      struct tern_weights *const bases[TERN_LORA_PARTS])
{
    struct tern_lora_file *f = tern_failed(ctx) ? NULL : tern_calloc(ctx, 1, sizeof(*f));
    if (!f)
        return NULL;
    tern_context_ref(ctx);
    f->refs = 1;
    f->ctx = ctx;
    f->model = model;
    f->path = tern_strdup(ctx, path);
    f->weights = f->path ? tern_weights_open(ctx, path) : NULL;
    struct reading r = {.f = f, .bases = bases};
    if (f->weights)
        read_modules(&r);
    tern_lora_places_close(&r.places);
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

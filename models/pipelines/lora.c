/* The LoRAs of a pipeline: which are set, and the modules with their weights. */
#include <string.h>
#include <sys/stat.h>

#include "core/number.h"
#include "models/files/lora.h"
#include "models/pipelines/pipeline.h"
#include "models/prompts/prompts.h"

#define MAX_LORAS 256

struct tern_active_lora {
    char *path;
    struct stat facts; /* of the file when it was read: another one is read anew */
    struct tern_lora_file *file;
    double scale;
    struct tern_lora_strength *blocks; /* names are owned */
    int n_blocks;
};

/* A list of LoRAs under construction. */
struct list {
    struct tern_context *ctx;
    struct tern_active_lora *at;
    int n;
};

static void list_free(struct list *l)
{
    for (int i = 0; i < l->n; i++) {
        struct tern_active_lora *a = &l->at[i];
        for (int k = 0; k < a->n_blocks; k++)
            tern_free(l->ctx, (void *)(uintptr_t)a->blocks[k].block);
        tern_free(l->ctx, a->blocks);
        tern_free(l->ctx, a->path);
        tern_lora_unref(&a->file);
    }
    tern_free(l->ctx, l->at);
    l->at = NULL;
    l->n = 0;
}

void tern_pipeline_drop_loras(struct tern_pipeline *p)
{
    struct list l = {p->ctx, p->loras, p->n_loras};
    list_free(&l);
    p->loras = NULL;
    p->n_loras = 0;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* A new reference to the file of that path in a list; NULL when it is not there or has changed since. */
static struct tern_lora_file *find(const struct tern_active_lora *at, int n, const char *path, const struct stat *facts)
{
    for (int i = 0; i < n; i++)
        if (at[i].file && !strcmp(at[i].path, path) && same_file(&at[i].facts, facts))
            return tern_lora_ref(at[i].file);
    return NULL;
}

static enum tern_status copy_blocks(struct tern_context *ctx, struct tern_active_lora *a, const struct tern_lora *lora)
{
    if (!lora->n_blocks)
        return TERN_OK;
    a->blocks = tern_calloc(ctx, (size_t)lora->n_blocks, sizeof(*a->blocks));
    for (int i = 0; a->blocks && i < lora->n_blocks; i++) {
        a->blocks[i] = (struct tern_lora_strength){tern_strdup(ctx, lora->blocks[i].block), lora->blocks[i].scale};
        a->n_blocks++;
    }
    return tern_error_status(ctx);
}

/* Those of the text encoders that the model has. */
static enum tern_lora_part first_part(const struct tern_pipeline *p)
{
    return (enum tern_lora_part)(TERN_LORA_TEXT + tern_pipeline_first_encoder(p));
}
static int end_parts(const struct tern_pipeline *p) { return TERN_LORA_TEXT + tern_pipeline_end_encoders(p); }

/* One more LoRA at the end of the list. bases: NULL for a part whose weights are not in memory; opened when they are needed. */
static enum tern_status list_add(struct list *l, struct tern_pipeline *p, const struct tern_lora *lora,
                                 struct tern_weights *bases[TERN_LORA_PARTS])
{
    struct tern_active_lora *a = &l->at[l->n++];
    if (!lora->path)
        return tern_fail(l->ctx, TERN_E_INVALID, "tern_pipeline_set_loras: LoRA %d has no path", l->n - 1);
    if (tern_lora_check_blocks(bases[TERN_LORA_UNET], first_part(p), end_parts(p), lora))
        return tern_error_status(l->ctx);
    a->scale = lora->scale;
    a->path = tern_strdup(l->ctx, lora->path);
    if (!a->path || copy_blocks(l->ctx, a, lora))
        return tern_error_status(l->ctx);
    if (!stat(a->path, &a->facts)) {
        a->file = find(p->loras, p->n_loras, a->path, &a->facts);
        if (!a->file)
            a->file = find(l->at, l->n - 1, a->path, &a->facts);
    }
    if (a->file)
        return TERN_OK;
    for (int part = first_part(p); part < end_parts(p); part++) {
        const char *component = tern_lora_part_name((enum tern_lora_part)part);
        if (!bases[part] && !(bases[part] = tern_checkpoint_weights(tern_pipeline_holder(p, component), component)))
            return tern_error_status(l->ctx);
    }
    a->file = tern_lora_open(l->ctx, a->path, tern_pipeline_architecture(p), bases);
    return tern_error_status(l->ctx);
}

static struct tern_weights *derive(const struct list *l, struct tern_weights *base, enum tern_lora_part part)
{
    if (!l->n)
        return tern_weights_ref(base);
    struct tern_lora_use *uses = tern_calloc(l->ctx, (size_t)l->n, sizeof(*uses));
    for (int i = 0; uses && i < l->n; i++)
        uses[i] = (struct tern_lora_use){l->at[i].file, l->at[i].scale, l->at[i].blocks, l->at[i].n_blocks};
    struct tern_weights *w = uses ? tern_lora_derive(base, part, uses, l->n) : NULL;
    tern_free(l->ctx, uses);
    return w;
}

struct tern_weights *tern_pipeline_with_loras(struct tern_pipeline *p, struct tern_weights *base, const char *component)
{
    const struct list l = {p->ctx, p->loras, p->n_loras};
    for (int part = 0; part < TERN_LORA_PARTS; part++)
        if (!strcmp(component, tern_lora_part_name((enum tern_lora_part)part)))
            return derive(&l, base, (enum tern_lora_part)part);
    return tern_weights_ref(base);
}

#define LISTED ((size_t)512) /* at most, of a tensor in a derived set */

/* What a part takes beside its base. Not measured: what devices keep for reuse would have to go at every change. */
static size_t beside_base(const struct tern_part *part)
{
    return part->weights == part->base ? 0 : tern_part_derived_bytes(part) + LISTED * (size_t)tern_weights_count(part->weights);
}

/* A part of the pipeline under a new list: the module is built anew when its weights are other ones. What one that is not there will take
 * is not known from now on. */
#define EXCHANGE(kind, field, part_name)                                                                               \
    static struct tern_##kind *prepare_##field(struct tern_pipeline *p, const struct list *l, struct tern_weights **w) \
    {                                                                                                                  \
        struct tern_part *part = &p->field##_part;                                                                     \
        struct tern_device *former = tern_pipeline_go(p, tern_lora_part_name(part_name));                              \
        *w = p->field && !tern_failed(p->ctx) ? derive(l, part->base, part_name) : NULL;                               \
        struct tern_##kind *m = *w && *w != part->weights ? tern_pipeline_build_##field(p, *w) : NULL;                 \
        tern_device_go(p->ctx, former);                                                                                \
        return m;                                                                                                      \
    }                                                                                                                  \
    static void exchange_##field(struct tern_pipeline *p, struct tern_##kind **m, struct tern_weights **w)             \
    {                                                                                                                  \
        if (*m && !tern_failed(p->ctx)) {                                                                              \
            struct tern_part *part = &p->field##_part;                                                                 \
            struct tern_##kind *former = p->field;                                                                     \
            tern_pipeline_rebind(p, former->weights, (*m)->weights);                                                   \
            p->field = *m;                                                                                             \
            *m = former;                                                                                               \
            part->module -= part->derived;                                                                             \
            tern_weights_unref(&part->weights);                                                                        \
            part->weights = tern_weights_ref(*w);                                                                      \
            part->derived = beside_base(part);                                                                         \
            part->module += part->derived;                                                                             \
        }                                                                                                              \
        if (!p->field && !tern_failed(p->ctx))                                                                         \
            p->field##_part.module = p->field##_part.loading = 0;                                                      \
        tern_##kind##_destroy(m);                                                                                      \
        tern_weights_unref(w);                                                                                         \
    }
EXCHANGE(unet, unet, TERN_LORA_UNET)
EXCHANGE(text_encoder, text, TERN_LORA_TEXT)
EXCHANGE(text_encoder, text_2, TERN_LORA_TEXT_2)

/* The modules under the new list; what does not change, or is not in memory, stays. Then, and only then, all is exchanged. */
static enum tern_status exchange(struct tern_pipeline *p, const struct list *l)
{
    struct tern_weights *w[TERN_LORA_PARTS];
    p->half_made++;
    struct tern_unet *unet = prepare_unet(p, l, &w[TERN_LORA_UNET]);
    struct tern_text_encoder *text = prepare_text(p, l, &w[TERN_LORA_TEXT]), *text_2 = prepare_text_2(p, l, &w[TERN_LORA_TEXT_2]);
    exchange_unet(p, &unet, &w[TERN_LORA_UNET]);
    exchange_text(p, &text, &w[TERN_LORA_TEXT]);
    exchange_text_2(p, &text_2, &w[TERN_LORA_TEXT_2]);
    p->half_made--;
    return tern_error_status(p->ctx);
}

static enum tern_status build_list(struct tern_pipeline *p, struct list *l, const struct tern_lora *loras, int n)
{
    if (!n)
        return TERN_OK;
    struct tern_weights *bases[TERN_LORA_PARTS] = {tern_weights_ref(p->unet_part.base), tern_weights_ref(p->text_part.base),
                                                   tern_weights_ref(p->text_2_part.base)};
    l->at = tern_calloc(p->ctx, (size_t)n, sizeof(*l->at));
    for (int i = 0; l->at && i < n; i++)
        if (list_add(l, p, &loras[i], bases))
            break;
    for (int part = 0; part < TERN_LORA_PARTS; part++)
        tern_weights_unref(&bases[part]);
    return tern_error_status(p->ctx);
}

enum tern_status tern_pipeline_set_loras(struct tern_pipeline *p, const struct tern_lora *loras, int n)
{
    if (!p)
        return TERN_E_INVALID;
    if (tern_failed(p->ctx))
        return tern_error_status(p->ctx);
    if (n < 0 || n > MAX_LORAS || (n && !loras))
        return tern_fail(p->ctx, TERN_E_INVALID, "tern_pipeline_set_loras: expected a list of at most %d, found %d%s", MAX_LORAS, n,
                         loras ? "" : " and no list");
    if (p->calls)
        return tern_fail(p->ctx, TERN_E_INVALID, "tern_pipeline_set_loras: the pipeline is at work; set LoRAs between jobs");
    struct list l = {p->ctx, NULL, 0};
    p->calls++;
    const struct tern_scope_stack left = tern_scopes_leave(p->ctx);
    enum tern_status st = tern_pipeline_unet(p) ? build_list(p, &l, loras, n) : tern_error_status(p->ctx);
    st = st ? st : exchange(p, &l);
    tern_scopes_return(p->ctx, &left);
    p->calls--;
    if (st) {
        list_free(&l);
        return tern_error_status(p->ctx);
    }
    tern_pipeline_drop_loras(p);
    p->loras = l.at;
    p->n_loras = l.n;
    tern_pipeline_forget_found(p);
    return TERN_OK;
}

/* The name of a LoRA in a tag: that of its file without the ending; what would end the tag, the name or the line is '_'. */
static char *tag_name(struct tern_context *ctx, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    char *out = tern_strndup(ctx, name, dot && dot > name ? (size_t)(dot - name) : strlen(name));
    for (char *c = out; c && *c; c++)
        if ((unsigned char)*c < ' ' || strchr("<:>", *c))
            *c = '_';
    return out;
}

/* What stands in a tag behind the name: the scale, or those of the text encoders and of the UNet. A tag has no words for other blocks. */
static const char *tag_scales(const struct tern_active_lora *a, char out[2 * TERN_NUMBER_TEXT])
{
    char unet[TERN_NUMBER_TEXT];
    double part[2] = {1, 1};
    for (int i = 0; i < a->n_blocks; i++) { /* of equal ones the last counts */
        const bool encoders = !strcmp(a->blocks[i].block, "text_encoders");
        if (!encoders && strcmp(a->blocks[i].block, "unet") != 0)
            return tern_number_text(a->scale, out);
        part[!encoders] = a->blocks[i].scale;
    }
    tern_number_text(a->scale * part[0], out);
    if (part[1] != part[0])
        strcat(strcat(out, ":"), tern_number_text(a->scale * part[1], unet));
    return out;
}

char *tern_pipeline_lora_text(const struct tern_pipeline *p)
{
    char *text = tern_strdup(p->ctx, "");
    for (int i = 0; i < p->n_loras && text; i++) {
        if (p->loras[i].scale == 0)
            continue;
        char scales[2 * TERN_NUMBER_TEXT], *name = tag_name(p->ctx, p->loras[i].path);
        char *more = name ? tern_sprintf(p->ctx, "%s <lora:%s:%s>", text, name, tag_scales(&p->loras[i], scales)) : NULL;
        tern_free(p->ctx, name);
        tern_free(p->ctx, text);
        text = more;
    }
    return text;
}

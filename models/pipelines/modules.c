/* Modules of the components: built when they are needed, and taken out of memory. */
#include <string.h>

#include "models/pipelines/pipeline.h"

void tern_part_drop(struct tern_part *part)
{
    tern_weights_unref(&part->weights);
    tern_weights_unref(&part->base);
}

size_t tern_part_derived_bytes(const struct tern_part *part)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < tern_weights_count(part->weights); i++) {
        const tern_tensor *t = tern_weights_at(part->weights, i);
        if (t != tern_weights_at(part->base, i))
            bytes += t->buffer->size;
    }
    return bytes;
}

static struct tern_weights *open_weights(struct tern_pipeline *p, const char *component)
{
    struct tern_checkpoint *c = tern_pipeline_holder(p, component);
    const char *name = strcmp(component, "preview") ? component : "vae"; /* what it is in its own checkpoint */
    if (tern_checkpoint_config(c, name))
        return tern_pipeline_follow_file(p, component, tern_checkpoint_weights(c, name));
    tern_fail(p->ctx, TERN_E_NOT_FOUND, "%s has no component \"%s\"", tern_checkpoint_path(c), component);
    return NULL;
}

/* What a module of the checkpoint's weights becomes under the LoRAs that are set. */
static enum tern_status open_part(struct tern_pipeline *p, const char *component, struct tern_weights *own, struct tern_part *part)
{
    part->base = tern_weights_ref(own);
    part->weights = tern_pipeline_with_loras(p, own, component);
    part->derived = part->weights ? tern_part_derived_bytes(part) : 0;
    return tern_error_status(p->ctx);
}

struct tern_text_encoder *tern_pipeline_build_text(struct tern_pipeline *p, const struct tern_weights *w)
{
    const struct tern_checkpoint *c = tern_pipeline_holder(p, "text_encoder");
    return tern_text_encoder_create(p->ctx, tern_checkpoint_class(c, "text_encoder"), tern_checkpoint_config(c, "text_encoder"),
                                    tern_checkpoint_config_where(c, "text_encoder"), tern_pipeline_dtype(p, "text_encoder"), w);
}

struct tern_text_encoder *tern_pipeline_build_text_2(struct tern_pipeline *p, const struct tern_weights *w)
{
    const struct tern_checkpoint *c = tern_pipeline_holder(p, "text_encoder_2");
    return tern_text_encoder_create(p->ctx, tern_checkpoint_class(c, "text_encoder_2"), tern_checkpoint_config(c, "text_encoder_2"),
                                    tern_checkpoint_config_where(c, "text_encoder_2"), tern_pipeline_dtype(p, "text_encoder_2"), w);
}

struct tern_unet *tern_pipeline_build_unet(struct tern_pipeline *p, const struct tern_weights *w)
{
    const struct tern_checkpoint *c = tern_pipeline_holder(p, "unet");
    return tern_unet_create(p->ctx, tern_checkpoint_config(c, "unet"), tern_checkpoint_config_where(c, "unet"), w);
}

static struct tern_vae *build_vae_of(struct tern_pipeline *p, const struct tern_checkpoint *c, const struct tern_weights *w)
{
    return tern_vae_create(p->ctx, tern_checkpoint_config(c, "vae"), tern_checkpoint_config_where(c, "vae"), w);
}

static struct tern_vae *build_vae(struct tern_pipeline *p, const struct tern_weights *w)
{
    return build_vae_of(p, tern_pipeline_holder(p, "vae"), w);
}

static struct tern_vae *build_preview(struct tern_pipeline *p, const struct tern_weights *w)
{
    return build_vae_of(p, p->preview_alone, w);
}

/* The module, built when it is not in memory. Its weights stay with it, so that sets can be derived from them. */
#define COMPONENT(kind, field, component, build)                                                                      \
    struct tern_##kind *tern_pipeline_##field(struct tern_pipeline *p)                                                \
    {                                                                                                                 \
        if (p->field || tern_failed(p->ctx))                                                                          \
            return tern_failed(p->ctx) ? NULL : p->field;                                                             \
        struct tern_part *part = &p->field##_part;                                                                    \
        struct tern_device *former = tern_pipeline_go(p, component);                                                  \
        p->half_made++;                                                                                               \
        tern_memory_trim_devices(p->ctx); /* what is kept for reuse would hide what is taken */                       \
        size_t before = tern_memory_used(p->ctx), peak = tern_memory_peak(p->ctx);                                    \
        tern_memory_reset_peak(p->ctx);                                                                               \
        struct tern_weights *w = open_weights(p, component);                                                          \
        p->field = w ? build(p, w) : NULL;                                                                            \
        tern_weights_unref(&w);                                                                                       \
        if (p->field && open_part(p, component, p->field->weights, part) == TERN_OK && part->weights != part->base) { \
            tern_##kind##_destroy(&p->field);                                                                         \
            p->field = build(p, part->weights);                                                                       \
        }                                                                                                             \
        if (tern_failed(p->ctx)) {                                                                                    \
            tern_##kind##_destroy(&p->field);                                                                         \
            tern_part_drop(part);                                                                                     \
        }                                                                                                             \
        size_t most = tern_memory_peak(p->ctx);                                                                       \
        tern_memory_trim_devices(p->ctx);                                                                             \
        if (!tern_failed(p->ctx)) {                                                                                   \
            part->module = tern_memory_used(p->ctx) - before;                                                         \
            part->loading = most - before - part->module;                                                             \
        }                                                                                                             \
        tern_memory_raise_peak(p->ctx, peak);                                                                         \
        p->half_made--;                                                                                               \
        tern_device_go(p->ctx, former);                                                                               \
        return p->field;                                                                                              \
    }
COMPONENT(text_encoder, text, "text_encoder", tern_pipeline_build_text)
COMPONENT(text_encoder, text_2, "text_encoder_2", tern_pipeline_build_text_2)
COMPONENT(unet, unet, "unet", tern_pipeline_build_unet)
COMPONENT(vae, vae, "vae", build_vae)
COMPONENT(vae, preview, "preview", build_preview)

unsigned tern_module_of(const char *component)
{
    switch (component[0]) {
    case 't':
        return strcmp(component, "text_encoder") ? TERN_MODULE_TEXT_2 : TERN_MODULE_TEXT;
    case 'u':
        return TERN_MODULE_UNET;
    case 'p':
        return TERN_MODULE_PREVIEW;
    default:
        return TERN_MODULE_VAE;
    }
}

unsigned tern_pipeline_modules(const struct tern_pipeline *p)
{
    return (p->text ? TERN_MODULE_TEXT : 0u) | (p->text_2 ? TERN_MODULE_TEXT_2 : 0u) | (p->unet ? TERN_MODULE_UNET : 0u) |
           (p->preview ? TERN_MODULE_PREVIEW : 0u) | (p->vae ? TERN_MODULE_VAE : 0u);
}

/* The memory is to be there for others: at most a little of it is kept, for the stage that follows. */
#define DROP(kind, field)                                    \
    void tern_pipeline_drop_##field(struct tern_pipeline *p) \
    {                                                        \
        if (!p->field)                                       \
            return;                                          \
        tern_pipeline_unbind(p, p->field->weights);          \
        tern_##kind##_destroy(&p->field);                    \
        tern_part_drop(&p->field##_part);                    \
        p->used &= tern_pipeline_modules(p);                 \
        tern_memory_trim_devices(p->ctx);                    \
    }
DROP(text_encoder, text)
DROP(text_encoder, text_2)
DROP(unet, unet)
DROP(vae, vae)
DROP(vae, preview)

#define MODULES 5
static const struct {
    const char *component;
    void (*drop)(struct tern_pipeline *);
} all[MODULES] = {/* by bit */
                  {"text_encoder", tern_pipeline_drop_text},
                  {"text_encoder_2", tern_pipeline_drop_text_2},
                  {"unet", tern_pipeline_drop_unet},
                  {"preview_decoder", tern_pipeline_drop_preview},
                  {"vae", tern_pipeline_drop_vae}};

void tern_pipeline_put_out(struct tern_pipeline *p, unsigned modules)
{
    for (int i = 0; i < MODULES; i++)
        if (modules >> i & 1)
            all[i].drop(p);
}

void tern_job_put_out(const struct tern_job *j, unsigned modules)
{
    unsigned leaving = 0;
    for (int i = 0; i < MODULES; i++)
        leaving |= (unsigned)tern_job_leaves(j, all[i].component) << i;
    tern_pipeline_put_out(j->p, modules & leaving);
}

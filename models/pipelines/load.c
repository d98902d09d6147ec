/* Opening a checkpoint and bringing its components into memory. */
#include <stdio.h>
#include <string.h>
#include <tern/quantize.h>

#include "core/files.h"
#include "graph/plan.h"
#include "models/files/manifest.h"
#include "models/modules/config.h"
#include "models/pipelines/pipeline.h"

int tern_pipeline_scale(const struct tern_pipeline *p) { return 1 << (p->vae_config.blocks - 1); }

struct tern_checkpoint *tern_pipeline_holder(const struct tern_pipeline *p, const char *component)
{
    if (p->vae_alone && !strcmp(component, "vae"))
        return p->vae_alone;
    if (!strcmp(component, "preview"))
        return p->preview_alone;
    return p->shared && !tern_checkpoint_has(p->checkpoint, component) ? p->shared : p->checkpoint;
}

const char *tern_pipeline_scheduler(const struct tern_pipeline *p)
{
    const char *config = tern_checkpoint_scheduler(p->checkpoint);
    return config || !p->shared ? config : tern_checkpoint_scheduler(p->shared);
}

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
        return tern_checkpoint_weights(c, name);
    tern_fail(p->ctx, TERN_E_NOT_FOUND, "%s has no component \"%s\"", tern_checkpoint_path(c), component);
    return NULL;
}

/* What a module of the checkpoint's weights becomes under the LoRAs that are set. */
static enum tern_status open_part(struct tern_pipeline *p, const char *component, struct tern_weights *own, struct tern_part *part)
{
    part->base = tern_weights_ref(own);
    part->weights = tern_pipeline_with_loras(p, own, component);
    return tern_error_status(p->ctx);
}

struct tern_text_encoder *tern_pipeline_build_text(struct tern_pipeline *p, const struct tern_weights *w)
{
    const struct tern_checkpoint *c = tern_pipeline_holder(p, "text_encoder");
    return tern_text_encoder_create(p->ctx, tern_checkpoint_class(c, "text_encoder"), tern_checkpoint_config(c, "text_encoder"),
                                    tern_checkpoint_config_where(c, "text_encoder"), p->params.dtype, w);
}

struct tern_text_encoder *tern_pipeline_build_text_2(struct tern_pipeline *p, const struct tern_weights *w)
{
    const struct tern_checkpoint *c = tern_pipeline_holder(p, "text_encoder_2");
    return tern_text_encoder_create(p->ctx, tern_checkpoint_class(c, "text_encoder_2"), tern_checkpoint_config(c, "text_encoder_2"),
                                    tern_checkpoint_config_where(c, "text_encoder_2"), p->params.dtype, w);
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
        tern_memory_trim(p->ctx); /* what is kept for reuse would hide what is taken */                               \
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
        tern_memory_trim(p->ctx);                                                                                     \
        part->module = tern_memory_used(p->ctx) - before;                                                             \
        part->loading = most - before - part->module;                                                                 \
        tern_memory_raise_peak(p->ctx, peak);                                                                         \
        return p->field;                                                                                              \
    }
COMPONENT(text_encoder, text, "text_encoder", tern_pipeline_build_text)
COMPONENT(text_encoder, text_2, "text_encoder_2", tern_pipeline_build_text_2)
COMPONENT(unet, unet, "unet", tern_pipeline_build_unet)
COMPONENT(vae, vae, "vae", build_vae)
COMPONENT(vae, preview, "preview", build_preview)

/* Freed blocks are not kept for reuse: the memory is to be there for others. */
#define DROP(kind, field)                                    \
    void tern_pipeline_drop_##field(struct tern_pipeline *p) \
    {                                                        \
        if (!p->field)                                       \
            return;                                          \
        tern_pipeline_unbind(p, p->field->weights);          \
        tern_##kind##_destroy(&p->field);                    \
        tern_part_drop(&p->field##_part);                    \
        tern_memory_trim(p->ctx);                            \
    }
DROP(text_encoder, text)
DROP(text_encoder, text_2)
DROP(unet, unet)
DROP(vae, vae)
DROP(vae, preview)

/* How many numbers the UNet is told beside the pooled text; 0: it does not fit. */
static int count_numbers(const struct tern_unet_config *u, int64_t pooled)
{
    for (int n = TERN_XL_REFINER_NUMBERS; n <= TERN_XL_NUMBERS; n++)
        if (u->pooled == pooled + n * u->time_ids)
            return n;
    return 0;
}

/* SDXL: the states of both encoders side by side, and the pooled text of the second with sinusoids of some numbers. */
static enum tern_status read_xl(struct tern_pipeline *p)
{
    const char *path = tern_checkpoint_path(p->checkpoint), *index = tern_checkpoint_index(p->checkpoint);
    const struct tern_unet_config *u = &p->unet_config;
    if (!tern_pipeline_text_2(p))
        return tern_error_status(p->ctx);
    p->text_width[1] = p->text_2->hidden;
    p->text_layers = p->second_only ? p->text_2->layers : p->text_layers;
    int64_t width = (p->second_only ? 0 : p->text->hidden) + p->text_2->hidden;
    if (u->context[0] != width)
        return tern_fail(p->ctx, TERN_E_FORMAT, "%s: the UNet expects text states of width %lld, the text encoders give %lld", path,
                         (long long)u->context[0], (long long)width);
    p->numbers = p->text_2->text_projection.w ? count_numbers(u, p->text_2->projection) : 0;
    if (!p->numbers)
        return tern_fail(p->ctx, TERN_E_FORMAT,
                         "%s: the UNet expects a pooled text and five or six numbers, %lld wide together and each number %lld, the second "
                         "text encoder gives %lld%s",
                         path, (long long)u->pooled, (long long)u->time_ids, (long long)p->text_2->projection,
                         p->text_2->text_projection.w ? "" : " without a projection");
    struct tern_config c;
    p->force_zeros = !p->second_only; /* of single files: as the published base and refiner */
    if (index && tern_config_open(&c, p->ctx, index, "model_index.json") == TERN_OK) {
        p->force_zeros = tern_config_bool(&c, "force_zeros_for_empty_prompt", true);
        p->scales_edited = tern_config_bool(&c, "is_cosxl_edit", false);
    }
    if (index)
        tern_config_close(&c);
    return tern_error_status(p->ctx);
}

/* Channels of the UNet beside those of the latents are ones that are understood. Marigold's UNets have 8, too, for something else. */
static enum tern_status check_channels(const struct tern_pipeline *p)
{
    const char *path = tern_checkpoint_path(p->checkpoint), *name = tern_checkpoint_pipeline(p->checkpoint);
    const struct tern_unet_config *u = &p->unet_config;
    const int64_t z = p->vae_config.latent_channels;
    if (u->out_channels != z || (u->in_channels != z && !tern_pipeline_inpaints(p) && !tern_pipeline_edits(p)))
        return tern_fail(p->ctx, TERN_E_UNSUPPORTED, "%s: a UNet from %lld to %lld channels does not fit a VAE with %lld latent channels",
                         path, (long long)u->in_channels, (long long)u->out_channels, (long long)z);
    if (tern_pipeline_edits(p) && !strstr(name, "Diffusion"))
        return tern_fail(p->ctx, TERN_E_UNSUPPORTED,
                         "%s: a UNet of %lld channels in a \"%s\": expected a StableDiffusionInstructPix2PixPipeline or the like", path,
                         (long long)u->in_channels, name);
    return TERN_OK;
}

static enum tern_status read_configs(struct tern_pipeline *p)
{
    struct tern_checkpoint *c = p->checkpoint;
    p->second_only = !p->shared && !tern_checkpoint_has(c, "text_encoder") && tern_checkpoint_has(c, "text_encoder_2");
    if ((!p->second_only && !tern_pipeline_text(p)) || !tern_pipeline_unet(p) || !tern_pipeline_vae(p) ||
        (p->preview_alone && !tern_pipeline_preview(p)))
        return tern_error_status(p->ctx);
    p->unet_config = p->unet->config;
    p->vae_config = p->vae->config;
    p->preview_config = p->preview ? p->preview->config : p->vae_config;
    const struct tern_unet_config *u = &p->unet_config;
    p->xl = u->pooled;
    if (p->second_only && !p->xl)
        return tern_fail(p->ctx, TERN_E_UNSUPPORTED,
                         "%s: a model with the second text encoder alone whose UNet is not that of Stable Diffusion XL",
                         tern_checkpoint_path(c));
    if (!p->second_only) {
        p->text_layers = p->text->layers;
        p->text_width[0] = p->text->hidden;
    }
    if (p->xl && read_xl(p))
        return tern_error_status(p->ctx);
    if (!p->xl && u->context[0] != p->text->hidden)
        return tern_fail(p->ctx, TERN_E_FORMAT, "%s: the UNet expects text states of width %lld, the text encoder gives %lld",
                         tern_checkpoint_path(c), (long long)u->context[0], (long long)p->text->hidden);
    return check_channels(p);
}

/* A checkpoint without a tokenizer has the one that ships with tern, if its text encoder is a CLIP of that vocabulary; else
 * it has none: its components can be run, prompts cannot be read. */
static enum tern_status load_tokenizer(struct tern_pipeline *p)
{
    const struct tern_text_encoder *text = p->second_only ? p->text_2 : p->text;
    const char *folder = p->params.tokenizer_dir ? p->params.tokenizer_dir : tern_checkpoint_tokenizer(p->checkpoint, p->second_only);
    const int32_t pad = text->act == TERN_ACT_GELU ? 0 : 49407; /* OpenCLIP pads with "!", OpenAI's CLIP with the end token */
    p->tokenizer = folder ? tern_tokenizer_load(p->ctx, folder) : tern_tokenizer_clip(p->ctx, pad);
    if (!p->tokenizer)
        return tern_error_status(p->ctx);
    int32_t vocab = tern_tokenizer_vocab_size(p->tokenizer), length = tern_tokenizer_max_length(p->tokenizer);
    bool fits = vocab <= text->vocab && length <= text->positions;
    if (folder && !fits)
        return tern_fail(p->ctx, TERN_E_FORMAT,
                         "%s: a tokenizer of %d ids for texts of %d does not fit a text encoder of %lld ids for texts of %lld", folder,
                         vocab, length, (long long)text->vocab, (long long)text->positions);
    if (!folder && (!fits || text->bert))
        tern_tokenizer_destroy(&p->tokenizer);
    return TERN_OK;
}

/* SDXL's second one, for texts of the same length. */
static enum tern_status load_tokenizer_2(struct tern_pipeline *p)
{
    const struct tern_text_encoder *text = p->text_2;
    const char *folder = tern_checkpoint_tokenizer(p->checkpoint, 1);
    if (!p->xl || p->second_only || !p->tokenizer)
        return tern_error_status(p->ctx);
    p->tokenizer_2 = folder ? tern_tokenizer_load(p->ctx, folder) : tern_tokenizer_clip(p->ctx, 0);
    if (!p->tokenizer_2)
        return tern_error_status(p->ctx);
    int32_t vocab = tern_tokenizer_vocab_size(p->tokenizer_2), length = tern_tokenizer_max_length(p->tokenizer_2);
    if (vocab > text->vocab || length > text->positions || length != tern_tokenizer_max_length(p->tokenizer))
        return tern_fail(p->ctx, TERN_E_FORMAT,
                         "%s: a second tokenizer of %d ids for texts of %d does not fit a text encoder of %lld ids for texts of %lld and a "
                         "first tokenizer for texts of %d",
                         folder ? folder : tern_checkpoint_path(p->checkpoint), vocab, length, (long long)text->vocab,
                         (long long)text->positions, tern_tokenizer_max_length(p->tokenizer));
    return TERN_OK;
}

char *tern_model_name(struct tern_context *ctx, const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t start = n;
    while (start > 0 && path[start - 1] != '/')
        start--;
    for (size_t i = n; i > start + 1; i--)
        if (path[i - 1] == '.') {
            n = i - 1;
            break;
        }
    return tern_strndup(ctx, path + start, n - start);
}

/* The Chinese demo is a text encoder and a tokenizer; the rest is the English one's. */
static void open_shared(struct tern_pipeline *p)
{
    char *path = tern_demo_path(p->ctx, "demo");
    if (path)
        p->shared = tern_checkpoint_open(p->ctx, path);
    tern_free(p->ctx, path);
}

/* Whether the files of the model that ships with tern are those that shipped; the Chinese side lies in its folder "zh". */
static enum tern_status check_shipped(struct tern_context *ctx, const char *path, bool zh)
{
    char *folder = tern_strndup(ctx, path, strlen(path) - (zh ? strlen("/zh") : 0));
    enum tern_status st = folder ? tern_manifest_check(ctx, folder) : tern_error_status(ctx);
    tern_free(ctx, folder);
    return st;
}

static enum tern_status check_params(struct tern_context *ctx, const struct tern_pipeline_params *params)
{
    enum tern_dtype dtype = params->dtype;
    const struct tern_offload_components *c = &params->offload_components;
    const enum tern_offload ways[] = {params->offload, c->text_encoder, c->text_encoder_2, c->unet, c->vae};
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
        if ((unsigned)ways[i] > TERN_OFFLOAD_STREAM)
            return tern_fail(ctx, TERN_E_INVALID, "offload: %d is no such value", (int)ways[i]);
    if (params->quantize && params->recipe)
        return tern_fail(ctx, TERN_E_INVALID, "quantize and recipe: expected one of them, found \"%.80s\" and %s", params->quantize,
                         params->recipe);
    if (!tern_dtype_is_float(dtype))
        return tern_fail(ctx, TERN_E_INVALID, "dtype: expected f32, bf16 or f16, found %s", tern_dtype_name(dtype));
    enum tern_status st = tern_quantize_check(ctx, "quantize", params->quantize);
    return st ? st : tern_quantize_check(ctx, "text_encoder_quantize", params->text_encoder_quantize);
}

/* The layers that the recipe names, which must be one for this model. */
static void follow(struct tern_pipeline *p, const struct tern_recipe *recipe)
{
    if (recipe && !tern_failed(p->ctx) && tern_recipe_check(recipe, p) == TERN_OK)
        p->quantize = tern_recipe_words(recipe);
}

struct tern_pipeline *tern_pipeline_load(struct tern_context *ctx, const char *model, const struct tern_pipeline_params *params)
{
    struct tern_pipeline *p = tern_failed(ctx) ? NULL : tern_calloc(ctx, 1, sizeof(*p));
    if (!p)
        return NULL;
    tern_context_ref(ctx);
    p->ctx = ctx;
    p->hoist_least = TERN_HOIST_LEAST;
    if (params)
        p->params = *params;
    struct tern_recipe *recipe = NULL;
    p->shipped = !model || !strcmp(model, "demo") || !strcmp(model, "demo-zh");
    bool zh = model && !strcmp(model, "demo-zh"), shipped = p->shipped;
    char *path = shipped ? tern_demo_path(ctx, model ? model : "demo") : tern_strdup(ctx, model);
    if (path && check_params(ctx, &p->params) == TERN_OK && (!shipped || check_shipped(ctx, path, zh) == TERN_OK)) {
        p->quantize = p->params.quantize ? tern_strdup(ctx, p->params.quantize) : NULL;
        p->text_encoder_quantize = p->params.text_encoder_quantize ? tern_strdup(ctx, p->params.text_encoder_quantize) : NULL;
        p->name = shipped ? tern_strdup(ctx, model ? model : "demo") : tern_model_name(ctx, path);
        recipe = p->params.recipe ? tern_recipe_open(ctx, p->params.recipe) : NULL;
        p->checkpoint = tern_failed(ctx) ? NULL : tern_checkpoint_open(ctx, path);
        if (p->checkpoint && zh)
            open_shared(p);
        if (p->checkpoint && p->params.vae)
            p->vae_alone = tern_checkpoint_open_vae(ctx, p->params.vae, tern_pipeline_holder(p, "vae"));
        if (p->checkpoint && p->params.preview_vae && !tern_failed(ctx))
            p->preview_alone = tern_checkpoint_open_vae(ctx, p->params.preview_vae, tern_pipeline_holder(p, "vae"));
        if (p->checkpoint && !tern_failed(ctx) && read_configs(p) == TERN_OK && load_tokenizer(p) == TERN_OK)
            load_tokenizer_2(p);
        follow(p, recipe);
    }
    tern_recipe_destroy(&recipe);
    tern_free(ctx, path);
    if (tern_failed(ctx))
        tern_pipeline_destroy(&p);
    return p;
}

void tern_pipeline_destroy(struct tern_pipeline **pipeline)
{
    struct tern_pipeline *p = pipeline ? *pipeline : NULL;
    if (!p)
        return;
    *pipeline = NULL;
    struct tern_context *ctx = p->ctx;
    tern_pipeline_drop_plans(p);
    tern_pipeline_drop_text(p);
    tern_pipeline_drop_text_2(p);
    tern_pipeline_drop_unet(p);
    tern_pipeline_drop_vae(p);
    tern_pipeline_drop_preview(p);
    tern_pipeline_drop_loras(p);
    tern_pipeline_drop_embeddings(p);
    tern_tokenizer_destroy(&p->tokenizer);
    tern_tokenizer_destroy(&p->tokenizer_2);
    tern_checkpoint_close(&p->checkpoint);
    tern_checkpoint_close(&p->shared);
    tern_checkpoint_close(&p->vae_alone);
    tern_checkpoint_close(&p->preview_alone);
    tern_free(ctx, p->name);
    tern_free(ctx, p->quantize);
    tern_free(ctx, p->text_encoder_quantize);
    tern_free(ctx, p);
    tern_context_unref(ctx);
}

double tern_pipeline_guidance(const struct tern_pipeline *p) { return p->shipped ? 4 : p->xl ? 5 : 7.5; }

static enum tern_dtype dtype_of(const struct tern_pipeline *p, const struct tern_vae_config *v)
{
    return p->xl && p->params.dtype == TERN_F16 && !v->tiny ? TERN_F32 : p->params.dtype;
}

enum tern_dtype tern_pipeline_vae_dtype(const struct tern_pipeline *p) { return dtype_of(p, &p->vae_config); }
enum tern_dtype tern_pipeline_preview_dtype(const struct tern_pipeline *p) { return dtype_of(p, &p->preview_config); }

int64_t tern_pipeline_pooled_width(const struct tern_pipeline *p) { return p->unet_config.pooled - p->numbers * p->unet_config.time_ids; }

struct tern_tokenizer *tern_pipeline_tokenizer(struct tern_pipeline *p, int index)
{
    const char *path = tern_checkpoint_path(p->checkpoint);
    if (index == 1 && p->tokenizer_2)
        return p->tokenizer_2;
    if (index)
        tern_fail(p->ctx, TERN_E_NOT_FOUND, "%s: tokenizer %d: the model has only number 0", path, index);
    else if (!p->tokenizer)
        tern_fail(p->ctx, TERN_E_NOT_FOUND,
                  "%s has no tokenizer, and the CLIP tokenizer that ships with tern does not fit its text encoder; "
                  "the folder of its own would help",
                  path);
    return index ? NULL : p->tokenizer;
}

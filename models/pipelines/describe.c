/* What a checkpoint is, for people and for programs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "models/files/quantized.h"
#include "models/pipelines/pipeline.h"
#include "models/schedulers/scheduler.h"

/* Tensors, parameters and bytes of a component by dtype. */
struct tally {
    int64_t tensors, parameters, bytes, by_dtype[TERN_STORED_KINDS];
};

/* One without weights, as a safety checker of which only the configuration was fetched, has no tensors. */
static enum tern_status count(struct tern_pipeline *p, const char *component, struct tally *t)
{
    struct tern_checkpoint *c = tern_pipeline_holder(p, component);
    char *path = tern_checkpoint_weights_path(c, component);
    struct tern_weights *w = path ? tern_checkpoint_weights(c, component) : NULL;
    memset(t, 0, sizeof(*t));
    for (int64_t i = 0; w && i < tern_weights_count(w); i++) {
        const tern_tensor *x = tern_weights_at(w, i);
        t->tensors++;
        t->parameters += tern_tensor_numel(x);
        t->bytes += tern_stored_bytes(x);
        t->by_dtype[tern_stored_kind(x)]++;
    }
    tern_weights_unref(&w);
    if (!path && tern_error_status(p->ctx) == TERN_E_NOT_FOUND)
        tern_error_clear_own(p->ctx);
    tern_free(p->ctx, path);
    return tern_error_status(p->ctx);
}

/* Components: the checkpoint's, then those that only the shared one has. */
static const char *component_name(const struct tern_pipeline *p, int i)
{
    const char *name = tern_checkpoint_component(p->checkpoint, i);
    int own = tern_checkpoint_count(p->checkpoint), shared = p->shared ? tern_checkpoint_count(p->shared) : 0;
    for (int k = 0; k < shared && !name; k++)
        if (!tern_checkpoint_has(p->checkpoint, tern_checkpoint_component(p->shared, k)) && own++ == i)
            name = tern_checkpoint_component(p->shared, k);
    return name;
}

static int component_count(const struct tern_pipeline *p)
{
    int n = 0;
    while (component_name(p, n))
        n++;
    return n;
}

/* A configuration as JSON, null where it is none or damaged; NULL without memory. */
static json_t *config_json(const char *text)
{
    json_t *o = text ? tern_json_read(text, strlen(text), 0, NULL) : json_null();
    return o || errno == ENOMEM ? o : json_null();
}

/* The same of a scheduler's, in which Python's Infinity and NaN are strings; NULL also with another error recorded. */
static json_t *scheduler_json(struct tern_context *ctx, const char *text)
{
    json_t *o = !text ? json_null() : tern_failed(ctx) ? NULL : tern_scheduler_parse(ctx, text);
    if (o || tern_error_status(ctx) != TERN_E_FORMAT)
        return o;
    tern_error_clear_own(ctx);
    return json_null();
}

/* null where it is not UTF-8; NULL without memory. */
static json_t *path_json(const char *path)
{
    errno = 0;
    json_t *o = json_string(path);
    return o || errno == ENOMEM ? o : json_null();
}

/* NULL without memory, or with the error recorded. */
static json_t *component_json(struct tern_pipeline *p, const char *component)
{
    struct tally t;
    if (count(p, component, &t))
        return NULL;
    const struct tern_checkpoint *c = tern_pipeline_holder(p, component);
    const char *class_name = tern_checkpoint_class(c, component), *config = tern_checkpoint_config(c, component);
    json_t *dtypes = json_object();
    for (int i = 0; i < TERN_STORED_KINDS; i++)
        if (t.by_dtype[i])
            tern_json_set(&dtypes, tern_stored_name(i), json_integer(t.by_dtype[i]));
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:o}", "name", component, "class", class_name ? class_name : "", "tensors",
                     (json_int_t)t.tensors, "parameters", (json_int_t)t.parameters, "bytes", (json_int_t)t.bytes, "dtypes", dtypes,
                     "config", config_json(config));
}

static char *describe_json(struct tern_pipeline *p)
{
    const struct tern_checkpoint *c = p->checkpoint;
    json_t *list = json_array();
    for (int i = 0; i < component_count(p) && !tern_failed(p->ctx); i++)
        tern_json_append(&list, component_json(p, component_name(p, i)));
    const char *scheduler = tern_pipeline_scheduler(p);
    const char *class_name = tern_pipeline_scheduler_class(p);
    json_t *parsed = scheduler_json(p->ctx, scheduler);
    if (class_name && json_is_object(parsed))
        tern_json_set(&parsed, "_class_name", json_string(class_name)); /* the one that counts */
    json_t *o = json_pack("{s:o, s:s, s:s, s:o, s:o}", "path", path_json(tern_checkpoint_path(c)), "layout",
                          tern_checkpoint_layout(c) == TERN_LAYOUT_FOLDER ? "diffusers folder" : "single file", "pipeline",
                          tern_checkpoint_pipeline(c), "components", list, "scheduler", parsed);
    if (p->quantize)
        tern_json_set(&o, "quantize", json_string(p->quantize));
    if (p->text_encoder_quantize)
        tern_json_set(&o, "text_encoder_quantize", json_string(p->text_encoder_quantize));
    char *text = o ? tern_json_dumps(o, JSON_INDENT(2)) : NULL, *copy = text && !tern_failed(p->ctx) ? tern_strdup(p->ctx, text) : NULL;
    if (!copy && !tern_failed(p->ctx))
        tern_fail(p->ctx, TERN_E_NO_MEMORY, "%s: its description does not fit in memory", tern_checkpoint_path(c));
    free(text);
    json_decref(o);
    return copy;
}

/* Appends to *text, which is replaced. */
static void append(struct tern_context *ctx, char **text, char *more)
{
    char *joined = *text && more ? tern_sprintf(ctx, "%s%s", *text, more) : NULL;
    tern_free(ctx, *text);
    tern_free(ctx, more);
    *text = joined;
}

static void append_component(struct tern_pipeline *p, const char *component, char **text)
{
    struct tally t;
    char dtypes[128] = "";
    if (count(p, component, &t))
        return;
    for (int i = 0; i < TERN_STORED_KINDS; i++)
        if (t.by_dtype[i])
            snprintf(dtypes + strlen(dtypes), sizeof(dtypes) - strlen(dtypes), " %s", tern_stored_name(i));
    const char *class_name = tern_checkpoint_class(tern_pipeline_holder(p, component), component);
    if (!class_name)
        class_name = "";
    append(p->ctx, text,
           t.tensors ? tern_sprintf(p->ctx, "  %-14s %-22s %5lld tensors  %8.2f M parameters  %8.1f MiB %s\n", component, class_name,
                                    (long long)t.tensors, (double)t.parameters / 1e6, (double)t.bytes / (1 << 20), dtypes)
                     : tern_sprintf(p->ctx, "  %-14s %-22s no weights\n", component, class_name));
}

/* A line of words, of which there may be as many as layers. */
static void append_words(struct tern_pipeline *p, const char *what, const char *words, char **text)
{
    if (words)
        append(p->ctx, text, tern_sprintf(p->ctx, "  quantised: %s as \"%.80s%s\"\n", what, words, strlen(words) > 80 ? "..." : ""));
}

static char *describe_text(struct tern_pipeline *p)
{
    const struct tern_checkpoint *c = p->checkpoint;
    const struct tern_unet_config *u = &p->unet_config;
    char prompts[40] = "no tokenizer";
    int scale = tern_pipeline_scale(p);
    char *text = tern_sprintf(p->ctx, "%s\n%s, %s\n", tern_checkpoint_path(c), tern_checkpoint_pipeline(c),
                              tern_checkpoint_layout(c) == TERN_LAYOUT_FOLDER ? "diffusers folder" : "single file");
    for (int i = 0; i < component_count(p) && text; i++)
        append_component(p, component_name(p, i), &text);
    if (p->tokenizer)
        snprintf(prompts, sizeof(prompts), "prompts of %d ids", tern_tokenizer_max_length(p->tokenizer));
    append(p->ctx, &text,
           tern_sprintf(p->ctx, "  own size %lld x %lld, %s, latents of %lld channels at 1/%d%s\n", (long long)u->sample_w * scale,
                        (long long)u->sample_h * scale, prompts, (long long)p->vae_config.latent_channels, scale,
                        tern_pipeline_inpaints(p) ? ", for inpainting"
                        : tern_pipeline_edits(p)  ? ", for editing by instructions (instruct-pix2pix)"
                                                  : ""));
    append_words(p, "UNet", p->quantize, &text);
    append_words(p, "text encoders", p->text_encoder_quantize, &text);
    if (tern_failed(p->ctx)) {
        tern_free(p->ctx, text);
        return NULL;
    }
    return text;
}

char *tern_pipeline_describe(struct tern_pipeline *p, bool json)
{
    if (!p || tern_failed(p->ctx))
        return NULL;
    return json ? describe_json(p) : describe_text(p);
}

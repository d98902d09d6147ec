/* Opening a checkpoint: a diffusers folder or a single file, its components and their texts. */
#include "models/files/layout.h"

#include <string.h>

#include "core/context.h"
#include "core/files.h"
#include "core/json.h"
#include "models/files/checkpoint.h"
#include "models/files/ldm.h"
#include "models/files/weights.h"

static struct tern_component *find(const struct tern_checkpoint *cp, const char *name)
{
    for (int i = 0; cp && name && i < cp->count; i++)
        if (!strcmp(cp->components[i].name, name))
            return (struct tern_component *)&cp->components[i];
    return NULL;
}

enum tern_status tern_checkpoint_add(struct tern_checkpoint *cp, const char *name, const char *class_name, char *config, const char *where)
{
    struct tern_component *c = &cp->components[cp->count];
    *c = (struct tern_component){tern_strdup(cp->ctx, name), tern_strdup(cp->ctx, class_name), config, tern_strdup(cp->ctx, where)};
    cp->count++; /* its strings are released with the checkpoint, whichever are there */
    return c->name && c->class_name && c->config && c->where ? TERN_OK : tern_error_status(cp->ctx);
}

/* "a", "b/c" -> path/a/b/c when there is such a file or folder; else NULL. *st: no memory. */
static char *existing(const struct tern_checkpoint *cp, const char *a, const char *b, enum tern_path_kind kind, enum tern_status *st)
{
    char *folder = tern_path_join(cp->ctx, cp->path, a), *path = folder && b ? tern_path_join(cp->ctx, folder, b) : folder;
    if (b)
        tern_free(cp->ctx, folder);
    if (!path)
        *st = TERN_E_NO_MEMORY;
    if (path && tern_path_kind(path) != kind) {
        tern_free(cp->ctx, path);
        path = NULL;
    }
    return path;
}

static bool plain_name(const char *name)
{
    return *name && strlen(name) < 64 && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == strlen(name);
}

/* Whether painting without this row is what diffusers' plain pipelines do, or what tern does with it. */
static bool known_row(const char *name)
{
    static const char *const names[] = {
        "unet",
        "vae",
        "text_encoder",
        "text_encoder_2",
        "tokenizer",
        "tokenizer_2",
        "scheduler",
        "watermark",
        "watermarker",
        "safety_checker",
        "feature_extractor",
        "image_encoder",      /* of IP-Adapters alone */
        "pag_applied_layers", /* names of layers, no component */
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

/* One row of model_index.json: "unet": ["diffusers", "UNet2DConditionModel"]. Rows of null, and those whose folder is not
 * there, are no components. One that tern has not is refused: the pictures would be others than the model's. */
static enum tern_status add_row(struct tern_checkpoint *cp, const char *where, const char *name, const json_t *row)
{
    enum tern_status st = TERN_OK;
    const char *class_name = json_string_value(json_array_get(row, 1));
    if (*name == '_' || !json_is_array(row) || !class_name)
        return TERN_OK;
    if (!plain_name(name))
        return tern_fail(cp->ctx, TERN_E_FORMAT, "%s: a component's name is no plain word", where);
    if (!known_row(name)) {
        char text[TERN_PRINTABLE], pipeline[TERN_PRINTABLE];
        return tern_fail(cp->ctx, TERN_E_UNSUPPORTED,
                         "%s: the component \"%s\" (%s), which a %s needs, is not available; [null, null] there leaves it out", where, name,
                         tern_printable(class_name, strlen(class_name), text),
                         tern_printable(cp->pipeline, strlen(cp->pipeline), pipeline));
    }
    char *path = existing(cp, name, "config.json", TERN_PATH_FILE, &st);
    if (!path)
        return st;
    if (cp->count == TERN_MAX_COMPONENTS)
        st = tern_fail(cp->ctx, TERN_E_FORMAT, "%s: more than %d components", where, TERN_MAX_COMPONENTS);
    char *config = st ? NULL : tern_read_file(cp->ctx, path, TERN_CONFIG_LIMIT, NULL);
    if (!st)
        st = config ? tern_checkpoint_add(cp, name, class_name, config, path) : tern_error_status(cp->ctx);
    tern_free(cp->ctx, path);
    return st;
}

/* The scheduler's text, and its class by its row of the index: a scheduler has no config.json, so it is no component. */
static enum tern_status read_scheduler(struct tern_checkpoint *cp, const json_t *root)
{
    enum tern_status st = TERN_OK;
    const char *class_name = json_string_value(json_array_get(json_object_get(root, "scheduler"), 1));
    char *path = existing(cp, "scheduler", "scheduler_config.json", TERN_PATH_FILE, &st);
    if (path && (!(cp->scheduler = tern_read_file(cp->ctx, path, TERN_CONFIG_LIMIT, NULL)) ||
                 (class_name && !(cp->scheduler_class = tern_strdup(cp->ctx, class_name)))))
        st = tern_error_status(cp->ctx);
    tern_free(cp->ctx, path);
    return st;
}

static enum tern_status find_tokenizers(struct tern_checkpoint *cp)
{
    enum tern_status st = TERN_OK;
    cp->tokenizers[0] = existing(cp, "tokenizer", NULL, TERN_PATH_FOLDER, &st);
    cp->tokenizers[1] = st ? NULL : existing(cp, "tokenizer_2", NULL, TERN_PATH_FOLDER, &st);
    return st;
}

static enum tern_status open_folder(struct tern_checkpoint *cp)
{
    const char *key, *pipeline = NULL;
    json_t *row, *root = NULL;
    enum tern_status st = TERN_OK;
    char *path = existing(cp, "model_index.json", NULL, TERN_PATH_FILE, &st);
    if (!path)
        return st ? st : tern_layout_no_model(cp->ctx, cp->path);
    size_t size = 0;
    cp->index = tern_read_file(cp->ctx, path, TERN_CONFIG_LIMIT, &size);
    root = cp->index ? tern_json_parse(cp->ctx, cp->index, size, path) : NULL;
    if (!root)
        st = tern_error_status(cp->ctx);
    else if (!json_is_object(root))
        st = tern_fail(cp->ctx, TERN_E_FORMAT, "%s: expected a JSON object", path);
    if (!st)
        st = tern_json_string(cp->ctx, root, path, "_class_name", &pipeline);
    if (!st && !(cp->pipeline = tern_strdup(cp->ctx, pipeline ? pipeline : "DiffusionPipeline")))
        st = TERN_E_NO_MEMORY;
    if (!st)
        json_object_foreach(root, key, row)
            if (!st)
                st = add_row(cp, path, key, row);
    if (!st)
        st = read_scheduler(cp, root);
    if (!st)
        st = find_tokenizers(cp);
    if (!st && !cp->count)
        st = tern_fail(cp->ctx, TERN_E_NOT_FOUND,
                       "%s: none of the components that it lists is there: expected folders such as %s/unet with a config.json", path,
                       cp->path);
    json_decref(root);
    tern_free(cp->ctx, path);
    return st;
}

/* Moves a recognised configuration into the checkpoint. */
static enum tern_status take(struct tern_checkpoint *cp, const char *name, const char *class_name, char **config)
{
    char *text = *config;
    *config = NULL;
    return text ? tern_checkpoint_add(cp, name, class_name, text, cp->path) : TERN_OK;
}

static enum tern_status open_file(struct tern_checkpoint *cp)
{
    struct tern_detected d = {0};
    cp->source = tern_weights_open(cp->ctx, cp->path);
    enum tern_status st = cp->source ? tern_detect_sd(cp->ctx, cp->source, cp->path, &d) : tern_error_status(cp->ctx);
    if (!st && !(cp->pipeline = tern_strdup(cp->ctx, d.pipeline)))
        st = TERN_E_NO_MEMORY;
    if (!st)
        st = take(cp, "text_encoder", "CLIPTextModel", &d.text_encoder);
    if (!st)
        st = take(cp, "text_encoder_2", "CLIPTextModelWithProjection", &d.text_encoder_2);
    if (!st)
        st = take(cp, "unet", "UNet2DConditionModel", &d.unet);
    if (!st)
        st = take(cp, "vae", "AutoencoderKL", &d.vae);
    cp->sizes = d.sizes;
    cp->scheduler = d.scheduler;
    d.scheduler = NULL;
    tern_detected_free(cp->ctx, &d);
    return st;
}

struct tern_checkpoint *tern_checkpoint_create(struct tern_context *ctx, const char *path, const char *expected)
{
    enum tern_path_kind kind = tern_path_kind(path);
    if (kind == TERN_PATH_MISSING) {
        tern_fail(ctx, TERN_E_NOT_FOUND, "%s: no such file or folder; expected %s", path, expected);
        return NULL;
    }
    struct tern_checkpoint *cp = tern_calloc(ctx, 1, sizeof(*cp));
    if (!cp)
        return NULL;
    tern_context_ref(ctx);
    cp->ctx = ctx;
    cp->layout = kind == TERN_PATH_FOLDER ? TERN_LAYOUT_FOLDER : TERN_LAYOUT_SINGLE_FILE;
    cp->path = tern_strdup(ctx, path);
    cp->fixed = tern_path_fixed(ctx, path);
    if (!cp->path || !cp->fixed)
        tern_checkpoint_close(&cp);
    return cp;
}

struct tern_checkpoint *tern_checkpoint_open(struct tern_context *ctx, const char *path)
{
    struct tern_checkpoint *cp = tern_checkpoint_create(ctx, path, "a diffusers folder or a .safetensors or .ckpt file");
    if (cp && (cp->layout == TERN_LAYOUT_FOLDER ? open_folder(cp) : open_file(cp)))
        tern_checkpoint_close(&cp);
    return cp;
}

void tern_checkpoint_close(struct tern_checkpoint **checkpoint)
{
    struct tern_checkpoint *cp = checkpoint ? *checkpoint : NULL;
    if (!cp)
        return;
    *checkpoint = NULL;
    struct tern_context *ctx = cp->ctx;
    for (int i = 0; i < cp->count; i++) {
        tern_free(ctx, cp->components[i].name);
        tern_free(ctx, cp->components[i].class_name);
        tern_free(ctx, cp->components[i].config);
        tern_free(ctx, cp->components[i].where);
    }
    tern_weights_unref(&cp->source);
    tern_free(ctx, cp->path);
    tern_free(ctx, cp->fixed);
    tern_free(ctx, cp->pipeline);
    tern_free(ctx, cp->index);
    tern_free(ctx, cp->scheduler);
    tern_free(ctx, cp->scheduler_class);
    tern_free(ctx, cp->tokenizers[0]);
    tern_free(ctx, cp->tokenizers[1]);
    tern_free(ctx, cp);
    tern_context_unref(ctx);
}

enum tern_layout tern_checkpoint_layout(const struct tern_checkpoint *cp) { return cp->layout; }
const char *tern_checkpoint_path(const struct tern_checkpoint *cp) { return cp->path; }
const char *tern_checkpoint_pipeline(const struct tern_checkpoint *cp) { return cp->pipeline; }
const char *tern_checkpoint_index(const struct tern_checkpoint *cp) { return cp->index; }
const char *tern_checkpoint_scheduler(const struct tern_checkpoint *cp) { return cp->scheduler; }
const char *tern_checkpoint_scheduler_class(const struct tern_checkpoint *cp) { return cp->scheduler_class; }
int tern_checkpoint_count(const struct tern_checkpoint *cp) { return cp->count; }
bool tern_checkpoint_has(const struct tern_checkpoint *cp, const char *component) { return find(cp, component); }

const char *tern_checkpoint_component(const struct tern_checkpoint *cp, int i)
{
    return i >= 0 && i < cp->count ? cp->components[i].name : NULL;
}

const char *tern_checkpoint_class(const struct tern_checkpoint *cp, const char *component)
{
    const struct tern_component *c = find(cp, component);
    return c ? c->class_name : NULL;
}

const char *tern_checkpoint_config(const struct tern_checkpoint *cp, const char *component)
{
    const struct tern_component *c = find(cp, component);
    return c ? c->config : NULL;
}

const char *tern_checkpoint_config_where(const struct tern_checkpoint *cp, const char *component)
{
    const struct tern_component *c = find(cp, component);
    return c ? c->where : NULL;
}

const char *tern_checkpoint_tokenizer(const struct tern_checkpoint *cp, int index)
{
    return index == 0 || index == 1 ? cp->tokenizers[index] : NULL;
}

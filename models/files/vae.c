/* A VAE by itself, as a checkpoint with one component: a weight file with LDM's or diffusers' names, or a diffusers folder. */
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "core/files.h"
#include "core/json.h"
#include "core/tensor.h"
#include "models/files/checkpoint.h"
#include "models/files/taesd.h"
#include "models/files/weights.h"

static const char prefix[] = "first_stage_model.";

static bool begins(const char *s, const char *start) { return !strncmp(s, start, strlen(start)); }

/* How the file names its tensors. */
enum naming { PREFIXED, LDM, DIFFUSERS, TAESD, UNKNOWN };

static enum naming naming_of(const struct tern_weights *w)
{
    static const struct {
        const char *start;
        enum naming naming;
    } names[] = {
        {prefix, PREFIXED},     {"decoder.up_blocks.", DIFFUSERS}, {"decoder.up.", LDM}, {"encoder.down_blocks.", DIFFUSERS},
        {"encoder.down.", LDM},
    };
    for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++)
        for (int64_t i = 0; i < w->count; i++)
            if (begins(w->entries[i].name, names[k].start))
                return names[k].naming;
    return tern_taesd_is(w) ? TAESD : UNKNOWN;
}

static enum tern_status no_vae(struct tern_context *ctx, const struct tern_weights *w, const char *path)
{
    static const struct {
        const char *start, *what;
    } known[] = {
        {"lora_", "a LoRA (--lora)"},
        {"model.diffusion_model.", "a checkpoint without a VAE"},
        {"text_model.", "a text encoder"},
        {"down_blocks.", "a UNet"},
    };
    char text[TERN_PRINTABLE];
    for (size_t k = 0; k < sizeof(known) / sizeof(*known); k++)
        for (int64_t i = 0; i < w->count; i++)
            if (begins(w->entries[i].name, known[k].start))
                return tern_fail(ctx, TERN_E_UNSUPPORTED, "%s: not a VAE, but %s", path, known[k].what);
    const char *first = w->count ? w->entries[0].name : "";
    return tern_fail(ctx, TERN_E_FORMAT,
                     "%s: not a VAE: expected tensors such as \"decoder.up.0.block.0.conv1.weight\" or "
                     "\"decoder.up_blocks.0.resnets.0.conv1.weight\", found %lld such as \"%s\"",
                     path, (long long)w->count, tern_printable(first, strlen(first), text));
}

/* Levels of the decoder by diffusers' names, which LDM counts from the other end. */
static int levels_of(const struct tern_weights *w)
{
    int levels = 0, level;
    for (int64_t i = 0; i < w->count; i++)
        if (sscanf(w->entries[i].name, "decoder.up_blocks.%2d.", &level) == 1 && level >= levels)
            levels = level + 1;
    return levels;
}

/* The tensors by the names that a single file of the whole model would have; others than the VAE's are left out. */
static struct tern_weights *as_ldm(struct tern_context *ctx, const struct tern_weights *w, enum naming naming)
{
    char name[sizeof(prefix) + TERN_LDM_NAME];
    const struct tern_ldm_sizes sizes = {.vae_levels = levels_of(w)};
    struct tern_weights *out = tern_weights_like(ctx, w);
    enum tern_status st = out ? TERN_OK : tern_error_status(ctx);
    for (int64_t i = 0; !st && i < w->count; i++) {
        const char *old = w->entries[i].name;
        if (naming == PREFIXED && !begins(old, prefix))
            continue;
        if (naming != DIFFUSERS || !tern_ldm_name(&sizes, "vae", old, name))
            snprintf(name, sizeof(name), "%s%s", naming == PREFIXED ? "" : prefix, old);
        st = tern_weights_append(out, name, tern_tensor_ref(w->entries[i].tensor));
    }
    if (!st)
        st = tern_weights_finish(out, "vae");
    if (st)
        tern_weights_unref(&out);
    return out;
}

/* Reads the file into cp->source, as if it were a whole model of which only the VAE is there. The sizes are the file's own; what no file
 * tells is the model's. */
static enum tern_status add_kl(struct tern_checkpoint *cp, const struct tern_weights *w, enum naming naming,
                               const struct tern_checkpoint *model)
{
    struct tern_detected d = {.sizes = model->sizes};
    struct tern_weights *named = naming == DIFFUSERS ? tern_weights_normalise(cp->ctx, w, "vae") : NULL;
    if (named || naming != DIFFUSERS)
        cp->source = as_ldm(cp->ctx, named ? named : w, naming);
    tern_weights_unref(&named);
    enum tern_status st = cp->source ? tern_detect_vae(cp->ctx, cp->source, cp->path, &d) : tern_error_status(cp->ctx);
    if (!st)
        st = tern_checkpoint_add(cp, "vae", "AutoencoderKL", d.vae, cp->path);
    cp->sizes = d.sizes;
    return st;
}

/* The file is read anew with the weights: a half of it may lie in another. */
static enum tern_status add_taesd(struct tern_checkpoint *cp)
{
    struct tern_weights *w = tern_taesd_open(cp->ctx, cp->path);
    char *config = w ? tern_taesd_config(cp->ctx, w, cp->path) : NULL;
    tern_weights_unref(&w);
    return config ? tern_checkpoint_add(cp, "vae", TERN_TAESD_CLASS, config, cp->path) : tern_error_status(cp->ctx);
}

static enum tern_status open_file(struct tern_checkpoint *cp, const struct tern_checkpoint *model)
{
    struct tern_weights *w = tern_weights_open(cp->ctx, cp->path);
    enum naming naming = w ? naming_of(w) : UNKNOWN;
    if (w && naming == UNKNOWN)
        no_vae(cp->ctx, w, cp->path);
    else if (w && naming == TAESD)
        add_taesd(cp);
    else if (w)
        add_kl(cp, w, naming, model);
    tern_weights_unref(&w);
    return tern_error_status(cp->ctx);
}

/* The class that a configuration names; what is damaged is told by who builds the VAE. */
static const char *class_of(const char *config)
{
    json_t *json = tern_json_read(config, strlen(config), 0, NULL);
    const char *name = json_string_value(json_object_get(json, "_class_name"));
    const char *found = name && !strcmp(name, TERN_TAESD_CLASS) ? TERN_TAESD_CLASS : "AutoencoderKL";
    json_decref(json);
    return found;
}

/* A folder with config.json and the weights. */
static enum tern_status open_folder(struct tern_checkpoint *cp)
{
    char *path = tern_path_join(cp->ctx, cp->path, "config.json"), *config = NULL;
    enum tern_status st = path ? TERN_OK : tern_error_status(cp->ctx);
    if (!st && tern_path_kind(path) != TERN_PATH_FILE)
        st = tern_fail(cp->ctx, TERN_E_NOT_FOUND,
                       "%s: not a VAE: expected a folder with config.json and diffusion_pytorch_model.safetensors, or one weight file",
                       cp->path);
    if (!st && !(config = tern_read_file(cp->ctx, path, TERN_CONFIG_LIMIT, NULL)))
        st = tern_error_status(cp->ctx);
    if (!st)
        st = tern_checkpoint_add(cp, "vae", class_of(config), config, path);
    tern_free(cp->ctx, path);
    return st;
}

struct tern_checkpoint *tern_checkpoint_open_vae(struct tern_context *ctx, const char *path, const struct tern_checkpoint *model)
{
    struct tern_checkpoint *cp = tern_checkpoint_create(ctx, path, "a VAE, as one weight file or as a diffusers folder");
    if (!cp)
        return NULL;
    bool folder = cp->layout == TERN_LAYOUT_FOLDER;
    if (folder)
        cp->layout = TERN_LAYOUT_COMPONENT;
    if ((folder ? open_folder(cp) : open_file(cp, model)) || tern_vae_fit(cp, model))
        tern_checkpoint_close(&cp);
    return cp;
}

/* Which file of a component's folder holds its weights, and what to say of a folder that is no model. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "core/files.h"
#include "models/files/checkpoint.h"
#include "models/files/taesd.h"
#include "models/files/weights.h"

/* In the order of preference, which is diffusers': the full weights before the fp16 variant, safetensors before torch.save. */
static const char *const candidates[] = {
    "diffusion_pytorch_model.safetensors",
    "model.safetensors",
    "diffusion_pytorch_model.safetensors.index.json",
    "model.safetensors.index.json",
    "diffusion_pytorch_model.bin",
    "pytorch_model.bin",
    "diffusion_pytorch_model.bin.index.json",
    "pytorch_model.bin.index.json",
    "diffusion_pytorch_model.fp16.safetensors",
    "model.fp16.safetensors",
    "diffusion_pytorch_model.safetensors.index.fp16.json",
    "model.safetensors.index.fp16.json",
    "diffusion_pytorch_model.fp16.bin",
    "pytorch_model.fp16.bin",
};

/* The weight file of a component's folder; NULL with the error recorded. */
static char *find_weights(struct tern_context *ctx, const char *folder)
{
    for (size_t i = 0; i < sizeof(candidates) / sizeof(*candidates); i++) {
        char *path = tern_path_join(ctx, folder, candidates[i]);
        if (!path || tern_path_kind(path) == TERN_PATH_FILE)
            return path;
        tern_free(ctx, path);
    }
    tern_fail(ctx, TERN_E_NOT_FOUND,
              "%s: no weight file: expected diffusion_pytorch_model or model with .safetensors, .safetensors.index.json, "
              ".fp16.safetensors, or "
              "diffusion_pytorch_model.bin, pytorch_model.bin and their .index.json and .fp16 forms",
              folder);
    return NULL;
}

/* Components are opened as they are needed, and the process may have gone to another folder by then. */
static char *path_from_here(const struct tern_checkpoint *cp)
{
    char *now = tern_path_fixed(cp->ctx, cp->path);
    char *path = now ? tern_strdup(cp->ctx, strcmp(now, cp->fixed) ? cp->fixed : cp->path) : NULL;
    tern_free(cp->ctx, now);
    return path;
}

char *tern_checkpoint_weights_path(const struct tern_checkpoint *cp, const char *component)
{
    if (!tern_checkpoint_has(cp, component)) {
        tern_fail(cp->ctx, TERN_E_NOT_FOUND, "%s: it has no %s", cp->path, component);
        return NULL;
    }
    char *place = path_from_here(cp);
    if (!place || cp->layout == TERN_LAYOUT_SINGLE_FILE)
        return place;
    char *folder = cp->layout == TERN_LAYOUT_COMPONENT ? tern_strdup(cp->ctx, place) : tern_path_join(cp->ctx, place, component);
    char *path = folder ? find_weights(cp->ctx, folder) : NULL;
    tern_free(cp->ctx, folder);
    tern_free(cp->ctx, place);
    return path;
}

struct tern_weights *tern_checkpoint_weights(struct tern_checkpoint *cp, const char *component)
{
    if (cp->source && tern_checkpoint_has(cp, component))
        return tern_ldm_component(cp->ctx, cp->source, &cp->sizes, component, cp->path);
    char *path = tern_checkpoint_weights_path(cp, component);
    const bool alone = cp->layout == TERN_LAYOUT_SINGLE_FILE; /* a TAESD by itself */
    struct tern_weights *w = !path ? NULL : alone ? tern_taesd_open(cp->ctx, path) : tern_weights_open(cp->ctx, path);
    struct tern_weights *out = w && !alone ? tern_weights_normalise(cp->ctx, w, component) : tern_weights_ref(w);
    tern_weights_unref(&w);
    tern_free(cp->ctx, path);
    return out;
}

static bool is_checkpoint_name(const char *name)
{
    static const char *const ends[] = {".safetensors", ".ckpt", ".pt", ".pth", ".bin"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
        if (n > strlen(ends[i]) && !strcmp(name + n - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

/* The first (by name) weight file that lies directly in a folder; "" when there is none. */
static void find_weight_file(const char *path, char *out, size_t size)
{
    const struct dirent *e;
    DIR *d = opendir(path);
    out[0] = 0;
    while (d && (e = readdir(d)))
        if (is_checkpoint_name(e->d_name) && (!out[0] || strcmp(e->d_name, out) < 0))
            snprintf(out, size, "%s", e->d_name);
    if (d)
        closedir(d);
}

static bool has_file(struct tern_context *ctx, const char *path, const char *name)
{
    char *file = tern_path_join(ctx, path, name);
    bool there = file && tern_path_kind(file) == TERN_PATH_FILE;
    tern_free(ctx, file);
    return there;
}

enum tern_status tern_layout_no_model(struct tern_context *ctx, const char *path)
{
    char name[256], text[TERN_PRINTABLE];
    find_weight_file(path, name, sizeof(name));
    if (has_file(ctx, path, "config.json"))
        return tern_fail(
            ctx, TERN_E_NOT_FOUND,
            "%s: one component of a model, not the whole: it has config.json and no model_index.json; name the folder above it", path);
    if (name[0])
        return tern_fail(ctx, TERN_E_NOT_FOUND,
                         "%s: not a diffusers folder: it has no model_index.json; to load the single file in it, name %s/%s", path, path,
                         tern_printable(name, strlen(name), text));
    return tern_fail(
        ctx, TERN_E_NOT_FOUND,
        "%s: a folder that is no model: expected model_index.json and the folders unet, vae, text_encoder, tokenizer and scheduler", path);
}

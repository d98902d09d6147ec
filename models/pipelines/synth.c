/* Checkpoints of full size with random weights, for measuring speed and memory without a download. What tensors there are
 * is asked of the same builders that load real checkpoints. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <tern/ops.h>

#include "core/files.h"
#include "models/files/ldm.h"
#include "models/files/safetensors.h"
#include "models/pipelines/pipeline.h"
#include "models/pipelines/synth_configs.h"

struct tensor_list {
    struct tern_context *ctx;
    struct tern_safetensors_entry *entry;
    int64_t count, capacity;
    const char *component;            /* of what is being listed */
    const struct tern_ldm_sizes *ldm; /* NULL: diffusers names */
    enum tern_dtype dtype;
};

static void list_tensor(void *user, const char *name, int ndim, const int64_t *shape)
{
    struct tensor_list *l = user;
    char ldm[TERN_LDM_NAME];
    if (l->count == l->capacity) {
        int64_t n = l->capacity ? 2 * l->capacity : 512;
        void *p = tern_realloc(l->ctx, l->entry, (size_t)n * sizeof(*l->entry));
        if (!p)
            return;
        l->entry = p;
        l->capacity = n;
    }
    struct tern_safetensors_entry *e = &l->entry[l->count];
    *e = (struct tern_safetensors_entry){.dtype = l->dtype, .ndim = ndim};
    memcpy(e->shape, shape, (size_t)ndim * sizeof(*shape));
    if (l->ldm && !tern_ldm_name(l->ldm, l->component, name, ldm)) {
        tern_fail(l->ctx, TERN_E_INTERNAL, "synth: %s tensor \"%s\" has no LDM name", l->component, name);
        return;
    }
    if (l->ldm && tern_ldm_is_conv1x1(l->component, name)) {
        e->shape[2] = e->shape[3] = 1;
        e->ndim = 4;
    }
    e->name = tern_strdup(l->ctx, l->ldm ? ldm : name);
    l->count += e->name != NULL;
}

static void list_free(struct tensor_list *l)
{
    for (int64_t i = 0; i < l->count; i++)
        tern_free(l->ctx, (void *)(uintptr_t)l->entry[i].name);
    tern_free(l->ctx, l->entry);
    l->entry = NULL;
    l->count = l->capacity = 0;
}

static void list_component(struct tensor_list *l, const char *component)
{
    struct tern_bind b;
    struct tern_unet *unet = NULL;
    struct tern_vae *vae = NULL;
    struct tern_text_encoder *text = NULL;
    l->component = component;
    tern_bind_begin_visit(&b, l->ctx, component, list_tensor, l);
    if (!strcmp(component, "unet"))
        unet = tern_unet_build(l->ctx, sd15_unet, component, &b);
    else if (!strcmp(component, "vae"))
        vae = tern_vae_build(l->ctx, sd15_vae, component, &b);
    else
        text = tern_text_encoder_build(l->ctx, "CLIPTextModel", sd15_text_encoder, component, &b);
    tern_unet_destroy(&unet);
    tern_vae_destroy(&vae);
    tern_text_encoder_destroy(&text);
}

/* xorshift64* [Vigna 2016]: fast, and good enough for weights that mean nothing. */
static float uniform(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (float)((*state * 0x2545f4914f6cdd1du) >> 40) * (2.0f / 16777216.0f) - 1.0f;
}

/* Norm weights about 1, biases about 0, matrices of variance 1 / fan-in: activations keep their size from layer to layer. */
static void fill(const struct tern_safetensors_entry *e, uint64_t seed, float *out)
{
    int64_t n = 1, fan_in = 1;
    for (int i = 0; i < e->ndim; i++) {
        n *= e->shape[i];
        fan_in *= i ? e->shape[i] : 1;
    }
    size_t length = strlen(e->name);
    bool bias = length > 4 && !strcmp(e->name + length - 4, "bias"), norm = e->ndim == 1 && !bias;
    bool table = strstr(e->name, "embedding.weight") != NULL;
    float center = norm ? 1.0f : 0.0f;
    float width = norm || bias ? 0.05f : table ? 0.05f : sqrtf(1.5f / (float)fan_in);
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
    for (int64_t i = 0; i < e->ndim; i++)
        state = (state ^ (uint64_t)e->shape[i]) * 0xff51afd7ed558ccdu;
    state |= 1;
    for (int64_t i = 0; i < n; i++)
        out[i] = center + width * uniform(&state);
}

static enum tern_status write_tensor(struct tern_context *ctx, struct tern_safetensors_writer *w, const struct tern_safetensors_entry *e,
                                     uint64_t seed)
{
    struct tern_meta m = tern_meta_make(TERN_F32, e->ndim, e->shape);
    tern_scope_begin(ctx);
    tern_tensor *t = tern_tensor_empty_on(ctx->host, &m);
    if (t) {
        fill(e, seed, tern_tensor_host(t));
        t = tern_cast(t, e->dtype);
    }
    if (t)
        tern_safetensors_writer_add_tensor(w, t);
    tern_scope_end(ctx, NULL);
    return tern_error_status(ctx);
}

static enum tern_status write_list(struct tensor_list *l, const char *path, uint64_t seed)
{
    static const char *const metadata[] = {"format", "pt"};
    struct tern_context *ctx = l->ctx;
    double start = tern_now();
    struct tern_safetensors_writer *w = tern_failed(ctx) ? NULL : tern_safetensors_writer_open(ctx, path, l->entry, l->count, metadata, 1);
    for (int64_t i = 0; w && i < l->count; i++) {
        if (tern_check_cancel(ctx) || write_tensor(ctx, w, &l->entry[i], seed + (uint64_t)i))
            break;
        tern_report(ctx, "write", i + 1, l->count, tern_now() - start);
    }
    if (w && tern_failed(ctx))
        tern_safetensors_writer_discard(&w);
    else if (w)
        tern_safetensors_writer_commit(&w);
    return tern_error_status(ctx);
}

static enum tern_status write_text(struct tern_context *ctx, const char *folder, const char *name, const char *text)
{
    char *path = tern_path_join(ctx, folder, name);
    struct tern_writer *w = path ? tern_writer_open(ctx, path) : NULL;
    if (w) {
        fputs(text, w->file);
        tern_writer_commit(&w);
    }
    tern_free(ctx, path);
    return tern_error_status(ctx);
}

static char *make_folder(struct tern_context *ctx, const char *parent, const char *name)
{
    char *path = name ? tern_path_join(ctx, parent, name) : tern_strdup(ctx, parent);
    if (path && mkdir(path, 0777) && (errno != EEXIST || tern_path_kind(path) != TERN_PATH_FOLDER)) {
        tern_fail(ctx, TERN_E_IO, "%s: the folder cannot be made: %s", path, strerror(errno));
        tern_free(ctx, path);
        return NULL;
    }
    return path;
}

static enum tern_status write_component(struct tensor_list *l, const char *out, const char *component, const char *config, const char *file,
                                        uint64_t seed)
{
    struct tern_context *ctx = l->ctx;
    char *folder = tern_failed(ctx) ? NULL : make_folder(ctx, out, component);
    char *path = folder ? tern_path_join(ctx, folder, file) : NULL;
    if (path && write_text(ctx, folder, "config.json", config) == TERN_OK) {
        list_component(l, component);
        write_list(l, path, seed);
        list_free(l);
    }
    tern_free(ctx, path);
    tern_free(ctx, folder);
    return tern_error_status(ctx);
}

static enum tern_status write_folder(struct tensor_list *l, const char *out, uint64_t seed)
{
    struct tern_context *ctx = l->ctx;
    char *root = make_folder(ctx, out, NULL), *scheduler = root ? make_folder(ctx, out, "scheduler") : NULL;
    if (scheduler) {
        write_text(ctx, scheduler, "scheduler_config.json", sd15_scheduler);
        write_component(l, out, "unet", sd15_unet, "diffusion_pytorch_model.safetensors", seed);
        write_component(l, out, "vae", sd15_vae, "diffusion_pytorch_model.safetensors", seed + 10000);
        write_component(l, out, "text_encoder", sd15_text_encoder, "model.safetensors", seed + 20000);
        if (!tern_failed(ctx))
            write_text(ctx, out, "model_index.json", sd15_index); /* last: a folder without it is no model */
    }
    tern_free(ctx, scheduler);
    tern_free(ctx, root);
    return tern_error_status(ctx);
}

enum tern_status tern_synth(struct tern_context *ctx, const char *out, const struct tern_synth_params *params)
{
    static const struct tern_ldm_sizes sizes = {4, 2, 0xe, 4};
    const char *arch = params && params->arch ? params->arch : "sd15";
    struct tensor_list l = {.ctx = ctx, .dtype = params ? params->dtype : TERN_F16};
    if (tern_failed(ctx))
        return tern_error_status(ctx);
    if (strcmp(arch, "sd15"))
        return tern_fail(ctx, TERN_E_NOT_FOUND, "synth: architecture \"%s\" is not known; expected sd15", arch);
    if (l.dtype != TERN_F16 && l.dtype != TERN_F32)
        return tern_fail(ctx, TERN_E_INVALID, "synth: dtype: expected f16 or f32, found %s", tern_dtype_name(l.dtype));
    if (!params || !params->single_file)
        return write_folder(&l, out, params ? params->seed : 0);
    l.ldm = &sizes;
    list_component(&l, "text_encoder");
    list_component(&l, "vae");
    list_component(&l, "unet");
    write_list(&l, out, params->seed);
    list_free(&l);
    return tern_error_status(ctx);
}

/* Checkpoints of full size with random weights, for measuring speed and memory without a download. */
#include "models/pipelines/synth.h"

#include <math.h>
#include <string.h>
#include <tern/ops.h>

#include "core/files.h"
#include "models/pipelines/pipeline.h"

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

static enum tern_status write_list(struct tern_synth_list *l, const char *path, uint64_t seed)
{
    const char *const metadata[] = {"format", "pt", TERN_LDM_PREDICTION, l->predicts};
    struct tern_context *ctx = l->ctx;
    double start = tern_now();
    struct tern_safetensors_writer *w =
        tern_failed(ctx) ? NULL : tern_safetensors_writer_open(ctx, path, l->entry, l->count, metadata, l->predicts ? 2 : 1);
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

static enum tern_status write_component(struct tern_synth_list *l, struct tern_folder *f, const struct tern_synth_component *component,
                                        uint64_t seed)
{
    bool text = component->name[0] == 't';
    const char *folder = tern_folder_make(f, f->root, component->name);
    if (!folder || tern_folder_write_text(f, folder, "config.json", component->config))
        return tern_error_status(l->ctx);
    const char *path = tern_folder_note(f, folder, text ? "model.safetensors" : "diffusion_pytorch_model.safetensors");
    if (!path)
        return tern_error_status(l->ctx);
    tern_synth_list_add(l, component);
    write_list(l, path, seed);
    tern_synth_list_free(l);
    return tern_error_status(l->ctx);
}

static enum tern_status write_tokenizer(struct tern_folder *f, const char *config)
{
    const char *folder = tern_folder_make(f, f->root, "tokenizer");
    char *vocabulary = folder ? tern_synth_vocabulary(f->ctx) : NULL;
    if (vocabulary && tern_folder_write_text(f, folder, "tokenizer_config.json", config) == TERN_OK)
        tern_folder_write_text(f, folder, "vocab.txt", vocabulary);
    tern_free(f->ctx, vocabulary);
    return tern_error_status(f->ctx);
}

static enum tern_status write_all(struct tern_synth_list *l, const struct tern_synth_arch *arch, struct tern_folder *f, uint64_t seed)
{
    const char *scheduler = tern_folder_make(f, f->root, "scheduler");
    enum tern_status st =
        scheduler ? tern_folder_write_text(f, scheduler, "scheduler_config.json", arch->scheduler) : tern_error_status(l->ctx);
    for (int i = 0; !st && i < TERN_SYNTH_COMPONENTS && arch->components[i].name; i++)
        st = write_component(l, f, &arch->components[i], seed + 10000 * (uint64_t)i);
    if (!st && arch->tokenizer)
        st = write_tokenizer(f, arch->tokenizer);
    return st ? st : tern_folder_write_text(f, f->root, "model_index.json", arch->index);
}

static enum tern_status write_folder(struct tern_synth_list *l, const struct tern_synth_arch *arch, const char *out, uint64_t seed)
{
    struct tern_folder f;
    if (tern_folder_check(l->ctx, out))
        return tern_error_status(l->ctx);
    enum tern_status st = tern_folder_open(&f, l->ctx, out);
    if (!st)
        st = write_all(l, arch, &f, seed);
    return tern_folder_close(&f, st);
}

/* The text encoders first, as in published files. */
static enum tern_status write_single(struct tern_synth_list *l, const struct tern_synth_arch *arch, const char *out, uint64_t seed)
{
    if (!arch->sizes)
        return tern_fail(l->ctx, TERN_E_UNSUPPORTED, "synth: %s has no form as a single file; its folder would help", arch->name);
    l->ldm = arch->sizes;
    l->predicts = arch->predicts;
    for (int i = TERN_SYNTH_COMPONENTS - 1; i >= 0; i--)
        if (arch->components[i].name)
            tern_synth_list_add(l, &arch->components[i]);
    write_list(l, out, seed);
    tern_synth_list_free(l);
    return tern_error_status(l->ctx);
}

enum tern_status tern_synth(struct tern_context *ctx, const char *out, const struct tern_synth_params *params)
{
    static const struct tern_synth_params none = {.dtype = TERN_F16};
    const struct tern_synth_params *q = params ? params : &none;
    struct tern_synth_list l = {.ctx = ctx, .dtype = q->dtype};
    if (tern_failed(ctx))
        return tern_error_status(ctx);
    if (!out)
        return tern_fail(ctx, TERN_E_INVALID, "tern_synth: expected the path of the output, found NULL");
    const struct tern_synth_arch *arch = tern_synth_arch_find(ctx, q->arch ? q->arch : "sd15");
    if (!arch)
        return tern_error_status(ctx);
    if (l.dtype != TERN_F16 && l.dtype != TERN_F32)
        return tern_fail(ctx, TERN_E_INVALID, "synth: dtype: expected f16 or f32, found %s", tern_dtype_name(l.dtype));
    return q->single_file ? write_single(&l, arch, out, q->seed) : write_folder(&l, arch, out, q->seed);
}

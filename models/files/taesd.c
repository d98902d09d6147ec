/* Weight files of TAESD: one with diffusers' names, or a decoder and an encoder in a file each. */
#include "models/files/taesd.h"

#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "core/files.h"
#include "core/tensor.h"
#include "models/files/detect.h"
#include "models/files/weights.h"

#define MOST_LAYERS 96 /* of a half */

/* The author's decoder begins with a layer without weights, which diffusers does not count. */
enum half { ENCODER, DECODER };
static const struct {
    const char *name, *first; /* the author's first convolution */
    int shift;
} halves[] = {[ENCODER] = {"encoder", "0.weight", 0}, [DECODER] = {"decoder", "1.weight", 1}};

static tern_tensor *layer(const struct tern_weights *w, enum half half, int place, const char *what)
{
    char name[64];
    snprintf(name, sizeof(name), "%s.layers.%d.%s", halves[half].name, place, what);
    return tern_weights_get(w, name);
}

/* Whether it is that half as its author published it. */
static bool is_half(const struct tern_weights *w, enum half half)
{
    return tern_weights_get(w, halves[half].first) && tern_weights_get(w, "3.conv.0.weight");
}

bool tern_taesd_is(const struct tern_weights *w)
{
    return layer(w, DECODER, 0, "weight") || layer(w, ENCODER, 0, "weight") || is_half(w, ENCODER) || is_half(w, DECODER);
}

/* Adds a file's tensors under diffusers' names. */
static enum tern_status append(struct tern_weights *out, const struct tern_weights *w)
{
    enum tern_status st = TERN_OK;
    char name[256];
    int half = is_half(w, DECODER) ? DECODER : is_half(w, ENCODER) ? ENCODER : -1;
    for (int64_t i = 0; !st && i < w->count; i++) {
        int place, end = 0;
        const char *old = w->entries[i].name;
        if (half >= 0 && sscanf(old, "%4d.%n", &place, &end) == 1 && end && strlen(old) < 200)
            snprintf(name, sizeof(name), "%s.layers.%d.%s", halves[half].name, place - halves[half].shift, old + end);
        else
            snprintf(name, sizeof(name), "%s", old);
        st = tern_weights_append(out, name, tern_tensor_ref(w->entries[i].tensor));
    }
    return st;
}

/* ".../taesd_decoder.safetensors" -> ".../taesd_encoder.safetensors" when that is a file; tern_free. NULL without an error: there is none. */
static char *encoder_beside(struct tern_context *ctx, const char *path)
{
    const char *base = strrchr(path, '/'), *at = strstr(base ? base : path, "decoder");
    char *other = at ? tern_strdup(ctx, path) : NULL;
    if (other)
        memcpy(other + (at - path), "encoder", strlen("encoder"));
    if (other && tern_path_kind(other) == TERN_PATH_FILE)
        return other;
    tern_free(ctx, other);
    return NULL;
}

/* The encoder of the file beside a decoder alone. */
static enum tern_status append_encoder(struct tern_weights *out, const char *path)
{
    struct tern_context *ctx = out->ctx;
    char *beside = encoder_beside(ctx, path);
    struct tern_weights *w = beside ? tern_weights_open(ctx, beside) : NULL;
    if (w && is_half(w, ENCODER))
        append(out, w);
    else if (w)
        tern_fail(ctx, TERN_E_FORMAT, "%s: expected TAESD's encoder, as the name of the decoder beside it says; another name would help",
                  beside);
    tern_weights_unref(&w);
    tern_free(ctx, beside);
    return tern_error_status(ctx);
}

struct tern_weights *tern_taesd_open(struct tern_context *ctx, const char *path)
{
    struct tern_weights *w = tern_weights_open(ctx, path), *out = w ? tern_weights_like(ctx, w) : NULL;
    if (out && append(out, w) == TERN_OK && is_half(w, DECODER))
        append_encoder(out, path);
    if (out && !tern_failed(ctx))
        tern_weights_finish(out, path);
    if (out && !tern_failed(ctx) && !layer(out, DECODER, 0, "weight"))
        tern_fail(ctx, TERN_E_UNSUPPORTED,
                  "%s: TAESD's encoder alone: expected its decoder (taesd_decoder), beside which the encoder is found", path);
    tern_weights_unref(&w);
    if (tern_failed(ctx))
        tern_weights_unref(&out);
    return out;
}

/* Residual blocks between one convolution and the next: a number a stage. Returns the stages; 0: too many, or none. */
static int count_stages(const struct tern_weights *w, enum half half, int64_t blocks[TERN_DETECT_LEVELS])
{
    int convs = 0, n = 0;
    for (int i = 0; i < MOST_LAYERS; i++) {
        if (layer(w, half, i, "conv.0.weight"))
            n++;
        if (!layer(w, half, i, "weight"))
            continue;
        if (convs > TERN_DETECT_LEVELS)
            return 0;
        if (convs++)
            blocks[convs - 2] = n;
        n = 0;
    }
    return convs ? convs - 1 : 0;
}

/* Channels of every stage, and of what the half reads. */
static int64_t first_size(const struct tern_weights *w, enum half half, int dim)
{
    const tern_tensor *t = layer(w, half, 0, "weight");
    return t && t->meta.ndim == 4 ? t->meta.shape[dim] : 0;
}

static json_t *repeated(int64_t value, int n)
{
    int64_t all[TERN_DETECT_LEVELS];
    for (int i = 0; i < n; i++)
        all[i] = value;
    return tern_detect_ints(all, n);
}

/* A decoder alone is told as if an encoder of the same stages belonged to it. */
char *tern_taesd_config(struct tern_context *ctx, const struct tern_weights *w, const char *where)
{
    int64_t down[TERN_DETECT_LEVELS], up[TERN_DETECT_LEVELS];
    int stages = count_stages(w, DECODER, up), others = count_stages(w, ENCODER, down);
    if (!stages) {
        tern_fail(ctx, TERN_E_FORMAT, "%s: not TAESD: its decoder has no stages of blocks between convolutions, or too many", where);
        return NULL;
    }
    bool both = others > 0;
    return tern_detect_dump(ctx, json_pack("{s:s,s:o,s:o,s:I,s:o,s:o}", "_class_name", TERN_TAESD_CLASS, "decoder_block_out_channels",
                                           repeated(first_size(w, DECODER, 0), stages), "encoder_block_out_channels",
                                           repeated(first_size(w, both ? ENCODER : DECODER, 0), both ? others : stages), "latent_channels",
                                           (json_int_t)first_size(w, DECODER, 1), "num_decoder_blocks", tern_detect_ints(up, stages),
                                           "num_encoder_blocks", both ? tern_detect_ints(down, others) : tern_detect_ints(up, stages)));
}

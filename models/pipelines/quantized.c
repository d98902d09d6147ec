/* Checkpoints that come quantised: their files say which layers are kept how, and jobs follow that. */
#include <string.h>

#include "graph/passes/passes.h"
#include "graph/plan.h"
#include "models/files/quantized.h"
#include "models/pipelines/pipeline.h"

/* Whose words hold for the component. */
static char **words_of(struct tern_pipeline *p, const char *component)
{
    return strcmp(component, "unet") ? &p->text_encoder_quantize : &p->quantize;
}

static enum tern_status refuse(const struct tern_pipeline *p, const char *component, const char *file, const char *asked)
{
    return tern_fail(
        p->ctx, TERN_E_INVALID,
        "%s: %s comes quantised as \"%.80s\", and \"%.80s\" was asked for: expected no other words, no recipe and no dtype int8 "
        "beside it; tern convert with a --dtype and nothing else makes floats of it first",
        tern_checkpoint_path(tern_pipeline_holder(p, component)), component, file, asked);
}

enum tern_status tern_pipeline_follow_recipe(struct tern_pipeline *p, const char *words)
{
    if (p->quantize)
        return strcmp(p->quantize, words) ? refuse(p, "unet", p->quantize, words) : TERN_OK;
    p->quantize = tern_strdup(p->ctx, words);
    return tern_error_status(p->ctx);
}

/* All words are read for each quantised tensor: seconds, where a word for each layer of SDXL's UNet takes a third of this. */
#define MOST_READ ((int64_t)1 << 27)

static enum tern_status check_size(struct tern_context *ctx, const char *where, const struct tern_weights *w, const char *words)
{
    const int64_t size = (int64_t)strlen(words);
    int64_t n = 0;
    for (int64_t i = 0; i < w->count; i++)
        n += tern_quantized_bits(w->entries[i].tensor) != 0;
    return n * size <= MOST_READ
               ? TERN_OK
               : tern_fail(ctx, TERN_E_FORMAT,
                           "%s: the words of the file: expected at most %lld bytes for %lld quantised tensors, found %lld", where,
                           (long long)(MOST_READ / n), (long long)n, (long long)size);
}

/* What a word says of a weight must be what is kept of it. */
static enum tern_status check_weights(struct tern_context *ctx, const char *where, const struct tern_weights *w, const char *words)
{
    static const char *const kinds[TERN_LAYER_FORMATS] = {"floats", "w8a8", "w8", "w4"};
    char text[TERN_PRINTABLE];
    if (check_size(ctx, where, w, words))
        return tern_error_status(ctx);
    for (int64_t i = 0; i < w->count; i++) {
        const char *name = w->entries[i].name;
        const int bits = tern_quantized_bits(w->entries[i].tensor);
        if (!bits)
            continue;
        if (tern_check_cancel(ctx))
            return TERN_E_CANCELLED;
        const enum tern_layer_format f = tern_quantize_format(words, name);
        if (bits == 4 ? f != TERN_LAYER_W4 : f != TERN_LAYER_W8A8 && f != TERN_LAYER_W8)
            return tern_fail(ctx, TERN_E_FORMAT, "%s: tensor \"%s\": the words of the file expect %s, found %d bits", where,
                             tern_printable(name, strlen(name), text), kinds[f], bits);
    }
    return TERN_OK;
}

/* What is no weight, and goes by the name of an op or of how it is done. */
static bool names_no_weight(const char *word) { return strchr(word, '*') || !strcmp(word, "sdpa") || !strcmp(word, "winograd"); }

enum tern_status tern_pipeline_check_words(struct tern_context *ctx, enum tern_status status, const char *where,
                                           const struct tern_weights *w, const char *words)
{
    char name[TERN_QUANTIZE_NAME], text[TERN_PRINTABLE];
    for (const char *at = words; tern_quantize_next_name(&at, name);)
        if (*name && !names_no_weight(name) && !tern_weights_get(w, name))
            return tern_fail(ctx, status, "%s: the words name the layer \"%s\": expected a weight of the model, found none", where,
                             tern_printable(name, strlen(name), text));
    return TERN_OK;
}

/* Numbers without words are of a file that was put together by hand: what kernels are to do with them is not said. */
static enum tern_status check_floats(struct tern_context *ctx, const char *where, const char *component, const struct tern_weights *w)
{
    char text[TERN_PRINTABLE];
    for (int64_t i = 0; i < w->count; i++) {
        const char *name = w->entries[i].name;
        const int bits = tern_quantized_bits(w->entries[i].tensor);
        if (bits)
            return tern_fail(ctx, TERN_E_FORMAT, "%s: tensor \"%s\": the file has no words for %s: expected floats, found %d bits", where,
                             tern_printable(name, strlen(name), text), component, bits);
    }
    return TERN_OK;
}

struct tern_weights *tern_pipeline_follow_file(struct tern_pipeline *p, const char *component, struct tern_weights *w)
{
    const bool unet = !strcmp(component, "unet");
    const char *words = unet || component[0] == 't' ? tern_weights_metadata(w, unet ? TERN_QUANTIZED_UNET : TERN_QUANTIZED_TEXT) : NULL;
    if (!tern_weights_metadata(w, TERN_QUANTIZED_KEY))
        return w;
    const char *where = tern_checkpoint_path(tern_pipeline_holder(p, component));
    char **own = words_of(p, component);
    if (!words)
        check_floats(p->ctx, where, component, w);
    else if (check_weights(p->ctx, where, w, words) || (unet && tern_pipeline_check_words(p->ctx, TERN_E_FORMAT, where, w, words)))
        tern_weights_unref(&w);
    else if (*own && strcmp(*own, words) != 0)
        refuse(p, component, words, *own);
    else if (!*own)
        *own = tern_strdup(p->ctx, words);
    if (tern_failed(p->ctx))
        tern_weights_unref(&w);
    return w;
}

/* Tokenizers of a model: its own, or those that ship with tern. */
#include "models/pipelines/pipeline.h"

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

enum tern_status tern_pipeline_load_tokenizers(struct tern_pipeline *p)
{
    enum tern_status st = load_tokenizer(p);
    return st ? st : load_tokenizer_2(p);
}

struct tern_tokenizer *tern_pipeline_tokenizer(struct tern_pipeline *p, int index)
{
    if (!p)
        return NULL;
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

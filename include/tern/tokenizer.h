/* Tokenizers, equal to the Hugging Face fast tokenizers on any text. */
#ifndef TERN_TOKENIZER_H
#define TERN_TOKENIZER_H

#include <tern/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tern_tokenizer;

/* Loads the tokenizer of a folder: CLIP byte-pair (vocab.json + merges.txt) or BERT WordPiece
 * (vocab.txt), with tokenizer_config.json, special_tokens_map.json and added_tokens.json where
 * there; or a lone tokenizer.json of either kind. NULL with the error recorded. */
TERN_API struct tern_tokenizer *tern_tokenizer_load(struct tern_context *ctx, const char *folder);

/* The CLIP tokenizer that ships with tern (49408 ids; SD 1.x): for single-file checkpoints.
 * pad_id is the id that pads: 49407 for SD 1.x, 0 for SD 2.x and SDXL's second encoder. */
TERN_API struct tern_tokenizer *tern_tokenizer_clip(struct tern_context *ctx, int32_t pad_id);

TERN_API void tern_tokenizer_destroy(struct tern_tokenizer **t);

/* Ids of `text` (UTF-8, NUL-terminated) with begin and end tokens, no padding, not truncated.
 * *ids is owned by the caller: tern_tokenizer_free_ids. Invalid UTF-8 is TERN_E_INVALID with the
 * byte offset. Thread safe. */
TERN_API enum tern_status tern_tokenize(const struct tern_tokenizer *t, const char *text, int32_t **ids, int64_t *count);
TERN_API void tern_tokenizer_free_ids(const struct tern_tokenizer *t, int32_t *ids);

/* What the text encoder reads: exactly max_length ids, padded with the pad token, or the first
 * max_length - 1 ids and the end token. out holds max_length values. */
TERN_API enum tern_status tern_tokenize_padded(const struct tern_tokenizer *t, const char *text, int64_t *out);

/* Facts. Of NULL: sizes are 0, ids -1. */
TERN_API int32_t tern_tokenizer_max_length(const struct tern_tokenizer *t);
TERN_API int32_t tern_tokenizer_vocab_size(const struct tern_tokenizer *t);
TERN_API int32_t tern_tokenizer_begin_id(const struct tern_tokenizer *t);
TERN_API int32_t tern_tokenizer_end_id(const struct tern_tokenizer *t);
TERN_API int32_t tern_tokenizer_pad_id(const struct tern_tokenizer *t);

#ifdef __cplusplus
}
#endif
#endif

/* The CLIP tokenizer that ships with tern, as the files that other programs read. */
#ifndef TERN_TOKENIZERS_CLIP_FILES_H
#define TERN_TOKENIZERS_CLIP_FILES_H

#include <tern/base.h>

/* vocab.json and merges.txt; tern_free. NULL with the error recorded. */
char *tern_clip_vocabulary_json(struct tern_context *ctx);
char *tern_clip_merges_text(struct tern_context *ctx);
/* special_tokens_map.json and tokenizer_config.json of OpenAI's CLIP, or of OpenCLIP's, which pads with "!"; static. */
const char *tern_clip_special_tokens(bool open_clip);
const char *tern_clip_tokenizer_config(bool open_clip);

#endif

/* Loading a tokenizer from the files of a folder; the parts of load.c. */
#ifndef TERN_TOKENIZERS_LOAD_H
#define TERN_TOKENIZERS_LOAD_H

#include "core/json.h"
#include "models/tokenizers/tokenizer.h"

/* What the folder holds; json NULL: the file is not there. */
struct tern_tokenizer_files {
    struct tern_context *ctx;
    const char *folder;
    struct tern_tokenizer_file {
        char *path;
        json_t *json; /* an object */
    } config,         /* tokenizer_config.json */
        special,      /* special_tokens_map.json */
        added,        /* added_tokens.json */
        whole;        /* tokenizer.json */
};

/* The pieces of vocab.json or of "vocab" in tokenizer.json: an object of text to id. Every id at most once; with `dense` every
 * id from 0 up is there. */
enum tern_status tern_vocab_from_json(struct tern_vocab *v, const json_t *o, const char *where, bool dense);
/* The pieces of vocab.txt: one a line, the id is the line's number from 0. */
enum tern_status tern_vocab_from_lines(struct tern_vocab *v, const char *text, size_t size, const char *where);

/* Byte pieces and merges by the texts of the vocabulary. `merges` is the text of merges.txt, or NULL: then `list` is "merges"
 * of tokenizer.json. */
enum tern_status tern_bpe_from_merges(struct tern_bpe *bpe, const struct tern_vocab *v, const char *merges, size_t size, const json_t *list,
                                      const char *where);

/* Added and special tokens, by the rules of transformers (special.c): fills t->added, begin, end, pad and vocab_size. *unk is
 * the text of the unknown token (borrowed from the files, or static). */
enum tern_status tern_tokenizer_set_special(struct tern_tokenizer *t, const struct tern_tokenizer_files *f, const struct tern_vocab *v,
                                            const char **unk);

#endif

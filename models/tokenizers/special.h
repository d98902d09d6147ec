/* The two halves of finding a tokenizer's tokens: what the files say (special_gather.c), and what follows (special.c). */
#ifndef TERN_TOKENIZERS_SPECIAL_H
#define TERN_TOKENIZERS_SPECIAL_H

#include "models/tokenizers/load.h"

/* Tokens that have a name, in the order in which transformers adds them. */
enum tern_token_name { TERN_BOS, TERN_EOS, TERN_UNK, TERN_SEP, TERN_PAD, TERN_CLS, TERN_MASK, TERN_NAMED };
extern const char *const tern_token_names[TERN_NAMED]; /* "bos_token" … */

/* A token as a file gives it; the text is borrowed from the file, NULL when there is none. */
struct tern_token_value {
    struct tern_added_token token;
    bool plain;     /* a string without flags */
    bool from_kind; /* a default, not from a file */
    bool typed;     /* an object of tokenizer_config.json */
    bool follows;   /* an object without "normalized": that is what "special" comes out not to be */
};

struct tern_token_values {
    struct tern_context *ctx;
    struct tern_token_value *at;
    size_t count, capacity;
};
/* At most TERN_ADDED_LIMIT. Free `at` with tern_free. */
enum tern_status tern_token_push(struct tern_token_values *v, struct tern_token_value x);

/* Everything that the files say. */
struct tern_gathered {
    struct tern_token_value named[TERN_NAMED];
    struct tern_token_values decoder; /* tokens with ids, in the order of these */
    struct tern_token_values others;  /* further "…_token" entries: they are names, too */
    struct tern_token_values extra;   /* the lists of additional tokens */
};
enum tern_status tern_special_gather(struct tern_gathered *g, const struct tern_tokenizer_files *f, const char *const defaults[TERN_NAMED]);
/* The token with an id that has this text, NULL when there is none. */
const struct tern_token_value *tern_decoder_find(const struct tern_gathered *g, const char *text);

#endif

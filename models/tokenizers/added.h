/* Added tokens: texts such as <|endoftext|> that are found in the prompt before it is split into words. */
#ifndef TERN_TOKENIZERS_ADDED_H
#define TERN_TOKENIZERS_ADDED_H

#include "models/tokenizers/ints.h"
#include "models/tokenizers/pairs.h"

struct tern_added_token {
    const char *text; /* UTF-8; the set owns its own copy */
    int32_t id;
    bool single_word;    /* not inside a word */
    bool lstrip, rstrip; /* takes the white space around it */
    bool normalized;     /* looked for in the normalised text, in normalised form */
    bool special;
};

/* A trie over code points: node 0 is the root; token[node] is the index of the token that ends there, or -1. */
struct tern_trie {
    struct tern_pairs edges;
    struct tern_ints token;
};

/* Most tokens that a set takes: vocabularies are widened by some thousand Chinese characters. */
#define TERN_ADDED_LIMIT 16384

/* Start with {.ctx = ctx}. */
struct tern_added {
    struct tern_context *ctx;
    struct tern_added_token *tokens; /* the special ones and the others, each in the order in which they came */
    size_t count, capacity;
    struct tern_trie raw, normalized;
};

/* Adds a token, or changes the flags of the one with that text. The text is copied. */
bool tern_added_put(struct tern_added *a, const struct tern_added_token *t);
/* NULL when there is none. */
const struct tern_added_token *tern_added_find(const struct tern_added *a, const char *text);
/* Makes the two tries: after the last put. `normalize` appends the normalised form of code points. */
enum tern_status tern_added_finish(struct tern_added *a,
                                   enum tern_status (*normalize)(const void *user, const int32_t *cp, size_t n, struct tern_ints *out),
                                   const void *user);
void tern_added_free(struct tern_added *a);

/* One part of a text: a token, or text without any. */
struct tern_added_part {
    const struct tern_added_token *token; /* NULL: text */
    size_t begin, end;
};

/* Walks over the parts of n code points, tokens being the leftmost, of these the longest. Start with {.words = …}; false at the end. */
struct tern_added_cursor {
    bool words;                  /* special tokens are text like other */
    size_t search;               /* where the next token may begin */
    size_t emitted;              /* end of the last part */
    struct tern_added_part held; /* token that follows the text part that was returned */
};
bool tern_added_next(const struct tern_added *a, const struct tern_trie *trie, const int32_t *cp, size_t n, struct tern_added_cursor *c,
                     struct tern_added_part *part);

#endif

/* 128-bit keys of what was given one after the other. Not for strangers: equal keys can be made on purpose. */
#ifndef TERN_OPS_KEY_H
#define TERN_OPS_KEY_H

#include "ops/op.h"

struct tern_key {
    uint64_t word[2];
};

static inline bool tern_key_equal(struct tern_key a, struct tern_key b) { return a.word[0] == b.word[0] && a.word[1] == b.word[1]; }
/* 32 hexadecimal digits into out; returns out. */
#define TERN_KEY_TEXT 33
const char *tern_key_text(struct tern_key key, char out[TERN_KEY_TEXT]);

/* Begin with any two words, add, finish. */
void tern_key_add(struct tern_key *k, uint64_t x);
void tern_key_add_bytes(struct tern_key *k, const void *data, size_t size);
void tern_key_add_text(struct tern_key *k, const char *s); /* NULL: as "" */
void tern_key_add_meta(struct tern_key *k, const struct tern_meta *m);
void tern_key_add_desc(struct tern_key *k, const struct tern_op_desc *d);
struct tern_key tern_key_finish(struct tern_key k);

#endif

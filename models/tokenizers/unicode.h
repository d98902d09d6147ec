/* Code points: reading UTF-8, classes, lower case and normalisation as the reference tokenizers do them. */
#ifndef TERN_TOKENIZERS_UNICODE_H
#define TERN_TOKENIZERS_UNICODE_H

#include "models/tokenizers/ints.h"
#include "models/tokenizers/unicode_tables.h"

bool tern_cp_is(enum tern_cp_class c, int32_t cp);
/* A word character of a regular expression (\w), for added tokens that match single words only. */
bool tern_cp_is_word(int32_t cp);

/* Appends the code points of UTF-8 text. TERN_E_INVALID with the byte offset when it is not valid (`what` names the text):
 * overlong, surrogate, above U+10FFFF, cut off. */
enum tern_status tern_utf8_decode(const char *text, size_t size, const char *what, struct tern_ints *out);
/* Writes at most 4 bytes, returns their number. */
size_t tern_utf8_encode(int32_t cp, uint8_t out[4]);

/* Appends the lower case of one code point, by itself (no final sigma). */
bool tern_cp_lower(int32_t cp, struct tern_ints *out);

enum tern_normal_form { TERN_NFC, TERN_NFD };
/* Appends the normal form of n code points. Linear in n. */
enum tern_status tern_normalize(enum tern_normal_form form, const int32_t *cp, size_t n, struct tern_ints *out);

#endif

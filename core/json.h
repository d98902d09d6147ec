/* jansson with the checks that configuration files need: right type or an error that names file and key. What reads or writes numbers goes
 * through here: jansson itself takes them in the program's locale. */
#ifndef TERN_CORE_JSON_H
#define TERN_CORE_JSON_H

#include <jansson.h>
#include <stdio.h>
#include <tern/base.h>

/* Parses a text; NULL with the error recorded (where: file name or the like, line, reason). json_decref. */
json_t *tern_json_parse(struct tern_context *ctx, const char *text, size_t size, const char *where);
/* Reads and parses a file of at most 64 MiB. */
json_t *tern_json_load(struct tern_context *ctx, const char *path);

/* A value that may be absent or null (then *out keeps its value): TERN_E_FORMAT when the type or range is wrong. */
enum tern_status tern_json_int(struct tern_context *ctx, const json_t *o, const char *where, const char *key, int64_t min, int64_t max,
                               int64_t *out);
enum tern_status tern_json_number(struct tern_context *ctx, const json_t *o, const char *where, const char *key, double *out);
enum tern_status tern_json_bool(struct tern_context *ctx, const json_t *o, const char *where, const char *key, bool *out);
/* Borrowed from the object. */
enum tern_status tern_json_string(struct tern_context *ctx, const json_t *o, const char *where, const char *key, const char **out);

/* json_object_set_new and json_array_append_new of what is written later: without memory for the part *o becomes NULL, so that nobody takes
 * what is left for all. A NULL in *o stays. */
void tern_json_set(json_t **o, const char *key, json_t *value);
void tern_json_append(json_t **list, json_t *value);
/* json_loadb that ends where memory does: NULL, and errno is ENOMEM then, else 0. A text of more than 4194304 values (commas and brackets)
 * is refused before it takes memory. */
json_t *tern_json_read(const char *text, size_t size, size_t flags, json_error_t *e);
/* json_dumps that ends where memory does: NULL. free() */
char *tern_json_dumps(const json_t *o, size_t flags);
/* json_dumpf; false with errno, 0 where nothing tells why. */
bool tern_json_write(const json_t *o, FILE *file, size_t flags);
/* Records why a text could not be parsed, behind tern_json_read: memory, or what and where. */
enum tern_status tern_json_fail(struct tern_context *ctx, const char *where, const json_error_t *e);

/* A string for writing: each byte that is no part of UTF-8 becomes U+FFFD. NULL without memory. */
json_t *tern_json_text(struct tern_context *ctx, const char *s);

#endif

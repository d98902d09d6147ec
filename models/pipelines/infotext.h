/* Infotexts: the last line as it is written, and the text split into prompts and fields as it is read. */
#ifndef TERN_MODELS_INFOTEXT_H
#define TERN_MODELS_INFOTEXT_H

#include <tern/base.h>

/* infotext_line.c: fields "Name: value", separated by commas. */
struct tern_infotext_line {
    struct tern_context *ctx;
    char *text; /* tern_free; NULL: no field yet, or an error is recorded */
};
/* Adds a field. A value that holds what ends one is written as a JSON string, as A1111 does. Takes `value` (tern_alloc'ed); NULL: an error
 * is recorded. */
void tern_infotext_add(struct tern_infotext_line *l, const char *name, char *value);
void tern_infotext_add_text(struct tern_infotext_line *l, const char *name, const char *value);
void tern_infotext_add_number(struct tern_infotext_line *l, const char *name, double value);

struct tern_infotext_field {
    char *name, *value; /* without quotes */
};

struct tern_infotext_fields {
    char *prompt, *negative; /* negative NULL: there is no such line */
    struct tern_infotext_field *field;
    int count, capacity;
};

/* Splits a text by AUTOMATIC1111's rules. Free also after an error. */
enum tern_status tern_infotext_split(struct tern_context *ctx, const char *text, struct tern_infotext_fields *out);
void tern_infotext_fields_free(struct tern_context *ctx, struct tern_infotext_fields *f);
/* The value of a field, of several the last one; NULL: there is none. */
const char *tern_infotext_field(const struct tern_infotext_fields *f, const char *name);

#endif

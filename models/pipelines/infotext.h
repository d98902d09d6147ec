/* Reading infotexts: the text split into prompts and fields. */
#ifndef TERN_MODELS_INFOTEXT_H
#define TERN_MODELS_INFOTEXT_H

#include <tern/base.h>

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

/* The line of an infotext that holds the fields. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/number.h"
#include "models/pipelines/infotext.h"
#include "models/prompts/prompts.h"

/* tern_free */
static char *quoted(struct tern_context *ctx, const char *value)
{
    json_t *text = tern_json_text(ctx, value);
    char *dumped = text ? tern_json_dumps(text, JSON_ENCODE_ANY) : NULL;
    char *out = dumped ? tern_strdup(ctx, dumped) : NULL;
    free(dumped);
    json_decref(text);
    if (!out && !tern_failed(ctx))
        tern_fail(ctx, TERN_E_NO_MEMORY, "no memory for the infotext");
    return out;
}

void tern_infotext_add(struct tern_infotext_line *l, const char *name, char *value)
{
    char *quotes = value && strpbrk(value, ",:\n\"") ? quoted(l->ctx, value) : NULL;
    const char *text = quotes ? quotes : value;
    char *more = NULL;
    if (text && !tern_failed(l->ctx))
        more = tern_sprintf(l->ctx, "%s%s%s: %s", l->text ? l->text : "", l->text ? ", " : "", name, text);
    tern_free(l->ctx, l->text);
    tern_free(l->ctx, quotes);
    tern_free(l->ctx, value);
    l->text = more;
}

void tern_infotext_add_text(struct tern_infotext_line *l, const char *name, const char *value)
{
    tern_infotext_add(l, name, tern_strdup(l->ctx, value));
}

void tern_infotext_add_number(struct tern_infotext_line *l, const char *name, double value)
{
    char text[TERN_NUMBER_TEXT];
    tern_infotext_add(l, name, tern_strdup(l->ctx, tern_number_text(value, text)));
}

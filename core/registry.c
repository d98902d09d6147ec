/* Opening a device by its name. */
#include "core/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/line.h"

static void list_names(char *out, size_t size)
{
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; tern_backends[i] && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "", tern_backends[i]->name);
}

struct tern_device *tern_device_open(struct tern_context *ctx, const char *spec)
{
    char names[128];
    const char *colon = strchr(spec, ':');
    size_t length = colon ? (size_t)(colon - spec) : strlen(spec);
    long ordinal = 0;
    if (colon) {
        char *end;
        ordinal = strtol(colon + 1, &end, 10);
        if (end == colon + 1 || *end || ordinal < 0 || ordinal > 255) {
            tern_fail(ctx, TERN_E_INVALID, "device \"%s\": expected a number from 0 behind the colon", spec);
            return NULL;
        }
    }
    for (int i = 0; tern_backends[i]; i++)
        if (strlen(tern_backends[i]->name) == length && !strncmp(tern_backends[i]->name, spec, length))
            return tern_backends[i]->create(ctx, (int)ordinal);
    list_names(names, sizeof(names));
    tern_fail(ctx, TERN_E_NOT_FOUND, "device \"%s\" is not known; this build has: %s", spec, names);
    return NULL;
}

/* The text with a line more; NULL without memory. Takes `text`. */
static char *add_line(struct tern_context *ctx, char *text, const char *name, const char *line)
{
    char *longer = text ? tern_sprintf(ctx, "%s%-6s %s\n", text, name, line) : NULL;
    tern_free(ctx, text);
    return longer;
}

/* All devices of a backend; of those that are refused, and of a backend that has none, why. Two that are refused in a row are the end: an
 * error of the whole driver comes for every number. */
static char *add_backend(struct tern_context *ctx, char *text, const struct tern_backend *b)
{
    char line[1024], name[32], before[1024] = "";
    for (int ordinal = 0; text && ordinal < TERN_LINE_MOST; ordinal++) {
        struct tern_device *d = b->create(ctx, ordinal);
        snprintf(name, sizeof(name), ordinal ? "%s:%d" : "%s", b->name, ordinal);
        if (d) {
            d->fns->describe(d, line, sizeof(line) - 64);
            if (d->caps.software)
                strcat(line, "; runs on the processor: auto passes it by");
            bool one = !d->caps.computes || !strcmp(b->name, "cpu");
            d->fns->destroy(d);
            text = add_line(ctx, text, name, line);
            before[0] = 0;
            if (one)
                break;
            continue;
        }
        snprintf(line, sizeof(line), "not available: %.900s", tern_error(ctx));
        bool missing = tern_error_status(ctx) == TERN_E_NOT_FOUND;
        tern_error_clear(ctx);
        if ((missing && ordinal) || !strcmp(line, before))
            break;
        text = add_line(ctx, text, name, line);
        if (missing || before[0])
            break;
        strcpy(before, line);
    }
    return text;
}

/* What "auto" takes, measured now. */
static char *add_auto(struct tern_context *ctx, char *text)
{
    struct tern_line_entry line[TERN_LINE_MOST];
    char what[TERN_LINE_MOST * 48] = "";
    int n = text ? tern_line(ctx, true, line) : -1;
    for (int i = 0; i < n; i++) {
        size_t used = strlen(what);
        snprintf(what + used, sizeof(what) - used, line[i].flops > 0 ? "%s%s (%.0f GFLOP/s)" : "%s%s", i ? ", then " : "", line[i].name,
                 line[i].flops * 1e-9);
    }
    if (n >= 0)
        return add_line(ctx, text, "auto", what);
    tern_free(ctx, text);
    return NULL;
}

char *tern_devices_describe(struct tern_context *ctx)
{
    char *text = tern_failed(ctx) ? NULL : tern_strdup(ctx, ""); /* an error from before is not a device's */
    for (int i = 0; text && tern_backends[i]; i++)
        text = add_backend(ctx, text, tern_backends[i]);
    return add_auto(ctx, text);
}

/* Opening a device by its name. */
#include "core/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"

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

char *tern_devices_describe(struct tern_context *ctx)
{
    char line[512];
    char *text = tern_strdup(ctx, "");
    for (int i = 0; text && tern_backends[i]; i++) {
        struct tern_device *d = tern_backends[i]->create(ctx, 0);
        if (d) {
            d->fns->describe(d, line, sizeof(line));
            d->fns->destroy(d);
        } else {
            snprintf(line, sizeof(line), "not available: %.400s", tern_error(ctx));
            tern_error_clear(ctx);
        }
        char *longer = tern_sprintf(ctx, "%s%-6s %s\n", text, tern_backends[i]->name, line);
        tern_free(ctx, text);
        text = longer;
    }
    return text;
}

/* Lists of devices: the first that works is taken, the others stand behind it. */
#include <string.h>

#include "core/context.h"
#include "core/line.h"
#include "core/registry.h"

#define SPEC_SIZE (TERN_LINE_MOST * 25)

/* The line as a list. */
static enum tern_status spell(struct tern_context *ctx, char spec[SPEC_SIZE])
{
    struct tern_line_entry line[TERN_LINE_MOST];
    int n = tern_line(ctx, false, line);
    spec[0] = 0;
    for (int i = 0; i < n; i++) {
        if (i)
            strcat(spec, ",");
        strcat(spec, line[i].name);
    }
    return n < 0 ? tern_error_status(ctx) : TERN_OK;
}

/* Moves the recorded error behind the reasons so far. Those that do not fit are left out. */
static void gather_reason(struct tern_context *ctx, char *reasons, size_t size)
{
    size_t n = strlen(reasons), more = strlen(tern_error(ctx));
    if (n + more + 3 < size) {
        if (n)
            strcat(reasons, "; ");
        strcat(reasons, tern_error(ctx));
    }
    tern_error_clear(ctx);
}

/* The CPU is there already: it is the host. */
static struct tern_device *open_one(struct tern_context *ctx, const char *name)
{
    return strcmp(name, "cpu") && strcmp(name, "cpu:0") ? tern_device_open(ctx, name) : ctx->host;
}

static struct tern_device *choose(struct tern_context *ctx, const char *spec)
{
    char reasons[TERN_ERROR_SIZE] = "";
    enum tern_status st = TERN_OK;
    while (*spec) {
        size_t n = strcspn(spec, ",");
        char *name = tern_strndup(ctx, spec, n);
        struct tern_device *d = name ? open_one(ctx, name) : NULL;
        spec += n + (spec[n] == ',');
        if (d) {
            tern_message(ctx, reasons[0] ? TERN_LOG_WARN : TERN_LOG_INFO, "%s is used%s%s", name, reasons[0] ? ": " : "", reasons);
            ctx->chosen = name;
            ctx->behind = *spec ? tern_strdup(ctx, spec) : NULL;
            if (!*spec || ctx->behind)
                return d;
            if (d != ctx->host)
                d->fns->destroy(d);
            return NULL;
        }
        tern_free(ctx, name);
        st = tern_error_status(ctx);
        gather_reason(ctx, reasons, sizeof(reasons));
    }
    tern_fail(ctx, st ? st : TERN_E_INVALID, "%s", reasons[0] ? reasons : "no device is named");
    return NULL;
}

/* The only one that is named. */
static struct tern_device *take(struct tern_context *ctx, const char *spec)
{
    ctx->chosen = tern_strdup(ctx, spec);
    return ctx->chosen ? open_one(ctx, spec) : NULL;
}

struct tern_device *tern_device_choose(struct tern_context *ctx, const char *spec)
{
    char line[SPEC_SIZE];
    if (strcmp(spec, "auto"))
        return strchr(spec, ',') ? choose(ctx, spec) : take(ctx, spec);
    return spell(ctx, line) ? NULL : choose(ctx, line);
}

enum tern_dtype tern_context_fast_dtype(const struct tern_context *ctx) { return ctx ? ctx->own->caps.fast_dtype : TERN_F32; }

char *tern_context_devices_behind(struct tern_context *ctx) { return ctx && ctx->behind ? tern_strdup(ctx, ctx->behind) : NULL; }

/* Errors for people on standard error and, with --json, for programs on standard output. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

static struct {
    const char *command; /* NULL before there is one */
    bool json;
    int lost; /* why standard output could not be written */
} state;

void message_setup(const char *command, bool json)
{
    state.command = command;
    state.json = json;
}

void event_send(json_t *event)
{
    if (event && !json_dumpf(event, stdout, JSON_COMPACT | JSON_REAL_PRECISION(10)))
        putchar('\n');
    output_flush();
    json_decref(event);
}

int output_flush(void)
{
    errno = 0;
    if (fflush(stdout) && !state.lost)
        state.lost = errno;
    return state.lost;
}

char *message_clean(char *text, const char *kept)
{
    for (unsigned char *c = (unsigned char *)text; *c; c++)
        if (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) /* U+0080 to U+009F in UTF-8 */
            c[0] = c[1] = ' ';
        else if ((*c < ' ' && !strchr(kept, *c)) || *c == 0x7f)
            *c = ' ';
    return text;
}

json_t *text_json(const char *text)
{
    json_t *s = text ? json_string(text) : NULL;
    return s ? s : json_null();
}

json_t *message_json(const char *text)
{
    json_t *whole = json_string(text); /* refuses what is not UTF-8 */
    char *copy = whole ? NULL : strdup(text);
    if (!copy)
        return whole;
    for (char *at = copy; *at;) {
        size_t n = 1;
        json_t *character = json_stringn(at, n);
        while (!character && n < 4 && at[n])
            character = json_stringn(at, ++n);
        if (!character)
            *at = '?';
        at += character ? n : 1;
        json_decref(character);
    }
    whole = json_string(copy);
    free(copy);
    return whole;
}

void message_show(const char *before, const char *text)
{
    char *copy = strdup(text); /* it may quote a file */
    progress_break();
    fprintf(stderr, "tern%s: %s\n", before, copy ? message_clean(copy, "\n\t") : "out of memory");
    free(copy);
}

void warn(const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    message_show(": warning", text);
}

static void tell(const char *kind, const char *text)
{
    char before[64];
    snprintf(before, sizeof(before), "%s%s", state.command ? " " : "", state.command ? state.command : "");
    message_show(before, text);
    if (!state.json)
        return;
    json_t *message = message_json(text);
    event_send(json_pack("{s:s, s:s, s:o}", "event", "error", "status", kind, "message", message ? message : json_null()));
}

static void tell_list(const char *kind, const char *fmt, va_list ap) TERN_PRINTF(2, 0);

static void tell_list(const char *kind, const char *fmt, va_list ap)
{
    char text[2048];
    vsnprintf(text, sizeof(text), fmt, ap);
    tell(kind, text);
}

int usage(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tell_list("usage", fmt, ap);
    va_end(ap);
    return USAGE;
}

int failed(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tell_list("failed", fmt, ap);
    va_end(ap);
    return FAILED;
}

int cancelled(const char *reason)
{
    if (interrupt_seen()) /* want of a standard output is told in the end */
        tell(tern_status_name(TERN_E_CANCELLED), reason);
    return CANCELLED;
}

int library_failed(const struct tern_context *ctx, bool arguments)
{
    enum tern_status status = tern_error_status(ctx);
    const char *text = tern_error(ctx);
    if (status == TERN_E_CANCELLED)
        return cancelled(text);
    char *options = fields_as_options(text);
    tell(tern_status_name(status), options && *options ? options : "out of memory");
    free(options);
    return arguments && (status == TERN_E_INVALID || status == TERN_E_NOT_FOUND) ? USAGE : FAILED;
}

int library_failed_in(const struct tern_context *ctx, const char *path)
{
    char text[2048];
    if (tern_error_status(ctx) == TERN_E_CANCELLED)
        return cancelled(tern_error(ctx));
    snprintf(text, sizeof(text), "%s: %s", path, tern_error(ctx));
    tell(tern_status_name(tern_error_status(ctx)), text);
    return FAILED;
}

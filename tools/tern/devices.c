/* tern devices: what there is to compute on, and what is missing and why. */
#include <stdio.h>

#include "command.h"

static int run(const struct command *command, int argc, char **argv)
{
    struct run_settings s = {.quiet = true};
    char **arguments;
    int count, code = options_parse(command, argc, argv, &s, &arguments, &count);
    if (code != GO_ON)
        return code;
    struct tern_context *ctx = run_open(&s, &code);
    if (!ctx)
        return code;
    char *text = tern_devices_describe(ctx);
    if (text)
        fputs(text, stdout);
    code = text ? DONE : library_failed(ctx, false);
    tern_free_text(ctx, text);
    tern_context_destroy(&ctx);
    return code;
}

const struct command devices_command = {
    .name = "devices",
    .arguments = "",
    .summary = "Lists what can compute, and what is missing and why.",
    .run = run,
};

/* tern info: what a checkpoint, a weight file or a picture is. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "command.h"

static const struct opt opts[] = {
    {OPT_JSON, 0, "json", NULL, "one JSON object"},
    {0},
};

static int apply(const struct opt *opt, const char *value, void *settings) { return run_apply(opt, value, settings); }

static bool ends_like_a_picture(const char *path)
{
    static const char *const endings[] = {".png", ".jpg", ".jpeg", ".webp"};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof(endings) / sizeof(endings[0]); i++)
        if (!strcasecmp(dot, endings[i]))
            return true;
    return false;
}

static int show_picture(struct tern_context *ctx, const char *path, bool json)
{
    struct tern_image *img = tern_image_load(ctx, path);
    if (!img)
        return library_failed(ctx, false);
    const char *text = tern_image_text(img, "parameters");
    if (json) {
        json_t *o = json_pack("{s:s, s:i, s:i}", "kind", "picture", "width", tern_image_width(img), "height", tern_image_height(img));
        if (o && text)
            json_object_set_new(o, "parameters", json_string(text));
        event_send(o);
    } else {
        char *shown = strdup(text ? text : "no parameters");
        printf("picture, %d x %d pixels\n%s\n", tern_image_width(img), tern_image_height(img), shown ? message_clean(shown, "\n\t") : "");
        free(shown);
    }
    tern_image_destroy(&img);
    return DONE;
}

/* A folder is a checkpoint or nothing. A file may be a whole checkpoint, or weights of a part, which are described as such. */
static int show_model(struct tern_context *ctx, const char *path, bool json)
{
    struct stat st;
    bool file = !stat(path, &st) && S_ISREG(st.st_mode);
    struct tern_pipeline *p = tern_pipeline_load(ctx, path, NULL);
    char *text = p ? tern_pipeline_describe(p, json) : NULL;
    if (!p && file && tern_error_status(ctx) != TERN_E_NO_MEMORY) {
        char reason[1024];
        snprintf(reason, sizeof(reason), "%s", tern_error(ctx));
        tern_error_clear(ctx);
        text = tern_weights_describe(ctx, path, json);
        if (text)
            warn("no whole checkpoint (%s); as a weight file it is:", reason);
    }
    int code = text ? DONE : library_failed(ctx, false);
    if (text && !json) /* it quotes files */
        message_clean(text, "\n\t");
    if (text)
        printf("%s%s", text, *text && text[strlen(text) - 1] != '\n' ? "\n" : "");
    tern_free_text(ctx, text);
    tern_pipeline_destroy(&p);
    return code;
}

static int run(const struct command *command, int argc, char **argv)
{
    struct run_settings s = {.quiet = true};
    char **arguments;
    int count, code = options_parse(command, argc, argv, &s, &arguments, &count);
    if (code != GO_ON)
        return code;
    bool json = s.json;
    s.json = false; /* one object, no events */
    struct tern_context *ctx = run_open(&s, &code);
    if (!ctx)
        return code;
    code = ends_like_a_picture(arguments[0]) ? show_picture(ctx, arguments[0], json) : show_model(ctx, arguments[0], json);
    tern_context_destroy(&ctx);
    return code;
}

const struct command info_command = {
    .name = "info",
    .arguments = "FILE|DIR",
    .summary = "Tells what a model, a weight file or a picture is.",
    .least = 1,
    .most = 1,
    .opts = {opts},
    .apply = apply,
    .run = run,
};

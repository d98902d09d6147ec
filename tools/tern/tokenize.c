/* tern tokenize: the ids of a text, with the begin and end tokens, not padded, not cut. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"

static bool is_file(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode);
}

static bool has_file(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/%s", folder, name);
    bool found = path && is_file(path);
    free(path);
    return found;
}

/* A tokenizer's own folder or tokenizer.json, as opposed to a model that has one inside. */
static bool is_tokenizer(const char *path)
{
    const char *dot = strrchr(path, '.');
    return (dot && !strcmp(dot, ".json")) || has_file(path, "tokenizer.json") || has_file(path, "vocab.json") ||
           has_file(path, "vocab.txt");
}

/* The loader takes a folder: that of a tokenizer.json. */
static struct tern_tokenizer *load_tokenizer(struct tern_context *ctx, char *path)
{
    char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strcmp(name, "tokenizer.json") || !is_file(path))
        return tern_tokenizer_load(ctx, path);
    *name = 0;
    return tern_tokenizer_load(ctx, *path ? path : ".");
}

static int print_ids(struct tern_context *ctx, const struct tern_tokenizer *t, const char *text)
{
    int32_t *ids;
    int64_t count;
    if (!t || tern_tokenize(t, text, &ids, &count))
        return library_failed(ctx, t != NULL);
    for (int64_t i = 0; i < count; i++)
        printf(i ? " %d" : "%d", ids[i]);
    putchar('\n');
    tern_tokenizer_free_ids(t, ids);
    return DONE;
}

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
    if (is_tokenizer(arguments[0])) {
        struct tern_tokenizer *t = load_tokenizer(ctx, arguments[0]);
        code = t ? print_ids(ctx, t, arguments[1]) : library_failed(ctx, false);
        tern_tokenizer_destroy(&t);
    } else {
        struct tern_pipeline *p = tern_pipeline_load(ctx, arguments[0], NULL);
        code = p ? print_ids(ctx, tern_pipeline_tokenizer(p, 0), arguments[1]) : library_failed(ctx, false);
        tern_pipeline_destroy(&p);
    }
    tern_context_destroy(&ctx);
    return code;
}

const struct command tokenize_command = {
    .name = "tokenize",
    .arguments = "MODEL TEXT",
    .summary = "Prints the ids of a text.",
    .least = 2,
    .most = 2,
    .notes = "MODEL is a model, \"demo\", a tokenizer's folder, or a tokenizer.json. The ids have the begin and end\n"
             "tokens, no padding, and are not cut.\n",
    .run = run,
};

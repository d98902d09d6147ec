/* <lora:name:0.7> in a prompt: the tags of AUTOMATIC1111's extra networks, and the files that they mean. */
#include <math.h>
#include <string.h>
#include <tern/context.h>
#include <tern/pipeline.h>

#include "core/files.h"
#include "core/memory.h"
#include "core/status.h"
#include "models/prompts/prompts.h"

#define MOST_LORAS 32

/* "<kind:arguments>" */
struct tag {
    size_t begin, end;               /* in the prompt; the end is behind the '>' */
    const char *kind, *arguments;    /* in the prompt */
    size_t kind_size, argument_size; /* at least 1 */
};

static bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

/* The first tag at or behind `from`. */
static bool find_tag(const char *text, size_t from, struct tag *t)
{
    for (const char *s = text + from; (s = strchr(s, '<')); s++) {
        size_t n = 1;
        while (is_name(s[n]))
            n++;
        const size_t arguments = s[n] == ':' ? strcspn(s + n + 1, ">") : 0;
        if (arguments && !s[n + 1 + arguments])
            return false;
        if (n == 1 || !arguments)
            continue;
        *t = (struct tag){(size_t)(s - text), (size_t)(s - text) + n + arguments + 2, s + 1, s + n + 1, n - 1, arguments};
        return true;
    }
    return false;
}

enum tern_status tern_prompt_refuse_tags(struct tern_context *ctx, const char *what, const char *text)
{
    struct tag t;
    if (!find_tag(text, 0, &t))
        return TERN_OK;
    return tern_fail(ctx, TERN_E_INVALID,
                     "%s: \"%.*s\" is a tag and no text; tags of LoRAs are taken out of the prompt by tern_prompt_take_loras, no "
                     "others are known, and a negative prompt has none",
                     what, (int)(t.end - t.begin < 80 ? t.end - t.begin : 80), text + t.begin);
}

/* ---- what a tag says */

static char *find_file(struct tern_context *ctx, const char *folder, const char *name)
{
    static const char *const endings[] = {".safetensors", ".pt", ".bin"};
    for (int i = 0; i < 3 && !strchr(name, '/') && !tern_failed(ctx); i++) {
        char *file = tern_sprintf(ctx, "%s%s", name, endings[i]), *path = file ? tern_path_join(ctx, folder, file) : NULL;
        tern_free(ctx, file);
        if (path && tern_path_kind(path) == TERN_PATH_FILE)
            return path;
        tern_free(ctx, path);
    }
    tern_fail(ctx, TERN_E_NOT_FOUND, "prompt: <lora:%.60s>: %s has no file of that name with the ending .safetensors, .pt or .bin", name,
              folder);
    return NULL;
}

/* Blanks may stand around it, as in A1111. */
static enum tern_status read_scale(struct tern_context *ctx, const char *text, double *out)
{
    const char *number = text + tern_prompt_space(text, strlen(text));
    const size_t size = strlen(number) - tern_prompt_space_before(number, strlen(number));
    *out = tern_prompt_number(number);
    return tern_prompt_is_number(number, size) && isfinite(*out)
               ? TERN_OK
               : tern_fail(ctx, TERN_E_INVALID, "prompt: <lora:...:%.40s>: expected a number", text);
}

/* What a tag says of the scales of the text encoders and of the UNet; NAN: nothing. */
struct scales {
    double by_place[2], by_name[2];
};

/* One argument behind the name: the text encoders' scale, then the UNet's, or either by its name. */
static enum tern_status read_argument(struct tern_context *ctx, char *text, int *position, struct scales *out)
{
    char *value = strchr(text, '=');
    int part = *position;
    if (value) {
        *value++ = 0;
        part = !strcmp(text, "te") ? 0 : !strcmp(text, "unet") ? 1 : 2;
    }
    if (part > 1)
        return tern_fail(ctx, TERN_E_UNSUPPORTED, "prompt: <lora:...:%.40s>: expected at most two scales, te= or unet=", text);
    *position += !value;
    return read_scale(ctx, value ? value : text, value ? &out->by_name[part] : &out->by_place[part]);
}

static double either(double a, double b) { return isnan(a) ? b : a; }

/* `arguments` is cut. */
static enum tern_status read_lora(struct tern_context *ctx, char *arguments, const char *folder, struct tern_lora *out)
{
    const double none = (double)NAN;
    struct scales s = {{none, none}, {none, none}};
    int position = 0;
    char *next = arguments, *name = strsep(&next, ":");
    while (next && !tern_failed(ctx))
        read_argument(ctx, strsep(&next, ":"), &position, &s);
    if (tern_failed(ctx) || !(out->path = find_file(ctx, folder, name)))
        return tern_error_status(ctx);
    /* As in A1111 a name counts more than a place, wherever it stands, and the UNet has the text encoders' scale if it is not given. */
    const double text = either(s.by_name[0], either(s.by_place[0], 1)), unet = either(s.by_name[1], either(s.by_place[1], text));
    out->scale = text;
    if (unet == text)
        return TERN_OK;
    struct tern_lora_strength *blocks = tern_calloc(ctx, 2, sizeof(*blocks));
    if (!blocks)
        return tern_error_status(ctx);
    blocks[0] = (struct tern_lora_strength){"text_encoders", text};
    blocks[1] = (struct tern_lora_strength){"unet", unet};
    out->scale = 1;
    out->blocks = blocks;
    out->n_blocks = 2;
    return TERN_OK;
}

static enum tern_status take_tag(struct tern_context *ctx, const struct tag *t, const char *folder, struct tern_prompt_loras *out)
{
    if (t->kind_size != 4 || memcmp(t->kind, "lora", 4))
        return tern_fail(ctx, TERN_E_UNSUPPORTED, "prompt: <%.*s:...>: only tags of LoRAs are known: <lora:name:scale>", (int)t->kind_size,
                         t->kind);
    if (out->count == MOST_LORAS)
        return tern_fail(ctx, TERN_E_INVALID, "prompt: more than %d tags of LoRAs", MOST_LORAS);
    char *arguments = tern_strndup(ctx, t->arguments, t->argument_size);
    enum tern_status st = arguments ? read_lora(ctx, arguments, folder, &out->loras[out->count++]) : tern_error_status(ctx);
    tern_free(ctx, arguments);
    return st;
}

enum tern_status tern_prompt_take_loras(struct tern_context *ctx, const char *prompt, const char *folder, struct tern_prompt_loras *out)
{
    struct tag t;
    size_t from = 0, used = 0;
    if (out)
        *out = (struct tern_prompt_loras){0};
    if (!ctx || !prompt || !folder || !out)
        return tern_fail(ctx, TERN_E_INVALID, "tern_prompt_take_loras: expected a prompt, a folder and a place for the result, found NULL");
    if (tern_prompt_check(ctx, "prompt", prompt))
        return tern_error_status(ctx);
    out->prompt = tern_calloc(ctx, strlen(prompt) + 1, 1);
    out->loras = tern_calloc(ctx, MOST_LORAS, sizeof(*out->loras));
    while (!tern_failed(ctx) && find_tag(prompt, from, &t) && !take_tag(ctx, &t, folder, out)) {
        memcpy(out->prompt + used, prompt + from, t.begin - from);
        used += t.begin - from;
        from = t.end;
    }
    if (!tern_failed(ctx))
        memcpy(out->prompt + used, prompt + from, strlen(prompt + from));
    else
        tern_prompt_loras_free(ctx, out);
    return tern_error_status(ctx);
}

void tern_prompt_loras_free(struct tern_context *ctx, struct tern_prompt_loras *l)
{
    if (!ctx || !l)
        return;
    for (int i = 0; i < l->count; i++) {
        tern_free(ctx, (void *)(uintptr_t)l->loras[i].path);
        tern_free(ctx, (void *)(uintptr_t)l->loras[i].blocks);
    }
    tern_free(ctx, l->loras);
    tern_free(ctx, l->prompt);
    *l = (struct tern_prompt_loras){0};
}

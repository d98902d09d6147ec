/* Puts the source of a kernel together from the texts that the build embeds. */
#include "ops/kernels/text.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"

#define EMBEDDED(name)                               \
    extern const unsigned char tern_kernel_##name[]; \
    extern const unsigned long tern_kernel_##name##_size;
#define TEXT(name) EMBEDDED(name)
EMBEDDED(cuda_h)
EMBEDDED(opencl_h)
EMBEDDED(glsl_h)
EMBEDDED(host_h)
EMBEDDED(host_item_h)
EMBEDDED(portable_h)
EMBEDDED(functions_h)
EMBEDDED(params_h)
#include "ops/kernels/texts.def"
#undef TEXT

struct piece {
    const void *data;
    size_t size;
};

#define PIECE(name) ((struct piece){tern_kernel_##name, tern_kernel_##name##_size})

/* One row a file ops/kernels/<name>.cl. */
static const char *const names[] = {
#define TEXT(name) #name,
#include "ops/kernels/texts.def"
#undef TEXT
    NULL};

const char *tern_text_name(int i) { return i >= 0 && i < (int)(sizeof(names) / sizeof(*names)) ? names[i] : NULL; }

const char *tern_text_entry(enum tern_text_language language) { return language == TERN_TEXT_GLSL ? "main" : "tern_kernel"; }

static struct piece find(const char *name)
{
#define TEXT(text)            \
    if (!strcmp(name, #text)) \
        return PIECE(text);
#include "ops/kernels/texts.def"
#undef TEXT
    return (struct piece){NULL, 0};
}

static struct piece of_string(const char *s) { return (struct piece){s, strlen(s)}; }

/* Every line of `defines` behind "#define ". */
static char *append_defines(char *to, const char *defines)
{
    while (*defines) {
        const char *end = strchr(defines, '\n');
        size_t n = end ? (size_t)(end - defines) : strlen(defines);
        memcpy(to, "#define ", 8);
        memcpy(to + 8, defines, n);
        to[8 + n] = '\n';
        to += 9 + n;
        defines += n + (end != NULL);
    }
    return to;
}

static char *append(char *to, struct piece p)
{
    memcpy(to, p.data, p.size);
    to[p.size] = '\n';
    return to + p.size + 1;
}

char *tern_text_source(struct tern_context *ctx, enum tern_text_language language, const char *text, const char *defines)
{
    const struct piece languages[TERN_TEXT_LANGUAGES] = {PIECE(cuda_h), PIECE(opencl_h), PIECE(glsl_h), PIECE(host_h)};
    struct piece body = find(text);
    if (!body.data || (unsigned)language >= TERN_TEXT_LANGUAGES) {
        tern_fail(ctx, TERN_E_NOT_FOUND, "kernel text \"%s\" in language %d: expected one of ops/kernels/texts.def and a language below %d",
                  text, (int)language, TERN_TEXT_LANGUAGES);
        return NULL;
    }
    const struct piece first = of_string(language == TERN_TEXT_GLSL ? "#version 450\n" : "");
    const struct piece item = language == TERN_TEXT_HOST ? PIECE(host_item_h) : of_string("");
    const struct piece behind[] = {item, languages[language], PIECE(portable_h), PIECE(functions_h), PIECE(params_h), body};
    size_t size = first.size + 2, lines = 1;
    for (const char *s = defines; *s; s++)
        lines += *s == '\n';
    size += strlen(defines) + 9 * lines;
    for (size_t i = 0; i < sizeof(behind) / sizeof(*behind); i++)
        size += behind[i].size + 1;
    char *source = tern_alloc(ctx, size);
    if (!source)
        return NULL;
    char *to = append_defines(append(source, first), defines);
    for (size_t i = 0; i < sizeof(behind) / sizeof(*behind); i++)
        to = append(to, behind[i]);
    *to = 0;
    return source;
}

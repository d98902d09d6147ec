/* GLSL to SPIR-V by shaderc, which is opened when a source is met that is not in the cache folder. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "backends/vulkan/vulkan.h"
#include "core/context.h"

/* The part of shaderc's C interface that is used, so that its headers need not be there. */
enum { SHADERC_COMPUTE = 2, SHADERC_VULKAN = 0, SHADERC_VULKAN_1_2 = 1 << 22 | 2 << 12, SHADERC_SUCCESS = 0 };
struct shaderc_options;
struct shaderc_result;

struct vulkan_compiler {
    void *library, *compiler;
    struct shaderc_options *options;
    void *(*initialize)(void);
    void (*release)(void *);
    struct shaderc_options *(*options_initialize)(void);
    void (*options_release)(struct shaderc_options *);
    void (*set_target)(struct shaderc_options *, int target, uint32_t version);
    struct shaderc_result *(*compile)(void *, const char *source, size_t size, int kind, const char *name, const char *entry,
                                      struct shaderc_options *);
    void (*result_release)(struct shaderc_result *);
    int (*result_status)(struct shaderc_result *);
    size_t (*result_size)(struct shaderc_result *);
    const char *(*result_bytes)(struct shaderc_result *);
    const char *(*result_message)(struct shaderc_result *);
};

static void *open_library(void)
{
    static const char *const names[] = {"libshaderc.so.1", "libshaderc_shared.so.1"};
    const char *path = getenv("TERN_SHADERC_LIBRARY");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (int i = 0; i < 2 && !path && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* False when the library has not all of it. */
static bool find_functions(struct vulkan_compiler *c)
{
    const struct {
        const char *name;
        void **at;
    } functions[] = {{"shaderc_compiler_initialize", (void **)(void *)&c->initialize},
                     {"shaderc_compiler_release", (void **)(void *)&c->release},
                     {"shaderc_compile_options_initialize", (void **)(void *)&c->options_initialize},
                     {"shaderc_compile_options_release", (void **)(void *)&c->options_release},
                     {"shaderc_compile_options_set_target_env", (void **)(void *)&c->set_target},
                     {"shaderc_compile_into_spv", (void **)(void *)&c->compile},
                     {"shaderc_result_release", (void **)(void *)&c->result_release},
                     {"shaderc_result_get_compilation_status", (void **)(void *)&c->result_status},
                     {"shaderc_result_get_length", (void **)(void *)&c->result_size},
                     {"shaderc_result_get_bytes", (void **)(void *)&c->result_bytes},
                     {"shaderc_result_get_error_message", (void **)(void *)&c->result_message}};
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        if (!(*functions[i].at = dlsym(c->library, functions[i].name)))
            return false;
    return true;
}

void tern_vulkan_compiler_close(struct vulkan_device *d)
{
    struct vulkan_compiler *c = d->compiler;
    if (!c)
        return;
    if (c->options)
        c->options_release(c->options);
    if (c->compiler)
        c->release(c->compiler);
    if (c->library)
        dlclose(c->library);
    tern_free(d->gpu.base.ctx, c);
    d->compiler = NULL;
}

/* Where the library cannot be had the compiler has none: glslc takes its place. */
static struct vulkan_compiler *compiler_of(struct vulkan_device *d)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    if (d->compiler)
        return d->compiler;
    struct vulkan_compiler *c = d->compiler = tern_calloc(ctx, 1, sizeof(*c));
    if (!c)
        return NULL;
    c->library = open_library();
    const char *why = c->library ? NULL : dlerror();
    if (c->library && (!find_functions(c) || !(c->compiler = c->initialize()) || !(c->options = c->options_initialize())))
        why = "it lacks functions, or does not start";
    if (!why) {
        c->set_target(c->options, SHADERC_VULKAN, SHADERC_VULKAN_1_2);
        return c;
    }
    tern_message(ctx, TERN_LOG_INFO, "vulkan: the command glslc compiles kernels, since shaderc's library cannot: %s", why);
    if (c->compiler)
        c->release(c->compiler);
    if (c->library)
        dlclose(c->library);
    c->library = c->compiler = NULL;
    return c;
}

/* With room for VULKAN_SPIRV_MORE words. */
static uint32_t *by_library(struct tern_context *ctx, struct vulkan_compiler *c, const char *source, const char *name, size_t *size)
{
    const char *entry = tern_text_entry(TERN_TEXT_GLSL);
    struct shaderc_result *result = c->compile(c->compiler, source, strlen(source), SHADERC_COMPUTE, name, entry, c->options);
    uint32_t *words = NULL;
    if (!result || c->result_status(result) != SHADERC_SUCCESS) {
        tern_fail(ctx, TERN_E_DEVICE, "vulkan: kernel text %s: shaderc says: %.600s", name, result ? c->result_message(result) : "nothing");
    } else {
        *size = c->result_size(result) & ~(size_t)3;
        words = tern_alloc(ctx, *size + VULKAN_SPIRV_MORE * sizeof(*words));
        if (words)
            memcpy(words, c->result_bytes(result), *size);
    }
    if (result)
        c->result_release(result);
    return words;
}

uint32_t *tern_vulkan_spirv_compile(struct vulkan_device *d, const char *source, const char *name, size_t *size)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    struct vulkan_compiler *c = compiler_of(d);
    if (!c)
        return NULL;
    uint32_t *words = c->library ? by_library(ctx, c, source, name, size) : tern_vulkan_glslc(ctx, source, name, size);
    size_t n = words ? *size / sizeof(*words) : 0;
    if (words)
        n = tern_vulkan_spirv_keep(words, n, d->keeps_nan, d->keeps_denormals);
    if (words && !n) {
        tern_fail(ctx, TERN_E_DEVICE, "vulkan: kernel text %s: its compiler gave %zu bytes that are no SPIR-V module", name, *size);
        tern_free(ctx, words);
        words = NULL;
    }
    *size = n * sizeof(*words);
    return words;
}

/* ---- the execution modes ---- */

enum {
    SPIRV_MAGIC = 0x07230203,
    SPIRV_HEADER = 5,
    OP_ENTRY_POINT = 15,
    OP_EXECUTION_MODE = 16,
    OP_CAPABILITY = 17,
    CAPABILITY_KEEP_DENORMALS = 4464, /* DenormPreserve */
    CAPABILITY_KEEP_NAN = 4466,       /* SignedZeroInfNanPreserve */
    MODE_KEEP_DENORMALS = 4459,
    MODE_KEEP_NAN = 4461
};

static size_t ask(uint32_t *words, size_t n, uint32_t capability, uint32_t execution_mode)
{
    size_t at = SPIRV_HEADER;
    if (n < SPIRV_HEADER || words[0] != SPIRV_MAGIC)
        return 0;
    while (at < n && (words[at] & 0xffff) != OP_ENTRY_POINT) {
        size_t length = words[at] >> 16;
        if (!length || length > n - at)
            return 0;
        at += length;
    }
    if (n - at < 3 || words[at] >> 16 < 3 || words[at] >> 16 > n - at)
        return 0;
    const uint32_t entry = words[at + 2], wanted[2] = {2 << 16 | OP_CAPABILITY, capability},
                   mode[4] = {4 << 16 | OP_EXECUTION_MODE, entry, execution_mode, 32};
    at += words[at] >> 16;
    memmove(words + at + 6, words + at, (n - at) * sizeof(*words));
    memmove(words + SPIRV_HEADER + 2, words + SPIRV_HEADER, (at - SPIRV_HEADER) * sizeof(*words));
    memcpy(words + SPIRV_HEADER, wanted, sizeof(wanted));
    memcpy(words + at + 2, mode, sizeof(mode));
    return n + 6;
}

/* Capabilities come first in a module, execution modes right behind the entry points [SPIR-V 1.5, 2.4]. */
size_t tern_vulkan_spirv_keep(uint32_t *words, size_t n, bool nan, bool denormals)
{
    if (nan)
        n = ask(words, n, CAPABILITY_KEEP_NAN, MODE_KEEP_NAN);
    return denormals ? ask(words, n, CAPABILITY_KEEP_DENORMALS, MODE_KEEP_DENORMALS) : n;
}

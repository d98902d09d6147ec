/* What the tests of the Vulkan backend share. TERN_TEST_VULKAN names the stand-in of the loader, TERN_TEST_SHADERC, if there is one, the
 * library that compiles GLSL (else what the system has is used). */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu_help.h"
#include "vulkan_help.h"

static char cache_dir[GPU_FOLDER];
static char *path;
static struct vulkan_shim nothing, *shim = &nothing;

struct vulkan_shim *vulkan_shim(void) { return shim; }
const char *vulkan_cache_dir(void) { return cache_dir; }

struct tern_context *vulkan_open(const char *device)
{
    return tern_context_create(
        &(struct tern_context_params){.device = device, .threads = 2, .cache_dir = cache_dir, .log = gpu_count_warnings});
}

struct tern_context *vulkan_open_or_skip(void)
{
    struct tern_context *ctx = vulkan_open("vulkan");
    if (ctx && shim == &nothing) {
        print_message("TERN_TEST_VULKAN does not name the stand-in of the loader; meson test does\n");
        tern_context_destroy(&ctx);
        skip();
    }
    if (!ctx) {
        print_message("%s (Debian's mesa-vulkan-drivers has a driver)\n", tern_create_error());
        skip();
    }
    return ctx;
}

bool vulkan_has_validation(void)
{
    void *library = dlopen("libVkLayer_khronos_validation.so", RTLD_LAZY | RTLD_LOCAL);
    return library && !dlclose(library);
}

void vulkan_hide_compilers(void)
{
    setenv("TERN_SHADERC_LIBRARY", "/nonexistent", 1);
    setenv("PATH", "/nonexistent", 1);
}

void vulkan_show_compilers(void)
{
    const char *library = getenv("TERN_TEST_SHADERC");
    setenv("PATH", path, 1);
    if (library)
        setenv("TERN_SHADERC_LIBRARY", library, 1);
    else
        unsetenv("TERN_SHADERC_LIBRARY");
}

int vulkan_reset(void **state)
{
    *shim = (struct vulkan_shim){0};
    unsetenv("TERN_GPU_LIMITS");
    unsetenv("VK_INSTANCE_LAYERS");
    vulkan_show_compilers();
    return 0;
}

int vulkan_setup(void **state)
{
    struct vulkan_shim *found = gpu_open_standin("TERN_TEST_VULKAN", "vulkan_shim", "TERN_VULKAN_LIBRARY");
    shim = found ? found : shim;
    path = strdup(getenv("PATH") ? getenv("PATH") : "");
    return path ? gpu_make_folder(cache_dir, "vulkan") : -1;
}

int vulkan_teardown(void **state)
{
    vulkan_show_compilers();
    free(path);
    return gpu_remove_folder(cache_dir);
}

/* What the tests of the Vulkan backend share: a cache folder, the stand-in of the loader, contexts. */
#ifndef TERN_TESTS_VULKAN_HELP_H
#define TERN_TESTS_VULKAN_HELP_H

#include <tern/context.h>

#include "tests/vulkan_shim.h"

/* Setup and teardown of a group; the setup of each test, which forgets what the one before told the stand-in and the environment. */
int vulkan_setup(void **state);
int vulkan_teardown(void **state);
int vulkan_reset(void **state);

struct vulkan_shim *vulkan_shim(void);
const char *vulkan_cache_dir(void);

struct tern_context *vulkan_open(const char *device);
/* The test is skipped, with its reason, when there is no device or no compiler. */
struct tern_context *vulkan_open_or_skip(void);
bool vulkan_has_validation(void);

/* No shaderc, no glslc; and as it was. */
void vulkan_hide_compilers(void);
void vulkan_show_compilers(void);

#endif

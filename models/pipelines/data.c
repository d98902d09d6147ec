/* Where the data that ships with tern lies: beside the installed library, in the installation's data folder, or in
 * the source tree of this build. */
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files.h"
#include "models/pipelines/pipeline.h"

/* "<folder of the library>/<up>/share/tern/<sub>" */
static char *beside_library(struct tern_context *ctx, const char *up, const char *sub)
{
    Dl_info info;
    char program[PATH_MAX];
    if (!dladdr((void *)(uintptr_t)tern_demo_path, &info) || !info.dli_fname)
        return NULL;
    const char *library = info.dli_fname;
    if (!strchr(library, '/')) { /* a program that has the library inside and was found through PATH */
        const ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
        program[n > 0 ? n : 0] = 0;
        library = program;
    }
    const char *slash = strrchr(library, '/');
    return slash ? tern_sprintf(ctx, "%.*s/%s/share/tern/%s", (int)(slash - library), library, up, sub) : NULL;
}

char *tern_data_path(struct tern_context *ctx, const char *sub, const char *file, const char *source)
{
    const char *env = getenv("TERN_DATA_DIR");
    char *folders[] = {env ? tern_path_join(ctx, env, sub) : NULL, beside_library(ctx, "..", sub), beside_library(ctx, "../..", sub),
                       tern_path_join(ctx, TERN_DATADIR, sub), tern_strdup(ctx, source)};
    char *found = NULL;
    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
        char *path = folders[i] && !found ? tern_path_join(ctx, folders[i], file) : NULL;
        if (path && tern_path_kind(path) == TERN_PATH_FILE) {
            found = folders[i];
            folders[i] = NULL;
        }
        tern_free(ctx, path);
    }
    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
        tern_free(ctx, folders[i]);
    return found;
}

char *tern_demo_path(struct tern_context *ctx, const char *name)
{
    bool zh = !strcmp(name, "demo-zh");
    char *found =
        tern_data_path(ctx, zh ? "demo/zh" : "demo", "model_index.json", zh ? TERN_SOURCE_DATA "/demo/zh" : TERN_SOURCE_DATA "/demo");
    if (!found)
        tern_fail(ctx, TERN_E_NOT_FOUND,
                  "the model \"%s\" that ships with tern was not found in %s or %s; TERN_DATA_DIR can name its folder", name, TERN_DATADIR,
                  TERN_SOURCE_DATA);
    return found;
}

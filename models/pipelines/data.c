/* Where the model that ships with tern lies: beside the installed library, in the installation's data folder, or in
 * the source tree of this build. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "core/files.h"
#include "models/pipelines/pipeline.h"

/* "<folder of the library>/<up>/share/tern" */
static char *beside_library(struct tern_context *ctx, const char *up)
{
    Dl_info info;
    if (!dladdr((void *)(uintptr_t)tern_demo_path, &info) || !info.dli_fname)
        return NULL;
    const char *slash = strrchr(info.dli_fname, '/');
    int length = slash ? (int)(slash - info.dli_fname) : 1;
    return tern_sprintf(ctx, "%.*s/%s/share/tern", length, slash ? info.dli_fname : ".", up);
}

char *tern_demo_path(struct tern_context *ctx, const char *name)
{
    const char *sub = strcmp(name, "demo-zh") ? "demo" : "demo/zh", *env = getenv("TERN_DATA_DIR");
    char *roots[] = {env ? tern_strdup(ctx, env) : NULL, beside_library(ctx, ".."), beside_library(ctx, "../.."),
                     tern_strdup(ctx, TERN_DATADIR), tern_strdup(ctx, TERN_SOURCE_DATA)};
    char *found = NULL;
    for (size_t i = 0; i < sizeof(roots) / sizeof(*roots); i++) {
        char *path = roots[i] && !found ? tern_path_join(ctx, roots[i], sub) : NULL;
        char *index = path ? tern_path_join(ctx, path, "model_index.json") : NULL;
        if (index && tern_path_kind(index) == TERN_PATH_FILE) {
            found = path;
            path = NULL;
        }
        tern_free(ctx, index);
        tern_free(ctx, path);
    }
    if (!found)
        tern_fail(ctx, TERN_E_NOT_FOUND,
                  "the model \"%s\" that ships with tern was not found in %s or %s; TERN_DATA_DIR can name its folder", name, TERN_DATADIR,
                  TERN_SOURCE_DATA);
    for (size_t i = 0; i < sizeof(roots) / sizeof(*roots); i++)
        tern_free(ctx, roots[i]);
    return found;
}

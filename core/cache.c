/* Where the cache folder is. */
#include "core/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/context.h"

/* The folder that is named, and what lies between it and kinds of entries. NULL: none is. */
static const char *folder_of(const struct tern_context *ctx, const char **below)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool own = xdg && xdg[0] == '/';
    *below = ctx->params.cache_dir ? "" : own ? "/tern" : "/.cache/tern";
    if (ctx->params.cache_dir)
        return ctx->params.cache_dir;
    return own ? xdg : home && home[0] ? home : NULL;
}

char *tern_cache_path(struct tern_context *ctx, const char *kind, const char *name)
{
    const char *below, *folder = folder_of(ctx, &below);
    return folder ? tern_sprintf(ctx, "%s%s/%s/%s", folder, below, kind, name) : NULL;
}

size_t tern_cache_path_size(const struct tern_context *ctx, const char *kind, const char *name)
{
    const char *below, *folder = folder_of(ctx, &below);
    return folder ? strlen(folder) + strlen(below) + strlen(kind) + strlen(name) + 3 : 0;
}

enum tern_status tern_cache_prepare(struct tern_context *ctx, const char *path)
{
    char *p = tern_strdup(ctx, path);
    if (!p)
        return TERN_E_NO_MEMORY;
    struct stat there;
    enum tern_status st = TERN_OK;
    for (char *slash = strchr(p + 1, '/'); slash && !st; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(p, 0755) && errno != EEXIST)
            st = tern_fail(ctx, TERN_E_IO, "%s: the cache folder cannot be made: %s", p, strerror(errno));
        *slash = '/';
    }
    tern_free(ctx, p);
    if (!st && !stat(path, &there) && S_ISFIFO(there.st_mode)) /* it would wait for a reader, who may never come */
        st = tern_fail(ctx, TERN_E_IO, "%s: expected a file of the cache, found a pipe", path);
    return st;
}

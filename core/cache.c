/* Where the cache folder is. */
#include "core/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/context.h"

char *tern_cache_path(struct tern_context *ctx, const char *kind, const char *name)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (ctx->params.cache_dir)
        return tern_sprintf(ctx, "%s/%s/%s", ctx->params.cache_dir, kind, name);
    if (xdg && xdg[0] == '/')
        return tern_sprintf(ctx, "%s/tern/%s/%s", xdg, kind, name);
    if (home && home[0])
        return tern_sprintf(ctx, "%s/.cache/tern/%s/%s", home, kind, name);
    return NULL;
}

enum tern_status tern_cache_prepare(struct tern_context *ctx, const char *path)
{
    char *p = tern_strdup(ctx, path);
    if (!p)
        return TERN_E_NO_MEMORY;
    enum tern_status st = TERN_OK;
    for (char *slash = strchr(p + 1, '/'); slash && !st; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(p, 0755) && errno != EEXIST)
            st = tern_fail(ctx, TERN_E_IO, "%s: the cache folder cannot be made: %s", p, strerror(errno));
        *slash = '/';
    }
    tern_free(ctx, p);
    return st;
}

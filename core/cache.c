/* Where the cache folder is. */
#include "core/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

/* Whether a name is that of an unfinished file (core/writer.c): "NAME.PID-N", NAME with that ending. */
static bool is_unfinished(const char *name, const char *ending)
{
    static const char digits[] = "0123456789";
    const size_t n = strlen(ending);
    const char *dot = strrchr(name, '.');
    if (!dot || (size_t)(dot - name) <= n || memcmp(dot - n, ending, n))
        return false;
    const char *dash = dot + 1 + strspn(dot + 1, digits);
    return dash > dot + 1 && *dash == '-' && dash[1] && !dash[1 + strspn(dash + 1, digits)];
}

/* Whether a path is one that tern_cache_path made; of others, as of tuning, the folder is the user's. */
static bool is_own(const struct tern_context *ctx, const char *path)
{
    const char *below, *folder = folder_of(ctx, &below);
    const size_t n = folder ? strlen(folder) : 0, more = strlen(below);
    return folder && !strncmp(path, folder, n) && !strncmp(path + n, below, more) && path[n + more] == '/';
}

/* Files like `path` that a process left unfinished a day ago or earlier: it was killed. */
static void remove_unfinished(const char *folder, const char *path)
{
    const struct dirent *e;
    struct stat st;
    const char *ending = strrchr(path, '.');
    DIR *d = ending && !strchr(ending, '/') ? opendir(folder) : NULL;
    while (d && (e = readdir(d)))
        if (is_unfinished(e->d_name, ending) && !fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
            st.st_mtime < time(NULL) - 24 * 60 * 60)
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
}

enum tern_status tern_cache_prepare(struct tern_context *ctx, const char *path)
{
    char *p = tern_strdup(ctx, path);
    if (!p)
        return tern_error_status(ctx);
    struct stat there;
    enum tern_status st = TERN_OK;
    for (char *slash = strchr(p + (*p == '/'), '/'); slash && !st; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(p, 0755) && errno != EEXIST)
            st = tern_fail(ctx, TERN_E_IO, "%s: the cache folder cannot be made: %s", p, strerror(errno));
        *slash = '/';
    }
    char *name = strrchr(p, '/');
    if (name && !st && is_own(ctx, path)) {
        *name = 0;
        remove_unfinished(p, path);
    }
    tern_free(ctx, p);
    if (!st && !stat(path, &there) && S_ISFIFO(there.st_mode)) /* it would wait for a reader, who may never come */
        st = tern_fail(ctx, TERN_E_IO, "%s: expected a file of the cache, found a pipe", path);
    return st;
}

/* A folder that appears under its name when it is complete. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/context.h"
#include "core/files.h"

/* Something that lies in a folder, "" where nothing does; false when it cannot be read. */
static bool find_any(const char *folder, char name[NAME_MAX + 1])
{
    const struct dirent *e;
    DIR *d = opendir(folder);
    name[0] = 0;
    while (d && !name[0] && (e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            snprintf(name, NAME_MAX + 1, "%s", e->d_name);
    if (d)
        closedir(d);
    return d;
}

enum tern_status tern_folder_check(struct tern_context *ctx, const char *path)
{
    enum tern_path_kind kind = tern_path_kind(path);
    char name[NAME_MAX + 1] = "";
    if (!path[0])
        return tern_fail(ctx, TERN_E_INVALID, "expected the name of a new or empty folder, found an empty name");
    const bool read = kind == TERN_PATH_FOLDER && find_any(path, name);
    if (kind == TERN_PATH_MISSING || (read && !name[0]))
        return TERN_OK;
    if (read) /* it may be hidden: a process that was killed leaves ".PID-N.part" */
        return tern_fail(ctx, TERN_E_INVALID, "%s: expected the name of a new or empty folder, found one that is not empty: it has %s",
                         path, name);
    return tern_fail(ctx, TERN_E_INVALID, "%s: expected the name of a new or empty folder, found %s", path,
                     kind == TERN_PATH_FOLDER ? "one that cannot be read" : "a file");
}

/* Remembers "parent/name" before it is made; borrowed. NULL with the error recorded. */
const char *tern_folder_note(struct tern_folder *f, const char *parent, const char *name)
{
    if (!tern_grow(f->ctx, (void **)&f->made, f->count, &f->capacity, sizeof(*f->made)))
        return NULL;
    char *path = name ? tern_path_join(f->ctx, parent, name) : tern_strdup(f->ctx, parent);
    if (path)
        f->made[f->count++] = path;
    return path;
}

/* Notes a folder that was made, or not, with errno set. */
static const char *note_made(struct tern_folder *f, const char *path, bool made)
{
    if (!made)
        tern_fail(f->ctx, TERN_E_IO, "%s: the folder cannot be made: %s", path, strerror(errno));
    const char *kept = made ? tern_folder_note(f, path, NULL) : NULL;
    if (made && !kept)
        rmdir(path);
    return kept;
}

const char *tern_folder_make(struct tern_folder *f, const char *parent, const char *name)
{
    char *path = tern_path_join(f->ctx, parent, name);
    const char *kept = path ? note_made(f, path, !mkdir(path, 0777)) : NULL;
    tern_free(f->ctx, path);
    return kept;
}

/* The folder to work in: beside the target, or in it where it is there, as it may be a mount point or ".", whose place none takes. A
 * process of the same number, before this one or in another container, may have left one. */
static bool make_root(struct tern_folder *f)
{
    bool made = false;
    char end[48];
    for (int n = 0; !made && n < 100 && (!n || errno == EEXIST); n++) {
        tern_free(f->ctx, f->root);
        snprintf(end, sizeof(end), ".%ld-%d.part", (long)getpid(), n);
        f->root = f->fills ? tern_path_join(f->ctx, f->target, end) : tern_path_beside(f->ctx, f->target, end);
        if (!f->root)
            return false;
        made = !mkdir(f->root, 0777);
    }
    return note_made(f, f->root, made);
}

enum tern_status tern_folder_open(struct tern_folder *f, struct tern_context *ctx, const char *path)
{
    *f = (struct tern_folder){.ctx = ctx};
    char *bare = tern_strdup(ctx, path);
    for (size_t n = bare ? strlen(bare) : 0; n > 1 && bare[n - 1] == '/'; n--)
        bare[n - 1] = 0;
    f->target = bare ? tern_path_target(ctx, bare) : NULL;
    tern_free(ctx, bare);
    f->fills = f->target && tern_path_kind(f->target) == TERN_PATH_FOLDER;
    return f->target && make_root(f) ? TERN_OK : tern_error_status(ctx);
}

/* Nothing that has come to lie there meanwhile is replaced, where the file system can promise it. */
static bool move_to(int from, int to, const char *name)
{
    return !renameat2(from, name, to, name, RENAME_NOREPLACE) || ((errno == EINVAL || errno == ENOSYS) && !renameat(from, name, to, name));
}

/* What lies in the working folder moves up into the target, in the order in which it was made; where something cannot, all of it goes back.
 * False with errno set. */
static bool move_up(const struct tern_folder *f)
{
    const size_t skip = strlen(f->root) + 1;
    int from = open(f->root, O_PATH | O_DIRECTORY | O_CLOEXEC), to = open(f->target, O_PATH | O_DIRECTORY | O_CLOEXEC), moved = 1;
    bool good = from >= 0 && to >= 0;
    for (; good && moved < f->count; moved += good) /* the first is the folder itself */
        good = strchr(f->made[moved] + skip, '/') || move_to(from, to, f->made[moved] + skip);
    const int error = errno;
    while (!good && --moved > 0)
        if (!strchr(f->made[moved] + skip, '/'))
            renameat(to, f->made[moved] + skip, from, f->made[moved] + skip);
    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
    if (good)
        rmdir(f->root);
    errno = error;
    return good;
}

enum tern_status tern_folder_close(struct tern_folder *f, enum tern_status st)
{
    if (!st && !(f->fills ? move_up(f) : !rename(f->root, f->target)))
        st = tern_fail(f->ctx, TERN_E_IO, "%s: the folder cannot be made: %s", f->target, strerror(errno));
    for (int i = f->count; st && i-- > 0;)
        remove(f->made[i]);
    for (int i = 0; i < f->count; i++)
        tern_free(f->ctx, f->made[i]);
    tern_free(f->ctx, f->made);
    tern_free(f->ctx, f->root);
    tern_free(f->ctx, f->target);
    *f = (struct tern_folder){.ctx = f->ctx};
    return st;
}

enum tern_status tern_folder_write(struct tern_folder *f, const char *parent, const char *name, const char *bytes, size_t size)
{
    const char *path = tern_folder_note(f, parent, name);
    struct tern_writer *w = path ? tern_writer_open(f->ctx, path) : NULL;
    if (!w)
        return tern_error_status(f->ctx);
    if (fwrite(bytes, 1, size, w->file) == size)
        return tern_writer_commit(&w);
    const int error = errno;
    tern_writer_discard(&w);
    return tern_fail(f->ctx, TERN_E_IO, "%s: could not be written: %s", path, strerror(error));
}

enum tern_status tern_folder_write_text(struct tern_folder *f, const char *parent, const char *name, const char *text)
{
    return tern_folder_write(f, parent, name, text, strlen(text));
}

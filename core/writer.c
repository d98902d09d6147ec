/* Atomic writing. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/context.h"
#include "core/files.h"

static void writer_free(struct tern_writer *w)
{
    tern_free(w->ctx, w->path);
    tern_free(w->ctx, w->temporary);
    tern_free(w->ctx, w);
}

/* A new file beside the one to write, named in w->temporary; -1 with errno set. Not mkstemp: its files are for the owner
 * only, and the mask that would widen them can be read only by changing it for all threads. */
static int create_beside(struct tern_writer *w)
{
    static unsigned serial; /* atomic */
    int fd = -1;
    for (int tries = 0; fd < 0 && tries < 100; tries++) {
        unsigned n = __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED);
        tern_free(w->ctx, w->temporary);
        w->temporary = tern_sprintf(w->ctx, "%s.%ld-%u", w->path, (long)getpid(), n);
        if (!w->temporary)
            return -1;
        fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            return -1;
    }
    return fd;
}

struct tern_writer *tern_writer_open(struct tern_context *ctx, const char *path)
{
    struct tern_writer *w = tern_calloc(ctx, 1, sizeof(*w));
    if (!w)
        return NULL;
    w->ctx = ctx;
    w->path = tern_strdup(ctx, path);
    int fd = -1;
    if (w->path && tern_path_kind(path) == TERN_PATH_FOLDER)
        tern_fail(ctx, TERN_E_IO, "%s: expected a file name, found a folder", path);
    else if (w->path && (fd = create_beside(w)) < 0 && !tern_failed(ctx))
        tern_fail(ctx, TERN_E_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (fd >= 0) {
        w->file = fdopen(fd, "wb");
        if (!w->file) {
            tern_fail(ctx, TERN_E_IO, "%s: cannot be written: %s", path, strerror(errno));
            close(fd);
            unlink(w->temporary);
        }
    }
    if (!w->file) {
        writer_free(w);
        return NULL;
    }
    return w;
}

enum tern_status tern_writer_commit(struct tern_writer **writer)
{
    struct tern_writer *w = *writer;
    enum tern_status st = TERN_OK;
    *writer = NULL;
    bool bad = ferror(w->file) || fflush(w->file) || fsync(fileno(w->file));
    int error = errno;
    if (fclose(w->file) && !bad) {
        bad = true;
        error = errno;
    }
    if (!bad && rename(w->temporary, w->path)) {
        bad = true;
        error = errno;
    }
    if (bad) {
        st = tern_fail(w->ctx, TERN_E_IO, "%s: could not be written: %s", w->path, strerror(error));
        unlink(w->temporary);
    }
    writer_free(w);
    return st;
}

void tern_writer_discard(struct tern_writer **writer)
{
    struct tern_writer *w = *writer;
    *writer = NULL;
    if (!w)
        return;
    fclose(w->file);
    unlink(w->temporary);
    writer_free(w);
}

enum tern_status tern_check_writable(struct tern_context *ctx, const char *path)
{
    struct tern_writer *w = tern_writer_open(ctx, path);
    if (!w)
        return tern_error_status(ctx);
    tern_writer_discard(&w);
    return TERN_OK;
}

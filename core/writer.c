/* Atomic writing: what is there stays until the new file is complete. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/context.h"
#include "core/files.h"

#define LINKS 40 /* as many as Linux follows */

static const int write_signals[] = {SIGPIPE, SIGXFSZ};

char *tern_path_target(struct tern_context *ctx, const char *path)
{
    char text[PATH_MAX], *at = tern_strdup(ctx, path);
    for (int i = 0; at; i++) {
        ssize_t n = readlink(at, text, sizeof(text) - 1);
        if (n < 0) /* no link; whatever else is wrong with the name is said when it is opened */
            return at;
        if (i == LINKS) {
            tern_fail(ctx, TERN_E_IO, "%s: cannot be written: %s", path, strerror(ELOOP));
            break;
        }
        text[n] = 0;
        const char *slash = *text == '/' ? NULL : strrchr(at, '/');
        char *next = slash ? tern_sprintf(ctx, "%.*s%s", (int)(slash + 1 - at), at, text) : tern_strdup(ctx, text);
        tern_free(ctx, at);
        at = next;
    }
    tern_free(ctx, at);
    return NULL;
}

char *tern_path_beside(struct tern_context *ctx, const char *path, const char *end)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n = strlen(name), most = NAME_MAX - strlen(end);
    if (n > most && n <= NAME_MAX) /* what is too long by itself stays so */
        for (n = most; n && (name[n] & 0xc0) == 0x80; n--)
            ; /* to the end of a character */
    return tern_sprintf(ctx, "%.*s%s", (int)((size_t)(name - path) + n), path, end);
}

/* A pipe whose reader is gone and a limit of file sizes are errors of the write, not the end of the program. Of signals that the caller
 * does not get anyway it may be told later. */
static void hold_signals(struct tern_writer *w)
{
    sigset_t mask, held;
    sigemptyset(&held);
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    for (int i = 0; i < 2; i++)
        if ((w->held[i] = !sigismember(&mask, write_signals[i])))
            sigaddset(&held, write_signals[i]);
    pthread_sigmask(SIG_BLOCK, &held, NULL);
}

static void release_signals(const struct tern_writer *w)
{
    const int error = errno;
    sigset_t pending, one;
    for (int i = 0, taken; i < 2; i++) {
        sigemptyset(&one);
        sigaddset(&one, write_signals[i]);
        if (w->held[i] && !sigpending(&pending) && sigismember(&pending, write_signals[i]))
            sigwait(&one, &taken);
        if (w->held[i])
            pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    }
    errno = error;
}

static void writer_free(struct tern_writer *w)
{
    release_signals(w);
    tern_free(w->ctx, w->path);
    tern_free(w->ctx, w->target);
    tern_free(w->ctx, w->temporary);
    tern_free(w->ctx, w);
}

/* A new file beside the one to write, named in w->temporary, of the mode of what is there; -1 with errno set. Not mkstemp: its files are
 * for the owner only, and the mask that would widen them can be read only by changing it for all threads. */
static int create_beside(struct tern_writer *w)
{
    static unsigned serial; /* atomic */
    char end[48];
    struct stat st;
    const bool there = !stat(w->target, &st);
    const mode_t mode = there ? st.st_mode & 0777 : 0666;
    int fd = -1;
    for (int tries = 0; fd < 0 && tries < 100; tries++) {
        unsigned n = __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED);
        tern_free(w->ctx, w->temporary);
        snprintf(end, sizeof(end), ".%ld-%u", (long)getpid(), n);
        w->temporary = tern_path_beside(w->ctx, w->target, end);
        if (!w->temporary)
            return -1;
        fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd < 0 && errno != EEXIST)
            return -1;
    }
    if (fd >= 0 && there)
        fchmod(fd, mode); /* what the mask took; where modes cannot be set they are all the same */
    return fd;
}

/* Where the output goes: beside the target, or straight into a pipe or device, which a file in its place would end. */
static enum tern_status choose_way(struct tern_context *ctx, const char *path, bool *straight)
{
    struct stat st;
    const bool there = !stat(path, &st);
    *straight = there && (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode));
    if (!path[0]) /* what is written would have another name until the end */
        return tern_fail(ctx, TERN_E_IO, "expected a file name, found an empty one");
    if (!there)
        return TERN_OK;
    if (*straight || S_ISREG(st.st_mode)) /* not opened: a pipe would wait for a reader, and be at its end for one that is there */
        return access(path, W_OK) ? tern_fail(ctx, TERN_E_IO, "%s: cannot be written: %s", path, strerror(errno)) : TERN_OK;
    return tern_fail(ctx, TERN_E_IO, "%s: expected a file name, found %s", path,
                     S_ISDIR(st.st_mode) ? "a folder" : "a socket or a disk, which cannot be written into");
}

struct tern_writer *tern_writer_open(struct tern_context *ctx, const char *path)
{
    struct tern_writer *w = tern_calloc(ctx, 1, sizeof(*w));
    bool straight = false;
    if (!w)
        return NULL;
    w->ctx = ctx;
    hold_signals(w);
    w->path = tern_strdup(ctx, path);
    w->target = w->path && choose_way(ctx, path, &straight) == TERN_OK ? tern_path_target(ctx, path) : NULL;
    int fd = !w->target ? -1 : straight ? open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC) : create_beside(w);
    if (fd >= 0)
        w->file = fdopen(fd, "wb");
    if (!w->file) {
        if (w->target && !tern_failed(ctx))
            tern_fail(ctx, tern_errno_status(TERN_E_IO), "%s: cannot be written: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        if (fd >= 0 && w->temporary)
            unlink(w->temporary);
        writer_free(w);
        return NULL;
    }
    return w;
}

/* False with errno set. */
static bool copy_into(int to, int from)
{
    char buffer[1 << 14];
    ssize_t n, done;
    while ((n = read(from, buffer, sizeof(buffer))) > 0)
        for (ssize_t at = 0; at < n; at += done)
            if ((done = write(to, buffer + at, (size_t)(n - at))) < 0)
                return false;
    return n == 0 && !fsync(to);
}

/* The file that is there is a mount point, or another user's in a folder like /tmp: none may take its place, yet it may be written. False
 * with errno set. */
static bool fill_target(const struct tern_writer *w)
{
    struct stat st;
    const bool regular = !stat(w->target, &st) && S_ISREG(st.st_mode);
    int from = regular ? open(w->temporary, O_RDONLY | O_CLOEXEC) : -1,
        to = from < 0 ? -1 : open(w->target, O_WRONLY | O_TRUNC | O_CLOEXEC);
    const bool good = to >= 0 && copy_into(to, from);
    const int error = errno;
    if (to >= 0)
        close(to);
    if (from >= 0)
        close(from);
    errno = error;
    if (good)
        unlink(w->temporary);
    return good;
}

/* What is complete gets its name. Where neither way leads to it, what was written stays, and is named. */
static enum tern_status take_name(const struct tern_writer *w)
{
    if (!rename(w->temporary, w->target))
        return TERN_OK;
    const bool kept = errno == EBUSY || errno == EPERM || errno == EACCES;
    if (kept && fill_target(w))
        return TERN_OK;
    const int error = errno;
    if (!kept)
        unlink(w->temporary);
    return tern_fail(w->ctx, TERN_E_IO, "%s: could not be written: %s%s%s", w->path, strerror(error), kept ? "; it is complete in " : "",
                     kept ? w->temporary : "");
}

enum tern_status tern_writer_commit(struct tern_writer **writer)
{
    struct tern_writer *w = *writer;
    enum tern_status st = TERN_OK;
    *writer = NULL;
    bool bad = ferror(w->file) || fflush(w->file) || (w->temporary && fsync(fileno(w->file)));
    int error = errno;
    if (fclose(w->file) && !bad) {
        bad = true;
        error = errno;
    }
    if (bad)
        st = tern_fail(w->ctx, TERN_E_IO, "%s: could not be written: %s", w->path, strerror(error));
    if (bad && w->temporary)
        unlink(w->temporary);
    else if (w->temporary)
        st = take_name(w);
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
    if (w->temporary)
        unlink(w->temporary);
    writer_free(w);
}

enum tern_status tern_check_writable(struct tern_context *ctx, const char *path)
{
    bool straight;
    if (choose_way(ctx, path, &straight))
        return tern_error_status(ctx);
    if (straight)
        return TERN_OK;
    struct tern_writer *w = tern_writer_open(ctx, path);
    if (!w)
        return tern_error_status(ctx);
    tern_writer_discard(&w);
    return TERN_OK;
}

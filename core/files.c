/* Mapped reading, whole files, names. */
#include "core/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/context.h"

/* Opens a regular file; -1 with the error recorded. */
static int open_regular(struct tern_context *ctx, const char *path, struct stat *st)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused, not waited for */
    if (fd < 0) {
        tern_fail(ctx, errno == ENOENT ? TERN_E_NOT_FOUND : TERN_E_IO, "%s: cannot be opened: %s", path, strerror(errno));
        return -1;
    }
    if (fstat(fd, st) || !S_ISREG(st->st_mode)) {
        tern_fail(ctx, TERN_E_IO, "%s: expected a file, found %s", path, S_ISDIR(st->st_mode) ? "a folder" : "something else");
        close(fd);
        return -1;
    }
    return fd;
}

struct tern_mapping *tern_map_file(struct tern_context *ctx, const char *path)
{
    struct stat st;
    int fd = open_regular(ctx, path, &st);
    if (fd < 0)
        return NULL;
    struct tern_mapping *m = tern_calloc(ctx, 1, sizeof(*m));
    void *data = NULL;
    if (m && (m->path = tern_strdup(ctx, path)) && st.st_size) {
        data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED && errno == ENOMEM) {
            tern_memory_trim(ctx);
            data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        }
        if (data == MAP_FAILED) {
            tern_fail(ctx, tern_errno_status(TERN_E_IO), "%s: cannot be mapped: %s", path, strerror(errno));
            data = NULL;
        }
    }
    if (!m || !m->path || (st.st_size && !data)) {
        close(fd);
        tern_free(ctx, m ? m->path : NULL);
        tern_free(ctx, m);
        return NULL;
    }
    tern_context_ref(ctx);
    m->ctx = ctx;
    m->refs = 1;
    m->data = data;
    m->size = (size_t)st.st_size;
    m->file = fd;
    pthread_mutex_lock(&ctx->lock);
    m->next = ctx->mappings;
    ctx->mappings = m;
    pthread_mutex_unlock(&ctx->lock);
    return m;
}

struct tern_mapping *tern_mapping_ref(struct tern_mapping *m)
{
    if (m)
        __atomic_add_fetch(&m->refs, 1, __ATOMIC_RELAXED);
    return m;
}

void tern_mapping_unref(struct tern_mapping **m)
{
    struct tern_mapping *x = *m;
    *m = NULL;
    if (!x || __atomic_sub_fetch(&x->refs, 1, __ATOMIC_ACQ_REL))
        return;
    struct tern_context *ctx = x->ctx;
    pthread_mutex_lock(&ctx->lock);
    struct tern_mapping **p = &ctx->mappings;
    while (*p != x)
        p = &(*p)->next;
    *p = x->next;
    pthread_mutex_unlock(&ctx->lock);
    close(x->file);
    if (x->data)
        munmap((void *)(uintptr_t)x->data, x->size);
    tern_free(ctx, x->path);
    tern_free(ctx, x);
    tern_context_unref(ctx);
}

void tern_mapping_advise(const struct tern_mapping *m, size_t offset, size_t size, bool needed)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), begin = offset / page * page;
    if (m->data && offset < m->size && size <= m->size - offset && size)
        madvise((void *)(uintptr_t)(m->data + begin), offset + size - begin, needed ? MADV_WILLNEED : MADV_DONTNEED);
}

/* -1: in no mapping of the context. */
static int file_of(struct tern_context *ctx, const uint8_t *from, size_t size, size_t *offset)
{
    int file = -1;
    pthread_mutex_lock(&ctx->lock);
    for (const struct tern_mapping *m = ctx->mappings; m && file < 0; m = m->next)
        if (m->data && from >= m->data && from - m->data <= (ptrdiff_t)m->size && size <= m->size - (size_t)(from - m->data)) {
            file = m->file;
            *offset = (size_t)(from - m->data);
        }
    pthread_mutex_unlock(&ctx->lock);
    return file;
}

bool tern_mapping_read(struct tern_context *ctx, const void *from, size_t size, void *to)
{
    size_t offset = 0, n = 0;
    int file = file_of(ctx, from, size, &offset);
    while (file >= 0 && n < size) {
        ssize_t got = pread(file, (char *)to + n, size - n, (off_t)(offset + n));
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return false;
        n += got > 0 ? (size_t)got : 0;
    }
    return file >= 0;
}

char *tern_read_file(struct tern_context *ctx, const char *path, size_t limit, size_t *size)
{
    struct stat st;
    int fd = open_regular(ctx, path, &st);
    if (fd < 0)
        return NULL;
    if ((uint64_t)st.st_size > limit) {
        tern_fail(ctx, TERN_E_FORMAT, "%s: expected at most %zu bytes, found %lld", path, limit, (long long)st.st_size);
        close(fd);
        return NULL;
    }
    size_t n = 0, want = (size_t)st.st_size;
    char *text = tern_alloc(ctx, want + 1);
    while (text && n < want) {
        ssize_t got = read(fd, text + n, want - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    close(fd);
    if (text && n < want) {
        tern_fail(ctx, TERN_E_IO, "%s: expected %zu bytes, could read %zu", path, want, n);
        tern_free(ctx, text);
        return NULL;
    }
    if (text)
        text[n] = 0;
    if (size)
        *size = n;
    return text;
}

enum tern_path_kind tern_path_kind(const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return TERN_PATH_MISSING;
    return S_ISREG(st.st_mode) ? TERN_PATH_FILE : S_ISDIR(st.st_mode) ? TERN_PATH_FOLDER : TERN_PATH_OTHER;
}

char *tern_path_join(struct tern_context *ctx, const char *dir, const char *name)
{
    size_t n = strlen(dir);
    return tern_sprintf(ctx, "%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name);
}

char *tern_path_fixed(struct tern_context *ctx, const char *path)
{
    char here[PATH_MAX];
    return path[0] && path[0] != '/' && getcwd(here, sizeof(here)) ? tern_path_join(ctx, here, path) : tern_strdup(ctx, path);
}

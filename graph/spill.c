/* Prepared forms of streamed weights in a file. Kernels read them where they are mapped, so that a run neither prepares nor copies a
 * weight: in int8 half of the bytes travel, and no weight is quantised twice. The file has no name: nothing is left of it, and nobody finds
 * an old one. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/cache.h"
#include "core/context.h"
#include "graph/plan.h"

#define FROM 2                    /* the run that writes: whoever runs once would only lose */
#define AHEAD ((size_t)128 << 20) /* bytes before which pages are asked for: what a disk reads while some steps run */

struct tern_spill {
    struct tern_buffer map; /* the file; host NULL: not mapped */
    int file;               /* -1: none */
    int runs;               /* atomic; that began */
    bool open;              /* atomic; the file is there, and mapped */
    bool ahead;             /* the system is asked for pages */
    char *folder;           /* NULL: there is no cache folder */
    bool there[];           /* by step; atomic */
};

struct tern_spill *tern_spill_create(struct tern_plan *p, bool ahead)
{
    struct tern_context *ctx = p->ctx;
    struct tern_spill *s = tern_calloc(ctx, 1, sizeof(*s) + (size_t)p->n_steps);
    if (!s)
        return NULL;
    s->file = -1;
    s->ahead = ahead;
    s->map.size = p->facts.travels;
    s->folder = tern_cache_path(ctx, "stream", "");
    if (!s->folder || !tern_cache_prepare(ctx, s->folder))
        return s;
    if (tern_error_status(ctx) == TERN_E_IO) { /* as good as none */
        tern_error_clear(ctx);
        tern_free(ctx, s->folder);
        s->folder = NULL;
        return s;
    }
    tern_spill_destroy(ctx, &s);
    return NULL;
}

void tern_spill_destroy(struct tern_context *ctx, struct tern_spill **spill)
{
    struct tern_spill *s = *spill;
    *spill = NULL;
    if (!s)
        return;
    if (s->map.host)
        munmap(s->map.host, s->map.size);
    if (s->file >= 0)
        close(s->file);
    tern_free(ctx, s->folder);
    tern_free(ctx, s);
}

/* Room on the disk for the file, and as much again. False with errno. */
static bool take_room(int file, size_t size)
{
    struct statvfs disk;
    if (fstatvfs(file, &disk))
        return false;
    if (disk.f_bavail / 2 <= size / disk.f_frsize) {
        errno = ENOSPC;
        return false;
    }
    return !(errno = posix_fallocate(file, 0, (off_t)size));
}

/* False with errno. */
static bool open_file(struct tern_spill *s)
{
    if ((s->file = open(s->folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) < 0 || !take_room(s->file, s->map.size))
        return false;
    void *map = mmap(NULL, s->map.size, PROT_READ, MAP_SHARED, s->file, 0);
    s->map.host = map == MAP_FAILED ? NULL : map;
    return s->map.host;
}

/* Asks for pages from `offset` on. */
static void ask(const struct tern_spill *s, size_t offset, size_t size)
{
    if (s->ahead && offset < s->map.size)
        madvise((char *)s->map.host + offset, size < s->map.size - offset ? size : s->map.size - offset, MADV_WILLNEED);
}

void tern_spill_begin(const struct tern_plan *p, struct tern_spill *s)
{
    if (__atomic_load_n(&s->open, __ATOMIC_ACQUIRE))
        ask(s, 0, AHEAD);
    if (__atomic_add_fetch(&s->runs, 1, __ATOMIC_RELAXED) != FROM || !s->folder)
        return;
    if (open_file(s))
        __atomic_store_n(&s->open, true, __ATOMIC_RELEASE);
    else
        tern_message(p->ctx, TERN_LOG_INFO,
                     "streamed weights are prepared anew at every run: %s: a file of %zu bytes, and as much free: %s", s->folder,
                     s->map.size, strerror(errno));
}

bool tern_spill_find(const struct tern_spill *s, const struct tern_step *step, int number, struct tern_arg *packed)
{
    if (!__atomic_load_n(&s->there[number], __ATOMIC_ACQUIRE))
        return false;
    *packed = (struct tern_arg){(struct tern_buffer *)&s->map, step->spilled};
    return true;
}

void tern_spill_leave(const struct tern_spill *s, const struct tern_step *step, const struct tern_kernel_args *a)
{
    if (a->packed.buffer != &s->map)
        return;
    size_t size = step->kernel->packed_size(a->ctx, a->desc);
    madvise(tern_arg_host(&a->packed), size, MADV_DONTNEED);
    ask(s, step->spilled + AHEAD, size); /* steps lie there in their order */
}

void tern_spill_write(struct tern_spill *s, const struct tern_step *step, int number, const struct tern_kernel_args *a)
{
    if (!__atomic_load_n(&s->open, __ATOMIC_ACQUIRE))
        return;
    const char *from = tern_arg_host(&a->packed);
    const size_t size = step->kernel->packed_size(a->ctx, a->desc);
    for (size_t n = 0; n < size;) {
        ssize_t put = pwrite(s->file, from + n, size - n, (off_t)(step->spilled + n));
        if (put <= 0 && !(put < 0 && errno == EINTR))
            return;
        n += put > 0 ? (size_t)put : 0;
    }
    __atomic_store_n(&s->there[number], true, __ATOMIC_RELEASE);
}

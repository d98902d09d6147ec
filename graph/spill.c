/* Prepared forms of streamed weights in a file. Kernels of the CPU read them where they are mapped, so that a run neither prepares nor
 * copies a weight; to other devices they are copied in the weight's place. In int8 half of the bytes travel, and no weight is quantised
 * twice. The file has no name: nothing is left of it, and nobody finds an old one. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/cache.h"
#include "core/context.h"
#include "graph/plan.h"

#define FROM 2                    /* the run that writes: whoever runs once would only lose */
#define PART ((size_t)256 << 10)  /* bytes that are read from a device at once */
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

size_t tern_spill_bytes(const struct tern_plan *p)
{
    return sizeof(struct tern_spill) + (size_t)p->n_steps + tern_cache_path_size(p->ctx, "stream", "") + 2 * (size_t)64;
}

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
    if (!tern_failed(ctx) && (!s->folder || !tern_cache_prepare(ctx, s->folder)))
        return s;
    if (tern_error_status(ctx) == TERN_E_IO) { /* as good as none */
        tern_message(ctx, TERN_LOG_INFO, "streamed weights are prepared anew at every run: %s", tern_error(ctx));
        tern_error_clear_own(ctx);
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

/* Room on the disk for the file, and as much again. Beyond the limit of file sizes a signal would end the process: it is not tried. False
 * with errno. */
static bool take_room(int file, size_t size)
{
    struct statvfs disk;
    struct rlimit most;
    if (!getrlimit(RLIMIT_FSIZE, &most) && size > most.rlim_cur) {
        errno = EFBIG;
        return false;
    }
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

size_t tern_step_spilled_size(struct tern_context *ctx, const struct tern_step *step)
{
    const struct tern_meta *out = &step->desc->out;
    return step->kernel->pack ? step->kernel->packed_size(ctx, step->desc) : tern_meta_bytes(out);
}

bool tern_spill_find(const struct tern_spill *s, const struct tern_step *step, int number, struct tern_arg *form)
{
    if (!__atomic_load_n(&s->there[number], __ATOMIC_ACQUIRE))
        return false;
    *form = (struct tern_arg){(struct tern_buffer *)&s->map, step->spilled};
    return true;
}

void tern_spill_leave(const struct tern_spill *s, struct tern_context *ctx, const struct tern_step *step, const struct tern_arg *form)
{
    if (form->buffer != &s->map)
        return;
    size_t size = tern_step_spilled_size(ctx, step);
    madvise(tern_arg_host(form), size, MADV_DONTNEED);
    ask(s, step->spilled + AHEAD, size); /* steps lie there in their order */
}

static bool write_all(int file, const char *from, size_t size, off_t to)
{
    for (size_t n = 0; n < size;) {
        ssize_t put = pwrite(file, from + n, size - n, to + (off_t)n);
        if (put <= 0 && !(put < 0 && errno == EINTR))
            return false;
        n += put > 0 ? (size_t)put : 0;
    }
    return true;
}

/* The device's memory, part by part. *written: all of it; without memory for a part nothing is. */
static enum tern_status write_from(int file, struct tern_context *ctx, const struct tern_arg *from, size_t size, off_t to, bool *written)
{
    char *part = tern_alloc(ctx, PART);
    enum tern_status st = TERN_OK;
    if (!part)
        tern_error_clear_own(ctx);
    size_t n = 0;
    for (size_t next; part && !st && n < size; n += next) {
        next = size - n < PART ? size - n : PART;
        st = tern_buffer_read(from->buffer, from->offset + n, part, next);
        if (st || !write_all(file, part, next, to + (off_t)n))
            break;
    }
    tern_free(ctx, part);
    *written = n == size;
    return st;
}

enum tern_status tern_spill_write(struct tern_spill *s, const struct tern_step *step, int number, const struct tern_kernel_args *a)
{
    if (!__atomic_load_n(&s->open, __ATOMIC_ACQUIRE))
        return TERN_OK;
    const struct tern_arg *from = step->kernel->pack ? &a->packed : &a->out;
    const size_t size = tern_step_spilled_size(a->ctx, step);
    const char *host = tern_arg_host(from);
    bool written = host && write_all(s->file, host, size, (off_t)step->spilled);
    enum tern_status st = host ? TERN_OK : write_from(s->file, a->ctx, from, size, (off_t)step->spilled, &written);
    if (written)
        __atomic_store_n(&s->there[number], true, __ATOMIC_RELEASE);
    return st;
}

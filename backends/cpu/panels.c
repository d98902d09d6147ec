#include "backends/cpu/panels.h"

#include <tern/context.h>

#include "backends/cpu/integers.h"
#include "core/files.h"
#include "core/threads.h"

struct run {
    const struct tern_cpu_panels *p;
    void (*pack)(void *arg, int64_t panel, const struct tern_cpu_room *room);
    void *arg;
    int64_t unit; /* panels whose memory holds the source of one */
    int64_t free; /* atomic; the first that nobody has taken */
};

static struct tern_cpu_room room_of(const struct run *r, int64_t first)
{
    const struct tern_cpu_panels *p = r->p;
    if (first >= p->n)
        return (struct tern_cpu_room){p->ctx, NULL, 0};
    const size_t begin = (size_t)first * p->step, end = first + r->unit < p->n ? begin + (size_t)r->unit * p->step : p->size;
    return (struct tern_cpu_room){p->ctx, p->dst + begin, end - begin};
}

/* A thread takes the panels that it packs next before it packs those that it has. */
static void pack_share(void *arg, int64_t begin, int64_t end)
{
    struct run *r = arg;
    for (int64_t share = begin; share < end; share++)
        for (int64_t at = share * r->unit, next; at < r->p->n; at = next) {
            next = __atomic_fetch_add(&r->free, r->unit, __ATOMIC_RELAXED);
            const struct tern_cpu_room room = room_of(r, next);
            for (int64_t i = at; i < min64(at + r->unit, r->p->n); i++)
                r->pack(r->arg, i, &room);
        }
}

void tern_cpu_each_panel(const struct tern_cpu_panels *p, void (*pack)(void *arg, int64_t panel, const struct tern_cpu_room *room),
                         void *arg)
{
    const int64_t threads = tern_thread_count(p->ctx);
    struct run r = {p, pack, arg, p->source > p->step ? (int64_t)((p->source + p->step - 1) / p->step) : 1, 0};
    r.free = threads * r.unit;
    tern_parallel(p->ctx, threads, 1, pack_share, &r);
}

const void *tern_cpu_panel_source(const struct tern_cpu_room *room, const void *from, size_t size)
{
    return room->at && size <= room->size && tern_mapping_read(room->ctx, from, size, room->at) ? room->at : from;
}

/* Weights that are packed panel by panel. */
#ifndef TERN_CPU_PANELS_H
#define TERN_CPU_PANELS_H

#include <stddef.h>
#include <stdint.h>

struct tern_context;

/* Panel i is packed to dst + i step; all together have `size` bytes there. */
struct tern_cpu_panels {
    struct tern_context *ctx;
    int64_t n;
    char *dst;
    size_t step, size;
    size_t source; /* bytes that a panel is made of, at most */
};

/* Memory for the source of a panel: that of panels which the same thread packs later. Without any at the end. */
struct tern_cpu_room {
    struct tern_context *ctx;
    char *at;
    size_t size;
};

/* Calls pack(arg, panel, room) for each panel, from several threads. */
void tern_cpu_each_panel(const struct tern_cpu_panels *p, void (*pack)(void *arg, int64_t panel, const struct tern_cpu_room *room),
                         void *arg);

/* The source of a panel, `size` bytes at `from`. Of a mapped file they are read into the room: to copy them costs less than to map pages
 * for them, and then a panel's rows lie in cache. */
const void *tern_cpu_panel_source(const struct tern_cpu_room *room, const void *from, size_t size);

#endif

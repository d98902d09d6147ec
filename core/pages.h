/* Big blocks: mappings of their own, whole pages. What is freed is kept for the next block, which may be a part of it or of several that
 * lie side by side: pages that are there already cost a system nothing, new ones 0.5 to 1.5 us each. */
#ifndef TERN_CORE_PAGES_H
#define TERN_CORE_PAGES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef TERN_HEAP_ONLY
#define TERN_PAGES_FROM SIZE_MAX /* AddressSanitizer watches the heap only */
#else
#define TERN_PAGES_FROM ((size_t)1 << 20)
#endif
#define TERN_HUGE_PAGE ((size_t)2 << 20)

struct tern_page_range;
struct tern_pages {
    pthread_mutex_t lock;
    struct tern_page_range *free; /* by address; no two touch */
    size_t kept;                  /* atomic; bytes of them */
    bool slow;                    /* atomic; a huge page took long to come */
};

void tern_pages_init(struct tern_pages *pages);
/* Gives all that is kept back; no other call follows. */
void tern_pages_destroy(struct tern_pages *pages);

/* All sizes are rounded up to whole pages. A block out of what is kept, not cleared; NULL: there is none that is large enough. Thread safe,
 * as the others are. */
void *tern_pages_take(struct tern_pages *pages, size_t size);
/* New pages of the system, cleared; NULL: it has none. */
void *tern_pages_map(size_t size);
/* The caller's block, of either call, is kept. */
void tern_pages_keep(struct tern_pages *pages, void *block, size_t size);
size_t tern_pages_kept(const struct tern_pages *pages);
/* Gives kept pages back to the system until no more than `most` bytes are left. */
void tern_pages_trim(struct tern_pages *pages, size_t most);

#endif

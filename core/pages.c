/* The list of kept ranges lies in the ranges themselves. */
#include "core/pages.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

struct tern_page_range {
    struct tern_page_range *next;
    size_t size;
};

static size_t whole_pages(size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) & ~(page - 1);
}

void tern_pages_init(struct tern_pages *pages)
{
    *pages = (struct tern_pages){0};
    pthread_mutex_init(&pages->lock, NULL);
}

void tern_pages_destroy(struct tern_pages *pages)
{
    tern_pages_trim(pages, 0);
    pthread_mutex_destroy(&pages->lock);
}

static void count(struct tern_pages *pages, size_t kept) { __atomic_store_n(&pages->kept, kept, __ATOMIC_RELAXED); }

static void *map(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* One that can hold a huge page begins a small page before it: what touches its first bytes leaves the huge ones alone. */
void *tern_pages_map(size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), need = whole_pages(size), more = need > TERN_HUGE_PAGE ? TERN_HUGE_PAGE : 0;
    char *p = map(need + more);
    if (!p)
        return more ? map(need) : NULL; /* there may be room for just that */
    const size_t before = more ? -((uintptr_t)p + page) & (TERN_HUGE_PAGE - 1) : 0;
    if (before)
        munmap(p, before);
    if (more > before)
        munmap(p + before + need, more - before);
    return p + before;
}

/* The range behind `end` bytes of it takes its place. */
static void cut_front(struct tern_page_range **at, size_t end)
{
    struct tern_page_range *r = *at;
    if (r->size == end) {
        *at = r->next;
        return;
    }
    struct tern_page_range *rest = (struct tern_page_range *)((char *)r + end);
    *rest = (struct tern_page_range){r->next, r->size - end};
    *at = rest;
}

void *tern_pages_take(struct tern_pages *pages, size_t size)
{
    struct tern_page_range **best = NULL, *r;
    const size_t need = whole_pages(size);
    pthread_mutex_lock(&pages->lock);
    for (struct tern_page_range **p = &pages->free; *p; p = &(*p)->next)
        if ((*p)->size >= need && (!best || (*p)->size < (*best)->size))
            best = p;
    r = best ? *best : NULL;
    if (r) {
        cut_front(best, need);
        count(pages, pages->kept - need);
    }
    pthread_mutex_unlock(&pages->lock);
    return r;
}

/* Ranges that touch become one. */
static void join(struct tern_page_range *r)
{
    struct tern_page_range *next = r->next;
    if (next && (char *)r + r->size == (char *)next) {
        r->size += next->size;
        r->next = next->next;
    }
}

void tern_pages_keep(struct tern_pages *pages, void *block, size_t size)
{
    struct tern_page_range *r = block, *before = NULL;
    pthread_mutex_lock(&pages->lock);
    for (struct tern_page_range *p = pages->free; p && p < r; p = p->next)
        before = p;
    struct tern_page_range **at = before ? &before->next : &pages->free;
    *r = (struct tern_page_range){*at, whole_pages(size)};
    *at = r;
    count(pages, pages->kept + r->size);
    join(r);
    if (before)
        join(before);
    pthread_mutex_unlock(&pages->lock);
}

size_t tern_pages_kept(const struct tern_pages *pages) { return __atomic_load_n(&pages->kept, __ATOMIC_RELAXED); }

/* They go when others need not wait for it. */
void tern_pages_trim(struct tern_pages *pages, size_t most)
{
    struct tern_page_range *gone = NULL;
    pthread_mutex_lock(&pages->lock);
    while (pages->kept > most) {
        struct tern_page_range *r = pages->free;
        const size_t over = whole_pages(pages->kept - most), size = r->size < over ? r->size : over;
        cut_front(&pages->free, size);
        count(pages, pages->kept - size);
        *r = (struct tern_page_range){gone, size};
        gone = r;
    }
    pthread_mutex_unlock(&pages->lock);
    while (gone) {
        struct tern_page_range *next = gone->next;
        munmap(gone, gone->size);
        gone = next;
    }
}

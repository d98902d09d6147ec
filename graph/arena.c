/* Memory planning: greedy placement in several orders, each improved in rounds; the smallest arena counts.
 *                                                                                  [Pisarchyk and Lee 2020] */
#include "graph/arena.h"

#include <stdlib.h>
#include <string.h>

#include "core/context.h"

#define ALIGN ((size_t)64)
#define ROUNDS 32 /* for each order */
/* Pairs of blocks after which no further round is begun: some two seconds. All rounds of 4,096 blocks have as many; the plan of SD 1.5's
 * UNet has 813 blocks. */
#define MOST_PAIRS ((size_t)1 << 30)

static size_t aligned(size_t size) { return (size + ALIGN - 1) & ~(ALIGN - 1); }
static size_t end_of(const struct tern_block *b) { return b->offset + aligned(b->size); }

typedef int order_fn(const void *, const void *);

static int sign(size_t a, size_t b) { return a < b ? -1 : a > b; }
static const struct tern_block *at(const void *p) { return *(struct tern_block *const *)p; }

/* Equal keys fall back on the steps, so that the order does not depend on the sort. */
static int by_start(const void *p, const void *q)
{
    const struct tern_block *a = at(p), *b = at(q);
    return a->first != b->first ? a->first - b->first : a->last != b->last ? b->last - a->last : sign(b->size, a->size);
}

static int by_size(const void *p, const void *q)
{
    int c = sign(at(q)->size, at(p)->size);
    return c ? c : by_start(p, q);
}

static int by_length(const void *p, const void *q)
{
    int c = (at(q)->last - at(q)->first) - (at(p)->last - at(p)->first);
    return c ? c : by_size(p, q);
}

static int by_area(const void *p, const void *q)
{
    const struct tern_block *a = at(p), *b = at(q);
    int c = sign(b->size * (size_t)(b->last - b->first + 1), a->size * (size_t)(a->last - a->first + 1));
    return c ? c : by_size(p, q);
}

static bool meet(const struct tern_block *a, const struct tern_block *b) { return a->first <= b->last && b->first <= a->last; }

size_t tern_arena_window(size_t max_buffer) { return max_buffer / ALIGN * ALIGN; }

struct tern_arena_limits tern_arena_limits(size_t max_buffer, size_t reach)
{
    const size_t any = (size_t)1 << 40; /* larger than a buffer, and no more is taken of a window than is used */
    return (struct tern_arena_limits){max_buffer || !reach ? tern_arena_window(max_buffer) : any, reach};
}

/* The first offset from `at` where so many bytes lie in one window, and within reach. */
static size_t in_window(size_t at, size_t size, struct tern_arena_limits l)
{
    const size_t begin = l.window ? at % l.window : 0;
    return l.window && (begin + size > l.window || (l.reach && begin && begin + size > l.reach)) ? at - begin + l.window : at;
}

/* The smallest gap between the blocks of `placed` (in order of offset) that live with b and leave room for it. */
static size_t fit(struct tern_block *const *placed, int n, const struct tern_block *b, struct tern_arena_limits l)
{
    size_t end = 0, best = SIZE_MAX, best_gap = SIZE_MAX, size = aligned(b->size);
    for (int i = 0; i < n; i++) {
        if (!meet(placed[i], b))
            continue;
        size_t start = in_window(end, size, l);
        if (placed[i]->offset >= start + size && placed[i]->offset - end < best_gap) {
            best = start;
            best_gap = placed[i]->offset - end;
        }
        size_t after = placed[i]->offset + aligned(placed[i]->size);
        end = after > end ? after : end;
    }
    return best == SIZE_MAX ? in_window(end, size, l) : best;
}

/* Places in the given order. `placed` is scratch of n. */
static void place(struct tern_block **order, struct tern_block **placed, int n, struct tern_arena_limits l)
{
    for (int i = 0; i < n; i++) {
        struct tern_block *b = order[i];
        b->offset = fit(placed, i, b, l);
        int k = i;
        while (k > 0 && placed[k - 1]->offset > b->offset) {
            placed[k] = placed[k - 1];
            k--;
        }
        placed[k] = b;
    }
}

/* What is used of each window, from its begin on; the sum. SIZE_MAX: one is empty, with others behind it. */
static size_t use(const struct tern_block *blocks, int n, size_t window, size_t *used)
{
    size_t sum = 0, last = 0;
    memset(used, 0, (size_t)n * sizeof(*used));
    for (int i = 0; i < n; i++) {
        const size_t index = window ? blocks[i].offset / window : 0, end = end_of(&blocks[i]) - index * window;
        if (index >= (size_t)n)
            return SIZE_MAX;
        used[index] = end > used[index] ? end : used[index];
        last = index > last ? index : last;
    }
    for (size_t i = 0; n && i <= last; i++) {
        if (!used[i])
            return SIZE_MAX;
        sum += used[i];
    }
    return sum;
}

/* Sizes as they are placed. */
static size_t least_size(const struct tern_block *blocks, int n)
{
    size_t least = 0;
    for (int i = 0; i < n; i++) { /* a maximum begins where some block begins */
        size_t sum = 0;
        for (int k = 0; k < n; k++)
            if (blocks[k].first <= blocks[i].first && blocks[i].first <= blocks[k].last)
                sum += aligned(blocks[k].size);
        least = sum > least ? sum : least;
    }
    return least;
}

/* The block that makes the arena as large as it is goes first in the next round. */
static void move_top_to_front(struct tern_block **order, int n)
{
    int top = 0;
    for (int i = 1; i < n; i++)
        if (end_of(order[i]) > end_of(order[top]))
            top = i;
    struct tern_block *b = order[top];
    memmove(order + 1, order, (size_t)top * sizeof(*order));
    order[0] = b;
}

static bool has_places(const struct tern_block *blocks, int n, size_t window)
{
    bool all = true;
    for (int i = 0; window && i < n; i++)
        all = all && aligned(blocks[i].size) <= window;
    return all;
}

size_t tern_arena_place(struct tern_context *ctx, struct tern_block *blocks, int n, struct tern_arena_limits l, size_t *used, size_t *least)
{
    static order_fn *const orders[] = {by_size, by_area, by_length, by_start};
    size_t best = SIZE_MAX, count = (size_t)n + 1, pairs = 0;
    *least = least_size(blocks, n);
    if (!has_places(blocks, n, l.window))
        return SIZE_MAX;
    struct tern_block **order = tern_calloc(ctx, 2 * count, sizeof(struct tern_block *));
    size_t *offsets = tern_calloc(ctx, count, sizeof(*offsets));
    for (int o = 0; order && offsets && o < 4 && pairs < MOST_PAIRS; o++) {
        for (int i = 0; i < n; i++)
            order[i] = &blocks[i];
        qsort(order, (size_t)n, sizeof(struct tern_block *), orders[o]);
        for (int round = 0; round < ROUNDS && best > aligned(*least) && pairs < MOST_PAIRS; round++) {
            pairs += (size_t)n * (size_t)n / 2;
            place(order, order + n, n, l);
            size_t size = use(blocks, n, l.window, used);
            for (int i = 0; size < best && i < n; i++)
                offsets[i] = blocks[i].offset;
            best = size < best ? size : best;
            if (n)
                move_top_to_front(order, n);
        }
    }
    for (int i = 0; offsets && i < n; i++)
        blocks[i].offset = offsets[i];
    if (best != SIZE_MAX)
        use(blocks, n, l.window, used);
    tern_free(ctx, order);
    tern_free(ctx, offsets);
    return best;
}

static bool is_apart(const struct tern_block *a, const struct tern_block *b)
{
    return !meet(a, b) || end_of(a) <= b->offset || end_of(b) <= a->offset;
}

size_t tern_arena_check(const struct tern_block *blocks, int n, struct tern_arena_limits l, size_t *used, size_t *least)
{
    const size_t most = SIZE_MAX / 4;
    for (int i = 0; i < n; i++) {
        const struct tern_block *b = &blocks[i];
        if (b->offset % ALIGN || b->offset > most || b->size > most || in_window(b->offset, aligned(b->size), l) != b->offset)
            return SIZE_MAX;
        for (int k = 0; k < i; k++)
            if (!is_apart(b, &blocks[k]))
                return SIZE_MAX;
    }
    *least = least_size(blocks, n);
    return use(blocks, n, l.window, used);
}

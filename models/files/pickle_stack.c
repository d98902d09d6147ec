/* The pickle machine's stack, marks, memo and input, all with bounds. */
#include <string.h>

#include "core/context.h"
#include "models/files/pickle_machine.h"

/* Values on the stack at once, and memo entries: a state dict of 10,000 tensors stays below 400,000. */
#define DEPTH_LIMIT ((size_t)16 << 20)

void *tern_pickle_reserve(struct tern_pickle *p, void *array, size_t need, size_t *capacity, size_t size)
{
    if (need < *capacity)
        return array;
    if (need >= DEPTH_LIMIT) {
        tern_pickle_fail(p, "more than %zu objects", DEPTH_LIMIT);
        return NULL;
    }
    size_t n = *capacity ? *capacity : 256;
    while (n <= need)
        n *= 2;
    char *a = tern_realloc(p->ctx, array, n * size);
    if (!a)
        return NULL;
    memset(a + *capacity * size, 0, (n - *capacity) * size);
    *capacity = n;
    return a;
}

/* NULL is a value that could not be made: its error is recorded. */
bool tern_pickle_push(struct tern_pickle *p, value *v)
{
    value **s = v ? tern_pickle_reserve(p, p->stack, p->depth, &p->stack_capacity, sizeof(*s)) : NULL;
    if (!s)
        return false;
    p->stack = s;
    p->stack[p->depth++] = v;
    return true;
}

/* Values above the last mark may be popped, not those below. */
size_t tern_pickle_floor(const struct tern_pickle *p) { return p->mark_count ? p->marks[p->mark_count - 1] : 0; }

value *tern_pickle_pop(struct tern_pickle *p)
{
    if (p->depth > tern_pickle_floor(p))
        return p->stack[--p->depth];
    tern_pickle_fail(p, "the stack is empty; the file is damaged");
    return NULL;
}

value *tern_pickle_top(struct tern_pickle *p)
{
    value *v = tern_pickle_pop(p);
    p->depth += v != NULL;
    return v;
}

bool tern_pickle_push_mark(struct tern_pickle *p)
{
    size_t *marks = tern_pickle_reserve(p, p->marks, p->mark_count, &p->mark_capacity, sizeof(*marks));
    if (!marks)
        return false;
    p->marks = marks;
    p->marks[p->mark_count++] = p->depth;
    return true;
}

/* Takes the values above the last mark off the stack; they stay where they are until the next push. */
bool tern_pickle_pop_mark(struct tern_pickle *p, value ***items, size_t *n)
{
    if (!p->mark_count) {
        tern_pickle_fail(p, "there is no mark on the stack; the file is damaged");
        return false;
    }
    size_t mark = p->marks[--p->mark_count];
    *items = p->stack + mark;
    *n = p->depth - mark;
    p->depth = mark;
    return true;
}

/* The next n bytes; NULL when the pickle ends before. */
const uint8_t *tern_pickle_take(struct tern_pickle *p, uint64_t n)
{
    if (n > p->size - p->at) {
        tern_pickle_fail(p, "%llu more bytes expected, found %zu; the file is truncated", (unsigned long long)n, p->size - p->at);
        return NULL;
    }
    const uint8_t *data = p->data + p->at;
    p->at += (size_t)n;
    return data;
}

/* An unsigned number of `bytes` bytes, little endian. */
bool tern_pickle_take_number(struct tern_pickle *p, int bytes, uint64_t *out)
{
    const uint8_t *d = tern_pickle_take(p, (uint64_t)bytes);
    *out = 0;
    for (int i = bytes - 1; d && i >= 0; i--)
        *out = *out << 8 | d[i];
    return d;
}

/* Text up to the end of the line, which is not part of it. */
const char *tern_pickle_take_line(struct tern_pickle *p, size_t *n)
{
    const uint8_t *d = p->data + p->at, *end = p->at < p->size ? memchr(d, '\n', p->size - p->at) : NULL;
    if (!end) {
        tern_pickle_fail(p, "a line has no end; the file is truncated");
        return NULL;
    }
    *n = (size_t)(end - d);
    p->at += *n + 1;
    return (const char *)d;
}

bool tern_pickle_memo_put(struct tern_pickle *p, uint64_t index)
{
    value *v = tern_pickle_top(p), **memo;
    /* Pickle numbers its memo in order, so an index beyond the bytes so far is damage. */
    if (v && index > p->at - p->start) {
        tern_pickle_fail(p, "memo index %llu is out of range", (unsigned long long)index);
        return false;
    }
    if (!v || !(memo = tern_pickle_reserve(p, p->memo, (size_t)index, &p->memo_capacity, sizeof(*memo))))
        return false;
    p->memo = memo;
    p->memo[index] = v;
    if (index >= p->memo_count)
        p->memo_count = (size_t)index + 1;
    return true;
}

bool tern_pickle_memo_get(struct tern_pickle *p, uint64_t index)
{
    if (index < p->memo_count && p->memo[index])
        return tern_pickle_push(p, p->memo[index]);
    tern_pickle_fail(p, "memo entry %llu does not exist", (unsigned long long)index);
    return false;
}

/* The merge of lowest rank first, of equal ranks the leftmost: a heap of candidate merges over a linked list of symbols. */
#include "models/tokenizers/bpe.h"

#include "core/memory.h"
#include "core/status.h"

#define NONE UINT32_MAX

struct tern_bpe_symbol {
    int32_t id; /* -1: merged into the one before */
    uint32_t prev, next;
};

struct tern_bpe_merge {
    uint64_t order; /* rank << 32 | position of the left symbol */
    int32_t id;     /* of the merged piece */
};

int32_t tern_bpe_byte_char(int byte)
{
    static const struct {
        int first, last;
    } shown[] = {{33, 126}, {161, 172}, {174, 255}};
    int hidden = byte;
    for (int i = 0; i < 3; i++) {
        if (byte >= shown[i].first && byte <= shown[i].last)
            return byte;
        if (byte > shown[i].last)
            hidden -= shown[i].last - shown[i].first + 1;
    }
    return 256 + hidden;
}

void tern_bpe_work_free(struct tern_bpe_work *w)
{
    tern_free(w->ctx, w->symbols);
    tern_free(w->ctx, w->heap);
    w->symbols = NULL;
    w->heap = NULL;
    w->capacity = 0;
}

/* At most n - 1 candidates at the start, and each of at most n - 1 merges takes one away and adds two. */
static bool work_reserve(struct tern_bpe_work *w, size_t n)
{
    if (n <= w->capacity)
        return true;
    tern_bpe_work_free(w);
    size_t capacity = n < 256 ? 256 : n;
    w->symbols = tern_calloc(w->ctx, capacity, sizeof(*w->symbols));
    w->heap = tern_calloc(w->ctx, 2 * capacity, sizeof(*w->heap));
    if (!w->symbols || !w->heap)
        return false;
    w->capacity = capacity;
    return true;
}

static void heap_push(struct tern_bpe_merge *heap, size_t *count, struct tern_bpe_merge m)
{
    size_t i = (*count)++;
    while (i && heap[(i - 1) / 2].order > m.order) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = m;
}

static struct tern_bpe_merge heap_pop(struct tern_bpe_merge *heap, size_t *count)
{
    struct tern_bpe_merge top = heap[0], m = heap[--*count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= *count)
            break;
        child += child + 1 < *count && heap[child + 1].order < heap[child].order;
        if (heap[child].order >= m.order)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = m;
    return top;
}

/* Makes the merge of `left` and the symbol behind it a candidate, if the vocabulary has it. */
static void push_candidate(const struct tern_bpe *bpe, const struct tern_bpe_work *w, uint32_t left, size_t *count)
{
    const struct tern_bpe_symbol *s = w->symbols;
    if (left == NONE || s[left].next == NONE)
        return;
    const struct tern_pair *p = tern_pairs_get(&bpe->merges, (uint32_t)s[left].id, (uint32_t)s[s[left].next].id);
    if (p)
        heap_push(w->heap, count, (struct tern_bpe_merge){(uint64_t)p->x << 32 | left, (int32_t)p->y});
}

static void merge_all(const struct tern_bpe *bpe, const struct tern_bpe_work *w, uint32_t n)
{
    struct tern_bpe_symbol *s = w->symbols;
    size_t count = 0;
    for (uint32_t i = 0; i + 1 < n; i++)
        push_candidate(bpe, w, i, &count);
    while (count) {
        struct tern_bpe_merge m = heap_pop(w->heap, &count);
        uint32_t left = (uint32_t)m.order, right = s[left].next;
        if (s[left].id < 0 || right == NONE)
            continue;
        /* Symbols may have changed since. As in the reference, a candidate is stale unless the pair gives the same piece. */
        const struct tern_pair *p = tern_pairs_get(&bpe->merges, (uint32_t)s[left].id, (uint32_t)s[right].id);
        if (!p || (int32_t)p->y != m.id)
            continue;
        s[left].id = m.id;
        s[left].next = s[right].next;
        s[right].id = -1;
        if (s[left].next != NONE)
            s[s[left].next].prev = left;
        push_candidate(bpe, w, s[left].prev, &count);
        push_candidate(bpe, w, left, &count);
    }
}

enum tern_status tern_bpe_encode(const struct tern_bpe *bpe, const uint8_t *word, size_t n, struct tern_bpe_work *w, struct tern_ints *out)
{
    if (n >= NONE / 2)
        return tern_fail(out->ctx, TERN_E_INVALID, "tokenizer: a word of %zu bytes; at most %u are taken", n, NONE / 2 - 1);
    if (!work_reserve(w, n))
        return tern_ints_error(out);
    for (size_t i = 0; i < n; i++) {
        int32_t id = i + 1 < n ? bpe->byte_id[word[i]] : bpe->last_id[word[i]];
        if (id < 0 && (id = bpe->unk) < 0)
            return tern_fail(out->ctx, TERN_E_FORMAT,
                             "tokenizer: the vocabulary has no piece for byte 0x%02x%s and no unknown token to take instead", word[i],
                             i + 1 < n ? "" : " at the end of a word");
        w->symbols[i] = (struct tern_bpe_symbol){id, i ? (uint32_t)i - 1 : NONE, i + 1 < n ? (uint32_t)i + 1 : NONE};
    }
    merge_all(bpe, w, (uint32_t)n);
    for (size_t i = 0; i < n; i++)
        if (w->symbols[i].id >= 0 && !tern_ints_push(out, w->symbols[i].id))
            return tern_ints_error(out);
    return TERN_OK;
}

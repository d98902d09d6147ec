/* The set of added tokens and the search for them. */
#include "models/tokenizers/added.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "models/tokenizers/unicode.h"

const struct tern_added_token *tern_added_find(const struct tern_added *a, const char *text)
{
    for (size_t i = 0; i < a->count; i++)
        if (!strcmp(a->tokens[i].text, text))
            return &a->tokens[i];
    return NULL;
}

bool tern_added_put(struct tern_added *a, const struct tern_added_token *t)
{
    struct tern_added_token *old = (struct tern_added_token *)(uintptr_t)tern_added_find(a, t->text);
    if (old) {
        const char *text = old->text;
        *old = *t;
        old->text = text;
        return true;
    }
    if (a->count == TERN_ADDED_LIMIT) {
        tern_fail(a->ctx, TERN_E_FORMAT, "tokenizer: more than %d added tokens", TERN_ADDED_LIMIT);
        return false;
    }
    if (a->count == a->capacity) {
        size_t capacity = a->capacity ? 2 * a->capacity : 8;
        struct tern_added_token *tokens = tern_calloc(a->ctx, capacity, sizeof(*tokens));
        if (!tokens)
            return false;
        if (a->count)
            memcpy(tokens, a->tokens, a->count * sizeof(*tokens));
        tern_free(a->ctx, a->tokens);
        a->tokens = tokens;
        a->capacity = capacity;
    }
    char *text = tern_strdup(a->ctx, t->text);
    if (!text)
        return false;
    a->tokens[a->count] = *t;
    a->tokens[a->count++].text = text;
    return true;
}

static bool trie_put(struct tern_trie *t, const int32_t *cp, size_t n, int32_t token)
{
    if (!t->token.count && !tern_ints_push(&t->token, -1))
        return false;
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        const struct tern_pair *edge = tern_pairs_get(&t->edges, node, (uint32_t)cp[i]);
        if (edge) {
            node = edge->x;
            continue;
        }
        uint32_t fresh = (uint32_t)t->token.count;
        if (!tern_ints_push(&t->token, -1) || !tern_pairs_put(&t->edges, node, (uint32_t)cp[i], fresh, 0))
            return false;
        node = fresh;
    }
    if (node && t->token.at[node] < 0) /* of two with one text the first counts */
        t->token.at[node] = token;
    return true;
}

enum tern_status tern_added_finish(struct tern_added *a,
                                   enum tern_status (*normalize)(const void *user, const int32_t *cp, size_t n, struct tern_ints *out),
                                   const void *user)
{
    struct tern_ints text = {.ctx = a->ctx}, form = {.ctx = a->ctx};
    a->raw.edges.ctx = a->raw.token.ctx = a->normalized.edges.ctx = a->normalized.token.ctx = a->ctx;
    enum tern_status st = TERN_OK;
    for (int special = 1; special >= 0; special--) {
        for (size_t i = 0; !st && i < a->count; i++) {
            const struct tern_added_token *t = &a->tokens[i];
            if (t->special != special)
                continue;
            text.count = form.count = 0;
            st = tern_utf8_decode(t->text, strlen(t->text), "added token", &text);
            if (!st && t->normalized)
                st = normalize(user, text.at, text.count, &form);
            const struct tern_ints *key = t->normalized ? &form : &text;
            if (!st && !trie_put(t->normalized ? &a->normalized : &a->raw, key->at, key->count, (int32_t)i))
                st = tern_ints_error(&text);
        }
    }
    tern_ints_free(&text);
    tern_ints_free(&form);
    return st;
}

void tern_added_free(struct tern_added *a)
{
    for (size_t i = 0; i < a->count; i++)
        tern_free(a->ctx, (void *)(uintptr_t)a->tokens[i].text);
    tern_free(a->ctx, a->tokens);
    tern_pairs_free(&a->raw.edges);
    tern_pairs_free(&a->normalized.edges);
    tern_ints_free(&a->raw.token);
    tern_ints_free(&a->normalized.token);
    *a = (struct tern_added){.ctx = a->ctx};
}

/* The longest token that begins at cp[i], and where it ends; words: that is not special. */
static const struct tern_added_token *match_at(const struct tern_added *a, const struct tern_trie *trie, const int32_t *cp, size_t n,
                                               size_t i, bool words, size_t *end)
{
    const struct tern_added_token *found = NULL;
    const struct tern_pair *edge = tern_pairs_get(&trie->edges, 0, (uint32_t)cp[i]);
    while (edge) {
        i++;
        int32_t token = trie->token.at[edge->x];
        if (token >= 0 && !(words && a->tokens[token].special)) {
            found = &a->tokens[token];
            *end = i;
        }
        edge = i < n ? tern_pairs_get(&trie->edges, edge->x, (uint32_t)cp[i]) : NULL;
    }
    return found;
}

static bool inside_word(const int32_t *cp, size_t n, size_t begin, size_t end)
{
    return (begin && tern_cp_is_word(cp[begin - 1])) || (end < n && tern_cp_is_word(cp[end]));
}

/* The next token at or behind c->search that may stand there. */
static bool find_token(const struct tern_added *a, const struct tern_trie *trie, const int32_t *cp, size_t n, struct tern_added_cursor *c,
                       struct tern_added_part *part)
{
    for (size_t i = c->search; i < n; i++) {
        size_t end = i;
        const struct tern_added_token *t = match_at(a, trie, cp, n, i, c->words, &end);
        if (!t)
            continue;
        c->search = end;
        if (t->single_word && inside_word(cp, n, i, end)) {
            i = end - 1;
            continue;
        }
        while (t->rstrip && end < n && tern_cp_is(TERN_CP_SPACE, cp[end]))
            end++;
        *part = (struct tern_added_part){t, i, end};
        if (t->lstrip) {
            while (part->begin > c->emitted && tern_cp_is(TERN_CP_SPACE, cp[part->begin - 1]))
                part->begin--;
            if (part->begin < c->emitted) /* the token before has taken the first characters */
                part->begin = c->emitted;
            if (part->begin >= end) {
                i = c->search - 1;
                continue;
            }
        }
        return true;
    }
    c->search = n;
    return false;
}

bool tern_added_next(const struct tern_added *a, const struct tern_trie *trie, const int32_t *cp, size_t n, struct tern_added_cursor *c,
                     struct tern_added_part *part)
{
    if (c->held.token) {
        *part = c->held;
        c->held.token = NULL;
    } else if (find_token(a, trie, cp, n, c, part)) {
        if (part->begin > c->emitted) {
            c->held = *part;
            *part = (struct tern_added_part){NULL, c->emitted, part->begin};
        }
    } else if (c->emitted < n) {
        *part = (struct tern_added_part){NULL, c->emitted, n};
    } else {
        return false;
    }
    c->emitted = part->end;
    return true;
}

/* Recipes: a list of layers. */
#include "models/quantize/recipe.h"

#include <stdio.h>
#include <string.h>

struct tern_recipe *tern_recipe_create(struct tern_context *ctx)
{
    struct tern_recipe *r = tern_calloc(ctx, 1, sizeof(*r));
    if (r) {
        tern_context_ref(ctx);
        r->ctx = ctx;
    }
    return r;
}

void tern_recipe_destroy(struct tern_recipe **recipe)
{
    struct tern_recipe *r = recipe ? *recipe : NULL;
    if (!r)
        return;
    *recipe = NULL;
    struct tern_context *ctx = r->ctx;
    for (int i = 0; i < r->count; i++) {
        tern_free(ctx, (char *)r->layer[i].name);
        tern_free(ctx, (char *)r->layer[i].decision);
    }
    for (int i = 0; i < r->norms; i++) {
        tern_free(ctx, r->norm[i].name);
        tern_free(ctx, r->norm[i].factors);
    }
    tern_free(ctx, r->layer);
    tern_free(ctx, r->norm);
    tern_free(ctx, r->architecture);
    tern_free(ctx, r->path);
    json_decref(r->options);
    tern_free(ctx, r);
    tern_context_unref(ctx);
}

const char *tern_recipe_kind(const char *name)
{
    static const char *const kinds[] = {"conv", "linear", TERN_RECIPE_ATTENTION};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (!strcmp(name, kinds[i]))
            return kinds[i];
    return NULL;
}

enum tern_status tern_recipe_add(struct tern_recipe *r, const char *name, const char *kind, int ndim, const int64_t *shape)
{
    struct tern_recipe_layer l = {.kind = tern_recipe_kind(kind), .ndim = ndim};
    if (ndim)
        memcpy(l.shape, shape, (size_t)ndim * sizeof(*shape));
    if (!tern_grow(r->ctx, (void **)&r->layer, r->count, &r->capacity, sizeof(l)))
        return tern_error_status(r->ctx);
    l.name = tern_strdup(r->ctx, name);
    l.decision = tern_strdup(r->ctx, "");
    r->layer[r->count++] = l;
    return tern_error_status(r->ctx);
}

enum tern_status tern_recipe_smooth(struct tern_recipe *r, const char *norm, const char *factors)
{
    if (!tern_grow(r->ctx, (void **)&r->norm, r->norms, &r->norm_capacity, sizeof(*r->norm)))
        return tern_error_status(r->ctx);
    r->norm[r->norms++] = (struct tern_recipe_norm){tern_strdup(r->ctx, norm), tern_strdup(r->ctx, factors)};
    return tern_error_status(r->ctx);
}

enum tern_status tern_recipe_decide(struct tern_recipe *r, int i, const char *decision)
{
    char *text = tern_strdup(r->ctx, decision);
    if (!text)
        return tern_error_status(r->ctx);
    tern_free(r->ctx, (char *)r->layer[i].decision);
    r->layer[i].decision = text;
    return TERN_OK;
}

bool tern_recipe_is_attention(const struct tern_recipe_layer *l) { return !strcmp(l->kind, TERN_RECIPE_ATTENTION); }

/* Attention has no weight. Recipes that do not speak of it are for the same architectures. */
void tern_recipe_fingerprint(const struct tern_recipe *r, char out[TERN_KEY_TEXT])
{
    uint64_t weights = 0;
    for (int i = 0; i < r->count; i++)
        weights += !tern_recipe_is_attention(&r->layer[i]);
    struct tern_key k = {{TERN_RECIPE_VERSION, weights}};
    for (int i = 0; i < r->count; i++) {
        if (tern_recipe_is_attention(&r->layer[i]))
            continue;
        tern_key_add_text(&k, r->layer[i].name);
        for (int d = 0; d < r->layer[i].ndim; d++)
            tern_key_add(&k, (uint64_t)r->layer[i].shape[d]);
    }
    tern_key_text(tern_key_finish(k), out);
}

const char *tern_recipe_architecture(const struct tern_recipe *r) { return r ? r->architecture : NULL; }
int tern_recipe_count(const struct tern_recipe *r) { return r ? r->count : 0; }
const struct tern_recipe_layer *tern_recipe_at(const struct tern_recipe *r, int i)
{
    return r && i >= 0 && i < r->count ? &r->layer[i] : NULL;
}
struct tern_recipe_facts tern_recipe_facts(const struct tern_recipe *r) { return r ? r->facts : (struct tern_recipe_facts){0}; }

int tern_recipe_smoothed(const struct tern_recipe *r) { return r ? r->norms : 0; }

#define ALLOWED "winograd" /* to convolutions that are int8 */

/* Appends a word, behind a space where it is not the first; returns the length of both. */
static size_t add_word(char *words, size_t at, const char *name, const char *factors)
{
    const char *const parts[] = {at ? " " : "", name, factors ? "^" : "", factors ? factors : ""};
    size_t n = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        const size_t length = strlen(parts[i]);
        if (words)
            memcpy(words + at + n, parts[i], length + 1);
        n += length;
    }
    return n;
}

/* words NULL: the length alone. */
static size_t add_words(const struct tern_recipe *r, char *words)
{
    size_t n = 0;
    for (int i = 0; i < r->count; i++)
        if (r->layer[i].int8) {
            n += n ? 0 : add_word(words, n, ALLOWED, NULL);
            n += add_word(words, n, r->layer[i].name, NULL);
        }
    for (int i = 0; n && i < r->norms; i++)
        n += add_word(words, n, r->norm[i].name, r->norm[i].factors);
    return n;
}

char *tern_recipe_words(const struct tern_recipe *r)
{
    char *words = r ? tern_alloc(r->ctx, add_words(r, NULL) + 1) : NULL;
    if (words) {
        *words = 0;
        add_words(r, words);
    }
    return words;
}

/* What the files of a tokenizer say of its tokens: names and lists from tokenizer_config.json and special_tokens_map.json, ids
 * from "added_tokens_decoder" of the former, or where that is missing from added_tokens.json and tokenizer.json. */
#include <stdlib.h>
#include <string.h>
#include <tern/context.h>

#include "core/memory.h"
#include "core/status.h"
#include "models/tokenizers/special.h"

const char *const tern_token_names[TERN_NAMED] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                  "pad_token", "cls_token", "mask_token"};

enum tern_status tern_token_push(struct tern_token_values *v, struct tern_token_value x)
{
    if (v->count >= TERN_ADDED_LIMIT)
        return tern_fail(v->ctx, TERN_E_FORMAT, "tokenizer: more than %d added tokens", TERN_ADDED_LIMIT);
    if (v->count == v->capacity) {
        size_t capacity = v->capacity ? 2 * v->capacity : 16;
        struct tern_token_value *at = tern_calloc(v->ctx, capacity, sizeof(*at));
        if (!at)
            return tern_error_status(v->ctx);
        if (v->count)
            memcpy(at, v->at, v->count * sizeof(*at));
        tern_free(v->ctx, v->at);
        v->at = at;
        v->capacity = capacity;
    }
    v->at[v->count++] = x;
    return TERN_OK;
}

/* A string, or an object with "content" and flags. `special` is the value of a flag that is not there. */
static enum tern_status parse(struct tern_context *ctx, const json_t *o, const char *where, const char *key, bool special,
                              struct tern_token_value *out)
{
    *out = (struct tern_token_value){.token.special = special};
    if (json_is_string(o)) {
        out->plain = true;
        out->token.text = json_string_value(o);
        return TERN_OK;
    }
    const char *text = NULL;
    if (json_is_object(o) && tern_json_string(ctx, o, where, "content", &text))
        return TERN_E_FORMAT;
    if (!text)
        return tern_fail(ctx, TERN_E_FORMAT, "%s: \"%.40s\": expected a string or an object with \"content\"", where, key);
    struct tern_added_token *t = &out->token;
    t->text = text;
    enum tern_status st = tern_json_bool(ctx, o, where, "special", &t->special);
    const json_t *normalized = json_object_get(o, "normalized");
    out->follows = !normalized || json_is_null(normalized);
    t->normalized = !t->special;
    st = st ? st : tern_json_bool(ctx, o, where, "normalized", &t->normalized);
    st = st ? st : tern_json_bool(ctx, o, where, "lstrip", &t->lstrip);
    st = st ? st : tern_json_bool(ctx, o, where, "rstrip", &t->rstrip);
    return st ? st : tern_json_bool(ctx, o, where, "single_word", &t->single_word);
}

static bool is_named(const char *key)
{
    for (int i = 0; i < TERN_NAMED; i++)
        if (!strcmp(key, tern_token_names[i]))
            return true;
    return false;
}

static bool is_token_key(const char *key)
{
    size_t n = strlen(key);
    return n > 6 && !strcmp(key + n - 6, "_token");
}

/* special_tokens_map.json makes its objects special before they are compared. */
static void make_special(struct tern_token_value *v)
{
    v->token.special = true;
    if (v->follows)
        v->token.normalized = false;
}

/* The seven names in tokenizer_config.json or special_tokens_map.json; in the latter, an object is a special token. */
static enum tern_status gather_named(struct tern_gathered *g, struct tern_context *ctx, const struct tern_tokenizer_file *f, bool special)
{
    enum tern_status st = TERN_OK;
    for (int i = 0; !st && i < TERN_NAMED; i++) {
        const json_t *o = json_object_get(f->json, tern_token_names[i]);
        if (!o || json_is_null(o))
            continue;
        struct tern_token_value v;
        if (!(st = parse(ctx, o, f->path, tern_token_names[i], special, &v))) {
            if (special)
                make_special(&v);
            v.typed = !special && !v.plain;
            g->named[i] = v;
        }
    }
    return st;
}

/* Further entries that end in "_token". */
static enum tern_status gather_others(struct tern_gathered *g, struct tern_context *ctx, const struct tern_tokenizer_file *f, bool special)
{
    const char *key;
    json_t *o;
    enum tern_status st = TERN_OK;
    json_object_foreach(f->json, key, o) {
        struct tern_token_value v;
        if (st || is_named(key) || !is_token_key(key) || !(json_is_string(o) || json_is_object(o)))
            continue;
        st = parse(ctx, o, f->path, key, special, &v);
        if (special && !st)
            make_special(&v);
        st = st ? st : tern_token_push(&g->others, v);
    }
    return st;
}

/* A list of tokens, or an object of names and tokens; anything else adds nothing. `special`: of an object in the list that does not
 * say. */
static enum tern_status gather_list(struct tern_gathered *g, struct tern_context *ctx, const struct tern_tokenizer_file *f, const char *key,
                                    bool special)
{
    json_t *list = json_object_get(f->json, key), *o;
    const char *name;
    size_t i;
    enum tern_status st = TERN_OK;
    struct tern_token_value v;
    json_array_foreach(list, i, o) {
        st = st ? st : parse(ctx, o, f->path, key, special, &v);
        v.typed = !st && !special && !v.plain;
        st = st ? st : tern_token_push(&g->extra, v);
    }
    json_object_foreach(list, name, o) {
        st = st ? st : parse(ctx, o, f->path, key, true, &v);
        st = st ? st : tern_token_push(&g->extra, v);
    }
    return st;
}

static const char extra_key[] = "extra_special_tokens", old_key[] = "additional_special_tokens";

/* The old key of tokenizer_config.json counts only where the new one is not there or empty. */
static bool config_has_old_list(const struct tern_tokenizer_files *f)
{
    const json_t *list = json_object_get(f->config.json, extra_key);
    return json_object_get(f->config.json, old_key) && !json_array_size(list) && !json_object_size(list);
}

/* The old key of special_tokens_map.json counts only where no list came before. */
static bool map_has_old_list(const struct tern_tokenizer_files *f)
{
    return json_object_get(f->special.json, old_key) && !config_has_old_list(f) && !json_object_get(f->config.json, extra_key) &&
           !json_object_get(f->special.json, extra_key);
}

/* A token with its id; of two with one id the later counts. */
static enum tern_status put_decoder(struct tern_gathered *g, struct tern_token_value v, json_int_t id, const char *where)
{
    if (id < 0 || (size_t)id >= TERN_VOCAB_LIMIT)
        return tern_fail(g->decoder.ctx, TERN_E_FORMAT, "%s: added token \"%.40s\": expected an id from 0 to %zu, found %lld", where,
                         v.token.text, TERN_VOCAB_LIMIT - 1, (long long)id);
    v.token.id = (int32_t)id;
    for (size_t i = 0; i < g->decoder.count; i++) {
        if (g->decoder.at[i].token.id == v.token.id) {
            g->decoder.at[i] = v;
            return TERN_OK;
        }
    }
    return tern_token_push(&g->decoder, v);
}

/* "added_tokens_decoder": {"49406": {"content": …}} */
static enum tern_status gather_decoder(struct tern_gathered *g, struct tern_context *ctx, const struct tern_tokenizer_file *f,
                                       const json_t *o)
{
    const char *key;
    json_t *token;
    enum tern_status st = TERN_OK;
    if (!json_is_object(o))
        return tern_fail(ctx, TERN_E_FORMAT, "%s: \"added_tokens_decoder\": expected an object", f->path);
    json_object_foreach((json_t *)(uintptr_t)o, key, token) {
        struct tern_token_value v;
        char *end;
        long long id = strtoll(key, &end, 10);
        if (!st && (end == key || *end || !json_is_object(token)))
            st = tern_fail(ctx, TERN_E_FORMAT, "%s: \"added_tokens_decoder\": \"%.40s\": expected an id and an object", f->path, key);
        st = st ? st : parse(ctx, token, f->path, key, false, &v);
        st = st ? st : put_decoder(g, v, id, f->path);
    }
    return st;
}

/* added_tokens.json: {"text": id}; special when a name or list has the text. The reference compares texts with the objects of
 * tokenizer_config.json as they are, so those match none. */
static enum tern_status gather_added(struct tern_gathered *g, struct tern_context *ctx, const struct tern_tokenizer_file *f)
{
    const char *key;
    json_t *id;
    enum tern_status st = TERN_OK;
    json_object_foreach(f->json, key, id) {
        if (st)
            continue;
        if (!json_is_integer(id)) {
            st = tern_fail(ctx, TERN_E_FORMAT, "%s: \"%.40s\": expected an id", f->path, key);
            continue;
        }
        bool special = false;
        for (int i = 0; i < TERN_NAMED; i++) {
            const struct tern_token_value *n = &g->named[i];
            special = special || (!n->from_kind && !n->typed && n->token.text && !strcmp(n->token.text, key));
        }
        for (size_t i = 0; i < g->extra.count; i++)
            special = special || (!g->extra.at[i].typed && !strcmp(g->extra.at[i].token.text, key));
        struct tern_token_value v = {.token = {.text = key, .special = special, .normalized = !special}};
        st = put_decoder(g, v, json_integer_value(id), f->path);
    }
    return st;
}

/* "added_tokens" of tokenizer.json: [{"id": 49406, "content": …}] */
static enum tern_status gather_whole(struct tern_gathered *g, struct tern_context *ctx, const struct tern_tokenizer_file *f)
{
    const json_t *list = json_object_get(f->json, "added_tokens");
    enum tern_status st = TERN_OK;
    for (size_t i = 0; !st && i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i), *id = json_object_get(o, "id");
        struct tern_token_value v;
        if (!json_is_object(o) || !json_is_integer(id))
            st = tern_fail(ctx, TERN_E_FORMAT, "%s: \"added_tokens\": entry %zu: expected an object with an \"id\"", f->path, i);
        st = st ? st : parse(ctx, o, f->path, "added_tokens", false, &v);
        st = st ? st : put_decoder(g, v, json_integer_value(id), f->path);
    }
    return st;
}

const struct tern_token_value *tern_decoder_find(const struct tern_gathered *g, const char *text)
{
    const struct tern_token_value *found = NULL; /* the last one counts */
    for (size_t i = 0; i < g->decoder.count; i++)
        if (!strcmp(g->decoder.at[i].token.text, text))
            found = &g->decoder.at[i];
    return found;
}

static int by_id(const void *a, const void *b)
{
    const struct tern_token_value *x = a, *y = b;
    return (x->token.id > y->token.id) - (x->token.id < y->token.id);
}

enum tern_status tern_special_gather(struct tern_gathered *g, const struct tern_tokenizer_files *f, const char *const defaults[TERN_NAMED])
{
    struct tern_context *ctx = f->ctx;
    for (int i = 0; i < TERN_NAMED; i++)
        g->named[i] = (struct tern_token_value){.token = {.text = defaults[i], .special = true}, .plain = true, .from_kind = true};
    const json_t *decoder = json_object_get(f->config.json, "added_tokens_decoder");
    enum tern_status st = gather_named(g, ctx, &f->config, false);
    if (!decoder) {
        st = st ? st : gather_named(g, ctx, &f->special, true);
        st = st ? st : gather_others(g, ctx, &f->special, true);
    }
    st = st ? st : gather_others(g, ctx, &f->config, false);
    st = st ? st : gather_list(g, ctx, &f->config, config_has_old_list(f) ? old_key : extra_key, false);
    if (decoder) {
        st = st ? st : gather_decoder(g, ctx, &f->config, decoder);
    } else {
        st = st ? st : gather_list(g, ctx, &f->special, extra_key, true);
        st = st ? st : gather_added(g, ctx, &f->added);
        st = st ? st : gather_whole(g, ctx, &f->whole);
        if (!st && map_has_old_list(f))
            st = gather_list(g, ctx, &f->special, old_key, true);
    }
    if (st)
        return st;
    if (g->decoder.count)
        qsort(g->decoder.at, g->decoder.count, sizeof(*g->decoder.at), by_id);
    for (int i = 0; i < TERN_NAMED; i++) {
        const struct tern_token_value *v = g->named[i].from_kind ? NULL : tern_decoder_find(g, g->named[i].token.text);
        if (v)
            g->named[i] = *v;
    }
    return TERN_OK;
}

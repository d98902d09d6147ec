/* Which tokens are found in a text and with which ids, by the rules of transformers 5. */
#include "models/tokenizers/special.h"

#include <string.h>
#include <tern/context.h>

#include "core/memory.h"
#include "core/status.h"

/* The names' texts when no file has them. */
static const char *const clip_defaults[TERN_NAMED] = {
    "<|startoftext|>", "<|endoftext|>", "<|endoftext|>", NULL, "<|endoftext|>", NULL, NULL};
static const char *const bert_defaults[TERN_NAMED] = {NULL, NULL, "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"};

static bool same(const struct tern_token_value *a, const struct tern_token_value *b)
{
    const struct tern_added_token *x = &a->token, *y = &b->token;
    return a->plain == b->plain && !strcmp(x->text, y->text) &&
           (a->plain || (x->special == y->special && x->normalized == y->normalized && x->lstrip == y->lstrip && x->rstrip == y->rstrip &&
                         x->single_word == y->single_word));
}

/* Adds a token to the list unless the decoder has its text or the list has its like. */
static enum tern_status list_token(const struct tern_gathered *g, struct tern_token_values *list, const struct tern_token_value *v)
{
    if (!v->token.text || tern_decoder_find(g, v->token.text))
        return TERN_OK;
    for (size_t i = 0; i < list->count; i++)
        if (same(&list->at[i], v))
            return TERN_OK;
    return tern_token_push(list, *v);
}

/* The id of a text: added before, in the vocabulary, or the next free one. */
static int32_t id_of(const struct tern_tokenizer *t, const struct tern_vocab *v, const char *text, int32_t *highest_added)
{
    const struct tern_added_token *old = tern_added_find(&t->added, text);
    int32_t id = old ? old->id : tern_vocab_find(v, text, strlen(text));
    if (id < 0)
        id = *highest_added >= (int32_t)v->count ? *highest_added + 1 : (int32_t)v->count;
    if (id > *highest_added)
        *highest_added = id;
    return id;
}

static bool is_name(const struct tern_gathered *g, const char *text)
{
    for (int i = 0; i < TERN_NAMED; i++)
        if (g->named[i].token.text && !strcmp(g->named[i].token.text, text))
            return true;
    for (size_t i = 0; i < g->others.count; i++)
        if (!strcmp(g->others.at[i].token.text, text))
            return true;
    return false;
}

static enum tern_status add_tokens(struct tern_tokenizer *t, const struct tern_gathered *g, const struct tern_token_values *list,
                                   const struct tern_vocab *v)
{
    int32_t highest_added = -1;
    for (size_t i = 0; i < list->count; i++) {
        struct tern_added_token x = list->at[i].token;
        if (!*x.text)
            continue;
        if (list->at[i].plain) {
            x.special = true;
            x.normalized = false;
        }
        x.special = x.special || is_name(g, x.text);
        if (list->at[i].follows)
            x.normalized = !x.special;
        x.id = id_of(t, v, x.text, &highest_added);
        if (!tern_added_put(&t->added, &x))
            return tern_error_status(t->ctx);
    }
    int32_t highest = highest_added;
    for (size_t i = 0; i < v->count; i++)
        if (v->pieces[i].id > highest)
            highest = v->pieces[i].id;
    t->vocab_size = highest + 1;
    return TERN_OK;
}

static enum tern_status named_id(const struct tern_tokenizer *t, const char *folder, const struct tern_gathered *g, int name, int32_t *id)
{
    const char *text = g->named[name].token.text;
    const struct tern_added_token *x = text ? tern_added_find(&t->added, text) : NULL;
    if (!x)
        return tern_fail(t->ctx, TERN_E_FORMAT, "%s: \"%s\": expected a text, found an empty one", folder, tern_token_names[name]);
    *id = x->id;
    return TERN_OK;
}

enum tern_status tern_tokenizer_set_special(struct tern_tokenizer *t, const struct tern_tokenizer_files *f, const struct tern_vocab *v,
                                            const char **unk)
{
    bool clip = t->fns == &tern_clip_fns;
    struct tern_gathered g = {.decoder.ctx = f->ctx, .others.ctx = f->ctx, .extra.ctx = f->ctx};
    struct tern_token_values list = {.ctx = f->ctx};
    enum tern_status st = tern_special_gather(&g, f, clip ? clip_defaults : bert_defaults);
    for (size_t i = 0; !st && i < g.decoder.count; i++)
        st = tern_token_push(&list, g.decoder.at[i]);
    for (int i = 0; !st && i < TERN_NAMED; i++)
        st = list_token(&g, &list, &g.named[i]);
    for (size_t i = 0; !st && i < g.others.count; i++)
        st = list_token(&g, &list, &g.others.at[i]);
    for (size_t i = 0; !st && i < g.extra.count; i++)
        st = list_token(&g, &list, &g.extra.at[i]);
    st = st ? st : add_tokens(t, &g, &list, v);
    st = st ? st : named_id(t, f->folder, &g, clip ? TERN_BOS : TERN_CLS, &t->begin);
    st = st ? st : named_id(t, f->folder, &g, clip ? TERN_EOS : TERN_SEP, &t->end);
    st = st ? st : named_id(t, f->folder, &g, TERN_PAD, &t->pad);
    *unk = g.named[TERN_UNK].token.text;
    tern_free(f->ctx, g.decoder.at);
    tern_free(f->ctx, g.others.at);
    tern_free(f->ctx, g.extra.at);
    tern_free(f->ctx, list.at);
    return st;
}

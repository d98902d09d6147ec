/* The textual inversions of a pipeline: names, and the vectors that stand for them. */
#include <string.h>

#include "core/files.h"
#include "core/sha256.h"
#include "models/files/embedding.h"
#include "models/pipelines/conditions.h"

#define MAX_EMBEDDINGS 1024
#define HASH 12 /* digits of a file's hash that A1111 shows */

/* All that are set. */
struct tern_active_embedding {
    struct tern_prompt_word *words[TERN_ENCODERS]; /* the same names for each encoder, which own nothing of the others */
    int n_words, capacity[TERN_ENCODERS];
    char (*hash)[HASH + 1]; /* of the words' files */
    int hash_capacity;
    float *table[TERN_ENCODERS]; /* (rows, width) */
    int64_t rows;
};

static int first(const struct tern_pipeline *p) { return tern_pipeline_first_encoder(p); }
static int end(const struct tern_pipeline *p) { return tern_pipeline_end_encoders(p); }
static int64_t width(const struct tern_pipeline *p, int encoder) { return p->text_width[encoder]; }

static void set_free(struct tern_context *ctx, struct tern_active_embedding *s)
{
    for (int e = 0; s && e < TERN_ENCODERS; e++) {
        for (int i = 0; s->words[e] && i < s->n_words; i++) {
            tern_free(ctx, (void *)(uintptr_t)s->words[e][i].name);
            tern_free(ctx, s->words[e][i].ids);
        }
        tern_free(ctx, s->words[e]);
        tern_free(ctx, s->table[e]);
    }
    if (s)
        tern_free(ctx, s->hash);
    tern_free(ctx, s);
}

void tern_pipeline_drop_embeddings(struct tern_pipeline *p)
{
    set_free(p->ctx, p->embeddings);
    p->embeddings = NULL;
    p->n_embeddings = 0;
}

struct tern_prompt_words tern_pipeline_words(const struct tern_pipeline *p, int encoder)
{
    if (!p->embeddings)
        return (struct tern_prompt_words){NULL, 0};
    return (struct tern_prompt_words){p->embeddings->words[encoder], p->n_embeddings};
}

const float *tern_pipeline_vector(const struct tern_pipeline *p, int encoder, int64_t row)
{
    return p->embeddings->table[encoder] + row * width(p, encoder);
}

int tern_pipeline_word_of(const struct tern_pipeline *p, int encoder, int64_t row)
{
    for (int i = 0; i < p->n_embeddings; i++) {
        const struct tern_prompt_word *w = &p->embeddings->words[encoder][i];
        if (row >= w->first && row < w->first + w->vectors)
            return i;
    }
    return -1;
}

char *tern_pipeline_embedding_text(const struct tern_pipeline *p, const bool *used)
{
    char *text = tern_strdup(p->ctx, "");
    for (int i = 0; i < p->n_embeddings && text; i++) {
        const char *name = p->embeddings->words[first(p)][i].name;
        char *more = used[i] ? tern_sprintf(p->ctx, "%s%s%s", text, *text ? ", " : "", name) : NULL;
        if (!more)
            continue;
        char *to = more + strlen(more) - strlen(name);
        for (const char *c = name; *c; c++) /* what divides the list is left out of names */
            if (*c != ':' && *c != ',')
                *to++ = *c;
        *to = 0;
        tern_free(p->ctx, text);
        text = tern_sprintf(p->ctx, "%s: %s", more, p->embeddings->hash[i]);
        tern_free(p->ctx, more);
    }
    return text;
}

/* What an embedding was made for, by its widths. */
static const char *made_for(const struct tern_embedding_file *f, char out[TERN_ARCHITECTURE_TEXT])
{
    if (f->encoders > 1)
        return tern_architecture_text(TERN_SDXL | TERN_SDXL_REFINER, out);
    unsigned set = tern_architectures_of_text(f->width[0]); /* SDXL's own are pairs */
    return tern_architecture_text(set == TERN_ALL_ARCHITECTURES ? set : set & (TERN_SD1 | TERN_SD2 | TERN_SDXL_REFINER), out);
}

/* "768", or "768 and 1280". */
static void widths_text(const int64_t *width, int from, int n, char out[48])
{
    snprintf(out, 48, n - from > 1 ? "%lld and %lld" : "%lld", (long long)width[from], (long long)width[n - 1]);
}

/* A refiner has SDXL's second text encoder alone: it takes the second of a pair. */
static enum tern_status check_width(const struct tern_pipeline *p, const char *path, const struct tern_embedding_file *f)
{
    const int n = end(p);
    bool fits = f->encoders == n;
    for (int e = first(p); e < n && fits; e++)
        fits = f->width[e] == width(p, e);
    if (fits)
        return TERN_OK;
    char found[48], expected[48], made[TERN_ARCHITECTURE_TEXT], own[TERN_ARCHITECTURE_TEXT];
    const bool two = n - first(p) > 1;
    widths_text(f->width, 0, f->encoders, found);
    widths_text(p->text_width, first(p), n, expected);
    return tern_fail(p->ctx, TERN_E_SHAPE, "%s: an embedding of width %s (%s); the text encoder%s of %s (%s) need%s %s%s", path, found,
                     made_for(f, made), two ? "s" : "", p->name, tern_architecture_text(tern_pipeline_architecture(p), own), two ? "" : "s",
                     p->second_only ? "a pair with clip_g of width " : "", expected);
}

/* The word of that name; NULL: there is none. */
static const struct tern_prompt_word *find_word(const struct tern_pipeline *p, const struct tern_active_embedding *s, const char *name,
                                                size_t size)
{
    for (int i = 0; i < s->n_words; i++) {
        const struct tern_prompt_word *w = &s->words[first(p)][i];
        if (strlen(w->name) == size && !memcmp(w->name, name, size))
            return w;
    }
    return NULL;
}

static enum tern_status add_word(struct tern_pipeline *p, struct tern_active_embedding *s, const char *path, const char *hash,
                                 const char *name, size_t size, int64_t vectors)
{
    const struct tern_prompt_word *same = find_word(p, s, name, size);
    if (same)
        return same->first == s->rows
                   ? TERN_OK /* the file calls it as it is called itself */
                   : tern_fail(p->ctx, TERN_E_INVALID, "%s: there is another embedding with the name \"%.*s\"", path, (int)size, name);
    for (int e = first(p); e < end(p); e++)
        if (!tern_grow(p->ctx, (void **)&s->words[e], s->n_words, &s->capacity[e], sizeof(*s->words[e])))
            return tern_error_status(p->ctx);
    if (!tern_grow(p->ctx, (void **)&s->hash, s->n_words, &s->hash_capacity, sizeof(*s->hash)))
        return tern_error_status(p->ctx);
    memcpy(s->hash[s->n_words], hash, sizeof(*s->hash));
    for (int e = first(p); e < end(p); e++)
        s->words[e][s->n_words] = (struct tern_prompt_word){.name = tern_strndup(p->ctx, name, size), .first = s->rows, .vectors = vectors};
    const int at = s->n_words++;
    for (int e = first(p); e < end(p) && !tern_failed(p->ctx); e++) {
        struct tern_prompt_word *w = &s->words[e][at];
        tern_prompt_tokens(tern_pipeline_tokenizer(p, e - first(p)), name, size, &w->ids, &w->n_ids);
        if (!tern_failed(p->ctx) && !w->n_ids)
            tern_fail(p->ctx, TERN_E_INVALID, "%s: the name \"%.*s\" has no tokens", path, (int)size, name);
    }
    return tern_error_status(p->ctx);
}

/* The name of the file and the one inside. One that another embedding has is left to it: diffusers calls each file learned_embeds. */
static enum tern_status add_default_words(struct tern_pipeline *p, struct tern_active_embedding *s, const char *path, const char *hash,
                                          const struct tern_embedding_file *f)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path, *dot = strrchr(file, '.');
    const char *names[] = {file, f->own_name};
    const size_t sizes[] = {dot && dot > file ? (size_t)(dot - file) : strlen(file), f->own_name ? strlen(f->own_name) : 0};
    bool mine[2];
    for (int i = 0; i < 2; i++)
        mine[i] = names[i] && !find_word(p, s, names[i], sizes[i]);
    mine[0] |= !mine[1]; /* with none left there is an error */
    for (int i = 0; i < 2 && !tern_failed(p->ctx); i++)
        if (mine[i])
            add_word(p, s, path, hash, names[i], sizes[i], f->vectors);
        else if (names[i])
            tern_message(p->ctx, TERN_LOG_WARN, "%s: another embedding has the name \"%.*s\"; in prompts this one is \"%.*s\"", path,
                         (int)sizes[i], names[i], (int)sizes[1 - i], names[1 - i]);
    return tern_error_status(p->ctx);
}

/* The name that is asked for, or those of the file. */
static enum tern_status add_words(struct tern_pipeline *p, struct tern_active_embedding *s, const struct tern_prompt_embedding *a,
                                  const struct tern_embedding_file *f)
{
    char hash[TERN_SHA256_TEXT];
    struct tern_mapping *file = tern_map_file(p->ctx, a->path);
    if (!file)
        return tern_error_status(p->ctx);
    tern_sha256(file->data, file->size, hash);
    tern_mapping_unref(&file);
    hash[HASH] = 0;
    return a->name ? add_word(p, s, a->path, hash, a->name, strlen(a->name), f->vectors) : add_default_words(p, s, a->path, hash, f);
}

static enum tern_status add_vectors(struct tern_pipeline *p, struct tern_active_embedding *s, const struct tern_embedding_file *f)
{
    for (int e = first(p); e < end(p); e++) {
        const size_t row = (size_t)width(p, e) * sizeof(float);
        float *table = tern_realloc(p->ctx, s->table[e], (size_t)(s->rows + f->vectors) * row);
        if (!table)
            return tern_error_status(p->ctx);
        s->table[e] = table;
        memcpy(table + s->rows * width(p, e), f->values[e], (size_t)f->vectors * row);
    }
    s->rows += f->vectors;
    return TERN_OK;
}

static enum tern_status add(struct tern_pipeline *p, struct tern_active_embedding *s, const struct tern_prompt_embedding *a)
{
    struct tern_embedding_file f = {.ctx = p->ctx};
    if (!a->path)
        return tern_fail(p->ctx, TERN_E_INVALID, "tern_pipeline_set_embeddings: an embedding has no path");
    if (!tern_embedding_read(p->ctx, a->path, &f) && !check_width(p, a->path, &f) && !add_words(p, s, a, &f))
        add_vectors(p, s, &f);
    tern_embedding_free(&f);
    return tern_error_status(p->ctx);
}

enum tern_status tern_pipeline_set_embeddings(struct tern_pipeline *p, const struct tern_prompt_embedding *list, int n)
{
    if (!p)
        return TERN_E_INVALID;
    if (tern_failed(p->ctx))
        return tern_error_status(p->ctx);
    if (n < 0 || n > MAX_EMBEDDINGS || (n && !list))
        return tern_fail(p->ctx, TERN_E_INVALID, "tern_pipeline_set_embeddings: expected a list of at most %d, found %d%s", MAX_EMBEDDINGS,
                         n, list ? "" : " and no list");
    if (p->calls)
        return tern_fail(p->ctx, TERN_E_INVALID, "tern_pipeline_set_embeddings: the pipeline is at work; set embeddings between jobs");
    if (n && !tern_pipeline_tokenizer(p, 0))
        return tern_error_status(p->ctx);
    struct tern_active_embedding *s = n ? tern_calloc(p->ctx, 1, sizeof(*s)) : NULL;
    p->calls++;
    for (int i = 0; s && i < n && !tern_failed(p->ctx); i++)
        add(p, s, &list[i]);
    p->calls--;
    if (tern_failed(p->ctx)) {
        set_free(p->ctx, s);
        return tern_error_status(p->ctx);
    }
    tern_pipeline_drop_embeddings(p);
    p->embeddings = s;
    p->n_embeddings = s ? s->n_words : 0;
    return TERN_OK;
}

/* A tokenizer folder: which files it holds, what kind they make, and the settings beside the vocabulary. */
#include "models/tokenizers/load.h"

#include <string.h>
#include <tern/context.h>

#include "core/files.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/status.h"

#define FILE_LIMIT ((size_t)64 << 20)
/* A model_max_length above this says "no limit" (transformers writes 1e30). */
#define LENGTH_LIMIT 1000000

/* An object from a file; file->json stays NULL when there is no such file. */
static enum tern_status read_object(const struct tern_tokenizer_files *f, const char *name, struct tern_tokenizer_file *file)
{
    struct tern_context *ctx = f->ctx;
    if (!(file->path = tern_path_join(ctx, f->folder, name)))
        return tern_error_status(ctx);
    if (tern_path_kind(file->path) == TERN_PATH_MISSING)
        return TERN_OK;
    size_t size;
    char *text = tern_read_file(ctx, file->path, FILE_LIMIT, &size);
    if (!text)
        return tern_error_status(ctx);
    json_error_t e;
    enum tern_status st = TERN_OK;
    file->json = tern_json_read(text, size, JSON_REJECT_DUPLICATES, &e);
    /* "model_max_length": 1000000000000000019884624838656 is no 64-bit integer */
    if (!file->json && json_error_code(&e) == json_error_numeric_overflow)
        file->json = tern_json_read(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &e);
    if (!file->json)
        st = tern_json_fail(ctx, file->path, &e);
    else if (!json_is_object(file->json))
        st = tern_fail(ctx, TERN_E_FORMAT, "%s: expected an object", file->path);
    tern_free(ctx, text);
    return st;
}

static void file_free(const struct tern_tokenizer_files *f, struct tern_tokenizer_file *file)
{
    tern_free(f->ctx, file->path);
    json_decref(file->json);
}

/* Which kind "model" of tokenizer.json is; NULL (error recorded) when it is neither, or made for other pieces. */
static const struct tern_tokenizer_fns *kind_of_model(struct tern_context *ctx, const json_t *model, const char *where)
{
    const char *type = NULL, *prefix = "##", *suffix = "</w>";
    if (!json_is_object(model)) {
        tern_fail(ctx, TERN_E_FORMAT, "%s: \"model\": expected an object", where);
        return NULL;
    }
    if (tern_json_string(ctx, model, where, "type", &type))
        return NULL;
    bool bpe = type ? !strcmp(type, "BPE") : json_object_get(model, "merges") != NULL;
    if (type && !bpe && strcmp(type, "WordPiece")) {
        tern_fail(ctx, TERN_E_UNSUPPORTED, "%s: a tokenizer of type \"%.40s\"; BPE (CLIP) and WordPiece (BERT) are read", where, type);
        return NULL;
    }
    if (tern_json_string(ctx, model, where, bpe ? "end_of_word_suffix" : "continuing_subword_prefix", bpe ? &suffix : &prefix))
        return NULL;
    if (strcmp(prefix, "##") || strcmp(suffix, "</w>")) {
        tern_fail(ctx, TERN_E_UNSUPPORTED, "%s: pieces are marked with \"%.20s\"; expected \"%s\"", where, bpe ? suffix : prefix,
                  bpe ? "</w>, as CLIP does" : "##, as BERT does");
        return NULL;
    }
    return bpe ? &tern_clip_fns : &tern_bert_fns;
}

/* vocab.json and merges.txt into a vocabulary and merges. */
static enum tern_status read_vocab_and_merges(struct tern_tokenizer *t, const struct tern_tokenizer_files *f, struct tern_vocab *v)
{
    struct tern_tokenizer_file vocab = {0};
    char *path = NULL, *merges = NULL;
    size_t size = 0;
    enum tern_status st = read_object(f, "vocab.json", &vocab);
    if (!st)
        st = tern_vocab_from_json(v, vocab.json, vocab.path, true);
    if (!st && (!(path = tern_path_join(f->ctx, f->folder, "merges.txt")) || !(merges = tern_read_file(f->ctx, path, FILE_LIMIT, &size))))
        st = tern_error_status(f->ctx);
    if (!st)
        st = tern_bpe_from_merges(&t->bpe, v, merges, size, NULL, path);
    tern_free(f->ctx, merges);
    tern_free(f->ctx, path);
    file_free(f, &vocab);
    return st;
}

static enum tern_status load_clip(struct tern_tokenizer *t, const struct tern_tokenizer_files *f, const json_t *model)
{
    struct tern_vocab v = {.ctx = f->ctx};
    const char *unk;
    enum tern_status st;
    if (model) {
        st = tern_vocab_from_json(&v, json_object_get(model, "vocab"), f->whole.path, true);
        st = st ? st : tern_bpe_from_merges(&t->bpe, &v, NULL, 0, json_object_get(model, "merges"), f->whole.path);
    } else {
        st = read_vocab_and_merges(t, f, &v);
    }
    if (!st && !(st = tern_tokenizer_set_special(t, f, &v, &unk)))
        t->bpe.unk = tern_vocab_find(&v, unk, strlen(unk));
    tern_vocab_free(&v);
    return st;
}

/* BERT's switches: tokenizer_config.json, else the normalizer of tokenizer.json, else the defaults. */
static enum tern_status set_bert_switches(struct tern_wordpiece *w, const struct tern_tokenizer_files *f)
{
    const json_t *normalizer = json_object_get(f->whole.json, "normalizer"), *config = f->config.json;
    const char *file = f->whole.path, *config_file = f->config.path;
    w->lower = w->split_chinese = true;
    enum tern_status st = tern_json_bool(f->ctx, normalizer, file, "lowercase", &w->lower);
    st = st ? st : tern_json_bool(f->ctx, normalizer, file, "handle_chinese_chars", &w->split_chinese);
    st = st ? st : tern_json_bool(f->ctx, config, config_file, "do_lower_case", &w->lower);
    st = st ? st : tern_json_bool(f->ctx, config, config_file, "tokenize_chinese_chars", &w->split_chinese);
    w->strip_accents = w->lower; /* unless a file says otherwise */
    st = st ? st : tern_json_bool(f->ctx, normalizer, file, "strip_accents", &w->strip_accents);
    return st ? st : tern_json_bool(f->ctx, config, config_file, "strip_accents", &w->strip_accents);
}

static enum tern_status read_lines(const struct tern_tokenizer_files *f, struct tern_vocab *v)
{
    size_t size;
    char *path = tern_path_join(f->ctx, f->folder, "vocab.txt");
    char *text = path ? tern_read_file(f->ctx, path, FILE_LIMIT, &size) : NULL;
    enum tern_status st = text ? tern_vocab_from_lines(v, text, size, path) : tern_error_status(f->ctx);
    tern_free(f->ctx, text);
    tern_free(f->ctx, path);
    return st;
}

static enum tern_status load_bert(struct tern_tokenizer *t, const struct tern_tokenizer_files *f, const json_t *model)
{
    struct tern_vocab *v = &t->wordpiece.vocab;
    const char *unk;
    enum tern_status st = set_bert_switches(&t->wordpiece, f);
    if (!st)
        st = model ? tern_vocab_from_json(v, json_object_get(model, "vocab"), f->whole.path, false) : read_lines(f, v);
    if (!st && !(st = tern_tokenizer_set_special(t, f, v, &unk)))
        t->wordpiece.unk = tern_vocab_find(v, unk, strlen(unk));
    return st;
}

/* model_max_length; without one, the length that the kind's models were trained with. */
static enum tern_status set_max_length(struct tern_tokenizer *t, const struct tern_tokenizer_files *f)
{
    double length = LENGTH_LIMIT + 1.0;
    enum tern_status st = tern_json_number(f->ctx, f->config.json, f->config.path, "max_len", &length);
    st = st ? st : tern_json_number(f->ctx, f->config.json, f->config.path, "model_max_length", &length);
    if (!st && (length < 2 || (length <= LENGTH_LIMIT && length != (double)(int32_t)length)))
        st = tern_fail(f->ctx, TERN_E_FORMAT, "%s: \"model_max_length\": expected an integer of at least 2, found %g", f->config.path,
                       length);
    if (!st)
        t->max_length = length <= LENGTH_LIMIT ? (int32_t)length : t->fns == &tern_clip_fns ? 77 : 512;
    return st;
}

static bool has_file(const struct tern_tokenizer_files *f, const char *name)
{
    char *path = tern_path_join(f->ctx, f->folder, name);
    bool there = path && tern_path_kind(path) != TERN_PATH_MISSING;
    tern_free(f->ctx, path);
    return there;
}

static struct tern_tokenizer *load(const struct tern_tokenizer_files *f)
{
    const struct tern_tokenizer_fns *fns = &tern_bert_fns;
    const json_t *model = json_object_get(f->whole.json, "model");
    if (f->whole.json) {
        fns = kind_of_model(f->ctx, model, f->whole.path);
    } else if (has_file(f, "vocab.json")) {
        fns = &tern_clip_fns;
    } else if (!has_file(f, "vocab.txt")) {
        tern_fail(f->ctx, TERN_E_NOT_FOUND,
                  "%s: no tokenizer: expected vocab.json and merges.txt (CLIP), vocab.txt (BERT) or tokenizer.json", f->folder);
        return NULL;
    }
    struct tern_tokenizer *t = fns ? tern_tokenizer_new(f->ctx, fns) : NULL;
    if (t && ((fns == &tern_clip_fns ? load_clip : load_bert)(t, f, model) || set_max_length(t, f) || tern_tokenizer_finish(t)))
        tern_tokenizer_destroy(&t);
    return t;
}

struct tern_tokenizer *tern_tokenizer_load(struct tern_context *ctx, const char *folder)
{
    if (!ctx)
        return NULL;
    if (!folder) {
        tern_fail(ctx, TERN_E_INVALID, "tern_tokenizer_load: expected a folder, found NULL");
        return NULL;
    }
    enum tern_path_kind kind = tern_path_kind(folder);
    if (kind != TERN_PATH_FOLDER) {
        tern_fail(ctx, TERN_E_NOT_FOUND, "%s: expected a tokenizer folder, found %s", folder,
                  kind == TERN_PATH_MISSING ? "nothing" : "a file");
        return NULL;
    }
    struct tern_tokenizer_files f = {.ctx = ctx, .folder = folder};
    struct tern_tokenizer *t = NULL;
    if (!read_object(&f, "tokenizer_config.json", &f.config) && !read_object(&f, "special_tokens_map.json", &f.special) &&
        !read_object(&f, "added_tokens.json", &f.added) && !read_object(&f, "tokenizer.json", &f.whole))
        t = load(&f);
    file_free(&f, &f.config);
    file_free(&f, &f.special);
    file_free(&f, &f.added);
    file_free(&f, &f.whole);
    return t;
}

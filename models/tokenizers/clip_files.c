/* vocab.json and merges.txt from the merges inside the library (data/README.md says how ids and texts follow from them). */
#include "models/tokenizers/clip_files.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "core/json.h"
#include "core/memory.h"
#include "core/status.h"
#include "models/tokenizers/bpe.h"
#include "models/tokenizers/builtin.h"

#define BYTES 256
#define FIRST_MERGE (2 * BYTES)
#define END_OF_WORD "</w>"

/* The texts of all pieces but the special ones, one behind the other. */
struct pieces {
    char *text;
    size_t *at; /* of each, and behind the last */
    size_t size, capacity;
};

static bool append(struct tern_context *ctx, struct pieces *p, const char *s, size_t n)
{
    if (p->size + n > p->capacity) {
        size_t capacity = 2 * (p->size + n) + 4096;
        char *text = tern_realloc(ctx, p->text, capacity);
        if (!text)
            return false;
        p->text = text;
        p->capacity = capacity;
    }
    memcpy(p->text + p->size, s, n);
    p->size += n;
    return true;
}

/* A copy of piece i behind all; its text may move while it grows. */
static bool append_piece(struct tern_context *ctx, struct pieces *p, uint32_t i)
{
    char piece[512];
    size_t n = p->at[i + 1] - p->at[i];
    if (n > sizeof(piece))
        return false;
    memcpy(piece, p->text + p->at[i], n);
    return append(ctx, p, piece, n);
}

/* Bytes in the order of their ids, then the same as ends of words. */
static bool add_bytes(struct tern_context *ctx, struct pieces *p)
{
    int id = 0;
    for (int last = 0; last < 2; last++)
        for (int hidden = 0; hidden < 2; hidden++)
            for (int b = 0; b < BYTES; b++) {
                utf8proc_uint8_t c[4];
                int32_t shown = tern_bpe_byte_char(b);
                if ((shown >= BYTES) != hidden)
                    continue;
                p->at[id++] = p->size;
                if (!append(ctx, p, (const char *)c, (size_t)utf8proc_encode_char(shown, c)) ||
                    (last && !append(ctx, p, END_OF_WORD, strlen(END_OF_WORD))))
                    return false;
            }
    p->at[id] = p->size;
    return true;
}

static void pieces_free(struct tern_context *ctx, struct pieces *p)
{
    tern_free(ctx, p->text);
    tern_free(ctx, p->at);
}

static bool pieces_make(struct tern_context *ctx, struct pieces *p, const uint8_t *planes)
{
    p->at = tern_calloc(ctx, FIRST_MERGE + TERN_CLIP_MERGES + 1, sizeof(*p->at));
    bool ok = p->at && add_bytes(ctx, p);
    for (uint32_t i = 0; ok && i < TERN_CLIP_MERGES; i++) {
        ok = append_piece(ctx, p, tern_clip_merge_left(planes, i)) && append_piece(ctx, p, tern_clip_merge_right(planes, i));
        p->at[FIRST_MERGE + i + 1] = p->size;
    }
    return ok;
}

char *tern_clip_vocabulary_json(struct tern_context *ctx)
{
    uint8_t *planes = tern_clip_merge_planes(ctx);
    struct pieces p = {0};
    json_t *o = planes && pieces_make(ctx, &p, planes) ? json_object() : NULL;
    char name[512];
    for (int i = 0; o && i < FIRST_MERGE + TERN_CLIP_MERGES; i++) {
        size_t n = p.at[i + 1] - p.at[i];
        memcpy(name, p.text + p.at[i], n);
        name[n] = 0;
        tern_json_set(&o, name, json_integer(i));
    }
    tern_json_set(&o, "<|startoftext|>", json_integer(FIRST_MERGE + TERN_CLIP_MERGES));
    tern_json_set(&o, "<|endoftext|>", json_integer(FIRST_MERGE + TERN_CLIP_MERGES + 1));
    char *dumped = o ? tern_json_dumps(o, JSON_COMPACT) : NULL, *text = dumped ? tern_strdup(ctx, dumped) : NULL;
    if (!text && !tern_failed(ctx))
        tern_fail(ctx, TERN_E_NO_MEMORY, "no memory for CLIP's vocabulary");
    free(dumped);
    json_decref(o);
    pieces_free(ctx, &p);
    tern_free(ctx, planes);
    return text;
}

char *tern_clip_merges_text(struct tern_context *ctx)
{
    static const char first[] = "#version: 0.2\n";
    uint8_t *planes = tern_clip_merge_planes(ctx);
    struct pieces p = {0};
    bool ok = planes && pieces_make(ctx, &p, planes);
    size_t begin = p.size;
    ok = ok && append(ctx, &p, first, strlen(first));
    for (uint32_t i = 0; ok && i < TERN_CLIP_MERGES; i++)
        ok = append_piece(ctx, &p, tern_clip_merge_left(planes, i)) && append(ctx, &p, " ", 1) &&
             append_piece(ctx, &p, tern_clip_merge_right(planes, i)) && append(ctx, &p, "\n", 1);
    char *text = ok ? tern_strndup(ctx, p.text + begin, p.size - begin) : NULL;
    pieces_free(ctx, &p);
    tern_free(ctx, planes);
    return text;
}

/* Normalized: they stand in texts in any case, too, as with OpenAI's files. */
#define TOKEN(type, text) \
    "{" type "\"content\": \"" text "\", \"lstrip\": false, \"normalized\": true, \"rstrip\": false, \"single_word\": false}"
#define TOKENS(type, pad)                                                            \
    "  \"bos_token\": " TOKEN(type, "<|startoftext|>") ",\n  \"eos_token\": " TOKEN( \
        type, "<|endoftext|>") ",\n  \"pad_token\": \"" pad "\",\n  \"unk_token\": " TOKEN(type, "<|endoftext|>")
#define SPECIAL(pad) "{\n" TOKENS("", pad) "\n}\n"
#define CONFIG(pad)                                                                                                            \
    "{\n  \"add_prefix_space\": false,\n  \"do_lower_case\": true,\n  \"errors\": \"replace\",\n  \"model_max_length\": 77,\n" \
    "  \"tokenizer_class\": \"CLIPTokenizer\",\n" TOKENS("\"__type\": \"AddedToken\", ", pad) "\n}\n"

const char *tern_clip_special_tokens(bool open_clip) { return open_clip ? SPECIAL("!") : SPECIAL("<|endoftext|>"); }

const char *tern_clip_tokenizer_config(bool open_clip) { return open_clip ? CONFIG("!") : CONFIG("<|endoftext|>"); }

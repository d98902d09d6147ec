/* The CLIP tokenizer that ships with tern, from the merges in data/clip_merges.z (format: data/README.md). */
#include <tern/context.h>
#include <zlib.h>

#include "core/memory.h"
#include "core/status.h"
#include "models/tokenizers/builtin.h"
#include "models/tokenizers/tokenizer.h"

#define MERGES TERN_CLIP_MERGES
#define FIRST_MERGE 512
#define START (FIRST_MERGE + MERGES)
#define END (START + 1)

/* clip_merges.c, made by tools/embed.c at build time. */
extern const unsigned char tern_clip_merges[];
extern const unsigned long tern_clip_merges_size;

/* The bytes in the order of their ids: those that GPT-2 shows as themselves, then the others. */
static void set_bytes(struct tern_bpe *bpe)
{
    int32_t id = 0;
    for (int hidden = 0; hidden < 2; hidden++) {
        for (int b = 0; b < 256; b++) {
            if ((tern_bpe_byte_char(b) >= 256) != hidden)
                continue;
            bpe->byte_id[b] = id;
            bpe->last_id[b] = 256 + id++;
        }
    }
}

uint8_t *tern_clip_merge_planes(struct tern_context *ctx)
{
    uLongf size = 4 * MERGES;
    uint8_t *planes = tern_alloc(ctx, size);
    if (planes && (uncompress(planes, &size, tern_clip_merges, tern_clip_merges_size) != Z_OK || size != 4 * MERGES)) {
        tern_fail(ctx, TERN_E_INTERNAL, "the CLIP vocabulary inside the library is damaged");
        tern_free(ctx, planes);
        return NULL;
    }
    return planes;
}

static enum tern_status set_merges(struct tern_bpe *bpe, struct tern_context *ctx)
{
    uint8_t *planes = tern_clip_merge_planes(ctx);
    bool ok = planes && tern_pairs_reserve(&bpe->merges, MERGES);
    for (uint32_t i = 0; ok && i < MERGES; i++)
        ok = tern_pairs_put(&bpe->merges, tern_clip_merge_left(planes, i), tern_clip_merge_right(planes, i), i, FIRST_MERGE + i);
    tern_free(ctx, planes);
    return ok ? TERN_OK : tern_error_status(ctx);
}

/* As the files of Stable Diffusion 1.5 and 2 say it: their begin and end tokens are found in any case, except that the end
 * token as the (plain) pad token is found as written only. */
static enum tern_status set_added(struct tern_tokenizer *t)
{
    struct tern_added_token begin = {.text = "<|startoftext|>", .id = START, .normalized = true, .special = true};
    struct tern_added_token end = {.text = "<|endoftext|>", .id = END, .normalized = t->pad != END, .special = true};
    struct tern_added_token pad = {.text = "!", .id = 0, .special = true};
    bool ok = tern_added_put(&t->added, &begin) && tern_added_put(&t->added, &end) && (t->pad || tern_added_put(&t->added, &pad));
    return ok ? tern_tokenizer_finish(t) : tern_error_status(t->ctx);
}

struct tern_tokenizer *tern_tokenizer_clip(struct tern_context *ctx, int32_t pad_id)
{
    if (!ctx)
        return NULL;
    if (pad_id != 0 && pad_id != END) {
        tern_fail(ctx, TERN_E_INVALID,
                  "tern_tokenizer_clip: pad id: expected %d (Stable Diffusion 1.x) or 0 (2.x, SDXL's second encoder), found %d", END,
                  (int)pad_id);
        return NULL;
    }
    struct tern_tokenizer *t = tern_tokenizer_new(ctx, &tern_clip_fns);
    if (!t)
        return NULL;
    t->begin = START;
    t->end = t->bpe.unk = END;
    t->pad = pad_id;
    t->vocab_size = END + 1;
    t->max_length = 77;
    set_bytes(&t->bpe);
    if (set_merges(&t->bpe, ctx) || set_added(t))
        tern_tokenizer_destroy(&t);
    return t;
}

/* Fuzz target: prompts in AUTOMATIC1111's syntax. The first byte tells the number of steps; the rest is the prompt, up to a NUL byte. What
 * holds at each step is weighed and falls into chunks, with two words that stand for vectors, by the CLIP tokenizer that ships with tern. */
#include "fuzz.h"
#include "models/prompts/prompts.h"
#include "models/tokenizers/tokenizer.h"

#include <math.h>
#include <tern/pipeline.h>

#define VECTORS 3
#define MOST_TEXTS 8 /* of one prompt that are cut into chunks, so that long lists do not take all of the time */

static struct tern_tokenizer *clip[2]; /* pad 49407 and 0 */
static struct tern_prompt_word words[2][2];

static void make_words(struct tern_context *ctx)
{
    static const struct tern_prompt_word named[] = {{.name = "toy", .vectors = 2}, {.name = "red-toy", .first = 2, .vectors = 1}};
    for (int k = 0; k < 2; k++) {
        if (!(clip[k] = tern_tokenizer_clip(ctx, k ? 0 : 49407)))
            abort();
        for (int i = 0; i < 2; i++) {
            words[k][i] = named[i];
            if (tern_prompt_tokens(clip[k], named[i].name, strlen(named[i].name), &words[k][i].ids, &words[k][i].n_ids))
                abort();
        }
    }
}

/* Spans stand one behind the other in their text; weights are numbers. */
static void check_attention(struct tern_context *ctx, const char *text)
{
    struct tern_spans s;
    size_t used = 0;
    enum tern_status st = tern_prompt_attention(ctx, text, &s);
    fuzz_check_status(ctx, st);
    if (!st && !s.count)
        abort();
    for (size_t i = 0; !st && i < s.count; used += s.at[i++].size)
        if (s.at[i].begin != used || !isfinite((float)s.at[i].weight) || used + s.at[i].size > strlen(text))
            abort();
    if (!st && strlen(s.text) != used)
        abort();
    tern_spans_free(&s);
    tern_error_clear(ctx);
}

static void check_chunks(struct tern_context *ctx, const char *text)
{
    for (int k = 0; k < 4; k++) {
        const struct tern_tokenizer *t = clip[k & 1];
        const struct tern_prompt_words own = {words[k & 1], 2};
        struct tern_chunks c;
        enum tern_status st = k > 1 ? tern_prompt_plain_chunk(t, text, &own, &c) : tern_prompt_chunks(t, text, &own, &c);
        fuzz_check_status(ctx, st);
        if (!st && (c.count < 1 || c.count > TERN_PROMPT_CHUNKS || c.length != tern_tokenizer_max_length(t)))
            abort();
        for (int64_t i = 0; !st && i < c.count * c.length; i++)
            if (c.ids[i] < -VECTORS || c.ids[i] >= tern_tokenizer_vocab_size(t) || !isfinite(c.weights[i]) ||
                (i % c.length == 0 && c.ids[i] != tern_tokenizer_begin_id(t)))
                abort();
        tern_chunks_free(&c);
        tern_error_clear(ctx);
    }
}

/* Parts end at steps that grow up to the last one; each holds one of the texts. Half of them as those of a second pass. */
static void check_schedule(struct tern_context *ctx, const char *text, int steps)
{
    struct tern_prompt_schedule s;
    enum tern_status st = tern_prompt_schedule(ctx, text, steps, strlen(text) % 2 ? steps : 0, &s);
    fuzz_check_status(ctx, st);
    if (!st && (s.n_parts < 1 || s.parts[s.n_parts - 1].end != steps))
        abort();
    for (int i = 0; !st && i < s.n_parts; i++)
        if (s.parts[i].text < 0 || s.parts[i].text >= s.n_texts || (i && s.parts[i].end <= s.parts[i - 1].end))
            abort();
    for (int i = 0; !st && i < s.n_texts && i < MOST_TEXTS; i++) {
        check_attention(ctx, s.texts[i]);
        check_chunks(ctx, s.texts[i]);
    }
    tern_prompt_schedule_free(&s);
    tern_error_clear(ctx);
}

static void check_prompt(struct tern_context *ctx, const char *text, int steps)
{
    struct tern_subprompt parts[TERN_MOST_SUBPROMPTS];
    struct tern_prompt_loras l;
    int n = tern_prompt_compose(ctx, text, parts);
    fuzz_check_status(ctx, n ? TERN_OK : tern_error_status(ctx));
    tern_error_clear(ctx);
    for (int i = 0; i < TERN_MOST_SUBPROMPTS; i++) {
        if (i < n && !isfinite(parts[i].weight))
            abort();
        if (i < n && i < MOST_TEXTS)
            check_schedule(ctx, parts[i].text, steps);
        tern_free(ctx, parts[i].text);
    }
    fuzz_check_status(ctx, tern_prompt_take_loras(ctx, text, "/nonexistent", &l));
    tern_error_clear(ctx);
    tern_prompt_loras_free(ctx, &l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tern_context *ctx = fuzz_context();
    if (!clip[0])
        make_words(ctx);
    size_t idle = tern_memory_used(ctx);
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    enum tern_status st = size ? tern_prompt_check(ctx, "prompt", text + 1) : TERN_E_INVALID;
    if (size)
        fuzz_check_status(ctx, st);
    tern_error_clear(ctx);
    if (!st)
        check_prompt(ctx, text + 1, 1 + data[0] % 40);
    free(text);
    if (tern_memory_used(ctx) != idle)
        abort();
    return 0;
}

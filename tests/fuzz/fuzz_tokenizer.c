/* Fuzz target: tokenizer folders and texts. The input is the files in the order of `names`, each ended by a NUL byte (an empty one is
 * left out), then the text. With no file at all the text goes to the CLIP tokenizer that ships with tern. */
#include "models/tokenizers/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tern/context.h>
#include <unistd.h>

#define FILES 7
#define BUDGET ((size_t)512 << 20)

static const char *const names[FILES] = {"tokenizer.json",          "vocab.json",       "merges.txt", "vocab.txt", "tokenizer_config.json",
                                         "special_tokens_map.json", "added_tokens.json"};
static char folder[64];
static struct tern_context *ctx;
static struct tern_tokenizer *clip[2]; /* pad 49407 and 0 */

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void remove_folder(void)
{
    for (int i = 0; i < FILES; i++)
        unlink(path_of(names[i]));
    rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const struct tern_context_params params = {.threads = 1, .budget = BUDGET};
    strcpy(folder, "/tmp/tern-fuzz-tokenizer-XXXXXX");
    if (!mkdtemp(folder) || !(ctx = tern_context_create(&params)))
        abort();
    atexit(remove_folder);
    if (!(clip[0] = tern_tokenizer_clip(ctx, 49407)) || !(clip[1] = tern_tokenizer_clip(ctx, 0)))
        abort();
    return 0;
}

/* Ids are of the vocabulary, begin and end stand where they belong, and padding agrees; or there is an error. */
static void check(const struct tern_tokenizer *t, const char *text, size_t size)
{
    int32_t *ids;
    int64_t count, n = tern_tokenizer_max_length(t);
    enum tern_status st = tern_tokenize_text(t, text, size, &ids, &count);
    if ((st != TERN_OK) != (*tern_error(ctx) != 0) || (st && ids))
        abort();
    if (!st && (count < 2 || ids[0] != tern_tokenizer_begin_id(t) || ids[count - 1] != tern_tokenizer_end_id(t)))
        abort();
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= tern_tokenizer_vocab_size(t))
            abort();
    int64_t *padded = !st && strlen(text) == size ? malloc((size_t)n * sizeof(*padded)) : NULL;
    if (padded) {
        if (tern_tokenize_padded(t, text, padded))
            abort();
        for (int64_t i = 0; i < n; i++)
            if (padded[i] != (i == n - 1 && count > n ? tern_tokenizer_end_id(t) : i < count ? ids[i] : tern_tokenizer_pad_id(t)))
                abort();
    }
    free(padded);
    tern_tokenizer_free_ids(t, ids);
    tern_error_clear(ctx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t idle = tern_memory_used(ctx);
    int written = 0;
    for (int i = 0; i < FILES; i++) {
        const uint8_t *end = size ? memchr(data, 0, size) : NULL;
        if (!end)
            return 0;
        FILE *f = end > data ? fopen(path_of(names[i]), "wb") : NULL;
        if (end > data && (!f || fwrite(data, 1, (size_t)(end - data), f) != (size_t)(end - data) || fclose(f)))
            abort();
        if (end == data)
            unlink(path_of(names[i]));
        written += end > data;
        size -= (size_t)(end - data) + 1;
        data = end + 1;
    }
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    if (written) {
        struct tern_tokenizer *t = tern_tokenizer_load(ctx, folder);
        if ((t == NULL) != (*tern_error(ctx) != 0))
            abort();
        if (t)
            check(t, text, size);
        tern_tokenizer_destroy(&t);
        tern_error_clear(ctx);
    } else {
        check(clip[0], text, size);
        check(clip[1], text, size);
    }
    free(text);
    if (tern_memory_used(ctx) != idle)
        abort();
    return 0;
}

/* Fuzz target: infotexts, split and read as jobs. */
#include "fuzz.h"
#include "models/pipelines/infotext.h"

#include <tern/pipeline.h>

/* Prompts and fields are there, and none is longer than the text. */
static void check_split(struct tern_context *ctx, const char *text)
{
    struct tern_infotext_fields f;
    enum tern_status st = tern_infotext_split(ctx, text, &f);
    fuzz_check_status(ctx, st);
    if (!st && (strlen(f.prompt) > strlen(text) || (f.negative && strlen(f.negative) > strlen(text))))
        abort();
    for (int i = 0; !st && i < f.count; i++)
        if (!f.field[i].name[0] || strlen(f.field[i].value) > 3 * strlen(text) || !tern_infotext_field(&f, f.field[i].name))
            abort();
    tern_infotext_fields_free(ctx, &f);
    tern_error_clear(ctx);
}

static void check_read(struct tern_context *ctx, const char *text)
{
    struct tern_infotext t;
    enum tern_status st = tern_infotext_read(ctx, text, &t);
    fuzz_check_status(ctx, st);
    if (!st) {
        const struct tern_txt2img_params *q = &t.params;
        if (!q->prompt || !t.loras || !t.ignored || q->steps < 0 || q->width < 0 || q->height < 0 || q->count < 0 || q->clip_skip < 0 ||
            q->sampler < 0 || q->sampler >= TERN_SAMPLER_COUNT || q->schedule < 0 || q->schedule >= TERN_SCHEDULE_COUNT || q->cfg != q->cfg)
            abort();
        tern_infotext_free(ctx, &t);
    }
    tern_error_clear(ctx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tern_context *ctx = fuzz_context();
    size_t idle = tern_memory_used(ctx);
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    check_split(ctx, text);
    check_read(ctx, text);
    free(text);
    if (tern_memory_used(ctx) != idle)
        abort();
    return 0;
}

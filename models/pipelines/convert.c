/* Converting a checkpoint: what it is, what it becomes, and what is refused before anything is written. */
#include "models/pipelines/convert.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/context.h"
#include "core/files.h"

static bool is_same(const char *path, const struct stat *a)
{
    struct stat b;
    return !stat(path, &b) && a->st_dev == b.st_dev && a->st_ino == b.st_ino;
}

/* Whether the output lies in the folder of a component, where it may be a shard or a configuration, or is the list of components. */
static bool is_in_model(const char *folder, const char *out)
{
    char *a = realpath(folder, NULL), *b = a ? realpath(out, NULL) : NULL;
    const size_t n = a ? strlen(a) : 0;
    const bool in = b && !strncmp(a, b, n) && b[n] == '/' && (strchr(b + n + 1, '/') || !strcmp(b + n + 1, "model_index.json"));
    free(a);
    free(b);
    return in;
}

/* Whether the output is there and is the model, or a part of it. */
static bool is_of_model(struct tern_context *ctx, const struct tern_checkpoint *cp, const char *out)
{
    struct stat st;
    const bool there = !stat(out, &st);
    bool same = there && (is_same(tern_checkpoint_path(cp), &st) ||
                          (tern_checkpoint_layout(cp) == TERN_LAYOUT_FOLDER && is_in_model(tern_checkpoint_path(cp), out)));
    for (int i = 0; there && !same && i < tern_checkpoint_count(cp); i++) {
        char *weights = tern_checkpoint_weights_path(cp, tern_checkpoint_component(cp, i));
        if (!weights)
            tern_error_clear_own(ctx); /* said when they are needed */
        same = weights && is_same(weights, &st);
        tern_free(ctx, weights);
    }
    return same;
}

static enum tern_status check_output(struct tern_context *ctx, const struct tern_checkpoint *cp, const char *out, bool folder)
{
    if (!*out)
        return tern_fail(ctx, TERN_E_INVALID, "convert: the name of the output is empty");
    if (is_of_model(ctx, cp, out))
        return tern_fail(ctx, TERN_E_INVALID, "%s: expected another name for the output than for the model", out);
    return folder ? tern_folder_check(ctx, out) : tern_check_writable(ctx, out);
}

static enum tern_status check_params(struct tern_context *ctx, const struct tern_convert_params *q)
{
    if ((unsigned)q->form > TERN_CONVERT_SINGLE_FILE)
        return tern_fail(ctx, TERN_E_INVALID, "convert: form: %d is no such value", (int)q->form);
    if (q->change_dtype && q->dtype != TERN_F32 && q->dtype != TERN_F16 && q->dtype != TERN_BF16)
        return tern_fail(ctx, TERN_E_INVALID, "convert: dtype: expected f32, f16 or bf16, found %s", tern_dtype_name(q->dtype));
    return TERN_OK;
}

enum tern_status tern_convert(struct tern_context *ctx, const char *model, const char *out, const struct tern_convert_params *params)
{
    static const struct tern_convert_params none = {0};
    const struct tern_convert_params *q = params ? params : &none;
    if (!ctx || tern_failed(ctx))
        return ctx ? tern_error_status(ctx) : TERN_E_INVALID;
    if (!model || !out)
        return tern_fail(ctx, TERN_E_INVALID, "tern_convert: expected the paths of a model and of the output, found NULL");
    if (check_params(ctx, q))
        return tern_error_status(ctx);
    struct tern_checkpoint *cp = tern_checkpoint_open(ctx, model);
    if (!cp)
        return tern_error_status(ctx);
    bool was_folder = tern_checkpoint_layout(cp) == TERN_LAYOUT_FOLDER;
    bool folder = q->form == TERN_CONVERT_OTHER ? !was_folder : q->form == TERN_CONVERT_FOLDER;
    struct tern_convert_params with_words = *q;
    struct tern_convert_words words = {NULL, NULL};
    enum tern_status st = check_output(ctx, cp, out, folder);
    if (!st)
        st = tern_convert_choose_words(ctx, model, cp, &with_words, &words);
    if (!st)
        st = folder ? tern_convert_folder(ctx, cp, out, &with_words) : tern_convert_single(ctx, cp, out, &with_words);
    tern_free(ctx, words.unet);
    tern_free(ctx, words.text);
    tern_checkpoint_close(&cp);
    return st;
}

/* Opening a weight file: which format it is, told by its content. */
#include <ctype.h>
#include <string.h>

#include "core/ascii.h"
#include "core/context.h"
#include "models/files/quantized.h"
#include "models/files/safetensors.h"
#include "models/files/weights.h"

/* True when the file begins with (or has at `offset`) that text. */
static bool has(const struct tern_mapping *m, size_t offset, const char *text)
{
    size_t n = strlen(text);
    return m->size >= offset + n && !memcmp(m->data + offset, text, n);
}

/* A header length that fits, and an object behind it. */
static bool looks_like_safetensors(const struct tern_mapping *m)
{
    uint64_t n = 0;
    if (m->size < 10)
        return false;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | m->data[i];
    return n <= m->size - 8 && m->data[8] == '{';
}

/* What people put in the place of a weight file by mistake, NULL when it is nothing that is known. */
static const char *known_mistake(const struct tern_mapping *m)
{
    static const struct {
        const char *start, *what;
    } mistakes[] = {
        {"version https://git-lfs", "a git-lfs pointer, not the file itself; `git lfs pull` fetches it"},
        {"<!DOCTYPE", "a web page, not a weight file; the download went wrong"},
        {"<!doctype", "a web page, not a weight file; the download went wrong"},
        {"<html", "a web page, not a weight file; the download went wrong"},
        {"GGUF", "a GGUF file, which tern does not read; a safetensors file of the model would help"},
        {"\x89HDF", "a Keras/HDF5 file, which tern does not read; a safetensors file of the model would help"},
        {"\x1f\x8b", "compressed with gzip; unpack it first"},
        {"7z\xbc\xaf", "a 7-Zip archive; unpack it first"},
    };
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(*mistakes); i++)
        if (has(m, 0, mistakes[i].start))
            return mistakes[i].what;
    if (has(m, 257, "ustar"))
        return "a tar archive, perhaps of torch.save before PyTorch 0.1.10, which tern does not read; saving it again with a current "
               "PyTorch would help";
    return NULL;
}

static bool starts_with_brace(const struct tern_mapping *m)
{
    size_t i = 0;
    while (i < m->size && isspace(m->data[i]))
        i++;
    return i < m->size && m->data[i] == '{';
}

enum tern_status tern_weights_read(struct tern_weights *w, struct tern_mapping *m, bool index_allowed)
{
    if (!m->size)
        return tern_fail(w->ctx, TERN_E_FORMAT, "%s: the file is empty", m->path);
    if (looks_like_safetensors(m))
        return tern_safetensors_read(w, m);
    if (has(m, 0, "PK\3\4") || has(m, 0, "PK\5\6"))
        return tern_torch_zip_read(w, m);
    if (m->data[0] == 0x80 && m->size > 1 && m->data[1] <= 5)
        return tern_torch_legacy_read(w, m);
    if (index_allowed && starts_with_brace(m))
        return tern_sharded_read(w, m);
    const char *mistake = known_mistake(m); /* no earlier: a weight file may hold such bytes */
    if (mistake)
        return tern_fail(w->ctx, TERN_E_FORMAT, "%s: %s", m->path, mistake);
    if (tern_ascii_ends(m->path, ".safetensors"))
        return tern_safetensors_read(w, m); /* says what is wrong with it */
    return tern_fail(w->ctx, TERN_E_FORMAT,
                     "%s: not a weight file that tern knows: expected safetensors, a *.index.json of its shards, or a file of torch.save",
                     m->path);
}

struct tern_weights *tern_weights_open(struct tern_context *ctx, const char *path)
{
    if (!ctx || !path) {
        if (ctx)
            tern_fail(ctx, TERN_E_INVALID, "tern_weights_open: no path");
        return NULL;
    }
    struct tern_mapping *m = tern_map_file(ctx, path);
    struct tern_weights *w = m ? tern_weights_create(ctx) : NULL;
    if (w && (tern_weights_read(w, m, true) || tern_quantized_join(w, path)))
        tern_weights_unref(&w);
    tern_mapping_unref(&m);
    return w;
}

/* Fuzz target: torch.save's zip and legacy files; and, behind a first byte of 0, a bare pickle with a storage "0" of 64 bytes,
 * which reaches the pickle machine without a container around it. */
#include "fuzz.h"
#include "models/files/torch_tensors.h"

static enum tern_status read_pickle(struct tern_context *ctx, struct tern_weights *w, struct tern_mapping *m)
{
    static const uint8_t bytes[64];
    size_t at = 1;
    struct tern_pickle *p = tern_pickle_load(ctx, m->data, m->size, &at, m->path);
    if (!p)
        return tern_error_status(ctx);
    struct tern_torch_file f = {.w = w, .m = m, .copies = tern_copy_limit_for(m->size)};
    f.storages = tern_calloc(ctx, 1, sizeof(*f.storages));
    f.storages[0] = (struct tern_torch_storage){.key = "0", .key_size = 1, .size = sizeof(bytes), .data = bytes};
    f.count = 1;
    enum tern_status st = tern_torch_add(&f, tern_pickle_root(p));
    tern_torch_release(&f);
    tern_pickle_free(&p);
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "fuzz.pt";
    struct tern_context *ctx = fuzz_context();
    size_t idle = tern_memory_used(ctx);
    struct tern_mapping m = fuzz_mapping(ctx, data, size, path);
    struct tern_weights *w = tern_weights_create(ctx);
    enum tern_status st;
    if (size && data[0] == 0)
        st = read_pickle(ctx, w, &m);
    else if (size > 1 && data[0] == 'P')
        st = tern_torch_zip_read(w, &m);
    else
        st = tern_torch_legacy_read(w, &m);
    fuzz_check_status(ctx, st);
    if (!st)
        fuzz_touch(w);
    tern_weights_unref(&w);
    fuzz_end(ctx, &m, idle);
    return 0;
}

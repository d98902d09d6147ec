/* Fuzz target: the index of shards. A temporary folder holds the shards one.safetensors (tensor "a") and two.safetensors ("b"). */
#include "fuzz.h"

#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

static char folder[64];

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) { return remove(path); }

static void remove_folder(void) { nftw(folder, remove_entry, 4, FTW_DEPTH | FTW_PHYS); }

static void write_shard(const char *name, char tensor)
{
    char path[128], header[65];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    snprintf(header, sizeof(header), "%-64s", "{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}");
    header[2] = tensor;
    FILE *f = fopen(path, "wb");
    if (!f || fwrite("\x40\0\0\0\0\0\0\0", 1, 8, f) != 8 || fwrite(header, 1, 64, f) != 64 || fwrite("x", 1, 1, f) != 1 || fclose(f))
        abort();
}

static void make_folder(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/tern-fuzz-XXXXXX", tmp && strlen(tmp) < 40 ? tmp : "/tmp");
    if (!mkdtemp(folder))
        abort();
    write_shard("one.safetensors", 'a');
    write_shard("two.safetensors", 'b');
    atexit(remove_folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[128];
    struct tern_context *ctx = fuzz_context();
    size_t idle = tern_memory_used(ctx);
    if (!folder[0])
        make_folder();
    snprintf(path, sizeof(path), "%s/index.json", folder);
    struct tern_mapping m = fuzz_mapping(ctx, data, size, path);
    struct tern_weights *w = tern_weights_create(ctx);
    enum tern_status st = tern_sharded_read(w, &m);
    fuzz_check_status(ctx, st);
    if (!st)
        fuzz_touch(w);
    tern_weights_unref(&w);
    fuzz_end(ctx, &m, idle);
    return 0;
}

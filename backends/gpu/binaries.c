/* What a driver's compiler made of a source, kept in the cache folder. A file: the binary, then its CRC-32. */
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "backends/gpu/gpu.h"
#include "core/cache.h"
#include "core/context.h"
#include "core/files.h"

#define MOST_BINARY ((size_t)64 << 20)

char *tern_gpu_binary_path(struct tern_context *ctx, const char *kind, const char *facts, const char *source)
{
    char name[64];
    uint64_t a = tern_gpu_hash(0xcbf29ce484222325u, source, strlen(source)), b = tern_gpu_hash(0x9e3779b97f4a7c15u, facts, strlen(facts));
    b = tern_gpu_hash(b, source, strlen(source));
    snprintf(name, sizeof(name), "%016llx%016llx.bin", (unsigned long long)a, (unsigned long long)b);
    return tern_cache_path(ctx, kind, name);
}

/* Drivers trust their binaries: a damaged one does not get to them. */
static uint32_t checksum(const void *data, size_t size) { return (uint32_t)crc32(0, data, (uInt)size); }

bool tern_gpu_lacks_memory(const struct tern_context *ctx)
{
    enum tern_status st = tern_error_status(ctx);
    return st == TERN_E_NO_MEMORY || st == TERN_E_BUDGET;
}

void *tern_gpu_binary_read(struct tern_context *ctx, const char *path, const char *again, size_t *size)
{
    size_t all = 0;
    uint32_t expected = 0;
    if (!path || tern_failed(ctx) || tern_path_kind(path) != TERN_PATH_FILE)
        return NULL;
    char *data = tern_read_file(ctx, path, MOST_BINARY, &all);
    if (!data && tern_gpu_lacks_memory(ctx))
        return NULL;
    *size = all > sizeof(expected) ? all - sizeof(expected) : 0;
    if (data && *size) {
        memcpy(&expected, data + *size, sizeof(expected));
        if (checksum(data, *size) == expected)
            return data;
    }
    tern_message(ctx, TERN_LOG_WARN, "%s: it is damaged; %s", path, again);
    tern_error_clear_own(ctx);
    tern_free(ctx, data);
    return NULL;
}

static enum tern_status write_file(struct tern_context *ctx, const char *path, const void *binary, size_t size)
{
    uint32_t sum = checksum(binary, size);
    struct tern_writer *w = tern_cache_prepare(ctx, path) ? NULL : tern_writer_open(ctx, path);
    if (!w)
        return tern_error_status(ctx);
    fwrite(binary, 1, size, w->file);
    fwrite(&sum, 1, sizeof(sum), w->file);
    return tern_writer_commit(&w);
}

void tern_gpu_binary_keep(struct tern_context *ctx, const char *path, const void *binary, size_t size)
{
    if (!path || !size || tern_failed(ctx) || size > MOST_BINARY - sizeof(uint32_t) || !write_file(ctx, path, binary, size))
        return;
    tern_message(ctx, TERN_LOG_INFO, "not kept on disk: %s", tern_error(ctx));
    tern_error_clear_own(ctx);
}

/* Files of the cache folder whose damage is found: the data, then its CRC-32. */
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "backends/vulkan/vulkan.h"
#include "core/cache.h"
#include "core/context.h"
#include "core/files.h"

#define MOST ((size_t)64 << 20)

static uint32_t checksum(const void *data, size_t size) { return (uint32_t)crc32(0, data, (uInt)size); }

char *vulkan_cache_read(struct tern_context *ctx, const char *path, const char *again, size_t *size)
{
    uint32_t expected = 0;
    size_t n = 0;
    char *data = path && tern_path_kind(path) == TERN_PATH_FILE ? tern_read_file(ctx, path, MOST, &n) : NULL;
    if (!data) {
        if (tern_error_status(ctx) != TERN_E_NO_MEMORY && tern_error_status(ctx) != TERN_E_BUDGET)
            tern_error_clear(ctx);
        return NULL;
    }
    if (n > sizeof(expected)) {
        n -= sizeof(expected);
        memcpy(&expected, data + n, sizeof(expected));
        if (checksum(data, n) == expected) {
            *size = n;
            return data;
        }
    }
    tern_message(ctx, TERN_LOG_WARN, "%s: it is damaged; %s", path, again);
    tern_free(ctx, data);
    return NULL;
}

static enum tern_status write_file(struct tern_context *ctx, const char *path, const void *data, size_t size)
{
    uint32_t sum = checksum(data, size);
    struct tern_writer *w = tern_cache_prepare(ctx, path) ? NULL : tern_writer_open(ctx, path);
    if (!w)
        return tern_error_status(ctx);
    fwrite(data, 1, size, w->file);
    fwrite(&sum, 1, sizeof(sum), w->file);
    return tern_writer_commit(&w);
}

void vulkan_cache_write(struct tern_context *ctx, const char *path, const void *data, size_t size)
{
    if (!path || !size || size > MOST - 4 || tern_failed(ctx) || !write_file(ctx, path, data, size))
        return;
    tern_message(ctx, TERN_LOG_INFO, "vulkan: not kept on disk: %s", tern_error(ctx));
    tern_error_clear(ctx);
}

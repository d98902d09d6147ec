/* Fuzz target: plans on disk, and running what is loaded. Fingerprint and CRC are set right first, so that what is behind them is
 * reached, but not in a file whose first byte is 0: that byte is left out, and the rest taken as it is. */
#include "../plan_use.h"
#include "fuzz.h"
#include "graph/file.h"

#include <tern/ops.h>
#include <zlib.h>

static void put(uint8_t *to, uint64_t x, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = (uint8_t)(x >> 8 * i);
}

static void repair(struct tern_context *ctx, uint8_t *data, size_t size)
{
    const struct tern_key own = tern_plan_fingerprint(ctx);
    put(data + TERN_FILE_HEADER - 16, own.word[0], 8);
    put(data + TERN_FILE_HEADER - 8, own.word[1], 8);
    put(data + size - 4, crc32_z(0, data, size - 4), 4);
}

/* What the first op and the first scope of a context make stays. */
static void warm_up(struct tern_context *ctx)
{
    tern_scope_begin(ctx);
    tern_neg(tern_tensor_scalar(ctx, TERN_F32, 1));
    tern_scope_end(ctx, NULL);
    tern_memory_trim(ctx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tern_context *ctx = fuzz_context();
    bool raw = size && !data[0];
    size_t idle, n = raw ? size - 1 : size;
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy)
        abort();
    if (n)
        memcpy(copy, data + raw, n);
    if (!raw && n >= TERN_FILE_HEADER + 4)
        repair(ctx, copy, n);
    warm_up(ctx);
    idle = tern_memory_used(ctx);
    struct tern_plan *p = tern_plan_read(ctx, copy, n, "fuzz.plan");
    free(copy);
    fuzz_check_status(ctx, p ? TERN_OK : tern_error_status(ctx));
    if (!p && tern_error_status(ctx) == TERN_OK)
        abort();
    if (p)
        plan_use(p);
    tern_plan_unref(&p);
    tern_error_clear(ctx);
    tern_memory_trim(ctx);
    if (tern_memory_used(ctx) > idle + 65536) /* the list of a scope's tensors keeps its size */
        abort();
    return 0;
}

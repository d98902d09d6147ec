/* What the fuzz targets share: a context with a memory budget, a file that lies in memory, and the check that nothing is left. */
#ifndef TERN_TESTS_FUZZ_H
#define TERN_TESTS_FUZZ_H

#include <stdlib.h>
#include <string.h>
#include <tern/context.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/weights.h"

#define BUDGET ((size_t)256 << 20)
#define REFS 1000000 /* of the mapping: never its last, because its memory is the fuzzer's */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline struct tern_context *fuzz_context(void)
{
    static struct tern_context *ctx;
    const struct tern_context_params params = {.threads = 1, .budget = BUDGET};
    if (!ctx && !(ctx = tern_context_create(&params)))
        abort();
    return ctx;
}

/* A reader must give either a finished set or an error with a message. */
static inline void fuzz_check_status(struct tern_context *ctx, enum tern_status st)
{
    if (st != TERN_OK && (!tern_failed(ctx) || !*tern_error(ctx)))
        abort();
    if (st == TERN_OK && tern_failed(ctx))
        abort();
}

/* Reads every byte of every tensor, so that the sanitizers see where they lie. */
static inline void fuzz_touch(const struct tern_weights *w)
{
    static volatile uint8_t sink;
    for (int64_t i = 0; i < w->count; i++) {
        const tern_tensor *t = w->entries[i].tensor;
        const uint8_t *p = tern_tensor_host(t);
        size_t n = (size_t)tern_meta_numel(&t->meta) * tern_dtype_size(t->meta.dtype);
        uint8_t sum = 0;
        for (size_t k = 0; k < n; k++)
            sum = (uint8_t)(sum + p[k]);
        sink = (uint8_t)(sink + sum);
        if (i && strcmp(w->entries[i - 1].name, w->entries[i].name) >= 0)
            abort();
    }
}

static inline struct tern_mapping fuzz_mapping(struct tern_context *ctx, const uint8_t *data, size_t size, char *path)
{
    return (struct tern_mapping){.data = size ? data : NULL, .size = size, .path = path, .ctx = ctx, .refs = REFS};
}

/* All references given back, all memory too. */
static inline void fuzz_end(struct tern_context *ctx, const struct tern_mapping *m, size_t idle)
{
    if (m->refs != REFS || tern_memory_used(ctx) != idle)
        abort();
    tern_error_clear(ctx);
}

#endif

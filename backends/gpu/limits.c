/* Lowered limits: one device stands for weaker ones, in tests and in `tern conformance --limits`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/gpu/gpu.h"
#include "core/status.h"

static enum tern_status fail(struct tern_gpu *gpu, const char *entry, size_t n)
{
    return tern_fail(gpu->base.ctx, TERN_E_INVALID,
                     "TERN_GPU_LIMITS: \"%.*s\": expected group=64…%d (a power of two), shared=16K…%zuK, buffer=1M or more, host=1K or "
                     "more, %sstorage16=no, storage8=no, subgroups=no, matrix=no or dot=no, with commas between them",
                     (int)n, entry, gpu->limits.max_group, gpu->limits.shared_bytes >> 10, gpu->max_flops > 0 ? "flops=1M or more, " : "");
}

/* "64", "16K", "32M"; 0 when it is none of these. */
static size_t number(const char *text, size_t n)
{
    size_t value = 0, i = 0;
    for (; i < n && text[i] >= '0' && text[i] <= '9' && value < (size_t)1 << 40; i++)
        value = value * 10 + (size_t)(text[i] - '0');
    if (i + 1 == n && (text[i] == 'K' || text[i] == 'M'))
        return value << (text[i] == 'K' ? 10 : 20);
    return i == n ? value : 0;
}

static bool apply(struct tern_gpu *gpu, const char *name, size_t name_length, const char *text, size_t length)
{
    struct tern_launch_limits *l = &gpu->limits;
    size_t value = number(text, length), *largest = gpu->max_binding ? &gpu->max_binding : &gpu->base.caps.max_buffer;
    bool no = length == 2 && !memcmp(text, "no", 2);
#define IS(word) (name_length == sizeof(word) - 1 && !memcmp(name, word, sizeof(word) - 1))
    if (IS("group") && value >= 64 && value <= (size_t)l->max_group && !(value & (value - 1)))
        l->max_group = (int)value;
    else if (IS("shared") && value >= 16384 && value <= l->shared_bytes)
        l->shared_bytes = value;
    else if (IS("buffer") && value >= 1 << 20 && (!*largest || value <= *largest))
        *largest = value;
    else if (IS("host") && value >= 1024 && (!gpu->memory.host_share || value <= gpu->memory.host_share))
        gpu->memory.host_share = gpu->base.caps.host_share = value;
    else if (IS("flops") && value >= 1 << 20 && (double)value <= gpu->max_flops)
        gpu->max_flops = (double)value;
    else if (IS("storage16") && no)
        l->storage16 = false;
    else if (IS("storage8") && no)
        l->storage8 = false;
    else if (IS("subgroups") && no)
        l->subgroup = 0;
    else if (IS("matrix") && no)
        l->matrix_f16 = l->matrix_bf16 = l->matrix_i8 = false;
    else if (IS("dot") && no)
        l->dot_product = false;
    else
        return false;
#undef IS
    return true;
}

/* What a binding takes wherever it begins, and what a text takes whose elements have two bytes: it counts elements. */
static size_t largest_argument(const struct tern_gpu *gpu)
{
    const size_t indices = ((size_t)TERN_LAUNCH_MAX_ELEMENTS - 1) * 2;
    const size_t binding = gpu->max_binding ? gpu->max_binding - gpu->binding_alignment : indices;
    return binding < indices ? binding : indices;
}

enum tern_status tern_gpu_lower(struct tern_gpu *gpu)
{
    const char *all = getenv("TERN_GPU_LIMITS"), *entry = all;
    while (entry && *entry) {
        size_t n = strcspn(entry, ",");
        const char *equals = memchr(entry, '=', n);
        if (!equals || !apply(gpu, entry, (size_t)(equals - entry), equals + 1, n - (size_t)(equals + 1 - entry)))
            return fail(gpu, entry, n);
        entry += n + (entry[n] == ',');
    }
    if (snprintf(gpu->lowered, sizeof(gpu->lowered), "%s", all ? all : "") >= (int)sizeof(gpu->lowered))
        return fail(gpu, all, strlen(all));
    gpu->base.level = gpu->lowered[0] ? gpu->lowered : NULL;
    gpu->base.caps.max_argument = largest_argument(gpu);
    gpu->base.caps.max_rows = tern_launch_most_rows(&gpu->limits);
    return TERN_OK;
}

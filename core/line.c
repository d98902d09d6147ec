/* The line of devices, best first: opened and measured one by one, each in a context of its own, and kept in the cache folder. */
#include "core/line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cache.h"
#include "core/context.h"
#include "core/files.h"
#include "core/number.h"
#include "core/registry.h"

/* What decides which devices there are, as far as it can change without a new start of the machine. */
static const char *const environment[] = {"TERN_GPU_LIMITS",       "TERN_CPU_LEVEL",      "TERN_CUDA_LIBRARY",    "TERN_NVRTC_LIBRARY",
                                          "TERN_CUBLASLT_LIBRARY", "TERN_CUDNN_LIBRARY",  "TERN_CLBLAST_LIBRARY", "TERN_SHADERC_LIBRARY",
                                          "TERN_VULKAN_LIBRARY",   "TERN_OPENCL_LIBRARY", "CUDA_VISIBLE_DEVICES", "OCL_ICD_VENDORS",
                                          "OCL_ICD_FILENAMES",     "VK_ICD_FILENAMES",    "VK_DRIVER_FILES",      "LD_LIBRARY_PATH"};

static uint64_t hash_text(uint64_t h, const char *text)
{
    for (; text && *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return (h ^ 0xff) * 0x100000001b3u;
}

static uint64_t key(const struct tern_context *ctx)
{
    char boot[64] = "", numbers[64];
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f) {
        boot[fread(boot, 1, sizeof(boot) - 1, f)] = 0;
        fclose(f);
    }
    snprintf(numbers, sizeof(numbers), "%d %zu %zu", ctx->params.threads, ctx->params.budget, ctx->params.device_budget);
    uint64_t h = hash_text(hash_text(hash_text(0xcbf29ce484222325u, tern_version()), boot), numbers);
    for (int i = 0; tern_backends[i]; i++)
        h = hash_text(h, tern_backends[i]->name);
    for (size_t i = 0; i < sizeof(environment) / sizeof(environment[0]); i++)
        h = hash_text(h, getenv(environment[i]));
    return h;
}

static char *path_of(struct tern_context *ctx)
{
    char name[24];
    snprintf(name, sizeof(name), "%016llx", (unsigned long long)key(ctx));
    return tern_cache_path(ctx, "devices", name);
}

/* Sorts in; equal ones keep their order. */
static void insert(struct tern_line_entry *line, int *n, const struct tern_line_entry *e)
{
    int i = *n;
    if (i == TERN_LINE_MOST)
        return;
    for (; i > 0 && line[i - 1].flops < e->flops; i--)
        line[i] = line[i - 1];
    line[i] = *e;
    ++*n;
}

/* The file has a line "NAME FLOPS" each; the one with a damaged line does not count. */
static int from_cache(struct tern_context *ctx, const char *path, struct tern_line_entry *line)
{
    size_t size;
    int n = 0, used = 0;
    bool cpu = false;
    if (!path || tern_path_kind(path) != TERN_PATH_FILE)
        return 0;
    char *text = tern_read_file(ctx, path, 4096, &size);
    tern_error_clear(ctx);
    for (const char *at = text; at && *at; at += used) {
        struct tern_line_entry e;
        used = 0;
        char *end = NULL;
        if (sscanf(at, "%23[a-z0-9:] %n", e.name, &used) == 1 && used)
            e.flops = tern_number_parse(at + used, &end);
        if (!end || end == at + used || *end != '\n' || !(e.flops >= 0)) {
            n = 0;
            break;
        }
        used = (int)(end + 1 - at);
        cpu = cpu || !strcmp(e.name, "cpu");
        insert(line, &n, &e);
    }
    tern_free(ctx, text);
    return cpu ? n : 0;
}

/* A cache that cannot be written costs the measurement next time, nothing else. */
static void keep(struct tern_context *ctx, const char *path, const struct tern_line_entry *line, int n)
{
    struct tern_writer *w = path && !tern_cache_prepare(ctx, path) ? tern_writer_open(ctx, path) : NULL;
    char text[TERN_NUMBER_TEXT];
    for (int i = 0; w && i < n; i++)
        fprintf(w->file, "%s %s\n", line[i].name, tern_number_text(line[i].flops, text));
    if (w)
        tern_writer_commit(&w);
    tern_error_clear(ctx);
}

/* A context of its own for that device. NULL: tern_create_error tells why. */
static struct tern_context *open_alone(const struct tern_context *ctx, const char *name)
{
    struct tern_context_params p = {.device = name,
                                    .threads = ctx->params.threads,
                                    .budget = ctx->params.budget,
                                    .device_budget = ctx->params.device_budget,
                                    .cache_dir = ctx->params.cache_dir,
                                    .cancel = ctx->params.cancel,
                                    .user = ctx->params.user,
                                    .allocator = ctx->params.allocator};
    return tern_context_create(&p);
}

/* False: it had no memory for that, which it may have the next time. */
static bool measure(struct tern_context *ctx, struct tern_line_entry *e)
{
    struct tern_context *alone = open_alone(ctx, e->name);
    e->flops = alone ? tern_device_score(alone) : 0;
    if (!tern_check_cancel(ctx) && !e->flops)
        tern_message(ctx, TERN_LOG_WARN, "%s is passed by: %s", e->name, alone ? tern_error(alone) : tern_create_error());
    const enum tern_status st = alone ? tern_error_status(alone) : TERN_OK;
    tern_context_destroy(&alone);
    return st != TERN_E_NO_MEMORY && st != TERN_E_BUDGET;
}

/* Appends the backend's devices that may stand in line. One that is refused is passed by; two in a row are the end. */
static int find(struct tern_context *ctx, const struct tern_backend *b, struct tern_line_entry *found, int n)
{
    bool takes_part = strcmp(b->name, "cpu") != 0; /* it stands in line already */
    int refused = 0;
    for (int ordinal = 0; takes_part && n < TERN_LINE_MOST; ordinal++) {
        struct tern_line_entry *e = &found[n];
        snprintf(e->name, sizeof(e->name), "%.16s:%d", b->name, ordinal & 255);
        struct tern_context *alone = open_alone(ctx, e->name);
        refused = alone ? 0 : refused + 1;
        if (refused == 2)
            break;
        if (!alone)
            continue;
        takes_part = alone->device->caps.computes;
        n += takes_part && !alone->device->caps.software;
        tern_context_destroy(&alone);
    }
    return n;
}

int tern_line(struct tern_context *ctx, bool fresh, struct tern_line_entry line[TERN_LINE_MOST])
{
    struct tern_line_entry found[TERN_LINE_MOST] = {{"cpu", 0}};
    char *path = path_of(ctx);
    int n = 0, n_found = 1;
    bool good = true;
    if (!fresh)
        n = from_cache(ctx, path, line);
    for (int i = 0; !n && tern_backends[i]; i++)
        n_found = find(ctx, tern_backends[i], found, n_found);
    if (!n) {
        for (int i = 0; i < n_found && !tern_failed(ctx); i++) {
            if (n_found > 1)
                good &= measure(ctx, &found[i]);
            if (i == 0 || found[i].flops > 0)
                insert(line, &n, &found[i]);
        }
        if (!tern_check_cancel(ctx) && good) /* measurements that were broken off are not kept */
            keep(ctx, path, line, n);
    }
    tern_free(ctx, path);
    return tern_failed(ctx) ? -1 : n;
}

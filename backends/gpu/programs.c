/* Compiled kernel texts by text and macros. */
#include <string.h>

#include "backends/gpu/gpu.h"
#include "core/context.h"

struct tern_gpu_program {
    struct tern_gpu_program *next;
    uint64_t hash;
    void *kernel;
    char key[]; /* text, newline, macros */
};

static bool is(const struct tern_gpu_program *p, uint64_t hash, const struct tern_launch *l, const char *defines)
{
    size_t n = strlen(l->text);
    return p->hash == hash && !strncmp(p->key, l->text, n) && p->key[n] == '\n' && !strcmp(p->key + n + 1, defines);
}

static struct tern_gpu_program *make(struct tern_gpu *gpu, uint64_t hash, const struct tern_launch *l, const char *defines)
{
    struct tern_context *ctx = gpu->base.ctx;
    size_t n = strlen(l->text), m = strlen(defines);
    struct tern_gpu_program *p = tern_calloc(ctx, 1, sizeof(*p) + n + m + 2);
    char *source = p ? tern_text_source(ctx, gpu->language, l->text, defines) : NULL;
    if (source)
        p->kernel = gpu->fns->compile(gpu, source, l);
    tern_free(ctx, source);
    if (!p || !p->kernel) {
        tern_free(ctx, p);
        return NULL;
    }
    p->hash = hash;
    memcpy(p->key, l->text, n);
    p->key[n] = '\n';
    memcpy(p->key + n + 1, defines, m + 1);
    return p;
}

void *tern_gpu_program(struct tern_gpu *gpu, const struct tern_launch *l, const char *defines)
{
    uint64_t hash = tern_gpu_hash(tern_gpu_hash(0xcbf29ce484222325u, l->text, strlen(l->text)), defines, strlen(defines));
    struct tern_gpu_program **chain = &gpu->programs[hash % TERN_GPU_TABLE], *p = *chain;
    while (p && !is(p, hash, l, defines))
        p = p->next;
    if (!p && (p = make(gpu, hash, l, defines))) {
        p->next = *chain;
        *chain = p;
    }
    return p ? p->kernel : NULL;
}

void tern_gpu_drop_programs(struct tern_gpu *gpu)
{
    for (int i = 0; i < TERN_GPU_TABLE; i++)
        while (gpu->programs[i]) {
            struct tern_gpu_program *p = gpu->programs[i];
            gpu->programs[i] = p->next;
            gpu->fns->release(gpu, p->kernel);
            tern_free(gpu->base.ctx, p);
        }
}

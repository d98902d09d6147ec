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

static bool is(const struct tern_gpu_program *p, uint64_t hash, const struct tern_launch *l)
{
    size_t n = strlen(l->text);
    return p->hash == hash && !strncmp(p->key, l->text, n) && p->key[n] == '\n' && !strcmp(p->key + n + 1, l->defines);
}

static struct tern_gpu_program *make(struct tern_gpu *gpu, uint64_t hash, const struct tern_launch *l)
{
    struct tern_context *ctx = gpu->base.ctx;
    size_t n = strlen(l->text), m = strlen(l->defines);
    struct tern_gpu_program *p = tern_calloc(ctx, 1, sizeof(*p) + n + m + 2);
    char *source = p ? tern_text_source(ctx, gpu->language, l->text, l->defines) : NULL;
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
    memcpy(p->key + n + 1, l->defines, m + 1);
    return p;
}

void *tern_gpu_program(struct tern_gpu *gpu, const struct tern_launch *l)
{
    uint64_t hash = tern_gpu_hash(tern_gpu_hash(0xcbf29ce484222325u, l->text, strlen(l->text)), l->defines, strlen(l->defines));
    if (!gpu->programs && !(gpu->programs = tern_calloc(gpu->base.ctx, TERN_GPU_TABLE, sizeof(struct tern_gpu_program *))))
        return NULL;
    struct tern_gpu_program **chain = &gpu->programs[hash % TERN_GPU_TABLE], *p = *chain;
    while (p && !is(p, hash, l))
        p = p->next;
    if (!p && (p = make(gpu, hash, l))) {
        p->next = *chain;
        *chain = p;
    }
    return p ? p->kernel : NULL;
}

void tern_gpu_drop_programs(struct tern_gpu *gpu)
{
    for (int i = 0; gpu->programs && i < TERN_GPU_TABLE; i++)
        while (gpu->programs[i]) {
            struct tern_gpu_program *p = gpu->programs[i];
            gpu->programs[i] = p->next;
            gpu->fns->release(gpu, p->kernel);
            tern_free(gpu->base.ctx, p);
        }
    tern_free(gpu->base.ctx, gpu->programs);
    gpu->programs = NULL;
}

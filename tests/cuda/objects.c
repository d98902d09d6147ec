/* Handles, counts, faults and misuse of the stand-in driver, and entering it. */
#include "tests/cuda/inside.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct standin standin = {.facts = {.name = "stand-in",
                                    .devices = 1,
                                    .capability = 86,
                                    .driver = 12080,
                                    .memory = (size_t)16 << 30,
                                    .pools = 1,
                                    .maps_host = 1,
                                    .threads = 1024,
                                    .shared = 49152,
                                    .compute = 1}};

static struct entry {
    enum kind kind;
    void *object; /* NULL: gone */
} * entries;
static int n_entries, entry_capacity;

enum { FAULTS = 8 };
static struct fault {
    char function[64];
    int rest;
    CUresult error;
} faults[FAULTS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *const kind_names[KINDS] = {"", "stream", "event", "module", "function", "graph", "executable graph", "memory pool"};

bool standin_has_context(void); /* device.c */

CUresult standin_injected(const char *function)
{
    for (int i = 0; i < FAULTS; i++)
        if (faults[i].rest && !strcmp(faults[i].function, function) && !--faults[i].rest)
            return faults[i].error;
    return CUDA_SUCCESS;
}

CUresult standin_enter(const char *function, bool needs_context, int *held)
{
    pthread_mutex_lock(&lock);
    *held = 1;
    CUresult error = standin_injected(function);
    if ((error >= CUDA_ERROR_ILLEGAL_ADDRESS && error <= CUDA_ERROR_LAUNCH_FAILED && error != CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES) ||
        error == CUDA_ERROR_ECC_UNCORRECTABLE)
        standin.lost = error;
    if (error)
        return error;
    if (standin.lost && needs_context)
        return standin.lost;
    if (needs_context && !standin.initialised)
        return standin_misuse(CUDA_ERROR_NOT_INITIALIZED, "%s before cuInit", function);
    if (needs_context && !standin_has_context())
        return standin_misuse(CUDA_ERROR_INVALID_CONTEXT, "%s without a current context", function);
    return CUDA_SUCCESS;
}

void standin_leave(int *held)
{
    if (*held)
        pthread_mutex_unlock(&lock);
}

CUresult standin_misuse(CUresult error, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!standin.n_misuses++)
        vsnprintf(standin.misuse, sizeof(standin.misuse), fmt, ap);
    va_end(ap);
    return error;
}

void *standin_new(enum kind kind, size_t size, void **handle)
{
    if (n_entries == entry_capacity) {
        entry_capacity = entry_capacity ? 2 * entry_capacity : 256;
        entries = realloc(entries, (size_t)entry_capacity * sizeof(*entries));
    }
    if (!entries || !(entries[n_entries].object = calloc(1, size)))
        abort(); /* the host has no memory left: no test is about that */
    entries[n_entries].kind = kind;
    *handle = (void *)((uintptr_t)++n_entries << 4);
    return entries[n_entries - 1].object;
}

static struct entry *find(const void *handle)
{
    uintptr_t number = (uintptr_t)handle >> 4;
    return (uintptr_t)handle % 16 || number < 1 || number > (uintptr_t)n_entries ? NULL : &entries[number - 1];
}

void *standin_get(enum kind kind, const void *handle, const char *function)
{
    const struct entry *e = find(handle);
    if (!e || e->kind != kind)
        standin_misuse(CUDA_ERROR_INVALID_HANDLE, "%s: %p is no %s", function, handle, kind_names[kind]);
    else if (!e->object)
        standin_misuse(CUDA_ERROR_INVALID_HANDLE, "%s: the %s was destroyed before", function, kind_names[kind]);
    return e && e->kind == kind ? e->object : NULL;
}

CUresult standin_delete(enum kind kind, const void *handle, const char *function)
{
    if (!standin_get(kind, handle, function))
        return CUDA_ERROR_INVALID_HANDLE;
    struct entry *e = find(handle);
    free(e->object);
    e->object = NULL;
    return CUDA_SUCCESS;
}

void standin_counts(struct standin_counts *counts)
{
    pthread_mutex_lock(&lock);
    *counts = standin.counts;
    pthread_mutex_unlock(&lock);
}

void standin_get_facts(struct standin_facts *facts) { *facts = standin.facts; }
void standin_set_facts(const struct standin_facts *facts) { standin.facts = *facts; }

void standin_fail(const char *function, int nth, CUresult error)
{
    for (int i = 0; i < FAULTS; i++)
        if (!faults[i].rest) {
            snprintf(faults[i].function, sizeof(faults[i].function), "%s", function);
            faults[i].rest = nth;
            faults[i].error = error;
            return;
        }
}

int standin_pending(void)
{
    int n = 0;
    for (int i = 0; i < FAULTS; i++)
        n += faults[i].rest > 0;
    return n;
}

int standin_misuses(char *text, size_t size)
{
    snprintf(text, size, "%s", standin.n_misuses ? standin.misuse : "");
    return standin.n_misuses;
}

void standin_clear_misuses(void) { standin.n_misuses = 0; }

int standin_leaks(char *text, size_t size)
{
    int n = 0;
    text[0] = 0;
    if (standin.lost)
        return 0;
    for (int i = 0; i < n_entries; i++)
        if (entries[i].object && entries[i].kind != KIND_FUNCTION && !n++)
            snprintf(text, size, "a %s", kind_names[entries[i].kind]);
    for (int i = 0; i < standin.n_blocks; i++)
        if (!n++)
            snprintf(text, size, "%zu bytes of %s memory", standin.blocks[i]->size, standin.blocks[i]->host ? "host" : "device");
    if (standin.retained && !n++)
        snprintf(text, size, "the primary context");
    return n;
}

static void drop_objects(void)
{
    for (int i = 0; i < n_entries; i++) {
        struct stream *s = entries[i].kind == KIND_STREAM ? entries[i].object : NULL;
        for (int k = s ? s->head : 0; s && k < s->n; k++)
            free(s->queue[k].launch.memory);
        free(s ? s->queue : NULL);
        struct graph *g = entries[i].kind == KIND_GRAPH || entries[i].kind == KIND_EXEC ? entries[i].object : NULL;
        for (int k = 0; g && k < g->n; k++)
            free(g->nodes[k].memory);
        free(g ? g->nodes : NULL);
        free(entries[i].object);
    }
    n_entries = 0;
    while (standin.n_blocks)
        standin_release(standin.blocks[0]);
}

void standin_reset(void)
{
    pthread_mutex_lock(&lock);
    struct standin_facts facts = standin.facts;
    drop_objects();
    free(standin.blocks);
    memset(&standin, 0, sizeof(standin));
    memset(faults, 0, sizeof(faults));
    standin.facts = facts;
    standin_forget_context();
    pthread_mutex_unlock(&lock);
}

/* For programs that call none of standin.h's functions: a line in the file TERN_STANDIN_REPORT when the driver is closed. */
__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("TERN_STANDIN_REPORT");
    const struct standin_counts *c = &standin.counts;
    FILE *f = path ? fopen(path, "a") : NULL;
    char leak[200];
    if (!f)
        return;
    fprintf(
        f,
        "%llu launches, %llu graphs of %llu launches, %llu synchronisations, %llu allocations, %llu frees, %llu copies in, %llu out, %llu "
        "modules, %d misuses%s%s, %d left\n",
        (unsigned long long)c->launches, (unsigned long long)c->graph_launches, (unsigned long long)c->graph_kernels,
        (unsigned long long)c->synchronisations, (unsigned long long)c->allocations, (unsigned long long)c->frees,
        (unsigned long long)c->copies_in, (unsigned long long)c->copies_out, (unsigned long long)c->modules, standin.n_misuses,
        standin.n_misuses ? ": " : "", standin.n_misuses ? standin.misuse : "", standin_leaks(leak, sizeof(leak)));
    fclose(f);
}

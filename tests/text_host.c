/* Groups of coroutines (ucontext) that run an expanded kernel text. */
#include "tests/text_host.h"

#include <dlfcn.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "ops/kernels/host_item.h"
#include "ops/kernels/params.h"
#include "tests/matrix_units.h"

#if defined(__SANITIZE_ADDRESS__)
#define FIBERS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBERS 1
#endif
#endif
#ifdef FIBERS
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define UNPOISON(address, size) ASAN_UNPOISON_MEMORY_REGION(address, size)
#else
#define UNPOISON(address, size) (void)0
#endif

extern char **environ;

enum { STACK = 256 << 10, MAX_ITEMS = 1024, MAX_SHARED = 8 };

struct text_host {
    void *library;
    const struct tern_host_info *info;
    tern_host_kernel kernel;
};

/* ---- compiling ---- */

/* The compiler of the build, with its sanitizers if any; its messages go to `log`. The linker is called by itself: the compiler as its
 * driver starts itself twice, which takes as long as most texts. What a text lacks the program has: libc, libm, the sanitizers. */
static bool compile(const char *source, const char *object, const char *library, const char *log)
{
    char command[4096];
    snprintf(command, sizeof(command),
             "{ " TERN_TEXT_CC " -std=gnu11 -g -Wall -Wextra -Wno-unused -Wno-parentheses -Werror -ffp-contract=off -fPIC -c -o %s %s && "
             "ld -shared -o %s %s; } >%s 2>&1",
             object, source, library, object, log);
    char *const arguments[] = {(char[]){"sh"}, (char[]){"-c"}, command, NULL};
    pid_t pid;
    int status;
    return !posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ) && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           !WEXITSTATUS(status);
}

static void read_start(const char *path, char *message, size_t size)
{
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(message, 1, size - 1, f) : 0;
    message[n] = 0;
    if (f)
        fclose(f);
}

static bool write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    bool good = f && fputs(text, f) >= 0;
    return f && !fclose(f) && good;
}

struct text_host *text_host_load(const char *source, char *message, size_t size)
{
    char folder[] = "/tmp/tern-text-XXXXXX", path[4][64];
    static const char *const files[4] = {"kernel.c", "kernel.o", "kernel.so", "log"};
    struct text_host *k = calloc(1, sizeof(*k));
    if (!k || !mkdtemp(folder)) {
        snprintf(message, size, "no memory, or no temporary folder");
        free(k);
        return NULL;
    }
    for (int i = 0; i < 4; i++)
        snprintf(path[i], sizeof(path[i]), "%s/%s", folder, files[i]);
    message[0] = 0;
    if (!write_file(path[0], source) || !compile(path[0], path[1], path[2], path[3]))
        read_start(path[3], message, size);
    else if (!(k->library = dlopen(path[2], RTLD_NOW | RTLD_LOCAL)))
        snprintf(message, size, "%s", dlerror());
    if (k->library) {
        *(void **)&k->kernel = dlsym(k->library, "tern_kernel");
        k->info = dlsym(k->library, "tern_kernel_info");
    }
    for (int i = 0; i < 4; i++)
        unlink(path[i]);
    rmdir(folder);
    if (!k->kernel || !k->info) {
        if (!message[0])
            snprintf(message, size, "the kernel could not be compiled");
        text_host_free(&k);
    }
    return k;
}

void text_host_free(struct text_host **k)
{
    if (*k && (*k)->library)
        dlclose((*k)->library);
    free(*k);
    *k = NULL;
}

/* ---- running ---- */

struct coroutine {
    struct tern_host_item item;
    ucontext_t context;
    void *stack;
    void *fake_stack;
    bool done;
    int line;             /* of the barrier or exchange it waits at; 0: none yet */
    int subgroup, mask;   /* of the exchange; 0: it waits at a barrier */
    uint32_t bits, other; /* what it gives, and what it gets */
};

struct group {
    const struct text_host *k;
    const void *params;
    const struct text_buffer *buffers;
    void *bases[TERN_MAX_SLOTS];
    int n_buffers, n_items;
    struct coroutine *items;
    struct coroutine *running;
    ucontext_t scheduler;
    void *fake_stack;
    const void *scheduler_stack;
    size_t scheduler_size;
    void *shared[MAX_SHARED];
    size_t shared_size[MAX_SHARED];
    struct matrix_units units;
    char *message;
    size_t size;
    long outside;
    bool bad;
};

static void fail(struct group *g, const char *what, int line)
{
    if (!g->bad)
        snprintf(g->message, g->size, "%s in line %d of the expanded source, item (%d, %d), group (%d, %d, %d)", what, line,
                 g->running->item.local[0], g->running->item.local[1], g->running->item.group[0], g->running->item.group[1],
                 g->running->item.group[2]);
    g->bad = true;
}

/* From the coroutine to the scheduler. */
static void leave(struct coroutine *c, struct group *g, bool done)
{
    c->done = done;
#ifdef FIBERS
    __sanitizer_start_switch_fiber(done ? NULL : &c->fake_stack, g->scheduler_stack, g->scheduler_size);
#endif
    swapcontext(&c->context, &g->scheduler);
#ifdef FIBERS
    __sanitizer_finish_switch_fiber(c->fake_stack, &g->scheduler_stack, &g->scheduler_size);
#endif
}

static void enter(struct coroutine *c, struct group *g)
{
    g->running = c;
#ifdef FIBERS
    __sanitizer_start_switch_fiber(&g->fake_stack, c->stack, STACK);
#endif
    swapcontext(&g->scheduler, &c->context);
#ifdef FIBERS
    __sanitizer_finish_switch_fiber(g->fake_stack, NULL, NULL);
#endif
}

static void barrier(struct tern_host_item *item, int line)
{
    struct coroutine *c = (struct coroutine *)item;
    c->line = line;
    c->subgroup = 0;
    leave(c, item->runner, false);
}

static uint32_t exchange(struct tern_host_item *item, uint32_t bits, int mask, int subgroup, int line)
{
    struct coroutine *c = (struct coroutine *)item;
    c->line = line;
    c->subgroup = subgroup;
    c->mask = mask;
    c->bits = bits;
    leave(c, item->runner, false);
    return c->other;
}

static void *shared(struct tern_host_item *item, int index, size_t size)
{
    struct group *g = item->runner;
    if (index >= MAX_SHARED)
        abort();
    if (!g->shared[index]) {
        g->shared[index] = malloc(size);
        if (!g->shared[index])
            abort();
        g->shared_size[index] = size;
        memset(g->shared[index], 0xFF, size);
    }
    return g->shared[index];
}

static void matrix(struct tern_host_item *item, const struct tern_host_matrix *m)
{
    struct group *g = item->runner;
    const char *from = NULL, *to = NULL;
    for (int i = 0; i < MAX_SHARED; i++)
        if (g->shared[i] && g->shared[i] == m->tile) {
            from = g->shared[i];
            to = from + g->shared_size[i];
        }
    const char *wrong = matrix_units_word(&g->units, item->local[1] * g->k->info->group_size[0] + item->local[0], m, from, to);
    if (wrong) {
        fail(g, wrong, m->line);
        leave((struct coroutine *)item, g, false);
    }
}

static int inside(struct tern_host_item *item, int slot, int64_t index, size_t size, int line)
{
    struct group *g = item->runner;
    char what[128];
    if (slot < g->n_buffers && index >= 0) {
        size_t at = (size_t)index * size, begin = g->buffers[slot].begin / size * size;
        size_t end = (g->buffers[slot].end + size - 1) / size * size;
        if (at >= begin && at < end)
            return 1;
    }
    g->outside++;
    snprintf(what, sizeof(what), "element %lld of %zu bytes of slot %d is outside", (long long)index, size, slot);
    fail(g, what, line);
    return 0;
}

static void start(unsigned low, unsigned high)
{
    struct coroutine *c = (struct coroutine *)((uintptr_t)low | (uintptr_t)high << 16 << 16);
    struct group *g = c->item.runner;
#ifdef FIBERS
    __sanitizer_finish_switch_fiber(NULL, &g->scheduler_stack, &g->scheduler_size);
#endif
    g->k->kernel(&c->item, g->params, g->bases);
    leave(c, g, true);
}

static void reset(struct group *g, const int at[3], const int groups[3])
{
    for (int i = 0; i < g->n_items; i++) {
        struct coroutine *c = &g->items[i];
        int width = g->k->info->group_size[0];
        c->item = (struct tern_host_item){.local = {i % width, i / width},
                                          .group = {at[0], at[1], at[2]},
                                          .groups = {groups[0], groups[1], groups[2]},
                                          .runner = g,
                                          .barrier = barrier,
                                          .exchange = exchange,
                                          .shared = shared,
                                          .inside = inside,
                                          .matrix = matrix};
        c->done = false;
        c->line = c->subgroup = 0;
        c->fake_stack = NULL;
        getcontext(&c->context);
        c->context.uc_stack.ss_sp = c->stack;
        c->context.uc_stack.ss_size = STACK;
        c->context.uc_link = NULL;
        makecontext(&c->context, (void (*)(void))start, 2, (unsigned)(uintptr_t)c, (unsigned)((uintptr_t)c >> 16 >> 16));
        c->context.uc_stack.ss_size = 0; /* else ASan unpoisons the whole stack at every switch to it */
    }
}

static int pick(enum text_order order, int i, int n)
{
    return order == TEXT_FORWARD   ? i
           : order == TEXT_REVERSE ? n - 1 - i
                                   : (int)((unsigned)i * 2654435761u % 1048573u % 7919u * 31u + (unsigned)i) % n;
}

/* Every item that may go on, up to where it waits or ends. */
static void run_items(struct group *g, enum text_order order)
{
    unsigned char seen[MAX_ITEMS] = {0};
    for (int i = 0; i < g->n_items; i++) {
        int at = pick(order, i, g->n_items);
        while (seen[at]) /* an order without order may name one twice: the next that was not */
            at = (at + 1) % g->n_items;
        seen[at] = 1;
        if (!g->items[at].done && !g->items[at].line)
            enter(&g->items[at], g);
    }
}

/* Subgroups at an exchange go on: all items of one must be there, in one line, with one mask. False when there is none. */
static bool release_subgroups(struct group *g)
{
    int n = 0;
    for (int i = 0; i < g->n_items && !n; i++)
        n = g->items[i].done || !g->items[i].line ? 0 : g->items[i].subgroup;
    for (int i = 0; n && i < g->n_items && !g->bad; i++) {
        struct coroutine *c = &g->items[i], *first = &g->items[i - i % n];
        bool waits = !c->done && c->subgroup, others = !first->done && first->subgroup;
        g->running = c;
        if (g->n_items % n || waits != others || (waits && (c->line != first->line || c->mask != first->mask || c->mask >= n)))
            fail(g, "an exchange that not all items of the subgroup reach", c->line);
        else if (waits)
            c->other = g->items[i ^ c->mask].bits;
    }
    for (int i = 0; n && i < g->n_items; i++)
        if (!g->items[i].done && g->items[i].subgroup)
            g->items[i].line = 0;
    return n > 0;
}

/* All items that have not ended wait at one barrier: they go on. */
static void release_barrier(struct group *g)
{
    int waiting = 0, line = 0, rest = 0;
    for (int i = 0; i < g->n_items; i++) {
        struct coroutine *c = &g->items[i];
        rest += !c->done;
        if (c->done || !c->line)
            continue;
        g->running = c;
        if (waiting++ && c->line != line)
            fail(g, "items of a group wait at different barriers, one", c->line);
        line = c->line;
        c->line = 0;
    }
    if (waiting && rest != g->n_items)
        fail(g, "a barrier that not all items of the group reach", line);
    const char *wrong = g->bad ? NULL : matrix_units_barrier(&g->units);
    if (wrong)
        fail(g, wrong, line);
}

static bool all_done(const struct group *g)
{
    for (int i = 0; i < g->n_items; i++)
        if (!g->items[i].done)
            return false;
    return true;
}

static void run_group(struct group *g, enum text_order order)
{
    while (!all_done(g) && !g->bad) {
        run_items(g, order);
        if (!release_subgroups(g))
            release_barrier(g);
    }
    for (int i = 0; i < MAX_SHARED; i++) {
        free(g->shared[i]);
        g->shared[i] = NULL;
    }
}

static bool check(struct group *g, size_t params_size)
{
    const struct tern_host_info *info = g->k->info;
    g->n_items = info->group_size[0] * info->group_size[1];
    if (params_size != info->params_size)
        snprintf(g->message, g->size, "the parameters are %zu bytes on the host, %zu in the text", params_size, info->params_size);
    else if (g->n_items < 1 || g->n_items > MAX_ITEMS || g->n_buffers > TERN_MAX_SLOTS)
        snprintf(g->message, g->size, "a group of %d items, %d buffers", g->n_items, g->n_buffers);
    else
        return true;
    return false;
}

/* Memory for the stacks of MAX_ITEMS items, kept: page faults of new ones took longer than most kernels. */
static char *stacks_of_all(void)
{
    static char *stacks;
    if (!stacks) {
        stacks = mmap(NULL, (size_t)MAX_ITEMS * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED)
            abort();
    }
    return stacks;
}

bool text_host_run(struct text_host *k, const int groups[3], const void *params, size_t params_size, const struct text_buffer *buffers,
                   int n_buffers, enum text_order order, char *message, size_t size)
{
    struct group g = {.k = k,
                      .params = params,
                      .buffers = buffers,
                      .n_buffers = n_buffers,
                      .message = message,
                      .size = size,
                      .units = {.early = order == TEXT_SHUFFLED}};
    if (!check(&g, params_size))
        return false;
    for (int i = 0; i < n_buffers; i++)
        g.bases[i] = buffers[i].base;
    g.items = calloc((size_t)g.n_items, sizeof(*g.items));
    char *stacks = stacks_of_all();
    if (!g.items)
        abort();
    for (int i = 0; i < g.n_items; i++)
        g.items[i].stack = stacks + (size_t)i * STACK;
    for (int z = 0; z < groups[2] && !g.bad; z++)
        for (int y = 0; y < groups[1] && !g.bad; y++)
            for (int x = 0; x < groups[0] && !g.bad; x++) {
                reset(&g, (const int[3]){x, y, z}, groups);
                matrix_units_start(&g.units, g.n_items, k->info->subgroup);
                run_group(&g, order);
            }
    if (g.bad) /* items that were left where they were have frames there */
        UNPOISON(stacks, (size_t)g.n_items * STACK);
    matrix_units_clear(&g.units);
    free(g.items);
    return !g.bad;
}

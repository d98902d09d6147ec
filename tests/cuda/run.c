/* Runs a kernel of the stand-in driver: group after group, every item of a group a coroutine where the text has barriers. Memory that is
 * not there ends the kernel with an error. */
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "tests/cuda/inside.h"
#include "tests/matrix_units.h"

enum { STACK = 64 << 10, ITEMS = 1024, WARP = 32 };

/* Begun by makecontext, gone on with by longjmp, which asks nothing of the system. */
static struct coroutine {
    struct standin_item item;
    jmp_buf at;
    bool begun, done;
    int line; /* of the barrier or exchange it waits at; 0: it may go on */
    bool exchanges;
    int mask;
    unsigned bits, other; /* what it gives, and what it gets */
} items[ITEMS];
static struct coroutine *running;
static jmp_buf scheduler;
static sigjmp_buf escape;
static char *stacks;
static const struct launch *launch;
static struct matrix_units units;
static const char *wrong; /* with the matrix units */

static void wait_at(struct coroutine *c, int line, bool exchanges)
{
    c->line = line;
    c->exchanges = exchanges;
    if (!_setjmp(c->at))
        _longjmp(scheduler, 1);
}

static void barrier(int line) { wait_at(running, line, false); }

static unsigned exchange(unsigned bits, int mask, int line)
{
    struct coroutine *c = running;
    c->bits = bits;
    c->mask = mask;
    wait_at(c, line, true);
    return c->other;
}

/* The item of a misuse waits for ever. */
static void matrix(int word, int *x, int a, int b, int kind, int b_kind, void *tile, int i, int pitch, int line)
{
    const struct tern_host_matrix m = {
        .word = word, .x = x, .a = a, .b = b, .kind = kind, .b_kind = b_kind, .tile = tile, .i = i, .pitch = pitch, .line = line};
    if (!wrong)
        wrong = matrix_units_word(&units, (int)(running - items), &m, launch->kernel.shared, launch->kernel.shared_end);
    if (wrong)
        _longjmp(scheduler, 1);
}

static void start(void)
{
    launch->kernel.invoke((void **)launch->arguments);
    running->done = true;
    _longjmp(scheduler, 1);
}

static void go_on(struct coroutine *c)
{
    static ucontext_t context, unused;
    running = c;
    *launch->kernel.now = &c->item;
    if (_setjmp(scheduler))
        return;
    if (c->begun)
        _longjmp(c->at, 1);
    c->begun = true;
    getcontext(&context);
    context.uc_stack.ss_sp = stacks + (size_t)(c - items) * STACK;
    context.uc_stack.ss_size = STACK;
    context.uc_link = NULL;
    makecontext(&context, start, 0);
    swapcontext(&unused, &context);
}

/* Warps at an exchange go on: all their lanes must be there. */
static CUresult release_warps(int n, int *released)
{
    *released = 0;
    for (int i = 0; i < n; i++) {
        struct coroutine *c = &items[i], *first = &items[i - i % WARP];
        bool waits = !c->done && c->exchanges, others = !first->done && first->exchanges;
        if (waits != others || (waits && (c->line != first->line || c->mask != first->mask || c->mask >= WARP || n % WARP)))
            return standin_misuse(CUDA_ERROR_LAUNCH_FAILED, "an exchange that not all lanes of a warp reach");
        if (waits)
            c->other = items[i ^ c->mask].bits;
    }
    for (int i = 0; i < n; i++)
        if (!items[i].done && items[i].exchanges) {
            items[i].line = 0;
            ++*released;
        }
    return CUDA_SUCCESS;
}

/* All items wait at one barrier: they go on. */
static CUresult release_barrier(int n)
{
    int waiting = 0, line = 0;
    for (int i = 0; i < n; i++) {
        if (items[i].done)
            continue;
        if (waiting++ && items[i].line != line)
            return standin_misuse(CUDA_ERROR_LAUNCH_FAILED, "items of a block wait at different barriers");
        line = items[i].line;
        items[i].line = 0;
    }
    if (waiting && waiting != n)
        return standin_misuse(CUDA_ERROR_LAUNCH_FAILED, "a barrier that not all items of a block reach");
    wrong = matrix_units_barrier(&units);
    return wrong ? standin_misuse(CUDA_ERROR_LAUNCH_FAILED, "%s", wrong) : CUDA_SUCCESS;
}

/* Every item up to where it waits or ends, until all have ended. */
static CUresult run_items(int n)
{
    CUresult error = CUDA_SUCCESS;
    for (int rest = n, released = 0; rest && !error;) {
        for (int k = 0; k < n; k++) {
            struct coroutine *c = &items[standin.facts.order ? n - 1 - k : k];
            if (c->done || c->line)
                continue;
            go_on(c);
            if (wrong)
                return standin_misuse(CUDA_ERROR_LAUNCH_FAILED, "%s", wrong);
            rest -= c->done;
        }
        error = release_warps(n, &released);
        if (!error && !released)
            error = release_barrier(n);
    }
    return error;
}

static void run_plain(int n)
{
    if (!launch->kernel.now) { /* a function of the host */
        launch->kernel.invoke((void **)launch->arguments);
        return;
    }
    for (int k = 0; k < n; k++) {
        *launch->kernel.now = &items[standin.facts.order ? n - 1 - k : k].item;
        launch->kernel.invoke((void **)launch->arguments);
    }
}

static CUresult run_group(unsigned x, unsigned y, unsigned z, int n)
{
    if (launch->kernel.shared)
        memset(launch->kernel.shared, 0xFF, (size_t)(launch->kernel.shared_end - launch->kernel.shared));
    for (int i = 0; i < n; i++) {
        items[i].item.group = (struct standin_three){x, y, z};
        items[i].begun = items[i].done = items[i].exchanges = false;
        items[i].line = 0;
    }
    wrong = NULL;
    matrix_units_start(&units, n, n % 32 ? 0 : 32);
    if (launch->kernel.barriers)
        return run_items(n);
    run_plain(n);
    return CUDA_SUCCESS;
}

static CUresult run_groups(void)
{
    const struct standin_three *size = &launch->size, *groups = &launch->groups;
    int n = (int)(size->x * size->y * size->z);
    for (int i = 0; i < n; i++) {
        unsigned u = (unsigned)i;
        items[i].item =
            (struct standin_item){.thread = {u % size->x, u / size->x % size->y, u / size->x / size->y}, .size = *size, .groups = *groups};
    }
    if (launch->kernel.barrier)
        *launch->kernel.barrier = barrier;
    if (launch->kernel.exchange)
        *launch->kernel.exchange = exchange;
    if (launch->kernel.matrix)
        *launch->kernel.matrix = matrix;
    CUresult error = CUDA_SUCCESS;
    for (unsigned z = 0; z < groups->z && !error; z++)
        for (unsigned y = 0; y < groups->y && !error; y++)
            for (unsigned x = 0; x < groups->x && !error; x++)
                error = run_group(x, y, z, n);
    return error;
}

static void on_fault(int signal) { siglongjmp(escape, 1); }

CUresult standin_run_kernel(const struct launch *l)
{
    struct sigaction act = {.sa_handler = on_fault}, before[2];
    if (!stacks)
        stacks = mmap(NULL, (size_t)ITEMS * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED || l->size.x * l->size.y * l->size.z > ITEMS)
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    launch = l;
    sigaction(SIGSEGV, &act, &before[0]);
    sigaction(SIGBUS, &act, &before[1]);
    CUresult error = sigsetjmp(escape, 1) ? CUDA_ERROR_ILLEGAL_ADDRESS : run_groups();
    sigaction(SIGSEGV, &before[0], NULL);
    sigaction(SIGBUS, &before[1], NULL);
    return error;
}

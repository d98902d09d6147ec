/* What the CPU does at most: multiplications and additions in registers, and bytes from and to memory, each on all threads.
 * Profiles compare kernels with it. */
#include <cpuinfo.h>
#include <math.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "core/threads.h"

/* There are three races, and one each for bf16 and int8 where the level has instructions for them, of BINS x BIN_SECONDS: of operations,
 * and of bytes, reading and writing in place and reading alone. Filling the buffer takes about 0.05 s more. */
#define BIN_SECONDS 0.002
#define BINS 30
#define TASK_SECONDS 8e-6       /* of operations: few in a bin are cut by its ends, and looking at the clock between them takes no share */
#define TILE ((int64_t)1 << 16) /* values of one task */
#define LEAST_BUFFER ((size_t)32 << 20)
#define MOST_BUFFER ((size_t)256 << 20) /* a tile for each of 1024 threads, the most of a context */

/* All threads do small tasks until the time is over. They count them by when they end, and the fullest bin tells the rate: on a
 * busy machine one in which all threads ran, and no time is lost with waking them. */
struct race {
    const struct tern_cpu_level *level;
    void (*task)(const struct race *r, int slot, int64_t i);
    double (*multiply_add)(int64_t rounds, float *sum); /* of races of operations */
    int64_t rounds;                                     /* of a task */
    float *x;
    int64_t tiles; /* of each slot */
    double begin;
    int64_t ended[BINS]; /* atomic */
};

static void compute(const struct race *r, int slot, int64_t i)
{
    float sum;
    r->multiply_add(r->rounds, &sum);
}

/* A slot goes round in its own part of the buffer: when a tile comes again all others were used, and it is in no cache. */
static float *tile_of(const struct race *r, int slot, int64_t i) { return r->x + (slot * r->tiles + i % r->tiles) * TILE; }

static void read_only(const struct race *r, int slot, int64_t i) { r->level->sum(TILE, tile_of(r, slot, i)); }

static void read_and_write(const struct race *r, int slot, int64_t i)
{
    float *x = tile_of(r, slot, i);
    r->level->unary[TERN_CPU_NEG](TILE, x, x, 0);
}

static void run_until_the_end(void *arg, int slot, int64_t unused)
{
    struct race *r = arg;
    int64_t ended = 0; /* in a bin: threads meet in memory as seldom as bins end */
    int last = 0;
    for (int64_t i = 0;; i++, ended++) {
        r->task(r, slot, i);
        const double bin = (tern_now() - r->begin) / BIN_SECONDS;
        if (bin >= last + 1) {
            __atomic_add_fetch(&r->ended[last], ended, __ATOMIC_RELAXED);
            ended = 0;
            last = (int)fmin(bin, BINS);
        }
        if (last == BINS)
            return;
    }
}

/* Tasks a second. */
static double rate_of(struct tern_context *ctx, struct race *r, void (*task)(const struct race *, int, int64_t))
{
    int64_t most = 0;
    r->task = task;
    memset(r->ended, 0, sizeof(r->ended));
    r->begin = tern_now();
    tern_parallel_slots(ctx, tern_thread_count(ctx), run_until_the_end, r);
    for (int i = 0; i < BINS; i++)
        most = r->ended[i] > most ? r->ended[i] : most;
    return (double)most / BIN_SECONDS;
}

static void fill(void *arg, int64_t begin, int64_t end) { memset((float *)arg + begin, 0, (size_t)(end - begin) * sizeof(float)); }

/* The faster of reading, and of reading and writing in place. Writing comes first: the buffer was just written, so that from the
 * start the caches write back as much as they take. */
static enum tern_status measure_bytes(struct tern_context *ctx, size_t size, double *best)
{
    int64_t n = (int64_t)(size / sizeof(float));
    struct race r = {.level = cpu_level(ctx), .x = tern_alloc(ctx, size), .tiles = n / TILE / tern_thread_count(ctx)};
    if (!r.x)
        return tern_error_status(ctx);
    tern_parallel(ctx, n, TILE, fill, r.x);
    double both = 2 * rate_of(ctx, &r, read_and_write), one = rate_of(ctx, &r, read_only);
    *best = (one > both ? one : both) * TILE * sizeof(float);
    tern_free(ctx, r.x);
    tern_pages_trim(&ctx->pages, 0);
    return TERN_OK;
}

/* Operations a second; multiply_add: of the level, or NULL. */
static double measure_operations(struct tern_context *ctx, double (*multiply_add)(int64_t rounds, float *sum))
{
    struct race r = {.level = cpu_level(ctx), .multiply_add = multiply_add, .rounds = 64};
    double seconds = 0, operations = 0;
    float sum;
    while (multiply_add && seconds < TASK_SECONDS) {
        r.rounds *= 2;
        seconds = INFINITY;
        for (int turn = 0; turn < 2; turn++) { /* of which one may be interrupted */
            const double begin = tern_now();
            operations = multiply_add(r.rounds, &sum);
            seconds = fmin(seconds, tern_now() - begin);
        }
    }
    return multiply_add ? rate_of(ctx, &r, compute) * operations : 0;
}

/* Four times the last caches, and a tile for each thread. */
static size_t buffer_size(const struct cpu_device *d)
{
    size_t last = 0, tile = TILE * sizeof(float), threads = (size_t)tern_thread_count(d->base.ctx);
    for (uint32_t i = 0; cpuinfo_initialize() && i < cpuinfo_get_l3_caches_count(); i++)
        last += cpuinfo_get_l3_cache(i)->size;
    if (!last)
        last = d->l2 * threads;
    size_t size = last < MOST_BUFFER / 4 ? 4 * last : MOST_BUFFER;
    return size < LEAST_BUFFER ? LEAST_BUFFER : size < threads * tile ? threads * tile : size;
}

static bool has_room(struct tern_context *ctx, size_t size)
{
    size_t budget = ctx->params.budget, used = tern_memory_used(ctx), page = 4096; /* for the block's header */
    return !budget || (used < budget && budget - used > size + page);
}

static enum tern_status measure(struct cpu_device *d, size_t size)
{
    struct tern_context *ctx = d->base.ctx;
    struct tern_device_peak peak = {0};
    size_t before = tern_memory_peak(ctx);
    enum tern_status st = measure_bytes(ctx, size, &peak.bytes);
    tern_memory_reset_peak(ctx); /* the buffer is no part of what the caller computes */
    tern_memory_raise_peak(ctx, before);
    if (st)
        return st;
    const struct tern_cpu_level *l = cpu_level(ctx);
    peak.flops = measure_operations(ctx, l->multiply_add);
    peak.flops_bf16 = l->bf16.dot.step ? measure_operations(ctx, l->bf16.multiply_add) : 0;
    peak.ops_i8 = measure_operations(ctx, l->i8.multiply_add);
    d->peak = peak;
    return TERN_OK;
}

enum tern_status tern_cpu_peak(struct tern_device *device, struct tern_device_peak *out)
{
    struct cpu_device *d = (struct cpu_device *)device;
    struct tern_context *ctx = device->ctx;
    size_t size = buffer_size(d);
    enum tern_status st = TERN_OK;
    bool room = true;
    pthread_mutex_lock(&d->peak_lock);
    if (d->peak.flops == 0) {
        if (!has_room(ctx, size))
            tern_memory_trim(ctx);
        room = has_room(ctx, size);
        st = room ? measure(d, size) : TERN_OK;
    }
    *out = d->peak;
    pthread_mutex_unlock(&d->peak_lock);
    if (!room) /* said without the lock: the callback may ask again */
        tern_message(ctx, TERN_LOG_INFO, "the peak of the CPU is not measured: that takes %zu bytes, the budget of %zu has no room", size,
                     ctx->params.budget);
    return st;
}

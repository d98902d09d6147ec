/* Which kernel of a description is the fastest: each runs on random operands of its shapes, in turns with the others. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "ops/dispatch.h"
#include "ops/reference.h"
#include "ops/tuner.h"

#define CLOSE 4.0      /* at the level fast: kernels that cost up to so many times what the cheapest does */
#define TURNS 7        /* most samples of a kernel */
#define LEAST_TURNS 3  /* before a kernel falls out by its best sample */
#define OUT_AT_ONCE 2  /* times the best: it falls out after its first sample */
#define AGAIN 2        /* more tries before that */
#define SHORT 0.02     /* for calls of less seconds: others may have had the processor */
#define OUT_LATER 1.15 /* by its best sample */
#define SAMPLE 1e-3    /* seconds that a sample takes at least: short kernels run several times */
#define MOST_CALLS 64
#define MARGIN 1.03   /* the cost model's choice stays unless another kernel is faster by more than noise */
#define PATTERN 16381 /* random values, repeated: a prime, so that rows differ */

struct runner {
    const struct tern_kernel *kernel;
    struct tern_buffer *packed, *workspace;
    size_t bytes;
    int calls, n; /* n: samples */
    double sample[TURNS];
    bool out; /* failed, or was too slow */
};

struct measure {
    struct tern_context *ctx;
    struct tern_device *device;
    const struct tern_op_desc *d;
    const struct tern_measure *how;
    struct tern_kernel_args args;
    struct tern_buffer *buffers[TERN_MAX_INPUTS + 1];
    void *pattern;
    size_t bytes; /* taken */
    struct runner runner[TERN_TUNE_CANDIDATES];
    int n;
};

/* Values in -1 .. 1; integers, which may be indices, are 0; bools are true, so that masks leave nothing out. */
static enum tern_status fill(struct measure *m, struct tern_buffer *b, enum tern_dtype dtype)
{
    uint64_t state = 0x853c49e6748fea9bu;
    size_t element = tern_dtype_size(dtype), size = b->size / element * element, block = PATTERN * element;
    for (int64_t i = 0; i < PATTERN; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        double unit = (double)(state >> 40) * 0x1p-23 - 1;
        tern_store(dtype, m->pattern, i, tern_dtype_is_float(dtype) ? unit : dtype == TERN_BOOL);
    }
    for (size_t at = 0; at < size; at += block)
        if (tern_buffer_write(b, at, m->pattern, size - at < block ? size - at : block))
            return tern_error_status(m->ctx);
    return TERN_OK;
}

static enum tern_status make_operands(struct measure *m)
{
    const struct tern_op_desc *d = m->d;
    m->pattern = tern_alloc(m->ctx, PATTERN * sizeof(double));
    m->args = (struct tern_kernel_args){.desc = d, .ctx = m->ctx};
    for (int i = 0; m->pattern && i < d->n_in; i++)
        if (d->present[i]) {
            m->buffers[i] = tern_buffer_create(m->device, tern_meta_bytes(&d->in[i]));
            m->args.in[i].buffer = m->buffers[i];
            if (!m->buffers[i] || fill(m, m->buffers[i], d->in[i].dtype))
                return tern_error_status(m->ctx);
        }
    struct tern_buffer *out = m->pattern ? tern_buffer_create(m->device, tern_meta_bytes(&d->out)) : NULL;
    m->buffers[TERN_MAX_INPUTS] = m->args.out.buffer = out;
    return out ? TERN_OK : tern_error_status(m->ctx);
}

static size_t operand_bytes(const struct tern_op_desc *d)
{
    size_t sum = tern_meta_bytes(&d->out);
    for (int i = 0; i < d->n_in; i++)
        sum += d->present[i] ? tern_meta_bytes(&d->in[i]) : 0;
    return sum;
}

static enum tern_status pack(struct measure *m, struct runner *r)
{
    const struct tern_kernel *k = r->kernel;
    return k->pack(m->ctx, m->d, tern_arg_host(&m->args.in[k->pack_input]), r->packed->host);
}

static void drop(struct measure *m, struct runner *r)
{
    tern_buffer_unref(&r->packed);
    tern_buffer_unref(&r->workspace);
    m->bytes -= r->bytes;
    r->bytes = 0;
    r->out = true;
}

/* Its memory, and weights in its form. */
static bool make(struct measure *m, struct runner *r)
{
    const struct tern_kernel *k = r->kernel;
    size_t packed = k->pack ? k->packed_size(m->ctx, m->d) : 0, workspace = k->workspace ? k->workspace(m->ctx, m->d) : 0;
    if (packed > m->how->bytes || workspace > m->how->bytes - packed || packed + workspace > m->how->bytes - m->bytes)
        return false;
    r->bytes = packed + workspace;
    m->bytes += r->bytes;
    if (k->pack && !(r->packed = tern_buffer_create(m->device, packed)))
        return false;
    if (workspace && !(r->workspace = tern_buffer_create(m->device, workspace)))
        return false;
    return !k->pack || !pack(m, r);
}

/* One call, with its packing when the operand is no constant. */
static enum tern_status launch(struct measure *m, struct runner *r)
{
    struct tern_kernel_args a = m->args;
    a.packed.buffer = r->packed;
    a.workspace.buffer = r->workspace;
    if (r->kernel->pack && !m->d->constant[r->kernel->pack_input] && pack(m, r))
        return tern_error_status(m->ctx);
    return m->device->queue->fns->launch(m->device->queue, r->kernel, &a);
}

/* Seconds of a call; -1 when it failed. */
static double time_of(struct measure *m, struct runner *r, int calls)
{
    struct tern_queue *q = m->device->queue;
    double start = tern_now();
    for (int i = 0; i < calls; i++)
        if (launch(m, r))
            return -1;
    return q->fns->finish(q) ? -1 : (tern_now() - start) / calls;
}

/* What a candidate does wrong only takes it out. True: the job is cancelled. */
static bool failed(struct measure *m, struct runner *r)
{
    bool cancelled = tern_error_status(m->ctx) == TERN_E_CANCELLED;
    if (tern_failed(m->ctx) && !cancelled) {
        tern_message(m->ctx, TERN_LOG_INFO, "tuning: %s is left out: %s", r->kernel->name, tern_error(m->ctx));
        tern_error_clear_own(m->ctx);
    }
    drop(m, r);
    return cancelled;
}

static double least(const struct runner *r)
{
    double best = r->sample[0];
    for (int i = 1; i < r->n; i++)
        best = r->sample[i] < best ? r->sample[i] : best;
    return best;
}

static double median(const struct runner *r)
{
    double sorted[TURNS];
    for (int i = 0; i < r->n; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > r->sample[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = r->sample[i];
    }
    return (sorted[(r->n - 1) / 2] + sorted[r->n / 2]) / 2;
}

/* The least sample of those in the running; 0: there is none. */
static double best_sample(const struct measure *m)
{
    double best = 0;
    for (int i = 0; i < m->n; i++)
        if (!m->runner[i].out && m->runner[i].n && (best == 0 || least(&m->runner[i]) < best))
            best = least(&m->runner[i]);
    return best;
}

static bool over(struct measure *m)
{
    if (tern_now() < m->how->until)
        return false;
    *m->how->cut = true;
    return true;
}

/* The first call finds memory and compiles, the second is a sample. True: to be broken off. */
static bool warm(struct measure *m, struct runner *r)
{
    if (over(m) || tern_check_cancel(m->ctx))
        return true;
    if (!make(m, r) || time_of(m, r, 1) < 0)
        return failed(m, r);
    if (over(m))
        return true;
    double best = best_sample(m), t = time_of(m, r, 1);
    for (int i = 0; i < AGAIN && t < SHORT && best > 0 && t > OUT_AT_ONCE * best; i++) {
        double other = time_of(m, r, 1);
        t = other < t ? other : t;
    }
    if (t < 0)
        return failed(m, r);
    r->calls = t >= SAMPLE ? 1 : t * MOST_CALLS <= SAMPLE ? MOST_CALLS : (int)(SAMPLE / t) + 1;
    r->sample[r->n++] = t;
    if (best > 0 && t > OUT_AT_ONCE * best)
        drop(m, r);
    return false;
}

/* One sample of each, and who is behind falls out. True: to be broken off. */
static bool turn(struct measure *m)
{
    for (int i = 0; i < m->n; i++) {
        struct runner *r = &m->runner[i];
        if (r->out)
            continue;
        if (over(m) || tern_check_cancel(m->ctx))
            return true;
        double t = time_of(m, r, r->calls);
        if (t < 0 && failed(m, r))
            return true;
        if (t >= 0)
            r->sample[r->n++] = t;
    }
    double best = best_sample(m);
    for (int i = 0; i < m->n; i++)
        if (!m->runner[i].out && m->runner[i].n >= LEAST_TURNS && least(&m->runner[i]) > OUT_LATER * best)
            drop(m, &m->runner[i]);
    return false;
}

static int in_the_running(const struct measure *m)
{
    int n = 0;
    for (int i = 0; i < m->n; i++)
        n += !m->runner[i].out;
    return n;
}

static uint64_t nanoseconds(double seconds) { return seconds < 9e5 ? (uint64_t)(seconds * 1e9) : (uint64_t)9e14; }

/* The first runner is the cost model's choice. */
static bool conclude(const struct measure *m, struct tern_tuned *out)
{
    const struct runner *best = NULL, *usual = &m->runner[0];
    for (int i = 0; i < m->n; i++)
        if (!m->runner[i].out && (!best || median(&m->runner[i]) < median(best)))
            best = &m->runner[i];
    if (!best)
        return false;
    if (!usual->out && median(usual) <= MARGIN * median(best))
        best = usual;
    out->level = (uint8_t)m->how->level;
    snprintf(out->kernel, sizeof(out->kernel), "%s", best->kernel->name);
    snprintf(out->usual, sizeof(out->usual), "%s", usual->kernel->name);
    out->time = nanoseconds(median(best));
    out->usual_time = usual->n ? nanoseconds(median(usual)) : 0;
    return true;
}

static bool run(struct measure *m, struct tern_tuned *out)
{
    if (make_operands(m)) {
        if (tern_error_status(m->ctx) != TERN_E_CANCELLED)
            tern_error_clear_own(m->ctx);
        return false;
    }
    for (int i = 0; i < m->n; i++)
        if (warm(m, &m->runner[i]))
            return false;
    for (int i = 1; i < TURNS && in_the_running(m) > 1; i++)
        if (turn(m))
            return false;
    return conclude(m, out);
}

bool tern_measure(struct tern_context *ctx, const struct tern_op_desc *d, const struct tern_measure *how, struct tern_tuned *out)
{
    struct tern_candidate list[TERN_TUNE_CANDIDATES];
    int n = tern_kernel_candidates(ctx->device, d, how->level == TERN_TUNE_FAST ? CLOSE : 0, list, TERN_TUNE_CANDIDATES);
    size_t operands = operand_bytes(d);
    if (n < 2 || operands > how->bytes)
        return false;
    if (tern_now() >= how->until) {
        *how->cut = true;
        return false;
    }
    struct measure *m = tern_calloc(ctx, 1, sizeof(*m));
    if (!m) {
        tern_error_clear_own(ctx);
        return false;
    }
    *m = (struct measure){.ctx = ctx, .device = ctx->device, .d = d, .how = how, .bytes = operands, .n = n};
    for (int i = 0; i < n; i++)
        m->runner[i].kernel = list[i].kernel;
    bool good = run(m, out);
    for (int i = 0; i < n; i++)
        drop(m, &m->runner[i]);
    for (int i = 0; i <= TERN_MAX_INPUTS; i++)
        tern_buffer_unref(&m->buffers[i]);
    tern_free(ctx, m->pattern);
    tern_free(ctx, m);
    return good;
}

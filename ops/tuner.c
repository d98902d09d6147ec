/* What a context knows of its kernels' times: read from a file, measured when it is missing, written back. */
#include "ops/tuner.h"

#include <stdio.h>
#include <string.h>

#include "core/cache.h"
#include "core/context.h"
#include "core/threads.h"
#include "ops/dispatch.h"
#include "ops/select.h"

#define FAST_SECONDS 5
#define MOST_BYTES ((size_t)1 << 30)
#define BALANCE 16     /* operations in the time of a byte, roughly, on CPUs and GPUs alike */
#define EAGER_WORK 1e8 /* of an eager call that is noticeable: some tenth of a millisecond of a CPU's core */

/* The device as far as times depend on it. */
static int add_device(struct tern_context *ctx, struct tern_tuning *known)
{
    struct tern_device *d = ctx->device;
    char text[TERN_TUNE_DEVICE];
    struct tern_key key = {{3, 4}};
    snprintf(text, sizeof(text), "%s%s%s, %d threads, tern " TERN_VERSION ": %s", d->name, d->level ? " " : "", d->level ? d->level : "",
             tern_thread_count(ctx), tern_device_identity(d));
    tern_key_add_text(&key, text);
    tern_key_add(&key, d->caps.max_buffer);
    return tern_tuning_device(ctx, known, tern_key_finish(key), text);
}

/* NULL where there is none. */
static char *path_of(struct tern_context *ctx, const struct tern_tuner *t)
{
    char name[TERN_KEY_TEXT + 8], text[TERN_KEY_TEXT];
    if (t->params.cache)
        return tern_strdup(ctx, t->params.cache);
    snprintf(name, sizeof(name), "%s.tune", tern_key_text(t->known.devices[0].key, text));
    return tern_cache_path(ctx, "tune", name);
}

/* False when the context has no memory for it. Whatever else is wrong with the file, as more devices than go beside this one: it is as good
 * as none. */
static bool read_file(struct tern_context *ctx, struct tern_tuner *t, struct tern_tuning *file)
{
    enum tern_status st = t->path ? tern_tuning_read(ctx, t->path, file) : TERN_OK;
    if (!st)
        st = tern_tuning_merge(ctx, &t->known, file);
    if (st == TERN_E_NO_MEMORY || st == TERN_E_BUDGET)
        return false;
    if (st && (st != TERN_E_NOT_FOUND || t->params.level == TERN_TUNE_OFF))
        tern_message(ctx, TERN_LOG_WARN, "what was measured before is not used: %s", tern_error(ctx));
    if (st) {
        tern_error_clear_own(ctx);
        tern_tuning_clear(ctx, file);
    }
    return true;
}

static bool has_own(const struct tern_tuning *t)
{
    for (int i = 0; i < t->n; i++)
        if (t->tuned[i].device == 0)
            return true;
    return false;
}

/* Others may have written the file since it was read: what they have found stays. */
static bool write_file(struct tern_context *ctx, struct tern_tuner *t)
{
    struct tern_tuning file = {0};
    if (tern_tuning_read(ctx, t->path, &file))
        tern_error_clear_own(ctx);
    const bool kept =
        !tern_tuning_merge(ctx, &t->known, &file) && !tern_cache_prepare(ctx, t->path) && !tern_tuning_write(ctx, t->path, &t->known);
    if (!kept && !t->told)
        tern_message(ctx, TERN_LOG_WARN, "what was measured is not kept: %s", tern_error(ctx));
    t->told = !kept;
    tern_error_clear_own(ctx);
    tern_tuning_clear(ctx, &file);
    return kept;
}

void tern_tuner_end(struct tern_context *ctx, struct tern_tuner *t)
{
    if (t->ran)
        tern_memory_trim(ctx); /* what a device keeps for reuse */
    t->ran = false;
    if (t->changed && (!t->path || (!tern_failed(ctx) && write_file(ctx, t)))) /* else the next one tries again */
        t->changed = false;
}

/* With the context: what eager ops measured is written now. */
static void destroy(struct tern_context *ctx)
{
    struct tern_tuner *t = ctx->tuner;
    tern_tuner_end(ctx, t);
    ctx->tuner = NULL;
    ctx->tuner_destroy = NULL;
    tern_tuning_clear(ctx, &t->known);
    tern_free(ctx, t->path);
    tern_free(ctx, t);
}

/* The defaults of the params, this device, and what the file says. False with the error recorded. */
static bool fill(struct tern_context *ctx, struct tern_tuner *t)
{
    struct tern_tuning file = {0};
    t->params = ctx->params.tune;
    if (t->params.seconds == 0)
        t->params.seconds = t->params.level == TERN_TUNE_FAST ? FAST_SECONDS : 1e9;
    t->time.left = t->eager_left = t->params.seconds;
    if (add_device(ctx, &t->known) < 0)
        return false;
    t->path = path_of(ctx, t);
    bool good = !tern_failed(ctx) && read_file(ctx, t, &file);
    if (good && file.n && !has_own(&t->known))
        tern_message(ctx, TERN_LOG_WARN, "%s: tuned for other devices, drivers, numbers of threads or versions of tern; this is \"%s\"",
                     t->path, t->known.devices[0].text);
    tern_tuning_clear(ctx, &file);
    return good;
}

uint64_t tern_tuner_mode(const struct tern_context *ctx)
{
    const struct tern_tune_params *p = &ctx->params.tune;
    if (ctx->device != ctx->own) /* what is kept is of the default device */
        return 0;
    return p->level == TERN_TUNE_OFF && p->cache ? 3 : (uint64_t)p->level;
}

struct tern_tuner *tern_tuner_get(struct tern_context *ctx)
{
    if (!tern_tuner_mode(ctx) || tern_dispatch_forced(ctx) || !ctx->device->caps.computes || tern_failed(ctx))
        return NULL;
    if (ctx->tuner)
        return ctx->tuner->measures ? NULL : ctx->tuner;
    ctx->tuner = tern_calloc(ctx, 1, sizeof(*ctx->tuner));
    if (!ctx->tuner)
        return NULL;
    ctx->tuner_destroy = destroy;
    if (!fill(ctx, ctx->tuner))
        destroy(ctx);
    return ctx->tuner;
}

struct tern_tuner_time tern_tuner_begin(struct tern_tuner *t)
{
    const struct tern_tuner_time before = t->time;
    t->time = (struct tern_tuner_time){.left = t->params.seconds};
    return before;
}

struct tern_key tern_tuner_key(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct tern_device *device = ctx->device;
    struct tern_key key = ctx->tuner->known.devices[0].key;
    tern_key_add_desc(&key, d);
    for (int i = 0; device->kernels[i]; i++) {
        const struct tern_kernel *k = device->kernels[i];
        if (k->op != d->op)
            continue;
        tern_key_add_text(&key, k->name);
        tern_key_add(&key, (uint64_t)k->revision);
        tern_key_add(&key, k->library ? k->library(device) : 0);
    }
    return tern_key_finish(key);
}

/* A file may name anything. */
static bool still_there(struct tern_context *ctx, const struct tern_op_desc *d, const struct tern_tuned *e)
{
    const struct tern_kernel *k = tern_kernel_find(ctx->device, e->kernel);
    return k && tern_kernel_takes(k, ctx->device, d) && k->supports(ctx->device, d);
}

const struct tern_tuned *tern_tuner_find(struct tern_context *ctx, struct tern_tuner *t, const struct tern_op_desc *d)
{
    const struct tern_tuned *e = tern_tuning_find(&t->known, tern_tuner_key(ctx, d));
    return e && e->device == 0 && still_there(ctx, d, e) ? e : NULL;
}

static size_t most_bytes(const struct tern_context *ctx, const struct tern_tuner *t)
{
    size_t budget = tern_memory_limit(ctx), used = tern_memory_used(ctx);
    return t->params.bytes ? t->params.bytes : !budget ? MOST_BYTES : budget > used ? (budget - used) / 2 : 1;
}

const struct tern_tuned *tern_tuner_measure(struct tern_context *ctx, struct tern_tuner *t, const struct tern_op_desc *d, bool noticeable,
                                            double *left)
{
    const struct tern_tuned *known = tern_tuner_find(ctx, t, d);
    if (tern_failed(ctx) || t->params.level == TERN_TUNE_OFF || (known && known->level >= t->params.level) ||
        (t->params.level == TERN_TUNE_FAST && !noticeable))
        return known;
    struct tern_tuned e = {.key = tern_tuner_key(ctx, d)};
    double start = tern_now();
    const struct tern_measure m = {t->params.level, start + *left, most_bytes(ctx, t), &t->time.cut};
    t->measures = true;
    bool good = tern_measure(ctx, d, &m, &e);
    t->measures = false;
    t->ran = true;
    *left -= tern_now() - start;
    if (!good)
        return known;
    if (tern_tuning_set(ctx, &t->known, &e)) {
        tern_error_clear_own(ctx); /* no room for results is no reason to fail */
        return known;
    }
    t->changed = true;
    return tern_tuning_find(&t->known, e.key);
}

double tern_tuner_work(const struct tern_op_desc *d) { return tern_desc_flops(d) + BALANCE * tern_desc_bytes(d); }

const struct tern_kernel *tern_tuner_eager(struct tern_context *ctx, const struct tern_op_desc *d, const struct tern_kernel *usual)
{
    struct tern_tuner *t = tern_tuner_get(ctx);
    const struct tern_tuned *e = t ? tern_tuner_measure(ctx, t, d, tern_tuner_work(d) >= EAGER_WORK, &t->eager_left) : NULL;
    const struct tern_kernel *k = e ? tern_kernel_find(ctx->device, e->kernel) : NULL;
    return k && !k->planned ? k : usual;
}

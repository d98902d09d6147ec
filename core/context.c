/* Making and ending a context. */
#include "core/context.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cores.h"
#include "core/files.h"
#include "core/line.h"
#include "core/registry.h"
#include "core/team.h"
#include "core/threads.h"

static _Thread_local const char *create_error = "";
static _Thread_local enum tern_status create_status;

const char *tern_create_error(void) { return create_error; }
enum tern_status tern_create_status(void) { return create_status; }

static struct tern_context *refuse(enum tern_status status, const char *message)
{
    create_status = status;
    create_error = message;
    return NULL;
}

static void context_free(struct tern_context *ctx)
{
    struct tern_allocator a = ctx->params.allocator;
    if (ctx->dispatch_destroy)
        ctx->dispatch_destroy(ctx);
    if (ctx->tuner_destroy)
        ctx->tuner_destroy(ctx);
    tern_scope_release_all(ctx);
    if (ctx->own && ctx->own != ctx->host)
        ctx->own->fns->destroy(ctx->own);
    if (ctx->host)
        ctx->host->fns->destroy(ctx->host);
    tern_team_destroy(ctx->team);
    tern_free(ctx, ctx->cache_dir);
    tern_free(ctx, ctx->tune_cache);
    tern_free(ctx, ctx->chosen);
    tern_free(ctx, ctx->behind);
    tern_pages_destroy(&ctx->pages);
    pthread_mutex_destroy(&ctx->lock);
    if (a.free)
        a.free(ctx, sizeof(*ctx), a.user);
    else
        free(ctx);
}

/* Everything that can fail; the error is in the context then. */
static enum tern_status context_open(struct tern_context *ctx)
{
    const char *device = ctx->params.device ? ctx->params.device : "cpu";
    if (ctx->params.threads < 0 || ctx->params.threads > TERN_MOST_THREADS)
        return tern_fail(ctx, TERN_E_INVALID, "threads: expected 0..%d, found %d", TERN_MOST_THREADS, ctx->params.threads);
    const char *cache_dir = ctx->params.cache_dir;
    if (cache_dir && cache_dir[0] && !(ctx->cache_dir = tern_path_fixed(ctx, cache_dir)))
        return tern_error_status(ctx);
    ctx->params.cache_dir = ctx->cache_dir;
    const struct tern_tune_params *tune = &ctx->params.tune;
    if ((int)tune->level < TERN_TUNE_OFF || tune->level > TERN_TUNE_FULL || !(tune->seconds >= 0))
        return tern_fail(ctx, TERN_E_INVALID, "tune: expected a level of 0..2 and seconds of 0 or more, found %d and %g", (int)tune->level,
                         tune->seconds);
    if (tune->cache && tune->cache[0] && !(ctx->tune_cache = tern_path_fixed(ctx, tune->cache)))
        return tern_error_status(ctx);
    ctx->params.tune.cache = ctx->tune_cache;
    if (tern_threads_open(ctx, ctx->params.threads, tern_core_count()))
        return tern_error_status(ctx);
    ctx->host = tern_device_open(ctx, "cpu");
    if (!ctx->host)
        return tern_error_status(ctx);
    ctx->device = ctx->own = tern_device_choose(ctx, device);
    ctx->params.device = ctx->chosen;
    return ctx->device ? TERN_OK : tern_error_status(ctx);
}

struct tern_context *tern_context_create(const struct tern_context_params *params)
{
    static _Thread_local char message[TERN_ERROR_SIZE];
    static const struct tern_context_params defaults;
    const struct tern_allocator *a = params ? &params->allocator : &defaults.allocator;
    refuse(TERN_OK, "");
    if (!!a->alloc != !!a->free)
        return refuse(TERN_E_INVALID, "allocator: alloc and free must both be given, or neither");
    struct tern_context *ctx = a->alloc ? a->alloc(sizeof(*ctx), 64, a->user) : malloc(sizeof(*ctx));
    if (!ctx)
        return refuse(TERN_E_NO_MEMORY, "out of memory");
    memset(ctx, 0, sizeof(*ctx));
    ctx->refs = 1;
    ctx->params = params ? *params : defaults;
    pthread_mutex_init(&ctx->lock, NULL);
    tern_pages_init(&ctx->pages);
    if (context_open(ctx)) {
        memcpy(message, ctx->error, sizeof(message));
        refuse(tern_error_status(ctx), message);
        context_free(ctx);
        return NULL;
    }
    return ctx;
}

bool tern_context_keep_weights(struct tern_context *ctx, bool keep)
{
    const bool kept = !ctx || !ctx->passing;
    if (ctx)
        ctx->passing = !keep;
    return kept;
}

void tern_context_ref(struct tern_context *ctx) { __atomic_add_fetch(&ctx->refs, 1, __ATOMIC_RELAXED); }

void tern_context_unref(struct tern_context *ctx)
{
    if (__atomic_sub_fetch(&ctx->refs, 1, __ATOMIC_ACQ_REL) == 0)
        context_free(ctx);
}

void tern_context_destroy(struct tern_context **ctx)
{
    if (ctx && *ctx) {
        tern_scope_release_all(*ctx); /* their tensors hold references to the context, and so do plans */
        (*ctx)->closed = true;
        if ((*ctx)->plans_destroy)
            (*ctx)->plans_destroy(*ctx);
        tern_memory_trim(*ctx); /* images and tensors that are still held hold the context, too */
        tern_context_unref(*ctx);
        *ctx = NULL;
    }
}

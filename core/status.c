/* Errors, messages, progress and cancel: everything that a context tells the program around it. */
#include "core/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/context.h"

const char *tern_status_name(enum tern_status status)
{
    static const char *const names[] = {
        "ok",
        "invalid argument",
        "shapes do not fit",
        "data types do not fit",
        "not found",
        "input/output error",
        "damaged file",
        "out of memory",
        "memory budget too small",
        "unsupported",
        "device error",
        "cancelled",
        "internal error",
    };
    return (size_t)status < sizeof(names) / sizeof(*names) ? names[status] : "unknown status";
}

const char *tern_version(void) { return TERN_VERSION; }

enum tern_status tern_fail(struct tern_context *ctx, enum tern_status status, const char *fmt, ...)
{
    va_list ap;
    if (!ctx)
        return status;
    pthread_mutex_lock(&ctx->lock);
    if (ctx->status == TERN_OK) {
        va_start(ap, fmt);
        vsnprintf(ctx->error, sizeof(ctx->error), fmt, ap);
        va_end(ap);
        ctx->failed = pthread_self();
        __atomic_store_n(&ctx->status, status, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&ctx->lock);
    return status;
}

enum tern_status tern_errno_status(enum tern_status status) { return errno == ENOMEM ? TERN_E_NO_MEMORY : status; }

void tern_fail_prefix(struct tern_context *ctx, const char *fmt, ...)
{
    char text[TERN_ERROR_SIZE];
    va_list ap;
    pthread_mutex_lock(&ctx->lock);
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof(text)) {
        snprintf(text + n, sizeof(text) - (size_t)n, ": %.*s", (int)(sizeof(text) - (size_t)n) - 3, ctx->error);
        memcpy(ctx->error, text, sizeof(text));
    }
    pthread_mutex_unlock(&ctx->lock);
}

bool tern_failed(const struct tern_context *ctx) { return !ctx || __atomic_load_n(&ctx->status, __ATOMIC_ACQUIRE) != TERN_OK; }

const char *tern_error(const struct tern_context *ctx) { return ctx && tern_failed(ctx) ? ctx->error : ""; }

enum tern_status tern_error_status(const struct tern_context *ctx)
{
    return ctx ? __atomic_load_n(&ctx->status, __ATOMIC_ACQUIRE) : TERN_E_INVALID;
}

static void clear(struct tern_context *ctx, bool own)
{
    if (!ctx)
        return;
    pthread_mutex_lock(&ctx->lock);
    if (!own || (ctx->status != TERN_OK && pthread_equal(ctx->failed, pthread_self()))) {
        __atomic_store_n(&ctx->status, TERN_OK, __ATOMIC_RELEASE);
        ctx->error[0] = 0;
    }
    pthread_mutex_unlock(&ctx->lock);
}

void tern_error_clear(struct tern_context *ctx) { clear(ctx, false); }

void tern_error_clear_own(struct tern_context *ctx) { clear(ctx, true); }

static _Thread_local char thread;

const char *tern_this_thread(void) { return &thread; }

bool tern_budget_lift(struct tern_context *ctx, bool lift)
{
    const bool outer = __atomic_load_n(&ctx->unlimited, __ATOMIC_RELAXED) == &thread;
    if (lift != outer)
        __atomic_store_n(&ctx->unlimited, lift ? &thread : NULL, __ATOMIC_RELAXED);
    return outer;
}

void tern_message(struct tern_context *ctx, int level, const char *fmt, ...)
{
    char text[TERN_ERROR_SIZE];
    va_list ap;
    if (!ctx->params.log || level < (int)ctx->params.log_level)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    const struct tern_scope_stack scopes = tern_scopes_aside(ctx);
    const bool lifted = tern_budget_lift(ctx, false);
    ctx->params.log((enum tern_log_level)level, text, ctx->params.user);
    tern_budget_lift(ctx, lifted);
    tern_scopes_back(ctx, &scopes, "the log callback");
}

void tern_report(struct tern_context *ctx, const char *stage, int64_t done, int64_t total, double seconds)
{
    struct tern_progress p = {.stage = stage, .done = done, .total = total, .seconds = seconds};
    if (!ctx->params.progress)
        return;
    const struct tern_scope_stack scopes = tern_scopes_aside(ctx);
    const bool lifted = tern_budget_lift(ctx, false);
    ctx->params.progress(&p, ctx->params.user);
    tern_budget_lift(ctx, lifted);
    tern_scopes_back(ctx, &scopes, "the progress callback");
}

enum tern_status tern_check_cancel(struct tern_context *ctx)
{
    const char *none = NULL;
    /* Plans may run in several threads: one is asked at a time, and the others go on until they ask next. */
    if (!ctx->params.cancel || !__atomic_compare_exchange_n(&ctx->asked, &none, &thread, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return TERN_OK;
    const struct tern_scope_stack scopes = tern_scopes_aside(ctx);
    const bool lifted = tern_budget_lift(ctx, false);
    const bool stop = ctx->params.cancel(ctx->params.user);
    tern_budget_lift(ctx, lifted);
    if (stop)
        tern_fail(ctx, TERN_E_CANCELLED, "cancelled");
    const enum tern_status left = tern_scopes_back(ctx, &scopes, "the cancel callback");
    __atomic_store_n(&ctx->asked, NULL, __ATOMIC_RELEASE);
    return stop ? TERN_E_CANCELLED : left;
}

bool tern_is_asked(const struct tern_context *ctx) { return __atomic_load_n(&ctx->asked, __ATOMIC_RELAXED) == &thread; }

double tern_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

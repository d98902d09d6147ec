/* Scopes: who owns the temporaries of nested expressions. */
#include <string.h>

#include "core/context.h"
#include "core/tensor.h"

/* Tensors that there is room for outside of all scopes: the same whatever went before, because jobs count what is allocated. Tracing a
 * model needs thousands for a moment. */
#define ROOM 512

static bool grow(struct tern_context *ctx, struct tern_scope_stack *s)
{
    if (s->tensors)
        return tern_grow(ctx, (void **)&s->tensors, s->count, &s->capacity, sizeof(*s->tensors));
    s->tensors = tern_alloc(ctx, ROOM * sizeof(*s->tensors));
    s->capacity = s->tensors ? ROOM : 0;
    return s->tensors != NULL;
}

tern_tensor *tern_scope_adopt(struct tern_context *ctx, tern_tensor *t)
{
    struct tern_scope_stack *s = &ctx->scopes;
    if (!t || !s->depth)
        return t;
    if (!grow(ctx, s)) {
        tern_tensor_unref(&t);
        return NULL;
    }
    s->tensors[s->count++] = t;
    __atomic_store_n(&ctx->scopes_of, tern_this_thread(), __ATOMIC_RELAXED); /* it may have been handed on */
    return t;
}

void tern_scope_begin(struct tern_context *ctx)
{
    if (!ctx)
        return;
    struct tern_scope_stack *s = &ctx->scopes;
    /* Without memory the depth still counts, so that begin and end stay paired; tensors of this scope and of those within
     * belong to the enclosing one, until it is the innermost again. The error is recorded. */
    if (s->n_starts == s->depth && tern_grow(ctx, (void **)&s->starts, s->n_starts, &s->starts_capacity, sizeof(*s->starts)))
        s->starts[s->n_starts++] = s->count;
    s->depth++;
    __atomic_store_n(&ctx->scopes_of, tern_this_thread(), __ATOMIC_RELAXED);
}

static void pop(struct tern_context *ctx)
{
    struct tern_scope_stack *s = &ctx->scopes;
    const bool own = s->n_starts == s->depth--;
    const int start = own ? s->starts[--s->n_starts] : s->depth ? s->count : 0; /* what none owns goes with the outermost scope */
    while (s->count > start)
        tern_tensor_unref(&s->tensors[--s->count]);
    __atomic_store_n(&ctx->scopes_of, s->depth ? tern_this_thread() : NULL, __ATOMIC_RELAXED);
    if (!s->depth && s->capacity > ROOM) { /* it is empty */
        tern_free(ctx, s->tensors);
        s->tensors = NULL;
        s->capacity = 0;
    }
}

static bool none_open(const struct tern_context *ctx) { return !ctx || ctx->scopes.depth <= ctx->scopes.floor; }

void tern_scope_end_many(struct tern_context *ctx, tern_tensor **keep, int n)
{
    if (none_open(ctx)) {
        tern_fail(ctx, TERN_E_INVALID, "tern_scope_end without tern_scope_begin");
        return;
    }
    if (!keep && n > 0) {
        tern_fail(ctx, TERN_E_INVALID, "tern_scope_end_many: expected %d tensors to keep, found NULL", n);
        n = 0; /* the scope ends: begin and end stay paired */
    }
    for (int i = 0; i < n; i++)
        tern_tensor_ref(keep[i]);
    pop(ctx);
    for (int i = 0; i < n; i++)
        keep[i] = tern_scope_adopt(ctx, keep[i]);
}

tern_tensor *tern_scope_end(struct tern_context *ctx, tern_tensor *keep)
{
    tern_scope_end_many(ctx, &keep, 1);
    return keep;
}

tern_tensor *tern_scope_next(struct tern_context *ctx, tern_tensor *keep)
{
    if (none_open(ctx)) {
        tern_fail(ctx, TERN_E_INVALID, "tern_scope_next without tern_scope_begin");
        return keep;
    }
    tern_tensor_ref(keep);
    pop(ctx);
    tern_scope_begin(ctx);
    return tern_scope_adopt(ctx, keep);
}

void tern_scope_release_all(struct tern_context *ctx)
{
    struct tern_scope_stack *s = &ctx->scopes;
    while (s->depth)
        pop(ctx);
    tern_free(ctx, s->tensors);
    tern_free(ctx, s->starts);
    memset(s, 0, sizeof(*s));
}

struct tern_scope_stack tern_scopes_leave(struct tern_context *ctx)
{
    struct tern_scope_stack left = {0};
    if (ctx->scopes.depth) {
        left = ctx->scopes;
        memset(&ctx->scopes, 0, sizeof(ctx->scopes));
        __atomic_store_n(&ctx->scopes_of, NULL, __ATOMIC_RELAXED);
    }
    return left;
}

void tern_scopes_return(struct tern_context *ctx, const struct tern_scope_stack *left)
{
    while (ctx->scopes.depth)
        pop(ctx);
    if (!left->depth)
        return;
    tern_scope_release_all(ctx);
    ctx->scopes = *left;
    __atomic_store_n(&ctx->scopes_of, tern_this_thread(), __ATOMIC_RELAXED);
}

/* Whether scopes are this thread's to look at. */
static bool are_own(const struct tern_context *ctx) { return __atomic_load_n(&ctx->scopes_of, __ATOMIC_RELAXED) == tern_this_thread(); }

/* Scopes beyond the floor: an error of `who`, unless there is another, which code that stopped there has left them for. */
static enum tern_status check_left(struct tern_context *ctx, const char *who)
{
    const int open = ctx->scopes.depth - ctx->scopes.floor;
    return open > 0 && !tern_failed(ctx) ? tern_fail(ctx, TERN_E_INVALID, "%s left %d scope%s open", who, open, open == 1 ? "" : "s")
                                         : TERN_OK;
}

struct tern_scope_stack tern_scopes_aside(struct tern_context *ctx)
{
    return are_own(ctx) ? tern_scopes_leave(ctx) : (struct tern_scope_stack){0};
}

enum tern_status tern_scopes_back(struct tern_context *ctx, const struct tern_scope_stack *aside, const char *who)
{
    if (!aside->depth && !are_own(ctx))
        return TERN_OK;
    const enum tern_status st = check_left(ctx, who);
    tern_scopes_return(ctx, aside);
    return st;
}

int tern_scopes_guard(struct tern_context *ctx)
{
    const int floor = ctx->scopes.floor;
    ctx->scopes.floor = ctx->scopes.depth;
    return floor;
}

enum tern_status tern_scopes_unguard(struct tern_context *ctx, int floor, const char *who)
{
    const enum tern_status st = check_left(ctx, who);
    while (ctx->scopes.depth > ctx->scopes.floor)
        pop(ctx);
    ctx->scopes.floor = floor;
    return st;
}

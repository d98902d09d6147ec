/* Binding weights to modules. */
#include "models/modules/bind.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <tern/ops.h>

#include "core/context.h"
#include "core/tensor.h"

enum tern_status tern_bind_begin(struct tern_bind *b, struct tern_context *ctx, const struct tern_weights *w, const char *component)
{
    *b = (struct tern_bind){.ctx = ctx, .weights = w, .component = component};
    b->used = tern_calloc(ctx, (size_t)tern_weights_count(w) + 1, sizeof(*b->used));
    b->bound = b->used ? tern_weights_create(ctx) : NULL;
    if (b->bound)
        return TERN_OK;
    tern_free(ctx, b->used);
    return tern_error_status(ctx);
}

void tern_bind_begin_visit(struct tern_bind *b, struct tern_context *ctx, const char *component,
                           void (*visit)(void *user, const char *name, int ndim, const int64_t *shape), void *user)
{
    *b = (struct tern_bind){.ctx = ctx, .component = component, .visit = visit, .user = user};
}

static void check_left_over(const struct tern_bind *b)
{
    int64_t left = 0, first = -1, n = tern_weights_count(b->weights);
    for (int64_t i = 0; i < n; i++)
        if (!b->used[i]) {
            first = first < 0 ? i : first;
            left++;
        }
    if (left)
        tern_fail(b->ctx, TERN_E_FORMAT,
                  "%s: %lld tensor%s no place in this architecture, the first is \"%s\"; is config.json that of these weights?",
                  b->component, (long long)left, left == 1 ? " has" : "s have", tern_weights_name(b->weights, first));
}

enum tern_status tern_bind_end(struct tern_bind *b, struct tern_weights **bound)
{
    if (!tern_failed(b->ctx))
        check_left_over(b);
    tern_free(b->ctx, b->used);
    b->used = NULL;
    if (tern_failed(b->ctx))
        tern_weights_unref(&b->bound);
    *bound = b->bound;
    b->bound = NULL;
    return tern_error_status(b->ctx);
}

size_t tern_bind_enter(struct tern_bind *b, const char *fmt, ...)
{
    size_t length = strlen(b->prefix);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(b->prefix + length, sizeof(b->prefix) - length, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n + 2 > sizeof(b->prefix) - length)
        tern_fail(b->ctx, TERN_E_FORMAT, "%s: tensor names below \"%.64s…\" are too long", b->component, b->prefix);
    else
        strcat(b->prefix, ".");
    return length;
}

void tern_bind_leave(struct tern_bind *b, size_t length) { b->prefix[length] = 0; }

/* Index in the sorted table of names; -1 when absent. */
static int64_t find(const struct tern_bind *b, const char *name, char *full, size_t size)
{
    snprintf(full, size, "%s%s", b->prefix, name);
    int64_t lo = 0, hi = tern_weights_count(b->weights) - 1;
    while (lo <= hi) {
        int64_t mid = (lo + hi) / 2;
        int c = strcmp(tern_weights_name(b->weights, mid), full);
        if (!c)
            return mid;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid - 1;
    }
    return -1;
}

bool tern_bind_has(const struct tern_bind *b, const char *name, bool listed)
{
    char full[512];
    return b->visit ? listed : find(b, name, full, sizeof(full)) >= 0;
}

void tern_bind_pass_over(struct tern_bind *b, const char *name)
{
    char full[512];
    const int64_t i = b->visit ? -1 : find(b, name, full, sizeof(full));
    if (i >= 0)
        b->used[i] = true;
}

/* Vectors are copied, in f32: read in the mapped file they would bring the pages of the matrices around them back into
 * memory, 0.18 GiB of them in a UNet of SD 1.5. */
static tern_tensor *vector(struct tern_context *ctx, tern_tensor *t)
{
    bool copy = t->meta.dtype == TERN_F32;
    bool made = !t->advise && t->constant && t->buffer->device == ctx->device; /* of another module: a copy already */
    if (copy && (made || !tern_tensor_host(t)))
        return tern_tensor_ref(t);
    tern_scope_begin(ctx); /* the module owns it, not a scope that the caller may have open */
    tern_tensor *v = copy ? tern_tensor_create(ctx, TERN_F32, 1, t->meta.shape, tern_tensor_host(t)) : tern_cast(t, TERN_F32);
    tern_tensor_make_constant(v);
    tern_tensor_ref(v);
    tern_scope_end(ctx, NULL);
    return v;
}

tern_tensor *tern_bind_tensor(struct tern_bind *b, const char *name, int ndim, const int64_t *shape)
{
    char full[512], expected[TERN_META_TEXT], found[TERN_META_TEXT];
    if (tern_failed(b->ctx))
        return NULL;
    if (b->visit) {
        snprintf(full, sizeof(full), "%s%s", b->prefix, name);
        b->visit(b->user, full, ndim, shape);
        return NULL;
    }
    int64_t i = find(b, name, full, sizeof(full));
    if (i < 0) {
        tern_fail(b->ctx, TERN_E_FORMAT, "%s: tensor \"%s\" is missing; is config.json that of these weights?", b->component, full);
        return NULL;
    }
    b->used[i] = true;
    tern_tensor *t = tern_weights_at(b->weights, i);
    struct tern_meta want = tern_meta_make(t->meta.dtype, ndim, shape);
    if (!tern_meta_same_shape(&t->meta, &want) || !tern_dtype_is_float(t->meta.dtype)) {
        want.dtype = tern_dtype_is_float(t->meta.dtype) ? t->meta.dtype : TERN_F32;
        tern_fail(b->ctx, TERN_E_SHAPE, "%s: tensor \"%s\": expected %s, found %s", b->component, full, tern_meta_text(&want, expected),
                  tern_meta_text(&t->meta, found));
        return NULL;
    }
    t = ndim == 1 ? vector(b->ctx, t) : tern_tensor_ref(t);
    if (t)
        tern_weights_add(b->bound, full, t);
    return t;
}

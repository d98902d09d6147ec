/* Copies between the host and a device: of weights once, of everything else when it is needed. */
#include "ops/resident.h"

#include "core/context.h"

/* The copy that a tensor keeps is a prepared form of no kernel. */
static struct tern_prepared *find(const struct tern_device *device, const tern_tensor *t)
{
    pthread_mutex_lock(&device->ctx->lock);
    struct tern_prepared *p = t->prepared;
    while (p && (p->kernel || p->buffer->device != device))
        p = p->next;
    pthread_mutex_unlock(&device->ctx->lock);
    return p;
}

const void *tern_host_elements(const tern_tensor *t, void **copy)
{
    const size_t size = tern_meta_bytes(&t->meta);
    *copy = NULL;
    if (t->buffer->host)
        return tern_tensor_host(t);
    *copy = tern_alloc(t->ctx, size ? size : 1);
    if (*copy && size && tern_buffer_read(t->buffer, t->offset, *copy, size)) {
        tern_free(t->ctx, *copy);
        *copy = NULL;
    }
    return *copy;
}

static struct tern_buffer *copy_to(struct tern_device *device, const tern_tensor *t, bool weight)
{
    size_t size = tern_meta_bytes(&t->meta);
    void *copy;
    const void *host = tern_host_elements(t, &copy);
    struct tern_buffer *b = !host    ? NULL
                            : weight ? tern_buffer_create_weight(device, size ? size : 1)
                                     : tern_buffer_create(device, size ? size : 1);
    if (b && size && tern_buffer_write(b, 0, host, size))
        tern_buffer_unref(&b);
    tern_free(device->ctx, copy);
    return b;
}

static struct tern_buffer *keep_copy(struct tern_device *device, tern_tensor *t)
{
    struct tern_context *ctx = device->ctx;
    struct tern_prepared *p = find(device, t);
    if (p)
        return p->buffer;
    p = tern_calloc(ctx, 1, sizeof(*p));
    if (!p || !(p->buffer = copy_to(device, t, true))) {
        tern_free(ctx, p);
        return NULL;
    }
    tern_tensor_advise(t, false);
    pthread_mutex_lock(&ctx->lock);
    p->next = t->prepared;
    t->prepared = p;
    pthread_mutex_unlock(&ctx->lock);
    return p->buffer;
}

enum tern_status tern_resident(struct tern_device *device, tern_tensor *t, struct tern_arg *arg, struct tern_buffer **copy)
{
    *arg = (struct tern_arg){t->buffer, t->offset};
    if (copy)
        *copy = NULL;
    if (!tern_is_elsewhere(device, t))
        return TERN_OK;
    arg->offset = 0;
    if (!copy || (t->constant && (!device->ctx->passing || find(device, t)))) {
        arg->buffer = keep_copy(device, t);
    } else {
        arg->buffer = *copy = copy_to(device, t, false); /* it is read at once */
        if (t->constant)
            tern_tensor_advise(t, false);
    }
    return arg->buffer ? TERN_OK : tern_error_status(device->ctx);
}

void tern_resident_drop(struct tern_device *device, tern_tensor *t)
{
    struct tern_context *ctx = device->ctx;
    struct tern_prepared *found = NULL;
    pthread_mutex_lock(&ctx->lock);
    for (struct tern_prepared **p = &t->prepared; *p && !found; p = &(*p)->next)
        if (!(*p)->kernel && (*p)->buffer->device == device) {
            found = *p;
            *p = found->next;
            break;
        }
    pthread_mutex_unlock(&ctx->lock);
    if (found)
        tern_buffer_unref(&found->buffer);
    tern_free(ctx, found);
}

size_t tern_resident_bytes(const struct tern_device *device, const tern_tensor *t)
{
    return t && tern_is_elsewhere(device, t) && !find(device, t) ? tern_meta_bytes(&t->meta) : 0;
}

/* ---- the reference ---- */

/* An operand on the host: itself or a copy, which is owned by *own. */
static enum tern_status to_host(struct tern_context *ctx, const struct tern_meta *m, struct tern_arg *arg, struct tern_buffer **own)
{
    if (!arg->buffer || arg->buffer->host)
        return TERN_OK;
    *own = tern_buffer_create(ctx->host, tern_meta_bytes(m));
    enum tern_status st = *own ? tern_buffer_read(arg->buffer, arg->offset, (*own)->host, tern_meta_bytes(m)) : tern_error_status(ctx);
    *arg = (struct tern_arg){*own, 0};
    return st;
}

enum tern_status tern_reference_run(const struct tern_kernel_args *a)
{
    struct tern_kernel_args host = *a;
    struct tern_buffer *own[TERN_MAX_INPUTS + 1] = {NULL};
    enum tern_status st = TERN_OK;
    for (int i = 0; i < a->desc->n_in && !st; i++)
        if (a->desc->present[i])
            st = to_host(a->ctx, &a->desc->in[i], &host.in[i], &own[i]);
    size_t size = tern_meta_bytes(&a->desc->out);
    if (!st && !a->out.buffer->host) {
        own[TERN_MAX_INPUTS] = tern_buffer_create(a->ctx->host, size);
        host.out = (struct tern_arg){own[TERN_MAX_INPUTS], 0};
        st = own[TERN_MAX_INPUTS] ? TERN_OK : tern_error_status(a->ctx);
    }
    if (!st)
        tern_op_get(a->desc->op).reference(&host);
    if (!st && own[TERN_MAX_INPUTS] && size)
        st = tern_buffer_write(a->out.buffer, a->out.offset, own[TERN_MAX_INPUTS]->host, size);
    for (int i = 0; i <= TERN_MAX_INPUTS; i++)
        tern_buffer_unref(&own[i]);
    return st;
}

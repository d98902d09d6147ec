/* Runs an op eagerly: shape rule, view if it is one, layout, kernel, launch. What no kernel supports goes down the
 * ladder: tidy inputs, then f32, then the reference on the host. What is larger than kernels take is recorded
 * as it is: passes know parts of it. */
#include "ops/dispatch.h"

#include <string.h>
#include <tern/ops.h>

#include "core/context.h"
#include "ops/resident.h"
#include "ops/select.h"
#include "ops/tuner.h"

struct tern_dispatch {
    struct tern_select_cache cache;
    char forced[64];
    uint64_t count;
    bool warned[TERN_OP_COUNT];
};

static void dispatch_destroy(struct tern_context *ctx)
{
    tern_free(ctx, ctx->dispatch);
    ctx->dispatch = NULL;
}

static struct tern_dispatch *dispatch_get(struct tern_context *ctx)
{
    if (!ctx->dispatch) {
        ctx->dispatch = tern_calloc(ctx, 1, sizeof(*ctx->dispatch));
        ctx->dispatch_destroy = dispatch_destroy;
    }
    return ctx->dispatch;
}

enum tern_status tern_dispatch_prepare(struct tern_context *ctx) { return dispatch_get(ctx) ? TERN_OK : tern_error_status(ctx); }

const char *tern_dispatch_forced(const struct tern_context *ctx)
{
    return ctx->dispatch && ctx->dispatch->forced[0] ? ctx->dispatch->forced : NULL;
}

uint64_t tern_dispatch_count(const struct tern_context *ctx) { return ctx->dispatch ? ctx->dispatch->count : 0; }

enum tern_status tern_dispatch_force(struct tern_context *ctx, const char *kernel)
{
    struct tern_dispatch *s = dispatch_get(ctx);
    if (!s)
        return tern_error_status(ctx);
    if (kernel && strcmp(kernel, "reference") && !tern_kernel_find(ctx->device, kernel))
        return tern_fail(ctx, TERN_E_NOT_FOUND, "device %s has no kernel \"%s\"", ctx->device->name, kernel);
    memset(&s->cache, 0, sizeof(s->cache));
    memset(s->forced, 0, sizeof(s->forced));
    if (kernel)
        strncpy(s->forced, kernel, sizeof(s->forced) - 1);
    return TERN_OK;
}

/* A packed form of the tensor in new memory; NULL with the error recorded. */
static struct tern_buffer *pack(struct tern_context *ctx, struct tern_device *device, const struct tern_kernel *k,
                                const struct tern_op_desc *d, const tern_tensor *t)
{
    void *copy;
    const size_t size = k->packed_size(ctx, d);
    struct tern_buffer *packed = tern_buffer_create(device, size);
    const void *from = packed ? tern_host_elements(t, &copy) : NULL;
    if (from)
        tern_memory_populate(ctx, packed->host, size);
    if (packed && (!from || k->pack(ctx, d, from, packed->host)))
        tern_buffer_unref(&packed);
    if (from)
        tern_free(ctx, copy);
    return packed;
}

/* The form that the tensor keeps; NULL: it has none. */
static struct tern_buffer *kept_form(struct tern_context *ctx, const struct tern_kernel *k, const struct tern_op_desc *d,
                                     const tern_tensor *t)
{
    uint64_t key = k->pack_key ? k->pack_key(d) : 0;
    pthread_mutex_lock(&ctx->lock);
    struct tern_prepared *p = t->prepared;
    while (p && (p->kernel != k || p->key != key))
        p = p->next;
    pthread_mutex_unlock(&ctx->lock);
    return p ? p->buffer : NULL;
}

struct tern_buffer *tern_packed_form(struct tern_context *ctx, struct tern_device *device, const struct tern_kernel *k,
                                     const struct tern_op_desc *d, tern_tensor *t)
{
    struct tern_buffer *kept = kept_form(ctx, k, d, t);
    if (kept)
        return kept;
    struct tern_prepared *p = tern_calloc(ctx, 1, sizeof(*p));
    if (!p)
        return NULL;
    p->kernel = k;
    p->key = k->pack_key ? k->pack_key(d) : 0;
    p->buffer = pack(ctx, device, k, d, t);
    if (!p->buffer) {
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

static struct tern_arg arg_of(const tern_tensor *t) { return t ? (struct tern_arg){t->buffer, t->offset} : (struct tern_arg){NULL, 0}; }

/* Sets up packed input and workspace, launches, and gives the temporaries back. */
static enum tern_status launch(struct tern_context *ctx, struct tern_device *device, const struct tern_kernel *k,
                               const struct tern_op_desc *d, tern_tensor *const *in, tern_tensor *out)
{
    struct tern_kernel_args a = {.desc = d, .ctx = ctx, .tensors = in, .out = arg_of(out)};
    struct tern_buffer *workspace = NULL, *packed = NULL, *copy[TERN_MAX_INPUTS] = {NULL};
    enum tern_status st = TERN_OK;
    for (int i = 0; i < d->n_in && !st; i++)
        st = in[i] && !(k->pack && i == k->pack_input) ? tern_resident(device, in[i], &a.in[i], &copy[i]) : TERN_OK;
    size_t need = k->workspace ? k->workspace(ctx, d) : 0;
    if (need && !st) {
        workspace = tern_buffer_create(device, need);
        a.workspace.buffer = workspace;
        st = workspace ? TERN_OK : tern_error_status(ctx);
    }
    if (!st && k->pack) {
        tern_tensor *t = in[k->pack_input];
        const bool constant = d->constant[k->pack_input];
        if (constant)
            a.packed.buffer = ctx->passing ? kept_form(ctx, k, d, t) : tern_packed_form(ctx, device, k, d, t);
        if (!constant || (ctx->passing && !a.packed.buffer)) {
            packed = pack(ctx, device, k, d, t);
            a.packed.buffer = packed;
            if (constant)
                tern_tensor_advise(t, false);
        }
        st = tern_error_status(ctx);
    }
    if (!st)
        st = device->queue->fns->launch(device->queue, k, &a);
    tern_buffer_unref(&workspace);
    tern_buffer_unref(&packed);
    for (int i = 0; i < d->n_in; i++)
        tern_buffer_unref(&copy[i]);
    return st;
}

/* Same call with every 4-D or other input made tidy for the kernels: x in the format that the output has; where the output is
 * no picture but the statistics of one, in its own if it has one. */
static bool tidy_inputs(const struct tern_op_desc *d, tern_tensor *const *in, tern_tensor **tidy)
{
    bool changed = false;
    const struct tern_meta *like = d->op == TERN_OP_group_norm_stats ? &d->in[0] : &d->out;
    bool channels_last = like->ndim == 4 && !tern_meta_is_contiguous(like) && tern_meta_is_channels_last(like);
    for (int i = 0; i < d->n_in; i++) {
        tidy[i] = in[i];
        if (!in[i])
            continue;
        bool wants_last =
            channels_last && d->in[i].ndim == 4 && !((d->op == TERN_OP_conv2d || d->op == TERN_OP_weight_only_conv2d) && i == 1);
        bool is_so = wants_last ? tern_meta_is_channels_last(&d->in[i]) : tern_meta_is_contiguous(&d->in[i]);
        if (is_so)
            continue;
        tidy[i] = tern_contiguous(in[i], wants_last ? TERN_CHANNELS_LAST : TERN_CONTIGUOUS);
        changed = true;
    }
    return changed;
}

/* Matrices of these ops may be stored in another dtype than x: kernels widen them. */
static bool keeps_stored_dtype(enum tern_op op, int input)
{
    return input == 1 && (op == TERN_OP_linear || op == TERN_OP_linear_geglu || op == TERN_OP_conv2d || op == TERN_OP_conv_transpose2d ||
                          tern_op_is_quantized(op) || tern_op_is_weight_only(op));
}

/* A plan may give y as it was computed to who wants it in f32, as a kernel of that dtype does whose post a cast is (pass "fuse"). */
static tern_tensor *rounded(tern_tensor *y, enum tern_dtype dtype)
{
    tern_tensor *narrow = tern_cast(y, dtype);
    if (narrow && !y->buffer)
        narrow->wide = y->value + 1;
    return narrow;
}

/* What the op reads is rounded, as a kernel of x's dtype would read it. */
static tern_tensor *widened(tern_tensor *x)
{
    const int wide = x->wide;
    if (!wide) /* other threads may read x */
        return tern_cast(x, TERN_F32);
    x->wide = 0;
    tern_tensor *y = tern_cast(x, TERN_F32);
    x->wide = wide;
    return y;
}

/* f16 and bf16 computed in f32: casts around the op. */
static tern_tensor *call_in_f32(struct tern_context *ctx, const struct tern_op_desc *d, tern_tensor *const *in,
                                const union tern_op_attrs *attrs)
{
    tern_tensor *wide[TERN_MAX_INPUTS] = {NULL};
    for (int i = 0; i < d->n_in; i++)
        wide[i] = in[i] && tern_dtype_is_float(in[i]->meta.dtype) && !keeps_stored_dtype(d->op, i) ? widened(in[i]) : in[i];
    tern_tensor *y = tern_op_call(ctx, d->op, wide, d->n_in, attrs);
    return y && d->out.dtype != y->meta.dtype ? rounded(y, d->out.dtype) : y;
}

/* Of x, or beside an x of floats, as a bias may be; not a stored matrix. */
static bool has_half_input(const struct tern_op_desc *d)
{
    if (d->op == TERN_OP_cast || d->op == TERN_OP_contiguous || !d->n_in || !d->present[0] || !tern_dtype_is_float(d->in[0].dtype))
        return false;
    for (int i = 0; i < d->n_in; i++)
        if (d->present[i] && !keeps_stored_dtype(d->op, i) && (d->in[i].dtype == TERN_F16 || d->in[i].dtype == TERN_BF16))
            return true;
    return false;
}

/* The reference on the host. */
static tern_tensor *call_reference(struct tern_context *ctx, const struct tern_op_desc *d, tern_tensor *const *in)
{
    struct tern_kernel_args a = {.desc = d, .ctx = ctx};
    if (tern_failed(ctx)) /* no memory for the scope of its temporaries */
        return NULL;
    if (ctx->recorder)
        return ctx->recorder->record(ctx->recorder, TERN_CALL_REFERENCE, d, in, 0);
    tern_tensor *out = tern_tensor_empty(ctx, &d->out);
    if (!out)
        return NULL;
    for (int i = 0; i < d->n_in; i++)
        a.in[i] = arg_of(in[i]);
    a.out = arg_of(out);
    if (tern_reference_run(&a) == TERN_OK)
        return out;
    if (!ctx->scopes.depth)
        tern_tensor_unref(&out);
    return NULL;
}

/* Whether that may be why no kernel takes the call: a tensor is larger than kernels of the device read or write. */
static bool is_too_wide(const struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct tern_device_caps *caps = &ctx->device->caps;
    bool whole = tern_desc_is_made_whole(d, caps);
    for (int i = 0; i < d->n_in; i++)
        whole = whole && (!d->present[i] || tern_caps_take(caps, &d->in[i]));
    return !whole;
}

static void warn_once(struct tern_context *ctx, const struct tern_op_desc *d, const char *how)
{
    struct tern_dispatch *s = ctx->dispatch;
    char text[TERN_META_TEXT] = "";
    if (s->warned[d->op])
        return;
    s->warned[d->op] = true;
    if (d->n_in)
        tern_meta_text(&d->in[0], text);
    tern_message(ctx, TERN_LOG_INFO, "%s %s: no kernel of %s fits, %s", tern_op_get(d->op).name, text, ctx->device->name, how);
}

/* Down the ladder. Temporaries belong to a scope of their own. */
static tern_tensor *call_fallback(struct tern_context *ctx, const struct tern_op_desc *d, tern_tensor *const *in,
                                  const union tern_op_attrs *attrs)
{
    tern_tensor *tidy[TERN_MAX_INPUTS] = {NULL}, *y;
    const char *forced = tern_dispatch_forced(ctx);
    if (forced && strcmp(forced, "reference")) {
        const struct tern_kernel *k = tern_kernel_find(ctx->device, forced);
        if (k && k->op == d->op) {
            tern_fail(ctx, TERN_E_UNSUPPORTED, "%s: kernel %s does not support this call", tern_op_get(d->op).name, forced);
            return NULL;
        }
        forced = k ? NULL : forced; /* one of another op's is nothing to this one */
    }
    tern_scope_begin(ctx);
    if (!forced && ctx->recorder && is_too_wide(ctx, d)) {
        warn_once(ctx, d, "it is larger than kernels take: a plan may do it in parts");
        y = call_reference(ctx, d, in);
    } else if (!forced && d->op != TERN_OP_contiguous && tidy_inputs(d, in, tidy)) {
        y = tern_op_call(ctx, d->op, tidy, d->n_in, attrs);
    } else if (!forced && has_half_input(d)) {
        warn_once(ctx, d, "computed in f32");
        y = call_in_f32(ctx, d, in, attrs);
    } else {
        if (!forced)
            warn_once(ctx, d, "the reference computes it");
        y = call_reference(ctx, d, in);
    }
    return tern_scope_end(ctx, y);
}

/* False when an input that must be there is not; an error is recorded then. */
static bool describe(struct tern_context *ctx, enum tern_op op, tern_tensor *const *in, int n_in, const union tern_op_attrs *attrs,
                     struct tern_op_desc *d)
{
    struct tern_op_info info = tern_op_get(op);
    memset(d, 0, sizeof(*d));
    d->op = op;
    d->n_in = n_in;
    if (attrs)
        memcpy(&d->attrs, attrs, info.attrs_size);
    if (n_in < info.min_inputs || n_in > info.max_inputs || n_in > TERN_MAX_INPUTS) {
        tern_fail(ctx, TERN_E_INVALID, "%s: expected inputs (%s), found %d", info.name, info.inputs, n_in);
        return false;
    }
    for (int i = 0; i < n_in; i++) {
        if (!in[i] && i < info.min_inputs) {
            tern_fail(ctx, TERN_E_INVALID, "%s: input %d of (%s) is missing", info.name, i, info.inputs);
            return false;
        }
        d->present[i] = in[i] != NULL;
        if (in[i] && in[i]->ctx != ctx) {
            tern_fail(ctx, TERN_E_INVALID,
                      "%s: input %d of (%s) is of another context: expected tensors of one; read its values and make a tensor of this one",
                      info.name, i, info.inputs);
            return false;
        }
        if (in[i] && !in[i]->buffer && !ctx->recorder) {
            tern_fail(ctx, TERN_E_INVALID, "%s: input %d of (%s) is of a graph whose recording has ended", info.name, i, info.inputs);
            return false;
        }
        if (in[i]) {
            d->in[i] = in[i]->meta;
            d->constant[i] = in[i]->constant;
        }
    }
    return info.shape(ctx, d) == TERN_OK;
}

/* The two ops that may give their input back unchanged. */
static bool is_identity(const struct tern_op_desc *d)
{
    if (d->op == TERN_OP_cast)
        return d->in[0].dtype == d->out.dtype;
    if (d->op == TERN_OP_contiguous)
        return d->attrs.contiguous.memory_format ? tern_meta_is_channels_last(&d->in[0]) : tern_meta_is_contiguous(&d->in[0]);
    return false;
}

/* Models keep vectors in f32. Where the device wants a bias in the dtype of the product, a plan casts it: once, when weights are bound. */
static bool wants_cast_bias(const struct tern_context *ctx, enum tern_op op, tern_tensor *const *in, int n_in)
{
    return ctx->recorder && ctx->device->caps.uniform_bias && (op == TERN_OP_conv2d || op == TERN_OP_linear) && n_in == 3 && in[2] &&
           in[2]->constant && in[2]->meta.dtype == TERN_F32 && (in[0]->meta.dtype == TERN_F16 || in[0]->meta.dtype == TERN_BF16);
}

static bool is_cancelled(struct tern_context *ctx)
{
    struct tern_recorder *recorder = ctx->recorder;
    ctx->recorder = NULL; /* what the callback computes is none of the graph that is traced */
    const enum tern_status st = tern_check_cancel(ctx);
    ctx->recorder = recorder;
    return st || tern_failed(ctx);
}

tern_tensor *tern_op_call(struct tern_context *ctx, enum tern_op op, tern_tensor *const *in, int n_in, const union tern_op_attrs *attrs)
{
    struct tern_op_desc d;
    struct tern_meta view;
    int64_t offset;
    if (tern_failed(ctx) || !dispatch_get(ctx) || is_cancelled(ctx) || !describe(ctx, op, in, n_in, attrs, &d))
        return NULL;
    if (is_identity(&d))
        return tern_scope_adopt(ctx, tern_tensor_ref(in[0]));
    if (wants_cast_bias(ctx, op, in, n_in)) {
        tern_tensor *const same[] = {in[0], in[1], tern_cast(in[2], in[0]->meta.dtype)};
        return same[2] ? tern_op_call(ctx, op, same, n_in, attrs) : NULL;
    }
    bool is_view = tern_op_view(&d, &view, &offset);
    if (is_view && ctx->recorder) {
        d.out = view;
        return ctx->recorder->record(ctx->recorder, TERN_CALL_VIEW, &d, in, offset);
    }
    if (is_view)
        return tern_tensor_view(in[0], &view, in[0]->offset + (size_t)offset * tern_dtype_size(view.dtype));
    tern_choose_format(ctx->device, &d);
    const struct tern_kernel *k = tern_select_cached(ctx, &ctx->dispatch->cache, ctx->device, &d);
    if (!k)
        return call_fallback(ctx, &d, in, attrs);
    if (ctx->recorder)
        return ctx->recorder->record(ctx->recorder, TERN_CALL_LAUNCH, &d, in, 0);
    if (tern_tuner_mode(ctx)) {
        k = tern_tuner_eager(ctx, &d, k);
        if (tern_failed(ctx))
            return NULL;
    }
    tern_tensor *out = tern_tensor_empty(ctx, &d.out);
    ctx->dispatch->count++;
    if (!out || launch(ctx, ctx->device, k, &d, in, out) == TERN_OK)
        return out;
    if (!ctx->scopes.depth)
        tern_tensor_unref(&out);
    return NULL;
}

/* The stage of single ops: each case by the dispatcher's choice, with constant inputs, by the reference, by every kernel. */
#include <stdio.h>
#include <string.h>

#include "conformance/suite.h"
#include "ops/dispatch.h"
#include "ops/reference.h"

static const char chosen[] = "chosen", constant[] = "constant", reference[] = "reference", strides[] = "reference_strides";
static const char *const ways[] = {chosen, constant, reference, strides};
#define WAYS (sizeof(ways) / sizeof(*ways))

/* ---- the list ---- */

struct names {
    char text[TERN_ERROR_SIZE - 200]; /* what stands around it in the message is shorter */
    size_t n;
};

static void name_add(struct names *l, const char *name)
{
    if (l->n < sizeof(l->text))
        l->n += (size_t)snprintf(l->text + l->n, sizeof(l->text) - l->n, "%s%s", l->n ? ", " : "", name);
}

static bool op_is_known(struct tern_conformance *c, const char *op)
{
    struct names list = {.n = 0};
    if (!op || tern_op_find(op) != TERN_OP_COUNT)
        return true;
    for (int i = 0; i < TERN_OP_COUNT; i++)
        name_add(&list, tern_op_get((enum tern_op)i).name);
    tern_fail(c->ctx, TERN_E_NOT_FOUND, "there is no op \"%.80s\"; there are %s", op, list.text);
    return false;
}

/* A way, or a kernel of the device: of that op, if one is given. */
static bool kernel_is_known(struct tern_conformance *c, const char *kernel, const char *op)
{
    const struct tern_kernel *const *k = c->own->device->kernels;
    struct names list = {.n = 0};
    bool known = !kernel;
    for (size_t i = 0; i < WAYS; i++) {
        known |= kernel && !strcmp(kernel, ways[i]);
        name_add(&list, ways[i]);
    }
    for (; *k; k++) {
        if (op && strcmp(op, tern_op_get((*k)->op).name) != 0)
            continue;
        known |= kernel && !strcmp(kernel, (*k)->name);
        name_add(&list, (*k)->name);
    }
    if (!known)
        tern_fail(c->ctx, TERN_E_NOT_FOUND, "device %.20s has no kernel \"%.60s\"%s%s; there are %s", c->own->device->name, kernel,
                  op ? " of " : "", op ? op : "", list.text);
    return known;
}

/* The cases of an op by one way. Kernels are not asked about calls that must be refused: those do not reach them. */
static bool add_way(struct tern_conformance *c, enum tern_op op, const char *way, bool kernel)
{
    const char *name = tern_op_get(op).name;
    const json_t *row;
    size_t i;
    json_array_foreach(c->table.cases, i, row) {
        if (tern_op_find(tern_json_word(row, "op")) != op || (kernel && json_object_get(row, "error")))
            continue;
        const struct tern_check check = {TERN_CONFORMANCE_OPS, (int)i, name, tern_json_word(row, "name"), way};
        if (!tern_suite_add(c, &check))
            return false;
    }
    return true;
}

static bool is_wanted(const char *wanted, const char *name) { return !wanted || !strcmp(wanted, name); }

static bool add_op(struct tern_conformance *c, enum tern_op op, const char *kernel)
{
    const struct tern_device *device = c->own->device;
    for (size_t w = 0; w < WAYS; w++) {
        /* The references compute on memory that the host sees. What a device leaves to them goes through "chosen". */
        if ((ways[w] == reference || ways[w] == strides) && !(device->caps.computes && device->caps.host_memory))
            continue;
        if (is_wanted(kernel, ways[w]) && !add_way(c, op, ways[w], false))
            return false;
    }
    for (int k = 0; device->kernels[k]; k++)
        if (device->kernels[k]->op == op && is_wanted(kernel, device->kernels[k]->name) && !add_way(c, op, device->kernels[k]->name, true))
            return false;
    return true;
}

bool tern_ops_add(struct tern_conformance *c, const struct tern_conformance_params *params)
{
    const json_t *row;
    size_t i;
    if (!op_is_known(c, params->op) || !kernel_is_known(c, params->kernel, params->op))
        return false;
    json_array_foreach(c->table.cases, i, row)
        c->cases += is_wanted(params->op, tern_json_word(row, "op"));
    for (int op = 0; op < TERN_OP_COUNT; op++)
        if (is_wanted(params->op, tern_op_get((enum tern_op)op).name) && !add_op(c, (enum tern_op)op, params->kernel))
            return false;
    return true;
}

/* ---- running ---- */

static bool refused_rightly(const json_t *row, struct tern_context *ctx, bool refused, struct tern_verdict *v)
{
    static const struct {
        const char *name;
        enum tern_status status;
    } known[] = {{"invalid", TERN_E_INVALID}, {"shape", TERN_E_SHAPE}, {"dtype", TERN_E_DTYPE}};
    enum tern_status expected = TERN_OK;
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (!strcmp(tern_json_word(row, "status"), known[i].name))
            expected = known[i].status;
    if (refused && tern_error_status(ctx) == expected && strstr(tern_error(ctx), tern_json_word(row, "error")))
        return true;
    return tern_verdict_fail(v, "expected %s \"%s\", found %s \"%.300s\"", tern_json_word(row, "status"), tern_json_word(row, "error"),
                             refused ? tern_status_name(tern_error_status(ctx)) : "no error", tern_error(ctx));
}

static bool output_is_right(struct tern_conformance *c, const json_t *row, const tern_tensor *out, struct tern_verdict *v)
{
    size_t bytes = (size_t)tern_tensor_numel(out) * tern_dtype_size(out->meta.dtype);
    void *found = tern_alloc(c->own, bytes);
    bool good = found && tern_tensor_read(out, out->meta.dtype, found, bytes) == TERN_OK;
    good = good ? tern_case_compare(&c->table, row, &out->meta, found, v)
                : tern_verdict_fail(v, "the output cannot be read: %s", tern_error(c->own));
    tern_free(c->own, found);
    return good;
}

/* By the dispatcher: free to choose, or held to one candidate. */
static bool run_call(struct tern_conformance *c, const json_t *row, struct tern_call *call, const char *way, struct tern_verdict *v)
{
    struct tern_context *ctx = c->own;
    bool candidate = way != chosen && way != constant && way != reference;
    for (int i = 1; i < call->n_in && way == constant; i++)
        if (call->in[i])
            call->in[i]->constant = true;
    if ((candidate || way == reference) && tern_dispatch_force(ctx, way))
        return tern_verdict_fail(v, "%s", tern_error(ctx));
    const uint64_t launches = tern_dispatch_count(ctx);
    tern_tensor *out = tern_op_call(ctx, call->op, call->in, call->n_in, &call->attrs);
    enum tern_status late = out ? ctx->device->queue->fns->finish(ctx->device->queue) : TERN_OK; /* kernels may fail after the launch */
    if (!out && candidate && tern_error_status(ctx) == TERN_E_UNSUPPORTED)
        return tern_verdict_skip(v, "%s does not support this call", way);
    if (json_object_get(row, "error"))
        return refused_rightly(row, ctx, !out, v);
    if (!out || late || tern_failed(ctx))
        return tern_verdict_fail(v, "expected a result, found %s", tern_error(ctx));
    if (candidate && tern_dispatch_count(ctx) == launches)
        return tern_verdict_skip(v, "%s is not launched: the result is the input or a view of it", way);
    if (!ctx->device->caps.computes)
        return tern_verdict_skip(v, "device %s computes nothing", ctx->device->name);
    return output_is_right(c, row, out, v);
}

enum { EDGE = 64, EDGE_BYTE = 0xA5, FRESH_BYTE = 0xFF };

static bool call_reference(struct tern_conformance *c, const struct tern_call *call, const struct tern_kernel_args *a,
                           struct tern_verdict *v)
{
    char message[TERN_CONFORMANCE_MESSAGE] = "";
    if (!c->runner)
        call->info.reference(a);
    else if (!c->runner(a, c->runner_user, message, sizeof(message)))
        return message[0] ? tern_verdict_fail(v, "%s", message) : tern_verdict_skip(v, "the runner does not support this call");
    return true;
}

/* Calls the reference, or what stands for it, with d's output strides and compares what it wrote. */
static bool reference_writes(struct tern_conformance *c, const json_t *row, const struct tern_call *call, const struct tern_op_desc *d,
                             struct tern_verdict *v)
{
    struct tern_context *ctx = c->own;
    size_t element = tern_dtype_size(d->out.dtype), n = (size_t)tern_meta_numel(&d->out), bytes = n * element;
    unsigned char *memory = tern_alloc(ctx, bytes + 2 * EDGE), *rows = tern_alloc(ctx, bytes);
    struct tern_buffer *b = memory ? tern_buffer_wrap(tern_host_device(ctx), memory, bytes + 2 * EDGE, NULL, NULL) : NULL;
    bool good = rows && b;
    if (!good)
        tern_verdict_fail(v, "%s", tern_error(ctx));
    if (good) {
        struct tern_kernel_args a = {.desc = d, .ctx = ctx, .out = {b, EDGE}};
        for (int i = 0; i < call->n_in; i++)
            if (call->in[i])
                a.in[i] = (struct tern_arg){call->in[i]->buffer, call->in[i]->offset};
        memset(memory, EDGE_BYTE, bytes + 2 * EDGE);
        memset(memory + EDGE, FRESH_BYTE, bytes);
        good = call_reference(c, call, &a, v);
        for (size_t p = 0; p < n; p++)
            tern_copy_element(element, rows, (int64_t)p, memory + EDGE, tern_meta_offset(&d->out, (int64_t)p));
        good = good && tern_case_compare(&c->table, row, &d->out, rows, v);
        for (size_t p = 0; p < EDGE && good; p++)
            if (memory[p] != EDGE_BYTE || memory[EDGE + bytes + p] != EDGE_BYTE)
                good = tern_verdict_fail(v, "memory outside the output was written");
    }
    tern_buffer_unref(&b);
    tern_free(ctx, memory);
    tern_free(ctx, rows);
    return good;
}

/* Once contiguous, once with the dimensions in reverse order, or as asked. A runner may take the first order alone. */
static bool runs_in_orders(struct tern_conformance *c, const json_t *row, const struct tern_call *call, const struct tern_op_desc *first,
                           struct tern_verdict *v)
{
    struct tern_op_desc reversed = *first;
    int64_t stride = 1;
    for (int i = 0; i < reversed.out.ndim; i++) {
        reversed.out.stride[i] = stride;
        stride *= reversed.out.shape[i] ? reversed.out.shape[i] : 1;
    }
    if (c->orders != TERN_ORDERS_REVERSED && !reference_writes(c, row, call, first, v))
        return false;
    if (c->orders == TERN_ORDERS_FIRST || reference_writes(c, row, call, &reversed, v))
        return true;
    if (v->result != TERN_CONFORMANCE_SKIPPED)
        return false;
    v->result = TERN_CONFORMANCE_PASSED;
    v->message[0] = 0;
    return c->orders == TERN_ORDERS_BOTH || reference_writes(c, row, call, first, v);
}

/* The reference itself. */
static bool run_reference(struct tern_conformance *c, const json_t *row, struct tern_call *call, struct tern_verdict *v)
{
    struct tern_context *ctx = c->own;
    struct tern_op_desc d, again;
    if (!tern_call_describe(ctx, call, &d))
        return json_object_get(row, "error") ? refused_rightly(row, ctx, true, v) : tern_verdict_fail(v, "%s", tern_error(ctx));
    if (json_object_get(row, "error"))
        return refused_rightly(row, ctx, false, v);
    again = d; /* completed attributes stay as they are */
    if (call->info.shape(ctx, &again) || memcmp(&again, &d, sizeof(d)))
        return tern_verdict_fail(v, "the shape rule changes what it has completed: %s", tern_error(ctx));
    return runs_in_orders(c, row, call, &d, v);
}

void tern_ops_run(struct tern_conformance *c, const struct tern_check *check)
{
    const json_t *row = tern_table_case(&c->table, check->item);
    struct tern_verdict *v = &c->verdict;
    struct tern_call call;
    tern_scope_begin(c->own);
    if (!tern_call_prepare(&c->table, row, c->own, &call))
        tern_verdict_fail(v, "%s", tern_error(c->own));
    else if (check->way == strides)
        run_reference(c, row, &call, v);
    else
        run_call(c, row, &call, check->way, v);
    tern_scope_end(c->own, NULL);
    tern_error_clear(c->own);
    tern_dispatch_force(c->own, NULL);
}

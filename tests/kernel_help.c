/* One kernel, called as the dispatcher would. */
#include "kernel_help.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "ops/dispatch.h"

static struct tern_arg arg_of(const tern_tensor *t) { return (struct tern_arg){t->buffer, t->offset}; }

tern_tensor *kernel_run(struct tern_context *ctx, struct tern_op_desc *d, tern_tensor *const *in, const char *name)
{
    for (int i = 0; i < d->n_in; i++) {
        d->present[i] = in[i] != NULL;
        if (in[i])
            d->in[i] = in[i]->meta;
    }
    d->constant[1] = in[1] != NULL;
    const struct tern_kernel *k = tern_kernel_choose(ctx, ctx->device, d);
    assert_non_null(k);
    assert_string_equal(k->name, name);
    tern_tensor *out = tern_tensor_empty(ctx, &d->out);
    struct tern_kernel_args a = {.desc = d, .ctx = ctx, .out = arg_of(out)};
    for (int i = 0; i < d->n_in; i++)
        if (in[i])
            a.in[i] = arg_of(in[i]);
    a.packed.buffer = tern_buffer_create(ctx->device, k->pack ? k->packed_size(ctx, d) : 64);
    a.workspace.buffer = tern_buffer_create(ctx->device, k->workspace(ctx, d));
    assert_true(a.packed.buffer && a.workspace.buffer);
    if (k->pack)
        assert_int_equal(k->pack(ctx, d, tern_tensor_host(in[1]), a.packed.buffer->host), TERN_OK);
    assert_int_equal(k->run(&a), TERN_OK);
    tern_buffer_unref(&a.packed.buffer);
    tern_buffer_unref(&a.workspace.buffer);
    return out;
}

void kernel_post(struct tern_op_desc *d, enum tern_op op, int input)
{
    d->post[d->n_post++] = (struct tern_post){.op = op, .input = input};
}

/* Plans lay the result of an element-wise kernel, and of others that say so, where an operand was that nobody needs any more
 * (graph/layout.c). Every such kernel of the CPU makes the same bits there as in memory of its own, for every case of the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <tern/tern.h>

#include "conformance/suite.h"
#include "core/tensor.h"
#include "ops/dispatch.h"

static bool may_be_in_place(const struct tern_kernel *k) { return tern_op_is_elementwise(k->op) || k->in_place; }

/* The kernel's result, in memory of its own or, place from 0 on, in that of a copy of this operand. */
static tern_tensor *run(struct tern_context *ctx, const struct tern_kernel *k, const struct tern_op_desc *d, const struct tern_call *call,
                        int place)
{
    tern_tensor *out = tern_tensor_empty(ctx, &d->out);
    assert_non_null(out);
    struct tern_kernel_args a = {.desc = d, .ctx = ctx, .out = {out->buffer, out->offset}};
    for (int i = 0; i < d->n_in; i++)
        if (call->in[i])
            a.in[i] = (struct tern_arg){call->in[i]->buffer, call->in[i]->offset};
    if (place >= 0) {
        memcpy(tern_tensor_host(out), tern_tensor_host(call->in[place]), (size_t)tern_meta_numel(&d->out) * tern_dtype_size(d->out.dtype));
        a.in[place] = a.out;
    }
    a.workspace.buffer = tern_buffer_create(ctx->device, k->workspace ? k->workspace(ctx, d) : 0);
    assert_non_null(a.workspace.buffer);
    assert_int_equal(k->run(&a), TERN_OK);
    tern_buffer_unref(&a.workspace.buffer);
    return out;
}

/* How many operands' places were tried. */
static int check_case(struct tern_context *ctx, const struct tern_kernel *k, const struct tern_call *call, const char *name)
{
    struct tern_op_desc d;
    int tried = 0;
    const int own = tern_op_is_elementwise(call->op) ? call->n_in : 1;
    if (!tern_call_describe(ctx, call, &d) || k->pack || !k->supports(ctx->device, &d))
        return 0;
    for (int i = 0; i < own; i++) {
        if (!call->in[i] || memcmp(&d.in[i], &d.out, sizeof(d.out)) != 0 || !tern_meta_numel(&d.out))
            continue;
        const tern_tensor *apart = run(ctx, k, &d, call, -1), *there = run(ctx, k, &d, call, i);
        if (memcmp(tern_tensor_host(apart), tern_tensor_host(there), (size_t)tern_meta_numel(&d.out) * tern_dtype_size(d.out.dtype)) != 0)
            fail_msg("%s in the place of operand %d, case %s: other values", k->name, i, name);
        tried++;
    }
    return tried;
}

static void results_may_take_operands_places(void **state)
{
    struct tern_table table = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 2});
    assert_non_null(ctx);
    assert_true(tern_table_load(ctx, TERN_TEST_DATA "/ops", &table));
    int kernels = 0;
    for (int n = 0; ctx->device->kernels[n]; n++) {
        const struct tern_kernel *k = ctx->device->kernels[n];
        int tried = 0;
        const json_t *row;
        size_t i;
        json_array_foreach(table.cases, i, row) {
            struct tern_call call;
            if (!may_be_in_place(k) || tern_op_find(tern_json_word(row, "op")) != k->op || json_object_get(row, "error"))
                continue;
            tern_scope_begin(ctx);
            assert_true(tern_call_prepare(&table, row, ctx, &call));
            tried += check_case(ctx, k, &call, tern_json_word(row, "name"));
            tern_scope_end(ctx, NULL);
        }
        kernels += tried > 0;
        if (tern_op_is_elementwise(k->op) && !tried) /* the others are not of every level */
            fail_msg("%s: no case has a result like an operand", k->name);
    }
    assert_true(kernels >= 20);
    tern_table_close(&table);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(results_may_take_operands_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

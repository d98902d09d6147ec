/* Ops against PyTorch: every case of the table by the reference, by the dispatcher's choice and by every kernel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "core/tensor.h"
#include "ops/dispatch.h"
#include "tests/op_cases.h"
#include "tests/op_guard.h"

static struct op_cases *cases;

static struct tern_context *make_context(struct op_guard *guard)
{
    struct tern_context_params params = {.threads = 2};
    if (guard) {
        op_guard_init(guard);
        params.allocator = op_guard_allocator(guard);
    }
    struct tern_context *ctx = tern_context_create(&params);
    assert_non_null(ctx);
    return ctx;
}

/* Prints what failed, all of it, before the test does. */
static void note(int *failed, const char *message)
{
    if (++*failed <= 40)
        print_error("%s\n", message);
}

static void test_reference(void **state)
{
    char message[1024];
    int failed = 0;
    struct tern_context *ctx = make_context(NULL);
    for (int i = 0; i < op_cases_count(cases); i++)
        if (op_case_run_reference(cases, i, ctx, message, sizeof(message)) != OP_CASE_PASSED)
            note(&failed, message);
    tern_context_destroy(&ctx);
    assert_int_equal(failed, 0);
}

/* Every case with these options, under guarded memory. */
static void run_all(const struct op_case_options *options)
{
    char message[1024];
    int failed = 0;
    struct op_guard guard;
    struct tern_context *ctx = make_context(&guard);
    for (int i = 0; i < op_cases_count(cases); i++) {
        uint64_t damage = op_guard_damage(&guard);
        enum op_case_result result = op_case_run(cases, i, ctx, options, message, sizeof(message));
        tern_memory_trim(ctx);
        if (result != OP_CASE_PASSED)
            note(&failed, message);
        if (op_guard_damage(&guard) != damage) {
            print_error("%s: memory outside of a block was written\n", op_case_name(cases, i));
            failed++;
        }
    }
    tern_context_destroy(&ctx);
    assert_int_equal(op_guard_damage(&guard), 0);
    assert_int_equal(failed, 0);
}

static void test_forced_reference(void **state) { run_all(&(struct op_case_options){.kernel = "reference"}); }
static void test_chosen(void **state) { run_all(NULL); }
static void test_chosen_constant(void **state) { run_all(&(struct op_case_options){.constant = true}); }

/* On a device that computes nothing shapes and messages are the same, and nothing is there to compare. */
static void test_null_device(void **state)
{
    char message[1024];
    int failed = 0;
    struct tern_context *ctx = tern_context_create(&(const struct tern_context_params){.device = "null"});
    assert_non_null(ctx);
    for (int i = 0; i < op_cases_count(cases); i++) {
        enum op_case_result expected = op_case_is_error(cases, i) ? OP_CASE_PASSED : OP_CASE_SKIPPED;
        if (op_case_run(cases, i, ctx, NULL, message, sizeof(message)) != expected)
            note(&failed, message);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(failed, 0);
}

/* Every kernel of the device passes each case that it supports, and supports one at least. */
static void test_every_kernel(void **state)
{
    char message[1024];
    int failed = 0;
    struct op_guard guard;
    struct tern_context *ctx = make_context(&guard);
    for (int k = 0; ctx->device->kernels[k]; k++) {
        const struct tern_kernel *kernel = ctx->device->kernels[k];
        int passed = 0;
        for (int i = 0; i < op_cases_count(cases); i++) {
            if (op_case_op(cases, i) != kernel->op || op_case_is_error(cases, i))
                continue;
            enum op_case_result result =
                op_case_run(cases, i, ctx, &(struct op_case_options){.kernel = kernel->name}, message, sizeof(message));
            passed += result == OP_CASE_PASSED;
            if (result == OP_CASE_FAILED) {
                print_error("kernel %s: ", kernel->name);
                note(&failed, message);
            }
        }
        tern_memory_trim(ctx);
        if (!passed) {
            print_error("kernel %s: no case is for it\n", kernel->name);
            failed++;
        }
    }
    tern_context_destroy(&ctx);
    assert_int_equal(op_guard_damage(&guard), 0);
    assert_int_equal(failed, 0);
}

/* Each row of ops.def has values from PyTorch and, if a call can be wrong, a message that is checked. */
static void test_table_is_complete(void **state)
{
    int values[TERN_OP_COUNT] = {0}, errors[TERN_OP_COUNT] = {0};
    for (int i = 0; i < op_cases_count(cases); i++) {
        assert_in_range(op_case_op(cases, i), 0, TERN_OP_COUNT - 1);
        (op_case_is_error(cases, i) ? errors : values)[op_case_op(cases, i)]++;
    }
    for (int op = 0; op < TERN_OP_COUNT; op++) {
        if (values[op] < 3 || (!errors[op] && op != TERN_OP_logical_not)) /* logical_not takes everything */
            print_error("%s: %d cases, %d errors\n", tern_op_get(op).name, values[op], errors[op]);
        assert_true(values[op] >= 3);
        assert_true(errors[op] || op == TERN_OP_logical_not);
    }
}

/* Every row of ops.def has a public function: this does not compile otherwise. */
#undef tern_conv2d
#undef tern_conv_transpose2d
#undef tern_sdpa
#undef tern_interpolate
#undef tern_avg_pool2d
#undef tern_max_pool2d
#define tern_conv2d tern_conv2d_p
#define tern_conv_transpose2d tern_conv_transpose2d_p
#define tern_sdpa tern_sdpa_p
#define tern_interpolate tern_interpolate_p
#define tern_avg_pool2d tern_avg_pool2d_p
#define tern_max_pool2d tern_max_pool2d_p

static void test_public_functions(void **state)
{
    void (*const functions[])(void) = {
#define OP(name, inputs, attrs, counterpart) (void (*)(void)) tern_##name,
#include "ops/ops.def"
#undef OP
    };
    assert_int_equal(sizeof(functions) / sizeof(*functions), TERN_OP_COUNT);
    for (int op = 0; op < TERN_OP_COUNT; op++) {
        assert_non_null(functions[op]);
        assert_int_equal(tern_op_find(tern_op_get(op).name), op);
    }
    assert_int_equal(tern_op_find("no_such_op"), TERN_OP_COUNT);
}

/* The guards do find what they are for. */
static void test_guards(void **state)
{
    struct op_guard guard;
    struct tern_context *ctx = make_context(&guard);
    for (int at = -1; at <= 100; at += 101) {
        unsigned char *p = tern_alloc(ctx, 100);
        assert_non_null(p);
        assert_int_equal(p[0], 0xFF);
        uint64_t before = op_guard_damage(&guard);
        if (at > 0) {
            p[at] ^= 1;
            assert_int_equal(op_guard_damage(&guard), before + 1);
            p[at] ^= 1;
        }
        assert_int_equal(op_guard_damage(&guard), before);
        tern_free(ctx, p);
    }
    tern_context_destroy(&ctx);
}

static int load(void **state)
{
    char message[512] = "";
    cases = op_cases_load(TERN_TEST_DATA "/ops", message, sizeof(message));
    if (!cases)
        print_error("%s\n", message);
    return !cases;
}

static int unload(void **state)
{
    op_cases_free(&cases);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guards),          cmocka_unit_test(test_public_functions), cmocka_unit_test(test_table_is_complete),
        cmocka_unit_test(test_reference),       cmocka_unit_test(test_forced_reference), cmocka_unit_test(test_chosen),
        cmocka_unit_test(test_chosen_constant), cmocka_unit_test(test_every_kernel),     cmocka_unit_test(test_null_device),
    };
    return cmocka_run_group_tests(tests, load, unload);
}

/* Ops against PyTorch: every case of the table by the reference, by the dispatcher's choice and by every kernel. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <tern/conformance.h>
#include <tern/ops.h>

#include "backends/cpu/cpu.h"
#include "conformance/guard.h"
#include "core/context.h"
#include "ops/dispatch.h"

static struct tern_context *make_context(const struct tern_context_params *params)
{
    struct tern_context *ctx = tern_context_create(params);
    assert_non_null(ctx);
    return ctx;
}

static struct tern_conformance *make_suite(struct tern_context *ctx, const char *way)
{
    struct tern_conformance *suite = tern_conformance_create(ctx, &(struct tern_conformance_params){.kernel = way, .data = TERN_TEST_DATA});
    if (!suite)
        fail_msg("%s", tern_error(ctx));
    return suite;
}

/* Runs one check; what failed is printed, all of it, before the test fails. */
static enum tern_conformance_result run(struct tern_conformance *suite, int i, int *failed)
{
    struct tern_conformance_outcome o;
    struct tern_conformance_check check = tern_conformance_get(suite, i);
    assert_int_equal(tern_conformance_run(suite, i, &o), TERN_OK);
    if (o.result == TERN_CONFORMANCE_FAILED && ++*failed <= 40)
        print_error("%s by %s: %s\n", check.name, check.way, o.message);
    assert_true(o.result != TERN_CONFORMANCE_PASSED || (o.error >= 0 && o.error <= 1));
    return o.result;
}

/* Every case of the table passes that way. */
static void run_all(const char *way)
{
    int failed = 0;
    struct tern_context *ctx = make_context(&(struct tern_context_params){.threads = 2});
    struct tern_conformance *suite = make_suite(ctx, way);
    int n = tern_conformance_facts(suite).checks;
    assert_int_equal(n, tern_conformance_facts(suite).cases);
    for (int i = 0; i < n; i++)
        failed += run(suite, i, &failed) == TERN_CONFORMANCE_SKIPPED;
    tern_conformance_destroy(&suite);
    tern_context_destroy(&ctx);
    assert_int_equal(failed, 0);
}

static void test_reference(void **state) { run_all("reference_strides"); }
static void test_forced_reference(void **state) { run_all("reference"); }
static void test_chosen(void **state) { run_all("chosen"); }
static void test_chosen_constant(void **state) { run_all("constant"); }

/* On a device that computes nothing shapes and messages are the same, and nothing is there to compare. */
static void test_null_device(void **state)
{
    int failed = 0, passed = 0, skipped = 0;
    struct tern_context *ctx = make_context(&(struct tern_context_params){.device = "null"});
    struct tern_conformance *suite = make_suite(ctx, "chosen");
    for (int i = 0; i < tern_conformance_facts(suite).checks; i++) {
        enum tern_conformance_result r = run(suite, i, &failed);
        passed += r == TERN_CONFORMANCE_PASSED;
        skipped += r == TERN_CONFORMANCE_SKIPPED;
    }
    assert_int_equal(failed, 0);
    assert_true(passed >= 270 && skipped >= 1600);
    tern_conformance_destroy(&suite);
    tern_context_destroy(&ctx);
}

/* A library that is not there, or whose headers were not, or a level without attention in bf16: its candidate serves nothing. */
static bool is_absent(struct tern_context *ctx, const char *kernel)
{
    if (!strcmp(kernel, "sdpa_bf16_flash"))
        return cpu_level(ctx)->attention_bf16.scratch == 0;
    const char *vendor = strrchr(kernel, '_') + 1, *file;
    if (!strcmp(vendor, "openblas")) {
        file = "libopenblas.so.0";
    } else if (!strcmp(vendor, "onednn")) {
#ifndef TERN_HAVE_ONEDNN
        return true;
#endif
        file = "libdnnl.so.2";
    } else {
        return false;
    }
    return !dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

/* Every kernel of the device passes each case that it supports, and supports one at least. */
static void test_every_kernel(void **state)
{
    int failed = 0;
    struct tern_context *ctx = make_context(&(struct tern_context_params){.threads = 2});
    for (int k = 0; ctx->device->kernels[k]; k++) {
        struct tern_conformance *suite = make_suite(ctx, ctx->device->kernels[k]->name);
        int passed = 0;
        for (int i = 0; i < tern_conformance_facts(suite).checks; i++)
            passed += run(suite, i, &failed) == TERN_CONFORMANCE_PASSED;
        if (!passed && is_absent(ctx, ctx->device->kernels[k]->name)) {
            print_message("kernel %s: what it needs is not there\n", ctx->device->kernels[k]->name);
        } else if (!passed) {
            print_error("kernel %s: no case is for it\n", ctx->device->kernels[k]->name);
            failed++;
        }
        tern_conformance_destroy(&suite);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(failed, 0);
}

/* Each row of ops.def has values from PyTorch and, if a call can be wrong, a message that is checked. */
static void test_table_is_complete(void **state)
{
    int values[TERN_OP_COUNT] = {0}, errors[TERN_OP_COUNT] = {0};
    size_t i;
    json_t *root = json_load_file(TERN_TEST_DATA "/ops/cases.json", 0, NULL), *row;
    assert_non_null(root);
    json_array_foreach(json_object_get(root, "cases"), i, row) {
        enum tern_op op = tern_op_find(json_string_value(json_object_get(row, "op")));
        assert_in_range(op, 0, TERN_OP_COUNT - 1);
        (json_object_get(row, "error") ? errors : values)[op]++;
    }
    assert_true(i >= 2000);
    json_decref(root);
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
#undef tern_quantized_conv2d
#undef tern_weight_only_conv2d
#undef tern_sdpa
#undef tern_interpolate
#undef tern_avg_pool2d
#undef tern_max_pool2d
#define tern_conv2d tern_conv2d_p
#define tern_conv_transpose2d tern_conv_transpose2d_p
#define tern_quantized_conv2d tern_quantized_conv2d_p
#define tern_weight_only_conv2d tern_weight_only_conv2d_p
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
    struct tern_guard guard;
    tern_guard_init(&guard);
    struct tern_context *ctx = make_context(&(struct tern_context_params){.threads = 2, .allocator = tern_guard_allocator(&guard)});
    static const int places[] = {-192, -65, -64, -57, -56, -1, 100, 227};
    unsigned char *p = tern_alloc(ctx, 100);
    assert_non_null(p);
    assert_int_equal(p[0], 0xFF);
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        assert_int_equal(tern_guard_damage(&guard), 0);
        p[places[i]] ^= 1;
        if (tern_guard_damage(&guard) != 1)
            fail_msg("byte %d was written and not found", places[i]);
        p[places[i]] ^= 1;
    }
    p[-1] = 0;
    tern_free(ctx, p);
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 1);
    tern_guard_close(&guard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guards),          cmocka_unit_test(test_public_functions), cmocka_unit_test(test_table_is_complete),
        cmocka_unit_test(test_reference),       cmocka_unit_test(test_forced_reference), cmocka_unit_test(test_chosen),
        cmocka_unit_test(test_chosen_constant), cmocka_unit_test(test_every_kernel),     cmocka_unit_test(test_null_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Kernel texts as host C: every case of the op table that they run, against PyTorch's values, in three orders of the items. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/text_run.h"

/* TERN_TEXT_ONE_IN: of the build; 0 is all. Under the sanitizers a quarter of the element-wise variants do. */
static struct text_cache cache;

static void destroy(void *kernel)
{
    struct text_host *k = kernel;
    text_host_free(&k);
}

static bool run_host(void *user, const char *source, const struct tern_launch *l, const struct text_buffer *buffers, char *message,
                     size_t size)
{
    struct text_host *k = text_cache_find(&cache, source);
    if (!k) {
        k = text_host_load(source, message, size);
        if (!k || !text_cache_add(&cache, source, k))
            return false;
    }
    return text_host_run(k, l->groups, &l->params, l->params_size, buffers, l->n_slots, *(const enum text_order *)user, message, size);
}

static void run_all(const char *name, struct tern_launch_limits limits, enum text_order order, int one_in)
{
    struct text_executor e = {.name = name, .language = TERN_TEXT_HOST, .limits = limits, .run = run_host, .user = &order, .one_in = one_in};
    text_run_all(&e);
}

static void test_forward(void **state) { run_all("host C", text_limits_full(), TEXT_FORWARD, TERN_TEXT_ONE_IN); }
static void test_reverse(void **state) { run_all("host C, last item first", text_limits_full(), TEXT_REVERSE, TERN_TEXT_ONE_IN); }
static void test_least(void **state) { run_all("host C, least device", text_limits_least(), TEXT_SHUFFLED, 4); }

/* So few groups that each does the work of several: how items are found, which all variants do alike. */
static void test_few_groups(void **state)
{
    struct tern_launch_limits limits = text_limits_full();
    limits.max_groups = 2;
    run_all("host C, two groups", limits, TEXT_FORWARD, 4);
    run_all("host C, two groups, last item first", limits, TEXT_REVERSE, 4);
}

/* The last convolution of a decoder of 2048 x 2048: few channels, and more pixels than 65535 groups of 64. */
static void test_many_pixels(void **state)
{
    enum { SIDE = 2048, IN = 128, OUT = 3 };
    const struct tern_launch_limits limits[] = {text_limits_full(), text_limits_matrix()};
    for (int i = 0; i < 4; i++) {
        struct tern_op_desc d = {.op = TERN_OP_conv2d, .n_in = 3, .present = {true, true}};
        const enum tern_dtype dtype = i % 2 ? TERN_F16 : TERN_F32;
        d.in[0] = (struct tern_meta){dtype, 4, {1, IN, SIDE, SIDE}, {IN * SIDE * SIDE, 1, IN * SIDE, IN}};
        d.in[1] = (struct tern_meta){dtype, 4, {OUT, IN, 3, 3}, {9 * IN, 1, 3 * IN, IN}};
        d.out = (struct tern_meta){dtype, 4, {1, OUT, SIDE, SIDE}, {OUT * SIDE * SIDE, 1, OUT * SIDE, OUT}};
        d.attrs.conv2d = (struct tern_conv2d_attrs){.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .groups = 1};
        struct tern_launches *all = calloc(1, sizeof(*all));
        assert_true(tern_launches_make(&d, &limits[i / 2], all));
        assert_int_equal(all->n, 1);
        assert_int_equal(all->launch[0].groups[1], SIDE * SIDE / 128);
        free(all);
    }
}

static void run_subgroups(void)
{
    run_all("host C, subgroups of 8", text_limits_subgroups(8), TEXT_SHUFFLED, TERN_TEXT_ONE_IN);
    run_all("host C, subgroups of 32", text_limits_subgroups(32), TEXT_REVERSE, TERN_TEXT_ONE_IN);
}

/* Of 8, several to a group, and of 32, which small groups are one of; with them dot products of int8. Other texts are the same. */
static void test_subgroups(void **state)
{
    static const char *const families[] = {"sum", "mean", "amax", "argmax", "softmax", "layer_norm", "rms_norm", "group_norm", "quantize"};
    if (getenv("TERN_TEXT_CASES")) {
        run_subgroups();
        return;
    }
    for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++) {
        setenv("TERN_TEXT_CASES", families[i], 1);
        run_subgroups();
    }
    unsetenv("TERN_TEXT_CASES");
}

/* Of two items each comes first once, so a third order would find nothing more. */
static void test_matrix(void **state)
{
    run_all("host C, matrix units", text_limits_matrix(), TEXT_FORWARD, 16);
    run_all("host C, matrix units, last item first", text_limits_matrix(), TEXT_REVERSE, 16);
}

/* As some devices have them: a thin tile of a convolution has too few vectors for as many items. The other texts count on that. */
static void test_wide_matrix(void **state)
{
    struct tern_launch_limits limits = text_limits_matrix();
    const char *given = getenv("TERN_TEXT_CASES");
    limits.matrix_subgroup = 64;
    if (!given)
        setenv("TERN_TEXT_CASES", "conv2d", 1);
    run_all("host C, matrix units, subgroups of 64", limits, TEXT_FORWARD, 16);
    if (!given)
        unsetenv("TERN_TEXT_CASES");
}

/* Large heads of attention with as much shared memory as some devices have, and with subgroups of 64, which share the columns otherwise.
 * Stores are early in this order: what is overwritten before all have read it is found. */
static void test_large_heads(void **state)
{
    struct tern_launch_limits limits = text_limits_matrix();
    const char *given = getenv("TERN_TEXT_CASES");
    if (!given)
        setenv("TERN_TEXT_CASES", "sdpa.matrix_large", 1);
    limits.shared_bytes = 32 << 10;
    run_all("host C, matrix units, 32 KiB", limits, TEXT_SHUFFLED, 16);
    limits.shared_bytes = 48 << 10;
    run_all("host C, matrix units, 48 KiB", limits, TEXT_SHUFFLED, 16);
    limits.matrix_subgroup = 64;
    run_all("host C, matrix units, subgroups of 64", limits, TEXT_SHUFFLED, 16);
    if (!given)
        unsetenv("TERN_TEXT_CASES");
}

/* The large tile half as deep, where there is no more shared memory than that. */
static void test_shallow_matrix(void **state)
{
    static const char *const calls[] = {"matmul.matrix_large", "conv2d.matrix_large", "quantized_linear_geglu.matrix_large",
                                        "quantized_conv2d.matrix_large"};
    struct tern_launch_limits limits = text_limits_matrix();
    limits.shared_bytes = 24 << 10;
    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls) && !getenv("TERN_TEXT_CASES"); i++) {
        setenv("TERN_TEXT_CASES", calls[i], 1);
        run_all("host C, matrix units, 24 KiB", limits, TEXT_FORWARD, 16);
        unsetenv("TERN_TEXT_CASES");
    }
}

static int finish(void **state)
{
    text_cache_clear(&cache, destroy);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward),     cmocka_unit_test(test_reverse),
                                       cmocka_unit_test(test_least),       cmocka_unit_test(test_few_groups),
                                       cmocka_unit_test(test_many_pixels), cmocka_unit_test(test_subgroups),
                                       cmocka_unit_test(test_matrix),      cmocka_unit_test(test_wide_matrix),
                                       cmocka_unit_test(test_large_heads), cmocka_unit_test(test_shallow_matrix)};
    return cmocka_run_group_tests(tests, NULL, finish);
}

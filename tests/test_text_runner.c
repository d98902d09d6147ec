/* What stands around the kernel texts: their expansion, launches that are refused, parameters, and that the runner of host C finds
 * what it is for: accesses outside, barriers that items miss, barriers that are missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "tests/support.h"
#include "tests/text_run.h"

/* A kernel over one buffer y of 64 ints, in groups of 8, with a shared array, around a body. */
static char *small_kernel(struct tern_context *ctx, const char *body)
{
    char *source = tern_text_source(ctx, TERN_TEXT_HOST, "fill",
                                    "GROUP_SIZE_X 8\nGROUP_SIZE_Y 1\nSUBGROUP 4\nDTYPE_y I32\nNDIM 1\nVALUES_FULL 1\nINTEGER 1\n");
    assert_non_null(source);
    char *text = strstr(source, "/* Values made from nothing");
    assert_non_null(text);
    *text = 0;
    char *all = tern_sprintf(ctx,
                             "%s\n#define KERNEL_BUFFERS(READ, WRITE) WRITE(0, y)\n#define KERNEL_PARAMS TERN_PARAMS_FILL\n"
                             "#define KERNEL_SHARED(ARRAY) ARRAY(int, part, GROUP_SIZE_X)\nKERNEL_BEGIN\n%s\nKERNEL_END\n",
                             source, body);
    assert_non_null(all);
    tern_free(ctx, source);
    return all;
}

/* Runs it in one group; y is 64 ints of which the kernel may touch those from 2 on. */
static bool run_small(struct tern_context *ctx, const char *body, enum text_order order, int32_t y[64], char message[512])
{
    struct tern_params_fill params = {.n = 8, .offset = {2}};
    struct text_buffer buffer = {y, 2 * sizeof(int32_t), 64 * sizeof(int32_t)};
    char *source = small_kernel(ctx, body);
    message[0] = 0;
    struct text_host *k = text_host_load(source, message, 512);
    if (!k)
        print_error("%s\n", message);
    assert_non_null(k);
    memset(y, 0, 64 * sizeof(int32_t));
    bool good = text_host_run(k, (const int[]){1, 1, 1}, &params, sizeof(params), &buffer, 1, order, message, 512);
    text_host_free(&k);
    tern_free(ctx, source);
    return good;
}

static void test_runs(void **state)
{
    int32_t y[64];
    char message[512];
    for (int order = 0; order < TEXT_ORDERS; order++) {
        assert_true(run_small(*state, "part[LOCAL_X] = LOCAL_X; BARRIER(); STOREI(y, LOCAL_X, part[7 - LOCAL_X] + P.n);",
                              (enum text_order)order, y, message));
        for (int i = 0; i < 8; i++)
            assert_int_equal(y[2 + i], 7 - i + 8);
    }
}

static void test_outside(void **state)
{
    static const char *const bodies[] = {"STOREI(y, LOCAL_X - 1, 1);", "STOREI(y, 55 + LOCAL_X, 1);", "STOREI(y, 100, LOADI(y, 0));",
                                         "STOREI(y, 0, LOADI(y, 62));"};
    int32_t y[64];
    char message[512];
    for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); i++) {
        assert_false(run_small(*state, bodies[i], TEXT_FORWARD, y, message));
        assert_non_null(strstr(message, "of slot 0 is outside"));
        assert_int_equal(y[0], 0);
        assert_int_equal(y[1], 0);
    }
}

static void test_barrier_missed(void **state)
{
    int32_t y[64];
    char message[512];
    assert_false(run_small(*state, "if (LOCAL_X < 3) BARRIER();", TEXT_FORWARD, y, message));
    assert_non_null(strstr(message, "a barrier that not all items of the group reach"));
    assert_false(run_small(*state, "if (LOCAL_X < 3)\n BARRIER();\n else\n BARRIER();", TEXT_FORWARD, y, message));
    assert_non_null(strstr(message, "different barriers"));
}

/* Subgroups of 4: sums of the items' numbers within each, and exchanges that some miss. */
static void test_exchange(void **state)
{
    int32_t y[64];
    char message[512];
    for (int order = 0; order < TEXT_ORDERS; order++) {
        assert_true(run_small(*state,
                              "int v = ITEM; for (int m = 1; m < SUBGROUP; m *= 2) { int o = SHUFFLE_XOR(v, m); v += o; } "
                              "float f = SHUFFLE_XOR(0.5f, 1); STOREI(y, ITEM, v + INT(f * 200.0f));",
                              (enum text_order)order, y, message));
        for (int i = 0; i < 8; i++)
            assert_int_equal(y[2 + i], (i < 4 ? 0 + 1 + 2 + 3 : 4 + 5 + 6 + 7) + 100);
    }
    assert_true(
        run_small(*state, "int v = 0; if (ITEM < 4) v = SHUFFLE_XOR(ITEM, 2); BARRIER(); STOREI(y, ITEM, v);", TEXT_FORWARD, y, message));
    assert_int_equal(y[2 + 1], 3); /* one subgroup may go its own way */
    assert_false(run_small(*state, "int v = 0; if (ITEM < 3) v = SHUFFLE_XOR(ITEM, 1); STOREI(y, ITEM, v);", TEXT_FORWARD, y, message));
    assert_non_null(strstr(message, "an exchange that not all items of the subgroup reach"));
    assert_false(run_small(*state, "if (ITEM == 7) BARRIER(); else STOREI(y, ITEM, SHUFFLE_XOR(1, 1));", TEXT_FORWARD, y, message));
    assert_non_null(strstr(message, "an exchange that not all items of the subgroup reach"));
    assert_false(run_small(*state, "STOREI(y, ITEM, SHUFFLE_XOR(1, ITEM % 2 + 1));", TEXT_FORWARD, y, message));
    assert_false(run_small(*state, "STOREI(y, ITEM, SHUFFLE_XOR(1, 4));", TEXT_FORWARD, y, message));
}

/* Without its barrier the first test's kernel is wrong in at least one order. */
static void test_barrier_missing(void **state)
{
    int32_t y[64];
    char message[512];
    int wrong = 0;
    for (int order = 0; order < TEXT_ORDERS; order++) {
        assert_true(
            run_small(*state, "part[LOCAL_X] = LOCAL_X; STOREI(y, LOCAL_X, part[7 - LOCAL_X]);", (enum text_order)order, y, message));
        for (int i = 0; i < 8; i++)
            wrong += y[2 + i] != 7 - i;
    }
    assert_true(wrong >= 8);
}

/* ---- the example of docs/kernel-texts.md ---- */

/* Lines from the one that begins with `first` to the one that begins with `last`, as they stand there. */
static char *lines_of(struct tern_context *ctx, const char *text, const char *first, const char *last)
{
    const char *from = strstr(text, first), *to = from ? strstr(from, last) : NULL;
    assert_non_null(from);
    assert_non_null(to);
    const char *end = strchr(to, '\n');
    return tern_strndup(ctx, from, (size_t)(end + 1 - from));
}

static void test_example(void **state)
{
    struct tern_context *ctx = *state;
    static const char defines[] = "GROUP_SIZE_X 8\nGROUP_SIZE_Y 1\nDTYPE_x F32\nDTYPE_y I32\n";
    struct {
        struct tern_params_head head;
        int32_t n;
        float factor;
    } params = {.head = {.offset = {1, 3}}, .n = 20, .factor = 2.5f};
    char page[65536] = "", message[1024];
    FILE *f = fopen(TERN_SOURCE_ROOT "/docs/kernel-texts.md", "r");
    assert_non_null(f);
    assert_true(fread(page, 1, sizeof(page) - 1, f) > 0);
    fclose(f);
    char *list = lines_of(ctx, page, "#define TERN_PARAMS_SCALE", "F(factor)"),
         *text = lines_of(ctx, page, "/* y = x times a number", "KERNEL_END");
    char *source = tern_text_source(ctx, TERN_TEXT_HOST, "fill", defines);
    assert_non_null(source);
    *strstr(source, "/* Values made from nothing") = 0;
    char *all = tern_sprintf(ctx, "%s\n%s\n%s", source, list, text);
    struct text_host *k = text_host_load(all, message, sizeof(message));
    if (!k)
        print_error("%s\n", message);
    assert_non_null(k);
    float x[21];
    int32_t y[23];
    for (int i = 0; i < 21; i++)
        x[i] = (float)i;
    const struct text_buffer buffers[2] = {{x, 4, sizeof(x)}, {y, 12, sizeof(y)}};
    assert_true(text_host_run(k, (const int[]){2, 1, 1}, &params, sizeof(params), buffers, 2, TEXT_FORWARD, message, sizeof(message)));
    for (int i = 0; i < 20; i++)
        assert_int_equal(y[3 + i], (int)((float)(i + 1) * 2.5f));
    text_host_free(&k);
    tern_free(ctx, all);
    tern_free(ctx, source);
    tern_free(ctx, list);
    tern_free(ctx, text);
}

/* ---- sources ---- */

static void test_sources(void **state)
{
    struct tern_context *ctx = *state;
    for (int i = 0; tern_text_name(i); i++) {
        char *previous = NULL;
        for (int language = 0; language < TERN_TEXT_LANGUAGES; language++) {
            char *source = tern_text_source(ctx, (enum tern_text_language)language, tern_text_name(i), "FIRST 1\nSECOND(x) (x + 2)");
            assert_non_null(source);
            assert_non_null(strstr(source, "#define FIRST 1\n#define SECOND(x) (x + 2)\n"));
            assert_non_null(strstr(source, "KERNEL_BEGIN\n"));
            assert_int_equal(strncmp(source, "#version 450\n", 13) == 0, language == TERN_TEXT_GLSL);
            assert_true(!previous || strcmp(previous, source));
            tern_free(ctx, previous);
            previous = source;
        }
        tern_free(ctx, previous);
    }
    assert_null(tern_text_name(-1));
    assert_null(tern_text_source(ctx, TERN_TEXT_CUDA, "no_such_text", ""));
    support_error(ctx, TERN_E_NOT_FOUND, "no_such_text");
    assert_null(tern_text_source(ctx, TERN_TEXT_LANGUAGES, "copy", ""));
    support_error(ctx, TERN_E_NOT_FOUND, "language");
    assert_string_equal(tern_text_entry(TERN_TEXT_GLSL), "main");
    assert_string_equal(tern_text_entry(TERN_TEXT_CUDA), "tern_kernel");
}

static void test_no_memory(void **state)
{
    struct support_allocator memory = {.fail_at = 0};
    struct tern_context_params params = {.threads = 1, .allocator = support_failing(&memory)};
    struct tern_context *ctx = tern_context_create(&params);
    assert_non_null(ctx);
    memory.fail_at = memory.count + 1;
    assert_null(tern_text_source(ctx, TERN_TEXT_CUDA, "copy", ""));
    support_error(ctx, TERN_E_NO_MEMORY, "");
    tern_context_destroy(&ctx);
    assert_int_equal(memory.live, 0);
}

/* ---- launches ---- */

static bool make(struct tern_op_desc *d, const struct tern_launch_limits *limits, struct tern_launches *out)
{
    for (int i = 0; i < d->n_in; i++)
        d->present[i] = true;
    d->out = d->in[0];
    return tern_launches_make(d, limits, out);
}

static void test_launches(void **state)
{
    static struct tern_launches l;
    struct tern_launch_limits full = text_limits_full(), least = text_limits_least();
    struct tern_op_desc d = {.op = TERN_OP_add, .n_in = 2};
    d.in[0] = tern_meta_make(TERN_F16, 3, (const int64_t[]){4, 300, 5});
    d.in[1] = d.in[0];
    assert_true(make(&d, &full, &l));
    assert_int_equal(l.n, 1);
    assert_string_equal(l.launch[0].text, "elementwise");
    assert_int_equal(l.launch[0].groups[0], 24); /* 6000 values, 256 items a group */
    assert_int_equal(l.launch[0].n_slots, 3);
    assert_int_equal(l.launch[0].slot[2].what, TERN_SLOT_OUT);
    assert_int_equal(l.launch[0].slot[2].size, 2);
    assert_non_null(strstr(l.defines[0], "NDIM 1\n")); /* merged */
    assert_false(make(&d, &least, &l));                /* f16 cannot be stored there */
    d.in[0].shape[1] = d.in[1].shape[1] = 0;
    assert_true(make(&d, &full, &l));
    assert_int_equal(l.n, 0); /* nothing to do */
    d.in[0] = d.in[1] = tern_meta_make(TERN_F32, 1, (const int64_t[]){(int64_t)1 << 30});
    assert_false(make(&d, &full, &l)); /* indices of 32 bits */
    d.in[0] = d.in[1] = tern_meta_make(TERN_I64, 1, (const int64_t[]){8});
    assert_false(make(&d, &full, &l)); /* arithmetic of 64 bits */
}

static void test_limits(void **state)
{
    static struct tern_launches l;
    struct tern_launch_limits least = text_limits_least();
    struct tern_op_desc d = {.op = TERN_OP_sdpa, .n_in = 3, .attrs = {.sdpa = {.scale = 1}}};
    for (int64_t e = 1; e <= 512; e *= 2) { /* every head fits 16 KiB of shared memory */
        for (int i = 0; i < 3; i++)
            d.in[i] = tern_meta_make(TERN_F32, 3, (const int64_t[]){2, 9, e});
        assert_true(make(&d, &least, &l));
        const struct tern_launch *one = &l.launch[0];
        int x = one->group_size[0], ec = atoi(strstr(l.defines[0], "EC ") + 3);
        int kc = atoi(strstr(l.defines[0], "KC ") + 3), queries = one->group_size[1], row = ((int)e + x - 1) / x * x;
        assert_true(queries >= 1 && ec >= 1 && kc >= 1);
        assert_true((ec * (queries + x + 1) + 4 * x * (queries + 1) + x * queries) * 16 + kc * row * 4 <= 16384); /* KERNEL_SHARED */
        assert_true(x * one->group_size[1] <= 64);
    }
    for (int i = 0; i < 3; i++)
        d.in[i] = tern_meta_make(TERN_F32, 3, (const int64_t[]){2, 9, 513});
    assert_false(make(&d, &least, &l));
}

/* ---- executors ---- */

static bool take(void *user, const char *source, const struct tern_launch *l, const struct text_buffer *buffers, char *message, size_t size)
{
    return true;
}

/* Where one in very many variants runs, each op that has texts has a launch all the same. */
static void test_one_in(void **state)
{
    struct text_executor all = {.name = "all", .language = TERN_TEXT_HOST, .limits = text_limits_full(), .run = take, .only_compiles = true};
    struct text_executor few = all;
    few.one_in = 1 << 30;
    struct text_counts a = text_run_table(&all), f = text_run_table(&few);
    for (int op = 0; op < TERN_OP_COUNT; op++)
        if ((a.op_launches[op] > 0) != (f.op_launches[op] > 0))
            fail_msg("%s: %d launches, %d where one in many runs", tern_op_get((enum tern_op)op).name, a.op_launches[op],
                     f.op_launches[op]);
    assert_int_equal(a.failed + f.failed, 0);
    assert_true(f.launches > 0 && f.launches < a.launches);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs),           cmocka_unit_test(test_outside),
        cmocka_unit_test(test_barrier_missed), cmocka_unit_test(test_barrier_missing),
        cmocka_unit_test(test_exchange),       cmocka_unit_test(test_example),
        cmocka_unit_test(test_sources),        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_launches),       cmocka_unit_test(test_limits),
        cmocka_unit_test(test_one_in),
    };
    return cmocka_run_group_tests(tests, support_setup, support_teardown);
}

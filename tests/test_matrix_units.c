/* The words for matrix units in kernel texts, on the runner of host C: what they compute, and that their misuse is found. */
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

/* Two factors of 16 rows, 24 elements apart, in a tile that then takes a sum of each subgroup, 20 floats apart; y is 256 ints. Eight items
 * in two subgroups. */
#define FILL                                                                        \
    "#define V(h) ((h) * 5 % 7 % 3 == 0 ? 0u : (h) * 5 % 7 % 3 == 1 ? ONE : TWO)\n" \
    "#define W(h) (V(h) | V((h) + 1) << 16)\n"                                      \
    "MATRIX_A(a, 1); MATRIX_B(b, 1); MATRIX_SUM(sum, 1);\n"                         \
    "for (int e = LOCAL_X; e < 96; e += 8) tile[e] = MAKE_UINT4(W(8 * e), W(8 * e + 2), W(8 * e + 4), W(8 * e + 6));\n"
#define LOAD_BOTH "MATRIX_LOAD_A(a[0], tile, 0, 24, MATRIX_ROWS); MATRIX_LOAD_B(b[0], tile, 384, 24, MATRIX_COLUMNS);\n"
#define MULTIPLY "MATRIX_ZERO(sum[0]); MATRIX_MULTIPLY(sum[0], a[0], MATRIX_ROWS, b[0], MATRIX_COLUMNS);\n"
#define STORE_SUM "MATRIX_STORE(sum[0], tile, SUBGROUP_ID * 320, 20);\n"
#define READ_SUM                                                                                                                         \
    "if (SUBGROUP_ID == 1) for (int e = LANE; e < 256; e += 4) STOREI(y, e, tern_int_of_f32(SHARED_FLOAT(tile, 320 + e / 16 * 20 + e % " \
    "16)));\n"
#define BARRIER "BARRIER();\n"

static char *source_of(struct tern_context *ctx, bool bf16, const char *body)
{
    static const char kernel[] = "#define KERNEL_BUFFERS(READ, WRITE) WRITE(0, y)\n#define KERNEL_PARAMS TERN_PARAMS_FILL\n"
                                 "#define KERNEL_SHARED(ARRAY) ARRAY(UINT4, tile, 160)\n";
    char defines[256];
    snprintf(defines, sizeof(defines), "MATRIX 1\nMATRIX_SUBGROUP 4\nGROUP_SIZE_X 8\nGROUP_SIZE_Y 1\nDTYPE_y I32\n%s",
             bf16 ? "MATRIX_BF16 1\nONE 0x3f80u\nTWO 0x4000u\n" : "ONE 0x3c00u\nTWO 0x4000u\n");
    char *source = tern_text_source(ctx, TERN_TEXT_HOST, "fill", defines);
    assert_non_null(source);
    *strstr(source, "/* Values made from nothing") = 0;
    char *all = tern_sprintf(ctx, "%s\n%sKERNEL_BEGIN\n%s\nKERNEL_END\n", source, kernel, body);
    assert_non_null(all);
    tern_free(ctx, source);
    return all;
}

static bool run(struct tern_context *ctx, bool bf16, const char *body, enum text_order order, int32_t y[256], char message[512])
{
    struct tern_params_fill params = {.n = 8};
    struct text_buffer buffer = {y, 0, 256 * sizeof(int32_t)};
    char *source = source_of(ctx, bf16, body);
    message[0] = 0;
    struct text_host *k = text_host_load(source, message, 512);
    if (!k)
        print_error("%s\n", message);
    assert_non_null(k);
    memset(y, 0, 256 * sizeof(int32_t));
    bool good = text_host_run(k, (const int[]){2, 1, 1}, &params, sizeof(params), &buffer, 1, order, message, 512);
    text_host_free(&k);
    tern_free(ctx, source);
    return good;
}

static int value(int h) { return h * 5 % 7 % 3; }

/* Values of y that are not the product's. */
static int wrong_values(const int32_t y[256])
{
    int wrong = 0;
    for (int i = 0; i < 256; i++) {
        int sum = 0;
        for (int k = 0; k < 16; k++)
            sum += value(i / 16 * 24 + k) * value(384 + i % 16 * 24 + k);
        wrong += y[i] != sum;
    }
    return wrong;
}

static void test_multiplies(void **state)
{
    int32_t y[256];
    char message[512];
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int order = 0; order < TEXT_ORDERS; order++) {
            bool good =
                run(*state, bf16, FILL BARRIER LOAD_BOTH MULTIPLY BARRIER STORE_SUM BARRIER READ_SUM, (enum text_order)order, y, message);
            if (!good)
                print_error("%s\n", message);
            assert_true(good);
            assert_int_equal(wrong_values(y), 0);
        }
}

/* Without one of its barriers the kernel is wrong in some order. */
static void test_barriers_missing(void **state)
{
    static const char *const bodies[] = {FILL LOAD_BOTH MULTIPLY BARRIER STORE_SUM BARRIER READ_SUM,
                                         FILL BARRIER LOAD_BOTH MULTIPLY STORE_SUM BARRIER READ_SUM,
                                         FILL BARRIER LOAD_BOTH MULTIPLY BARRIER STORE_SUM READ_SUM,
                                         FILL BARRIER LOAD_BOTH MULTIPLY BARRIER STORE_SUM BARRIER READ_SUM
                                         "MATRIX_ZERO(sum[0]);\n" STORE_SUM};
    int32_t y[256];
    char message[512];
    for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); i++) {
        int wrong = 0;
        for (int order = 0; order < TEXT_ORDERS; order++) {
            assert_true(run(*state, false, bodies[i], (enum text_order)order, y, message));
            wrong += wrong_values(y) > 0;
        }
        assert_true(wrong > 0);
    }
}

static void test_misuse(void **state)
{
    static const struct {
        const char *body, *message;
    } all[] = {
        {FILL "if (LANE == 0) MATRIX_ZERO(sum[0]);", "not all items of a subgroup"},
        {FILL "if (LANE > 1) MATRIX_ZERO(sum[0]);\n" BARRIER, "not all items of a subgroup"},
        {FILL BARRIER "MATRIX_LOAD_A(a[0], tile, LANE * 16, 24, MATRIX_ROWS);", "different things"},
        {FILL BARRIER "MATRIX_LOAD_A(a[0], tile, 0, LANE > 2 ? 24 : 32, MATRIX_ROWS);", "different things"},
        {FILL BARRIER "if (LANE < 2) MATRIX_ZERO(sum[0]);\nelse\nMATRIX_ZERO(sum[0]);", "different things"},
        {FILL BARRIER "MATRIX_LOAD_A(a[0], tile, 1280 - 15 * 24, 24, MATRIX_ROWS);", "outside of the shared array"},
        {FILL BARRIER "MATRIX_LOAD_B(b[0], tile, -16, 24, MATRIX_COLUMNS);", "outside of the shared array"},
        {FILL BARRIER "MATRIX_LOAD_A(a[0], tile, 0, 8, MATRIX_ROWS);", "outside of the shared array"},
        {FILL BARRIER "MATRIX_ZERO(sum[0]); MATRIX_STORE(sum[0], tile, 328, 20);", "outside of the shared array"},
        {FILL BARRIER "MATRIX_LOAD_A(a[0], tile, 8, 24, MATRIX_ROWS);", "askew"},
        {FILL BARRIER "MATRIX_LOAD_A(a[0], tile, 0, 20, MATRIX_ROWS);", "askew"},
        {FILL BARRIER LOAD_BOTH "MATRIX_MULTIPLY(sum[0], a[0], MATRIX_ROWS, b[0], MATRIX_COLUMNS);", "not filled"},
        {FILL BARRIER "MATRIX_ZERO(sum[0]); MATRIX_MULTIPLY(sum[0], a[0], MATRIX_ROWS, b[0], MATRIX_COLUMNS);", "not filled"},
        {FILL BARRIER LOAD_BOTH "MATRIX_ZERO(sum[0]); MATRIX_MULTIPLY(sum[0], a[0], MATRIX_COLUMNS, b[0], MATRIX_COLUMNS);",
         "filled otherwise"},
        {FILL BARRIER LOAD_BOTH "MATRIX_ZERO(sum[0]); MATRIX_MULTIPLY(sum[0], b[0], MATRIX_COLUMNS, b[0], MATRIX_COLUMNS);",
         "filled otherwise"},
        {FILL BARRIER "MATRIX_STORE(sum[0], tile, 0, 20);", "not filled is stored"},
    };
    int32_t y[256];
    char message[512];
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        assert_false(run(*state, false, all[i].body, TEXT_FORWARD, y, message));
        if (!strstr(message, all[i].message))
            fail_msg("%s: expected \"%s\", found \"%s\"", all[i].body, all[i].message, message);
    }
}

/* ---- which launches use them ---- */

static const char *text_of(enum tern_op op, enum tern_dtype a, enum tern_dtype b, int64_t m, int64_t n, int64_t k,
                           const struct tern_launch_limits *limits, struct tern_launches *l)
{
    struct tern_op_desc d = {.op = op, .n_in = 2, .present = {true, true}};
    d.in[0] = tern_meta_make(a, 2, (const int64_t[]){m, k});
    d.in[1] = op == TERN_OP_linear ? tern_meta_make(b, 2, (const int64_t[]){n, k}) : tern_meta_make(b, 2, (const int64_t[]){k, n});
    d.out = tern_meta_make(a, 2, (const int64_t[]){m, n});
    assert_true(tern_launches_make(&d, limits, l));
    assert_int_equal(l->n, 1);
    return l->launch[0].text;
}

static void test_launches(void **state)
{
    static struct tern_launches l;
    struct tern_launch_limits limits = text_limits_matrix();
    limits.vectors = true;
    assert_string_equal(text_of(TERN_OP_linear, TERN_F16, TERN_F16, 4096, 4096, 4096, &limits, &l), "matmul_matrix");
    assert_int_equal(l.launch[0].group_size[0], 256); /* 128 x 128 */
    assert_int_equal(l.launch[0].groups[0] * l.launch[0].groups[1], 32 * 32);
    assert_non_null(strstr(l.defines[0], "WIDE_A 1\n"));
    assert_non_null(strstr(l.defines[0], "WIDE_B 1\n"));
    assert_non_null(strstr(l.defines[0], "WIDE_Y 1\n"));
    assert_null(strstr(l.defines[0], "MATRIX_BF16"));
    assert_string_equal(text_of(TERN_OP_matmul, TERN_BF16, TERN_BF16, 100, 100, 99, &limits, &l), "matmul_matrix");
    assert_int_equal(l.launch[0].group_size[0], 128); /* 64 x 64 */
    assert_int_equal(l.launch[0].groups[0] * l.launch[0].groups[1], 2 * 2);
    assert_non_null(strstr(l.defines[0], "MATRIX_BF16 1\n"));
    assert_non_null(strstr(l.defines[0], "B_ALONG_N 1\n"));
    assert_null(strstr(l.defines[0], "WIDE_"));
    assert_string_equal(text_of(TERN_OP_linear, TERN_F16, TERN_F16, 2, 640, 640, &limits, &l), "matmul_matrix");
    assert_int_equal(l.launch[0].groups[0] * l.launch[0].groups[1], 10); /* 16 x 64 */
    assert_string_equal(text_of(TERN_OP_linear, TERN_F32, TERN_F32, 64, 64, 64, &limits, &l), "matmul");
    assert_string_equal(text_of(TERN_OP_linear, TERN_F32, TERN_F16, 64, 64, 64, &limits, &l), "matmul");
    limits.matrix_bf16 = false;
    assert_string_equal(text_of(TERN_OP_linear, TERN_BF16, TERN_BF16, 64, 64, 64, &limits, &l), "matmul");
    assert_string_equal(text_of(TERN_OP_linear, TERN_F16, TERN_F16, 64, 64, 64, &limits, &l), "matmul_matrix");
    limits.shared_bytes = 16 << 10; /* no tile fits */
    assert_string_equal(text_of(TERN_OP_linear, TERN_F16, TERN_F16, 64, 64, 64, &limits, &l), "matmul");
    limits.shared_bytes = 24 << 10; /* the large one does where it is half as deep */
    text_of(TERN_OP_linear, TERN_F16, TERN_F16, 4096, 4096, 64, &limits, &l);
    assert_int_equal(l.launch[0].groups[0] * l.launch[0].groups[1], 32 * 32);
    assert_non_null(strstr(l.defines[0], "TK 16\n"));
    limits.matrix_subgroup = 64; /* too few vectors for as many items */
    text_of(TERN_OP_linear, TERN_F16, TERN_F16, 4096, 4096, 64, &limits, &l);
    assert_int_equal(l.launch[0].groups[0] * l.launch[0].groups[1], 64 * 64);
    limits.matrix_subgroup = 32;
    limits.shared_bytes = 20 << 10; /* it does not */
    text_of(TERN_OP_linear, TERN_F16, TERN_F16, 4096, 4096, 64, &limits, &l);
    assert_int_equal(l.launch[0].group_size[0], 128);
    limits.max_group = 64;
    assert_string_equal(text_of(TERN_OP_linear, TERN_F16, TERN_F16, 64, 64, 64, &limits, &l), "matmul");
}

/* 128 x 64 in place of 128 x 128 where columns would be empty, an eighth and more, and in place of 64 x 64 where rows are many. */
static void test_tall(void **state)
{
    static const struct {
        int64_t rows, cols;
        int tm, tn;
    } all[] = {{8192, 320, 128, 64},  {8192, 300, 128, 64},  {8192, 448, 128, 64},  {8192, 576, 128, 128},
               {8192, 960, 128, 128}, {8192, 640, 128, 128}, {8192, 384, 128, 128}, {4096, 320, 64, 64},
               {32768, 64, 128, 64},  {32640, 64, 64, 64},   {32768, 40, 128, 64}};
    static struct tern_launches l;
    struct tern_launch_limits limits = text_limits_matrix();
    limits.vectors = true;
    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        text_of(TERN_OP_linear, TERN_F16, TERN_F16, all[i].rows, all[i].cols, 320, &limits, &l);
        if (l.launch[0].groups[0] != (all[i].cols + all[i].tn - 1) / all[i].tn ||
            l.launch[0].groups[1] != (all[i].rows + all[i].tm - 1) / all[i].tm)
            fail_msg("%d x %d: %d x %d groups", (int)all[i].rows, (int)all[i].cols, l.launch[0].groups[1], l.launch[0].groups[0]);
    }
    text_of(TERN_OP_linear, TERN_F16, TERN_F16, 8192, 320, 320, &limits, &l);
    assert_int_equal(l.launch[0].group_size[0], 128);
}

/* 64 x 16 for up to 16 columns; with subgroups of 64 its weight would have too few vectors for as many items. */
static void test_narrow(void **state)
{
    static struct tern_launches l;
    struct tern_launch_limits limits = text_limits_matrix();
    (void)state;
    text_of(TERN_OP_linear, TERN_F16, TERN_F16, 262144, 16, 1152, &limits, &l);
    assert_int_equal(l.launch[0].groups[0] * l.launch[0].groups[1], 4096);
    assert_non_null(strstr(l.defines[0], "MN 1\nSM 4\nSN 1\n"));
    text_of(TERN_OP_linear, TERN_F16, TERN_F16, 262144, 17, 1152, &limits, &l);
    assert_non_null(strstr(l.defines[0], "MN 4\nSM 4\nSN 1\n")); /* 128 x 64 */
    text_of(TERN_OP_linear, TERN_F16, TERN_F16, 4194304 - 64, 3, 16, &limits, &l);
    assert_int_equal(l.launch[0].groups[1], 65535);
    text_of(TERN_OP_linear, TERN_F16, TERN_F16, 4194304, 3, 16, &limits, &l); /* that are too many groups */
    assert_int_equal(l.launch[0].groups[1], 32768);
    limits.matrix_subgroup = 64;
    text_of(TERN_OP_linear, TERN_F16, TERN_F16, 16384, 16, 1152, &limits, &l);
    assert_non_null(strstr(l.defines[0], "MN 2\nSM 2\nSN 2\n")); /* 64 x 64 */
}

static bool make_quantized(int64_t m, int64_t n, int64_t k, const struct tern_launch_limits *limits, struct tern_launches *l)
{
    struct tern_op_desc d = {.op = TERN_OP_quantized_linear, .n_in = 3, .present = {true, true, true}};
    d.in[0] = tern_meta_make(TERN_BF16, 2, (const int64_t[]){m, k});
    d.in[1] = tern_meta_make(TERN_I8, 2, (const int64_t[]){n, k});
    d.in[2] = tern_meta_make(TERN_F32, 1, (const int64_t[]){n});
    d.out = tern_meta_make(TERN_BF16, 2, (const int64_t[]){m, n});
    return tern_launches_make(&d, limits, l);
}

/* The last launch: what packs x comes before. */
static const struct tern_launch *quantized(int64_t m, int64_t n, int64_t k, const struct tern_launch_limits *limits,
                                           struct tern_launches *l)
{
    assert_true(make_quantized(m, n, k, limits, l));
    return &l->launch[l->n - 1];
}

static void test_launches_of_bytes(void **state)
{
    static struct tern_launches l;
    struct tern_launch_limits limits = text_limits_matrix();
    limits.vectors = limits.dot_product = true;
    const struct tern_launch *q = quantized(4096, 4096, 4096, &limits, &l);
    assert_string_equal(q->text, "quantized_matrix");
    assert_int_equal(q->matrix_subgroup, 32);
    assert_int_equal(q->group_size[0], 256); /* 128 x 128 */
    assert_int_equal(q->groups[0] * q->groups[1], 32 * 32);
    assert_non_null(strstr(l.defines[l.n - 1], "MATRIX_I8 1\n"));
    assert_null(strstr(l.defines[l.n - 1], "MATRIX_BF16")); /* x is of bf16, the factors are not */
    assert_null(strstr(l.defines[l.n - 1], "DOT_PRODUCT"));
    assert_non_null(strstr(l.defines[l.n - 1], "WIDE_Y 1\n")); /* eight results are stored at once */
    assert_non_null(strstr(l.defines[l.n - 1], "IN_A_ROW 1\n"));
    quantized(4096, 4092, 4096, &limits, &l);
    assert_null(strstr(l.defines[l.n - 1], "WIDE_Y"));
    q = quantized(5, 640, 64, &limits, &l);
    assert_int_equal(q->groups[0] * q->groups[1], 10);                                 /* 16 x 64 */
    assert_string_equal(quantized(64, 64, 0, &limits, &l)->text, "quantized_product"); /* nothing to multiply */
    limits.matrix_subgroup = 64;
    assert_string_equal(quantized(5, 640, 64, &limits, &l)->text, "quantized_product"); /* no whole number of loads */
    limits.matrix_subgroup = 32;
    limits.matrix_i8 = false;
    q = quantized(4096, 4096, 4096, &limits, &l);
    assert_string_equal(q->text, "quantized_product");
    assert_int_equal(q->matrix_subgroup, 0);
    assert_non_null(strstr(l.defines[l.n - 1], "DOT_PRODUCT 1\n"));
}

/* 127 x 128 for each value of the depth: 2^31 - 1 has room for 132104 of them, which lie in words of 16. */
static void test_deepest_bytes(void **state)
{
    static struct tern_launches l;
    const struct tern_launch_limits limits = text_limits_matrix();
    (void)state;
    assert_true(make_quantized(16, 16, 132096, &limits, &l));
    assert_false(make_quantized(16, 16, 132112, &limits, &l));
}

/* A deep product of few tiles: 40 groups of 64 x 64, whose 40 steps are shared out to three parts. */
static void test_parts(void **state)
{
    static struct tern_launches l;
    struct tern_launch_limits limits = text_limits_matrix();
    struct tern_op_desc d = {.op = TERN_OP_linear, .n_in = 3, .present = {true, true, true}};
    d.in[0] = tern_meta_make(TERN_F16, 3, (const int64_t[]){2, 64, 1280});
    d.in[1] = tern_meta_make(TERN_F16, 2, (const int64_t[]){1280, 1280});
    d.in[2] = tern_meta_make(TERN_F16, 1, (const int64_t[]){1280});
    d.out = d.in[0];
    assert_true(tern_launches_make(&d, &limits, &l));
    assert_int_equal(l.n, 2);
    assert_string_equal(l.launch[0].text, "matmul_matrix");
    assert_string_equal(l.launch[1].text, "split_sum");
    assert_int_equal(l.launch[0].groups[0] * l.launch[0].groups[1], 40);
    assert_int_equal(l.launch[0].groups[2], 3);
    assert_int_equal(l.workspace, 3 * 128 * 1280 * 4);
    assert_null(strstr(l.defines[0], "BIAS"));
    assert_non_null(strstr(l.defines[1], "BIAS 1\n"));
    d.in[0].shape[1] = d.out.shape[1] = 256; /* 160 groups fill a device */
    d.in[0].stride[0] = d.out.stride[0] = 256 * 1280;
    assert_true(tern_launches_make(&d, &limits, &l));
    assert_int_equal(l.n, 1);
    assert_int_equal(l.workspace, 0);
}

static const char *attention_of(int64_t queries, int64_t head, int64_t values, const struct tern_launch_limits *limits,
                                struct tern_launches *l)
{
    struct tern_op_desc d = {.op = TERN_OP_sdpa, .n_in = 4, .present = {true, true, true}, .attrs = {.sdpa = {.scale = 1}}};
    d.in[0] = tern_meta_make(TERN_F16, 4, (const int64_t[]){1, 1, queries, head});
    d.in[1] = tern_meta_make(TERN_F16, 4, (const int64_t[]){1, 1, 4096, head});
    d.in[2] = tern_meta_make(TERN_F16, 4, (const int64_t[]){1, 1, 4096, values});
    d.out = tern_meta_make(TERN_F16, 4, (const int64_t[]){1, 1, queries, values});
    assert_true(tern_launches_make(&d, limits, l));
    assert_int_equal(l->n, 1);
    return l->launch[0].text;
}

/* The VAE's attention goes by matrix units wherever it pays: a head of 512 at 64 x 64 pixels. */
static void test_large_heads(void **state)
{
    static struct tern_launches l;
    struct tern_launch_limits limits = text_limits_matrix();
    limits.vectors = true;
    assert_string_equal(attention_of(4096, 512, 512, &limits, &l), "sdpa_matrix_wide");
    assert_int_equal(l.launch[0].group_size[0], 256);
    assert_int_equal(l.launch[0].groups[0], 64);
    assert_int_equal(l.launch[0].matrix_subgroup, 32);
    assert_non_null(strstr(l.defines[0], "BK 128\n"));
    assert_non_null(strstr(l.defines[0], "WIDE_Y 1\n"));
    assert_string_equal(attention_of(4096, 160, 160, &limits, &l), "sdpa_matrix");
    assert_string_equal(attention_of(4096, 160, 168, &limits, &l), "sdpa_matrix_wide");
    assert_string_equal(attention_of(4096, 168, 160, &limits, &l), "sdpa_matrix_wide");
    assert_string_equal(attention_of(4096, 172, 172, &limits, &l), "sdpa"); /* not by eight */
    assert_string_equal(attention_of(4096, 520, 512, &limits, &l), "sdpa"); /* too large */
    assert_string_equal(attention_of(63, 512, 512, &limits, &l), "sdpa");   /* less than a block of queries */
    limits.shared_bytes = 35 << 10;
    assert_string_equal(attention_of(4096, 512, 512, &limits, &l), "sdpa_matrix_wide");
    assert_non_null(strstr(l.defines[0], "BK 128\n"));
    limits.shared_bytes = 32 << 10;
    assert_string_equal(attention_of(4096, 512, 512, &limits, &l), "sdpa_matrix_wide");
    assert_non_null(strstr(l.defines[0], "BK 64\n"));
    limits.shared_bytes = 24 << 10;
    assert_string_equal(attention_of(4096, 512, 512, &limits, &l), "sdpa");
    limits = text_limits_matrix();
    limits.vectors = true;
    limits.matrix_subgroup = 16; /* too few items for the sums */
    assert_string_equal(attention_of(4096, 512, 512, &limits, &l), "sdpa");
    limits.matrix_subgroup = 32;
    limits.max_group = 128;
    assert_string_equal(attention_of(4096, 512, 512, &limits, &l), "sdpa");
    limits.max_group = 256;
    limits.matrix_f16 = false;
    assert_string_equal(attention_of(4096, 512, 512, &limits, &l), "sdpa");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_multiplies),
                                       cmocka_unit_test(test_barriers_missing),
                                       cmocka_unit_test(test_misuse),
                                       cmocka_unit_test(test_launches),
                                       cmocka_unit_test(test_tall),
                                       cmocka_unit_test(test_narrow),
                                       cmocka_unit_test(test_launches_of_bytes),
                                       cmocka_unit_test(test_deepest_bytes),
                                       cmocka_unit_test(test_parts),
                                       cmocka_unit_test(test_large_heads)};
    return cmocka_run_group_tests(tests, support_setup, support_teardown);
}

/* Dtypes, shapes, tensors and scopes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "core/tensor.h"
#include "support.h"

/* ---- dtypes */

static void dtypes_have_names_and_sizes(void **state)
{
    static const struct {
        enum tern_dtype dtype;
        const char *name, *torch, *safetensors;
        size_t size;
        bool is_float;
    } rows[] = {
        {TERN_F32, "f32", "torch.float32", "F32", 4, true},     {TERN_F16, "f16", "torch.float16", "F16", 2, true},
        {TERN_BF16, "bf16", "torch.bfloat16", "BF16", 2, true}, {TERN_I8, "i8", "torch.int8", "I8", 1, false},
        {TERN_U8, "u8", "torch.uint8", "U8", 1, false},         {TERN_I32, "i32", "torch.int32", "I32", 4, false},
        {TERN_I64, "i64", "torch.int64", "I64", 8, false},      {TERN_BOOL, "bool", "torch.bool", "BOOL", 1, false},
    };
    assert_int_equal(sizeof(rows) / sizeof(*rows), TERN_DTYPE_COUNT);
    for (int i = 0; i < TERN_DTYPE_COUNT; i++) {
        assert_string_equal(tern_dtype_name(rows[i].dtype), rows[i].name);
        assert_int_equal(tern_dtype_size(rows[i].dtype), rows[i].size);
        assert_int_equal(tern_dtype_is_float(rows[i].dtype), rows[i].is_float);
        assert_int_equal(tern_dtype_parse(rows[i].name), rows[i].dtype);
        assert_int_equal(tern_dtype_parse(rows[i].torch), rows[i].dtype);
        assert_int_equal(tern_dtype_parse(rows[i].torch + 6), rows[i].dtype);
        assert_int_equal(tern_dtype_parse(rows[i].safetensors), rows[i].dtype);
    }
    static const char *const wrong[] = {"", "f", "f64", "F33", "torch.", "torch.torch.float32", "float32 ", NULL};
    for (int i = 0; i < 8; i++)
        assert_int_equal(tern_dtype_parse(wrong[i]), TERN_DTYPE_COUNT);
    assert_int_equal(tern_dtype_size(TERN_DTYPE_COUNT), 0);
    assert_int_equal(tern_dtype_size((enum tern_dtype) - 1), 0);
    assert_string_equal(tern_dtype_name((enum tern_dtype)77), "?");
    assert_false(tern_dtype_is_float((enum tern_dtype)77));
}

/* ---- shapes */

static struct tern_meta meta(int ndim, const int64_t *shape) { return tern_meta_make(TERN_F32, ndim, shape); }
#define META(...) meta(sizeof((int64_t[]){__VA_ARGS__}) / 8, (const int64_t[]){__VA_ARGS__})

static void broadcasting_is_pytorchs(void **state)
{
    static const struct {
        int na, nb, n; /* n < 0: they do not fit */
        int64_t a[4], b[4], out[4];
    } rows[] = {
        {2, 2, 2, {3, 4}, {3, 4}, {3, 4}}, {2, 1, 2, {3, 4}, {4}, {3, 4}},     {1, 3, 3, {4}, {2, 1, 1}, {2, 1, 4}},
        {0, 2, 2, {0}, {2, 5}, {2, 5}},    {2, 2, 2, {1, 4}, {3, 1}, {3, 4}},  {4, 2, 4, {2, 1, 3, 1}, {1, 7}, {2, 1, 3, 7}},
        {2, 2, 2, {0, 1}, {1, 5}, {0, 5}}, {1, 1, 1, {0}, {1}, {0}},           {2, 2, -1, {3, 4}, {3, 5}, {0}},
        {1, 1, -1, {0}, {2}, {0}},         {3, 2, -1, {2, 3, 4}, {2, 4}, {0}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct tern_meta a = meta(rows[i].na, rows[i].a), b = meta(rows[i].nb, rows[i].b), out = {.dtype = TERN_F32};
        assert_int_equal(tern_broadcast_shape(&a, &b, &out), rows[i].n >= 0);
        if (rows[i].n < 0)
            continue;
        assert_int_equal(out.ndim, rows[i].n);
        assert_memory_equal(out.shape, rows[i].out, (size_t)out.ndim * sizeof(int64_t));
    }
    struct tern_meta a = META(2, 1, 3), to = META(5, 2, 4, 3);
    int64_t stride[TERN_MAX_DIMS];
    tern_broadcast_strides(&a, &to, stride);
    assert_memory_equal(stride, ((const int64_t[]){0, 3, 0, 1}), 32);
    a = META(INT64_C(1) << 40, 1);
    to = META(1, INT64_C(1) << 40); /* the result would overflow */
    assert_false(tern_broadcast_shape(&a, &to, &to));
}

static void contiguity_is_pytorchs(void **state)
{
    struct tern_meta m = META(2, 3, 4, 5);
    assert_memory_equal(m.stride, ((const int64_t[]){60, 20, 5, 1}), 32);
    assert_true(tern_meta_is_contiguous(&m) && tern_meta_is_dense(&m) && !tern_meta_is_channels_last(&m));
    tern_meta_channels_last(&m);
    assert_memory_equal(m.stride, ((const int64_t[]){60, 1, 15, 3}), 32);
    assert_true(!tern_meta_is_contiguous(&m) && tern_meta_is_dense(&m) && tern_meta_is_channels_last(&m));
    m = META(2, 1, 4, 5); /* one channel: both */
    assert_true(tern_meta_is_contiguous(&m) && tern_meta_is_channels_last(&m));
    m = META(2, 3, 1, 1); /* one pixel: both */
    assert_true(tern_meta_is_contiguous(&m) && tern_meta_is_channels_last(&m));
    m = META(1, 3);
    m.stride[0] = 12345; /* of a dimension of one: ignored */
    assert_true(tern_meta_is_contiguous(&m) && tern_meta_is_dense(&m));
    m = META(0, 3);
    m.stride[1] = 7; /* of nothing: all true */
    assert_true(tern_meta_is_contiguous(&m));
    m = META(4, 3);
    m.stride[0] = 4; /* gaps */
    assert_true(!tern_meta_is_contiguous(&m) && !tern_meta_is_dense(&m));
    assert_int_equal(tern_meta_span(&m), 3 * 4 + 3);
    m.stride[0] = 0; /* the same row again and again */
    assert_true(!tern_meta_is_contiguous(&m) && !tern_meta_is_dense(&m));
    assert_int_equal(tern_meta_span(&m), 3);
    m = META(4, 3);
    m.stride[0] = 1;
    m.stride[1] = 4; /* transposed */
    assert_true(!tern_meta_is_contiguous(&m) && tern_meta_is_dense(&m));
    m = meta(0, NULL);
    assert_int_equal(tern_meta_numel(&m), 1);
    assert_int_equal(tern_meta_span(&m), 1);
    assert_true(tern_meta_is_contiguous(&m) && !tern_meta_is_channels_last(&m));
}

static void shapes_that_overflow_are_invalid(void **state)
{
    int64_t n = 0;
    assert_true(tern_shape_valid(3, (const int64_t[]){2, 3, 4}, &n) && n == 24);
    assert_true(tern_shape_valid(0, NULL, &n) && n == 1);
    assert_true(tern_shape_valid(2, (const int64_t[]){0, 1000}, &n) && n == 0);
    assert_true(tern_shape_valid(1, (const int64_t[]){INT64_MAX / 16}, &n));
    assert_false(tern_shape_valid(1, (const int64_t[]){INT64_MAX}, NULL));
    assert_false(tern_shape_valid(1, (const int64_t[]){INT64_MAX / 16 + 1}, NULL));
    assert_false(tern_shape_valid(1, (const int64_t[]){-1}, NULL));
    assert_false(tern_shape_valid(2, (const int64_t[]){INT64_C(1) << 32, INT64_C(1) << 32}, NULL));
    assert_false(tern_shape_valid(3, (const int64_t[]){0, INT64_C(1) << 32, INT64_C(1) << 32}, NULL)); /* strides would */
    assert_false(tern_shape_valid(9, (const int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1}, NULL));
    assert_false(tern_shape_valid(-1, NULL, NULL));
    assert_int_equal(tern_wrap_dim(-1, 4), 3);
    assert_int_equal(tern_wrap_dim(-5, 4), -1);
    assert_int_equal(tern_wrap_dim(4, 4), -1);
    assert_int_equal(tern_wrap_dim(0, 0), -1);
    assert_int_equal(tern_wrap_dim(-2147483647 - 1, 4), -1);
}

static void shapes_have_a_text(void **state)
{
    char text[TERN_META_TEXT];
    struct tern_meta m = META(2, 4, 64, 64);
    assert_string_equal(tern_meta_text(&m, text), "(2, 4, 64, 64) f32");
    m = META(7);
    assert_string_equal(tern_meta_text(&m, text), "(7,) f32");
    m = meta(0, NULL);
    m.dtype = TERN_BF16;
    assert_string_equal(tern_meta_text(&m, text), "() bf16");
    m = META(INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX);
    assert_true(strlen(tern_meta_text(&m, text)) < TERN_META_TEXT);
}

/* ---- tensors */

static void values_are_converted_when_read(void **state)
{
    static const float values[] = {0, -1.75f, 2.5f, 1e10f, 300, 65519};
    struct tern_context *ctx = support_context();
    tern_tensor *t = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){2, 3}, values);
    float f[6];
    uint16_t h[6];
    int64_t i[6];
    assert_int_equal(tern_tensor_read(t, TERN_F32, f, sizeof(f)), TERN_OK);
    assert_memory_equal(f, values, sizeof(f));
    assert_int_equal(tern_tensor_read(t, TERN_F16, h, sizeof(h)), TERN_OK);
    assert_true(h[0] == 0 && h[1] == 0xbf00 && h[2] == 0x4100 && h[3] == 0x7c00 && h[4] == 0x5cb0 && h[5] == 0x7bff);
    assert_int_equal(tern_tensor_read(t, TERN_BF16, h, sizeof(h)), TERN_OK);
    assert_true(h[1] == 0xbfe0 && h[2] == 0x4020);
    assert_int_equal(tern_tensor_read(t, TERN_I64, i, sizeof(i)), TERN_OK);
    assert_true(i[1] == -1 && i[2] == 2 && i[3] == 10000000000);
    tern_tensor *turned = tern_transpose(t, 0, 1);
    assert_int_equal(tern_tensor_read(turned, TERN_F32, f, sizeof(f)), TERN_OK);
    assert_true(f[1] == 1e10f && f[2] == -1.75f);
    assert_int_equal(tern_tensor_read(t, TERN_F32, f, sizeof(f) - 1), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "expected a buffer of 24 bytes for 6 elements of f32, found 23");
    assert_int_equal(tern_tensor_read(t, (enum tern_dtype)50, f, sizeof(f)), TERN_E_INVALID);
    tern_error_clear(ctx);
    assert_int_equal(tern_tensor_read(NULL, TERN_F32, f, sizeof(f)), TERN_E_INVALID);
    tern_tensor_unref(&turned);
    tern_tensor_unref(&t);
    tern_context_destroy(&ctx);
}

/* As by a cast, and as in PyTorch: to the nearest f32, and from there to bf16. By way of a double they would be 2^53 and 2^24 + 2^17. */
static void integers_become_floats_as_by_a_cast(void **state)
{
    static const int64_t large = (INT64_C(1) << 53) + (INT64_C(1) << 29) + 1; /* behind the middle of 2^53 and the next f32 */
    static const int32_t small = (1 << 24) + (1 << 16) + 1;                   /* to f32 2^24 + 2^16: the middle of two in bf16 */
    const float next = 0x1.000002p53f;
    const uint16_t even = 0x4b80; /* 2^24 */
    struct tern_context *ctx = support_context();
    tern_tensor *from[] = {tern_tensor_create(ctx, TERN_I64, 0, NULL, &large), tern_tensor_create(ctx, TERN_I32, 0, NULL, &small)};
    tern_tensor *to[] = {tern_tensor_create(ctx, TERN_F32, 0, NULL, NULL), tern_tensor_create(ctx, TERN_BF16, 0, NULL, NULL)};
    float f[2] = {0};
    uint16_t h[2] = {0};
    assert_int_equal(tern_tensor_read(from[0], TERN_F32, &f[0], sizeof(f[0])), TERN_OK);
    assert_int_equal(tern_tensor_write(to[0], TERN_I64, &large, sizeof(large)), TERN_OK);
    assert_int_equal(tern_tensor_read(to[0], TERN_F32, &f[1], sizeof(f[1])), TERN_OK);
    assert_true(f[0] == next && f[1] == next);
    assert_int_equal(tern_tensor_read(from[1], TERN_BF16, &h[0], sizeof(h[0])), TERN_OK);
    assert_int_equal(tern_tensor_write(to[1], TERN_I32, &small, sizeof(small)), TERN_OK);
    assert_int_equal(tern_tensor_read(to[1], TERN_BF16, &h[1], sizeof(h[1])), TERN_OK);
    assert_true(h[0] == even && h[1] == even);
    for (int i = 0; i < 2; i++) {
        tern_tensor_unref(&from[i]);
        tern_tensor_unref(&to[i]);
    }
    tern_context_destroy(&ctx);
}

static void facts_of_a_tensor(void **state)
{
    struct tern_context *ctx = support_context();
    tern_tensor *t = tern_tensor_create(ctx, TERN_I32, 3, (const int64_t[]){2, 0, 5}, NULL);
    assert_ptr_equal(tern_tensor_context(t), ctx);
    assert_int_equal(tern_tensor_dtype(t), TERN_I32);
    assert_int_equal(tern_tensor_ndim(t), 3);
    assert_int_equal(tern_tensor_numel(t), 0);
    assert_int_equal(tern_tensor_size(t, -1), 5);
    assert_int_equal(tern_tensor_size(t, -3), 2);
    assert_int_equal(tern_tensor_size(t, 3), 0);
    assert_int_equal(tern_tensor_size(t, -4), 0);
    assert_int_equal(tern_tensor_read(t, TERN_I32, NULL, 0), TERN_OK);
    tern_tensor_unref(&t);
    static const int64_t wrong[][2] = {{-1, 2}, {INT64_C(1) << 40, INT64_C(1) << 40}};
    for (int i = 0; i < 2; i++) {
        assert_null(tern_tensor_create(ctx, TERN_F32, 2, wrong[i], NULL));
        support_error(ctx, TERN_E_INVALID, "none negative, a product that fits");
    }
    assert_null(tern_tensor_create(ctx, TERN_DTYPE_COUNT, 0, NULL, NULL));
    support_error(ctx, TERN_E_INVALID, "dtype");
    assert_null(tern_tensor_scalar(ctx, (enum tern_dtype) - 3, 1));
    support_error(ctx, TERN_E_INVALID, "dtype");
    assert_null(tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){INT64_C(1) << 58}, NULL)); /* valid, but an exabyte */
    support_error(ctx, TERN_E_NO_MEMORY, "out of memory");
    tern_context_destroy(&ctx);
}

static void references_are_counted(void **state)
{
    struct tern_context *ctx = support_context();
    size_t idle = tern_memory_used(ctx);
    tern_tensor *t = tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){10}, NULL), *again = tern_tensor_ref(t);
    assert_ptr_equal(t, again);
    tern_tensor_unref(&t);
    assert_null(t);
    assert_int_equal(tern_tensor_numel(again), 10);
    tern_tensor_unref(&again);
    assert_int_equal(tern_memory_used(ctx), idle);
    assert_null(tern_tensor_ref(NULL));
    tern_tensor_unref(&again);
    tern_tensor_unref(NULL);
    tern_context_destroy(&ctx);
}

static void views_share_and_hold_memory(void **state)
{
    static const float values[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    struct tern_context *ctx = support_context();
    tern_tensor *t = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){3, 4}, values), *warm = tern_slice(t, 0, 0, 1, 1);
    tern_tensor_unref(&warm); /* now the dispatcher is there */
    size_t before = tern_memory_used(ctx);
    tern_tensor *v = tern_slice(t, 1, 1, INT64_MAX, 2); /* columns 1 and 3 */
    assert_true(tern_memory_used(ctx) - before < 512);
    assert_ptr_equal(v->buffer, t->buffer);
    tern_tensor_unref(&t);
    float out[6];
    assert_int_equal(tern_tensor_read(v, TERN_F32, out, sizeof(out)), TERN_OK);
    assert_memory_equal(out, ((const float[]){1, 3, 5, 7, 9, 11}), sizeof(out));
    tern_tensor *w = tern_slice(v, 0, 2, 3, 1); /* a view of a view */
    tern_tensor_unref(&v);
    assert_int_equal(tern_tensor_read(w, TERN_F32, out, 8), TERN_OK);
    assert_true(out[0] == 9 && out[1] == 11);
    tern_tensor_unref(&w);
    tern_context_destroy(&ctx);
}

static void count_release(void *user) { ++*(int *)user; }

static void wrapped_memory_is_released_once(void **state)
{
    static const float values[] = {1, 2, 3, 4};
    struct support_allocator m = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&m)});
    int released = 0;
    tern_scope_begin(ctx);
    tern_tensor *t = tern_tensor_wrap(ctx, TERN_F32, 1, (const int64_t[]){4}, values, count_release, &released);
    assert_non_null(tern_add(t, t));
    tern_scope_end(ctx, NULL); /* it belongs to the caller, not to the scope */
    assert_true(t->constant);
    assert_ptr_equal(tern_tensor_host(t), values);
    assert_int_equal(released, 0);
    tern_tensor_unref(&t);
    assert_int_equal(released, 1);
    m.fail_at = m.count + 1; /* on failure, too */
    assert_null(tern_tensor_wrap(ctx, TERN_F32, 1, (const int64_t[]){4}, values, count_release, &released));
    assert_int_equal(released, 2);
    m.fail_at = 0;
    tern_error_clear(ctx);
    tern_context_destroy(&ctx);
    assert_int_equal(m.live, 0);
}

/* ---- scopes */

static tern_tensor *number(struct tern_context *ctx, float x) { return tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){1}, &x); }

static float value(const tern_tensor *t)
{
    float x = NAN;
    assert_int_equal(tern_tensor_read(t, TERN_F32, &x, sizeof(x)), TERN_OK);
    return x;
}

/* A context with warm scopes, and what it holds then. */
static struct tern_context *scope_context(size_t *idle)
{
    struct tern_context *ctx = support_context();
    tern_scope_begin(ctx);
    tern_scope_begin(ctx);
    tern_add(number(ctx, 1), number(ctx, 2));
    tern_scope_end(ctx, NULL);
    tern_scope_end(ctx, NULL);
    *idle = tern_memory_used(ctx);
    return ctx;
}

static void scopes_release_and_keep(void **state)
{
    size_t idle;
    struct tern_context *ctx = scope_context(&idle);
    tern_scope_begin(ctx);
    tern_tensor *outer = number(ctx, 5), *lost = number(ctx, 6);
    tern_scope_begin(ctx);
    tern_tensor *inner = tern_add(tern_add(outer, lost), number(ctx, 1));
    inner = tern_scope_end(ctx, inner); /* goes to the outer scope */
    assert_true(value(inner) == 12);
    assert_int_equal(ctx->scopes.depth, 1);
    assert_int_equal(ctx->scopes.count, 3);
    tern_tensor *kept = tern_scope_end(ctx, inner); /* goes to the caller */
    assert_ptr_equal(kept, inner);
    assert_int_equal(ctx->scopes.count, 0);
    assert_true(value(kept) == 12);
    tern_tensor_unref(&kept);
    assert_int_equal(tern_memory_used(ctx), idle);
    tern_context_destroy(&ctx);
}

static void scopes_keep_what_is_not_theirs(void **state)
{
    size_t idle;
    struct tern_context *ctx = scope_context(&idle);
    tern_tensor *mine = number(ctx, 3);
    tern_scope_begin(ctx);
    tern_tensor *same = tern_scope_end(ctx, mine); /* one more reference to it */
    assert_ptr_equal(same, mine);
    tern_tensor_unref(&mine);
    assert_true(value(same) == 3);
    tern_tensor_unref(&same);
    tern_scope_begin(ctx);
    tern_tensor *held = tern_tensor_ref(number(ctx, 4)); /* what is referenced outlives its scope */
    tern_scope_end(ctx, NULL);
    assert_true(value(held) == 4);
    tern_tensor_unref(&held);
    assert_int_equal(tern_memory_used(ctx), idle);
    tern_context_destroy(&ctx);
}

static void scopes_end_with_many(void **state)
{
    size_t idle;
    struct tern_context *ctx = scope_context(&idle);
    tern_scope_begin(ctx);
    tern_tensor *x = number(ctx, 1), *keep[] = {x, NULL, number(ctx, 2), x};
    number(ctx, 9);
    tern_scope_end_many(ctx, keep, 4);
    assert_true(value(keep[0]) == 1 && keep[1] == NULL && value(keep[2]) == 2 && keep[3] == keep[0]);
    for (int i = 0; i < 4; i++)
        tern_tensor_unref(&keep[i]); /* the one that was named twice has two references */
    assert_int_equal(tern_memory_used(ctx), idle);
    tern_context_destroy(&ctx);
}

static void scopes_go_on_with_next(void **state)
{
    size_t idle, steady = 0;
    struct tern_context *ctx = scope_context(&idle);
    tern_scope_begin(ctx);
    tern_tensor *x = number(ctx, 0);
    for (int i = 0; i < 50; i++) {
        x = tern_scope_next(ctx, tern_add(x, number(ctx, 1)));
        assert_int_equal(ctx->scopes.count, 1);
        if (i)
            assert_int_equal(tern_memory_used(ctx), steady);
        steady = tern_memory_used(ctx);
    }
    assert_true(value(x) == 50);
    assert_null(tern_scope_next(ctx, NULL));
    assert_int_equal(ctx->scopes.count, 0);
    assert_int_equal(ctx->scopes.depth, 1);
    assert_null(tern_scope_end(ctx, NULL));
    assert_int_equal(tern_memory_used(ctx), idle);
    tern_tensor *mine = number(ctx, 1);
    assert_ptr_equal(tern_scope_next(ctx, mine), mine); /* of no scope: no reference that nobody would give back */
    support_error(ctx, TERN_E_INVALID, "tern_scope_next without tern_scope_begin");
    tern_tensor_unref(&mine);
    assert_int_equal(tern_memory_used(ctx), idle);
    tern_context_destroy(&ctx);
}

static void scopes_nest_deeply(void **state)
{
    size_t idle;
    struct tern_context *ctx = scope_context(&idle);
    tern_tensor *x = NULL;
    for (int i = 0; i < 300; i++) {
        tern_scope_begin(ctx);
        x = number(ctx, (float)i);
    }
    for (int i = 0; i < 300; i++)
        x = tern_scope_end(ctx, x);
    assert_true(value(x) == 299);
    tern_tensor_unref(&x);
    tern_scope_end(ctx, NULL);
    support_error(ctx, TERN_E_INVALID, "tern_scope_end without tern_scope_begin");
    for (int i = 0; i < 20; i++) {
        tern_scope_begin(ctx);
        number(ctx, 1);
    }
    tern_context_destroy(&ctx); /* open scopes end with the context */
}

/* Without memory for the list the tensor is released, and begin and end stay paired. */
static void scopes_survive_without_memory(void **state)
{
    for (long n = 1; n < 40; n++) {
        struct support_allocator m = {0};
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&m)});
        m.fail_at = m.count + n;
        for (int i = 0; i < 5; i++) {
            tern_scope_begin(ctx);
            for (int k = 0; k < 5; k++)
                number(ctx, 1);
        }
        for (int i = 0; i < 5; i++)
            tern_scope_end(ctx, NULL);
        assert_int_equal(tern_error_status(ctx), TERN_E_NO_MEMORY);
        m.fail_at = 0;
        tern_error_clear(ctx);
        tern_scope_begin(ctx);
        assert_true(value(number(ctx, 7)) == 7);
        tern_scope_end(ctx, NULL);
        assert_int_equal(ctx->scopes.depth, 0);
        tern_context_destroy(&ctx);
        assert_int_equal(m.live, 0);
    }
}

/* Memory that is not cleared and is refused while `refuse` is set; also the last two that `next` counts down to: of
 * what is refused once, the library asks again. */
struct moody {
    bool refuse;
    long live, next;
};

static void *moody_alloc(size_t size, size_t alignment, void *user)
{
    struct moody *m = user;
    void *p = NULL;
    if ((m->next && m->next-- <= 2) || m->refuse || posix_memalign(&p, alignment, size))
        return NULL;
    m->live++;
    return memset(p, 0xee, size);
}

static void moody_free(void *ptr, size_t size, void *user)
{
    ((struct moody *)user)->live--;
    free(ptr);
}

/* A scope that found no memory for its start owns nothing when those within find some: its end releases nothing. */
static void scopes_without_memory_own_nothing(void **state)
{
    for (int outer = 0; outer <= 128; outer += 64) { /* the list of starts is full at each */
        struct moody m = {0};
        struct tern_context *ctx =
            tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = {moody_alloc, moody_free, &m}});
        for (int i = 0; i < outer; i++)
            tern_scope_begin(ctx);
        tern_tensor *first = number(ctx, 3);
        m.refuse = true;
        for (int i = 0; i < 200; i++)
            tern_scope_begin(ctx);
        m.refuse = false;
        support_error(ctx, TERN_E_NO_MEMORY, "out of memory");
        tern_scope_begin(ctx);
        tern_tensor *second = number(ctx, 4);
        for (int i = 0; i < 201; i++)
            tern_scope_end(ctx, NULL);
        assert_int_equal(ctx->scopes.depth, outer);
        assert_int_equal(ctx->scopes.count, outer ? 2 : 0); /* both of the scope before; where there is none they are gone */
        assert_true(value(first) == 3 && (!outer || value(second) == 4));
        tern_scope_begin(ctx);
        number(ctx, 5);
        tern_scope_end(ctx, NULL);
        assert_int_equal(ctx->scopes.count, outer ? 2 : 0);
        if (!outer)
            tern_tensor_unref(&first); /* of no scope */
        tern_context_destroy(&ctx);
        assert_int_equal(m.live, 0);
    }
}

/* An op whose temporaries find no scope gives no result beside the error. */
static void ops_give_a_result_or_an_error(void **state)
{
    for (long n = 2, worked = 0; !worked; n++) {
        struct moody m = {0};
        struct tern_context *ctx =
            tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = {moody_alloc, moody_free, &m}});
        tern_tensor *x = number(ctx, 3);
        m.next = n;
        tern_tensor *y = tern_rand(ctx, 1, (const int64_t[]){4}, 1, 0); /* by the reference */
        worked = m.next > 2;
        assert_int_equal(tern_error_status(ctx), y ? TERN_OK : TERN_E_NO_MEMORY);
        tern_tensor_unref(&x);
        tern_tensor_unref(&y);
        tern_context_destroy(&ctx);
        assert_int_equal(m.live, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_have_names_and_sizes),
        cmocka_unit_test(broadcasting_is_pytorchs),
        cmocka_unit_test(contiguity_is_pytorchs),
        cmocka_unit_test(shapes_that_overflow_are_invalid),
        cmocka_unit_test(shapes_have_a_text),
        cmocka_unit_test(values_are_converted_when_read),
        cmocka_unit_test(integers_become_floats_as_by_a_cast),
        cmocka_unit_test(facts_of_a_tensor),
        cmocka_unit_test(references_are_counted),
        cmocka_unit_test(views_share_and_hold_memory),
        cmocka_unit_test(wrapped_memory_is_released_once),
        cmocka_unit_test(scopes_release_and_keep),
        cmocka_unit_test(ops_give_a_result_or_an_error),
        cmocka_unit_test(scopes_keep_what_is_not_theirs),
        cmocka_unit_test(scopes_end_with_many),
        cmocka_unit_test(scopes_go_on_with_next),
        cmocka_unit_test(scopes_nest_deeply),
        cmocka_unit_test(scopes_survive_without_memory),
        cmocka_unit_test(scopes_without_memory_own_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* tern_context_keep_weights: a network run op by op leaves nothing of its weights behind, with the same bits; what it has kept before is
 * used on. The argument is the device. Public headers only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/ops.h>
#include <tern/tern.h>

#define WIDTH 192 /* of linear layers */
#define LAYERS 6
#define VALUES (4 * WIDTH)
#define KEPT ((size_t)LAYERS * WIDTH * WIDTH * 2) /* bytes of their matrices in f16 */

static const char *device;
static char folder[] = "/tmp/tern-keep-XXXXXX", path[64];

static tern_tensor *random_tensor(struct tern_context *ctx, int ndim, const int64_t *shape, enum tern_dtype dtype, float scale)
{
    float data[WIDTH * WIDTH];
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    for (int64_t i = 0; i < n; i++)
        data[i] = scale * (float)(rand() % 2001 - 1000) / 1000;
    tern_tensor *wide = tern_tensor_create(ctx, TERN_F32, ndim, shape, data), *t = tern_cast(wide, dtype);
    assert_non_null(t);
    tern_tensor_unref(&wide); /* of the same dtype it is one more reference */
    return t;
}

static void add(struct tern_context *ctx, struct tern_weights *w, const char *name, int ndim, const int64_t *shape, enum tern_dtype dtype)
{
    tern_tensor *t = random_tensor(ctx, ndim, shape, dtype, 0.1f);
    assert_int_equal(tern_weights_add(w, name, t), TERN_OK);
    tern_tensor_unref(&t);
}

static void write_weights(void)
{
    char name[16];
    struct tern_context *ctx = tern_context_create(NULL);
    struct tern_weights *w = tern_weights_create(ctx);
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof(name), "linear.%d", i);
        add(ctx, w, name, 2, (const int64_t[]){WIDTH, WIDTH}, TERN_F16);
        snprintf(name, sizeof(name), "bias.%d", i);
        add(ctx, w, name, 1, (const int64_t[]){WIDTH}, TERN_F32);
    }
    add(ctx, w, "conv", 4, (const int64_t[]){8, 8, 3, 3}, TERN_F16);
    assert_int_equal(tern_weights_save(w, path), TERN_OK);
    tern_weights_unref(&w);
    tern_context_destroy(&ctx);
}

/* Layers behind one another, and a convolution of what comes out as a picture. */
static void run(struct tern_context *ctx, const struct tern_weights *w, float *out)
{
    char linear[16], bias[16];
    float data[VALUES];
    for (int i = 0; i < VALUES; i++)
        data[i] = (float)(i % 17) / 8 - 1;
    tern_scope_begin(ctx);
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){4, WIDTH}, data);
    for (int i = 0; i < LAYERS; i++) {
        snprintf(linear, sizeof(linear), "linear.%d", i);
        snprintf(bias, sizeof(bias), "bias.%d", i);
        x = tern_silu(tern_linear(x, tern_weights_get(w, linear), tern_weights_get(w, bias)));
    }
    x = tern_reshape(x, 4, (const int64_t[]){1, 8, 8, VALUES / 64});
    x = tern_conv2d(x, tern_weights_get(w, "conv"), NULL, .padding = 1);
    assert_int_equal(tern_tensor_read(x, TERN_F32, out, VALUES * sizeof(float)), TERN_OK);
    tern_scope_end(ctx, NULL);
}

static struct tern_context *open_or_skip(void)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = device, .threads = 1});
    if (!ctx) {
        print_message("%s\n", tern_create_error());
        skip();
    }
    return ctx;
}

static struct tern_weights *opened(struct tern_context *ctx)
{
    struct tern_weights *w = tern_weights_open(ctx, path);
    assert_non_null(w);
    return w;
}

/* Bytes that stay behind a run. */
static size_t stays(struct tern_context *ctx, const struct tern_weights *w, float *out)
{
    tern_memory_trim(ctx); /* what is kept for reuse counts */
    const size_t before = tern_memory_used(ctx);
    run(ctx, w, out);
    tern_memory_trim(ctx);
    return tern_memory_used(ctx) - before;
}

static void nothing_stays(void **state)
{
    static float kept[VALUES], passed[VALUES];
    struct tern_context *ctx = open_or_skip();
    struct tern_weights *w = opened(ctx);
    run(ctx, w, kept); /* kernels are compiled */
    tern_weights_unref(&w);
    tern_memory_trim(ctx);

    w = opened(ctx);
    const size_t with = stays(ctx, w, kept);
    assert_true(with >= KEPT);
    tern_weights_unref(&w);

    w = opened(ctx);
    assert_true(tern_context_keep_weights(ctx, false));
    tern_memory_trim(ctx);
    tern_memory_reset_peak(ctx);
    const size_t before = tern_memory_used(ctx), without = stays(ctx, w, passed), most = tern_memory_peak(ctx) - before;
    print_message("%s: %zu bytes stay when they are kept, else %zu, at most %zu\n", device, with, without, most);
    assert_int_equal(without, 0);
    assert_true(most < KEPT);
    assert_memory_equal(passed, kept, sizeof(kept));
    assert_false(tern_context_keep_weights(ctx, true));
    assert_true(stays(ctx, w, passed) >= KEPT);
    tern_weights_unref(&w);
    tern_context_destroy(&ctx);
}

static void what_is_kept_is_used_on(void **state)
{
    static float kept[VALUES], passed[VALUES];
    size_t most[2]; /* with forms that are there, and without */
    struct tern_context *ctx = open_or_skip();
    for (int i = 0; i < 2; i++) {
        struct tern_weights *w = opened(ctx);
        tern_context_keep_weights(ctx, true);
        if (!i)
            run(ctx, w, kept);
        tern_context_keep_weights(ctx, false);
        tern_memory_trim(ctx);
        tern_memory_reset_peak(ctx);
        const size_t before = tern_memory_used(ctx);
        assert_int_equal(stays(ctx, w, passed), 0);
        most[i] = tern_memory_peak(ctx) - before;
        assert_memory_equal(passed, kept, sizeof(kept));
        tern_weights_unref(&w);
    }
    print_message("%s: %zu bytes at most with forms that are kept, %zu without\n", device, most[0], most[1]);
    assert_true(most[0] + (size_t)WIDTH * WIDTH / 2 <= most[1]); /* a good part of a matrix; most[0] is activations */
    tern_context_destroy(&ctx);
}

static int setup(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/w.safetensors", folder);
    write_weights();
    return 0;
}

static int teardown(void **state)
{
    unlink(path);
    rmdir(folder);
    return 0;
}

int main(int argc, char **argv)
{
    device = argc > 1 ? argv[1] : "cpu";
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_stays), cmocka_unit_test(what_is_kept_is_used_on)};
    return cmocka_run_group_tests_name("keep_weights", tests, setup, teardown);
}

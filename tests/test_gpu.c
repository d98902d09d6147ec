/* What backends for GPUs share, without a device: files of compiled kernels, and where buffers lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/gpu/gpu.h"
#include "core/context.h"
#include "gpu_help.h"
#include "support.h"

enum { SIZE = 3 << 20 };
static char folder[64], path[100];
static char binary[SIZE];

static struct tern_context *open(size_t budget)
{
    return tern_context_create(&(const struct tern_context_params){.threads = 1, .budget = budget, .log = gpu_count_warnings});
}

static void *read_back(struct tern_context *ctx)
{
    size_t size = 0;
    void *data = tern_gpu_binary_read(ctx, path, "it is made again", &size);
    assert_true(!data || (size == SIZE && !memcmp(data, binary, SIZE)));
    tern_free(ctx, data);
    return data;
}

/* What was kept comes back; a file that is not there is told nobody. */
static void binaries_come_back(void **state)
{
    struct tern_context *ctx = open(0);
    gpu_warnings = 0;
    remove(path);
    assert_null(read_back(ctx));
    assert_null(tern_gpu_binary_read(ctx, NULL, "", &(size_t){0}));
    tern_gpu_binary_keep(ctx, path, binary, SIZE);
    assert_non_null(read_back(ctx));
    tern_gpu_binary_keep(ctx, NULL, binary, SIZE);
    assert_int_equal(gpu_warnings, 0);
    assert_false(tern_failed(ctx));
    tern_context_destroy(&ctx);
}

/* A byte changed, cut, longer than any binary: told, and no error. */
static void damage_is_a_miss(void **state)
{
    struct tern_context *ctx = open(0);
    gpu_warnings = 0;
    for (int what = 0; what < 3; what++) {
        tern_gpu_binary_keep(ctx, path, binary, SIZE);
        if (what < 2)
            gpu_damage_files(path, 1, what == 1);
        else
            assert_int_equal(truncate(path, (off_t)1 << 40), 0);
        assert_null(read_back(ctx));
        assert_int_equal(gpu_warnings, what + 1);
        assert_false(tern_failed(ctx));
    }
    tern_context_destroy(&ctx);
}

/* A file that there is no memory for is not damaged. */
static void lack_of_memory_is_an_error(void **state)
{
    struct tern_context *ctx = open(0);
    tern_gpu_binary_keep(ctx, path, binary, SIZE);
    tern_context_destroy(&ctx);
    gpu_warnings = 0;
    ctx = open(1 << 20);
    assert_null(read_back(ctx));
    support_error(ctx, TERN_E_BUDGET, "memory budget of 1048576 bytes reached");
    tern_context_destroy(&ctx);
    struct support_allocator m = {0};
    ctx =
        tern_context_create(&(const struct tern_context_params){.threads = 1, .allocator = support_failing(&m), .log = gpu_count_warnings});
    m.fail_at = m.count + 1;
    assert_null(read_back(ctx));
    support_error(ctx, TERN_E_NO_MEMORY, "out of memory");
    assert_int_equal(gpu_warnings, 0);
    tern_context_destroy(&ctx);
}

static int make_folder(void **state)
{
    snprintf(folder, sizeof(folder), "/tmp/tern-test-gpu-XXXXXX");
    for (int i = 0; i < SIZE; i++)
        binary[i] = (char)(i * 37 % 251);
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/kernel.bin", folder);
    return 0;
}

static int remove_folder(void **state)
{
    remove(path);
    return remove(folder);
}

/* ---- where weights lie, on a device that is made up */

enum { KIB = 1 << 10 };

static enum tern_status take_any(struct tern_gpu *gpu, struct tern_gpu_buffer *b, bool on_host, bool *full)
{
    *full = false;
    return TERN_OK;
}

static void give_any(struct tern_gpu *gpu, struct tern_gpu_buffer *b) {}

static enum tern_status move_any(struct tern_gpu *gpu, struct tern_gpu_buffer *b, bool *full)
{
    *full = false;
    return TERN_OK;
}

static void trim_nothing(struct tern_gpu *gpu) {}

static struct tern_gpu made_up(struct tern_context *ctx, size_t share, size_t host_share)
{
    static const struct tern_gpu_memory_fns fns = {.buffer_size = sizeof(struct tern_gpu_buffer),
                                                   .take = take_any,
                                                   .give = give_any,
                                                   .move = move_any,
                                                   .trim = trim_nothing,
                                                   .buffer = {.destroy = tern_gpu_buffer_destroy}};
    return (struct tern_gpu){.base = {.ctx = ctx, .name = "made-up"},
                             .lock = PTHREAD_MUTEX_INITIALIZER,
                             .memory = {.fns = &fns, .share = share, .host_share = host_share}};
}

static bool on_host(const struct tern_buffer *b) { return ((const struct tern_gpu_buffer *)b)->on_host; }

/* One that finds no room keeps none that comes behind it from coming. */
static void small_weights_come_behind_large_ones(void **state)
{
    struct tern_context *ctx = open(0);
    struct tern_gpu gpu = made_up(ctx, 10 * KIB, 100 * KIB);
    struct tern_buffer *in_the_way = tern_gpu_buffer_create(&gpu.base, 9 * KIB);
    struct tern_buffer *w[] = {tern_gpu_weight_create(&gpu.base, 8 * KIB), tern_gpu_weight_create(&gpu.base, 2 * KIB)};
    assert_true(on_host(w[0]) && on_host(w[1]));
    tern_buffer_unref(&in_the_way);
    in_the_way = tern_gpu_buffer_create(&gpu.base, 3 * KIB);
    assert_int_equal(tern_gpu_weights_use(&gpu.base, w, 2), TERN_OK);
    assert_true(on_host(w[0]));
    assert_false(on_host(w[1]));
    for (int i = 0; i < 2; i++)
        tern_buffer_unref(&w[i]);
    tern_buffer_unref(&in_the_way);
    tern_context_destroy(&ctx);
}

/* The host has no room for the oldest, but for others. */
static void what_the_host_has_room_for_goes(void **state)
{
    struct tern_context *ctx = open(0);
    struct tern_gpu gpu = made_up(ctx, 10 * KIB, 3 * KIB);
    struct tern_buffer *w[] = {tern_gpu_weight_create(&gpu.base, 5 * KIB), tern_gpu_weight_create(&gpu.base, 2 * KIB),
                               tern_gpu_weight_create(&gpu.base, 2 * KIB)};
    struct tern_buffer *runs = tern_gpu_buffer_create(&gpu.base, 2 * KIB);
    if (!runs)
        fail_msg("%s", tern_error(ctx));
    assert_false(on_host(runs));
    assert_true(!on_host(w[0]) && on_host(w[1]) && !on_host(w[2]));
    for (int i = 0; i < 3; i++)
        tern_buffer_unref(&w[i]);
    tern_buffer_unref(&runs);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binaries_come_back),
        cmocka_unit_test(damage_is_a_miss),
        cmocka_unit_test(lack_of_memory_is_an_error),
        cmocka_unit_test(small_weights_come_behind_large_ones),
        cmocka_unit_test(what_the_host_has_room_for_goes),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

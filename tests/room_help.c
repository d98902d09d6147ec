/* What the tests of a GPU's memory share. */
#include "tests/room_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "cuda_help.h"
#include "model_help.h"
#include "support.h"
#include "vulkan_help.h"

const char *room_device;
char room_cache[64], room_told[512];
int room_times_told;
const struct tern_graph_size room_size = {1, ROOM_SIDE, ROOM_SIDE};

void room_log(enum tern_log_level level, const char *text, void *user)
{
    if (!strstr(text, "do not fit the device's memory"))
        return;
    room_times_told++;
    snprintf(room_told, sizeof(room_told), "%s", text);
}

struct tern_context *room_try_open(size_t budget, const char *limits, const struct tern_allocator *allocator)
{
    struct tern_context_params params = {
        .device = room_device, .threads = 2, .device_budget = budget, .cache_dir = room_cache, .log = room_log};
    if (allocator)
        params.allocator = *allocator;
    if (limits)
        setenv("TERN_GPU_LIMITS", limits, 1);
    else
        unsetenv("TERN_GPU_LIMITS");
    room_times_told = 0;
    return tern_context_create(&params);
}

struct tern_context *room_open(size_t budget, const char *limits)
{
    struct tern_context *ctx = room_try_open(budget, limits, NULL);
    if (ctx)
        return ctx;
    print_message("%s (Debian's pocl-opencl-icd and mesa-vulkan-drivers have drivers)\n", tern_create_error());
    skip();
    return NULL;
}

struct tern_gpu_memory *room_memory(struct tern_context *ctx) { return &((struct tern_gpu *)ctx->device)->memory; }

struct room_unet room_open_unet(struct tern_context *ctx)
{
    char path[PATH_SIZE];
    struct room_unet u = {.p = model_load(ctx, model_path("sd1", path))};
    const struct tern_stage stage = {.component = "unet", .size = room_size};
    u.arena = tern_plan_facts(tern_pipeline_plan(u.p, &stage)).arena;
    u.b = tern_pipeline_binding(u.p, &stage);
    if (!u.b)
        fail_msg("%s", tern_error(ctx));
    u.weights = room_memory(ctx)->on_device + room_memory(ctx)->on_host;
    return u;
}

void room_close_unet(struct room_unet *u)
{
    tern_binding_unref(&u->b);
    tern_pipeline_destroy(&u->p);
}

void room_count_weights(struct tern_context *ctx, size_t at[2])
{
    at[0] = at[1] = 0;
    for (const struct tern_gpu_buffer *w = room_memory(ctx)->weights; w; w = w->next)
        at[w->on_host] += w->base.size;
}

void room_check_places(struct tern_context *ctx, const struct room_unet *u)
{
    const struct tern_gpu_memory *m = room_memory(ctx);
    const struct tern_run_memory *idle = tern_binding_plan(u->b)->idle;
    size_t at[2];
    room_count_weights(ctx, at);
    assert_int_equal(at[1], m->on_host);
    assert_int_equal(at[0] + at[1], u->weights);
    assert_int_equal(m->on_device, at[0] + u->arena);
    assert_true(!m->share || m->on_device <= m->share);
    for (int i = 0; idle && i < idle->n_arena; i++)
        assert_false(((const struct tern_gpu_buffer *)idle->arena[i])->on_host);
}

float room_expected[ROOM_VALUES];
size_t room_all_weights, room_arena;

void room_compute_expected(void)
{
    if (room_all_weights)
        return;
    struct tern_context *ctx = room_open(0, NULL);
    struct room_unet u = room_open_unet(ctx);
    model_run(u.b, room_expected, sizeof(room_expected));
    room_check_places(ctx, &u);
    assert_int_equal(room_memory(ctx)->on_host, 0);
    assert_int_equal(room_times_told, 0);
    room_all_weights = u.weights;
    room_arena = u.arena;
    print_message("%zu bytes of weights, an arena of %zu\n", room_all_weights, room_arena);
    room_close_unet(&u);
    tern_context_destroy(&ctx);
}

size_t room_budget(int percent) { return room_arena + 64 * 1024 + room_all_weights / 100 * (size_t)percent; }

void room_expect_bits(const struct room_unet *u)
{
    static float found[ROOM_VALUES];
    memset(found, 0, sizeof(found));
    model_run(u->b, found, sizeof(found));
    assert_memory_equal(found, room_expected, sizeof(found));
}

bool room_is(const char *name) { return !strcmp(room_device, name); }

int room_setup(void **state)
{
    unsetenv("TERN_GPU_LIMITS");
    if (room_is("vulkan")) {
        vulkan_reset(NULL);
        vulkan_shim()->discrete = true;
    }
    return room_is("cuda") ? cuda_setup(NULL) : 0;
}

int room_teardown(void **state)
{
    return room_is("cuda") ? cuda_teardown(NULL) : vulkan_shim()->live || vulkan_shim()->not_asked_for ? -1 : 0;
}

int room_group_setup(void **state)
{
    snprintf(room_cache, sizeof(room_cache), "/tmp/tern-test-memory-XXXXXX");
    if (!mkdtemp(room_cache))
        return -1;
    return room_is("cuda") ? cuda_group_setup(NULL) : room_is("vulkan") ? vulkan_setup(NULL) : 0;
}

int room_group_teardown(void **state)
{
    char command[100];
    snprintf(command, sizeof(command), "rm -rf '%s'", room_cache);
    int st = room_is("cuda") ? cuda_group_teardown(NULL) : room_is("vulkan") ? vulkan_teardown(NULL) : 0;
    return system(command) || st;
}

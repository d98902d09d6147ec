/* One device as a weaker one: with small groups, little shared memory, small buffers, no 16-bit or 8-bit storage, no exchange in
 * subgroups, no matrix units and no dot products, one at a time and all at once, what it computes stays right. The argument is the device.
 * Backends share their kernel texts, so each checks other ops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/conformance.h>

#include "backends/gpu/gpu.h"
#include "core/context.h"
#include "support.h"

#define OPS_ONE_IN 36
#define GRAPHS_ONE_IN 40
#define DEVICES 3

static const char *const devices[DEVICES] = {"vulkan", "opencl", "cuda"};
static const char *device;
static int number; /* of the device */

struct limits {
    const char *text;
    int start; /* other checks for each */
};

static struct tern_context *open_lowered(const char *limits)
{
    setenv("TERN_GPU_LIMITS", limits, 1);
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = device, .threads = 1});
    if (!ctx && !strstr(tern_create_error(), "TERN_GPU_LIMITS")) {
        print_message("%s\n", tern_create_error());
        skip();
    }
    if (!ctx)
        fail_msg("%s", tern_create_error());
    return ctx;
}

/* Whether kernels are the device's own all the same: it lacks what the limits take away, or has less. Other tests run these. */
static bool takes_nothing(const struct tern_context *lowered, const char *limits)
{
    unsetenv("TERN_GPU_LIMITS");
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = device, .threads = 1});
    if (!ctx)
        fail_msg("%s", tern_create_error());
    const struct tern_gpu *own = (const struct tern_gpu *)ctx->device, *gpu = (const struct tern_gpu *)lowered->device;
    const bool same = !memcmp(&own->limits, &gpu->limits, sizeof(own->limits)) && own->max_binding == gpu->max_binding &&
                      own->base.caps.max_buffer == gpu->base.caps.max_buffer;
    tern_context_destroy(&ctx);
    setenv("TERN_GPU_LIMITS", limits, 1);
    return same;
}

static void agrees(void **state)
{
    const struct limits *l = *state;
    struct tern_context *ctx = open_lowered(l->text);
    if (takes_nothing(ctx, l->text)) {
        print_message("%s has no more than %s leaves\n", device, l->text);
        tern_context_destroy(&ctx);
        skip();
    }
    struct tern_conformance *c = tern_conformance_create(ctx, &(struct tern_conformance_params){.device = device, .kernel = "chosen"});
    struct tern_conformance *g = tern_conformance_create(ctx, &(struct tern_conformance_params){.device = device, .stages = "graphs"});
    struct tern_conformance_outcome out;
    int passed = 0, graphs = 0;
    if (!c || !g)
        fail_msg("%s", tern_error(ctx));
    assert_string_equal(tern_conformance_facts(c).level, l->text);
    for (int i = l->start + number * (OPS_ONE_IN / DEVICES); i < tern_conformance_facts(c).checks; i += OPS_ONE_IN) {
        assert_int_equal(tern_conformance_run(c, i, &out), TERN_OK);
        if (out.result == TERN_CONFORMANCE_FAILED)
            fail_msg("%s: %s", tern_conformance_get(c, i).name, out.message);
        passed += out.result == TERN_CONFORMANCE_PASSED;
    }
    for (int i = l->start + number * (GRAPHS_ONE_IN / DEVICES); i < tern_conformance_facts(g).checks; i += GRAPHS_ONE_IN) {
        assert_int_equal(tern_conformance_run(g, i, &out), TERN_OK);
        if (out.result != TERN_CONFORMANCE_PASSED)
            fail_msg("%s: %s", tern_conformance_get(g, i).name, out.message);
        graphs++;
    }
    print_message("%s %s: %d ops and %d graphs\n", device, l->text, passed, graphs);
    assert_true(passed >= 20 && graphs >= 2);
    tern_conformance_destroy(&c);
    tern_conformance_destroy(&g);
    tern_context_destroy(&ctx);
}

/* Other words, other numbers, and more than the device has. */
static void wrong_limits_are_refused(void **state)
{
    static const char *const wrong[] = {"group=63",
                                        "group=96",
                                        "group=1048576",
                                        "shared=8K",
                                        "shared=1024M",
                                        "buffer=1",
                                        "buffer=",
                                        "storage=no",
                                        "storage16=yes",
                                        "subgroups=yes",
                                        "matrix=yes",
                                        "dot=yes",
                                        "flops=1",
                                        "group",
                                        "=",
                                        "group=64;shared=16K",
                                        "group=64,,shared=16K"};
    tern_context_destroy(&(struct tern_context *){open_lowered("group=64")});
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        setenv("TERN_GPU_LIMITS", wrong[i], 1);
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = device, .threads = 1});
        if (ctx)
            fail_msg("\"%s\" was taken", wrong[i]);
        assert_non_null(strstr(tern_create_error(), "TERN_GPU_LIMITS"));
    }
    unsetenv("TERN_GPU_LIMITS");
}

int main(int argc, char **argv)
{
    static struct limits all[] = {{"group=64,shared=16K,buffer=32M,storage16=no,storage8=no,subgroups=no,matrix=no,dot=no", 0},
                                  {"group=64", 1},
                                  {"shared=16K", 2},
                                  {"buffer=32M", 3},
                                  {"storage16=no", 4},
                                  {"storage8=no", 5},
                                  {"subgroups=no", 6},
                                  {"matrix=no", 7},
                                  {"dot=no", 8}};
    device = argc > 1 ? argv[1] : "";
    if (!strcmp(device, "vulkan"))
        all[0].text = "group=64,shared=16K,buffer=32M,flops=1M,storage16=no,storage8=no,subgroups=no,matrix=no,dot=no";
    for (int i = 0; i < DEVICES; i++)
        number = strcmp(device, devices[i]) ? number : i;
    const struct CMUnitTest tests[] = {
        {"all_at_once", agrees, NULL, NULL, &all[0]},          {"small_groups", agrees, NULL, NULL, &all[1]},
        {"little_shared_memory", agrees, NULL, NULL, &all[2]}, {"small_buffers", agrees, NULL, NULL, &all[3]},
        {"no_16_bit_storage", agrees, NULL, NULL, &all[4]},    {"no_8_bit_storage", agrees, NULL, NULL, &all[5]},
        {"no_subgroups", agrees, NULL, NULL, &all[6]},         {"no_matrix_units", agrees, NULL, NULL, &all[7]},
        {"no_dot_products", agrees, NULL, NULL, &all[8]},      cmocka_unit_test(wrong_limits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Weights in few bits on a device whose kernels pack nothing: words that stay there, values made of them just before each product. A whole
 * UNet against the CPU's, its memory, weights that are streamed, LoRAs, models that come quantised. The argument is the device. Values of
 * the ops themselves: the op table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "graph/plan.h"
#include "models/pipelines/pipeline.h"
#include "quantize_help.h"
#include "support.h"

static const char *device;
static struct tern_context *ctx, *cpu; /* of most tests: kernels are compiled once */
static const char *const words[] = {"*:w8", "*:w4"};
static void open_devices(void)
{
    ctx = ctx ? ctx : quantize_device(device);
    cpu = cpu ? cpu : quantize_device("cpu");
}

static int close_devices(void **state)
{
    tern_context_destroy(&ctx);
    tern_context_destroy(&cpu);
    return 0;
}

static int products(const struct tern_plan *p)
{
    return quantize_count(p, TERN_OP_linear) + quantize_count(p, TERN_OP_linear_geglu) + quantize_count(p, TERN_OP_conv2d);
}

/* Every layer, one more launch for each, and what the CPU computes with the same words. */
static void every_layer_of_a_unet(void **state)
{
    open_devices();
    for (int i = 0; i < 2; i++) {
        struct tern_pipeline *floats = quantize_load(ctx, NULL, NULL, TERN_OFFLOAD_NONE),
                             *kept = quantize_load(ctx, words[i], NULL, TERN_OFFLOAD_NONE);
        struct tern_pipeline *expected = quantize_load(cpu, words[i], NULL, TERN_OFFLOAD_NONE),
                             *exact = quantize_load(cpu, NULL, NULL, TERN_OFFLOAD_NONE);
        const struct tern_plan *a = quantize_plan(ctx, floats), *b = quantize_plan(ctx, kept);
        assert_true(products(a) > 50);
        assert_int_equal(products(b), products(a));
        assert_int_equal(quantize_count(b, TERN_OP_unpack_weight), products(a));
        assert_int_equal(quantize_count(b, TERN_OP_pack_weight), products(a));
        assert_int_equal(tern_plan_facts(b).launches, tern_plan_facts(a).launches + products(a));
        int64_t n, m;
        float *wanted = quantize_latents(cpu, expected, &n), *found = quantize_latents(ctx, kept, &m),
              *of_floats = quantize_latents(cpu, exact, &n);
        assert_int_equal(n, m);
        const double error = support_nmse(found, wanted, n), noise = support_nmse(found, of_floats, n);
        print_message("%s: NMSE of latents against the CPU's %.2e, against f32 %.2e\n", words[i], error, noise);
        assert_true(error <= 1e-6 && noise > 1e-8 && noise <= (i ? 0.3 : 1e-2));
        free(wanted);
        free(found);
        free(of_floats);
        tern_pipeline_destroy(&exact);
        tern_pipeline_destroy(&floats);
        tern_pipeline_destroy(&kept);
        tern_pipeline_destroy(&expected);
    }
}

/* A binding takes what was predicted, and no floats of the layers stay on the device. */
static void memory_falls(void **state)
{
    const size_t floats = quantize_bind(device, NULL), eight = quantize_bind(device, "*:w8"), four = quantize_bind(device, "*:w4");
    print_message("weights there: %zu bytes in f16 as they are stored, %zu in 8 bits, %zu in 4\n", floats, eight, four);
    assert_true((double)eight < 0.6 * (double)floats); /* vectors are f32 */
    assert_true(four < eight);                         /* rows of this model's layers are short of 64 values */
}

static int words_of(const struct tern_node *n) { return n->desc.op == TERN_OP_unpack_weight ? n->in[0] : -1; }

/* A LoRA makes the layers anew that it names; without it again the bits are the same. */
static void loras_touch_few_layers(void **state)
{
    open_devices();
    quantize_loras(ctx, "*:w4", words_of);
}

/* Weights that come for every step become words and values there. */
static void streams(void **state)
{
    open_devices();
    for (int i = 0; i < 2; i++) {
        struct tern_pipeline *p = quantize_load(ctx, words[i], words[i], TERN_OFFLOAD_NONE),
                             *streamed = quantize_load(ctx, words[i], words[i], TERN_OFFLOAD_STREAM);
        int64_t n;
        float *first = quantize_latents(ctx, p, &n), *other = quantize_latents(ctx, streamed, &n);
        assert_true(support_nmse(other, first, n) <= 1e-6); /* layers of one input are not made one there: other tiles */
        free(first);
        free(other);
        tern_pipeline_destroy(&p);
        tern_pipeline_destroy(&streamed);
    }
}

/* A model that comes in 4 bits: what its weights stand for is packed to the same words, and no floats stay. */
static void models_that_come_quantised(void **state)
{
    open_devices();
    quantize_converted(ctx, "*:w4");
}

/* Words are of 32 bits: a device without a place for bytes has them, too, and one with little of everything. One without a place for f16
 * makes one layer of query, key and value in f32. */
static void weaker_devices(void **state)
{
    static const char *const limits[] = {"group=64,shared=16K,subgroups=no", "storage8=no", "storage16=no"};
    for (int i = 0; i < 3; i++) {
        setenv("TERN_GPU_LIMITS", limits[i], 1);
        struct tern_context *on = quantize_device(device);
        struct tern_pipeline *p = quantize_load(on, "*:w8", NULL, TERN_OFFLOAD_NONE);
        assert_int_equal(quantize_count(quantize_plan(on, p), TERN_OP_unpack_weight), products(quantize_plan(on, p)));
        tern_pipeline_destroy(&p);
        tern_context_destroy(&on);
    }
    unsetenv("TERN_GPU_LIMITS");
}

int main(int argc, char **argv)
{
    device = argc > 1 ? argv[1] : "opencl";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer_of_a_unet),  cmocka_unit_test(memory_falls),   cmocka_unit_test(streams),
        cmocka_unit_test(loras_touch_few_layers), cmocka_unit_test(weaker_devices), cmocka_unit_test(models_that_come_quantised),
    };
    return cmocka_run_group_tests(tests, NULL, close_devices);
}

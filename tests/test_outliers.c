/* Group norm where the first value of each group is far from the others: statistics lose no digits by it. The argument is the device;
 * without one it is the CPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>
#include <tern/random.h>

#include "core/context.h"
#include "support.h"

enum { CHANNELS = 16, GROUPS = 2, PER = CHANNELS / GROUPS, HIGH = 96, WIDE = 80, PIXELS = HIGH * WIDE };

static const char *device = "cpu";

/* Mean and variance of each group, in double. */
static void moments(const float *x, int64_t pixels, double found[GROUPS][2])
{
    const int64_t n = PER * pixels;
    for (int g = 0; g < GROUPS; g++) {
        double mean = 0, square = 0;
        for (int64_t i = 0; i < n; i++)
            mean += x[g * n + i] / (double)n;
        for (int64_t i = 0; i < n; i++)
            square += (x[g * n + i] - mean) * (x[g * n + i] - mean) / (double)n;
        found[g][0] = mean;
        found[g][1] = square;
    }
}

static void check(struct tern_context *ctx, const float *x, int64_t high, enum tern_memory_format format)
{
    static float y[CHANNELS * PIXELS];
    const int64_t pixels = high * WIDE, n = PER * pixels;
    double expected[GROUPS][2];
    float stats[GROUPS * 2];
    tern_scope_begin(ctx);
    tern_tensor *t = tern_contiguous(tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){1, CHANNELS, high, WIDE}, x), format);
    tern_tensor *s = tern_group_norm_stats(t, GROUPS), *normed = tern_group_norm(t, GROUPS, NULL, NULL, 1e-6);
    if (tern_tensor_read(s, TERN_F32, stats, sizeof(stats)) ||
        tern_tensor_read(normed, TERN_F32, y, (size_t)(CHANNELS * pixels) * sizeof(*y)))
        fail_msg("%s", tern_error(ctx));
    tern_scope_end(ctx, NULL);
    moments(x, pixels, expected);
    for (int g = 0; g < GROUPS; g++) {
        const double inv = 1 / sqrt(expected[g][1] + 1e-6), variance = fabs(stats[2 * g + 1] / expected[g][1] - 1);
        double scale = 0;
        for (int64_t i = g * n; i < (g + 1) * n; i++)
            scale = fmax(scale, fabs(y[i] - (x[i] - expected[g][0]) * inv) / (1 + fabs((x[i] - expected[g][0]) * inv)));
        print_message("%d rows, format %d: variance off by %.1e, values by %.1e\n", (int)high, (int)format, variance, scale);
        assert_true(variance < 1e-5 && scale < 1e-5);
    }
}

static void one_value_costs_no_digits(void **state)
{
    static float x[CHANNELS * PIXELS];
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = device, .threads = 2});
    if (!ctx) {
        print_message("%s\n", tern_create_error());
        skip();
    }
    for (int64_t high = HIGH; high >= 2; high = high == HIGH ? 12 : high / 6) {
        struct tern_generator g;
        tern_generator_seed(&g, TERN_GENERATOR_CPU, 3);
        tern_generator_randn(&g, x, CHANNELS * high * WIDE);
        for (int i = 0; i < GROUPS; i++)
            x[i * PER * high * WIDE] = i ? -3000 : 300;
        check(ctx, x, high, TERN_CONTIGUOUS);
        check(ctx, x, high, TERN_CHANNELS_LAST);
    }
    tern_context_destroy(&ctx);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_value_costs_no_digits)};
    device = argc > 1 ? argv[1] : device;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

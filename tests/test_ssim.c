/* SSIM against scipy's, and what is no pair of pictures. The data are made by tools/goldens_ssim.py. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <tern/image.h>

#include "support.h"

/* The two pictures of a row, as the script makes them. */
static void make(struct tern_context *ctx, const json_t *row, struct tern_image *out[2])
{
    const int width = (int)json_integer_value(json_array_get(row, 0)), height = (int)json_integer_value(json_array_get(row, 1)),
              n = width * height * 3;
    const unsigned away = (unsigned)json_integer_value(json_array_get(row, 3));
    uint32_t state = (uint32_t)json_integer_value(json_array_get(row, 2));
    uint8_t *a = malloc((size_t)n), *b = malloc((size_t)n);
    for (int i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        a[i] = (uint8_t)((unsigned)(i / 3 % width * 5 + i / 3 / width * 3) + (state >> 28));
        const unsigned sum = a[i] + (state >> 16) % (away + 1);
        b[i] = (uint8_t)(sum < 255 ? sum : 255);
    }
    out[0] = tern_image_create(ctx, width, height, a);
    out[1] = tern_image_create(ctx, width, height, b);
    free(a);
    free(b);
}

static void is_scipys(void **state)
{
    size_t i;
    json_t *rows = support_json("images/ssim.json"), *row;
    double worst = 0;
    json_array_foreach(rows, i, row) {
        struct tern_image *pair[2];
        double there, back, same;
        make(*state, row, pair);
        assert_int_equal(tern_image_ssim(pair[0], pair[1], &there), TERN_OK);
        assert_int_equal(tern_image_ssim(pair[1], pair[0], &back), TERN_OK);
        assert_int_equal(tern_image_ssim(pair[0], pair[0], &same), TERN_OK);
        worst = fmax(worst, fabs(there - json_real_value(json_array_get(row, 4))));
        assert_true(fabs(there - back) < 1e-12);
        assert_true(fabs(same - 1) < 1e-12);
        tern_image_destroy(&pair[0]);
        tern_image_destroy(&pair[1]);
    }
    assert_int_equal(i, 7);
    print_message("%zu pairs, at most %.1e away\n", i, worst);
    assert_true(worst < 1e-9);
    json_decref(rows);
}

static void others_are_refused(void **state)
{
    struct tern_context *ctx = *state;
    struct tern_image *a = tern_image_create(ctx, 16, 16, NULL), *b = tern_image_create(ctx, 16, 17, NULL),
                      *small = tern_image_create(ctx, 10, 64, NULL);
    double x;
    assert_int_equal(tern_image_ssim(NULL, NULL, &x), TERN_E_INVALID);
    assert_int_equal(tern_image_ssim(a, b, &x), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "found 16 x 16 and 16 x 17");
    assert_int_equal(tern_image_ssim(small, small, &x), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "a window, found 10 x 64");
    assert_int_equal(tern_image_ssim(a, NULL, &x), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "found NULL");
    assert_int_equal(tern_image_ssim(a, a, NULL), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "found NULL");
    tern_image_destroy(&a);
    tern_image_destroy(&b);
    tern_image_destroy(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_scipys), cmocka_unit_test(others_are_refused)};
    return cmocka_run_group_tests_name("ssim", tests, support_setup, support_teardown);
}

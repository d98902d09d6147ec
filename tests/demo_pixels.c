/* Pixels to colour classes, in f32 as numpy does it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "demo_check.h"

static double number(const json_t *list, size_t i)
{
    const json_t *v = json_array_get(list, i);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

/* x >= 0 in steps of 6, like Python's %. */
static float modulo6(float x)
{
    float m = fmodf(x, 6);
    return m < 0 ? m + 6 : m;
}

/* dark: below this value the saturation is measured as if it were this; what is almost black has little. */
static void to_hsv(const float rgb[3], float dark, float out[3])
{
    float r = rgb[0], g = rgb[1], b = rgb[2], high = fmaxf(r, fmaxf(g, b)), low = fminf(r, fminf(g, b)), d = high - low + 1e-6f;
    float sixth = high == r ? modulo6((g - b) / d) : high == g ? (b - r) / d + 2 : (r - g) / d + 4;
    out[0] = sixth * 60;
    out[1] = (high - low) / fmaxf(high, dark);
    out[2] = high;
}

void demo_pixels_see(struct demo_pixels *p, const json_t *table, const uint8_t *rgb, const char *time)
{
    const json_t *tint = json_object_get(json_object_get(table, "tints"), time);
    float dark = (float)json_number_value(json_object_get(table, "dark"));
    assert_true(dark > 0);
    p->table = table;
    p->plain = !strcmp(time, "plain");
    for (int i = 0; i < DEMO_SIDE * DEMO_SIDE; i++) {
        float x[3];
        for (size_t c = 0; c < 3; c++)
            x[c] = fminf((float)rgb[3 * i + (int)c] / (float)number(tint, c), 255) / 255;
        to_hsv(x, dark, p->hsv[i / DEMO_SIDE][i % DEMO_SIDE]);
    }
}

static bool inside(const float hsv[3], const float limits[6])
{
    bool from = hsv[0] >= limits[0], to = hsv[0] <= limits[1];
    return (limits[0] <= limits[1] ? from && to : from || to) && hsv[1] >= limits[2] && hsv[1] <= limits[3] && hsv[2] >= limits[4] &&
           hsv[2] <= limits[5];
}

void demo_pixels_mask(const struct demo_pixels *p, const char *name, struct demo_mask *out)
{
    static const char *const tables[] = {"shape_colors", "marks", "colors"};
    const json_t *row = NULL;
    float limits[6];
    for (int i = !p->plain; i < 3 && !row; i++)
        row = json_object_get(json_object_get(p->table, tables[i]), name);
    for (size_t i = 0; i < 6; i++)
        limits[i] = (float)number(row, i);
    for (int y = 0; y < DEMO_SIDE; y++)
        for (int x = 0; x < DEMO_SIDE; x++)
            out->on[y][x] = inside(p->hsv[y][x], limits);
}

/* The median of each channel of some rows. */
static void median(const uint8_t *rgb, const json_t *rows, double out[3])
{
    int first = (int)number(rows, 0), end = (int)number(rows, 1), n = (end - first) * DEMO_SIDE;
    assert_true(first >= 0 && end <= DEMO_SIDE && n > 0);
    for (int c = 0; c < 3; c++) {
        int counts[256] = {0}, seen = 0, v = -1, low = -1;
        for (int i = 0; i < n; i++)
            counts[rgb[3 * (first * DEMO_SIDE + i) + c]]++;
        while (seen <= n / 2) { /* n is even: the mean of the two values in the middle */
            seen += counts[++v];
            if (low < 0 && seen >= n / 2)
                low = v;
        }
        out[c] = (low + v) / 2.0;
    }
}

const char *demo_time(const json_t *table, const uint8_t *rgb)
{
    const json_t *sky = json_object_get(table, "sky");
    double high[3], low[3];
    median(rgb, json_object_get(sky, "rows"), high);
    median(rgb, json_object_get(sky, "low_rows"), low);
    if (.3 * high[0] + .59 * high[1] + .11 * high[2] < json_number_value(json_object_get(sky, "night_luma")))
        return "night";
    bool blue = high[2] - high[0] >= json_number_value(json_object_get(sky, "day_blue"));
    return blue && low[2] - low[0] > json_number_value(json_object_get(sky, "day_low_blue")) ? "day" : "sunset";
}

/* From groups of pixels to things, places and relations. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "demo_check.h"

json_t *demo_table(void)
{
    json_error_t e;
    json_t *table = json_load_file(TERN_SOURCE_ROOT "/tools/train-demo/check/table.json", 0, &e);
    if (!table)
        fail_msg("check/table.json: line %d: %s", e.line, e.text);
    return table;
}

static double value(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

static double item(const json_t *list, size_t i)
{
    const json_t *v = json_array_get(list, i);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

static bool between(double x, const json_t *limits) { return x >= item(limits, 0) && x <= item(limits, 1); }

static int width(const struct demo_blob *b) { return b->x1 - b->x0; }
static int height(const struct demo_blob *b) { return b->y1 - b->y0; }
static double middle_x(const struct demo_blob *b) { return (b->x0 + b->x1) / 2.0; }
static double middle_y(const struct demo_blob *b) { return (b->y0 + b->y1) / 2.0; }

/* "circle", "square", "triangle", "star" or "ring". */
static const char *shape_of(const json_t *limits, const struct demo_groups *g, const struct demo_blob *b)
{
    static struct demo_mask own, closed, whole;
    int64_t area = 0, weighted = 0, hole = 0;
    demo_blob_mask(g, b, (int)value(limits, "ring_gap"), &closed);
    demo_fill_holes(&closed, b, &whole);
    for (int y = b->y0; y < b->y1; y++)
        for (int x = b->x0; x < b->x1; x++)
            hole += whole.on[y][x] && !closed.on[y][x];
    if ((double)hole / (double)(hole + b->area) > value(limits, "ring_hole"))
        return "ring";
    demo_blob_mask(g, b, 0, &own);
    demo_fill_holes(&own, b, &whole);
    for (int y = b->y0; y < b->y1; y++)
        for (int x = b->x0; x < b->x1; x++) {
            area += whole.on[y][x];
            weighted += whole.on[y][x] * (y - b->y0);
        }
    double fill = (double)area / ((double)width(b) * height(b));
    if (fill > value(limits, "square_fill"))
        return "square";
    if (fill > value(limits, "circle_fill"))
        return "circle";
    return (double)weighted / (double)area / height(b) > value(limits, "triangle_low") ? "triangle" : "star";
}

/* mark: class, x0, y0, x1, y1, share */
static bool has_mark(const struct demo_pixels *p, const struct demo_blob *b, const char *color, const json_t *mark)
{
    static struct demo_mask mask;
    const char *name = json_string_value(json_array_get(mark, 0));
    double window[4] = {item(mark, 1), item(mark, 2), item(mark, 3), item(mark, 4)}, share = item(mark, 5);
    assert_non_null(name);
    demo_pixels_mask(p, strcmp(name, "own") ? name : color, &mask);
    double found = demo_share(b, &mask, window);
    return share > 0 ? found >= share : found <= -share;
}

static bool is_kind(const struct demo_pixels *p, const struct demo_blob *b, const char *color, const json_t *want)
{
    size_t i;
    const json_t *mark;
    double w = width(b), h = height(b);
    if (!between(w, json_object_get(want, "width")) || !between(h, json_object_get(want, "height")) ||
        !between(w / h, json_object_get(want, "aspect")) || !between(b->area / (w * h), json_object_get(want, "fill")) ||
        !between(b->y1, json_object_get(want, "foot")))
        return false;
    json_array_foreach(json_object_get(want, "marks"), i, mark)
        if (!has_mark(p, b, color, mark))
            return false;
    return true;
}

static bool is_shape(const json_t *limits, const struct demo_groups *g, const struct demo_blob *b, const char *kind)
{
    const json_t *size = json_object_get(limits, "size");
    return between(width(b), size) && between(height(b), size) && !strcmp(shape_of(limits, g, b), kind);
}

int demo_find(const json_t *table, const uint8_t *rgb, const char *kind, const char *color, int count, struct demo_blob *out, int most)
{
    const json_t *want = json_object_get(json_object_get(table, "kinds"), kind), *shapes = json_object_get(table, "shapes");
    const json_t *groups = json_object_get(table, "groups"), *reach = json_object_get(want ? want : shapes, "reach");
    double by_count = want ? item(json_object_get(groups, "reach_by_count"), (size_t)count - 1) : 1;
    struct demo_pixels *p = malloc(sizeof(*p));
    struct demo_groups *g = malloc(sizeof(*g));
    struct demo_mask *mask = malloc(sizeof(*mask));
    assert_true(p && g && mask);
    demo_pixels_see(p, table, rgb, want ? demo_time(table, rgb) : "plain");
    demo_pixels_mask(p, color, mask);
    demo_group(mask, (int)(item(reach, 0) * by_count + 1) / 2, (int)(item(reach, 1) * by_count + 1) / 2, (int)value(groups, "least_part"),
               g);
    int found = 0;
    for (int k = 0; k < g->count; k++)
        if (want ? is_kind(p, &g->blobs[k], color, want) : is_shape(shapes, g, &g->blobs[k], kind)) {
            if (found < most)
                out[found] = g->blobs[k];
            found++;
        }
    free(mask);
    free(g);
    free(p);
    return found;
}

static bool related(const json_t *places, const struct demo_blob *a, const struct demo_blob *b, const char *rel)
{
    double dx = middle_x(b) - middle_x(a), dy = middle_y(b) - middle_y(a), apart = value(places, "apart"), in = value(places, "inside");
    if (!strcmp(rel, "inside"))
        return fabs(dx) < in && fabs(dy) < in && width(a) < width(b) && height(a) < height(b);
    if (!strcmp(rel, "left of"))
        return dx > apart;
    if (!strcmp(rel, "right of"))
        return -dx > apart;
    assert_true(!strcmp(rel, "above") || !strcmp(rel, "below"));
    return (*rel == 'a' ? dy : -dy) > apart;
}

static const char *place_of(const json_t *places, const struct demo_blob *b)
{
    double x = middle_x(b);
    return x < value(places, "left_of") ? "left" : x > value(places, "right_of") ? "right" : "middle";
}

#define MOST 64 /* of one thing in a picture */

struct found {
    int n;
    struct demo_blob blobs[MOST];
};

static struct found find_object(const json_t *table, const uint8_t *rgb, const json_t *object)
{
    struct found f;
    const char *kind = json_string_value(json_object_get(object, "kind")), *color = json_string_value(json_object_get(object, "color"));
    int count = (int)value(object, "count");
    assert_true(kind && color && count >= 1 && count <= 3);
    f.n = demo_find(table, rgb, kind, color, count, f.blobs, MOST);
    assert_true(f.n <= MOST);
    return f;
}

static int judge_pair(const json_t *table, const uint8_t *rgb, const json_t *objects, const char *rel)
{
    struct found a = find_object(table, rgb, json_array_get(objects, 0)), b = find_object(table, rgb, json_array_get(objects, 1));
    assert_non_null(rel);
    for (int i = 0; i < a.n; i++)
        for (int k = 0; k < b.n; k++)
            if (related(json_object_get(table, "places"), &a.blobs[i], &b.blobs[k], rel))
                return 1;
    return 0;
}

struct demo_answers demo_judge(const json_t *table, const uint8_t *rgb, const json_t *scene)
{
    struct demo_answers out = {-1, -1, -1, -1, -1};
    const json_t *objects = json_object_get(scene, "objects"), *only = json_array_get(objects, 0);
    const char *time = json_string_value(json_object_get(scene, "time"));
    if (time)
        out.time = !strcmp(demo_time(table, rgb), time);
    if (json_array_size(objects) == 2)
        out.pair = judge_pair(table, rgb, objects, json_string_value(json_object_get(scene, "rel")));
    if (json_array_size(objects) != 1)
        return out;
    struct found f = find_object(table, rgb, only);
    int count = (int)value(only, "count");
    const char *pos = json_string_value(json_object_get(only, "pos"));
    out.count = f.n == count;
    if (count == 1) {
        out.object = f.n > 0;
        out.place = f.n > 0 && pos && !strcmp(place_of(json_object_get(table, "places"), &f.blobs[0]), pos);
    }
    return out;
}

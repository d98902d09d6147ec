/* Groups of pixels and what can be measured on them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "demo_check.h"

#define SIDE DEMO_SIDE

static int clamp(int v, int high) { return v < 0 ? 0 : v > high ? high : v; }

/* Dilation by a box of (2 rx + 1) x (2 ry + 1) of the pixels that are `value`; all others become !value. */
static void spread(const struct demo_mask *in, int rx, int ry, uint8_t value, struct demo_mask *out)
{
    struct demo_mask rows;
    memset(&rows, !value, sizeof(rows));
    memset(out, !value, sizeof(*out));
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            if (in->on[y][x] == value)
                for (int k = clamp(x - rx, SIDE - 1); k <= clamp(x + rx, SIDE - 1); k++)
                    rows.on[y][k] = value;
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            if (rows.on[y][x] == value)
                for (int k = clamp(y - ry, SIDE - 1); k <= clamp(y + ry, SIDE - 1); k++)
                    out->on[k][x] = value;
}

/* Gives the group of pixels around a start (4 neighbours) a label; stack: room for every pixel. */
static void flood(const struct demo_mask *mask, int start, int32_t name, int32_t *label, int *stack)
{
    static const int steps[4][2] = {{-1, 0}, {1, 0}, {0, -1}, {0, 1}};
    int n = 0;
    label[start] = name;
    stack[n++] = start;
    while (n) {
        int at = stack[--n], y = at / SIDE, x = at % SIDE;
        for (int k = 0; k < 4; k++) {
            int v = y + steps[k][0], u = x + steps[k][1], next = v * SIDE + u;
            if (v < 0 || v >= SIDE || u < 0 || u >= SIDE || !mask->on[v][u] || label[next])
                continue;
            label[next] = name;
            stack[n++] = next;
        }
    }
}

/* Labels from 1 on, in the order of the groups' first pixels; their number. */
static int label_all(const struct demo_mask *mask, int32_t label[SIDE][SIDE])
{
    int n = 0, *stack = malloc(sizeof(int) * SIDE * SIDE);
    assert_non_null(stack);
    memset(label, 0, sizeof(int32_t) * SIDE * SIDE);
    for (int i = 0; i < SIDE * SIDE; i++)
        if (mask->on[i / SIDE][i % SIDE] && !label[i / SIDE][i % SIDE])
            flood(mask, i, ++n, &label[0][0], stack);
    free(stack);
    return n;
}

static int larger_first(const void *a, const void *b)
{
    const struct demo_blob *x = a, *y = b;
    return x->area != y->area ? y->area - x->area : x->label - y->label;
}

void demo_group(const struct demo_mask *mask, int half_x, int half_y, int least_part, struct demo_groups *out)
{
    struct demo_mask shrunk, opened, joined;
    spread(mask, 1, 1, 0, &shrunk); /* opening by 3 x 3: strokes of one or two pixels go away */
    spread(&shrunk, 1, 1, 1, &opened);
    spread(&opened, half_x, half_y, 1, &joined);
    int n = label_all(&joined, out->label);
    assert_true(n <= (int)(sizeof(out->blobs) / sizeof(*out->blobs)));
    for (int k = 0; k < n; k++)
        out->blobs[k] = (struct demo_blob){SIDE, SIDE, 0, 0, 0, k + 1};
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            if (!opened.on[y][x])
                out->label[y][x] = 0;
            if (!out->label[y][x])
                continue;
            struct demo_blob *b = &out->blobs[out->label[y][x] - 1];
            b->x0 = x < b->x0 ? x : b->x0;
            b->x1 = x >= b->x1 ? x + 1 : b->x1;
            b->y0 = y < b->y0 ? y : b->y0;
            b->y1 = y + 1;
            b->area++;
        }
    qsort(out->blobs, (size_t)n, sizeof(*out->blobs), larger_first);
    for (out->count = 0; out->count < n && out->blobs[out->count].area >= least_part;)
        out->count++;
}

void demo_blob_mask(const struct demo_groups *g, const struct demo_blob *b, int reach, struct demo_mask *out)
{
    struct demo_mask own;
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            own.on[y][x] = g->label[y][x] == b->label;
    spread(&own, reach, reach, 1, out);
}

/* What the background around the group's box does not reach. */
void demo_fill_holes(const struct demo_mask *mask, const struct demo_blob *b, struct demo_mask *out)
{
    struct demo_mask outside;
    int32_t(*label)[SIDE] = malloc(sizeof(int32_t) * SIDE * SIDE);
    assert_non_null(label);
    memset(out, 0, sizeof(*out));
    memset(&outside, 0, sizeof(outside));
    for (int y = b->y0; y < b->y1; y++)
        for (int x = b->x0; x < b->x1; x++)
            outside.on[y][x] = !mask->on[y][x];
    int n = label_all(&outside, label);
    uint8_t *open = calloc((size_t)n + 1, 1);
    assert_non_null(open);
    for (int y = b->y0; y < b->y1; y++)
        for (int x = b->x0; x < b->x1; x++)
            if (y == b->y0 || y == b->y1 - 1 || x == b->x0 || x == b->x1 - 1)
                open[label[y][x]] = label[y][x] != 0;
    for (int y = b->y0; y < b->y1; y++)
        for (int x = b->x0; x < b->x1; x++)
            out->on[y][x] = !open[label[y][x]];
    free(open);
    free(label);
}

double demo_share(const struct demo_blob *b, const struct demo_mask *mask, const double window[4])
{
    int x0 = clamp((int)(b->x0 + window[0] * (b->x1 - b->x0)), SIDE), x1 = clamp((int)(b->x0 + window[2] * (b->x1 - b->x0)), SIDE);
    int y0 = clamp((int)(b->y0 + window[1] * (b->y1 - b->y0)), SIDE), y1 = clamp((int)(b->y0 + window[3] * (b->y1 - b->y0)), SIDE);
    int n = 0;
    if (x1 <= x0 || y1 <= y0)
        return 0;
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++)
            n += mask->on[y][x];
    return (double)n / ((double)(x1 - x0) * (y1 - y0));
}

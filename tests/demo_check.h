/* Does a picture of the demo model show what its prompt says? Looks at pixels alone. The same rules as
 * tools/train-demo/check, with the same table: tools/train-demo/check/table.json, whose entries table.py explains. */
#ifndef TERN_TESTS_DEMO_CHECK_H
#define TERN_TESTS_DEMO_CHECK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define DEMO_SIDE 256 /* of every picture */

struct demo_mask {
    uint8_t on[DEMO_SIDE][DEMO_SIDE]; /* 0 or 1 */
};

/* A connected group of pixels and its box: x0 <= x < x1. */
struct demo_blob {
    int x0, y0, x1, y1, area, label;
};

/* Groups, largest first. */
struct demo_groups {
    int count;
    struct demo_blob blobs[DEMO_SIDE * DEMO_SIDE / 2];
    int32_t label[DEMO_SIDE][DEMO_SIDE]; /* of the group that a pixel is in; 0: in none */
};

/* demo_pixels.c: a picture seen through the tint of a time of day ("plain": plain shapes), as hue 0..360, saturation, value 0..1. */
struct demo_pixels {
    const json_t *table;
    bool plain;
    float hsv[DEMO_SIDE][DEMO_SIDE][3];
};
void demo_pixels_see(struct demo_pixels *p, const json_t *table, const uint8_t *rgb, const char *time);
/* The pixels of a colour or mark class. */
void demo_pixels_mask(const struct demo_pixels *p, const char *name, struct demo_mask *out);
/* "day", "sunset" or "night". */
const char *demo_time(const json_t *table, const uint8_t *rgb);

/* demo_blobs.c: groups of a mask, where parts nearer than 2 x half-reach are one; specks and groups below least_part left out. */
void demo_group(const struct demo_mask *mask, int half_x, int half_y, int least_part, struct demo_groups *out);
/* The pixels of a group, and those at most `reach` away from them. */
void demo_blob_mask(const struct demo_groups *g, const struct demo_blob *b, int reach, struct demo_mask *out);
/* The pixels of a mask in a group's box, and those that they enclose there. */
void demo_fill_holes(const struct demo_mask *mask, const struct demo_blob *b, struct demo_mask *out);
/* Share of a mask in a window relative to the group's box (0..1 inside it). */
double demo_share(const struct demo_blob *b, const struct demo_mask *mask, const double window[4]);

/* demo_judge.c */
json_t *demo_table(void); /* json_decref */
/* The groups that are a `kind` of a colour, largest first, where `count` of them are looked for: their number, the first `most`
 * in out. */
int demo_find(const json_t *table, const uint8_t *rgb, const char *kind, const char *color, int count, struct demo_blob *out, int most);
/* For each question: 1 yes, 0 no, -1 not asked. */
struct demo_answers {
    int time, object, place, count, pair;
};
/* scene: an object with type, time, objects and rel, as in tools/train-demo/world.py. */
struct demo_answers demo_judge(const json_t *table, const uint8_t *rgb, const json_t *scene);

#endif

/* Lines over numbers as an SVG picture, both axes from 0. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define WIDTH 720
#define LEAST_HEIGHT 420
#define LEFT 70
#define RIGHT 240 /* with the names of the lines */
#define TOP 50
#define BOTTOM 50
#define TICKS 5
#define MOST_COLOURS 8
#define NAME 18 /* from one name to the next */

static const char *const colours[MOST_COLOURS] = {"#1f77b4", "#d95f02", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#17becf"};
static const char *const dashes[] = {"none", "6 3", "2 2", "8 3 2 3"}; /* colours come again with the next ones */

/* 1, 2 or 5 times a power of ten: at most TICKS of it reach `most`. */
static double step_of(double most)
{
    double power = pow(10, floor(log10(most / TICKS)));
    for (int i = 0; i < 3; i++) {
        static const double factor[] = {1, 2, 5};
        if (power * factor[i] * TICKS >= most)
            return power * factor[i];
    }
    return 10 * power;
}

struct frame {
    double most_x, most_y;
    int height;
};
static double place_x(const struct frame *f, double x) { return LEFT + x / f->most_x * (WIDTH - LEFT - RIGHT); }
static double place_y(const struct frame *f, double y) { return f->height - BOTTOM - y / f->most_y * (f->height - TOP - BOTTOM); }

/* Behind the last point of the line that begins with point `first`. */
static int end_of(const struct bench_plot *p, int first)
{
    int end = first + 1;
    while (end < p->count && !strcmp(p->points[end].line, p->points[first].line))
        end++;
    return end;
}

static int lines_of(const struct bench_plot *p)
{
    int lines = 0;
    for (int i = 0; i < p->count; i = end_of(p, i))
        lines++;
    return lines;
}

static void draw_axes(FILE *file, const struct bench_plot *p, const struct frame *f)
{
    double step = step_of(f->most_y);
    for (int i = 0; i * step <= f->most_y * 1.0001; i++) {
        double y = place_y(f, i * step);
        fprintf(file, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", LEFT, y, WIDTH - RIGHT, y);
        fprintf(file, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", LEFT - 6, y + 4, i * step);
    }
    for (int i = 0; i < p->count; i++) {
        bool seen = false;
        for (int k = 0; k < i; k++)
            seen |= p->points[k].x == p->points[i].x;
        if (!seen)
            fprintf(file, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n", place_x(f, p->points[i].x),
                    f->height - BOTTOM + 18, p->points[i].x);
    }
    fprintf(file, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", (LEFT + WIDTH - RIGHT) / 2, f->height - 12, p->x_name);
}

static void draw_line(FILE *file, const struct bench_plot *p, const struct frame *f, int first, int end, int number)
{
    const char *colour = colours[number % MOST_COLOURS];
    const char *dash = dashes[number / MOST_COLOURS % (int)(sizeof(dashes) / sizeof(*dashes))];
    fprintf(file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"%s\" points=\"", colour, dash);
    for (int i = first; i < end; i++)
        fprintf(file, "%.1f,%.1f ", place_x(f, p->points[i].x), place_y(f, p->points[i].y));
    fprintf(file, "\"/>\n");
    for (int i = first; i < end; i++)
        fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"><title>%s: %g, %.4g s</title></circle>\n",
                place_x(f, p->points[i].x), place_y(f, p->points[i].y), colour, p->points[first].line, p->points[i].x, p->points[i].y);
    const int y = TOP + 10 + NAME * number;
    fprintf(file, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"%s\"/>\n",
            WIDTH - RIGHT + 10, y - 4, WIDTH - RIGHT + 34, y - 4, colour, dash);
    fprintf(file, "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", WIDTH - RIGHT + 40, y, colour, p->points[first].line);
}

static void fill(FILE *file, const void *user)
{
    const struct bench_plot *p = user;
    struct frame f = {0};
    for (int i = 0; i < p->count; i++) {
        f.most_x = fmax(f.most_x, p->points[i].x);
        f.most_y = fmax(f.most_y, p->points[i].y);
    }
    f.most_y = f.most_y > 0 ? f.most_y : 1;
    const int names = TOP + NAME * lines_of(p) + BOTTOM;
    f.height = names > LEAST_HEIGHT ? names : LEAST_HEIGHT;
    fprintf(file, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n", WIDTH,
            f.height);
    fprintf(file, "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n<text x=\"%d\" y=\"28\" font-size=\"15\">%s</text>\n", WIDTH,
            f.height, LEFT, p->title);
    draw_axes(file, p, &f);
    for (int i = 0, number = 0, end; i < p->count; i = end, number++) {
        end = end_of(p, i);
        draw_line(file, p, &f, i, end, number);
    }
    fprintf(file, "</svg>\n");
}

int bench_plot_write(const char *path, const struct bench_plot *plot) { return output_write(path, fill, plot); }

/* The arena of a plan as an SVG picture: steps to the right, offsets upwards, a rectangle a block; beside it the step that needs
 * most, magnified, with names. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "graph/peak.h"

/* Pixels. */
enum { WIDTH = 1180, HEIGHT = 640, LEFT = 60, TOP = 84, PLOT_WIDTH = 650, PLOT_HEIGHT = 470, SLICE = 748, SLICE_WIDTH = 56, LABELS = 826 };
enum { LABEL_STEP = 15, MOST_LABELS = PLOT_HEIGHT / LABEL_STEP };

enum kind { CONV, PRODUCT, ATTENTION, NORM, ELEMENTWISE, COPY, OTHER, KINDS };
static const struct {
    const char *name, *color;
} kinds[KINDS] = {
    [CONV] = {"convolution", "#4e79a7"},
    [PRODUCT] = {"linear, matmul", "#59a14f"},
    [ATTENTION] = {"attention", "#e15759"},
    [NORM] = {"norm, softmax, sums", "#edc948"},
    [ELEMENTWISE] = {"element-wise", "#b07aa1"},
    [COPY] = {"copies, sampling", "#a0a4a8"},
    [OTHER] = {"other", "#9c755f"},
};

static enum kind kind_of(enum tern_op op)
{
    if (op == TERN_OP_conv2d || op == TERN_OP_conv_transpose2d || op == TERN_OP_weight_only_conv2d || op == TERN_OP_quantized_conv2d)
        return CONV;
    if (op == TERN_OP_linear || op == TERN_OP_linear_geglu || op == TERN_OP_matmul || tern_op_is_weight_only(op) ||
        tern_op_is_quantized(op))
        return PRODUCT;
    if (op == TERN_OP_sdpa)
        return ATTENTION;
    if (op >= TERN_OP_sum && op <= TERN_OP_rms_norm)
        return NORM;
    if (tern_op_is_elementwise(op))
        return ELEMENTWISE;
    return (op >= TERN_OP_cast && op <= TERN_OP_pad) || (op >= TERN_OP_interpolate && op <= TERN_OP_max_pool2d) ? COPY : OTHER;
}

struct drawing {
    const struct tern_plan *plan;
    struct tern_relief relief;
    void (*write)(void *user, const char *line);
    void *user;
};

static void TERN_PRINTF(2, 3) put(const struct drawing *d, const char *fmt, ...)
{
    char line[768];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    d->write(d->user, line);
}

/* A number with a point whatever the locale writes, and at most two places. */
struct number {
    char text[48];
};
static struct number number(double x)
{
    struct number n;
    long long h = llround(x * 100);
    int length = snprintf(n.text, sizeof(n.text), "%lld.%02lld", h / 100, h % 100);
    while (n.text[length - 1] == '0')
        n.text[--length] = 0;
    if (n.text[length - 1] == '.')
        n.text[length - 1] = 0;
    return n;
}
#define PX(x) number(x).text

/* "12.50 MiB"; small ones in KiB. */
static struct number size_text(size_t bytes)
{
    struct number n;
    bool small = bytes < (1 << 20) / 10;
    long long h = llround((double)bytes * 100 / (small ? 1 << 10 : 1 << 20));
    snprintf(n.text, sizeof(n.text), "%lld.%02lld %s", h / 100, h % 100, small ? "KiB" : "MiB");
    return n;
}
#define SIZE(bytes) size_text(bytes).text

/* Text of a file between tags: what XML gives a meaning or forbids is replaced; cut, with an ellipsis, when it is long. */
struct escaped {
    char text[600];
};
static struct escaped escaped(const char *s)
{
    struct escaped e;
    size_t length = 0;
    while (*s) {
        utf8proc_int32_t c;
        utf8proc_ssize_t took = utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)strlen(s), &c);
        bool bad = took <= 0 || c < 0x20 || c == 0x7f || c == 0xfffe || c == 0xffff;
        const char *entity = bad ? "\xef\xbf\xbd" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : NULL;
        if (length + 12 > sizeof(e.text)) {
            length += (size_t)snprintf(e.text + length, sizeof(e.text) - length, "\xe2\x80\xa6");
            break;
        }
        size_t n = entity ? strlen(entity) : (size_t)took;
        memcpy(e.text + length, entity ? entity : s, n);
        length += n;
        s += took > 0 ? took : 1;
    }
    e.text[length] = 0;
    return e;
}

static double x_of(const struct drawing *d, int step) { return LEFT + (double)PLOT_WIDTH * step / d->plan->n_steps; }
static double y_of(const struct drawing *d, size_t offset)
{
    return TOP + PLOT_HEIGHT * (1 - (double)offset / (double)d->plan->facts.arena);
}

/* Of 1, 2, 5, 10, 20, …: the least that divides `range` into eight parts or fewer, but no less than `least`. */
static double tick_of(double range, double least)
{
    double tick = least;
    for (int i = 0; i < 60 && range / tick > 8; i++)
        tick *= i % 3 == 1 ? 2.5 : 2;
    return tick;
}

static void draw_axes(const struct drawing *d)
{
    double arena = (double)d->plan->facts.arena / (1 << 20), tick = tick_of(arena, 0.01);
    for (int i = 0; i * tick <= arena; i++) {
        double y = TOP + PLOT_HEIGHT * (1 - i * tick / arena);
        put(d, "<path class=\"grid\" d=\"M%d %sh%d\"/><text x=\"%d\" y=\"%s\" text-anchor=\"end\">%s</text>", LEFT, PX(y), PLOT_WIDTH,
            LEFT - 7, PX(y + 4), PX(i * tick));
    }
    put(d, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">MiB</text>", LEFT - 7, TOP - 12);
    tick = tick_of(d->plan->n_steps, 1);
    for (int i = 0; i * tick < d->plan->n_steps; i++)
        put(d, "<text x=\"%s\" y=\"%d\" text-anchor=\"middle\">%s</text>", PX(x_of(d, (int)(i * tick))), TOP + PLOT_HEIGHT + 18,
            PX(i * tick));
    put(d, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">step</text>", LEFT + PLOT_WIDTH, TOP + PLOT_HEIGHT + 34);
}

/* `name`: the class of the rectangle. Scratch is hatched. */
static void put_box(const struct drawing *d, const struct tern_plan_block *b, const char *name, double x, double width, const char *close)
{
    enum kind kind = kind_of(d->plan->graph->nodes[b->node].desc.op);
    double top = y_of(d, b->at + b->size), bottom = y_of(d, b->at);
    put(d, "<rect class=\"%s k%d\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\"%s", name, kind, PX(x), PX(top), PX(width), PX(bottom - top),
        close);
}

static void draw_block(const struct drawing *d, const struct tern_plan_block *b)
{
    char meta[TERN_META_TEXT];
    const struct tern_node *n = &d->plan->graph->nodes[b->node];
    const char *weight = tern_node_weight(d->plan->graph, n);
    double x = x_of(d, b->first);
    put_box(d, b, b->scratch ? "b s" : "b", x, x_of(d, b->last + 1) - x, "><title>");
    put(d, "%%%d %s%s %s", n->out, b->scratch ? "scratch of " : "", tern_op_get(n->desc.op).name, tern_meta_text(&n->desc.out, meta));
    if (weight)
        put(d, "%s", escaped(weight).text);
    put(d, "%s at %s, steps %d..%d</title></rect>", SIZE(b->size), SIZE(b->at), b->first, b->last);
}

/* Names of the blocks of the slice, from the top down; each stands beside its block or, where they crowd, near it. */
struct labels {
    int block[MOST_LABELS];
    double y[MOST_LABELS];
    int n;
    int left_out;
    size_t left_out_size;
};

/* The largest blocks that are alive at the peak. */
static void choose_labels(const struct drawing *d, struct labels *l)
{
    const struct tern_plan *p = d->plan;
    for (int i = 0; i < p->n_blocks; i++) {
        int at = l->n;
        if (!tern_block_lives(&p->blocks[i], d->relief.now.step) || !p->blocks[i].size)
            continue;
        while (at > 0 && p->blocks[l->block[at - 1]].size < p->blocks[i].size)
            at--;
        bool full = l->n == MOST_LABELS - 1; /* one row is for what is left out */
        if (full) {
            l->left_out++;
            l->left_out_size += p->blocks[at < l->n ? l->block[l->n - 1] : i].size;
        }
        if (at == l->n && full)
            continue;
        l->n += !full;
        memmove(&l->block[at + 1], &l->block[at], (size_t)(l->n - 1 - at) * sizeof(int));
        l->block[at] = i;
    }
}

static void place_labels(const struct drawing *d, struct labels *l)
{
    const struct tern_plan_block *blocks = d->plan->blocks;
    for (int i = 1; i < l->n; i++) /* by offset, highest first */
        for (int k = i; k > 0 && blocks[l->block[k]].offset > blocks[l->block[k - 1]].offset; k--) {
            int other = l->block[k];
            l->block[k] = l->block[k - 1];
            l->block[k - 1] = other;
        }
    for (int i = 0; i < l->n; i++) {
        const struct tern_plan_block *b = &blocks[l->block[i]];
        double wanted = (y_of(d, b->at) + y_of(d, b->at + b->size)) / 2;
        l->y[i] = i && wanted < l->y[i - 1] + LABEL_STEP ? l->y[i - 1] + LABEL_STEP : wanted;
    }
    double limit = TOP + PLOT_HEIGHT - 4 - (l->left_out ? LABEL_STEP : 0);
    for (int i = l->n; i-- > 0; limit -= LABEL_STEP)
        l->y[i] = l->y[i] > limit ? limit : l->y[i];
}

static void draw_labels(const struct drawing *d)
{
    struct labels l = {.n = 0};
    char meta[TERN_META_TEXT];
    choose_labels(d, &l);
    place_labels(d, &l);
    for (int i = 0; i < l.n; i++) {
        const struct tern_plan_block *b = &d->plan->blocks[l.block[i]];
        const struct tern_op_desc *n = &d->plan->graph->nodes[b->node].desc;
        double y = (y_of(d, b->at) + y_of(d, b->at + b->size)) / 2;
        put(d, "<path class=\"lead\" d=\"M%d %sL%d %sh4\"/>", SLICE + SLICE_WIDTH, PX(y), LABELS - 9, PX(l.y[i]));
        put(d, "<text x=\"%d\" y=\"%s\">%s  %s%s %s</text>", LABELS, PX(l.y[i] + 4), SIZE(b->size), b->scratch ? "scratch of " : "",
            tern_op_get(n->op).name, b->scratch ? "" : tern_meta_text(&n->out, meta));
    }
    if (l.left_out)
        put(d, "<text x=\"%d\" y=\"%d\">and %d smaller, %s</text>", LABELS, TOP + PLOT_HEIGHT, l.left_out, SIZE(l.left_out_size));
}

/* Marks the step in the plot and shows it magnified. */
static void draw_peak(const struct drawing *d)
{
    const struct tern_plan *p = d->plan;
    int peak = d->relief.now.step;
    double x = x_of(d, peak), width = x_of(d, peak + 1) - x, middle = x + width / 2;
    put(d, "<path class=\"peak\" d=\"M%s %dv%dh%sv-%dz\"/>", PX(x), TOP, PLOT_HEIGHT, PX(width), PLOT_HEIGHT);
    put(d, "<path class=\"mark\" d=\"M%s %dl-5 -8h10z\"/>", PX(middle), TOP - 1);
    for (int i = 0; i < p->n_blocks; i++)
        if (tern_block_lives(&p->blocks[i], peak) && p->blocks[i].size)
            put_box(d, &p->blocks[i], p->blocks[i].scratch ? "at s" : "at", SLICE, SLICE_WIDTH, "/>");
    put(d, "<path class=\"peak\" d=\"M%d %dv%dh%dv-%dz\"/>", SLICE, TOP, PLOT_HEIGHT, SLICE_WIDTH, PLOT_HEIGHT);
    put(d, "<path class=\"mark\" d=\"M%d %dl-5 -8h10z\"/>", SLICE + SLICE_WIDTH / 2, TOP - 1);
    put(d, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step %d</text>", SLICE + SLICE_WIDTH / 2, TOP + PLOT_HEIGHT + 18, peak);
    draw_labels(d);
}

static void draw_legend(const struct drawing *d)
{
    const struct tern_plan *p = d->plan;
    bool used[KINDS] = {false}, scratch = false;
    int x = LEFT, y = HEIGHT - 26;
    for (int i = 0; i < p->n_blocks; i++) {
        used[kind_of(p->graph->nodes[p->blocks[i].node].desc.op)] = true;
        scratch = scratch || p->blocks[i].scratch;
    }
    for (int k = 0; k < KINDS; k++)
        if (used[k]) {
            put(d, "<rect class=\"k%d\" x=\"%d\" y=\"%d\" width=\"12\" height=\"12\"/><text x=\"%d\" y=\"%d\">%s</text>", k, x, y, x + 17,
                y + 10, kinds[k].name);
            x += 40 + 7 * (int)strlen(kinds[k].name);
        }
    if (scratch)
        put(d,
            "<rect class=\"s k%d\" x=\"%d\" y=\"%d\" width=\"12\" height=\"12\"/>"
            "<text x=\"%d\" y=\"%d\">hatched: scratch of one step</text>",
            COPY, x, y, x + 17, y + 10);
}

static void draw_styles(const struct drawing *d)
{
    put(d, "<style>");
    put(d, "text{font:12px sans-serif;fill:#222}.big{font-size:16px;font-weight:bold}");
    put(d, ".b{stroke:#fff;stroke-width:.4}.at{stroke:#fff}.b:hover{stroke:#000;stroke-width:2}");
    put(d, ".grid{stroke:#ddd;fill:none}.lead{stroke:#666;stroke-width:.7;fill:none}.peak{stroke:#000;stroke-width:.7;fill:none}.mark{fill:"
           "#000}");
    for (int k = 0; k < KINDS; k++)
        put(d, ".k%d{fill:%s}.s.k%d{fill:url(#h%d)}", k, kinds[k].color, k, k);
    put(d, "</style>");
    put(d, "<defs>");
    for (int k = 0; k < KINDS; k++)
        put(d,
            "<pattern id=\"h%d\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
            "<path fill=\"#fff\" d=\"M0 0h4v4h-4z\"/><path fill=\"%s\" d=\"M0 0h2.4v4h-2.4z\"/></pattern>",
            k, kinds[k].color);
    put(d, "</defs>");
}

static void draw_title(const struct drawing *d)
{
    const struct tern_plan *p = d->plan;
    put(d, "<text class=\"big\" x=\"%d\" y=\"28\">Arena of %s, at least %s in this order of %d steps</text>", LEFT, SIZE(p->facts.arena),
        SIZE(p->facts.least_arena), p->n_steps);
    if (!p->n_blocks)
        return;
    int peak = d->relief.now.step;
    const struct tern_node *n = &p->graph->nodes[p->steps[peak].node];
    put(d, "<text x=\"%d\" y=\"50\">Most is alive at step %d, %%%d %s: %s</text>", LEFT, peak, n->out, tern_op_get(n->desc.op).name,
        SIZE(d->relief.now.alive));
}

void tern_plan_draw_memory(const struct tern_plan *p, void (*write)(void *user, const char *line), void *user)
{
    if (!tern_can_tell(p ? p->ctx : NULL, write))
        return;
    struct drawing d = {p, tern_plan_relief(p), write, user};
    put(&d, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">", WIDTH, HEIGHT, WIDTH, HEIGHT);
    draw_styles(&d);
    put(&d, "<path fill=\"#fff\" d=\"M0 0h%dv%dh-%dz\"/>", WIDTH, HEIGHT, WIDTH);
    draw_title(&d);
    if (p->facts.arena) { /* then there are steps and blocks */
        draw_axes(&d);
        for (int i = 0; i < p->n_blocks; i++)
            draw_block(&d, &p->blocks[i]);
        draw_peak(&d);
        draw_legend(&d);
    }
    put(&d, "</svg>");
}

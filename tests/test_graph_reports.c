/* Reports of graphs and plans: JSON that can be read back, pictures that are well-formed and show every block once. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <tern/ops.h>

#include "conformance/random_graph.h"
#include "core/context.h"
#include "graph/peak.h"
#include "support.h"
#include "xml_check.h"

/* What a report wrote. */
struct report {
    char *text;
    size_t length;
    int lines, nodes;
};

static void keep(void *user, const char *line)
{
    struct report *r = user;
    size_t n = strlen(line);
    r->text = realloc(r->text, r->length + n + 2);
    assert_non_null(r->text);
    memcpy(r->text + r->length, line, n);
    r->length += n + 1;
    memcpy(r->text + r->length - 1, "\n", 2);
    r->lines++;
    r->nodes += *line == '%';
}

static void drop(struct report *r)
{
    free(r->text);
    *r = (struct report){0};
}

/* Names with all that JSON, XML and Graphviz give a meaning, and one that is not UTF-8. In the order of the set. */
static const char *const names[] = {"a \"quoted\\\" <name>&amp;]]>", "b\n\t\x01\x7f line", "c \xff\xc3(\xed\xa0\x80 bytes",
                                    "d \xc3\xa4\xe2\x82\xac\xf0\x9f\x8c\x8a"};
static const char *const repaired[] = {
    "a \"quoted\\\" <name>&amp;]]>",
    "b\n\t\x01\x7f line",
    "c \xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd bytes",
    "d \xc3\xa4\xe2\x82\xac\xf0\x9f\x8c\x8a",
};

static enum tern_status odd_fn(void *user, tern_tensor *const *in, tern_tensor **out)
{
    struct tern_weights *w = user;
    tern_tensor *h = in[0];
    for (int i = 0; i < 4; i++)
        h = tern_clamp(tern_conv2d(h, tern_weights_get(w, names[i]), NULL, .padding = 1), 0, HUGE_VAL);
    out[0] = tern_sum(tern_mul(h, in[0]), 2, (const int[]){1, 2}, false);
    return tern_error_status(tern_tensor_context(in[0]));
}

struct odd {
    struct tern_weights *weights;
    struct tern_graph *graph;
    struct tern_plan *plan;
};

static struct odd odd_open(struct tern_context *ctx, size_t long_name)
{
    struct odd o = {.weights = tern_weights_create(ctx)};
    struct tern_graph_input in = {"x \"y\" \\", TERN_F32, 4, {1, 8, 8, 8}};
    tern_scope_begin(ctx);
    for (int i = 0; i < 4; i++)
        tern_weights_add(o.weights, names[i], tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){8, 8, 3, 3}, NULL));
    tern_scope_end(ctx, NULL);
    o.graph = tern_graph_trace(ctx, odd_fn, o.weights, o.weights, &in, 1, 1);
    for (int i = 0; long_name && i < o.graph->n_values; i++) /* a name of that many characters of two bytes */
        if (o.graph->values[i].kind == TERN_VALUE_WEIGHT) {
            tern_free(ctx, o.graph->values[i].name);
            o.graph->values[i].name = tern_calloc(ctx, 2 * long_name + 1, 1);
            for (size_t k = 0; k < long_name; k++)
                memcpy(o.graph->values[i].name + 2 * k, "\xc3\xa4", 2);
        }
    o.plan = tern_plan_compile(o.graph, NULL);
    if (tern_error_status(ctx))
        fail_msg("%s", tern_error(ctx));
    return o;
}

static void odd_close(struct odd *o)
{
    tern_plan_unref(&o->plan);
    tern_graph_destroy(&o->graph);
    tern_weights_unref(&o->weights);
}

static json_t *parsed(const struct report *r)
{
    json_error_t error;
    assert_int_equal(r->lines, 1);
    json_t *o = json_loads(r->text, JSON_REJECT_DUPLICATES, &error);
    if (!o)
        fail_msg("%s in %s", error.text, r->text);
    return o;
}

static const char *string_of(const json_t *o, const char *key) { return json_string_value(json_object_get(o, key)); }

static void json_keeps_odd_names(void **state)
{
    struct tern_context *ctx = *state;
    struct odd o = odd_open(ctx, 0);
    struct report r = {0};
    assert_int_equal(tern_graph_print_json(o.graph, "a \"pass\"", keep, &r), TERN_OK);
    json_t *graph = parsed(&r), *weights = json_object_get(graph, "weights"), *node = NULL;
    assert_string_equal(string_of(graph, "pass"), "a \"pass\"");
    assert_string_equal(string_of(json_array_get(json_object_get(graph, "inputs"), 0), "name"), "x \"y\" \\");
    assert_int_equal(json_array_size(weights), 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(string_of(json_array_get(weights, i), "name"), repaired[i]);
    json_t *nodes = json_object_get(graph, "nodes");
    bool clamp = false, conv = false;
    size_t i;
    json_array_foreach(nodes, i, node) {
        json_t *attrs = json_object_get(node, "attributes");
        if (!strcmp(string_of(node, "op"), "clamp")) {
            assert_string_equal(string_of(attrs, "max"), "inf");
            clamp = true;
        } else if (!strcmp(string_of(node, "op"), "conv2d")) {
            assert_int_equal(json_integer_value(json_array_get(json_object_get(attrs, "padding"), 1)), 1);
            conv =
                json_is_null(json_array_get(json_object_get(node, "inputs"), 2)) || json_array_size(json_object_get(node, "inputs")) == 2;
        } else if (!strcmp(string_of(node, "op"), "sum")) { /* a list is as long as its length says */
            assert_int_equal(json_array_size(json_object_get(attrs, "dim")), 2);
            assert_null(json_object_get(attrs, "dim_n"));
        }
    }
    assert_true(clamp && conv);
    json_decref(graph);
    drop(&r);
    odd_close(&o);
}

static void graphviz_bears_odd_names(void **state)
{
    struct odd o = odd_open(*state, 0);
    struct report r = {0};
    tern_graph_print_dot(o.graph, keep, &r);
    assert_non_null(strstr(r.text, "[label=\"x \\\"y\\\" \\\\\"];\n"));
    drop(&r);
    odd_close(&o);
}

/* Random graphs: nodes as many as lines of the text, kernels as many as launches, every input made before it is read. */
static void json_says_what_the_text_says(void **state)
{
    struct tern_context *ctx = *state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct tern_random_graph g = tern_random_graph_make(ctx, seed, 1);
        struct tern_graph *graph = tern_graph_trace(ctx, tern_random_graph_fn, &g, g.weights, g.inputs, g.n_inputs, g.n_outputs);
        struct tern_plan *plan = tern_plan_compile(graph, NULL);
        struct report text = {0}, r = {0};
        tern_graph_print(tern_plan_graph(plan), keep, &text);
        assert_int_equal(tern_plan_print_json(plan, keep, &r), TERN_OK);
        json_t *o = parsed(&r), *node, *input;
        static const char *const lists[] = {"inputs", "weights", "constants"};
        bool known[1024] = {false};
        size_t i, k;
        for (int l = 0; l < 3; l++)
            json_array_foreach(json_object_get(o, lists[l]), i, node)
                known[json_integer_value(json_object_get(node, "value"))] = true;
        int kernels = 0, prepared = 0;
        json_array_foreach(json_object_get(o, "nodes"), i, node) {
            json_array_foreach(json_object_get(node, "inputs"), k, input)
                assert_true(json_is_null(input) || known[json_integer_value(input)]);
            known[json_integer_value(json_object_get(node, "output"))] = true;
            if (string_of(node, "kernel"))
                assert_int_equal(json_integer_value(json_object_get(node, "step")), kernels++);
            prepared += json_is_true(json_object_get(node, "prepare"));
        }
        assert_int_equal(json_array_size(json_object_get(o, "nodes")), text.nodes);
        assert_int_equal(json_array_size(json_object_get(o, "outputs")), g.n_outputs);
        assert_int_equal(kernels, tern_plan_facts(plan).launches);
        assert_int_equal(prepared, tern_plan_facts(plan).prepared);
        json_decref(o);
        drop(&text);
        drop(&r);
        tern_plan_unref(&plan);
        tern_graph_destroy(&graph);
        tern_random_graph_close(&g);
    }
}

/* Without memory nothing is written, and nothing is lost. */
static void json_without_memory(void **state)
{
    struct support_allocator m = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&m)});
    struct odd o = odd_open(ctx, 0);
    struct report r = {0};
    long live = m.live;
    int failures = 0;
    for (bool failed = true; failed;) {
        m.fail_at = m.count + 1 + failures;
        enum tern_status a = tern_plan_print_json(o.plan, keep, &r);
        failed = a != TERN_OK;
        assert_int_equal(a, failed ? TERN_E_NO_MEMORY : TERN_OK);
        assert_int_equal(r.lines, !failed);
        failures += failed;
        assert_true(failures < 20);
        tern_error_clear(ctx);
    }
    assert_true(failures >= 2); /* the list of values, the repaired name */
    drop(&r);
    m.fail_at = m.count + 1;
    assert_int_equal(tern_plan_print_memory_json(o.plan, keep, &r), TERN_E_NO_MEMORY);
    assert_int_equal(r.lines, 0);
    tern_error_clear(ctx);
    m.fail_at = 0;
    assert_int_equal(m.live, live);
    odd_close(&o);
    tern_context_destroy(&ctx);
}

struct box {
    double x, y, width, height;
};

/* The number of an attribute of the tag that starts here. */
static double attribute(const char *tag, const char *name)
{
    char start[32];
    snprintf(start, sizeof(start), " %s=\"", name);
    const char *at = strstr(tag, start);
    assert_true(at && at < strchr(tag, '>'));
    return strtod(at + strlen(start), NULL);
}

static bool overlap(const struct box *a, const struct box *b)
{
    const double rounded = 0.03;
    return a->x + a->width > b->x + rounded && b->x + b->width > a->x + rounded && a->y + a->height > b->y + rounded &&
           b->y + b->height > a->y + rounded;
}

/* Well-formed; a rectangle a block, in its proportions; none overlaps another; all rectangles inside of the picture. */
static void check_picture(const struct tern_plan *p)
{
    struct report r = {0};
    struct box *boxes = calloc((size_t)p->n_blocks + 1, sizeof(*boxes));
    double width, height;
    int n = 0;
    tern_plan_draw_memory(p, keep, &r);
    const char *wrong = xml_check(r.text);
    if (wrong)
        fail_msg("%s in %s", wrong, r.text);
    assert_int_equal(sscanf(strstr(r.text, "viewBox"), "viewBox=\"0 0 %lf %lf\"", &width, &height), 2);
    for (const char *tag = strstr(r.text, "<rect "); tag; tag = strstr(tag + 1, "<rect ")) {
        struct box b = {attribute(tag, "x"), attribute(tag, "y"), attribute(tag, "width"), attribute(tag, "height")};
        assert_true(b.x >= 0 && b.y >= 0 && b.width >= 0 && b.height >= 0 && b.x + b.width <= width && b.y + b.height <= height);
        if (strncmp(tag, "<rect class=\"b ", 15) != 0)
            continue;
        assert_true(n < p->n_blocks);
        boxes[n++] = b;
    }
    assert_int_equal(n, p->n_blocks);
    for (int i = 0; i < n; i++) {
        const struct tern_plan_block *a = &p->blocks[0], *b = &p->blocks[i];
        for (int k = 0; k < i; k++)
            assert_false(overlap(&boxes[i], &boxes[k]));
        double steps = (double)(b->last - b->first + 1) / (a->last - a->first + 1);
        assert_true(fabs(boxes[i].width - boxes[0].width * steps) < 0.02 * (1 + steps));
        if (a->size)
            assert_true(fabs(boxes[i].height - boxes[0].height * (double)b->size / (double)a->size) <
                        0.02 * (1 + (double)b->size / (double)a->size));
    }
    drop(&r);
    free(boxes);
}

static void pictures_show_every_block(void **state)
{
    struct tern_context *ctx = *state;
    int blocks = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct tern_random_graph g = tern_random_graph_make(ctx, seed, 1);
        struct tern_graph *graph = tern_graph_trace(ctx, tern_random_graph_fn, &g, g.weights, g.inputs, g.n_inputs, g.n_outputs);
        struct tern_plan *plan = tern_plan_compile(graph, seed % 2 ? NULL : &(struct tern_plan_params){.without = "all"});
        check_picture(plan);
        blocks += plan->n_blocks;
        tern_plan_unref(&plan);
        tern_graph_destroy(&graph);
        tern_random_graph_close(&g);
    }
    assert_true(blocks > 300);
    check_picture(&(struct tern_plan){.ctx = ctx, .n_steps = 0}); /* nothing to show */
}

static void pictures_bear_odd_names(void **state)
{
    struct tern_context *ctx = *state;
    for (size_t length = 0; length < 400; length += length < 270 ? 270 : 1) { /* cut inside a character */
        struct odd o = odd_open(ctx, length);
        struct report r = {0};
        check_picture(o.plan);
        tern_plan_draw_memory(o.plan, keep, &r);
        if (!length)
            assert_non_null(strstr(r.text, "\na \"quoted\\\" &lt;name&gt;&amp;amp;]]&gt;\n"));
        drop(&r);
        odd_close(&o);
    }
}

/* Twenty blocks for each name that has room: the largest are named, the others summed up. */
static void pictures_name_the_largest(void **state)
{
    struct tern_context *ctx = *state;
    enum { BLOCKS = 600 };
    struct odd o = odd_open(ctx, 0);
    static struct tern_plan_block blocks[BLOCKS];
    struct tern_plan p = *o.plan;
    size_t offset = 0, total = 0;
    for (int i = 0; i < BLOCKS; i++) { /* sizes in an order that is neither up nor down */
        blocks[i] = (struct tern_plan_block){.size = (size_t)(1 + i * 7 % BLOCKS) << 20, .at = offset, .last = p.n_steps - 1};
        offset += blocks[i].size;
    }
    p.blocks = blocks;
    p.n_blocks = BLOCKS;
    p.facts.arena = p.facts.least_arena = offset;
    check_picture(&p);
    struct report r = {0};
    tern_plan_draw_memory(&p, keep, &r);
    int left, named = 0;
    const char *at = strstr(r.text, "smaller, ");
    assert_non_null(at);
    while (at[-1] != '>')
        at--;
    assert_int_equal(sscanf(at, "and %d smaller, %zu.00 MiB", &left, &total), 2);
    for (at = strstr(r.text, "class=\"lead\""); at; at = strstr(at + 1, "class=\"lead\""))
        named++;
    assert_int_equal(named + left, BLOCKS);
    assert_int_equal(total, (size_t)left * (size_t)(left + 1) / 2); /* sizes 1 … left */
    drop(&r);
    odd_close(&o);
}

/* Step            0    1    2    3    4
 * block 0: 100    out  |    |    |    in
 * block 1: 300         out  in
 * block 2:  50              scratch
 * block 3: 200              out  in
 * block 4: 280                   out  in
 * alive         100  400  650  580  380 */
static void relief_of_a_peak(void **state)
{
    struct tern_plan_block blocks[] = {
        {.size = 100, .offset = 0, .first = 0, .last = 4},
        {.size = 300, .offset = 100, .first = 1, .last = 2},
        {.size = 50, .offset = 400, .first = 2, .last = 2, .scratch = true},
        {.size = 200, .offset = 450, .first = 2, .last = 3},
        {.size = 280, .offset = 650, .first = 3, .last = 4},
    };
    struct tern_step steps[5] = {
        {.out = {TERN_PLACE_ARENA, 0, 0}},
        {.out = {TERN_PLACE_ARENA, 0, 100}},
        {.in = {{TERN_PLACE_ARENA, 0, 180}}, .out = {TERN_PLACE_ARENA, 0, 450}, .workspace = {TERN_PLACE_ARENA, 0, 400}}, /* in: a view */
        {.in = {{TERN_PLACE_ARENA, 0, 450}}, .out = {TERN_PLACE_ARENA, 0, 650}},
        {.in = {{TERN_PLACE_ARENA, 0, 650}, {TERN_PLACE_ARENA, 0, 0}}},
    };
    struct tern_plan p = {.steps = steps, .n_steps = 5, .blocks = blocks, .n_blocks = 5};
    struct tern_relief r = tern_plan_relief(&p);
    assert_int_equal(r.now.step, 2);
    assert_int_equal(r.now.alive, 650);
    assert_int_equal(r.scratch, 50);
    assert_int_equal(r.without_scratch.alive, 600);
    assert_int_equal(r.without_scratch.step, 2);
    assert_int_equal(r.waiting, 0);
    assert_int_equal(r.from, 0);
    assert_int_equal(r.until, 4);
    assert_int_equal(r.without_waiting.alive, 550);
    assert_int_equal(r.without_waiting.step, 2);
    assert_int_equal(r.next.alive, 580);
    assert_int_equal(r.next.step, 3);
    steps[3].in[1] = (struct tern_ref){TERN_PLACE_ARENA, 0, 99}; /* read at step 3, too: then step 3 stays as it is */
    r = tern_plan_relief(&p);
    assert_int_equal(r.until, 3);
    assert_int_equal(r.without_waiting.alive, 580);
    assert_int_equal(r.without_waiting.step, 3);
    p.n_steps = 0;
    assert_int_equal(tern_plan_relief(&p).waiting, -1);
}

/* A context each; when it is gone nothing may be left. */
static struct support_allocator memory;

static int setup(void **state)
{
    memory = (struct support_allocator){0};
    *state = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&memory)});
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    struct tern_context *ctx = *state;
    tern_context_destroy(&ctx);
    return memory.live != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(json_keeps_odd_names, setup, teardown),
        cmocka_unit_test_setup_teardown(graphviz_bears_odd_names, setup, teardown),
        cmocka_unit_test_setup_teardown(json_says_what_the_text_says, setup, teardown),
        cmocka_unit_test(json_without_memory),
        cmocka_unit_test_setup_teardown(pictures_show_every_block, setup, teardown),
        cmocka_unit_test_setup_teardown(pictures_bear_odd_names, setup, teardown),
        cmocka_unit_test_setup_teardown(pictures_name_the_largest, setup, teardown),
        cmocka_unit_test(relief_of_a_peak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

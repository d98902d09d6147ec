/* The command tern bench: which ops there are, what is told of each, rows of a model, and the script behind peers. */
#include "cli.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "xml_check.h"

#define MOST_EVENTS 512

/* The events of the last run, in order; decref_all. */
struct events {
    json_t *at[MOST_EVENTS];
    int count;
};

static struct events events_of(struct state *s)
{
    struct events e = {{NULL}, 0};
    for (char *rest = NULL, *line = strtok_r(s->out, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        assert_true(e.count < MOST_EVENTS);
        e.at[e.count] = json_loads(line, 0, NULL);
        if (!e.at[e.count++])
            fail_msg("no JSON: %s", line);
    }
    return e;
}

static void decref_all(struct events *e)
{
    for (int i = 0; i < e->count; i++)
        json_decref(e->at[i]);
}

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    if (!s)
        fail_msg("no text \"%s\"", key);
    return s;
}

static double number(const json_t *o, const char *key)
{
    assert_true(json_is_number(json_object_get(o, key)));
    return json_number_value(json_object_get(o, key));
}

static bool is_event(const json_t *o, const char *name) { return !strcmp(text(o, "event"), name); }

/* The numbers of "N2 C320 …". */
static int numbers_of(const json_t *o, double *n)
{
    int count = 0;
    for (const char *at = text(o, "shape"); at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
        n[count++] = atof(at + 1);
    return count;
}

/* All parameters of the layers that are listed, each call being a layer of its own, with a bias for every product. */
static double parameters(struct state *s, const char *arch)
{
    double sum = 0, n[7];
    EXPECT(s, RUN(s, "bench", "ops", "--list", "--json", "--arch", arch, "--size", "512"), 0);
    struct events e = events_of(s);
    for (int i = 0; i < e.count; i++) {
        if (!is_event(e.at[i], "op"))
            continue;
        numbers_of(e.at[i], n);
        const char *op = text(e.at[i], "op");
        double calls = number(e.at[i], "calls");
        if (!strcmp(op, "conv2d"))
            sum += calls * (n[1] * n[4] * n[5] * n[5] + n[4]);
        else if (!strcmp(op, "linear"))
            sum += calls * (n[1] * n[2] + n[2]);
        else if (!strcmp(op, "linear_geglu"))
            sum += calls * 2 * (n[1] * n[2] + n[2]);
        else if (!strcmp(op, "group_norm") || !strcmp(op, "layer_norm"))
            sum += calls * 2 * n[1];
    }
    decref_all(&e);
    return sum;
}

/* The published sizes of the models: if a layer were missing or of another size, they would not come out. Queries, keys and values of the
 * UNets' transformers have no bias: 6 c for each block. Embeddings and the projection of the second text encoder are no calls of the list. */
static void test_all_layers_are_listed(void **state)
{
    struct state *s = *state;
    double sd15 = 859520964.0 + 123060480 - 49485 * 768 + 6 * (5 * 320 + 5 * 640 + 6 * 1280);
    double sdxl = 2567463684.0 + 123060480 - 49485 * 768 + 694659840 - 49485 * 1280 - 1280 * 1280 + 6 * (10 * 640 + 60 * 1280);
    assert_true(parameters(s, "sd15") == sd15);
    assert_true(parameters(s, "sdxl") == sdxl);
    assert_true(parameters(s, "vae") == 83653863);
}

/* What the numbers of a row must be, from its shape alone. */
static void check_row(const json_t *o)
{
    double n[7];
    numbers_of(o, n);
    bool f32 = !strcmp(text(o, "dtype"), "f32");
    assert_true(number(o, "least") <= number(o, "median") && number(o, "median") <= number(o, "most") && number(o, "least") > 0);
    assert_true(number(o, "runs") >= 1 && number(o, "runs") <= 3 && number(o, "share") > 0);
    if (!strcmp(text(o, "op"), "linear"))
        assert_true(number(o, "flops") == 2 * n[0] * n[1] * n[2]);
    if (!strcmp(text(o, "op"), "conv2d")) { /* N C H W O k s; k is odd, and half of it is around the picture */
        const double high = floor((n[2] - 1) / n[6]) + 1, wide = floor((n[3] - 1) / n[6]) + 1;
        assert_true(number(o, "flops") == 2 * n[0] * n[1] * n[4] * n[5] * n[5] * high * wide);
    }
    if (!strcmp(text(o, "op"), "layer_norm"))
        assert_true(number(o, "flops") == 0 && (!f32 || number(o, "bytes") == 4 * (2 * n[0] * n[1] + 2 * n[1])));
    assert_non_null(strchr(text(o, "kernel"), '_'));
}

static void test_rows_of_an_op(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "bench", "ops", "--arch", "sd15", "--size", "64", "--op", "layer_norm", "--runs", "3", "--limit", "0.001", "--json"),
           0);
    struct events e = events_of(s);
    int rows = 0, sums = 0;
    for (int i = 0; i < e.count; i++) {
        if (is_event(e.at[i], "op"))
            check_row(e.at[i]);
        rows += is_event(e.at[i], "op");
        sums += is_event(e.at[i], "sum");
    }
    assert_true(is_event(e.at[0], "peak") && number(e.at[0], "flops") > 0 && number(e.at[0], "bytes") > 0);
    assert_int_equal(rows, 2 * 5); /* f32, bf16; the text encoder's, 64, 16, 4 and 1 pixels */
    assert_int_equal(sums, 2);
    decref_all(&e);
}

/* Products alone, by kernels of int8. */
static void test_rows_of_int8(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "bench", "ops", "--arch", "vae", "--size", "64", "--dtype", "int8", "--runs", "1", "--json"), 0);
    struct events e = events_of(s);
    int rows = 0;
    for (int i = 0; i < e.count; i++) {
        if (!is_event(e.at[i], "op"))
            continue;
        check_row(e.at[i]);
        assert_string_equal(text(e.at[i], "dtype"), "int8");
        assert_true(strstr(text(e.at[i], "kernel"), "quantized_") || !strcmp(text(e.at[i], "op"), "sdpa"));
        rows++;
    }
    assert_true(rows > 10);
    decref_all(&e);
    EXPECT(s, RUN(s, "bench", "ops", "--dtype", "int8,int4"), 2);
    expect_text(s->err, "int4", "message");
}

/* Pictures that are computed one behind the other (pass "chunk") are counted as one call. */
static void test_rows_of_large_pictures(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "bench", "ops", "--arch", "sd15", "--op", "conv2d", "--dtype", "int8", "--runs", "1", "--limit", "0.001", "--json"),
           0);
    struct events e = events_of(s);
    int pairs = 0;
    for (int i = 0; i < e.count; i++) {
        if (!is_event(e.at[i], "op"))
            continue;
        check_row(e.at[i]);
        pairs += !strncmp(text(e.at[i], "shape"), "N2 C320 H64 W64", 15);
    }
    assert_true(pairs > 2);
    decref_all(&e);
}

/* Every kernel at most once for a shape, and one of them is the choice. */
static void test_all_kernels(void **state)
{
    struct state *s = *state;
    EXPECT(s,
           RUN(s, "bench", "ops", "--arch", "vae", "--size", "64", "--op", "conv2d", "--dtype", "f32", "--runs", "1", "--all-kernels",
               "--json"),
           0);
    struct events e = events_of(s);
    int most = 0;
    for (int i = 0, of_shape = 0; i < e.count; i++) {
        if (!is_event(e.at[i], "op"))
            continue;
        bool chosen = json_is_true(json_object_get(e.at[i], "chosen"));
        of_shape = chosen ? 1 : of_shape + 1; /* the choice comes first */
        for (int k = 1; k < of_shape; k++) {
            assert_string_equal(text(e.at[i], "shape"), text(e.at[i - k], "shape"));
            assert_string_not_equal(text(e.at[i], "kernel"), text(e.at[i - k], "kernel"));
        }
        check_row(e.at[i]);
        most = of_shape > most ? of_shape : most;
    }
    assert_true(most >= 2); /* igemm and Winograd */
    decref_all(&e);
}

static void test_markdown(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "bench", "ops", "--list", "--arch", "vae", "--size", "64", "--op", "sdpa", "--markdown"), 0);
    assert_string_equal(s->out, "\n## vae, 64 x 64\n\n| op | shape | calls |\n|---|---|---:|\n| sdpa | N1 H1 L64 S64 E512 | 2 |\n");
    EXPECT(s, RUN(s, "bench", "ops", "--json", "--markdown"), 2);
    expect_text(s->err, "option --markdown: not together with --json", "message");
}

static void test_rows_of_a_model(void **state)
{
    struct state *s = *state;
    EXPECT(s,
           RUN(s, "bench", "model", MODEL, "--size", "64", "--batch", "1,2", "--threads", "1", "--runs", "1", "--json", "--plot", "p.svg"),
           0);
    struct events e = events_of(s);
    assert_int_equal(e.count, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(is_event(e.at[i], "model") && number(e.at[i], "batch") == i + 1 && number(e.at[i], "size") == 64);
        assert_true(number(json_object_get(e.at[i], "step"), "median") > 0 && number(json_object_get(e.at[i], "decode"), "least") > 0);
        assert_true(number(e.at[i], "first_step") > 0 && number(e.at[i], "memory") > 0 && number(e.at[i], "threads") == 1);
        assert_true(number(e.at[i], "flops") > 1e6);
    }
    double once = number(e.at[0], "flops"), twice = number(e.at[1], "flops"); /* the time is embedded for all rows at once */
    assert_true(twice > 1.95 * once && twice <= 2 * once);
    decref_all(&e);
    char svg[8192], part[64];
    slurp("p.svg", svg, sizeof(svg));
    assert_null(xml_check(svg));
    snprintf(part, sizeof(part), ">f32, 64 x 64, 1 threads<");
    expect_text(svg, part, "the line's name");
    expect_text(svg, "pictures at once", "the axis");
    EXPECT(s, RUN(s, "bench", "model", MODEL, "--size", "64", "--threads", "2,1", "--runs", "1", "--plot", "t.svg"), 0);
    const char *head = strstr(s->out, "UNet step s");
    assert_true(head && !strstr(head + 1, "UNet step s"));
    slurp("t.svg", svg, sizeof(svg));
    assert_null(xml_check(svg));
    expect_text(svg, ">f32, 64 x 64, batch 1<", "one line, not a point for each number of threads");
    const char *points = strstr(svg, "points=\"");
    double x, y, next;
    assert_true(points && sscanf(points, "points=\"%lf,%lf %lf", &x, &y, &next) == 3 && x < next);
    EXPECT(s, RUN(s, "bench", "model", "no-such-model"), 1);
    assert_string_equal(s->out, ""); /* no table of nothing */
    expect_text(s->err, "no-such-model", "message");
}

/* The script of the tree around the working folder, with the options behind "--". */
static void test_peers(void **state)
{
    static const char script[] = "#!/bin/sh\necho \"$0|$1|$2\"\nexit 7\n";
    struct state *s = *state;
    char folder[80], copy[4200];
    assert_true(!mkdir("tree", 0700) && !mkdir("tree/bench", 0700) && !mkdir("tree/bench/peers", 0700) && !mkdir("tree/docs", 0700));
    write_file("tree/bench/peers/run", script, sizeof(script) - 1);
    assert_int_equal(chmod("tree/bench/peers/run", 0700), 0);
    snprintf(folder, sizeof(folder), "%s/tree/docs", s->folder);
    assert_int_equal(chdir(folder), 0);
    EXPECT(s, RUN(s, "bench", "peers", "--", "--only", "unet"), 7);
    expect_text(s->out, "/tree/bench/peers/run|--only|unet\n", "the script's own words");
    assert_int_equal(chdir(s->folder), 0);
    /* outside of any tree: a copy of the command, since the build folder may be in one */
    const char *tool = s->tool;
    snprintf(copy, sizeof(copy), "cp '%s' tern", tool);
    assert_int_equal(system(copy), 0);
    s->tool = "./tern";
    EXPECT(s, RUN(s, "bench", "peers"), 1);
    expect_text(s->err, "source tree", "what is needed");
    s->tool = tool;
}

int cli_bench_tests(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_all_layers_are_listed), TEST(test_rows_of_an_op), TEST(test_rows_of_int8),    TEST(test_rows_of_large_pictures),
        TEST(test_all_kernels),           TEST(test_markdown),      TEST(test_rows_of_a_model), TEST(test_peers),
    };
    return cmocka_run_group_tests_name("cli bench", tests, cli_setup, cli_teardown);
}

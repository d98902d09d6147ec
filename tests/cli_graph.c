/* The command tern graph. */
#include "cli.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        n++;
    return n;
}

static void test_graph_is_shown(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "graph", MODEL, "vae_decoder"), 0);
    expect_text(s->out, "input latent (1, 4, ", "graph");
    expect_text(s->out, "group_norm(", "graph");
    expect_text(s->out, " then silu", "graph");
    expect_text(s->out, "\nreturn %", "graph");
    expect_text(s->out, " launches, ", "graph");
    EXPECT(s, RUN(s, "graph", MODEL, "vae_decoder", "--after", "trace", "-W", "64", "-H", "32", "-b", "3"), 0);
    expect_text(s->out, "input latent (3, 4, 4, 8) f32", "graph after trace");
    expect_text(s->out, "= silu(", "graph after trace");
    assert_null(strstr(s->out, " then "));
    EXPECT(s, RUN(s, "graph", MODEL, "text_encoder", "--after", "all", "--without", "cse"), 0);
    assert_int_equal(count(s->out, "== after "), 17);
    EXPECT(s, RUN(s, "graph", MODEL, "unet", "--dtype", "int8"), 0);
    expect_text(s->out, "= quantized_conv2d(", "graph in int8");
    assert_null(strstr(s->out, "= conv2d("));
    EXPECT(s, RUN(s, "graph", MODEL, "unet", "--weights", "int4", "--dtype", "bf16"), 0);
    expect_text(s->out, "= weight_only_conv2d(", "graph with weights in 4 bits");
    expect_text(s->out, "bits=4", "graph with weights in 4 bits");
    assert_null(strstr(s->out, "= conv2d("));
    assert_null(strstr(s->out, "= linear("));
    EXPECT(s, RUN(s, "graph", MODEL, "text_encoder", "--weights", "int8"), 0);
    expect_text(s->out, "= weight_only_linear(", "graph of a text encoder");
    EXPECT(s, RUN(s, "graph", MODEL, "unet", "--weights", "int8", "--dtype", "int8"), 2);
    expect_text(s->err, "--dtype int8 has the UNet's weights in int8 already", "--weights and --dtype int8");
    EXPECT(s, RUN(s, "graph", MODEL, "unet", "--weights", "int2"), 2);
    expect_text(s->err, "int4", "--weights");
    EXPECT(s, RUN(s, "graph", MODEL, "unet", "--after", "trance"), 2);
    expect_text(s->err, "\"trance\"", "--after");
}

/* Every edge joins two things that are declared. */
static void test_graph_for_graphviz(void **state)
{
    struct state *s = *state;
    int from, to;
    char declared[32];
    EXPECT(s, RUN(s, "graph", MODEL, "text_encoder", "--dot"), 0);
    assert_memory_equal(s->out, "digraph plan {\n", 15);
    assert_string_equal(s->out + strlen(s->out) - 2, "}\n");
    int edges = 0;
    for (const char *line = s->out; line; line = strchr(line + 1, '\n')) {
        if (sscanf(line, " v%d -> v%d;", &from, &to) != 2)
            continue;
        edges++;
        for (int i = 0; i < 2; i++) {
            snprintf(declared, sizeof(declared), "\n  v%d [", i ? to : from);
            assert_non_null(strstr(s->out, declared));
        }
    }
    assert_true(edges > 50);
}

static void test_graph_memory(void **state)
{
    struct state *s = *state;
    double total, part, sum = 0;
    char word[8];
    EXPECT(s, RUN(s, "graph", MODEL, "vae_decoder", "--memory", "-W", "256", "-H", "256"), 0);
    assert_int_equal(sscanf(s->out, "%lf MiB  alive at step", &total), 1);
    for (const char *line = strchr(s->out, '\n'); line; line = strchr(line + 1, '\n'))
        if (sscanf(line, " %lf MiB %7s", &part, word) == 2 && !strcmp(word, "steps"))
            sum += part;
    assert_true(total > 1);
    assert_float_equal(sum, total, 0.1);
    for (const char *line = s->out; line && strncmp(line, "\nno change of step", 18) != 0;) {
        line = strchr(line + 1, '\n');
        assert_non_null(line);
    }
}

/* Line `number` of the output as an event of that name. */
static json_t *event_of(const struct state *s, int number, const char *name)
{
    const char *line = s->out;
    json_error_t error;
    for (int i = 0; i < number; i++)
        line = strchr(line, '\n') + 1;
    json_t *event = json_loadb(line, strcspn(line, "\n"), 0, &error);
    if (!event)
        fail_msg("line %d: %s", number, error.text);
    assert_string_equal(json_string_value(json_object_get(event, "event")), name);
    return event;
}

/* Nodes of the JSON, and lines of nodes of the text, agree; what ran through the plan has its kernel. */
static void test_graph_as_json(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "graph", MODEL, "vae_decoder"), 0);
    int lines = count(s->out, "\n%");
    EXPECT(s, RUN(s, "graph", MODEL, "vae_decoder", "--json"), 0);
    assert_int_equal(count(s->out, "\n"), 2);
    json_t *graph = event_of(s, 0, "graph"), *plan = event_of(s, 1, "plan"), *nodes = json_object_get(graph, "nodes"), *node;
    int steps = 0;
    size_t i;
    json_array_foreach(nodes, i, node)
        steps += json_is_string(json_object_get(node, "kernel"));
    assert_int_equal(json_array_size(nodes), lines);
    assert_int_equal(steps, json_integer_value(json_object_get(plan, "launches")));
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(graph, "inputs"), 0), "name")), "latent");
    json_decref(graph);
    json_decref(plan);
    EXPECT(s, RUN(s, "graph", MODEL, "vae_decoder", "--json", "--after", "all"), 0);
    static const char *const passes[] = {"trace",   "fold",   "cse",    "dce",     "merge", "smooth", "quantize", "chunk",     "tile",
                                         "filters", "dtypes", "pieces", "prepare", "fuse",  "pre",    "tune",     "algorithm", "concat"};
    const int n = sizeof(passes) / sizeof(*passes);
    for (int k = 0; k < n; k++) {
        graph = event_of(s, k, "graph");
        assert_string_equal(json_string_value(json_object_get(graph, "pass")), passes[k]);
        json_decref(graph);
    }
    json_decref(event_of(s, n, "plan"));
}

/* What is alive at the peak are the blocks whose steps hold it. */
static void test_graph_memory_as_json(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "graph", MODEL, "vae_decoder", "--memory", "--json", "-W", "256", "-H", "256"), 0);
    json_t *memory = event_of(s, 0, "memory"), *plan = event_of(s, 1, "plan"), *block;
    json_int_t step, alive, sum = 0, first, last, size;
    size_t i;
    assert_int_equal(json_unpack(memory, "{s:{s:I, s:I}}", "peak", "step", &step, "alive", &alive), 0);
    json_array_foreach(json_object_get(memory, "blocks"), i, block) {
        assert_int_equal(json_unpack(block, "{s:I, s:I, s:I}", "first", &first, "last", &last, "size", &size), 0);
        sum += first <= step && step <= last ? size : 0;
    }
    assert_true(alive > 1 << 20);
    assert_int_equal(sum, alive);
    json_int_t arena = json_integer_value(json_object_get(plan, "arena"));
    assert_true(arena >= alive && arena <= alive + alive / 10);
    assert_int_equal(json_integer_value(json_object_get(memory, "arena")), arena);
    assert_true(json_integer_value(json_object_get(plan, "launches")) > 20);
    json_decref(memory);
    json_decref(plan);
}

static void test_graph_picture(void **state)
{
    struct state *s = *state;
    char text[64];
    EXPECT(s, RUN(s, "graph", MODEL, "vae_decoder", "--svg", "arena.svg", "--json"), 0);
    json_t *event = event_of(s, 0, "timeline");
    assert_string_equal(json_string_value(json_object_get(event, "path")), "arena.svg");
    json_decref(event);
    json_decref(event_of(s, 1, "plan"));
    assert_true(file_size("arena.svg") > 8192);
    write_file("old.svg", "old", 3);
    s->file_limit = 4096;
    EXPECT(s, RUN(s, "graph", MODEL, "vae_decoder", "--svg", "old.svg"), 1);
    expect_text(s->err, "old.svg", "full disk");
    assert_true(has_text("old.svg", "old"));
    assert_int_equal(files("."), 2); /* nothing half is left */
    char longest[256];               /* that names may be */
    memset(longest, 'x', 255);
    longest[255] = 0;
    EXPECT(s, RUN(s, "graph", MODEL, "vae_decoder", "--svg", longest), 0);
    assert_int_equal(file_size(longest), file_size("arena.svg"));
    assert_int_equal(unlink(longest), 0);
    slurp("arena.svg", text, sizeof(text));
    assert_memory_equal(text, "<svg xmlns=", 11);
    EXPECT(s, RUN(s, "graph", MODEL, "vae_decoder", "--svg", "no/folder.svg"), 1);
    EXPECT(s, RUN(s, "graph", MODEL, "vae_decoder", "--svg", "a.svg", "--dot"), 2);
    EXPECT(s, RUN(s, "graph", MODEL, "vae_decoder", "--memory", "--after", "fuse"), 2);
    EXPECT(s, RUN(s, "graph", MODEL, "vae_decoder", "--json", "--dot"), 2);
}

/* What was measured stands in the file, and the file alone gives the same plan and the same table. */
static void test_graph_tuned(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "graph", MODEL, "unet", "--tune", "full", "--tune-cache", "a.tune", "--tune-memory", "100MiB", "-q"), 0);
    expect_text(s->out, "\nmeasured: ", "graph --tune");
    expect_text(s->out, " ms", "graph --tune");
    char *text = strdup(s->out);
    EXPECT(s, RUN(s, "graph", MODEL, "unet", "--tune-cache", "a.tune"), 0);
    assert_string_equal(s->out, text);
    free(text);
    EXPECT(s, RUN(s, "graph", MODEL, "unet", "--tune-cache", "a.tune", "--json"), 0);
    json_t *event = event_of(s, 1, "tuned");
    for (int i = 2; strcmp(json_string_value(json_object_get(event, "op")), "conv2d") != 0; i++) { /* others have several kernels, too */
        json_decref(event);
        event = event_of(s, i, "tuned");
    }
    assert_true(json_integer_value(json_object_get(event, "steps")) > 0);
    assert_true(json_number_value(json_object_get(event, "seconds")) > 0);
    json_decref(event);
    EXPECT(s, RUN(s, "graph", MODEL, "unet"), 0);
    assert_null(strstr(s->out, "measured"));
    EXPECT(s, RUN(s, "graph", MODEL, "unet", "--tune", "most"), 2);
    expect_text(s->err, "fast", "--tune");
    EXPECT(s, RUN(s, "graph", MODEL, "unet", "--tune", "fast", "--tune-time", "0"), 2);
    write_file("bad.tune", "tern-tuning 1\n", 14);
    EXPECT(s, RUN(s, "graph", MODEL, "unet", "--tune-cache", "bad.tune"), 0);
    expect_text(s->err, "bad.tune", "a damaged file");
}

int cli_graph_tests(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_graph_is_shown),       TEST(test_graph_for_graphviz), TEST(test_graph_memory), TEST(test_graph_as_json),
        TEST(test_graph_memory_as_json), TEST(test_graph_picture),      TEST(test_graph_tuned),
    };
    return cmocka_run_group_tests_name("cli graph", tests, cli_setup, cli_teardown);
}

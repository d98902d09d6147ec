/* The command tern graph. */
#include "cli.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

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
    assert_int_equal(count(s->out, "== after "), 5);
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
    EXPECT(s, RUN(s, "graph", MODEL, "vae_decoder", "--json", "-W", "256", "-H", "256"), 0);
    json_t *event = json_loads(s->out, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(event, "event")), "plan");
    double arena = (double)json_integer_value(json_object_get(event, "arena")) / (1 << 20);
    assert_true(arena >= total - 0.1 && arena <= 1.1 * total + 0.1);
    assert_true(json_integer_value(json_object_get(event, "launches")) > 20);
    json_decref(event);
}

int cli_graph_tests(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_graph_is_shown),
        TEST(test_graph_for_graphviz),
        TEST(test_graph_memory),
    };
    return cmocka_run_group_tests_name("cli graph", tests, cli_setup, cli_teardown);
}

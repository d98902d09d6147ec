/* The command tern conformance: its reports agree with each other, and broken kernels are found. $TERN_BROKEN is the command
 * with the device of broken_backend.c. */
#include "cli.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "xml_check.h"

static int number(const json_t *o, const char *key)
{
    assert_true(json_is_integer(json_object_get(o, key)));
    return (int)json_integer_value(json_object_get(o, key));
}

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    if (!s)
        fail_msg("no text \"%s\"", key);
    return s;
}

static char *whole(const char *path)
{
    size_t size = file_size(path);
    char *out = calloc(size + 1, 1);
    assert_non_null(out);
    slurp(path, out, size + 1);
    return out;
}

static int count(const char *all, const char *part)
{
    int n = 0;
    for (const char *at = strstr(all, part); at; at = strstr(at + 1, part))
        n++;
    return n;
}

/* What the parts tell is what the whole tells; takes the file away. */
static json_t *read_json(const char *path)
{
    json_t *o = json_load_file(path, 0, NULL), *group, *way;
    size_t i, k;
    static const char *const keys[] = {"passed", "failed", "skipped"};
    int sum[3] = {0};
    assert_non_null(o);
    json_array_foreach(json_object_get(o, "groups"), i, group) {
        int in_ways[3] = {0};
        json_array_foreach(json_object_get(group, "ways"), k, way) {
            int cases = 0;
            for (int n = 0; n < 3; n++) {
                in_ways[n] += number(way, keys[n]);
                cases += number(way, keys[n]);
            }
            assert_int_equal(cases, number(way, "cases"));
        }
        for (int n = 0; n < 3; n++) {
            assert_int_equal(in_ways[n], number(group, keys[n]));
            sum[n] += in_ways[n];
        }
        assert_int_equal(json_array_size(json_object_get(group, "failures")), number(group, "failed"));
    }
    for (int n = 0; n < 3; n++)
        assert_int_equal(sum[n], number(o, keys[n]));
    assert_int_equal(sum[0] + sum[1] + sum[2], number(o, "checks"));
    unlink(path);
    return o;
}

/* A well-formed page with a test case for each check of the JSON report. */
static void check_junit(const char *path, const json_t *report)
{
    char *xml = whole(path), part[160];
    if (xml_check(xml))
        fail_msg("%s: %s", path, xml_check(xml));
    assert_int_equal(count(xml, "<testcase "), number(report, "checks"));
    assert_int_equal(count(xml, "<failure "), number(report, "failed"));
    assert_int_equal(count(xml, "<skipped "), number(report, "skipped"));
    snprintf(part, sizeof(part), " tests=\"%d\" failures=\"%d\" errors=\"0\" skipped=\"%d\"", number(report, "checks"),
             number(report, "failed"), number(report, "skipped"));
    expect_text(xml, part, path);
    free(xml);
}

static void test_reports_agree(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "conformance", "--op", "softmax", "--json", "r.json", "--junit", "r.xml", "--markdown", "r.md"), 0);
    json_t *report = read_json("r.json"), *group = json_array_get(json_object_get(report, "groups"), 0);
    char *table = whole("r.md"), part[160];
    assert_int_equal(json_array_size(json_object_get(report, "groups")), 1);
    assert_string_equal(text(group, "group"), "softmax");
    assert_int_equal(number(report, "failed"), 0);
    assert_true(number(group, "cases") >= 20 && number(report, "passed") >= 4 * number(group, "cases"));
    assert_true(number(report, "skipped") > 0); /* softmax_float takes no other dimension than the last */
    check_junit("r.xml", report);
    snprintf(part, sizeof(part), "| softmax | %d | pass ", number(group, "cases"));
    expect_text(table, part, "r.md");
    snprintf(part, sizeof(part), "%d passed, 0 failed, %d skipped", number(report, "passed"), number(report, "skipped"));
    expect_text(s->out, part, "text");
    expect_text(s->out, "softmax_float ", "text");
    free(table);
    json_decref(report);
    assert_int_equal(files("."), 0);
}

static void test_kernel_is_forced(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "conformance", "--kernel", "neg_float", "--json", "r.json", "--verbose"), 0);
    json_t *report = read_json("r.json"), *group = json_array_get(json_object_get(report, "groups"), 0);
    assert_int_equal(json_array_size(json_object_get(report, "groups")), 1);
    assert_int_equal(json_array_size(json_object_get(group, "ways")), 1);
    assert_string_equal(text(json_array_get(json_object_get(group, "ways"), 0), "way"), "neg_float");
    expect_text(s->out, "  passed neg.plain.f32 by neg_float, 0 of the limit\n", "--verbose");
    expect_text(s->out, "  skipped neg.edges.i8 by neg_float: neg_float does not support this call\n", "--verbose");
    json_decref(report);
    EXPECT(s, RUN(s, "conformance", "--op", "relu", "--level", "scalar"), 0);
    expect_text(s->out, "cpu scalar", "--level");
}

/* A device that computes nothing: shapes and messages pass, all else is skipped. */
static void test_null_device(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "conformance", "--device", "null", "--json", "r.json", "-q"), 0);
    json_t *report = read_json("r.json");
    assert_true(number(report, "failed") == 0 && number(report, "passed") >= 270 && number(report, "skipped") > 4000);
    assert_string_equal(s->err, "");
    json_decref(report);
}

static int run_test_device(struct state *s, const char *device, const char *option, const char *value)
{
    const char *tool = s->tool;
    s->tool = getenv("TERN_BROKEN");
    assert_non_null(s->tool);
    int code = RUN(s, "conformance", "--device", device, option, value, "--json", "r.json", "--junit", "r.xml", "--markdown", "r.md", "-q");
    s->tool = tool;
    return code;
}

static void expect_found(struct state *s, const char *op, const char *kernel, const char *message)
{
    char part[256];
    EXPECT(s, run_test_device(s, "broken", "--op", op), 1);
    json_t *report = read_json("r.json"), *group = json_array_get(json_object_get(report, "groups"), 0), *failure;
    size_t i;
    int by_kernel = 0;
    json_array_foreach(json_object_get(group, "failures"), i, failure) {
        /* the dispatcher chooses the kernel, too; the reference is right */
        assert_null(strstr(text(failure, "way"), "reference"));
        by_kernel += !strcmp(text(failure, "way"), kernel);
        expect_text(text(failure, "message"), message, op);
    }
    assert_true(by_kernel > 0);
    check_junit("r.xml", report);
    char *table = whole("r.md");
    snprintf(part, sizeof(part), " **%d failed** |", number(report, "failed"));
    expect_text(table, part, "r.md");
    free(table);
    snprintf(part, sizeof(part), "  FAILED %s.plain.f32 by %s: ", op, kernel);
    expect_text(s->out, part, "text");
    expect_text(s->out, message, "text");
    json_decref(report);
}

static void test_broken_kernels_are_found(void **state)
{
    struct state *s = *state;
    expect_found(s, "add", "add_wrong", "elements of (");
    expect_text(s->out, "1 of 65 elements of (5, 13) f32 are wrong; the first at (0, 3): expected ", "where and how");
    expect_found(s, "mul", "mul_outside", "memory outside of a buffer was written");
    expect_found(s, "abs", "abs_nothing", "found nan");
    expect_found(s, "exp", "exp_lost", "the device is lost");
    EXPECT(s, run_test_device(s, "broken", "--op", "sub"), 0); /* its kernel is right */
}

/* Nothing needs memory that the host sees: every case on a device that has none. */
static void test_far_device(void **state)
{
    static const char *const ways[] = {"chosen", "constant", "far_conv2d"};
    struct state *s = *state;
    for (int i = 0; i < 3; i++) {
        EXPECT(s, run_test_device(s, "far", "--kernel", ways[i]), 0);
        json_t *report = read_json("r.json");
        assert_true(number(report, "failed") == 0 && number(report, "skipped") == 0 && number(report, "passed") >= (i < 2 ? 2000 : 60));
        json_decref(report);
    }
    EXPECT(s, run_test_device(s, "far", "--op", "add"), 0);
    json_t *report = read_json("r.json"), *ways_run = json_object_get(json_array_get(json_object_get(report, "groups"), 0), "ways");
    assert_int_equal(json_array_size(ways_run), 3); /* chosen, constant, far_add */
    json_decref(report);
}

static void test_runs_side_by_side(void **state)
{
    struct state *s = *state;
    EXPECT(s, run_test_device(s, "broken", "--op", "add"), 1);
    EXPECT(s, RUN(s, "conformance", "--op", "neg", "--add", "r.json", "--markdown", "both.md"), 0);
    char *table = whole("both.md");
    expect_text(table, "| broken  | cpu ", "columns");
    expect_text(table, " failed** | |\n", "a row of the other run");
    expect_text(table, "| neg | ", "a row of this run");
    free(table);
    write_file("no.json", "{\"device\": 1}", 13);
    EXPECT(s, RUN(s, "conformance", "--op", "neg", "--add", "no.json", "--markdown", "both.md"), 1);
    expect_text(s->err, "no.json: expected a report of tern conformance --json, found other JSON", "--add");
    write_file("a.png", "\x89PNG", 4);
    EXPECT(s, RUN(s, "conformance", "--op", "neg", "--add", "a.png", "--markdown", "both.md"), 1);
    expect_text(s->err, "a.png: expected a report of tern conformance --json, found no JSON in line 1: ", "--add");
    EXPECT(s, RUN(s, "conformance", "--op", "neg", "--add", "missing.json", "--markdown", "both.md"), 1);
    EXPECT(s, RUN(s, "conformance", "--op", "neg", "--add", "r.json"), 2);
    EXPECT(s, RUN(s, "conformance", "--op", "neg", "--json", "folder/r.json"), 1);
    expect_text(s->err, "folder/r.json: cannot be written", "before anything is run");
    assert_null(strstr(s->out, "checks of"));
}

/* A table has that many runs of the null device, one of them with the sums of the report. */
static void expect_run(const char *table, const json_t *report, int runs)
{
    char part[64];
    snprintf(part, sizeof(part), " | %d | %d | 0 | %d | ", number(report, "checks"), number(report, "passed"), number(report, "skipped"));
    expect_text(table, part, "the sum of the parts");
    assert_int_equal(count(table, "\n| null "), runs);
}

/* Stages one after another, each with a report of its own, are one run: its column, its rows, its sum. */
static void test_stages_are_joined(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "conformance", "--device", "null", "--json", "all.json", "--markdown", "all.md", "-q"), 0);
    EXPECT(s, RUN(s, "conformance", "--device", "null", "--stage", "pictures,graphs", "--json", "b.json", "-q"), 0);
    EXPECT(s, RUN(s, "conformance", "--device", "null", "--stage", "models", "--json", "c.json", "-q"), 0);
    EXPECT(s,
           RUN(s, "conformance", "--device", "null", "--stage", "ops", "--add", "b.json", "--add", "c.json", "--json", "a.json",
               "--markdown", "parts.md", "-q"),
           0);
    EXPECT(s, RUN(s, "conformance", "--device", "null", "--stage", "models", "--add", "c.json", "--markdown", "twice.md", "-q"), 0);
    json_t *all = read_json("all.json"), *a = read_json("a.json"), *b = read_json("b.json"), *c = read_json("c.json");
    char *table = whole("parts.md"), *expected = whole("all.md"), *twice = whole("twice.md");
    assert_int_equal(number(a, "checks") + number(b, "checks") + number(c, "checks"), number(all, "checks"));
    assert_int_equal(number(b, "checks"), 200 + 36);
    assert_string_equal(text(b, "only"), "pictures,graphs");
    expect_run(table, all, 1);
    assert_string_equal(strstr(table, "\n\n"), strstr(expected, "\n\n")); /* the same rows in the same order */
    expect_text(table, "\n| graphs: random | 200 | skipped |\n| models: sd1 | ", "graphs");
    expect_text(table, "\n| pictures: demo | 12 | skipped |\n", "pictures");
    expect_run(twice, c, 2); /* the same stage twice is two runs */
    free(table);
    free(expected);
    free(twice);
    json_decref(all);
    json_decref(a);
    json_decref(b);
    json_decref(c);
    unlink("parts.md");
    unlink("twice.md");
    unlink("all.md");
    assert_int_equal(files("."), 0);
}

static void test_interrupt(void **state)
{
    struct state *s = *state;
    const char *const args[] = {"conformance", "--json", "r.json", "--junit", "r.xml", "--markdown", "r.md", NULL};
    pid_t pid = cli_start(s, args);
    for (int i = 0; i < 500 && !has_text(".stdout", "neg "); i++) /* the first op is done, pictures are far */
        usleep(20000);
    kill(pid, SIGINT);
    EXPECT(s, cli_finish(s, pid), 130);
    expect_text(s->err, "cancelled", "standard error");
    assert_int_equal(files("."), 0);
}

int cli_conformance_tests(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_reports_agree), TEST(test_kernel_is_forced),  TEST(test_null_device),       TEST(test_broken_kernels_are_found),
        TEST(test_far_device),    TEST(test_runs_side_by_side), TEST(test_stages_are_joined), TEST(test_interrupt),
    };
    return cmocka_run_group_tests_name("cli conformance", tests, cli_setup, cli_teardown);
}

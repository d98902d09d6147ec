/* The suite behind tern conformance, on small tables of its own: what it finds, what it refuses to read, what it leaves behind. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/conformance.h>

#include "conformance/suite.h"
#include "support.h"

/* One case of neg: values.bin holds x and what is expected. Tests change a part of this text. */
static const char good_table[] =
    "{\"limits\": {\"bits\": {}, \"near\": {\"f32\": [9.5367431640625e-07, 0, 0]}}, \"cases\": [\n"
    "{\"name\": \"neg.two\", \"op\": \"neg\", \"in\": [{\"dtype\": \"f32\", \"shape\": [2], \"at\": 0}], \"attrs\": {},\n"
    " \"out\": {\"dtype\": \"f32\", \"shape\": [2], \"at\": 8}, \"limit\": \"near\"},\n"
    "{\"name\": \"neg.seed\", \"op\": \"neg\", \"in\": [{\"dtype\": \"i8\", \"shape\": [0, 4], \"seed\": 1, \"low\": -9, \"high\": 9,"
    " \"view\": [[\"permute\", 1, 0]]}],\n"
    " \"attrs\": {}, \"out\": {\"dtype\": \"i8\", \"shape\": [4, 0], \"at\": 16}, \"limit\": \"bits\"},\n"
    "{\"name\": \"neg.bool\", \"op\": \"neg\", \"in\": [{\"dtype\": \"bool\", \"shape\": [2], \"seed\": 1}], \"attrs\": {},\n"
    " \"status\": \"dtype\", \"error\": \"neg: x is bool\"}]}";
static const float good_values[] = {1, -2, -1, 2};

struct data {
    char folder[64];
};

static void write_text(const struct data *d, const char *name, const void *content, size_t size)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/ops/%s", d->folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(content, 1, size, f), size);
    fclose(f);
}

static struct data data_open(void)
{
    struct data d = {"/tmp/tern-conformance-XXXXXX"};
    char ops[96];
    assert_non_null(mkdtemp(d.folder));
    snprintf(ops, sizeof(ops), "%s/ops", d.folder);
    assert_int_equal(mkdir(ops, 0777), 0);
    write_text(&d, "cases.json", good_table, sizeof(good_table) - 1);
    write_text(&d, "values.bin", good_values, sizeof(good_values));
    return d;
}

static void data_close(const struct data *d)
{
    static const char *const names[] = {"ops/cases.json", "ops/values.bin", "ops", "."};
    char path[128];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s/%s", d->folder, names[i]);
        remove(i == 3 ? d->folder : path);
    }
    assert_int_not_equal(access(d->folder, F_OK), 0);
}

static struct tern_conformance *suite_open(struct tern_context *ctx, const struct data *d, const char *kernel)
{
    struct tern_conformance *c = tern_conformance_create(ctx, &(struct tern_conformance_params){.kernel = kernel, .data = d->folder});
    if (!c)
        fail_msg("%s", tern_error(ctx));
    return c;
}

/* Check i, which must be of that name and way. */
static struct tern_conformance_outcome run(struct tern_conformance *c, int i, const char *name, const char *way)
{
    struct tern_conformance_outcome o;
    struct tern_conformance_check check = tern_conformance_get(c, i);
    assert_string_equal(check.name, name);
    assert_string_equal(check.way, way);
    assert_int_equal(tern_conformance_run(c, i, &o), TERN_OK);
    return o;
}

static void checks_are_listed_and_pass(void **state)
{
    static const char *const ways[] = {"chosen", "constant", "reference", "reference_strides"};
    static const char *const cases[] = {"neg.two", "neg.seed", "neg.bool"};
    struct data d = data_open();
    struct tern_conformance *c = tern_conformance_create(*state, &(struct tern_conformance_params){.op = "neg", .data = d.folder});
    assert_non_null(c);
    struct tern_conformance_facts f = tern_conformance_facts(c);
    assert_string_equal(f.device, "cpu");
    assert_int_equal(f.cases, 3);
    assert_int_equal(f.checks, 4 * 3 + 2); /* neg_float is not asked about the call that must be refused */
    for (int i = 0; i < 12; i++) {
        struct tern_conformance_outcome o = run(c, i, cases[i % 3], ways[i / 3]);
        if (o.result != TERN_CONFORMANCE_PASSED || o.error != 0 || *o.message)
            fail_msg("check %d: %s", i, o.message);
        assert_string_equal(tern_conformance_get(c, i).group, "neg");
        assert_int_equal(tern_conformance_get(c, i).stage, TERN_CONFORMANCE_OPS);
    }
    assert_int_equal(run(c, 12, "neg.two", "neg_float").result, TERN_CONFORMANCE_PASSED);
    assert_int_equal(run(c, 13, "neg.seed", "neg_float").result, TERN_CONFORMANCE_SKIPPED);
    tern_conformance_destroy(&c);
    assert_null(c);
    data_close(&d);
}

/* The error is told as a share of the limit, 2^-20 here. */
static void errors_are_measured(void **state)
{
    static const struct {
        float expected, error;
        enum tern_conformance_result result;
        const char *message;
    } rows[] = {
        {-1 + 0x1p-21f, 0.5f, TERN_CONFORMANCE_PASSED, ""},
        {-1 + 0x1p-20f, 1, TERN_CONFORMANCE_PASSED, ""},
        {-1 + 0x1p-18f, 4, TERN_CONFORMANCE_FAILED,
         "1 of 2 elements of (2,) f32 are wrong; the first at (0): expected -0.999996185, found -1, allowed 9.54e-07 off"},
        {-INFINITY, INFINITY, TERN_CONFORMANCE_FAILED, "expected -inf, found -1, allowed 0 off"},
        {NAN, INFINITY, TERN_CONFORMANCE_FAILED, "expected nan, found -1"},
    };
    struct data d = data_open();
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const float values[] = {1, -2, rows[i].expected, 2};
        write_text(&d, "values.bin", values, sizeof(values));
        for (int way = 0; way < 2; way++) {
            const char *const ways[] = {"chosen", "reference_strides"};
            struct tern_conformance *c = suite_open(*state, &d, ways[way]);
            struct tern_conformance_outcome o = run(c, 0, "neg.two", ways[way]);
            assert_int_equal(o.result, rows[i].result);
            if ((float)o.error != rows[i].error || !strstr(o.message, rows[i].message))
                fail_msg("row %zu: %g of the limit, %s", i, o.error, o.message);
            tern_conformance_destroy(&c);
        }
    }
    data_close(&d);
}

/* `from` in the good table becomes `to`. */
static void write_changed(const struct data *d, const char *from, const char *to)
{
    char text[2 * sizeof(good_table)];
    const char *at = strstr(good_table, from);
    assert_non_null(at);
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - good_table), good_table, to, at + strlen(from));
    write_text(d, "cases.json", text, strlen(text));
}

static void damaged_tables_are_refused(void **state)
{
    static const char *const rows[][3] = {
        {"\"limits\"", "\"limit\"", "expected \"limits\" and \"cases\""},
        {"\"cases\": [", "\"cases\": 3, \"more\": [", "expected \"limits\" and \"cases\""},
        {"]}", "]", "not valid JSON"},
        {"\"name\": \"neg.two\"", "\"name\": 7", "case 0 (\"\"): no name"},
        {"\"op\": \"neg\"", "\"op\": \"negate\"", "case 0 (\"neg.two\"): no name, or an op"},
        {"\"in\": [{\"dtype\": \"f32\", \"shape\": [2], \"at\": 0}]", "\"in\": {}", "inputs or attributes are missing"},
        {"\"in\": [{", "\"in\": [null, null, null, null, null, null, null, null, {", "inputs or attributes are missing"},
        {"\"attrs\": {}", "\"attrs\": []", "inputs or attributes are missing"},
        {"\"f32\", \"shape\"", "\"f33\", \"shape\"", "an input is not well-formed"},
        {"[2], \"at\": 0", "[-2], \"at\": 0", "an input is not well-formed"},
        {"[2], \"at\": 0", "[2.5], \"at\": 0", "an input is not well-formed"},
        {"[2], \"at\": 0", "[1, 1, 1, 1, 1, 1, 1, 1, 2], \"at\": 0", "an input is not well-formed"},
        {"[2], \"at\": 0", "[4294967296, 4294967296], \"at\": 0", "an input is not well-formed"},
        {"[2], \"at\": 0", "[3000000, 3000000], \"seed\": 0", "an input is not well-formed"},
        {"[2], \"at\": 0", "[2], \"at\": -8", "an input is not well-formed"},
        {"[2], \"at\": 0", "[2], \"at\": 4", "an input is not well-formed"},
        {"[2], \"at\": 0", "[2], \"at\": 16", "an input is not well-formed"},
        {"[2], \"at\": 0", "[2], \"at\": 9223372036854775800", "an input is not well-formed"},
        {"[2], \"at\": 0", "[2]", "an input is not well-formed"},
        {"[{\"dtype\": \"f32\", \"shape\": [2], \"at\": 0}]", "[]", "case 0 (\"neg.two\"): it lacks an input, or has too many"},
        {"{\"dtype\": \"f32\", \"shape\": [2], \"at\": 0}", "null", "it lacks an input, or has too many"},
        {"\"at\": 0}", "\"at\": 0}, null", "it lacks an input, or has too many"},
        {"[2], \"at\": 8", "[2], \"at\": 16", "the expected values are not there"},
        {"\"low\": -9", "\"low\": 9", "case 1 (\"neg.seed\"): an input is not well-formed"},
        {"\"low\": -9", "\"low\": -9223372036854775808", "an input is not well-formed"},
        {"[\"permute\", 1, 0]", "[\"turn\", 1, 0]", "an input is not well-formed"},
        {"[\"permute\", 1, 0]", "[]", "an input is not well-formed"},
        {"[\"permute\", 1, 0]", "\"permute\"", "an input is not well-formed"},
        {"[\"permute\", 1, 0]", "[\"permute\", 1, 0, 2, 3, 4, 5, 6, 7, 8]", "an input is not well-formed"},
        {"[\"permute\", 1, 0]", "[\"slice\", 1, 0]", "an input is not well-formed"},
        {"[\"permute\", 1, 0]", "[\"expand\", 1, \"0\"]", "an input is not well-formed"},
        {"\"limit\": \"near\"", "\"limit\": \"far\"", "its limit is not known"},
        {"\"error\": \"neg: x is bool\"", "\"errors\": \"\"", "neither expected values nor an error"},
    };
    struct tern_context *ctx = *state;
    struct data d = data_open();
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        write_changed(&d, rows[i][0], rows[i][1]);
        struct tern_conformance *c = tern_conformance_create(ctx, &(struct tern_conformance_params){.data = d.folder});
        if (c)
            fail_msg("\"%s\" was read", rows[i][1]);
        support_error(ctx, TERN_E_FORMAT, rows[i][2]);
    }
    write_text(&d, "cases.json", good_table, sizeof(good_table) - 1);
    write_text(&d, "values.bin", "", 0);
    assert_null(tern_conformance_create(ctx, &(struct tern_conformance_params){.data = d.folder}));
    support_error(ctx, TERN_E_FORMAT, "case 0 (\"neg.two\")");
    data_close(&d);
    assert_null(tern_conformance_create(ctx, &(struct tern_conformance_params){.data = d.folder}));
    support_error(ctx, TERN_E_NOT_FOUND, d.folder);
}

/* Well-formed, but of no call that there is: the check fails, with the reason. */
static void impossible_inputs_fail(void **state)
{
    static const char *const rows[][3] = {
        {"[\"permute\", 1, 0]", "[\"permute\", 1, 5]", "input 0 could not be made: permute: dim 5"},
        {"[\"permute\", 1, 0]", "[\"slice\", 0, 0, 1, 0]", "input 0 could not be made: slice"},
        {"[\"permute\", 1, 0]", "[\"expand\", 3]", "input 0 could not be made: expand"},
        {"[\"permute\", 1, 0]", "[\"channels_last\"]", "input 0 could not be made: contiguous"},
        {"\"shape\": [4, 0]", "\"shape\": [0, 4]", "expected (0, 4) i8, found (4, 0) i8"},
    };
    struct data d = data_open();
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        write_changed(&d, rows[i][0], rows[i][1]);
        struct tern_conformance *c = suite_open(*state, &d, "chosen");
        struct tern_conformance_outcome o = run(c, 1, "neg.seed", "chosen");
        assert_int_equal(o.result, TERN_CONFORMANCE_FAILED);
        if (!strstr(o.message, rows[i][2]))
            fail_msg("expected \"%s\", found \"%s\"", rows[i][2], o.message);
        assert_int_equal(run(c, 2, "neg.bool", "chosen").result, TERN_CONFORMANCE_PASSED); /* nothing is left of the error */
        tern_conformance_destroy(&c);
    }
    data_close(&d);
}

/* A call that is refused must be refused with that status and that message. */
static void refusals_are_compared(void **state)
{
    static const char *const rows[][2] = {
        {"\"status\": \"dtype\"", "\"status\": \"shape\""},
        {"\"status\": \"dtype\"", "\"status\": \"none\""},
        {"neg: x is bool", "neg: x is f32"},
        {"{\"dtype\": \"bool\", \"shape\": [2]", "{\"dtype\": \"i8\", \"shape\": [2]"},
    };
    static const char *const ways[] = {"chosen", "reference_strides"};
    struct data d = data_open();
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (int way = 0; way < 2; way++) {
            write_changed(&d, rows[i][0], rows[i][1]);
            struct tern_conformance *c = suite_open(*state, &d, ways[way]);
            struct tern_conformance_outcome o = run(c, 2, "neg.bool", ways[way]);
            assert_int_equal(o.result, TERN_CONFORMANCE_FAILED);
            if (!strstr(o.message, i == 3 ? "found no error" : "found data types do not fit \"neg: x is bool"))
                fail_msg("row %zu: %s", i, o.message);
            tern_conformance_destroy(&c);
        }
    data_close(&d);
}

/* A cast to the same dtype gives back its input, a reshape a view: kernels have not passed what they did not run. */
static void what_launches_nothing_is_skipped(void **state)
{
    static const char table[] =
        "{\"limits\": {\"bits\": {}}, \"cases\": [\n"
        "{\"name\": \"cast.same\", \"op\": \"cast\", \"in\": [{\"dtype\": \"f32\", \"shape\": [2], \"at\": 0}], \"attrs\": {\"dtype\": "
        "0},\n"
        " \"out\": {\"dtype\": \"f32\", \"shape\": [2], \"at\": 0}, \"limit\": \"bits\"},\n"
        "{\"name\": \"reshape.view\", \"op\": \"reshape\", \"in\": [{\"dtype\": \"f32\", \"shape\": [2], \"at\": 0}],\n"
        " \"attrs\": {\"shape\": [2, 1]}, \"out\": {\"dtype\": \"f32\", \"shape\": [2, 1], \"at\": 0}, \"limit\": \"bits\"}]}";
    static const char *const ways[] = {"chosen", "cast_float", "reshape_copy"};
    struct data d = data_open();
    write_text(&d, "cases.json", table, sizeof(table) - 1);
    for (int i = 0; i < 3; i++) {
        struct tern_conformance *c = suite_open(*state, &d, ways[i]);
        struct tern_conformance_outcome o = run(c, 0, i == 2 ? "reshape.view" : "cast.same", ways[i]);
        assert_int_equal(o.result, i ? TERN_CONFORMANCE_SKIPPED : TERN_CONFORMANCE_PASSED);
        assert_true(!i == !strstr(o.message, "is not launched"));
        tern_conformance_destroy(&c);
    }
    data_close(&d);
}

/* Stages whose data is not there are skipped, and say so. */
static void missing_stages_are_told(void **state)
{
    struct data d = data_open();
    struct tern_conformance *c = suite_open(*state, &d, NULL);
    int seen[TERN_CONFORMANCE_STAGES] = {0};
    struct tern_conformance_outcome o;
    for (int i = 0; i < tern_conformance_facts(c).checks; i++) {
        struct tern_conformance_check check = tern_conformance_get(c, i);
        if (seen[check.stage]++ && check.stage < TERN_CONFORMANCE_MODELS)
            continue;
        assert_int_equal(tern_conformance_run(c, i, &o), TERN_OK);
        bool missing = check.stage >= TERN_CONFORMANCE_MODELS;
        assert_int_equal(o.result, missing ? TERN_CONFORMANCE_SKIPPED : TERN_CONFORMANCE_PASSED);
        if (missing)
            assert_non_null(strstr(o.message, check.stage == TERN_CONFORMANCE_PICTURES ? "has no demo-sheet" : "has no components/sd"));
    }
    assert_int_equal(seen[TERN_CONFORMANCE_GRAPHS], 200);
    assert_int_equal(seen[TERN_CONFORMANCE_MODELS], 6);
    assert_int_equal(seen[TERN_CONFORMANCE_PICTURES], 3);
    tern_conformance_destroy(&c);
    data_close(&d);
}

/* Stages by name, in any order; those of the list alone. */
static void stages_are_chosen(void **state)
{
    static const struct {
        const char *stages, *op;
        int checks[TERN_CONFORMANCE_STAGES];
        int cases;
    } rows[] = {{"ops", NULL, {14, 0, 0, 0}, 3},          {"graphs", NULL, {0, 200, 0, 0}, 0},
                {"models", NULL, {0, 0, 6, 0}, 0},        {"pictures", NULL, {0, 0, 0, 3}, 0},
                {NULL, NULL, {14, 200, 6, 3}, 3},         {"pictures,graphs", NULL, {0, 200, 0, 3}, 0},
                {"models,models", NULL, {0, 0, 6, 0}, 0}, {"models,ops", "neg", {14, 0, 6, 0}, 3}};
    static const struct {
        const char *stages, *op, *kernel, *message;
        enum tern_status status;
    } wrong[] = {{"", NULL, NULL, "no stage \"\"", TERN_E_NOT_FOUND},
                 {"ops,", NULL, NULL, "no stage \"\"", TERN_E_NOT_FOUND},
                 {"graph", NULL, NULL, "no stage \"graph\" of conformance; there are ops, graphs, models, pictures", TERN_E_NOT_FOUND},
                 {"opsgraphs", NULL, NULL, "\"opsgraphs\"", TERN_E_NOT_FOUND},
                 {"graphs", "neg", NULL, "op \"neg\": expected the stage ops among \"graphs\"", TERN_E_INVALID},
                 {"models,graphs", NULL, "chosen", "kernel \"chosen\": expected the stage ops", TERN_E_INVALID}};
    struct data d = data_open();
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct tern_conformance_params p = {.stages = rows[i].stages, .op = rows[i].op, .data = d.folder};
        struct tern_conformance *c = tern_conformance_create(*state, &p);
        int seen[TERN_CONFORMANCE_STAGES] = {0};
        if (!c)
            fail_msg("row %zu: %s", i, tern_error(*state));
        for (int k = 0; k < tern_conformance_facts(c).checks; k++)
            seen[tern_conformance_get(c, k).stage]++;
        assert_memory_equal(seen, rows[i].checks, sizeof(seen));
        assert_int_equal(tern_conformance_facts(c).cases, rows[i].cases);
        tern_conformance_destroy(&c);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        const struct tern_conformance_params p = {.stages = wrong[i].stages, .op = wrong[i].op, .kernel = wrong[i].kernel, .data = d.folder};
        assert_null(tern_conformance_create(*state, &p));
        support_error(*state, wrong[i].status, wrong[i].message);
    }
    data_close(&d);
}

static bool cancelled(void *user) { return *(bool *)user; }

static void wrong_use_and_cancel(void **state)
{
    assert_null(tern_conformance_create(*state, &(struct tern_conformance_params){.device = "nope"}));
    support_error(*state, TERN_E_NOT_FOUND, "device \"nope\" is not known");
    struct data d = data_open();
    bool stop = false;
    struct tern_conformance_outcome o;
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = cancelled, .user = &stop});
    struct tern_conformance *c = suite_open(ctx, &d, "chosen");
    assert_string_equal(tern_conformance_get(c, 3).name, "");
    assert_string_equal(tern_conformance_get(c, -1).way, "");
    assert_int_equal(tern_conformance_run(c, 3, &o), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "expected a check from 0 to 2, found 3");
    stop = true;
    assert_int_equal(tern_conformance_run(c, 0, &o), TERN_E_CANCELLED);
    assert_int_equal(tern_error_status(ctx), TERN_E_CANCELLED);
    stop = false;
    tern_error_clear(ctx);
    assert_int_equal(run(c, 0, "neg.two", "chosen").result, TERN_CONFORMANCE_PASSED);
    tern_context_destroy(&ctx); /* the suite keeps it */
    assert_int_equal(run(c, 1, "neg.seed", "chosen").result, TERN_CONFORMANCE_PASSED);
    tern_conformance_destroy(&c);
    tern_conformance_destroy(&c);
    tern_conformance_destroy(NULL);
    assert_null(tern_conformance_create(NULL, NULL));
    data_close(&d);
}

/* An output and what is expected of it may be of two contexts: each counts its own memory. */
static void outputs_of_two_contexts(void **state)
{
    struct tern_context *ctx[] = {*state, support_context()};
    tern_tensor *t[2];
    size_t used[2];
    for (int i = 0; i < 2; i++) {
        t[i] = tern_tensor_create(ctx[i], TERN_F32, 1, (const int64_t[]){2}, (const float[]){3, i ? 4 : 5});
        used[i] = tern_memory_used(ctx[i]);
    }
    assert_true(tern_tensor_nmse(t[0], t[1]) == 1.0 / 25); /* (5 - 4)^2 of 3^2 + 4^2 */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tern_memory_used(ctx[i]), used[i]);
        tern_tensor_unref(&t[i]);
    }
    tern_context_destroy(&ctx[1]);
}

/* Every allocation of the list fails once: an error, and nothing is left. */
static void allocations_fail(void **state)
{
    struct data d = data_open();
    bool done = false;
    for (long fail_at = 1; !done; fail_at++) {
        struct support_allocator a = {0};
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&a)});
        assert_non_null(ctx);
        long live = a.live;
        a.fail_at = a.count + fail_at;
        struct tern_conformance *c = tern_conformance_create(ctx, &(struct tern_conformance_params){.data = d.folder});
        done = c != NULL;
        if (!done)
            assert_int_equal(tern_error_status(ctx), TERN_E_NO_MEMORY);
        tern_conformance_destroy(&c);
        assert_int_equal(a.live, live);
        tern_context_destroy(&ctx);
        assert_true(fail_at < 2000);
    }
    data_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checks_are_listed_and_pass),
        cmocka_unit_test(errors_are_measured),
        cmocka_unit_test(damaged_tables_are_refused),
        cmocka_unit_test(impossible_inputs_fail),
        cmocka_unit_test(missing_stages_are_told),
        cmocka_unit_test(wrong_use_and_cancel),
        cmocka_unit_test(allocations_fail),
        cmocka_unit_test(refusals_are_compared),
        cmocka_unit_test(stages_are_chosen),
        cmocka_unit_test(outputs_of_two_contexts),
        cmocka_unit_test(what_launches_nothing_is_skipped),
    };
    return cmocka_run_group_tests(tests, support_setup, support_teardown);
}

/* Prompts in AUTOMATIC1111's syntax: how they are read, against tools/goldens/a1111.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/memory.h"
#include "models/prompts/prompts.h"
#include "support.h"

static const char *string(const json_t *row, const char *key) { return json_string_value(json_object_get(row, key)); }

/* ---- the table */

static void check_attention(struct tern_context *ctx, const char *text, const json_t *want)
{
    struct tern_spans s;
    if (!json_is_array(want)) {
        assert_int_equal(tern_prompt_attention(ctx, text, &s), TERN_E_INVALID);
        support_error(ctx, TERN_E_INVALID, "no finite number");
        tern_spans_free(&s);
        return;
    }
    assert_int_equal(tern_prompt_attention(ctx, text, &s), TERN_OK);
    if (s.count != json_array_size(want))
        fail_msg("\"%s\": %zu spans, expected %zu", text, s.count, json_array_size(want));
    for (size_t i = 0; i < s.count; i++) {
        const json_t *pair = json_array_get(want, i);
        const char *part = json_string_value(json_array_get(pair, 0));
        const double weight = json_number_value(json_array_get(pair, 1));
        if (s.at[i].size != strlen(part) || memcmp(s.text + s.at[i].begin, part, s.at[i].size) || s.at[i].weight != weight)
            fail_msg("\"%s\": span %zu is \"%.*s\" %.17g, expected \"%s\" %.17g", text, i, (int)s.at[i].size, s.text + s.at[i].begin,
                     s.at[i].weight, part, weight);
        if (tern_span_is_break(&s, i) != (weight == -1 && !strcmp(part, "BREAK")))
            fail_msg("\"%s\": span %zu: a BREAK or not?", text, i);
    }
    tern_spans_free(&s);
}

static void check_compose(struct tern_context *ctx, const char *text, const json_t *want)
{
    struct tern_subprompt parts[TERN_MOST_SUBPROMPTS];
    const int n = tern_prompt_compose(ctx, text, parts);
    if ((size_t)n != json_array_size(want))
        fail_msg("\"%s\": %d texts, expected %zu", text, n, json_array_size(want));
    for (int i = 0; i < n; i++) {
        const json_t *pair = json_array_get(want, (size_t)i);
        if (strcmp(parts[i].text, json_string_value(json_array_get(pair, 0))) ||
            parts[i].weight != json_number_value(json_array_get(pair, 1)))
            fail_msg("\"%s\": text %d is \"%s\" %g, expected \"%s\"", text, i, parts[i].text, parts[i].weight,
                     json_string_value(json_array_get(pair, 0)));
        tern_free(ctx, parts[i].text);
    }
}

static void check_schedule(struct tern_context *ctx, const char *text, const json_t *want)
{
    struct tern_prompt_schedule s;
    assert_int_equal(tern_prompt_schedule(ctx, text, 10, 0, &s), TERN_OK);
    if ((size_t)s.n_parts != json_array_size(want))
        fail_msg("\"%s\": %d parts, expected %zu", text, s.n_parts, json_array_size(want));
    for (int i = 0; i < s.n_parts; i++) {
        const json_t *pair = json_array_get(want, (size_t)i);
        const char *part = json_string_value(json_array_get(pair, 1));
        if (s.parts[i].end != json_integer_value(json_array_get(pair, 0)) || strcmp(s.texts[s.parts[i].text], part))
            fail_msg("\"%s\": part %d is \"%s\" to %d, expected \"%s\" to %d", text, i, s.texts[s.parts[i].text], s.parts[i].end, part,
                     (int)json_integer_value(json_array_get(pair, 0)));
    }
    tern_prompt_schedule_free(&s);
}

static void prompts_are_read(void **state)
{
    struct tern_context *ctx = *state;
    json_t *rows = support_json("prompts/table.json"), *row;
    size_t i;
    json_array_foreach(rows, i, row) {
        const char *text = string(row, "text");
        assert_int_equal(tern_prompt_check(ctx, "prompt", text), TERN_OK);
        check_attention(ctx, text, json_object_get(row, "attention"));
        check_compose(ctx, text, json_object_get(row, "compose"));
        check_schedule(ctx, text, json_object_get(row, "schedule"));
    }
    assert_true(i > 150);
    json_decref(rows);
}

/* A part holds up to its step, calls being counted from 0: so the first one holds a call longer than it says, as in A1111. */
static void parts_hold_at_steps(void **state)
{
    static const int expected[] = {0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0};
    struct tern_prompt_schedule s;
    assert_int_equal(tern_prompt_schedule(*state, "[a:b:3]", 10, 0, &s), TERN_OK);
    for (int call = 0; call < 12; call++) /* behind the last step: the first */
        assert_int_equal(tern_prompt_schedule_at(&s, call)->text, expected[call]);
    tern_prompt_schedule_free(&s);
}

/* ---- odd texts */

static char *repeated(const char *part, size_t n)
{
    const size_t size = strlen(part);
    char *text = malloc(n * size + 1);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        memcpy(text + i * size, part, size);
    text[n * size] = 0;
    return text;
}

static void read_everything(struct tern_context *ctx, const char *text)
{
    struct tern_spans spans;
    struct tern_prompt_schedule schedule;
    struct tern_subprompt parts[TERN_MOST_SUBPROMPTS];
    if (tern_prompt_check(ctx, "prompt", text) == TERN_OK) {
        tern_prompt_attention(ctx, text, &spans);
        tern_spans_free(&spans);
        tern_error_clear(ctx);
        assert_int_equal(tern_prompt_schedule(ctx, text, 20, 0, &schedule), TERN_OK);
        tern_prompt_schedule_free(&schedule);
        tern_prompt_compose(ctx, text, parts);
        for (int i = 0; i < TERN_MOST_SUBPROMPTS; i++)
            tern_free(ctx, parts[i].text);
    }
    tern_error_clear(ctx);
}

static void odd_texts_are_refused_or_read(void **state)
{
    static const struct {
        const char *part;
        size_t n;
        const char *message; /* NULL: it is read */
    } rows[] = {
        {"(", 60000, "more than 1000 brackets are open"},
        {"[", 1001, "at byte 1000 more than 1000 brackets are open"},
        {"(", 100000, "expected at most 65536 bytes, found 100000"},
        {"(", 1000, NULL},
        {")", 65536, NULL},
        {"]", 65536, NULL},
        {"(]", 32768, NULL},
        {"[a", 1000, NULL},
        {"[:", 1000, NULL},
        {"(\\)", 21845, "more than 1000 brackets are open"},
        {"\\(", 32768, NULL},
        {"|", 65536, NULL},
        {"[|]", 21845, NULL},
        {":1)", 21845, NULL},
        {"\\", 65536, NULL},
        {"BREAK ", 10922, NULL},
        {"\xff", 1, "not valid UTF-8"},
        {"\xc3(", 1, "not valid UTF-8"},
        {"\xf0\x9f\x90", 1, "not valid UTF-8"},
        {"\xed\xa0\x80", 1, "not valid UTF-8"},
    };
    struct tern_context *ctx = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char *text = repeated(rows[i].part, rows[i].n);
        enum tern_status st = tern_prompt_check(ctx, "prompt", text);
        if (rows[i].message)
            support_error(ctx, TERN_E_INVALID, rows[i].message);
        else
            assert_int_equal(st, TERN_OK);
        read_everything(ctx, text);
        free(text);
    }
}

/* Nests as deep as may be, so that each level is taken. */
static void deep_schedules_are_read(void **state)
{
    struct tern_prompt_schedule s;
    char *open = repeated("[a:", 1000), *close = repeated(":1]", 1000), *text = malloc(7000);
    assert_non_null(text);
    snprintf(text, 7000, "%s%s%s", open, "x", close);
    assert_int_equal(tern_prompt_check(*state, "prompt", text), TERN_OK);
    assert_int_equal(tern_prompt_schedule(*state, text, 2, 0, &s), TERN_OK);
    assert_int_equal(s.n_texts, 2);
    assert_string_equal(s.texts[0], "a");
    assert_string_equal(s.texts[1], "x");
    tern_prompt_schedule_free(&s);
    free(open);
    free(close);
    free(text);
}

/* Texts of pieces that matter, put together at random: nothing breaks, and what is no syntax stays as it is. */
static void random_texts_do_no_harm(void **state)
{
    static const char *const pieces[] = {"(", ")",     "[",   "]",     ":",   "|",  "\\", "1", ".5", "a",
                                         " ", "BREAK", "AND", ":1.2)", ":3]", "\n", "é",  "-", "1e9"};
    uint32_t random = 7;
    for (int i = 0; i < 20000; i++) {
        char text[256] = "";
        for (int k = 0; k < 24; k++) {
            random = random * 1664525 + 1013904223;
            strcat(text, pieces[(random >> 16) % (sizeof(pieces) / sizeof(*pieces))]);
        }
        read_everything(*state, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_are_read),
        cmocka_unit_test(parts_hold_at_steps),
        cmocka_unit_test(odd_texts_are_refused_or_read),
        cmocka_unit_test(deep_schedules_are_read),
        cmocka_unit_test(random_texts_do_no_harm),
    };
    return cmocka_run_group_tests(tests, support_setup, support_teardown);
}

/* The reports of tern conformance in files: JSON, JUnit's XML, and a table in Markdown over several JSON reports. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "conformance_report.h"

static json_t *share(double error) { return isfinite(error) ? json_real(error) : json_null(); }

/* ---- JSON ---- */

static json_t *tally_json(const struct tally *t)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:o, s:f}", "cases", t->cases, "passed", t->passed, "failed", t->failed, "skipped", t->skipped,
                     "error", share(t->error), "seconds", t->seconds);
}

static json_t *group_json(const struct conformance_report *r, int from, int to)
{
    const struct tern_conformance_check *c = &r->rows[from].check;
    struct tally t = report_tally(r, from, to);
    json_t *o = tally_json(&t), *ways = json_array(), *failures = json_array();
    int bad = json_object_set_new(o, "stage", json_string(tern_conformance_stage_name(c->stage)));
    bad |= json_object_set_new(o, "group", message_json(c->group));
    for (int i = from; i < to; i = report_way_end(r, i)) {
        struct tally w = report_tally(r, i, report_way_end(r, i));
        json_t *way = tally_json(&w);
        bad |= json_object_set_new(way, "way", message_json(r->rows[i].check.way));
        bad |= json_array_append_new(ways, way);
    }
    for (int i = from; i < to; i++)
        if (r->rows[i].outcome.result == TERN_CONFORMANCE_FAILED)
            bad |= json_array_append_new(failures,
                                         json_pack("{s:o, s:o, s:o, s:o}", "name", message_json(r->rows[i].check.name), "way",
                                                   message_json(r->rows[i].check.way), "message", message_json(r->rows[i].outcome.message),
                                                   "error", share(r->rows[i].outcome.error)));
    bad |= json_object_set_new(o, "ways", ways);
    bad |= json_object_set_new(o, "failures", failures);
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

json_t *report_json(const struct conformance_report *r)
{
    struct tally t = report_tally(r, 0, r->count);
    json_t *groups = json_array();
    for (int i = 0; i < r->count; i = report_group_end(r, i))
        if (json_array_append_new(groups, group_json(r, i, report_group_end(r, i)))) {
            json_decref(groups);
            return NULL;
        }
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:i, s:i, s:i, s:i, s:f, s:o}", "report", "tern conformance", "version",
                     tern_version(), "device", r->facts.device, "level", r->facts.level, "description", message_json(r->facts.description),
                     "only", r->only ? message_json(r->only) : json_null(), "checks", r->count, "passed", t.passed, "failed", t.failed,
                     "skipped", t.skipped, "seconds", r->seconds, "groups", groups);
}

json_t *report_read(const char *path)
{
    json_error_t e;
    size_t i;
    const json_t *group;
    json_t *o = json_load_file(path, 0, &e);
    if (!o && json_error_code(&e) == json_error_cannot_open_file) {
        failed("%s: %s", path, e.text);
        return NULL;
    }
    if (!o) {
        failed("%s: expected a report of tern conformance --json, found no JSON in line %d: %s", path, e.line, e.text);
        return NULL;
    }
    bool good = json_is_string(json_object_get(o, "device")) && json_is_string(json_object_get(o, "level")) &&
                json_is_string(json_object_get(o, "description")) && json_is_array(json_object_get(o, "groups"));
    json_array_foreach(json_object_get(o, "groups"), i, group)
        good = good && json_is_string(json_object_get(group, "stage")) && json_is_string(json_object_get(group, "group"));
    if (good)
        return o;
    json_decref(o);
    failed("%s: expected a report of tern conformance --json, found other JSON", path);
    return NULL;
}

/* ---- JUnit ---- */

static void put_escaped(FILE *file, const char *text)
{
    json_t *o = message_json(text);
    for (const char *c = o ? json_string_value(o) : ""; *c; c++) {
        const char *entity = *c == '<' ? "&lt;" : *c == '>' ? "&gt;" : *c == '&' ? "&amp;" : *c == '"' ? "&quot;" : NULL;
        if (entity)
            fputs(entity, file);
        else
            putc((unsigned char)*c < 0x20 ? ' ' : *c, file);
    }
    json_decref(o);
}

static void put_attribute(FILE *file, const char *name, const char *text)
{
    fprintf(file, " %s=\"", name);
    put_escaped(file, text);
    putc('"', file);
}

static void put_tally(FILE *file, const struct tally *t, int tests)
{
    fprintf(file, " tests=\"%d\" failures=\"%d\" errors=\"0\" skipped=\"%d\" time=\"%.6f\">\n", tests, t->failed, t->skipped, t->seconds);
}

static void put_case(FILE *file, const struct check_row *row)
{
    char class[192];
    snprintf(class, sizeof(class), "%s.%s.%s", tern_conformance_stage_name(row->check.stage), row->check.group, row->check.way);
    fputs("<testcase", file);
    put_attribute(file, "classname", class);
    put_attribute(file, "name", row->check.name);
    fprintf(file, " time=\"%.6f\"", row->outcome.seconds);
    if (row->outcome.result == TERN_CONFORMANCE_PASSED) {
        fputs("/>\n", file);
        return;
    }
    fputs(row->outcome.result == TERN_CONFORMANCE_FAILED ? "><failure" : "><skipped", file);
    put_attribute(file, "message", row->outcome.message);
    fputs("/></testcase>\n", file);
}

void report_junit(FILE *file, const struct conformance_report *r)
{
    char name[128], group[GROUP_TEXT];
    struct tally all = report_tally(r, 0, r->count);
    snprintf(name, sizeof(name), "tern conformance %s%s%s", r->facts.device, *r->facts.level ? " " : "", r->facts.level);
    fputs("<testsuites", file);
    put_attribute(file, "name", name);
    put_tally(file, &all, r->count);
    for (int i = 0; i < r->count; i = report_group_end(r, i)) {
        int end = report_group_end(r, i);
        struct tally t = report_tally(r, i, end);
        fputs("<testsuite", file);
        put_attribute(file, "name", report_group_name(&r->rows[i].check, group));
        put_tally(file, &t, end - i);
        for (int k = i; k < end; k++)
            put_case(file, &r->rows[k]);
        fputs("</testsuite>\n", file);
    }
    fputs("</testsuites>\n", file);
}

/* ---- Markdown ---- */

static const char *word(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static int number(const json_t *o, const char *key) { return (int)json_integer_value(json_object_get(o, key)); }

const json_t *report_same_group(const json_t *report, const json_t *like)
{
    size_t i;
    const json_t *g;
    json_array_foreach(json_object_get(report, "groups"), i, g)
        if (!strcmp(word(g, "stage"), word(like, "stage")) && !strcmp(word(g, "group"), word(like, "group")))
            return g;
    return NULL;
}

/* "pass 0.20": the largest error as a share of the limit; nothing behind "pass" when all bits were the same. */
static void put_cell(FILE *file, const json_t *g)
{
    double error = json_number_value(json_object_get(g, "error"));
    if (!g)
        fputs(" |", file);
    else if (number(g, "failed"))
        fprintf(file, " **%d failed** |", number(g, "failed"));
    else if (!number(g, "passed"))
        fputs(" skipped |", file);
    else if (error > 0)
        fprintf(file, " pass %.2g |", error);
    else
        fputs(" pass |", file);
}

static void put_text(FILE *file, const char *text)
{
    for (; *text; text++)
        if (*text == '|' || *text == '\n')
            putc(' ', file);
        else
            putc(*text, file);
}

static void put_runs(FILE *file, const json_t *reports)
{
    size_t i;
    const json_t *r;
    fputs("| run | device | version | checks | passed | failed | skipped | seconds |\n|---|---|---|---|---|---|---|---|\n", file);
    json_array_foreach(reports, i, r) {
        fprintf(file, "| %s %s | ", word(r, "device"), word(r, "level"));
        put_text(file, word(r, "description"));
        fprintf(file, " | %s | %d | %d | %d | %d | %.0f |\n", word(r, "version"), number(r, "checks"), number(r, "passed"),
                number(r, "failed"), number(r, "skipped"), json_number_value(json_object_get(r, "seconds")));
    }
}

/* Whether one of the reports before `before` has that group, so that its row stands already. */
static bool is_listed(const json_t *reports, size_t before, const json_t *group)
{
    for (size_t i = 0; i < before; i++)
        if (report_same_group(json_array_get(reports, i), group))
            return true;
    return false;
}

static void put_row(FILE *file, const json_t *reports, const json_t *g)
{
    size_t i;
    const json_t *column;
    bool op = !strcmp(word(g, "stage"), "ops");
    fprintf(file, "| %s%s", op ? "" : word(g, "stage"), op ? "" : ": ");
    put_text(file, word(g, "group"));
    fprintf(file, " | %d |", number(g, "cases"));
    json_array_foreach(reports, i, column)
        put_cell(file, report_same_group(column, g));
    putc('\n', file);
}

/* The rows of a stage, those of the first report first. */
static void put_stage(FILE *file, const json_t *reports, const char *stage)
{
    size_t i, k;
    const json_t *r, *g;
    json_array_foreach(reports, i, r)
        json_array_foreach(json_object_get(r, "groups"), k, g)
            if (!strcmp(word(g, "stage"), stage) && !is_listed(reports, i, g))
                put_row(file, reports, g);
}

void report_markdown(FILE *file, const json_t *reports)
{
    size_t i;
    const json_t *r;
    put_runs(file, reports);
    fputs("\n| | cases |", file);
    json_array_foreach(reports, i, r)
        fprintf(file, " %s %s |", word(r, "device"), word(r, "level"));
    fputs("\n|---|---|", file);
    for (i = 0; i < json_array_size(reports); i++)
        fputs("---|", file);
    putc('\n', file);
    for (int stage = 0; stage < TERN_CONFORMANCE_STAGES; stage++)
        put_stage(file, reports, tern_conformance_stage_name((enum tern_conformance_stage)stage));
}

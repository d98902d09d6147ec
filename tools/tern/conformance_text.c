/* The report of tern conformance for people: a line an op, and every failure with where and how. */
#include <math.h>
#include <string.h>

#include "conformance_report.h"

int report_group_end(const struct conformance_report *r, int i)
{
    const struct tern_conformance_check *c = &r->rows[i].check;
    int end = i;
    while (end < r->count && r->rows[end].check.stage == c->stage && !strcmp(r->rows[end].check.group, c->group))
        end++;
    return end;
}

int report_way_end(const struct conformance_report *r, int i)
{
    int group = report_group_end(r, i), end = i;
    while (end < group && !strcmp(r->rows[end].check.way, r->rows[i].check.way))
        end++;
    return end;
}

struct tally report_tally(const struct conformance_report *r, int from, int to)
{
    struct tally t = {.cases = from < to ? report_way_end(r, from) - from : 0};
    for (int i = from; i < to; i++) {
        const struct tern_conformance_outcome *o = &r->rows[i].outcome;
        t.passed += o->result == TERN_CONFORMANCE_PASSED;
        t.failed += o->result == TERN_CONFORMANCE_FAILED;
        t.skipped += o->result == TERN_CONFORMANCE_SKIPPED;
        t.error = fmax(t.error, o->error);
        t.seconds += o->seconds;
    }
    return t;
}

const char *report_group_name(const struct tern_conformance_check *c, char out[GROUP_TEXT])
{
    if (c->stage == TERN_CONFORMANCE_OPS)
        snprintf(out, GROUP_TEXT, "%s", c->group);
    else
        snprintf(out, GROUP_TEXT, "%s: %s", tern_conformance_stage_name(c->stage), c->group);
    return out;
}

void report_print_head(const struct conformance_report *r)
{
    printf("%s%s%s: %s\n\n", r->facts.device, *r->facts.level ? " " : "", r->facts.level, r->facts.description);
    printf("%-20s %6s %7s %7s %8s %6s  %s\n", "", "cases", "passed", "failed", "skipped", "worst", "skipped by");
}

static void print_check(const struct check_row *row)
{
    static const char *const words[] = {"passed", "FAILED", "skipped"};
    const struct tern_conformance_outcome *o = &row->outcome;
    printf("  %s %s by %s", words[o->result], row->check.name, row->check.way);
    if (o->result == TERN_CONFORMANCE_PASSED)
        printf(", %.2g of the limit\n", o->error);
    else
        printf(": %s\n", o->message);
}

/* "conv2d_f32_igemm 12, conv2d_f32_winograd all" */
static void print_skipped(const struct conformance_report *r, int from, int to)
{
    const char *between = "  ";
    for (int i = from; i < to; i = report_way_end(r, i)) {
        struct tally t = report_tally(r, i, report_way_end(r, i));
        if (!t.skipped)
            continue;
        printf("%s%s ", between, r->rows[i].check.way);
        if (t.skipped == t.cases)
            printf("all");
        else
            printf("%d", t.skipped);
        between = ", ";
    }
}

void report_print_group(const struct conformance_report *r, int from, int to, bool verbose)
{
    char name[GROUP_TEXT];
    const struct tern_conformance_check *c = &r->rows[from].check;
    struct tally t = report_tally(r, from, to);
    printf("%-20s %6d %7d %7d %8d ", report_group_name(c, name), t.cases, t.passed, t.failed, t.skipped);
    if (t.passed + t.failed)
        printf("%6.2g", t.error);
    else
        printf("%6s", "");
    print_skipped(r, from, to);
    putchar('\n');
    for (int i = from; i < to; i++) /* beside ops whatever is skipped has a reason of its own */
        if (verbose || r->rows[i].outcome.result == TERN_CONFORMANCE_FAILED ||
            (r->rows[i].outcome.result == TERN_CONFORMANCE_SKIPPED && c->stage != TERN_CONFORMANCE_OPS && to - from <= 2))
            print_check(&r->rows[i]);
}

void report_print_sum(const struct conformance_report *r)
{
    struct tally t = report_tally(r, 0, r->count);
    printf("\n%d checks of %s%s%s: %d passed, %d failed, %d skipped, in %.1f s\n", r->count, r->facts.device, *r->facts.level ? " " : "",
           r->facts.level, t.passed, t.failed, t.skipped, r->seconds);
}

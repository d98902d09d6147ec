/* What a run of `tern conformance` found, and the ways to tell it. */
#ifndef TERN_TOOL_CONFORMANCE_REPORT_H
#define TERN_TOOL_CONFORMANCE_REPORT_H

#include <jansson.h>
#include <stdio.h>
#include <tern/conformance.h>

struct check_row {
    struct tern_conformance_check check;
    struct tern_conformance_outcome outcome; /* its message is owned: free() */
};

struct conformance_report {
    struct tern_conformance_facts facts;
    const char *only; /* the kernel, op or stages that were asked for; NULL: all */
    struct check_row *rows;
    int count;
    double seconds;
};

/* Of neighbouring rows. */
struct tally {
    int cases; /* of the way that comes first */
    int passed, failed, skipped;
    double error; /* the largest share of a limit */
    double seconds;
};
/* The end of the rows that have row i's stage and group (and way). */
int report_group_end(const struct conformance_report *r, int i);
int report_way_end(const struct conformance_report *r, int i);
struct tally report_tally(const struct conformance_report *r, int from, int to);
/* "conv2d", "models: sd1" */
#define GROUP_TEXT 64
const char *report_group_name(const struct tern_conformance_check *c, char out[GROUP_TEXT]);

/* Text: the heading, a group's line with its failures, the last line. */
void report_print_head(const struct conformance_report *r);
void report_print_group(const struct conformance_report *r, int from, int to, bool verbose);
void report_print_sum(const struct conformance_report *r);

/* The whole as JSON, NULL without memory; as JUnit's XML. */
json_t *report_json(const struct conformance_report *r);
void report_junit(FILE *file, const struct conformance_report *r);

/* Reads a report that was written before: NULL after a message. */
json_t *report_read(const char *path);
/* Reports of one device, level and version that have no group in common are parts of one run: of a list of report_json a new one in which
 * they are joined, where the first of them stands. NULL without memory. */
json_t *report_join(const json_t *reports);
/* The group of a report that has this one's stage and name; NULL when it was not run. */
const json_t *report_same_group(const json_t *report, const json_t *like);
/* A table of ops and runs: each of the list is a report_json. */
void report_markdown(FILE *file, const json_t *reports);

#endif

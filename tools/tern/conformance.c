/* tern conformance: runs every check of a device, tells what failed, and writes reports. */
#include "conformance_report.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "command.h"

enum { OPT_STAGE = OPT_OWN, OPT_OP, OPT_LEVEL, OPT_LIMITS, OPT_KERNEL, OPT_JSON_FILE, OPT_JUNIT, OPT_MARKDOWN, OPT_ADD };
#define MOST_ADDED 32

struct settings {
    struct run_settings run;
    const char *stages, *op, *level, *limits, *kernel, *json, *junit, *markdown;
    json_t *added; /* reports of other runs */
};

static const struct opt opts[] = {
    {OPT_STAGE, 0, "stage", "LIST", "only these stages: ops, graphs, models or pictures, or some of them with\ncommas between"},
    {OPT_OP, 0, "op", "OP", "only the checks of that op"},
    {OPT_KERNEL, 0, "kernel", "KERNEL",
     "only the checks of single ops by that kernel, or by chosen, constant,\nreference or reference_strides"},
    {OPT_LEVEL, 0, "level", "LEVEL",
     "of the CPU's kernels: scalar, avx2, avxvnni, avx512, avx512vnni,\navx512bf16 or amx; on Arm scalar, neon, neondot or neonbf16\n"
     "(default: the highest that the processor has)"},
    {OPT_LIMITS, 0, "limits", "LIST",
     "lowered limits of a GPU, so that it stands for a weaker "
     "one:\ngroup=64,shared=16K,buffer=32M,storage16=no,storage8=no,subgroups=no,matrix=no,dot=no;\nalso host=1K, of Vulkan flops=1M"},
    {OPT_JSON_FILE, 0, "json", "FILE", "the report for programs"},
    {OPT_JUNIT, 0, "junit", "FILE", "the report as JUnit's XML, a test case for each check"},
    {OPT_MARKDOWN, 0, "markdown", "FILE", "the report as a table of ops and devices"},
    {OPT_ADD, 0, "add", "FILE",
     "a JSON report of another run: one more column of --markdown, as\noften as needed; parts of one device's run become one column"},
    {0},
};

static const struct opt own_talk_opts[] = {
    {OPT_QUIET, 'q', "quiet", NULL, "no progress; failures and the sum only"},
    {OPT_VERBOSE, 'v', "verbose", NULL, "a line for each check, and the library's informative messages"},
    {0},
};

static int add_report(struct settings *s, const char *path)
{
    if (!s->added)
        s->added = json_array();
    if (json_array_size(s->added) >= MOST_ADDED)
        return usage("option --add: at most %d reports", MOST_ADDED);
    json_t *report = report_read(path);
    if (!report)
        return FAILED;
    return json_array_append_new(s->added, report) ? failed("out of memory") : GO_ON;
}

static int apply(const struct opt *opt, const char *value, void *settings)
{
    static const char *const levels[] = {"scalar", "avx2", "avxvnni", "avx512",   "avx512vnni", "avx512bf16",
                                         "amx",    "neon", "neondot", "neonbf16", NULL};
    struct settings *s = settings;
    int choice;
    switch (opt->id) {
    case OPT_STAGE:
        s->stages = value;
        return GO_ON;
    case OPT_OP:
        s->op = value;
        return GO_ON;
    case OPT_KERNEL:
        s->kernel = value;
        return GO_ON;
    case OPT_LEVEL:
        s->level = value;
        return value_choice(opt, value, levels, &choice);
    case OPT_LIMITS:
        s->limits = value;
        return GO_ON;
    case OPT_JSON_FILE:
        s->json = value;
        return GO_ON;
    case OPT_JUNIT:
        s->junit = value;
        return GO_ON;
    case OPT_MARKDOWN:
        s->markdown = value;
        return GO_ON;
    case OPT_ADD:
        return add_report(s, value);
    default:
        return run_apply(opt, value, &s->run);
    }
}

/* Options that contradict each other, and files that cannot be written: before anything is run. */
static int check(const struct settings *s)
{
    const char *const paths[] = {s->json, s->junit, s->markdown};
    if (s->level && s->run.device && strcmp(s->run.device, "cpu") && strcmp(s->run.device, "cpu:0"))
        return usage("option --level: is of the CPU's kernels, not of device %s", s->run.device);
    if (s->limits && (!s->run.device || !strncmp(s->run.device, "cpu", 3)))
        return usage("option --limits: is of a GPU; the CPU has --level");
    if (s->added && !s->markdown)
        return usage("option --add: is for --markdown, which is missing");
    return output_check_all(paths, 3);
}

static void show_progress(const struct conformance_report *r, int i, double stage_began)
{
    enum tern_conformance_stage stage = r->rows[i].check.stage;
    int first = i, end = i;
    while (first > 0 && r->rows[first - 1].check.stage == stage)
        first--;
    while (end < r->count && r->rows[end].check.stage == stage)
        end++;
    const struct tern_progress p = {tern_conformance_stage_name(stage), i + 1 - first, end - first, now() - stage_began};
    progress_show(&p, NULL);
}

/* Runs all checks; a group's line is printed when its last check is done. */
static int run_checks(struct tern_context *ctx, struct tern_conformance *suite, struct conformance_report *r, const struct settings *s)
{
    double began = now(), stage_began = began;
    int group = 0;
    for (int i = 0; i < r->count; i++) {
        struct check_row *row = &r->rows[i];
        if (i && row->check.stage != row[-1].check.stage)
            stage_began = now();
        if (tern_conformance_run(suite, i, &row->outcome))
            return library_failed(ctx, false);
        row->outcome.message = strdup(row->outcome.message);
        if (!row->outcome.message)
            return failed("out of memory");
        show_progress(r, i, stage_began);
        if (i + 1 < report_group_end(r, group))
            continue;
        if (!s->run.quiet || report_tally(r, group, i + 1).failed) {
            progress_clear();
            report_print_group(r, group, i + 1, s->run.verbose);
            output_flush();
        }
        group = i + 1;
    }
    r->seconds = now() - began;
    return GO_ON;
}

static void fill_json(FILE *file, const void *text) { fprintf(file, "%s\n", (const char *)text); }
static void fill_junit(FILE *file, const void *report) { report_junit(file, report); }
static void fill_markdown(FILE *file, const void *reports) { report_markdown(file, reports); }

static int write_reports(const struct conformance_report *r, const struct settings *s)
{
    json_t *report = report_json(r), *all = json_array(), *joined = NULL;
    char *text = report ? json_dumps(report, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL;
    int code = GO_ON;
    if (!text || !all || json_array_extend(all, s->added ? s->added : all) || json_array_append(all, report) ||
        !(joined = report_join(all)))
        code = failed("out of memory");
    if (code == GO_ON && s->json)
        code = output_write(s->json, fill_json, text);
    if (code == GO_ON && s->junit)
        code = output_write(s->junit, fill_junit, r);
    if (code == GO_ON && s->markdown)
        code = output_write(s->markdown, fill_markdown, joined);
    free(text);
    json_decref(report);
    json_decref(all);
    json_decref(joined);
    return code;
}

static int run_suite(struct tern_context *ctx, struct tern_conformance *suite, const struct settings *s)
{
    const char *only = s->kernel ? s->kernel : s->op ? s->op : s->stages;
    struct conformance_report r = {.facts = tern_conformance_facts(suite), .only = only};
    if (s->level && strcmp(s->level, r.facts.level) != 0)
        return failed("option --level: this build or this processor does not have %s; its highest is %s", s->level, r.facts.level);
    r.count = r.facts.checks;
    r.rows = calloc((size_t)r.count + 1, sizeof(*r.rows));
    int code = r.rows ? GO_ON : failed("out of memory");
    for (int i = 0; i < r.count && r.rows; i++) {
        r.rows[i].check = tern_conformance_get(suite, i);
        r.rows[i].outcome.message = NULL;
    }
    if (code == GO_ON && !s->run.quiet)
        report_print_head(&r);
    if (code == GO_ON)
        code = run_checks(ctx, suite, &r, s);
    progress_clear();
    if (code == GO_ON)
        code = write_reports(&r, s);
    if (code == GO_ON) {
        report_print_sum(&r);
        code = report_tally(&r, 0, r.count).failed ? FAILED : DONE;
    }
    for (int i = 0; i < r.count && r.rows; i++)
        free((char *)(uintptr_t)r.rows[i].outcome.message);
    free(r.rows);
    return code;
}

static int run_with(struct settings *s)
{
    int code = check(s);
    if (code != GO_ON)
        return code;
    if (s->level && setenv("TERN_CPU_LEVEL", s->level, 1))
        return failed("out of memory");
    if (s->limits && setenv("TERN_GPU_LIMITS", s->limits, 1))
        return failed("out of memory");
    interrupt_catch();
    struct tern_context *ctx = run_open(&s->run, &code);
    if (!ctx)
        return code;
    struct tern_conformance *suite = tern_conformance_create(
        ctx, &(struct tern_conformance_params){.device = s->run.device, .stages = s->stages, .op = s->op, .kernel = s->kernel});
    code = suite ? run_suite(ctx, suite, s) : library_failed(ctx, s->stages || s->op || s->kernel);
    tern_conformance_destroy(&suite);
    tern_context_destroy(&ctx);
    return code;
}

static int run(const struct command *command, int argc, char **argv)
{
    struct settings s = {.run = {.json = false}};
    char **arguments;
    int count, code = options_parse(command, argc, argv, &s, &arguments, &count);
    if (code == GO_ON)
        code = run_with(&s);
    json_decref(s.added);
    return code;
}

const struct command conformance_command = {
    .name = "conformance",
    .arguments = "",
    .summary = "Checks that a device computes what tern says.",
    .opts = {opts, run_opts, own_talk_opts},
    .notes = "Single ops by every kernel, random graphs, small models, the demo model's pictures. Exit code 0: all\n"
             "passed or were skipped with a reason, 1: something failed.\n",
    .apply = apply,
    .run = run,
};

/* Running the command tern in tests: exit code, standard output and standard error. $TERN_TOOL is the program; every test
 * has a new, empty working folder. */
#ifndef TERN_TESTS_CLI_H
#define TERN_TESTS_CLI_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#define MODEL TERN_TEST_DATA "/models/sd1" /* small, with random weights */

struct state {
    const char *tool;
    char folder[64];
    char out[1 << 20], err[65536]; /* of the last run */
    rlim_t file_limit;             /* for the next run: a disk with so much room for a file; 0: no limit */
    rlim_t space_limit;            /* for the next run: bytes of addresses; 0: no limit */
};

int cli_setup(void **state);
int cli_teardown(void **state);
int cli_new_folder(void **state);
int cli_remove_folder(void **state);
#define TEST(f) cmocka_unit_test_setup_teardown(f, cli_new_folder, cli_remove_folder)

/* Starts tern with the arguments, which end with NULL. */
pid_t cli_start(struct state *s, const char *const *args);
/* The exit code; for a process that a signal ended, 1000 and the signal. */
int cli_finish(struct state *s, pid_t pid);
#define RUN(s, ...) cli_finish(s, cli_start(s, (const char *const[]){__VA_ARGS__, NULL}))
/* Runs words separated by blanks; "_" stands for an empty word. */
int cli_run_line(struct state *s, const char *line);

#define EXPECT(s, run, code)                                                                            \
    do {                                                                                                \
        int code_ = (run);                                                                              \
        if (code_ != (code))                                                                            \
            fail_msg("%s: exit code %d, expected %d; standard error: %s", #run, code_, code, (s)->err); \
    } while (0)

void expect_text(const char *text, const char *part, const char *where);

/* Number of entries of a folder. */
int files(const char *folder);
void write_file(const char *path, const void *data, size_t size);
/* 0 when there is none. */
size_t file_size(const char *path);
bool same_bytes(const char *a, const char *b);
bool has_text(const char *path, const char *part);
void slurp(const char *path, char *out, size_t size);

int cli_input_tests(void);       /* cli_input.c */
int cli_job_tests(void);         /* cli_jobs.c */
int cli_graph_tests(void);       /* cli_graph.c */
int cli_conformance_tests(void); /* cli_conformance.c */
int cli_bench_tests(void);       /* cli_bench.c */
int cli_prompt_tests(void);      /* cli_prompts.c */
int cli_from_tests(void);        /* cli_from.c */
int cli_quantize_tests(void);    /* cli_quantize.c */
int cli_output_tests(void);      /* cli_outputs.c */

#endif

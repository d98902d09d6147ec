/* Runs calls of ops by their kernel texts: launches are made, expanded, and given to an executor (host C, OpenCL, a compiler). */
#ifndef TERN_TESTS_TEXT_RUN_H
#define TERN_TESTS_TEXT_RUN_H

#include "ops/kernels/launch.h"
#include "ops/kernels/text.h"
#include "tests/text_host.h"

struct text_executor {
    const char *name;
    enum tern_text_language language;
    struct tern_launch_limits limits;
    /* Compiles (or finds) and runs one launch; buffers as in the slots. False with the reason in message. */
    bool (*run)(void *user, const char *source, const struct tern_launch *l, const struct text_buffer *buffers, char *message, size_t size);
    void *user;
    /* Of the element-wise, copy and reduce texts: so many variants, chosen by their macros, count as one, but each op has one; 0: all run */
    int one_in;
    bool only_compiles; /* the results are the reference's */
    /* A case of the table has its output as it comes, or with the dimensions in reverse, in turns; else both. And what is for matrix units
     * runs only with these. */
    bool one_order;
    int launches;                  /* so far, of the table or of the other calls */
    uint64_t first[TERN_OP_COUNT]; /* with one_in: the variant that an op has in any case */
};

/* A tern_case_runner: user is a struct text_executor. */
bool text_run_call(const struct tern_kernel_args *a, void *user, char *message, size_t size);

/* Limits of a device that has everything; and of one that has the least (no small types stored, 16 KiB, groups of 64). */
struct tern_launch_limits text_limits_full(void);
struct tern_launch_limits text_limits_least(void);
/* The first with subgroups of that many items. */
struct tern_launch_limits text_limits_subgroups(int size);
/* Of one that has everything, and matrix units. */
struct tern_launch_limits text_limits_matrix(void);

/* Kernels by their source, so that each is made once. */
struct text_cache {
    int n, capacity;
    struct text_cache_entry {
        uint64_t hash;
        char *source;
        void *kernel;
    } * entries;
};
/* NULL: not there. */
void *text_cache_find(const struct text_cache *c, const char *source);
bool text_cache_add(struct text_cache *c, const char *source, void *kernel);
void text_cache_clear(struct text_cache *c, void (*destroy)(void *kernel));

/* Every case of the op table by the executor: counts, and prints at most 20 failures. */
struct text_counts {
    int passed, skipped, failed, launches;
    int op_launches[TERN_OP_COUNT];
};
struct text_counts text_run_table(struct text_executor *e);
/* The calls of text_more.c, which reach variants that the table's small shapes do not, against the references. */
struct text_counts text_run_more(struct text_executor *e);
/* Both: none fails, and something is launched. */
void text_run_all(struct text_executor *e);

#endif

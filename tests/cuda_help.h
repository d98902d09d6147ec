/* What the tests of the CUDA backend share: the stand-in driver and compiler, which the environment names, and small jobs. */
#ifndef TERN_TESTS_CUDA_HELP_H
#define TERN_TESTS_CUDA_HELP_H

#include <tern/ops.h>

#include "tests/cuda/standin.h"

/* The stand-ins' own functions, by their names without "standin_". */
struct cuda_standin {
    void *driver, *compiler;
#define MEMBER(name) __typeof__(name) *name;
    STANDIN_FUNCTIONS(MEMBER)
    STANDIN_NVRTC_FUNCTIONS(MEMBER)
#undef MEMBER
};
extern struct cuda_standin cuda;
extern char cuda_cache[256]; /* a folder of this process */

/* Of a group: opens the stand-ins and makes the folder. Without them every test is skipped. */
int cuda_group_setup(void **state);
int cuda_group_teardown(void **state);
/* Of a test: the stand-in as it was when it was new; afterwards there may be no misuse, and nothing may be left. */
int cuda_setup(void **state);
int cuda_teardown(void **state);
#define CUDA_TEST(f) cmocka_unit_test_setup_teardown(f, cuda_setup, cuda_teardown)

/* NULL, and the reason in tern_create_error, where there is no such device. */
struct tern_context *cuda_context(const char *device);
/* The same; the test ends when it fails. */
struct tern_context *cuda_open(void);
struct standin_counts cuda_counts(void);
struct standin_facts cuda_facts(void);

/* Half of exp(x) + 1 for 1000 values through the device: true when it is right; false with the error recorded. */
bool cuda_small_job(struct tern_context *ctx);

/* The test fails, with both texts, when the part is not in it. */
void cuda_assert_text(const char *text, const char *part);

#endif

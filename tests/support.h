/* What several test programs need: a context, golden files, comparisons. Failures end the running test. */
#ifndef TERN_TESTS_SUPPORT_H
#define TERN_TESTS_SUPPORT_H

#include <jansson.h>
#include <tern/context.h>
#include <tern/weights.h>

/* A CPU context with one thread. */
struct tern_context *support_context(void);

/* setup and teardown of a group whose state is a context; the teardown fails when memory is left. */
int support_setup(void **state);
int support_teardown(void **state);

/* tests/data/<name>; json_decref. */
json_t *support_json(const char *name);
/* tests/data/<name>.safetensors */
struct tern_weights *support_tensors(struct tern_context *ctx, const char *name);
/* A copy of a tensor as f32, and its number of values; free(). */
float *support_f32(const struct tern_weights *w, const char *name, int64_t *n);

/* Unit noise times `scale`, of the seed. */
tern_tensor *support_noise(struct tern_context *ctx, uint64_t seed, int ndim, const int64_t *shape, double scale, enum tern_dtype dtype);
/* Its values as f32, and their number; free(). */
float *support_values(const tern_tensor *t, int64_t *n);
/* All conformance checks of single ops by that kernel: how many passed; none fails. */
int support_conformance(struct tern_context *ctx, const char *device, const char *kernel);

/* sum (a - b)^2 / sum b^2; NaN counts as infinite. */
double support_nmse(const float *a, const float *b, int64_t n);
/* The same of two tensors with as many values. */
double support_tensor_nmse(const tern_tensor *a, const tern_tensor *b);

/* From here on the program's locale has that point, such as "," of German; "." is the usual one. A folder for what that needs: where it
 * cannot be, the test is skipped. */
void support_point(const char *folder, const char *point);

/* A context whose allocations the guard watches; never NULL. */
struct tern_guard;
struct tern_context *support_guarded(struct tern_guard *guard, int threads);

/* Fails unless an error of that status is recorded whose message holds `part`; clears it. */
void support_error(struct tern_context *ctx, enum tern_status status, const char *part);

/* KiB of the pages that the process holds of what is mapped there, from its begin on; -1: nothing is. */
long support_resident(const void *mapping);

/* A sanitizer of addresses or threads is there. */
bool support_is_watched(void);
/* Skips, and says why, where address space cannot be limited: a sanitizer needs its own. */
void support_skip_watched(void);
/* The process gets so many bytes of address space more than it has; false when that cannot be. For a child. */
bool support_leave_space(size_t more);

/* An allocator whose allocation number `fail_at` (from 1; 0: none) fails, and every later one, too. */
struct support_allocator {
    long count, fail_at, live;
};
struct tern_allocator support_failing(struct support_allocator *state);

/* One with which another thread records an error, "of another thread", in that context while allocation number `at` is made. */
struct support_other {
    struct tern_context *ctx;
    enum tern_status status;
    long count, at; /* from 1; 0: none */
};
struct tern_allocator support_other_thread(struct support_other *state);
/* Records it from this thread. */
void support_other_record(const struct support_other *state);

#endif

/* What the tests of backends for GPUs share. Failures end the running test. */
#ifndef TERN_TESTS_GPU_HELP_H
#define TERN_TESTS_GPU_HELP_H

#include <tern/tern.h>

/* A context of one thread. The running test is skipped, with the reason, where there is no such device. */
struct tern_context *gpu_open(const char *device);

/* One in so many checks of single ops from the first on, by the kernel that is chosen: how many passed. */
int gpu_ops_agree(struct tern_context *ctx, const char *device, int first, int one_in);

/* Sines and cosines of numbers of all sizes against the host's in double: within 3e-7, NaN where those are. */
void gpu_sines_agree(struct tern_context *ctx);
/* Quotients that int8 rests on, rounded to nearest as the host does. */
void gpu_quotients_agree(struct tern_context *ctx);

/* A small picture by the demo model, in two steps. */
struct tern_image *gpu_paint(struct tern_context *ctx, const char *prompt);
/* Values of two pictures differ by at most 1. */
void gpu_compare(const struct tern_image *a, const struct tern_image *b);
/* Pictures of two prompts are the CPU's. */
void gpu_pictures_agree(struct tern_context *ctx);

/* What a plan of a convolution, a norm and a product gives on a device, three runs of it; in the last nothing is allocated. `watch`, which
 * may be NULL, is told before and after each run. */
#define GPU_PLAN_VALUES (4 * 6 * 5)
void gpu_run_plan(struct tern_context *ctx, float *values, void (*watch)(int run, bool over));
/* They are the CPU's. */
void gpu_plan_agrees(struct tern_context *ctx, void (*watch)(int run, bool over));

/* Damages every so manieth file that matches: changes a byte, or leaves but one. How many. */
int gpu_damage_files(const char *pattern, int every, bool cut);
/* A log callback: counts warnings that something is made again. */
extern int gpu_warnings;
void gpu_count_warnings(enum tern_log_level level, const char *text, void *user);
/* Another context finds all kernels in the cache folder `cache`/`device`. Damaged ones are built again. */
void gpu_cache_is_checked(const char *device, const char *cache);

/* Weights that do not fit the share leave for a tensor and come back; each computes what it did. */
void gpu_weights_move(const char *device, const char *cache);

/* exp(0) through the device, from the context (NULL: false) to a value that the host reads; false with an error. */
bool gpu_compute(struct tern_context *ctx);
/* Every allocation of the library fails once, from opening the device to the result: a status, no leak. `check` (or NULL) is called
 * after each. How many faults there were. */
int gpu_allocations_fail(const char *device, const char *cache, void (*check)(void));
/* A new folder for a test's cache, tern-test-NAME-… under /tmp, and away with it: 0, or not where that fails. */
#define GPU_FOLDER 256
int gpu_make_folder(char folder[GPU_FOLDER], const char *name);
int gpu_remove_folder(const char *folder);
/* The stand-in of a loader that the environment's `told` names, by its function `get`; the library takes it for the loader from now on, by
 * the variable `read`. NULL: none is told. */
void *gpu_open_standin(const char *told, const char *get, const char *read);
/* A driver's largest allocation holds what is put behind a buffer, too: plans make buffers as large as the device says. */
void gpu_largest_buffer_is_made(struct tern_context *ctx, size_t allocation);
/* A device that is not there and a budget that is too small are told. */
void gpu_wrong_use_is_refused(const char *device, const char *cache);

#endif

/* What the tests of a GPU's memory share: a device that the command line names, with little memory, and a network that does not fit it.
 * Failures end the running test. */
#ifndef TERN_TESTS_ROOM_HELP_H
#define TERN_TESTS_ROOM_HELP_H

#include "backends/gpu/gpu.h"
#include "graph/plan.h"
#include "models/pipelines/pipeline.h"

#define ROOM_SIDE 64 /* of the picture */
#define ROOM_VALUES (4 * ROOM_SIDE / 8 * ROOM_SIDE / 8)

extern const char *room_device; /* set by main */
bool room_is(const char *device);
extern char room_cache[64]; /* a folder for the group's tests */
extern const struct tern_graph_size room_size;
extern char room_told[512]; /* the last message that something does not fit, or the last error of a test; how many messages there were */
extern int room_times_told;
void room_log(enum tern_log_level level, const char *text, void *user);

/* A context with that share of the device's memory (0: the default) and TERN_GPU_LIMITS or NULL. The second: skipped, with the reason,
 * where there is no such device. */
struct tern_context *room_try_open(size_t budget, const char *limits, const struct tern_allocator *allocator);
struct tern_context *room_open(size_t budget, const char *limits);
struct tern_gpu_memory *room_memory(struct tern_context *ctx);

struct room_unet {
    struct tern_pipeline *p;
    struct tern_binding *b;
    size_t weights, arena; /* bytes */
};
struct room_unet room_open_unet(struct tern_context *ctx);
void room_close_unet(struct room_unet *u);

/* Sums of all weights, on the device and on the host. */
void room_count_weights(struct tern_context *ctx, size_t at[2]);
/* All that lies in the host's memory is weights; the arena is on the device, and all sums are right. */
void room_check_places(struct tern_context *ctx, const struct room_unet *u);

/* With room for all: what the others are compared with, computed once. */
extern float room_expected[ROOM_VALUES];
extern size_t room_all_weights, room_arena;
void room_compute_expected(void);
/* The budget that leaves a part of the weights on the device. */
size_t room_budget(int percent);
void room_expect_bits(const struct room_unet *u);

int room_setup(void **state);
int room_teardown(void **state);
int room_group_setup(void **state);
int room_group_teardown(void **state);
#define ROOM_CASE(f) cmocka_unit_test_setup_teardown(f, room_setup, room_teardown)

#endif

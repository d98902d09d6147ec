/* What the tests of plans on disk share: random graphs with their plans, files as bytes. Failures end the running test. */
#ifndef TERN_TESTS_PLAN_HELP_H
#define TERN_TESTS_PLAN_HELP_H

#include "conformance/random_graph.h"
#include "graph/plan.h"

/* A random graph, its plan and inputs. Opens a scope. */
struct planned {
    struct tern_context *ctx;
    struct tern_random_graph r;
    struct tern_graph *graph;
    struct tern_plan *plan;
    tern_tensor *in[4];
};
struct planned plan_open(struct tern_context *ctx, uint64_t seed, const char *without);
void plan_close(struct planned *p);
/* The values that a plan of the same graph computes, one behind the other; free(). */
float *plan_values(struct planned *p, struct tern_plan *plan, int64_t *n);

/* A plan of x (1, 4, 3, 3) with a view, a reference, a prepared node and a folded constant, of two outputs; r: of any seed. */
struct tern_plan *plan_two(struct tern_context *ctx, struct tern_random_graph *r);
/* Its node of that op. */
struct tern_node *plan_node(struct tern_plan *p, enum tern_op op);
/* Strides of the two first dimensions of a result, wherever its meta stands. */
void plan_set_strides(struct tern_plan *p, struct tern_node *n, int64_t first, int64_t second);

/* A path in an own folder, which plan_folder_close removes with that file; it fails when more is there. */
struct plan_folder {
    char folder[64], path[80];
};
struct plan_folder plan_folder_open(void);
int plan_folder_count(const struct plan_folder *f);
void plan_folder_close(struct plan_folder *f);

/* free() */
uint8_t *plan_bytes(const char *path, size_t *size);
void plan_write(const char *path, const uint8_t *data, size_t size);
/* Sets the CRC at the end to that of what is before. */
void plan_seal(uint8_t *data, size_t size);
/* The saved plan of a random graph; free(). */
uint8_t *plan_saved(struct tern_context *ctx, uint64_t seed, size_t *size);

#endif

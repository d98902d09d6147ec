/* The graph: values and the nodes that make them, in an order in which they can run. Recorded by record.c, rewritten by
 * passes/, turned into a plan by compile.c. */
#ifndef TERN_GRAPH_GRAPH_H
#define TERN_GRAPH_GRAPH_H

#include <tern/graph.h>

#include "ops/dispatch.h"

enum tern_value_kind {
    TERN_VALUE_INPUT,    /* given at every run */
    TERN_VALUE_WEIGHT,   /* a slot of the weight set, by name */
    TERN_VALUE_CONSTANT, /* a tensor that belongs to the graph */
    TERN_VALUE_RESULT    /* of a node */
};

struct tern_value {
    enum tern_value_kind kind;
    struct tern_meta meta;
    char *name;          /* input, weight; else NULL */
    tern_tensor *tensor; /* constant: its values; weight: the one of the trace, NULL when it need not be held; owned */
    int node;            /* result: who makes it; -1 */
    int uses;            /* by nodes and outputs; tern_graph_count_uses */
    int whole;           /* the result of a join in whose memory it lies, `whole_offset` elements behind the start; -1 */
    int64_t whole_offset;
    int wide; /* of a cast to f32: the value that was rounded before for lack of kernels for its dtype; -1 */
};

struct tern_node {
    enum tern_call_kind kind;
    bool dead;                        /* removed; skipped by everything */
    bool prepare;                     /* depends on weights and constants alone: runs once for each binding */
    const struct tern_kernel *tuned;  /* what was measured as the fastest; NULL: nothing was. By the pass "tune" */
    const struct tern_kernel *kernel; /* what the pass "algorithm" takes; NULL: the cheapest for an eager call */
    int in[TERN_MAX_INPUTS];          /* values; -1: absent */
    int out;
    int64_t offset; /* view: elements from in[0] */
    struct tern_op_desc desc;
};

/* Not a view or a join. By reference what is too wide for kernels is, too, until passes have cut it. */
static inline bool tern_node_computes(const struct tern_node *n) { return n->kind == TERN_CALL_LAUNCH || n->kind == TERN_CALL_REFERENCE; }

struct tern_graph {
    struct tern_context *ctx;
    struct tern_device *device; /* that it was recorded for */
    struct tern_value *values;
    int n_values, value_capacity;
    struct tern_node *nodes;
    int n_nodes, node_capacity;
    int inputs[TERN_GRAPH_MAX_IO], n_inputs;
    int outputs[TERN_GRAPH_MAX_IO], n_outputs;
    bool warned; /* a pass has told something that every process is to be told: the plan is not kept on disk */
    bool done;   /* it is a plan's, after all passes: none of them records it anew */
};

struct tern_graph *tern_graph_create(struct tern_context *ctx);
/* Room in an empty graph for so many, and no more than that. False with the error recorded. */
bool tern_graph_reserve(struct tern_graph *g, int values, int nodes);
/* Memory of its tables. */
size_t tern_graph_bytes(const struct tern_graph *g);
struct tern_graph *tern_graph_copy(const struct tern_graph *g);
/* A copy for tern_plan_compile_owned and the like; NULL with the error recorded, if there is a graph. (compile.c) */
struct tern_graph *tern_graph_to_compile(const struct tern_graph *graph);

/* Index of a new value, -1 with the error recorded. `name` is copied, `tensor` referenced; both may be NULL. */
int tern_graph_add_value(struct tern_graph *g, enum tern_value_kind kind, const struct tern_meta *meta, const char *name,
                         tern_tensor *tensor);
/* Appends a node and its result; the result's value, -1 with the error recorded. */
int tern_graph_add_node(struct tern_graph *g, enum tern_call_kind kind, const struct tern_op_desc *d, const int *in, int64_t offset);
/* Whether there is a graph or plan, by its context (NULL: there is none), and a function that takes the report of it. False with the error
 * recorded where it can be. (text.c) */
bool tern_can_tell(struct tern_context *ctx, bool somebody);
/* constant.c */
/* A constant's memory from its first element to behind its last; elements between that are not its own read as 0. *copy: to be
 * freed by the caller. NULL with the error recorded. */
const void *tern_constant_bytes(struct tern_context *ctx, const tern_tensor *t, size_t *size, void **copy);
/* A tensor of those bytes, which the caller owns. NULL with the error recorded. */
tern_tensor *tern_constant_make(struct tern_context *ctx, const struct tern_meta *meta, bool constant, const void *data, size_t size);

/* Takes the dead nodes out. */
void tern_graph_compact(struct tern_graph *g);
/* Gives the room for more values and nodes back. On an error (recorded) the graph is as it was. */
void tern_graph_shrink(struct tern_graph *g);
/* Every use of value `from` becomes one of `to`; descriptions keep their metas, which must be equal. */
void tern_graph_replace(struct tern_graph *g, int from, int to);
void tern_graph_count_uses(struct tern_graph *g);
/* Frees names and constants that nothing uses, by the counts. Copies constants that somebody may write to, and small ones that the model
 * shares: a plan then takes the memory that it takes when it is read from a file. */
enum tern_status tern_graph_settle(struct tern_graph *g);
/* The value whose memory `value` lies in: itself, through views what they look at, or the whole that it is a part of. */
int tern_graph_root(const struct tern_graph *g, int value);
/* Whether the inputs of a cat can be made in their places of its result: each is a result with memory of its own, laid out as that
 * part of the whole is. (join.c) */
bool tern_join_fits(const struct tern_graph *g, const struct tern_node *n);
/* Makes it so: the node is a join from here on, and runs nothing. */
void tern_join_make(struct tern_graph *g, struct tern_node *n);

/* Whether every run of a binding finds the same there: a weight, a constant, or what is prepared from them. */
bool tern_graph_is_fixed(const struct tern_graph *g, int value);
/* Whether the value lies in the memory of an output, which every run has to write. */
bool tern_graph_is_output(const struct tern_graph *g, int value);

/* Records fn behind what is in the graph already: its outputs become the graph's. It gets no inputs: it finds the graph's values by
 * tern_graph_symbol. (record.c) */
enum tern_status tern_graph_extend(struct tern_graph *g, tern_graph_fn fn, void *user, int n_outputs);
/* Of the open scope; NULL with the error recorded. */
tern_tensor *tern_graph_symbol(const struct tern_graph *g, int value);

/* A rewrite. It may mark nodes dead and change them; it leaves the order valid. */
struct tern_pass {
    const char *name;
    enum tern_status (*run)(struct tern_graph *g, const struct tern_plan_params *params);
    int revision; /* raised when its results change for some graph: plans that were saved before are not found any more */
};
/* In the order in which they run; NULL-terminated. */
extern const struct tern_pass *const tern_passes[];
/* Whether `without` (as in tern_plan_params) leaves the pass out. */
bool tern_pass_is_out(const char *without, const char *pass);

#endif

/* The inside of plans and bindings. */
#ifndef TERN_GRAPH_PLAN_H
#define TERN_GRAPH_PLAN_H

#include <pthread.h>

#include "graph/graph.h"
#include "ops/key.h"

enum tern_place {
    TERN_PLACE_NONE,
    TERN_PLACE_ARENA,  /* of the run */
    TERN_PLACE_INPUT,  /* tensor number `index` of the caller */
    TERN_PLACE_OUTPUT, /* likewise */
    TERN_PLACE_BOUND   /* the binding's tensor of value `index` */
};

/* Where an operand lies: `offset` bytes behind the start of the place. */
struct tern_ref {
    enum tern_place place;
    int index;
    size_t offset;
};

struct tern_step {
    const struct tern_kernel *kernel; /* NULL: the op's reference */
    struct tern_ref in[TERN_MAX_INPUTS], out, workspace;
    struct tern_ref packed;                /* of an input that is packed at every run */
    struct tern_ref from[TERN_MAX_INPUTS]; /* of one that is copied to its place in the arena at every run: where it is bound */
    bool spills;      /* that form, or else the result, is made of a streamed weight, and kept in a file of all of them */
    size_t spilled;   /* where it lies there */
    int packed_index; /* of the binding's packed forms; -1: none */
    int ahead;        /* value of the weight that the next streamed step will read; -1: none, or not streamed */
    int node;
    const struct tern_op_desc *desc; /* the node's */
};

#define TERN_CAPTURED_IO 160 /* most inputs and outputs together of a plan whose launches are captured */

/* What a run reads and writes that another may not: equal keys mean that the launches are the same. */
struct tern_run_key {
    uint64_t binding;
    struct {
        uint64_t buffer;
        size_t offset;
    } at[TERN_CAPTURED_IO]; /* of inputs, then outputs */
};

/* The last run in some memory. */
struct tern_last_run {
    struct tern_run_key key;
    struct tern_capture *capture; /* the launches of such a run; NULL: there was but one, or the queue does not capture */
};

/* Memory of one run, kept for the next. */
struct tern_run_memory {
    struct tern_run_memory *next;
    struct tern_last_run own, guest; /* of the plan; of another that runs in its memory */
    struct tern_event *before;       /* the last streamed step of a run, on queues that write beside it; NULL: there was none */
    int n_arena;
    struct tern_buffer *arena[]; /* none when the plan needs none */
};

/* A piece of the arena, for reports. */
struct tern_plan_block {
    size_t size, offset;
    size_t at;       /* likewise, with the buffers one behind the other: for reports */
    int first, last; /* steps */
    int node;        /* whose result or scratch it is */
    bool scratch;    /* workspace or an input packed for one step */
};

struct tern_plan {
    int refs; /* atomic */
    struct tern_context *ctx;
    struct tern_device *device; /* of the graph */
    struct tern_graph *graph;   /* after all passes */
    struct tern_step *steps;
    int n_steps, n_packed;
    struct tern_plan_facts facts;
    size_t resident_limit; /* tern_plan_params.resident */
    uint64_t tuning;       /* tern_plan_tuned when it was compiled */
    struct tern_key key;   /* of the graph and the params that it was cached for; 0: it was not */
    bool tuning_cut;       /* there was no time to measure all that it would have taken */
    size_t window;         /* see tern_arena_limits */
    size_t *buffers;       /* sizes of the arena's buffers */
    int n_buffers;
    struct tern_plan_block *blocks;
    int n_blocks;
    pthread_mutex_t lock; /* of idle */
    struct tern_run_memory *idle;
    bool same_launches; /* every run launches the same kernels: nothing runs on the host, nothing is packed anew */
};

struct tern_binding {
    int refs;    /* atomic */
    uint64_t id; /* of all bindings that the context ever had */
    struct tern_plan *plan;
    struct tern_binding *beside; /* see tern_plan_bind_beside; NULL: none */
    tern_tensor **bound;         /* by value: weights, constants, results of prepare nodes; else NULL; owned */
    struct tern_arg *at;         /* by value of those: where kernels find them; the memory belongs to the tensors */
    struct tern_buffer **packed; /* by packed_index; belong to the tensors */
    struct tern_spill *spill;    /* spill.c; NULL: streamed weights are prepared at every run */
    bool in_order;               /* those that are copied to the device are copied in the queue's order */
};

/* spill.c: prepared forms of streamed weights in a file: packed ones, and results of steps on devices with memory of their own. Thread safe
 * but for create and destroy; no run fails because of the file. */
struct tern_spill *tern_spill_create(struct tern_plan *p, bool ahead); /* NULL with the error recorded */
/* What that takes, at most. */
size_t tern_spill_bytes(const struct tern_plan *p);
void tern_spill_destroy(struct tern_context *ctx, struct tern_spill **s);
/* A run begins. */
void tern_spill_begin(const struct tern_plan *p, struct tern_spill *s);
/* Bytes of the form that a step spills. */
size_t tern_step_spilled_size(struct tern_context *ctx, const struct tern_step *step);
/* Where the prepared form of a step lies mapped; false: it is not there. */
bool tern_spill_find(const struct tern_spill *s, const struct tern_step *step, int number, struct tern_arg *form);
/* The step has run with the form that was found: pages of the file may go. */
void tern_spill_leave(const struct tern_spill *s, struct tern_context *ctx, const struct tern_step *step, const struct tern_arg *form);
/* The form has been made, there, and may be written: the packed one, or the result. A status when the device could not read it. */
enum tern_status tern_spill_write(struct tern_spill *s, const struct tern_step *step, int number, const struct tern_kernel_args *a);

/* beside.c: two plans of parts of one model, of which one runs at a time. A binding beside another of the same weights takes what that one
 * has prepared, and runs in the memory of that one's runs when it is large enough. It keeps the other. `beside` NULL: tern_plan_bind. */
struct tern_binding *tern_plan_bind_beside(struct tern_plan *plan, const struct tern_weights *weights, struct tern_binding *beside);
/* Whether runs of the plan have room in the memory of runs of the other. */
bool tern_plan_fits_beside(const struct tern_plan *plan, const struct tern_plan *beside);
/* The value of `other` that is the same weight; -1: there is none, or it is no weight. */
int tern_plan_same_weight(const struct tern_plan *p, int value, const struct tern_plan *other);
/* By value: that of `other` which a prepare node makes of the same weights by the same ops; -1: there is none. tern_free. NULL with the
 * error recorded. */
int *tern_plan_same_prepared(const struct tern_plan *p, const struct tern_plan *other);
/* Whether a step of `other` keeps the packed form that this one keeps; `same`: of what prepare nodes make, too, unless it is NULL. */
bool tern_plan_same_packed(const struct tern_plan *p, const struct tern_step *s, const struct tern_plan *other, const int *same);

/* tern_plan_compile without the copy: the graph becomes the plan's, also on failure. */
struct tern_plan *tern_plan_compile_owned(struct tern_graph **graph, const struct tern_plan_params *params);

/* tern_plan_cached without the copy, likewise. */
struct tern_plan *tern_plan_cached_owned(struct tern_graph **graph, const struct tern_plan_params *params);
/* Lets go of all plans that the context keeps. */
void tern_plan_cache_drop(struct tern_context *ctx);
/* Whether the params name passes that there are. */
enum tern_status tern_plan_check(struct tern_context *ctx, const struct tern_plan_params *params);
/* Whether the suffixes of the words are known; field: where they came from, for the message. */
enum tern_status tern_quantize_check(struct tern_context *ctx, const char *field, const char *words);
/* The words; NULL when none of them names a layer, as when there are none. */
const char *tern_quantize_named(const char *words);
#define TERN_PLAN_CACHE 64 /* plans that a context keeps */

/* Told about every step of a run. */
struct tern_step_observer {
    void (*tell)(void *user, const struct tern_step_profile *step);
    void *user;
    struct tern_device_peak peak;
};
/* profile.c: `step` began and ended at these seconds since the run's start; for `bring` of them it had no weights yet. */
void tern_step_tell(const struct tern_step_observer *o, const struct tern_step *step, double begin, double bring, double end);

/* One run. */
struct tern_run {
    const struct tern_plan *plan;
    const struct tern_binding *binding;
    tern_tensor *const *inputs, *const *outputs;
    struct tern_run_memory *memory;
    struct tern_last_run *last;                /* of the memory */
    const struct tern_step_observer *observer; /* NULL: nobody is told */
    bool captured;                             /* the queue writes its launches down */
    const struct tern_event *free;             /* behind it the next streamed weight may be written; NULL: in the queue's order */
};
/* run_memory.c: idle memory of an earlier run of the binding's plan, or new one; NULL with the error recorded. To be given back. */
struct tern_run_memory *tern_run_memory_take(const struct tern_binding *b);
void tern_run_memory_give(struct tern_plan *p, struct tern_run_memory *m);
void tern_last_run_drop_capture(struct tern_last_run *l);
/* run_steps.c: launches every step. */
enum tern_status tern_run_steps(struct tern_run *r);
/* replay.c: the same, as one call of the queue where it has captured a run like this. */
enum tern_status tern_run_or_replay(struct tern_run *r);

/* What a run takes at least, by the peak of the device: each step as fast as its arithmetic or its memory allows. 0: it is not known. */
double tern_plan_least_seconds(const struct tern_plan *p, const struct tern_device_peak *peak);

/* tuning.c: a key of what measurements say of the plan's steps, as far as that is not what the cost model says; 0: it is. */
uint64_t tern_plan_tuned(const struct tern_plan *p);
/* compile.c: an empty plan, and its steps from the graph after all passes. kernels: by node; NULL: they are chosen. */
struct tern_plan *tern_plan_create(struct tern_context *ctx);
enum tern_status tern_plan_steps(struct tern_plan *p, const struct tern_kernel *const *kernels);
/* Refuses a plan with a result that no buffer of the device holds: after tern_plan_layout, which places none of its blocks then. */
enum tern_status tern_plan_check_window(const struct tern_plan *p);

/* What tern_plan_bind gives for other weights, with what a former binding of the plan has prepared of those that are the same. */
struct tern_binding *tern_plan_bind_anew(struct tern_plan *plan, const struct tern_weights *weights, const struct tern_binding *former);
/* prepared.c: runs the prepare graph of a binding whose weights and constants are there. With a binding beside it takes from that, and from
 * a former one of the plan (NULL: none). */
enum tern_status tern_binding_prepare(struct tern_binding *b, const struct tern_binding *former);
/* Memory that this takes beside packed forms of that size, which are not those that both plans have, when another plan (or NULL) has a
 * binding beside it. */
size_t tern_plan_prepared_bytes(const struct tern_plan *p, const struct tern_plan *other, size_t packs);
/* bind.c: what an allocation of that size counts for, with the structs around it. */
size_t tern_bound_bytes(const struct tern_device *d, size_t size);

/* Sizes and offsets of all blocks, from an earlier layout of the same plan. */
struct tern_placement {
    const struct tern_plan_block *blocks;
    int n_blocks;
    size_t arena;
};
/* tern_plan_bind_bytes when another plan (or NULL) will be bound to the same set then; `shares`: and this one beside it: bind.c. */
size_t tern_plan_bind_bytes_beside(const struct tern_plan *plan, const struct tern_plan *other, const struct tern_weights *weights,
                                   bool shares);
/* Steps with equal keys, kernels and weights share a packed form. */
static inline uint64_t tern_step_pack_key(const struct tern_step *s) { return s->kernel->pack_key ? s->kernel->pack_key(s->desc) : 0; }
/* layout.c: whether an earlier step has the packed form that this one keeps. */
bool tern_step_packed_before(const struct tern_plan *p, int step);
/* layout.c: whether a weight is brought at every run of the step, which has a kernel. */
bool tern_step_streams(const struct tern_step *s);
/* layout.c: gives every operand of every step its place. The plan's graph and steps' kernels are set. given: where the blocks
 * lie; refused (TERN_E_FORMAT) when two that live at once overlap. They are placed anew when it is NULL or the sizes are others:
 * workspaces depend on the number of threads. */
enum tern_status tern_plan_layout(struct tern_plan *p, const struct tern_placement *given);

#endif

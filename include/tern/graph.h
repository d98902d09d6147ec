/* Graphs: ops that are recorded instead of run, compiled into a plan, and run with any weight set that fits.
 *
 *     static enum tern_status block(void *model, tern_tensor *const *in, tern_tensor **out) { … ops … }
 *
 *     struct tern_graph *g = tern_graph_trace(ctx, block, model, weights, inputs, 2, 1);
 *     struct tern_plan *plan = tern_plan_compile(g, NULL);
 *     struct tern_binding *b = tern_plan_bind(plan, weights);
 *     tern_plan_run(b, in, out);
 *
 * A plan holds no weights and never changes; a binding is a plan's view of one weight set. Plans and bindings are reference
 * counted. One plan may run in several threads at once, with the same or other bindings, if each thread gives contiguous
 * inputs that lie on the plan's device and output tensors of its own: every run has its own memory. Tracing, compiling and binding take the
 * context, as ops do: one thread at a time. */
#ifndef TERN_GRAPH_H
#define TERN_GRAPH_H

#include <tern/tensor.h>
#include <tern/weights.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tern_graph;
struct tern_plan;
struct tern_binding;

#define TERN_GRAPH_MAX_IO 256

/* What a graph is given at every run: contiguous, of that shape and dtype. */
struct tern_graph_input {
    const char *name;
    enum tern_dtype dtype;
    int ndim;
    int64_t shape[TERN_MAX_DIMS];
};

/* Computes outputs from inputs with ops. While it is recorded its tensors have no values, reading one is an error, and
 * they belong to this recording: nothing else takes them. Scopes that it begins it ends, and no others. Tensors of the weight set are named
 * slots of the graph; any other tensor that it uses becomes a constant of the graph, with the values that it has when a plan is
 * compiled. */
typedef enum tern_status (*tern_graph_fn)(void *user, tern_tensor *const *inputs, tern_tensor **outputs);

/* Records fn. `weights` may be NULL; no two of its names may be one tensor, since the calls could not tell which they mean
 * (TERN_E_INVALID). At most TERN_GRAPH_MAX_IO inputs and outputs. NULL with the error recorded. */
TERN_API struct tern_graph *tern_graph_trace(struct tern_context *ctx, tern_graph_fn fn, void *user, struct tern_weights *weights,
                                             const struct tern_graph_input *inputs, int n_inputs, int n_outputs);
TERN_API void tern_graph_destroy(struct tern_graph **graph);
/* The graph as text, one line a node, handed to `write` line by line (without line ends). */
TERN_API void tern_graph_print(const struct tern_graph *graph, void (*write)(void *user, const char *line), void *user);

/* The same for Graphviz. */
TERN_API void tern_graph_print_dot(const struct tern_graph *graph, void (*write)(void *user, const char *line), void *user);

/* The same as one JSON object, in one line that is handed over whole: "pass" (the argument, or null), "inputs", "weights",
 * "constants", "nodes" and "outputs". Values are numbers, as in the text; a node has "output", "op", "inputs", "shape",
 * "dtype", "attributes", "posts", "kind" (launch, reference, view, join) and "prepare"; "pre", if a norm is in front of it. Names that are
 * not UTF-8 are repaired with U+FFFD, infinite attributes are strings. TERN_E_NO_MEMORY: nothing was written. */
TERN_API enum tern_status tern_graph_print_json(const struct tern_graph *graph, const char *pass,
                                                void (*write)(void *user, const char *line), void *user);

struct tern_plan_params {
    /* Passes to leave out, by name, separated by commas ("fuse,cse"); "all": none runs. NULL: every pass runs. */
    const char *without;
    /* Most bytes of prepared weights that a binding keeps: the first steps' are kept, the others' are made from the weights at
     * every run, in the arena (streaming). 0: no limit. 1: none is kept. */
    size_t resident;
    /* Most bytes of prepared weights that the pass "algorithm" may add to those of the eager kernels: its kernels then go where they save
     * most time for each byte. 0: all that pays (128 operations a byte or more, or 16 MiB or less). 1: none. */
    size_t algorithm_bytes;
    /* Bytes that the arena is wanted to keep to. When it does not, large pictures (one at a time, channels-last) are computed in bands
     * of rows, norms with the statistics of the whole picture: no seams, and other rounding. The plan is then the smallest that was
     * found; its facts tell whether it keeps to the limit. 0: no limit. With or without: what is larger than a buffer of the device may be
     * has pictures computed so, too. */
    size_t arena;
    /* Which linear layers and convolutions compute in int8 or keep their weights in few bits: words separated by spaces, of names of
     * weights as they are in the set, where * stands for any characters, behind a ! for those that do not; the last word that fits counts
     * ("* !conv_in.weight"). Behind a word, how: ":w8a8", int8, as without it; ":w8" and ":w4", weights in 8 bits and in 4, which are
     * expanded as they are used ("*:w4 *.to_q.weight:w8"). Weights are quantised as they are bound. Behind the name of a norm's weight and
     * a ^: a letter for each of its channels, A to Z for 2^(-26/4) to 2^(-1/4), a to z for 1 to 2^(25/4). Where layers of int8 read the
     * norm, or silu of it, and no op but linear layers and convolutions, it is divided by these factors and the weights behind it are
     * multiplied (SmoothQuant). NULL: none. */
    const char *quantize;
    /* Called after the trace and after each pass that ran, of each try; NULL: not called. */
    void (*after)(void *user, const char *pass, const struct tern_graph *graph);
    void *user;
};

/* Rewrites a copy of the graph and fixes kernels, order and memory. params NULL: defaults. NULL with the error recorded: also
 * for an unknown pass (the message lists them). */
TERN_API struct tern_plan *tern_plan_compile(const struct tern_graph *graph, const struct tern_plan_params *params);
/* The plan that the context has made of an equal graph with equal params before (it keeps 64, those used last), or that an earlier
 * process has left in the cache folder; else tern_plan_compile, and the plan is kept (on disk from 128 launches on). A file that is damaged
 * or of another tern, device, driver or processor is ignored with one line of the log. params->after is called when the plan is compiled. */
TERN_API struct tern_plan *tern_plan_cached(const struct tern_graph *graph, const struct tern_plan_params *params);
TERN_API struct tern_plan *tern_plan_ref(struct tern_plan *plan);
TERN_API void tern_plan_unref(struct tern_plan **plan);

/* Writes the plan to a file, complete or not at all. A file holds no weights, but the constants of the graph; with more than
 * 64 MiB of them the plan is refused (TERN_E_UNSUPPORTED). */
TERN_API enum tern_status tern_plan_save(const struct tern_plan *plan, const char *path);
/* A plan that does what the saved one did, bit for bit; its compile_time is that of loading. Files of another version of tern,
 * another device or driver, other libraries of a GPU, another processor or level of it are refused, as damaged ones are (TERN_E_FORMAT):
 * compile again. With another number of threads the memory is laid out anew. NULL with the error recorded. */
TERN_API struct tern_plan *tern_plan_load(struct tern_context *ctx, const char *path);

/* The graph after all passes; borrowed. For reports: it is not compiled again. */
TERN_API const struct tern_graph *tern_plan_graph(const struct tern_plan *plan);

/* That graph as tern_graph_print_json gives it; nodes that run each time also have "step" and "kernel". "pass" is null. */
TERN_API enum tern_status tern_plan_print_json(const struct tern_plan *plan, void (*write)(void *user, const char *line), void *user);

/* What a plan needs and does. Bytes. */
struct tern_plan_facts {
    int launches;        /* kernels that run each time */
    int prepared;        /* nodes that run once for each binding */
    int streamed;        /* steps whose weights are prepared at every run */
    size_t resident;     /* prepared weights of the other steps, once for each weight set */
    size_t travels;      /* prepared weights of streamed steps: what each run prepares or reads */
    size_t arena;        /* memory of one run beside inputs and outputs */
    size_t outputs;      /* of all outputs together */
    size_t least_arena;  /* the largest sum of tensors that live at once: no plan of this order needs less */
    double flops;        /* multiplications and additions of the products of one run, as their definitions have them */
    double compile_time; /* seconds */
};
TERN_API struct tern_plan_facts tern_plan_facts(const struct tern_plan *plan);

/* What was measured of one kind of step of a plan. Strings are valid during the call. */
struct tern_tuned_step {
    const char *op, *output;       /* "conv2d", "(2, 320, 64, 64) f32" */
    int steps;                     /* how many of the plan's steps are of that description */
    const char *kernel;            /* the fastest */
    const char *usual;             /* the cost model's choice; the fastest may be the same */
    double seconds, usual_seconds; /* medians of a call; usual_seconds 0: it could not be measured */
};
/* What the context knows by measurement of the plan's steps, those that take most time first; see tern_tune_params. A step may take
 * another kernel than the fastest where algorithm_bytes has no room for its weights. */
TERN_API enum tern_status tern_plan_tuning(const struct tern_plan *plan, void (*tell)(void *user, const struct tern_tuned_step *step),
                                           void *user);

/* Gives the memory of idle runs back: the next run takes it anew. Thread safe. */
TERN_API void tern_plan_trim(struct tern_plan *plan);

/* What lies in the arena at the step that needs most, largest first, and that step; one line each. Then what would lower that
 * peak, and to how much: another kernel without scratch, a tensor that only waits, and what the next step needs. */
TERN_API void tern_plan_print_memory(const struct tern_plan *plan, void (*write)(void *user, const char *line), void *user);
/* All of the arena as one JSON object in one line, in bytes and steps: "arena", "least_arena", "steps", "peak" and what would
 * lower it, and "blocks". TERN_E_NO_MEMORY: nothing was written. */
TERN_API enum tern_status tern_plan_print_memory_json(const struct tern_plan *plan, void (*write)(void *user, const char *line),
                                                      void *user);
/* The arena over the steps as a picture: lines of SVG. A rectangle a block, with who made it as its tooltip; what lies there at
 * the step that needs most stands beside it with its names. */
TERN_API void tern_plan_draw_memory(const struct tern_plan *plan, void (*write)(void *user, const char *line), void *user);

/* Looks every weight up by name and prepares what kernels want prepared. A weight that is missing or of another shape or
 * dtype is refused by name. The binding holds the tensors that it needs. From then on nothing writes to their memory: neither
 * tern_tensor_write nor a run that is given them as outputs. NULL with the error recorded. */
TERN_API struct tern_binding *tern_plan_bind(struct tern_plan *plan, const struct tern_weights *weights);
/* Memory that tern_plan_bind would take for that set now: less when other bindings have had its weights prepared. */
TERN_API size_t tern_plan_bind_bytes(const struct tern_plan *plan, const struct tern_weights *weights);
TERN_API struct tern_plan *tern_binding_plan(const struct tern_binding *binding); /* borrowed */

/* Where the weights of streamed steps come from (plans whose params have `resident`): on the CPU, where kernels want them prepared, and on
 * devices with memory of their own, to which they are copied. */
enum tern_streaming {
    TERN_STREAMING_SPILL,  /* the second run of the binding writes what it prepares to a file, and later runs read it there: on the CPU
                            * packed weights, else int8 and weights in few bits, which are then copied in place of the weights. There
                            * a weight is copied while steps before it are computed, where the device can do both */
    TERN_STREAMING_DEMAND, /* likewise, but the system is not asked for the pages of the next steps ahead, and weights are copied in
                            * their steps' turn: for comparison */
    TERN_STREAMING_PREPARE /* each run prepares them anew; copies are as with the one before */
};
/* TERN_STREAMING_SPILL is the default, and a call begins it anew. The file lies in the cache folder, has no name, and is gone with the
 * binding or its process. It is not made where the disk would then have less space free than the file takes; with one line of the log, runs
 * prepare anew then, and so they do when it cannot be written or read. Not while the binding runs; nothing changes while an error is
 * recorded. */
TERN_API void tern_binding_set_streaming(struct tern_binding *binding, enum tern_streaming streaming);

TERN_API struct tern_binding *tern_binding_ref(struct tern_binding *binding);
TERN_API void tern_binding_unref(struct tern_binding **binding);

/* One run. inputs: of the plan's context, as the trace declared them, any strides, on the device or the host. outputs[i]: NULL gets a new
 * tensor (of the open scope, or the caller's), a tensor from an earlier run that is no input is written again (then nothing is allocated),
 * each at most once. On an error the contents of given outputs are undefined and nothing new is left. */
TERN_API enum tern_status tern_plan_run(struct tern_binding *binding, tern_tensor *const *inputs, tern_tensor **outputs);

/* One step of a run. Strings are valid during the call. */
struct tern_step_profile {
    const char *op, *kernel; /* "conv2d", "conv2d_f32_igemm"; "reference" */
    const char *output;      /* "(2, 320, 64, 64) f32" */
    double start, seconds;   /* start: since the run began */
    double bring;            /* seconds of it until a streamed weight was there; 0: none is streamed */
    double flops;            /* multiplications and additions of products; 0 for all other ops */
    double bytes;            /* operands and result, each once */
    /* Share of the roofline: the least time that the device's peak allows over the time taken, max(flops / peak.flops, bytes /
     * peak.bytes) / seconds, for bf16 with peak.flops_bf16 where the device has it [Williams, Waterman, Patterson 2009]. Above 1 for a
     * kernel that needs fewer operations than the op's definition (Winograd), or whose operands lie in a cache. 0: not known. */
    double roofline;
};
/* tern_plan_run that tells what each step took: `tell` is called after the step, outside of its time. If tern_device_peak was not
 * asked before, it is measured before the run begins. */
TERN_API enum tern_status tern_plan_profile(struct tern_binding *binding, tern_tensor *const *inputs, tern_tensor **outputs,
                                            void (*tell)(void *user, const struct tern_step_profile *step), void *user);

#ifdef __cplusplus
}
#endif
#endif

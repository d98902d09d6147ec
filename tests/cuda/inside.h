/* The inside of the stand-in driver: handles, memory, commands that wait in streams. One lock guards all of it. */
#ifndef TERN_TESTS_CUDA_INSIDE_H
#define TERN_TESTS_CUDA_INSIDE_H

#include <stdbool.h>

#include "tests/cuda/kernel.h"
#include "tests/cuda/standin.h"

/* For libraries that stand in beside the driver: a function of the host in the stream's order, with arguments as a kernel has them; and
 * whether memory of the device holds that range. */
STANDIN_API CUresult standin_launch_host(CUstream stream, const struct standin_kernel *k, void **arguments);
STANDIN_API int standin_holds(CUdeviceptr at, size_t size);

#define DECLARE(name, arguments) STANDIN_API CUresult name arguments;
CUDA_FUNCTIONS(DECLARE)
CUDA_LATER_FUNCTIONS(DECLARE)
#undef DECLARE

enum { STREAMS = 8, MOST_COMMANDS = 4096 };

/* Handles are numbers of a table, so that any value can be looked up; entries stay when their object is gone. */
enum kind { KIND_STREAM = 1, KIND_EVENT, KIND_MODULE, KIND_FUNCTION, KIND_GRAPH, KIND_EXEC, KIND_POOL, KINDS };

/* How far each stream has come, as somebody knows it: commands up to that number are over. */
struct knowledge {
    uint64_t over[STREAMS];
};

struct launch {
    CUmodule module;
    struct standin_kernel kernel;
    struct standin_three groups, size;
    void *memory; /* the arguments' values, one behind the other; owned */
    size_t bytes;
    void *arguments[STANDIN_ARGUMENTS];
};

enum what { WHAT_KERNEL, WHAT_IN, WHAT_OUT, WHAT_RECORD, WHAT_WAIT, WHAT_FREE };
struct command {
    enum what what;
    uint64_t number;
    struct launch launch;
    CUdeviceptr device;
    void *host;
    size_t size;
    uint64_t sum;          /* of pinned memory that is copied */
    struct knowledge wait; /* what a wait waits for */
    CUresult inject;
};

struct stream {
    int index;             /* below STREAMS */
    struct command *queue; /* those from head to n - 1 wait */
    int head, n, capacity;
    uint64_t next;          /* number of the next command, from 1 */
    struct knowledge known; /* what is over before the next command */
    struct graph *capture;  /* NULL: it runs */
    int mode;
    bool broken; /* the capture */
};

struct event {
    struct stream *stream; /* NULL: never recorded */
    int index;             /* the stream's, which may be gone */
    uint64_t number;
    struct knowledge known;
    bool captured;
};

struct module {
    void *library;
    struct standin_kernel kernel;
};

struct function {
    CUmodule module;
    struct standin_kernel kernel;
};

struct graph {
    struct launch *nodes;
    int n, capacity;
    struct stream *last; /* of an exec: where it was launched, and when */
    int index;
    uint64_t number;
};

/* A range that a copy writes: what is known of it more exactly than of a kernel, which has but pointers. */
struct span {
    uintptr_t begin, end;
    int stream;
    uint64_t number;
};

/* A piece of memory that was allocated. */
enum { SPANS = 32 };
struct block {
    uintptr_t at;
    size_t size;
    char *map; /* with a page that cannot be touched before and behind it */
    size_t map_size;
    bool host, mapped;
    bool freed;                      /* in the order of a stream, and not there yet */
    uint64_t written, read[STREAMS]; /* by which command of which stream */
    int writer;
    struct span spans[SPANS]; /* of the last copies */
    int next_span;
};

struct standin {
    struct standin_facts facts;
    struct standin_counts counts;
    bool initialised;
    int retained;
    CUresult lost;
    int n_misuses;
    char misuse[400];
    struct knowledge host; /* what the host has waited for */
    size_t used;
    struct stream *streams[STREAMS];
    struct block **blocks; /* by address */
    int n_blocks, block_capacity;
};
extern struct standin standin;

/* objects.c. enter: the lock, injected faults, a sticky error, and (needs_context) a current context. */
CUresult standin_enter(const char *function, bool needs_context, int *held);
void standin_leave(int *held);
#define ENTER(needs_context)                                            \
    __attribute__((cleanup(standin_leave))) int held_ = 0;              \
    CUresult entered_ = standin_enter(__func__, needs_context, &held_); \
    if (entered_)                                                       \
    return entered_
/* Records the first misuse; returns the error. */
CUresult standin_misuse(CUresult error, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
CUresult standin_injected(const char *function);
void *standin_new(enum kind kind, size_t size, void **handle);
/* NULL, and a misuse, when there is no such object (any more). */
void *standin_get(enum kind kind, const void *handle, const char *function);
CUresult standin_delete(enum kind kind, const void *handle, const char *function);
void standin_forget_context(void); /* device.c */

/* memory.c: the block that holds the range; NULL. */
struct block *standin_block(uintptr_t at, size_t size);
void standin_release(struct block *b);
/* Whether a command of that stream may touch it now: no other stream may be at it, unless the one has waited for the other. */
CUresult standin_touch(struct block *b, struct stream *s, bool writes, const char *function);
/* A copy to the device writes the range: other streams may be at the rest of the block meanwhile. Whether they are at the range shows in
 * what is computed (facts.eager). */
void standin_touch_span(struct block *b, struct stream *s, uintptr_t at, size_t size);
/* Whether a command of that stream may read from there on: what was copied there is waited for. */
CUresult standin_touch_copied(const struct block *b, const struct stream *s, uintptr_t at, size_t size, const char *function);
void standin_spoil(void *at, size_t size);

/* stream.c */
void standin_enqueue(struct stream *s, struct command *c);
/* Runs commands up to that number. */
void standin_run_until(struct stream *s, uint64_t number);
void standin_wait(struct stream *s, uint64_t number);
void standin_learn(struct knowledge *to, const struct knowledge *from);
void standin_graph_add(struct graph *g, const struct launch *l); /* graph.c */
/* launch.c: checks and marks what the launch touches, and enqueues a copy of it. */
CUresult standin_launch(struct stream *s, const struct launch *l, const char *function);
struct launch standin_copy_launch(const struct launch *l);
/* run.c: CUDA_ERROR_ILLEGAL_ADDRESS when it touches memory that is not there. */
CUresult standin_run_kernel(const struct launch *l);

#endif

/* The hardware-abstraction layer: devices, buffers, queues, events and programs as function tables.
 * A backend fills the tables; everything above calls through the tern_device_* wrappers, which check their input,
 * so that backends receive what is valid. */
#ifndef TERN_CORE_HAL_H
#define TERN_CORE_HAL_H

#include <tern/context.h>

struct tern_device;
struct tern_buffer;
struct tern_queue;
struct tern_event;
struct tern_capture;
struct tern_meta;
struct tern_kernel;      /* ops/kernel.h */
struct tern_kernel_args; /* ops/kernel.h */

struct tern_buffer_fns {
    void (*destroy)(struct tern_buffer *);
    /* Range is inside the buffer. Waits for the device. */
    enum tern_status (*write)(struct tern_buffer *, size_t offset, const void *src, size_t size);
    enum tern_status (*read)(struct tern_buffer *, size_t offset, void *dst, size_t size);
};

struct tern_queue_fns {
    /* Runs a kernel after everything that was launched before it. May return before it is done. */
    enum tern_status (*launch)(struct tern_queue *, const struct tern_kernel *, const struct tern_kernel_args *);
    enum tern_status (*finish)(struct tern_queue *); /* all launches are done, or their error */
    struct tern_event *(*record)(struct tern_queue *);
    /* Launches of this thread between begin and end are kept, not run; those of other threads wait. Every begin that succeeded is
     * followed by an end, whatever failed in between. Replay enqueues the whole behind everything before; when a buffer of it is gone,
     * a capture may only be destroyed. When one was moved (tern_device.moved), replay does nothing but set `stale`. All three are NULL on
     * queues that cannot. */
    enum tern_status (*capture_begin)(struct tern_queue *);
    struct tern_capture *(*capture_end)(struct tern_queue *); /* NULL with the error recorded */
    enum tern_status (*replay)(struct tern_queue *, struct tern_capture *);
    /* A write beside the launches, by a copy engine: it waits for what was launched before `after` and for no more, and what is launched
     * from now on waits for it. `src` was read when it returns. No capture is open. NULL: writes are in the queue's order. */
    enum tern_status (*write_beside)(struct tern_queue *, const struct tern_event *after, struct tern_buffer *, size_t offset,
                                     const void *src, size_t size);
};

struct tern_capture_fns {
    void (*destroy)(struct tern_capture *); /* waits until no replay of it runs */
};

struct tern_event_fns {
    void (*destroy)(struct tern_event *);
    enum tern_status (*wait)(struct tern_event *);
    /* It happens anew, behind everything that was launched so far. NULL on queues without write_beside. */
    enum tern_status (*record)(struct tern_event *);
};

struct tern_device_fns {
    void (*destroy)(struct tern_device *);
    /* One line for people: model, memory, features. */
    void (*describe)(const struct tern_device *, char *out, size_t size);
    /* Of it, what decides which kernels there are and how long they take: equal texts, equal times. NULL table entry: all of describe. */
    void (*identify)(const struct tern_device *, char *out, size_t size);
    /* Memory of that size, not cleared; NULL (error recorded) when there is none. */
    struct tern_buffer *(*buffer_create)(struct tern_device *, size_t size);
    /* The same for a weight: memory that is written once, then read. Where the device has no room it may lie in the host's memory, which
     * kernels read over the bus, and it may be moved between the two. NULL table entry: the device has but one kind. */
    struct tern_buffer *(*weight_create)(struct tern_device *, size_t size);
    /* A buffer of buffer_create becomes such a one; its contents are there. With weight_create. */
    void (*weight_mark)(struct tern_buffer *);
    /* The next launches read these again and again: they go to the device's own memory before all others, as far as there is room. Other
     * buffers among them are passed by. With weight_create. */
    enum tern_status (*weights_use)(struct tern_device *, struct tern_buffer *const *buffers, int n);
    /* Gives cached memory back; may be NULL. */
    void (*trim)(struct tern_device *);
    /* See tern_device_peak. Measured once, then kept; zero when that cannot be now. Thread safe. NULL table entry: not known. */
    enum tern_status (*peak)(struct tern_device *, struct tern_device_peak *out);
};

/* Facts that kernels and planner ask for; 0 or false means: not there. */
struct tern_device_caps {
    bool host_memory;           /* buffers have a host pointer */
    bool prefers_channels_last; /* conv2d reads and writes (N, H, W, C) in memory */
    bool computes;              /* false: allocates and records only */
    bool merges;                /* launches are dear: layers of one input are better one (graph/passes/merge.c) */
    bool software;              /* runs on the host's processor again: "auto" passes it by */
    bool in_place;              /* element-wise kernels may write their result where an operand lies */
    bool uniform_bias;          /* conv2d and linear of f16 and bf16 are faster with a bias of their dtype than with one in f32 */
    bool uniform_weights;       /* the same with weights: of another dtype they meet no matrix units, and no vendor's library */
    enum tern_dtype fast_dtype; /* see tern_context_fast_dtype */
    size_t cache;               /* bytes of the last cache, where the tensors of a run should stay; 0: batches as large as asked for */
    size_t max_buffer;          /* bytes; 0: no limit but memory */
    size_t max_argument;        /* bytes: of a larger tensor kernels take parts (some take more at once); 0: any buffer */
    int64_t max_rows;           /* tern_desc_rows: of a product with more kernels make parts (some make more at once); 0: any number */
    size_t reach;               /* bytes: what lies in a buffer, and not at its begin, ends within so many; 0: anywhere */
    size_t compiling;           /* bytes of the host that kernels of a job take beside its plans: a source and a binary, and what stays */
    size_t memory, host_share;  /* bytes of its own memory that may be taken, of the host's for weights beside it; memory 0: no limit */
};

/* Whether kernels take a tensor whole. */
bool tern_caps_take(const struct tern_device_caps *caps, const struct tern_meta *m);

struct tern_device {
    const struct tern_device_fns *fns;
    struct tern_context *ctx; /* not owned: the context owns the device */
    const char *name;         /* "cpu", "null" … static */
    const char *level;        /* which of its kernels' variants run: "avx2" … static; NULL: there is one */
    struct tern_device_caps caps;
    const struct tern_kernel *const *kernels; /* NULL-terminated */
    struct tern_queue *queue;                 /* the default queue */
    uint64_t moved;                           /* atomic: how often a buffer came to lie elsewhere */
    char identity[1024];                      /* see tern_device_identity; empty until it is asked for */
};

struct tern_buffer {
    const struct tern_buffer_fns *fns;
    struct tern_device *device;
    int refs;
    size_t size;
    void *host;                  /* NULL when the host cannot see it, or it makes what is read of it */
    void (*release)(void *user); /* wrapped memory: called instead of freeing */
    void *user;
    uint64_t id;   /* of all buffers that the context ever had; 0: memory that something else owns */
    bool constant; /* no tensor over it is written to any more */
};

struct tern_queue {
    const struct tern_queue_fns *fns;
    struct tern_device *device;
    uint64_t launches; /* so far */
};

struct tern_event {
    const struct tern_event_fns *fns;
    struct tern_queue *queue;
};

struct tern_capture {
    const struct tern_capture_fns *fns;
    struct tern_queue *queue;
    int launches;
    uint64_t moved; /* its device's, when it began */
    bool stale;     /* a replay found that buffers were moved since */
};

/* What the entry identify says, the same as long as the device is open, and in every locale: model, driver, libraries, which it may open
 * for this. */
const char *tern_device_identity(struct tern_device *device);

struct tern_buffer *tern_buffer_create(struct tern_device *device, size_t size);
/* A buffer for a weight: see weight_create, weight_mark. On devices with but one kind of memory, one like any other. */
struct tern_buffer *tern_buffer_create_weight(struct tern_device *device, size_t size);
void tern_buffer_mark_weight(struct tern_buffer *b);
/* Memory that something else owns; release(user) is called when the last reference goes. On failure NULL,
 * and release is not called. */
struct tern_buffer *tern_buffer_wrap(struct tern_device *device, void *host, size_t size, void (*release)(void *), void *user);
struct tern_buffer *tern_buffer_ref(struct tern_buffer *b);
void tern_buffer_unref(struct tern_buffer **b);
enum tern_status tern_buffer_write(struct tern_buffer *b, size_t offset, const void *src, size_t size);
enum tern_status tern_buffer_read(struct tern_buffer *b, size_t offset, void *dst, size_t size);
/* write_beside of the device's queue, which has it. */
enum tern_status tern_buffer_write_beside(struct tern_buffer *b, const struct tern_event *after, size_t offset, const void *src,
                                          size_t size);

/* Ops and traces go to that device of the context until the one that this returns is given back in the same way: one thread at a time, as
 * ops are. Graphs remember theirs; plans and bindings are of their graph's, wherever the context is. */
struct tern_device *tern_device_go(struct tern_context *ctx, struct tern_device *device);

/* tern_device_peak of any device of a context. */
enum tern_status tern_device_measure(struct tern_device *device, struct tern_device_peak *peak);

/* The context's default device, and the host's (they are the same on a CPU context). */
struct tern_device *tern_default_device(struct tern_context *ctx);
struct tern_device *tern_host_device(struct tern_context *ctx);

#endif
